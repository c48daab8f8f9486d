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

from ....ir.expr import const_value
from ....target.machine import CpuMachine
from ....tir.schedule import Schedule
from ....tir.schedule.primitive import BlockRV
from ....tir.schedule.winograd import Convolution, convolution_of
from ...program.facts import Facts, extent_of, facts_of

__all__ = [
    "FilterCost",
    "Left",
    "best_filter",
    "filter_costs",
    "pack_kernel",
    "schedule_transforms",
    "spread_planes",
]

_TILES = (2, 4)
_GAIN = 0.85  # fraction of the plain time below which Winograd is worth its rounding
_NEAR = 0.95  # fraction of peak multiply-adds that the plain convolution reaches
_PAGE = 4096  # bytes: addresses that far apart fall into the same set of the L1 cache
_FOREIGN = 0.2  # cycles for a byte that another core may have written just before
_FAR = 0.85  # fraction of peak multiply-adds that the products of Winograd reach, which are smaller


@dataclass(frozen=True, slots=True)
class Left:
    """The blocks that are still to be scheduled: the product, `after`, which reads it, the copy of the result into its
    own layout if one is needed, and the transforms of the kernel, which come before everything else."""

    product: BlockRV
    after: BlockRV
    kernel_rows: BlockRV
    kernel: BlockRV
    copy: BlockRV | None


@dataclass(frozen=True, slots=True)
class FilterCost:
    """Estimated cycles of one core while all cores share the bandwidth: of the products, and of the transforms around
    them with their traffic."""

    products: float
    around: float = 0.0

    @property
    def total(self) -> float:
        return self.products + self.around


def filter_costs(
    sch: Schedule, f: Facts, machine: CpuMachine, largest: int, parallel: bool
) -> dict[int, FilterCost]:
    """The cost of a convolution for each size of tile that it can be computed in; 0 is the plain convolution."""
    lanes = machine.lanes(f.bits)
    costs = {0: FilterCost(f.points / (machine.fma_ports * lanes * _NEAR))}
    if f.kind != "reduction" or largest < 2 or not machine.fma:
        return costs
    conv = convolution_of(sch.realize(f.rv))
    if isinstance(conv, str) or conv.kernel != 3 or not conv.inputs or not conv.outputs:
        return costs
    if min(conv.extent(v) for v in (conv.inputs[-1], conv.outputs[-1])) < lanes:
        return costs
    cores = machine.num_cores if parallel else 1
    return costs | {m: _cost(conv, m, machine, f.bits, cores) for m in _TILES if m <= largest}


def best_filter(costs: Mapping[int, FilterCost]) -> int:
    """The size of tile with the least predicted cost; 0 if the plain convolution is faster, or hardly slower."""
    best = min(costs, key=lambda m: costs[m].total)
    return best if costs[best].total < _GAIN * costs[0].total else 0


def _cost(conv: Convolution, m: int, machine: CpuMachine, bits: int, cores: int) -> FilterCost:
    """The estimated cycles of one core with tiles of m x m results, when `cores` cores share the bandwidth."""
    lanes, size = machine.lanes(bits), bits // 8
    alpha = m + conv.kernel - 1
    tiles = math.prod(-(-conv.extent(v) // m) for v in conv.places)
    others, inputs, outputs = (
        math.prod(conv.extent(v) for v in group) for group in (conv.others, conv.inputs, conv.outputs)
    )
    tiles *= others
    shared = math.prod(conv.extent(v) for v in conv.inputs)
    points = alpha * alpha * tiles
    products = points * shared * outputs / (machine.fma_ports * lanes * _FAR)
    data, result = points * inputs, points * outputs
    # rows, then columns: a few additions for each element, a load and a store
    work = (data * 2.0 + result * 2.0) / lanes * (1.5 if m == 2 else 2.5)
    pixels = math.prod(conv.extent(v) for v in conv.places) * others
    # Each intermediate tensor is written to a cache once and read from it once.
    speed = machine.l2_bandwidth if (data + result) * size < machine.cache_sizes.l2 else machine.l3_bandwidth
    way = 2 * size * (data + result + 2 * pixels * (inputs + outputs)) / speed
    # The transformed kernel comes from DRAM: it is larger than the plain one, and in a model it is not in a cache.
    groups = math.prod(conv.extent(v) for v in conv.others if v in conv.weight_vars)
    kernel = alpha * alpha * shared * outputs * groups * size
    fetched = kernel / (machine.bandwidth(cores) / cores / machine.clock)
    # With threads, another core reads half of what one stage has written in the next stage.
    elsewhere = _FOREIGN * size * (data + result) if cores > 1 else 0.0
    return FilterCost(max(products, fetched), work + way + elsewhere)


def schedule_transforms(sch: Schedule, f: Facts, m: int, machine: CpuMachine, parallel: bool) -> Left:
    """Split a convolution into its Winograd stages and schedule the transforms. Those of the kernel, a constant, run
    once."""
    conv = convolution_of(sch.realize(f.rv))
    assert isinstance(conv, Convolution)
    lanes = machine.lanes(f.bits)
    last_in, last_out = conv.inputs[-1], conv.outputs[-1]
    in_dim = [i for i, e in enumerate(conv.data.indices) if e is last_in]
    out_dim = [i for i, e in enumerate(conv.out.indices) if e is last_out]
    kernel_rows, kernel, data_rows, data, product, result_rows, result = sch.winograd(f.rv, m)
    if in_dim and in_dim[0] != len(conv.data.indices) - 1:
        _turn_data(sch, data_rows, in_dim[0], conv.at[1], lanes, parallel)
    spread_planes(sch, data, f.bits // 8, lanes)
    _transform(sch, data, data_rows, lanes, parallel)
    copy = None
    if out_dim and out_dim[0] != len(conv.out.indices) - 1:
        if not sch.get_consumers(result):
            copy = sch.cache_write(result, 0, "global")
        _bring_last(sch, result, out_dim[0])
    _transform(sch, result, result_rows, lanes, parallel)
    return Left(product, result_rows, kernel_rows, kernel, copy)


def pack_kernel(sch: Schedule, kernel: BlockRV, lanes: int) -> None:
    """Pack the transformed kernel into panels, contiguous in the order in which the product reads them."""
    shape = sch.realize(kernel).block.writes[0].buffer.shape
    width = const_value(shape[-1])
    if width is None or width % lanes:
        return

    def panels(*i: Any) -> list[Any]:
        return [*i[:-2], i[-1] // lanes, i[-2], i[-1] % lanes]

    sch.transform_layout(kernel, ("write", 0), panels)


def spread_planes(sch: Schedule, block: BlockRV, size: int, lanes: int) -> None:
    """Pad the strides of the planes (one for each point of a tile) and of the rows of channels, so that they do not all
    fall into the same sets of the L1 cache."""
    rank = len(sch.realize(block).block.writes[0].buffer.shape)
    sch.storage_align(block, 0, rank - 2, 4 * lanes, lanes)
    sch.storage_align(block, 0, 0, _PAGE // size, lanes)


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


def _turn_data(sch: Schedule, reader: BlockRV, channel: int, line: int, lanes: int, parallel: bool) -> None:
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
