"""Pixels dealt out to channels, as in YOLO."""

from __future__ import annotations

from typing import Any

from ... import te
from ..utils import fail, get_const_tuple, injective, shape_text, static_int, tensor_arg

__all__ = ["reorg"]


def reorg(data: te.Tensor, stride: int) -> te.Tensor:
    """NCHW with `stride` squared as many channels, and an image smaller by `stride` on each side."""
    x, step = tensor_arg("vision.reorg", "data", data), static_int("vision.reorg", "stride", stride)
    if x.ndim != 4:
        raise fail("vision.reorg", f"data has shape {shape_text(x.shape)} and must be NCHW")
    n, c, h, w = get_const_tuple(x.shape)
    few = c // (step * step)
    if not few or few * step * step != c:
        raise fail("vision.reorg", f"{c} channels do not fall into {step} by {step}")
    shape = (n, c * step * step, h // step, w // step)

    def element(*at: Any) -> Any:
        # The order of the result is that of the data, whose elements are taken as an image larger by `stride`.
        place: Any = 0
        for i, size in zip(at, shape, strict=True):
            place = place * size + i
        i, j, k, b = place % w, place // w % h, place // (w * h) % c, place // (w * h * c)
        part = k // few
        column, row = i * step + part % step, j * step + part // step
        source = column + w * step * (row + h * step * (k % few + few * b))
        return x(source // (c * h * w), source // (h * w) % c, source // w % h, source % w)

    return injective("vision.reorg", shape, element)
