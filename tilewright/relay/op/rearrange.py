"""The same elements in another shape, order or grouping."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..expr import Call, TupleWrapper
from ..ty import Any as AnySize
from ..ty import TensorType, TupleType, Type, is_dynamic
from . import dyn, layouts
from .arguments import columns
from .attributes import integer, ints, printed
from .computes import topi
from .gradients import rearrange as grads
from .gradients.parts import reshaped as reshaped_back
from .registry import BROADCAST, INJECTIVE, Ints, Tensor, Tensors, Value, operator, refuse
from .shapes import (
    add,
    axes_of,
    axes_rel,
    axis_of,
    differ,
    floordiv,
    is_known,
    mul,
    need_dtype,
    need_fields,
    product,
    same_size,
    sub,
    unify,
    unlike,
    whole_part,
)
from .traits import Traits

__all__ = [
    "concatenate",
    "expand_dims",
    "flip",
    "layout_transform",
    "reshape",
    "reshape_like",
    "reverse",
    "reverse_reshape",
    "split",
    "squeeze",
    "stack",
    "transpose",
]


# ---------------------------------------------------------------------------- other shapes
def reshaped(shape: Sequence[Any], newshape: Sequence[Any], allowzero: bool = False) -> tuple[Any, ...]:
    """The shape that a list with codes makes of another.

    0 keeps a dimension, -1 is inferred, -2 keeps all that follow, -3 merges two, -4 splits one into the two sizes that
    follow, of which one may be -1.
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
            raise refuse(f"{tuple(newshape)} has {code}, which is not a valid code", "newshape")
    return _with_rest(shape, out, rest)


def _old(shape: Sequence[Any], at: int, newshape: Sequence[Any]) -> Any:
    if at >= len(shape):
        raise refuse(f"{tuple(newshape)} refers to dimension {at} of {tuple(shape)}", "newshape")
    return shape[at]


def _parted(whole: Any, a: Any, b: Any) -> tuple[Any, Any]:
    if is_known(a) and a == -1:
        a = floordiv(whole, b)
    elif is_known(b) and b == -1:
        b = floordiv(whole, a)
    if differ(mul(a, b), whole):
        raise refuse(f"a dimension of {whole} cannot be split into {a} and {b}", "newshape")
    return a, b


def _with_rest(shape: Sequence[Any], out: list[Any], rest: int | None) -> tuple[Any, ...]:
    if rest is None:
        if differ(product(shape), product(out)):
            raise refuse(
                f"{tuple(shape)} has {product(shape)} elements and {tuple(out)} has {product(out)}",
                "newshape",
            )
        return tuple(out)
    # Dimensions on both sides cancel, so that one unknown size can still be inferred.
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
                f"{tuple(shape)} cannot be reshaped to {tuple(out)} with one inferred size", "newshape"
            )
    out[rest] = total if is_known(known) and known == 1 else floordiv(total, known)
    if not (is_known(total) and is_known(known)) and differ(mul(out[rest], known), total):
        raise refuse(f"{tuple(shape)} cannot be reshaped to {tuple(out)} with one inferred size", "newshape")
    return tuple(out)


def _sizes(t: Any) -> tuple[Any, ...]:
    """The sizes of a te.Tensor as a relation has them."""
    return TensorType(t.shape, t.dtype).shape


@operator(
    "reshape",
    traits=Traits(view=True, rearranges=True, quantised="same", gradient=reshaped_back),
    rel=lambda types, attrs: TensorType(
        reshaped(types[0].shape, attrs.newshape, attrs.allowzero), types[0].dtype
    ),
    compute=lambda attrs, ins, out: [
        topi.reshape(ins[0], reshaped(_sizes(ins[0]), attrs.newshape, attrs.allowzero))
    ],
    pattern=INJECTIVE,
    dynamic=dyn.reshape,
)
def reshape(data: Tensor, newshape: Ints, allowzero: bool = False) -> Call:
    """The same elements in another shape; 0, -1, -2, -3 and -4 have their classic meanings."""


def _like_rel(types: list[Any], attrs: Any) -> Type:
    data, like = types
    first, last = _part(attrs.lhs_begin, attrs.lhs_end, data, "lhs")
    low, high = _part(attrs.rhs_begin, attrs.rhs_end, like, "rhs")
    old, new = data.shape[first:last], like.shape[low:high]
    if differ(product(old), product(new)):
        named = f"{data}" if old == data.shape else f"{old} of {data}"
        raise refuse(
            f"{named} has another number of elements than {like if new == like.shape else new}", "data"
        )
    return TensorType((*data.shape[:first], *new, *data.shape[last:]), data.dtype)


