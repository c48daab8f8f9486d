"""EtaExpand: global functions that are used as values become function expressions."""

from __future__ import annotations

from typing import Any

from ...ir.module import GlobalVar, IRModule
from ..expr import Call, Function, Var
from .rewriting import Mutator, is_kept_whole, typed_pass


def eta_expand(mod: IRModule, expand_constructor: bool = False, expand_global_var: bool = True) -> IRModule:
    """Replace a global function that is used as a value by a function that calls it.

    def @main() { @f }      ->      def @main() { fn (%x) { @f(%x) } }
    """
    if not expand_global_var:
        return mod
    return mod.map_functions(
        lambda f: _Expand(mod).visit(f) if isinstance(f, Function) and not is_kept_whole(f) else f
    )


class _Expand(Mutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__()
        self.mod = mod

    def visit_global_var(self, gvar: GlobalVar) -> Any:
        f = self.mod.functions.get(gvar)
        if not isinstance(f, Function):
            return gvar
        params = [Var(p.name_hint, p.type_annotation or p._checked_type) for p in f.params]
        return Function(params, Call(gvar, params), f.ret_type, f.type_params)

    def visit_call(self, call: Call) -> Any:
        if isinstance(call.op, GlobalVar):
            return call.over([self.visit(a) for a in call.args])
        return super().visit_call(call)


EtaExpand = typed_pass(eta_expand, name="EtaExpand", opt_level=1, whole_module=True, needs_types=False)
