"""Scales and zero points as arguments: a number, or one for each channel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.dtype import DataType
from ..op.registry import refuse
from ..op.shapes import axis_of, differ, need_dtype, same_size
from ..ty import TensorType

FLOAT32, INT32 = DataType("float32"), DataType("int32")


def check_parameter(kind: TensorType, size: Any, name: str) -> None:
    """A number, or one for each of `size` channels (None: numbers only)."""
    need_dtype(kind, INT32 if "zero_point" in name else FLOAT32, name)
    if len(kind.shape) > 1:
        raise refuse(f"must be one number or a list of them and is {kind}", name)
    if not kind.shape or same_size(kind.shape[0], 1) is True:
        return
    if size is None:
        raise refuse(f"must be one number and is {kind}", name)
    if differ(kind.shape[0], size):
        raise refuse(f"has {kind.shape[0]} elements for {size} channels", name)


def channels_of(data: TensorType, axis: int, kinds: Sequence[TensorType]) -> Any:
    """How many channels parameters may tell apart; the axis counts only where one of them does."""
    if not any(k.shape and same_size(k.shape[0], 1) is not True for k in kinds):
        return None
    return data.shape[axis_of(axis, len(data.shape))]


def check_parameters(data: TensorType, axis: int, scale: TensorType, zero: TensorType, prefix: str) -> None:
    """The scale and the zero point of a tensor: two numbers, or lists of them along an axis."""
    size = channels_of(data, axis, (scale, zero))
    check_parameter(scale, size, f"{prefix}scale")
    check_parameter(zero, size, f"{prefix}zero_point")


def need_float(kind: TensorType, argument: str) -> None:
    if not kind.dtype.is_float:
        raise refuse(f"must hold real numbers and is {kind}", argument)
