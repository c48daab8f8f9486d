"""NumPy references of operators for tests, under the names of the classic API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..homes import home_of
from . import cuda, generic, nn


# ---------------------------------------------------------------------------- schedules
def _schedules_of(target: Any) -> Any:
    """The module of plain schedules for a target: loops on processors, threads on GPUs."""
    return cuda if target is not None and home_of("targets").Target(target).is_gpu else generic


def get_injective_schedule(target: Any = None) -> Callable[..., Any]:
    """The schedule function of injective operators for a target."""
    found: Callable[..., Any] = _schedules_of(target).schedule_injective
    return found


get_elemwise_schedule = get_broadcast_schedule = get_injective_schedule


def get_reduce_schedule(target: Any = None) -> Callable[..., Any]:
    """The schedule function of reductions for a target."""
    found: Callable[..., Any] = _schedules_of(target).schedule_reduce
    return found


def get_conv2d_nchw_implement(target: Any = None) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The compute of an NCHW convolution with OIHW, and its schedule function for a target."""
    return nn.conv2d_nchw, _schedules_of(target).schedule_conv2d_nchw


# ---------------------------------------------------------------------------- convolution
def _pads(padding: Any, kernel: tuple[int, ...], strides: tuple[int, ...], sizes: tuple[int, ...]) -> Any:
    """(before, after) for each dimension, from numbers, pairs, four numbers, "VALID" or "SAME"."""
    n = len(kernel)
    if padding == "VALID":
        return [(0, 0)] * n
    if padding == "SAME":
        out = []
        for k, s, size in zip(kernel, strides, sizes):
            total = max(((size + s - 1) // s - 1) * s + k - size, 0)
            out.append((total // 2, total - total // 2))
        return out
    given = (padding,) * n if isinstance(padding, int) else tuple(padding)
    return [(given[d], given[d if len(given) == n else d + n]) for d in range(n)]


def _correlate(a: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """Convolution of (batch, channels, …) with (out, channels / groups, …), the sum of shifted products."""
    n = a.ndim - 2
    kernel = tuple(w.shape[2:])
    strides = (stride,) * n if isinstance(stride, int) else tuple(stride)
    steps = (dilation,) * n if isinstance(dilation, int) else tuple(dilation)
    spread = tuple((k - 1) * s + 1 for k, s in zip(kernel, steps))
    padded = np.pad(a, [(0, 0), (0, 0), *_pads(padding, spread, strides, a.shape[2:])])
    sizes = tuple((p - k) // s + 1 for p, k, s in zip(padded.shape[2:], spread, strides))
    outs, ins = w.shape[0] // groups, a.shape[1] // groups
    result = np.zeros((a.shape[0], w.shape[0], *sizes), np.result_type(a, w))
    for g in range(groups):
        part, own = slice(g * outs, (g + 1) * outs), slice(g * ins, (g + 1) * ins)
        for at in np.ndindex(*kernel):
            places = [
                slice(p * d, p * d + (size - 1) * s + 1, s)
                for p, d, s, size in zip(at, steps, strides, sizes)
            ]
            window = padded[(slice(None), own, *places)]
            result[:, part] += np.einsum("nc...,oc->no...", window, w[(part, slice(None), *at)])
    return result.astype(a.dtype)


def conv2d_nchw_python(
    a_np: Any, w_np: Any, stride: Any, padding: Any, groups: int = 1, dilation: Any = 1
) -> Any:
    """Convolution of NCHW with OIHW, or of NCDHW with OIDHW."""
    return _correlate(a_np, w_np, stride, padding, dilation, groups)


conv3d_ncdhw_python = conv2d_nchw_python


def conv2d_nhwc_python(
    a_np: Any, w_np: Any, stride: Any, padding: Any, groups: int = 1, dilation: Any = 1
) -> Any:
    """Convolution of NHWC with HWIO."""
    a, w = a_np.transpose(0, 3, 1, 2), w_np.transpose(3, 2, 0, 1)
    return _correlate(a, w, stride, padding, dilation, groups).transpose(0, 2, 3, 1)


def conv2d_hwcn_python(a_np: Any, w_np: Any, stride: Any, padding: Any, dilation: Any = 1) -> Any:
    """Convolution of HWCN with HWIO."""
    a, w = a_np.transpose(3, 2, 0, 1), w_np.transpose(3, 2, 0, 1)
    return _correlate(a, w, stride, padding, dilation, 1).transpose(2, 3, 1, 0)


def conv1d_ncw_python(a_np: Any, w_np: Any, stride: Any, padding: Any, dilation: Any = 1) -> Any:
    """Convolution of NCW with OIW."""
    return _correlate(a_np, w_np, stride, padding, dilation, 1)


def depthwise_conv2d_python_nchw(input_np: Any, filter_np: Any, stride: Any, padding: Any) -> Any:
    """Each channel by filters of its own: NCHW with (channel, multiplier, H, W)."""
    channels, many = filter_np.shape[:2]
    w = filter_np.reshape(channels * many, 1, *filter_np.shape[2:])
    return _correlate(input_np, w, stride, padding, 1, channels)


def depthwise_conv2d_python_nhwc(input_np: Any, filter_np: Any, stride: Any, padding: Any) -> Any:
    """Each channel by filters of its own: NHWC with (H, W, channel, multiplier)."""
    made = depthwise_conv2d_python_nchw(
        input_np.transpose(0, 3, 1, 2), filter_np.transpose(2, 3, 0, 1), stride, padding
    )
    return made.transpose(0, 2, 3, 1)


def dilate_python(input_np: Any, strides: Any, dilation_value: float = 0.0, out_dtype: Any = None) -> Any:
    """Elements moved apart, the value between them."""
    sizes = [(n - 1) * s + 1 for n, s in zip(input_np.shape, strides)]
    out = np.full(sizes, dilation_value, out_dtype or input_np.dtype)
    out[tuple(slice(None, None, s) for s in strides)] = input_np
    return out


# ---------------------------------------------------------------------------- products and norms
def dense(
    x: Any, y: Any, bias: Any, use_bias: bool = False, use_relu: bool = False, out_dtype: Any = None
) -> Any:
    """x times the transpose of y, a bias added and negatives cut off where asked."""
    out = np.dot(x.astype(out_dtype or x.dtype), y.T.astype(out_dtype or x.dtype))
    out = out + bias if use_bias else out
    return np.maximum(out, 0) if use_relu else out


def batch_matmul(x: Any, y: Any, out_dtype: Any = None, trans_x: bool = False, trans_y: bool = True) -> Any:
    """Products of matrices, one for each batch; the second is given transposed."""
    a = x.transpose(0, 2, 1) if trans_x else x
    b = y.transpose(0, 2, 1) if trans_y else y
    return np.matmul(a.astype(out_dtype or a.dtype), b.astype(out_dtype or b.dtype))


def softmax_python(a_np: Any, axis: int = 1) -> Any:
    """exp(x) over the sum of exp(x)."""
    e = np.exp(a_np - a_np.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def log_softmax_python(a_np: Any, axis: int = 1) -> Any:
    """The logarithm of softmax."""
    moved = a_np - a_np.max(axis, keepdims=True)
    return moved - np.log(np.exp(moved).sum(axis, keepdims=True))


def layer_norm_python(data: Any, gamma: Any, beta: Any, axis: Any, epsilon: float = 1e-5) -> Any:
    """Over the axes, mean 0 and variance 1, then scaled and moved."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    centred = data - data.mean(axes, keepdims=True)
    out = centred / np.sqrt((centred**2).mean(axes, keepdims=True) + epsilon) * gamma
    return out if beta is None else out + beta


def batch_norm(
    x: Any, gamma: Any, beta: Any, moving_mean: Any, moving_var: Any, axis: int = 1, epsilon: float = 1e-5
) -> list[Any]:
    """Each channel by the mean and variance that are given; gives them back as they are."""
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    a, b, m, v = (t.reshape(shape) for t in (gamma, beta, moving_mean, moving_var))
    return [(x - m) / np.sqrt(v + epsilon) * a + b, moving_mean, moving_var]


# ---------------------------------------------------------------------------- moving elements
def concatenate_python(arrays: Any, axis: int = 0) -> Any:
    """Arrays one behind the other."""
    return np.concatenate(arrays, axis)


def _slices(begin: Any, end: Any, strides: Any, slice_mode: str = "end") -> tuple[slice, ...]:
    strides = [1] * len(begin) if strides is None else list(strides)
    strides += [1] * (len(begin) - len(strides))
    out = []
    for d, b in enumerate(begin):
        e = end[d] if d < len(end) else None
        if slice_mode == "size":
            out.append(slice(b, None if e is None or e < 0 else b + e))
        else:
            out.append(slice(b, e, strides[d] if d < len(strides) else 1))
    return tuple(out)


def strided_slice_python(
    data: Any, begin: Any, end: Any, strides: Any, slice_mode: str = "end", axes: Any = None
) -> Any:
    """The part of an array between places, in steps."""
    picked = _slices(begin, end, strides, slice_mode)
    if axes is None:
        return data[picked]
    where = dict(zip((a % data.ndim for a in axes), picked))
    return data[tuple(where.get(d, slice(None)) for d in range(data.ndim))]


def strided_set_python(data: Any, v: Any, begin: Any, end: Any, strides: Any) -> Any:
    """A copy of the array with a part of it replaced."""
    out = data.copy()
    out[_slices(begin, end, strides)] = v
    return out


def gather_python(data: Any, axis: int, indices: Any) -> Any:
    """Elements at the places that the indices name along an axis."""
    at = list(np.indices(indices.shape))
    at[axis] = indices
    return data[tuple(at)]


def gather_nd_python(a_np: Any, indices_np: Any) -> Any:
    """Slices at the points whose coordinates lie along the first axis."""
    return a_np[tuple(indices_np)]


def one_hot(indices: Any, on_value: Any, off_value: Any, depth: int, axis: int, dtype: str) -> Any:
    """One value at the index and another elsewhere, along a new axis."""
    made = np.where(indices[..., None] == np.arange(depth), on_value, off_value).astype(dtype)
    return np.moveaxis(made, -1, axis)


def sequence_mask(data: Any, valid_length: Any, mask_value: Any, axis: int) -> Any:
    """The array with a value from each length on."""
    time = np.arange(data.shape[axis])
    beyond = time[:, None] >= valid_length[None] if axis == 0 else time[None] >= valid_length[:, None]
    return np.where(beyond.reshape(*beyond.shape, *[1] * (data.ndim - 2)), mask_value, data).astype(
        data.dtype
    )


def matrix_set_diag(input_np: Any, diagonal: Any, k: Any = 0, align: str = "RIGHT_LEFT") -> Any:
    """Matrices with new values on one diagonal or several."""
    out = input_np.copy()
    low, high = (k, k) if isinstance(k, int) else (k[0], k[-1])
    rows, columns = out.shape[-2:]
    above, below = (side == "RIGHT" for side in align.split("_"))
    longest = diagonal.shape[-1]
    for offset in range(low, high + 1):
        size = min(rows + min(offset, 0), columns - max(offset, 0))
        move = longest - size if (above if offset >= 0 else below) and low != high else 0
        for p in range(size):
            source = diagonal[..., p] if low == high else diagonal[..., high - offset, p + move]
            out[..., p - min(offset, 0), p + max(offset, 0)] = source
    return out


def searchsorted_ref(sorted_sequence: Any, values: Any, side: Any, out_dtype: str) -> Any:
    """Where to insert values into sorted rows."""
    if sorted_sequence.ndim == 1:
        return np.searchsorted(sorted_sequence, values, side).astype(out_dtype)
    n = sorted_sequence.shape[-1]
    rows, asked = sorted_sequence.reshape(-1, n), values.reshape(-1, values.shape[-1])
    found = [np.searchsorted(r, v, side) for r, v in zip(rows, asked)]
    return np.array(found).reshape(values.shape).astype(out_dtype)
