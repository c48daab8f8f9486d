"""Buffers that are views of regions."""

from __future__ import annotations

from collections.abc import Sequence

from ...arith import Analyzer
from ...ir.buffer import Buffer
from ...ir.expr import BufferLoad, PrimExpr, Ramp, const, const_value
from ...ir.functor import pre_order
from ...ir.ops import cast, is_one, mul
from ...ir.stmt import BufferStore, Stmt


def used_whole(view: Buffer, body: Stmt) -> str | None:
    """A use of the buffer other than element by element, or row by row; None if there is none."""
    wide = const_value(view.shape[-1]) if view.shape else None
    for n in pre_order(body):
        if n is view.data:
            return "through its pointer"
        if isinstance(n, (BufferLoad, BufferStore)) and n.buffer is view and n.indices:
            last = n.indices[-1]
            if (
                isinstance(last, Ramp)
                and len(view.shape) > 1
                and (wide is None or last.dtype.is_scalable or last.lanes > wide)
            ):
                return f"as vectors of {last.lanes}"
    return None


def rows_apart(view: Buffer, strides: Sequence[PrimExpr], ana: Analyzer) -> PrimExpr | None:
    """The row stride of a view without strides of its own, if its rows are not contiguous."""
    if view.strides or not view.shape:
        return None
    dense: PrimExpr = const(1, strides[-1].dtype)
    for dim, stride in zip(reversed(view.shape), reversed(strides), strict=True):
        if not is_one(dim) and not ana.can_prove_equal(stride, dense):
            return ana.simplify(stride)
        dense = mul(dense, cast(dense.dtype, dim))
    return None
