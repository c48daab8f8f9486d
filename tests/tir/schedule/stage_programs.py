"""Programs of several stages in block form, and the ways to run and replay what a schedule made of them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from schedule_programs import arrays

import tilewright as tvm
from tilewright import tir
from tilewright.ir.equal import assert_structural_equal
from tilewright.script import tir as T


@T.prim_func
def stencil(A: T.Buffer((10,), "float32"), C: T.Buffer((10,), "float32")):
    B = T.alloc_buffer((10,))
    for i in range(10):
        with T.block("B"):
            vi = T.axis.spatial(10, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(10):
        with T.block("C"):
            vi = T.axis.spatial(10, i)
            C[vi] = (
                T.if_then_else(vi >= 1, B[vi - 1], T.float32(0))
                + B[vi]
                + T.if_then_else(vi < 9, B[vi + 1], T.float32(0))
            )


@T.prim_func
def blur(A: T.Buffer((9, 11), "float32"), D: T.Buffer((7, 9), "float32")):
    """Two passes of a 3-point sum; the second needs rows that the first makes."""
    B = T.alloc_buffer((9, 9))
    for i, j in T.grid(9, 9):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + A[vi, vj + 1] + A[vi, vj + 2]
    for i, j in T.grid(7, 9):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = B[vi, vj] + B[vi + 1, vj] + B[vi + 2, vj]


@T.prim_func
def conv2d(
    X: T.Buffer((2, 5, 6), "float32"), W: T.Buffer((3, 2, 3, 3), "float32"), Y: T.Buffer((3, 5, 6), "float32")
):
    P = T.alloc_buffer((2, 7, 8))
    S = T.alloc_buffer((3, 5, 6))
    for c, y, x in T.grid(2, 7, 8):
        with T.block("P"):
            vc, vy, vx = T.axis.remap("SSS", [c, y, x])
            P[vc, vy, vx] = T.if_then_else(
                vy >= 1 and vy < 6 and vx >= 1 and vx < 7, X[vc, vy - 1, vx - 1], T.float32(0)
            )
    for o, y, x, c, ky, kx in T.grid(3, 5, 6, 2, 3, 3):
        with T.block("S"):
            vo, vy, vx, vc, vky, vkx = T.axis.remap("SSSRRR", [o, y, x, c, ky, kx])
            with T.init():
                S[vo, vy, vx] = T.float32(0)
            S[vo, vy, vx] = S[vo, vy, vx] + P[vc, vy + vky, vx + vkx] * W[vo, vc, vky, vkx]
    for o, y, x in T.grid(3, 5, 6):
        with T.block("Y"):
            vo, vy, vx = T.axis.remap("SSS", [o, y, x])
            Y[vo, vy, vx] = T.max(S[vo, vy, vx], T.float32(0))


@T.prim_func
def matmul_relu(
    A: T.Buffer((7, 10), "float32"), B: T.Buffer((10, 6), "float32"), D: T.Buffer((7, 6), "float32")
):
    C = T.alloc_buffer((7, 6))
    for i, j, k in T.grid(7, 6, 10):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(7, 6):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(C[vi, vj], T.float32(0))


@T.prim_func
def batched(
    A: T.Buffer((2, 5, 7), "float32"), B: T.Buffer((2, 7, 6), "float32"), D: T.Buffer((2, 5, 6), "float32")
):
    C = T.alloc_buffer((2, 5, 6))
    for b, i, j, k in T.grid(2, 5, 6, 7):
        with T.block("C"):
            vb, vi, vj, vk = T.axis.remap("SSSR", [b, i, j, k])
            with T.init():
                C[vb, vi, vj] = T.float32(0)
            C[vb, vi, vj] = C[vb, vi, vj] + A[vb, vi, vk] * B[vb, vk, vj]
    for b, i, j in T.grid(2, 5, 6):
        with T.block("D"):
            vb, vi, vj = T.axis.remap("SSS", [b, i, j])
            D[vb, vi, vj] = C[vb, vi, vj] + T.float32(1)


@T.prim_func
def fork(A: T.Buffer((12,), "float32"), C: T.Buffer((12,), "float32"), D: T.Buffer((12,), "float32")):
    """Two readers of B under one loop, one of them reading ahead."""
    B = T.alloc_buffer((12,))
    for i in range(12):
        with T.block("B"):
            vi = T.axis.spatial(12, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(12):
        with T.block("C"):
            vi = T.axis.spatial(12, i)
            C[vi] = B[vi] + T.float32(1)
        with T.block("D"):
            vi = T.axis.spatial(12, i)
            D[vi] = T.if_then_else(vi < 10, B[vi + 2], T.float32(0))


@T.prim_func
def levels(
    A: T.Buffer((8, 4), "float32"),
    C: T.Buffer((8, 4), "float32"),
    D: T.Buffer((8, 4), "float32"),
    E: T.Buffer((8, 4), "float32"),
):
    """B, C and D share a loop, E stands alone; all of C, D, E read A and B."""
    B = T.alloc_buffer((8, 4))
    for i in range(8):
        for j in range(4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for j in range(4):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + A[vi, vj]
        for j in range(4):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = B[vi, vj] + A[vi, vj] + T.float32(1)
    for i, j in T.grid(8, 4):
        with T.block("E"):
            vi, vj = T.axis.remap("SS", [i, j])
            E[vi, vj] = B[vi, vj] * A[vi, vj]


@T.prim_func
def symbolic_stencil(a: T.handle, c: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n,))
    C = T.match_buffer(c, (n,))
    B = T.alloc_buffer((n,))
    for i in range(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(n):
        with T.block("C"):
            vi = T.axis.spatial(n, i)
            C[vi] = B[vi] + T.if_then_else(vi >= 1, B[vi - 1], T.float32(0))


@T.prim_func
def overwritten(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    """A is set to zero between the block that reads it and that block's reader."""
    B = T.alloc_buffer((8,))
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(8):
        with T.block("A"):
            vi = T.axis.spatial(8, i)
            A[vi] = T.float32(0)
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[vi]


