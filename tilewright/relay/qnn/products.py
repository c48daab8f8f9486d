"""Products of quantised tensors: convolutions, dense, batches of matrices. Sums are int32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..expr import Call
from ..op import layouts
from ..op.attributes import text
from ..op.computes import in_layout, topi
from ..op.registry import FUSABLE, Dtype, Float32, Int32, Pair, Sides, Tensor, given, operator, refuse
from ..op.shapes import broadcast, differ, need_integers, need_rank
from ..op.spatial import conv_rel, transposed_rel
from ..ty import TensorType, Type
from .parameters import check_parameter


def _product_parameters(types: Sequence[Any], outputs: Any, names: tuple[str, str]) -> None:
    """Zero points and scales of both operands; those of the weight may differ for each output."""
    zero, weight_zero, scale, weight_scale = types
    check_parameter(zero, None, f"{names[0]}_zero_point")
    check_parameter(scale, None, f"{names[0]}_scale")
    check_parameter(weight_zero, outputs, f"{names[1]}_zero_point")
    check_parameter(weight_scale, outputs, f"{names[1]}_scale")


def _need_quantised(data: TensorType, weight: TensorType, names: tuple[str, str]) -> None:
    for kind, name in zip((data, weight), names, strict=True):
        need_integers(kind, name)
        if kind.dtype.bits > 16:
            raise refuse(f"must hold integers of 8 or 16 bits and is {kind}", name)


def _conv_rel(types: list[Any], attrs: Any) -> Type:
    data, weight = types[:2]
    _need_quantised(data, weight, ("data", "weight"))
    out = conv_rel([data, weight], attrs)
    _product_parameters(types[2:], layouts.sizes(attrs.kernel_layout, weight.shape)["O"], ("input", "kernel"))
    return out


@operator(
    "qnn.conv2d",
    rel=_conv_rel,
    compute="nn.qnn_conv2d",
    pattern=FUSABLE,
    inputs=("data", "weight", "input_zero_point", "kernel_zero_point", "input_scale", "kernel_scale"),
)
def conv2d(
    data: Tensor,
    kernel: Any,
    input_zero_point: Int32,
    kernel_zero_point: Int32,
    input_scale: Float32,
    kernel_scale: Float32,
    kernel_size: Pair = None,
    channels: int | None = None,
    strides: Pair = (1, 1),
    padding: Sides = (0, 0),
    dilation: Pair = (1, 1),
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: Dtype = "int32",
) -> Call:
    """A convolution of quantised numbers, whose scale is input_scale · kernel_scale; padding is the zero point."""
    return given(weight=kernel)


def _transposed_rel(types: list[Any], attrs: Any) -> Type:
    data, weight = types[:2]
    _need_quantised(data, weight, ("data", "weight"))
    out = transposed_rel([data, weight], attrs)
    _product_parameters(types[2:], None, ("input", "kernel"))
    return out


def _centred(t: Any, zero: Any) -> Any:
    """`t - zero_point` in a type that can hold the difference."""
    kind = "int16" if t.dtype.bits == 8 else "int32"
    return topi.subtract(topi.cast(t, kind), topi.cast(topi.reshape(zero, ()), kind))


def _transposed_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    made = topi.nn.conv_transpose(
        _centred(ins[0], ins[2]), _centred(ins[1], ins[3]), attrs.strides, attrs.padding, attrs.dilation,
        attrs.groups, attrs.output_padding, attrs.data_layout, attrs.kernel_layout, out.dtype,
    )  # fmt: skip
    return in_layout(made, attrs.data_layout, attrs.out_layout)


@operator("qnn.conv2d_transpose", rel=_transposed_rel, compute=_transposed_compute, pattern=FUSABLE)
def conv2d_transpose(
    data: Tensor,
    weight: Tensor,
    input_zero_point: Int32,
    kernel_zero_point: Int32,
    input_scale: Float32,
    kernel_scale: Float32,
    strides: Pair = (1, 1),
    padding: Sides = (0, 0),
    dilation: Pair = (1, 1),
    channels: int | None = None,
    kernel_size: Pair = None,
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "IOHW",
    out_layout: str = "",
    output_padding: Pair = (0, 0),
    out_dtype: Dtype = "int32",
) -> Call:
    """A transposed convolution of quantised numbers."""


def _dense_rel(types: list[Any], attrs: Any) -> Type:
    data, weight = types[:2]
    _need_quantised(data, weight, ("data", "weight"))
    need_rank(weight, 2, "weight")
    if not data.shape or differ(data.shape[-1], weight.shape[1]):
        raise refuse(f"is {weight} and data is {data}: the columns differ", "weight")
    if attrs.units is not None and differ(attrs.units, weight.shape[0]):
        raise refuse(f"is {attrs.units} and weight has {weight.shape[0]} rows", "units")
    _product_parameters(types[2:], weight.shape[0], ("input", "kernel"))
    return TensorType((*data.shape[:-1], weight.shape[0]), attrs.out_dtype)


@operator("qnn.dense", rel=_dense_rel, compute="nn.qnn_dense", pattern=FUSABLE)
def dense(
    data: Tensor,
    weight: Tensor,
    input_zero_point: Int32,
    kernel_zero_point: Int32,
    input_scale: Float32,
    kernel_scale: Float32,
    units: int | None = None,
    out_dtype: Dtype = "int32",
) -> Call:
    """`data @ weight.T` of quantised numbers, whose scale is input_scale · kernel_scale."""


def _dense_pack_rel(types: list[Any], attrs: Any) -> Type:
    data, weight = types[:2]
    _need_quantised(data, weight, ("data", "weight"))
    need_rank(data, 2, "data")
    w = layouts.sizes(attrs.weight_layout, weight.shape, "weight")
    if set(w) != {"N", "C"}:
        raise refuse(f"is {attrs.weight_layout} and has the axes N and C", "weight_layout")
    if differ(data.shape[1], w["C"]):
        raise refuse(f"has {w['C']} columns and data {data.shape[1]}", "weight")
    _product_parameters(types[2:], w["N"], ("input", "kernel"))
    return TensorType((data.shape[0], w["N"]), attrs.out_dtype)


def _dense_pack_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    plain = topi.layout_transform(ins[1], attrs.weight_layout, "NC")
    return [topi.nn.qnn_dense(ins[0], plain, ins[2], ins[3], out_dtype=out.dtype)]


@operator(
    "qnn.contrib_dense_pack",
    rel=_dense_pack_rel,
    compute=_dense_pack_compute,
    pattern=FUSABLE,
    attrs={"weight_layout": text("NC")},
)
def contrib_dense_pack(
    data: Tensor,
    weight: Tensor,
    input_zero_point: Int32,
    kernel_zero_point: Int32,
    input_scale: Float32,
    kernel_scale: Float32,
    kernel_layout: Any = "NC",
    units: int | None = None,
    out_dtype: Dtype = "int32",
) -> Call:
    """dense with the weight in blocks, such as NC32n4c."""
    return given(weight_layout=kernel_layout)


def _batch_matmul_rel(types: list[Any], attrs: Any) -> Type:
    x, y = types[:2]
    _need_quantised(x, y, ("x", "y"))
    need_rank(x, 3, "x")
    need_rank(y, 3, "y")
    if differ(x.shape[2], y.shape[2]):
        raise refuse(f"is {y} and x is {x}: the columns differ", "y")
    batch = broadcast(x.shape[:1], y.shape[:1], "x and y")
    _product_parameters(types[2:], None, ("x", "y"))
    return TensorType((*batch, x.shape[1], y.shape[1]), attrs.out_dtype)


@operator("qnn.batch_matmul", rel=_batch_matmul_rel, compute="nn.qnn_batch_matmul", pattern=FUSABLE)
def batch_matmul(
    x: Tensor,
    y: Tensor,
    x_zero_point: Int32,
    y_zero_point: Int32,
    x_scale: Float32,
    y_scale: Float32,
    out_dtype: Dtype = "int32",
) -> Call:
    """The products of pairs of quantised matrices, the second of each transposed."""
