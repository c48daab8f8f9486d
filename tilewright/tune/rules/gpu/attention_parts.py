"""Attention of few queries over a long past: thread blocks for parts of the keys, and a kernel that combines the parts.

thread block for 256 keys of a head         threads 128
    scores       some threads for each key, vectors of 16 bytes along it, several keys in flight
    weights      measured from the largest score of the part; in shared memory, as the scores
    product      a thread for 16 bytes of a row of values and every eighth key; then their sum
thread block for a query                    the parts, corrected and added up
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ....ir.expr import const_value
from ....target import Target
from ....target.gpu_machine import GpuMachine
from ....tir.schedule import Schedule
from ....tir.schedule.library.attention import Attention, attention_of
from ....tir.schedule.library.split_attention import PART_ROLES
from ....tir.schedule.primitive import BlockRV, LoopRV
from ...cost.gpu import Counts, seconds_of
from ...cost.table import Table
from ...program.facts import Facts, facts_of
from ...program.stages import Stage
from ..rule import Applied, Match, Refusal, Row
from .figures import kernel_figures, kernel_table
from .kernel import Kernel, power

__all__ = ["FEW", "AttentionParts", "PartSizes"]

_WARP = 32
_WIDE = 16  # bytes of a vector load
_FLIGHT = 8  # vectors that a thread has in flight
_COMBINING = 256  # threads at most that combine the parts of a query
FEW = 16  # queries whose sums a thread can hold
_COLUMNS = ("threads", "keys")


class PartSizes(NamedTuple):
    """The distribution of a part over the threads of a block."""

    keys: int  # of a part
    vector: int  # elements
    lanes: int  # threads of a key
    chunks: int  # vectors of such a thread
    across: int  # threads along a row of the values
    high: int  # keys of the values that threads take side by side

    @property
    def threads(self) -> int:
        return self.across * self.high

    @property
    def several(self) -> int:
        """The keys whose vectors a thread has in flight."""
        return _divisor(self.keys * self.lanes // self.threads, max(1, _FLIGHT // self.chunks))

    @property
    def steps(self) -> int:
        """The rows of values that a thread has in flight."""
        rows = self.keys // self.high
        return _divisor(rows, max(1, min(_FLIGHT, rows // 2)))  # two or more, so that the loop remains


def _divisor(n: int, most: int) -> int:
    return max(d for d in range(1, most + 1) if n % d == 0)


def _sizes(a: Attention, threads: int, each: int) -> PartSizes:
    """At least so many threads, of which those that share a key have `each` keys."""
    vector = _WIDE * 8 // a.k.dtype.bits
    vectors, across = (a.size(iv) // vector for iv in (a.deep, a.column))
    lanes = max(n for n in (1, 2, 4, 8) if vectors % n == 0 and (n <= 4 or vectors // n >= 4))
    high = max(1, power(-(-threads // across)))
    while across * high % _WARP and high < _WARP:  # threads of whole warps combine their sums by shuffles
        high *= 2
    return PartSizes(across * high * each // lanes, vector, lanes, vectors // lanes, across, high)


def _every(a: Attention, gpu: GpuMachine) -> list[tuple[tuple[int, int], PartSizes]]:
    """The decisions, and what they come to: parts that shared memory has room for."""
    found = []
    for threads in (64, 128, 256):
        for each in (1, 2, 4, 8, 16, 32, 64):
            s = _sizes(a, threads, each)
            rows = a.size(a.row)
            if (
                s.threads * each % s.lanes
                or s.keys % s.high
                or s.keys < 2 * s.high
                or (rows > 1 and rows * s.keys % s.threads)
            ):
                continue  # not all threads would have as much to do
            fits = (
                _shared_bytes(a, s) <= gpu.shared_memory_per_block and s.threads <= gpu.max_threads_per_block
            )
            if fits and s.keys < a.size(a.key):
                found.append(((threads, each), s))
    return found


def _shared_bytes(a: Attention, s: PartSizes) -> int:
    """The partial scores, or the partial sums that take their place, and the weights."""
    rows = a.size(a.row)
    return 4 * rows * (s.keys * 2 + max(s.keys * s.lanes, s.high * a.size(a.column))) + 256


class AttentionParts:
    """Two kernels: parts of the keys, distributed over all SMs, and their combination.

    wins where   there are few queries: each key and value is read once, and computing hides behind that
    costs        the sums of the parts, written and read once more; products without tensor cores
    """

    name = "attention in parts"
    needs = frozenset({"shared_memory"})

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        f, sch = stage.facts, stage.program.sch
        if f.kind != "reduction" or len(f.reduce) != 1 or len(f.spatial) < 2:
            return Refusal("it is not a product")
        found = attention_of(sch, sch.realize(f.rv))
        if isinstance(found, str):
            return Refusal(found)
        if found.size(found.row) > FEW:
            return Refusal(f"threads cannot hold the sums of more than {FEW} queries")
        vector = _WIDE * 8 // found.k.dtype.bits
        if any(found.size(iv) % vector for iv in (found.deep, found.column)):
            return Refusal("its rows are no whole vectors of 16 bytes", near=True)
        if not _every(found, target.gpu):
            why = "there are too few keys for two parts that shared memory has room for"
            return Refusal(why, near=True)
        return Match(stage, target.gpu, found)

    def table(self, match: Match, machine: GpuMachine, only: Mapping[str, int] | None = None) -> Table:
        a = match.found
        every = [x for x in _every(a, machine) if only is None or x[0] == tuple(only[n] for n in _COLUMNS)]
        work = [_counts(a, s, machine) for _, s in every]
        left = [float(seconds_of(_combined(a, s, machine), machine)) for _, s in every]
        points = [point for point, _ in every]
        return kernel_table(
            match.stage, _COLUMNS, points, work, left=left, prior=machine.attention.parts_prior
        )

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        a, k = match.found, Kernel(match.stage)
        s = _sizes(a, row.values["threads"], row.values["keys"])
        consumer = _epilogue(k, match.stage.facts)
        blocks = dict(
            zip(
                PART_ROLES, sch.split_attention(match.stage.facts.rv, s.keys, s.lanes * s.vector), strict=True
            )
        )
        _Parts(sch, blocks, a, s).schedule()
        last = blocks["out"]
        if consumer is not None:
            sch.compute_inline(last)
            last = consumer
            k.finished.append(consumer.key)
        _combine(sch, blocks, last, a, s)
        c = _counts(a, s, match.machine)
        note = {
            "keys": s.keys,
            "parts": _parts(a, s),
            "threads": s.threads,
            "vector": s.vector,
        }
        figures = kernel_figures(c, int(c.flop), int(c.dram), match.machine)
        k.finished.extend(b.key for b in blocks.values())
        return Applied(note, done=tuple(k.finished), figures=figures)


def _epilogue(k: Kernel, f: Facts) -> BlockRV | None:
    """The stage after the product, if it computes element by element in the same order."""
    consumer = k.fusable_consumer(f)
    if consumer is None or f.write is None:
        return None
    c = facts_of(k.sch, consumer)
    own = [a.var for a in c.axes]
    reads = [r for r in c.reads if r.buffer is f.write.buffer]
    same = all(list(r.indices) == own for r in reads) and len(own) == len(f.spatial)
    return consumer if c.kind == "injective" and same else None


# ---------------------------------------------------------------------------- work
def _counts(a: Attention, s: PartSizes, gpu: GpuMachine) -> Counts:
    """The work of the parts: they read keys and values once, as fast as the loads in flight on all SMs allow."""
    heads, (rows, keys) = math.prod(a.size(iv) for iv in a.others), (a.size(iv) for iv in (a.row, a.key))
    deep, across, w = a.size(a.deep), a.size(a.column), gpu.attention
    blocks, shared = heads * _parts(a, s), _shared_bytes(a, s)
    registers = min(gpu.limits.registers_per_thread, 44 + 12 * rows)
    each = -(-blocks // gpu.multiprocessors)
    room = min(gpu.limits.threads // s.threads, gpu.limits.registers // (registers * s.threads))
    at_once = max(1, min(room, gpu.limits.blocks, gpu.limits.blocks_by_shared(shared), each))
    loads = min(w.part_loads, s.several * s.chunks, s.steps) * _WIDE * s.threads
    busy = min(1.0, min(blocks / gpu.multiprocessors, at_once) * loads / w.part_flight)
    even = blocks / gpu.multiprocessors / each
    rounds = -(-each // at_once)
    read = a.k.dtype.nbytes * heads * keys * (deep + across)
    read = min(
        read,
        sum(math.prod(int(const_value(n) or 1) for n in x.buffer.shape) * x.dtype.nbytes for x in (a.k, a.v)),
    )
    # Queries are converted for each product with a key, keys and values once.
    work = heads * keys * (rows * (2 * deep + across) + deep + across)
    return Counts(
        compute=work / (gpu.fma_per_cycle * w.part_rate * gpu.multiprocessors * even),
        dram=read + _partial_bytes(a, s),
        dram_rate=(even if rounds > 1 else 1.0) * busy**gpu.tile.busy_exponent,
        dram_launch=w.part_cycles * (1 + (rounds - 1) / at_once),
        flop=2 * heads * rows * keys * (deep + across),
        blocks=blocks,
        at_once=at_once,
        threads=s.threads,
        registers=registers,
        shared_bytes=shared,
    )


def _combined(a: Attention, s: PartSizes, gpu: GpuMachine) -> Counts:
    """The work of combining the parts, a thread block for each query."""
    queries = math.prod(a.size(iv) for iv in (*a.others, a.row))
    busy = min(1.0, queries / gpu.multiprocessors) ** gpu.tile.busy_exponent
    cycles = gpu.attention.combine_cycles
    return Counts(dram=_partial_bytes(a, s), dram_rate=busy, dram_launch=cycles, blocks=queries)


def _parts(a: Attention, s: PartSizes) -> int:
    return -(-a.size(a.key) // s.keys)


def _partial_bytes(a: Attention, s: PartSizes) -> int:
    """The sums of the parts, and what is needed to combine them."""
    queries = math.prod(a.size(iv) for iv in (*a.others, a.row))
    return 4 * queries * _parts(a, s) * (a.size(a.column) + 2)


# ---------------------------------------------------------------------------- the kernel of the parts
class _Parts:
    """Moves the blocks of a part into one kernel, and binds them."""

    def __init__(self, sch: Schedule, blocks: dict[str, BlockRV], a: Attention, s: PartSizes) -> None:
        self.sch, self.b, self.a, self.s = sch, blocks, a, s

    def schedule(self) -> None:
        sch, b = self.sch, self.b
        *around, _, n = sch.get_loops(b["highest"])
        block = sch.fuse(*around)
        self.across_threads(n)
        sch.set_scope(b["highest"], 0, "local")
        sch.set_scope(b["weights"], 0, "shared")
        sch.reverse_compute_at(b["weights"], block, preserve_unit_loops=True)
        self.threads(sch.get_loops(b["weights"])[-2:])
        sch.set_scope(b["total"], 0, "local")
        sch.reverse_compute_at(b["total"], block, preserve_unit_loops=True)
        self.across_threads(sch.get_loops(b["total"])[-1])
        self.product(block)
        for role in ("keep_highest", "keep_total"):
            sch.reverse_compute_at(b[role], block, preserve_unit_loops=True)
            sch.bind(sch.add_unit_loop(sch.get_loops(b[role])[1]), "threadIdx.x")
        self.logits(block)
        self.scores(block)
        sch.bind(block, "blockIdx.x")

    def across_threads(self, n: LoopRV) -> None:
        """Reduce over the keys of a part by all threads."""
        _, thread = self.sch.split(n, [None, self.s.threads])
        self.sch.bind(thread, "threadIdx.x")

    def threads(self, loops: Sequence[LoopRV]) -> LoopRV:
        _, thread = self.sch.split(self.sch.fuse(*loops), [None, self.s.threads])
        self.sch.bind(thread, "threadIdx.x")
        return thread

    def logits(self, block: LoopRV) -> None:
        """The logits in shared memory; the threads that add the partial scores up compute them."""
        sch, b = self.sch, self.b
        *_, deep = sch.get_loops(b["scores"])
        _, lane, _ = sch.split(deep, [None, self.s.lanes, self.s.vector])
        self.partial = sch.rfactor(lane, factor_axis=0)
        sch.set_scope(b["logits"], 0, "shared")
        sch.compute_at(b["logits"], block, preserve_unit_loops=True)
        thread = self.threads(sch.get_loops(b["logits"])[-2:])
        sch.set_scope(b["scores"], 0, "local")
        sch.compute_at(b["scores"], thread, preserve_unit_loops=True)
        sch.unroll(sch.get_loops(b["scores"])[-1])

    def scores(self, block: LoopRV) -> None:
        """The products of queries and keys, by `lanes` threads for each key."""
        sch, s = self.sch, self.s
        stored = sch.cache_write(self.partial, 0, "local")
        sch.set_scope(stored, 0, "shared")
        sch.compute_at(stored, block, preserve_unit_loops=True)
        _, lane, *units, i, n = sch.get_loops(stored)
        outer, side, several = sch.split(n, [None, s.threads // s.lanes, s.several])
        sch.reorder(*units, side, lane, outer, several, i)
        sch.bind(sch.fuse(side, lane), "threadIdx.x")
        sch.unroll(several)
        sch.unroll(i)
        sch.compute_at(self.partial, outer, preserve_unit_loops=True)
        *_, i, n, chunk, vector = sch.get_loops(self.partial)
        sch.reorder(n, chunk, i, vector)
        for x in (n, chunk, i, vector):
            sch.unroll(x)
        query = sch.cache_read(self.partial, 0, "local")
        self.vectors(query, chunk, 1)
        self.vectors(self.b["keys"], outer, 2)  # all of them before the first is used

    def vectors(self, copy: BlockRV, at: LoopRV, several: int) -> None:
        """Copy vectors into registers; the last `several` loops over them are unrolled."""
        sch = self.sch
        sch.set_scope(copy, 0, "local")
        sch.compute_at(copy, at, preserve_unit_loops=True)
        *loops, vector = sch.get_loops(copy)
        sch.vectorize(vector)
        for x in loops[-several:]:
            sch.unroll(x)

    def product(self, block: LoopRV) -> None:
        """The product of weights and values: a thread has a vector of columns and every `high`-th key."""
        sch, b, s = self.sch, self.b, self.s
        _, y, _ = sch.split(sch.get_loops(b["product"])[-1], [None, s.high, s.steps])
        partial = sch.rfactor(y, factor_axis=0)
        stored = sch.cache_write(partial, 0, "local")
        sch.set_scope(stored, 0, "shared")
        kept = sch.cache_write(b["product"], 0, "local")
        for each in (partial, stored, b["product"], kept):
            sch.reverse_compute_at(each, block, preserve_unit_loops=True)
        thread = self.threads(sch.get_loops(kept)[-2:])
        sch.compute_at(b["product"], thread, preserve_unit_loops=True)
        sch.unroll(sch.get_loops(b["product"])[-1])
        _, y, *units, i, d = sch.get_loops(stored)
        x, vector = sch.split(d, [None, s.vector])
        sch.reorder(*units, y, x, i, vector)
        thread = sch.fuse(y, x)
        sch.bind(thread, "threadIdx.x")
        sch.unroll(i)
        sch.vectorize(vector)
        sch.compute_at(partial, thread, preserve_unit_loops=True)
        *_, i, d, outer, several = sch.get_loops(partial)
        sch.reorder(outer, several, i, d)
        for loop in (several, i, d):
            sch.unroll(loop)
        self.vectors(b["values"], outer, 1)


# ---------------------------------------------------------------------------- the kernel that combines
def _combine(sch: Schedule, b: dict[str, BlockRV], last: BlockRV, a: Attention, s: PartSizes) -> None:
    """A thread block for each query: the factors of the parts, then their sums."""
    parts, wide = _parts(a, s), a.size(a.column)
    vector = 4
    across = wide // vector
    high = 1
    while 2 * across * high <= _COMBINING and (4 * high < parts or across * high % _WARP):
        high *= 2
    threads = across * high
    spatial = [iv for iv in a.product.block.iter_vars if iv is not a.key]
    loops = sch.get_loops(last)
    column = loops[spatial.index(a.column)]
    around = [x for x in loops if x is not column]
    sch.reorder(*around, column)
    block = sch.fuse(*around) if len(around) > 1 else around[0]
    _, thread = sch.split(column, [None, threads])
    sch.bind(thread, "threadIdx.x")
    _, y = sch.split(sch.get_loops(b["sum"])[-1], [None, high])
    partial = sch.rfactor(y, factor_axis=0)
    stored = sch.cache_write(partial, 0, "local")
    sch.set_scope(stored, 0, "shared")
    for role in ("sum", "whole"):
        sch.set_scope(b[role], 0, "local")
    sch.compute_at(b["whole"], block, preserve_unit_loops=True)
    sch.compute_at(b["sum"], thread, preserve_unit_loops=True)
    sch.unroll(sch.get_loops(b["sum"])[-1])
    sch.compute_at(stored, block, preserve_unit_loops=True)
    _, y, *units, d = sch.get_loops(stored)
    x, element = sch.split(d, [None, vector])
    sch.reorder(*units, y, x, element)
    mine = sch.fuse(y, x)
    sch.bind(mine, "threadIdx.x")
    sch.vectorize(element)
    sch.compute_at(partial, mine, preserve_unit_loops=True)
    *_, d, n = sch.get_loops(partial)
    outer, several = sch.split(n, [None, _divisor(-(-parts // high), _FLIGHT)])
    sch.reorder(outer, several, d)
    sch.unroll(several)
    sch.vectorize(d)
    sch.set_scope(b["share"], 0, "shared")
    sch.compute_at(b["share"], block, preserve_unit_loops=True)
    _, mine = sch.split(sch.get_loops(b["share"])[-1], [None, threads])
    sch.bind(mine, "threadIdx.x")
    sch.set_scope(b["top"], 0, "local")
    sch.compute_at(b["top"], block, preserve_unit_loops=True)
    for role in ("top", "whole"):
        _, mine = sch.split(sch.get_loops(b[role])[-1], [None, threads])
        sch.bind(mine, "threadIdx.x")
    sch.bind(block, "blockIdx.x")
