"""The ways in which operators work on integers with a scale, real = integer · scale."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import prod
from typing import Any, Final

import numpy as np

from .. import op as R
from ..expr import Call, Constant, Expr, Tuple
from ..op.traits import traits_of
from ..transform.rewriting import by_operator, is_call, tensor_type


class Form(Enum):
    """The integer form of an operator."""

    PRODUCT = "8-bit operands and a 32-bit result; scales are multiplied"
    SUM = "operands of one scale and a 32-bit result"
    CLAMP = "a bound on each element; type and scale are kept"
    MOVE = "8-bit elements that are moved or selected; type and scale are kept"


_FORMS: Final[dict[Any, Form]] = by_operator(
    {
        R.multiply: Form.PRODUCT,
        R.add: Form.SUM,
        R.subtract: Form.SUM,
        R.maximum: Form.SUM,
        R.minimum: Form.SUM,
        R.concatenate: Form.SUM,
        R.nn.relu: Form.CLAMP,
        R.clip: Form.CLAMP,
        R.transpose: Form.MOVE,
        R.nn.pad: Form.MOVE,
    }
)


def form_of(call: Call) -> Form | None:
    """The integer form of a call of floats; None if it has none."""
    kind = tensor_type(call)
    if kind is None or kind.dtype != "float32":
        return None
    if is_call(call, R.nn.pad) and not _pads_zeros(call):
        return None
    if is_call(call, R.concatenate) and not isinstance(call.args[0], Tuple):
        return None
    traits = traits_of(call)
    if traits.product and traits.quantised:
        return Form.PRODUCT
    return Form.MOVE if traits.quantised == "same" else _FORMS.get(call.op)


def _pads_zeros(pad: Call) -> bool:
    value = pad.args[1]
    return pad.attrs.pad_mode != "constant" or (isinstance(value, Constant) and not value.numpy().any())


def is_convolution(call: Call) -> bool:
    """Whether a call is a convolution, transposed ones included."""
    return traits_of(call).product and "kernel_layout" in call.attrs


def operands(call: Call, form: Form) -> tuple[Expr, ...]:
    """The operands of a call that have a scale."""
    if isinstance(call.args[0], Tuple):
        return tuple(call.args[0].fields)
    return call.args[:1] if form in (Form.CLAMP, Form.MOVE) else call.args


def over(call: Call, new: Sequence[Expr], attrs: Any = None) -> Call:
    """The call with other operands that have a scale."""
    args = (Tuple(new),) if isinstance(call.args[0], Tuple) else (*new, *call.args[len(new) :])
    return Call(call.op, args, call.attrs if attrs is None else attrs, call.type_args, call.span)


def result_scale(form: Form, scales: Sequence[float]) -> float:
    """The scale of the result of an operator: sums are in the finest scale of an operand, which loses nothing."""
    # The simulation multiplies by scales in float32, and those of a sum and its bias must be equal.
    return float(np.float32(prod(scales))) if form is Form.PRODUCT else min(scales)
