"""Properties of operators for passes, besides type and compute.

A pass reads `traits_of(call).view` and has no list of names: a new operator takes part by its declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

# The gradients of the arguments of a call, from the call and the gradient of its result: see gradients/.
GradientRule = Callable[[Any, Any], Sequence[Any]]

# Precision: a smaller float type always, where what is read was converted, never.
SMALL, FOLLOW, FULL = "small", "follow", "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The properties of an operator; each names the passes that read it."""

    # The result has the elements of the first input in the same order, under another shape: no kernel is needed.
    view: bool = False
    # Indices of the result are split or merged to compute the index that is read (FuseOps).
    rearranges: bool = False
    # FuseOps: (types of the arguments, attributes) -> the numbers of arguments whose elements are read at most once,
    # which may be computed where they are read.
    reads_once: Callable[[Sequence[Any], Any], tuple[int, ...]] | None = None
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
    # points; or the name of the operator to take. relay.quantize has an integer form for "same" and all products.
    quantised: str = ""
    # FastMath: the faster and less accurate operator.
    fast: str = ""
    # SimplifyExpr: the identity on the right (with `commutes`, on either side).
    neutral: float | None = None
    commutes: bool = False
    # SimplifyExpr: f(f(x)) is f(x), or x.
    idempotent: bool = False
    involution: bool = False
    # SimplifyExpr: the value of all elements of the result.
    fill: int | None = None
    # Offload: the operations of an accelerator's vector unit that compute it, element by element.
    vector: tuple[str, ...] = ()
    # Gradient: the gradients of the arguments, as expressions of other operators.
    gradient: GradientRule | None = None
    # FoldSizes: the input that lists the sizes of the result, an attribute of the operator without `dyn.`.
    sizes: str = ""
    # FuseOps: the value itself. No kernel spans both sides, and none is needed for it.
    barrier: bool = False
    # InferType: (type of the first input, attributes) -> types of the others, for variables that have none.
    weights: Callable[[Any, Any], Sequence[Any]] | None = None


NONE: Final = Traits()


def traits_of(expr: Any) -> Traits:
    """The traits of the operator that a call applies; none for anything else."""
    return getattr(getattr(expr, "op", None), "traits", NONE)


def is_regular(op: Any) -> bool:
    """Whether each element of the result depends only on those at the same index, in any shape: no axis attribute."""
    return op.inputs == ("lhs", "rhs") or (op.pattern == 0 and op.inputs is not None and len(op.inputs) == 1)
