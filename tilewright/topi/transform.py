"""Operators that move elements: transposes, reshapes, joins, repeats, layouts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from .. import te
from ..ir import ops
from ..ir.data_layout import layout_axes
from ..ir.expr import PrimExpr, convert
from ..te.tensor import checked_shape
from . import tag
from .broadcast import broadcast_to
from .utils import (
    as_place,
    ceil_div,
    clamped,
    dtype_of,
    elementwise,
    equal_const_int,
    fail,
    get_const_tuple,
    injective,
    int_list,
    is_dynamic_shape,
    is_empty_shape,
    normalize_axes,
    normalize_axis,
    prod,
    ravel_index,
    same_size,
    shape_text,
    shown,
    simplify,
    static_int,
    tensor_arg,
)
from .utils import unravel_index as _unravel

__all__ = [
    "concatenate",
    "dyn_tile",
    "expand_dims",
    "expand_like",
    "flatten",
    "flip",
    "layout_transform",
    "ndarray_size",
    "repeat",
    "reshape",
    "reverse_reshape",
    "reverse_sequence",
    "roll",
    "shape",
    "sliding_window",
    "split",
    "squeeze",
    "stack",
    "tile",
    "transpose",
    "where",
]


# ---------------------------------------------------------------------------- dimensions
def expand_dims(a: te.Tensor, axis: int, num_newaxis: int = 1) -> te.Tensor:
    """New dimensions of size 1 before dimension `axis`; -1 puts them at the end."""
    x = tensor_arg("expand_dims", "a", a)
    at = static_int("expand_dims", "axis", axis)
    if not -x.ndim - 1 <= at <= x.ndim:
        raise fail("expand_dims", f"axis is {at} and goes from {-x.ndim - 1} to {x.ndim}")
    at = at + x.ndim + 1 if at < 0 else at
    count = static_int("expand_dims", "num_newaxis", num_newaxis)
    if count < 0:
        raise fail("expand_dims", f"num_newaxis is {count}")
    return injective(
        "expand_dims",
        [*x.shape[:at], *[1] * count, *x.shape[at:]],
        lambda *i: x(*i[:at], *i[at + count :]),
        tag.BROADCAST,
    )


def expand_like(a: te.Tensor, shape_like: te.Tensor, axis: Any) -> te.Tensor:
    """The tensor with new dimensions at `axis`, repeated to the shape of another."""
    x, like = tensor_arg("expand_like", "a", a), tensor_arg("expand_like", "shape_like", shape_like)
    axes = sorted(normalize_axes("expand_like", axis, like.ndim))
    if x.ndim == like.ndim:
        return broadcast_to(x, like.shape)
    kept = [d for d in range(like.ndim) if d not in axes]
    if len(kept) != x.ndim or not all(same_size(x.shape[i], like.shape[d]) for i, d in enumerate(kept)):
        if not (x.ndim == 1 and not kept and equal_const_int(x.shape[0], 1)):
            raise fail(
                "expand_like",
                f"without axis {tuple(axes)}, {shape_text(like.shape)} is not {shape_text(x.shape)}",
            )
        return injective("expand_like", like.shape, lambda *i: x(0), tag.BROADCAST)
    return injective("expand_like", like.shape, lambda *i: x(*(i[d] for d in kept)), tag.BROADCAST)


def transpose(a: te.Tensor, axes: Any = None) -> te.Tensor:
    """The dimensions in another order; without `axes` from the last to the first."""
    x = tensor_arg("transpose", "a", a)
    order = tuple(reversed(range(x.ndim)))
    if axes is not None and not (isinstance(axes, (tuple, list)) and not axes and x.ndim):
        order = normalize_axes("transpose", axes, x.ndim, "axes")
    if len(order) != x.ndim:
        raise fail("transpose", f"axes {order} must name all {x.ndim} dimensions")
    places = [order.index(d) for d in range(x.ndim)]
    return injective(
        "transpose", [x.shape[d] for d in order], lambda *i: x(*(i[p] for p in places)), tag.INJECTIVE
    )


def squeeze(a: te.Tensor, axis: Any = None) -> te.Tensor:
    """The tensor without its dimensions of size 1, or without those named."""
    x = tensor_arg("squeeze", "a", a)
    if axis is None:
        gone: tuple[int, ...] = tuple(d for d, dim in enumerate(x.shape) if equal_const_int(dim, 1))
    else:
        gone = normalize_axes("squeeze", axis, x.ndim)
        for d in gone:
            if not equal_const_int(x.shape[d], 1):
                raise fail("squeeze", f"dimension {d} of {shape_text(x.shape)} is not 1")
    kept = [d for d in range(x.ndim) if d not in gone]

    def element(*i: Any) -> PrimExpr:
        at: list[Any] = [te.const(0)] * x.ndim
        for place, d in zip(i, kept):
            at[d] = place
        return x(*at)

    return injective("squeeze", [x.shape[d] for d in kept], element)


def _new_shape(x: te.Tensor, newshape: Any) -> list[Any]:
    """The shape with -1 inferred and the number of elements checked if known."""
    if isinstance(newshape, te.Tensor):
        raise fail("reshape", "newshape is a tensor", "pass the sizes as numbers or te.var")
    sizes = int_list("reshape", "newshape", newshape)
    open_ = [i for i, s in enumerate(sizes) if isinstance(s, int) and s < 0]
    if any(sizes[i] != -1 for i in open_) or len(open_) > 1:
        raise fail("reshape", f"newshape is {shown(tuple(sizes))}; one size may be -1 and none below")
    total = prod(x.shape)
    rest = prod(s for i, s in enumerate(sizes) if i not in open_)
    if open_:
        if isinstance(rest, int) and rest == 0:
            raise fail("reshape", f"newshape is {shown(tuple(sizes))}: any size could stand for -1")
        sizes[open_[0]] = (
            simplify(ops.floordiv(total, rest)) if is_dynamic_shape([total, rest]) else total // rest
        )
        rest = prod(sizes)
    if isinstance(total, int) and isinstance(rest, int) and total != rest:
        raise fail(
            "reshape",
            f"{shape_text(x.shape)} has {total} elements and newshape {shape_text(newshape)} does not hold them",
        )
    return sizes


def reshape(a: te.Tensor, newshape: Any) -> te.Tensor:
    """The same elements in the same order under another shape; one size may be -1."""
    x = tensor_arg("reshape", "a", a)
    sizes = _new_shape(x, newshape)
    return _relabelled("reshape", x, sizes)


def _relabelled(name: str, x: te.Tensor, sizes: Sequence[Any]) -> te.Tensor:
    """Element number n of the result is element number n of `x`.

    Leading and trailing dimensions that both have are indexed as they are, without a division.
    """
    if is_empty_shape(sizes) or is_empty_shape(x.shape):
        return injective(name, sizes, lambda *i: te.const(0, x.dtype))
    least = min(len(sizes), x.ndim)
    front = 0
    while front < least and same_size(convert(sizes[front]), x.shape[front]):
        front += 1
    back = 0
    while back < least - front and same_size(convert(sizes[-1 - back]), x.shape[-1 - back]):
        back += 1

    def element(*i: Any) -> PrimExpr:
        middle = i[front : len(i) - back]
        inside = x.shape[front : x.ndim - back]
        place = ravel_index(middle, sizes[front : len(sizes) - back]) if middle else te.const(0)
        return x(*i[:front], *_unravel(place, inside), *i[len(i) - back :])

    return injective(name, sizes, element)


def flatten(a: te.Tensor) -> te.Tensor:
    """All elements in one dimension."""
    x = tensor_arg("flatten", "a", a)
    return _relabelled("flatten", x, [prod(x.shape)])


def reverse_reshape(a: te.Tensor, newshape: Any) -> te.Tensor:
    """`reshape` whose special sizes are read from the last dimension on: 0 keeps a dimension, -1 is the rest."""
    x = tensor_arg("reverse_reshape", "a", a)
    sizes = int_list("reverse_reshape", "newshape", newshape)
    out = [
        x.shape[x.ndim - len(sizes) + i]
        if isinstance(s, int) and s == 0 and x.ndim - len(sizes) + i >= 0
        else s
        for i, s in enumerate(sizes)
    ]
    return reshape(x, out)


def shape(array: te.Tensor, dtype: str = "int32") -> te.Tensor:
    """The sizes of a tensor, as a tensor."""
    x = tensor_arg("shape", "array", array)
    kind = dtype_of("shape", dtype)

    def element(i: Any) -> PrimExpr:
        out: PrimExpr = te.const(0, kind)
        for d in reversed(range(x.ndim)):
            out = ops.select(ops.equal(i, d), ops.cast(kind, x.shape[d]), out)
        return out

    return injective("shape", (x.ndim,), element)


def ndarray_size(array: te.Tensor, dtype: str = "int32") -> te.Tensor:
    """The number of elements of a tensor, as a tensor without dimensions."""
    x = tensor_arg("ndarray_size", "array", array)
    kind = dtype_of("ndarray_size", dtype)
    return injective("ndarray_size", (), lambda: ops.cast(kind, prod(x.shape)))


# ---------------------------------------------------------------------------- joining and parting
def _several(name: str, tensors: Any) -> list[te.Tensor]:
    listed = [tensors] if isinstance(tensors, te.Tensor) else list(tensors)
    out = [tensor_arg(name, f"tensor {i}", t) for i, t in enumerate(listed)]
    if not out:
        raise fail(name, "there are no tensors to join")
    for i, t in enumerate(out):
        if t.dtype is not out[0].dtype:
            raise fail(name, f"tensor {i} is {t.dtype} and tensor 0 is {out[0].dtype}", "cast one of them")
    return out


def _choose(choices: Sequence[Any], starts: Sequence[Any], at: Any) -> PrimExpr:
    """choices[j]() for the part j that contains `at`, found by binary search."""
    if len(choices) == 1:
        return choices[0]()
    half = len(choices) // 2
    return ops.if_then_else(
        ops.less(at, starts[half]),
        _choose(choices[:half], starts[:half], at),
        _choose(choices[half:], starts[half:], at),
    )


def concatenate(a_tuple: Any, axis: int = 0) -> te.Tensor:
    """The concatenation of tensors along `axis`; their other dimensions agree."""
    tensors = _several("concatenate", a_tuple)
    first = tensors[0]
    d = normalize_axis("concatenate", axis, first.ndim)
    for i, t in enumerate(tensors):
        same = t.ndim == first.ndim and all(
            same_size(x, y) for j, (x, y) in enumerate(zip(t.shape, first.shape)) if j != d
        )
        if not same:
            raise fail(
                "concatenate",
                f"tensor {i} of shape {shape_text(t.shape)} does not fit {shape_text(first.shape)} along axis {d}",
            )
    parts = [t for t in tensors if not equal_const_int(t.shape[d], 0)] or tensors[:1]
    starts: list[Any] = [0]
    for t in parts:
        starts.append(simplify(ops.add(starts[-1], t.shape[d])))

    def element(*i: Any) -> PrimExpr:
        choices = [lambda t=t, s=s: t(*i[:d], ops.sub(i[d], s), *i[d + 1 :]) for t, s in zip(parts, starts)]
        return _choose(choices, starts, i[d])

    return injective("concat", [*first.shape[:d], starts[-1], *first.shape[d + 1 :]], element)


def stack(a: Any, axis: int = 0) -> te.Tensor:
    """Tensors of one shape along a new dimension."""
    tensors = _several("stack", a)
    first = tensors[0]
    d = normalize_axis("stack", axis, first.ndim + 1)
    for i, t in enumerate(tensors):
        if t.ndim != first.ndim or not all(same_size(x, y) for x, y in zip(t.shape, first.shape)):
            raise fail(
                "stack", f"tensor {i} has shape {shape_text(t.shape)} and tensor 0 {shape_text(first.shape)}"
            )

    def element(*i: Any) -> PrimExpr:
        at = (*i[:d], *i[d + 1 :])
        return _choose([lambda t=t: t(*at) for t in tensors], range(len(tensors)), i[d])

    return injective("stack", [*first.shape[:d], len(tensors), *first.shape[d:]], element)


def split(ary: te.Tensor, indices_or_sections: Any, axis: int = 0) -> list[te.Tensor]:
    """Parts along `axis`: a number of equal ones, or those between the indices in a list."""
    x = tensor_arg("split", "ary", ary)
    d = normalize_axis("split", axis, x.ndim)
    size = get_const_tuple(x.shape)[d]
    given = int_list("split", "indices_or_sections", indices_or_sections)
    if not isinstance(indices_or_sections, (tuple, list)) and not hasattr(indices_or_sections, "tolist"):
        n = static_int("split", "indices_or_sections", given[0])
        if n < 1 or (isinstance(size, int) and size % n):
            raise fail("split", f"dimension {d} is {size} and cannot be split into {n} equal sections")
        step = size // n if isinstance(size, int) else simplify(ops.floordiv(size, n))
        given = [step * i for i in range(1, n)]
    if isinstance(size, int) and all(isinstance(g, int) for g in given):
        given = [min(max(g + size if g < 0 else g, 0), size) for g in given]
    edges = [0, *given, size]
    out = []
    for begin, end in zip(edges, edges[1:]):
        extent = (
            max(end - begin, 0) if isinstance(begin, int) and isinstance(end, int) else simplify(end - begin)
        )
        sizes = [*x.shape[:d], extent, *x.shape[d + 1 :]]
        out.append(injective("split", sizes, lambda *i, b=begin: x(*i[:d], ops.add(i[d], b), *i[d + 1 :])))
    return out


# ---------------------------------------------------------------------------- repeating and turning
def repeat(a: te.Tensor, repeats: int, axis: int | None = 0) -> te.Tensor:
    """Each slice along `axis` repeated consecutively; with axis None, each element of the flattened tensor."""
    x = tensor_arg("repeat", "a", a)
    if axis is None:
        x, axis = flatten(x), 0
    count = static_int("repeat", "repeats", repeats)
    if count < 0:
        raise fail("repeat", f"repeats is {count}")
    d = normalize_axis("repeat", axis, x.ndim)
    sizes = [*x.shape[:d], simplify(ops.mul(x.shape[d], count)), *x.shape[d + 1 :]]
    if count == 0:
        return injective("repeat", sizes, lambda *i: te.const(0, x.dtype))
    return injective(
        "repeat", sizes, lambda *i: x(*i[:d], ops.floordiv(i[d], count), *i[d + 1 :]), tag.BROADCAST
    )


def tile(a: te.Tensor, reps: Any) -> te.Tensor:
    """The whole tensor several times along each dimension, as NumPy's."""
    x = tensor_arg("tile", "a", a)
    counts = int_list("tile", "reps", reps)
    if any(isinstance(c, int) and c < 0 for c in counts):
        raise fail("tile", f"reps is {shown(tuple(counts))} and has a negative number")
    ndim = max(x.ndim, len(counts))
    counts = [1] * (ndim - len(counts)) + counts
    own: list[Any] = [1] * (ndim - x.ndim) + list(x.shape)
    return dyn_tile(x, [simplify(ops.mul(s, c)) for s, c in zip(own, counts)], ndim)


