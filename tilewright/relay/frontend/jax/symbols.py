"""Symbolic sizes of JAX as expressions over size variables.

floordiv(n, 2) + 1  (jax.export)   ->   n // 2 + 1  (an expression over SizeVar n)
"""

from __future__ import annotations

import ast
from typing import Any

from ....ir import ops
from ....ir.expr import IntImm, SizeVar, convert
from .table import Refusal

_PAIRS = {"floordiv": ops.floordiv, "mod": ops.floormod, "max": ops.max_of, "min": ops.min_of}
_SIGNS = {ast.Add: ops.add, ast.Sub: ops.sub, ast.Mult: ops.mul}


class Symbols:
    """The size variables of a program, by the names that the user gave them."""

    def __init__(self) -> None:
        self.vars: dict[str, SizeVar] = {}

    def size(self, value: Any) -> Any:
        """An integer as it is; a symbolic one as an expression, read from the text that `jax.export` prints."""
        if hasattr(value, "__index__") and not hasattr(value, "scope"):
            return int(value)
        text = str(value).replace("^", "**")  # JAX writes a power as n^2
        made = self._build(ast.parse(text, mode="eval").body, str(value))
        return int(made.value) if isinstance(made, IntImm) else made

    def sizes(self, values: Any) -> tuple[Any, ...]:
        return tuple(map(self.size, values))

    def _build(self, e: Any, text: str) -> Any:
        if isinstance(e, ast.Constant) and isinstance(e.value, int):
            return convert(e.value)
        if isinstance(e, ast.Name):
            if e.id not in self.vars:
                self.vars[e.id] = SizeVar(e.id, "int32")
            return self.vars[e.id]
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
            return ops.sub(convert(0), self._build(e.operand, text))
        if isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and e.func.id in _PAIRS:
            return _PAIRS[e.func.id](*(self._build(a, text) for a in e.args))
        if isinstance(e, ast.BinOp) and type(e.op) in _SIGNS:
            return _SIGNS[type(e.op)](self._build(e.left, text), self._build(e.right, text))
        if isinstance(e, ast.BinOp) and isinstance(e.op, ast.Pow):
            return self._power(self._build(e.left, text), int(ast.literal_eval(e.right)))
        raise Refusal(f"a size is {text}, which is not supported")

    @staticmethod
    def _power(base: Any, count: int) -> Any:
        out = base
        for _ in range(count - 1):
            out = ops.mul(out, base)
        return out
