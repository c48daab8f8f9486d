"""LambdaLift: functions inside functions become functions of the module."""

from __future__ import annotations

from typing import Any

from ...ir.module import GlobalVar, IRModule
from ..binding import bind
from ..expr import Call, Function, Let, Var
from .inline import fresh
from .rewriting import Mutator, is_kept_whole, rebuilt_lets, typed_pass


def lambda_lift(mod: IRModule) -> IRModule:
    """Make functions of the module from functions in expressions; what they capture becomes parameters.

        def @main(%x) {                                def @lifted_f(%y, %x) { add(%x, %y) }
          let %f = fn (%y) { add(%x, %y) };      ->    def @main(%x) {
          %f(%x)                                         @lifted_f(%x, %x)
        }                                              }

    A function that captures variables and is used as a value is not lifted: the captured values need a closure. Fused
    groups are not lifted either.
    """
    names = _Names({gv.name_hint for gv in mod.functions})
    new: dict[Any, Any] = {}
    lifted: dict[GlobalVar, Function] = {}
    for gv, f in mod.functions.items():
        if isinstance(f, Function) and not is_kept_whole(f):
            new[gv] = f.with_body(_Lift(names, lifted, f).visit(f.body))
        else:
            new[gv] = f
    if not lifted:
        return mod
    return IRModule({**new, **lifted}, mod.type_definitions, mod.attrs)


class _Names:
    """Unique names for functions, with a counter for each base name."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = taken
        self.next: dict[str, int] = {}

    def new(self, hint: str) -> GlobalVar:
        base = name = f"lifted_{hint}"
        number = self.next.get(base, 0)
        while name in self.taken:
            number += 1
            name = f"{base}_{number}"
        self.next[base] = number
        self.taken.add(name)
        return GlobalVar(name)


class _Uses:
    """The free variables of each nested function, and the functions that are used as values."""

    def __init__(self, root: Function) -> None:
        self.free: dict[Function, dict[Var, None]] = {}
        self.values: set[Var] = set()  # variables that are used as values
        self.inner: dict[Function, list[Function]] = {}
        self.bound: dict[Function, set[Var]] = {}
        stack = [root]
        while stack:
            at = stack[-1]
            if at not in self.inner:
                self.walk(at)
                stack += [f for f in self.inner[at] if f not in self.inner]
                continue
            stack.pop()
            if at not in self.bound:
                continue  # it occurs several times
            met = self.free[at]
            for f in self.inner[at]:
                met.update(self.free[f])
            bound = self.bound.pop(at)
            self.free[at] = {v: None for v in met if v not in bound}

    def walk(self, fn: Function) -> None:
        """The expressions of a function, without those of functions in it."""
        bound, met = set(fn.params), self.free.setdefault(fn, {})
        inner = self.inner[fn] = []
        seen: set[Any] = set()
        stack: list[Any] = [fn.body]
        while stack:
            at = stack.pop()
            if isinstance(at, Var):
                met[at] = None
                self.values.add(at)
                continue
            if at in seen:
                continue
            seen.add(at)
            if isinstance(at, Function):
                inner.append(at)
            elif isinstance(at, Let):
                bound.add(at.var)
                stack += [at.body, at.value]
            elif isinstance(at, Call):
                stack += reversed(at.args)
                if isinstance(at.op, Var):
                    met[at.op] = None
                else:
                    stack.append(at.op)
            elif hasattr(at, "children"):
                stack += reversed(at.children())
        self.bound[fn] = bound


class _Lift(Mutator):
    def __init__(self, names: _Names, lifted: dict[GlobalVar, Function], root: Function) -> None:
        super().__init__()
        self.names, self.lifted = names, lifted
        self.uses = _Uses(root)
        self.homes: dict[
            Any, tuple[GlobalVar, list[Var]]
        ] = {}  # the lifted function of a variable or function

    def visit_let(self, let: Let) -> Any:
        at: Any = let
        rows: list[tuple[Let, Any]] = []
        while isinstance(at, Let):
            if (
                isinstance(at.value, Function)
                and not is_kept_whole(at.value)
                and at.var not in self.uses.values
            ):
                self.lift(at.value, at.var.name_hint, at.var)
            else:
                rows.append((at, self.visit(at.value)))
            at = at.body
        return rebuilt_lets(rows, self.visit(at))

    def lift(self, fn: Function, hint: str, var: Var | None = None) -> tuple[GlobalVar, list[Var]]:
        free = self.uses.free[fn]
        found = {v: None for v in free if v is not var and v not in self.homes}
        for v in free:  # captures of the lifted functions that it calls
            if v in self.homes:
                found.update(dict.fromkeys(self.homes[v][1]))
        taken = list(found)
        gv = self.names.new(hint)
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
        if not self.uses.free[fn]:
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


LambdaLift = typed_pass(lambda_lift, name="LambdaLift", opt_level=1, whole_module=True)
