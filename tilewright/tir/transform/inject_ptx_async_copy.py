"""Asynchronous copies from global to shared memory (`cp.async`)."""

from __future__ import annotations

from ...ir.expr import BufferLoad, Call, PrimExpr, Ramp, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, statements
from ...ir.op import Op
from ...ir.ops import logical_and
from ...ir.stmt import AttrStmt, BufferStore, Evaluate, Stmt
from ..analysis.measure import scope_of


def inject_ptx_async_copy(func: PrimFunc) -> PrimFunc:
    """Make copies of 4, 8 or 16 bytes from global to shared memory under `async_scope` asynchronous.

        # attr async_scope
        S[i * 8:i * 8 + 8] = A[j:j + 8]                          ->   cp_async(S, i * 8, A, j, 16)
        S[i * 8:i * 8 + 8] = if_then_else(j < n, A[j:j + 8], 0)  ->   cp_async(S, i * 8, A, j, 16, j < n)

    The commits of copy groups and the waits exist already; a copy that stays synchronous is complete before them.
    Needs: vectors, flat buffers. Gives: no `async_scope`.
    """
    if not any(isinstance(m, AttrStmt) and m.attr_key == "async_scope" for m in statements(func.body)):
        return func
    return _Copies().run(func)


class _Copies(Mutator):
    inside = False

    def visit_AttrStmt(self, n: AttrStmt) -> Stmt:
        if n.attr_key != "async_scope":
            return n.map_children(self.visit)
        before, self.inside = self.inside, True
        made = self.visit(n.body)
        self.inside = before
        return made  # type: ignore[no-any-return]

    def visit_BufferStore(self, n: BufferStore) -> Stmt:
        made = n.map_children(self.visit)
        return _copy(made) or made if self.inside else made


def _copy(n: BufferStore) -> Stmt | None:
    """The asynchronous form of a copy, if it has one."""
    value: PrimExpr = n.value
    condition: PrimExpr | None = None
    while isinstance(value, Call) and isinstance(value.op, Op) and value.op.short_name == "if_then_else":
        if value.args[0].dtype.lanes > 1 or not _is_zero(value.args[2]):
            return None
        condition = value.args[0] if condition is None else logical_and(condition, value.args[0])
        value = value.args[1]
    if not isinstance(value, BufferLoad) or value.dtype is not n.value.dtype:
        return None
    if not scope_of(n.buffer.data).startswith("shared") or scope_of(value.buffer.data) != "global":
        return None
    to, source = _start(n.indices[0]), _start(value.indices[0])
    size = value.dtype.nbytes
    if to is None or source is None or size not in (4, 8, 16):
        return None
    kind = value.buffer.dtype.element
    args = [
        n.buffer.data,
        to,
        value.buffer.data,
        source,
        const(size),
        *([] if condition is None else [condition]),
    ]
    return Evaluate(Call(kind, "tir.ptx_cp_async", args))


def _is_zero(e: PrimExpr) -> bool:
    return const_value(getattr(e, "value", e)) == 0 if e.dtype.lanes > 1 else const_value(e) == 0


def _start(index: PrimExpr) -> PrimExpr | None:
    """The index of the first of contiguous elements."""
    if isinstance(index, Ramp):
        return index.base if const_value(index.stride) == 1 else None
    return index
