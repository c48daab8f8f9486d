"""Programs in files of records: they may compute, and do nothing else.

A program that is read from a file is built and run. So a program from a stranger may not call external functions,
contain code, make pointers from numbers or access memory out of bounds. What is left is arithmetic over buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...ir import expr, stmt
from ...ir.buffer import Buffer
from ...ir.deep import deep_programs
from ...ir.errors import ScheduleError
from ...ir.expr import BufferLoad, Call, PrimExpr, Select, Var, const_value
from ...ir.function import PrimFunc
from ...ir.module import IRModule
from ...ir.op import ELEMENTWISE, Op
from ...ir.ops import logical_not
from ...ir.stmt import Block, BlockRealize, BufferStore, For, ForKind
from ...tir.analysis.analyzed import AnalyzedMutator

# Operators whose calls are pure.
_CALLS: Final = frozenset(f"tir.{name}" for name in ELEMENTWISE)
_STATEMENTS: Final = (
    stmt.For, stmt.Block, stmt.BlockRealize, stmt.SeqStmt, stmt.IfThenElse, stmt.BufferStore, stmt.Evaluate,
)  # fmt: skip
_ATTRS: Final = frozenset(
    (
        "Primitive",
        "estimated_flops",
        "global_symbol",
        "layout_free_buffers",
        "layout_free_placeholders",
        "tir.noalias",
    )
)
# Attributes that a compute may have: code generators and passes do not act on them.
_NOTES: Final = frozenset(
    "auto_scheduler_simplify_const_tensor_indices axis const_matrix dst_layout layout_free_placeholders "
    "schedule_rule src_layout workload".split()
)


def check_program(mod: Any, trusting: str) -> None:
    """Refuse a program from a file that may do more than compute; `trusting` is the remedy that the error names."""
    if not isinstance(mod, IRModule) or len(mod.functions) != 1:
        raise ScheduleError("a task is a module of one function")
    (func,) = mod.functions.values()
    if not isinstance(func, PrimFunc):
        raise ScheduleError("a task is a function of loops")
    with deep_programs():
        walk = _Check(func)
        walk.visit(func.body)
    if walk.found:
        raise ScheduleError(
            f"{walk.found[0]}, and could do more than compute; if you made the file yourself, or trust whoever did, "
            f"{trusting}"
        )


class _Check(AnalyzedMutator):
    """Finds what a program may not do; it knows the ranges of loops and the conditions around each access."""

    def __init__(self, func: PrimFunc) -> None:
        super().__init__()
        self.found: list[str] = []
        self.known: dict[Buffer, None] = {}
        self.pointers: set[Var] = set()
        for b in func.buffer_params():
            self.know(b)
        self.notes(func.attrs, _ATTRS, "the function")

    def refuse(self, what: str) -> None:
        self.found.append(what)

    def notes(self, held: Mapping[str, Any], allowed: Iterable[str], of: str) -> None:
        for key in held:
            if key not in allowed:
                self.refuse(f"{of} has the attribute {key!r}")

    def know(self, buffer: Buffer) -> None:
        """Declare a buffer that accesses may use: it has memory of its own."""
        if buffer.data in self.pointers:
            self.refuse(f"two buffers share the memory of `{buffer.name}`")
        self.pointers.add(buffer.data)
        self.known[buffer] = None
        if any((const_value(d) or 0) < 0 for d in buffer.shape):
            self.refuse(f"`{buffer.name}` has a negative size")

    def visit(self, n: Any) -> Any:
        if isinstance(n, stmt.Stmt) and not isinstance(n, _STATEMENTS):
            self.refuse(f"it has a statement of kind {type(n).__name__}")
        elif isinstance(n, PrimExpr) and n.dtype.is_handle:
            self.refuse(f"`{n!s:.80}` is a pointer")
        elif isinstance(n, (expr.ProducerLoad, expr.Reduce, expr.StringImm)):
            self.refuse(f"it has an expression of kind {type(n).__name__}")
        return n if self.found else super().visit(n)

    def visit_Call(self, n: Call) -> Any:
        if not isinstance(n.op, Op) or n.op.name not in _CALLS:
            self.refuse(f"it calls `{getattr(n.op, 'name', n.op)}`")
            return n
        if n.op.name == "tir.if_then_else":
            self.either(*n.args)
            return n
        return self.visit_children(n)

    def visit_Select(self, n: Select) -> Any:
        return self.visit_children(n)  # both branches are evaluated

    def either(self, condition: PrimExpr, yes: PrimExpr, no: PrimExpr) -> None:
        self.visit(condition)
        with self.ana.constraint_scope(condition):
            self.visit(yes)
        with self.ana.constraint_scope(logical_not(condition)):
            self.visit(no)

    def visit_For(self, n: For) -> Any:
        self.notes(n.annotations, (), f"loop `{n.loop_var.name}`")
        if n.kind is ForKind.THREAD_BINDING or n.thread_binding is not None:
            self.refuse(f"loop `{n.loop_var.name}` is bound to threads")
        return super().visit_For(n)

    def visit_BlockRealize(self, n: BlockRealize) -> Any:
        for iv, value in zip(n.block.iter_vars, n.iter_values, strict=True):
            self.visit(value)
            with self.ana.constraint_scope(n.predicate):
                self.inside(value, iv.dom.min, iv.dom.min + iv.dom.extent, f"iterator `{iv.var.name}`")
        return super().visit_BlockRealize(n)

    def visit_Block(self, n: Block) -> Any:
        self.notes(n.annotations, _NOTES, f"block {n.name_hint}")
        if n.match_buffers:
            self.refuse(f"block {n.name_hint} has other views of buffers")
        for b in n.alloc_buffers:
            self.know(b)
            if b.strides or const_value(b.elem_offset) != 0:
                self.refuse(f"`{b.name}` has strides or an offset of its own")
        if n.init is not None:
            self.visit(n.init)
        self.visit(n.body)
        return n

    def access(self, n: BufferLoad | BufferStore) -> Any:
        if n.buffer not in self.known:
            self.refuse(f"`{n.buffer.name}` is neither a parameter nor allocated")
        for index, dim in zip(n.indices, n.buffer.shape, strict=True):
            self.inside(index, index * 0, dim, f"an index of `{n.buffer.name}`")
        return self.visit_children(n)

    visit_BufferLoad = visit_BufferStore = access

    def inside(self, value: PrimExpr, low: PrimExpr, end: PrimExpr, what: str) -> None:
        if not value.dtype.is_int or value.dtype.lanes > 1:
            self.refuse(f"{what} is of type {value.dtype}: `{value!s:.80}`")
        elif not (self.ana.can_prove(value >= low) and self.ana.can_prove(value < end)):
            self.refuse(
                f"{what}, `{value!s:.80}`, is not known to be below {end!s:.40} and at least {low!s:.40}"
            )
