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
from .context import Node, Value, converter, rows
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


def _along(v: Any, like: Any, axis: int, block: int = 0) -> Any:
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
    made = R.round(R.divide(x, _along(scale, x, axis)))
    if zero is not None:
        made = R.add(made, cast(_along(zero, x, axis), dtype_of(made)))
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
    made = R.divide(wide, cast(_along(scale, x, axis, block), "float32"))
    if elem and elem >= 17 and elem not in _NARROW:
        if dtype_of(scale) == "float16":
            made = cast(made, "float32")
        return encode(made, elem, n.flag("saturate", 1), "nearest")
    kind = storage_dtype(elem) if elem else (zero.dtype if zero is not None else "uint8")
    low, high = _NARROW[elem] if elem in _NARROW else _RANGES[kind]
    made = R.round(made)
    if zero is not None:
        made = R.add(made, cast(_along(zero.expr, x, axis, block), "float32"))
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
        zero = _along(n[2], wide, axis, block)
        wide = R.subtract(
            cast(wide, "int32" if value.dtype == "int32" else "float32"), cast(zero, dtype_of(wide))
        )
    wide = cast(wide, "float32")
    return cast(R.multiply(wide, cast(_along(scale, wide, axis, block), "float32")), kind)


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
def _roomy(x: Any) -> str:
    """A type with one more bit: accumulators have 32 bits in any case, and narrow operands load faster."""
    return "int16" if dtype_of(x) in ("int8", "uint8") else "int32"


def centred(n: Node, data: int, zero: int, axis: int | None = None) -> Any:
    """Integers minus their zero point, in a type that can hold the difference."""
    if not n.has(zero):
        return n[data]
    x, z = cast(n[data], _roomy(n[data])), cast(n[zero], _roomy(n[data]))
    if rank(z) == 1 and shape_of(z) != (1,):
        z = R.expand_dims(z, 1, rank(x) - 1 - (axis or 0)) if axis is not None and rank(x) - 1 > axis else z
    elif rank(z):
        z = R.reshape(z, ()) if static_shape(z) == (1,) else z
    return R.subtract(x, z)


@converter("MatMulInteger")
def matmul_integer(n: Node) -> Any:
    a = centred(n, 0, 2, n.rank(0) - 2)
    return matmul(a, centred(n, 1, 3), "int32")


@converter("ConvInteger")
def conv_integer(n: Node) -> Any:
    return convolve(
        centred(n, 0, 2), centred(n, 1, 3, 0), conv_windows(n), group_count(n, n.shape(0)[1]), "int32"
    )


def rescaled(total: Any, scales: Sequence[Any], zero: Any, kind: str, axis: int) -> Any:
    """Integer accumulators requantized to the scale of the output."""
    first, second, out = (cast(s, "float32") for s in scales)
    ratio = R.divide(
        R.multiply(_along(first, total, axis), _along(second, total, axis)), _along(out, total, axis)
    )
    made = R.round(R.multiply(cast(total, "float32"), ratio))
    if zero is not None:
        made = R.add(made, cast(_along(zero, total, axis), "float32"))
    low, high = _RANGES[kind]
    return saturated(made, low, high, kind)


@converter("QLinearMatMul")
def qlinear_matmul(n: Node) -> Any:
    a = _less(n[0], n[2], n.rank(0) - 2)
    b = _less(n[3], n[5], n.rank(3) - 1)
    total = matmul(a, b, "int32")
    return rescaled(total, (n[1], n[4], n[6]), n[7], n.dtype(7), rank(total) - 1)


def _less(x: Any, zero: Any, axis: int) -> Any:
    x, zero = cast(x, _roomy(x)), cast(zero, _roomy(x))
    return R.subtract(x, _along(zero, x, axis))