def dyn_tile(a: te.Tensor, new_shape: Any, rdim: int | None = None) -> te.Tensor:
    """The tensor repeated in all dimensions to a shape that is given."""
    x = tensor_arg("dyn_tile", "a", a)
    sizes = checked_shape(new_shape)
    if is_empty_shape(sizes) or is_empty_shape(x.shape):
        return injective("tile", sizes, lambda *i: te.const(0, x.dtype), tag.BROADCAST)
    extra = len(sizes) - x.ndim

    def element(*i: Any) -> PrimExpr:
        at = [
            place if same_size(convert(full), dim) else ops.floormod(place, dim)
            for place, full, dim in zip(i[extra:], sizes[extra:], x.shape)
        ]
        return x(*at)

    return injective("tile", sizes, element, tag.BROADCAST)


def flip(a: te.Tensor, axis: Any = 0) -> te.Tensor:
    """The elements from the last to the first along one axis or several; None is all."""
    x = tensor_arg("flip", "a", a)
    turned = normalize_axes("flip", axis, x.ndim)

    def element(*i: Any) -> PrimExpr:
        return x(*(ops.sub(ops.sub(x.shape[d], 1), p) if d in turned else p for d, p in enumerate(i)))

    return injective("flip", x.shape, element)


def roll(a: te.Tensor, shift: Any, axis: Any = None) -> te.Tensor:
    """The elements shifted by `shift` along the axes, wrapping around."""
    x = tensor_arg("roll", "a", a)
    if axis is None:
        return reshape(roll(flatten(x), shift, 0), x.shape)
    shifts, axes = int_list("roll", "shift", shift), int_list("roll", "axis", axis)
    if len(shifts) == 1:
        shifts = shifts * len(axes)
    if len(shifts) != len(axes):
        raise fail("roll", f"shift has {len(shifts)} entries for {len(axes)} axes")
    moved: dict[int, Any] = {}
    for d, s in zip((normalize_axis("roll", v, x.ndim) for v in axes), shifts):
        moved[d] = moved.get(d, 0) + s
    if is_empty_shape(x.shape):
        return injective("roll", x.shape, lambda *i: te.const(0, x.dtype))

    def element(*i: Any) -> PrimExpr:
        return x(
            *(ops.floormod(ops.sub(p, moved[d]), x.shape[d]) if d in moved else p for d, p in enumerate(i))
        )

    return injective("roll", x.shape, element)


