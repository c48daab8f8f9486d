"""Constant folding at import: the arithmetic of shapes.

    Shape(x) -> Gather(0) -> Concat(_, [-1]) -> Reshape        x: (n, 3, 4)      reshape to [n, -1]

Values are small arrays; those of sizes may hold expressions over symbolic dimensions (object arrays). An operator
that is not here, or an array that is too big, is left to the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from ....ir.expr import PrimExpr
from .context import Node, Value
from .load import storage_dtype

_MANY = 4096  # integers up to so many elements are folded
_FEW = 64  # and floats up to so many

Array = Any


class _Unknown(Exception):
    """The result depends on the value of a symbolic size."""


def fold(n: Node) -> list[Value] | None:
    """The results of a node whose inputs are known, or None."""
    work = _TABLE.get(n.op_type) if n.domain in ("", "ai.onnx") else None
    if work is None:
        return None
    if n.op_type in _OF_SHAPE:
        inputs: list[Any] = []
    else:
        inputs = [None if v is None else v.known for v in n.inputs]
        if any(v is not None and (v.known is None or v.elem) for v in n.inputs):
            return None
        if any(a is not None and a.size > (_FEW if a.dtype.kind == "f" else _MANY) for a in inputs):
            return None
        if n.op_type not in _SYMBOLIC and any(a is not None and a.dtype == object for a in inputs):
            return None
    try:
        with np.errstate(all="ignore"):
            found = work(n, *inputs)
    except (_Unknown, IndexError, ValueError, TypeError, OverflowError, ZeroDivisionError):
        return None  # the converter raises a better error
    if found is None:
        return None
    out = [_plain(a) for a in (found if isinstance(found, list) else [found])]
    if any(a.size > _MANY or a.dtype.kind not in "biufO" for a in out):
        return None
    made = [Value(known=a) for a in out]
    kinds = [v.kind for v in n.inputs if v is not None and v.symbolic]
    for v in made:
        if v.symbolic and (n.op_type == "Cast" or kinds):
            v.kind = storage_dtype(n.attr("to")) if n.op_type == "Cast" else kinds[0]
    return made


def _plain(a: Any) -> Array:
    """An object array without symbols as int64."""
    a = np.asarray(a)
    if a.dtype == object and not any(isinstance(v, PrimExpr) for v in a.reshape(-1)):
        return a.astype(np.int64)
    return a


def _of_sizes(sizes: Sequence[Any]) -> Array:
    if all(isinstance(d, int) for d in sizes):
        return np.asarray(sizes, np.int64)
    if any(not isinstance(d, (int, PrimExpr)) for d in sizes):
        raise _Unknown
    out = np.empty(len(sizes), object)
    out[:] = list(sizes)
    return out


def _shape(n: Node, *_: Array) -> Array:
    sizes = list(n.shape(0))
    rank = len(sizes)
    start, end = n.attr("start", 0), n.attr("end", rank)
    low, high = (max(0, min(rank, v + rank if v < 0 else v)) for v in (start, end))
    return _of_sizes(sizes[low:high])


def _size(n: Node, *_: Array) -> Array:
    return np.prod(_of_sizes(n.shape(0)), initial=1)


def _each(a: Array, b: Array, work: Callable[[Any, Any], Any]) -> Array:
    a, b = np.broadcast_arrays(a, b)
    out = np.empty(a.shape, object)
    for i in np.ndindex(a.shape):
        out[i] = work(a[i], b[i])
    return out


def _div(n: Node, a: Array, b: Array) -> Array:
    if a.dtype == object or b.dtype == object:
        if any(v is not None and v.dtype.startswith("float") for v in n.inputs):
            raise _Unknown
        return _each(a, b, lambda x, y: x // y)  # sizes are not negative
    if a.dtype.kind == "f":
        return a / b
    sign = np.sign(a) * np.sign(b)
    return (np.abs(a) // np.abs(b) * sign).astype(a.dtype)


def _equal(n: Node, a: Array, b: Array) -> Array:
    if a.dtype != object and b.dtype != object:
        return np.equal(a, b)

    def one(x: Any, y: Any) -> bool:
        if isinstance(x, PrimExpr) or isinstance(y, PrimExpr):
            other = y if isinstance(x, PrimExpr) else x
            if x is y:
                return True
            if isinstance(other, (int, np.integer)) and other < 0:
                return False
            raise _Unknown
        return bool(x == y)

    return _each(a, b, one).astype(bool)


def _cast(n: Node, a: Array, *_: Array) -> Array | None:
    to = n.attr("to")
    if to is None or to > 16 or to in (8, 14, 15, 16):
        return None
    wanted = storage_dtype(to)
    if a.dtype == object:
        return a if wanted in ("int32", "int64", "float32") else None
    if (
        a.dtype.kind == "f"
        and wanted not in ("float32", "float64", "float16", "bool")
        and not np.isfinite(a).all()
    ):
        return None
    return a.astype(wanted)


def _gather(n: Node, a: Array, index: Array) -> Array:
    axis = n.attr("axis", 0)
    if index.size and (index.max() >= a.shape[axis] or index.min() < -a.shape[axis]):
        raise _Unknown
    return np.take(a, index, axis=axis)


def _axes(n: Node, given: Sequence[Array]) -> list[int] | None:
    if given and given[0] is not None:
        return [int(v) for v in given[0].reshape(-1)]
    found = n.attr("axes")
    return None if found is None else list(found)


def _unsqueeze(n: Node, a: Array, *more: Array) -> Array:
    axes = _axes(n, more) or []
    rank = a.ndim + len(axes)
    for d in sorted(d % rank for d in axes):
        a = np.expand_dims(a, d)
    return a


def _squeeze(n: Node, a: Array, *more: Array) -> Array:
    axes = _axes(n, more)
    return np.squeeze(a) if axes is None else np.squeeze(a, tuple(axes))


def _slice(n: Node, a: Array, *more: Array) -> Array:
    if n.opset < 10:
        starts, ends = n.attr("starts"), n.attr("ends")
        axes, steps = n.attr("axes"), None
    else:
        rows = [None if m is None else [int(v) for v in m.reshape(-1)] for m in more] + [None] * 4
        starts, ends, axes, steps = rows[:4]
    if starts is None or ends is None:
        raise _Unknown
    at = [slice(None)] * a.ndim
    for i, d in enumerate(axes if axes is not None else range(len(starts))):
        step = 1 if steps is None else steps[i]
        end: int | None = ends[i]
        if step < 0 and end is not None and end < -a.shape[d]:
            end = None
        at[d] = slice(starts[i], end, step)
    return a[tuple(at)]


def _reshape(n: Node, a: Array, *more: Array) -> Array:
    wanted = [int(v) for v in (more[0] if more else n.attr("shape"))]
    if not n.attr("allowzero", 0):
        wanted = [a.shape[i] if v == 0 else v for i, v in enumerate(wanted)]
    return a.reshape(wanted)


def _constant_of_shape(n: Node, shape: Array) -> Array | None:
    if int(np.prod(shape, initial=1)) > _MANY:
        return None
    value = n.attr("value")
    if value is not None and value.dtype.name not in _PLAIN:
        return None
    return np.full([int(d) for d in shape], np.float32(0) if value is None else value.reshape(-1)[0])


_PLAIN = "float32 float64 float16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool".split()


def _range(n: Node, start: Array, limit: Array, delta: Array) -> Array | None:
    start, limit, delta = (a.reshape(()) for a in (start, limit, delta))
    count = int(max(np.ceil((limit - start) / delta), 0)) if delta != 0 else _MANY + 1
    if count > _MANY:
        return None
    return (start + np.arange(count).astype(start.dtype) * delta).astype(start.dtype).reshape(-1)


def _reduce(work: Callable[..., Array]) -> Callable[..., Array]:
    def run(n: Node, a: Array, *more: Array) -> Array:
        axes = _axes(n, more)
        if not axes:
            if n.attr("noop_with_empty_axes", 0):
                return a
            axes = list(range(a.ndim))
        return np.asarray(work(a, axis=tuple(axes), keepdims=n.flag("keepdims", 1))).astype(a.dtype)

    return run


def _binary(work: Callable[[Any, Any], Any]) -> Callable[..., Array]:
    return lambda n, a, b: work(a, b)


def _unary(work: Callable[[Any], Any]) -> Callable[..., Array]:
    return lambda n, a: np.asarray(work(a)).astype(a.dtype)


def _variadic(work: Callable[[Any, Any], Any]) -> Callable[..., Array]:
    return lambda n, *parts: reduce(work, parts)


def _split(n: Node, a: Array, *more: Array) -> list[Array]:
    sizes = [int(v) for v in more[0]] if more and more[0] is not None else n.attr("split")
    axis, count = n.attr("axis", 0), n.attr("num_outputs", len(n.outputs))
    if sizes is None:
        each = -(-a.shape[axis] // count)
        edges = [min(each * (i + 1), a.shape[axis]) for i in range(count - 1)]
        return list(np.split(a, edges, axis))
    return list(np.split(a, list(np.cumsum(sizes[:-1])), axis))


def _constant(n: Node) -> Array | None:
    for key in ("value", "value_int", "value_ints", "value_float", "value_floats"):
        if key in n.attrs:
            found = n.attrs[key]
            if key == "value":
                return None if isinstance(found, Value) or found.dtype.name not in _PLAIN else found
            return np.asarray(found, np.int64 if "int" in key else np.float32)
    return None


_TABLE: dict[str, Callable[..., Any]] = {
    "Abs": _unary(np.abs),
    "Add": _binary(lambda a, b: a + b),
    "And": _binary(np.logical_and),
    "Cast": _cast,
    "Ceil": _unary(np.ceil),
    "Concat": lambda n, *parts: np.concatenate(parts, n.attr("axis", 1 if n.opset < 4 else 0)),
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Div": _div,
    "Equal": _equal,
    "Expand": lambda n, a, shape: np.broadcast_to(
        a, np.broadcast_shapes(a.shape, tuple(int(v) for v in shape))
    ),
    "Floor": _unary(np.floor),
    "Gather": _gather,
    "Greater": _binary(np.greater),
    "GreaterOrEqual": _binary(np.greater_equal),
    "Identity": lambda n, a: a,
    "Less": _binary(np.less),
    "LessOrEqual": _binary(np.less_equal),
    "Max": _variadic(np.maximum),
    "Min": _variadic(np.minimum),
    "Mod": lambda n, a, b: np.fmod(a, b) if n.attr("fmod", 0) else np.mod(a, b),
    "Mul": _binary(lambda a, b: a * b),
    "Neg": _unary(np.negative),
    "Not": lambda n, a: np.logical_not(a),
    "Or": _binary(np.logical_or),
    "Pow": lambda n, a, b: np.power(a, b).astype(a.dtype),
    "Range": _range,
    "Reciprocal": _unary(np.reciprocal),
    "Relu": _unary(lambda a: np.maximum(a, 0)),
    "ReduceMax": _reduce(np.max),
    "ReduceMin": _reduce(np.min),
    "ReduceProd": _reduce(np.prod),
    "ReduceSum": _reduce(np.sum),
    "Reshape": _reshape,
    "Round": _unary(np.round),
    "Shape": _shape,
    "Sign": _unary(np.sign),
    "Size": _size,
    "Slice": _slice,
    "Split": _split,
    "Sqrt": _unary(np.sqrt),
    "Squeeze": _squeeze,
    "Sub": _binary(lambda a, b: a - b),
    "Tile": lambda n, a, reps: np.tile(a, [int(v) for v in reps]),
    "Transpose": lambda n, a: np.transpose(a, n.attr("perm")),
    "Unsqueeze": _unsqueeze,
    "Where": lambda n, cond, a, b: np.where(cond, a, b),
}
_OF_SHAPE = {"Shape", "Size"}
_SYMBOLIC = {
    "Add", "Cast", "Concat", "Div", "Equal", "Gather", "Identity", "Mul", "ReduceProd", "Reshape", "Slice", "Split",
    "Squeeze", "Sub", "Transpose", "Unsqueeze", "Where",
}  # fmt: skip
