"""Gradients of convolutions, pooling and resizing."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from ....ir.errors import TVMError
from ...expr import Call, const
from .. import layouts
from ..computes import R
from ..spatial import space
from .parts import is_static, ndim, shape, sizes, through


def _in_layout(expr: Any, old: str, new: str) -> Any:
    return expr if old == new else R.layout_transform(expr, old, new)


def _nn(name: str, rank: int) -> Any:
    return getattr(R.nn, name.format(rank))


# ---------------------------------------------------------------------------- convolutions
def _plain(call: Call, grad: Any, kernel: str) -> tuple[Any, ...]:
    """The operands and the gradient as NC… and as the kernel's letters…, and the sizes of the operands so."""
    data, weight = call.args
    attrs, axes = call.attrs, space(call.attrs.data_layout)
    if not (is_static(data) and is_static(weight)):
        raise TVMError(f"gradient of {call.op.name}: the sizes of {data.checked_type} must be known")
    dtype = str(data.checked_type.dtype)
    given = (
        grad if grad is None or call.checked_type.dtype == data.checked_type.dtype else R.cast(grad, dtype)
    )
    x = _in_layout(data, attrs.data_layout, f"NC{axes}")
    w = _in_layout(weight, attrs.kernel_layout, f"{kernel}{axes}")
    g = _in_layout(given, attrs.out_layout or attrs.data_layout, f"NC{axes}")
    d = layouts.sizes(attrs.data_layout, shape(data))
    k = layouts.sizes(attrs.kernel_layout, shape(weight))
    return x, w, g, [d[v] for v in axes], [k[v] for v in axes]


def _windows(attrs: Any) -> dict[str, Any]:
    return {name: attrs[name] for name in ("strides", "padding", "dilation", "groups")}


def conv(call: Call, grad: Any) -> list[Any]:
    """By data a transposed convolution; by the kernel the sum over all windows."""
    attrs, axes = call.attrs, space(call.attrs.data_layout)
    rank = len(axes)
    x, w, g, dims, kernel = _plain(call, grad, "OI")
    out = layouts.sizes(attrs.out_layout or attrs.data_layout, shape(call))
    left = []
    for i, v in enumerate(axes):
        pads = attrs.padding[i] + attrs.padding[i + rank]
        reach = (kernel[i] - 1) * attrs.dilation[i] + 1
        left.append(dims[i] - ((out[v] - 1) * attrs.strides[i] + reach - pads))
    by_data = _nn("conv{}d_transpose", rank)(
        g,
        w,
        **_windows(attrs),
        output_padding=left,  # what the last windows do not reach
        data_layout=f"NC{axes}",
        kernel_layout=f"IO{axes}",
    )
    by_weight = _nn("conv{}d_backward_weight", rank)(g, x, **_windows(attrs), kernel_size=kernel)
    return [
        _in_layout(by_data, f"NC{axes}", attrs.data_layout),
        _in_layout(by_weight, f"OI{axes}", attrs.kernel_layout),
    ]


def conv_transpose(call: Call, grad: Any) -> list[Any]:
    """By data a convolution; by the kernel that of the convolution whose data is the result."""
    attrs, axes = call.attrs, space(call.attrs.data_layout)
    x, w, g, dims, kernel = _plain(call, grad, "IO")
    by_data = _nn("conv{}d", len(axes))(g, w, **_windows(attrs), kernel_size=kernel)
    # output_padding may leave room for one more window, which the forward operator does not have
    by_data = R.strided_slice(by_data, [0] * len(axes), dims, axes=list(range(2, 2 + len(axes))))
    by_weight = _nn("conv{}d_backward_weight", len(axes))(x, g, **_windows(attrs), kernel_size=kernel)
    return [
        _in_layout(by_data, f"NC{axes}", attrs.data_layout),
        _in_layout(by_weight, f"IO{axes}", attrs.kernel_layout),
    ]


