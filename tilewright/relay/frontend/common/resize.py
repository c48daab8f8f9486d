"""Axes brought to other sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .build import R, permute, reshape, static_shape


def resized(x: Any, axes: Sequence[int], sizes: Sequence[int], **how: Any) -> Any:
    """Up to three axes resized together, by the attributes of `image.resize2d`; the others are moved before them."""
    have = static_shape(x, "resizing: the data")
    others = [d for d in range(len(have)) if d not in axes]
    order = [*others, *axes]
    lead = [have[d] for d in others]
    flat = permute(x, order)
    if len(lead) != 2:
        flat = reshape(flat, [1, math.prod(lead), *(have[d] for d in axes)])
    work = (R.image.resize1d, R.image.resize2d, R.image.resize3d)[len(axes) - 1]
    made = reshape(work(flat, list(sizes), **how), [*lead, *sizes])
    return permute(made, [order.index(d) for d in range(len(have))])