def reverse_sequence(
    a: te.Tensor, seq_lengths: te.Tensor, seq_axis: int = 1, batch_axis: int = 0
) -> te.Tensor:
    """The first `seq_lengths[b]` elements of each sequence reversed, the others unchanged."""
    x = tensor_arg("reverse_sequence", "a", a)
    lengths = tensor_arg("reverse_sequence", "seq_lengths", seq_lengths)
    along = normalize_axis("reverse_sequence", seq_axis, x.ndim, "seq_axis")
    batch = normalize_axis("reverse_sequence", batch_axis, x.ndim, "batch_axis")
    if lengths.ndim != 1 or not same_size(lengths.shape[0], x.shape[batch]):
        raise fail(
            "reverse_sequence",
            f"seq_lengths has shape {shape_text(lengths.shape)} and must be ({x.shape[batch]},), one for each sequence",
        )

    def element(*i: Any) -> PrimExpr:
        place, size = i[along], x.shape[along]
        # 0 and 1 leave the sequence as it is, and lengths beyond the end reverse all of it
        n = as_place(ops.max_of(ops.min_of(lengths(i[batch]), size), 0), size)
        turned = ops.sub(ops.sub(n, 1), place)
        inside = ops.greater_equal(turned, 0)
        return x(*i[:along], clamped(ops.select(inside, turned, place), size), *i[along + 1 :])

    return injective("reverse_sequence", x.shape, element)


