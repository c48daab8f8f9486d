"""Passes over quantised graphs: operators of quantised numbers as plain arithmetic.

quantize     clip(round(x / scale) + zero_point)            dequantize   (q - zero_point) * scale
requantize   clip(round((q - zero_in) * (scale_in / scale_out)) + zero_out)
conv2d       nn.conv2d(x - zero_x, w - zero_w), summed in int32; others go by way of real numbers
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...ir.transform import ModulePass, Pass, PassContext, PassInfo, register_pass
from ..expr import Call, Constant, Expr, Function, Tuple, const
from ..op import layouts as names
from ..transform.canonicalize_ops import along_axis
from ..transform.legalize import Legalize as legalize_pass
from ..transform.rewriting import CallRewriter, call, name_of, ndim_of, static_shape, type_of, typed_pass

__all__ = ["CanonicalizeOps", "Legalize", "canonicalize_qnn_ops"]


def canonicalize_qnn_ops(func: Function) -> Function:
    """Write operators of quantised numbers as plain ones.

        qnn.dequantize(%q, %s, %z)     ->     multiply(cast(subtract(cast(%q, "int32"), %z), "float32"), %s)

    An operator's attribute `FTVMQnnCanonicalize` goes before the rule that is here.
    """
    return _Canonicalize(_RULES).visit(func)  # type: ignore[no-any-return]


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
    """A scale or zero point as something that broadcasts: one number, or a vector along an axis."""
    shape = static_shape(parameter)
    if shape is not None and len(shape) == 1 and shape[0] == 1:
        return call("reshape", parameter, newshape=())
    return along_axis(parameter, axis, ndim_of(data)) if shape else parameter


def _range(kind: Any) -> tuple[float, float]:
    if kind.is_uint:
        return 0.0, float((1 << kind.bits) - 1)
    return float(-(1 << (kind.bits - 1))), float((1 << (kind.bits - 1)) - 1)


def _real(kind: Any) -> str:
    """A float type that has all integers of a type."""
    return "float32" if kind.bits < 32 else "float64"


def _rounded(x: Expr, rounding: str) -> Expr:
    if rounding == "TONEAREST_EVEN":
        return call("round", x)
    half = const(0.5, str(type_of(x).dtype))
    if rounding == "UPWARD":
        return call("floor", call("add", x, half))
    return call("multiply", call("sign", x), call("floor", call("add", call("abs", x), half)))


def _into(x: Expr, kind: Any) -> Expr:
    """Integers held as floats, kept within a type and converted to it."""
    low, high = _range(kind)
    return call("cast", call("clip", x, a_min=low, a_max=high), dtype=kind)


def _quantized(x: Expr, scale: Expr, zero: Expr, axis: int, kind: Any) -> Expr:
    real = _real(kind)
    steps = call("divide", call("cast", x, dtype=real), call("cast", _spread(scale, x, axis), dtype=real))
    rounded = call("round", steps)
    return _into(call("add", rounded, call("cast", _spread(zero, x, axis), dtype=real)), kind)


def _dequantized(q: Expr, scale: Expr, zero: Expr, axis: int, kind: Any = "float32") -> Expr:
    centred = call("cast", q, dtype="int32")
    if not _is_number(zero, 0):
        centred = call("subtract", centred, _spread(zero, q, axis))
    return call(
        "multiply", call("cast", centred, dtype=kind), call("cast", _spread(scale, q, axis), dtype=kind)
    )


# ---------------------------------------------------------------------------- conversions
def _quantize(at: Call) -> Expr:
    data, scale, zero = at.args
    return _quantized(data, scale, zero, at.attrs.axis, at.attrs.out_dtype)


def _dequantize(at: Call) -> Expr:
    data, scale, zero = at.args
    return _dequantized(data, scale, zero, at.attrs.axis, at.attrs.out_dtype)


def _requantize(at: Call) -> Expr:
    q, scale, zero, out_scale, out_zero = at.args
    axis, real = at.attrs.axis, "float32" if at.attrs.compute_dtype == "float32" else "float64"
    x = call("cast", q, dtype="int32")
    if not _is_number(zero, 0):
        x = call("subtract", x, _spread(zero, q, axis))
    ratio = call(
        "divide",
        call("cast", _spread(scale, q, axis), dtype=real),
        call("cast", _spread(out_scale, q, axis), dtype=real),
    )
    made = _rounded(call("multiply", call("cast", x, dtype=real), ratio), at.attrs.rounding)
    made = call("add", made, call("cast", _spread(out_zero, q, axis), dtype=real))
    return _into(made, at.attrs.out_dtype)


# ---------------------------------------------------------------------------- products
def _centred(q: Expr, zero: Expr, axis: int) -> Expr:
    """The quantised numbers without their zero point, in a type with room for it."""
    if _is_number(zero, 0):
        return q
    kind = "int16" if type_of(q).dtype.bits == 8 else "int32"
    return call("subtract", call("cast", q, dtype=kind), call("cast", _spread(zero, q, axis), dtype=kind))


def _operands(at: Call, axis: int) -> tuple[Expr, Expr]:
    """Both sides of a product; `axis` is that of the weight's outputs."""
    data, weight, zero, weight_zero = at.args[:4]
    return _centred(data, zero, -1), _centred(weight, weight_zero, axis)


