"""AveragesAsProducts: average pooling as a convolution with ones and a rescaling, for an accelerator."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.dtype import DataType
from ...target import Target
from .. import op as R
from ..expr import Call, Expr, Function, const
from ..visitor import flow_inputs, in_order
from .offload import PARTITIONED
from .packed_ops import Blocks, blocks_of, is_widening, range_of, rule_of
from .rewriting import is_call, static_shape, tensor_type, type_of, typed_pass


def averages_as_products(func: Function) -> Function:
    """For an accelerator with a matrix unit, replace average pooling of integers by operators that it computes.

        %0 = cast(%x, "int32")                                    %0 = nn.conv2d(%x, ones, groups=channels);
        nn.avg_pool2d(%0, pool_size=(3, 3))               ->      right_shift(multiply(%0, 29128), 18)

    The sum over a window is a depthwise convolution with ones. A chip has no division: the quotient is a product with
    a rounded reciprocal and a shift, where that is exact for all sums that occur. Elements must be known not to be
    negative, as behind a rectifier: the quotient of a negative sum is rounded up. Other targets are unchanged.

    Needs: types, no lets or branches. Gives: no average pooling that the chip can compute as a product.
    """
    target = Target.current(allow_none=True)
    if target is None or not target.is_accelerator or func.attrs.get(PARTITIONED):
        return func
    blocks = blocks_of(target.accelerator)
    if blocks is None or blocks.matrix is None or {"mul", "shift_right"} - set(blocks.vector.operations):
        return func
    made: dict[Any, Any] = {}
    for e in in_order(func.body, flow_inputs):
        new = e.map_children(lambda c: made.get(c, c))
        average = _product(e, new, blocks) if is_call(e, R.nn.avg_pool2d, R.nn.global_avg_pool2d) else None
        made[e] = new if average is None else average
    body = made[func.body]
    return func.updated(body=body)


def _product(old: Call, new: Call, blocks: Blocks) -> Expr | None:
    """An average as a rescaled product; None if the chip cannot compute it so."""
    window, wide = _window(old), old.args[0]
    if window is None or not isinstance(wide, Call) or not is_widening(wide, blocks):
        return None
    data = wide.args[0]
    low, high = range_of(data)
    size, count = static_shape(data), window["kernel_size"][0] * window["kernel_size"][1]
    highest = min(high, (1 << type_of(data).dtype.bits - 1) - 1)
    steps = _reciprocal(count, int(highest) * count, blocks)
    if low < 0 or size is None or steps is None:
        return None
    channels = size[1]
    ones = np.ones((channels, 1, *window["kernel_size"]), str(type_of(data).dtype))
    made = R.nn.conv2d(data, const(ones), groups=channels, channels=channels, out_dtype=blocks.wide, **window)
    rule = rule_of(made)
    if rule is None or rule.why_not(made, blocks):
        return None
    factor, shift = steps
    narrow = new.args[0].args[0]  # type: ignore[attr-defined]  # the conversion of the new operand
    total: Expr = Call(made.op, [narrow, made.args[1]], made.attrs, span=old.span)
    if factor != 1:
        total = R.multiply(total, const(factor, blocks.wide))
    return R.right_shift(total, const(shift, blocks.wide)) if shift else total


def _window(call: Call) -> dict[str, Any] | None:
    """The window of an average over a constant number of elements, as that of a convolution."""
    a, shape, kind = call.attrs, static_shape(call.args[0]), tensor_type(call)
    if shape is None or kind is None or a.layout != "NCHW" or a.out_layout not in ("", "NCHW"):
        return None
    if is_call(call, R.nn.global_avg_pool2d):
        return {"kernel_size": shape[2:]}
    if a.ceil_mode or (any(a.padding) and not a.count_include_pad):
        return None
    return {
        "kernel_size": tuple(a.pool_size),
        "strides": a.strides,
        "padding": a.padding,
        "dilation": a.dilation,
    }


def _reciprocal(count: int, most: int, blocks: Blocks) -> tuple[int, int] | None:
    """A factor and a shift that divide all x from 0 to `most`: `x * factor >> shift == x // count`; None if none do.

    With factor * count = 2**shift + rest and rest > 0, the product is too great by x * rest / count in units of
    2**-shift, which changes no quotient while x * rest < 2**shift.
    """
    whole = count.bit_length() - 1
    if count == 1 << whole:
        return 1, whole
    bits = DataType(blocks.wide).bits - 1
    for shift in range(bits, whole, -1):
        factor = (1 << shift) // count + 1
        rest = factor * count - (1 << shift)
        if blocks.fits(factor) and most * factor < 1 << bits and most * rest < 1 << shift:
            return factor, shift
    return None


AveragesAsProducts = typed_pass(averages_as_products, name="AveragesAsProducts", opt_level=0)
