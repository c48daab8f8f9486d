"""Convolution by Winograd minimal filtering: fewer multiplications for small kernels with stride 1."""

from __future__ import annotations

from typing import Any, NamedTuple

from ... import te
from ...arith.minimal_filtering import LARGEST, filter_matrices
from ...ir import ops
from ..reduction import accumulator
from ..utils import (
    ceil_div,
    const_matrix,
    dtype_of,
    fail,
    get_const_tuple,
    simplify,
    static_int,
    tensor_arg,
    variant,
)
from .padding import pad
from .utils import Layout, layout_of, paddings, spatial, window_count

__all__ = [
    "conv2d_winograd_nchw",
    "conv2d_winograd_nchw_without_weight_transform",
    "conv2d_winograd_nhwc",
    "conv2d_winograd_nhwc_without_weight_transform",
    "conv2d_winograd_weight_transform",
    "conv2d_winograd_without_weight_transform",
    "winograd_transform_matrices",
]


def winograd_transform_matrices(
    tile_size: int, kernel_size: int, out_dtype: str
) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """The matrices A, B and G of F(tile_size, kernel_size): y = A^T [(G g) * (B^T d)]."""
    what = "nn.winograd_transform_matrices"
    if tile_size < 1 or kernel_size < 1 or tile_size + kernel_size > LARGEST:
        raise fail(
            what,
            f"a tile of {tile_size} with a kernel of {kernel_size} is outside of what is exact enough",
            f"tile_size + kernel_size is at most {LARGEST}",
        )
    import numpy as np

    kind = dtype_of(what, out_dtype)
    if not kind.is_float:
        raise fail(what, f"out_dtype is {kind} and must be a float: the matrices have fractions")
    exact = "float64" if kind.bits == 64 else "float32"
    a, b, g = (
        const_matrix(np.array([[float(x) for x in row] for row in m], exact), name)
        for m, name in zip(filter_matrices(tile_size, kernel_size), "ABG", strict=True)
    )
    return a, b, g


def conv2d_winograd_weight_transform(
    kernel: te.Tensor, tile_size: int, out_dtype: str | None = None, kernel_layout: str = "OIHW"
) -> te.Tensor:
    """The kernel as the products need it, G g G^T for each pair of channels: (alpha, alpha, O, I)."""
    what = "nn.conv2d_winograd_weight_transform"
    layout = layout_of(what, "kernel_layout", kernel_layout, "OIHW", "OIHW")
    shape = layout.checked_shape(what, "kernel", kernel)
    rows, columns = (static_int(what, "the size of the kernel", layout.size(c, shape)) for c in "HW")
    if rows != columns:
        raise fail(what, f"the kernel is {rows} by {columns} and must be square")
    kind = dtype_of(what, kernel.dtype if out_dtype is None else out_dtype)
    _, _, g = winograd_transform_matrices(tile_size, rows, kind)
    alpha = tile_size + rows - 1
    kh, kw = te.reduce_axis((0, rows), "kh"), te.reduce_axis((0, columns), "kw")

    def element(eps: Any, nu: Any, co: Any, ci: Any) -> Any:
        at = {"O": co, "I": ci, "H": kh.var, "W": kw.var}
        value = layout.read(kernel, at)
        scale = ops.mul(ops.cast(kind, g(eps, kh.var)), ops.cast(kind, g(nu, kw.var)))
        return te.sum(ops.mul(ops.cast(kind, value), scale), axis=[kh, kw])

    sizes = (alpha, alpha, layout.size("O", shape), layout.size("I", shape))
    return te.compute(sizes, element, "transform_weight", "winograd_kernel")


class _Tiles(NamedTuple):
    """How the result is cut in tiles of m by m: down, across, and in the whole batch."""

    m: int
    down: Any
    across: Any
    all: Any

    def place(self, p: Any) -> tuple[Any, Any, Any]:
        """The batch, row and column of tile p."""
        each = simplify(self.down * self.across)
        within = ops.floormod(p, each)
        return ops.floordiv(p, each), ops.floordiv(within, self.across), ops.floormod(within, self.across)

    def number(self, n: Any, h: Any, w: Any) -> Any:
        """The tile that element (h, w) of image n is in."""
        row = ops.add(ops.mul(n, self.down), ops.floordiv(h, self.m))
        return ops.add(ops.mul(row, self.across), ops.floordiv(w, self.m))