def _part(begin: int, end: int | None, kind: Any, name: str) -> tuple[int, int]:
    """The dimensions begin:end of a tensor, in order; a negative one counts from the end."""
    ndim = len(kind.shape)
    first, last = (n + ndim if n < 0 else n for n in (begin, ndim if end is None else end))
    if not 0 <= first <= last <= ndim:
        raise refuse(f"is {begin} and {name}_end is {end}: they are no dimensions of {kind}", f"{name}_begin")
    return first, last


@operator(
    "reshape_like",
    traits=Traits(view=True, rearranges=True, gradient=reshaped_back),
    rel=_like_rel,
    compute=lambda attrs, ins, out: [topi.reshape(ins[0], out.shape)],
    pattern=INJECTIVE,
)
def reshape_like(
    data: Tensor,
    shape_like: Tensor,
    lhs_begin: int = 0,
    lhs_end: int | None = None,
    rhs_begin: int = 0,
    rhs_end: int | None = None,
) -> Call:
    """The elements under the shape of another tensor.

    The sizes `rhs_begin:rhs_end` of that shape stand for the dimensions `lhs_begin:lhs_end` of the data.
    """


def _reversed_codes(shape: Any, newshape: Any) -> tuple[Any, ...]:
    """As the codes of reshape, from the last dimension on: 0 keeps a dimension, -3 merges two."""
    if any(is_known(code) and code < -3 for code in newshape):
        raise refuse(f"{newshape} may contain only sizes, 0, -1, -2 and -3", "newshape")
    return reshaped(tuple(reversed(shape)), list(reversed(newshape)), allowzero=False)[::-1]


@operator(
    "contrib_reverse_reshape",
    traits=Traits(view=True, rearranges=True, gradient=reshaped_back),
    rel=lambda types, attrs: TensorType(_reversed_codes(types[0].shape, attrs.newshape), types[0].dtype),
    compute=lambda attrs, ins, out: [topi.reshape(ins[0], out.shape)],
    pattern=INJECTIVE,
)
def reverse_reshape(data: Tensor, newshape: Ints) -> Call:
    """reshape whose special sizes are read from the last dimension on."""


def _flatten_rel(types: list[Any], attrs: Any) -> Type:
    shape = types[0].shape
    if not shape:
        raise refuse(f"must have a dimension and is {types[0]}", "data")
    return TensorType((shape[0], product(shape[1:])), types[0].dtype)


@operator(
    "nn.batch_flatten",
    traits=Traits(view=True, rearranges=True, quantised="same", gradient=reshaped_back),
    rel=_flatten_rel,
    compute="nn.flatten",
    pattern=INJECTIVE,
)
def batch_flatten(data: Tensor) -> Call:
    """All dimensions after the first as one."""


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
    attrs={"axes": printed(ints(None))},
    traits=Traits(gradient=grads.transpose),
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
    traits=Traits(view=True, quantised="same", gradient=reshaped_back),
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
    traits=Traits(view=True, quantised="same", gradient=reshaped_back),
    rel=_expand_rel,
    compute="expand_dims",
    pattern=BROADCAST,
    dynamic=dyn.expand_dims,
)
def expand_dims(data: Tensor, axis: int, num_newaxis: int = 1) -> Call:
    """New dimensions of size 1 before dimension `axis`."""


# ---------------------------------------------------------------------------- joining and parting
def _concatenate_rel(types: list[Any], attrs: Any) -> Type:
    fields = need_fields(types[0])
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
    traits=Traits(gradient=grads.concatenate),
    attrs={"axis": integer(0)},
    rel=_concatenate_rel,
    compute=lambda attrs, ins, out: [topi.concatenate(ins, attrs.axis)],
    pattern=INJECTIVE,
)
def concatenate(data: Tensors, axis: int) -> Call:
    """The concatenation of tensors along `axis`."""


def _stack_rel(types: list[Any], attrs: Any) -> Type:
    fields = need_fields(types[0])
    first = fields[0]
    for i, f in enumerate(fields):
        need_dtype(f, first.dtype, f"data[{i}]")
        if unlike(f.shape, first.shape):
            raise refuse(f"is {f} and data[0] is {first}", f"data[{i}]")
    at = axis_of(attrs.axis, len(first.shape) + 1)
    return TensorType([*first.shape[:at], len(fields), *first.shape[at:]], first.dtype)


