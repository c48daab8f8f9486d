"""depth_to_space, space_to_depth, batch_to_space and their like, upsampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import te
from ...ir import ops
from ...ir.expr import ExprOp, FloatImm, IntImm, PrimExpr
from .. import tag
from ..image.resize import resize2d, resize3d
from ..utils import (
    equal_const_int,
    fail,
    get_const_tuple,
    injective,
    int_list,
    is_dynamic_shape,
    normalize_axis,
    simplify,
    static_int,
    tensor_arg,
)

__all__ = [
    "batch_to_space_nd",
    "channel_shuffle",
    "depth_to_space",
    "pixel_shuffle",
    "pixel_unshuffle",
    "space_to_batch_nd",
    "space_to_depth",
    "upsampling",
    "upsampling3d",
]


# ---------------------------------------------------------------------------- depth and space
def _image(name: str, data: Any, layout: str) -> tuple[te.Tensor, int, int, int]:
    """The tensor, and where its channels, rows and columns stand."""
    x = tensor_arg(name, "data", data)
    places = {"NCHW": (1, 2, 3), "NHWC": (3, 1, 2)}.get(layout)
    if places is None:
        raise fail(name, f"layout is {layout!r}", "it is NCHW or NHWC")
    if len(x.shape) != 4:
        raise fail(name, f"`{x.name}` has {len(x.shape)} dimensions and must have 4")
    return (x, *places)


def _block(name: str, argument: str, value: Any) -> int:
    size = static_int(name, argument, value)
    if size < 1:
        raise fail(name, f"{argument} is {size} and must be positive")
    return size


def _divided(name: str, what: str, size: Any, by: int) -> Any:
    """size / by, which must come out even where both are known."""
    if not is_dynamic_shape([size]) and not equal_const_int(ops.floormod(size, by), 0):
        raise fail(name, f"{what} is {size} and must be a multiple of {by}")
    return ops.floordiv(size, by)


def _divisor(size: Any) -> Any:
    """A size to divide by: an empty dimension has no points, so what it divides does not matter."""
    return 1 if equal_const_int(size, 0) else size


def depth_to_space(data: Any, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> te.Tensor:
    """Channels become blocks of pixels: [C·b·b, H, W] to [C, H·b, W·b].

    A channel counts as (row in block, column in block, depth) in mode DCR, as (depth, row, column) in mode CRD, or CDR.
    """
    name = "nn.depth_to_space"
    x, c, h, w = _image(name, data, layout)
    b = _block(name, "block_size", block_size)
    if mode not in ("DCR", "CRD", "CDR"):
        raise fail(name, f"mode is {mode!r}", "it is DCR or CRD")
    depth = _divided(name, "the number of channels", x.shape[c], b * b)
    shape: list[Any] = list(x.shape)
    shape[c], shape[h], shape[w] = depth, x.shape[h] * b, x.shape[w] * b

    def element(*i: Any) -> PrimExpr:
        at = list(i)
        inner = ops.floormod(i[h], b) * b + ops.floormod(i[w], b)
        at[h], at[w] = ops.floordiv(i[h], b), ops.floordiv(i[w], b)
        at[c] = inner * depth + i[c] if mode == "DCR" else i[c] * (b * b) + inner
        return x(*at)

    return injective(name, shape, element, tag.INJECTIVE, "depth_to_space")


def space_to_depth(data: Any, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> te.Tensor:
    """Blocks of pixels become channels: [C, H·b, W·b] to [C·b·b, H, W], the inverse of depth_to_space."""
    name = "nn.space_to_depth"
    x, c, h, w = _image(name, data, layout)
    b = _block(name, "block_size", block_size)
    if mode not in ("DCR", "CRD"):
        raise fail(name, f"mode is {mode!r}", "it is DCR or CRD")
    depth = x.shape[c]
    shape: list[Any] = list(x.shape)
    shape[c] = depth * (b * b)
    shape[h] = _divided(name, "the height", x.shape[h], b)
    shape[w] = _divided(name, "the width", x.shape[w], b)

    def element(*i: Any) -> PrimExpr:
        at = list(i)
        if mode == "DCR":
            inner, at[c] = ops.floordiv(i[c], _divisor(depth)), ops.floormod(i[c], _divisor(depth))
        else:
            inner, at[c] = ops.floormod(i[c], b * b), ops.floordiv(i[c], b * b)
        at[h] = i[h] * b + ops.floordiv(inner, b)
        at[w] = i[w] * b + ops.floormod(inner, b)
        return x(*at)

    return injective(name, shape, element, tag.INJECTIVE, "space_to_depth")


def pixel_shuffle(data: Any, upscale_factor: int, name: str = "PixelShuffle") -> te.Tensor:
    """[..., C·r·r, H, W] to [..., C, H·r, W·r], channels counted as (depth, row, column)."""
    x, r = _last_three("nn.pixel_shuffle", data), _block("nn.pixel_shuffle", "upscale_factor", upscale_factor)
    *lead, c, h, w = x.shape
    depth = _divided("nn.pixel_shuffle", "the number of channels", c, r * r)

    def element(*i: Any) -> PrimExpr:
        *at, d, y, z = i
        channel = d * (r * r) + ops.floormod(y, r) * r + ops.floormod(z, r)
        return x(*at, channel, ops.floordiv(y, r), ops.floordiv(z, r))

    return injective("nn.pixel_shuffle", (*lead, depth, h * r, w * r), element, tag.INJECTIVE, name)


def pixel_unshuffle(data: Any, downscale_factor: int, name: str = "PixelUnshuffle") -> te.Tensor:
    """[..., C, H·r, W·r] to [..., C·r·r, H, W], the inverse of pixel_shuffle."""
    x = _last_three("nn.pixel_unshuffle", data)
    r = _block("nn.pixel_unshuffle", "downscale_factor", downscale_factor)
    *lead, c, h, w = x.shape
    rows, columns = (
        _divided("nn.pixel_unshuffle", n, s, r) for n, s in (("the height", h), ("the width", w))
    )

    def element(*i: Any) -> PrimExpr:
        *at, d, y, z = i
        inner = ops.floormod(d, r * r)
        return x(*at, ops.floordiv(d, r * r), y * r + ops.floordiv(inner, r), z * r + ops.floormod(inner, r))

    return injective("nn.pixel_unshuffle", (*lead, c * (r * r), rows, columns), element, tag.INJECTIVE, name)


def _last_three(name: str, data: Any) -> te.Tensor:
    x = tensor_arg(name, "data", data)
    if len(x.shape) < 3:
        raise fail(name, f"`{x.name}` has {len(x.shape)} dimensions and must have channels, rows and columns")
    return x


def channel_shuffle(data: Any, groups: int, axis: int = 1) -> te.Tensor:
    """Channels permuted: index (group, member) moves to index (member, group)."""
    name = "nn.channel_shuffle"
    x, g = tensor_arg(name, "data", data), _block(name, "groups", groups)
    at = normalize_axis(name, axis, len(x.shape))
    each = _divided(name, "the number of channels", x.shape[at], g)

    def element(*i: Any) -> PrimExpr:
        source = ops.floormod(i[at], g) * each + ops.floordiv(i[at], g)
        return x(*i[:at], source, *i[at + 1 :])

    return injective(name, x.shape, element, tag.INJECTIVE, "channel_shuffle")


# ---------------------------------------------------------------------------- batch and space
def _sides(name: str, count: int, **lists: Any) -> list[list[Any]]:
    out = []
    for argument, value in lists.items():
        given = int_list(name, argument, value)
        if len(given) != count:
            raise fail(name, f"{argument} has {len(given)} numbers for {count} dimensions")
        if any(isinstance(v, int) and v < 0 for v in given):
            raise fail(name, f"{argument} is {given} and cannot be negative")
        out.append(given)
    return out


def _blocks(name: str, x: te.Tensor, block_shape: Any) -> list[int]:
    blocks = [_block(name, "block_shape", v) for v in int_list(name, "block_shape", block_shape)]
    if len(blocks) >= len(x.shape):
        raise fail(
            name,
            f"block_shape has {len(blocks)} numbers and `{x.name}` {len(x.shape) - 1} dimensions in space",
        )
    return blocks


def _all(blocks: Sequence[int]) -> int:
    out = 1
    for b in blocks:
        out *= b
    return out


def space_to_batch_nd(
    data: Any, block_shape: Any, pad_before: Any, pad_after: Any, pad_value: float = 0.0
) -> te.Tensor:
    """Blocks of the padded dimensions 1, 2, … go to the batch: [B, S·b, ...] to [b·B, S, ...]."""
    name = "nn.space_to_batch_nd"
    x = tensor_arg(name, "data", data)
    blocks = _blocks(name, x, block_shape)
    before, after = _sides(name, len(blocks), pad_before=pad_before, pad_after=pad_after)
    batch = x.shape[0]
    shape: list[Any] = [batch * _all(blocks), *x.shape[1:]]
    for d, b in enumerate(blocks):
        padded = simplify(x.shape[d + 1] + before[d] + after[d])
        shape[d + 1] = _divided(name, f"dimension {d + 1} with its padding", padded, b)
    fill = te.const(pad_value if x.dtype.is_float else int(pad_value), x.dtype)

    def element(*i: Any) -> PrimExpr:
        at, rest = list(i), ops.floordiv(i[0], _divisor(batch))
        at[0] = ops.floormod(i[0], _divisor(batch))
        inside: list[PrimExpr] = []
        for d in range(len(blocks) - 1, -1, -1):
            offset = rest if d == 0 else ops.floormod(rest, blocks[d])
            rest = ops.floordiv(rest, blocks[d])
            place = i[d + 1] * blocks[d] + offset - before[d]
            at[d + 1] = place
            if not equal_const_int(before[d], 0):
                inside.append(place >= 0)
            if not equal_const_int(after[d], 0):
                inside.append(place < x.shape[d + 1])
        return ops.if_then_else(te.all(*inside), x(*at), fill) if inside else x(*at)

    return injective(name, shape, element, tag.INJECTIVE, "space_to_batch_nd")


def batch_to_space_nd(data: Any, block_shape: Any, crop_begin_list: Any, crop_end_list: Any) -> te.Tensor:
    """Parts of the batch go back to blocks of the dimensions 1, 2, …, which are then cropped."""
    name = "nn.batch_to_space_nd"
    x = tensor_arg(name, "data", data)
    blocks = _blocks(name, x, block_shape)
    begin, end = _sides(name, len(blocks), crop_begin_list=crop_begin_list, crop_end_list=crop_end_list)
    batch = _divided(name, "the batch", x.shape[0], _all(blocks))
    shape: list[Any] = [batch, *x.shape[1:]]
    for d, b in enumerate(blocks):
        left = simplify(x.shape[d + 1] * b - begin[d] - end[d])
        if isinstance(left, IntImm) and left.value < 0:
            raise fail(name, f"cropping takes more than dimension {d + 1} has, {x.shape[d + 1] * b}")
        shape[d + 1] = left

    def element(*i: Any) -> PrimExpr:
        at, offset = list(i), te.const(0, "int32")
        for d, b in enumerate(blocks):
            place = i[d + 1] + begin[d]
            at[d + 1] = ops.floordiv(place, b)
            offset = offset * b + ops.floormod(place, b)
        at[0] = offset * batch + i[0]
        return x(*at)

    return injective(name, shape, element, tag.INJECTIVE, "batch_to_space_nd")


# ---------------------------------------------------------------------------- upsampling
def _scaled(name: str, size: Any, scale: Any) -> Any:
    """size·scale rounded to an integer."""
    if isinstance(scale, ExprOp):
        held = simplify(scale)
        scale = held.value if isinstance(held, (IntImm, FloatImm)) else held
    if isinstance(scale, ExprOp):
        return simplify(ops.cast("int32", te.round(ops.cast("float32", size) * scale)))
    if scale <= 0:
        raise fail(name, f"the scale {scale} must be positive")
    if float(scale).is_integer():
        return simplify(size * int(scale))
    if isinstance(size, int):
        return round(size * scale)
    return ops.cast("int32", te.round(ops.cast("float32", size) * te.const(scale, "float32")))


def _up(
    name: str, data: Any, letters: str, scales: Sequence[Any], layout: str
) -> tuple[te.Tensor, list[Any]]:
    x = tensor_arg(name, "data", data)
    plain = [c for c in layout if c.isupper()]
    if any(plain.count(c) != 1 for c in letters) or len(plain) > len(x.shape):
        raise fail(
            name, f"layout {layout!r} does not name {', '.join(letters)} once in {len(x.shape)} dimensions"
        )
    sizes = get_const_tuple(x.shape[plain.index(c)] for c in letters)
    return x, [_scaled(name, s, k) for s, k in zip(sizes, scales, strict=True)]


def upsampling(
    data: Any,
    scale_h: Any,
    scale_w: Any,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
    output_shape: Any = None,
) -> te.Tensor:
    """An image made larger by factors, with the nearest pixel, bilinear or bicubic."""
    x, size = _up("nn.upsampling", data, "HW", (scale_h, scale_w), layout)
    mode = "align_corners" if align_corners else "asymmetric"
    return resize2d(x, None, size, layout, method, mode, output_shape=output_shape)


def upsampling3d(
    data: Any,
    scale_d: Any,
    scale_h: Any,
    scale_w: Any,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "half_pixel",
    output_shape: Any = None,
) -> te.Tensor:
    """A volume made larger by factors, with the nearest pixel or trilinear."""
    x, size = _up("nn.upsampling3d", data, "DHW", (scale_d, scale_h, scale_w), layout)
    # Rounding finds the pixel itself: half of a pixel more or less does not cross to the next one. Where places are
    # multiples of the pixel, the pixel is the one before.
    mode = coordinate_transformation_mode
    rounding = "floor" if mode == "asymmetric" else "round"
    return resize3d(x, None, size, layout, method, mode, rounding, output_shape=output_shape)
