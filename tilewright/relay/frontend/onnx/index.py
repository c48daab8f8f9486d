"""Reading and writing by index: gather, scatter, one-hot, the greatest, what is not zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...expr import Expr
from .build import R, cast, constant, dtype_of, is_float, rank, scalar, shape_of, static_shape
from .context import Node, Value, converter, rows


def from_front(index: Any, size: Any) -> Any:
    """Indices that count from the end, counted from the front."""
    if dtype_of(index).startswith("uint"):
        return index
    if isinstance(size, int):
        size = scalar(size, index)
    elif not isinstance(size, Expr):
        return index
    return R.where(R.less(index, scalar(0, index)), R.add(index, size), index)


def _index(n: Node, at: int, size: Any) -> Any:
    """Indices along a dimension, of which the operators count negative ones from the end."""
    known = n.known(at)
    if known is None:
        return n[at]
    if isinstance(size, int) and known.size and (known.min() < -size or known.max() >= size):
        raise n.refuse(f"index {int(known.min())} or {int(known.max())} is outside of a dimension of {size}")
    return constant(np.where(known < 0, known + size, known)) if isinstance(size, int) else n[at]


@converter("Gather")
def gather(n: Node) -> Any:
    axis = n.axis(0)
    return Value(R.take(n[0], _index(n, 1, n.shape(0)[axis]), axis=axis, mode="fast"), elem=n.value(0).elem)


@converter("GatherElements")
def gather_elements(n: Node) -> Any:
    axis = n.axis(0)
    x, index = n[0], _index(n, 1, n.shape(0)[axis])
    for d in range(rank(x)):
        size = shape_of(index)[d]
        if d != axis and shape_of(x)[d] != size:
            x = R.strided_slice(x, [0], [size], axes=[d])
    return R.gather(x, axis, index)


@converter("GatherND")
def gather_nd(n: Node) -> Any:
    return R.gather_nd(n[0], _points(n[1]), batch_dims=int(n.attr("batch_dims", 0)))


_HOW = {"none": "update", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _how(n: Node) -> str:
    named = n.attr("reduction", "none")
    if named not in _HOW:
        raise n.refuse(f"reduction {named!r} is unknown")
    return _HOW[named]


@converter("Scatter", "ScatterElements")
def scatter_elements(n: Node) -> Any:
    axis, how = n.axis(0), _how(n)
    return R.scatter_elements(n[0], _index(n, 1, n.shape(0)[axis]), n[2], axis, how)


def _points(index: Any) -> Any:
    """Indices with the coordinates of each point in the first dimension, which ONNX has in the last."""
    return R.transpose(index, [rank(index) - 1, *range(rank(index) - 1)])


@converter("ScatterND")
def scatter_nd(n: Node) -> Any:
    how = _how(n)
    return R.scatter_nd(n[0], _points(n[1]), n[2], how)


@converter("TensorScatter")
def tensor_scatter(n: Node) -> Any:
    """New rows written into a cache, from a place of its own for each batch, wrapping around in circular mode."""
    past, update = n[0], n[1]
    axis = n.axis(-2)
    sizes, rows = static_shape(past), static_shape(update)[axis]
    total = sizes[axis]
    kind = "int64"
    start = cast(n[2], kind) if n.has(2) else constant(np.zeros(sizes[0], np.int64))
    view = [sizes[0], *([1] * (len(sizes) - 1))]
    line = np.arange(rows, dtype=np.int64).reshape([-1 if d == axis else 1 for d in range(len(sizes))])
    index = R.add(R.reshape(start, view), constant(line))
    if n.attr("mode", "linear") == "circular":
        index = R.floor_mod(index, constant(np.int64(total)))
    index = R.broadcast_to(index, static_shape(update))
    return R.scatter_elements(past, index, update, axis, "update")


@converter("OneHot")
def one_hot(n: Node) -> Any:
    known = n.known(1)
    depth = int(float(known.reshape(-1)[0])) if known is not None else cast(R.reshape(n[1], ()), "int64")
    index, values = n[0], n[2]
    axis = int(n.attr("axis", -1))
    place = n.front(axis, rank(index) + 1)
    index = cast(index, "int64") if is_float(index) or dtype_of(index) != "int64" else index
    index = from_front(index, depth)
    line = constant(np.arange(depth)) if isinstance(depth, int) else R.arange(depth, dtype="int64")
    line = R.reshape(line, [-1 if d == place else 1 for d in range(rank(index) + 1)])
    hit = R.equal(R.expand_dims(index, place), line)
    off, on = (R.squeeze(R.strided_slice(values, [i], [i + 1], axes=[0]), [0]) for i in (0, 1))
    return R.where(hit, on, off)


@converter("TopK")
def top_k(n: Node) -> Any:
    k = int(n.attr("k")) if n.opset < 10 else n.sizes(1)
    k = k[0] if isinstance(k, list) else R.reshape(k, ())
    axis = n.axis(-1)
    size = n.shape(0)[axis]
    if isinstance(k, int) and (k < 0 or (isinstance(size, int) and k > size)):
        raise n.refuse(f"k is {k} and the dimension has {size}")
    largest = n.flag("largest", 1)
    found = R.topk(n[0], k=k, axis=axis, ret_type="both", is_ascend=not largest, dtype="int64")
    return [found[0], found[1]]


@converter("ReverseSequence")
def reverse_sequence(n: Node) -> Any:
    batch, time = int(n.attr("batch_axis", 1)), int(n.attr("time_axis", 0))
    return R.reverse_sequence(n[0], n[1], seq_axis=time, batch_axis=batch)


rows({"NonZero": lambda n: R.transpose(cast(R.argwhere(n[0]), "int64"), [1, 0])})


@converter("Unique")
def unique(n: Node) -> Any:
    """The distinct elements; of rows along an axis only where the data are known at import."""
    x = n[0]
    if "axis" in n.attrs and rank(x) != 1:
        return _unique_rows(n)
    flat = R.reshape(x, [-1]) if rank(x) != 1 else x
    made = R.unique(flat, is_sorted=n.flag("sorted", 1), return_counts=True)
    values, first, inverse, count, often = (made[i] for i in range(5))
    end = cast(count, "int64")
    zero, one = constant(np.zeros(1, np.int64)), constant(np.ones(1, np.int64))

    def cut(e: Any) -> Any:
        return R.dyn.strided_slice(e, zero, end, one)

    return [cut(values), cast(cut(first), "int64"), cast(inverse, "int64"), cast(cut(often), "int64")]


def _unique_rows(n: Node) -> Any:
    data, axis = n.need(0), n.axis(0)
    values, first, inverse, often = np.unique(data, True, True, True, axis=axis)
    if not n.attr("sorted", 1):
        order = np.argsort(first)
        values, first, often = np.take(values, order, axis), first[order], often[order]
        inverse = np.argsort(order)[inverse]
    found = (first, inverse.reshape(-1), often)
    return [Value(known=values), *(Value(known=a.astype(np.int64)) for a in found)]


@converter("Compress")
def compress(n: Node) -> Any:
    """The condition is data: where it is known, the rows are too."""
    mask = n.need(1).reshape(-1).astype(bool)
    x = n[0]
    if "axis" in n.attrs:
        axis = n.axis(0)
    else:
        x, axis = R.reshape(x, [-1]), 0
    rows = np.nonzero(mask)[0]
    return R.take(x, constant(rows.astype(np.int32)), axis=axis)


@converter("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(n: Node) -> Any:
    x, index = n[0], R.reshape(n[1], [-1])
    made = R.take(x, index, axis=rank(x) - 1, mode="fast")
    return R.expand_dims(made, 0) if rank(x) == 1 else made


@converter("Binarizer", domain="ai.onnx.ml")
def binarizer(n: Node) -> Any:
    x = n[0]
    return cast(R.greater(x, scalar(n.attr("threshold", 0.0), x)), dtype_of(x))
