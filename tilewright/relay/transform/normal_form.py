"""Normal forms: lets for every value, for none, or only for those that several scopes share."""

from __future__ import annotations

from typing import Any

from ...ir.op import Op
from ..adt import Constructor, Match
from ..analysis.walks import post_order
from ..expr import (
    Call,
    Constant,
    Expr,
    Function,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)
from ..visitor import ExprMutator
from .rewriting import is_kept_whole, let_chain, typed_pass
from .scopes import Scopes


def to_a_normal_form(func: Function) -> Function:
    """Bind every computed value by a let, in its own scope.

        multiply(add(%x, %y), %y)     ->     let %v0 = add(%x, %y);
                                             let %v1 = multiply(%v0, %y);
                                             %v1

    Shared values stay shared, and constants are bound too; every operand is a variable or a global name afterwards.
    """
    return _Blocks(func, everything=True).closure(func)


def to_basic_block_normal_form(func: Function, ordered: bool = False, lets: bool = False) -> Function:
    """Bind the values that an inner scope (a branch, a function) uses of an outer one; the rest stays a graph.

    With `lets`, those of the program stay. With `ordered`, or where the function has references, so do calls of
    functions: one may write.
    """
    return _Blocks(func, everything=False, ordered=ordered, lets=lets).closure(func)


def has_cells(expr: Any) -> bool:
    """Whether an expression creates, reads or writes references."""
    return any(isinstance(at, (RefCreate, RefRead, RefWrite)) for at in post_order(expr))


def to_graph_normal_form(func: Function) -> Function:
    """Substitute values for let-bound variables.

        let %a = add(%x, %y);
        multiply(%a, %a)              ->     %0 = add(%x, %y); multiply(%0, %0)

    A function that calls itself keeps its name.
    """
    return _Graph().visit(func)


class _Blocks:
    """Rebuilds a function scope by scope, with lets for the values to bind."""

    def __init__(self, func: Function, everything: bool, ordered: bool = False, lets: bool = False) -> None:
        self.func, self.everything = func, everything
        self.ordered = ordered or has_cells(func)
        self.lets = lets or self.ordered
        self.scopes = Scopes(func, self.lets)
        self.names: dict[Any, Var] = {}  # the program's own names of values
        for var, value in self.scopes.values.items():
            if not isinstance(value, Var):
                self.names.setdefault(value, var)
        self.done: dict[Any, Any] = {}
        self.count = 0

    def closure(self, fn: Function) -> Function:
        if is_kept_whole(fn):
            return fn
        body = self.block(self.scopes.inner[fn, 0], fn.body)
        # the return type is unchanged, and required for recursive functions
        return fn.updated(body=body)

    def block(self, scope: int, result: Any) -> Expr:
        """The values of a scope in order, as lets around the result."""
        lets: list[tuple[Var, Any]] = []
        for at in self.scopes.members.get(scope, ()):
            if at is self.func:
                continue
            if isinstance(at, Let):
                self.done[at] = self.done[at.body]
            elif isinstance(at, Var):
                if at not in self.done:
                    value = self.scopes.values.get(at)
                    if value is not None and not isinstance(value, Expr):
                        self.done[at] = value  # the name of a function of the module
                    else:
                        self.done[at] = at if value is None or value not in self.done else self.done[value]
            else:
                self.done[at] = self.named(at, self.rebuilt(at), lets)
        body = self.done[result]
        for var, value in reversed(lets):
            body = Let(var, value, body)
        return body

    def named(self, at: Any, made: Any, lets: list[tuple[Var, Any]]) -> Any:
        if isinstance(at, Constructor):
            return made
        if isinstance(at, (Constant, Function)) and at not in self.names:
            if not self.everything or is_kept_whole(at):
                return made
        keep = self.everything or at in self.scopes.crosses or isinstance(at, Function)
        keep = keep or (self.lets and at in self.names) or (self.ordered and _may_act(at))
        if isinstance(at, Constant) and not (self.everything or self.lets):
            return made
        if not keep:
            return made
        var = self.names.get(at)
        if var is None or var in [v for v, _ in lets[-1:]]:
            var = Var(f"v{self.count}")
            self.count += 1
        lets.append((var, made))
        return var

    def rebuilt(self, at: Any) -> Any:
        done = self.done
        if isinstance(at, Function):
            name = self.names.get(at)
            if name is not None:
                done[name] = name  # for recursive functions
            return self.closure(at)
        if isinstance(at, If):
            return If(
                done[at.cond],
                self.block(self.scopes.inner[at, 1], at.true_branch),
                self.block(self.scopes.inner[at, 2], at.false_branch),
                span=at.span,
            )
        if isinstance(at, Call):
            op = done[at.op] if isinstance(at.op, Expr) else at.op
            return at.over([self.atom(a) for a in at.args], op=op)
        if isinstance(at, Tuple):
            return Tuple([self.atom(f) for f in at.fields], at.span)
        if isinstance(at, TupleGetItem):
            return TupleGetItem(self.atom(at.tuple_value), at.index, span=at.span)
        if isinstance(at, Match):
            rows = [
                (c.lhs, self.block(self.scopes.inner[at, i + 1], c.rhs)) for i, c in enumerate(at.clauses)
            ]
            return at.over(done[at.data], rows)
        if isinstance(at, (RefCreate, RefRead, RefWrite)):
            return at.map_children(self.atom)
        return at

    def atom(self, at: Any) -> Any:
        return self.done[at] if isinstance(at, Expr) else at


def _may_act(at: Any) -> bool:
    """Whether an expression may read or write a reference: its place among the others matters."""
    unknown = isinstance(at, Call) and not isinstance(at.op, (Op, Constructor))
    return isinstance(at, (RefCreate, RefRead, RefWrite)) or unknown


class _Graph(ExprMutator):
    def visit_function(self, fn: Function) -> Any:
        return fn if is_kept_whole(fn) else super().visit_function(fn)

    def visit_let(self, let: Let) -> Any:
        chain, tail = let_chain(let)
        kept: list[tuple[Let, Any]] = []
        for at in chain:
            if isinstance(at.value, Function) and _calls(at.var, at.value):
                kept.append((at, self.visit(at.value)))
            else:
                self.memo_map[at.var] = self.visit(at.value)
        body = self.visit(tail)
        for at, value in reversed(kept):
            body = Let(at.var, value, body, span=at.span)
        return body


def _calls(var: Var, fn: Function) -> bool:
    stack, seen = [fn.body], {fn.body}
    while stack:
        at = stack.pop()
        if at is var:
            return True
        for b in at.children() if isinstance(at, Expr) else ():
            if b not in seen:
                seen.add(b)
                stack.append(b)
    return False


ToANormalForm = typed_pass(to_a_normal_form, name="ToANormalForm", opt_level=1)
ToBasicBlockNormalForm = typed_pass(
    lambda func: to_basic_block_normal_form(func, lets=True), name="ToBasicBlockNormalForm", opt_level=1
)
ToGraphNormalForm = typed_pass(to_graph_normal_form, name="ToGraphNormalForm", opt_level=1)
