"""Padding and dilation against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.ir.errors import TensorExpressionError

RNG = np.random.default_rng(4)
NUMPY = {"SYMMETRIC": "symmetric", "REFLECT": "reflect", "EDGE": "edge"}


def few(fast: int, cases: Any, several: bool = False) -> list[Any]:
    """The cases, of which all but the first are left to the slow run; `several` arguments each, or one."""
    marks = [()] * fast + [pytest.mark.slow] * len(cases)
    return [pytest.param(*(c if several else (c,)), marks=m) for c, m in zip(cases, marks)]


def draw(shape, dtype: str = "float32") -> np.ndarray:
    return (RNG.standard_normal(shape) * 10).astype(dtype)


@pytest.mark.parametrize("dtype", few(1, ["float32", "float16", "int8", "int64"]))
@pytest.mark.parametrize(
    ("shape", "before", "after"),
    [((5,), (2,), (1,)), ((3, 4), (0, 2), None), ((2, 1, 3), (0, 1, 0), (2, 0, 0)), ((0, 3), (1, 0), (0, 2))],
)
def test_constant(check, shape, before, after, dtype) -> None:
    x = draw(shape, dtype)
    t = te.placeholder(shape, dtype, "x")
    wanted = np.pad(x, list(zip(before, before if after is None else after)), constant_values=7)
    out = topi.nn.pad(t, before, after, 7)
    assert out.op.tag == "injective,pad"
    check(out, {t: x}, wanted)


def test_nothing_to_pad_and_values_of_the_program(check) -> None:
    x, v = draw((2, 3)), draw(())
    t, fill = te.placeholder((2, 3), name="x"), te.placeholder((), name="v")
    check(topi.nn.pad(t, (0, 0)), {t: x}, x)
    check(
        topi.nn.pad(t, (1, 0), (0, 1), fill), {t: x, fill: v}, np.pad(x, [(1, 0), (0, 1)], constant_values=v)
    )
    check(
        topi.nn.pad(t, (1, 0), (0, 0), te.min_value("float32")),
        {t: x},
        np.pad(x, [(1, 0), (0, 0)], constant_values=np.finfo("float32").min),
    )


@pytest.mark.parametrize("mode", list(NUMPY))
@pytest.mark.parametrize(
    ("shape", "before", "after"), [((5,), (3,), (4,)), ((4, 3), (2, 0), (0, 2)), ((2, 3, 4), (0, 1, 2), None)]
)
def test_mirrored(check, mode, shape, before, after) -> None:
    x = draw(shape)
    t = te.placeholder(shape, name="x")
    wanted = np.pad(x, list(zip(before, before if after is None else after)), NUMPY[mode])
    check(topi.nn.mirror_pad(t, before, after, mode), {t: x}, wanted)


def test_edge_may_go_far(check) -> None:
    x = draw((1, 2))
    t = te.placeholder((1, 2), name="x")
    check(topi.nn.mirror_pad(t, (5, 6), (3, 9), "EDGE"), {t: x}, np.pad(x, [(5, 3), (6, 9)], "edge"))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize(
    ("shape", "strides"), [((4,), (3,)), ((3, 4), (2, 1)), ((1, 2, 3), (5, 2, 2)), ((0, 3), (2, 2))]
)
def test_dilate(check, shape, strides, dtype) -> None:
    x = draw(shape, dtype)
    wanted = np.full([max((n - 1) * s + 1, 0) for n, s in zip(shape, strides)], 4, dtype)
    wanted[tuple(slice(None, None, s) for s in strides)] = x
    t = te.placeholder(shape, dtype, "x")
    check(topi.nn.dilate(t, strides, 4), {t: x}, wanted)


def test_symbolic_sizes() -> None:
    n = te.size_var("n")
    t = te.placeholder((n, 3), name="x")
    outs = [topi.nn.pad(t, (1, 0), (2, 1)), topi.nn.mirror_pad(t, (1, 1)), topi.nn.dilate(t, (2, 3))]
    built = tvm.build(te.create_prim_func([t, *outs]))
    for size in (1, 4):
        x = draw((size, 3))
        spread = np.zeros(((size - 1) * 2 + 1, 7), "float32")
        spread[::2, ::3] = x
        wanted = [np.pad(x, [(1, 2), (0, 1)]), np.pad(x, 1, "symmetric"), spread]
        got = [np.empty(w.shape, "float32") for w in wanted]
        built(x, *got)
        for g, w in zip(got, wanted):
            np.testing.assert_array_equal(g, w)


def test_a_negative_amount_cuts(check) -> None:
    x = draw((4, 6))
    a, v = te.placeholder(x.shape, "float32", "a"), te.placeholder((1,), "float32", "v")
    wanted = np.pad(x[1:, :-2], ((0, 2), (3, 0)), constant_values=7)
    check(topi.nn.pad(a, (-1, 3), (2, -2), v), {a: x, v: np.array([7], "float32")}, wanted)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: topi.nn.pad(t, (1,)), "pad_before has 1 numbers and `x` has 2 dimensions"),
        (lambda t: topi.nn.mirror_pad(t, (1, -1)), "pad_before is .* must not be negative"),
        (lambda t: topi.nn.mirror_pad(t, (1, 0), (0, -2)), "pad_after is .* must not be negative"),
        (lambda t: topi.nn.pad(t, (0, -2), (0, -2)), "has fewer elements than are cut"),
        (lambda t: topi.nn.pad(t, (1, 1.5)), "not an integer"),
        (
            lambda t: topi.nn.mirror_pad(t, (0, 4), None, "SYMMETRIC"),
            "dimension 1 has 3 elements, too few for 4 of padding",
        ),
        (lambda t: topi.nn.mirror_pad(t, (0, 3), None, "REFLECT"), "REFLECT pads at most 2 on a side"),
        (lambda t: topi.nn.mirror_pad(t, (0, 1), None, "WRAP"), "mode is 'WRAP'"),
        (lambda t: topi.nn.dilate(t, (1, 0)), "give a stride of at least 1 for each dimension"),
        (lambda t: topi.nn.dilate(t, (1,)), "strides are .* for the 2 dimensions of `x`"),
    ],
)
def test_refusals(call, message) -> None:
    with pytest.raises(TensorExpressionError, match=message):
        call(te.placeholder((2, 3), name="x"))
