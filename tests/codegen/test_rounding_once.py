"""Conversions to narrow floats round once, as the interpreter does, wherever they come from."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from test_source_c import compiled, needs_cc

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.dtype import DataType
from tilewright.ir.fold import odd_float32, rounded

NARROW = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}


def nearest(value: int | float, kind: str) -> Any:
    """The element of a narrow type that is nearest to an exact number, ties to even, by the type's own list."""
    with np.errstate(all="ignore"):
        if isinstance(value, float) and not np.isfinite(value):
            return NARROW[kind](np.float32(value))
        if isinstance(value, int) and abs(value) >= 1 << 53:  # what a double would round away
            step = 1 << (value.bit_length() - 50)
            value = float(value // step * step + (step // 2 if value % step else 0))
        return NARROW[kind](np.float32(odd_float32(float(value))))


def near_ties(kind: str) -> np.ndarray:
    """All numbers of a type, or some thousands, the middles between neighbours, and what is just beside either."""
    bits = np.dtype(NARROW[kind]).itemsize * 8
    every = np.arange(0, 1 << bits, 1 if bits == 8 else 23, dtype=f"u{bits // 8}").view(NARROW[kind])
    with np.errstate(all="ignore"):
        exact = np.unique(every.astype("float32").astype("float64"))
        exact = exact[np.isfinite(exact)]
        step = np.array(exact, "float32").astype(NARROW[kind])
        up = (step.view(f"u{bits // 8}") + 1).astype(f"u{bits // 8}").view(NARROW[kind])
        middles = (exact + up.astype("float32").astype("float64")) / 2
    middles = middles[np.isfinite(middles)]
    beside = [m * (1 + d) for m in (exact, middles) for d in (0, 2**-52, -(2**-52), 2**-30, -(2**-30))]
    specials = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e300, -1e300, 5e-324, 3.4028235677973366e38]
    return np.concatenate([*beside, specials])


def values(kind: str, source: str) -> np.ndarray:
    found = near_ties(kind)
    if source == "float64":
        return found
    low, high = np.iinfo(source).min, np.iinfo(source).max
    whole = [int(v) for v in found if np.isfinite(v) and low < v < high and abs(v) >= 1]
    beside = [v + d for v in whole for d in (-1, 0, 1)] + [low, high, 0, 1 << 24, (1 << 24) + 1]
    return np.array([min(max(v, low), high) for v in beside], source)


def same(got: np.ndarray, given: np.ndarray, kind: str) -> None:
    want = np.array([nearest(v.item(), kind) for v in given])
    bits = f"u{got.itemsize}"
    nan = np.isnan(got.astype("float32")) & np.isnan(want.astype("float32"))
    wrong = (got.view(bits) != want.view(bits)) & ~nan
    assert not wrong.any(), (given[wrong][:5], got[wrong][:5], want[wrong][:5])


def program(source: str, kind: str, size: int) -> Any:
    A = te.placeholder((size,), source, name="A")
    B = te.compute((size,), lambda i: A[i].astype(kind), name="B")
    return te.create_prim_func([A, B])


@pytest.mark.parametrize("kind", NARROW)
@pytest.mark.parametrize("source", ["float64", "int64", "uint64", "int32", "uint32"])
def test_compiled(source: str, kind: str) -> None:
    given = values(kind, source)
    sch = tvm.auto_schedule(program(source, kind, len(given)), "llvm")  # in vectors
    out = tvm.nd.empty(given.shape, kind)
    tvm.build(sch.mod, target="llvm")(tvm.nd.array(given), out)
    same(out.numpy(), given, kind)


@pytest.mark.parametrize("kind", NARROW)
@pytest.mark.parametrize("source", ["float64", "int64"])
def test_interpreted(source: str, kind: str) -> None:
    given = values(kind, source)[::7].copy()
    out = np.zeros(given.shape, NARROW[kind])
    tir.interpret(program(source, kind, len(given)), given, out)
    same(out, given, kind)


@pytest.mark.slow
@needs_cc
@pytest.mark.parametrize("source", ["float64", "int64"])
def test_as_c(source: str, tmp_path: Any) -> None:
    for kind in ("float16", "bfloat16", "float8_e4m3fn"):
        given = values(kind, source)
        folder = tmp_path / kind
        folder.mkdir()
        library = compiled(tvm.build(program(source, kind, len(given)), target="c"), folder)
        out = np.zeros(given.shape, NARROW[kind])
        library.tw_main(given.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p))
        same(out, given, kind)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_constants(kind: str) -> None:
    """A constant is rounded once too, where it is folded and where it is written into a program."""
    half = 2.0 ** (-11 if kind == "float16" else -8)
    for value in (1 + half, 1 + half + 2**-40, 1 + half - 2**-40, 1 + 3 * half):
        want = float(nearest(value, kind))
        assert rounded(value, DataType(kind)) == want
        B = te.compute((3,), lambda i, v=value: tir.const(v, "float64").astype(kind), name="B")
        out = tvm.nd.empty((3,), kind)
        tvm.build(te.create_prim_func([B]), target="llvm")(out)
        assert (out.numpy().astype("float64") == want).all()


def test_what_is_narrow_enough_is_left_as_it_is() -> None:
    from tilewright.tir.transform.round_once import round_once

    func = program("float32", "float16", 4)
    assert round_once(func) is func
