"""Partitioning: matched subgraphs become functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...ir.op import Op
from ..analysis import post_order
from ..analysis.walks import users_of
from ..expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from ..visitor import ExprMutator, below, flow_inputs
from .matcher import Matcher
from .pattern import (
    ConstantPattern,
    DFPattern,
    ExprPattern,
    VarPattern,
    WildcardPattern,
    _Narrowed,
)


def partition(
    pattern: DFPattern,
    expr: Any,
    attrs: Mapping[str, Any] | None = None,
    check: Callable[[Any], bool] = lambda e: True,
) -> Any:
    """Move each subgraph that matches the pattern into a function, which is called instead.

        nn.relu(nn.conv2d(%x, %w))     ->     fn (%a, %b) { nn.relu(nn.conv2d(%a, %b)) }(%x, %w)

    A subgraph is unchanged if `check` refuses it, or if an intermediate value is used outside by what does not lead
    back to the subgraph. Constants that the pattern names (`is_constant`, `is_expr`) move into the function; those that
    match a wildcard become arguments. Functions of earlier partitions are not entered.
    """
    order = post_order(expr)
    users = users_of(order)
    taken = _partitioned(order)
    groups: dict[Any, _Group] = {}
    for at in reversed(order):
        attempt = Matcher()
        if at in taken or not isinstance(at, Expr) or not attempt.match(pattern, at):
            continue
        group = _group(attempt.found)
        if group.inside & taken or at not in group.inside or not check(at):
            continue
        if not all(_leads_back(n, at, group.inside, users) for n in group.inside):
            continue
        taken |= group.inside
        groups[at] = group
    return _Partition(groups, dict(attrs or {})).visit(expr) if groups else expr


class _Group(NamedTuple):
    """A match: the expressions that the pattern constrains, and the constants that it names."""

    inside: set[Any]
    constants: set[Any]


def _partitioned(order: Sequence[Any]) -> set[Any]:
    """The expressions in functions of earlier partitions."""
    found = [e for e in order if isinstance(e, Function) and "PartitionedFromPattern" in e.attrs]
    return {x for f in found for x in post_order(f)}


def _leads_back(e: Any, root: Any, inside: set[Any], users: Mapping[Any, list[Any]]) -> bool:
    """Whether all uses of an expression are in the subgraph, or lead to its root alone."""
    stack = [] if e is root else [u for u in users.get(e, ()) if u not in inside]
    seen: set[Any] = set()
    while stack:
        at = stack.pop()
        if at is root or at in seen:
            continue
        seen.add(at)
        if not users.get(at):
            return False
        stack += users[at]
    return True


def _group(found: Mapping[DFPattern, list[Any]]) -> _Group:
    """The expressions that the pattern constrains; wildcards are inputs."""
    inside: set[Any] = set()
    constants: set[Any] = set()
    for p, exprs in found.items():
        leaf = p
        while isinstance(leaf, _Narrowed):
            leaf = leaf.pattern
        if isinstance(leaf, (ConstantPattern, ExprPattern)):
            constants.update(e for e in exprs if isinstance(e, Constant))
        if isinstance(leaf, (WildcardPattern, VarPattern, ExprPattern, ConstantPattern)) and len(exprs) == 1:
            continue
        inside.update(e for e in exprs if isinstance(e, Expr) and not isinstance(e, (Var, Constant)))
    return _Group(inside, constants)


class _Partition(ExprMutator):
    def __init__(self, groups: dict[Any, _Group], attrs: dict[str, Any]) -> None:
        super().__init__()
        self.groups, self.attrs = groups, attrs
        self.count = 0

    def dispatch(self, expr: Any) -> Any:
        group = self.groups.get(expr)
        if group is None:
            return super().dispatch(expr)
        inputs = _inputs(expr, group)
        params = {e: _param(e, self.count, i) for i, e in enumerate(inputs)}
        self.count += 1
        own = group.inside | {x for f in group.inside if isinstance(f, Function) for x in post_order(f.body)}
        names = [_name(e) for e in post_order(expr) if e in own]
        body = _Body(params).visit(expr)
        attrs = {"PartitionedFromPattern": "".join(names), **self.attrs}
        made = Function(list(params.values()), body, None, None, attrs)
        return Call(made, [self.visit(e) for e in inputs])


def _name(e: Any) -> str:
    """An expression in the name of a pattern."""
    if isinstance(e, (Var, Constant, Op)):
        return ""
    if isinstance(e, Call):
        return f"{e.op.name}_" if isinstance(e.op, Op) else "Call_"
    if isinstance(e, TupleGetItem):
        return f"TupleGetItem{e.index}_"
    return "Function" if isinstance(e, Function) else f"{type(e).__name__}_"


def _param(expr: Any, group: int, i: int) -> Var:
    return Var(f"FunctionVar_{group}_{i}", expr._checked_type)


def _inputs(root: Any, group: _Group) -> list[Any]:
    """The inputs of the subgraph, in order of appearance."""
    out: dict[Any, None] = {}
    seen: set[Any] = set()
    stack: list[Any] = [root]
    while stack:
        at = stack.pop()
        if at in seen:
            continue
        seen.add(at)
        if at in group.inside:
            stack.extend(reversed(flow_inputs(at) or tuple(_under(at))))
        elif isinstance(at, Tuple) and not at.fields:
            continue
        elif at not in group.constants and not isinstance(at, Function):
            out[at] = None
    return list(out)


def _under(at: Any) -> list[Any]:
    return [] if isinstance(at, Function) else [b for b in below(at) if isinstance(b, Expr)]


class _Body(ExprMutator):
    def __init__(self, params: Mapping[Any, Var]) -> None:
        super().__init__()
        self.memo_map.update(params)
