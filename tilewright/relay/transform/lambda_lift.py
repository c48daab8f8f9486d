"""LambdaLift: functions inside functions become functions of the module."""

from __future__ import annotations

from typing import Any

from ...ir.module import GlobalVar, IRModule
from ..analysis import free_vars
from ..binding import bind
from ..expr import Call, Function, Let, Var
from .inline import fresh
from .rewriting import Mutator, is_kept_whole, typed_pass

__all__ = ["LambdaLift", "lambda_lift"]


def lambda_lift(mod: IRModule) -> IRModule:
    """Make functions of the module from functions in expressions; what they capture becomes parameters.

        def @main(%x) {                                def @lifted_f(%y, %x) { add(%x, %y) }
          let %f = fn (%y) { add(%x, %y) };      ->    def @main(%x) {
          %f(%x)                                         @lifted_f(%x, %x)
        }                                              }

    A function that captures variables and is handed on as a value stays where it is: there is nothing to put
    the captured values in. Fused groups stay too.
    """
    names = {gv.name_hint for gv in mod.functions}
    new: dict[Any, Any] = {}
    lifted: dict[GlobalVar, Function] = {}
    for gv, f in mod.functions.items():
        if isinstance(f, Function) and not is_kept_whole(f):
            new[gv] = f.with_body(_Lift(names, lifted).visit(f.body))
        else:
            new[gv] = f
    if not lifted:
        return mod
    return IRModule({**new, **lifted}, mod.type_definitions, mod.attrs)


class _Lift(Mutator):
    def __init__(self, names: set[str], lifted: dict[GlobalVar, Function]) -> None:
        super().__init__()
        self.names, self.lifted = names, lifted
        self.homes: dict[Any, tuple[GlobalVar, list[Var]]] = {}  # a variable or function, and where it went

    def name(self, hint: str) -> GlobalVar:
        name, i = f"lifted_{hint}", 0
        while name in self.names:
            i += 1
            name = f"lifted_{hint}_{i}"
        self.names.add(name)
        return GlobalVar(name)

    def visit_let(self, let: Let) -> Any:
        at: Any = let
        rows: list[tuple[Let, Any]] = []
        while isinstance(at, Let):
            if isinstance(at.value, Function) and not is_kept_whole(at.value) and not _escapes(at.var, at):
                self.lift(at.value, at.var.name_hint, at.var)
            else:
                rows.append((at, self.visit(at.value)))
            at = at.body
        body = self.visit(at)
        for old, value in reversed(rows):
            same = value is old.value and body is old.body
            body = old if same else Let(old.var, value, body, span=old.span)
        return body

    def lift(self, fn: Function, hint: str, var: Var | None = None) -> tuple[GlobalVar, list[Var]]:
        taken = [v for v in free_vars(fn) if v is not var and v not in self.homes]
        for v in free_vars(fn):  # what a lifted function that it calls captures, it captures too
            if v in self.homes:
                taken += [w for w in self.homes[v][1] if w not in taken]
        gv = self.name(hint)
        self.homes[fn if var is None else var] = (gv, taken)
        body = self.visit(fn.body)
        kind = fn._checked_type
        ret = fn.ret_type if fn.ret_type is not None else getattr(kind, "ret_type", None)
        params = [*fn.params, *taken]
        whole = Function(params, body, ret, fn.type_params, fn.attrs, fn.span)
        made = fresh(_annotated(whole))
        self.lifted[gv] = made
        gv.checked_type = getattr(made, "checked_type_", None)
        return gv, taken

    def visit_call(self, call: Call) -> Any:
        if isinstance(call.op, Var) and call.op in self.homes:
            gv, taken = self.homes[call.op]
            args = [self.visit(a) for a in call.args]
            return Call(gv, [*args, *[self.visit(v) for v in taken]], call.attrs, (), call.span)
        if isinstance(call.op, Function) and not is_kept_whole(call.op):
            gv, taken = self.lift(call.op, "fn")
            args = [self.visit(a) for a in call.args]
            return Call(gv, [*args, *[self.visit(v) for v in taken]], call.attrs, (), call.span)
        return super().visit_call(call)

    def visit_function(self, fn: Function) -> Any:
        if is_kept_whole(fn):
            return fn
        if not free_vars(fn):
            return self.lift(fn, "fn")[0]
        return super().visit_function(fn)


def _annotated(fn: Function) -> Function:
    """The function with the types of its parameters written out."""
    values = {p: Var(p.name_hint, p._checked_type, p.span) for p in fn.params if p.type_annotation is None}
    if not values:
        return fn
    body = bind(fn.body, values)
    return Function(
        [values.get(p, p) for p in fn.params], body, fn.ret_type, fn.type_params, fn.attrs, fn.span
    )


def _escapes(var: Var, let: Let) -> bool:
    """Whether a variable is used other than by being called."""
    stack: list[Any] = [let.value, let.body]
    seen: set[Any] = set()
    while stack:
        at = stack.pop()
        if at in seen:
            continue
        seen.add(at)
        if at is var:
            return True
        if isinstance(at, Call):
            stack += [a for a in (at.op, *at.args) if a is not at.op or a is not var]
        elif hasattr(at, "children"):
            stack += [c for c in at.children() if not (isinstance(at, Let) and c is at.var)]
    return False


LambdaLift = typed_pass(lambda_lift, name="LambdaLift", opt_level=1, whole_module=True)