@operator(
    "stack",
    traits=Traits(gradient=grads.stack),
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
                f"dimension {at} of {data} cannot be split into {given} equal sections", "indices_or_sections"
            )
        parts = [floordiv(size, given)] * given
        if not is_known(size):
            differ(mul(parts[0], given), size)
    else:
        edges = [0, *given, size]
        parts = [sub(b, a) for a, b in zip(edges, edges[1:], strict=False)]
        if any(is_known(p) and p < 0 for p in parts):
            raise refuse(f"{given} is not ascending within a dimension of {size}", "indices_or_sections")
    return TupleType(
        tuple(TensorType([*data.shape[:at], p, *data.shape[at + 1 :]], data.dtype) for p in parts)
    )


def _parts(call: Call) -> int:
    given = call.attrs.indices_or_sections
    return given if isinstance(given, int) else len(given) + 1


@operator(
    "split",
    traits=Traits(gradient=grads.split),
    rel=_split_rel,
    compute="split",
    pattern=INJECTIVE,
    results=_parts,
)
def split(data: Tensor, indices_or_sections: Value, axis: int = 0) -> TupleWrapper:
    """Parts along `axis`: a number of equal ones, or those between the indices in a list."""


def _fifo_rel(types: list[Any], attrs: Any) -> Type:
    data, buffer = types
    if len(data.shape) != len(buffer.shape):
        raise refuse(f"is {buffer} and data is {data}", "buffer")
    at = axis_of(attrs.axis, len(buffer.shape))
    for d, (x, y) in enumerate(zip(data.shape, buffer.shape, strict=True)):
        if d != at and differ(x, y):
            raise refuse(f"is {buffer} and data is {data}: dimension {d} differs", "buffer")
        if d == at and is_known(x) and is_known(y) and x > y:
            raise refuse(f"has room for {y} elements on axis {at} and data has {x}", "buffer")
    return buffer


@operator(
    "nn.fifo_buffer",
    traits=Traits(gradient=grads.fifo_buffer),
    attrs={"axis": integer(0)},
    rel=_fifo_rel,
    compute="nn.fifo_buffer",
)
def fifo_buffer(data: Tensor, buffer: Tensor, axis: int) -> Call:
    """The buffer shifted by the size of `data`, which is appended at its end."""


# ---------------------------------------------------------------------------- order
@operator(
    "reverse",
    traits=Traits(quantised="same", gradient=grads.reverse),
    rel=axes_rel,
    compute="flip",
    pattern=INJECTIVE,
)
def reverse(data: Tensor, axis: Ints) -> Call:
    """The elements from the last to the first along an axis."""


flip = reverse


def _layout_rel(types: list[Any], attrs: Any) -> Type:
    named = layouts.sizes(attrs.src_layout, types[0].shape)
    if set(layouts.letters(attrs.src_layout)) != set(layouts.letters(attrs.dst_layout)):
        raise refuse(f"{attrs.src_layout} and {attrs.dst_layout} have different axes", "dst_layout")
    return TensorType(layouts.shape_in(attrs.dst_layout, named, exact=False), types[0].dtype)


@operator(
    "layout_transform",
    traits=Traits(rearranges=True, quantised="same", gradient=grads.layout_transform),
    rel=_layout_rel,
    compute="layout_transform",
    pattern=INJECTIVE,
)
def layout_transform(data: Tensor, src_layout: str, dst_layout: str) -> Call:
    """The elements in another layout, such as NCHW16c."""


# ---------------------------------------------------------------------------- blocks of pixels
def _block_attrs(attrs: Any, *more: str) -> int:
    if attrs.block_size < 1:
        raise refuse(f"is {attrs.block_size}", "block_size")
    if attrs.layout not in ("NCHW", "NHWC"):
        raise refuse(f"is {attrs.layout} and must be NCHW or NHWC", "layout")
    if attrs.mode not in ("DCR", "CRD", *more):
        raise refuse(f"is {attrs.mode!r} and must be DCR or CRD", "mode")
    return int(attrs.block_size)