def where(condition: Any, x: Any, y: Any) -> Any:
    """`x` where the condition holds (is not 0), else `y`; all three broadcast."""

    def element(c: Any, a: Any, b: Any) -> PrimExpr:
        c = convert(c)
        held = c if c.dtype.is_bool else ops.not_equal(c, te.const(0, c.dtype))
        return ops.select(held, a, b)

    return elementwise("where", element, condition, x, y)


def sliding_window(data: te.Tensor, axis: int, window_shape: Any, strides: Any) -> te.Tensor:
    """All positions of a window over the dimensions from `axis` on; the window's own dimensions come last."""
    x = tensor_arg("sliding_window", "data", data)
    d = normalize_axis("sliding_window", axis, x.ndim)
    window = int_list("sliding_window", "window_shape", window_shape)
    steps = int_list("sliding_window", "strides", strides)
    count = x.ndim - d
    if len(window) != count or len(steps) != count:
        raise fail(
            "sliding_window",
            f"window_shape has {len(window)} and strides {len(steps)} entries for the {count} dimensions from {d} on",
        )
    places = []
    for i, (w, s) in enumerate(zip(window, steps)):
        dim = get_const_tuple(x.shape)[d + i]
        if s < 1 or w < 1 or (isinstance(dim, int) and w > dim):
            raise fail(
                "sliding_window", f"a window of {w} in steps of {s} does not fit dimension {d + i}, {dim}"
            )
        places.append(simplify(ops.add(ops.floordiv(ops.sub(dim, w), s), 1)))

    def element(*i: Any) -> PrimExpr:
        starts, inside = i[d : d + count], i[d + count :]
        return x(*i[:d], *(ops.add(ops.mul(p, s), q) for p, s, q in zip(starts, steps, inside)))

    return injective("sliding_window", [*x.shape[:d], *places, *window], element)


