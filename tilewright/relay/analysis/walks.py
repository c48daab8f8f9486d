"""Questions about graph expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...ir.errors import TVMError
from ...ir.module import IRModule
from ...ir.op import Op
from ..adt import Match, pattern_vars
from ..expr import Call, Constant, Expr, Function, Let, Var
from ..ty import FuncType, Type, TypeVar, type_parts
from ..visitor import below, in_order

__all__ = [
    "all_type_vars",
    "all_vars",
    "bound_type_vars",
    "bound_vars",
    "call_graph_order",
    "check_well_formed",
    "count_calls",
    "free_type_vars",
    "free_vars",
    "list_op_freqs",
    "post_order",
    "post_order_visit",
    "use_counts",
    "well_formed",
]


def post_order(expr: Any) -> list[Any]:
    """Every expression once, in post-order; operators and global names too."""
    return in_order(expr)


def post_order_visit(expr: Any, fvisit: Callable[[Any], Any]) -> None:
    """Call `fvisit` on every expression once, in post-order."""
    for at in post_order(expr):
        fvisit(at)


def _functions(what: Any) -> Iterable[Any]:
    if isinstance(what, IRModule):
        return [f for f in what.functions.values() if isinstance(f, Expr)]
    return [what]


def free_vars(expr: Any) -> list[Var]:
    """The free variables of the expression, in order of appearance."""
    bound = set(bound_vars(expr))
    return [v for v in all_vars(expr) if v not in bound]


def bound_vars(expr: Any) -> list[Var]:
    """The parameters and let-bound variables in the expression."""
    out: dict[Var, None] = {}
    for part in _functions(expr):
        for at in reversed(post_order(part)):  # a function binds before what is in it
            if isinstance(at, Function):
                out.update(dict.fromkeys(at.params))
            elif isinstance(at, Let):
                out[at.var] = None
            elif isinstance(at, Match):
                out.update((v, None) for clause in at.clauses for v in pattern_vars(clause.lhs))
    return list(out)


def all_vars(expr: Any) -> list[Var]:
    """All variables, in order of appearance."""
    out: dict[Var, None] = {}
    for part in _functions(expr):
        out.update((at, None) for at in post_order(part) if isinstance(at, Var))
    return list(out)


# ---------------------------------------------------------------------------- types
def _type_vars(kind: Type | None, out: dict[TypeVar, None]) -> None:
    if isinstance(kind, TypeVar):
        out[kind] = None
    elif kind is not None:
        for part in type_parts(kind):
            _type_vars(part, out)


def all_type_vars(expr: Any, mod: IRModule | None = None) -> list[TypeVar]:
    """The type variables in the annotations of an expression, or in a type."""
    out: dict[TypeVar, None] = {}
    if isinstance(expr, Type):
        if isinstance(expr, FuncType):
            out.update((t, None) for t in expr.type_params if isinstance(t, TypeVar))
        _type_vars(expr, out)
        return list(out)
    for at in post_order(expr):
        if isinstance(at, Var):
            _type_vars(at.type_annotation, out)
        elif isinstance(at, Function):
            out.update((t, None) for t in at.type_params if isinstance(t, TypeVar))
            _type_vars(at.ret_type, out)
    return list(out)


def bound_type_vars(expr: Any, mod: IRModule | None = None) -> list[TypeVar]:
    """The type variables that functions in the expression declare."""
    if isinstance(expr, FuncType):
        return [t for t in expr.type_params if isinstance(t, TypeVar)]
    if isinstance(expr, Type):
        return []
    return [t for at in post_order(expr) if isinstance(at, Function) for t in at.type_params]  # type: ignore[misc]


def free_type_vars(expr: Any, mod: IRModule | None = None) -> list[TypeVar]:
    """The type variables that nothing declares."""
    bound = set(bound_type_vars(expr))
    return [t for t in all_type_vars(expr) if t not in bound]


# ---------------------------------------------------------------------------- counts
def users_of(order: Iterable[Any]) -> dict[Any, list[Any]]:
    """The users of each expression, from all expressions in order (a call that takes one twice is there twice)."""
    out: dict[Any, list[Any]] = {}
    for at in order:
        for b in below(at):
            out.setdefault(b, []).append(at)
    return out


def use_counts(expr: Any) -> dict[Any, int]:
    """How many users each expression below `expr` has (a call that takes it twice is two)."""
    out: dict[Any, int] = {expr: 0}
    for at in post_order(expr):
        for b in below(at):
            out[b] = out.get(b, 0) + 1
    return out


def count_calls(expr: Any, op_name: str | None = None) -> int:
    """How many calls there are, of one operator or of all."""
    found = [at for part in _functions(expr) for at in post_order(part) if isinstance(at, Call)]
    return len([c for c in found if op_name is None or (isinstance(c.op, Op) and c.op.name == op_name)])


def list_op_freqs(mod: IRModule) -> dict[str, int]:
    """How many calls of each operator a module has."""
    out: dict[str, int] = {}
    for part in _functions(mod):
        for at in post_order(part):
            if isinstance(at, Call) and isinstance(at.op, Op):
                out[at.op.name] = out.get(at.op.name, 0) + 1
    return out


def call_graph_order(expr: Any) -> list[Call]:
    """The calls from the inputs to the outputs."""
    return [at for at in post_order(expr) if isinstance(at, Call)]


# ---------------------------------------------------------------------------- soundness
def well_formed(expr: Any, diag_ctx: Any = None) -> bool:
    """Whether every variable is bound once, and used only where it is bound."""
    try:
        check_well_formed(expr)
    except TVMError:
        return False
    return True


def check_well_formed(expr: Any) -> None:
    """Raise TVMError if a variable is bound twice, or used out of scope."""
    for part in _functions(expr):
        _check_bound_once(part)
        inner = {v for at in post_order(part) for v in _binds(at)}
        if isinstance(part, Function):
            loose = [v for v in _escaping(part) if v in inner]
            if loose:
                raise TVMError(f"variable %{loose[0].name_hint} is used out of its scope")


def _binds(at: Any) -> tuple[Var, ...]:
    if isinstance(at, Function):
        return at.params
    if isinstance(at, Match):
        return tuple(v for clause in at.clauses for v in pattern_vars(clause.lhs))
    return (at.var,) if isinstance(at, Let) else ()


def _check_bound_once(expr: Any) -> None:
    owner: dict[Var, Any] = {}
    for at in post_order(expr):
        for v in _binds(at):
            if v in owner:
                raise TVMError(f"variable %{v.name_hint} is bound twice")
            owner[v] = at
        if isinstance(at, Constant) and at.data is None:
            raise TVMError("a constant has no array")


def _escaping(expr: Any) -> set[Var]:
    """The variables that are used out of scope in `expr`."""
    free: dict[Any, frozenset[Var]] = {}
    nothing: frozenset[Var] = frozenset()
    for at in post_order(expr):
        if isinstance(at, Var):
            free[at] = frozenset((at,))
        elif isinstance(at, Let):
            own = {at.var}  # which a function sees too: it may call itself
            value = free[at.value] - own if isinstance(at.value, Function) else free[at.value]
            free[at] = value | (free[at.body] - own)
        elif isinstance(at, Function):
            free[at] = free[at.body] - set(at.params)
        elif isinstance(at, Match):
            rows = [free[c.rhs] - set(pattern_vars(c.lhs)) for c in at.clauses]
            free[at] = free[at.data].union(*rows)
        else:
            made = nothing
            for b in below(at):
                more = free[b]
                if more and not more <= made:
                    made = made | more if made else more
            free[at] = made
    return set(free[expr])
