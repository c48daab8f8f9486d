"""Helpers of the converters of PyTorch, besides those that all importers share."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...expr import Expr
from ..common.build import R as R
from ..common.build import constant as constant
from ..common.build import converted
from ..common.build import dtype_of as dtype_of
from ..common.build import full as full
from ..common.build import is_float as is_float
from ..common.build import is_int as is_int
from ..common.build import literal as literal
from ..common.build import permute as permute
from ..common.build import rank as rank
from ..common.build import reshape as reshape
from ..common.build import scatter_rows as scatter_rows
from ..common.build import shape_of as shape_of

NN: Any = R.nn
cast = converted
image_ops: Any = R.image


def sizes_of(e: Expr, why: str) -> tuple[int, ...]:
    """The sizes, which must be known now."""
    found = shape_of(e)
    if not all(isinstance(d, int) for d in found):
        raise ValueError(f"{why} needs sizes that are known at import, and has {tuple(map(str, found))}")
    return found


def places(e: Any) -> Any:
    """Indices as an array or a tensor. Those in data keep all their bits: the model checks them at run time."""
    if not isinstance(e, Expr):
        return constant(np.asarray(e).astype("int32"))
    return e if "int" in dtype_of(e) else cast(e, "int64")


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
