"""Loops cut in two or more: split."""

from __future__ import annotations

import numpy as np
import pytest
from loop_programs import extents, loops_of, triangle
from schedule_programs import arrays, copy2d, matmul, symbolic

import tilewright as tvm
from tilewright import te
from tilewright.ir.errors import ScheduleError
from tilewright.script import tir as T


def test_split_that_divides(expect, agree):
    sch, (_i, j) = loops_of(copy2d, "B")
    sch.split(j, [None, 4])
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def copy2d(A: T.Buffer((8, 12), "float32"), B: T.Buffer((8, 12), "float32")):
            # with T.block("root"):
            for i, j_0, j_1 in T.grid(8, 3, 4):
                with T.block("B"):
                    vi = T.axis.spatial(8, i)
                    vj = T.axis.spatial(12, j_0 * 4 + j_1)
                    T.reads(A[vi, vj])
                    T.writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj] + T.float32(1)
        """,
    )
    agree(copy2d, sch.mod["main"], *arrays(copy2d))


def test_split_that_does_not_divide_is_guarded(expect, agree):
    sch, (i, _j, k) = loops_of(matmul, "C")
    sch.split(i, [None, 4])
    sch.split(k, [2, None])
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def matmul(A: T.Buffer((7, 5), "float32"), B: T.Buffer((5, 6), "float32"), C: T.Buffer((7, 6), "float32")):
            # with T.block("root"):
            for i_0, i_1, j, k_0, k_1 in T.grid(2, 4, 6, 2, 3):
                with T.block("C"):
                    vi = T.axis.spatial(7, i_0 * 4 + i_1)
                    vj = T.axis.spatial(6, j)
                    vk = T.axis.reduce(5, k_0 * 3 + k_1)
                    T.where(i_0 * 4 + i_1 < 7 and k_0 * 3 + k_1 < 5)
                    T.reads(A[vi, vk], B[vk, vj])
                    T.writes(C[vi, vj])
                    with T.init():
                        C[vi, vj] = T.float32(0)
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        """,
    )
    agree(matmul, sch.mod["main"], *arrays(matmul))


@pytest.mark.parametrize(
    ("factors", "sizes"),
    [
        ([None, 2, 3], ["2", "2", "3"]),
        ([2, None, 3], ["2", "2", "3"]),
        ([2, 3, None], ["2", "3", "2"]),
        ([2, 2, 3], ["2", "2", "3"]),
        ([None], ["12"]),
        ([12], ["12"]),
        ([None, 5], ["3", "5"]),
        ([5, None], ["5", "3"]),
        ([None, 24], ["1", "24"]),
        ([3, 5], ["3", "5"]),
        ([1, None, 1], ["1", "12", "1"]),
    ],
)
def test_split_sizes(factors, sizes, agree):
    sch, (_i, j) = loops_of(copy2d, "B")
    made = sch.split(j, factors)
    assert [str(sch.get(x).extent) for x in made] == sizes
    agree(copy2d, sch.mod["main"], *arrays(copy2d))


def test_split_of_a_symbolic_extent(expect, agree):
    sch, (i, _j) = loops_of(symbolic, "B")
    sch.split(i, [None, 4])
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def symbolic(a: T.handle, b: T.handle):
            n = T.int32()
            A = T.match_buffer(a, (n, 8))
            B = T.match_buffer(b, (n, 8))
            # with T.block("root"):
            for i_0, i_1, j in T.grid((n + 3) // 4, 4, 8):
                with T.block("B"):
                    vi = T.axis.spatial(n, i_0 * 4 + i_1)
                    vj = T.axis.spatial(8, j)
                    T.where(i_0 * 4 + i_1 < n)
                    T.reads(A[vi, vj])
                    T.writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj] * T.float32(2)
        """,
    )
    for n in (1, 4, 5, 8):
        agree(symbolic, sch.mod["main"], *arrays(symbolic, n))


def test_split_by_a_symbolic_number_of_parts(agree):
    sch, (i, _j) = loops_of(symbolic, "B")
    sch.split(i, [4, None])
    assert extents(sch, "B") == ["4", "(n + 3) // 4", "8"]
    for n in (1, 4, 5, 8):
        agree(symbolic, sch.mod["main"], *arrays(symbolic, n))


def test_split_by_a_symbol(expect, agree):
    sch, (i, j) = loops_of(symbolic, "B")
    n = sch.get(i).extent
    sch.split(sch.fuse(i, j), [None, n])
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def symbolic(a: T.handle, b: T.handle):
            n = T.int32()
            A = T.match_buffer(a, (n, 8))
            B = T.match_buffer(b, (n, 8))
            # with T.block("root"):
            for i_j_fused_0, i_j_fused_1 in T.grid(-1 // n + 9, n):
                with T.block("B"):
                    vi = T.axis.spatial(n, (i_j_fused_0 * n + i_j_fused_1) // 8)
                    vj = T.axis.spatial(8, (i_j_fused_0 * n + i_j_fused_1) % 8)
                    T.where(i_j_fused_0 * n + i_j_fused_1 < n * 8)
                    T.reads(A[vi, vj])
                    T.writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj] * T.float32(2)
        """,
    )
    for size in (1, 3):
        agree(symbolic, sch.mod["main"], *arrays(symbolic, size))


