"""Slices of buffers as regions and as vectors."""

from __future__ import annotations

from typing import Any

from ...ir.buffer import Buffer, BufferRegion
from ...ir.expr import BufferLoad, PrimExpr, Ramp, Range, const, const_value, vscale_factor
from ...ir.ops import mul


def region_of(value: Any) -> BufferRegion:
    """A buffer, a load or a slice as a region."""
    if isinstance(value, BufferRegion):
        return value
    if isinstance(value, Buffer):
        return BufferRegion.full(value)
    if isinstance(value, BufferLoad):
        ranges = []
        for i in value.indices:
            if isinstance(i, Ramp) and i.base.dtype.lanes == 1:
                count = const(i.lanes, i.base.dtype) if isinstance(i.lanes, int) else i.lanes
                ranges.append(Range.from_min_extent(i.base, mul(i.stride, count)))
            else:
                ranges.append(Range.from_min_extent(i, const(1, i.dtype)))
        return BufferRegion(value.buffer, tuple(ranges))
    raise TypeError(f"`{value}` is not a region of a buffer; write A, A[i, j] or A[0:n, j]")


def as_load(region: BufferRegion) -> BufferLoad:
    """The vector that a slice of the last dimension reads; other slices are not values."""
    indices: list[PrimExpr] = [r.min for r in region.region]
    for k, r in enumerate(region.region):
        lanes = const_value(r.extent)
        if lanes == 1:
            continue
        scaled = vscale_factor(r.extent) if lanes is None else None
        if (lanes is None and scaled is None) or k != len(indices) - 1:
            raise TypeError(
                f"`{region.buffer.name}` is sliced where a value is expected: "
                "only the last index may be a slice, and of constant length"
            )
        indices[k] = Ramp(r.min, const(1, r.min.dtype), r.extent if lanes is None else int(lanes))
    return BufferLoad(region.buffer, tuple(indices))
