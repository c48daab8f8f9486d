"""Integer division as NumPy has it, by zero and by -1 too, in the interpreter and in each backend."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir

OPERATORS = {
    "floordiv": te.floordiv,
    "floormod": te.floormod,
    "truncdiv": te.truncdiv,
    "truncmod": te.truncmod,
}


def expected(name: str, a: Any, b: Any) -> Any:
    """x / 0 and x % 0 are 0, the least number over -1 wraps around to itself."""
    kind = a.dtype
    x, y = a.astype(object), b.astype(object)
    out = []
    for p, q in zip(x.reshape(-1), np.broadcast_to(y, x.shape).reshape(-1), strict=True):
        cut = 0 if q == 0 else abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)
        whole = 0 if q == 0 else p // q
        quotient = whole if name.startswith("floor") else cut
        out.append(quotient if name.endswith("div") else 0 if q == 0 else p - quotient * q)
    bits = kind.itemsize * 8
    return (
        np.array([v & ((1 << bits) - 1) for v in out], object)
        .astype(f"uint{bits}")
        .view(kind)
        .reshape(a.shape)
    )


def extremes(kind: str) -> Any:
    info = np.iinfo(kind)
    near = [0, 1, 2, 3, 7, 8, 10, 127, 128, info.max, info.max - 1, info.max // 2, info.max // 3]
    near += [info.min, info.min + 1, info.min // 2] + ([-1, -2, -3, -7, -8, -128] if info.min else [])
    return np.array([v for v in dict.fromkeys(near) if info.min <= v <= info.max], kind)


def all_pairs(kind: str) -> tuple[Any, Any]:
    if kind in ("int8", "uint8"):
        values = np.arange(256).astype("uint8").view(kind)
    else:
        values = extremes(kind)
    a, b = np.meshgrid(values, values, indexing="ij")
    return a.reshape(-1).copy(), b.reshape(-1).copy()


def program(name: str, kind: str, count: int) -> list[Any]:
    a, b = te.placeholder((count,), kind, "a"), te.placeholder((count,), kind, "b")
    return [a, b, te.compute((count,), lambda i: OPERATORS[name](a[i], b[i]), "c")]


KINDS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("name", list(OPERATORS))
@pytest.mark.parametrize("kind", KINDS)
def test_all_pairs_in_the_interpreter_and_compiled(name: str, kind: str) -> None:
    a, b = all_pairs(kind)
    wanted = expected(name, a, b)
    args = program(name, kind, a.size)
    func = te.create_prim_func(args)
    if a.size < 2000 or name == "floordiv":
        out = np.empty_like(a)
        tir.interpret(func, a, b, out)
        np.testing.assert_array_equal(out, wanted)
    for vectorised in (False, True):
        sch = tir.Schedule(func)
        if vectorised:
            _, inner = sch.split(sch.get_loops(sch.get_block("c"))[0], [None, 16])
            sch.vectorize(inner)
        got = np.empty_like(a)
        tvm.build(sch.mod, target="llvm")(a, b, got)
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_by_constants(kind: str) -> None:
    a = np.arange(256).astype("uint8").view(kind) if kind in ("int8", "uint8") else extremes(kind)
    x = te.placeholder(a.shape, kind, "a")
    info = np.iinfo(kind)
    divisors = [d for d in (-7, -3, -2, -1, 1, 2, 3, 7, 8, info.max, info.min) if d and d >= info.min]
    for name, op in OPERATORS.items():
        outs = [
            te.compute(a.shape, lambda i, d=d, op=op: op(x[i], tir.const(d, kind)), f"c{j}")
            for j, d in enumerate(divisors)
        ]
        got = [np.empty_like(a) for _ in outs]
        tvm.build(te.create_prim_func([x, *outs]), target="llvm")(a, *got)
        for d, g in zip(divisors, got, strict=True):
            np.testing.assert_array_equal(g, expected(name, a, np.full_like(a, d)), f"{name} by {d}")


@pytest.mark.slow
def test_by_a_loop_variable_and_by_itself() -> None:
    """x // x is 0 where x is 0, and a loop begins at 0, unrolled or not."""
    x = te.placeholder((6,), "int32", "x")
    outs = [
        te.compute((6,), lambda i: te.floordiv(x[i], i), "c"),
        te.compute((6,), lambda i: te.floordiv(x[i], x[i]), "d"),
        te.compute((6,), lambda i: te.floormod(x[i], x[i]), "e"),
        te.compute((6,), lambda i: te.truncdiv(x[i] * i, i), "f"),
        te.compute((6,), lambda i: te.floordiv(i, i), "g"),
    ]
    a = np.array([5, 0, -7, 0, -(2**31), 9], "int32")
    n = np.arange(6, dtype="int32")
    wanted = [
        expected("floordiv", a, n),
        (a != 0).astype("int32"),
        np.zeros(6, "int32"),
        expected("truncdiv", a * n, n),
        (n != 0).astype("int32"),
    ]
    for unrolled in (False, True):
        sch = tir.Schedule(te.create_prim_func([x, *outs]))
        for block in "cdefg" if unrolled else "":
            sch.unroll(sch.get_loops(sch.get_block(block))[0])
        got = [np.empty(6, "int32") for _ in outs]
        tvm.build(sch.mod, target="llvm")(a, *got)
        for g, w in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(g, w)


def test_by_a_number_that_is_passed() -> None:
    n = te.var("n")
    x = te.placeholder((4,), "int32", "x")
    f = tvm.build(
        te.create_prim_func([x, te.compute((4,), lambda i: te.floordiv(x[i], n), "c"), n]), target="llvm"
    )
    a, out = np.array([3, -4, 5, -(2**31)], "int32"), np.empty(4, "int32")
    for d in (0, -1, 2, -3):
        f(a, out, d)
        np.testing.assert_array_equal(out, expected("floordiv", a, np.int32([d])))


def test_index_arithmetic_is_as_short_as_before() -> None:
    """Sizes and constants are not data: nothing is added for them."""
    n, m = te.size_var("n"), te.var("m")
    x = te.placeholder((n, m), "float32", "x")
    flat = te.compute((n * m,), lambda i: x[te.floormod(i, n), te.floordiv(i, n)], "flat")
    ready = tvm.lower(te.create_prim_func([x, flat]))
    text = str(tir.transform.LowerIntrin()(ready))
    assert 'T.Div(i, T.Cast("int64", n))' in text and "safe" not in text, text
    ana = tvm.arith.Analyzer()
    i = te.var("i")
    assert str(ana.simplify(te.floordiv(i, m) * m + te.floormod(i, m))) == "i"


@pytest.mark.parametrize("kind", ["int8", "int32", "uint32", "int64"])
def test_c_source_agrees(kind: str, tmp_path: Path) -> None:
    a, b = all_pairs(kind)
    funcs = {}
    for name in OPERATORS:
        func = te.create_prim_func(program(name, kind, a.size)).with_attr("global_symbol", name)
        funcs[name] = func
    mod = tvm.build(tvm.IRModule(funcs), target="c")
    source = tmp_path / "div.c"
    source.write_text(mod.get_source())
    subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", "-fsanitize=undefined", "-o", tmp_path / "div.so", source, "-lm"],
        check=True,
    )
    lib = ctypes.CDLL(str(tmp_path / "div.so"))
    for name in OPERATORS:
        out = np.empty_like(a)
        pointers = [ctypes.c_void_p(t.ctypes.data) for t in (a, b, out)]
        assert getattr(lib, name)(*pointers) == 0
        np.testing.assert_array_equal(out, expected(name, a, b), name)
