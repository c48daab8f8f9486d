"""Operators that move elements: reshapes, transposes, slices, copies, padding."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...op.shapes import ceildiv, sub
from ..common.pads import padded
from ..common.windows import Windows, folded
from .build import (
    R,
    cast,
    constant,
    is_static,
    literal,
    rank,
    scalar,
    shape_of,
    static_shape,
)
from .context import Node, Value, converter

_FAR = 2**31 - 1


def _axes(n: Node, index: int = 1) -> list[int] | None:
    """Axes, an attribute before opset 13 and an input since."""
    if n.has(index):
        return n.ints(index)
    found = n.attr("axes")
    return None if found is None else [int(v) for v in found]


@converter("Reshape")
def reshape(n: Node) -> Any:
    wanted = [int(v) for v in n.attr("shape")] if n.opset < 5 and "shape" in n.attrs else n.sizes(1)
    allowzero = n.flag("allowzero", 0)
    if isinstance(wanted, list) and any(isinstance(v, int) and v < -1 for v in wanted):
        raise n.refuse(f"shape {wanted} has a size below -1")
    return _kept(n, R.reshape(n[0], wanted, allowzero=allowzero))


def _kept(n: Node, e: Any) -> Value:
    """A result whose elements are those of the first input, of whatever type."""
    return Value(e, elem=n.value(0).elem)


@converter("Shape")
def shape(n: Node) -> Any:
    x = n[0]
    start, end = n.attr("start", 0), n.attr("end", rank(x))
    if is_static(x):
        return constant(np.asarray(shape_of(x)[start:end], np.int64))
    found = R.shape_of(x, "int64")
    return found if (start, end) == (0, rank(x)) else R.strided_slice(found, [start], [end])


@converter("Size")
def size(n: Node) -> Any:
    return cast(R.ndarray_size(n[0], "int64"), "int64")


@converter("Transpose")
def transpose(n: Node) -> Any:
    perm = n.attr("perm", list(range(n.rank(0)))[::-1])
    return _kept(n, R.transpose(n[0], perm) if rank(n[0]) else n[0])


@converter("Flatten")
def flatten(n: Node) -> Any:
    x, ndim = n[0], n.rank(0)
    axis = int(n.attr("axis", 1))
    if not -ndim <= axis <= ndim:
        raise n.refuse(f"axis {axis} does not exist in a tensor of {ndim} dimensions")
    axis += ndim if axis < 0 else 0
    sizes = shape_of(x)
    if is_static(x):
        return _kept(
            n, R.reshape(x, [int(np.prod(sizes[:axis])), int(np.prod(sizes[axis:]))], allowzero=True)
        )
    if axis == 0:
        return _kept(n, R.reshape(x, [1, -1]))
    if all(isinstance(d, int) for d in sizes[axis:]):
        return _kept(n, R.reshape(x, [-1, int(np.prod(sizes[axis:]))]))
    if axis == 1:
        return _kept(n, R.nn.batch_flatten(x))
    return _kept(n, R.reshape(x, [int(np.prod(static_shape(x)[:axis])), -1]))


@converter("Squeeze")
def squeeze(n: Node) -> Any:
    axes = _axes(n)
    if axes is None:
        axes = [i for i, d in enumerate(n.shape(0)) if isinstance(d, int) and d == 1]
    return _kept(n, R.squeeze(n[0], n.fronts(axes, n.rank(0))) if axes else n[0])


@converter("Unsqueeze")
def unsqueeze(n: Node) -> Any:
    axes = _axes(n)
    if axes is None:
        raise n.refuse("axes are missing")
    x = n[0]
    for d in sorted(n.fronts(axes, n.rank(0) + len(axes))):
        x = R.expand_dims(x, d)
    return _kept(n, x)


@converter("Concat")
def concat(n: Node) -> Any:
    if n.opset < 4 and "axis" not in n.attrs:
        axis = 1
    else:
        axis = n.axis(0)
    parts = n.all()
    return _kept(n, parts[0] if len(parts) == 1 else R.concatenate(parts, axis))


@converter("Split")
def split(n: Node) -> Any:
    axis = n.axis(0)
    sizes = n.ints(1) if n.has(1) else n.attr("split")
    x = n[0]
    total = shape_of(x)[axis]
    if sizes is None:
        count = int(n.attr("num_outputs", len(n.outputs)))
        if count < 1 or (isinstance(total, int) and count > max(total, 1) * 64):
            raise n.refuse(f"into {count} parts of a dimension of {total}")
        if not isinstance(total, int):
            return R.split(x, count, axis)
        each = -(-total // count)
        sizes = [max(min(each, total - each * i), 0) for i in range(count)]
    if isinstance(total, int) and sum(sizes) != total:
        raise n.refuse(f"parts {list(sizes)} do not sum to the dimension of {total}")
    if any(s < 0 for s in sizes):
        raise n.refuse(f"parts {list(sizes)} must not be negative")
    edges = [int(v) for v in np.cumsum([0, *sizes])]
    if len(sizes) == 1:
        return _kept(n, x)
    return [
        Value(R.strided_slice(x, [a], [b], axes=[axis]), elem=n.value(0).elem)
        for a, b in zip(edges, edges[1:], strict=False)
    ]


@converter("Slice")
def slice_attributes(n: Node) -> Any:
    starts, ends = n.attr("starts"), n.attr("ends")
    return _sliced(n, starts, ends, n.attr("axes", list(range(len(starts)))), [1] * len(starts))


@converter("Slice", since=10)
def slice_inputs(n: Node) -> Any:
    if any(n.value(i).known is None for i in (1, 2)):
        return _sliced_by_data(n)
    starts, ends = n.ints(1, symbols=True), n.ints(2, symbols=True)
    axes = n.ints(3) if n.has(3) else list(range(len(starts)))
    steps = n.ints(4) if n.has(4) else [1] * len(starts)
    return _sliced(n, starts, ends, axes, steps)


def _sliced(n: Node, starts: list[Any], ends: list[Any], axes: list[int], steps: list[int]) -> Any:
    x = n[0]
    axes = n.fronts(axes, rank(x))
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise n.refuse(f"starts {starts}, ends {ends}, axes {axes} and steps {steps} differ in length")
    begin, end, stride = [], [], []
    for a, b, d, s in zip(starts, ends, axes, steps, strict=True):
        total = shape_of(x)[d]
        if s == 0:
            raise n.refuse("a step of 0")
        if isinstance(total, int) and isinstance(a, int) and isinstance(b, int):
            low, high, step = slice(a, b, s).indices(total)
            if len(range(low, high, step)) == 0:
                low = high = 0
                step = 1
            # What counts from the end in the operator counts from the front here.
            begin.append(low)
            end.append(high if high >= 0 else -total - 1)
            stride.append(step)
        else:
            begin.append(_near(a))
            end.append(_near(b))
            stride.append(s)
    if not axes:
        return _kept(n, x)
    return _kept(n, R.strided_slice(x, begin, end, strides=stride, axes=axes))


def _sliced_by_data(n: Node) -> Any:
    """A slice with computed bounds: the sizes are dynamic."""
    ndim, count = n.rank(0), n.static(1)[0]
    axes = n.fronts(n.ints(3) if n.has(3) else range(count), ndim)
    steps = n.ints(4) if n.has(4) else [1] * count
    if not n.static(2)[0] == count == len(axes) == len(steps):
        raise n.refuse(
            f"it has {count} starts, {n.static(2)[0]} ends, {len(axes)} axes and {len(steps)} steps"
        )
    if 0 in steps:
        raise n.refuse("a step of 0")
    if not count:
        return _kept(n, n[0])
    last = max(axes) + 1
    stride = [steps[axes.index(d)] if d in axes else 1 for d in range(last)]

    def places(index: int, rest: int) -> Any:
        given = cast(n[index], "int64")
        rows = [
            R.strided_slice(given, [k], [k + 1])
            if (k := axes.index(d) if d in axes else -1) >= 0
            else literal([rest])
            for d in range(last)
        ]
        return R.concatenate(rows, 0) if last > 1 else rows[0]

    made = R.dyn.strided_slice(n[0], places(1, 0), places(2, _FAR), literal(stride))
    sizes = [-1 if d in axes else size for d, size in enumerate(n.shape(0))]
    if len(axes) == 1 and all(isinstance(d, int) and d for d in sizes):  # the others are as before
        made = R.reshape(made, sizes)
    return _kept(n, made)


def _near(v: Any) -> Any:
    return max(min(v, _FAR), -_FAR) if isinstance(v, int) else v


@converter("Expand")
def expand(n: Node) -> Any:
    x = n[0]
    wanted = n.sizes(1)
    if not isinstance(wanted, list):
        return _expanded_by_data(x, wanted)
    have = list(shape_of(x))
    count = max(len(have), len(wanted))
    have = [1] * (count - len(have)) + have
    wanted = [1] * (count - len(wanted)) + wanted
    out = []
    for a, b in zip(have, wanted, strict=True):
        one = isinstance(b, int) and b == 1
        if not one and isinstance(a, int) and isinstance(b, int) and a not in (1, b):
            raise n.refuse(f"{shape_of(x)} does not broadcast with {wanted}")
        out.append(a if one else b)
    return R.broadcast_to(x, out)


def _expanded_by_data(x: Any, wanted: Any) -> Any:
    """A tensor broadcast with a computed shape, in which 1 keeps a dimension."""
    count, ndim = static_shape(wanted)[0], rank(x)
    have = R.shape_of(x, "int64") if ndim else literal([])
    parts = [literal([1] * (count - ndim)), have], [literal([1] * (ndim - count)), wanted]
    own, given = (e if not shape_of(fill)[0] else R.concatenate([fill, e], 0) for fill, e in parts)
    return R.broadcast_to(x, R.where(R.equal(given, literal([1])), own, given))


@converter("Tile")
def tile(n: Node) -> Any:
    if n.opset < 6:
        reps = [1] * n.rank(0)
        reps[n.ints(2)[0]] = n.ints(1)[0]
        return R.tile(n[0], reps)
    return R.tile(n[0], n.sizes(1))


@converter("ConstantOfShape")
def constant_of_shape(n: Node) -> Any:
    value = n.attr("value")
    if isinstance(value, Value):
        return Value(R.full(constant(value.known.reshape(())), n.sizes(0)), elem=value.elem)
    one = np.float32(0) if value is None else value.reshape(-1)[0]
    return R.full(constant(np.asarray(one)), n.sizes(0))


@converter("Range")
def range_of(n: Node) -> Any:
    if n.value(1).symbolic and n.known(0) is not None and n.known(2) is not None:
        return _range_to(n)
    if not any(n.value(i).symbolic for i in range(3)) and any(n.known(i) is None for i in range(3)):
        return R.dyn.arange(*(R.reshape(n[i], ()) for i in range(3)), n.dtype(0))
    start, stop, step = (n.need(i).reshape(()) for i in range(3))
    kind = n.dtype(0)
    if float(step) == 0:
        raise n.refuse("a step of 0")
    count = max(int(np.ceil((float(stop) - float(start)) / float(step))), 0)
    if count > 1 << 28:
        raise n.refuse(f"{count} elements are too many")
    return constant((start + np.arange(count).astype(start.dtype) * step).astype(start.dtype), kind)


def _range_to(n: Node) -> Any:
    """A range with a dynamic end: a cumulative sum of ones."""
    start, step = n.known(0).reshape(()), n.known(2).reshape(())
    if float(start) % 1 or float(step) % 1 or step <= 0:
        raise n.refuse("a range to a symbolic end needs an integer start and a positive integer step")
    count = ceildiv(sub(n.ints(1, symbols=True)[0], int(start)), int(step))
    kind = n.dtype(0)
    ones = R.full(constant(np.asarray(1, kind)), [count])
    place = R.subtract(R.cumsum(ones, axis=0), constant(np.asarray(1, kind)))
    return R.add(R.multiply(place, constant(np.asarray(step, kind))), constant(np.asarray(start, kind)))


@converter("Trilu")
def trilu(n: Node) -> Any:
    upper, k = n.flag("upper", 1), (n.ints(1)[0] if n.has(1) else 0)
    x = n[0]
    rows, columns = static_shape(x)[-2:]
    place = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    mask = place >= k if upper else place <= k
    return R.where(constant(mask), x, scalar(0, x))


# ---------------------------------------------------------------------------- frames
@converter("Pad")
def pad_attributes(n: Node) -> Any:
    pads = n.attr("pads", n.attr("paddings"))
    return _in_frame(n, n[0], list(pads), n.attr("mode", "constant"), scalar(n.attr("value", 0.0), n[0]))


@converter("Pad", since=11)
def pad(n: Node) -> Any:
    x = n[0]
    given = n.ints(1)
    ndim = rank(x)
    axes = n.fronts(n.ints(3), ndim) if n.has(3) else list(range(ndim))
    if len(given) != 2 * len(axes):
        raise n.refuse(f"{len(given)} pads for {len(axes)} axes")
    pads = [0] * (2 * ndim)
    for i, d in enumerate(axes):
        pads[d], pads[d + ndim] = given[i], given[i + len(axes)]
    value = R.reshape(n[2], ()) if n.has(2) else scalar(0, x)
    return _in_frame(n, x, pads, n.attr("mode", "constant"), value)


def _in_frame(n: Node, x: Any, pads: list[int], mode: str, value: Any) -> Any:
    """All begins, then all ends, as ONNX has them."""
    if any(abs(p) > 1 << 31 for p in pads):
        raise n.refuse(f"pads {pads} are too large")
    ndim = rank(x)
    return padded(x, list(zip(pads[:ndim], pads[ndim:], strict=True)), mode, value)


# ---------------------------------------------------------------------------- blocks
@converter("DepthToSpace")
def depth_to_space(n: Node) -> Any:
    b = int(n.attr("blocksize", 0))
    batch, c, h, w = shape_of(n[0])
    if b < 1 or (isinstance(c, int) and c % (b * b)):
        raise n.refuse(f"blocksize {b} does not divide {c} channels")
    if n.attr("mode", "DCR") == "DCR":
        x = R.transpose(R.reshape(n[0], [batch, b, b, c // (b * b), h, w]), [0, 3, 4, 1, 5, 2])
    else:
        x = R.transpose(R.reshape(n[0], [batch, c // (b * b), b, b, h, w]), [0, 1, 4, 2, 5, 3])
    return R.reshape(x, [batch, c // (b * b), h * b, w * b])


@converter("SpaceToDepth")
def space_to_depth(n: Node) -> Any:
    b = int(n.attr("blocksize", 0))
    batch, c, h, w = shape_of(n[0])
    if b < 1:
        raise n.refuse(f"blocksize is {b}")
    x = R.reshape(n[0], [batch, c, h // b, b, w // b, b])
    if n.attr("mode", "DCR") == "CRD":
        x = R.transpose(x, [0, 1, 3, 5, 2, 4])
    else:
        x = R.transpose(x, [0, 3, 5, 1, 2, 4])
    return R.reshape(x, [batch, c * b * b, h // b, w // b])


@converter("Einsum")
def einsum(n: Node) -> Any:
    return R.einsum(n.all(), n.attr("equation", "").replace(" ", ""))


@converter("Col2Im")
def col2im(n: Node) -> Any:
    """Blocks added where they lie: scattered into the flat image by constant indices."""
    image, block = n.ints(1), n.ints(2)
    dims = len(image)
    strides, dilations = (tuple(n.attr(name, [1] * dims)) for name in ("strides", "dilations"))
    pads = tuple(n.attr("pads", [0] * 2 * dims))
    return folded(n[0], image, Windows(tuple(block), strides, dilations, pads[:dims], pads[dims:]))


@converter("CenterCropPad")
def center_crop_pad(n: Node) -> Any:
    x = n[0]
    wanted = n.ints(1)
    axes = n.fronts(n.attr("axes", list(range(rank(x)))), rank(x))
    pads = [0] * (2 * rank(x))
    for d, size in zip(axes, wanted, strict=True):
        have = static_shape(x)[d]
        low = (size - have) // 2 if size >= have else -((have - size) // 2)
        pads[d], pads[d + rank(x)] = low, size - have - low
    return _in_frame(n, x, pads, "constant", scalar(0, x))