def conv_backward_weight(call: Call, grad: Any) -> list[Any]:
    """Bilinear in the gradient and the data: a convolution of each with the gradient of the kernel."""
    attrs, axes = call.attrs, space(call.attrs.data_layout)
    rank = len(axes)
    given, data = call.args
    g = _in_layout(given, attrs.grad_layout, f"NC{axes}")
    x = _in_layout(data, attrs.data_layout, f"NC{axes}")
    w = _in_layout(grad, attrs.kernel_layout, f"OI{axes}")
    d = layouts.sizes(attrs.data_layout, shape(data))
    o = layouts.sizes(attrs.grad_layout, shape(given))
    by_grad = _nn("conv{}d", rank)(x, w, **_windows(attrs))
    by_grad = R.strided_slice(by_grad, [0] * rank, [o[v] for v in axes], axes=list(range(2, 2 + rank)))
    left = []
    for i, v in enumerate(axes):
        reach = (attrs.kernel_size[i] - 1) * attrs.dilation[i] + 1
        pads = attrs.padding[i] + attrs.padding[i + rank]
        left.append(d[v] - ((o[v] - 1) * attrs.strides[i] + reach - pads))
    by_data = _nn("conv{}d_transpose", rank)(g, w, **_windows(attrs), output_padding=left)
    return [
        _in_layout(by_grad, f"NC{axes}", attrs.grad_layout),
        _in_layout(by_data, f"NC{axes}", attrs.data_layout),
    ]


# ---------------------------------------------------------------------------- pooling
def pool(call: Call, grad: Any) -> list[Any]:
    """The rule of nn.max_pool2d and its like: their `_grad` operator."""
    attrs = call.attrs
    given = _in_layout(grad, attrs.out_layout or attrs.layout, attrs.layout)
    names = ("pool_size", "strides", "dilation", "padding", "layout", "ceil_mode", "count_include_pad")
    options = {n: attrs[n] for n in names if n in attrs}
    return [getattr(R.nn, f"{call.op.name.removeprefix('nn.')}_grad")(given, call.args[0], **options)]


def avg_pool_grad(call: Call, grad: Any) -> list[Any]:
    """Linear in the gradient of the result: the averages of what comes back."""
    names = ("pool_size", "strides", "dilation", "padding", "layout", "out_layout", "ceil_mode")
    options = {n: call.attrs[n] for n in names}
    pooled = getattr(R.nn, call.op.name.removeprefix("nn.").removesuffix("_grad"))
    return [pooled(grad, **options, count_include_pad=call.attrs.count_include_pad), None]


def _space_axes(call: Call) -> list[int]:
    return [layouts.axis_in(call.attrs.layout, v) for v in space(call.attrs.layout, "layout")]


def global_pool(kind: str) -> Any:
    reduce = "max" if kind == "max" else "mean"
    return through(lambda call: getattr(R, reduce)(call.args[0], axis=_space_axes(call), keepdims=True))


def _shares(size: int, count: int) -> list[tuple[int, int]]:
    """The windows of adaptive pooling: starts rounded down, ends up."""
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def _adaptive(call: Call, pooled: Callable[..., Any]) -> Any:
    attrs, dims = call.attrs, sizes(call)
    axes = _space_axes(call)
    out = layouts.sizes(attrs.out_layout or attrs.layout, shape(call))
    counts = [out[v] for v in space(attrs.layout, "layout")]
    made = pooled(call.args[0], axes, [_shares(dims[d], n) for d, n in zip(axes, counts, strict=True)])
    return _in_layout(made, attrs.layout, attrs.out_layout or attrs.layout)


def along(data: Any, rank: int, axis: int, matrix: Any) -> Any:
    """A matrix applied along one axis."""
    order = [d for d in range(rank) if d != axis] + [axis]
    made = R.nn.dense(R.transpose(data, order), matrix)
    return R.transpose(made, [order.index(d) for d in range(rank)])


