"""Reductions over nothing are what they start from, in the interpreter and in compiled code alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir import PrimFunc
from tilewright.script import tir as T
from tilewright.tir.interpret import InterpreterError

START = {"sum": 0.0, "max": -np.inf, "min": np.inf, "prod": 1.0}


def reduction(kind: str, size: Any) -> PrimFunc:
    A = te.placeholder((4, size), name="A")
    k = te.reduce_axis((0, size), name="k")
    B = te.compute((4,), lambda i: getattr(te, kind)(A[i, k], axis=k), name="B")
    return te.create_prim_func([A, B])


def both(func: PrimFunc, *arrays: np.ndarray) -> list[np.ndarray]:
    """What the interpreter leaves, which must be what compiled code leaves."""
    ours, theirs = ([a.copy() for a in arrays] for _ in range(2))
    tir.interpret(func, *ours)
    tvm.build(func, target="llvm")(*theirs)
    for x, y in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(x, y)
    return ours


def tiled(s: Any, i: Any, k: Any) -> None:
    k_0, k_1 = s.split(k, [None, 4])
    i_0, i_1 = s.split(i, [None, 3])
    s.reorder(i_0, k_0, i_1, k_1)


def rfactored(s: Any, i: Any, k: Any) -> None:
    s.rfactor(s.split(k, [None, 4])[1], 0)


def vectorized(s: Any, i: Any, k: Any) -> None:
    s.reorder(k, i)
    s.vectorize(i)


def unrolled(s: Any, i: Any, k: Any) -> None:
    s.unroll(s.split(k, [None, 4])[1])


STEPS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "as it is": lambda s, i, k: None,
    "split": lambda s, i, k: s.split(k, [None, 4]),
    "reorder": lambda s, i, k: s.reorder(k, i),
    "tile": tiled,
    "rfactor": rfactored,
    "parallel": lambda s, i, k: s.parallel(i),
    "vectorize": vectorized,
    "unroll": unrolled,
    "decompose": lambda s, i, k: s.decompose_reduction(s.get_block("B"), k),
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("size", ["n", 0])
def test_schedules_of_sums(steps: Callable[..., Any], size: Any) -> None:
    check("sum", size, steps)


@pytest.mark.slow
@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("size", ["n", 0])
@pytest.mark.parametrize("kind", ["max", "min", "prod"])
def test_schedules_of_other_reductions(kind: str, steps: Callable[..., Any], size: Any) -> None:
    check(kind, size, steps)


@pytest.mark.parametrize("kind", START)
def test_starts(kind: str) -> None:
    check(kind, "n", STEPS["tile"])


def check(kind: str, size: Any, steps: Callable[..., Any]) -> None:
    func = reduction(kind, te.var("n") if size == "n" else size)
    s = tir.Schedule(func)
    steps(s, *s.get_loops(s.get_block("B")))
    empty = both(s.mod["main"], np.zeros((4, 0), "float32"), np.full(4, 7, "float32"))
    np.testing.assert_array_equal(empty[1], np.full(4, START[kind], "float32"))
    if size == "n":  # and with something to reduce as ever
        data = np.arange(20, dtype="float32").reshape(4, 5)
        got = both(s.mod["main"], data, np.full(4, 7, "float32"))
        np.testing.assert_array_equal(got[1], getattr(np, kind)(data, 1))


def test_both_sizes_of_a_product() -> None:
    n, m, k = te.var("n"), te.var("m"), te.var("k")
    A, B = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    j = te.reduce_axis((0, k), name="j")
    C = te.compute((n, m), lambda x, y: te.sum(A[x, j] * B[j, y], axis=j), name="C")
    func = te.create_prim_func([A, B, C])
    for a, b, c in ((2, 3, 0), (0, 3, 4), (2, 0, 3), (0, 0, 0)):
        x, y = np.ones((a, c), "float32"), np.ones((c, b), "float32")
        got = both(func, x, y, np.full((a, b), 7, "float32"))
        np.testing.assert_array_equal(got[2], x @ y)


def test_argmax_of_nothing() -> None:
    def better(x: Any, y: Any) -> tuple[Any, Any]:
        return te.if_then_else(x[1] >= y[1], x[0], y[0]), te.if_then_else(x[1] >= y[1], x[1], y[1])

    def start(index: str, value: str) -> tuple[Any, Any]:
        return tvm.tir.const(-1, index), te.min_value(value)

    argmax = te.comm_reducer(better, start, name="argmax")
    n = te.var("n")
    A = te.placeholder((3, n), name="A")
    k = te.reduce_axis((0, n), name="k")
    at, best = te.compute((3,), lambda i: argmax((k.var, A[i, k]), axis=k), name="B")
    func = te.create_prim_func([A, at, best])
    got = both(func, np.zeros((3, 0), "float32"), np.zeros(3, "int32"), np.zeros(3, "float32"))
    np.testing.assert_array_equal(got[1], [-1, -1, -1])
    np.testing.assert_array_equal(got[2], np.full(3, np.finfo("float32").min))
    data = np.array([[1, 5, 2], [9, 0, 0], [0, 0, 1]], "float32")
    got = both(func, data, np.zeros(3, "int32"), np.zeros(3, "float32"))
    np.testing.assert_array_equal(got[1], [1, 0, 2])


@T.prim_func
def rows(start: T.Buffer((5,), "int32"), values: T.Buffer((6,), "float32"), out: T.Buffer((4,), "float32")):
    for i in range(4):
        for k in range(start[i + 1] - start[i]):
            with T.block("sum"):
                v = T.axis.spatial(4, i)
                vk = T.axis.reduce(6, k)
                with T.init():
                    out[v] = T.float32(0)
                out[v] = out[v] + values[start[v] + vk]


@T.prim_func
def triangle(A: T.Buffer((4, 4), "float32"), out: T.Buffer((4,), "float32")):
    for k in range(2):
        for i in range(4):
            for j in range(i):
                with T.block("sum"):
                    T.where(k * 4 + j < 4)
                    v = T.axis.spatial(4, i)
                    vk = T.axis.reduce(4, k * 4 + j)
                    with T.init():
                        out[v] = T.float32(0)
                    out[v] = out[v] + A[v, vk]


def test_some_rows_have_nothing() -> None:
    got = both(
        rows, np.array([0, 2, 2, 6, 6], "int32"), np.arange(1, 7, dtype="float32"), np.full(4, 9, "float32")
    )
    np.testing.assert_array_equal(got[2], [3, 0, 18, 0])
    a = np.arange(16, dtype="float32").reshape(4, 4)
    out = np.full(4, 9, "float32")
    out = both(triangle, a, out)[1]
    np.testing.assert_array_equal(out, np.tril(a, -1).sum(1))


def test_an_outer_step_starts_nothing_again() -> None:
    """The inner block goes on with what the outer one began, also where a part of it is empty."""

    @T.prim_func
    def nested(size: T.Buffer((3,), "int32"), out: T.Buffer((1,), "int32")):
        for k in range(3):
            with T.block("outer"):
                vk = T.axis.reduce(3, k)
                for j in range(size[vk]):
                    with T.block("inner"):
                        _vj = T.axis.reduce(12, vk * 4 + j)
                        with T.init():
                            out[0] = 0
                        out[0] = out[0] + 1

    out = np.full(1, 9, "int32")
    tir.interpret(nested, np.array([2, 3, 0], "int32"), out)
    assert out[0] == 5


def test_no_point_no_start() -> None:
    """Where no element is to be written nothing is, and a read of it is still reported."""

    @T.prim_func
    def unwritten(out: T.Buffer((4,), "float32"), n: T.int32):
        S = T.alloc_buffer((4,), "float32")
        for i in range(n):
            for k in range(0):
                with T.block("S"):
                    v = T.axis.spatial(4, i)
                    vk = T.axis.reduce(1, k)
                    with T.init():
                        S[v] = T.float32(1)
                    S[v] = S[v] + T.Cast("float32", vk)
        for i in range(4):
            with T.block("out"):
                v = T.axis.spatial(4, i)
                out[v] = S[v]

    out = np.zeros(4, "float32")
    tir.interpret(unwritten, out, 4)
    np.testing.assert_array_equal(out, np.ones(4, "float32"))
    with pytest.raises(InterpreterError, match=r"unwritten memory: read of S\[3\]"):
        tir.interpret(unwritten, out, 3)


def test_memory_between_two_loops_of_a_reduction_starts_nothing_again() -> None:
    """A block without iterators only holds memory: the loop around it drives the reduction inside as well."""

    @T.prim_func
    def held(A: T.Buffer((1,), "float32"), out: T.Buffer((1,), "float32")):
        for k0 in range(2):
            with T.block(""):
                T.reads()
                T.writes()
                B = T.alloc_buffer((1,))
                with T.block("B"):
                    B[0] = A[0]
                for k1 in range(2):
                    with T.block("out"):
                        vk = T.axis.reduce(1, k0 * 2 + k1)
                        T.where(k0 * 2 + k1 < 1)
                        with T.init():
                            out[0] = T.float32(0)
                        out[0] = out[0] + B[vk]

    out = np.full(1, 9, "float32")
    tir.interpret(held, np.full(1, 2, "float32"), out)
    assert out[0] == 2


def test_a_point_outside_of_the_domain_is_not_started() -> None:
    """The condition on the reduction keeps a loop around in the domain of the spatial iterator too."""

    @T.prim_func
    def outside(A: T.Buffer((3, 2), "float32"), out: T.Buffer((3,), "float32")):
        for i in range(4):
            for k in range(2):
                with T.block("out"):
                    vi = T.axis.spatial(3, i)
                    vk = T.axis.reduce(2, k)
                    T.where(i * 2 + k < 6)
                    with T.init():
                        out[vi] = T.float32(0)
                    out[vi] = out[vi] + A[vi, vk]

    a = np.arange(6, dtype="float32").reshape(3, 2)
    out = np.full(3, 9, "float32")
    tir.interpret(outside, a, out)
    np.testing.assert_array_equal(out, a.sum(1))
