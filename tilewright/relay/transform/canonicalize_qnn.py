"""Passes over quantised graphs: operators of quantised numbers as plain arithmetic.

quantize     clip(round(x / scale) + zero_point)            dequantize   (q - zero_point) * scale
requantize   clip(round((q - zero_in) * (scale_in / scale_out)) + zero_out)
products are in `qnn_products`; others go by way of real numbers
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from ...ir.transform import ModulePass, Pass, PassInfo, register_pass
from .. import op as R
from ..expr import Call, Constant, Expr, Function, Tuple, const
from ..qnn import op as Q
from . import qnn_products
from .legalize import Legalize as legalize_pass
from .qnn_products import is_number, spread
from .rewriting import CallRewriter, name_of, static_shape, type_of, typed_pass


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
    steps = R.divide(R.cast(x, dtype=real), R.cast(spread(scale, x, axis), dtype=real))
    rounded = R.round(steps)
    return _into(R.add(rounded, R.cast(spread(zero, x, axis), dtype=real)), kind)


def _dequantized(q: Expr, scale: Expr, zero: Expr, axis: int, kind: Any = "float32") -> Expr:
    centred = R.cast(q, dtype="int32")
    if not is_number(zero, 0):
        centred = R.subtract(centred, spread(zero, q, axis))
    return R.multiply(R.cast(centred, dtype=kind), R.cast(spread(scale, q, axis), dtype=kind))


# ---------------------------------------------------------------------------- conversions
def _requantize(at: Call) -> Expr:
    q, scale, zero, out_scale, out_zero = at.args
    axis, real = at.attrs.axis, "float32" if at.attrs.compute_dtype == "float32" else "float64"
    x = q if type_of(q).dtype == "int32" else R.cast(q, dtype="int32")
    if not is_number(zero, 0):
        x = R.subtract(x, spread(zero, q, axis))
    shift = _shift(scale, out_scale) if (real, at.attrs.rounding) == ("float64", "UPWARD") else 0
    kind = at.attrs.out_dtype
    if shift and kind.bits < 32 and len(static_shape(out_zero) or ()) == 0:
        # floor(x / 2^s + 1/2), without an overflow: integers stay integers, which an accelerator can compute
        half = R.right_shift(x, const(shift - 1, "int32"))
        moved = R.right_shift(R.add(half, const(1, "int32")), const(1, "int32"))
        if not is_number(out_zero, 0):
            moved = R.add(moved, R.cast(out_zero, dtype="int32"))
        return _into(moved, kind)
    ratio = R.divide(
        R.cast(spread(scale, q, axis), dtype=real), R.cast(spread(out_scale, q, axis), dtype=real)
    )
    made = _rounded(R.multiply(R.cast(x, dtype=real), ratio), at.attrs.rounding)
    made = R.add(made, R.cast(spread(out_zero, q, axis), dtype=real))
    return _into(made, kind)


def _shift(scale: Expr, out_scale: Expr) -> int:
    """The number s, from 2 to 31, of which 2^-s is the ratio of two scales; 0 if there is none."""
    scales = [e.numpy() for e in (scale, out_scale) if isinstance(e, Constant) and e.is_scalar]
    if len(scales) != 2 or not float(scales[1]):
        return 0
    mantissa, exponent = math.frexp(float(scales[0]) / float(scales[1]))
    return 1 - exponent if mantissa == 0.5 and 2 <= 1 - exponent <= 31 else 0


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
    Q.conv2d: qnn_products.conv2d,
    Q.conv2d_transpose: qnn_products.conv2d_transpose,
    Q.dense: qnn_products.dense,
    Q.batch_matmul: qnn_products.batch_matmul,
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
