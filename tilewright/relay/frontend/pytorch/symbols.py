"""Dynamic sizes of torch.export as expressions over size variables.

s0 // 2 + 1  (sympy)   ->   s0 // 2 + 1  (an expression over SizeVar s0)
"""

from __future__ import annotations

from typing import Any

from ....ir import ops
from ....ir.expr import IntImm, PrimExpr, SizeVar, convert
from .table import Refusal


class Symbols:
    """The size variables of a program, by the names that torch gave them."""

    def __init__(self) -> None:
        self.vars: dict[str, SizeVar] = {}

    def size(self, value: Any) -> Any:
        """An integer as it is; a symbolic one as an expression."""
        if isinstance(value, int):
            return int(value)
        node = getattr(value, "node", None)
        if node is None:
            raise Refusal(f"{value!r} is not a size")
        if node.maybe_as_int() is not None:
            return int(node.maybe_as_int())
        made = self._build(node.expr)
        return int(made.value) if isinstance(made, IntImm) else made

    def _build(self, e: Any) -> Any:
        if e.is_Integer:
            return convert(int(e))
        if e.is_Symbol:
            if e.name not in self.vars:
                self.vars[e.name] = SizeVar(e.name, "int32")
            return self.vars[e.name]
        kind = type(e).__name__
        args = [self._build(a) for a in e.args]
        pairs = {
            "Add": ops.add,
            "Mul": ops.mul,
            "FloorDiv": ops.floordiv,
            "CleanDiv": ops.floordiv,
            "Mod": ops.floormod,
            "PythonMod": ops.floormod,
            "Max": ops.max_of,
            "Min": ops.min_of,
        }
        if kind == "Pow" and isinstance(args[1], IntImm) and args[1].value > 0:
            return self._chain(ops.mul, [args[0]] * int(args[1].value))
        if kind not in pairs:
            raise Refusal(f"a size is {e}, and {kind} of sizes is not supported")
        return self._chain(pairs[kind], args)

    @staticmethod
    def _chain(work: Any, args: list[PrimExpr]) -> Any:
        out: Any = args[0]
        for a in args[1:]:
            out = work(out, a)
        return out
