"""Reductions over some dimensions, and scans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.dtype import DataType
from ..expr import Call, Expr, Tuple, TupleWrapper
from ..ty import TensorType, Type
from .attributes import flag
from .computes import topi
from .elementwise import sqrt
from .gradients import reduce as grads
from .registry import COMM_REDUCE, Dtype, Ints, Tensor, given, named, operator
from .shapes import axes_of, axis_of, product
from .traits import FOLLOW, FULL, GradientRule, Traits

__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "cumprod",
    "cumsum",
    "logsumexp",
    "max",
    "mean",
    "mean_std",
    "mean_variance",
    "min",
    "prod",
    "std",
    "sum",
    "variance",
]


def reduced_axes(attrs: Any, ndim: int) -> tuple[int, ...]:
    """The dimensions that are reduced, in order."""
    found = axes_of(attrs.axis, ndim)
    if attrs.exclude:
        found = tuple(d for d in range(ndim) if d not in found)
    return tuple(sorted(found))


def _reduced(data: TensorType, attrs: Any) -> tuple[Any, ...]:
    gone = reduced_axes(attrs, len(data.shape))
    if attrs.keepdims:
        return tuple(1 if i in gone else d for i, d in enumerate(data.shape))
    return tuple(d for i, d in enumerate(data.shape) if i not in gone)


def _rel(types: list[Any], attrs: Any) -> Type:
    return TensorType(_reduced(types[0], attrs), types[0].dtype)


def _reduction(name: str, doc: str, **traits: Any) -> Callable[..., Call]:
    """A reduction over some dimensions."""

    def compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
        axes = reduced_axes(attrs, ins[0].ndim)
        return [getattr(topi, name)(ins[0], axes, attrs.keepdims) if axes else topi.identity(ins[0])]

    def build(data: Tensor, axis: Ints = None, keepdims: bool = False, exclude: bool = False) -> Call: ...

    return operator(
        name, rel=_rel, compute=compute, pattern=COMM_REDUCE, traits=Traits(layout="reduction", **traits)
    )(named(build, name, __name__, doc))


sum = _reduction("sum", "The sum over some dimensions.", precision=FULL, gradient=grads.sum)
prod = _reduction("prod", "The product over some dimensions.", precision=FULL, gradient=grads.prod)
max = _reduction(
    "max",
    "The greatest element over some dimensions.",
    precision=FOLLOW,
    quantised="same",
    gradient=grads.extreme,
)
min = _reduction(
    "min",
    "The smallest element over some dimensions.",
    precision=FOLLOW,
    quantised="same",
    gradient=grads.extreme,
)
mean = _reduction("mean", "The average over some dimensions.", precision=FULL, gradient=grads.mean)
all = _reduction("all", "Whether all elements over some dimensions are true.")
any = _reduction("any", "Whether one element over some dimensions is true.")
logsumexp = _reduction(
    "logsumexp", "log(sum(exp(x))), without overflow.", precision=FULL, gradient=grads.logsumexp
)


def _place(name: str, which: str) -> Callable[..., Call]:
    def build(
        data: Tensor,
        axis: Ints = None,
        keepdims: bool = False,
        exclude: bool = False,
        select_last_index: bool = False,
    ) -> Call: ...

    return operator(
        name,
        rel=lambda types, attrs: TensorType(_reduced(types[0], attrs), DataType("int32")),
        compute=lambda attrs, ins, out: [
            getattr(topi, name)(
                ins[0], reduced_axes(attrs, ins[0].ndim), attrs.keepdims, attrs.select_last_index
            )
        ],
        pattern=COMM_REDUCE,
        traits=Traits(layout="reduction", precision=FULL),
    )(named(build, name, __name__, f"The position of the {which} element."))


argmax, argmin = _place("argmax", "greatest"), _place("argmin", "smallest")


# ---------------------------------------------------------------------------- composed
def _variance_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    data, mean_ = ins
    axes = reduced_axes(attrs, data.ndim)
    apart = topi.subtract(data, mean_)
    held = topi.reduction.accumulator(data.dtype)
    if held != data.dtype:  # the sum, and the number of elements, may exceed its range
        apart = topi.cast(apart, held)
    total = topi.sum(topi.multiply(apart, apart), axes, attrs.keepdims)
    count = product([int(data.shape[d]) for d in axes]) - (1 if attrs.unbiased else 0)
    average = topi.divide(total, topi.full((), held, count))
    return [average if held == data.dtype else topi.cast(average, data.dtype)]


@operator(
    "variance",
    traits=Traits(layout="reduction", precision=FULL, gradient=grads.variance),
    rel=_rel,
    compute=_variance_compute,
    pattern=COMM_REDUCE,
    inputs=("data", "mean"),
)
def variance(
    data: Tensor,
    axis: Ints = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
    with_mean: Any = None,
) -> Call:
    """The average of the squares of the distances from the average."""
    return given(mean=mean(data, axis, True, exclude) if with_mean is None else with_mean)


def std(
    data: Any, axis: Any = None, keepdims: bool = False, exclude: bool = False, unbiased: bool = False
) -> Call:
    """The square root of the variance."""
    return sqrt(variance(data, axis, keepdims, exclude, unbiased))


def mean_variance(
    data: Any, axis: Any = None, keepdims: bool = False, exclude: bool = False, unbiased: bool = False
) -> TupleWrapper:
    """The average and the variance."""
    middle = mean(data, axis, True, exclude)
    spread = variance(data, axis, keepdims, exclude, unbiased, middle)
    return _pair(middle if keepdims else mean(data, axis, False, exclude), spread)


def mean_std(data: Any, axis: Any = None, keepdims: bool = False, exclude: bool = False) -> TupleWrapper:
    """The average and the square root of the variance."""
    middle, spread = mean_variance(data, axis, keepdims, exclude).astuple().children()
    return _pair(middle, sqrt(spread))


def _pair(first: Expr, second: Expr) -> TupleWrapper:
    return TupleWrapper(Tuple([first, second]), 2)


# ---------------------------------------------------------------------------- scans
def _scan_rel(types: list[Any], attrs: Any) -> Type:
    kind = attrs.dtype or types[0].dtype
    if attrs.axis is None:
        return TensorType((product(types[0].shape),), kind)
    axis_of(attrs.axis[0], len(types[0].shape))
    return TensorType(types[0].shape, kind)


def _scan(name: str, what: str, gradient: GradientRule) -> Callable[..., Call]:
    def build(data: Tensor, axis: Ints = None, dtype: Dtype = None, exclusive: bool | None = None) -> Call:
        return given(exclusive=bool(exclusive))

    return operator(
        name,
        attrs={"exclusive": flag(False)},
        rel=_scan_rel,
        compute=lambda attrs, ins, out: [
            getattr(topi, name)(
                ins[0], None if attrs.axis is None else attrs.axis[0], attrs.dtype, attrs.exclusive
            )
        ],
        traits=Traits(precision=FULL, gradient=gradient),
    )(named(build, name, __name__, f"The {what} of all elements up to each one."))


cumsum, cumprod = _scan("cumsum", "sums", grads.cumsum), _scan("cumprod", "products", grads.cumprod)