@converter("QLinearConv")
def qlinear_conv(n: Node) -> Any:
    x = _less(n[0], n[2], 1)
    w = _less(n[3], n[5], 0)
    found = conv_windows(n, 3)
    total = convolve(x, w, found, group_count(n, n.shape(0)[1]), "int32")
    if n.has(8):
        total = R.nn.bias_add(total, n[8])
    return rescaled(total, (n[1], n[4], n[6]), n[7], n.dtype(7), 1)


# ---------------------------------------------------------------------------- of com.microsoft
def _floats(n: Node, at: int) -> Any:
    """A quantised input and its scale and zero point as floats."""
    x = cast(n[at], "float32")
    if n.has(at + 2):
        x = R.subtract(x, cast(R.reshape(n[at + 2], ()), "float32"))
    return R.multiply(x, R.reshape(n[at + 1], ()))


def _back(n: Node, made: Any, at: int) -> Any:
    zero = R.reshape(n[at + 1], ()) if n.has(at + 1) else None
    return quantized(made, R.reshape(n[at], ()), zero, n.dtype(0), 0)


rows(
    {
        "QLinearAdd": lambda n: _back(n, R.add(_floats(n, 0), _floats(n, 3)), 6),
        "QLinearMul": lambda n: _back(n, R.multiply(_floats(n, 0), _floats(n, 3)), 6),
        "QLinearSigmoid": lambda n: _back(n, R.sigmoid(_floats(n, 0)), 3),
        "QLinearLeakyRelu": lambda n: _back(n, R.nn.leaky_relu(_floats(n, 0), n.attr("alpha", 0.01)), 3),
        "QLinearSoftmax": lambda n: _back(n, R.nn.softmax(_floats(n, 0), n.axis(-1)), 3),
    },
    domain="com.microsoft",
)


@converter("QLinearGlobalAveragePool", domain="com.microsoft")
def qlinear_global_average_pool(n: Node) -> Any:
    last = n.flag("channels_last", 0)
    axes = list(range(1, n.rank(0) - 1)) if last else list(range(2, n.rank(0)))
    return _back(n, R.mean(_floats(n, 0), axis=axes, keepdims=True), 3)


@converter("QLinearAveragePool", domain="com.microsoft")
def qlinear_average_pool(n: Node) -> Any:
    from ..common.windows import pool
    from .nn import _pool_windows

    made = pool("avg", _floats(n, 0), _pool_windows(n), count_include_pad=n.flag("count_include_pad", 0))
    return _back(n, made, 3)


@converter("QLinearConcat", domain="com.microsoft")
def qlinear_concat(n: Node) -> Any:
    kind = n.dtype(1)
    parts = [_floats(n, i) for i in range(2, len(n), 3)]
    axis = n.front(int(n.attr("axis", 0)), rank(parts[0]))
    return quantized(R.concatenate(parts, axis), R.reshape(n[0], ()), R.reshape(n[1], ()), kind, 0)


@converter("DynamicQuantizeMatMul", domain="com.microsoft")
def dynamic_quantize_matmul(n: Node) -> Any:
    from .context import Node as Kind

    inner = Kind(n.importer, n.proto, n.inputs[:1], n.opset)
    q, scale, zero = dynamic_quantize_linear(inner)
    a = R.subtract(cast(q, "int16"), cast(zero, "int16"))
    b = _less(n[1], n[3] if n.has(3) else constant(np.zeros((), n.dtype(1))), n.rank(1) - 1)
    total = cast(matmul(a, b, "int32"), "float32")
    made = R.multiply(total, R.multiply(scale, _along(n[2], total, rank(total) - 1)))
    return R.add(made, n[4]) if n.has(4) else made


@converter("MatMulIntegerToFloat", domain="com.microsoft")
def matmul_integer_to_float(n: Node) -> Any:
    a = centred(n, 0, 4, n.rank(0) - 2)
    total = cast(matmul(a, centred(n, 1, 5), "int32"), "float32")
    last = rank(total) - 1
    made = R.multiply(R.multiply(total, _along(n[2], total, last)), _along(n[3], total, last))
    return R.add(made, n[6]) if n.has(6) else made
