"""Comparing patches of two images."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir import ops
from ..reduction import accumulator
from ..utils import ceil_div, fail, get_const_tuple, simplify, static_int, tensor_arg
from .padding import pad
from .utils import paddings

__all__ = ["correlation_nchw"]


def correlation_nchw(
    data1: te.Tensor,
    data2: te.Tensor,
    kernel_size: Any,
    max_displacement: Any,
    stride1: Any,
    stride2: Any,
    padding: Any,
    is_multiply: bool = True,
) -> te.Tensor:
    """The correlation of patches of the first image with patches of the second displaced by up to `max_displacement`.

    out[n, q, i, j] = mean over c, kh, kw of data1[…] * data2[… moved by displacement q], or of |a - b|
    """
    what = "nn.correlation_nchw"
    first, second = tensor_arg(what, "data1", data1), tensor_arg(what, "data2", data2)
    if first.ndim != 4 or second.ndim != 4:
        raise fail(what, f"the data have {first.ndim} and {second.ndim} dimensions and NCHW has 4")
    k, far, step, move = (
        static_int(what, n, v)
        for n, v in (
            ("kernel_size", kernel_size),
            ("max_displacement", max_displacement),
            ("stride1", stride1),
            ("stride2", stride2),
        )
    )
    if k < 1 or k % 2 == 0 or far < 0 or step < 1 or move < 1:
        raise fail(what, "kernel_size must be odd, strides at least 1, max_displacement not negative")
    before, after = paddings(what, padding, (k, k))
    left, right = (_framed(t, before, after) for t in (first, second))
    batch, channels, height, width = get_const_tuple(left.shape)
    radius, border = far // move, far + (k - 1) // 2
    side = 2 * radius + 1
    down, across = (simplify(ceil_div(size - 2 * border, step)) for size in (height, width))
    if any(isinstance(s, int) and s < 1 for s in (down, across)):
        raise fail(what, f"nothing is left of {height} by {width} elements inside a border of {border}")
    held = accumulator(left.dtype)
    ci, kh, kw = (te.reduce_axis((0, s), n) for s, n in ((channels, "ci"), (k, "kh"), (k, "kw")))

    def element(n: Any, q: Any, i: Any, j: Any) -> Any:
        y = ops.add(ops.add(ops.mul(i, step), kh.var), far)
        x = ops.add(ops.add(ops.mul(j, step), kw.var), far)
        up = ops.mul(ops.sub(ops.floordiv(q, side), radius), move)
        over = ops.mul(ops.sub(ops.floormod(q, side), radius), move)
        a = ops.cast(held, left(n, ci.var, y, x))
        b = ops.cast(held, right(n, ci.var, ops.add(y, up), ops.add(x, over)))
        return te.sum(ops.mul(a, b) if is_multiply else ops.abs(ops.sub(a, b)), axis=[ci, kh, kw])

    shape = (batch, side * side, down, across)
    total = te.compute(shape, element, "correlation_sum", "correlation_nchw")
    number = ops.cast(total.dtype, channels * k * k)
    return te.compute(
        shape, lambda *at: ops.cast(left.dtype, ops.div(total(*at), number)), "correlation", "elemwise"
    )


def _framed(data: te.Tensor, before: tuple[int, ...], after: tuple[int, ...]) -> te.Tensor:
    return pad(data, (0, 0, *before), (0, 0, *after), 0, "pad_temp") if any((*before, *after)) else data
