"""Operators that move elements: other shapes, orders, parts, copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..expr import Call, TupleWrapper
from ..ty import Any as AnySize
from ..ty import TensorType, TupleType, Type, is_dynamic
from . import dyn, layouts
from .arguments import is_computed
from .attributes import known
from .computes import te, topi
from .picking import gather, gather_nd, one_hot, take
from .registry import (
    Dtype,
    Ints,
    OpPattern,
    Shape,
    Tensor,
    Tensors,
    Value,
    dtype,
    given,
    integer,
    ints,
    operator,
    refuse,
)
from .shapes import (
    add,
    assume_inside,
    axes_of,
    axis_of,
    broadcast,
    differ,
    floordiv,
    is_known,
    mul,
    need_dtype,
    product,
    same_size,
    stretches,
    sub,
    unify,
)

__all__ = [
    "arange",
    "broadcast_to",
    "broadcast_to_like",
    "collapse_sum_like",
    "collapse_sum_to",
    "concatenate",
    "expand_dims",
    "flip",
    "gather",
    "gather_nd",
    "layout_transform",
    "one_hot",
    "repeat",
    "reshape",
    "reshape_like",
    "reverse",
    "slice_like",
    "split",
    "squeeze",
    "stack",
    "strided_slice",
    "take",
    "tile",
    "transpose",
]

INJECTIVE = OpPattern.INJECTIVE


# ---------------------------------------------------------------------------- reshape
def reshaped(shape: Sequence[Any], newshape: Sequence[Any], allowzero: bool = False) -> tuple[Any, ...]:
    """The shape that a list with codes makes of another.

    0 keeps a dimension, -1 is what is left, -2 keeps all that follow, -3 joins two, -4 parts one into the two
    sizes that follow, of which one may be -1.
    """
    out: list[Any] = []
    rest: int | None = None
    at, i = 0, 0  # in `shape`, in `newshape`
    while i < len(newshape):
        code = newshape[i]
        i += 1
        if not is_known(code) or code > 0 or (code == 0 and allowzero):
            out.append(code)
            at += 1
        elif code == 0:
            out.append(_old(shape, at, newshape))
            at += 1
        elif code == -1:
            if rest is not None:
                raise refuse(f"{tuple(newshape)} has -1 twice", "newshape")
            rest = len(out)
            out.append(1)
            at += 1
        elif code == -2:
            out.extend(shape[at:])
            at = len(shape)
        elif code == -3:
            out.append(mul(_old(shape, at, newshape), _old(shape, at + 1, newshape)))
            at += 2
        elif code == -4:
            if i + 1 >= len(newshape):
                raise refuse(f"{tuple(newshape)} has -4 without the two sizes after it", "newshape")
            out.extend(_parted(_old(shape, at, newshape), newshape[i], newshape[i + 1]))
            at, i = at + 1, i + 2
        else:
            raise refuse(f"{tuple(newshape)} has {code}, which means nothing", "newshape")
    return _with_rest(shape, out, rest)


def _old(shape: Sequence[Any], at: int, newshape: Sequence[Any]) -> Any:
    if at >= len(shape):
        raise refuse(f"{tuple(newshape)} speaks of dimension {at} of {tuple(shape)}", "newshape")
    return shape[at]


def _parted(whole: Any, a: Any, b: Any) -> tuple[Any, Any]:
    if is_known(a) and a == -1:
        a = floordiv(whole, b)
    elif is_known(b) and b == -1:
        b = floordiv(whole, a)
    if differ(mul(a, b), whole):
        raise refuse(f"a dimension of {whole} does not part into {a} and {b}", "newshape")
    return a, b


def _with_rest(shape: Sequence[Any], out: list[Any], rest: int | None) -> tuple[Any, ...]:
    if rest is None:
        if differ(product(shape), product(out)):
            raise refuse(
                f"{tuple(shape)} has {product(shape)} elements and {tuple(out)} has {product(out)}",
                "newshape",
            )
        return tuple(out)
    # Dimensions that stand on both sides cancel, so that one unknown size can still be told.
    have, others = list(shape), [d for i, d in enumerate(out) if i != rest]
    for d in list(others):
        found = next((h for h in have if not isinstance(d, AnySize) and same_size(h, d)), None)
        if found is not None:
            have.pop(next(i for i, h in enumerate(have) if h is found))
            others.pop(next(i for i, o in enumerate(others) if o is d))
    total, known = product(have), product(others)
    if is_known(total) and is_known(known):
        if known == 0 or total % known:
            raise refuse(
                f"{tuple(shape)} does not part into {tuple(out)} with one size left open", "newshape"
            )
    out[rest] = total if is_known(known) and known == 1 else floordiv(total, known)
    if not (is_known(total) and is_known(known)) and differ(mul(out[rest], known), total):
        raise refuse(f"{tuple(shape)} does not part into {tuple(out)} with one size left open", "newshape")
    return tuple(out)


def _reshape_rel(types: list[Any], attrs: Any) -> Type:
    return TensorType(reshaped(types[0].shape, attrs.newshape, attrs.allowzero), types[0].dtype)


def _sizes(t: Any) -> tuple[Any, ...]:
    """The sizes of a te.Tensor as a relation has them."""
    return TensorType(t.shape, t.dtype).shape


@operator(
    "reshape",
    rel=_reshape_rel,
    compute=lambda attrs, ins, out: [
        topi.reshape(ins[0], reshaped(_sizes(ins[0]), attrs.newshape, attrs.allowzero))
    ],
    pattern=INJECTIVE,
    dynamic=dyn.reshape,
)
def reshape(data: Tensor, newshape: Ints, allowzero: bool = False) -> Call:
    """The same elements under another shape; 0, -1, -2, -3 and -4 have the meanings of the classic."""


def _like_rel(types: list[Any], attrs: Any) -> Type:
    data, like = types
    if differ(product(data.shape), product(like.shape)):
        raise refuse(f"{data} has another number of elements than {like}", "data")
    return TensorType(like.shape, data.dtype)


@operator(
    "reshape_like",
    rel=_like_rel,
    compute=lambda attrs, ins, out: [topi.reshape(ins[0], ins[1].shape)],
    pattern=INJECTIVE,
)
def reshape_like(data: Tensor, shape_like: Tensor) -> Call:
    """The elements under the shape of another tensor."""


# ---------------------------------------------------------------------------- dimensions
def _order(attrs: Any, ndim: int) -> tuple[int, ...]:
    if attrs.axes is None or (not attrs.axes and ndim):
        return tuple(reversed(range(ndim)))
    order = axes_of(attrs.axes, ndim, "axes")
    if len(order) != ndim:
        raise refuse(f"{attrs.axes} must name all {ndim} dimensions", "axes")
    return order


@operator(
    "transpose",
    rel=lambda types, attrs: TensorType(
        [types[0].shape[d] for d in _order(attrs, len(types[0].shape))], types[0].dtype
    ),
    compute=lambda attrs, ins, out: [topi.transpose(ins[0], _order(attrs, ins[0].ndim))],
    pattern=INJECTIVE,
)
def transpose(data: Tensor, axes: Ints = None) -> Call:
    """The dimensions in another order; without `axes` from the last to the first."""


def _squeeze_rel(types: list[Any], attrs: Any) -> Type:
    shape = types[0].shape
    if attrs.axis is None:
        if any(not is_known(d) for d in shape):
            raise refuse(f"must be given for {types[0]}: which sizes are 1 is not known now", "axis")
        return TensorType([d for d in shape if d != 1], types[0].dtype)
    gone = axes_of(attrs.axis, len(shape))
    for d in gone:
        if differ(shape[d], 1):
            raise refuse(f"dimension {d} of {types[0]} is not 1", "axis")
    return TensorType([s for d, s in enumerate(shape) if d not in gone], types[0].dtype)


def _squeeze_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    if attrs.axis is not None and is_dynamic(TensorType(ins[0].shape, ins[0].dtype)):
        gone = axes_of(attrs.axis, ins[0].ndim)
        return [topi.reshape(ins[0], [s for d, s in enumerate(ins[0].shape) if d not in gone])]
    return [topi.squeeze(ins[0], attrs.axis)]


@operator(
    "squeeze",
    rel=_squeeze_rel,
    compute=_squeeze_compute,
    pattern=INJECTIVE,
    dynamic=dyn.squeeze,
)
def squeeze(data: Tensor, axis: Ints = None) -> Call:
    """The tensor without its dimensions of size 1, or without those named."""


def _expand_rel(types: list[Any], attrs: Any) -> Type:
    shape = types[0].shape
    at = axis_of(attrs.axis, len(shape) + 1)
    return TensorType([*shape[:at], *[1] * attrs.num_newaxis, *shape[at:]], types[0].dtype)


@operator(
    "expand_dims",
    rel=_expand_rel,
    compute=lambda attrs, ins, out: [topi.expand_dims(ins[0], attrs.axis, attrs.num_newaxis)],
    pattern=OpPattern.BROADCAST,
    dynamic=dyn.expand_dims,
)
def expand_dims(data: Tensor, axis: int, num_newaxis: int = 1) -> Call:
    """New dimensions of size 1 before dimension `axis`."""


# ---------------------------------------------------------------------------- joining and parting
def _concatenate_rel(types: list[Any], attrs: Any) -> Type:
    fields = types[0].fields
    if not fields:
        raise refuse("is empty", "data")
    first = fields[0]
    at = axis_of(attrs.axis, len(first.shape))
    shape = list(first.shape)
    for i, f in enumerate(fields[1:], 1):
        need_dtype(f, first.dtype, f"data[{i}]")
        if len(f.shape) != len(shape):
            raise refuse(f"is {f} and data[0] is {first}", f"data[{i}]")
        for d, s in enumerate(f.shape):
            if d == at:
                shape[d] = add(shape[d], s)
            elif differ(shape[d], s):
                raise refuse(f"is {f}, which does not fit {first} along axis {at}", f"data[{i}]")
            else:
                shape[d] = unify(shape[d], s)
    return TensorType(shape, first.dtype)


@operator(
    "concatenate",
    attrs={"axis": integer(0)},
    rel=_concatenate_rel,
    compute=lambda attrs, ins, out: [topi.concatenate(ins, attrs.axis)],
    pattern=INJECTIVE,
)
def concatenate(data: Tensors, axis: int) -> Call:
    """Tensors one behind the other along `axis`."""


def _stack_rel(types: list[Any], attrs: Any) -> Type:
    fields = types[0].fields
    if not fields:
        raise refuse("is empty", "data")
    first = fields[0]
    for i, f in enumerate(fields):
        need_dtype(f, first.dtype, f"data[{i}]")
        same = len(f.shape) == len(first.shape)
        if not same or any(differ(a, b) for a, b in zip(f.shape, first.shape, strict=True)):
            raise refuse(f"is {f} and data[0] is {first}", f"data[{i}]")
    at = axis_of(attrs.axis, len(first.shape) + 1)
    return TensorType([*first.shape[:at], len(fields), *first.shape[at:]], first.dtype)


@operator(
    "stack",
    attrs={"axis": integer(0)},
    rel=_stack_rel,
    compute=lambda attrs, ins, out: [topi.stack(ins, attrs.axis)],
    pattern=INJECTIVE,
)
def stack(data: Tensors, axis: int) -> Call:
    """Tensors of one shape along a new dimension."""


def _split_rel(types: list[Any], attrs: Any) -> Type:
    data = types[0]
    at = axis_of(attrs.axis, len(data.shape))
    size, given = data.shape[at], attrs.indices_or_sections
    if isinstance(given, int):
        if given < 1 or (is_known(size) and size % given):
            raise refuse(
                f"dimension {at} of {data} does not part into {given} equal sections", "indices_or_sections"
            )
        parts = [floordiv(size, given)] * given
        if not is_known(size):
            differ(mul(parts[0], given), size)
    else:
        edges = [0, *given, size]
        parts = [sub(b, a) for a, b in zip(edges, edges[1:], strict=False)]
        if any(is_known(p) and p < 0 for p in parts):
            raise refuse(f"{given} does not rise within a dimension of {size}", "indices_or_sections")
    return TupleType(
        tuple(TensorType([*data.shape[:at], p, *data.shape[at + 1 :]], data.dtype) for p in parts)
    )


def _parts(call: Call) -> int:
    given = call.attrs.indices_or_sections
    return given if isinstance(given, int) else len(given) + 1


@operator(
    "split",
    rel=_split_rel,
    compute=lambda attrs, ins, out: topi.split(
        ins[0],
        attrs.indices_or_sections
        if isinstance(attrs.indices_or_sections, int)
        else list(attrs.indices_or_sections),
        attrs.axis,
    ),
    pattern=INJECTIVE,
    results=_parts,
)
def split(data: Tensor, indices_or_sections: Value, axis: int = 0) -> TupleWrapper:
    """Parts along `axis`: so many equal ones, or those between the places in a list."""


# ---------------------------------------------------------------------------- slices
def slice_range(begin: Any, end: Any, stride: int, size: Any) -> Any:
    """How many elements begin:end:stride takes of a dimension; None stands for its ends."""
    if isinstance(size, AnySize) or not is_known(stride):
        return AnySize()
    if is_known(size) and all(v is None or is_known(v) for v in (begin, end)):
        return len(range(*slice(begin, end, stride).indices(size)))
    # What the operator itself makes of it: numbers are moved inside, expressions must be.
    for place in (begin, end):
        if place is not None:
            assume_inside(place, size)
    line = te.placeholder((size,), name="line")
    low = (0 if stride > 0 else 2**31 - 1) if begin is None else begin
    high = (2**31 - 1 if stride > 0 else -(2**31)) if end is None else end
    return TensorType(topi.strided_slice(line, [low], [high], [stride]).shape).shape[0]


def _slice_rows(attrs: Any, shape: Sequence[Any]) -> list[tuple[Any, Any, int]]:
    """(begin, end, stride) for each dimension."""
    ndim = len(shape)
    axes = axes_of(attrs.axes, ndim, "axes") if attrs.axes is not None else tuple(range(len(attrs.begin)))
    if len(axes) > ndim or len(attrs.begin) < len(axes) or len(attrs.end) < len(axes):
        raise refuse(f"begin {attrs.begin} and end {attrs.end} do not fit {ndim} dimensions", "begin")
    strides = attrs.strides or (1,)
    rows: list[tuple[Any, Any, int]] = [(None, None, 1)] * ndim
    for i, d in enumerate(axes):
        step = strides[i] if i < len(strides) else strides[0] if len(strides) == 1 else 1
        if attrs.slice_mode == "size":
            low, count = attrs.begin[i], attrs.end[i]
            rows[d] = (low, None if is_known(count) and count < 0 else add(low, count), 1)
        else:
            if is_known(step) and step == 0:
                raise refuse("has a 0", "strides")
            rows[d] = (attrs.begin[i], attrs.end[i], step)
    return rows


def _slice_rel(types: list[Any], attrs: Any) -> Type:
    data = types[0]
    rows = _slice_rows(attrs, data.shape)
    return TensorType(
        [d if r == (None, None, 1) else slice_range(*r, d) for r, d in zip(rows, data.shape, strict=True)],
        data.dtype,
    )


def _slice_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    steps = attrs.strides if len(attrs.strides) == len(attrs.begin) else attrs.strides * len(attrs.begin)
    return [topi.strided_slice(ins[0], attrs.begin, attrs.end, steps, attrs.axes, attrs.slice_mode)]


@operator(
    "strided_slice",
    attrs={"strides": ints((1,))},
    rel=_slice_rel,
    compute=_slice_compute,
    pattern=INJECTIVE,
)
def strided_slice(
    data: Tensor, begin: Ints, end: Ints, strides: Ints = None, axes: Ints = None, slice_mode: str = "end"
) -> Call:
    """The elements from `begin` to `end` in steps, along all dimensions or those named."""
    steps = (1,) if strides is None else strides
    if axes is None and any(map(is_computed, (begin, end, steps))):
        return dyn.strided_slice(data, begin, end, steps, slice_mode)
    low, high = (
        [edge if v is None else v for v in known(places)] for places, edge in ((begin, 0), (end, 2**31 - 1))
    )
    return given(begin=low, end=high, strides=steps)


def _slice_like_shape(data: TensorType, like: TensorType, axes: Any) -> list[Any]:
    chosen = axes_of(axes, len(data.shape), "axes") if axes else range(min(len(data.shape), len(like.shape)))
    shape = list(data.shape)
    for d in chosen:
        if d >= len(like.shape):
            raise refuse(f"has no dimension {d}: {like}", "shape_like")
        shape[d] = like.shape[d]
    return shape


@operator(
    "slice_like",
    rel=lambda types, attrs: TensorType(_slice_like_shape(types[0], types[1], attrs.axes), types[0].dtype),
    compute=lambda attrs, ins, out: [
        topi.strided_slice(ins[0], [0] * ins[0].ndim, list(out.shape), [1] * ins[0].ndim)
    ],
    pattern=INJECTIVE,
)
def slice_like(data: Tensor, shape_like: Tensor, axes: Ints = None) -> Call:
    """The front part of a tensor, as large as another along some dimensions."""


# ---------------------------------------------------------------------------- copies
def _tile_rel(types: list[Any], attrs: Any) -> Type:
    shape, reps = types[0].shape, attrs.reps
    ndim = max(len(shape), len(reps))
    full = [1] * (ndim - len(shape)) + list(shape)
    times = [1] * (ndim - len(reps)) + list(reps)
    return TensorType([mul(d, r) for d, r in zip(full, times, strict=True)], types[0].dtype)


@operator(
    "tile",
    rel=_tile_rel,
    compute=lambda attrs, ins, out: [topi.tile(ins[0], attrs.reps)],
    pattern=OpPattern.BROADCAST,
    dynamic=dyn.tile,
)
def tile(data: Tensor, reps: Ints) -> Call:
    """The whole tensor several times along each dimension."""


def _repeat_rel(types: list[Any], attrs: Any) -> Type:
    shape = types[0].shape
    if attrs.axis is None:
        return TensorType((mul(product(shape), attrs.repeats),), types[0].dtype)
    at = axis_of(attrs.axis, len(shape))
    return TensorType([mul(d, attrs.repeats) if i == at else d for i, d in enumerate(shape)], types[0].dtype)


@operator(
    "repeat",
    attrs={"axis": integer(None)},
    rel=_repeat_rel,
    compute=lambda attrs, ins, out: [topi.repeat(ins[0], attrs.repeats, attrs.axis)],
    pattern=OpPattern.BROADCAST,
)
def repeat(data: Tensor, repeats: int, axis: int | None) -> Call:
    """Each slice along `axis` several times behind itself."""


def _broadcast_to_rel(types: list[Any], attrs: Any) -> Type:
    have, want = types[0].shape, attrs.shape
    pairs = zip(reversed(have), reversed(want), strict=False)
    fits = len(have) <= len(want) and all(stretches(a, b) for a, b in pairs)
    if not fits:
        raise refuse(f"{types[0]} does not broadcast to {want}", "shape")
    return TensorType(attrs.shape, attrs.dtype or types[0].dtype)


@operator(
    "broadcast_to",
    rel=_broadcast_to_rel,
    compute=lambda attrs, ins, out: [topi.broadcast_to(ins[0], out.shape)],
    pattern=OpPattern.BROADCAST,
    attrs={"dtype": dtype(None)},
    dynamic=dyn.broadcast_to,
)
def broadcast_to(data: Tensor, shape: Shape) -> Call:
    """The tensor repeated along dimensions of size 1 to a shape."""


@operator(
    "broadcast_to_like",
    rel=lambda types, attrs: TensorType(broadcast(types[0].shape, types[1].shape), types[0].dtype),
    compute=lambda attrs, ins, out: [topi.broadcast_to(ins[0], ins[1].shape)],
    pattern=OpPattern.BROADCAST,
)
def broadcast_to_like(data: Tensor, broadcast_type: Tensor) -> Call:
    """The tensor repeated to the shape of another."""


@operator(
    "collapse_sum_like",
    rel=lambda types, attrs: TensorType(types[1].shape, types[0].dtype),
    compute=lambda attrs, ins, out: [topi.collapse_sum(ins[0], ins[1].shape)],
    pattern=OpPattern.COMM_REDUCE,
)
def collapse_sum_like(data: Tensor, collapse_type: Tensor) -> Call:
    """The sum over the dimensions along which another tensor would be repeated."""


@operator(
    "collapse_sum_to",
    rel=lambda types, attrs: TensorType(attrs.shape, types[0].dtype),
    compute=lambda attrs, ins, out: [topi.collapse_sum(ins[0], attrs.shape)],
    pattern=OpPattern.COMM_REDUCE,
)
def collapse_sum_to(data: Tensor, shape: Ints) -> Call:
    """The sum over the dimensions along which a tensor of this shape would be repeated."""


def _reverse_rel(types: list[Any], attrs: Any) -> Type:
    axes_of(attrs.axis, len(types[0].shape))
    return types[0]  # type: ignore[no-any-return]


@operator(
    "reverse",
    rel=_reverse_rel,
    compute=lambda attrs, ins, out: [topi.flip(ins[0], attrs.axis)],
    pattern=INJECTIVE,
)
def reverse(data: Tensor, axis: Ints) -> Call:
    """The elements from the last to the first along an axis."""


flip = reverse


# ---------------------------------------------------------------------------- layouts and ranges
def _layout_rel(types: list[Any], attrs: Any) -> Type:
    named = layouts.sizes(attrs.src_layout, types[0].shape)
    if set(layouts.letters(attrs.src_layout)) != set(layouts.letters(attrs.dst_layout)):
        raise refuse(f"{attrs.src_layout} and {attrs.dst_layout} have different axes", "dst_layout")
    return TensorType(layouts.shape_in(attrs.dst_layout, named, exact=False), types[0].dtype)


@operator(
    "layout_transform",
    rel=_layout_rel,
    compute=lambda attrs, ins, out: [topi.layout_transform(ins[0], attrs.src_layout, attrs.dst_layout)],
    pattern=INJECTIVE,
)
def layout_transform(data: Tensor, src_layout: str, dst_layout: str) -> Call:
    """The elements in another layout, such as NCHW16c."""


def _arange_count(attrs: Any) -> int:
    if attrs.step == 0:
        raise refuse("is 0", "step")
    import math

    return max(0, math.ceil((attrs.stop - attrs.start) / attrs.step))


@operator(
    "arange",
    rel=lambda types, attrs: TensorType((_arange_count(attrs),), attrs.dtype),
    compute=lambda attrs, ins, out: [topi.arange(attrs.start, attrs.stop, attrs.step, attrs.dtype)],
    pattern=INJECTIVE,
)
def arange(start: Value, stop: Value = None, step: Value = 1, dtype: Dtype = "float32") -> Call:
    """Numbers from `start` on in equal steps, `stop` not included."""
    first, last = (0, start) if stop is None else (start, stop)
    if any(map(is_computed, (first, last, step))):
        return dyn.arange(first, last, step, dtype)
    return given(start=first, stop=last)
