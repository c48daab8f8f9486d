"""The pieces of iteration maps: marks, splits and sums.

mark       an iterator with an extent: a variable, or a sum of splits fused into one
split      ((mark // lower_factor) % extent) * scale
sum        splits added up, plus a base
"""

from __future__ import annotations

from typing import Any, ClassVar

from ..ir.expr import PrimExpr
from ..ir.node import Node, node
from ..ir.ops import add, floordiv, floormod, mul


class IterMapExpr(PrimExpr):
    """An expression over iterators."""

    __slots__ = ()


@node
class IterMark(Node):
    """An iterator that runs from 0 to `extent`: a variable (less its minimum), or a sum of splits."""

    source: PrimExpr
    extent: PrimExpr


@node
class IterSplitExpr(IterMapExpr):
    """`((source // lower_factor) % extent) * scale`."""

    source: IterMark
    lower_factor: PrimExpr
    extent: PrimExpr
    scale: PrimExpr
    _tail: ClassVar[str] = "self.dtype = self.source.source.dtype"


@node
class IterSumExpr(IterMapExpr):
    """The sum of splits and a base."""

    args: tuple[PrimExpr, ...]
    base: PrimExpr
    _tail: ClassVar[str] = "self.dtype = self.base.dtype"


def _one(e: Any) -> bool:
    return getattr(e, "value", None) == 1


def normalize_iter_map_to_expr(e: Any) -> PrimExpr:
    """The plain expression that a sum or split of iterators stands for."""
    if isinstance(e, IterSumExpr):
        out: PrimExpr | None = None
        for a in e.args:
            part = normalize_iter_map_to_expr(a)
            out = part if out is None else add(out, part)
        return e.base if out is None else add(out, e.base)
    if isinstance(e, IterSplitExpr):
        value = normalize_iter_map_to_expr(e.source.source)
        if not _one(e.lower_factor):
            value = floordiv(value, e.lower_factor)
        if not _covers_top(e):
            value = floormod(value, e.extent)
        return mul(value, e.scale)
    return e.map_children(normalize_iter_map_to_expr)  # type: ignore[no-any-return]


def _covers_top(e: IterSplitExpr) -> bool:
    """Whether the split reaches up to the end of its mark, so that no remainder need be taken."""
    from .analyzer import Analyzer

    return Analyzer().can_prove_equal(mul(e.lower_factor, e.extent), e.source.extent)
