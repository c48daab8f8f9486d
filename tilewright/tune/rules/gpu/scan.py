"""Scans on a GPU (running sums and products): rows of contiguous elements by warps, columns by threads.

warp for a row, or several           a chunk: `each` vectors of `lanes` elements for each thread
    some[0:each] = chunk of x        coalesced loads, all in flight at the same time
    scan of the vectors' totals      shuffles; with several warps also through shared memory
    out = chunks before + before in the chunk + own elements so far

part[p] = combination of part p of the row           with several parts, for which there is a kernel before
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import NamedTuple

import numpy as np

from ....ir.scans import Scan, scan_of
from ....target import Target
from ....target.gpu_machine import GpuMachine
from ....tir.annotations import SCAN_THREADS
from ....tir.schedule import Schedule
from ...cost.gpu import Counts, cycles_of
from ...cost.table import Table
from ...program.stages import Stage
from ..rule import Applied, Match, Refusal, Row
from .figures import kernel_figures, kernel_table
from .kernel import power

__all__ = ["Scans"]

_WIDE = 16  # bytes of a vector
_WARP = 32
_COLUMNS = ("groups", "each", "lanes", "parts")
_SHUFFLES = 7  # of a warp for the vectors that its lanes scan together
_USUAL = 1024  # a size that is dynamic


class _Sizes(NamedTuple):
    """The scan of a stage: its sizes, likely ones where they are dynamic, and the bytes that it reads and writes."""

    scan: Scan
    outer: int
    n: int
    inner: int
    known: bool
    shuffles: bool
    bytes: int

    @property
    def in_rows(self) -> bool:
        return self.scan.sizes[2] == 1

    @property
    def lines(self) -> float:
        """The groups of 128 bytes that the loads of a warp touch, where each of its lanes has a row."""
        return max(1.0, min(_WARP, self.n * self.scan.source.dtype.nbytes / 4)) if self.in_rows else 1.0

    @property
    def lanes(self) -> int:
        """The width of the vectors of a row."""
        if self.scan.sizes[1] is None:
            return 1
        widest = max(x.nbytes for x in (self.scan.source.dtype, self.scan.target.dtype))
        lanes = max(1, min(8, _WIDE // widest))
        while self.n % lanes:
            lanes //= 2
        return lanes


class Scans:
    """A warp or a thread block for each row, or a thread for each column; two kernels for the parts of a few long ones.

    wins where   a stage declares that it is a scan with an associative operator
    costs        a chunk waits for its loads and for the chunk before; parts are read twice
    """

    name = "scan"
    needs: frozenset[str] = frozenset()

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        scan = scan_of(stage.facts.block) if stage.single else None
        if scan is None:
            return Refusal("it declares no scan")
        outer, n, inner = scan.sizes
        known = outer is not None and n is not None and inner is not None
        m, k, j = (max(1, x or _USUAL) for x in (outer, n, inner))
        count = m * k * j
        moved = count * (scan.source.dtype.nbytes + scan.target.dtype.nbytes)
        return Match(stage, target.gpu, _Sizes(scan, m, k, j, known, target.has("warp_shuffles"), moved))

    def table(self, match: Match, machine: GpuMachine, only: Mapping[str, int] | None = None) -> Table:
        s: _Sizes = match.found
        points = list(_row_points(s, machine) if s.in_rows and s.shuffles else ())
        if not points or s.n <= machine.scans.short:
            points += _column_points(s, machine)
        if only is not None:
            points = [p for p in points if all(only[c] == v for c, v in zip(_COLUMNS, p, strict=True))]
        kernels = [_counts(s, machine, *p) for p in points]
        before = np.array([_before(s, machine, *p) for p in points])
        launches = np.array([1.0 + (p[3] > 1) for p in points])
        return kernel_table(
            match.stage, _COLUMNS, points, kernels, effort=1.0, before=before, launches=launches
        )

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        s, gpu = match.found, match.machine
        point = [int(row.values[c]) for c in _COLUMNS]
        sch.annotate(match.stage.facts.rv, SCAN_THREADS, point)
        note = dict(zip(("warps", "elements", "vector", "parts"), point, strict=True))
        c, before = _counts(s, gpu, *point), _before(s, gpu, *point)
        return Applied(note, figures=kernel_figures(c, s.outer * s.n * s.inner, s.bytes, gpu, before))


def _row_points(s: _Sizes, gpu: GpuMachine) -> Iterator[tuple[int, ...]]:
    """Chunks that are not mostly beyond the end of a row, and parts of several chunks."""
    lanes, most = s.lanes, min(_WARP, gpu.max_threads_per_block // _WARP)
    for groups, each in product((1, 2, 4, 8, 16, 32), (1, 2, 4, 8)):
        vectors = groups * each * _WARP
        mostly_beyond = groups * each > 1 and vectors >= 2 * -(-s.n // lanes)
        if groups > most or each * lanes > gpu.scans.elements or mostly_beyond:
            continue
        for parts in _parts(s, -(-s.n // (vectors * lanes)), gpu):
            yield groups, each, lanes, parts


def _column_points(s: _Sizes, gpu: GpuMachine) -> Iterator[tuple[int, ...]]:
    for groups, each in product((1, 2, 4), (4, 8, 16)):
        if each == 4 or each < 2 * s.n:
            for parts in _parts(s, s.n // each, gpu):
                yield groups, each, 0, parts


def _parts(s: _Sizes, chunks: int, gpu: GpuMachine) -> list[int]:
    """The numbers of parts to choose from: at least two chunks are left for each."""
    most = min(chunks // 2, gpu.scans.parts) if s.known else 1
    return [1, *(p for p in (1 << i for i in range(1, power(gpu.scans.parts).bit_length())) if p <= most)]


class _Grid(NamedTuple):
    """How the kernels of a scan fill the GPU."""

    blocks: int
    threads: int
    resident: float  # warps of an SM at the same time
    rounds: float
    steps: int  # chunks of a warp, or of a thread
    at_once: int
    registers: int


def _grid(s: _Sizes, gpu: GpuMachine, groups: int, each: int, lanes: int, parts: int) -> _Grid:
    if lanes:
        rows = 4 if groups == 1 else 1
        chunk, threads = groups * each * lanes * _WARP, _WARP * max(groups, rows)
        blocks = -(-s.outer * parts // rows)
    else:
        chunk, threads = each, groups * _WARP
        blocks = -(-s.outer * parts * s.inner // threads)
    registers = gpu.scans.registers + each * (lanes + 4)
    held = min(gpu.limits.threads // threads, gpu.limits.registers // (registers * threads))
    at_once = max(1, min(gpu.limits.blocks, held))
    here = min(at_once, -(-blocks // gpu.multiprocessors))
    rounds = max(1.0, blocks / (gpu.multiprocessors * at_once))
    length = -(-s.n // parts)
    return _Grid(blocks, threads, here * threads / _WARP, rounds, -(-length // chunk), here, registers)


def _counts(s: _Sizes, gpu: GpuMachine, groups: int, each: int, lanes: int, parts: int) -> Counts:
    """The work of the kernel that writes the result. Its steps are chunks; those of the parts before come first."""
    g, w = _grid(s, gpu, groups, each, lanes, parts), gpu.scans
    if lanes:
        issue = g.resident * each * max(_SHUFFLES, (w.instructions + 5 * lanes) / w.issued)
        waits = w.latency + (w.barrier if groups > 1 else 0.0)
        before = -(-parts // (2 * _WARP)) if parts > 1 else 0
    else:
        issue, waits = g.resident * each * max(2 * s.lines, w.column_instructions / w.issued), w.latency
        before = parts // (2 * each)
    return Counts(
        rounds=g.rounds,
        steps=g.steps,
        compute=issue,
        latency=waits,
        ends=before * w.latency * 0.5,
        dram=s.bytes,
        dram_rate=w.rate,
        blocks=g.blocks,
        at_once=g.at_once,
        threads=g.threads,
        registers=g.registers,
    )


def _before(s: _Sizes, gpu: GpuMachine, groups: int, each: int, lanes: int, parts: int) -> float:
    """The cycles of the kernel that combines the elements of each part."""
    if parts == 1:
        return 0.0
    g, w = _grid(s, gpu, groups, each, lanes, parts), gpu.scans
    issue = g.resident * each * (lanes + 4) / w.issued
    read = s.outer * s.n * s.inner * s.scan.source.dtype.nbytes
    c = Counts(rounds=g.rounds, steps=g.steps, compute=issue, latency=w.latency, dram=read, dram_rate=w.rate)
    return float(cycles_of(c, gpu))
