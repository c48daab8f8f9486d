"""Helpers of the converters of PyTorch, besides those that all importers share."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...expr import Constant, Expr, const
from ..common.build import R as R
from ..common.build import constant as constant
from ..common.build import dtype_of as dtype_of
from ..common.build import permute as permute
from ..common.build import rank as rank
from ..common.build import reshape as reshape
from ..common.build import shape_of as shape_of

NN: Any = R.nn
image_ops: Any = R.image


def sizes_of(e: Expr, why: str) -> tuple[int, ...]:
    """The sizes, which must be known now."""
    found = shape_of(e)
    if not all(isinstance(d, int) for d in found):
        raise ValueError(f"{why} needs sizes that are known at import, and has {tuple(map(str, found))}")
    return found


def is_float(dtype: str) -> bool:
    return "float" in dtype


def is_int(dtype: str) -> bool:
    return "int" in dtype


def literal(value: Any, dtype: str) -> Constant:
    """One number."""
    return const(value, dtype)


def full(value: Any, shape: Sequence[Any], dtype: str) -> Expr:
    """A tensor of one number."""
    return R.full(literal(value, dtype), tuple(shape), dtype)


def cast(e: Expr, dtype: str) -> Expr:
    """The tensor cast to another type; unchanged if it has that type."""
    have = dtype_of(e)
    if have == dtype:
        return e
    if dtype == "bool":  # whatever is not 0 is true; a plain conversion would keep the lowest bit
        return R.not_equal(e, literal(0, have))
    return R.cast(e, dtype)


def places(e: Any) -> Any:
    """Indices as an array or a tensor. Those in data keep all their bits: the model checks them at run time."""
    if not isinstance(e, Expr):
        return constant(np.asarray(e).astype("int32"))
    return e if "int" in dtype_of(e) else cast(e, "int64")


def scatter_rows(x: Expr, part: Expr, at: int, index: Expr, how: str, negative: bool = True) -> Expr:
    """The tensor with slices along a dimension, at indices (1, count), replaced by those of another or combined."""
    order = [at, *(d for d in range(rank(x)) if d != at)]
    made = R.scatter_nd(permute(x, order), index, permute(part, order), how, negative)
    return permute(made, [order.index(d) for d in range(rank(x))])


@functools.cache
def _types() -> dict[Any, str]:
    import torch

    names = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 uint16 uint32 uint64"
    return {getattr(torch, name): name for name in names.split()}


def torch_dtype(name: str) -> Any:
    import torch

    return getattr(torch, name)


def dtype_name(dtype: Any) -> str:
    """The name of an element type of torch's."""
    found = _types().get(dtype)
    if found is None:
        raise ValueError(f"tensors of {str(dtype).removeprefix('torch.')} are not supported")
    return found


def array_of(t: Any) -> Any:
    """A tensor of torch's as an array."""
    import torch

    t = t.detach().cpu().resolve_neg().contiguous()
    if t.dtype == torch.bfloat16:
        import ml_dtypes

        return t.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return t.numpy()