def _winograd(
    what: str,
    data: te.Tensor,
    weight: te.Tensor,
    kernel_size: int,
    tile: int,
    windows: tuple[Any, Any, Any],
    data_layout: str,
    out_dtype: str | None,
) -> te.Tensor:
    """Transform the tiles of the data, multiply for each of their points, transform back.

    `weight` is transformed already, (alpha, alpha, O, I).
    """
    layout = layout_of(what, "data_layout", data_layout, "NCHW", "NCHW")
    shape = layout.checked_shape(what, "data", data)
    if spatial(what, "strides", windows[0], 2) != (1, 1) or spatial(what, "dilation", windows[2], 2) != (
        1,
        1,
    ):
        raise fail(what, "strides and dilation must be 1", "use nn.conv2d")
    before, after = paddings(what, windows[1], (kernel_size, kernel_size))
    kind = dtype_of(what, data.dtype if out_dtype is None else out_dtype)
    outputs, inputs = get_const_tuple(weight.shape[2:])
    batch, channels = layout.size("N", shape), layout.size("C", shape)
    if isinstance(channels, int) and isinstance(inputs, int) and channels != inputs:
        raise fail(what, f"the data has {channels} channels and the kernel takes {inputs}")
    sizes = {
        c: window_count(what, layout.size(c, shape), b, a, kernel_size, 1, c)
        for c, b, a in zip("HW", before, after, strict=True)
    }
    down, across = (ceil_div(sizes[c], tile) for c in "HW")
    tiles = _Tiles(tile, down, across, simplify(batch * down * across))
    room = _room(data, layout, dict(zip("HW", before, strict=True)), tiles, kernel_size)
    channel_first = layout.places("C")[0] < layout.places("H")[0]
    product = _products(room, layout, weight, tiles, accumulator(kind), kernel_size, channel_first)
    out_sizes = {"N": batch, "C": outputs, **sizes}

    def element(*at: Any) -> Any:
        index = dict(zip(layout.letters, at, strict=True))
        p, c = tiles.number(index["N"], index["H"], index["W"]), index["C"]
        tail = (c, p) if channel_first else (p, c)
        made = product(ops.floormod(index["H"], tile), ops.floormod(index["W"], tile), *tail)
        return ops.cast(kind, made)

    return te.compute(
        [out_sizes[c] for c in layout.letters],
        element,
        "conv2d_winograd",
        f"conv2d_winograd_{data_layout.lower()}",
    )


def _room(
    data: te.Tensor, layout: Layout, before: dict[str, int], tiles: _Tiles, kernel_size: int
) -> te.Tensor:
    """The data with its padding and as much more as makes the tiles whole."""
    first, last = [0] * 4, [0] * 4
    shape = get_const_tuple(data.shape)
    for c, count in (("H", tiles.down), ("W", tiles.across)):
        (place,) = layout.places(c)
        first[place] = before[c]
        last[place] = simplify(count * tiles.m + kernel_size - 1 - shape[place] - before[c])
    if all(isinstance(p, int) and p == 0 for p in (*first, *last)):
        return data
    return pad(data, first, last, 0, name="data_pad")


def _products(
    room: te.Tensor,
    layout: Layout,
    weight: te.Tensor,
    tiles: _Tiles,
    kind: Any,
    kernel_size: int,
    channel_first: bool,
) -> te.Tensor:
    """The stages from the padded data to the tiles of the result."""
    a, b, _ = winograd_transform_matrices(tiles.m, kernel_size, kind)
    alpha = tiles.m + kernel_size - 1
    outputs, inputs = get_const_tuple(weight.shape[2:])

    def order(c: Any, p: Any) -> tuple[Any, Any]:
        return (c, p) if channel_first else (p, c)

    ra, rb = te.reduce_axis((0, alpha), "r_a"), te.reduce_axis((0, alpha), "r_b")

    def packed(eps: Any, nu: Any, x: Any, y: Any) -> Any:
        ci, p = order(x, y)
        n, row, column = tiles.place(p)
        at = {
            "N": n,
            "C": ci,
            "H": ops.add(ops.mul(row, tiles.m), ra.var),
            "W": ops.add(ops.mul(column, tiles.m), rb.var),
        }
        value = layout.read(room, at)
        scale = ops.mul(ops.cast(kind, b(ra.var, eps)), ops.cast(kind, b(rb.var, nu)))
        return te.sum(ops.mul(ops.cast(kind, value), scale), axis=[ra, rb])

    data_pack = te.compute((alpha, alpha, *order(inputs, tiles.all)), packed, "data_pack")
    ci = te.reduce_axis((0, inputs), "ci")

    def multiplied(eps: Any, nu: Any, x: Any, y: Any) -> Any:
        co, p = order(x, y)
        left, right = data_pack(eps, nu, *order(ci.var, p)), weight(eps, nu, co, ci.var)
        return te.sum(ops.mul(left, ops.cast(kind, right)), axis=ci)

    bgemm = te.compute((alpha, alpha, *order(outputs, tiles.all)), multiplied, "bgemm")
    re, rn = te.reduce_axis((0, alpha), "r_eps"), te.reduce_axis((0, alpha), "r_nu")

    def inverted(vh: Any, vw: Any, x: Any, y: Any) -> Any:
        scale = ops.mul(ops.cast(kind, a(re.var, vh)), ops.cast(kind, a(rn.var, vw)))
        return te.sum(ops.mul(bgemm(re.var, rn.var, x, y), scale), axis=[re, rn])

    return te.compute((tiles.m, tiles.m, *order(outputs, tiles.all)), inverted, "inverse")


