"""The shapes of results that depend on values, as a property of the operators (`FShapeFunc`).

    get("dyn.tile").get_attr("FShapeFunc")(attrs, [x, reps]) = [(4, 6)]      x: an array of (2, 3), reps: [2, 2]

Only operators whose relation leaves sizes open have one. What they do is in `runtime/shape_functions.py`, because a
saved program needs them where there is no compiler.
"""

from __future__ import annotations

from typing import Any

from ...runtime import shape_functions
from ...runtime.shape_functions import Shape, ShapeError, ShapeFunction
from .registry import RelayTypeError, register_op_attr

__all__ = ["SHAPE_FUNCTIONS", "Shape"]


def _refusing(work: ShapeFunction) -> ShapeFunction:
    """The function, with a refusal as the type relations have it."""

    def shapes(attrs: Any, values: list[Any]) -> list[Shape]:
        try:
            return work(attrs, values)
        except ShapeError as error:
            raise RelayTypeError(error.reason, error.argument) from None

    return shapes


SHAPE_FUNCTIONS: dict[str, ShapeFunction] = {
    name: _refusing(work) for name, work in shape_functions.SHAPE_FUNCTIONS.items()
}
for _name, _function in SHAPE_FUNCTIONS.items():
    register_op_attr(_name, "FShapeFunc", _function)
