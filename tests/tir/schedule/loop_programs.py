"""Programs whose loops the tests reshape."""

from __future__ import annotations

from tilewright import tir
from tilewright.script import tir as T


def loops_of(func, block):
    sch = tir.Schedule(func)
    return sch, sch.get_loops(sch.get_block(block))


def extents(sch, block):
    return [str(sch.get(x).extent) for x in sch.get_loops(sch.get_block(block))]


@T.prim_func
def triangle(A: T.Buffer((8, 8), "int32")):
    for i in range(8):
        for j in range(i + 1):
            with T.block("A"):
                vi, vj = T.axis.remap("SS", [i, j])
                A[vi, vj] = vi + vj
