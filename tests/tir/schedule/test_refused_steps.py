"""Steps that random schedules found to change an answer: each is refused, for a reason that names the cause."""

from __future__ import annotations

import numpy as np
import pytest
import refused_programs as programs

from tilewright import tir
from tilewright.script import tir as T
from tilewright.tir.interpret import interpret
from tilewright.tir.transform.plan_allocations import plan_buffer_allocation


def _reorder(*order):
    def step(sch):
        loops = sch.get_loops("B")
        sch.reorder(*(loops[i] for i in order))

    return step


def _parallel_first(step):
    def steps(sch):
        sch.parallel(sch.get_loops("W")[1])
        step(sch)

    return steps


CASES = {
    "cache_write of elements that a loop says": (
        programs.loop_in_a_block,
        lambda sch: sch.cache_write(sch.get_block("B"), 0, "local"),
        "which elements of B_local are copied depends on loop `i`, which is not around the copy",
    ),
    "compute_at under loops of which one iteration reads": (
        programs.one_of_many_iterations,
        lambda sch: sch.compute_at(sch.get_block("W"), sch.get_loops("B")[2]),
        "block W reads elements of V that an iteration of loop `i` does not make",
    ),
    "compute_at of overlapping rows": (
        programs.overlapping_rows,
        lambda sch: sch.compute_at(sch.get_block("W"), sch.get_loops("B")[1]),
        "may write the same elements of W",
    ),
    "launch_around steps that choose the element": (
        programs.columns_that_a_step_chooses,
        lambda sch: sch.launch_around(sch.get_loops("B")[0], "threadIdx.x", 3),
        "reduction iterator `vk` of block B selects the element of B that is written",
    ),
    "compute_at of rows that are not there yet": (
        programs.row_by_row,
        lambda sch: sch.compute_at(sch.get_block("W"), sch.get_loops("B")[1]),
        "reads elements of V",
    ),
    "reorder of updates in turn": (
        programs.updates_in_turn,
        lambda sch: sch.reorder(*(sch.get_loops("B")[i] for i in (1, 2, 0))),
        "may use elements of B that another one writes",
    ),
    "compute_at where its reader does not run": (
        programs.guarded_rows,
        lambda sch: sch.compute_at(sch.get_block("W"), sch.get_loops("B")[0]),
        "block W reads elements of V that an iteration of loop `j` does not make",
    ),
    "cache_read where other iterations would copy": (
        programs.one_of_the_iterations,
        lambda sch: sch.cache_read(sch.get_block("Q"), "P", "local"),
        "may use elements of P that another one writes",
    ),
    "reverse_compute_inline of what asks for a place": (
        programs.a_place_that_is_read,
        lambda sch: sch.reverse_compute_inline(sch.get_block("B")),
        "asks W where to write",
    ),
    "cache_read of every other element": (
        programs.every_other_element,
        lambda sch: sch.cache_read(sch.get_block("B"), "W", "local"),
        "not known which elements of W have been written",
    ),
    "parallel where a window moves over a box": (
        programs.a_moving_window,
        lambda sch: sch.parallel(sch.get_loops("W")[0]),
        "may use elements of W that another one writes",
    ),
    "reverse_compute_inline of what is updated twice": (
        programs.updated_twice,
        lambda sch: sch.reverse_compute_inline(sch.get_block("P")),
        "come to a point more than once",
    ),
    "launch_around a triangle of starts": (
        programs.a_triangle_of_starts,
        lambda sch: sch.launch_around(sch.get_loops("B")[0], "threadIdx.x", 4),
        "its init does not run for the points of later iterations",
    ),
    "reindex of what a start that never runs reads": (
        programs.read_by_a_start_that_never_runs,
        lambda sch: sch.reindex(sch.get_block("B"), ("read", 0)),
        "where the init runs, which the copy relies on",
    ),
    "pad_einsum of a diagonal": (
        programs.a_diagonal,
        lambda sch: sch.pad_einsum(sch.get_block("B"), [5]),
        "uses a diagonal of W",
    ),
    "decompose_reduction of steps that come again": (
        programs.steps_that_come_again,
        lambda sch: sch.decompose_reduction(sch.get_block("B"), sch.get_loops("B")[1]),
        "repeat a step of its reduction",
    ),
    "reverse_compute_at before those who read old values": (
        programs.not_yet_written,
        lambda sch: sch.reverse_compute_at(sch.get_block("P"), sch.get_loops("W")[0]),
        "in a later iteration of loop `s`",
    ),
    "bind where threads read what others write": (
        programs.filled_by_other_threads,
        lambda sch: sch.bind(sch.get_loops("W")[0], "threadIdx.x"),
        "may use elements of W that another one writes",
    ),
    "rfactor where elements come twice": (
        programs.summed_again,
        lambda sch: sch.rfactor(sch.get_loops("B")[0]),
        "visit elements of block B more than once",
    ),
    "compute_inline of what is written later": (
        programs.written_later,
        lambda sch: sch.compute_inline(sch.get_block("W")),
        "that block P writes in a later iteration of loop `s`",
    ),
    "compute_at of what is written later": (
        programs.written_later,
        lambda sch: sch.compute_at(sch.get_block("W"), sch.get_loops("B")[0]),
        "that block P writes in a later iteration of loop `s`",
    ),
    "reorder of parts that overlap": (
        programs.parts_that_overlap,
        _reorder(2, 0, 1),
        "may write the same elements of B",
    ),
    "parallel parts that overlap": (
        programs.fused_and_overlapping,
        lambda sch: sch.parallel(sch.get_loops("B")[0]),
        "may write the same elements of B",
    ),
    "merge_reduction of what reads its other points": (
        programs.started_elsewhere,
        lambda sch: sch.merge_reduction(sch.get_block("start"), sch.get_block("B")),
        "reads elements of B that other iterations of it write",
    ),
    "reindex of what nobody wrote": (
        programs.maybe_never_read,
        lambda sch: sch.reindex(sch.get_block("B"), ("read", 1)),
        "it is not known which elements of W have been written",
    ),
    "reindex of what may not have been written": (
        programs.maybe_written,
        lambda sch: sch.reindex(sch.get_block("B"), ("read", 1)),
        "it is not known which elements of W have been written",
    ),
    "compute_at of sums that others read on the way": (
        programs.sums_so_far,
        lambda sch: sch.compute_at(sch.get_block("W"), sch.get_loops("B")[1]),
        "each of its iterations would take all steps",
    ),
    "reverse_compute_inline of an update into what runs twice": (
        programs.copied_twice,
        lambda sch: sch.reverse_compute_inline(sch.get_block("B")),
        "may come to a point more than once",
    ),
    "cache_write of points that come with later steps": (
        programs.points_of_later_steps,
        lambda sch: sch.cache_write(sch.get_block("B"), 0, "local"),
        "its init does not run for the points of later iterations",
    ),
    "reverse_compute_at under a loop of its own steps": (
        programs.steps_of_a_loop_around,
        lambda sch: sch.reverse_compute_at(sch.get_block("B"), sch.get_loops("W")[1]),
        "each of its iterations would take all steps",
    ),
    "decompose_reduction where others read what is not made yet": (
        programs.read_before_made,
        lambda sch: sch.decompose_reduction(sch.get_block("W"), sch.get_loops("W")[0]),
        "would see the init of block W too early",
    ),
    "cascade_reduction where a condition reads what is summed": (
        programs.asks_its_own_sum,
        lambda sch: sch.cascade_reduction(sch.get_loops("B")[1]),
        "the condition on the steps of block B depends on the partial result",
    ),
    "compute_at of a reduction whose elements come again": (
        programs.sums_that_come_again,
        lambda sch: sch.compute_at(sch.get_block("W"), sch.get_loops("B")[0]),
        "visit elements of block W more than once",
    ),
    "pad_einsum of a start that is read": (
        programs.starts_from_data,
        lambda sch: sch.pad_einsum(sch.get_block("W"), [4, 1]),
        "the init of block W reads a buffer",
    ),
    "decompose_reduction of a start that asks for a step": (
        programs.starts_from_a_step,
        lambda sch: sch.decompose_reduction(sch.get_block("B"), sch.get_loops("B")[1]),
        "uses reduction iterator `vk`",
    ),
    "cascade_reduction of steps that come again": (
        programs.steps_that_come_again,
        lambda sch: sch.cascade_reduction(sch.get_loops("B")[1]),
        "may repeat a step of its reduction",
    ),
    "rfactor where a condition reads what is summed": (
        programs.counts_its_own,
        lambda sch: sch.rfactor(sch.get_loops("B")[1]),
        "the condition on the steps of block B depends on the partial result",
    ),
    "reverse_compute_inline of a part of a domain": (
        programs.a_part_of_the_domain,
        lambda sch: sch.reverse_compute_inline(sch.get_block("B")),
        "the loops of block B do not come to all values of its iterators",
    ),
    "cache_write of elements that the steps choose": (
        programs.moving,
        lambda sch: sch.cache_write(sch.get_block("B"), 0, "local"),
        "reduction iterator `vi` of block B selects the element of B that is written",
    ),
    "cache_read of what iterations before have made": (
        programs.growing,
        lambda sch: sch.cache_read(sch.get_block("Q"), 0, "local"),
        "it is not known which elements of W have been written",
    ),
    "split where a point has no steps": (
        programs.part_of_a_fused_loop,
        lambda sch: sch.split(sch.get_loops("B")[0], [5, 5]),
        "may leave out all steps of a point",
    ),
    "cache_write out of a parallel loop": (
        programs.memory_of_nobody,
        _parallel_first(lambda sch: sch.cache_write(sch.get_block("W"), 0, "global")),
        "iterations of loop `j` may write the same elements of W_global",
    ),
    "reindex out of a parallel loop": (
        programs.memory_of_nobody,
        _parallel_first(lambda sch: sch.reindex(sch.get_block("W"), ("write", 0))),
        "iterations of loop `j` may write the same elements of W_reindex",
    ),
    "reverse_compute_inline of an update in place": (
        programs.turned_in_place,
        lambda sch: sch.reverse_compute_inline(sch.get_block("B")),
        "reads elements of B that other iterations of it write",
    ),
    "compute_at of what reads its other points": (
        programs.reads_its_other_points,
        lambda sch: sch.compute_at(sch.get_block("W"), sch.get_loops("B")[0]),
        "reads elements of W that other iterations of it write",
    ),
    "parallel in a block around": (
        programs.used_behind_a_block,
        lambda sch: sch.parallel(sch.get_loops("W")[1]),
        "iterations of loop `j` may write the same elements of W",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_step_is_refused(name):
    func, step, reason = CASES[name]
    sch = tir.Schedule(func)
    with pytest.raises(tir.ScheduleError) as found:
        step(sch)
    assert reason in str(found.value)


def test_an_index_that_is_read_may_be_anywhere():
    """A block around an access at `X[i] // 2` declares all of the dimension."""

    @T.prim_func
    def main(X: T.Buffer((4,), "int32"), A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[X[vi] // 2]

    sch = tir.Schedule(main)
    made = sch.get(sch.blockize(sch.get_loops("B")[0]))
    assert [str(r.extent) for read in made.reads if read.buffer.name == "A" for r in read.region] == ["4"]


def test_rfactor_asks_the_data_of_steps_that_are_there():
    @T.prim_func
    def main(A: T.Buffer((8,), "int32"), B: T.Buffer((4,), "int32")):
        for k, i in T.grid(5, 4):
            with T.block("B"):
                vk, vi = T.axis.remap("RS", [k, i])
                with T.init():
                    B[vi] = 0
                if A[vk + vi] > 0:
                    B[vi] = B[vi] + vk

    sch = tir.Schedule(main)
    outer, _ = sch.split(sch.get_loops("B")[0], [None, 4])
    sch.rfactor(outer)
    assert sch.verify()


def test_a_reduction_across_threads_may_be_in_shared_memory():
    """Its memory is that of all threads, also for the interpreter."""

    @T.prim_func
    def main(A: T.Buffer((4, 8), "int32"), B: T.Buffer((4,), "int32")):
        W = T.alloc_buffer((4,), "int32")
        for i, k in T.grid(4, 8):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    W[vi] = 0
                    B[vi] = 0
                W[vi] = W[vi] + A[vi, vk]
                B[vi] = B[vi] + A[vi, vk]

    sch = tir.Schedule(main)
    sch.bind(sch.get_loops("B")[1], "threadIdx.x")
    sch.set_scope(sch.get_block("B"), "W", "shared")
    a, b = np.arange(32, dtype="int32").reshape(4, 8), np.zeros(4, "int32")
    interpret(plan_buffer_allocation(sch.mod["main"]), a, b)
    assert (b == a.sum(1)).all()


def test_a_loop_of_one_iteration_carries_no_reduction():
    """Its condition leaves out rows, whose init must not run; the bounds that a split adds do not make it a step."""

    @T.prim_func
    def main(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
        for a, b in T.grid(1, 4):
            for k in range(4 - (a * 4 + b)):
                with T.block("B"):
                    vi = T.axis.spatial(4, b)
                    vk = T.axis.reduce(4, k)
                    T.where((a * 4 + b) % 2 == 0)
                    with T.init():
                        B[vi] = 9
                    B[vi] = T.min(B[vi], A[vk])

    sch = tir.Schedule(main)
    sch.split(sch.get_loops("B")[2], [16, None])
    a, b = np.array([3, 1, 2, 0], "int32"), np.full(4, 7, "int32")
    interpret(plan_buffer_allocation(sch.mod["main"]), a, b)
    assert b.tolist() == [0, 7, 1, 7]


def test_cascade_reduction_keeps_the_conditions_of_a_loop_of_one_iteration():
    """The loop becomes a reduction iterator, and conditions on those are not asked by an init."""

    @T.prim_func
    def main(A: T.Buffer((3,), "int32"), B: T.Buffer((3,), "int32")):
        for a, b in T.grid(1, 3):
            with T.block("B"):
                vi = T.axis.spatial(3, b)
                T.where((a * 3 + b) % 2 == 0)
                with T.init():
                    B[vi] = -3
                B[vi] = T.max(B[vi], A[vi])

    sch = tir.Schedule(main)
    sch.cascade_reduction(sch.get_loops("B")[0])
    a, b = np.array([4, 5, 6], "int32"), np.full(3, 7, "int32")
    interpret(sch.mod["main"], a, b)
    assert b.tolist() == [4, 7, 6]


def test_a_loop_in_a_condition_is_not_fused_with_a_loop_of_the_reduction(refused):
    """The loop binds no iterator; the init runs for points whose condition never holds, which the fused loop skips."""

    @T.prim_func
    def main(A: T.Buffer((2, 2), "int32"), B: T.Buffer((2,), "int32")):
        for i, p, k in T.grid(2, 2, 2):
            with T.block("B"):
                vi = T.axis.spatial(2, i)
                vk = T.axis.reduce(2, k)
                T.where((i + p) % 2 == 0 and p < 1)
                with T.init():
                    B[vi] = 5
                B[vi] = B[vi] + A[vi, vk]

    sch = tir.Schedule(main)
    _, p, k = sch.get_loops("B")
    text = refused(sch, lambda: sch.fuse(p, k))
    assert "loop `p` binds no iterator of block B, whose condition uses it" in text
