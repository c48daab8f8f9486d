"""Reductions: a softmax as a chain of four computations, and an argmax from a reducer of one's own."""

from __future__ import annotations

import numpy as np

import tilewright as tvm
from tilewright import te, tir


def softmax(n: int, m: int) -> list[te.Tensor]:
    """exp(x - max) / sum, row by row; each line is a computation of its own."""
    X = te.placeholder((n, m), name="X")
    j, k = te.reduce_axis((0, m), name="j"), te.reduce_axis((0, m), name="k")
    peak = te.compute((n,), lambda i: te.max(X[i, j], axis=j), name="peak")
    power = te.compute((n, m), lambda i, c: te.exp(X[i, c] - peak[i]), name="power")
    total = te.compute((n,), lambda i: te.sum(power[i, k], axis=k), name="total")
    Y = te.compute((n, m), lambda i, c: power[i, c] / total[i], name="Y")
    return [X, Y]


def argmax(n: int, m: int) -> list[te.Tensor]:
    """The place and the value of each row's largest element; of equal ones the first."""

    def larger(a: tuple[tir.PrimExpr, ...], b: tuple[tir.PrimExpr, ...]) -> tuple[tir.PrimExpr, ...]:
        keep = tir.any(a[1] > b[1], tir.all(a[1] == b[1], a[0] < b[0]))
        return tir.Select(keep, a[0], b[0]), tir.Select(keep, a[1], b[1])

    def nothing(place: str, value: str) -> tuple[tir.PrimExpr, ...]:
        return te.max_value(place), te.min_value(value)

    reducer = te.comm_reducer(larger, nothing, name="argmax")
    X = te.placeholder((n, m), name="X")
    k = te.reduce_axis((0, m), name="k")
    place, value = te.compute((n,), lambda i: reducer((k.var, X[i, k]), axis=k), name="best")
    return [X, place, value]


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 1000)).astype("float32")

    args = softmax(*x.shape)
    Y = args[-1]
    s = te.create_schedule(Y.op)
    for stage in s.stages:
        if stage.op.name in ("power", "Y"):
            _, lanes = stage.split(stage.op.axis[1], factor=16)
            stage.vectorize(lanes)
        if stage.op.name != "X":
            stage.parallel(stage.op.axis[0])
    print("The loops of the softmax. Two buffers in between, and the sum keeps its order of additions:\n")
    print(tvm.lower(s, args, simple_mode=True))
    function = tvm.build(s, args, target="llvm", name="softmax")
    y = np.empty_like(x)
    function(x, y)

    exact = np.exp(x.astype("float64") - x.max(1, keepdims=True))
    exact /= exact.sum(1, keepdims=True)
    print(f"largest relative error against float64: {np.max(np.abs(y - exact) / exact):.1e}")
    seconds = function.time_evaluator("softmax", tvm.cpu(0), number=20, repeat=3)(x, y).median
    print(f"{x.shape[0]} rows of {x.shape[1]}: {seconds * 1e6:.0f} µs\n")

    args = argmax(*x.shape)
    function = tvm.build(te.create_schedule(args[-1].op), args, target="llvm", name="argmax")
    place, value = np.empty(64, "int32"), np.empty(64, "float32")
    x[3, 500] = x[3, 700] = 9.0  # a tie
    function(x, place, value)
    np.testing.assert_array_equal(place, x.argmax(1))
    print(f"argmax of row 3, whose elements 500 and 700 are both 9: {place[3]}, value {value[3]}")


if __name__ == "__main__":
    main()
