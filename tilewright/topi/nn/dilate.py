"""Dilation of a tensor with zeros between its elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import te
from ...ir import ops
from .. import tag as _tag
from ..utils import fail, get_const_tuple, injective, int_list, simplify, static_int, tensor_arg

__all__ = ["dilate"]


def dilate(
    data: te.Tensor, strides: Sequence[Any], dilation_value: Any = 0.0, name: str = "DilatedInput"
) -> te.Tensor:
    """The tensor with `stride - 1` times `dilation_value` between neighbours of each dimension.

    1 2 3 with stride 2:  1 0 2 0 3
    """
    data = tensor_arg("nn.dilate", "data", data)
    steps = [static_int("nn.dilate", "strides", s) for s in int_list("nn.dilate", "strides", strides)]
    if len(steps) != data.ndim or any(s < 1 for s in steps):
        raise fail(
            "nn.dilate",
            f"strides are {tuple(steps)} for the {data.ndim} dimensions of `{data.name}`",
            "give a stride of at least 1 for each dimension",
        )
    shape = [
        0 if isinstance(d, int) and d == 0 else simplify((d - 1) * s + 1)
        for d, s in zip(get_const_tuple(data.shape), steps, strict=True)
    ]
    fill = te.const(dilation_value, data.dtype)

    def element(*at: Any) -> Any:
        hit = [ops.equal(ops.floormod(i, s), 0) for i, s in zip(at, steps, strict=True) if s > 1]
        value = data(*(ops.floordiv(i, s) if s > 1 else i for i, s in zip(at, steps, strict=True)))
        return ops.if_then_else(ops.all(*hit), value, fill) if hit else value

    return injective("nn.dilate", shape, element, f"{_tag.INJECTIVE},dilate", name)
