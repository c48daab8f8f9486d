"""The matrix product of the practice, declared once, and the schedules that the phases compare."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import te
from tilewright.compiler.build_module import schedule_to_module

Built = tuple[te.Schedule, list[te.Tensor]]

# LLVM turns some loops into vectors by itself. With registers of one float it has none to use, and the code is what
# the schedule says: `vectorize` still gives vectors.
SCALAR = "llvm -vector-width=32"


def matmul(rows: int, columns: int = 0, depth: int = 0) -> list[te.Tensor]:
    """C[i, j] = sum over k of A[i, k] * B[k, j]: what to compute, nothing about how. Square, unless more is said."""
    columns, depth = columns or rows, depth or rows
    A = te.placeholder((rows, depth), name="A")
    B = te.placeholder((depth, columns), name="B")
    k = te.reduce_axis((0, depth), name="k")
    C = te.compute((rows, columns), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return [A, B, C]


def naive(*shape: int) -> Built:
    """as declared"""
    args = matmul(*shape)
    return te.create_schedule(args[-1].op), args


def ordered(n: int, order: str) -> Built:
    """The three loops in another order."""
    s, args = naive(n)
    C = args[-1]
    loops = dict(zip("ijk", (*C.op.axis, *C.op.reduce_axis), strict=True))
    s[C].reorder(*(loops[name] for name in order))
    return s, args


def in_tiles(n: int, tile: int) -> Built:
    """Cubes of the three loops, one after the other; inside a cube the loops are as declared."""
    s, args = naive(n)
    C = args[-1]
    i, j = C.op.axis
    (k,) = C.op.reduce_axis
    io, jo, ii, ji = s[C].tile(i, j, tile, tile)
    ko, ki = s[C].split(k, factor=tile)
    s[C].reorder(io, jo, ko, ii, ji, ki)
    return s, args


# -- the steps from plain loops to a good schedule -----------------------------------------------
ROWS, COLUMNS, DEPTH = 4, 64, 64


def tiled(n: int) -> Built:
    """split, reorder: in tiles"""
    s, args = naive(n)
    C = args[-1]
    i, j = C.op.axis
    (k,) = C.op.reduce_axis
    io, jo, ii, ji = s[C].tile(i, j, ROWS, min(COLUMNS, n))
    ko, ki = s[C].split(k, factor=min(DEPTH, n))
    s[C].reorder(io, jo, ko, ii, ji, ki)
    return s, args


def reordered(n: int) -> Built:
    """reorder: j innermost"""
    s, args = tiled(n)
    stage = s[args[-1]]
    io, jo, ko, ii, ji, ki = stage.leaf_iter_vars
    stage.reorder(io, jo, ko, ii, ki, ji)
    return s, args


def vectorized(n: int) -> Built:
    """vectorize: j in lanes"""
    s, args = reordered(n)
    stage = s[args[-1]]
    stage.vectorize(stage.leaf_iter_vars[-1])
    return s, args


def registers(*shape: int) -> Built:
    """cache_write, unroll: tile in registers"""
    args = matmul(*shape)
    C = args[-1]
    s = te.create_schedule(C.op)
    tile = s.cache_write(C, "local")
    _, jo, _, ji = s[C].tile(*C.op.axis, ROWS, min(COLUMNS, int(C.shape[1])))
    s[C].vectorize(ji)
    s[tile].compute_at(s[C], jo)
    ti, tj = s[tile].op.axis
    (k,) = s[tile].op.reduce_axis
    s[tile].reorder(k, ti, tj)
    s[tile].unroll(ti)
    s[tile].vectorize(tj)
    return s, args


def parallel(*shape: int) -> Built:
    """parallel: on all cores"""
    s, args = registers(*shape)
    C = s[args[-1]]
    C.parallel(C.leaf_iter_vars[0])
    return s, args


STEPS: tuple[Callable[..., Built], ...] = (naive, tiled, reordered, vectorized, registers, parallel)


def nest(built: Built) -> str:
    """The loops of a schedule, and what stands in them."""
    lines = str(schedule_to_module(*built)["main"]).splitlines()
    loop, store = re.compile(r"\s*for "), re.compile(r"\s*\w+\[.*\] = (?!T\.float32\(0\))")
    kept = [line if loop.match(line) else line[4:] for line in lines if loop.match(line) or store.match(line)]
    return textwrap.dedent("\n".join(kept))


# -- running them --------------------------------------------------------------------------------
class Bench:
    """Matrices of one shape, and what NumPy makes of them."""

    def __init__(self, *shape: int) -> None:
        rng = np.random.default_rng(0)
        A, B, _ = (tuple(map(int, tensor.shape)) for tensor in matmul(*shape))
        self.a, self.b = rng.random(A, dtype=np.float32), rng.random(B, dtype=np.float32)
        self.want = self.a @ self.b
        self.arrays = [tvm.nd.array(self.a), tvm.nd.array(self.b), tvm.nd.empty(self.want.shape)]

    def run(self, built: Built | Any, target: str = "llvm") -> Callable[[], None]:
        """A schedule as something to call, once it was found to compute what NumPy does."""
        made = tvm.build(*built, target=target, name="matmul") if isinstance(built, tuple) else built
        function = made[made.entry_name]
        self.error(function)
        return lambda: function(*self.arrays)

    def error(self, function: Any) -> float:
        """The largest relative difference from NumPy's result; an error if it is not small."""
        self.arrays[2].copyfrom(np.full_like(self.want, np.nan))
        function(*self.arrays)
        found = float(np.max(np.abs(self.arrays[2].numpy() - self.want) / np.abs(self.want)))
        if not found < 1e-3:
            raise AssertionError(f"this schedule computes something else: it differs by {found:.2g}")
        return found


def threads() -> int:
    """How many threads parallel loops have here."""
    return int(tvm.runtime.num_threads())