def _averages(data: Any, axes: list[int], shares: list[list[tuple[int, int]]]) -> Any:
    rank, dims, dtype = ndim(data), shape(data), str(data.checked_type.dtype)
    for axis, parts in zip(axes, shares, strict=True):
        matrix = np.zeros((len(parts), dims[axis]))
        for i, (low, high) in enumerate(parts):
            matrix[i, low:high] = 1 / (high - low)
        data = along(data, rank, axis, const(matrix, dtype))
    return data


def _greatest(data: Any, axes: list[int], shares: list[list[tuple[int, int]]]) -> Any:
    """Window by window: which element is the greatest is not a product of axes."""
    parts = []
    for window in itertools.product(*shares):
        low, high = zip(*window, strict=True)
        part = R.strided_slice(data, low, high, axes=axes)
        parts.append(R.max(part, axis=axes, keepdims=True))

    def joined(cells: list[Any], left: list[int], counts: list[int]) -> Any:
        if not left:
            return cells[0]
        each = len(cells) // counts[0]
        rows = [cells[i : i + each] for i in range(0, len(cells), each)]
        return R.concatenate([joined(row, left[1:], counts[1:]) for row in rows], left[0])

    return joined(parts, axes, [len(s) for s in shares])


adaptive_avg_pool = through(lambda call: _adaptive(call, _averages))
adaptive_max_pool = through(lambda call: _adaptive(call, _greatest))


# ---------------------------------------------------------------------------- resizing
def _resize(call: Call) -> Any:
    """Axis by axis a product with a matrix: what the operator makes of unit vectors along that axis."""
    data, attrs, dims = call.args[0], call.attrs, sizes(call)
    if attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise TVMError(f"gradient of {call.op.name}: there is none for a region of interest; crop before it")
    names = space(attrs.layout, "layout")
    rank, dtype = len(dims), str(data.checked_type.dtype)
    made: Any = data
    for i, v in enumerate(names):
        axis = layouts.axis_in(attrs.layout, v)
        if shape(call)[axis] == dims[axis] and attrs.get("scales") is None:
            continue
        count = dims[axis]
        line = [count if d == axis else 1 for d in range(rank)]
        line[layouts.axis_in(attrs.layout, "N")] = count
        units = const(np.eye(count).reshape(line), dtype)
        matrix = R.reshape(call.over([units], _along_axis_only(attrs, names, i)), (count, -1))
        made = along(made, rank, axis, R.transpose(matrix))
    return R.cast(made, str(call.checked_type.dtype))


def _along_axis_only(attrs: Any, names: str, at: int) -> Any:
    """The attributes of a resize that leaves all axes but one."""
    if "size" in attrs:
        changes: dict[str, Any] = {"size": [n if i == at else 1 for i, n in enumerate(attrs.size)]}
        if attrs.scales is not None:
            changes["scales"] = [s if i == at else 1 for i, s in enumerate(attrs.scales)]
        return attrs.replace(**changes)
    return attrs.replace(**{f"scale_{v.lower()}": 1.0 for i, v in enumerate(names) if i != at})


resize = through(_resize)


def _affine_grid(call: Call) -> Any:
    """The matrices times the corners of the grid, which are constants."""
    (data,), (height, width) = call.args, call.attrs.target_shape
    dtype = str(data.checked_type.dtype)
    lines = [np.linspace(-1, 1, n) for n in (height, width)]
    if not call.attrs.align_corners:
        lines = [line * (n - 1) / n for line, n in zip(lines, (height, width), strict=True)]
    y, x = np.meshgrid(*lines, indexing="ij")
    points = np.stack([x, y, np.ones_like(x)]).reshape(3, -1)
    flat = R.nn.dense(data, const(points.T, dtype))
    return R.reshape(flat, (shape(data)[0], 2, height, width))


affine_grid = through(_affine_grid)
