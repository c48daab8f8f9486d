"""What passes know of an operator besides its type and its compute.

A pass asks `traits_of(call).view` and keeps no list of names: a new operator takes part as its declaration says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

__all__ = ["FOLLOW", "FULL", "SMALL", "Traits", "is_regular", "traits_of"]

# Precision: a smaller float type always, where what is read was converted, never.
SMALL, FOLLOW, FULL = "small", "follow", "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The properties of an operator; each names the passes that read it."""

    # The result has the elements of the first input in the same order, under another shape: no kernel is needed.
    view: bool = False
    # Indices of the result are split into parts, or parts joined, to find the place that is read (FuseOps).
    rearranges: bool = False
    # A product with weights, or of matrices: FoldScaleAxis, FakeQuantizationToInteger, UseTensorCores, DelayReshape.
    product: bool = False
    # Another layout (ConvertLayout): "axis" one axis that an attribute names; "attribute" an attribute `layout`;
    # "reduction" some axes; "conversion" scales along an axis; "pair" two tensors and their scales.
    layout: str = ""
    # ToMixedPrecision: SMALL, FOLLOW or FULL. Operators that move or broadcast follow unless they say otherwise.
    precision: str = ""
    # FoldScaleAxis: f(x * s) = f(x) * s for "linear" any factor of channels, for "positive" a positive one.
    scale: str = ""
    # FakeQuantizationToInteger: "same" the operator itself on integers; "centred" on integers less their zero
    # points; or the name of the operator to take.
    quantised: str = ""
    # FastMath: the operator that is quicker and less exact.
    fast: str = ""
    # SimplifyExpr: what may stand on the right (where `commutes`, on either side) and changes nothing.
    neutral: float | None = None
    commutes: bool = False
    # SimplifyExpr: f(f(x)) is f(x), or x.
    idempotent: bool = False
    involution: bool = False
    # SimplifyExpr: the number that all elements of the result are.
    fill: int | None = None
    # FoldSizes: the input that lists the sizes of the result, an attribute of the operator without `dyn.`.
    sizes: str = ""


NONE: Final = Traits()


def traits_of(expr: Any) -> Traits:
    """The traits of the operator that a call applies; none for anything else."""
    return getattr(getattr(expr, "op", None), "traits", NONE)


def is_regular(op: Any) -> bool:
    """Whether each element of the result is made from those at its place, in whatever shape: no axis has a number."""
    return op.inputs == ("lhs", "rhs") or (op.pattern == 0 and op.inputs is not None and len(op.inputs) == 1)
