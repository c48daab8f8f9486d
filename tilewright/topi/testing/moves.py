"""NumPy references of operators that move elements."""

from __future__ import annotations

from typing import Any

import numpy as np


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
    return a_np[tuple(indices_np.astype("int64"))]


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


def searchsorted_ref(sorted_sequence: Any, values: Any, right: Any, out_dtype: str) -> Any:
    """Where to insert values into sorted rows, behind equal ones if `right`."""
    side: Any = right if isinstance(right, str) else "right" if right else "left"
    if sorted_sequence.ndim == 1:
        return np.searchsorted(sorted_sequence, values, side).astype(out_dtype)
    n = sorted_sequence.shape[-1]
    rows, asked = sorted_sequence.reshape(-1, n), values.reshape(-1, values.shape[-1])
    found = [np.searchsorted(r, v, side) for r, v in zip(rows, asked)]
    return np.array(found).reshape(values.shape).astype(out_dtype)


def slice_axis_python(data: Any, axis: int, begin: int, end: int | None = None) -> Any:
    """The part of an array between two places of an axis; an end that is not positive counts from the end."""
    size = data.shape[axis]
    at = [slice(None)] * data.ndim
    last = size if end is None else end + size if end <= 0 else end
    at[axis] = slice(begin + size if begin < 0 else begin, last)
    return data[tuple(at)]


def depth_to_space_python(data: Any, block_size: int, mode: str = "DCR") -> Any:
    """Channels become blocks of pixels; mode says whether the block comes before the channel (DCR) or after (CRD)."""
    n, c, h, w = data.shape
    few = c // block_size**2
    if mode == "DCR":
        parts = data.reshape(n, block_size, block_size, few, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = data.reshape(n, few, block_size, block_size, h, w).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, few, h * block_size, w * block_size)


def space_to_depth_python(data: Any, block_size: int) -> Any:
    """Blocks of pixels become channels, the block before the channel."""
    n, c, h, w = data.shape
    rows, columns = h // block_size, w // block_size
    parts = data.reshape(n, c, rows, block_size, columns, block_size).transpose(0, 3, 5, 1, 2, 4)
    return parts.reshape(n, c * block_size**2, rows, columns)


def space_to_batch_nd_python(
    data: Any, block_shape: Any, pad_before: Any, pad_after: Any, pad_value: float = 0
) -> Any:
    """Blocks of the padded spatial dimensions become batches."""
    many, batch = len(block_shape), data.shape[0]
    rest = data.shape[many + 1 :]
    padding = [(0, 0), *zip(pad_before, pad_after), *[(0, 0)] * len(rest)]
    padded = np.pad(data, padding, constant_values=pad_value)
    sizes = [n // b for n, b in zip(padded.shape[1:], block_shape)]
    split = [batch, *(d for pair in zip(sizes, block_shape) for d in pair), *rest]
    order = [*range(2, 2 * many + 1, 2), 0, *range(1, 2 * many, 2), *range(2 * many + 1, len(split))]
    return padded.reshape(split).transpose(order).reshape(-1, *sizes, *rest)


def batch_to_space_nd_python(data: Any, block_shape: Any, crop_begin_list: Any, crop_end_list: Any) -> Any:
    """Batches become blocks of the spatial dimensions, which are cropped; undoes `space_to_batch_nd_python`."""
    many = len(block_shape)
    sizes, rest = data.shape[1 : many + 1], data.shape[many + 1 :]
    batch = data.shape[0] // int(np.prod(block_shape))
    split = data.reshape(*block_shape, batch, *sizes, *rest)
    order = [many, *(d for m in range(many) for d in (many + 1 + m, m)), *range(2 * many + 1, split.ndim)]
    made = split.transpose(order).reshape(batch, *(n * b for n, b in zip(sizes, block_shape)), *rest)
    return made[
        (slice(None), *(slice(b, n - e) for b, e, n in zip(crop_begin_list, crop_end_list, made.shape[1:])))
    ]


def reorg_python(a_np: Any, stride: int) -> Any:
    """The elements of an image dealt out to channels, as in YOLO."""
    batch, channels, height, width = a_np.shape
    few = channels // stride**2
    b, k, j, i = np.indices(a_np.shape)
    offset, channel = k // few, k % few
    column, row = i * stride + offset % stride, j * stride + offset // stride
    place = column + width * stride * (row + height * stride * (channel + few * b))
    made = a_np.reshape(-1)[place.reshape(-1)]
    return made.reshape(batch, channels * stride**2, height // stride, width // stride)