@T.prim_func
def from_three(A: T.Buffer((20,), "int32")):
    for i in range(3, 13):
        with T.block("A"):
            vi = T.axis.spatial(20, i)
            A[vi] = vi


def test_split_of_a_loop_that_starts_elsewhere(expect, agree):
    sch, (i,) = loops_of(from_three, "A")
    sch.split(i, [None, 4])
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def from_three(A: T.Buffer((20,), "int32")):
            # with T.block("root"):
            for i_0, i_1 in T.grid(3, 4):
                with T.block("A"):
                    vi = T.axis.spatial(20, i_0 * 4 + i_1 + 3)
                    T.where(i_0 * 4 + i_1 < 10)
                    T.reads()
                    T.writes(A[vi])
                    A[vi] = vi
        """,
    )
    agree(from_three, sch.mod["main"], np.zeros(20, "int32"))


def test_split_of_a_fused_loop_simplifies_the_bindings(expect, agree):
    sch, (i, j) = loops_of(copy2d, "B")
    fused = sch.fuse(i, j)
    sch.split(fused, [None, 12])
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def copy2d(A: T.Buffer((8, 12), "float32"), B: T.Buffer((8, 12), "float32")):
            # with T.block("root"):
            for i_j_fused_0, i_j_fused_1 in T.grid(8, 12):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i_j_fused_0, i_j_fused_1])
                    T.reads(A[vi, vj])
                    T.writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj] + T.float32(1)
        """,
    )
    agree(copy2d, sch.mod["main"], *arrays(copy2d))


def test_split_without_predicates_is_for_factors_that_divide(refused):
    sch, (_i, j) = loops_of(copy2d, "B")
    assert (
        refused(sch, lambda: sch.split(j, [None, 5], disable_predication=True))
        == """\
split(j, factors=[None, 5], disable_predication=True): the factors make 15 iterations and loop `j` has 12: without a predicate those beyond its end may run too
  at test_split.py:LINE

  | …
  |     for i, j in T.grid(8, 12):    # <-- here
  | …

  hint: choose factors that divide it, or omit disable_predication: no predicate is made where they divide it"""
    )
    sch.split(j, [None, 4], disable_predication=True)
    assert "T.where" not in sch.mod.script()


def test_split_without_predicates_of_symbolic_loops(refused):
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1, name="B")
    sch, (i,) = loops_of(te.create_prim_func([A, B]), "B")
    text = refused(sch, lambda: sch.split(i, [None, 4], disable_predication=True)).splitlines()[0]
    assert text == (
        "split(i, factors=[None, 4], disable_predication=True): the factors make (n + 3) // 4 * 4 iterations and loop "
        "`i` has n: without a predicate those beyond its end may run too"
    )


def test_stages_split_without_predicates_by_factors_that_divide():
    A = te.placeholder((16,), name="A")
    B = te.compute((16,), lambda i: A[i] + 1, name="B")
    s = te.create_schedule(B.op)
    s[B].split(s[B].op.axis[0], factor=5, disable_predication=True)
    with pytest.raises(ScheduleError, match="the factors make 20 iterations and loop `i` has 16"):
        tvm.lower(s, [A, B])


