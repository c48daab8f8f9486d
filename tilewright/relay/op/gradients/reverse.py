"""Reverse mode over a graph: gradients are passed from the result back to the sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from ....ir.errors import TVMError
from ...expr import Call, Expr, Tuple, TupleGetItem
from ...ty import TensorType, TupleType
from ...visitor import flow_inputs, in_order
from ..computes import R
from ..registry import RelayOp

# The gradient of a value: an expression; a list for a tuple; None if it is zero.
Adjoint: TypeAlias = Any


def has_floats(kind: Any) -> bool:
    """Whether a value of this type can have a gradient."""
    if isinstance(kind, TupleType):
        return any(map(has_floats, kind.fields))
    return isinstance(kind, TensorType) and kind.dtype.is_float


def added(a: Adjoint, b: Adjoint) -> Adjoint:
    """The sum of two gradients of the same value."""
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, list):
        return [added(x, y) for x, y in zip(a, b, strict=True)]
    return R.add(a, b)


def as_adjoint(value: Any, kind: Any) -> Adjoint:
    """A gradient as a rule returns it, with a tuple as the list of its fields."""
    if value is None or not isinstance(kind, TupleType):
        return value
    if isinstance(value, Expr) and not isinstance(value, Tuple):
        fields: Any = [TupleGetItem(value, i) for i in range(len(kind.fields))]
    else:
        fields = value
    return [as_adjoint(v, k) for v, k in zip(fields, kind.fields, strict=True)]


def as_value(adjoint: Adjoint, of: Any, kind: Any) -> Expr:
    """A gradient as one expression, with zeros where it is None."""
    if isinstance(kind, TupleType):
        parts = adjoint or [None] * len(kind.fields)
        return Tuple(
            [as_value(p, TupleGetItem(of, i), k) for i, (p, k) in enumerate(zip(parts, kind.fields))]
        )
    if adjoint is not None:
        return adjoint  # type: ignore[no-any-return]
    return filled(0, of, kind)


def filled(value: int, like: Any, kind: Any) -> Expr:
    """Zeros or ones with the type of an expression."""
    if all(isinstance(d, int) for d in kind.shape):
        return (R.ones if value else R.zeros)(kind.shape, str(kind.dtype))
    return (R.ones_like if value else R.zeros_like)(like)


class Reverse:
    """A walk over the values of a graph from the last to the first."""

    def inputs(self, at: Any) -> Iterable[Any]:
        """The values that a value is computed from."""
        return flow_inputs(at)

    def run(
        self, order: Iterable[Any], seeds: Mapping[Any, Adjoint], sources: Iterable[Any]
    ) -> dict[Any, Adjoint]:
        """The gradients of the sources, given those of some results; `order` has inputs before users."""
        active = set(sources)
        ends = frozenset(active)
        steps = []
        for at in order:
            if at not in active and any(b in active for b in self.inputs(at)) and has_floats(self.kind(at)):
                active.add(at)
                steps.append(at)
        found: dict[Any, Adjoint] = {at: seed for at, seed in seeds.items() if at in active}
        for at in reversed(steps):
            adjoint = found.pop(at, None)
            if adjoint is None or at in ends:
                continue
            for below, part in self.passed(at, adjoint):
                if part is not None and below in active:
                    found[below] = added(found.get(below), part)
        return {at: found.get(at) for at in ends}

    def kind(self, at: Any) -> Any:
        return at.checked_type

    def passed(self, at: Any, adjoint: Adjoint) -> list[tuple[Any, Adjoint]]:
        """What a value passes to its inputs."""
        if at.__class__ is Tuple:
            return list(zip(at.fields, adjoint, strict=True))
        if at.__class__ is TupleGetItem:
            whole: list[Adjoint] = [None] * len(at.tuple_value.checked_type.fields)
            whole[at.index] = adjoint
            return [(at.tuple_value, whole)]
        assert at.__class__ is Call and isinstance(at.op, RelayOp), at
        return by_rule(at, adjoint)


def by_rule(at: Call, adjoint: Adjoint) -> list[tuple[Any, Adjoint]]:
    """The gradients of the arguments, by the rule of the operator."""
    name, rule = at.op.name, at.op.traits.gradient
    place = f"\n  at {at.span}" if at.span is not None else ""
    if rule is None:
        raise TVMError(
            f"gradient: the operator {name} has none; give it one with relay.op.register_gradient({name!r}, rule), "
            f"where rule(call, grad) returns the gradient of each argument{place}"
        )
    made = rule(at, as_value(adjoint, at, at.checked_type))
    if len(made) != len(at.args):
        raise TVMError(
            f"gradient: the rule of {name} returns {len(made)} gradients for {len(at.args)} arguments{place}"
        )
    return [(a, as_adjoint(m, a.checked_type)) for a, m in zip(at.args, made, strict=True)]


def pulled_back(root: Any, seed: Adjoint, sources: Iterable[Any]) -> dict[Any, Adjoint]:
    """The gradients of the sources of a typed graph, given that of its result."""
    walk = Reverse()
    return walk.run(in_order(root, walk.inputs), {root: seed}, sources)
