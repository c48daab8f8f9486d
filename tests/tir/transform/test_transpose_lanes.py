"""Tiles transposed in registers: loops annotated with `transpose_lanes`."""

from __future__ import annotations

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


def turned(rows: Any, columns: Any, tile: tuple[int, int], dtype: str = "float32") -> tir.Schedule:
    """C = A transposed, in tiles that registers are to turn."""
    A = te.placeholder((columns, rows), dtype, name="A")
    C = te.compute((rows, columns), lambda i, j: A[j, i], name="C")
    sch = tir.Schedule(te.create_prim_func([A, C]))
    i, j = sch.get_loops("C")
    io, ii = sch.split(i, [None, tile[0]])
    jo, ji = sch.split(j, [None, tile[1]])
    sch.reorder(io, jo, ii, ji)
    sch.annotate(ii, "transpose_lanes", 1)
    sch.vectorize(ji)
    return sch


def lowered(program: Any) -> tir.PrimFunc:
    mod = tvm.lower(program)
    assert "transpose_lanes" not in mod.script()
    return next(iter(mod.functions.values()))


def shuffles(func: tir.PrimFunc) -> int:
    return sum(isinstance(m, Shuffle) for m in pre_order(func.body))


def check(sch: tir.Schedule, rows: int, columns: int, dtype: str, compiled: bool) -> None:
    a = np.random.default_rng(rows).integers(-99, 99, (columns, rows)).astype(dtype)
    ways = [lambda *x: tir.interpret(lowered(sch.mod), *x)]
    if compiled:
        ways.append(tvm.build(sch.mod, target="llvm"))
    for run in ways:
        got = np.zeros((rows, columns), dtype)
        run(a, got)
        np.testing.assert_array_equal(got, a.T, err_msg=str(sch.mod))


def test_two_rounds_of_shuffles_turn_a_tile_of_four(expect: Any) -> None:
    expect(
        lowered(turned(4, 4, (4, 4)).mod),
        """
        @T.prim_func
        def main(A: T.Buffer((4, 4), "float32"), C: T.Buffer((4, 4), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            A_1 = T.decl_buffer((16,), data=A.data)
            C_1 = T.decl_buffer((16,), data=C.data)
            tile: T.float32x4 = A_1[0:4]
            tile_1: T.float32x4 = A_1[4:8]
            tile_2: T.float32x4 = A_1[8:12]
            tile_3: T.float32x4 = A_1[12:16]
            tile_4: T.float32x4 = T.Shuffle([tile, tile_2], [0, 4, 1, 5])
            tile_5: T.float32x4 = T.Shuffle([tile, tile_2], [2, 6, 3, 7])
            tile_6: T.float32x4 = T.Shuffle([tile_1, tile_3], [0, 4, 1, 5])
            tile_7: T.float32x4 = T.Shuffle([tile_1, tile_3], [2, 6, 3, 7])
            tile_8: T.float32x4 = T.Shuffle([tile_4, tile_6], [0, 4, 1, 5])
            tile_9: T.float32x4 = T.Shuffle([tile_4, tile_6], [2, 6, 3, 7])
            tile_10: T.float32x4 = T.Shuffle([tile_5, tile_7], [0, 4, 1, 5])
            tile_11: T.float32x4 = T.Shuffle([tile_5, tile_7], [2, 6, 3, 7])
            C_1[0:4] = tile_8
            C_1[4:8] = tile_9
            C_1[8:12] = tile_10
            C_1[12:16] = tile_11
        """,
    )


