"""Grey-scale dilation of images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ... import te
from ...ir import ops
from ...ir.expr import PrimExpr
from .. import tag
from ..utils import ceil_div, dtype_of, fail, injective, int_list, same_size, shape_text, tensor_arg, variant


def _pair(name: str, argument: str, value: Any) -> tuple[int, int]:
    given = int_list(name, argument, value)
    given = given * 2 if len(given) == 1 else given
    if len(given) != 2 or any(not isinstance(v, int) or v < 1 for v in given):
        raise fail(name, f"{argument} is {value!r} and must be one or two positive integers")
    return given[0], given[1]


def _borders(
    name: str, padding: Any, sizes: Sequence[Any], reach: Sequence[Any], steps: Sequence[int]
) -> list[Any]:
    """Top, left, bottom and right: given as 1, 2 or 4 numbers, or as VALID or SAME."""
    if isinstance(padding, str):
        if padding.upper() == "VALID":
            return [0, 0, 0, 0]
        if padding.upper() != "SAME":
            raise fail(name, f"padding is {padding!r}", "it is VALID, SAME or numbers")
        whole = [
            ops.max_of((ceil_div(size, s) - 1) * s + r - size, ops.cast("int32", 0))
            for size, r, s in zip(sizes, reach, steps, strict=True)
        ]
        before = [ops.floordiv(w, 2) for w in whole]
        return [*before, *(w - b for w, b in zip(whole, before, strict=True))]
    given = int_list(name, "padding", padding)
    if len(given) not in (1, 2, 4):
        raise fail(name, f"padding has {len(given)} numbers", "give 1, 2 (height, width) or 4")
    return given * (4 // len(given))


def _dilation2d(
    layout: str,
    input: Any,
    filter: Any,
    stride: Any,
    padding: Any,
    dilations: Any,
    out_dtype: str | None = None,
) -> te.Tensor:
    short = f"dilation2d_{layout}"
    name = f"image.{short}"
    x, w = tensor_arg(name, "input", input), tensor_arg(name, "filter", filter)
    if len(x.shape) != 4 or len(w.shape) != 3:
        raise fail(
            name, f"input and filter have {len(x.shape)} and {len(w.shape)} dimensions and must have 4 and 3"
        )
    c, h, wd = (layout.index(letter) for letter in "chw")
    kc, kh, kw = (layout[1:].index(letter) for letter in "chw")
    if not same_size(x.shape[c], w.shape[kc]):
        raise fail(name, f"the channels differ: {shape_text(x.shape)} and {shape_text(w.shape)}")
    steps, gaps = _pair(name, "stride", stride), _pair(name, "dilations", dilations)
    sizes, kernels = (x.shape[h], x.shape[wd]), (w.shape[kh], w.shape[kw])
    reach = [(k - 1) * g + 1 for k, g in zip(kernels, gaps, strict=True)]
    top, left, bottom, right = _borders(name, padding, sizes, reach, steps)
    outs = [
        ops.floordiv(size + (before + after) - r, s) + 1
        for size, before, after, r, s in zip(sizes, (top, left), (bottom, right), reach, steps, strict=True)
    ]
    kind = x.dtype if out_dtype is None else dtype_of(name, out_dtype)
    ry, rx = te.reduce_axis((0, kernels[0]), "ry"), te.reduce_axis((0, kernels[1]), "rx")
    least = te.const(-math.inf, kind) if kind.is_float else te.min_value(kind)

    def element(*i: Any) -> PrimExpr:
        y = i[h] * steps[0] + ry.var * gaps[0] - top
        z = i[wd] * steps[1] + rx.var * gaps[1] - left
        at, tap = list(i), [i[c], i[c], i[c]]
        at[h], at[wd] = y, z
        tap[kh], tap[kw] = ry.var, rx.var
        inside = te.all(y >= 0, y < sizes[0], z >= 0, z < sizes[1])
        value = ops.cast(kind, x(*at)) + ops.cast(kind, w(*tap))
        return te.max(ops.if_then_else(inside, value, least), axis=[ry, rx])

    shape: list[Any] = list(x.shape)
    shape[h], shape[wd] = outs
    return injective(name, shape, element, tag.COMM_REDUCE, short)


dilation2d_nchw = variant(
    "dilation2d_nchw",
    _dilation2d,
    "nchw",
    "max(input + filter) over a window, for each channel: [N, C, H, W] and [C, kh, kw].",
)
dilation2d_nhwc = variant(
    "dilation2d_nhwc",
    _dilation2d,
    "nhwc",
    "max(input + filter) over a window, for each channel: [N, H, W, C] and [kh, kw, C].",
)
