"""How much a program allocates and computes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...ir.expr import (
    BinaryOp,
    BufferLoad,
    Call,
    Cast,
    CmpOp,
    IntImm,
    Not,
    PrimExpr,
    Select,
    Var,
    const_value,
)
from ...ir.function import PrimFunc
from ...ir.functor import Visitor
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.stmt import (
    Allocate,
    AllocateConst,
    Block,
    BlockRealize,
    BufferStore,
    For,
    IfThenElse,
    SeqStmt,
    Stmt,
)

_IF_THEN_ELSE = Op.get("tir.if_then_else")


def scope_of(var: Var) -> str:
    """The memory that a pointer points into."""
    return str(getattr(var.type_annotation, "storage_scope", "") or "global")


# ---------------------------------------------------------------------------- bytes
def bytes_of(dtype: Any, extents: Iterable[PrimExpr]) -> int | None:
    """The bytes of an array; None if one of its sizes is not a constant."""
    total = int(dtype.nbytes)
    for e in extents:
        size = const_value(e)
        if size is None:
            return None
        total *= int(size)
    return total


class _Peak(Visitor):
    """The most bytes that are allocated at once, for each memory."""

    def __init__(self, alignment: int = 1) -> None:
        self.alignment = alignment
        self.now: dict[str, int] = {}
        self.peak: dict[str, int] = {}
        self.constants = 0

    def size(self, dtype: Any, extents: Any) -> int:
        return -(-(bytes_of(dtype, extents) or 0) // self.alignment) * self.alignment

    def hold(self, scope: str, size: int) -> None:
        self.now[scope] = self.now.get(scope, 0) + size
        self.peak[scope] = max(self.peak.get(scope, 0), self.now[scope])

    def visit_Allocate(self, n: Allocate) -> None:
        scope, size = scope_of(n.buffer_var), self.size(n.dtype, n.extents)
        self.hold(scope, size)
        self.visit(n.body)
        self.now[scope] -= size

    def visit_AllocateConst(self, n: AllocateConst) -> None:
        self.constants += self.size(n.dtype, n.extents)
        self.visit(n.body)

    def visit_Block(self, n: Block) -> None:
        sizes = [(b.scope_name, self.size(b.dtype, b.shape)) for b in n.alloc_buffers]
        for scope, size in sizes:
            self.hold(scope, size)
        self.visit_children(n)
        for scope, size in sizes:
            self.now[scope] -= size


def _peak(func: PrimFunc, alignment: int = 1) -> _Peak:
    walk = _Peak(alignment)
    walk.visit(func.body)
    return walk


def calculate_allocated_bytes(func_or_mod: PrimFunc | IRModule) -> dict[str, dict[str, int]]:
    """The most bytes allocated at once, by function and by memory. A lone function is called "main"."""
    if isinstance(func_or_mod, IRModule):
        items = func_or_mod.functions.items()
        return {gv.name_hint: _peak(f).peak for gv, f in items if isinstance(f, PrimFunc)}
    return {"main": _peak(func_or_mod).peak}


def calculate_workspace_bytes(func: PrimFunc, workspace_byte_alignment: int) -> int:
    """The most bytes of global memory allocated at once, each allocation aligned."""
    return _peak(func, int(workspace_byte_alignment)).peak.get("global", 0)


def calculate_constant_bytes(func: PrimFunc, constant_byte_alignment: int) -> int:
    """The bytes of constant arrays in the function, each aligned."""
    return _peak(func, int(constant_byte_alignment)).constants


# ---------------------------------------------------------------------------- operations
class _Flops:
    """Counts arithmetic on what is stored; arithmetic on indices is not counted."""

    def stmt(self, n: Stmt | None) -> float:
        if n is None:
            return 0.0
        if isinstance(n, SeqStmt):
            return sum(self.stmt(s) for s in n.seq)
        if isinstance(n, For):
            return self.loop_count(n) * self.stmt(n.body)
        if isinstance(n, BlockRealize):
            return self.block(n)
        if isinstance(n, BufferStore):
            return self.expr(n.value) * n.value.dtype.lanes
        if isinstance(n, IfThenElse):
            return self.expr(n.condition) + max(self.stmt(n.then_case), self.stmt(n.else_case))
        return sum(
            self.stmt(c) if isinstance(c, Stmt) else self.expr(c) if isinstance(c, PrimExpr) else 0.0
            for c in n.children()
        )

    def loop_count(self, n: For) -> float:
        return float(n.extent.value) if isinstance(n.extent, IntImm) else 1.0

    def block(self, n: BlockRealize) -> float:
        return self.stmt(n.block.body)  # the work of `init` is negligible

    def expr(self, e: Any) -> float:
        if isinstance(e, BufferLoad) or not isinstance(e, PrimExpr):
            return 0.0
        below = sum(self.expr(c) for c in e.children())
        if isinstance(e, (BinaryOp, CmpOp, Not)):
            return below + 1.0
        if isinstance(e, Select):
            cond, a, b = (self.expr(c) for c in e.children())
            return cond + max(a, b)
        if e.__class__ is Call:
            if e.op is _IF_THEN_ELSE:  # type: ignore[attr-defined]
                cond, a, b = (self.expr(c) for c in e.children())
                return cond + max(a, b)
            return below + 1.0
        return below if isinstance(e, Cast) or e.children() else 0.0


def estimate_tir_flops(func_or_mod: Any) -> float:
    """The arithmetic operations on values that a program does, a symbolic loop counted once.

    A multiply-add counts as two. Comparisons, calls of functions and the more expensive branch of a selection count
    too. The attribute `estimated_flops` of a function overrides the count.
    """
    if isinstance(func_or_mod, IRModule):
        return sum(estimate_tir_flops(f) for f in func_or_mod.functions.values() if isinstance(f, PrimFunc))
    if isinstance(func_or_mod, PrimFunc):
        stated = func_or_mod.attrs.get("estimated_flops")
        if stated is not None:
            return float(const_value(stated) or 0)
        return float(_Flops().stmt(func_or_mod.body))
    return float(_Flops().stmt(func_or_mod))
