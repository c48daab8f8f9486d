"""Passes over quantised graphs: operators of quantised numbers as plain arithmetic.

quantize     clip(round(x / scale) + zero_point)            dequantize   (q - zero_point) * scale
requantize   clip(round((q - zero_in) * (scale_in / scale_out)) + zero_out)
conv2d       nn.conv2d(x - zero_x, w - zero_w), summed in int32; others go by way of real numbers
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from ...ir.transform import ModulePass, Pass, PassInfo, register_pass
from .. import op as R
from ..expr import Call, Constant, Expr, Function, Tuple, const
from ..op import layouts as names
from ..op.expansions import along_axis
from ..qnn import op as Q
from .legalize import Legalize as legalize_pass
from .rewriting import CallRewriter, name_of, ndim_of, static_shape, type_of, typed_pass


def canonicalize_qnn_ops(func: Function) -> Function:
    """Write operators of quantised numbers as plain ones.

        qnn.dequantize(%q, %s, %z)     ->     multiply(cast(subtract(cast(%q, "int32"), %z), "float32"), %s)

    An operator's attribute `FTVMQnnCanonicalize` goes before the rule that is here.
    """
    return _Canonicalize(_RULES).visit(func)


class _Canonicalize(CallRewriter):
    def visit_call(self, at: Call) -> Any:
        own: Any = at.op.get_attr("FTVMQnnCanonicalize") if name_of(at).startswith("qnn.") else None
        if own is not None:
            new: Any = super(CallRewriter, self).visit_call(at)
            kinds = [*(type_of(a) for a in new.args), type_of(new)]
            made = own(new.attrs, list(new.args), kinds)
            if made is not None:
                return made
        return super().visit_call(at)


# ---------------------------------------------------------------------------- parts
def _is_number(expr: Any, value: float) -> bool:
    return isinstance(expr, Constant) and bool((expr.numpy() == value).all())


def _spread(parameter: Expr, data: Any, axis: int) -> Expr:
    """A scale or zero point in a shape that broadcasts: a scalar, or a vector along an axis."""
    shape = static_shape(parameter)
    if shape is not None and len(shape) == 1 and shape[0] == 1:
        return R.reshape(parameter, newshape=())
    return along_axis(parameter, axis, ndim_of(data)) if shape else parameter


def _real(kind: Any) -> str:
    """A float type that represents all integers of a type exactly."""
    return "float32" if kind.bits < 32 else "float64"


def _rounded(x: Expr, rounding: str) -> Expr:
    if rounding == "TONEAREST_EVEN":
        return R.round(x)
    half = const(0.5, str(type_of(x).dtype))
    if rounding == "UPWARD":
        return R.floor(R.add(x, half))
    return R.multiply(R.sign(x), R.floor(R.add(R.abs(x), half)))


def _into(x: Expr, kind: Any) -> Expr:
    """Integer-valued floats, clipped to the range of a type and converted to it."""
    return R.cast(R.clip(x, a_min=float(kind.low), a_max=float(kind.high)), dtype=kind)


def _quantized(x: Expr, scale: Expr, zero: Expr, axis: int, kind: Any) -> Expr:
    real = _real(kind)
    steps = R.divide(R.cast(x, dtype=real), R.cast(_spread(scale, x, axis), dtype=real))
    rounded = R.round(steps)
    return _into(R.add(rounded, R.cast(_spread(zero, x, axis), dtype=real)), kind)


def _dequantized(q: Expr, scale: Expr, zero: Expr, axis: int, kind: Any = "float32") -> Expr:
    centred = R.cast(q, dtype="int32")
    if not _is_number(zero, 0):
        centred = R.subtract(centred, _spread(zero, q, axis))
    return R.multiply(R.cast(centred, dtype=kind), R.cast(_spread(scale, q, axis), dtype=kind))


# ---------------------------------------------------------------------------- conversions
def _requantize(at: Call) -> Expr:
    q, scale, zero, out_scale, out_zero = at.args
    axis, real = at.attrs.axis, "float32" if at.attrs.compute_dtype == "float32" else "float64"
    x = q if type_of(q).dtype == "int32" else R.cast(q, dtype="int32")
    if not _is_number(zero, 0):
        x = R.subtract(x, _spread(zero, q, axis))
    shift = _shift(scale, out_scale) if (real, at.attrs.rounding) == ("float64", "UPWARD") else 0
    kind = at.attrs.out_dtype
    if shift and kind.bits < 32 and len(static_shape(out_zero) or ()) == 0:
        # floor(x / 2^s + 1/2), without an overflow: integers stay integers, which an accelerator can compute
        half = R.right_shift(x, const(shift - 1, "int32"))
        moved = R.right_shift(R.add(half, const(1, "int32")), const(1, "int32"))
        if not _is_number(out_zero, 0):
            moved = R.add(moved, R.cast(out_zero, dtype="int32"))
        return _into(moved, kind)
    ratio = R.divide(
        R.cast(_spread(scale, q, axis), dtype=real), R.cast(_spread(out_scale, q, axis), dtype=real)
    )
    made = _rounded(R.multiply(R.cast(x, dtype=real), ratio), at.attrs.rounding)
    made = R.add(made, R.cast(_spread(out_zero, q, axis), dtype=real))
    return _into(made, kind)


def _shift(scale: Expr, out_scale: Expr) -> int:
    """The number s, from 2 to 31, of which 2^-s is the ratio of two scales; 0 if there is none."""
    scales = [e.numpy() for e in (scale, out_scale) if isinstance(e, Constant) and e.is_scalar]
    if len(scales) != 2 or not float(scales[1]):
        return 0
    mantissa, exponent = math.frexp(float(scales[0]) / float(scales[1]))
    return 1 - exponent if mantissa == 0.5 and 2 <= 1 - exponent <= 31 else 0


# ---------------------------------------------------------------------------- products
def _centred(q: Expr, zero: Expr, axis: int) -> Expr:
    """The quantised numbers minus their zero point, in a type that can hold the difference."""
    if _is_number(zero, 0):
        return q
    kind = "int16" if type_of(q).dtype.bits == 8 else "int32"
    return R.subtract(R.cast(q, dtype=kind), R.cast(_spread(zero, q, axis), dtype=kind))


def _operands(at: Call, axis: int) -> tuple[Expr, Expr]:
    """Both sides of a product; `axis` is that of the weight's outputs."""
    data, weight, zero, weight_zero = at.args[:4]
    return _centred(data, zero, -1), _centred(weight, weight_zero, axis)


