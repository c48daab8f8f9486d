"""QuantizeRealize: rounded floats replaced by integers."""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp
from typing import Any, Final

import numpy as np

from ...ir.errors import TVMError
from .. import op as R
from ..expr import Call, Constant, Expr, Function, const
from ..op.annotation import simulated_quantize
from ..op.traits import traits_of
from ..transform.rewriting import Mutator, is_call, type_of, typed_pass
from .config import QAnnotateKind, QConfig, current_qconfig
from .forms import Form, form_of, operands, over, result_scale

_INT32: Final = (1 << 31) - 1
_LEAST_RATIO: Final = 2.0**-31
_MOST_RATIO: Final = 1 << 23  # 8-bit integers times this are still 32-bit ones, and so is a sum of two


def quantize_realize(func: Function) -> Function:
    """Compute rounded values as integers.

        %0 = nn.conv2d(q8(%x), q8(w));          %0 = nn.conv2d(%x8, w8, out_dtype="int32");
        q8(nn.relu(add(%0, q32(b))))     ->     %1 = nn.relu(add(%0, b32));
                                                cast(clip(right_shift(add(%1, 1 << s-1), s), -127, 127), "int8")

    A ratio of scales that is a power of two is a shift; any other is a fixed-point multiplication. Needs: scales.
    """
    return _Realize(current_qconfig()).visit(func)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Fixed:
    """Integers that stand for real = integer · scale."""

    expr: Expr
    scale: float

    @property
    def as_int32(self) -> Expr:
        return self.expr if type_of(self.expr).dtype == "int32" else _cast(self.expr, "int32")


class _Realize(Mutator):
    """Every value stays a float for its readers; those that can take the integers find them in `fixed`."""

    def __init__(self, config: QConfig) -> None:
        super().__init__()
        self.config = config
        self.fixed: dict[Expr, Fixed] = {}

    def visit_call(self, call: Call) -> Any:
        new = super().visit_call(call)
        if is_call(call, simulated_quantize):
            data = new.args[0]
            if call.attrs.kind == QAnnotateKind.IDENTITY:
                return _as_float(self.fixed[data])  # which `fixed` does not know: its readers stay float
            return self.real(self.rounded(data, call.attrs))
        form = form_of(call)
        parts = [] if form is None else [self.fixed.get(p) for p in operands(new, form)]
        found = [p for p in parts if p is not None]
        if form is None or len(found) < len(parts):
            return new
        return self.real(_integer(form, new, found, self.config))

    def real(self, made: Fixed) -> Expr:
        expr = _as_float(made)
        self.fixed[expr] = made
        return expr

    def rounded(self, data: Expr, attrs: Any) -> Fixed:
        """The integers of a `simulated_quantize`."""
        limit = (1 << attrs.bits - 1) - 1
        kind = "int8" if attrs.bits <= 8 else "int32"
        if isinstance(data, Constant):
            return Fixed(const(quantized(data.numpy(), attrs.scale, limit), kind), attrs.scale)
        known = self.fixed.get(data)
        if known is not None:
            return requantized(known, attrs.scale, limit, self.config)
        steps = R.floor(R.add(R.divide(data, const(attrs.scale, "float32")), const(0.5, "float32")))
        return Fixed(_cast(R.clip(steps, a_min=-limit, a_max=limit), kind), attrs.scale)


def _as_float(made: Fixed) -> Expr:
    return R.multiply(_cast(made.expr, "float32"), const(made.scale, "float32"))  # type: ignore[no-any-return]


def quantized(values: Any, scale: float, limit: int) -> Any:
    """The nearest multiples of the scale within the limit, halves up."""
    steps = np.floor(values / np.float32(scale) + np.float32(0.5))
    return np.clip(steps.astype(np.float64), -limit, limit)


