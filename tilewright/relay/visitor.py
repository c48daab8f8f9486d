"""Walks over graph expressions.

A subclass overrides `visit_call`, `visit_var`, … and calls `self.visit` on the children. Each node is visited
once, with its result memoized. Chains of calls, tuples and lets of any length are walked without Python recursion:
before `visit_call(c)` runs, the operands of `c` have been visited, so that its own `self.visit(arg)` only looks
the result up.

    class Relu6(relay.ExprMutator):
        def visit_call(self, call):
            new = super().visit_call(call)          # the same call where nothing below changed
            return relay.clip(new.args[0], 0, 6) if new.op is RELU else new
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..ir.deep import deep_programs
from ..ir.errors import TVMError
from ..ir.module import GlobalVar
from ..ir.op import Op
from ..ir.span import node_in_work
from .adt import Constructor, Match, TypeData, map_pattern, pattern_vars
from .expr import (
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
from .ty import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeRelation,
    TypeVar,
    type_parts,
    with_parts,
)

_METHODS: dict[type, str] = {
    Call: "visit_call",
    Var: "visit_var",
    Constant: "visit_constant",
    Tuple: "visit_tuple",
    TupleGetItem: "visit_tuple_getitem",
    Let: "visit_let",
    If: "visit_if",
    Function: "visit_function",
    GlobalVar: "visit_global_var",
    Match: "visit_match",
    Constructor: "visit_constructor",
    RefCreate: "visit_ref_create",
    RefRead: "visit_ref_read",
    RefWrite: "visit_ref_write",
}


def flow_inputs(expr: Any) -> tuple[Any, ...]:
    """The operands of a node that opens no scope: calls, tuples and their fields."""
    if expr.__class__ is Call:
        return expr.args if expr.op.__class__ is not Call else (expr.op, *expr.args)
    if expr.__class__ is Tuple:
        return expr.fields
    if expr.__class__ is TupleGetItem:
        return (expr.tuple_value,)
    if expr.__class__ in _CELLS:
        cell: Any = expr
        return tuple(cell.children())
    return ()


_CELLS = frozenset((RefCreate, RefRead, RefWrite))


class ExprFunctor:
    """A function over expressions, one method for each kind; `memo_map` has the results so far."""

    _walking = False

    def __init__(self) -> None:
        self.memo_map: dict[Any, Any] = {}

    def visit(self, expr: Any) -> Any:
        """The result for an expression, found once."""
        memo = self.memo_map
        if expr in memo:
            return memo[expr]
        return self._walk(expr) if self._walking else self._outermost(expr)

    def _walk(self, expr: Any) -> Any:
        memo = self.memo_map
        stack: list[Any] = []
        for below in reversed(flow_inputs(expr)):
            if below not in memo:
                stack.append(below)
        while stack:
            at = stack[-1]
            if at in memo:
                stack.pop()
                continue
            waiting = [b for b in flow_inputs(at) if b not in memo]
            if waiting:
                stack.extend(reversed(waiting))
            else:
                self.visit(at)
                memo.setdefault(at, None)  # where a subclass's `visit` remembers nothing
                stack.pop()
        made = self.dispatch(expr)
        memo[expr] = made
        return made

    def _outermost(self, expr: Any) -> Any:
        """A whole walk. Nested scopes recurse: the limit is some thousands."""
        self._walking = True
        try:
            with deep_programs():
                return self._walk(expr)
        except RecursionError:
            raise TVMError(
                f"{type(self).__name__.lstrip('_')}: functions, branches or values of lets are nested more deeply "
                "than can be walked; bind the inner ones to names, one after the other"
            ) from None
        finally:
            self._walking = False

    def dispatch(self, expr: Any) -> Any:
        """The method for the kind of expression, called."""
        name = _METHODS.get(expr.__class__)
        if name is None:
            if isinstance(expr, Op):
                return self.visit_op(expr)
            name = next((m for c, m in _METHODS.items() if isinstance(expr, c)), None)
            if name is None:
                raise TypeError(f"{expr!r} ({type(expr).__name__}) is not a graph expression")
        return getattr(self, name)(expr)

    def _missing(self, expr: Any) -> Any:
        name = _METHODS.get(expr.__class__, "visit_op")
        raise NotImplementedError(f"{type(self).__name__} has no {name}")

    visit_function: Callable[..., Any] = _missing
    visit_let: Callable[..., Any] = _missing
    visit_call: Callable[..., Any] = _missing
    visit_var: Callable[..., Any] = _missing
    visit_if: Callable[..., Any] = _missing
    visit_tuple: Callable[..., Any] = _missing
    visit_tuple_getitem: Callable[..., Any] = _missing
    visit_constant: Callable[..., Any] = _missing
    visit_global_var: Callable[..., Any] = _missing
    visit_op: Callable[..., Any] = _missing
    visit_match: Callable[..., Any] = _missing
    visit_constructor: Callable[..., Any] = _missing
    visit_ref_create: Callable[..., Any] = _missing
    visit_ref_read: Callable[..., Any] = _missing
    visit_ref_write: Callable[..., Any] = _missing


class ExprVisitor(ExprFunctor):
    """A walk over all expressions; `visit_*` return nothing."""

    def visit_call(self, call: Call) -> Any:
        self.visit(call.op)
        for arg in call.args:
            self.visit(arg)

    def visit_tuple(self, tup: Tuple) -> Any:
        for field in tup.fields:
            self.visit(field)

    def visit_tuple_getitem(self, op: TupleGetItem) -> Any:
        self.visit(op.tuple_value)

    def visit_function(self, fn: Function) -> Any:
        for p in fn.params:
            self.visit(p)
        self.visit(fn.body)

    def visit_let(self, let: Let) -> Any:
        at: Any = let
        own = type(self).visit_let is not ExprVisitor.visit_let
        while isinstance(at, Let):
            self.visit(at.var)
            self.visit(at.value)
            self.memo_map[at] = None
            at = at.body
            if own:  # a subclass sees each let of the chain
                break
        self.visit(at)

    def visit_if(self, if_: If) -> Any:
        self.visit(if_.cond)
        self.visit(if_.true_branch)
        self.visit(if_.false_branch)

    def visit_match(self, m: Match) -> Any:
        self.visit(m.data)
        for clause in m.clauses:
            for v in pattern_vars(clause.lhs):
                self.visit(v)
            self.visit(clause.rhs)

    def visit_ref_create(self, r: Any) -> Any:
        for b in r.children():
            self.visit(b)

    visit_ref_read = visit_ref_write = visit_ref_create

    def visit_var(self, var: Any) -> Any:
        return None

    visit_constant = visit_global_var = visit_op = visit_constructor = visit_var


class ExprMutator(ExprFunctor):
    """A rewriting; `visit_*` return the new expression, the same object where nothing changed.

    A new operator has the source location of the call in whose place it is made.
    """

    def dispatch(self, expr: Any) -> Any:
        if expr.__class__ is not Call or expr.span is None:
            return super().dispatch(expr)
        token = node_in_work.set(expr.span)  # as `at_span`, which takes five times as long
        try:
            return self.visit_call(expr)
        finally:
            node_in_work.reset(token)

    def visit_call(self, call: Call) -> Any:
        op = self.visit(call.op)
        return call.over([self.visit(a) for a in call.args], op=op)

    def visit_tuple(self, tup: Tuple) -> Any:
        return tup.map_children(self.visit)

    def visit_tuple_getitem(self, op: TupleGetItem) -> Any:
        value = self.visit(op.tuple_value)
        if value is op.tuple_value:
            return op
        return (
            value.fields[op.index]
            if isinstance(value, Tuple)
            else TupleGetItem(value, op.index, span=op.span)
        )

    def visit_function(self, fn: Function) -> Any:
        params, body = [self.visit(p) for p in fn.params], self.visit(fn.body)
        if body is fn.body and all(x is y for x, y in zip(params, fn.params, strict=True)):
            return fn
        return Function(params, body, None, fn.type_params, fn.attrs, fn.span)

    def visit_let(self, let: Let) -> Any:
        # a subclass with a method of its own sees each let of the chain
        return self.visit_lets(let, alone=type(self).visit_let is not ExprMutator.visit_let)

    def visit_lets(self, let: Let, alone: bool = False) -> Any:
        """A chain of lets; only the first one if `alone`."""
        chain: list[Let] = []
        rows: list[tuple[Any, Any]] = []
        at: Any = let
        while isinstance(at, Let) and not (alone and chain):
            chain.append(at)
            rows.append((self.visit(at.var), self.visit(at.value)))
            at = at.body
        body = self.visit(at)
        for old, (var, value) in zip(reversed(chain), reversed(rows), strict=True):
            body = self.memo_map[old] = old.updated(var=var, value=value, body=body)
        return body

    def visit_if(self, if_: If) -> Any:
        return if_.map_children(self.visit)

    def visit_match(self, m: Match) -> Any:
        rows = [
            (map_pattern(c.lhs, self.visit, self.visit_constructor), self.visit(c.rhs)) for c in m.clauses
        ]
        return m.over(self.visit(m.data), rows)

    def visit_ref_create(self, r: Any) -> Any:
        return r.map_children(self.visit)

    visit_ref_read = visit_ref_write = visit_ref_create

    def visit_var(self, var: Any) -> Any:
        return var

    visit_constant = visit_global_var = visit_op = visit_constructor = visit_var


# ---------------------------------------------------------------------------- types
class TypeFunctor:
    """A function over types, one method for each kind."""

    def visit(self, typ: Type) -> Any:
        """The result for a type."""
        methods: tuple[tuple[type, Callable[[Any], Any]], ...] = (
            (TensorType, self.visit_tensor_type),
            (TupleType, self.visit_tuple_type),
            (FuncType, self.visit_func_type),
            (TypeVar, self.visit_type_var),
            (IncompleteType, self.visit_incomplete_type),
            (RefType, self.visit_ref_type),
            (GlobalTypeVar, self.visit_global_type_var),
            (TypeCall, self.visit_type_call),
            (TypeData, self.visit_type_data),
            (TypeRelation, self.visit_type_relation),
        )
        for kind, method in methods:
            if isinstance(typ, kind):
                return method(typ)
        raise TypeError(f"{typ!r} is not a type of the graph IR")

    def _missing(self, typ: Type) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no method for {typ}")

    visit_tensor_type: Callable[..., Any] = _missing
    visit_tuple_type: Callable[..., Any] = _missing
    visit_func_type: Callable[..., Any] = _missing
    visit_type_var: Callable[..., Any] = _missing
    visit_incomplete_type: Callable[..., Any] = _missing
    visit_ref_type: Callable[..., Any] = _missing
    visit_global_type_var: Callable[..., Any] = _missing
    visit_type_call: Callable[..., Any] = _missing
    visit_type_data: Callable[..., Any] = _missing
    visit_type_relation: Callable[..., Any] = _missing


class TypeVisitor(TypeFunctor):
    """A walk over a type and what it is made of."""

    def visit_tensor_type(self, tt: Any) -> Any:
        return None

    visit_type_var = visit_incomplete_type = visit_global_type_var = visit_tensor_type

    def visit_tuple_type(self, tt: Any) -> Any:
        for part in type_parts(tt):
            self.visit(part)

    visit_ref_type = visit_type_call = visit_tuple_type

    def visit_func_type(self, ft: FuncType) -> Any:
        for part in (*ft.arg_types, ft.ret_type, *ft.type_params, *ft.type_constraints):
            self.visit(part)

    def visit_type_relation(self, tr: TypeRelation) -> Any:
        for part in tr.args:
            self.visit(part)

    def visit_type_data(self, td: TypeData) -> Any:
        for part in (td.header, *td.type_vars, *(t for c in td.constructors for t in c.inputs)):
            self.visit(part)


class TypeMutator(TypeFunctor):
    """A rewriting of a type."""

    def visit_tensor_type(self, tt: Any) -> Any:
        return tt

    visit_type_var = visit_incomplete_type = visit_global_type_var = visit_tensor_type

    def visit_tuple_type(self, tt: Any) -> Any:
        return with_parts(tt, [self.visit(p) for p in type_parts(tt)])

    visit_ref_type = visit_type_call = visit_tuple_type

    def visit_func_type(self, ft: FuncType) -> Any:
        made = self.visit_tuple_type(ft)
        generic = tuple(map(self.visit, ft.type_params))
        if generic == ft.type_params:
            return made
        return FuncType(made.arg_types, made.ret_type, generic, made.type_constraints)

    def visit_type_relation(self, tr: TypeRelation) -> Any:
        args = tuple(map(self.visit, tr.args))
        return tr if args == tr.args else TypeRelation(tr.func, args, tr.num_inputs, tr.attrs)

    def visit_type_data(self, td: TypeData) -> Any:
        made = [[self.visit(t) for t in c.inputs] for c in td.constructors]
        if all(
            a is b
            for c, row in zip(td.constructors, made, strict=True)
            for a, b in zip(c.inputs, row, strict=True)
        ):
            return td
        rows = zip(td.constructors, made, strict=True)
        return TypeData(
            td.header, td.type_vars, [Constructor(c.name_hint, row, td.header, c.span) for c, row in rows]
        )


class ScopeTree:
    """Nested scopes by their numbers; 0 is the outermost."""

    def __init__(self) -> None:
        self.parent: list[int] = [-1]
        self.depth: list[int] = [0]

    def new(self, parent: int) -> int:
        """A scope inside another."""
        self.parent.append(parent)
        self.depth.append(self.depth[parent] + 1)
        return len(self.parent) - 1

    def common(self, a: int, b: int) -> int:
        """The innermost scope that contains both."""
        while a != b:
            if self.depth[a] < self.depth[b]:
                a, b = b, a
            a = self.parent[a]
        return a


def below(expr: Any) -> list[Any]:
    """All expressions directly below, operators and global names included."""
    if expr.__class__ is Call:
        return [expr.op, *expr.args]
    return expr.children() if isinstance(expr, Expr) else []


def in_order(root: Any, inside: Callable[[Any], Iterable[Any]] = below) -> list[Any]:
    """Every expression once, children (`inside`) first. Graphs are deep: no recursion."""
    out: list[Any] = []
    seen: set[Any] = set()
    stack: list[tuple[Any, bool]] = [(root, False)]
    while stack:
        at, ready = stack.pop()
        if ready:
            out.append(at)
        elif at not in seen:
            seen.add(at)
            stack.append((at, True))
            stack.extend([(b, False) for b in inside(at) if b not in seen][::-1])
    return out
