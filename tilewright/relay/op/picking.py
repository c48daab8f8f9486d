"""Operators that pick elements by their places: take, gather, and places as vectors of one and zeros."""

from __future__ import annotations

from typing import Any

from ..expr import Call
from ..ty import TensorType, Type
from . import dyn
from .computes import topi
from .registry import Dtype, OpPattern, Place, Tensor, dtype, integer, operator, refuse
from .shapes import axis_of, is_known, product

__all__ = ["gather", "gather_nd", "one_hot", "take"]

INJECTIVE = OpPattern.INJECTIVE


def _take_rel(types: list[Any], attrs: Any) -> Type:
    data, indices = types
    if attrs.axis is None:
        return TensorType(indices.shape, data.dtype)
    at = axis_of(attrs.axis, len(data.shape))
    batch = attrs.batch_dims + (len(indices.shape) if attrs.batch_dims < 0 else 0)
    if not 0 <= batch <= min(at, len(indices.shape)):
        raise refuse(f"is {attrs.batch_dims}, with axis {at} and indices {indices}", "batch_dims")
    return TensorType([*data.shape[:at], *indices.shape[batch:], *data.shape[at + 1 :]], data.dtype)


def kind_of(attrs: Any) -> str:
    """What an index may be: from the end as well, unless `negative` says otherwise."""
    return "index" if attrs.negative else "position"


def _take_places(types: list[Any], attrs: Any) -> list[Place]:
    if attrs.mode != "fast":  # the others say what an index outside means
        return []
    if attrs.axis is None:
        return [Place(1, kind_of(attrs), sizes=(product(types[0].shape),))]
    return [Place(1, kind_of(attrs), 0, (axis_of(attrs.axis, len(types[0].shape)),))]


@operator(
    "take",
    rel=_take_rel,
    compute=lambda attrs, ins, out: [topi.take(ins[0], ins[1], attrs.axis, attrs.batch_dims, attrs.mode)],
    pattern=INJECTIVE,
    places=_take_places,
)
def take(
    data: Tensor,
    indices: Tensor,
    axis: int | None = None,
    batch_dims: int = 0,
    mode: str = "clip",
    negative: bool = True,
) -> Call:
    """The slices along `axis` that `indices` names.

    An index outside is the nearest inside (mode "clip"), counts around ("wrap") or gives NaN ("nan"); with mode "fast"
    a negative one counts from the end (unless `negative` is False: then it is outside), and one outside is an error,
    which `config.data_check` may leave unchecked.
    """


def _gather_rel(types: list[Any], attrs: Any) -> Type:
    data, indices = types
    axis_of(attrs.axis, len(data.shape))
    if len(data.shape) != len(indices.shape):
        raise refuse(f"is {indices} and data is {data}: they need the same number of dimensions", "indices")
    return TensorType(indices.shape, data.dtype)


@operator(
    "gather",
    attrs={"axis": integer(0)},
    rel=_gather_rel,
    compute=lambda attrs, ins, out: [topi.gather(ins[0], attrs.axis, ins[1])],
    pattern=INJECTIVE,
    places=lambda types, attrs: [Place(1, kind_of(attrs), 0, (axis_of(attrs.axis, len(types[0].shape)),))],
)
def gather(data: Tensor, axis: int, indices: Tensor, negative: bool = True) -> Call:
    """For each element of `indices`, the element of `data` at that place along `axis`; `negative` as of `take`."""


def _gather_nd_rel(types: list[Any], attrs: Any) -> Type:
    data, indices = types
    if not indices.shape or not is_known(indices.shape[0]):
        raise refuse(f"is {indices}; how many coordinates it has must be known", "indices")
    count, batch = indices.shape[0], attrs.batch_dims
    if count + batch > len(data.shape):
        raise refuse(f"has {count} coordinates after {batch} batch dimensions, and data is {data}", "indices")
    return TensorType([*indices.shape[1:], *data.shape[count + batch :]], data.dtype)


@operator(
    "gather_nd",
    rel=_gather_nd_rel,
    compute=lambda attrs, ins, out: [topi.gather_nd(ins[0], ins[1], attrs.batch_dims)],
    pattern=INJECTIVE,
    places=lambda types, attrs: [
        Place(1, "index", 0, tuple(attrs.batch_dims + c for c in range(types[1].shape[0])))
    ],
)
def gather_nd(data: Tensor, indices: Tensor, batch_dims: int = 0, index_rank: int | None = None) -> Call:
    """The slices at the points whose coordinates are the columns of `indices`."""


def _one_hot_rel(types: list[Any], attrs: Any) -> Type:
    shape = types[0].shape
    at = len(shape) if attrs.axis == -1 else axis_of(attrs.axis, len(shape) + 1)
    return TensorType([*shape[:at], attrs.depth, *shape[at:]], attrs.dtype)


@operator(
    "one_hot",
    attrs={"axis": integer(-1), "dtype": dtype("float32")},
    rel=_one_hot_rel,
    compute=lambda attrs, ins, out: [
        topi.one_hot(ins[0], ins[1](), ins[2](), attrs.depth, attrs.axis, attrs.dtype)
    ],
    pattern=INJECTIVE,
    dynamic=dyn.one_hot,
)
def one_hot(
    indices: Tensor, on_value: Tensor, off_value: Tensor, depth: int, axis: int, dtype: Dtype
) -> Call:
    """`on_value` at the places that `indices` names along a new dimension, `off_value` elsewhere."""
