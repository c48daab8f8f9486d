"""Deformable convolutions: each kernel element has an offset of its own."""

from __future__ import annotations

from typing import Any, NamedTuple

from ... import te
from ...ir import ops
from ..math import cast
from ..reduction import accumulator
from ..utils import dtype_of, fail, get_const_tuple, shape_text, static_int, tensor_arg, variant
from .utils import Layout, layout_of, paddings, spatial, window_count

__all__ = ["deformable_conv2d_nchw", "deformable_conv2d_nhwc"]


def _bilinear(data: te.Tensor, layout: Layout, n: Any, c: Any, y: Any, x: Any) -> Any:
    """The value between elements, zeros outside."""
    height, width = (layout.size(s, get_const_tuple(data.shape)) for s in "HW")
    top, left = ops.floor(y), ops.floor(x)
    fall, shift = ops.sub(y, top), ops.sub(x, left)
    row, column = ops.cast("int32", top), ops.cast("int32", left)
    one, zero = te.const(1, y.dtype), te.const(0, data.dtype)
    total = None
    for down, weight_y in ((0, ops.sub(one, fall)), (1, fall)):
        for right, weight_x in ((0, ops.sub(one, shift)), (1, shift)):
            h, w = ops.add(row, down), ops.add(column, right)
            inside = ops.all(
                ops.greater_equal(h, 0),
                ops.less(h, height),
                ops.greater_equal(w, 0),
                ops.less(w, width),
            )
            value = ops.cast(
                y.dtype, ops.if_then_else(inside, layout.read(data, {"N": n, "C": c, "H": h, "W": w}), zero)
            )
            part = ops.mul(value, ops.mul(weight_y, weight_x))
            total = part if total is None else ops.add(total, part)
    return total


class _Sizes(NamedTuple):
    """The checked sizes of a deformable convolution."""

    layout: Layout
    weights: Layout
    channels: int
    outputs: int
    each: int
    kernel: tuple[int, int]
    moved: int
    groups: int
    steps: tuple[int, ...]
    spread: tuple[int, ...]
    before: tuple[int, ...]
    out: dict[str, Any]


def _sizes(
    what: str,
    data: te.Tensor,
    kernel: te.Tensor,
    windows: tuple[Any, Any, Any],
    deformable_groups: Any,
    groups: Any,
    layouts: tuple[str, str],
) -> _Sizes:
    layout = layout_of(what, "data_layout", layouts[0], "NCHW", "NCHW")
    weights = layout_of(what, "kernel_layout", layouts[1], "OIHW", "OIHW")
    shape = layout.checked_shape(what, "data", data)
    kernel_shape = weights.checked_shape(what, "kernel", kernel)
    moved = static_int(what, "deformable_groups", deformable_groups)
    split = static_int(what, "groups", groups)
    channels = static_int(what, "the channels", layout.size("C", shape))
    outputs, each, rows, columns = (
        static_int(what, "the kernel", weights.size(c, kernel_shape)) for c in "OIHW"
    )
    if moved < 1 or split < 1 or channels % moved or outputs % split or each * split != channels:
        raise fail(
            what,
            f"{channels} channels, {moved} deformable groups, {split} groups and a kernel of {outputs} by "
            f"{each} channels do not go together",
        )
    steps, spread = spatial(what, "strides", windows[0], 2), spatial(what, "dilation", windows[2], 2)
    covered = [(k - 1) * d + 1 for k, d in zip((rows, columns), spread, strict=True)]
    before, after = paddings(what, windows[1], covered)
    out = {"N": layout.size("N", shape), "C": outputs}
    for c, b, a, e, s in zip("HW", before, after, covered, steps, strict=True):
        out[c] = window_count(what, layout.size(c, shape), b, a, e, s, c)
    kernel_size = (rows, columns)
    return _Sizes(
        layout, weights, channels, outputs, each, kernel_size, moved, split, steps, spread, before, out
    )


