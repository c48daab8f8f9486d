"""Steps of a sum that are packed into words: pack_words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_checks import replays
from word_programs import convolution, data, product

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.errors import ScheduleError
from tilewright.tir.schedule.library.words import narrow_product_of

BYTES = [("uint8", "int8"), ("int8", "uint8"), ("int8", "int8"), ("uint8", "uint8")]
PAIRS = [("int16", "int16"), ("bfloat16", "bfloat16"), ("float16", "float16")]


def packed(func: Any, name: str, step: int, first: str, second: str) -> tir.Schedule:
    sch = tir.Schedule(func)
    sch.pack_words(name, sch.get_loops(name)[step], first, second)
    return sch


def check(func: Any, sch: tir.Schedule) -> None:
    """The interpreter and LLVM give what the plain program gives; sums of integers exactly."""
    want, got = data(func), data(func)
    compiled = [tvm.nd.array(x) for x in want]
    tir.interpret(func, *want)
    tir.interpret(sch.mod["main"], *got)
    with tvm.transform.PassContext(opt_level=0):
        tvm.build(sch.mod, target="llvm")(*compiled)
    exact = not np.issubdtype(want[-1].dtype, np.floating)
    for x in (got[-1], compiled[-1].numpy()):
        np.testing.assert_allclose(x, want[-1], rtol=0 if exact else 1e-5, atol=0 if exact else 1e-5)
    assert want[-1].any()
    replays(func, sch)


@pytest.mark.parametrize("kinds", BYTES)
@pytest.mark.parametrize(
    "as_kinds", [("uint8", "int8"), ("int8", "uint8"), ("int8", "int8"), ("int16", "int16")]
)
@pytest.mark.parametrize("k", [8, 7])
def test_bytes(kinds: tuple[str, str], as_kinds: tuple[str, str], k: int) -> None:
    func = product(*kinds, k=k)
    if "int16" not in as_kinds and all(x != y for x, y in zip(kinds, as_kinds, strict=True)):
        with pytest.raises(ScheduleError, match="the signs of both factors would change"):
            packed(func, "C", 2, *as_kinds)
        return
    check(func, packed(func, "C", 2, *as_kinds))


@pytest.mark.parametrize("kinds", PAIRS)
@pytest.mark.parametrize("k", [6, 5])
def test_numbers_of_16_bits(kinds: tuple[str, str], k: int) -> None:
    func = product(*kinds, k=k)
    forms = {"int16": ["int16"], "bfloat16": ["bfloat16", "float32"], "float16": ["float32"]}[kinds[0]]
    for form in forms:
        check(func, packed(func, "C", 2, form, form))


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [("uint8", "int8"), ("int8", "int8")])
@pytest.mark.parametrize("channels, groups", [(6, 1), (8, 2), (3, 1)])
def test_convolutions(kinds: tuple[str, str], channels: int, groups: int) -> None:
    func = convolution(*kinds, channels, groups=groups)
    sch = tir.Schedule(func)
    blocks = sch.get_child_blocks(sch.get_block("root"))
    (conv,) = [b for b in blocks if sch.get(b).init is not None]
    found = narrow_product_of(sch.get(conv))
    assert not isinstance(found, str)
    (step, *_) = found.steps(("uint8", "int8"))
    (at,) = [i for i, iv in enumerate(sch.get(conv).iter_vars) if iv is step]
    assert step.dom.extent.value == channels // groups
    check(func, packed(func, sch.get(conv).name_hint, at, "uint8", "int8"))


@settings(max_examples=examples(30), deadline=None)
@given(st.data())
def test_random_products(draw: st.DataObject) -> None:
    kinds = draw.draw(st.sampled_from(BYTES))
    as_kinds = draw.draw(st.sampled_from([kinds, (kinds[0], "int8"), ("int16", "int16")]))
    m, n, k = (draw.draw(st.integers(1, 9)) for _ in range(3))
    func = product(*kinds, m, n, k, (draw.draw(st.booleans()), draw.draw(st.booleans())))
    sch = packed(func, "C", 2, *as_kinds)
    want, got = data(func), data(func)
    tir.interpret(func, *want)
    tir.interpret(sch.mod["main"], *got)
    np.testing.assert_array_equal(got[-1], want[-1])


def windows(
    first: str = "int8", second: str = "int8", size: int = 4, stride: int = 1, dilation: int = 1
) -> Any:
    whole = 11 * stride + (size - 1) * dilation + 1
    A, B = te.placeholder((2, whole), first, name="A"), te.placeholder((size,), second, name="B")
    s = te.reduce_axis((0, size), name="s")

    def term(r: Any, i: Any) -> Any:
        return te.sum(A[r, i * stride + s * dilation].astype("int32") * B[s].astype("int32"), axis=s)

    return te.create_prim_func([A, B, te.compute((2, 12), term, name="C")])


def correlation() -> Any:
    A = te.placeholder((16,), "int8", name="A")
    s = te.reduce_axis((0, 4), name="s")
    C = te.compute(
        (12,), lambda i: te.sum(A[i + s].astype("int32") * A[i + s].astype("int32"), axis=s), name="C"
    )
    return te.create_prim_func([A, C])


@pytest.mark.parametrize("kinds", BYTES)
@pytest.mark.parametrize("as_kinds", [("uint8", "int8"), ("int8", "uint8"), ("int16", "int16")])
@pytest.mark.parametrize("size", [2, 3, 4, 5, 7])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_words_of_windows_overlap(
    kinds: tuple[str, str], as_kinds: tuple[str, str], size: int, stride: int
) -> None:
    """The numbers of a word behind a window are multiplied by zeros, also where a sign changes."""
    func = windows(*kinds, size, stride)
    if "int16" not in as_kinds and all(x != y for x, y in zip(kinds, as_kinds, strict=True)):
        return
    check(func, packed(func, "C", 2, *as_kinds))


@pytest.mark.parametrize("first", ["uint8", "int8", "int16"])
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5])
def test_vectors_of_words_that_overlap(first: str, size: int, stride: int) -> None:
    """They are loaded as neighbours and permuted."""
    kinds = (
        ("int16", "int16")
        if first == "int16"
        else ("uint8", "int8")
        if first == "uint8"
        else ("int8", "uint8")
    )
    func = windows(first, first if first == "int16" else "int8", size, stride)
    sch = packed(func, "C", 2, *kinds)
    sch.compute_inline("A_words")
    r, i, *_ = sch.get_loops("C")
    outer, lanes = sch.split(i, [None, 4])
    sch.reorder(sch.get_loops("C")[-1], lanes)
    sch.vectorize(lanes)
    check(func, sch)


def differences() -> Any:
    A, B = te.placeholder((4, 8), "int8", name="A"), te.placeholder((8,), "int8", name="B")
    s = te.reduce_axis((0, 8), name="s")
    C = te.compute((4,), lambda i: te.sum(A[i, s].astype("int32") - B[s].astype("int32"), axis=s), name="C")
    return te.create_prim_func([A, B, C])


@pytest.mark.parametrize(
    ("func", "step", "kinds", "why"),
    [
        (product("int8", "int8"), 0, ("uint8", "int8"), "loop `i` is no step of the sum"),
        (product("int8", "int8"), 2, ("uint8", "int16"), "no word holds numbers of uint8 and int16"),
        (product("int8", "int8"), 2, ("float32", "float32"), "float32 takes float16, bfloat16"),
        (
            product("float16", "float16"),
            2,
            ("int8", "int8"),
            "A has elements of float16, and int8 takes int8",
        ),
        (windows(dilation=2), 2, ("int8", "int8"), "they are not the neighbours along one dimension of A"),
        (correlation(), 1, ("int8", "int8"), "the words of both factors would overlap"),
        (differences(), 1, ("int8", "int8"), "does not add up products"),
    ],
)
def test_refusals(func: Any, step: int, kinds: tuple[str, str], why: str) -> None:
    with pytest.raises(ScheduleError, match=why):
        packed(func, "C", step, *kinds)


def test_a_product_is_recognised_behind_its_conversions() -> None:
    sch = tir.Schedule(product("uint8", "int8"))
    found = narrow_product_of(sch.get(sch.get_block("C")))
    assert not isinstance(found, str)
    assert [str(x.dtype) for x in found.factors] == ["uint8", "int8"]
