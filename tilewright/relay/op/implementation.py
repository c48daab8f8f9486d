"""Implementations of operators by users: a compute and a te schedule of its own, chosen by priority.

    @relay.op.register_strategy("nn.dense", level=11)
    def strategy(attrs, inputs, out_type, target):
        made = relay.op.OpStrategy()
        made.add_implementation(compute, schedule, name="dense.mine", plevel=20)
        return made

`compute(attrs, inputs, out_type)` returns te tensors and `schedule(attrs, outs, target)` a te.Schedule of them.
Operators without a strategy have one compute, which the automatic scheduler schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ...ir.errors import TVMError
from ...ir.expr import PrimExpr, const_value
from ...target import GenericFunc, Target
from .computes import arith
from .registry import RelayOp, get

Schedule = Callable[[Any, list[Any], Target], Any]
Strategy = Callable[[Any, list[Any], Any, Target], "OpStrategy"]
_ATTR: Final = "FTVMStrategy"


class OpImplementation:
    """One way to compute an operator; without a schedule of its own the automatic scheduler makes one."""

    def __init__(
        self, compute: Callable[..., Any], schedule: Schedule | None, name: str = "default", plevel: int = 10
    ) -> None:
        self.fcompute, self.fschedule = compute, schedule
        self.name, self.plevel = name, int(plevel)

    @property
    def automatic(self) -> bool:
        """Whether the automatic scheduler is to schedule it."""
        return self.fschedule is None or bool(getattr(self.fschedule, "automatic", False))

    def compute(self, attrs: Any, inputs: Sequence[Any], out_type: Any) -> list[Any]:
        """The te tensors of the result."""
        return list(self.fcompute(attrs, list(inputs), out_type))

    def schedule(self, attrs: Any, outs: Sequence[Any], target: Target) -> Any:
        """The te schedule of the results."""
        from ... import te

        if self.fschedule is None:
            return te.create_schedule([t.op for t in outs])
        with target:
            return self.fschedule(attrs, list(outs), target)

    def __repr__(self) -> str:
        return f"OpImplementation({self.name!r}, plevel={self.plevel})"


class SpecializedCondition:
    """`with SpecializedCondition(n > 16): strategy.add_implementation(…)`: only where all conditions hold."""

    _active: Final[list[SpecializedCondition]] = []

    def __init__(self, conditions: Any) -> None:
        self.clauses = list(conditions) if isinstance(conditions, (list, tuple)) else [conditions]

    @staticmethod
    def current() -> SpecializedCondition | None:
        return SpecializedCondition._active[-1] if SpecializedCondition._active else None

    def __enter__(self) -> SpecializedCondition:
        self._active.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        self._active.pop()

    @property
    def holds(self) -> bool:
        """Whether all conditions are known to hold."""
        return all(_holds(c) for c in self.clauses)


def _holds(condition: Any) -> bool:
    if not isinstance(condition, PrimExpr):
        return bool(condition)
    return bool(const_value(arith.Analyzer().simplify(condition)))


class OpSpecialization:
    """The implementations that one condition allows."""

    def __init__(self, condition: SpecializedCondition | None) -> None:
        self.condition = condition
        self.implementations: list[OpImplementation] = []


class OpStrategy:
    """The implementations of an operator for a call and a target."""

    def __init__(self) -> None:
        self.specializations: list[OpSpecialization] = []

    def add_implementation(
        self,
        compute: Callable[..., Any],
        schedule: Schedule | None,
        name: str = "default",
        plevel: int = 10,
    ) -> None:
        """Add an implementation, under the condition of the current `SpecializedCondition`."""
        now = SpecializedCondition.current()
        found = next((s for s in self.specializations if s.condition is now), None)
        if found is None:
            found = OpSpecialization(now)
            self.specializations.append(found)
        found.implementations.append(OpImplementation(compute, schedule, name, plevel))

    def valid(self) -> list[OpImplementation]:
        """The implementations whose conditions hold."""
        return [
            i
            for s in self.specializations
            if s.condition is None or s.condition.holds
            for i in s.implementations
        ]


# ---------------------------------------------------------------------------- strategies of operators
def plain_implementation(op: RelayOp) -> OpImplementation:
    """The compute of the operator's declaration, scheduled automatically."""
    if op.compute is None:
        raise TVMError(
            f"the operator {op.name} has no compute; give it one with relay.op.register_compute({op.name!r}, …)"
        )
    return OpImplementation(op.compute, None, f"{op.name.rpartition('.')[2]}.generic")


def _plain_strategy(op: RelayOp) -> Strategy:
    def strategy(attrs: Any, inputs: list[Any], out_type: Any, target: Target) -> OpStrategy:
        made, own = OpStrategy(), plain_implementation(op)
        made.add_implementation(own.fcompute, own.fschedule, own.name)
        return made

    return strategy


def strategy_of(op_name: str) -> GenericFunc:
    """The strategy of an operator as a function that programs extend for keys of targets."""
    op = get(op_name)
    found = op.get_attr(_ATTR)
    if isinstance(found, GenericFunc):
        return found
    made = GenericFunc(f"{op_name}_strategy")
    made.set_default(found or _plain_strategy(op))
    op.set_attr(_ATTR, made, op.levels.get(_ATTR, 10))
    return made


def has_strategy(op: RelayOp) -> bool:
    """Whether a program gave the operator implementations of its own."""
    return op.get_attr(_ATTR) is not None


def implementations(
    op: RelayOp, attrs: Any, inputs: Sequence[Any], out_type: Any, target: Target
) -> list[OpImplementation]:
    """The implementations of a call for a target whose conditions hold."""
    strategy = op.get_attr(_ATTR)
    if strategy is None:
        return [plain_implementation(op)]
    with target:
        made = strategy(attrs, list(inputs), out_type, target)
    if not isinstance(made, OpStrategy):
        raise TVMError(f"{op.name}: its strategy returns {type(made).__name__} and must return an OpStrategy")
    found = made.valid()
    if not found:
        raise TVMError(
            f"{op.name}: its strategy has no implementation for these arguments on target {target}"
        )
    return found


def best_implementation(
    op: RelayOp, attrs: Any, inputs: Sequence[Any], out_type: Any, target: Target
) -> OpImplementation:
    """The implementation of the highest level; of equal ones the first."""
    return max(implementations(op, attrs, inputs, out_type, target), key=lambda i: i.plevel)
