"""Error reports of the interpreter: the kind, the statement, the values of variables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...ir.errors import TVMError
from ...ir.expr import PrimExpr
from ...ir.stmt import (
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    BlockRealize,
    BufferRealize,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    While,
)


class InterpreterError(TVMError):
    """A program has undefined behaviour. `kind` is one of:

    out-of-bounds, unwritten, race, barrier, deadlock, token, domain, region, assert, assume, division, shift, call,
    unsupported.
    """

    def __init__(self, kind: str, message: str, notes: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.notes = list(notes)
        self.statement: Any = None  # the statement that was running
        self.values: dict[str, Any] = {}  # the values of the loop variables around it
        self.function: str | None = None

    def __str__(self) -> str:
        lines = [self.message, *(f"  {note}" for note in self.notes)]
        if self.statement is not None:
            lines.append(f"  statement: {statement_text(self.statement)}")
            span = getattr(self.statement, "span", None)
            if span is not None:
                lines.append(f"  written at: {span}")
        if self.values:
            lines.append("  where: " + ", ".join(f"{name} = {value}" for name, value in self.values.items()))
        if self.function is not None:
            lines.append(f"  function: {self.function}")
        return "\n".join(lines)


def _items(values: Iterable[Any]) -> str:
    return ", ".join(str(v) for v in values)


def statement_text(s: Any) -> str:
    """The statement in one line, without the statements inside it."""
    if isinstance(s, PrimExpr):
        return str(s)
    if isinstance(s, BufferStore):
        return f"{s.buffer.name}[{_items(s.indices)}] = {s.value}"
    if isinstance(s, Evaluate):
        return str(s.value)
    if isinstance(s, For):
        return f"for {s.loop_var.name} in range({s.min}, {s.min + s.extent})"
    if isinstance(s, IfThenElse):
        return f"if {s.condition}"
    if isinstance(s, While):
        return f"while {s.condition}"
    if isinstance(s, LetStmt):
        return f"{s.var.name} = {s.value}"
    if isinstance(s, AssertStmt):
        return f"assert {s.condition}, {s.message}"
    if isinstance(s, BlockRealize):
        return f'block "{s.block.name_hint}"'
    if isinstance(s, (Allocate, AllocateConst)):
        return f"{s.buffer_var.name} = allocate([{_items(s.extents)}], {s.dtype})"
    if isinstance(s, BufferRealize):
        return f"realize {s.buffer.name}"
    if isinstance(s, AttrStmt):
        return f"attr {s.attr_key} = {s.value}"
    return type(s).__name__