def _depth_to_space_rel(types: list[Any], attrs: Any) -> Type:
    b = _block_attrs(attrs, "CDR")
    named = layouts.sizes(attrs.layout, types[0].shape)
    named["C"] = whole_part(named["C"], b * b, "data", "the number of channels")
    named["H"], named["W"] = mul(named["H"], b), mul(named["W"], b)
    return TensorType(layouts.shape_in(attrs.layout, named), types[0].dtype)


def _space_to_depth_rel(types: list[Any], attrs: Any) -> Type:
    b = _block_attrs(attrs)
    named = layouts.sizes(attrs.layout, types[0].shape)
    named["C"] = mul(named["C"], b * b)
    named["H"], named["W"] = (
        whole_part(named["H"], b, "data", "the height"),
        whole_part(named["W"], b, "data", "the width"),
    )
    return TensorType(layouts.shape_in(attrs.layout, named), types[0].dtype)


@operator(
    "nn.depth_to_space",
    traits=Traits(rearranges=True, layout="attribute", quantised="same", gradient=grads.depth_to_space),
    rel=_depth_to_space_rel,
    compute="nn.depth_to_space",
    pattern=INJECTIVE,
)
def depth_to_space(data: Tensor, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> Call:
    """Channels become blocks of pixels; DCR or CRD says which part of a channel's number is the depth."""


@operator(
    "nn.space_to_depth",
    traits=Traits(rearranges=True, layout="attribute", quantised="same", gradient=grads.space_to_depth),
    rel=_space_to_depth_rel,
    compute="nn.space_to_depth",
    pattern=INJECTIVE,
)
def space_to_depth(data: Tensor, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> Call:
    """Blocks of pixels become channels, the inverse of depth_to_space."""


def _check_rows(attrs: Any, name: str, ndim: int) -> None:
    blocks, rows = attrs.block_shape, attrs[name]
    if len(blocks) >= ndim or any(b < 1 for b in blocks):
        raise refuse(
            f"is {blocks} and data has {ndim} dimensions, of which the first is the batch", "block_shape"
        )
    if len(rows) != len(blocks) or any(len(r) != 2 or min(r) < 0 for r in rows):
        raise refuse(f"is {rows} and needs two numbers for each of {len(blocks)} dimensions", name)


def _space_to_batch_rel(types: list[Any], attrs: Any) -> Type:
    shape = list(types[0].shape)
    _check_rows(attrs, "paddings", len(shape))
    shape[0] = mul(shape[0], product(attrs.block_shape))
    for d, (b, (before, after)) in enumerate(zip(attrs.block_shape, attrs.paddings, strict=True), 1):
        shape[d] = whole_part(add(shape[d], before + after), b, "data", f"dimension {d} with its padding")
    return TensorType(shape, types[0].dtype)


def _batch_to_space_rel(types: list[Any], attrs: Any) -> Type:
    shape = list(types[0].shape)
    _check_rows(attrs, "crops", len(shape))
    shape[0] = whole_part(shape[0], product(attrs.block_shape), "data", "the batch")
    for d, (b, (before, after)) in enumerate(zip(attrs.block_shape, attrs.crops, strict=True), 1):
        shape[d] = sub(mul(shape[d], b), before + after)
        if isinstance(shape[d], int) and shape[d] < 0:
            raise refuse(f"{attrs.crops} crops more than dimension {d} has", "crops")
    return TensorType(shape, types[0].dtype)


@operator(
    "nn.space_to_batch_nd",
    traits=Traits(rearranges=True, gradient=grads.space_to_batch_nd),
    rel=_space_to_batch_rel,
    compute=lambda attrs, ins, out: [
        topi.nn.space_to_batch_nd(ins[0], attrs.block_shape, *columns(attrs.paddings), attrs.pad_value)
    ],
    pattern=INJECTIVE,
)
def space_to_batch_nd(data: Tensor, block_shape: Ints, paddings: Ints, pad_value: float = 0) -> Call:
    """The elements of blocks of space become images of their own."""


@operator(
    "nn.batch_to_space_nd",
    traits=Traits(rearranges=True, gradient=grads.batch_to_space_nd),
    rel=_batch_to_space_rel,
    compute=lambda attrs, ins, out: [
        topi.nn.batch_to_space_nd(ins[0], attrs.block_shape, *columns(attrs.crops))
    ],
    pattern=INJECTIVE,
)
def batch_to_space_nd(data: Tensor, block_shape: Ints, crops: Ints) -> Call:
    """Images become blocks of space, which is then cropped: the inverse of space_to_batch_nd."""
