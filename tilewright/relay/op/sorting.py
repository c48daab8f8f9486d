"""Sorting and searching."""

from __future__ import annotations

from typing import Any

from ...ir.dtype import DataType
from ..expr import Call, TupleWrapper
from ..ty import TensorType, TupleType, Type
from . import dyn
from .attributes import flag
from .computes import topi
from .gradients import index as grads
from .registry import Dtype, Tensor, given, operator, refuse
from .shapes import axis_of, axis_rel, differ, is_known, need_dtype, need_rank
from .traits import Traits

__all__ = ["argsort", "searchsorted", "sort", "topk", "unique"]


INT32 = DataType("int32")


# ---------------------------------------------------------------------------- order
@operator(
    "sort", traits=Traits(gradient=grads.sort), attrs={"is_ascend": flag(True)}, rel=axis_rel, compute="sort"
)
def sort(data: Tensor, axis: int = -1, is_ascend: Any = 1) -> Call:
    """The elements along an axis in order."""


def _argsort_rel(types: list[Any], attrs: Any) -> Type:
    axis_of(attrs.axis, len(types[0].shape))
    return TensorType(types[0].shape, attrs.dtype)


@operator("argsort", attrs={"is_ascend": flag(True)}, rel=_argsort_rel, compute="argsort")
def argsort(data: Tensor, axis: int = -1, is_ascend: Any = 1, dtype: Dtype = "int32") -> Call:
    """The indices of the elements along an axis in the order of their values."""


def _topk_rel(types: list[Any], attrs: Any) -> Type:
    data = types[0]
    at = axis_of(attrs.axis, len(data.shape))
    size = data.shape[at]
    count = size if attrs.k < 1 else attrs.k
    if is_known(size) and is_known(count) and count > size:
        raise refuse(f"is {count} and dimension {at} of {data} has {size} elements", "k")
    shape = [*data.shape[:at], count, *data.shape[at + 1 :]]
    return dyn.topk_type(shape, data.dtype, attrs)


@operator(
    "topk",
    traits=Traits(gradient=grads.topk),
    rel=_topk_rel,
    compute="topk",
    results=lambda call: 2 if call.attrs.ret_type == "both" else 0,
    dynamic=dyn.topk,
)
def topk(
    data: Tensor,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    is_ascend: bool = False,
    dtype: Dtype = "int32",
) -> Any:
    """The `k` greatest elements along an axis (the least, if ascending), their indices, or both."""


# ---------------------------------------------------------------------------- searching
def _searchsorted_rel(types: list[Any], attrs: Any) -> Type:
    line, values = types
    need_dtype(values, line.dtype, "values")
    own = line.shape[:-1]
    fits = bool(line.shape) and (not own or len(line.shape) == len(values.shape))
    if not fits or any(differ(a, b) for a, b in zip(own, values.shape, strict=False)):
        raise refuse(
            f"is {line} and values are {values}: it has one dimension or the same leading ones",
            "sorted_sequence",
        )
    return TensorType(values.shape, attrs.dtype)


@operator("searchsorted", rel=_searchsorted_rel, compute="searchsorted")
def searchsorted(
    sorted_sequence: Tensor, values: Tensor, right: bool = False, dtype: Dtype = "int32"
) -> Call:
    """Where each value would have to be inserted for the sequence to stay sorted."""


def _unique_rel(types: list[Any], attrs: Any) -> Type:
    need_rank(types[0], 1, "data")
    places = TensorType(types[0].shape, INT32)
    fields = [types[0], places, places, TensorType((1,), INT32)]
    return TupleType(tuple(fields + [places] * attrs.return_counts))


@operator(
    "unique",
    rel=_unique_rel,
    compute=lambda attrs, ins, out: topi.unique(ins[0], attrs.sorted, attrs.return_counts),
    attrs={"sorted": flag(True)},
    results=lambda call: 5 if call.attrs.return_counts else 4,
)
def unique(data: Tensor, is_sorted: Any = True, return_counts: bool = False) -> TupleWrapper:
    """The distinct elements of a list, where each is first, which one each element is, how many, how often.

    Lists are as long as the data; elements after the number of distinct elements are undefined.
    """
    return given(sorted=is_sorted)
