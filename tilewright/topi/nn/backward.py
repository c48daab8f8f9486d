"""Gradients of windows: of a convolution by its kernel, and of pooling by its data."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir import ops
from ...ir.dtype import DataType
from ..math import cast
from ..reduction import accumulator
from ..utils import fail, get_const_tuple, prod, static_int
from .padding import pad
from .pooling import _padded, _pool, _windows
from .utils import paddings, spatial

__all__ = ["conv_backward_weight", "pool_grad"]


def conv_backward_weight(
    grad: te.Tensor,
    data: te.Tensor,
    kernel_size: Any,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
    out_dtype: str | None = None,
) -> te.Tensor:
    """The gradient of a convolution by its kernel, with data as NC… and the kernel as OI… of any rank.

    out[o, i, kh, kw] = sum over n, oh, ow of
        grad[n, o, oh, ow] * padded[n, o // (O/groups) * (I/groups) + i, oh*stride + kh*dilation, …]
    """
    what = "nn.conv_backward_weight"
    rank = len(data.shape) - 2
    if rank < 1 or len(grad.shape) != len(data.shape):
        raise fail(what, f"grad has {len(grad.shape)} dimensions and data {len(data.shape)}", "both are NC…")
    split = static_int(what, "groups", groups)
    kernels = spatial(what, "kernel_size", kernel_size, rank)
    steps, spread = spatial(what, "strides", strides, rank), spatial(what, "dilation", dilation, rank)
    before, after = paddings(what, padding, [(k - 1) * d + 1 for k, d in zip(kernels, spread, strict=True)])
    outputs, inputs = grad.shape[1], data.shape[1]
    if get_const_tuple([outputs])[0] % split or get_const_tuple([inputs])[0] % split:
        raise fail(what, f"{split} groups do not divide {inputs} input and {outputs} output channels")
    own_in, own_out = inputs // split, outputs // split
    source = (
        pad(data, [0, 0, *before], [0, 0, *after], 0, name="pad_temp") if any((*before, *after)) else data
    )
    kind = DataType(out_dtype or data.dtype)
    wide = accumulator(kind)
    axes = [te.reduce_axis((0, n), f"r{i}") for i, n in enumerate((grad.shape[0], *grad.shape[2:]))]

    def element(o: Any, i: Any, *k: Any) -> Any:
        n, *at = (a.var for a in axes)
        channel = i if split == 1 else ops.floordiv(o, own_out) * own_in + i
        places = [p * s + q * d for p, s, q, d in zip(at, steps, k, spread, strict=True)]
        value = ops.cast(wide, grad(n, o, *at)) * ops.cast(wide, source(n, channel, *places))
        return te.sum(value, axis=axes)

    made = te.compute((outputs, own_in, *kernels), element, name="conv_backward_weight")
    return made if wide == kind else cast(made, kind)


def pool_grad(
    grads: te.Tensor,
    data: te.Tensor,
    kernel: Any,
    stride: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NCHW",
    dilation: Any = 1,
) -> te.Tensor:
    """The gradient of pooling by its data, of any rank: the sum over the windows that an element belongs to.

    A maximum passes its gradient to the first of its greatest elements.
    """
    p = _pool("nn.pool_grad", data, pool_type, layout)
    windows = _windows(p, kernel, stride, dilation, padding, ceil_mode)
    inner = [te.reduce_axis((0, w.kernel), f"w{i}") for i, w in enumerate(windows)]
    first = _first_greatest(p, windows, ceil_mode) if p.maximum else None

    def passed(*at: Any) -> Any:
        index, inside, place = list(at), [], te.const(0, "int32")
        for d, w, k in zip(p.places, windows, inner, strict=True):
            start = at[d] + w.before - k.var * w.dilation
            index[d] = ops.floordiv(start, w.stride)
            inside += [start >= 0, index[d] < w.number]
            if w.stride > 1:
                inside.append(ops.floormod(start, w.stride).equal(0))
            place = place * w.kernel + k.var
        value = grads(*index)
        if first is not None:
            inside.append(first(*index).equal(place))
        else:
            count = prod(
                w.elements(index[d], count_include_pad) for d, w in zip(p.places, windows, strict=True)
            )
            value = value / ops.cast(grads.dtype, count)
        return te.sum(ops.if_then_else(ops.all(*inside), value, te.const(0, grads.dtype)), axis=inner)

    return te.compute(p.shape, passed, name="pool_grad")


def _first_greatest(p: Any, windows: Any, ceil_mode: bool) -> te.Tensor:
    """The place in each window of the first of its greatest elements."""
    source = _padded(p, windows, ceil_mode)
    shape = p.with_sizes([w.number for w in windows])

    def axes(name: str) -> list[Any]:
        return [te.reduce_axis((0, w.kernel), f"{name}{i}") for i, w in enumerate(windows)]

    def value(at: Any, inner: Any) -> Any:
        index = list(at)
        for d, w, k in zip(p.places, windows, inner, strict=True):
            index[d] = at[d] * w.stride + k.var * w.dilation
        return source(*index)

    over, again = axes("k"), axes("q")
    best = te.compute(shape, lambda *at: te.max(value(at, over), axis=over), name="pool_max")

    def place(*at: Any) -> Any:
        flat: Any = te.const(0, "int32")
        for w, k in zip(windows, again, strict=True):
            flat = flat * w.kernel + k.var
        none = te.const(2**31 - 1, "int32")
        return te.min(ops.select(value(at, again).equal(best(*at)), flat, none), axis=again)

    return te.compute(shape, place, name="pool_place")
