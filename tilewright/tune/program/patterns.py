"""Patterns of access: contiguous axes, reused elements, transposes, windows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...arith import Analyzer
from ...ir.buffer import Buffer
from ...ir.expr import BufferLoad, Call, Var, const_value
from ...ir.functor import vars_used
from ...ir.op import Op
from ...ir.ops import is_zero, sub
from ...ir.stmt import BufferStore
from .facts import Access, Axis, Facts

__all__ = [
    "TRANSPOSED", "WordView", "axis_of_transpose", "can_be_fused", "contiguous_axis", "fusable_axes", "is_contiguous",
    "is_pooling", "main_read", "reuses", "rows_of", "transposed_axis", "word_view",
]  # fmt: skip

_PACK_WORD = Op.get("tir.pack_word")
_WINDOW = 64  # elements of a window, at most
TRANSPOSED = 4  # elements of each side of a transpose, at least


def contiguous_axis(f: Facts) -> Axis | None:
    """The axis along which the largest read is contiguous; the last axis if there is none."""
    main = main_read(f)
    found = [a for a in f.axes if main is not None and main.stride(a) == 1]
    return found[-1] if found else (f.axes[-1] if f.axes else None)


def main_read(f: Facts) -> Access | None:
    """The read with the largest footprint."""
    spans = {a.var: a.extent for a in f.axes}
    return max([r for r in f.reads if r.strides], key=lambda r: r.footprint(spans), default=None)


def can_be_fused(f: Facts, axes: list[Axis]) -> bool:
    """Whether each read steps through the nested axes with a single stride, so that they can be fused."""
    pairs = zip(axes, axes[1:])
    return all(a.known for a in axes[1:]) and all(r.contiguous(*pair) for pair in pairs for r in f.reads)


def rows_of(last: Facts, group: list[Facts]) -> tuple[list[Axis], list[Axis]]:
    """The axes of `last` that number the rows, and those along a row."""
    if last.kind == "reduction":
        return last.spatial, last.reduce
    made = {f.write.buffer for f in group if f.write is not None}
    own = {a.var for a in last.spatial}
    named = [{v for i in r.indices for v in vars_used(i)} & own for r in last.reads if r.buffer in made]
    used: set[Var] = set().union(*[names for names in named if names != own])  # one value for a whole row
    if all(names == own for names in named):
        used = own  # it has one value for each row itself
    return [a for a in last.spatial if a.var in used], [a for a in last.spatial if a.var not in used]


def fusable_axes(facts: Facts, dynamic: bool = False) -> int:
    """The number of the last axes that are contiguous with each other in every access, so that they can be one loop.
    The outermost of them may have a dynamic size if `dynamic`."""
    axes, count = facts.spatial, 1
    while count < len(axes) and axes[-count].known and axes[-count].extent == 1:
        count += 1  # an axis of one element is contiguous with any other
    while count < len(axes):
        inner, outer = axes[-count], axes[-count - 1]
        if not inner.known or not (outer.known or dynamic):
            break
        if not all(r.contiguous(outer, inner) for r in facts.accesses):
            break
        count += 1
    return count


def axis_of_transpose(facts: Facts) -> int | None:
    """The position of the axis along which the source of a transpose is contiguous; None if the block is not a copy,
    or if source and result are contiguous along the same axis."""
    if len(facts.reads) != 1 or not isinstance(facts.block.body.value, BufferLoad):  # type: ignore[attr-defined]
        return None
    return transposed_axis(facts, facts.reads[0])


def transposed_axis(facts: Facts, read: Access) -> int | None:
    """The position of the axis along which a read is contiguous, if it is not the axis of the result that is."""
    axes = facts.spatial
    if len(axes) < 2:
        return None
    last = axes[-1]
    if not read.moves(last) or read.stride(last) in (None, 1) or last.extent < TRANSPOSED:
        return None
    found = [i for i, a in enumerate(axes[:-1]) if read.stride(a) == 1 and a.extent >= TRANSPOSED]
    return found[-1] if found else None


@dataclass(frozen=True, slots=True)
class WordView:
    """A stage whose elements are words of numbers that are neighbours in memory: reading it is a load. `overlaps` tells
    whether the words of a row begin less than a word apart."""

    buffer: Buffer
    overlaps: bool


def word_view(f: Facts) -> WordView | None:
    """The view of words that a stage is, if it is one. The last numbers of its words may be zeros."""
    body = f.block.body
    value = body.value if isinstance(body, BufferStore) else None
    if not isinstance(value, Call) or value.op is not _PACK_WORD or f.write is None:
        return None
    loads = [a for a in value.args if isinstance(a, BufferLoad)]
    rest = value.args[len(loads) :]
    if not loads or value.args[: len(loads)] != tuple(loads) or not all(is_zero(a) for a in rest):
        return None
    if any(x.buffer is not loads[0].buffer for x in loads):
        return None
    places, ana = [x.buffer.offset_at(x.indices) for x in loads], Analyzer()
    if any(const_value(ana.simplify(sub(p, places[0]))) != i for i, p in enumerate(places)):
        return None
    row = [a for a in f.axes if a.extent > 1 and f.write.stride(a) == 1]
    return WordView(f.write.buffer, any(f.reads[0].stride(a) != len(value.args) for a in row))


def is_pooling(f: Facts) -> bool:
    """Whether a block reduces a small window of one tensor for each result."""
    return len(f.reads) == 1 and math.prod(x.extent for x in f.reduce) <= _WINDOW


def is_contiguous(f: Facts) -> bool:
    """Whether a window is contiguous, as a whole image is: it is then reduced like a row."""
    return all(map(f.reads[0].contiguous, f.reduce, f.reduce[1:]))


def reuses(f: Facts) -> bool:
    """Whether an element that is read serves several results: only then do register tiles pay."""
    wide = [a for a in f.spatial if a.extent > 1]
    if any(not r.moves(a) for r in f.reads for a in wide):
        return True
    # windows that overlap
    return any(
        r.moves(a)
        and r.moves(k)
        and abs(r.stride(a) or 0) < k.extent * abs(r.stride(k) or 0)
        and abs(r.stride(k) or 0) <= abs(r.stride(a) or 0)
        for r in f.reads
        for a in wide
        for k in f.reduce
        if k.extent > 1
    )