def _conv(build: Callable[..., Call]) -> Callable[[Call], Expr]:
    def rule(at: Call) -> Expr:
        return build(*_operands(at, names.axis_in(at.attrs.kernel_layout, "O")), **dict(at.attrs.items()))

    return rule


# ---------------------------------------------------------------------------- by way of real numbers
def _binary(build: Callable[..., Call]) -> Callable[[Call], Expr]:
    def rule(at: Call) -> Expr:
        lhs, rhs, *p = at.args
        made = build(
            _dequantized(lhs, p[0], p[1], at.attrs.lhs_axis), _dequantized(rhs, p[2], p[3], at.attrs.rhs_axis)
        )
        return _quantized(made, p[4], p[5], -1, type_of(at).dtype)

    return rule


def _unary(work: Callable[[Expr, Any], Expr]) -> Callable[[Call], Expr]:
    def rule(at: Call) -> Expr:
        x, scale, zero, out_scale, out_zero = at.args
        made = work(_dequantized(x, scale, zero, -1), at.attrs)
        return _quantized(made, out_scale, out_zero, -1, type_of(at).dtype)

    return rule


def _named(build: Callable[..., Call]) -> Callable[[Call], Expr]:
    return _unary(lambda x, attrs: build(x, **dict(attrs.items())))


def _hardswish(x: Expr, attrs: Any) -> Expr:
    shifted = R.clip(R.add(x, const(3.0, "float32")), a_min=0.0, a_max=6.0)
    return R.divide(R.multiply(x, shifted), const(6.0, "float32"))


def _concatenate(at: Call) -> Expr | None:
    data, scales, zeros, out_scale, out_zero = at.args
    if not all(isinstance(t, Tuple) for t in (data, scales, zeros)):
        return None
    rows: Any = zip(data.fields, scales.fields, zeros.fields, strict=True)  # type: ignore[attr-defined]
    parts = [
        _requantize(
            Q.requantize(q, s, z, out_scale, out_zero, out_dtype=type_of(at).dtype, rounding="UPWARD")
        )
        for q, s, z in rows
    ]
    return R.concatenate(Tuple(parts), axis=at.attrs.axis)


_RULES: Final[dict[Any, Callable[[Call], Any]]] = {
    Q.quantize: lambda at: _quantized(at.args[0], at.args[1], at.args[2], at.attrs.axis, at.attrs.out_dtype),
    Q.dequantize: lambda at: _dequantized(
        at.args[0], at.args[1], at.args[2], at.attrs.axis, at.attrs.out_dtype
    ),
    Q.requantize: _requantize,
    Q.conv2d: _conv(R.nn.conv2d),
    Q.conv2d_transpose: _conv(R.nn.conv2d_transpose),
    Q.dense: lambda at: R.nn.dense(*_operands(at, 0), **dict(at.attrs.items())),
    Q.batch_matmul: lambda at: R.nn.batch_matmul(*_operands(at, 0), out_dtype=at.attrs.out_dtype),
    Q.add: _binary(R.add),
    Q.subtract: _binary(R.subtract),
    Q.mul: _binary(R.multiply),
    Q.tanh: _named(R.tanh),
    Q.exp: _named(R.exp),
    Q.sqrt: _named(R.sqrt),
    Q.rsqrt: _named(R.rsqrt),
    Q.erf: _named(R.erf),
    Q.sigmoid: _named(R.sigmoid),
    Q.log: _named(R.log),
    Q.abs: _named(R.abs),
    Q.hardswish: _unary(_hardswish),
    Q.leaky_relu: _named(R.nn.leaky_relu),
    Q.softmax: _named(R.nn.softmax),
    Q.avg_pool2d: _named(R.nn.avg_pool2d),
    Q.concatenate: _concatenate,
}

CanonicalizeOps = typed_pass(canonicalize_qnn_ops, name="qnn.CanonicalizeOps", opt_level=0)


def Legalize() -> Pass:
    """The pass that replaces quantised operators by their attribute `FTVMQnnLegalize`."""
    return ModulePass(lambda mod, ctx: legalize_pass("FTVMQnnLegalize")(mod), PassInfo(0, "qnn.Legalize"))


register_pass("qnn.Legalize", Legalize)
