"""Quantised tensors: to and from integers, products and convolutions of integers.

q = saturate(round(x / scale) + zero)            x ≈ (q - zero) · scale
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...qnn import op as Q
from ..common.matrices import matmul
from .build import R, cast, constant, dtype_of, rank, scalar, shape_of, static_shape
from .context import Node, Value, converter
from .load import storage_dtype
from .narrow import decode, encode
from .nn import conv_windows, convolve, group_count

_RANGES = {
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-32768, 32767),
    "uint16": (0, 65535),
    "int32": (-(2**31), 2**31 - 1),
}
_NARROW = {21: (0, 15), 22: (-8, 7), 25: (0, 3), 26: (-2, 1)}


def along(v: Any, like: Any, axis: int, block: int = 0) -> Any:
    """A parameter for each index of an axis (or each block of them), shaped to broadcast with the data."""
    if rank(v) == 0 or (rank(v) == 1 and shape_of(v) == (1,)):
        return R.reshape(v, ()) if rank(v) else v
    if block:
        made = R.repeat(v, block, axis)
        size = shape_of(like)[axis]
        return made if shape_of(made)[axis] == size else R.strided_slice(made, [0], [size], axes=[axis])
    if rank(v) == 1 and rank(like) > 1:
        after = rank(like) - 1 - axis
        return R.expand_dims(v, 1, after) if after else v
    return v


def saturated(x: Any, low: int, high: int, kind: str) -> Any:
    return cast(R.clip(x, float(low), float(high)), kind)


def quantized(x: Any, scale: Any, zero: Any, kind: str, axis: int = 1) -> Any:
    """Floats as integers of a type."""
    low, high = _RANGES[kind]
    made = R.round(R.divide(x, along(scale, x, axis)))
    if zero is not None:
        made = R.add(made, cast(along(zero, x, axis), dtype_of(made)))
    return saturated(made, low, high, kind)


def _whole(n: Node, kind: str, block: int, *real: Any) -> bool:
    """Whether a qnn operator is sufficient: plain integers, float32 scales, per tensor or along an axis."""
    return kind in _RANGES and not block and rank(n[1]) <= 1 and all(dtype_of(v) == "float32" for v in real)


@converter("QuantizeLinear")
def quantize_linear(n: Node) -> Any:
    x, scale = n[0], n[1]
    axis = n.axis(1) if n.rank(0) > 1 else 0
    block = int(n.attr("block_size", 0))
    zero = n.inputs[2] if n.has(2) else None
    elem = n.attr("output_dtype", 0) or (zero.elem if zero is not None else 0)
    plain = storage_dtype(elem) if elem else (zero.dtype if zero is not None else "uint8")
    if elem < 17 and _whole(n, plain, block, x, scale):
        point = cast(zero.expr, "int32") if zero is not None else constant(np.zeros((), "int32"))
        return Q.quantize(x, scale, point, axis, plain)
    wide = cast(x, "float32")
    made = R.divide(wide, cast(along(scale, x, axis, block), "float32"))
    if elem and elem >= 17 and elem not in _NARROW:
        if dtype_of(scale) == "float16":
            made = cast(made, "float32")
        return encode(made, elem, n.flag("saturate", 1), "nearest")
    kind = storage_dtype(elem) if elem else (zero.dtype if zero is not None else "uint8")
    low, high = _NARROW[elem] if elem in _NARROW else _RANGES[kind]
    made = R.round(made)
    if zero is not None:
        made = R.add(made, cast(along(zero.expr, x, axis, block), "float32"))
    return Value(saturated(made, low, high, kind), elem=elem if elem in _NARROW else 0)


@converter("DequantizeLinear")
def dequantize_linear(n: Node) -> Any:
    value = n.value(0)
    axis = n.axis(1) if n.rank(0) > 1 else 0
    block = int(n.attr("block_size", 0))
    scale = n[1]
    kind = storage_dtype(n.attr("output_dtype")) if n.attr("output_dtype", 0) else dtype_of(scale)
    if not value.elem and kind == "float32" and _whole(n, value.dtype, block, scale):
        point = cast(n[2], "int32") if n.has(2) else constant(np.zeros((), "int32"))
        return Q.dequantize(value.expr, scale, point, axis)
    wide = cast(decode(value), "float32") if value.dtype != "int32" else value.expr
    if n.has(2) and value.elem not in range(17, 21):
        zero = along(n[2], wide, axis, block)
        wide = R.subtract(
            cast(wide, "int32" if value.dtype == "int32" else "float32"), cast(zero, dtype_of(wide))
        )
    wide = cast(wide, "float32")
    return cast(R.multiply(wide, cast(along(scale, wide, axis, block), "float32")), kind)


@converter("DynamicQuantizeLinear")
def dynamic_quantize_linear(n: Node) -> Any:
    x = n[0]
    zero = scalar(0, x)
    axes = list(range(rank(x)))
    high = R.maximum(R.max(x, axis=axes), zero)
    low = R.minimum(R.min(x, axis=axes), zero)
    scale = R.divide(R.subtract(high, low), scalar(255, x))
    safe = R.where(R.equal(scale, zero), scalar(1, x), scale)
    point = R.clip(R.round(R.divide(R.subtract(zero, low), safe)), 0.0, 255.0)
    made = R.clip(R.add(R.round(R.divide(x, safe)), point), 0.0, 255.0)
    return [cast(made, "uint8"), scale, cast(point, "uint8")]


# ---------------------------------------------------------------------------- integers
def less(x: Any, zero: Any, axis: int | None = None) -> Any:
    """Integers minus their zero point (one for each index of an axis, by default the last), with one more bit."""
    wide = "int16" if dtype_of(x) in ("int8", "uint8") else "int32"
    if zero is None:
        return cast(x, wide)
    return R.subtract(cast(x, wide), along(cast(zero, wide), x, rank(x) - 1 if axis is None else axis))


def _point(zero: Any) -> Any:
    """A zero point as an operand of a qnn operator, whose scales have no influence on its sums."""
    if zero is None:
        return constant(np.int32(0))
    return cast(R.reshape(zero, ()) if static_shape(zero) == (1,) else zero, "int32")


def _is_single(zero: Any) -> bool:
    return zero is None or static_shape(zero) in ((), (1,))


def integer_matmul(a: Any, b: Any, zero_a: Any, zero_b: Any) -> Any:
    """The product of integers less their zero points: of all, of the rows of `a`, or of the columns of `b`."""
    one, plain = constant(np.float32(1)), rank(a) >= 2 and _is_single(zero_a)
    if plain and rank(b) == 2 and (zero_b is None or rank(zero_b) < 2):
        rows = a if rank(a) == 2 else R.reshape(a, [-1, shape_of(a)[-1]])
        made = Q.dense(rows, R.transpose(b), _point(zero_a), _point(zero_b), one, one)
        return made if rank(a) == 2 else R.reshape(made, [*shape_of(a)[:-1], shape_of(b)[-1]])
    if plain and rank(a) == 3 and rank(b) == 3 and _is_single(zero_b):
        turned = R.transpose(b, [0, 2, 1])
        return Q.batch_matmul(a, turned, _point(zero_a), _point(zero_b), one, one)
    return matmul(less(a, zero_a, rank(a) - 2), less(b, zero_b), "int32")


def integer_conv(n: Node, weight: int, zero_x: Any, zero_w: Any) -> Any:
    """The convolution of integers less their zero points: of the image, and of the weight or each of its outputs."""
    x, w, found, groups = n[0], n[weight], conv_windows(n, weight), group_count(n, n.shape(0)[1])
    if rank(x) != 4 or not _is_single(zero_x):
        return convolve(less(x, zero_x, 1), less(w, zero_w, 0), found, groups, "int32")
    one = constant(np.float32(1))
    return Q.conv2d(
        x, w, _point(zero_x), _point(zero_w), one, one, found.kernel, static_shape(w)[0],
        found.strides, found.padding, found.dilations, groups,
    )  # fmt: skip


@converter("MatMulInteger")
def matmul_integer(n: Node) -> Any:
    return integer_matmul(n[0], n[1], n.get(2), n.get(3))


@converter("ConvInteger")
def conv_integer(n: Node) -> Any:
    return integer_conv(n, 1, n.get(2), n.get(3))


def rescaled(total: Any, scales: Sequence[Any], zero: Any, kind: str, axis: int) -> Any:
    """Integer accumulators requantized to the scale of the output."""
    first, second, out = (cast(s, "float32") for s in scales)
    ratio = R.divide(
        R.multiply(along(first, total, axis), along(second, total, axis)), along(out, total, axis)
    )
    made = R.round(R.multiply(cast(total, "float32"), ratio))
    if zero is not None:
        made = R.add(made, cast(along(zero, total, axis), "float32"))
    low, high = _RANGES[kind]
    return saturated(made, low, high, kind)


@converter("QLinearMatMul")
def qlinear_matmul(n: Node) -> Any:
    total = integer_matmul(n[0], n[3], n[2], n[5])
    return rescaled(total, (n[1], n[4], n[6]), n[7], n.dtype(7), rank(total) - 1)


@converter("QLinearConv")
def qlinear_conv(n: Node) -> Any:
    total = integer_conv(n, 3, n[2], n[5])
    if n.has(8):
        total = R.nn.bias_add(total, n[8])
    return rescaled(total, (n[1], n[4], n[6]), n[7], n.dtype(7), 1)
