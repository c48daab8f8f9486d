"""Partitioning: matched subgraphs become functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...ir.op import Op
from ..analysis import post_order
from ..analysis.walks import users_of
from ..expr import Call, Constant, Expr, Function, Tuple, Var
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

    A subgraph with an intermediate value that is used outside is unchanged, and so is one that `check` refuses.
    Constants move into the function.
    """
    order = post_order(expr)
    users = users_of(order)
    taken: set[Any] = set()
    groups: dict[Any, set[Any]] = {}
    for at in order:
        attempt = Matcher()
        if not isinstance(at, Expr) or not attempt.match(pattern, at):
            continue
        inside = _inside(attempt.found)
        if inside & taken or at not in inside or not check(at):
            continue
        if any(n is not at and any(u not in inside for u in users.get(n, ())) for n in inside):
            continue
        taken |= inside
        groups[at] = inside
    return _Partition(groups, dict(attrs or {})).visit(expr) if groups else expr


def _inside(found: Mapping[DFPattern, list[Any]]) -> set[Any]:
    """The expressions that the pattern constrains; wildcards are inputs."""
    out: set[Any] = set()
    for p, exprs in found.items():
        leaf = p
        while isinstance(leaf, _Narrowed):
            leaf = leaf.pattern
        if isinstance(leaf, (WildcardPattern, VarPattern, ExprPattern, ConstantPattern)) and len(exprs) == 1:
            continue
        out.update(e for e in exprs if isinstance(e, Expr) and not isinstance(e, (Var, Constant)))
    return out


class _Partition(ExprMutator):
    def __init__(self, groups: dict[Any, set[Any]], attrs: dict[str, Any]) -> None:
        super().__init__()
        self.groups, self.attrs = groups, attrs
        self.count = 0

    def dispatch(self, expr: Any) -> Any:
        inside = self.groups.get(expr)
        if inside is None:
            return super().dispatch(expr)
        inputs = _inputs(expr, inside)
        params = {e: _param(e, self.count, i) for i, e in enumerate(inputs)}
        self.count += 1
        names = [
            e.op.name
            for e in post_order(expr)
            if e in inside and isinstance(e, Call) and isinstance(e.op, Op)
        ]
        body = _Body(params).visit(expr)
        attrs = {"PartitionedFromPattern": "".join(f"{n}_" for n in names), **self.attrs}
        made = Function(list(params.values()), body, None, None, attrs)
        return Call(made, [self.visit(e) for e in inputs])


def _param(expr: Any, group: int, i: int) -> Var:
    return Var(f"FunctionVar_{group}_{i}", expr._checked_type)


def _inputs(root: Any, inside: set[Any]) -> list[Any]:
    """The inputs of the subgraph, in order of appearance."""
    out: dict[Any, None] = {}
    seen: set[Any] = set()
    stack: list[Any] = [root]
    while stack:
        at = stack.pop()
        if at in seen:
            continue
        seen.add(at)
        if at in inside:
            stack.extend(reversed(flow_inputs(at) or tuple(_under(at))))
        elif isinstance(at, Tuple) and not at.fields:
            continue
        elif not isinstance(at, Constant):
            out[at] = None
    return list(out)


def _under(at: Any) -> list[Any]:
    return [] if isinstance(at, Function) else [b for b in below(at) if isinstance(b, Expr)]


class _Body(ExprMutator):
    def __init__(self, params: Mapping[Any, Var]) -> None:
        super().__init__()
        self.memo_map.update(params)
