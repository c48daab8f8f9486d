"""Fourier transforms, by the definition."""

from __future__ import annotations

import math
from typing import Any

from .. import te
from ..ir import ops
from ..ir.expr import PrimExpr
from .utils import fail, injective, shape_text, static_int, tensor_arg

__all__ = ["dft", "stft"]


def _angle(position: Any, size: Any, kind: Any) -> PrimExpr:
    """2 pi times a part of a circle; whole turns are taken away while they are integers."""
    turns = ops.cast(kind, ops.floormod(position, size)) / ops.cast(kind, size)
    return turns * te.const(2 * math.pi, kind)


def dft(re_data: te.Tensor, im_data: te.Tensor, inverse: Any = False) -> list[te.Tensor]:
    """The discrete Fourier transform along the last axis, or its inverse: real and imaginary parts."""
    re, im = tensor_arg("dft", "re_data", re_data), tensor_arg("dft", "im_data", im_data)
    if not re.ndim or re.ndim != im.ndim or re.dtype is not im.dtype or not re.dtype.is_float:
        raise fail(
            "dft",
            f"re_data {shape_text(re.shape)} and im_data {shape_text(im.shape)} must be alike, of floats",
        )
    back = bool(static_int("dft", "inverse", int(inverse) if isinstance(inverse, bool) else inverse))
    kind, size = re.dtype, re.shape[-1]

    def part(imaginary: bool) -> te.Tensor:
        k = te.reduce_axis((0, size), "k")

        def element(*at: Any) -> PrimExpr:
            angle = _angle(at[-1] * k.var, size, kind)
            cos, sin = ops.cos(angle), ops.sin(angle)
            sin = sin if back else -sin
            a, b = re(*at[:-1], k.var), im(*at[:-1], k.var)
            return te.sum(a * sin + b * cos if imaginary else a * cos - b * sin, axis=k)

        made = te.compute(re.shape, element, "dft_im" if imaginary else "dft_re", "dft")
        if not back:
            return made
        return injective("dft", made.shape, lambda *at: made(*at) / ops.cast(kind, size))

    return [part(False), part(True)]


def stft(
    data: te.Tensor,
    n_fft: int,
    hop_length: int,
    win_length: int,
    window: te.Tensor,
    normalized: bool,
    onesided: bool,
    output_shape: Any,
) -> te.Tensor:
    """The Fourier transform of each stretch of a signal: (batch, frequency, stretch, real and imaginary part)."""
    x, weights = tensor_arg("stft", "data", data), tensor_arg("stft", "window", window)
    if x.ndim != 2 or weights.ndim != 1:
        raise fail(
            "stft",
            f"data {shape_text(x.shape)} and window {shape_text(weights.shape)} must be (batch, n) and (n,)",
        )
    kind = x.dtype
    k = te.reduce_axis((0, win_length), "k")

    def element(b: Any, row: Any, column: Any, which: Any) -> PrimExpr:
        angle = _angle(row * k.var, win_length, kind)
        value = weights(k.var) * x(b, column * hop_length + k.var)
        return te.sum(value * ops.select(ops.equal(which, 0), ops.cos(angle), -ops.sin(angle)), axis=k)

    made = te.compute(tuple(output_shape), element, "stft", "stft")
    if not normalized:
        return made
    scale = te.const(1 / math.sqrt(n_fft), kind)
    return injective("stft", made.shape, lambda *at: made(*at) * scale)
