"""Inline: calls of global functions replaced by their bodies."""

from __future__ import annotations

from typing import Any

from ...ir.module import GlobalVar, IRModule
from ..adt import Match, map_pattern
from ..analysis.walks import post_order
from ..expr import Call, Expr, Function, Let, Tuple, TupleGetItem, Var
from ..visitor import ExprMutator
from .rewriting import is_kept_whole, typed_pass


class _Fresh(ExprMutator):
    """A copy with fresh bound variables, and values substituted for some variables."""

    def __init__(self, values: dict[Var, Any]) -> None:
        super().__init__()
        self.memo_map.update(values)

    def new_var(self, var: Var, kind: Any = None) -> Var:
        made = Var(var.name_hint, kind or var.type_annotation, var.span)
        self.memo_map[var] = made
        return made

    def visit_function(self, fn: Function) -> Any:
        params = [self.new_var(p, p.type_annotation or p._checked_type) for p in fn.params]
        return Function(params, self.visit(fn.body), fn.ret_type, fn.type_params, fn.attrs, fn.span)

    def visit_match(self, m: Match) -> Any:
        data = self.visit(m.data)
        lhs = [map_pattern(c.lhs, self.new_var, lambda c: c) for c in m.clauses]
        return m.over(data, [(p, self.visit(c.rhs)) for p, c in zip(lhs, m.clauses, strict=True)])

    def visit_let(self, let: Let) -> Any:
        rows, at = [], let
        while isinstance(at, Let):
            var = self.new_var(at.var)
            rows.append((var, self.visit(at.value), at.span))
            at = at.body  # type: ignore[assignment]
        body = self.visit(at)
        for var, value, span in reversed(rows):
            body = Let(var, value, body, span=span)
        return body


def substituted(fn: Function, args: Any) -> Expr:
    """The body of a function applied to arguments, with fresh bound variables."""
    made = _Fresh(dict(zip(fn.params, args, strict=True))).visit(fn.body)
    return made


def fresh(expr: Any) -> Any:
    """A copy of an expression with fresh bound variables."""
    return _Fresh({}).visit(expr)


class _Copied(_Fresh):
    """A copy that shares no call or tuple with the original: it is computed in its own scope."""

    def visit_call(self, call: Call) -> Any:
        args, op = [self.visit(a) for a in call.args], self.visit(call.op)
        return Call(op, args, call.attrs, call.type_args, call.span)

    def visit_tuple(self, tup: Tuple) -> Any:
        return Tuple([self.visit(f) for f in tup.fields], tup.span)

    def visit_tuple_getitem(self, op: TupleGetItem) -> Any:
        return TupleGetItem(self.visit(op.tuple_value), op.index, span=op.span)


def copied(expr: Any) -> Any:
    """A copy of an expression with fresh bound variables that shares no computed value with it."""
    return _Copied({}).visit(expr)


def inline(mod: IRModule) -> IRModule:
    """Replace calls of functions that are marked `Inline=1` by their bodies, and remove these functions.

    def @double(%x) { add(%x, %x) }  with Inline=1
    def @main(%y) { @double(%y) }          ->      def @main(%y) { add(%y, %y) }

    A function that calls itself stays as it is, and so does one that nothing calls. A function for an external compiler
    stays whole: it becomes the function expression that is called.
    """
    uses = {
        gv: {e for e in post_order(f) if isinstance(e, GlobalVar)} if isinstance(f, Function) else set()
        for gv, f in mod.functions.items()
    }
    marked = {
        gv: f
        for gv, f in mod.functions.items()
        if isinstance(f, Function) and int(f.attrs.get("Inline", 0)) and gv not in _reached(gv, uses)
    }
    used = {g for names in uses.values() for g in names}
    if not marked or not used & set(marked):
        return mod
    work = _Inline(marked)
    made = {gv: work.expanded(f) for gv, f in mod.functions.items() if gv not in marked or gv not in used}
    return IRModule(made, mod.type_definitions, mod.attrs)


def _reached(gv: GlobalVar, uses: dict[GlobalVar, set[GlobalVar]]) -> set[GlobalVar]:
    """The functions that a function calls, and those that they call."""
    out: set[GlobalVar] = set()
    stack = [gv]
    while stack:
        for g in uses.get(stack.pop(), set()) - out:
            out.add(g)
            stack.append(g)
    return out


class _Inline(ExprMutator):
    def __init__(self, marked: dict[GlobalVar, Function]) -> None:
        super().__init__()
        self.marked = marked
        self.done: dict[GlobalVar, Function] = {}

    def expanded(self, f: Any) -> Any:
        return self.visit(f) if isinstance(f, Function) else f

    def body_of(self, gv: GlobalVar) -> Function:
        if gv not in self.done:
            f = self.marked[gv]
            self.done[gv] = f if is_kept_whole(f) else self.visit(f)
        return self.done[gv]

    def visit_function(self, fn: Function) -> Any:
        return fn if is_kept_whole(fn) else super().visit_function(fn)

    def visit_call(self, call: Call) -> Any:
        if not isinstance(call.op, GlobalVar) or call.op not in self.marked:
            return super().visit_call(call)
        args = [self.visit(a) for a in call.args]
        f = self.body_of(call.op)
        return Call(fresh(f), args) if is_kept_whole(f) else substituted(f, args)

    def visit_global_var(self, gvar: GlobalVar) -> Any:
        return fresh(self.body_of(gvar)) if gvar in self.marked else gvar


Inline = typed_pass(inline, name="Inline", opt_level=1, whole_module=True)