@T.prim_func
def padded(A: T.Buffer((8,), "float32"), C: T.Buffer((10,), "float32")):
    """The reader has a point at each end that reads nothing."""
    B = T.alloc_buffer((8,))
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(10):
        with T.block("C"):
            vi = T.axis.spatial(10, i)
            C[vi] = T.if_then_else(vi >= 1 and vi < 9, B[vi - 1], T.float32(0))


@T.prim_func
def backwards(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((8,))
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[7 - vi]


@T.prim_func
def unread(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    B = T.alloc_buffer((4,))
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi]
    for i in range(4):
        with T.block("C"):
            vi = T.axis.spatial(4, i)
            C[vi] = A[vi]


@T.prim_func
def argmax(
    X: T.Buffer((5, 9), "float32"),
    I: T.Buffer((5,), "int32"),
    V: T.Buffer((5,), "float32"),
):
    """A reduction of pairs."""
    for i, k in T.grid(5, 9):
        with T.block("R"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                I[vi] = -1
                V[vi] = T.float32(-1000)
            I[vi] = T.Select(V[vi] >= X[vi, vk], I[vi], vk)
            V[vi] = T.Select(V[vi] >= X[vi, vk], V[vi], X[vi, vk])


@T.prim_func
def front(A: T.Buffer((10,), "float32"), C: T.Buffer((6,), "float32")):
    B = T.alloc_buffer((10,))
    for i in range(10):
        with T.block("B"):
            vi = T.axis.spatial(10, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(6):
        with T.block("C"):
            vi = T.axis.spatial(6, i)
            C[vi] = B[vi]


def tiled(func: Any, block: str, *factors: int | None) -> tuple[Any, list[Any], list[Any]]:
    """A schedule with the loops of a block tiled, all outer loops outside of all inner ones."""
    sch = tir.Schedule(func)
    pairs = [
        sch.split(x, [None, f]) if f else (x,) for x, f in zip(sch.get_loops(block), factors, strict=False)
    ]
    outer = [p[0] for p in pairs]
    inner = [p[1] for p in pairs if len(p) > 1]
    rest = sch.get_loops(block)[len(outer) + len(inner) :]
    if len(outer) > 1:
        sch.reorder(*outer, *inner, *rest)
    return sch, outer, inner


def refusal(refused: Any, sch: Any, step: str, block: str, *args: Any, **options: Any) -> str:
    """The text with which a step on a block is refused; the block is looked up before."""
    handle = sch.get_block(block)
    return refused(sch, lambda: getattr(sch, step)(handle, *args, **options))


def same(before: Any, sch: Any, *, n: int = 5, build: bool = True) -> None:
    """The scheduled program gives what the first one gave: in block form, lowered, and compiled.

    Each block is held to the regions it declares. Races are looked for where memory is placed, in
    the lowered form: in block form a buffer that each iteration of a parallel loop fills is shared.
    """
    mod = sch.mod
    start = arrays(before, n)
    want = [a.copy() for a in start]
    tir.interpret(before, *want)

    def run(how: Any) -> None:
        got = [a.copy() for a in start]
        how(*got)
        for x, y in zip(want, got, strict=True):
            np.testing.assert_array_equal(y, x, err_msg=str(mod))

    name = next(iter(mod.functions)).name_hint
    run(lambda *a: tir.interpret(mod[name], *a, check_regions=True, detect_races=False))
    lowered = tvm.lower(mod)
    run(lambda *a: tir.interpret(next(iter(lowered.functions.values())), *a))
    if build:
        # What LLVM makes of the loops is tested elsewhere: here it need not try hard.
        with tvm.transform.PassContext(opt_level=0):
            run(tvm.build(mod, target="llvm"))


def same_again(before: Any, sch: Any) -> None:
    """The trace makes the same program from the first one: done again, from JSON, and as Python."""
    first, second, third = (tir.Schedule(before) for _ in range(3))
    sch.trace.apply_to_schedule(first)
    tir.schedule.Trace.apply_json_to_schedule(json.dumps(sch.trace.as_json()), second, trusted=True)
    exec("\n".join(sch.trace.as_python()), {"sch": third})
    for made in (first, second, third):
        assert_structural_equal(made.mod, sch.mod)
        assert made.trace.as_python() == sch.trace.as_python()
