"""Layers over numbers of a few bits, which are packed into words."""

from __future__ import annotations

from typing import Any

from ...ir.dtype import DataType
from ..expr import Call
from ..ty import TensorType, Type
from .registry import Dtype, Pair, Sides, Tensor, operator, refuse
from .shapes import add, floordiv, need_one_of, need_rank, sub

__all__ = ["bitpack", "bitserial_conv2d", "bitserial_dense"]


def _word(attrs: Any, name: str) -> int:
    kind = DataType(attrs[name])
    if not kind.is_uint:
        raise refuse(f"is {attrs[name]} and must be uint8, uint16, uint32 or uint64", name)
    return kind.bits


def _bitpack_rel(types: list[Any], attrs: Any) -> Type:
    (data,) = types
    shape = list(data.shape)
    if not 0 <= attrs.pack_axis < len(shape) or not 0 <= attrs.bit_axis <= len(shape):
        raise refuse(f"is {attrs.pack_axis}, bit_axis is {attrs.bit_axis} and data is {data}", "pack_axis")
    shape[attrs.pack_axis] = floordiv(shape[attrs.pack_axis], _word(attrs, "pack_type"))
    shape.insert(attrs.bit_axis, attrs.bits)
    return TensorType(shape, attrs.pack_type)


@operator("nn.bitpack", rel=_bitpack_rel, compute="nn.bitpack")
def bitpack(
    data: Tensor,
    bits: int = 1,
    pack_axis: int = 1,
    bit_axis: int = 2,
    pack_type: Dtype = "uint32",
    name: str = "BitPack",
) -> Call:
    """The low bits of numbers, packed into words along an axis; the new `bit_axis` has a place for each bit."""


def _conv2d_rel(types: list[Any], attrs: Any) -> Type:
    data, _ = types
    need_rank(data, 4, "data")
    need_one_of(attrs.data_layout, ("NCHW", "NHWC"), "data_layout")
    if attrs.channels is None:
        raise refuse("must be given", "channels")
    top, left, bottom, right = attrs.padding
    rows, columns = data.shape[2:] if attrs.data_layout == "NCHW" else data.shape[1:3]
    sizes = []
    for n, low, high, k, s in zip(
        (rows, columns), (top, left), (bottom, right), attrs.kernel_size, attrs.strides, strict=True
    ):
        sizes.append(add(floordiv(sub(add(n, low + high), k), s), 1))
    shape = (attrs.channels, *sizes) if attrs.data_layout == "NCHW" else (*sizes, attrs.channels)
    return TensorType((data.shape[0], *shape), attrs.out_dtype)


@operator("nn.bitserial_conv2d", rel=_conv2d_rel, compute="nn.bitserial_conv2d_{data_layout}")
def bitserial_conv2d(
    data: Tensor,
    weight: Tensor,
    strides: Pair = (1, 1),
    padding: Sides = (0, 0),
    channels: int | None = None,
    kernel_size: Pair = (3, 3),
    activation_bits: int = 1,
    weight_bits: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    pack_dtype: Dtype = "uint32",
    out_dtype: Dtype = "int16",
    unipolar: bool = True,
) -> Call:
    """A convolution of numbers of a few bits; bits of weights are -1 and 1 if `unipolar`, else 0 and 1."""


def _dense_rel(types: list[Any], attrs: Any) -> Type:
    data, weight = types
    need_rank(data, 2, "data")
    rows = weight.shape[0] if attrs.units is None else attrs.units
    return TensorType((data.shape[0], rows), attrs.out_dtype)


@operator("nn.bitserial_dense", rel=_dense_rel, compute="nn.bitserial_dense")
def bitserial_dense(
    data: Tensor,
    weight: Tensor,
    units: int | None = None,
    data_bits: int = 1,
    weight_bits: int = 1,
    pack_dtype: Dtype = "uint32",
    out_dtype: Dtype = "int16",
    unipolar: bool = True,
) -> Call:
    """`data @ weight.T` of numbers of a few bits."""
