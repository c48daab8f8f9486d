"""Operators over quantised tensors: real = (integer - zero_point) · scale.

Scales are float32 and zero points int32, tensors of their own: one number, or one for each index of an axis.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..expr import Call, Expr, const
from ..op.arguments import float32, int32
from ..op.attributes import Attr, integer, number, text
from ..op.computes import topi
from ..op.registry import (
    BROADCAST,
    FUSABLE,
    INJECTIVE,
    OPAQUE,
    Constructor,
    Dtype,
    Float32,
    Int32,
    OpPattern,
    Pair,
    Sides,
    Tensor,
    Tensors,
    given,
    named,
    operator,
    refuse,
)
from ..op.shapes import add as add_sizes
from ..op.shapes import axis_of, broadcast, differ, need_dtype, need_integers, need_rank, unify
from ..op.spatial import pool_rel
from ..op.traits import Traits
from ..ty import TensorType, Type
from .parameters import channels_of, check_parameter, check_parameters, need_float
from .products import batch_matmul, contrib_dense_pack, conv2d, conv2d_transpose, dense

__path__: list[str] = []  # the classic had a package here
qnn = sys.modules[__name__]
__all__ = [
    "abs",
    "add",
    "avg_pool2d",
    "batch_matmul",
    "concatenate",
    "contrib_dense_pack",
    "conv2d",
    "conv2d_transpose",
    "dense",
    "dequantize",
    "erf",
    "exp",
    "hardswish",
    "leaky_relu",
    "log",
    "mul",
    "quantize",
    "requantize",
    "requantize_config",
    "rsqrt",
    "sigmoid",
    "simulated_dequantize",
    "simulated_quantize",
    "softmax",
    "sqrt",
    "subtract",
    "tanh",
]


# ---------------------------------------------------------------------------- conversions
def _quantize_rel(types: list[Any], attrs: Any) -> Type:
    data, scale, zero = types
    need_float(data, "data")
    check_parameters(data, attrs.axis, scale, zero, "output_")
    if not attrs.out_dtype.is_integral:
        raise refuse(f"is {attrs.out_dtype} and must be an integer type", "out_dtype")
    return TensorType(data.shape, attrs.out_dtype)


@operator(
    "qnn.quantize",
    traits=Traits(layout="conversion"),
    rel=_quantize_rel,
    compute="nn.quantize",
    pattern=BROADCAST,
)
def quantize(
    data: Tensor, output_scale: Float32, output_zero_point: Int32, axis: int = -1, out_dtype: Dtype = "int8"
) -> Call:
    """Real numbers as integers: clip(round(x / scale) + zero_point), halves to the even one."""


def _dequantize_rel(types: list[Any], attrs: Any) -> Type:
    data, scale, zero = types
    need_integers(data, "data")
    check_parameters(data, attrs.axis, scale, zero, "input_")
    return TensorType(data.shape, attrs.out_dtype)


@operator(
    "qnn.dequantize",
    traits=Traits(layout="conversion"),
    rel=_dequantize_rel,
    compute="nn.dequantize",
    pattern=BROADCAST,
)
def dequantize(
    data: Tensor, input_scale: Float32, input_zero_point: Int32, axis: int = -1, out_dtype: Dtype = "float32"
) -> Call:
    """Integers as the real numbers that they stand for."""


_ROUNDING = ("UPWARD", "TONEAREST", "TONEAREST_EVEN")
_config: list[tuple[str, str]] = [("UPWARD", "None")]


@contextmanager
def requantize_config(rounding: str = "UPWARD", compute_dtype: str = "None") -> Iterator[None]:
    """The default rounding and compute type of `requantize`."""
    _config.append((rounding, compute_dtype))
    try:
        yield
    finally:
        _config.pop()


def _requantize_rel(types: list[Any], attrs: Any) -> Type:
    data, scale, zero, out_scale, out_zero = types
    need_integers(data, "data")
    size = channels_of(data, attrs.axis, types[1:])
    check_parameter(scale, size, "input_scale")
    check_parameter(zero, size, "input_zero_point")
    check_parameter(out_scale, size, "output_scale")
    check_parameter(out_zero, size, "output_zero_point")
    if attrs.rounding not in _ROUNDING:
        raise refuse(f"is {attrs.rounding!r} and may be {', '.join(_ROUNDING)}", "rounding")
    if not attrs.out_dtype.is_integral:
        raise refuse(f"is {attrs.out_dtype} and must be an integer type", "out_dtype")
    return TensorType(data.shape, attrs.out_dtype)


def _requantize_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    # Scales are tensors here, so what fixed-point numbers would give is computed in 64-bit floats.
    kind = "float32" if attrs.compute_dtype == "float32" else "float64"
    work: Any = topi.nn.requantize
    return [work(*ins, attrs.axis, attrs.rounding, kind, attrs.out_dtype)]


@operator(
    "qnn.requantize",
    traits=Traits(layout="conversion"),
    rel=_requantize_rel,
    compute=_requantize_compute,
    pattern=BROADCAST,
    attrs={"rounding": text("UPWARD")},
)
def requantize(
    data: Tensor,
    input_scale: Float32,
    input_zero_point: Int32,
    output_scale: Float32,
    output_zero_point: Int32,
    axis: int = -1,
    rounding: str = "None",
    compute_dtype: str = "None",
    out_dtype: Dtype = "int8",
) -> Call:
    """Integers of one scale as integers of another."""
    how, kind = _config[-1]
    return given(
        rounding=how if rounding == "None" else rounding,
        compute_dtype=kind if compute_dtype == "None" else compute_dtype,
    )


# ---------------------------------------------------------------------------- simulation
def _simulated_rel(types: list[Any], attrs: Any) -> Type:
    data, code, scale, zero = types
    need_float(data, "data")
    need_integers(code, "dtype")
    check_parameters(data, attrs.axis, scale, zero, "")
    return data


def _simulated(name: str, side: str) -> Callable[[Constructor], Constructor]:
    return operator(
        f"qnn.{name}",
        inputs=("data", "dtype", f"{side}_scale", f"{side}_zero_point"),
        rel=_simulated_rel,
        compute=lambda attrs, ins, out: [getattr(topi.nn, name)(*ins, attrs.axis)],
        pattern=BROADCAST,
    )


def _code(kind: Any) -> Expr:
    """A type as the number that the program can choose it by."""
    if isinstance(kind, Expr):
        return kind
    from ...topi.nn.qnn import SQNN_DTYPE_TO_CODE as known

    if kind not in known:
        raise ValueError(f"the type is {kind!r} and may be {', '.join(known)}")
    return const(known[kind], "int32")


@_simulated("simulated_quantize", "output")
def simulated_quantize(
    data: Tensor, output_scale: Float32, output_zero_point: Int32, axis: int = -1, out_dtype: Any = "int8"
) -> Call:
    """The result of quantize as floats; the type may be computed by the program."""
    return given(dtype=_code(out_dtype))


@_simulated("simulated_dequantize", "input")
def simulated_dequantize(
    data: Tensor, input_scale: Float32, input_zero_point: Int32, axis: int = -1, in_dtype: Any = "int8"
) -> Call:
    """The result of dequantize for integers that are stored as floats."""
    return given(dtype=_code(in_dtype))


# ---------------------------------------------------------------------------- by way of real numbers
def _binary_rel(types: list[Any], attrs: Any) -> Type:
    lhs, rhs = types[:2]
    need_integers(lhs, "lhs")
    need_dtype(rhs, lhs.dtype, "rhs")
    check_parameters(lhs, attrs.lhs_axis, types[2], types[3], "lhs_")
    check_parameters(rhs, attrs.rhs_axis, types[4], types[5], "rhs_")
    check_parameter(types[6], None, "output_scale")
    check_parameter(types[7], None, "output_zero_point")
    return TensorType(broadcast(lhs.shape, rhs.shape), lhs.dtype)


def _binary(name: str, doc: str) -> Callable[..., Call]:
    """An operator of two quantised tensors: in real numbers, rounded once."""

    def compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
        work = topi.multiply if name == "mul" else getattr(topi, name)
        lhs = topi.nn.dequantize(ins[0], ins[2], ins[3], attrs.lhs_axis)
        rhs = topi.nn.dequantize(ins[1], ins[4], ins[5], attrs.rhs_axis)
        return [topi.nn.quantize(work(lhs, rhs), ins[6], ins[7], -1, out.dtype)]

    def build(
        lhs: Tensor,
        rhs: Tensor,
        lhs_scale: Float32,
        lhs_zero_point: Int32,
        rhs_scale: Float32,
        rhs_zero_point: Int32,
        output_scale: Float32,
        output_zero_point: Int32,
        lhs_axis: int = -1,
        rhs_axis: int = -1,
    ) -> Call: ...

    return operator(
        f"qnn.{name}", rel=_binary_rel, compute=compute, pattern=BROADCAST, traits=Traits(layout="pair")
    )(named(build, name, __name__, doc))


add = _binary("add", "The sum of two quantised tensors.")
subtract = _binary("subtract", "The difference of two quantised tensors.")
mul = _binary("mul", "The product of two quantised tensors, element by element.")

_ONE = ("x", "scale", "zero_point", "output_scale", "output_zero_point")


def _unary_rel(types: list[Any], attrs: Any) -> Type:
    data = types[0]
    need_integers(data, "x")
    for kind, name in zip(types[1:], _ONE[1:], strict=True):
        check_parameter(kind, None, name)
    return data


def _through_real(
    name: str, work: Callable[..., Any], pattern: OpPattern = BROADCAST, attrs: dict[str, Attr] | None = None
) -> Callable[[Constructor], Constructor]:
    """An operator that is done in real numbers and quantised again."""

    def compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
        real = work(topi.nn.dequantize(ins[0], ins[1], ins[2]), attrs)
        return [topi.nn.quantize(real, ins[3], ins[4], -1, out.dtype)]

    return operator(f"qnn.{name}", inputs=_ONE, attrs=attrs, rel=_unary_rel, compute=compute, pattern=pattern)


def _unary(name: str, doc: str, work: Callable[[Any], Any]) -> Callable[..., Call]:
    def build(
        x: Tensor, scale: Float32, zero_point: Int32, output_scale: Float32, output_zero_point: Int32
    ) -> Call: ...

    return _through_real(name, lambda x, attrs: work(x))(named(build, name, __name__, doc))


tanh = _unary("tanh", "tanh of a quantised tensor.", lambda x: topi.tanh(x))
exp = _unary("exp", "exp of a quantised tensor.", lambda x: topi.exp(x))
sqrt = _unary("sqrt", "The square roots of a quantised tensor.", lambda x: topi.sqrt(x))
rsqrt = _unary("rsqrt", "1 / sqrt(x) of a quantised tensor.", lambda x: topi.rsqrt(x))
erf = _unary("erf", "The error function of a quantised tensor.", lambda x: topi.erf(x))
sigmoid = _unary("sigmoid", "The sigmoid of a quantised tensor.", lambda x: topi.sigmoid(x))
hardswish = _unary(
    "hardswish", "x · clip(x + 3, 0, 6) / 6 of a quantised tensor.", lambda x: topi.nn.hard_swish(x)
)
log = _unary("log", "The natural logarithm of a quantised tensor.", lambda x: topi.log(x))
abs = _unary("abs", "The absolute value of a quantised tensor.", lambda x: topi.abs(x))


@_through_real(
    "leaky_relu", lambda x, attrs: topi.nn.leaky_relu(x, attrs.alpha), attrs={"alpha": number(0.25)}
)
def leaky_relu(
    x: Tensor,
    alpha: float,
    input_scale: Any,
    input_zero_point: Any,
    output_scale: Float32,
    output_zero_point: Int32,
) -> Call:
    """x where it is positive, else alpha·x, of a quantised tensor."""
    return given(scale=float32(input_scale), zero_point=int32(input_zero_point))


@_through_real("softmax", lambda x, attrs: topi.nn.softmax(x, attrs.axis), OPAQUE)
def softmax(
    x: Tensor,
    scale: Float32,
    zero_point: Int32,
    output_scale: Float32,
    output_zero_point: Int32,
    axis: int = -1,
) -> Call:
    """softmax of a quantised tensor."""


def _avg_pool_rel(types: list[Any], attrs: Any) -> Type:
    _unary_rel(types, attrs)
    return pool_rel(types[:1], attrs)


def _avg_pool_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    real = topi.nn.pool2d(
        topi.nn.dequantize(ins[0], ins[1], ins[2]), attrs.pool_size, attrs.strides, attrs.dilation,
        attrs.padding, "avg", attrs.ceil_mode, attrs.layout, attrs.count_include_pad,
    )  # fmt: skip
    return [topi.nn.quantize(real, ins[3], ins[4], -1, out.dtype)]


@operator("qnn.avg_pool2d", rel=_avg_pool_rel, compute=_avg_pool_compute, pattern=FUSABLE)
def avg_pool2d(
    data: Tensor,
    input_scale: Float32,
    input_zero_point: Int32,
    output_scale: Float32,
    output_zero_point: Int32,
    pool_size: Pair,
    strides: Pair = (1, 1),
    padding: Sides = (0, 0),
    dilation: Pair = (1, 1),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NCHW",
    out_layout: str = "",
) -> Call:
    """The average of each window of a quantised tensor."""


# ---------------------------------------------------------------------------- joining
def _concatenate_rel(types: list[Any], attrs: Any) -> Type:
    data, scales, zeros = (t.fields for t in types[:3])
    if not data or len(scales) != len(data) or len(zeros) != len(data):
        raise refuse(f"has {len(data)} tensors, {len(scales)} scales and {len(zeros)} zero points", "data")
    first = data[0]
    at = axis_of(attrs.axis, len(first.shape))
    shape = list(first.shape)
    for i, kind in enumerate(data):
        need_integers(kind, f"data[{i}]")
        need_dtype(kind, first.dtype, f"data[{i}]")
        need_rank(kind, len(shape), f"data[{i}]")
        check_parameter(scales[i], None, f"input_scales[{i}]")
        check_parameter(zeros[i], None, f"input_zero_points[{i}]")
        for d, size in enumerate(kind.shape if i else ()):
            if d != at and differ(shape[d], size):
                raise refuse(f"is {kind}, which does not fit {first} along axis {at}", f"data[{i}]")
            shape[d] = add_sizes(shape[d], size) if d == at else unify(shape[d], size)
    check_parameter(types[3], None, "output_scale")
    check_parameter(types[4], None, "output_zero_point")
    return TensorType(shape, first.dtype)


def _concatenate_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    count = (len(ins) - 2) // 3
    data, scales, zeros, (scale, zero) = ins[:count], ins[count : 2 * count], ins[2 * count : -2], ins[-2:]
    parts = [
        topi.nn.requantize(d, s, z, scale, zero, -1, "UPWARD", "float64", out.dtype)
        for d, s, z in zip(data, scales, zeros, strict=True)
    ]
    return [topi.concatenate(parts, attrs.axis)]


@operator(
    "qnn.concatenate",
    attrs={"axis": integer(0)},
    rel=_concatenate_rel,
    compute=_concatenate_compute,
    pattern=INJECTIVE,
)
def concatenate(
    data: Tensors,
    input_scales: Tensors,
    input_zero_points: Tensors,
    output_scale: Float32,
    output_zero_point: Int32,
    axis: int,
) -> Call:
    """The concatenation of quantised tensors, requantized to one scale."""
    if not isinstance(input_scales, Expr):
        input_scales = [float32(s) for s in input_scales]
    if not isinstance(input_zero_points, Expr):
        input_zero_points = [int32(z) for z in input_zero_points]
    return given(input_scales=input_scales, input_zero_points=input_zero_points)
