"""Views of regions inside blocks."""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...ir.buffer import Buffer, MatchBufferRegion
from ...ir.errors import LoweringError
from ...ir.expr import PrimExpr, Range, Var, const
from ...ir.function import PrimFunc
from ...ir.functor import Mutator
from ...ir.ops import add
from ...ir.stmt import Block
from ..analysis.views import rows_apart, used_whole


def lower_match_buffer(func: PrimFunc) -> PrimFunc:
    """Replace the buffers that `match_buffer` makes of regions by accesses of the regions' sources.

        A = match_buffer(B[i * 4:i * 4 + 4, 0:4], (4, 4))       B[i * 4, 0] = 1
        A[0, 0] = 1                                         ->

    Needs: blocks without iterators. Gives: blocks without match buffers.
    """
    return _LowerMatch().run(func)


class _LowerMatch(Mutator):
    def __init__(self) -> None:
        self.views: dict[Buffer, tuple[Buffer, list[PrimExpr]]] = {}
        self.values: dict[Var, PrimExpr] = {}

    def visit_Block(self, n: Block) -> Block:
        for match in n.match_buffers:
            self.bind(match)
            self.check(match, n)
        made = n.map_children(self.visit)
        return made.replace(match_buffers=()) if n.match_buffers else made

    def bind(self, match: MatchBufferRegion) -> None:
        view, source = match.buffer, self.visit(match.source)
        if view.dtype is not source.buffer.dtype:
            raise LoweringError(f"match_buffer {view.name}: {view.dtype} is not {source.buffer.dtype}")
        starts = [r.min for r in source.region]
        self.views[view] = (source.buffer, starts)
        self.values[view.data] = source.buffer.data
        strides = source.buffer.dense_strides()[len(source.region) - len(view.shape) :]
        for var, value in zip(view.strides, strides, strict=False):
            if isinstance(var, Var):
                self.values[var] = value
        if isinstance(view.elem_offset, Var):
            self.values[view.elem_offset] = source.buffer.offset_at(starts)
        dims = [r.extent for r in source.region][len(source.region) - len(view.shape) :]
        for var, value in zip(view.shape, dims, strict=True):
            if isinstance(var, Var):
                self.values[var] = value

    def check(self, match: MatchBufferRegion, block: Block) -> None:
        """Refuse a view that is used as contiguous memory and is not contiguous."""
        view, source = match.buffer, self.views[match.buffer][0]
        how = used_whole(view, block.body)
        if how is None:
            return
        strides = source.dense_strides()[len(source.shape) - len(view.shape) :]
        apart = rows_apart(view, strides, Analyzer())
        if apart is not None:
            raise LoweringError(
                f"block {block.name_hint} uses {view.name}, a view of {source.name}, as contiguous memory "
                f"({how}), and its row stride is {apart} elements; give {view.name} strides that are "
                "variables"
            )

    def visit_Var(self, n: Var) -> PrimExpr:
        return self.values.get(n, n)

    def access(self, n: Any) -> Any:
        made = n.map_children(self.visit)
        found = self.views.get(made.buffer)
        if found is None:
            return made
        source, starts = found
        lead = len(starts) - len(made.indices)
        moved = tuple(add(s, i) for s, i in zip(starts[lead:], made.indices, strict=True))
        return made.replace(buffer=source, indices=(*starts[:lead], *moved))

    visit_BufferLoad = visit_BufferStore = access

    def visit_BufferRegion(self, n: Any) -> Any:
        made = n.map_children(self.visit)
        found = self.views.get(made.buffer)
        if found is None:
            return made
        source, starts = found
        lead = len(starts) - len(made.region)
        moved = tuple(r.replace(min=add(s, r.min)) for s, r in zip(starts[lead:], made.region, strict=True))
        fixed = tuple(Range.from_min_extent(s, const(1, s.dtype)) for s in starts[:lead])
        return made.replace(buffer=source, region=(*fixed, *moved))
