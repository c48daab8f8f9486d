"""Loops that run not once: steps on them refuse or leave a program that is right, for sizes known and not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir import PrimFunc
from tilewright.ir.errors import ScheduleError


def sums(n: Any, m: Any) -> PrimFunc:
    """The sums of rows, and one more."""
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    return te.create_prim_func([A, te.compute((n,), lambda i: B[i] + 1, name="C")])


def twice(n: Any, m: Any) -> PrimFunc:
    A = te.placeholder((n, m), name="A")
    B = te.compute((n, m), lambda i, j: A[i, j] * 2, name="B")
    return te.create_prim_func([A, te.compute((n, m), lambda i, j: B[i, j] + 1, name="C")])


def right(sch: Any, *shape: int, build: bool = True, built: Any = None) -> None:
    """The program leaves what its origin does, run and compiled (here, unless it was before)."""
    a = np.random.default_rng(0).integers(-9, 9, shape).astype("float32")
    rank = len(sch.origin["main"].buffer_params()[1].shape)
    start = np.full(shape[:rank], 99, "float32")
    want, got = start.copy(), start.copy()
    tir.interpret(sch.origin["main"], a, want)
    tir.interpret(sch.mod["main"], a, got)
    np.testing.assert_array_equal(got, want)
    if build:
        (built or tvm.build(sch.mod, target="llvm"))(a, got := start.copy())
        np.testing.assert_array_equal(got, want)


# ---------------------------------------------------------------------------- fuse
@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0)])
def test_fuse_does_not_divide_by_nothing(shape: tuple[int, int]) -> None:
    sch = tir.Schedule(twice(*shape))
    sch.split(sch.fuse(*sch.get_loops("B")), [None, 4])
    right(sch, *shape)


def test_a_loop_fused_from_none(expect: Any) -> None:
    sch = tir.Schedule(twice(4, 0))
    sch.fuse(*sch.get_loops("C"))
    expect(
        sch.mod,
        """
        @I.ir_module
        class Module:
            @T.prim_func
            def main(A: T.Buffer((4, 0), "float32"), C: T.Buffer((4, 0), "float32")):
                T.func_attr({"tir.noalias": T.bool(True)})
                # with T.block("root"):
                B = T.alloc_buffer((4, 0))
                for i, j in T.grid(4, 0):
                    with T.block("B"):
                        v_i, v_j = T.axis.remap("SS", [i, j])
                        T.reads(A[v_i, v_j])
                        T.writes(B[v_i, v_j])
                        B[v_i, v_j] = A[v_i, v_j] * T.float32(2)
                for i_j_fused in range(0):
                    with T.block("C"):
                        v_i = T.axis.spatial(4, 0)
                        v_j = T.axis.spatial(0, 0)
                        T.reads(B[v_i, v_j])
                        T.writes(C[v_i, v_j])
                        C[v_i, v_j] = B[v_i, v_j] + T.float32(1)
        """,
    )


def test_fuse_of_an_empty_reduction_with_other_loops(expect: Any, refused: Any) -> None:
    """The init would stand in a loop that does not run."""
    sch = tir.Schedule(sums(4, 0))
    i, k = sch.get_loops("B")
    expect(
        refused(sch, lambda: sch.fuse(i, k)),
        """
        fuse(i, k): loop `k`, which carries the reduction of block B, has no iterations: in a loop that is fused from it and others the init would not run either
          at test_empty_loops.py:LINE

          | …
          |     for i, k in T.grid(4, 0):    # <-- here
          | …

          hint: take the init out first with decompose_reduction(B, i), or fuse the loops of the reduction by themselves
        """,
    )
    sch.decompose_reduction("B", i)
    sch.fuse(*sch.get_loops("B"))
    right(sch, 4, 0)


def test_fuse_of_a_reduction_that_may_be_empty(expect: Any, refused: Any) -> None:
    sch = tir.Schedule(sums(4, te.var("m")))
    i, k = sch.get_loops("B")
    expect(
        refused(sch, lambda: sch.fuse(i, k)),
        """
        fuse(i, k): loop `k`, which carries the reduction of block B, has m iterations, maybe none: in a loop that is fused from it and others the init would not run either
          at test_empty_loops.py:LINE

          | …
          |     for i, k in T.grid(4, m):    # <-- here
          | …

          hint: take the init out first with decompose_reduction(B, i), or fuse the loops of the reduction by themselves
        """,
    )
    k_0, k_1 = sch.split(k, [None, 4])
    expect(
        refused(sch, lambda: sch.fuse(i, k_0)),
        """
        fuse(i, k_0): loop `k_0`, which carries the reduction of block B, has (m + 3) // 4 iterations, maybe none: in a loop that is fused from it and others the init would not run either
          at test_empty_loops.py:LINE

          | …
          |     for i, k_0, k_1 in T.grid(4, (m + 3) // 4, 4):    # <-- here
          | …

          hint: take the init out first with decompose_reduction(B, i), or fuse the loops of the reduction by themselves
        """,
    )
    sch.fuse(k_0, k_1)  # of the reduction alone
    for m in (0, 1, 5):
        right(sch, 4, m)


def test_fuse_of_rows_that_may_be_none() -> None:
    sch = tir.Schedule(sums(te.var("n"), 3))
    i, k = sch.get_loops("B")
    k_0, k_1 = sch.split(k, [None, 2])
    sch.fuse(sch.fuse(i, k_0), k_1)
    for n in (0, 1, 5):
        right(sch, n, 3)


# ---------------------------------------------------------------------------- tiles of nothing
def test_there_are_no_tiles_of_nothing(expect: Any, refused: Any) -> None:
    sch = tir.Schedule(twice(4, 0))
    _, j = sch.get_loops("B")
    expect(
        refused(sch, lambda: sch.sample_perfect_tile(j, n=2)),
        """
        sample_perfect_tile(j, n=2): loop `j` has no iterations, so there are no tiles to draw
          at test_empty_loops.py:LINE

          | …
          |     for i, j in T.grid(4, 0):    # <-- here
          | …

          hint: leave it as it is: it never runs
        """,
    )
    expect(
        refused(sch, lambda: sch.sample_partitioned_tile(j, n=2)),
        """
        sample_partitioned_tile(j, n=2): loop `j` has no iterations, so there are no tiles to draw
          at test_empty_loops.py:LINE

          | …
          |     for i, j in T.grid(4, 0):    # <-- here
          | …

          hint: leave it as it is: it never runs
        """,
    )


# ---------------------------------------------------------------------------- all others
def _at(s: Any, block: str, loop: int) -> Any:
    return s.get_loops(block)[loop]


STEPS: dict[str, Callable[[Any], Any]] = {
    "split": lambda s: s.split(_at(s, "B", -1), [None, 4]),
    "split outside": lambda s: s.split(_at(s, "B", 0), [4, None]),
    "reorder": lambda s: s.reorder(*reversed(s.get_loops("B"))),
    "parallel": lambda s: s.parallel(_at(s, "B", 0)),
    "vectorize": lambda s: s.vectorize(s.split(_at(s, "C", -1), [None, 4])[1]),
    "unroll": lambda s: s.unroll(_at(s, "B", -1)),
    "compute_at": lambda s: s.compute_at("B", _at(s, "C", 0)),
    "reverse_compute_at": lambda s: s.reverse_compute_at("C", _at(s, "B", 0)),
    "compute_inline": lambda s: s.compute_inline("B"),
    "reverse_compute_inline": lambda s: s.reverse_compute_inline("C"),
    "decompose_reduction": lambda s: s.decompose_reduction("B", _at(s, "B", -1)),
    "rfactor": lambda s: s.rfactor(_at(s, "B", -1), 0),
    "cache_read": lambda s: s.compute_at(s.cache_read("B", 0, "global"), _at(s, "B", 0)),
    "cache_write": lambda s: s.reverse_compute_at(s.cache_write("B", 0, "global"), _at(s, "B", 0)),
    "reindex": lambda s: s.reindex("B", ("read", 0)),
    "transform_layout": lambda s: s.transform_layout("B", ("write", 0), lambda *v: v[::-1]),
    "blockize": lambda s: s.blockize(_at(s, "B", -1)),
    "pad_einsum": lambda s: s.pad_einsum("B", [4, 4]),
    "loop_partition": lambda s: s.loop_partition(_at(s, "B", 0), [2, None]),
    "rolling_buffer": lambda s: (s.compute_at("B", _at(s, "C", 0)), s.rolling_buffer("B", 0)),
    "sample_compute_location": lambda s: s.compute_at("B", s.sample_compute_location("B")),
}


def check(make: Callable[..., PrimFunc], steps: Callable[[Any], Any], build: bool) -> None:
    for shape in ((4, 0), (0, 4), (0, 0)):
        sch = tir.Schedule(make(*shape), seed=1)
        try:
            steps(sch)
        except ScheduleError as refusal:
            assert str(refusal)
        right(sch, *shape, build=build)


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("make", [sums, twice])
def test_steps_refuse_or_are_right(make: Callable[..., PrimFunc], steps: Callable[[Any], Any]) -> None:
    check(make, steps, build=False)


@pytest.mark.slow
@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("make", [sums, twice])
def test_steps_refuse_or_compile(make: Callable[..., PrimFunc], steps: Callable[[Any], Any]) -> None:
    check(make, steps, build=True)


@pytest.mark.slow
@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("make", [sums, twice])
def test_sizes_that_turn_out_to_be_none(make: Callable[..., PrimFunc], steps: Callable[[Any], Any]) -> None:
    sch = tir.Schedule(make(te.var("n"), te.var("m")), seed=1)
    try:
        steps(sch)
    except ScheduleError:
        return
    built = tvm.build(sch.mod, target="llvm")  # once, for all sizes
    for shape in ((4, 0), (0, 4), (0, 0), (5, 5)):
        right(sch, *shape, built=built)
