"""Floats of eight bits on a processor: every value, every rounding, and arithmetic, against ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.functor import pre_order
from tilewright.script import tir as T
from tilewright.tir.transform.float8 import compute_float8

KINDS = ["float8_e4m3fn", "float8_e5m2"]


def numbers(held) -> np.ndarray:
    """All values, what lies half-way between two of them and next to that, and any bits at all."""
    known = np.arange(256, dtype="uint8").view(held).astype("float32")
    finite = np.sort(known[np.isfinite(known)])
    between = (finite[1:] + finite[:-1]) / np.float32(2)
    least, most = (np.nextafter(between, np.float32(s)) for s in (-np.inf, np.inf))
    any_bits = np.random.default_rng(0).integers(0, 1 << 32, 4096, dtype=np.uint64).astype("uint32")
    x = np.concatenate([known, between, least, most, [np.inf, -np.inf, 1e9], any_bits.view("float32")])
    return np.concatenate([x, np.zeros(-len(x) % 16)]).astype("float32")


def assert_same_bits(got: np.ndarray, want: np.ndarray) -> None:
    nan = np.isnan(want.astype("float32"))
    np.testing.assert_array_equal(np.isnan(got.astype("float32")), nan)
    np.testing.assert_array_equal(got.view("uint8")[~nan], want.view("uint8")[~nan])


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_conversions_and_arithmetic(kind, lanes):
    held = getattr(ml_dtypes, kind)
    with np.errstate(all="ignore"):
        x = numbers(held)
        small = x.astype(held)
        squared = np.maximum(small * small + held(1), held(0.5))
        chosen = np.where(small > held(1), small.astype("float32"), squared.astype("float32"))
    A = te.placeholder(x.shape, name="A")
    B = te.compute(A.shape, lambda i: A[i].astype(kind), name="B")
    C = te.compute(
        A.shape, lambda i: tir.max(B[i] * B[i] + tir.const(1, kind), tir.const(0.5, kind)), name="C"
    )
    one = tir.const(1, kind)
    D = te.compute(
        A.shape,
        lambda i: tir.Select(B[i] > one, B[i].astype("float32"), C[i].astype("float32")),
        name="D",
    )
    s = te.create_schedule(D.op)
    if lanes > 1:
        for stage in (B, C, D):
            s[stage].vectorize(s[stage].split(stage.op.axis[0], factor=lanes)[1])
    f = tvm.build(s, [A, B, C, D], target="llvm")
    b, c, d = (tvm.nd.empty(x.shape, t) for t in (kind, kind, "float32"))
    f(tvm.nd.array(x), b, c, d)
    assert_same_bits(b.numpy(), small)
    assert_same_bits(c.numpy(), squared)
    np.testing.assert_array_equal(d.numpy(), chosen)


@pytest.mark.parametrize("kind", KINDS)
def test_functions_are_those_of_float32(kind):
    held = getattr(ml_dtypes, kind)
    x = np.linspace(-3, 3, 64).astype(held)
    A = te.placeholder(x.shape, kind, name="A")
    B = te.compute(A.shape, lambda i: te.exp(A[i]) + te.abs(A[i]), name="B")
    f = tvm.build(te.create_schedule(B.op), [A, B], target="llvm")
    out = tvm.nd.empty(x.shape, kind)
    f(tvm.nd.array(x), out)
    power = np.exp(x.astype("float32")).astype(held)
    assert_same_bits(out.numpy(), power + np.abs(x))


def test_what_has_none_stays():
    @T.prim_func(private=True)
    def func(A: T.Buffer((8,), "float32")):
        for i in range(8):
            A[i] = A[i] + T.float32(1)

    assert compute_float8(func) is func


def test_only_memory_and_choices_are_of_eight_bits():
    A = te.placeholder((8,), "float8_e5m2", name="A")
    B = te.compute((8,), lambda i: A[i] * A[i], name="B")
    made = compute_float8(tvm.lower(te.create_schedule(B.op), [A, B])["main"])
    kept = [m for m in pre_order(made.body) if isinstance(m, tir.PrimExpr) and m.dtype == "float8_e5m2"]
    assert {type(m).__name__ for m in kept} <= {"BufferLoad", "Call", "Let"}
