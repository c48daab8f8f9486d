"""Tensors made from sizes and numbers, and sizes as tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..expr import Call, Expr, TupleWrapper, const
from ..ty import TensorType, TupleType, Type
from . import dyn
from .arguments import is_computed
from .attributes import dtype
from .computes import topi
from .gradients import rearrange as grads
from .gradients.parts import constant
from .registry import (
    ELEMWISE,
    INJECTIVE,
    Dtype,
    Sizes,
    Tensor,
    Tensors,
    Value,
    given,
    named,
    operator,
    refuse,
)
from .shapes import need_fields, need_one_of, same_rel
from .traits import FOLLOW, FULL, Traits

__all__ = [
    "arange",
    "full",
    "full_like",
    "meshgrid",
    "ndarray_size",
    "ones",
    "ones_like",
    "shape_of",
    "zeros",
    "zeros_like",
]


# ---------------------------------------------------------------------------- filled
def _filled(name: str, value: int, dynamic: Callable[..., Call]) -> Callable[[Any, Any], Call]:
    def build(shape: Sizes, dtype: Dtype) -> Call: ...

    return operator(
        name,
        attrs={"dtype": dtype("float32")},
        rel=lambda types, attrs: TensorType(attrs.shape, attrs.dtype),
        compute=lambda attrs, ins, out: [topi.full(out.shape, out.dtype, value)],
        pattern=ELEMWISE,
        traits=Traits(precision=FULL, fill=value),
        dynamic=dynamic,
    )(named(build, name, __name__, f"A tensor of {name}."))


zeros, ones = _filled("zeros", 0, dyn.zeros), _filled("ones", 1, dyn.ones)


def _like(name: str, value: int) -> Callable[[Any], Call]:
    def build(data: Tensor) -> Call: ...

    return operator(
        name,
        rel=same_rel,
        compute=lambda attrs, ins, out: [topi.full_like(ins[0], value)],
        pattern=ELEMWISE,
        traits=Traits(precision=FOLLOW, fill=value, gradient=constant),
    )(named(build, name, __name__, f"A tensor of the shape and type of `data`, filled with {value}."))


zeros_like, ones_like = _like("zeros_like", 0), _like("ones_like", 1)


def _full_rel(types: list[Any], attrs: Any) -> Type:
    if types[0].shape:
        raise refuse(f"must have no dimensions and is {types[0]}", "fill_value")
    return TensorType(attrs.shape, attrs.dtype or types[0].dtype)


@operator(
    "full",
    traits=Traits(precision=FULL, gradient=grads.full),
    rel=_full_rel,
    compute=lambda attrs, ins, out: [topi.full(out.shape, out.dtype, ins[0]())],
    pattern=ELEMWISE,
    dynamic=dyn.full,
)
def full(fill_value: Tensor, shape: Sizes = (), dtype: Dtype = "") -> Call:
    """A tensor filled with one value, itself a tensor without dimensions."""
    return given(fill_value=fill_value if isinstance(fill_value, Expr) else const(fill_value, dtype or None))


def _full_like_rel(types: list[Any], attrs: Any) -> Type:
    if types[1].shape:
        raise refuse(f"must have no dimensions and is {types[1]}", "fill_value")
    return types[0]


@operator(
    "full_like",
    traits=Traits(precision=FULL, gradient=grads.full_like),
    rel=_full_like_rel,
    compute=lambda attrs, ins, out: [topi.full_like(ins[0], ins[1]())],
    pattern=ELEMWISE,
)
def full_like(data: Tensor, fill_value: Tensor) -> Call:
    """A tensor of the shape and type of `data`, filled with one value."""


# ---------------------------------------------------------------------------- counted
def _arange_count(attrs: Any) -> int:
    if attrs.step == 0:
        raise refuse("is 0", "step")
    import math

    return max(0, math.ceil((attrs.stop - attrs.start) / attrs.step))


@operator(
    "arange",
    traits=Traits(precision=FULL),
    rel=lambda types, attrs: TensorType((_arange_count(attrs),), attrs.dtype),
    compute="arange",
    pattern=INJECTIVE,
)
def arange(start: Value, stop: Value = None, step: Value = 1, dtype: Dtype = "float32") -> Call:
    """Numbers from `start` on in equal steps, `stop` not included."""
    first, last = (0, start) if stop is None else (start, stop)
    if any(map(is_computed, (first, last, step))):
        return dyn.arange(first, last, step, dtype)
    return given(start=first, stop=last)


def _meshgrid_rel(types: list[Any], attrs: Any) -> Type:
    fields = need_fields(types[0])
    need_one_of(attrs.indexing, ("ij", "xy"), "indexing")
    sizes = []
    for i, kind in enumerate(fields):
        if len(kind.shape) > 1:
            raise refuse(f"must have one dimension and is {kind}", f"data[{i}]")
        sizes.append(kind.shape[0] if kind.shape else 1)
    if attrs.indexing == "xy":
        sizes[:2] = sizes[1::-1]
    return TupleType(tuple(TensorType(sizes, kind.dtype) for kind in fields))


def _grids(call: Any) -> int:
    return len(call.args[0].fields)


@operator(
    "meshgrid",
    traits=Traits(rearranges=True, gradient=grads.meshgrid),
    rel=_meshgrid_rel,
    compute=lambda attrs, ins, out: topi.meshgrid(ins, attrs.indexing),
    pattern=INJECTIVE,
    results=_grids,
)
def meshgrid(data: Tensors, indexing: str = "ij") -> TupleWrapper:
    """The coordinates of all points of a grid, a tensor for each axis."""


# ---------------------------------------------------------------------------- sizes
def _shape_rel(types: list[Any], attrs: Any) -> Type:
    return TensorType((len(types[0].shape),), attrs.dtype)


@operator("shape_of", traits=Traits(precision=FULL), rel=_shape_rel, compute="shape")
def shape_of(data: Tensor, dtype: Dtype = "int32") -> Call:
    """The sizes of a tensor, as a tensor."""


@operator(
    "ndarray_size",
    traits=Traits(precision=FULL),
    rel=lambda types, attrs: TensorType((), attrs.dtype),
    compute="ndarray_size",
)
def ndarray_size(data: Tensor, dtype: Dtype = "int32") -> Call:
    """The number of elements of a tensor, as a tensor without dimensions."""