# ---------------------------------------------------------------------------- layouts
def _axes_of(layout: str) -> list[tuple[str, int]]:
    """NCHW16c as [("N", 0), ("C", 0), ("H", 0), ("W", 0), ("C", 16)]: letters and the sizes of inner parts."""
    found = layout_axes(layout)
    if found is None or any(v.islower() and not size for v, size in found):
        raise fail(
            "layout_transform",
            f"{layout!r} is not a layout",
            'upper-case letters are axes, a number with a lower-case one an inner part of one: "NCHW16c"',
        )
    return [(v.upper(), size) for v, size in found]


def layout_transform(
    array: te.Tensor, src_layout: str, dst_layout: str, schedule_rule: str = "None"
) -> te.Tensor:
    """The tensor in another layout: NCHW to NHWC, to NCHW16c, and back.

    If a block does not divide its axis, the elements beyond the end are 0.
    """
    x = tensor_arg("layout_transform", "array", array)
    source, target = _axes_of(src_layout), _axes_of(dst_layout)
    if len(source) != x.ndim or {v for v, _ in source} != {v for v, _ in target}:
        raise fail(
            "layout_transform",
            f"{src_layout} to {dst_layout} does not fit a tensor of shape {shape_text(x.shape)}",
        )
    whole: dict[str, Any] = {}
    for (v, _), dim in zip(source, x.shape):
        whole[v] = simplify(ops.mul(whole.get(v, 1), dim))
    inner: dict[str, int] = {}
    for v, size in target:
        inner[v] = inner.get(v, 1) * (size or 1)
    sizes = [size or ceil_div(whole[v], inner[v]) for v, size in target]

    def element(*i: Any) -> PrimExpr:
        place: dict[str, Any] = {}
        for v in whole:
            parts = [(p, size) for p, (name, size) in zip(i, target) if name == v]
            parts.sort(key=lambda part: part[1] != 0)  # the outer part first; inner ones in their order
            place[v] = ravel_index([p for p, _ in parts], [s for _, s in parts])
        at: list[Any] = [None] * x.ndim
        for v in whole:
            own = [d for d, (name, _) in enumerate(source) if name == v]
            own.sort(key=lambda d: source[d][1] != 0)
            for d, index in zip(own, _unravel(place[v], [x.shape[d] for d in own])):
                at[d] = index
        inside = [
            ops.less(place[v], whole[v])
            for v in whole
            if inner[v] > 1 and not equal_const_int(simplify(ops.floormod(whole[v], inner[v])), 0)
        ]
        value = x(*at)
        return ops.if_then_else(ops.all(*inside), value, te.const(0, x.dtype)) if inside else value

    attrs = {"src_layout": src_layout, "dst_layout": dst_layout}
    return injective("layout_trans", sizes, element, tag.INJECTIVE, attrs=attrs)


def __getattr__(name: str) -> Any:
    """The classic file had operators that are in files of their own here: `topi.transform.one_hot`."""
    found = None if name.startswith("_") else vars(sys.modules[__package__]).get(name)
    if not callable(found):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found
