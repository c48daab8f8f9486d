"""Programs in graph form: function calls inlined, let-bound names substituted."""

from __future__ import annotations

from typing import Any, Final

from ...ir.errors import BuildError
from ...ir.module import GlobalVar, IRModule
from ..analysis import free_vars
from ..expr import Call, Constant, Function, If, Let
from ..transform.fuse_ops import is_primitive
from ..visitor import ExprMutator

USE_MACHINE: Final = (
    "use the virtual machine, which runs loops and branches: relay.vm.compile(mod, target), "
    'or relay.create_executor("vm", …)'
)


def graph_form(mod: IRModule, func: Function) -> Function:
    """The function as one graph of operators.

    let %a = exp(%x);        ->        add(exp(%x), exp(%x))       (one node, used twice)
    add(%a, %a)
    """
    return func.with_body(_GraphForm(mod, ()).visit(func.body))


class _GraphForm(ExprMutator):
    def __init__(self, mod: IRModule, callers: tuple[Any, ...], known: dict[Any, Any] | None = None) -> None:
        super().__init__()
        self.mod, self.callers = mod, callers
        self.memo_map.update(known or {})

    def visit_let(self, let: Let) -> Any:
        at: Any = let
        while isinstance(at, Let):
            if isinstance(at.value, Function) and at.var in free_vars(at.value):
                raise BuildError(
                    f"%{at.var.name_hint} is a loop, a function that calls itself, which relay.build cannot compile; "
                    f"{USE_MACHINE}"
                )
            self.memo_map[at.var] = self.visit(at.value)
            at = at.body
        return self.visit(at)

    def visit_if(self, if_: If) -> Any:
        cond = self.visit(if_.cond)
        if isinstance(cond, Constant) and cond.is_scalar:
            return self.visit(if_.true_branch if cond.numpy().item() else if_.false_branch)
        return If(cond, self.visit(if_.true_branch), self.visit(if_.false_branch), span=if_.span)

    def visit_function(self, fn: Function) -> Any:
        return fn if is_primitive(fn) else super().visit_function(fn)

    def visit_call(self, call: Call) -> Any:
        target = self.visit(call.op)
        called = self.mod[target] if isinstance(target, GlobalVar) and target in self.mod else target
        if not isinstance(called, Function) or is_primitive(called):
            return super().visit_call(call)
        if target in self.callers:
            raise BuildError(
                f"{target if isinstance(target, GlobalVar) else 'a function'} calls itself, which an ahead-of-time "
                f"program cannot do; {USE_MACHINE}"
            )
        args = [self.visit(a) for a in call.args]
        # captured values were substituted when the closure was visited
        known = dict(zip(called.params, args, strict=True))
        return _GraphForm(self.mod, (*self.callers, target), known).visit(called.body)
