"""Quantised operators: quantize, dequantize, requantize, int8 products with int32 sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ... import te
from ...ir import ops
from ...ir.dtype import DataType
from ...ir.expr import ExprOp, FloatImm, IntImm, convert
from .. import tag as _tag
from ..utils import dtype_of, fail, get_const_tuple, injective, normalize_axis, shown, simplify, tensor_arg
from .conv import Layouts, convolve
from .dense import batch_matmul, dense
from .utils import layout_of

__all__ = [
    "SQNN_CODE_TO_DTYPE",
    "SQNN_DISABLE",
    "SQNN_DTYPE_TO_CODE",
    "SQNN_INT32",
    "SQNN_INT8",
    "SQNN_UINT8",
    "dequantize",
    "qnn_batch_matmul",
    "qnn_conv2d",
    "qnn_dense",
    "quantize",
    "requantize",
    "simulated_dequantize",
    "simulated_quantize",
]

# What a simulated quantisation does, as a number that the program is given when it runs.
SQNN_DISABLE, SQNN_INT8, SQNN_UINT8, SQNN_INT32 = range(4)
SQNN_DTYPE_TO_CODE = {
    "disable": SQNN_DISABLE,
    "int8": SQNN_INT8,
    "uint8": SQNN_UINT8,
    "int32": SQNN_INT32,
}
SQNN_CODE_TO_DTYPE = {code: name for name, code in SQNN_DTYPE_TO_CODE.items()}

# Where a value lies in the middle of two integers: to the greater one, away from zero, to the even one.
_ROUNDING = ("UPWARD", "TONEAREST", "TONEAREST_EVEN")


# ---------------------------------------------------------------------------- parameters and rounding
def _number(value: Any) -> float | None:
    """A scale or zero point that is known now."""
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, ExprOp):
        made = simplify(convert(value))
        return made.value if isinstance(made, (IntImm, FloatImm)) else None
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    return None


def _parameter(
    what: str, name: str, value: Any, data: te.Tensor, axis: int, dtype: str
) -> Callable[..., Any]:
    """A scale or zero point at each element: a number, a tensor of one element, or one along the axis."""
    known = _number(value)
    if known is not None:
        return lambda *at: te.const(known, dtype)
    if isinstance(value, ExprOp):
        made = ops.cast(dtype, value)
        return lambda *at: made
    if not isinstance(value, te.Tensor) or value.ndim > 1:
        raise fail(
            what, f"{name} is {shown(value)}", "give a number, or a tensor with one element per channel"
        )
    if value.ndim == 0:
        return lambda *at: ops.cast(dtype, value())
    (size,) = get_const_tuple(value.shape)
    if isinstance(size, int) and size == 1:
        return lambda *at: ops.cast(dtype, value(0))
    place = normalize_axis(what, axis, data.ndim)
    channels = get_const_tuple(data.shape)[place]
    if isinstance(size, int) and isinstance(channels, int) and size != channels:
        raise fail(what, f"{name} has {size} elements and dimension {axis} of `{data.name}` has {channels}")
    return lambda *at: ops.cast(dtype, value(at[place]))


def _rounded(x: Any, rounding: str) -> Any:
    """A float rounded to an integer."""
    if rounding == "TONEAREST_EVEN":
        return ops.round(x)
    half, one = te.const(0.5, x.dtype), te.const(1, x.dtype)
    if rounding == "UPWARD":
        low = ops.floor(x)
        return ops.select(ops.greater_equal(ops.sub(x, low), half), ops.add(low, one), low)
    size = ops.abs(x)
    low = ops.floor(size)
    up = ops.select(ops.greater_equal(ops.sub(size, low), half), ops.add(low, one), low)
    return ops.select(ops.less(x, te.const(0, x.dtype)), ops.neg(up), up)


def _rounding(what: str, rounding: str) -> str:
    if not isinstance(rounding, str) or rounding.upper() not in _ROUNDING:
        raise fail(what, f"rounding is {shown(rounding)}", f"known are {', '.join(_ROUNDING)}")
    return rounding.upper()


def _clipped(x: Any, kind: DataType) -> Any:
    """An integer-valued number in the range of an integer type, of that type."""
    return ops.cast(
        kind, ops.max_of(ops.min_of(x, te.const(kind.high, x.dtype)), te.const(kind.low, x.dtype))
    )


def _wide(*kinds: DataType) -> DataType:
    """A float type that holds the integers of the narrow types exactly, and those of 32 bits, too."""
    exact = all(k.bits < 32 or (k.is_float and k.bits == 32) for k in kinds)
    return DataType("float32" if exact else "float64")


# ---------------------------------------------------------------------------- conversions
def quantize(
    data: te.Tensor,
    output_scale: Any,
    output_zero_point: Any,
    axis: int = -1,
    out_dtype: str = "int8",
    rounding: str = "TONEAREST_EVEN",
) -> te.Tensor:
    """Real numbers as integers: clip(round(x / scale) + zero_point)."""
    what = "nn.quantize"
    data = tensor_arg(what, "data", data)
    kind, how = dtype_of(what, out_dtype), _rounding(what, rounding)
    real = _wide(kind, data.dtype)
    scale = _parameter(what, "output_scale", output_scale, data, axis, real)
    zero = _parameter(what, "output_zero_point", output_zero_point, data, axis, real)

    def element(*at: Any) -> Any:
        steps = _rounded(ops.div(ops.cast(real, data(*at)), scale(*at)), how)
        return _clipped(ops.add(steps, zero(*at)), kind)

    return injective(what, data.shape, element, _tag.ELEMWISE, "T_quantize")


def dequantize(
    data: te.Tensor, input_scale: Any, input_zero_point: Any, axis: int = -1, out_dtype: str = "float32"
) -> te.Tensor:
    """Integers as the real numbers that they stand for: (q - zero_point) * scale."""
    what = "nn.dequantize"
    data = tensor_arg(what, "data", data)
    kind = dtype_of(what, out_dtype)
    scale = _parameter(what, "input_scale", input_scale, data, axis, kind)
    zero = _parameter(what, "input_zero_point", input_zero_point, data, axis, "int32")

    def element(*at: Any) -> Any:
        return ops.mul(ops.cast(kind, ops.sub(ops.cast("int32", data(*at)), zero(*at))), scale(*at))

    return injective(what, data.shape, element, _tag.ELEMWISE, "T_dequantize")


def requantize(
    data: te.Tensor,
    input_scale: Any,
    input_zero_point: Any,
    output_scale: Any,
    output_zero_point: Any,
    axis: int = -1,
    rounding: str = "UPWARD",
    compute_dtype: str | None = None,
    out_dtype: str = "int8",
) -> te.Tensor:
    """Integers of one scale as integers of another.

    `compute_dtype` "int64" multiplies by an integer and shifts, as integer-only hardware does; it needs constant
    scales. "float32" and "float64" compute in floats. The default is "int64" for constant scales, "float64" for
    tensors.
    """
    what = "nn.requantize"
    data = tensor_arg(what, "data", data)
    kind, how = dtype_of(what, out_dtype), _rounding(what, rounding)
    ratio = _ratio(input_scale, output_scale)
    if compute_dtype is None:
        compute_dtype = "int64" if ratio is not None and how != "TONEAREST_EVEN" else "float64"
    if compute_dtype not in ("int64", "float32", "float64"):
        raise fail(what, f"compute_dtype is {shown(compute_dtype)}", "known are int64, float32 and float64")
    real = "float64" if compute_dtype == "int64" else compute_dtype
    before = _parameter(what, "input_zero_point", input_zero_point, data, axis, "int64")
    after = _parameter(what, "output_zero_point", output_zero_point, data, axis, "int64")
    if compute_dtype == "int64":
        if ratio is None or how == "TONEAREST_EVEN":
            raise fail(
                what,
                "compute_dtype int64 needs scales that are numbers, and rounding UPWARD or TONEAREST",
                'use compute_dtype="float64"',
            )
        scaled = _fixed_point(ratio, how)
    else:
        old = _parameter(what, "input_scale", input_scale, data, axis, real)
        new = _parameter(what, "output_scale", output_scale, data, axis, real)

        def scaled(x: Any, *at: Any) -> Any:
            return ops.cast("int64", _rounded(ops.mul(ops.cast(real, x), ops.div(old(*at), new(*at))), how))

    def element(*at: Any) -> Any:
        steps = scaled(ops.sub(ops.cast("int64", data(*at)), before(*at)), *at)
        return _clipped(ops.add(steps, after(*at)), kind)

    return injective(what, data.shape, element, _tag.ELEMWISE, "T_requantize")


def _ratio(old: Any, new: Any) -> float | None:
    """The quotient of two scales that are known and make a shift of less than 63 bits."""
    first, second = _number(old), _number(new)
    if first is None or second is None or first <= 0 or second <= 0:
        return None
    ratio = first / second
    return ratio if -31 <= math.frexp(ratio)[1] <= 30 else None


def _fixed_point(ratio: float, rounding: str) -> Callable[..., Any]:
    """Multiplication by `ratio` as a product with a 31-bit number and a shift to the right."""
    part, exponent = math.frexp(ratio)
    factor, shift = round(part * (1 << 31)), 31 - exponent
    half = 1 << (shift - 1)

    def scaled(x: Any, *at: Any) -> Any:
        product = ops.mul(x, te.const(factor, "int64"))
        # Adding a half and shifting rounds up; one less does the same for negatives, away from zero.
        more = te.const(half, "int64")
        if rounding == "TONEAREST":
            more = ops.select(ops.less(product, te.const(0, "int64")), te.const(half - 1, "int64"), more)
        return ops.shift_right(ops.add(product, more), te.const(shift, "int64"))

    return scaled


# ---------------------------------------------------------------------------- products
def _centred(what: str, name: str, data: te.Tensor, zero_point: Any, axis: int) -> te.Tensor:
    """`data - zero_point` in a type with one bit more, so that products are plain; the data itself if it is 0."""
    if _number(zero_point) == 0:
        return data
    if not data.dtype.is_integral or data.dtype.bits > 16:
        raise fail(what, f"`{data.name}` is {data.dtype} and must be an integer of 8 or 16 bits")
    kind = "int16" if data.dtype.bits == 8 else "int32"
    zero = _parameter(what, name, zero_point, data, axis, kind)
    return injective(
        what,
        data.shape,
        lambda *at: ops.sub(ops.cast(kind, data(*at)), zero(*at)),
        _tag.ELEMWISE,
        f"{data.name}_centred",
    )


def qnn_dense(
    data: te.Tensor,
    weight: te.Tensor,
    input_zero_point: Any = 0,
    kernel_zero_point: Any = 0,
    input_scale: Any = None,
    kernel_scale: Any = None,
    units: Any = None,
    out_dtype: str = "int32",
) -> te.Tensor:
    """The product of quantised numbers, whose scale is input_scale * kernel_scale.

    sum of (data - input_zero_point) * (weight - kernel_zero_point), a zero point for each row if it is a tensor
    """
    what = "nn.qnn_dense"
    data, weight = tensor_arg(what, "data", data), tensor_arg(what, "weight", weight)
    left = _centred(what, "input_zero_point", data, input_zero_point, 0)
    right = _centred(what, "kernel_zero_point", weight, kernel_zero_point, 0)
    return dense(left, right, None, out_dtype)


def qnn_batch_matmul(
    x: te.Tensor,
    y: te.Tensor,
    x_zero_point: Any = 0,
    y_zero_point: Any = 0,
    x_scale: Any = None,
    y_scale: Any = None,
    out_dtype: str = "int32",
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> te.Tensor:
    """The products of pairs of quantised matrices, whose scale is x_scale * y_scale."""
    what = "nn.qnn_batch_matmul"
    x, y = tensor_arg(what, "x", x), tensor_arg(what, "y", y)
    left = _centred(what, "x_zero_point", x, x_zero_point, -1)
    right = _centred(what, "y_zero_point", y, y_zero_point, -1)
    return batch_matmul(left, right, None, out_dtype, transpose_a, transpose_b)


def qnn_conv2d(
    data: te.Tensor,
    kernel: te.Tensor,
    input_zero_point: Any = 0,
    kernel_zero_point: Any = 0,
    input_scale: Any = None,
    kernel_scale: Any = None,
    kernel_size: Any = None,
    channels: Any = None,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "int32",
) -> te.Tensor:
    """The convolution of quantised numbers, whose scale is input_scale * kernel_scale.

    Padding stands for the real number 0, so for the zero point. A kernel zero point that is a tensor has
    one element for each output channel.
    """
    what = "nn.qnn_conv2d"
    data, kernel = tensor_arg(what, "data", data), tensor_arg(what, "kernel", kernel)
    weights = layout_of(what, "kernel_layout", kernel_layout, "OIHW", "HW")
    left = _centred(what, "input_zero_point", data, input_zero_point, -1)
    right = _centred(what, "kernel_zero_point", kernel, kernel_zero_point, weights.places("O")[0])
    layouts = Layouts(data_layout, kernel_layout, out_layout or data_layout)
    return convolve(what, left, right, strides, padding, dilation, groups, layouts, out_dtype, "qnn_conv2d")


# ---------------------------------------------------------------------------- simulation in real numbers
def _code(what: str, dtype: Any) -> Any:
    """The type to simulate, as its number: by name, as a number, or as a scalar of the program."""
    if isinstance(dtype, str):
        if dtype not in SQNN_DTYPE_TO_CODE:
            raise fail(what, f"the type is {dtype!r}", f"known are {', '.join(SQNN_DTYPE_TO_CODE)}")
        return te.const(SQNN_DTYPE_TO_CODE[dtype], "int32")
    if isinstance(dtype, te.Tensor):
        return dtype(*([0] * dtype.ndim))
    return convert(dtype)


def _simulated(what: str, name: str, data: te.Tensor, code: Any, of: Callable[..., Any]) -> te.Tensor:
    """`of(kind, …)` for the type that the code names, and the data itself if it is disabled."""

    def element(*at: Any) -> Any:
        chosen, plain = _code(what, code), data(*at)
        out = plain
        for kind, number in SQNN_DTYPE_TO_CODE.items():
            if kind != "disable":
                is_it = ops.equal(chosen, te.const(number, chosen.dtype))
                out = ops.if_then_else(is_it, ops.cast(data.dtype, of(DataType(kind), *at)), out)
        return out

    return injective(what, data.shape, element, _tag.ELEMWISE, name)


def simulated_quantize(
    data: te.Tensor,
    out_dtype: Any,
    output_scale: Any = None,
    output_zero_point: Any = None,
    axis: int = -1,
) -> te.Tensor:
    """What quantize gives, as real numbers; the type is a code of SQNN_DTYPE_TO_CODE, chosen at run time."""
    what = "nn.simulated_quantize"
    data = tensor_arg(what, "data", data)
    scale = _parameter(what, "output_scale", output_scale, data, axis, data.dtype)
    zero = _parameter(what, "output_zero_point", output_zero_point, data, axis, data.dtype)

    def of(kind: DataType, *at: Any) -> Any:
        x = ops.add(ops.round(ops.div(data(*at), scale(*at))), zero(*at))
        low, high = float(kind.low), float(kind.high)
        return ops.max_of(ops.min_of(x, te.const(high, x.dtype)), te.const(low, x.dtype))

    return _simulated(what, "simulated_quantize", data, out_dtype, of)


def simulated_dequantize(
    data: te.Tensor,
    in_dtype: Any,
    input_scale: Any = None,
    input_zero_point: Any = None,
    axis: int = -1,
) -> te.Tensor:
    """What dequantize gives for integers that are held as real numbers; the type is a code, as above."""
    what = "nn.simulated_dequantize"
    data = tensor_arg(what, "data", data)
    scale = _parameter(what, "input_scale", input_scale, data, axis, data.dtype)
    zero = _parameter(what, "input_zero_point", input_zero_point, data, axis, data.dtype)

    def of(kind: DataType, *at: Any) -> Any:
        return ops.mul(ops.sub(data(*at), zero(*at)), scale(*at))

    return _simulated(what, "simulated_dequantize", data, in_dtype, of)
