"""NumPy references of pooling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_LAYOUTS = {3: "NCW", 4: "NCHW", 5: "NCDHW"}


def _from(layout: str | None, a: Any) -> Any:
    """The array with channels second."""
    wanted = _LAYOUTS[a.ndim]
    return a if layout is None else a.transpose([layout.index(c) for c in wanted])


def _to(layout: str | None, a: Any) -> Any:
    """An array with channels second, in the layout."""
    have = _LAYOUTS[a.ndim]
    return a if layout is None else a.transpose([have.index(c) for c in layout])


def poolnd_python(
    np_data: Any,
    kernel: Any,
    strides: Any,
    dilation: Any,
    padding_before: Any,
    padding_after: Any,
    pool_type: str,
    count_include_pad: bool = True,
    ceil_mode: bool = False,
    dtype: str = "float32",
    layout: str | None = None,
) -> Any:
    """The mean ("avg") or the maximum ("max") of each window, whatever the number of spatial dimensions."""
    if pool_type not in ("avg", "max"):
        raise ValueError(f"pool_type is {pool_type!r} and must be 'avg' or 'max'")
    data = _from(layout, np_data)
    last = math.ceil if ceil_mode else math.floor
    around = [(0, 0), (0, 0), *zip(padding_before, padding_after)]
    sizes = [
        last((n - (k - 1) * d - 1 + b + e) / s) + 1
        for n, k, d, b, e, s in zip(data.shape[2:], kernel, dilation, padding_before, padding_after, strides)
    ]
    numbers = np.dtype(dtype)
    empty: Any = 0
    if pool_type == "max" and not count_include_pad:
        empty = np.iinfo(numbers).min if numbers.kind in "iu" else np.finfo(numbers).min
    padded = np.pad(data.astype(numbers), around, constant_values=empty)
    real = np.pad(np.ones(data.shape[2:], bool), around[2:])
    out = np.zeros((*data.shape[:2], *sizes), numbers)
    axes = tuple(range(2, data.ndim))
    for at in np.ndindex(*sizes):
        window = tuple(
            slice(p * s, p * s + (k - 1) * d + 1, d) for p, s, k, d in zip(at, strides, kernel, dilation)
        )
        part = padded[(slice(None), slice(None), *window)]
        if pool_type == "max":
            out[(slice(None), slice(None), *at)] = part.max(axes)
            continue
        count = real[window].size if count_include_pad else int(real[window].sum())
        out[(slice(None), slice(None), *at)] = part.sum(axes) / count if count else 0
    return _to(layout, out)


def pool_grad_nchw(
    a_np: Any,
    out_grad_np: Any,
    pool_size: Any,
    strides: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool,
    count_include_pad: bool = True,
) -> Any:
    """The gradient of pooling: shared among a window, or given to its first maximum. Padding counts as zeros."""
    (kh, kw), (sh, sw), (top, left, bottom, right) = pool_size, strides, padding
    around = [(0, 0), (0, 0), (top, bottom), (left, right)]
    padded = np.pad(a_np, around)
    real = np.pad(np.ones(a_np.shape[2:], bool), around[2:])
    grads = np.zeros(padded.shape)
    batches, channels = np.indices(a_np.shape[:2])
    for i, j in np.ndindex(*out_grad_np.shape[2:]):
        rows, columns = slice(i * sh, i * sh + kh), slice(j * sw, j * sw + kw)
        own = out_grad_np[:, :, i, j]
        part = padded[:, :, rows, columns]
        if pool_type == "avg":
            count = real[rows, columns].size if count_include_pad else int(real[rows, columns].sum())
            grads[:, :, rows, columns] += own[..., None, None] / max(count, 1)
        else:
            best = part.reshape(*part.shape[:2], -1).argmax(2)
            y, x = np.unravel_index(best, part.shape[2:])
            grads[batches, channels, i * sh + y, j * sw + x] += own
    return grads[:, :, top : top + a_np.shape[2], left : left + a_np.shape[3]]


def adaptive_pool(np_data: Any, out_size: Any, pool_type: str, layout: str) -> Any:
    """The mean or the maximum of as many windows as asked, which cover the array."""
    sizes = (out_size,) if isinstance(out_size, int) else tuple(out_size)
    data = _from(layout, np_data)
    out = np.zeros((*data.shape[:2], *sizes), data.dtype)
    axes = tuple(range(2, data.ndim))
    for at in np.ndindex(*sizes):
        window = [
            slice(p * n // size, -(-(p + 1) * n // size)) for p, n, size in zip(at, data.shape[2:], sizes)
        ]
        part = data[(slice(None), slice(None), *window)]
        out[(slice(None), slice(None), *at)] = part.mean(axes) if pool_type == "avg" else part.max(axes)
    return _to(layout, out)
