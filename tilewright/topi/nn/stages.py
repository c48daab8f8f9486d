"""The stages that normalisations are made of: reductions over axes, mean and spread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import te
from ...ir import ops
from ...ir.dtype import DataType
from ...ir.expr import PrimExpr
from .. import tag
from ..utils import fail, injective, prod, same_size, tensor_arg

Read = Callable[..., PrimExpr]


def float_tensor(operator_name: str, argument: str, value: Any) -> te.Tensor:
    """`value`, which must be a tensor of floats."""
    data = tensor_arg(operator_name, argument, value)
    if not data.dtype.is_float:
        raise fail(operator_name, f"{argument} is {data.dtype} and must be of a float type", "cast it first")
    return data


def wide_type(dtype: DataType) -> DataType:
    """The accumulator type: 32 bits for 16-bit floats and smaller ones, else the same type."""
    return DataType("float32") if dtype.is_float and dtype.bits < 32 else dtype


def wide(value: PrimExpr) -> PrimExpr:
    """A value in the accumulator type."""
    return ops.cast(wide_type(value.dtype), value)


def keep(items: Sequence[Any], axes: Sequence[int]) -> tuple[Any, ...]:
    """Those whose position is none of `axes`."""
    return tuple(x for i, x in enumerate(items) if i not in axes)


def along(
    operator_name: str, argument: str, value: Any, data: te.Tensor, axes: Sequence[int]
) -> te.Tensor | None:
    """A scale or offset (or None), whose dimensions must be those of `data` at `axes`."""
    if value is None:
        return None
    given = tensor_arg(operator_name, argument, value)
    wanted = tuple(data.shape[a] for a in axes)
    if len(given.shape) != len(wanted) or not all(map(same_size, given.shape, wanted)):
        shape, size = (f"({', '.join(map(str, s))})" for s in (given.shape, wanted))
        raise fail(
            operator_name, f"{argument} has shape {shape} where `{data.name}` along {tuple(axes)} has {size}"
        )
    return given


def reduced(
    name: str, shape: Sequence[Any], axes: Sequence[int], reducer: Callable[..., Any], read: Read
) -> te.Tensor:
    """The stage `name`: what `read(*point)` reduces to over `axes` of `shape`, for the dimensions left."""
    ks = {a: te.reduce_axis((0, shape[a]), f"k{a}") for a in sorted(axes)}

    def element(*at: Any) -> PrimExpr:
        rest = iter(at)
        point = [ks[a].var if a in ks else next(rest) for a in range(len(shape))]
        return reducer(read(*point), axis=list(ks.values()))

    return injective(name, keep(shape, axes), element, tag.COMM_REDUCE, name)


def mean_and_variance(
    name: str, shape: Sequence[Any], axes: Sequence[int], read: Read
) -> tuple[te.Tensor, te.Tensor]:
    """Mean and variance of what `read(*point)` gives over `axes`, in two passes.

        sum -> mean -> sum of (x - mean)² -> variance

    The second pass measures from the mean: E[x²] - E[x]² would lose all digits where the mean is large.
    """
    total = reduced(f"{name}_sum", shape, axes, te.sum, read)
    size = ops.cast(total.dtype, prod(shape[a] for a in axes))
    mean = injective(name, total.shape, lambda *i: total(*i) / size, tag.ELEMWISE, f"{name}_mean")

    def square(*i: Any) -> PrimExpr:
        off = read(*i) - mean(*keep(i, axes))
        return off * off

    squares = reduced(f"{name}_square_sum", shape, axes, te.sum, square)
    return mean, injective(name, total.shape, lambda *i: squares(*i) / size, tag.ELEMWISE, f"{name}_variance")


def rstd(name: str, variance: te.Tensor, epsilon: float) -> te.Tensor:
    """1 / sqrt(variance + epsilon)."""
    eps = te.const(epsilon, variance.dtype)
    return injective(
        name, variance.shape, lambda *i: te.rsqrt(variance(*i) + eps), tag.ELEMWISE, f"{name}_rstd"
    )


def mean_and_rstd(
    name: str, shape: Sequence[Any], axes: Sequence[int], read: Read, epsilon: float
) -> tuple[te.Tensor, te.Tensor]:
    """Mean and 1 / sqrt(variance + epsilon) of what `read(*point)` gives over `axes`."""
    mean, variance = mean_and_variance(name, shape, axes, read)
    return mean, rstd(name, variance, epsilon)
