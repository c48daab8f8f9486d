"""Loop and Scan with a dynamic trip count: a loop of the program (`common/loops.py`) over the values of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...expr import Constant, Expr, Var
from ..common import loops
from ..common.loops import MOST as MOST
from ..common.loops import MOST_WRITTEN as MOST_WRITTEN
from ..common.loops import Turn, as_variable
from .context import NeedsValue, Node, Value
from .survey import names_read


@dataclass(slots=True)
class Step:
    """The results of one iteration: whether to continue, the state, the collected rows."""

    going: Value | None
    states: list[Value]
    rows: list[Value]


Body = Callable[[Value, list[Value]], Step]  # of the turn's number and the state


def run_time_loop(n: Node, first: Sequence[Value | None], going: Expr, count: Expr | None, body: Body) -> Any:
    """The last state and the collected rows of a loop that runs while `going`, at most `count` times."""
    begin = [_state(n, v) for v in first]
    last: list[Value] = []

    def turn(number: Expr, states: list[Expr]) -> Turn:
        step = body(Value(number), [Value(e, elem=b.elem) for e, b in zip(states, begin, strict=True)])
        last[:] = step.rows
        made = [_state(n, v).expr for v in step.states]
        return Turn(None if step.going is None else step.going.expr, made, [v.expr for v in step.rows])

    with _Around(n) as around:
        made = loops.run_time_loop([v.expr for v in begin], going, count, turn, around.made)
        return [Value(e, elem=v.elem) for e, v in zip(made, (*begin, *last), strict=True)]


def nodes_of(graph: Any) -> int:
    """The number of nodes of an iteration, with those of nested graphs."""
    inner = (a.g for node in graph.node for a in node.attribute if a.HasField("g"))
    return len(graph.node) + sum(map(nodes_of, inner))


def given(n: Node, value: Value | None) -> Value:
    """A result of the body, which must be there."""
    if value is None:
        raise n.refuse("its body returns an optional without a value")
    return value


def outside(n: Node, name: str) -> Expr:
    """An input of the node, as seen by the body of its loop."""
    return given(n, n.importer.scopes[-1][name]).expr


def _state(n: Node, value: Value | None) -> Value:
    if value is None or value.items is not None:
        error = NeedsValue("its state has sequences or optionals: its trip count must be known at import")
        error.tensor = next((name for name in n.proto.input[:2] if name), "")
        raise error
    return value


class _Around:
    """The names that the body reads, as variables."""

    def __init__(self, n: Node) -> None:
        self.n = n
        self.made: dict[Var, Expr] = {}

    def __enter__(self) -> _Around:
        scopes = self.n.importer.scopes
        inner = dict(scopes[-1])
        for name in names_read(self.n.proto):
            if name in inner:
                inner[name] = self.outside(name, inner[name])
        scopes.append(inner)
        return self

    def __exit__(self, *_: object) -> None:
        self.n.importer.scopes.pop()

    def outside(self, name: str, value: Value | None) -> Value | None:
        if value is None or (value.known is not None and not value.symbolic):
            return value
        if value.items is not None:
            return Value(items=[v for item in value.items if (v := self.outside(name, item)) is not None])
        if isinstance(value._expr, (Var, Constant)):
            return value

        def later() -> Expr:
            var = as_variable(name, value.expr)
            self.made[var] = value.expr
            return var

        seen = Value(known=value.known, later=later, elem=value.elem)
        seen.kind = value.kind
        return seen
