"""Scans: blocks that declare by annotations that each element of their result is the combination of all elements of
their operand so far, along one dimension."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from . import ops
from .buffer import Buffer
from .dtype import DataType
from .expr import PrimExpr, const, const_value
from .stmt import Block

__all__ = ["OPERATORS", "Operator", "Scan", "scan_attrs", "scan_of"]


@dataclass(frozen=True)
class Operator:
    """An associative and commutative operator, and its identity."""

    combine: Callable[[Any, Any], PrimExpr]
    identity: int


OPERATORS: Final[Mapping[str, Operator]] = {"add": Operator(ops.add, 0), "mul": Operator(ops.mul, 1)}

_OPERATOR, _AXIS, _EXCLUSIVE, _HELD = "scan", "scan_axis", "scan_exclusive", "scan_dtype"


@dataclass(frozen=True)
class Scan:
    """A scan of `source` into `target`, whose shape as a view is (outer, n, inner); `held` is the type of the
    combinations. `exclusive` ones leave out the element itself."""

    operator: Operator
    exclusive: bool
    held: DataType
    source: Buffer
    target: Buffer
    outer: PrimExpr
    n: PrimExpr
    inner: PrimExpr

    @property
    def sizes(self) -> tuple[int | None, int | None, int | None]:
        """The constant sizes of the view, None where one is dynamic."""
        found = [const_value(x) for x in (self.outer, self.n, self.inner)]
        outer, n, inner = (None if x is None else int(x) for x in found)
        return outer, n, inner


def scan_attrs(combine: Any, identity: Any, axis: int, exclusive: bool, held: DataType) -> dict[str, Any]:
    """The annotations of a block that scans its only operand along a dimension of its result, in row-major order if the
    operand has another rank; none for an operator that is not known to be associative."""
    name = next((n for n, o in OPERATORS.items() if o.combine is combine and o.identity == identity), None)
    if name is None:
        return {}
    return {_OPERATOR: name, _AXIS: axis, _EXCLUSIVE: int(exclusive), _HELD: str(held)}


def scan_of(block: Block) -> Scan | None:
    """The scan that a block is, if it declares one."""
    said = block.annotations
    if _OPERATOR not in said or len(block.reads) != 1 or len(block.writes) != 1:
        return None
    name, axis, exclusive, held = (_plain(said[k]) for k in (_OPERATOR, _AXIS, _EXCLUSIVE, _HELD))
    source, target = block.reads[0].buffer, block.writes[0].buffer
    if source.strides or target.strides or name not in OPERATORS:
        return None
    shape = target.shape
    outer, inner = _size(shape[:axis]), _size(shape[axis + 1 :])
    operator = OPERATORS[name]
    return Scan(operator, bool(exclusive), DataType(held), source, target, outer, shape[axis], inner)


def _plain(value: Any) -> Any:
    """An annotation that a script or a file of schedules may hold as a node."""
    return getattr(value, "value", value)


def _size(shape: tuple[PrimExpr, ...]) -> PrimExpr:
    sizes = [const_value(x) for x in shape]
    if all(x is not None for x in sizes):
        return const(math.prod(int(x or 0) for x in sizes), shape[0].dtype if shape else "int32")
    out = shape[0]
    for x in shape[1:]:
        out = ops.mul(out, x)
    return out
