"""Pooling and depthwise convolutions on GPUs: some neighbouring results for each thread, read from global memory.

for kh, kw in grid(3, 3):                       windows overlap, but elements that several threads read are in the
    local[0:8] = max(local[0:8], x[…, 0:8])     L1 cache
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ....target import Target
from ....target.gpu_machine import GpuMachine
from ...cost.gpu import Counts
from ...cost.table import Array
from ...program.facts import Access, Facts, facts_of
from ...program.patterns import is_contiguous, is_pooling, reuses
from ...program.stages import Stage
from ..rule import Match, Refusal
from .figures import SimpleRule, stage_counts
from .kernel import Kernel
from .product import product_of

__all__ = ["Windows", "is_depthwise"]

_BYTES = 16  # bytes of a vector load
_MOST = 64  # elements of a window, at most
_WARP = 32


def is_depthwise(f: Facts) -> bool:
    """Whether a block is a depthwise convolution: each result is a small window of its own channel times weights, and
    neighbouring results read neighbouring elements."""
    data = _whole(f)
    if len(f.reads) != 2 or len(data) != 1 or math.prod(x.extent for x in f.reduce) > _MOST:
        return False
    near = data[0].stride(f.spatial[-1])
    return near is not None and 0 < near * data[0].bytes <= _BYTES


def _whole(f: Facts) -> list[Access]:
    """The reads whose address depends on every axis of the results."""
    return [r for r in f.reads if all(r.moves(x) for x in f.spatial if x.extent > 1)]


class _Share(NamedTuple):
    """The results of a thread: `several` vectors of `wide` neighbours, along the axis before the last."""

    threads: int
    wide: int
    several: int


class Windows(SimpleRule):
    """Some neighbouring results for each thread; elements that several threads read are in the L1 cache."""

    name = "windows"

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        f = stage.facts
        if not stage.single or f.kind != "reduction" or not f.spatial or f.write is None:
            return Refusal("it is no reduction over windows")
        depthwise = is_depthwise(f) and reuses(f) and product_of(f) is None
        if not depthwise and not (is_pooling(f) and (reuses(f) or not is_contiguous(f))):
            return Refusal("it is no pooling and no depthwise convolution")
        if not all(x.known for x in f.axes) or len(f.axes) != len(f.block.iter_vars):
            return Refusal("there is no axis to share", near=True)
        wide, several = _depthwise(f, target.gpu) if depthwise else (_pooled(f), 1)
        share = _share(f, wide, several, Kernel(stage).most)
        if share.threads < _WARP:
            return Refusal("its results are not shared by whole warps", near=True)
        return Match(stage, target.gpu, share)

    def counts(self, match: Match, threads: Array, wide: Array) -> Counts:
        f, s = match.stage.facts, match.found
        blocks = max(1, math.prod(a.extent for a in f.spatial) // (s.threads * s.wide * s.several))
        return stage_counts([f], match.machine, np.full(len(threads), blocks))

    def steps(self, k: Kernel, match: Match) -> dict[str, Any]:
        f, s = match.stage.facts, match.found
        k.inline_padding(f)
        f = facts_of(k.sch, f.rv)
        return _shared(k, f, _share(f, s.wide, s.several, k.most) if k.threads else s)


def _pooled(f: Facts) -> int:
    """The width of the vectors of a pooling: 1 if its results are not contiguous wherever they are accessed."""
    last = f.spatial[-1]
    contiguous = all(r.stride(last) == 1 for r in f.accesses)
    return (
        math.gcd(last.extent, _BYTES // max(r.bytes for r in f.accesses)) if contiguous and last.known else 1
    )


def _depthwise(f: Facts, gpu: GpuMachine) -> tuple[int, int]:
    """The width of vectors, and how many of them a thread has along the axis before the last, so that it reads weights
    and the overlap of windows once for all of them; fewer if there are few results.

    channels last     vectors of channels, neighbouring pixels of a row
    channels first    pixels of neighbouring rows; neighbouring pixels of a row belong to other threads
    """
    last = f.spatial[-1]
    (data,) = _whole(f)
    moved = [r for r in f.reads if r.moves(last)]
    wide = 1
    if all(r.stride(last) == 1 for r in moved) and not any(data.stride(k) == 1 for k in f.reduce):
        wide = math.gcd(last.extent, _BYTES // max(r.bytes for r in f.reads))
    count, busy = math.prod(x.extent for x in f.spatial), gpu.multiprocessors * gpu.windows.busy_threads
    while wide > 4 and count // wide < busy:
        wide //= 2
    before = f.spatial[-2].extent if len(f.spatial) > 1 else 1
    fits = [
        n
        for n in range(1, gpu.windows.results // wide + 1)
        if before % n == 0 and n <= gpu.windows.pixels and (n == 1 or count // (wide * n) >= busy)
    ]
    return wide, fits[-1]


def _share(f: Facts, wide: int, several: int, most: int) -> _Share:
    """The threads of a block, as many as divide the results."""
    count = math.prod(x.extent for x in f.spatial) // (wide * several)
    threads = most if count <= most else math.gcd(count, most)
    if threads < _WARP:
        threads = max(n for n in range(1, most + 1) if count % n == 0)
    return _Share(threads, wide, several)


def _shared(g: Kernel, f: Facts, share: _Share) -> dict[str, Any]:
    """Distribute the results over threads."""
    sch, consumer, (threads, wide, several) = g.sch, g.fusable_consumer(f), share
    epilogue = consumer
    if epilogue is None:
        epilogue = sch.cache_write(f.rv, 0, "local")
    else:
        sch.set_scope(f.rv, 0, "local")
    loops = dict(zip([x.var for x in f.axes], sch.get_loops(f.rv), strict=True))
    reduces = [loops[x.var] for x in f.reduce]
    *around, last = (loops[x.var] for x in f.spatial)
    some = []
    if several > 1:
        pixel, own = sch.split(around[-1], [None, several])
        around, some = [*around[:-1], pixel], [own]
    first, vector = sch.split(last, [None, wide])
    sch.reorder(*around, first, *reduces, *some, vector)
    block, thread = sch.split(g.fused([*around, first], f.rv), [None, threads])
    sch.reorder(block, thread, *reduces, *some, vector)
    sch.bind(block, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    sch.reverse_compute_at(epilogue, thread, preserve_unit_loops=True)
    start = sch.decompose_reduction(f.rv, reduces[0])
    for rv in (f.rv, start, epilogue):
        inner = sch.get_loops(rv)[2:]  # none if a single result is initialized
        if inner:
            sch.vectorize(inner[-1])
        for x in inner[:-1]:
            if rv is not f.rv or x not in reduces:
                sch.unroll(x)
    for x in reduces:
        sch.unroll(x)
    return {
        "threads": threads,
        "vector": wide,
        **({"register tile": f"{several} x {wide}"} if several > 1 else {}),
    }