def conv2d_winograd_without_weight_transform(
    data: te.Tensor,
    weight: te.Tensor,
    strides: Any,
    padding: Any,
    dilation: Any,
    data_layout: str = "NCHW",
    out_dtype: str | None = None,
    tile_size: int | None = None,
) -> te.Tensor:
    """A convolution with a kernel of conv2d_winograd_weight_transform; tiles are of 4 where they can be."""
    what = "nn.conv2d_winograd_without_weight_transform"
    weight = tensor_arg(what, "weight", weight)
    if weight.ndim != 4:
        raise fail(what, f"`{weight.name}` has {weight.ndim} dimensions and must be (alpha, alpha, O, I)")
    alpha, other = (static_int(what, "the size of the transformed kernel", d) for d in weight.shape[:2])
    tile = tile_size or (4 if alpha > 5 else 2)
    if alpha != other or alpha < tile:
        raise fail(what, f"the transformed kernel is {alpha} by {other} and the tile {tile}")
    windows = (strides, padding, dilation)
    return _winograd(what, data, weight, alpha + 1 - tile, tile, windows, data_layout, out_dtype)


def _whole(
    layouts: tuple[str, str],
    data: te.Tensor,
    weight: te.Tensor,
    strides: Any,
    padding: Any,
    dilation: Any,
    out_dtype: str | None = None,
    pre_computed: bool = False,
    tile_size: int = 4,
) -> te.Tensor:
    if pre_computed:
        return conv2d_winograd_without_weight_transform(
            data, weight, strides, padding, dilation, layouts[0], out_dtype, tile_size
        )
    what = f"nn.conv2d_winograd_{layouts[0].lower()}"
    kind = data.dtype if out_dtype is None else out_dtype
    kernel = conv2d_winograd_weight_transform(weight, tile_size, kind, layouts[1])
    size = static_int(what, "the size of the kernel", kernel.shape[0]) + 1 - tile_size
    windows = (strides, padding, dilation)
    return _winograd(what, data, kernel, size, tile_size, windows, layouts[0], out_dtype)


conv2d_winograd_nchw = variant(
    "conv2d_winograd_nchw",
    _whole,
    ("NCHW", "OIHW"),
    "A convolution of NCHW data with a square OIHW kernel and stride 1 in tiles of `tile_size`.",
)
conv2d_winograd_nhwc = variant(
    "conv2d_winograd_nhwc",
    _whole,
    ("NHWC", "HWIO"),
    "A convolution of NHWC data with a square HWIO kernel and stride 1 in tiles of `tile_size`.",
)


def _untransformed(
    layout: str,
    data: te.Tensor,
    weight: te.Tensor,
    strides: Any,
    padding: Any,
    dilation: Any,
    out_dtype: str | None = None,
) -> te.Tensor:
    return conv2d_winograd_without_weight_transform(
        data, weight, strides, padding, dilation, layout, out_dtype
    )


conv2d_winograd_nchw_without_weight_transform = variant(
    "conv2d_winograd_nchw_without_weight_transform",
    _untransformed,
    "NCHW",
    "A convolution of NCHW data with a kernel that is transformed already.",
)
conv2d_winograd_nhwc_without_weight_transform = variant(
    "conv2d_winograd_nhwc_without_weight_transform",
    _untransformed,
    "NHWC",
    "A convolution of NHWC data with a kernel that is transformed already.",
)