def test_columns_that_do_not_fill_a_power_of_two(expect: Any) -> None:
    expect(
        lowered(turned(2, 3, (2, 3)).mod),
        """
        @T.prim_func
        def main(A: T.Buffer((3, 2), "float32"), C: T.Buffer((2, 3), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            A_1 = T.decl_buffer((6,), data=A.data)
            C_1 = T.decl_buffer((6,), data=C.data)
            tile: T.float32x2 = A_1[0:2]
            tile_1: T.float32x2 = A_1[2:4]
            tile_2: T.float32x2 = A_1[4:6]
            tile_3: T.float32x4 = T.Shuffle([tile], [0, 1, 1, 1])
            tile_4: T.float32x4 = T.Shuffle([tile_1], [0, 1, 1, 1])
            tile_5: T.float32x4 = T.Shuffle([tile_2], [0, 1, 1, 1])
            tile_6: T.float32x4 = T.Shuffle([tile_2], [0, 1, 1, 1])
            tile_7: T.float32x4 = T.Shuffle([tile_3, tile_5], [0, 4, 1, 5])
            tile_8: T.float32x4 = T.Shuffle([tile_4, tile_6], [0, 4, 1, 5])
            tile_9: T.float32x4 = T.Shuffle([tile_7, tile_8], [0, 4, 1, 5])
            tile_10: T.float32x4 = T.Shuffle([tile_7, tile_8], [2, 6, 3, 7])
            C_1[0:2] = T.Shuffle([tile_9], [0, 1])
            C_1[2] = T.Shuffle([tile_9], [2])
            C_1[3:5] = T.Shuffle([tile_10], [0, 1])
            C_1[5] = T.Shuffle([tile_10], [2])
        """,
    )


def test_columns_beyond_the_end_are_neither_read_nor_written(expect: Any) -> None:
    """The last tile has one column of two: a mask leaves the other out."""
    expect(
        lowered(turned(2, 3, (2, 2)).mod),
        """
        @T.prim_func
        def main(A: T.Buffer((3, 2), "float32"), C: T.Buffer((2, 3), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            A_1 = T.decl_buffer((6,), data=A.data)
            C_1 = T.decl_buffer((6,), data=C.data)
            with T.LetStmt(A_1[0:2]) as tile:
                tile_1: T.float32x2 = A_1[2:4]
                tile_2: T.float32x2 = T.Shuffle([tile, tile_1], [0, 2])
                tile_3: T.float32x2 = T.Shuffle([tile, tile_1], [1, 3])
                C_1[0:2] = tile_2
                C_1[3:5] = tile_3
            tile: T.float32x2 = A_1[4:6]
            tile_1: T.float32x2 = A_1.vload([T.Ramp(6, 1, 2)], predicate=T.Broadcast(T.bool(False), 2))
            tile_2: T.float32x2 = T.Shuffle([tile, tile_1], [0, 2])
            tile_3: T.float32x2 = T.Shuffle([tile, tile_1], [1, 3])
            C_1.vstore([T.Ramp(2, 1, 2)], tile_2, predicate=T.Ramp(0, 1, 2) < T.Broadcast(1, 2))
            C_1.vstore([T.Ramp(5, 1, 2)], tile_3, predicate=T.Ramp(0, 1, 2) < T.Broadcast(1, 2))
        """,
    )


@pytest.mark.slow
def test_a_number_of_columns_that_only_the_call_knows() -> None:
    n = te.var("n")
    sch = turned(8, n, (4, 4))
    func = lowered(sch.mod)
    assert shuffles(func)
    for columns in (1, 3, 4, 9):
        check(sch, 8, columns, "float32", compiled=True)


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.tuples(st.integers(1, 17), st.integers(1, 17)),
    st.sampled_from(["float32", "int8", "float64", "int32", "uint16"]),
)
@pytest.mark.slow
def test_meaning(rows: int, columns: int, tile: tuple[int, int], dtype: str) -> None:
    check(turned(rows, columns, tile, dtype), rows, columns, dtype, compiled=False)


@pytest.mark.parametrize("dtype", ["float32", "int8", "float64", "float16"])
@pytest.mark.parametrize(
    ("rows", "columns", "tile"), [(16, 16, (16, 16)), (30, 14, (16, 14)), (20, 37, (4, 8)), (3, 5, (2, 3))]
)
def test_compiled(rows: int, columns: int, tile: tuple[int, int], dtype: str) -> None:
    check(turned(rows, columns, tile, dtype), rows, columns, dtype, compiled=True)


