"""Small programs in elements of the example accelerator: 16 numbers, and 16 x 16 weights."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import te, topi
from tilewright.ir.module import IRModule
from tilewright.target import Target
from tilewright.tune.plan import Plan, plan_of
from tilewright.tune.space import Sketches
from tilewright.tune.workload import task_of
from tilewright.vta.module import RUNS
from tilewright.vta.simulator import Statistics

CHIP = "ext_dev"
LANES = 16


def requantized(sums: Any) -> Any:
    """The epilogue of a quantized layer: int8(clip(sums >> 8, 0, 127))."""
    shifted = te.compute(sums.shape, lambda *i: sums(*i) >> 8, "shifted")
    low = te.compute(sums.shape, lambda *i: te.max(shifted(*i), 0), "low")
    high = te.compute(sums.shape, lambda *i: te.min(low(*i), 127), "high")
    return te.compute(sums.shape, lambda *i: high(*i).astype("int8"), "out")


def matmul(m: Any = 2, n: int = 2, k: int = 2) -> list[Any]:
    """A product of m rows, 16 n columns and sums over 16 k."""
    a = te.placeholder((m, k, 1, LANES), "int8", "a")
    w = te.placeholder((n, k, LANES, LANES), "int8", "w")
    ko, ki = te.reduce_axis((0, k), "ko"), te.reduce_axis((0, LANES), "ki")
    product = te.compute(
        (m, n, 1, LANES),
        lambda i, j, b, c: te.sum(
            a[i, ko, b, ki].astype("int32") * w[j, ko, c, ki].astype("int32"), axis=[ko, ki]
        ),
        "product",
    )
    return [a, w, requantized(product)]


def conv(size: int, into: int, out: int, window: int, stride: int) -> list[Any]:
    """A quantized convolution of 16 * into channels."""
    pad = window // 2
    d = te.placeholder((1, into, size, size, 1, LANES), "int8", "d")
    w = te.placeholder((out, into, window, window, LANES, LANES), "int8", "w")
    x = topi.nn.pad(d, [0, 0, pad, pad, 0, 0], name="padded") if pad else d
    axes = [
        te.reduce_axis((0, e), n) for e, n in ((into, "ic"), (window, "dy"), (window, "dx"), (LANES, "ki"))
    ]
    ic, dy, dx, ki = axes
    side = (size + 2 * pad - window) // stride + 1
    sums = te.compute(
        (1, out, side, side, 1, LANES),
        lambda n, oc, y, x_, b, c: te.sum(
            x[n, ic, y * stride + dy, x_ * stride + dx, b, ki].astype("int32")
            * w[oc, ic, dy, dx, c, ki].astype("int32"),
            axis=axes,
        ),
        "conv",
    )
    return [d, w, requantized(sums)]


def residual(rows: int = 8) -> list[Any]:
    """clip(a + b, 0, 127) of int8."""
    shape = (1, rows, rows, LANES)
    a, b = (te.placeholder(shape, "int8", x) for x in "ab")
    wide = [te.compute(shape, lambda *i, t=t: t(*i).astype("int32"), f"wide_{t.op.name}") for t in (a, b)]
    total = te.compute(shape, lambda *i: wide[0](*i) + wide[1](*i), "total")
    low = te.compute(shape, lambda *i: te.max(total(*i), 0), "low")
    high = te.compute(shape, lambda *i: te.min(low(*i), 127), "high")
    return [a, b, te.compute(shape, lambda *i: high(*i).astype("int8"), "out")]


def planned(args: list[Any]) -> Plan:
    return plan_of(te.create_prim_func(args), Target(CHIP))


def sketches(args: list[Any]) -> Sketches:
    return Sketches(task_of(te.create_prim_func(args), CHIP))


def arrays_of(args: list[Any], seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-128, 128, [int(n) for n in t.shape]).astype(str(t.dtype)) for t in args]


def reference(args: list[Any], arrays: list[Any]) -> Any:
    """The output by the host."""
    held = [a.copy() for a in arrays]
    tvm.build(te.create_prim_func(args), target="llvm")(*held)
    return held[-1]


def simulated(mod: IRModule, arrays: list[Any]) -> tuple[Any, Statistics]:
    """The output of a scheduled program on the simulator, and what it counted."""
    held = [a.copy() for a in arrays]
    tvm.build(mod, target=CHIP)(*held)
    assert RUNS.last is not None
    return held[-1], RUNS.last.statistics
