"""Steps that random schedules found to change an answer: each is refused, for a reason that names the cause."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import tir
from tilewright.script import tir as T
from tilewright.tir.interpret import interpret
from tilewright.tir.transform.plan_allocations import plan_buffer_allocation


@T.prim_func
def summed_again(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
    for k, x, i in T.grid(4, 2, 3):  # the elements in the middle are summed twice
        with T.block("B"):
            vk = T.axis.reduce(4, k)
            vi = T.axis.spatial(4, x + i)
            with T.init():
                B[vi] = 2
            B[vi] = B[vi] + A[vi] * vk


@T.prim_func
def moving(A: T.Buffer((4, 3), "int32"), B: T.Buffer((4,), "int32")):
    for i, k in T.grid(4, 3):
        with T.block("B"):
            vi, vk = T.axis.remap("RR", [i, k])
            with T.init():
                B[vi] = -2
            B[vi] = B[vi] + A[vi, vk]


@T.prim_func
def growing(P: T.Buffer((3,), "int32"), Q: T.Buffer((3,), "int32")):
    W = T.alloc_buffer((3,), "int32")
    for s in range(3):
        for i in range(3 - s):
            with T.block("W"):
                vs, vi = T.axis.remap("SS", [s, i])
                W[vi] = P[vi] + vs
        for i in range(3):
            with T.block("Q"):
                vs, vi = T.axis.remap("SS", [s, i])
                Q[vi] = W[vi]


@T.prim_func
def part_of_a_fused_loop(A: T.Buffer((5, 5), "int32"), B: T.Buffer((5,), "int32")):
    for f in range(25):
        with T.block("B"):
            vi = T.axis.spatial(5, f // 5)
            vk = T.axis.reduce(5, f % 5)
            T.where(f < 20)
            with T.init():
                B[vi] = 0
            B[vi] = B[vi] + A[vi, vk]


@T.prim_func
def memory_of_nobody(A: T.Buffer((4, 4), "int32")):
    W = T.alloc_buffer((4,), "int32")
    for i, j in T.grid(4, 4):
        with T.block("W"):
            vi, vj = T.axis.remap("SS", [i, j])
            W[vi] = A[vi, vj]


@T.prim_func
def turned_in_place(A: T.Buffer((3, 3), "int32"), B: T.Buffer((3, 3), "int32")):
    W = T.alloc_buffer((3, 3), "int32")
    for i, j in T.grid(3, 3):
        with T.block("W"):
            vi, vj = T.axis.remap("SS", [i, j])
            W[vi, vj] = A[vi, vj]
    for i, j in T.grid(3, 3):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = W[vj, vi] - B[vj, vi]


@T.prim_func
def reads_its_other_points(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4,), "int32")):
    W = T.alloc_buffer((4,), "int32")
    for k, i in T.grid(3, 4):
        with T.block("W"):
            vk, vi = T.axis.remap("RS", [k, i])
            with T.init():
                W[vi] = 3
            W[vi] = T.max(W[vk], A[vi, vk])
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = W[vi]


@T.prim_func
def used_behind_a_block(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4,), "int32")):
    W = T.alloc_buffer((4,), "int32")
    with T.block("around"):
        T.reads(A[0:4, 0:4])
        T.writes(W[0:4])
        for i, j in T.grid(4, 4):
            with T.block("W"):
                vi, vj = T.axis.remap("SS", [i, j])
                W[vi] = A[vi, vj]
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = W[vi]


@T.prim_func
def counts_its_own(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
    for i, k in T.grid(4, 4):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = 0
            if B[vk] > 0:
                B[vi] = B[vi] + A[vi]


@T.prim_func
def a_part_of_the_domain(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
    W = T.alloc_buffer((4,), "int32")
    for i in range(4):
        with T.block("W"):
            vi = T.axis.spatial(4, i)
            W[vi] = A[vi]
    for i in range(3):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = W[vi]


@T.prim_func
def written_later(A: T.Buffer((4, 4), "int32"), P: T.Buffer((4, 4), "int32"), B: T.Buffer((4, 4), "int32")):
    W = T.alloc_buffer((4, 4), "int32")
    for s in range(4):
        for j in range(4):
            with T.block("P"):
                vs, vj = T.axis.remap("SS", [s, j])
                P[vs, vj] = A[vs, vj]
        for j in range(4):
            with T.block("W"):
                vs, vj = T.axis.remap("SS", [s, j])
                W[vj, vs] = P[vj, vs]
    for i, j in T.grid(4, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = W[vi, vj]


@T.prim_func
def parts_that_overlap(A: T.Buffer((4, 3), "int32"), B: T.Buffer((4,), "int32")):
    for k, x, i in T.grid(3, 2, 3):
        with T.block("B"):
            vk = T.axis.reduce(3, k)
            vi = T.axis.spatial(4, x + i)
            with T.init():
                B[vi] = 3
            B[vi] = B[vi] + A[vi, vk]


@T.prim_func
def fused_and_overlapping(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4,), "int32")):
    for x, f in T.grid(2, 12):
        with T.block("B"):
            vi = T.axis.spatial(4, x + f // 4)
            vk = T.axis.reduce(4, f % 4)
            with T.init():
                B[vi] = 0
            B[vi] = T.max(B[vi], A[vi, vk])


@T.prim_func
def started_elsewhere(A: T.Buffer((3, 3), "int32"), B: T.Buffer((3, 3), "int32")):
    for i, j in T.grid(3, 3):
        with T.block("start"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj]
    for k, i, j in T.grid(2, 3, 3):
        with T.block("B"):
            vk, vi, vj = T.axis.remap("RSS", [k, i, j])
            B[vi, vj] = T.max(B[vi, vj], vk - B[vj, vi])


@T.prim_func
def maybe_never_read(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
    W = T.alloc_buffer((4,), "int32")
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            if A[vi] > 100:
                B[vi] = W[vi]


@T.prim_func
def maybe_written(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
    W = T.alloc_buffer((4,), "int32")
    for i in range(4):
        with T.block("W"):
            vi = T.axis.spatial(4, i)
            if A[vi] > 0:
                W[vi] = A[vi]
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = T.if_then_else(A[vi] > 0, W[vi], 0)


@T.prim_func
def sums_so_far(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4, 4), "int32")):
    W = T.alloc_buffer((4,), "int32")
    for k in range(4):
        for i in range(4):
            with T.block("W"):
                vk, vi = T.axis.remap("RS", [k, i])
                with T.init():
                    W[vi] = 0
                W[vi] = W[vi] + A[vi, vk]
        for i in range(4):
            with T.block("B"):
                vk, vi = T.axis.remap("SS", [k, i])
                B[vi, vk] = W[vi]


@T.prim_func
def copied_twice(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
    W = T.alloc_buffer((4,), "int32")
    for _, i in T.grid(2, 4):
        with T.block("W"):
            vi = T.axis.spatial(4, i)
            W[vi] = A[vi]
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = B[vi] - W[vi]


@T.prim_func
def points_of_later_steps(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4,), "int32")):
    for k in range(4):
        for i in range(k + 1):
            with T.block("B"):
                vk, vi = T.axis.remap("RS", [k, i])
                with T.init():
                    B[vi] = 0
                B[vi] = B[vi] + A[vi, vk]


@T.prim_func
def steps_of_a_loop_around(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4,), "int32")):
    W = T.alloc_buffer((4, 4), "int32")
    for k in range(4):
        for i in range(4):
            with T.block("W"):
                vk, vi = T.axis.remap("SS", [k, i])
                W[vk, vi] = A[vk, vi]
        for i in range(4):
            with T.block("B"):
                vk, vi = T.axis.remap("RS", [k, i])
                with T.init():
                    B[vi] = 0
                B[vi] = B[vi] + W[vk, vi]


@T.prim_func
def read_before_made(A: T.Buffer((4, 4), "int32"), W: T.Buffer((4,), "int32"), B: T.Buffer((4, 4), "int32")):
    for i in range(4):
        for k in range(4):
            with T.block("W"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    W[vi] = 0
                W[vi] = W[vi] + A[vi, vk]
        for j in range(4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = W[vj]


@T.prim_func
def asks_its_own_sum(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4,), "int32")):
    for i, k in T.grid(4, 4):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = 3
            if B[vi] > 0:
                B[vi] = B[vi] + A[vi, vk]


@T.prim_func
def sums_that_come_again(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4,), "int32")):
    W = T.alloc_buffer((4,), "int32")
    for k, x, i in T.grid(4, 2, 3):
        with T.block("W"):
            vk = T.axis.reduce(4, k)
            vi = T.axis.spatial(4, x + i)
            with T.init():
                W[vi] = 0
            W[vi] = W[vi] + A[vi, vk]
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = W[vi]


@T.prim_func
def starts_from_data(A: T.Buffer((5, 3), "int32"), S: T.Buffer((5,), "int32"), B: T.Buffer((5,), "int32")):
    W = T.alloc_buffer((5,), "int32")
    for i, k in T.grid(5, 3):
        with T.block("W"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                W[vi] = S[vi]
            W[vi] = W[vi] + A[vi, vk]
    for i in range(5):
        with T.block("B"):
            vi = T.axis.spatial(5, i)
            B[vi] = W[vi]


@T.prim_func
def starts_from_a_step(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4,), "int32")):
    for i, k in T.grid(4, 4):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = A[vi, vk]
            B[vi] = B[vi] + A[vi, vk]


@T.prim_func
def steps_that_come_again(A: T.Buffer((4, 2), "int32"), B: T.Buffer((4,), "int32")):
    for i, f in T.grid(4, 4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            vk = T.axis.reduce(2, f % 2)
            with T.init():
                B[vi] = 0
            B[vi] = B[vi] + A[vi, vk]


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


@T.prim_func
def a_moving_window(P: T.Buffer((4, 4), "int32"), Q: T.Buffer((4,), "int32")):
    W = T.alloc_buffer((2, 2, 2), "int32")
    for s in range(4):
        for i in range(4):
            with T.block("W"):
                vs, vi = T.axis.remap("SS", [s, i])
                W[(vs + vi) // 4, (vs + vi) % 2, (vs + vi) // 2 % 2] = P[vs, vi]
        for i in range(3):
            with T.block("Q"):
                vs, vi = T.axis.remap("SS", [s, i])
                Q[vi] = W[0, vi % 2, vi // 2]


@T.prim_func
def updated_twice(P: T.Buffer((5,), "int32"), Q: T.Buffer((5,), "int32")):
    W = T.alloc_buffer((5,), "int32")
    for i in range(5):
        with T.block("W"):
            vi = T.axis.spatial(5, i)
            W[vi] = Q[vi]
    for x, i in T.grid(4, 2):
        with T.block("P"):
            vi = T.axis.spatial(5, x + i)
            P[vi] = P[vi] - W[vi]


@T.prim_func
def a_triangle_of_starts(A: T.Buffer((4,), "int32"), B: T.Buffer((4, 4), "int32")):
    for i in range(4):
        for k in range(i + 1):
            for j in range(k + 1):
                with T.block("B"):
                    vi, vk, vj = T.axis.remap("SRS", [i, k, j])
                    with T.init():
                        B[vj, vi] = 0
                    B[vj, vi] = B[vj, vi] + A[vk]


@T.prim_func
def read_by_a_start_that_never_runs(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4,), "int32")):
    W = T.alloc_buffer((4, 4), "int32")
    for i, k in T.grid(4, 3):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            vk = T.axis.reduce(4, k + 1)
            with T.init():
                B[vi] = W[vi, vi]
            B[vi] = B[vi] + A[vi, vk]


@T.prim_func
def a_diagonal(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
    W = T.alloc_buffer((4, 4), "int32")
    for i in range(4):
        with T.block("W"):
            vi = T.axis.spatial(4, i)
            W[vi, vi] = A[vi]
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = W[vi, vi]


@T.prim_func
def not_yet_written(A: T.Buffer((4,), "int32"), P: T.Buffer((4,), "int32"), Q: T.Buffer((4, 4), "int32")):
    W = T.alloc_buffer((4,), "int32")
    for i in range(4):
        with T.block("W"):
            vi = T.axis.spatial(4, i)
            W[vi] = A[vi]
    for s in range(4):
        with T.block("P"):
            vs = T.axis.spatial(4, s)
            P[vs] = W[vs]
        for i in range(4):
            with T.block("Q"):
                vs, vi = T.axis.remap("SS", [s, i])
                Q[vs, vi] = P[vi]


@T.prim_func
def filled_by_other_threads(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
    W = T.alloc_buffer((4,), "int32", scope="shared")
    for s in range(4):
        for i in range(4):
            with T.block("W"):
                vs, vi = T.axis.remap("SS", [s, i])
                T.where(s + i <= 3)
                W[vi] = A[vi]
        for i in range(4):
            with T.block("B"):
                vs, vi = T.axis.remap("RS", [s, i])
                with T.init():
                    B[vi] = 0
                B[vi] = T.max(B[vi], W[vs])


@T.prim_func
def one_of_the_iterations(P: T.Buffer((2,), "int32"), Q: T.Buffer((2,), "int32"), A: T.Buffer((2,), "int32")):
    for s in T.parallel(2):
        for i in range(2):
            with T.block("P"):
                vi = T.axis.spatial(2, i)
                T.where(s < 1)
                P[vi] = A[vi] + 1
            with T.block("Q"):
                vi = T.axis.spatial(2, i)
                T.where(s < 1)
                Q[vi] = Q[vi] * 2 + P[vi]


@T.prim_func
def a_place_that_is_read(
    X: T.Buffer((4,), "int32"), A: T.Buffer((4,), "int32"), B: T.Buffer((4, 4), "int32")
):
    W = T.alloc_buffer((4,), "int32")
    for i in range(4):
        with T.block("W"):
            vi = T.axis.spatial(4, i)
            W[vi] = X[vi]
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi, W[vi]] = A[vi]


@T.prim_func
def every_other_element(A: T.Buffer((3,), "int32"), B: T.Buffer((3,), "int32")):
    W = T.alloc_buffer((6,), "int32")
    for i in range(3):
        with T.block("W"):
            vi = T.axis.spatial(3, i)
            W[vi * 2] = A[vi]
    with T.block("around"):
        T.reads(W[0:6])
        T.writes(B[0:3])
        for i in range(3):
            with T.block("B"):
                vi = T.axis.spatial(3, i)
                B[vi] = W[vi * 2]


@T.prim_func
def guarded_rows(A: T.Buffer((2,), "int32"), B: T.Buffer((2, 2), "int32")):
    for i in range(2):
        with T.block("around"):
            v = T.axis.spatial(2, i)
            T.reads(A[0 : 2 - v])
            T.writes(B[0 : 2 - v, v])
            V = T.alloc_buffer((2,), "int32")
            W = T.alloc_buffer((2,), "int32")
            for j in range(2 - v):
                with T.block("V"):
                    vj = T.axis.spatial(2, j)
                    V[vj] = A[vj]
            for j in range(2 - v):
                with T.block("W"):
                    vj = T.axis.spatial(2, j)
                    W[vj] = V[vj] + 1
            for j in range(2):
                with T.block("B"):
                    vj = T.axis.spatial(2, j)
                    T.where(j < 2 - v)
                    B[vj, v] = W[vj]


@T.prim_func
def row_by_row(A: T.Buffer((2,), "int32"), X: T.Buffer((2,), "int32"), B: T.Buffer((2, 2), "int32")):
    V = T.alloc_buffer((2,), "int32")
    W = T.alloc_buffer((2,), "int32")
    for s in range(2):
        with T.block("V"):
            vs = T.axis.spatial(2, s)
            V[vs] = A[vs]
        with T.block("W"):
            vs = T.axis.spatial(2, s)
            W[vs] = V[vs]
        for i in range(2):
            with T.block("B"):
                vs, vi = T.axis.remap("SS", [s, i])
                B[vs, vi] = W[X[vi]]


@T.prim_func
def updates_in_turn(A: T.Buffer((3, 4), "int32"), B: T.Buffer((4,), "int32")):
    for i, x, k in T.grid(3, 2, 3):
        with T.block("B"):
            vi = T.axis.spatial(3, i)
            vk = T.axis.reduce(4, x + k)
            B[vk] = A[vi, vk] - B[vk]


@T.prim_func
def overlapping_rows(A: T.Buffer((4,), "int32"), B: T.Buffer((4, 3), "int32")):
    W = T.alloc_buffer((8,), "int32")
    for s in range(4):
        with T.block("W"):
            vs = T.axis.spatial(4, s)
            for q in range(4):
                W[vs + q] = A[q]
        for i in range(3):
            with T.block("B"):
                vs, vi = T.axis.remap("SS", [s, i])
                B[vs, vi] = W[vi]


@T.prim_func
def columns_that_a_step_chooses(A: T.Buffer((4, 6), "int32"), B: T.Buffer((6, 4), "int32")):
    for i, j, k in T.grid(4, 6, 6):
        with T.block("B"):
            vi, vj, vk = T.axis.remap("SRR", [i, j, k])
            with T.init():
                B[vk, vi] = 3
            B[vk, vi] = B[vk, vi] + A[vi, vk]


CASES = {
    "compute_at of overlapping rows": (
        overlapping_rows,
        lambda sch: sch.compute_at(sch.get_block("W"), sch.get_loops("B")[1]),
        "may write the same elements of W",
    ),
    "launch_around steps that choose the element": (
        columns_that_a_step_chooses,
        lambda sch: sch.launch_around(sch.get_loops("B")[0], "threadIdx.x", 3),
        "reduction iterator `vk` of block B says which element of B is written",
    ),
    "compute_at of rows that are not there yet": (
        row_by_row,
        lambda sch: sch.compute_at(sch.get_block("W"), sch.get_loops("B")[1]),
        "reads elements of V",
    ),
    "reorder of updates in turn": (
        updates_in_turn,
        lambda sch: sch.reorder(*(sch.get_loops("B")[i] for i in (1, 2, 0))),
        "may use elements of B that another one writes",
    ),
    "compute_at where its reader does not run": (
        guarded_rows,
        lambda sch: sch.compute_at(sch.get_block("W"), sch.get_loops("B")[0]),
        "block W reads elements of V that an iteration of loop `j` does not make",
    ),
    "cache_read where other iterations would copy": (
        one_of_the_iterations,
        lambda sch: sch.cache_read(sch.get_block("Q"), "P", "local"),
        "may use elements of P that another one writes",
    ),
    "reverse_compute_inline of what asks for a place": (
        a_place_that_is_read,
        lambda sch: sch.reverse_compute_inline(sch.get_block("B")),
        "asks W where to write",
    ),
    "cache_read of every other element": (
        every_other_element,
        lambda sch: sch.cache_read(sch.get_block("B"), "W", "local"),
        "no telling which elements of W have been written",
    ),
    "parallel where a window moves over a box": (
        a_moving_window,
        lambda sch: sch.parallel(sch.get_loops("W")[0]),
        "may use elements of W that another one writes",
    ),
    "reverse_compute_inline of what is updated twice": (
        updated_twice,
        lambda sch: sch.reverse_compute_inline(sch.get_block("P")),
        "come to a point more than once",
    ),
    "launch_around a triangle of starts": (
        a_triangle_of_starts,
        lambda sch: sch.launch_around(sch.get_loops("B")[0], "threadIdx.x", 4),
        "its init does not run for points that come later",
    ),
    "reindex of what a start that never runs reads": (
        read_by_a_start_that_never_runs,
        lambda sch: sch.reindex(sch.get_block("B"), ("read", 0)),
        "where the init runs, which the copy takes for granted",
    ),
    "pad_einsum of a diagonal": (
        a_diagonal,
        lambda sch: sch.pad_einsum(sch.get_block("B"), [5]),
        "uses a diagonal of W",
    ),
    "decompose_reduction of steps that come again": (
        steps_that_come_again,
        lambda sch: sch.decompose_reduction(sch.get_block("B"), sch.get_loops("B")[1]),
        "come to a step of its reduction again",
    ),
    "reverse_compute_at before those who read old values": (
        not_yet_written,
        lambda sch: sch.reverse_compute_at(sch.get_block("P"), sch.get_loops("W")[0]),
        "in a later iteration of loop `s`",
    ),
    "bind where threads read what others write": (
        filled_by_other_threads,
        lambda sch: sch.bind(sch.get_loops("W")[0], "threadIdx.x"),
        "may use elements of W that another one writes",
    ),
    "rfactor where elements come twice": (
        summed_again,
        lambda sch: sch.rfactor(sch.get_loops("B")[0]),
        "come to elements of block B more than once",
    ),
    "compute_inline of what is written later": (
        written_later,
        lambda sch: sch.compute_inline(sch.get_block("W")),
        "that block P writes in a later iteration of loop `s`",
    ),
    "compute_at of what is written later": (
        written_later,
        lambda sch: sch.compute_at(sch.get_block("W"), sch.get_loops("B")[0]),
        "that block P writes in a later iteration of loop `s`",
    ),
    "reorder of parts that overlap": (
        parts_that_overlap,
        _reorder(2, 0, 1),
        "may write the same elements of B",
    ),
    "parallel parts that overlap": (
        fused_and_overlapping,
        lambda sch: sch.parallel(sch.get_loops("B")[0]),
        "may write the same elements of B",
    ),
    "merge_reduction of what reads its other points": (
        started_elsewhere,
        lambda sch: sch.merge_reduction(sch.get_block("start"), sch.get_block("B")),
        "reads elements of B that other points of it write",
    ),
    "reindex of what nobody wrote": (
        maybe_never_read,
        lambda sch: sch.reindex(sch.get_block("B"), ("read", 1)),
        "there is no telling which elements of W have been written",
    ),
    "reindex of what may not have been written": (
        maybe_written,
        lambda sch: sch.reindex(sch.get_block("B"), ("read", 1)),
        "there is no telling which elements of W have been written",
    ),
    "compute_at of sums that others read on the way": (
        sums_so_far,
        lambda sch: sch.compute_at(sch.get_block("W"), sch.get_loops("B")[1]),
        "each of its iterations would take all steps",
    ),
    "reverse_compute_inline of an update into what runs twice": (
        copied_twice,
        lambda sch: sch.reverse_compute_inline(sch.get_block("B")),
        "may come to a point more than once",
    ),
    "cache_write of points that come with later steps": (
        points_of_later_steps,
        lambda sch: sch.cache_write(sch.get_block("B"), 0, "local"),
        "its init does not run for points that come later",
    ),
    "reverse_compute_at under a loop of its own steps": (
        steps_of_a_loop_around,
        lambda sch: sch.reverse_compute_at(sch.get_block("B"), sch.get_loops("W")[1]),
        "each of its iterations would take all steps",
    ),
    "decompose_reduction where others read what is not made yet": (
        read_before_made,
        lambda sch: sch.decompose_reduction(sch.get_block("W"), sch.get_loops("W")[0]),
        "would see the init of block W sooner",
    ),
    "cascade_reduction where a condition reads what is summed": (
        asks_its_own_sum,
        lambda sch: sch.cascade_reduction(sch.get_loops("B")[1]),
        "which steps of block B count depends on what it has made so far",
    ),
    "compute_at of a reduction whose elements come again": (
        sums_that_come_again,
        lambda sch: sch.compute_at(sch.get_block("W"), sch.get_loops("B")[0]),
        "come to elements of block W more than once",
    ),
    "pad_einsum of a start that is read": (
        starts_from_data,
        lambda sch: sch.pad_einsum(sch.get_block("W"), [4, 1]),
        "the init of block W reads a buffer",
    ),
    "decompose_reduction of a start that asks for a step": (
        starts_from_a_step,
        lambda sch: sch.decompose_reduction(sch.get_block("B"), sch.get_loops("B")[1]),
        "asks for reduction iterator `vk`",
    ),
    "cascade_reduction of steps that come again": (
        steps_that_come_again,
        lambda sch: sch.cascade_reduction(sch.get_loops("B")[1]),
        "may come to a step of its reduction again",
    ),
    "rfactor where a condition reads what is summed": (
        counts_its_own,
        lambda sch: sch.rfactor(sch.get_loops("B")[1]),
        "which steps of block B count depends on what it has made so far",
    ),
    "reverse_compute_inline of a part of a domain": (
        a_part_of_the_domain,
        lambda sch: sch.reverse_compute_inline(sch.get_block("B")),
        "the loops of block B do not come to all values of its iterators",
    ),
    "cache_write of elements that the steps choose": (
        moving,
        lambda sch: sch.cache_write(sch.get_block("B"), 0, "local"),
        "reduction iterator `vi` of block B says which element of B is written",
    ),
    "cache_read of what iterations before have made": (
        growing,
        lambda sch: sch.cache_read(sch.get_block("Q"), 0, "local"),
        "there is no telling which elements of W have been written",
    ),
    "split where a point has no steps": (
        part_of_a_fused_loop,
        lambda sch: sch.split(sch.get_loops("B")[0], [5, 5]),
        "may leave out all steps of a point",
    ),
    "cache_write out of a parallel loop": (
        memory_of_nobody,
        _parallel_first(lambda sch: sch.cache_write(sch.get_block("W"), 0, "global")),
        "iterations of loop `j` may write the same elements of W_global",
    ),
    "reindex out of a parallel loop": (
        memory_of_nobody,
        _parallel_first(lambda sch: sch.reindex(sch.get_block("W"), ("write", 0))),
        "iterations of loop `j` may write the same elements of W_reindex",
    ),
    "reverse_compute_inline of an update in place": (
        turned_in_place,
        lambda sch: sch.reverse_compute_inline(sch.get_block("B")),
        "reads elements of B that other points of it write",
    ),
    "compute_at of what reads its other points": (
        reads_its_other_points,
        lambda sch: sch.compute_at(sch.get_block("W"), sch.get_loops("B")[0]),
        "reads elements of W that other points of it write",
    ),
    "parallel in a block around": (
        used_behind_a_block,
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