def test_what_is_printed_reads_back() -> None:
    mod = tvm.lower(turned(20, 37, (4, 8)).mod)
    assert_structural_equal(from_source(mod.script()), mod)


# -- what is not a tile to be turned keeps its loops ---------------------------------------------
@T.prim_func
def rows_in_line(A: T.Buffer((64,), "int32"), B: T.Buffer((64,), "int32")):
    """Both buffers are walked along their rows: a plain copy by vectors."""
    for i in T.serial(4, annotations={"transpose_lanes": 1}):
        for j in T.vectorized(4):
            A[i * 8 + j] = B[i * 8 + j]


@T.prim_func
def every_other(A: T.Buffer((64,), "int32"), B: T.Buffer((64,), "int32")):
    """The rows of the tile are not in line in the source."""
    for i in T.serial(4, annotations={"transpose_lanes": 1}):
        for j in T.vectorized(4):
            A[i * 8 + j] = B[j * 8 + i * 2]


@T.prim_func
def more_than_a_copy(A: T.Buffer((64,), "int32"), B: T.Buffer((64,), "int32")):
    for i in T.serial(4, annotations={"transpose_lanes": 1}):
        for j in T.vectorized(4):
            A[i * 8 + j] = B[j * 8 + i] + 1


@T.prim_func
def steps_that_differ(A: T.Buffer((64,), "int32"), B: T.Buffer((64,), "int32")):
    for i in T.serial(4, annotations={"transpose_lanes": 1}):
        for j in T.vectorized(4):
            A[i * 8 + j] = B[j * j * 2 + i]


@T.prim_func
def in_its_own_place(A: T.Buffer((64,), "int32"), B: T.Buffer((64,), "int32")):
    """The second row reads what the first one stored."""
    for i in T.serial(4, annotations={"transpose_lanes": 1}):
        for j in T.vectorized(4):
            A[i * 8 + j] = A[j * 8 + i]


@T.prim_func
def two_statements(A: T.Buffer((64,), "int32"), B: T.Buffer((64,), "int32")):
    for i in T.serial(4, annotations={"transpose_lanes": 1}):
        for j in T.vectorized(4):
            A[i * 8 + j] = B[j * 8 + i]
        A[i * 8 + 4] = 0


@T.prim_func
def too_large(A: T.Buffer((800,), "int32"), B: T.Buffer((800,), "int32")):
    for i in T.serial(17, annotations={"transpose_lanes": 1}):
        for j in T.vectorized(17):
            A[i * 20 + j] = B[j * 20 + i]


@T.prim_func
def another_condition(A: T.Buffer((64,), "int32"), B: T.Buffer((64,), "int32")):
    for i in T.serial(4, annotations={"transpose_lanes": 1}):
        for j in T.vectorized(4):
            if j % 2 == 0:
                A[i * 8 + j] = B[j * 8 + i]


@pytest.mark.parametrize(
    "func",
    [
        rows_in_line,
        every_other,
        more_than_a_copy,
        steps_that_differ,
        in_its_own_place,
        two_statements,
        too_large,
        another_condition,
    ],
    ids=lambda f: f.attrs["global_symbol"],
)
def test_other_loops_stay(func: tir.PrimFunc, agree: Any) -> None:
    made = tir.transform.VectorizeLoop()(tvm.IRModule({"main": func}))["main"]
    loops = [m for m in pre_order(made.body) if isinstance(m, For)]
    assert loops and not any(m.annotations for m in loops)
    assert shuffles(made) == 0
    n = int(func.buffer_map[func.params[0]].shape[0])
    rng = np.random.default_rng(0)
    agree(func, made, *(rng.integers(-9, 9, n).astype("int32") for _ in range(2)))


def test_without_vectors_the_loops_are_serial() -> None:
    with tvm.transform.PassContext(config={"tir.disable_vectorize": True}):
        func = lowered(turned(4, 4, (4, 4)).mod)
        assert shuffles(func) == 0
    a, got = np.arange(16, dtype="float32").reshape(4, 4), np.zeros((4, 4), "float32")
    tir.interpret(func, a, got)
    np.testing.assert_array_equal(got, a.T)
