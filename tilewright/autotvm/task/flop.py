"""The number of operations of a tensor program, counted in its expressions."""

from __future__ import annotations

import math
from typing import Any

from ...te.tensor import ComputeOp, ExternOp, PlaceholderOp
from ...tune.arguments import get_const_int
from ...tune.flops import FlopCalculationError, operations

__all__ = ["FlopCalculationError", "compute_flop"]


def compute_flop(sch: Any) -> int:
    """The operations of a te schedule, of all of its stages."""
    total, waiting, seen = 0, list(sch.outputs), set()
    while waiting:
        op = waiting.pop()
        if op in seen:
            continue
        seen.add(op)
        waiting += [t.op for t in op.input_tensors]
        if isinstance(op, ComputeOp):
            try:
                points = math.prod(get_const_int(d) for d in op.output_shape(0))
                total += points * operations(op.body[0], lambda e: 1)
            except (ValueError, FlopCalculationError) as error:
                raise FlopCalculationError(
                    f"the operations of {op.name} cannot be counted: {error}; give their number: cfg.add_flop(n)"
                ) from None
        elif isinstance(op, ExternOp):
            raise FlopCalculationError(
                f"the operations of {op.name}, an extern, cannot be counted: give their number: cfg.add_flop(n)"
            )
        elif not isinstance(op, PlaceholderOp):
            raise FlopCalculationError(f"{op.name}: operations of {type(op).__name__} are not counted")
    if total == 0:
        raise FlopCalculationError("the program computes nothing that could be counted: use cfg.add_flop(n)")
    return total
