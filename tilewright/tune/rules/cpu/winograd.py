"""Winograd convolution (stride 1) on CPUs: when it pays, and how its stages are scheduled.

data ─▶ contiguous channels ─▶ input transform ────▶ a product for each point ─▶ output transform ───▶ layout of
        transposed in          vectors of channels    register tiles              vectors of channels   the result
        registers
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....ir.expr import const_value
from ....ir.transform import PassContext
from ....target import Target
from ....target.machine import CpuMachine
from ....tir.schedule import Schedule
from ....tir.schedule.library.winograd import Convolution, convolution_of
from ....tir.schedule.primitive import BlockRV
from ...cost.table import Table
from ...program.facts import Facts, extent_of, facts_of
from ...program.stages import Stage
from ..features import simple_features
from ..rule import Applied, Match, Refusal, Row

__all__ = ["Winograd"]


@dataclass(frozen=True, slots=True)
class Winograd:
    """Tiles of `size` x `size` results. The products are left to the other rules.

    wins where   there are many channels: the transforms take time for each element, the products for each pair
    costs        rounding, which is a part of the time that it must save (`winograd_gain`)
    """

    size: int
    needs: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return f"winograd {self.size}"

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        f, machine = stage.facts, target.cpu
        if not stage.single or f.kind != "reduction" or not stage.program.reads_constants(f):
            return Refusal("it has no constant kernel to transform at compile time")
        largest = int(PassContext.current().option("tilewright.winograd"))
        if target.attrs.get("fast-math") and largest:
            largest = max(4, largest)
        if self.size > largest:
            return Refusal(f"the option tilewright.winograd allows tiles of up to {largest}")
        conv = convolution_of(stage.program.sch.realize(f.rv))
        if isinstance(conv, str):
            return Refusal(conv)
        if conv.kernel != 3 or not conv.inputs or not conv.outputs:
            return Refusal("it is not a convolution of channels with kernels of 3 x 3")
        if not machine.fma:
            return Refusal("without fused multiply-adds, fewer products save little")
        if min(conv.extent(v) for v in (conv.inputs[-1], conv.outputs[-1])) < machine.lanes(f.bits):
            return Refusal("it has fewer channels than a vector has lanes")
        return Match(stage, machine, conv)

    def table(self, match: Match, machine: CpuMachine, only: Mapping[str, int] | None = None) -> Table:
        """The transforms with their traffic; the products, which are left to other rules, with their kernel."""
        conv, f, m, fit = match.found, match.stage.facts, self.size, machine.fit
        lanes, size = machine.lanes(f.bits), f.bits // 8
        alpha = m + conv.kernel - 1
        tiles = math.prod(-(-conv.extent(v) // m) for v in conv.places)
        others, inputs, outputs = (
            math.prod(conv.extent(v) for v in group) for group in (conv.others, conv.inputs, conv.outputs)
        )
        points = alpha * alpha * tiles * others
        products = points * inputs * outputs / (machine.fma_ports * lanes * fit.winograd_peak)
        data, result = points * inputs, points * outputs
        # rows, then columns: a few additions for each element, a load and a store
        work = (data * 2.0 + result * 2.0) / lanes * (fit.winograd_work_2 if m == 2 else fit.winograd_work_4)
        pixels = math.prod(conv.extent(v) for v in conv.places) * others
        # The transformed kernel comes from DRAM: it is larger than the plain one, and in a model it is not in a cache.
        groups = math.prod(conv.extent(v) for v in conv.others if v in conv.weight_vars)
        kernel = alpha * alpha * inputs * outputs * groups * size
        shares = np.array([0, 1] if machine.num_cores > 1 else [0])
        if only is not None:
            shares = shares[shares == only["threads"]]
        every = np.ones(len(shares))
        counts = {
            "tiles": every,
            # With threads, another core reads half of what one stage has written in the next stage.
            "finish": work + fit.foreign_byte * size * (data + result) * shares,
            # Each intermediate tensor is written to a cache once and read from it once.
            "near_bytes": every * (2 * size * (data + result + 2 * pixels * (inputs + outputs))),
            "near_set": (data + result) * size / np.where(shares > 0, machine.num_cores, 1),
            "threads": shares,
            "longest": every / machine.num_cores,
            "launches": every * 2,
            "left_operations": every * products,
            "left_bytes": every * kernel,
            "left_set": every * math.inf,
            "prior": every / fit.winograd_gain,
        }
        left = ("left_operations", "left_bytes", "left_set", "prior")
        points_ = np.stack([np.full(len(shares), machine.preferred_vector_bits), shares], axis=1)

        def shape(figures: Mapping[str, Any]) -> Any:
            return simple_features(f, points_, figures["cycles"] / (machine.clock * 1e9), shares)

        return Table(("threads",), shares[:, None].astype(np.int64), counts, left=left, shape=shape)

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        f, machine, parallel = match.stage.facts, match.machine, bool(row.values["threads"])
        left = _transforms(sch, f, match.found, self.size, machine, parallel)
        lanes = machine.lanes(f.bits)

        def finish(sch: Schedule) -> None:
            (made,) = sch.get_producers(left.after)
            _spread_planes(sch, made, f.bits // 8, lanes, machine)
            _pack_kernel(sch, left.kernel, lanes)

        own = (left.kernel.key, left.kernel_rows.key)
        copy = () if left.copy is None else (left.copy.key,)
        note = {"tiles": self.size}
        return Applied(note, "winograd", next=(left.product,), finish=finish, keys=copy, done=own)


@dataclass(frozen=True, slots=True)
class _Left:
    """The blocks that are still to be scheduled: the product, `after`, which reads it, the copy of the result into its
    own layout if one is needed, and the transforms of the kernel, which come before everything else."""

    product: BlockRV
    after: BlockRV
    kernel_rows: BlockRV
    kernel: BlockRV
    copy: BlockRV | None


def _transforms(
    sch: Schedule, f: Facts, conv: Convolution, m: int, machine: CpuMachine, parallel: bool
) -> _Left:
    """Split a convolution into its Winograd stages and schedule the transforms. Those of the kernel, a constant, run
    once."""
    lanes = machine.lanes(f.bits)
    last_in, last_out = conv.inputs[-1], conv.outputs[-1]
    in_dim = [i for i, e in enumerate(conv.data.indices) if e is last_in]
    out_dim = [i for i, e in enumerate(conv.out.indices) if e is last_out]
    kernel_rows, kernel, data_rows, data, product, result_rows, result = sch.winograd(f.rv, m)
    if in_dim and in_dim[0] != len(conv.data.indices) - 1:
        _transpose_data(sch, data_rows, in_dim[0], conv.at[1], lanes, parallel)
    _spread_planes(sch, data, f.bits // 8, lanes, machine)
    _transform(sch, data, data_rows, lanes, parallel)
    copy = None
    if out_dim and out_dim[0] != len(conv.out.indices) - 1:
        if not sch.get_consumers(result):
            copy = sch.cache_write(result, 0, "global")
        _bring_last(sch, result, out_dim[0])
    _transform(sch, result, result_rows, lanes, parallel)
    return _Left(product, result_rows, kernel_rows, kernel, copy)


def _pack_kernel(sch: Schedule, kernel: BlockRV, lanes: int) -> None:
    """Pack the transformed kernel into panels, contiguous in the order in which the product reads them."""
    shape = sch.realize(kernel).block.writes[0].buffer.shape
    width = const_value(shape[-1])
    if width is None or width % lanes:
        return

    def panels(*i: Any) -> list[Any]:
        return [*i[:-2], i[-1] // lanes, i[-2], i[-1] % lanes]

    sch.transform_layout(kernel, ("write", 0), panels)


def _spread_planes(sch: Schedule, block: BlockRV, size: int, lanes: int, machine: CpuMachine) -> None:
    """Pad the strides of the planes (one for each point of a tile) and of the rows of channels, so that they do not all
    fall into the same sets of the L1 cache."""
    rank = len(sch.realize(block).block.writes[0].buffer.shape)
    sch.storage_align(block, 0, rank - 2, 4 * lanes, lanes)
    sch.storage_align(block, 0, 0, machine.fit.page // size, lanes)


def _bring_last(sch: Schedule, block: BlockRV, dim: int) -> None:
    """Move a dimension of the tensor that a block writes to the end, where it is contiguous."""

    def moved(*i: Any) -> list[Any]:
        return [*i[:dim], *i[dim + 1 :], i[dim]]

    sch.transform_layout(block, ("write", 0), moved)


def _transform(sch: Schedule, whole: BlockRV, rows: BlockRV, lanes: int, parallel: bool) -> None:
    """Transform the rows and then the columns of a tile, a vector of channels at a time, all in registers."""
    *around, channel, i, j = sch.get_loops(whole)
    size = extent_of(sch, channel)
    if size is not None and size > lanes:
        some, channel = sch.split(channel, [None, lanes])
        around.append(some)
    sch.reorder(*around, i, j, channel)
    sch.compute_at(rows, around[-1], preserve_unit_loops=True)
    sch.set_scope(rows, 0, "local")
    *_, vector, a, b = sch.get_loops(rows)
    sch.reorder(a, b, vector)
    for loop in (i, j, a, b):
        sch.unroll(loop)
    sch.vectorize(channel)
    sch.vectorize(vector)
    if parallel:
        sch.parallel(sch.fuse(*around[:-1]) if len(around) > 2 else around[0])


def _transpose_data(
    sch: Schedule, reader: BlockRV, channel: int, line: int, lanes: int, parallel: bool
) -> None:
    """Make the channels of the data contiguous: transpose it in registers while it is padded, or while it is copied."""
    makers = sch.get_producers(reader)
    own = [p for p in makers if len(sch.get_consumers(p)) == 1 and facts_of(sch, p).kind == "injective"]
    copy = own[0] if own else sch.cache_read(reader, 0, "global")
    fill = sch.decompose_padding(copy, sch.get_loops(copy)[0]) if facts_of(sch, copy).guarded else None
    _bring_last(sch, copy, channel)
    if fill is not None:
        _fill(sch, sch.get_loops(fill), channel, lanes, parallel)
    loops = sch.get_loops(copy)
    others = [x for d, x in enumerate(loops) if d not in (channel, line)]
    some, vector = sch.split(loops[channel], [None, lanes])
    part, step = sch.split(loops[line], [None, lanes])
    sch.reorder(*others, some, part, step, vector)
    sch.annotate(step, "transpose_lanes", 1)
    sch.vectorize(vector)
    if parallel:
        sch.parallel(sch.fuse(*others) if len(others) > 1 else others[0])


def _fill(sch: Schedule, loops: list[Any], channel: int, lanes: int, parallel: bool) -> None:
    """Write the padding, in vectors of channels."""
    others = [x for d, x in enumerate(loops) if d != channel]
    some, vector = sch.split(loops[channel], [None, lanes])
    sch.reorder(*others, some, vector)
    sch.vectorize(vector)
    if parallel:
        sch.parallel(sch.fuse(*others[:2]) if len(others) > 1 else others[0])
