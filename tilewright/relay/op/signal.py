"""Fourier transforms."""

from __future__ import annotations

from typing import Any

from ..expr import Call, TupleWrapper, as_expr
from ..ty import TensorType, TupleType, Type
from .computes import topi
from .creation import ones
from .pad import pad
from .registry import Tensor, given, operator, refuse
from .shapes import add, differ, floordiv, need_dtype, need_rank, sub, unlike

__all__ = ["dft", "stft"]


def _dft_rel(types: list[Any], attrs: Any) -> Type:
    re, im = types
    need_dtype(im, re.dtype, "im_data")
    if not re.shape or unlike(re.shape, im.shape):
        raise refuse(f"is {im} and re_data is {re}: they must be alike", "im_data")
    return TupleType((re, re))


@operator("dft", rel=_dft_rel, compute="dft", results=2)
def dft(re_data: Tensor, im_data: Tensor, inverse: bool = False) -> TupleWrapper:
    """The discrete Fourier transform along the last axis: real and imaginary parts."""


def _stft_rel(types: list[Any], attrs: Any) -> Type:
    data, window = types
    need_rank(data, 2, "data")
    need_rank(window, 1, "window")
    if differ(window.shape[0], attrs.n_fft):
        raise refuse(f"is {window} and must have {attrs.n_fft} elements", "window")
    rows = attrs.n_fft // 2 + 1 if attrs.onesided else attrs.n_fft
    columns = add(floordiv(sub(data.shape[1], attrs.n_fft), attrs.hop_length), 1)
    return TensorType((data.shape[0], rows, columns, 2), data.dtype)


def _stft_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    data, window = ins
    weights = topi.cast(window, str(data.dtype))
    size = attrs.n_fft
    stretches = topi.utils.simplify((data.shape[1] - size) // attrs.hop_length + 1)
    shape = (data.shape[0], *out.shape[1:2], stretches, 2)
    return [topi.stft(data, size, attrs.hop_length, size, weights, attrs.normalized, attrs.onesided, shape)]


@operator("stft", rel=_stft_rel, compute=_stft_compute)
def stft(
    data: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    normalized: bool = False,
    onesided: bool = True,
) -> Call:
    """The Fourier transform of each stretch of `n_fft` elements, `hop_length` (n_fft // 4) apart.

    A window of `win_length` is in the middle of each; without one every element counts.
    """
    hop = n_fft // 4 if hop_length is None else hop_length
    length = n_fft if win_length is None else win_length
    weights = ones((length,), "int32") if window is None else as_expr(window)
    before = (n_fft - length) // 2
    if length != n_fft:
        weights = pad(weights, ((before, n_fft - length - before),))
    return given(hop_length=hop, win_length=length, window=weights)