def _integer(form: Form, call: Call, parts: list[Fixed], config: QConfig) -> Fixed:
    """The integer form of a call."""
    scale = result_scale(form, [p.scale for p in parts])
    if form is Form.SUM:
        same = all(p.scale == scale and type_of(p.expr).dtype == "int8" for p in parts)
        moved = is_call(call, R.concatenate, R.maximum, R.minimum) and same
        return Fixed(over(call, [p.expr if moved else _finer(p, scale, config) for p in parts]), scale)
    if traits_of(call).product:
        return Fixed(over(call, [p.expr for p in parts], {**call.attrs, "out_dtype": "int32"}), scale)
    if form is Form.PRODUCT:
        return Fixed(over(call, [p.as_int32 for p in parts]), scale)
    data = parts[0].expr
    if is_call(call, R.clip):
        most = 127 if type_of(data).dtype == "int8" else _INT32
        low, high = (min(max(v / scale, -most), most) for v in (call.attrs.a_min, call.attrs.a_max))
        return Fixed(R.clip(data, a_min=float(round(low)), a_max=float(round(high))), scale)
    if is_call(call, R.nn.pad):
        zero = const(0, str(type_of(data).dtype))
        return Fixed(Call(call.op, (data, zero), call.attrs, call.type_args, call.span), scale)
    return Fixed(over(call, [data]), scale)


def _finer(x: Fixed, scale: float, config: QConfig) -> Expr:
    """An operand of a sum as 32-bit integers of a scale that is as fine or finer."""
    ratio = x.scale / scale
    if ratio == 1.0:
        return x.as_int32
    if ratio > _MOST_RATIO or type_of(x.expr).dtype == "int32":
        raise TVMError(
            f"quantize: the operands of a sum have the scales {x.scale:g} and {scale:g}, and the first may exceed "
            "32 bits in the second; set store_lowbit_output=True, or calibrate with other data"
        )
    shift = _log2(ratio)
    if shift is None:
        return _multiplied(x.as_int32, ratio, config.rounding)
    return R.left_shift(x.as_int32, const(shift, "int32"))  # type: ignore[no-any-return]


def requantized(x: Fixed, scale: float, limit: int, config: QConfig) -> Fixed:
    """8-bit integers of another scale."""
    ratio = x.scale / scale
    if ratio == 1.0 and type_of(x.expr).dtype == "int8":
        return x
    ratio = min(max(ratio, _LEAST_RATIO), 256.0)  # beyond, all results are 0 or at the limit
    wide, shift = x.as_int32, _log2(ratio)
    if ratio > 1.0:
        wide = R.clip(wide, a_min=-limit, a_max=limit)  # what is beyond the limit now is so afterwards
    if shift is None:
        wide = _multiplied(wide, ratio, config.rounding)
    elif shift > 0:
        wide = R.left_shift(wide, const(shift, "int32"))
    elif shift < 0:
        wide = _shifted(wide, -shift, config.round_for_shift)
    return Fixed(_cast(R.clip(wide, a_min=-limit, a_max=limit), "int8"), scale)


def _shifted(x: Expr, by: int, rounds: bool) -> Expr:
    """x / 2^by, halves up, or rounded down."""
    if rounds:
        x = R.add(x, const(1 << by - 1, "int32"))
    return R.right_shift(x, const(by, "int32"))  # type: ignore[no-any-return]


def _multiplied(x: Expr, ratio: float, rounding: str) -> Expr:
    """Integers times a positive number with a mantissa of 31 bits; halves up, or away from zero."""
    mantissa, exponent = frexp(ratio)
    multiplier = min(round(mantissa * (1 << 31)), _INT32)

    def product(of: Expr) -> Expr:
        return R.fixed_point_multiply(of, multiplier=multiplier, shift=exponent)  # type: ignore[no-any-return]

    return product(x) if rounding == "UPWARD" else R.multiply(R.sign(x), product(R.abs(x)))


def _log2(ratio: float) -> int | None:
    """The exponent of a power of two; None for any other number."""
    mantissa, exponent = frexp(ratio)
    return exponent - 1 if mantissa == 0.5 else None


def _cast(x: Expr, dtype: str) -> Expr:
    if isinstance(x, Constant):
        return const(x.numpy(), dtype)
    return R.cast(x, dtype=dtype)  # type: ignore[no-any-return]


QuantizeRealize = typed_pass(quantize_realize, name="QuantizeRealize")
