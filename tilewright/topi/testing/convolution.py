"""NumPy references of convolutions: sums of shifted products."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ..nn.utils import get_pad_tuple_generic


def _each(value: Any, rank: int) -> tuple[int, ...]:
    """One number for each dimension."""
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return given * rank if len(given) == 1 else given


def _correlate(a: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """Convolution of (batch, channels, …) with (out, channels / groups, …)."""
    rank = a.ndim - 2
    kernel = tuple(w.shape[2:])
    strides, steps = _each(stride, rank), _each(dilation, rank)
    spread = tuple((k - 1) * s + 1 for k, s in zip(kernel, steps))
    padded = np.pad(a, [(0, 0), (0, 0), *zip(*get_pad_tuple_generic(padding, spread))])
    sizes = tuple((p - k) // s + 1 for p, k, s in zip(padded.shape[2:], spread, strides))
    outs, ins = w.shape[0] // groups, a.shape[1] // groups
    result = np.zeros((a.shape[0], w.shape[0], *sizes), np.result_type(a, w))
    for at in np.ndindex(*kernel):
        places = [
            slice(p * d, p * d + (size - 1) * s + 1, s) for p, d, s, size in zip(at, steps, strides, sizes)
        ]
        window = padded[(slice(None), slice(None), *places)]
        if ins == 1:  # each channel by filters of its own
            result += np.repeat(window, outs, 1) * w[(slice(None), 0, *at)].reshape(1, -1, *[1] * rank)
            continue
        for g in range(groups):
            part, own = slice(g * outs, (g + 1) * outs), slice(g * ins, (g + 1) * ins)
            made = np.tensordot(window[:, own], w[(part, slice(None), *at)], ((1,), (1,)))
            result[:, part] += np.moveaxis(made, -1, 1)
    return result.astype(a.dtype)


def _channels_second(a: Any) -> Any:
    return np.moveaxis(a, -1, 1)


def _channels_last(a: Any) -> Any:
    return np.moveaxis(a, 1, -1)


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
    w = w_np.transpose(3, 2, 0, 1)
    return _channels_last(_correlate(_channels_second(a_np), w, stride, padding, dilation, groups))


def conv2d_hwcn_python(a_np: Any, w_np: Any, stride: Any, padding: Any, dilation: Any = 1) -> Any:
    """Convolution of HWCN with HWIO."""
    a, w = a_np.transpose(3, 2, 0, 1), w_np.transpose(3, 2, 0, 1)
    return _correlate(a, w, stride, padding, dilation, 1).transpose(2, 3, 1, 0)


def conv1d_ncw_python(a_np: Any, w_np: Any, stride: Any, padding: Any, dilation: Any = 1) -> Any:
    """Convolution of NCW with OIW."""
    return _correlate(a_np, w_np, stride, padding, dilation, 1)


def group_conv1d_ncw_python(
    a_np: Any, w_np: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    """Convolution of NCW with OIW, in groups."""
    return _correlate(a_np, w_np, stride, padding, dilation, groups)


def conv3d_ndhwc_python(a_np: Any, w_np: Any, stride: Any, padding: Any, groups: int = 1) -> Any:
    """Convolution of NDHWC with DHWIO."""
    w = w_np.transpose(4, 3, 0, 1, 2)
    return _channels_last(_correlate(_channels_second(a_np), w, stride, padding, 1, groups))


# ---------------------------------------------------------------------------- one filter for each channel
def depthwise_conv2d_python_nchw(input_np: Any, filter_np: Any, stride: Any, padding: Any) -> Any:
    """Each channel by filters of its own: NCHW with (channel, multiplier, H, W)."""
    channels, many = filter_np.shape[:2]
    w = filter_np.reshape(channels * many, 1, *filter_np.shape[2:])
    return _correlate(input_np, w, stride, padding, 1, channels)


def depthwise_conv2d_python_nhwc(input_np: Any, filter_np: Any, stride: Any, padding: Any) -> Any:
    """Each channel by filters of its own: NHWC with (H, W, channel, multiplier)."""
    w = filter_np.transpose(2, 3, 0, 1)
    return _channels_last(depthwise_conv2d_python_nchw(_channels_second(input_np), w, stride, padding))


def depthwise_conv2d_python_nchwc(input_np: Any, filter_np: Any, stride: Any, padding: Any) -> Any:
    """Each channel by filters of its own, channels in blocks: NCHW[x]c with OIHW[y]i[z]o."""
    batch, chunks, height, width, block = input_np.shape
    a = input_np.transpose(0, 1, 4, 2, 3).reshape(batch, chunks * block, height, width)
    outer, few, rows, columns, inner, width_out = filter_np.shape
    w = filter_np.transpose(0, 5, 1, 4, 2, 3).reshape(outer * width_out, few * inner, rows, columns)
    made = depthwise_conv2d_python_nchw(a, w, stride, padding)
    return made.reshape(batch, outer, width_out, *made.shape[2:]).transpose(0, 1, 3, 4, 2)


# ---------------------------------------------------------------------------- transposed
def dilate_python(input_np: Any, strides: Any, dilation_value: float = 0.0, out_dtype: Any = None) -> Any:
    """Elements moved apart, the value between them."""
    sizes = [(n - 1) * s + 1 for n, s in zip(input_np.shape, strides)]
    out = np.full(sizes, dilation_value, out_dtype or input_np.dtype)
    out[tuple(slice(None, None, s) for s in strides)] = input_np
    return out


def _spread(a: Any, w: Any, stride: Any, padding: Any, output_padding: Any, groups: int = 1) -> Any:
    """Each element of (batch, channels, …) times the filters (channels, out / groups, …), added where they overlap."""
    rank = a.ndim - 2
    strides, more, kernel = _each(stride, rank), _each(output_padding, rank), w.shape[2:]
    before, after = get_pad_tuple_generic(padding, kernel)
    apart = dilate_python(a, (1, 1, *strides))
    around = [(k - 1 - b, k - 1 - e + m) for k, b, e, m in zip(kernel, before, after, more)]
    padded = np.pad(apart, [(0, 0), (0, 0), *((max(b, 0), max(e, 0)) for b, e in around)])
    cut = [slice(max(-b, 0), n - max(-e, 0)) for (b, e), n in zip(around, padded.shape[2:])]
    padded = padded[(slice(None), slice(None), *cut)]
    flipped = np.flip(w, tuple(range(2, w.ndim)))
    parts = [
        _correlate(x, np.swapaxes(f, 0, 1), 1, 0, 1, 1)
        for x, f in zip(np.array_split(padded, groups, 1), np.array_split(flipped, groups, 0))
    ]
    return np.concatenate(parts, 1)


def conv1d_transpose_ncw_python(a_np: Any, w_np: Any, stride: Any, padding: Any, output_padding: Any) -> Any:
    """Transposed convolution of NCW with IOW."""
    return _spread(a_np, w_np, stride, padding, output_padding)


def group_conv1d_transpose_ncw_python(
    a_np: Any, w_np: Any, stride: Any, padding: Any, output_padding: Any, groups: int = 1
) -> Any:
    """Transposed convolution of NCW with IOW, in groups."""
    return _spread(a_np, w_np, stride, padding, output_padding, groups)


def conv2d_transpose_nchw_python(
    a_np: Any, w_np: Any, stride: Any, padding: Any, output_padding: Any, groups: int = 1
) -> Any:
    """Transposed convolution of NCHW with IOHW."""
    return _spread(a_np, w_np, stride, padding, output_padding, groups)


def conv2d_transpose_nhwc_python(
    a_nhwc: Any, weight: Any, weight_format: str, stride: Any, padding: Any, output_padding: Any = (0, 0)
) -> Any:
    """Transposed convolution of NHWC; `weight_format` is HWIO, HWOI, OIHW or IOHW."""
    if sorted(weight_format) != sorted("IOHW"):
        raise ValueError(f"weight_format is {weight_format!r} and must be HWIO, HWOI, OIHW or IOHW")
    w = weight.transpose([weight_format.index(c) for c in "IOHW"])
    return _channels_last(_spread(_channels_second(a_nhwc), w, stride, padding, output_padding))


def conv3d_transpose_ncdhw_python(
    a_np: Any, w_np: Any, stride: Any, padding: Any, output_padding: Any, groups: int = 1
) -> Any:
    """Transposed convolution of NCDHW with IODHW."""
    return _spread(a_np, w_np, stride, padding, output_padding, groups)


# ---------------------------------------------------------------------------- gradients and other windows
def conv2d_backward_weight_python(
    dy_np: Any,
    x_np: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    layout: str = "NCHW",
    groups: int = 1,
    channels: int | None = None,
) -> Any:
    """The gradient of a convolution with respect to its weight, OIHW for NCHW and OHWI for NHWC."""
    if layout == "NHWC":
        dy, x = _channels_second(dy_np), _channels_second(x_np)
        made = conv2d_backward_weight_python(dy, x, kernel_size, stride, padding, "NCHW", groups, channels)
        return made.transpose(0, 2, 3, 1)
    many, rows, columns = dy_np.shape[1:]
    padded = np.pad(x_np, [(0, 0), (0, 0), *((p, p) for p in padding)])
    apart = groups > 1 and groups == x_np.shape[1] == many
    dw = np.zeros((many, 1 if apart else x_np.shape[1], *kernel_size), dy_np.dtype)
    for r, s in np.ndindex(*kernel_size):
        ends = (r + (rows - 1) * stride[0] + 1, s + (columns - 1) * stride[1] + 1)
        window = padded[:, :, r : ends[0] : stride[0], s : ends[1] : stride[1]]
        if apart:
            dw[:, 0, r, s] = np.einsum("nkpq,nkpq->k", dy_np, window)
        else:
            dw[:, :, r, s] = np.einsum("nkpq,ncpq->kc", dy_np, window)
    return dw


def correlation_nchw_python(
    data1: Any,
    data2: Any,
    kernel_size: int,
    max_displacement: int,
    stride1: int,
    stride2: int,
    padding: int,
    is_multiply: bool,
) -> Any:
    """Patches of one image compared with displaced patches of another, as in FlowNet."""
    a, b = (np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)]) for x in (data1, data2))
    border = max_displacement + (kernel_size - 1) // 2
    height, width = ((n - 2 * border) // stride1 for n in a.shape[2:])
    radius = max_displacement // stride2
    moves = list(itertools.product(range(-radius, radius + 1), repeat=2))
    out = np.zeros((a.shape[0], len(moves), height, width))

    def part(x: Any, top: int, left: int) -> Any:
        return x[:, :, top : top + height * stride1 : stride1, left : left + width * stride1 : stride1]

    for q, (down, right) in enumerate(moves):
        for h, w in np.ndindex(kernel_size, kernel_size):
            y, x = max_displacement + h, max_displacement + w
            one, other = part(a, y, x), part(b, y + down * stride2, x + right * stride2)
            out[:, q] += (one * other if is_multiply else abs(one - other)).sum(1)
    return out / (kernel_size**2 * a.shape[1])


def deformable_conv2d_nchw_python(
    a_np: Any,
    offset_np: Any,
    w_np: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    deformable_groups: int,
    groups: int,
) -> Any:
    """Convolution of NCHW with OIHW at places moved by (row, column) offsets, between pixels."""
    if groups != 1:
        raise ValueError(f"groups is {groups}, and the reference has one group")
    (batch, channels, height, width), kernel = a_np.shape, w_np.shape[2:]
    strides, steps = _each(stride, 2), _each(dilation, 2)
    (top, left), _ = get_pad_tuple_generic(padding, kernel)
    rows, columns = np.indices(offset_np.shape[-2:])
    shift = offset_np.reshape(batch, deformable_groups, *kernel, 2, *offset_np.shape[-2:])
    out = np.zeros((batch, w_np.shape[0], *offset_np.shape[-2:]), a_np.dtype)
    each = channels // deformable_groups
    for n, g, (r, s) in itertools.product(range(batch), range(deformable_groups), np.ndindex(*kernel)):
        y = rows * strides[0] - top + r * steps[0] + shift[n, g, r, s, 0]
        x = columns * strides[1] - left + s * steps[1] + shift[n, g, r, s, 1]
        part = slice(g * each, (g + 1) * each)
        inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
        sampled = np.where(inside, between(a_np[n, part], y, x), 0)
        out[n] += np.tensordot(w_np[:, part, r, s], sampled, 1).astype(a_np.dtype)
    return out


def between(image: Any, y: Any, x: Any) -> Any:
    """Pixels of (channels, height, width) at fractions of a pixel, zero outside, weighted by how near they are."""
    height, width = image.shape[1:]
    low_y, low_x = np.floor(y).astype(int), np.floor(x).astype(int)
    out = np.zeros((image.shape[0], *np.shape(y)), np.result_type(image, np.float32))
    for down, right in np.ndindex(2, 2):
        row, column = low_y + down, low_x + right
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        pixel = image[:, row.clip(0, height - 1), column.clip(0, width - 1)]
        out += pixel * inside * (1 - abs(y - row)) * (1 - abs(x - column))
    return out


def deformable_conv2d_nhwc_python(
    a_np: Any,
    offset_np: Any,
    w_np: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    deformable_groups: int,
    groups: int,
) -> Any:
    """Convolution of NHWC with HWIO at places moved by offsets."""
    a, offset, w = _channels_second(a_np), _channels_second(offset_np), w_np.transpose(3, 2, 0, 1)
    return _channels_last(
        deformable_conv2d_nchw_python(a, offset, w, stride, padding, dilation, deformable_groups, groups)
    )