def _check_offset(what: str, offset: te.Tensor, z: _Sizes) -> None:
    given = z.layout.checked_shape(what, "offset", offset)
    wanted = {**z.out, "C": z.moved * z.kernel[0] * z.kernel[1] * 2}
    for c, size in wanted.items():
        have = z.layout.size(c, given)
        if isinstance(have, int) and isinstance(size, int) and have != size:
            expected = shape_text([wanted[letter] for letter in z.layout.letters])
            raise fail(what, f"offset has shape {shape_text(given)} and must have {expected}")


def _deformable(
    layouts: tuple[str, str],
    data: te.Tensor,
    offset: te.Tensor,
    kernel: te.Tensor,
    strides: Any,
    padding: Any,
    dilation: Any,
    deformable_groups: Any = 1,
    groups: Any = 1,
    out_dtype: str | None = None,
) -> te.Tensor:
    """First the data that each kernel element sees, (N, C, KH, KW, OH, OW); then the sum of products."""
    tag = f"deformable_conv2d_{layouts[0].lower()}"
    what = f"nn.{tag}"
    z = _sizes(what, data, kernel, (strides, padding, dilation), deformable_groups, groups, layouts)
    offset = tensor_arg(what, "offset", offset)
    _check_offset(what, offset, z)
    kind = dtype_of(what, data.dtype if out_dtype is None else out_dtype)
    held = accumulator(kind)

    def seen(n: Any, c: Any, kh: Any, kw: Any, oh: Any, ow: Any) -> Any:
        group = ops.floordiv(c, z.channels // z.moved)
        element = ops.add(ops.mul(ops.add(ops.mul(group, z.kernel[0]), kh), z.kernel[1]), kw)
        y, x = (
            ops.add(
                z.layout.read(offset, {"N": n, "C": ops.add(ops.mul(element, 2), i), "H": oh, "W": ow}),
                ops.cast(offset.dtype, o * z.steps[i] + k * z.spread[i] - z.before[i]),
            )
            for i, (o, k) in enumerate(((oh, kh), (ow, kw)))
        )
        return ops.cast(data.dtype, _bilinear(data, z.layout, n, c, y, x))

    shape = (z.out["N"], z.channels, *z.kernel, z.out["H"], z.out["W"])
    taps = te.compute(shape, seen, name="data_deform", tag="data_deform")
    ci = te.reduce_axis((0, z.each), "ci")
    kh, kw = te.reduce_axis((0, z.kernel[0]), "kh"), te.reduce_axis((0, z.kernel[1]), "kw")

    def element(*at: Any) -> Any:
        index = dict(zip(z.layout.letters, at, strict=True))
        group = ops.floordiv(index["C"], z.outputs // z.groups)
        c = ops.add(ops.mul(group, z.each), ci.var) if z.groups > 1 else ci.var
        value = taps(index["N"], c, kh.var, kw.var, index["H"], index["W"])
        weight = z.weights.read(kernel, {"O": index["C"], "I": ci.var, "H": kh.var, "W": kw.var})
        return te.sum(ops.mul(ops.cast(held, value), ops.cast(held, weight)), axis=[ci, kh, kw])

    made = te.compute([z.out[c] for c in z.layout.letters], element, tag, tag)
    return cast(made, kind)


deformable_conv2d_nchw = variant(
    "deformable_conv2d_nchw",
    _deformable,
    ("NCHW", "OIHW"),
    """A convolution of NCHW data with an OIHW kernel, each element of which is moved by `offset`.

    offset is (N, groups*KH*KW*2, OH, OW): down and right for each kernel element and deformable group.
    """,
)
deformable_conv2d_nhwc = variant(
    "deformable_conv2d_nhwc",
    _deformable,
    ("NHWC", "HWIO"),
    "A convolution of NHWC data with an HWIO kernel, each element of which is moved by `offset`.",
)