def test_split_of_int64_loops(agree):
    A = te.placeholder((te.const(10, "int64"),), name="A")
    B = te.compute(A.shape, lambda i: A[i] + 1, name="B")
    func = te.create_prim_func([A, B])
    sch, (i,) = loops_of(func, "B")
    outer, inner = sch.split(i, [None, 4])
    assert sch.get(outer).loop_var.dtype == sch.get(inner).extent.dtype == "int64"
    agree(func, sch.mod["main"], *arrays(func))


def test_split_inside_and_outside_of_dependent_bounds(agree):
    sch, (i, j) = loops_of(triangle, "A")
    sch.split(i, [None, 3])
    sch.split(j, [None, 3])
    agree(triangle, sch.mod["main"], np.zeros((8, 8), "int32"))


@T.prim_func
def beside_a_block(A: T.Buffer((10,), "int32"), B: T.Buffer((10,), "int32"), C: T.Buffer((4,), "int32")):
    for i in range(10):
        with T.block("A"):
            vi = T.axis.spatial(10, i)
            A[vi] = vi
        B[i] = i
        if B[i] > 5:
            C[i // 4] = i


def test_split_guards_statements_outside_of_blocks_too(expect, agree):
    sch, (i,) = loops_of(beside_a_block, "A")
    sch.split(i, [None, 4])
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def beside_a_block(A: T.Buffer((10,), "int32"), B: T.Buffer((10,), "int32"), C: T.Buffer((4,), "int32")):
            # with T.block("root"):
            for i_0, i_1 in T.grid(3, 4):
                with T.block("A"):
                    vi = T.axis.spatial(10, i_0 * 4 + i_1)
                    T.where(i_0 * 4 + i_1 < 10)
                    T.reads()
                    T.writes(A[vi])
                    A[vi] = vi
                if i_0 * 4 + i_1 < 10:
                    B[i_0 * 4 + i_1] = i_0 * 4 + i_1
                if i_0 * 4 + i_1 < 10:
                    if B[i_0 * 4 + i_1] > 5:
                        C[(i_0 * 4 + i_1) // 4] = i_0 * 4 + i_1
        """,
    )
    agree(beside_a_block, sch.mod["main"], *(np.zeros(n, "int32") for n in (10, 10, 4)))


def test_split_refuses_factors_that_are_too_small(expect, refused):
    sch, (_i, j) = loops_of(copy2d, "B")
    expect(
        refused(sch, lambda: sch.split(j, [2, 4])),
        """
        split(j, factors=[2, 4]): the factors make 8 iterations and loop `j` has 12
          at test_split.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …

          hint: leave one factor None to have it inferred
        """,
    )


def test_split_refuses_factors(expect, refused):
    sch, (_i, j) = loops_of(copy2d, "B")
    expect(
        refused(sch, lambda: sch.split(j, [None, None])),
        """
        split(j, factors=[None, None]): more than one factor is None, so they cannot be inferred
          at test_split.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …

          hint: leave at most one open
        """,
    )
    expect(
        refused(sch, lambda: sch.split(j, [])),
        """
        split(j, factors=[]): there are no factors to split by
          at test_split.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …
        """,
    )
    expect(
        refused(sch, lambda: sch.split(j, [None, 0])),
        """
        split(j, factors=[None, 0]): a factor is 0; factors are at least 1
          at test_split.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …
        """,
    )
    expect(
        refused(sch, lambda: sch.split(j, [-2, None])),
        """
        split(j, factors=[-2, None]): a factor is -2; factors are at least 1
          at test_split.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …
        """,
    )
    expect(
        refused(sch, lambda: sch.split(j, [None, 2.5])),
        """
        split(j, factors=[None, 2.5]): a factor is `T.float32(2.5)`, which is not an integer
          at test_split.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …
        """,
    )


def test_split_refuses_marked_loops(expect, refused):
    sch, (_i, j) = loops_of(copy2d, "B")
    sch.parallel(j)
    expect(
        refused(sch, lambda: sch.split(j, [None, 4])),
        """
        split(j, factors=[None, 4]): loop `j` is already marked parallel
          at test_split.py:LINE

          | …
          |         for j in T.parallel(12):    # <-- here
          | …

          hint: split first, then parallel the part you want
        """,
    )
    sch, (_i, j) = loops_of(copy2d, "B")
    sch.vectorize(j)
    expect(
        refused(sch, lambda: sch.split(j, [None, 4])),
        """
        split(j, factors=[None, 4]): loop `j` is already marked vectorize
          at test_split.py:LINE

          | …
          |         for j in T.vectorized(12):    # <-- here
          | …

          hint: split first, then vectorize the part you want
        """,
    )
    sch, (_i, j) = loops_of(copy2d, "B")
    sch.unroll(j)
    expect(
        refused(sch, lambda: sch.split(j, [None, 4])),
        """
        split(j, factors=[None, 4]): loop `j` is already marked unroll
          at test_split.py:LINE

          | …
          |         for j in T.unroll(12):    # <-- here
          | …

          hint: split first, then unroll the part you want
        """,
    )


def test_split_refuses_annotated_loops(expect, refused):
    sch, (_i, j) = loops_of(copy2d, "B")
    sch.annotate(j, "pragma_x", 1)
    expect(
        refused(sch, lambda: sch.split(j, [None, 4])),
        """
        split(j, factors=[None, 4]): loop `j` has annotations (pragma_x), which would be lost
          at test_split.py:LINE

          | …
          |         for j in T.serial(12, annotations={"pragma_x": 1}):    # <-- here
          | …

          hint: split first, then annotate
        """,
    )


def test_split_takes_loops_only(refused):
    sch, (_i, _j) = loops_of(copy2d, "B")
    before = sch.mod
    with pytest.raises(TypeError) as caught:
        sch.split("j", [None, 4])
    assert str(caught.value) == "a loop is given by what get_loops or split returned, not by 'j'"
    assert sch.mod is before


def _bindings(sch: tvm.tir.Schedule, block: str = "B") -> list[str]:
    return [str(v) for v in sch.realize(sch.get_block(block)).iter_values]


@pytest.mark.parametrize("keep, bound", [(False, "j_1"), (True, "j_0 * 12 + j_1")])
def test_loops_of_one_iteration_keep_their_place_in_bindings_if_asked(agree, keep, bound):
    sch, (_i, j) = loops_of(copy2d, "B")
    sch.split(j, [1, 12], preserve_unit_iters=keep)
    assert _bindings(sch) == ["i", bound]
    agree(copy2d, sch.mod["main"], *arrays(copy2d))


@pytest.mark.parametrize(
    "keep, bound, guard",
    [
        (True, "j_0 * 15 + j_1 * 5 + j_2", "(j_0 * 3 + j_1) * 5 + j_2 < 12"),
        (False, "j_1 * 5 + j_2", "j_1 * 5 + j_2 < 12"),
    ],
)
def test_loops_of_one_iteration_in_the_guard(agree, keep, bound, guard):
    sch, (_i, j) = loops_of(copy2d, "B")
    sch.split(j, [1, None, 5], preserve_unit_iters=keep)
    assert _bindings(sch) == ["i", bound]
    assert f"T.where({guard})" in sch.mod.script()
    agree(copy2d, sch.mod["main"], *arrays(copy2d))
    again = tvm.tir.Schedule(copy2d)
    sch.trace.apply_to_schedule(again)
    tvm.ir.assert_structural_equal(again.mod, sch.mod)


@pytest.mark.parametrize("keep", [False, True])
def test_a_fused_loop_of_one_iteration_stays_in_bindings_if_asked(agree, keep):
    sch, (i, j) = loops_of(copy2d, "B")
    i_0, i_1 = sch.split(i, [1, 8], preserve_unit_iters=True)
    j_0, j_1 = sch.split(j, [1, 12], preserve_unit_iters=True)
    sch.reorder(i_0, j_0, i_1, j_1)
    sch.fuse(i_0, j_0, preserve_unit_iters=keep)
    used = " ".join(_bindings(sch))
    assert ("i_0_j_0_fused" in used) == keep
    agree(copy2d, sch.mod["main"], *arrays(copy2d))


def test_a_factor_of_another_type_takes_that_of_the_loop():
    @T.prim_func
    def copy(a: T.handle, b: T.handle, n: T.int32):
        A = T.match_buffer(a, (n,))
        B = T.match_buffer(b, (n,))
        for i in range(n):
            with T.block("B"):
                vi = T.axis.spatial(n, i)
                B[vi] = A[vi]

    sch = tvm.tir.Schedule(copy)
    outer, inner = sch.split(sch.get_loops("B")[0], [T.int64(10), None])
    assert (str(sch.get(outer).extent), str(sch.get(inner).extent)) == ("10", "(n + 9) // 10")
