"""Signals: Fourier transforms as products with constant matrices, frames, windows, filter banks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..common.matrices import matmul
from .build import R, cast, constant, dtype_of, rank, scalar, static_shape, take_rows
from .context import Node, Value, converter, rows
from .load import storage_dtype

_MOST = 1 << 14  # the matrix of a transform has so many rows at most


def fourier(re: Any, im: Any, length: int, rows: int, inverse: bool, kind: str) -> tuple[Any, Any]:
    """The transform along the last axis; `rows` of its frequencies."""
    if length > _MOST:
        raise ValueError(f"a transform of length {length} is too long (at most {_MOST})")
    angle = 2 * math.pi * (np.outer(np.arange(length), np.arange(rows)) % length) / length
    size = 1 / length if inverse else 1.0
    cos, sin = np.cos(angle) * size, np.sin(angle) * (size if inverse else -size)
    # Sums of many terms that cancel: in 64 bits.
    c, s = constant(cos), constant(sin)
    re, im = cast(re, "float64"), im if im is None else cast(im, "float64")
    real, imag = matmul(re, c), matmul(re, s)
    if im is not None:
        real, imag = R.subtract(real, matmul(im, s)), R.add(imag, matmul(im, c))
    return cast(real, kind), cast(imag, kind)


def _sized(x: Any, length: int) -> Any:
    """The last axis cut or filled with zeros to a length."""
    have = static_shape(x)[-1]
    if have > length:
        return R.strided_slice(x, [0], [length], axes=[rank(x) - 1])
    if have < length:
        return R.nn.pad(x, [*([(0, 0)] * (rank(x) - 1)), (0, length - have)], scalar(0, x))
    return x


@converter("DFT")
def dft(n: Node) -> Any:
    x = n[0]
    ndim = rank(x)
    if n.opset >= 20:
        axis = n.ints(2)[0] if n.has(2) else -2
    else:
        axis = int(n.attr("axis", 1))
    axis = n.front(axis, ndim)
    if axis == ndim - 1:
        raise n.refuse("along the last axis, which holds the parts of a number")
    inverse, onesided = n.flag("inverse", 0), n.flag("onesided", 0)
    parts = static_shape(x)[-1]
    order = [d for d in range(ndim - 1) if d != axis] + [axis]
    planes = []
    for i in range(parts):
        plane = R.squeeze(R.strided_slice(x, [i], [i + 1], axes=[ndim - 1]), [ndim - 1])
        planes.append(R.transpose(plane, order))
    length = (
        n.ints(1)[0]
        if n.has(1)
        else (
            static_shape(planes[0])[-1]
            if not (inverse and onesided)
            else 2 * (static_shape(planes[0])[-1] - 1)
        )
    )
    if length < 1:
        raise n.refuse(f"dft_length is {length}")
    if inverse and onesided:
        re, im = _mirrored(planes, length)
        real, _ = fourier(re, im, length, length, True, dtype_of(x))
        made = R.expand_dims(real, rank(real))
    else:
        re = _sized(planes[0], length)
        im = _sized(planes[1], length) if parts == 2 else None
        rows = length // 2 + 1 if onesided else length
        made = R.stack(list(fourier(re, im, length, rows, inverse, dtype_of(x))), rank(re))
    back = [order.index(d) for d in range(ndim - 1)] + [ndim - 1]
    return R.transpose(made, back)


def _mirrored(planes: list[Any], length: int) -> tuple[Any, Any]:
    """All frequencies of a real signal from the first half of them."""
    half = length // 2 + 1
    re, im = (_sized(p, half) for p in (planes if len(planes) == 2 else [planes[0], R.zeros_like(planes[0])]))
    rest = [length - k for k in range(half, length)]
    axis = rank(re) - 1
    if not rest:
        return re, im
    return (
        R.concatenate([re, take_rows(re, rest, axis)], axis),
        R.concatenate([im, R.negative(take_rows(im, rest, axis))], axis),
    )


@converter("STFT")
def stft(n: Node) -> Any:
    x = n[0]
    step = n.ints(1)[0]
    window = n.get(2)
    length = n.ints(3)[0] if n.has(3) else static_shape(window)[0]
    if rank(x) == 2:  # real signals may come without a dimension for the parts of a number
        x = R.expand_dims(x, 2)
    batch, total, parts = static_shape(x)
    if step < 1 or length < 1 or length > total:
        raise n.refuse(f"frames of {length} every {step} in a signal of {total}")
    count = (total - length) // step + 1
    index = (np.arange(count)[:, None] * step + np.arange(length)[None, :]).reshape(-1)
    planes: list[Any] = []
    for i in range(parts):
        plane = R.squeeze(R.strided_slice(x, [i], [i + 1], axes=[2]), [2])
        frames = R.reshape(take_rows(plane, index.tolist(), 1), [batch, count, length])
        planes.append(frames if window is None else R.multiply(frames, window))
    rows = length // 2 + 1 if n.attr("onesided", 1) else length
    found = fourier(planes[0], planes[1] if parts == 2 else None, length, rows, False, dtype_of(x))
    return R.stack(list(found), 3)


# ---------------------------------------------------------------------------- windows
def _window(n: Node, terms: list[float]) -> Value:
    size, periodic = n.ints(0)[0], n.flag("periodic", 1)
    if size < 0 or size > 1 << 28:
        raise n.refuse(f"a window of {size}")
    span = size if periodic else size - 1
    angle = 2 * np.pi * np.arange(size) / max(span, 1)
    made = sum(a * (-1) ** k * np.cos(k * angle) for k, a in enumerate(terms))
    return Value(known=np.asarray(made, storage_dtype(n.attr("output_datatype", 1))))


rows(
    {
        "HannWindow": lambda n: _window(n, [0.5, 0.5]),
        "HammingWindow": lambda n: _window(n, [25 / 46, 21 / 46]),
        "BlackmanWindow": lambda n: _window(n, [0.42, 0.5, 0.08]),
    },
)


@converter("MelWeightMatrix")
def mel_weight_matrix(n: Node) -> Any:
    bins, length, rate = (n.ints(i)[0] for i in range(3))
    low, high = (float(n.need(i)) for i in (3, 4))
    count = length // 2 + 1
    first, last = (2595 * np.log10(1 + f / 700) for f in (low, high))
    points = np.arange(bins + 2) * ((last - first) / (bins + 2)) + first
    at = np.floor((length + 1) * (700 * (10 ** (points / 2595) - 1)) / rate).astype(int)
    made = np.zeros((count, bins))
    for i in range(bins):
        left, centre, right = at[i], at[i + 1], at[i + 2]
        if centre == left:
            made[centre, i] = 1
        else:
            for j in range(left, centre + 1):
                made[j, i] = (j - left) / (centre - left)
        for j in range(centre, right):
            made[j, i] = (right - j) / (right - centre)
    return Value(known=made.astype(storage_dtype(n.attr("output_datatype", 1))))
