"""What a block reads: for each buffer, the box around all of its accesses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..arith import Analyzer
from ..ir.buffer import Buffer, BufferRegion
from ..ir.equal import structural_equal
from ..ir.expr import BufferLoad, Call, IntImm, Let, PrimExpr, Range, Var, const
from ..ir.ops import sub
from .tensor import unique_nodes


def read_regions(values: Iterable[PrimExpr], inside: Iterable[Var] = ()) -> list[BufferRegion]:
    """The box of each buffer that `values` load from, in the order in which they are met. `inside` are variables of
    loops inside of the block.

    A[i - 1] + A[i] + A[i + 1]   reads   A[i - 1 : i + 2]
    A[B[i], j]                   reads   A[0 : n, j], B[i]
    """
    accesses: dict[Buffer, list[tuple[PrimExpr, ...]]] = {}
    inner: set[Var] = set(inside)
    for n in unique_nodes(values):
        if isinstance(n, BufferLoad):
            accesses.setdefault(n.buffer, []).append(n.indices)
        elif isinstance(n, Let):
            inner.add(n.var)
    return [
        BufferRegion(
            buffer,
            tuple(_hull([at[d] for at in points], dim, inner) for d, dim in enumerate(buffer.shape)),
        )
        for buffer, points in accesses.items()
    ]


def _hull(indices: Sequence[PrimExpr], dim: PrimExpr, inner: set[Var]) -> Range:
    """The range around `indices`, or the whole dimension if their distances are not known."""
    whole = Range.from_min_extent(const(0, dim.dtype), dim)
    first = indices[0]
    if any(_unpredictable(i, inner) for i in indices):
        return whole
    low, low_at, high = 0, first, 0
    for other in indices[1:]:
        distance = _distance(first, other)
        if distance is None:
            return whole
        if distance < low:
            low, low_at = distance, other
        high = max(high, distance)
    return Range.from_min_extent(low_at, const(high - low + 1, first.dtype))


def _unpredictable(index: PrimExpr, inner: set[Var]) -> bool:
    return any(
        isinstance(n, (BufferLoad, Call, Let)) or (isinstance(n, Var) and n in inner)
        for n in unique_nodes([index])
    )


def _distance(a: PrimExpr, b: PrimExpr) -> int | None:
    if a is b or structural_equal(a, b):
        return 0
    found = Analyzer().simplify(sub(b, a))
    return found.value if isinstance(found, IntImm) else None
