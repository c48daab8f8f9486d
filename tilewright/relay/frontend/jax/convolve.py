"""Convolutions: all dimension numbers, groups, and dilation of the data, which makes them transposed convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...expr import Expr
from ..common import windows
from ..common.build import R, converted, dtype_of, permute, rank, reshape, static_shape
from ..common.matrices import SHORT
from ..common.pads import padded
from ..common.windows import Windows
from .table import Refusal, Site, primitive

_SPACE = {1: "W", 2: "HW", 3: "DHW"}


@primitive("conv_general_dilated")
def convolution(
    n: Site,
    x: Expr,
    weight: Expr,
    *,
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    dimension_numbers: Any,
    feature_group_count: int,
    batch_group_count: int,
    preferred_element_type: Any = None,
) -> Expr:
    check_padding(padding)
    spec = dimension_numbers
    dims = rank(x) - 2
    kernel = tuple(int(static_shape(weight, "the kernel")[d]) for d in spec.rhs_spec[2:])
    groups = int(feature_group_count)
    plain = all(d == 1 for d in lhs_dilation) and batch_group_count == 1 and 1 <= dims <= 3
    layout = _layout(spec.lhs_spec, "NC", dims)
    if plain and all(low >= 0 and high >= 0 for low, high in padding) and _channels_last(spec, layout, dims):
        w = _windows(kernel, window_strides, rhs_dilation, padding)
        wide = _wide(n, x)
        made = windows.convolve(x, weight, w, groups, wide, (layout, _layout(spec.rhs_spec, "OI", dims)))
        return converted(made, n.dtype)
    data, kernels = permute(x, spec.lhs_spec), permute(weight, spec.rhs_spec)
    if batch_group_count > 1:
        data, groups = _batch_groups(data, int(batch_group_count)), int(batch_group_count)
    made = _channels_first(
        n, data, kernels, kernel, window_strides, padding, lhs_dilation, rhs_dilation, groups
    )
    back = [list(spec.out_spec).index(d) for d in range(rank(x))]
    return converted(permute(made, back), n.dtype)


def check_padding(padding: Sequence[tuple[Any, Any]]) -> None:
    if any(not isinstance(p, int) for pair in padding for p in pair):
        raise Refusal(
            "its padding depends on a dynamic size, as SAME does with strides; pad by numbers, or keep the size fixed"
        )


def _layout(spec: Sequence[int], lead: str, dims: int) -> str:
    """Letters in the order of the dimensions: (0, 3, 1, 2) is NHWC."""
    letters = lead + _SPACE.get(dims, "X" * dims)
    return "".join(letters[list(spec).index(d)] for d in range(dims + 2))


def _channels_last(spec: Any, layout: str, dims: int) -> bool:
    """Whether data and result are NHWC and the kernel HWIO, as Flax has them: convolutions take them as they are."""
    space = _SPACE[dims]
    return (
        layout == f"N{space}C"
        and tuple(spec.out_spec) == tuple(spec.lhs_spec)
        and _layout(spec.rhs_spec, "OI", dims) == f"{space}IO"
    )


def _windows(kernel: tuple[int, ...], strides: Any, dilations: Any, padding: Any) -> Windows:
    before, after = (tuple(int(p[i]) for p in padding) for i in (0, 1))
    return Windows(kernel, tuple(map(int, strides)), tuple(map(int, dilations)), before, after)


def _wide(n: Site, x: Expr) -> str:
    """The type of the sums; empty for that of the data."""
    return "float32" if dtype_of(x) in SHORT else "" if dtype_of(x) == n.dtype else n.dtype


def _batch_groups(x: Expr, groups: int) -> Expr:
    """Groups of the batch as groups of channels: each reads its own part of the kernels."""
    batch, channels, *sizes = static_shape(x, "a convolution with batch groups: the data")
    parted = reshape(x, (groups, batch // groups, channels, *sizes))
    order = [1, 0, *range(2, rank(parted))]
    return reshape(permute(parted, order), (batch // groups, groups * channels, *sizes))


def _channels_first(
    n: Site,
    x: Expr,
    weight: Expr,
    kernel: tuple[int, ...],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    spread: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> Expr:
    """A convolution of (batch, channels, …) by (outputs, inputs of a group, …)."""
    if not kernel:
        return R.nn.matmul(x, weight, out_dtype=_wide(n, x), transpose_b=True)
    if any(d > 1 for d in spread):
        return _transposed(x, weight, kernel, strides, padding, spread, dilations, groups)
    crops = [(min(low, 0), min(high, 0)) for low, high in padding]
    x = padded(x, [(0, 0), (0, 0), *crops])
    around = [(max(low, 0), max(high, 0)) for low, high in padding]
    return windows.convolve(x, weight, _windows(kernel, strides, dilations, around), groups, _wide(n, x))


def _transposed(
    x: Expr,
    weight: Expr,
    kernel: tuple[int, ...],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    spread: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> Expr:
    """Zeros between the elements of the data: a transposed convolution by the reversed kernel."""
    dims = len(kernel)
    outputs, inputs = static_shape(weight)[:2]
    order = [0, 2, 1, *range(3, dims + 3)]
    flipped = R.flip(weight, list(range(2, dims + 2)))
    parted = permute(reshape(flipped, (groups, outputs // groups, inputs, *kernel)), order)
    weight = reshape(parted, (groups * inputs, outputs // groups, *kernel))
    reach = [d * (k - 1) for k, d in zip(kernel, dilations, strict=True)]
    crop = [(r - low, r - high) for r, (low, high) in zip(reach, padding, strict=True)]
    around = [(max(low, 0), max(high, 0)) for low, high in crop]
    made = windows.transposed(x, weight, _windows(kernel, spread, dilations, around), groups, [0] * dims)
    # Where only padding is seen, the result is 0.
    more = [(max(-low, 0), max(-high, 0)) for low, high in crop]
    made = padded(made, [(0, 0), (0, 0), *more])
    if all(s == 1 for s in strides):
        return made
    ends = list(static_shape(made)[2:])
    return R.strided_slice(made, [0] * dims, ends, list(strides), axes=list(range(2, dims + 2)))
