"""Programs that tensor expressions cannot say, and whether a schedule of one computes what it did."""

from __future__ import annotations

import numpy as np

from tilewright import tir
from tilewright.script import tir as T


@T.prim_func
def read_first(A: T.Buffer((12,), "int32"), B: T.Buffer((12,), "int32"), C: T.Buffer((12,), "int32")):
    for i in range(12):
        with T.block("C"):
            vi = T.axis.spatial(12, i)
            C[vi] = A[vi] + B[11 - vi]
    for i in range(12):
        with T.block("B"):
            vi = T.axis.spatial(12, i)
            B[vi] = A[11 - vi]


@T.prim_func
def strided(A: T.Buffer((8,), "int32"), B: T.Buffer((16,), "int32"), C: T.Buffer((16,), "int32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi * 2] = A[vi]
    for i in range(16):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            C[vi] = B[vi]


@T.prim_func
def scattered(A: T.Buffer((8,), "int32"), X: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[X[vi]] = A[vi]


@T.prim_func
def diagonal(A: T.Buffer((4,), "int32"), B: T.Buffer((4, 4), "int32")):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi, vi] = A[vi]


@T.prim_func
def sometimes(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            if A[vi] > 0:
                B[vi] = A[vi]


@T.prim_func
def triangle(A: T.Buffer((8, 8), "int32"), D: T.Buffer((8,), "int32")):
    C = T.alloc_buffer((8, 8), "int32")
    for i, j in T.grid(8, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] * 2
    for i in range(8):
        for j in range(i + 1):
            with T.block("D"):
                vi = T.axis.spatial(8, i)
                vj = T.axis.reduce(8, j)
                with T.init():
                    D[vi] = 0
                D[vi] = D[vi] + C[vi, vj]


@T.prim_func
def overlap(A: T.Buffer((4, 6), "int32"), B: T.Buffer((9,), "int32")):
    for i, j in T.grid(4, 6):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi + vj] = A[vi, vj]


@T.prim_func
def horner(A: T.Buffer((4, 6), "int32"), B: T.Buffer((4,), "int32")):
    for i, k in T.grid(4, 6):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = 0
            B[vi] = B[vi] * 2 + A[vi, vk]


@T.prim_func
def first_largest(A: T.Buffer((4, 6), "int32"), I: T.Buffer((4,), "int32"), V: T.Buffer((4,), "int32")):
    for i, k in T.grid(4, 6):
        with T.block("V"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                I[vi] = -1
                V[vi] = -1000
            I[vi] = T.Select(V[vi] >= A[vi, vk], I[vi], vk)
            V[vi] = T.max(V[vi], A[vi, vk])


@T.prim_func
def least_index(A: T.Buffer((4, 6), "int32"), I: T.Buffer((4,), "int32"), V: T.Buffer((4,), "int32")):
    for i, k in T.grid(4, 6):
        with T.block("V"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                I[vi] = -1
                V[vi] = -1000
            I[vi] = T.Select(V[vi] > A[vi, vk] or (V[vi] == A[vi, vk] and I[vi] <= vk), I[vi], vk)
            V[vi] = T.max(V[vi], A[vi, vk])


@T.prim_func
def late(A: T.Buffer((4, 6), "int32"), B: T.Buffer((4,), "int32")):
    """The init never runs: the reduction iterator is nowhere at its start."""
    for i in range(4):
        for k in range(5):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                vk = T.axis.reduce(6, k + 1)
                with T.init():
                    B[vi] = 0
                B[vi] = B[vi] + A[vi, vk]


@T.prim_func
def started_again(A: T.Buffer((4, 6), "int32"), B: T.Buffer((6,), "int32")):
    """Each i starts all of the reductions anew."""
    for i, j, k in T.grid(4, 6, 3):
        with T.block("B"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                B[vj] = 0
            B[vj] = B[vj] + A[vi, vj]


def on(func, name):
    sch = tir.Schedule(func)
    return sch, sch.get_loops(name)


class Named:
    """The blocks of a schedule by their names, told before a step so that the trace has the step alone."""

    def __init__(self, sch):
        for block in sch.get_child_blocks(sch.get_block("root")):
            setattr(self, block.name, block)


def same(sch):
    """The schedule computes what its origin does, also where many elements are equal."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        arrays = [
            rng.integers(0, 3, [int(n) for n in b.shape]).astype("int32")
            for b in sch.origin["main"].buffer_params()
        ]
        assert sch.verify(arrays=arrays)


def first_line(text):
    return text.splitlines()[0]
