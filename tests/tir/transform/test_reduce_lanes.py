"""Reductions over the lanes of a vector: loops annotated with `reduce_lanes`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.equal import assert_structural_equal
from tilewright.ir.expr import Shuffle
from tilewright.ir.functor import pre_order
from tilewright.ir.stmt import For
from tilewright.script import from_source
from tilewright.script import tir as T

PRODUCT = te.comm_reducer(lambda x, y: x * y, lambda t: tir.const(1, t), name="product")
REDUCERS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "sum": (te.sum, np.sum),
    "max": (te.max, np.max),
    "min": (te.min, np.min),
    "product": (PRODUCT, np.prod),
}


def reduced(n: Any, reducer: str, dtype: str = "float32", factor: int | None = None) -> tir.Schedule:
    """The rows of a matrix, each combined into one value by lanes."""
    A = te.placeholder((3, n), dtype, name="A")
    k = te.reduce_axis((0, n), "k")
    C = te.compute((3,), lambda i: REDUCERS[reducer][0](A[i, k], axis=k), name="C")
    sch = tir.Schedule(te.create_prim_func([A, C]))
    loop = sch.get_loops("C")[-1]
    if factor:
        _, loop = sch.split(loop, [None, factor])
    sch.annotate(loop, "reduce_lanes", 1)
    return sch


def lowered(program: Any) -> tir.PrimFunc:
    mod = tvm.lower(program)
    assert "reduce_lanes" not in mod.script()
    return next(iter(mod.functions.values()))


def shuffles(func: tir.PrimFunc) -> int:
    return sum(isinstance(m, Shuffle) for m in pre_order(func.body))


def check(sch: tir.Schedule, n: int, reducer: str, dtype: str, compiled: bool) -> None:
    low, high = (-2, 3) if reducer == "product" else (-9, 10)  # exact in every type, in any order
    a = np.random.default_rng(n).integers(low, high, (3, n)).astype(dtype)
    want = np.zeros(3, dtype)
    tir.interpret(sch.origin["main"], a, want)
    ways = [lambda *x: tir.interpret(lowered(sch.mod), *x)]
    if compiled:
        ways.append(tvm.build(sch.mod, target="llvm"))
    for run in ways:
        got = np.zeros(3, dtype)
        run(a, got)
        np.testing.assert_array_equal(got, want, err_msg=str(sch.mod))
    if np.dtype(dtype).kind == "f" or reducer in ("max", "min"):
        np.testing.assert_array_equal(want, REDUCERS[reducer][1](a, axis=1))


def test_halves_are_combined_until_one_lane_is_left(expect: Any) -> None:
    expect(
        lowered(reduced(8, "sum").mod),
        """
        @T.prim_func
        def main(A: T.Buffer((3, 8), "float32"), C: T.Buffer((3,), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            A_1 = T.decl_buffer((24,), data=A.data)
            for i in range(3):
                C[i] = T.float32(0)
                lanes_8: T.float32x8 = A_1[i * 8:i * 8 + 8]
                lanes_4: T.float32x4 = T.Shuffle([lanes_8], [0, 1, 2, 3]) + T.Shuffle([lanes_8], [4, 5, 6, 7])
                lanes_2: T.float32x2 = T.Shuffle([lanes_4], [0, 1]) + T.Shuffle([lanes_4], [2, 3])
                C[i] = C[i] + (T.Shuffle([lanes_2], [0]) + T.Shuffle([lanes_2], [1]))
        """,
    )


def test_an_odd_lane_goes_into_the_first(expect: Any) -> None:
    expect(
        lowered(reduced(7, "max").mod),
        """
        @T.prim_func
        def main(A: T.Buffer((3, 7), "float32"), C: T.Buffer((3,), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            A_1 = T.decl_buffer((21,), data=A.data)
            for i in range(3):
                C[i] = T.float32("-inf")
                lanes_7: T.float32x7 = A_1[i * 7:i * 7 + 7]
                odd = T.float32x3()
                lanes_3: T.float32x3 = T.Let(T.Shuffle([T.max(T.Shuffle([odd], [0]), T.Shuffle([lanes_7], [6])), T.Shuffle([odd], [1]), T.Shuffle([odd], [2])], [0, 1, 2]), where={odd: T.max(T.Shuffle([lanes_7], [0, 1, 2]), T.Shuffle([lanes_7], [3, 4, 5]))})
                C[i] = T.max(C[i], T.max(T.max(T.Shuffle([lanes_3], [0]), T.Shuffle([lanes_3], [1])), T.Shuffle([lanes_3], [2])))
        """,
    )


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(
    st.integers(1, 40),
    st.sampled_from(sorted(REDUCERS)),
    st.sampled_from(["float32", "int8", "float64", "int32", "uint16"]),
    st.sampled_from([None, 2, 5, 8, 16]),
)
def test_meaning(n: int, reducer: str, dtype: str, factor: int | None) -> None:
    check(reduced(n, reducer, dtype, factor), n, reducer, dtype, compiled=False)


@pytest.mark.parametrize("reducer", REDUCERS)
@pytest.mark.parametrize(("n", "factor"), [(16, None), (13, None), (37, 8)])
def test_compiled(n: int, factor: int | None, reducer: str) -> None:
    for dtype in ("float32", "int8", "float64"):
        check(reduced(n, reducer, dtype, factor), n, reducer, dtype, compiled=True)


def test_what_is_printed_reads_back() -> None:
    mod = tvm.lower(reduced(13, "sum").mod)
    assert_structural_equal(from_source(mod.script()), mod)


def test_a_size_that_only_the_call_knows_stays_a_loop() -> None:
    sch = reduced(te.var("n"), "sum")
    assert shuffles(lowered(sch.mod)) == 0
    check(sch, 11, "sum", "float32", compiled=True)


# -- what cannot be combined by halves keeps its loop --------------------------------------------
@T.prim_func
def difference(A: T.Buffer((16,), "int32"), C: T.Buffer((16,), "int32")):
    """A difference may not be regrouped."""
    for k in T.serial(16, annotations={"reduce_lanes": 1}):
        C[0] = C[0] - A[k]


@T.prim_func
def moving(A: T.Buffer((16,), "int32"), C: T.Buffer((16,), "int32")):
    """Each iteration has a place of its own."""
    for k in T.serial(16, annotations={"reduce_lanes": 1}):
        C[k] = C[k] + A[k]


@T.prim_func
def other_place(A: T.Buffer((16,), "int32"), C: T.Buffer((16,), "int32")):
    """What is added to is not what is stored."""
    for k in T.serial(16, annotations={"reduce_lanes": 1}):
        C[0] = C[1] + A[k]


@T.prim_func
def turned_about(A: T.Buffer((16,), "int32"), C: T.Buffer((16,), "int32")):
    """The place stands on the right."""
    for k in T.serial(16, annotations={"reduce_lanes": 1}):
        C[0] = A[k] + C[0]


@T.prim_func
def conditional(A: T.Buffer((16,), "int32"), C: T.Buffer((16,), "int32")):
    for k in T.serial(16, annotations={"reduce_lanes": 1}):
        if A[k] > 0:
            C[0] = C[0] + A[k]


@T.prim_func
def one_turn(A: T.Buffer((16,), "int32"), C: T.Buffer((16,), "int32")):
    for k in T.serial(1, annotations={"reduce_lanes": 1}):
        C[0] = C[0] + A[k]


@T.prim_func
def reads_what_it_adds_to(A: T.Buffer((16,), "int32"), C: T.Buffer((16,), "int32")):
    """From the second iteration on, C[0] is not what it was."""
    for k in T.serial(16, annotations={"reduce_lanes": 1}):
        C[0] = C[0] + A[k] * C[0]


@pytest.mark.parametrize(
    "func",
    [difference, moving, other_place, turned_about, conditional, one_turn, reads_what_it_adds_to],
    ids=lambda f: f.attrs["global_symbol"],
)
def test_other_loops_stay(func: tir.PrimFunc, agree: Any) -> None:
    made = tir.transform.VectorizeLoop()(tvm.IRModule({"main": func}))["main"]
    (loop,) = [m for m in pre_order(made.body) if isinstance(m, For)]
    assert not loop.annotations and shuffles(made) == 0
    rng = np.random.default_rng(0)
    agree(func, made, *(rng.integers(-9, 9, 16).astype("int32") for _ in range(2)))


def test_without_vectors_the_loop_is_serial(agree: Any) -> None:
    sch = reduced(8, "sum")
    with tvm.transform.PassContext(config={"tir.disable_vectorize": True}):
        func = lowered(sch.mod)
    assert shuffles(func) == 0
    agree(sch.origin["main"], func, np.arange(24, dtype="float32").reshape(3, 8), np.zeros(3, "float32"))
