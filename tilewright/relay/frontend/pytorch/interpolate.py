"""Images in other sizes, and read at the places of a grid."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...expr import Expr
from ..common.matrices import matmul
from ..common.resize import resized
from .build import constant, permute, rank, shape_of, sizes_of
from .build import image_ops as image
from .table import Refusal, Site, aten

_LAYOUT = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def _resize(n: Site, x: Expr, method: str, mode: str, scales: Any, rounding: str = "") -> Expr:
    """The size is that of the result; factors matter where it was rounded from them."""
    dims = rank(x) - 2
    size = [int(d) for d in n.shape[2:]]
    have = shape_of(x)[2:]
    factors = None
    if scales and all(s is not None for s in scales) and mode != "align_corners":
        exact = all(have_d * s == out for have_d, s, out in zip(have, scales, size, strict=True))
        factors = None if exact else tuple(float(s) for s in scales)
    return resized(
        x,
        range(2, 2 + dims),
        size,
        method=method,
        coordinate_transformation_mode=mode,
        rounding_method=rounding,
        cubic_alpha=-0.75,
        scales=factors,
    )


@aten("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d",
      "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d",
      "upsample_trilinear3d", "upsample_bicubic2d")  # fmt: skip
def upsample(
    n: Site,
    x: Expr,
    align_corners: bool = False,
    output_size: Any = None,
    scale_factors: Any = None,
    scales: Any = None,
    scales_d: Any = None,
    scales_h: Any = None,
    scales_w: Any = None,
) -> Expr:
    dims = rank(x) - 2
    factors = [scales] if dims == 1 else [scales_d, scales_h, scales_w][3 - dims :]
    factors = factors if scale_factors is None else list(scale_factors)
    if "nearest_exact" in n.name:
        return _resize(n, x, "nearest_neighbor", "half_pixel", factors, "round_prefer_ceil")
    if "nearest" in n.name:
        return _resize(n, x, "nearest_neighbor", "asymmetric", factors, "floor")
    mode = "align_corners" if align_corners else "half_pixel"
    return _resize(n, x, "cubic" if "bicubic" in n.name else "linear", mode, factors)


@aten("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
def upsample_antialias(
    n: Site,
    x: Expr,
    align_corners: bool,
    output_size: Any = None,
    scale_factors: Any = None,
    scales_h: Any = None,
    scales_w: Any = None,
) -> Expr:
    """Rows and columns are sums with weights that are known: a product of matrices along each."""
    if align_corners:
        raise Refusal("antialias with align_corners is not supported")
    cubic = "bicubic" in n.name
    factors = list(scale_factors) if scale_factors is not None else [scales_h, scales_w]
    for axis in (2, 3):
        have, want, factor = sizes_of(x, "resizing")[axis], int(n.shape[axis]), factors[axis - 2]
        weights = _filter(have, want, 1 / factor if factor else have / want, cubic).astype(n.dtype)
        order = [0, 1, 5 - axis, axis]
        made = matmul(permute(x, order), constant(np.ascontiguousarray(weights.T)))
        x = permute(made, order)
    return x


def _filter(have: int, want: int, step: float, cubic: bool) -> Any:
    """[new place, old place] -> its share, of a filter that is as wide as the places it stands for."""
    wide = max(step, 1.0)
    centres = (np.arange(want) + 0.5) * step
    at = np.abs(np.arange(have)[None, :] + 0.5 - centres[:, None]) / wide
    if cubic:
        near, far = (1.5 * at - 2.5) * at * at + 1, ((-0.5 * at + 2.5) * at - 4) * at + 2
        shares = np.where(at < 1, near, np.where(at < 2, far, 0.0))
    else:
        shares = np.maximum(1 - at, 0.0)
    return shares / shares.sum(1, keepdims=True)


@aten("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(
    n: Site, x: Expr, grid: Expr, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Expr:
    """torch has the coordinates last, the operator first."""
    dims = rank(x) - 2
    last = rank(grid) - 1
    method = ("bilinear", "nearest", "bicubic")[interpolation_mode]
    frame = ("zeros", "border", "reflection")[padding_mode]
    moved = permute(grid, [0, last, *range(1, last)])
    return image.grid_sample(x, moved, method, _LAYOUT[dims], frame, align_corners)
