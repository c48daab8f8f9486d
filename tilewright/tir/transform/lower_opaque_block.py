"""From blocks to plain loops."""

from __future__ import annotations

from typing import Any

from ...ir.expr import IterVar, PrimExpr, Range, StringImm, const, convert
from ...ir.function import PrimFunc
from ...ir.functor import _Substitute
from ...ir.ops import floordiv, is_one, likely
from ...ir.stmt import (
    Allocate,
    AttrStmt,
    BlockRealize,
    DeclBuffer,
    For,
    ForKind,
    IfThenElse,
    Stmt,
)

__all__ = ["lower_opaque_block"]


def lower_opaque_block(func: PrimFunc) -> PrimFunc:
    """Dissolve blocks: predicates become conditions, their buffers allocations, bound loops thread extents.

        for i in thread_binding(8, "threadIdx.x"):       with launch_thread("threadIdx.x", 8) as i:
            with block(""):                                  B = allocate([4])
                where(i < 5)                          ->     if i < 5:
                B = alloc_buffer((4,))                           …
                …

    Loops that run once and carry no mark go too.
    Needs: blocks without iterators, init and match buffers. Gives: no blocks.
    """
    body = _LowerBlocks().visit(func.body)
    return func if body is func.body else func.replace(body=body)


class _LowerBlocks(_Substitute):
    def __init__(self) -> None:
        super().__init__({})
        self.table: dict[Any, Any] = {}
        self.threads: dict[str, IterVar] = {}

    def visit_BlockRealize(self, n: BlockRealize) -> Stmt:
        block, predicate = n.block, self.visit(n.predicate)
        body = self.visit(block.body)
        for key, value in block.annotations.items():
            if key.startswith(("pragma_", "tir.attr.")):
                body = AttrStmt(const(0), key.removeprefix("tir.attr."), _attr_value(value), body)
            elif key == "double_buffer_scope":
                buffer = self.visit_buffer(block.writes[int(value)].buffer)
                body = AttrStmt(buffer.data, "double_buffer_scope", const(1), body)
        for buffer in reversed(block.alloc_buffers):
            made = self.visit_buffer(buffer)
            body = DeclBuffer(made, body)
            body = Allocate(made.data, made.dtype, _extents(made), const(True, "bool"), body, {})
        if not is_one(predicate):
            body = IfThenElse(likely(predicate), body)
        return body

    def visit_For(self, n: For) -> Stmt:
        low, size = self.visit(n.min), self.visit(n.extent)
        if n.kind is ForKind.THREAD_BINDING:
            return self.bound(n, low, size)
        if is_one(size) and not n.annotations and n.kind is not ForKind.PARALLEL:
            self.table[n.loop_var] = low
            return self.visit(n.body)
        body = self.visit(n.body)
        keep = {k: v for k, v in n.annotations.items() if not k.startswith("pragma_")}
        made: Stmt = n
        if body is not n.body or low is not n.min or size is not n.extent or len(keep) != len(n.annotations):
            made = For(n.loop_var, low, size, n.kind, body, None, keep, span=n.span)
        for key, value in n.annotations.items():
            if key.startswith("pragma_"):
                made = AttrStmt(n.loop_var, key, _attr_value(value), made)
        return made

    def bound(self, n: For, low: PrimExpr, size: PrimExpr) -> Stmt:
        """A loop bound to a thread axis; a second one of the same axis is the same thread."""
        assert n.thread_binding is not None
        tag = n.thread_binding.thread_tag
        virtual = tag.startswith("vthread") or tag == "cthread"
        axis = None if virtual else self.threads.get(tag)
        if axis is not None:
            self.table[n.loop_var] = axis.var
            return self.visit(n.body)
        axis = IterVar(Range.from_min_extent(low, size), n.loop_var, IterVar.ThreadIndex, tag)
        if not virtual:
            self.threads[tag] = axis
        body = self.visit(n.body)
        if not virtual:
            del self.threads[tag]
        return AttrStmt(axis, "virtual_thread" if virtual else "thread_extent", size, body)


def _extents(buffer: Any) -> tuple[PrimExpr, ...]:
    """The extents to allocate: the shape, or what the strides make of it."""
    if not buffer.strides:
        return buffer.shape
    out = [buffer.shape[0]]
    for outer, inner in zip(buffer.strides, buffer.strides[1:], strict=False):
        out.append(floordiv(outer, inner))
    return tuple(out)


def _attr_value(value: Any) -> PrimExpr:
    return StringImm(value) if isinstance(value, str) else convert(value)
