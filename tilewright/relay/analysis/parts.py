"""Parts of a module: its kernels, one expression of it, who calls whom."""

from __future__ import annotations

from typing import Any

from ...ir.equal import structural_equal, structural_hash
from ...ir.errors import TVMError
from ...ir.module import GlobalVar, IRModule
from ...ir.transform import get_pass
from ..expr import Call, Expr, Function, TupleGetItem
from .walks import free_vars, post_order

__all__ = ["CallGraph", "extract_fused_functions", "extract_intermdeiate_expr", "extract_intermediate_expr"]


def extract_fused_functions(mod: IRModule) -> dict[int, Function]:
    """The fused functions of a module, equal ones once, each under a number of its own.

    A module without any is fused first.
    """
    return _fused(mod) or _fused(get_pass("FuseOps")(get_pass("SimplifyInference")(mod)))


def _fused(mod: IRModule) -> dict[int, Function]:
    out: dict[int, Function] = {}
    for func in mod.functions.values():
        for at in post_order(func):
            if isinstance(at, Function) and at.attrs.get("Primitive"):
                key = int(structural_hash(at))
                while key in out and not structural_equal(out[key], at):
                    key += 1
                out.setdefault(key, at)
    return out


def extract_intermediate_expr(mod: IRModule, expr_id: int) -> IRModule:
    """The module that computes `%<expr_id>` in the text of `main`: calls and parts of tuples are numbered."""
    numbered = [at for at in post_order(mod["main"].body) if isinstance(at, (Call, TupleGetItem))]
    if not 0 <= expr_id < len(numbered):
        raise TVMError(
            f"extract_intermediate_expr: %{expr_id} is not there; the last one is %{len(numbered) - 1}"
        )
    found = numbered[expr_id]
    return IRModule({"main": Function(free_vars(found), found)}, mod.type_definitions, mod.attrs)


extract_intermdeiate_expr = extract_intermediate_expr  # the classic spelling


class CallGraph:
    """Which functions of a module refer to which."""

    def __init__(self, module: IRModule) -> None:
        self.module = module
        self._names = {gv.name_hint: gv for gv in module.get_global_vars()}
        self._calls: dict[GlobalVar, list[GlobalVar]] = {}
        for gv, func in module.functions.items():
            parts = post_order(func) if isinstance(func, Expr) else []
            refs = [b for at in parts for b in ([at.op, *at.args] if isinstance(at, Call) else [])]
            self._calls[gv] = [self._of(r) for r in refs if isinstance(r, GlobalVar)]

    def _of(self, var: Any) -> GlobalVar:
        name = var if isinstance(var, str) else var.name_hint
        if name not in self._names:
            raise TVMError(f"the module has no function @{name}; it has: {', '.join(map(str, self._names))}")
        return self._names[name]

    def ref_count(self, var: Any) -> int:
        """How often other functions, and itself, refer to a function."""
        wanted = self._of(var)
        return sum(refs.count(wanted) for refs in self._calls.values())

    def global_call_count(self, var: Any) -> int:
        """How many references to functions a function has."""
        return len(self._calls[self._of(var)])

    def is_recursive(self, var: Any) -> bool:
        """Whether a function calls itself, by way of others or not."""
        start = self._of(var)
        seen: set[Any] = set()
        stack = list(self._calls[start])
        while stack:
            at = stack.pop()
            if at is start:
                return True
            if at not in seen:
                seen.add(at)
                stack += self._calls[at]
        return False

    def print_var(self, var: Any) -> str:
        """What a function refers to, as text."""
        gv = self._of(var)
        lines = [f"Call graph node: {gv.name_hint}, reference count = {self.ref_count(gv)}"]
        lines += [f"  call site: <{gv.name_hint}> calls <{to.name_hint}>" for to in self._calls[gv]]
        return "\n".join(lines)

    def __str__(self) -> str:
        return "\n".join(self.print_var(gv) for gv in self._calls) + "\n"
