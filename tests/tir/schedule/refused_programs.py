"""Programs of which a step would change the answer; random schedules found them."""

from __future__ import annotations

from tilewright.script import tir as T


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
            T.where(f < 18)
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


@T.prim_func
def one_of_many_iterations(A: T.Buffer((7,), "int32"), B: T.Buffer((7,), "int32")):
    V = T.alloc_buffer((7,), "int32")
    W = T.alloc_buffer((7,), "int32")
    for i in range(7):
        with T.block("V"):
            vi = T.axis.spatial(7, i)
            V[vi] = A[vi]
        with T.block("W"):
            vi = T.axis.spatial(7, i)
            W[vi] = V[vi] + 1
        for a, _b in T.grid(16, 1):
            with T.block("B"):
                vi = T.axis.spatial(7, i + a)
                T.where(a < 1)
                B[vi] = W[vi]


@T.prim_func
def loop_in_a_block(A: T.Buffer((8,), "int32"), B: T.Buffer((5, 5), "int32")):
    for i, j in T.grid(5, 5):
        with T.block("B"):
            vi = T.axis.spatial(5, i)
            vj = T.axis.spatial(5 - i, j)
            T.where(i + j < 5)
            T.reads(A[i + vj])
            T.writes(B[vi, i + vj])
            B[vi, i + vj] = A[i + vj]
