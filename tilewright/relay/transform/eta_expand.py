"""EtaExpand: global functions that are used as values become function expressions."""

from __future__ import annotations

from typing import Any

from ...ir.module import GlobalVar, IRModule
from ..adt import Constructor, Match
from ..expr import Call, Function, Var
from .rewriting import Mutator, is_kept_whole, typed_pass


def eta_expand(mod: IRModule, expand_constructor: bool = False, expand_global_var: bool = True) -> IRModule:
    """Replace a global function, or a constructor, that is used as a value by a function that calls it.

    def @main() { @f }      ->      def @main() { fn (%x) { @f(%x) } }
    """
    if not (expand_global_var or expand_constructor):
        return mod

    def expanded(f: Any) -> Any:
        if not isinstance(f, Function) or is_kept_whole(f):
            return f
        return _Expand(mod, expand_constructor, expand_global_var).visit(f)

    return mod.map_functions(expanded)


class _Expand(Mutator):
    def __init__(self, mod: IRModule, constructors: bool, functions: bool) -> None:
        super().__init__()
        self.mod, self.constructors, self.functions = mod, constructors, functions

    def visit_global_var(self, gvar: GlobalVar) -> Any:
        f = self.mod.functions.get(gvar)
        if not isinstance(f, Function) or not self.functions:
            return gvar
        params = [Var(p.name_hint, p.type_annotation or p._checked_type) for p in f.params]
        return Function(params, Call(gvar, params), f.ret_type, f.type_params)

    def visit_constructor(self, con: Constructor) -> Any:
        if not self.constructors:
            return con
        kind = con.checked_type
        params = [Var(f"x{i}", t) for i, t in enumerate(kind.arg_types)]
        return Function(params, Call(con, params), kind.ret_type, kind.type_params)

    def visit_match(self, m: Match) -> Any:
        return m.over(self.visit(m.data), [(c.lhs, self.visit(c.rhs)) for c in m.clauses])

    def visit_call(self, call: Call) -> Any:
        if isinstance(call.op, (GlobalVar, Constructor)):
            return call.over([self.visit(a) for a in call.args])
        return super().visit_call(call)


EtaExpand = typed_pass(eta_expand, name="EtaExpand", opt_level=1, whole_module=True, needs_types=False)