def _conv(name: str) -> Callable[[Call], Expr]:
    def rule(at: Call) -> Expr:
        outputs = [v for v, _ in names.axes(at.attrs.kernel_layout)].index("O")
        return call(name, *_operands(at, outputs), **dict(at.attrs.items()))

    return rule


def _dense(at: Call) -> Expr:
    return call("nn.dense", *_operands(at, 0), **dict(at.attrs.items()))


def _batch_matmul(at: Call) -> Expr:
    return call("nn.batch_matmul", *_operands(at, 0), out_dtype=at.attrs.out_dtype, transpose_b=True)


# ---------------------------------------------------------------------------- by way of real numbers
def _binary(name: str) -> Callable[[Call], Expr]:
    def rule(at: Call) -> Expr:
        lhs, rhs, *p = at.args
        made = call(
            name,
            _dequantized(lhs, p[0], p[1], at.attrs.lhs_axis),
            _dequantized(rhs, p[2], p[3], at.attrs.rhs_axis),
        )
        return _quantized(made, p[4], p[5], -1, type_of(at).dtype)

    return rule


def _unary(work: Callable[[Expr, Any], Expr]) -> Callable[[Call], Expr]:
    def rule(at: Call) -> Expr:
        x, scale, zero, out_scale, out_zero = at.args
        made = work(_dequantized(x, scale, zero, -1), at.attrs)
        return _quantized(made, out_scale, out_zero, -1, type_of(at).dtype)

    return rule


def _named(name: str) -> Callable[[Call], Expr]:
    return _unary(lambda x, attrs: call(name, x, **dict(attrs.items())))


def _hardswish(x: Expr, attrs: Any) -> Expr:
    shifted = call("clip", call("add", x, const(3.0, "float32")), a_min=0.0, a_max=6.0)
    return call("divide", call("multiply", x, shifted), const(6.0, "float32"))


def _concatenate(at: Call) -> Expr | None:
    data, scales, zeros, out_scale, out_zero = at.args
    if not all(isinstance(t, Tuple) for t in (data, scales, zeros)):
        return None
    rows: Any = zip(data.fields, scales.fields, zeros.fields, strict=True)  # type: ignore[attr-defined]
    parts = [
        _requantize(
            call(
                "qnn.requantize", q, s, z, out_scale, out_zero, out_dtype=type_of(at).dtype, rounding="UPWARD"
            )
        )
        for q, s, z in rows
    ]
    return call("concatenate", Tuple(parts), axis=at.attrs.axis)


_RULES: Final[dict[str, Callable[[Call], Any]]] = {
    "qnn.quantize": _quantize,
    "qnn.dequantize": _dequantize,
    "qnn.requantize": _requantize,
    "qnn.conv2d": _conv("nn.conv2d"),
    "qnn.conv2d_transpose": _conv("nn.conv2d_transpose"),
    "qnn.dense": _dense,
    "qnn.batch_matmul": _batch_matmul,
    "qnn.add": _binary("add"),
    "qnn.subtract": _binary("subtract"),
    "qnn.mul": _binary("multiply"),
    **{f"qnn.{n}": _named(n) for n in ("tanh", "exp", "sqrt", "rsqrt", "erf", "sigmoid", "log", "abs")},
    "qnn.hardswish": _unary(_hardswish),
    "qnn.leaky_relu": _named("nn.leaky_relu"),
    "qnn.softmax": _named("nn.softmax"),
    "qnn.avg_pool2d": _named("nn.avg_pool2d"),
    "qnn.concatenate": _concatenate,
}

CanonicalizeOps = typed_pass(canonicalize_qnn_ops, name="qnn.CanonicalizeOps", opt_level=0)
_INFO: Final = PassInfo(0, "qnn.Legalize")


def Legalize() -> Pass:
    """The pass that replaces quantised operators by what their attribute `FTVMQnnLegalize` makes of them."""

    def work(mod: Any, ctx: PassContext) -> Any:
        return legalize_pass("FTVMQnnLegalize")(mod)

    return ModulePass(work, _INFO)


register_pass("qnn.Legalize", Legalize)
