"""Marks for the code generator `ccompiler`, for tests of `PartitionGraph`."""

from __future__ import annotations

from typing import Any

from ..expr import Call
from ..op.annotation import compiler_begin, compiler_end
from ..visitor import ExprMutator


class CcompilerAnnotator(ExprMutator):
    """Marks `(a + b - c) * d` as one region for `ccompiler`.

    multiply(subtract(add(%a, %b), %c), %d)    ->    compiler_end(multiply(…, compiler_begin(%d)))
    """

    _NEXT = {"multiply": "subtract", "subtract": "add"}

    def visit_call(self, call: Call) -> Any:
        if not self._starts(call, "multiply"):
            return super().visit_call(call)
        return compiler_end(self._inside(call), "ccompiler")

    def _starts(self, e: Any, name: str) -> bool:
        """Whether an expression is the operator with those that must be below it on its left side."""
        if not isinstance(e, Call) or getattr(e.op, "name", "") != name:
            return False
        below = self._NEXT.get(name)
        return below is None or self._starts(e.args[0], below)

    def _inside(self, e: Call) -> Call:
        args = []
        for a in e.args:
            inner = isinstance(a, Call) and e.op.name in self._NEXT and a is e.args[0]
            args.append(self._inside(a) if inner else compiler_begin(self.visit(a), "ccompiler"))  # type: ignore[arg-type]
        return Call(e.op, args, e.attrs, span=e.span)
