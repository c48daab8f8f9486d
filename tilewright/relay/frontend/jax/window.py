"""Windows that slide over dimensions: maximum, minimum and sum pooling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...expr import Expr
from ..common import windows
from ..common.build import R, constant, is_float, permute, rank, reshape, scalar, shape_of, static_shape
from ..common.windows import Windows
from .arrange import spread
from .convolve import check_padding
from .reduction import greatest, lowest, monoid_of
from .table import Refusal, Site, primitive

_NEUTRAL: dict[str, Callable[[str], Any]] = {
    "max": lowest,
    "min": greatest,
    "add": lambda dtype: 0,
    "mul": lambda dtype: 1,
}
_REDUCE = {"max": R.max, "min": R.min, "add": R.sum, "mul": R.prod}


def _pooled(
    n: Site,
    x: Expr,
    how: str,
    kernel: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    base_dilation: Sequence[int],
    dilations: Sequence[int],
) -> Expr:
    check_padding(padding)
    nothing = scalar(_NEUTRAL[how](n.dtype), x)
    for d, inner in enumerate(base_dilation):
        if inner > 1:
            x = spread(x, d, inner - 1, nothing)
    moving = [
        d for d in range(rank(x)) if kernel[d] != 1 or strides[d] != 1 or any(padding[d]) or dilations[d] != 1
    ]
    if not moving:
        return x
    before, after = ([max(padding[d][i], 0) for d in moving] for i in (0, 1))
    for d in moving:
        low, high = (min(p, 0) for p in padding[d])
        if low or high:
            end = static_shape(x, "a window with negative padding: the data")[d] + high
            x = R.strided_slice(x, [-low], [end], axes=[d])
    each = [tuple(int(part[d]) for d in moving) for part in (kernel, strides, dilations)]
    w = Windows(each[0], each[1], each[2], tuple(before), tuple(after))
    inside = all(b < k and a < k for b, a, k in zip(w.before, w.after, w.kernel, strict=True))
    if is_float(n.dtype) and how != "mul" and len(moving) <= 3 and inside:
        return _by_operator(_pool(how, w), moving, x)
    return _by_index(x, how, w, moving, nothing)


def _by_operator(build: Callable[..., Expr], moving: list[int], *xs: Expr) -> Expr:
    """A pooling operator over a batch, channels, and the dimensions that windows move along.

    `build` is a function of the tensors and their layout.
    """
    ndim, dims = rank(xs[0]), len(moving)
    space = {1: "W", 2: "HW", 3: "DHW"}[dims]
    if ndim == dims + 2 and moving == list(range(1, ndim - 1)):
        return build(*xs, f"N{space}C")
    others = [d for d in range(ndim) if d not in moving]
    order = [*others, *moving]
    laid = [permute(x, order) for x in xs]
    lead = shape_of(laid[0])[: len(others)]
    if len(others) != 2:
        total = math.prod(static_shape(laid[0], "pooling: the data")[: len(others)])
        laid = [reshape(x, (1, total, *shape_of(x)[len(others) :])) for x in laid]
    made = build(*laid, f"NC{space}")
    if len(others) != 2:
        made = reshape(made, (*lead, *shape_of(made)[2:]))
    return permute(made, [order.index(d) for d in range(ndim)])


def _pool(how: str, w: Windows) -> Callable[..., Expr]:
    """The pooling operator of a way to combine."""

    def build(x: Expr, layout: str) -> Any:
        if how == "min":
            return R.negative(windows.pool("max", R.negative(x), w, layout=layout))
        if how == "max":
            return windows.pool("max", x, w, layout=layout)
        average = windows.pool("avg", x, w, layout=layout, count_include_pad=True)
        return R.multiply(average, scalar(float(math.prod(w.kernel)), x))

    return build


def _by_index(x: Expr, how: str, w: Windows, moving: list[int], nothing: Expr) -> Expr:
    """The elements of each window gathered, and reduced."""
    sizes = static_shape(x, "a window: the data")
    others = [d for d in range(len(sizes)) if d not in moving]
    order = [*others, *moving]
    lead = [sizes[d] for d in others]
    flat, inside, counts = w.index([sizes[d] for d in moving])
    lines = reshape(permute(x, order), [*lead, math.prod(sizes[d] for d in moving)])
    seen = R.take(lines, constant(flat.astype(np.int32)), axis=len(lead))
    seen = seen if inside.all() else R.where(constant(inside), seen, nothing)
    made = _REDUCE[how](seen, [rank(seen) - 1], False)
    return permute(reshape(made, [*lead, *counts]), [order.index(d) for d in range(len(sizes))])


def _named(how: str) -> Any:
    def work(
        n: Site,
        x: Expr,
        *,
        window_dimensions: Any,
        window_strides: Any,
        padding: Any,
        base_dilation: Any,
        window_dilation: Any,
    ) -> Expr:
        return _pooled(n, x, how, window_dimensions, window_strides, padding, base_dilation, window_dilation)

    return work


for _primitive, _how in (
    ("reduce_window_max", "max"),
    ("reduce_window_min", "min"),
    ("reduce_window_sum", "add"),
):
    primitive(_primitive)(_named(_how))


@primitive("reduce_window")
def reduce_window(
    n: Site,
    x: Expr,
    init: Expr,
    *,
    jaxpr: Any,
    window_dimensions: Any,
    window_strides: Any,
    padding: Any,
    base_dilation: Any,
    window_dilation: Any,
    consts: Any = (),
) -> Expr:
    how = monoid_of(jaxpr)
    first = n.known(1)
    if how not in _NEUTRAL or first is None or first.item() != _NEUTRAL[how](n.dtype):
        raise Refusal(
            f"windows combined by {how} from {first} on are not supported: start from the neutral element"
        )
    return _named(how)(
        n,
        x,
        window_dimensions=window_dimensions,
        window_strides=window_strides,
        padding=padding,
        base_dilation=base_dilation,
        window_dilation=window_dilation,
    )


@primitive("select_and_scatter_add")
def select_and_scatter_add(
    n: Site,
    source: Expr,
    x: Expr,
    *,
    select_prim: Any,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
) -> Expr:
    """The gradient of a maximum pool."""
    check_padding(padding)
    moving = [d for d in range(rank(x)) if window_dimensions[d] != 1 or window_strides[d] != 1]
    if select_prim.name != "ge" or not 1 <= len(moving) <= 3 or any(p < 0 for pair in padding for p in pair):
        raise Refusal(f"windows of {tuple(window_dimensions)} with {select_prim} are not supported")
    if any(padding[d] != (0, 0) for d in range(rank(x)) if d not in moving):
        raise Refusal("padding along a dimension without windows is not supported")
    work = getattr(R.nn, f"max_pool{len(moving)}d_grad")

    def build(gradient: Expr, data: Expr, layout: str) -> Any:
        around = [padding[d][i] for i in (0, 1) for d in moving]
        sizes, strides = ([int(part[d]) for d in moving] for part in (window_dimensions, window_strides))
        return work(gradient, data, sizes, strides, around, layout)

    return _by_operator(build, moving, source, x)
