"""Tensor expressions evaluated by NumPy, an operation at a time: values without compiling anything.

    C[i, j] = sum(A[i, k] * B[k, j])      numpy.matmul over views of A and B
    P[i]    = X[i - 1] if i > 0 else 0    the box where the condition holds, and the rest
    Y[i, j] = max(X[i, j] + b[j], 0)      ufuncs over views with NumPy's broadcasting

An index that is linear in the axes is a view of the array with other strides, so that a window of a convolution costs
a copy (im2col) and no arithmetic on indices; any other index is a gather. Values agree with those of compiled loops up
to the rounding of sums and of functions such as exp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..ir.dtype import DataType
from ..ir.errors import TensorExpressionError
from ..ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Call,
    Cast,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    IterVar,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PrimExpr,
    ProducerLoad,
    Reduce,
    Select,
    Sub,
    Var,
    const_value,
)
from ..ir.functor import vars_used
from ..ir.op import Op
from ..ir.ops import conjuncts
from .graph import post_order
from .tensor import ComputeOp, Operation, PlaceholderOp, Tensor

__all__ = ["Evaluation", "NotEvaluated"]

_LARGEST: Final = 1 << 26  # most elements of an array in between
_STEPS: Final = (
    128  # a reduction over more points than these is one call of NumPy, whatever memory that takes
)
_TYPES: Final = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split()  # what NumPy computes with
)


class NotEvaluated(TensorExpressionError):
    """An operation that NumPy has no counterpart for."""


class Evaluation:
    """The results of tensor expressions as a function of arrays: those of `inputs`, in order.

    What NumPy has no counterpart for is refused here; what would take too much memory, when it is called.
    """

    def __init__(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.stages: list[_Stage] = []
        self._last: dict[Operation, int] = {}  # the stage that reads the results of an operation last
        for op in post_order(t.op for t in outputs):
            for t in op.input_tensors:
                self._last[t.op] = len(self.stages)
            if isinstance(op, ComputeOp):
                self.stages.append(_Stage(op))
            elif not isinstance(op, PlaceholderOp):
                raise NotEvaluated(f"{op.what} is not a te.compute")
        self._kept = {t.op for t in (*inputs, *outputs)}

    @property
    def is_exact(self) -> bool:
        """Whether each value is what compiled loops give, but for the contraction of products and sums to FMA: no sum
        of floats in another order, no function that NumPy approximates in its own way."""
        return all(stage.exact for stage in self.stages)

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        """The arrays of the results; one may be a view of another or of an input."""
        values: dict[Tensor, Any] = dict(zip(self.inputs, arrays, strict=True))
        with np.errstate(all="ignore"):
            for i, stage in enumerate(self.stages):
                values.update(stage.run(values))
                for t in stage.op.input_tensors:
                    if self._last[t.op] == i and t.op not in self._kept:
                        values.pop(t, None)
        return [values[t] for t in self.outputs]


class _Linear(NamedTuple):
    """An index as a sum of multiples of axes and a number."""

    factors: dict[Var, int]
    constant: int


def _linear(e: PrimExpr) -> _Linear | None:
    value = const_value(e)
    if value is not None:
        return _Linear({}, int(value))
    if isinstance(e, Var):
        return _Linear({e: 1}, 0)
    if isinstance(e, Cast):
        return _linear(e.value) if e.dtype.is_integral and e.value.dtype.is_integral else None
    if isinstance(e, (Add, Sub)):
        a, b = _linear(e.a), _linear(e.b)
        if a is None or b is None:
            return None
        sign = 1 if isinstance(e, Add) else -1
        made = dict(a.factors)
        for v, f in b.factors.items():
            made[v] = made.get(v, 0) + sign * f
        return _Linear(made, a.constant + sign * b.constant)
    if isinstance(e, Mul):
        a, b = _linear(e.a), _linear(e.b)
        if a is None or b is None or (a.factors and b.factors):
            return None
        k, other = (a.constant, b) if not a.factors else (b.constant, a)
        return _Linear({v: k * f for v, f in other.factors.items()}, k * other.constant)
    return None


def _extent(iv: IterVar, what: str) -> tuple[int, int]:
    low, size = const_value(iv.dom.min), const_value(iv.dom.extent)
    if low is None or size is None:
        raise NotEvaluated(f"{what}: the size of axis `{iv.var.name}` is not known")
    return int(low), int(low) + int(size)


def _numpy_type(kind: DataType) -> Any:
    if str(kind) not in _TYPES:
        raise NotEvaluated(f"{kind} is not a type that NumPy computes with")
    return np.dtype(str(kind))


class _Stage:
    """A compute: the space of its axes, and of those it reduces over behind them."""

    def __init__(self, op: ComputeOp) -> None:
        self.op = op
        axes = (*op.axis, *op.reduce_axis)
        self.place = {iv.var: i for i, iv in enumerate(axes)}
        self.ranges = [_extent(iv, op.what) for iv in axes]
        self.shape = tuple(high - low for low, high in self.ranges[: len(op.axis)])
        self.types = [_numpy_type(b.dtype) for b in op.body]
        self.indices: dict[int, list[_Linear] | None] = {}  # the linear indices of loads, by the load
        self.reduced = isinstance(op.body[0], Reduce)
        if self.reduced:
            first: Any = op.body[0]
            if len(op.body) > 1 or first.init or const_value(first.condition) != 1:
                raise NotEvaluated(
                    f"{op.what}: a reduction of several values, or with a condition or a start"
                )
            self.combine = _combination(first)
            self.source: PrimExpr = first.source[0]
        floats = self.reduced and self.combine in (np.add, np.multiply) and self.types[0].kind == "f"
        self.exact = not floats
        _check(self)

    def run(self, values: dict[Tensor, Any]) -> dict[Tensor, Any]:
        if 0 in self.shape:
            return {t: np.zeros(self.shape, k) for t, k in zip(self.op.outputs, self.types, strict=True)}
        part = _Part(self, values, self.ranges)
        if self.reduced:
            return {self.op.output(0): np.asarray(self._reduce(part), order="C")}
        made = {}
        for i, (body, kind) in enumerate(zip(self.op.body, self.types, strict=True)):
            value = np.asarray(part.value(body), kind)
            made[self.op.output(i)] = np.asarray(np.broadcast_to(value, self.shape), order="C")
        return made

    # -- reductions --------------------------------------------------------------------------------
    def _reduce(self, part: _Part) -> Any:
        n, kind = len(self.shape), self.types[0]
        sizes = part.sizes
        if math.prod(sizes[n:]) == 0:
            identity = self.op.body[0].combiner.identity_element[0]  # type: ignore[attr-defined]
            return np.full(self.shape, const_value(identity), kind)
        factors = _factors(self.source) if self.combine is np.add else []
        if len(factors) == 2:
            a, b = (np.asarray(part.value(f), kind) for f in factors)
            return _contracted(_full(a, sizes), _full(b, sizes), sizes, n, kind)
        value = _full(np.asarray(part.value(self.source), kind), sizes)
        return _combined(self.combine, value, sizes, n)


def _full(value: Any, sizes: Sequence[int]) -> Any:
    """A value with a dimension for each axis: of its size, or of 1 where the value does not depend on it."""
    return value.reshape((1,) * len(sizes)) if value.ndim == 0 else value


def _factors(e: PrimExpr) -> list[PrimExpr]:
    return [e.a, e.b] if isinstance(e, Mul) else []


def _combined(combine: Any, value: Any, sizes: Sequence[int], n: int) -> Any:
    """A value combined over the axes from `n` on."""
    points = math.prod(sizes[n:])
    shape = tuple(sizes[:n])
    if math.prod(value.shape[n:]) == points and points <= _STEPS and math.prod(shape) > 4 * points:
        # A pass over the result for each point reads windows without copies of them.
        out: Any = None
        for at in np.ndindex(*sizes[n:]):
            each = value[(..., *at)]
            out = each.copy() if out is None else combine(out, each, out=out)
        return np.broadcast_to(out, shape)
    value = np.broadcast_to(value, (*value.shape[:n], *sizes[n:]))
    if value.size > _LARGEST:
        raise NotEvaluated(f"a reduction of {value.size} elements")
    axes = tuple(range(n, len(sizes)))
    return np.broadcast_to(combine.reduce(value, axis=axes, dtype=value.dtype), shape)


def _contracted(a: Any, b: Any, sizes: Sequence[int], n: int, kind: Any) -> Any:
    """The sum of products of two values over the axes from `n` on."""
    for i in range(n, len(sizes)):  # what only one of them depends on is summed first
        if a.shape[i] != b.shape[i]:
            if b.shape[i] == 1:
                a = a.sum(axis=i, keepdims=True, dtype=kind)
            else:
                b = b.sum(axis=i, keepdims=True, dtype=kind)
        elif sizes[i] != a.shape[i]:
            a = a * kind.type(sizes[i])
    both = [i for i in range(n) if a.shape[i] > 1 and b.shape[i] > 1]
    rows = [i for i in range(n) if a.shape[i] > 1 and b.shape[i] == 1]
    columns = [i for i in range(n) if a.shape[i] == 1 and b.shape[i] > 1]
    inner = [i for i in range(n, len(sizes)) if a.shape[i] > 1]
    if not (rows or columns) or not inner:
        return _summed(a, b, sizes, n, kind)
    if rows and (not columns or rows[-1] > columns[-1]):  # the last axis of the result is one of the columns
        a, b, rows, columns = b, a, columns, rows
    left, right = _as_matrix(a, both, rows, inner), _as_matrix(b, both, inner, columns)
    product = np.matmul(left, right)
    axes = both + rows + columns
    product = product.reshape([sizes[i] for i in axes])
    order = sorted(range(len(axes)), key=axes.__getitem__)
    product = product.transpose(order)
    shape = [sizes[i] if i in axes else 1 for i in range(n)]
    return np.broadcast_to(product.reshape(shape), tuple(sizes[:n]))


def _as_matrix(value: Any, *groups: list[int]) -> Any:
    """A value as a stack of matrices, with a dimension for each group of axes."""
    if math.prod(value.shape) > _LARGEST:
        raise NotEvaluated(f"an operand of a product of {math.prod(value.shape)} elements")
    kept = [i for g in groups for i in g]
    others = [i for i in range(value.ndim) if i not in kept]
    transposed = value.transpose(kept + others)
    return transposed.reshape([math.prod(value.shape[i] for i in g) for g in groups])


def _summed(a: Any, b: Any, sizes: Sequence[int], n: int, kind: Any) -> Any:
    """A sum of products without rows and columns, as of a depthwise convolution."""
    points = math.prod(a.shape[n:])
    if points > _STEPS:
        return np.broadcast_to(
            np.einsum(a, list(range(a.ndim)), b, list(range(b.ndim)), list(range(n))), tuple(sizes[:n])
        )
    out: Any = None
    place: Any = None
    for at in np.ndindex(*a.shape[n:]):
        x, y = a[(..., *at)], b[(..., *at)]
        if out is None:
            out = np.asarray(x * y)
            place = np.empty_like(out)
        else:
            np.multiply(x, y, out=place)
            np.add(out, place, out=out)
    return np.broadcast_to(out, tuple(sizes[:n]))


_COMBINATIONS: Final[dict[type[Any], Any]] = {
    Add: np.add, Mul: np.multiply, Max: np.maximum, Min: np.minimum, And: np.logical_and, Or: np.logical_or,
}  # fmt: skip


def _combination(e: Reduce) -> Any:
    """The ufunc that a reduction combines with."""
    c = e.combiner
    made: Any = c.result[0]
    found = _COMBINATIONS.get(type(made))
    if found is None or len(c.result) != 1 or {made.a, made.b} != {c.lhs[0], c.rhs[0]}:
        raise NotEvaluated(f"a reduction by `{made}`")
    return found


class _Part:
    """A box in the space of a stage: expressions as arrays over it, of size 1 along the axes that they do not use."""

    def __init__(self, stage: _Stage, values: dict[Tensor, Any], ranges: Sequence[tuple[int, int]]) -> None:
        self.stage, self.values, self.ranges = stage, values, list(ranges)
        self.sizes = [high - low for low, high in ranges]
        self._known: dict[Any, Any] = {}

    def value(self, e: PrimExpr) -> Any:
        found = self._known.get(e)
        if found is None:
            found = self._known[e] = _HANDLERS[type(e)](self, e)
        return found

    def over(self, axis: int, low: int, high: int) -> _Part:
        ranges = list(self.ranges)
        ranges[axis] = (low, high)
        return self.within(ranges)

    def within(self, ranges: Sequence[tuple[int, int]]) -> _Part:
        made = _Part(self.stage, self.values, ranges)
        made._known.update(
            (v, x) for v, x in self._known.items() if isinstance(v, Var) and v not in self.stage.place
        )
        return made

    # -- expressions -------------------------------------------------------------------------------
    def number(self, e: Any) -> Any:
        return _numpy_type(e.dtype).type(e.value)

    def variable(self, e: Var) -> Any:
        i = self.stage.place[e]
        low, high = self.ranges[i]
        shape = [1] * len(self.ranges)
        shape[i] = high - low
        return np.arange(low, high, dtype=_numpy_type(e.dtype)).reshape(shape)

    def load(self, e: ProducerLoad) -> Any:
        array = self.values[e.producer]
        linear = self.stage.indices[id(e)]
        if linear is not None:
            found = self._view(array, linear)
            if found is not None:
                return found
        at = []
        for i, (index, size) in enumerate(zip(e.indices, array.shape, strict=True)):
            if linear is not None and not linear[i].factors:
                at.append(min(max(linear[i].constant, 0), size - 1))
            else:
                at.append(np.clip(self.value(index), 0, size - 1))  # where a condition excludes it
        if math.prod(np.broadcast_shapes(*(np.shape(x) for x in at))) > _LARGEST:
            raise NotEvaluated(f"`{e}` gathers too many elements")
        return array[tuple(at)]

    def _view(self, array: Any, linear: list[_Linear]) -> Any:
        """The elements at linear indices; None if one is out of bounds, which a condition then excludes."""
        ranges, place = self.ranges, self.stage.place
        steps, shape = [0] * len(ranges), [1] * len(ranges)
        start = []
        for index, size, stride in zip(linear, array.shape, array.strides, strict=True):
            low = high = index.constant
            for v, f in index.factors.items():
                i = place[v]
                first, last = ranges[i][0], ranges[i][1] - 1
                low += f * (first if f > 0 else last)
                high += f * (last if f > 0 else first)
                steps[i] += f * stride
                shape[i] = last - first + 1
            if low < 0 or high >= size:
                return None
            start.append(index.constant + sum(f * ranges[place[v]][0] for v, f in index.factors.items()))
        if not array.ndim:
            return array
        return as_strided(array[tuple(slice(s, None) for s in start)], shape, steps)

    def choice(self, condition: PrimExpr, yes: PrimExpr, no: PrimExpr) -> Any:
        box = self._box(condition)
        if box is None:
            return np.where(self.value(condition), self.value(yes), self.value(no))
        if any(low >= high for low, high in box):
            return self.value(no)
        if box == self.ranges:
            return self.value(yes)
        cut = [i for i, r in enumerate(box) if r != self.ranges[i]]
        used = {
            self.stage.place[v] for e in (condition, yes, no) for v in vars_used(e) if v in self.stage.place
        }
        shape = [s if i in used else 1 for i, s in enumerate(self.sizes)]
        out: Any = np.empty(shape, _numpy_type(yes.dtype))
        if len(cut) == 1:
            (i,) = cut
            (low, high), (first, last) = box[i], self.ranges[i]
            for a, b in ((first, low), (high, last)):
                if a < b:
                    out[(slice(None),) * i + (slice(a - first, b - first),)] = self.over(i, a, b).value(no)
        else:
            out[...] = self.value(no)
        inside = tuple(
            slice(low - first, high - first) if i in used else slice(None)
            for i, ((low, high), (first, _)) in enumerate(zip(box, self.ranges, strict=True))
        )
        out[inside] = self.within(box).value(yes)
        return out

    def _box(self, condition: PrimExpr) -> list[tuple[int, int]] | None:
        """The box where a condition holds; None if it is not a box."""
        box = list(self.ranges)
        for each in conjuncts(condition):
            axes = [v for v in vars_used(each) if v in self.stage.place]
            if len(axes) != 1 or any(
                isinstance(v, Var) and v not in self.stage.place for v in vars_used(each)
            ):
                return None
            if not isinstance(each, (EQ, GE, GT, LE, LT)) or any(
                isinstance(x, ProducerLoad) for x in (each.a, each.b)
            ):
                return None
            holds = np.flatnonzero(self.value(each))
            i = self.stage.place[axes[0]]
            if not len(holds):
                return [(0, 0)] * len(box)
            first = self.ranges[i][0]
            low, high = int(holds[0]) + first, int(holds[-1]) + first + 1
            if high - low != len(holds):
                return None
            box[i] = (max(box[i][0], low), min(box[i][1], high))
        return box

    def let(self, e: Let) -> Any:
        self._known[e.var] = self.value(e.value)
        return self.value(e.body)

    def cast(self, e: Cast) -> Any:
        return np.asarray(self.value(e.value)).astype(_numpy_type(e.dtype), copy=False)

    def call(self, e: Call) -> Any:
        name = e.op.short_name
        if name == "if_then_else":
            return self.choice(*e.args)
        if name == "likely":
            return self.value(e.args[0])
        return _FUNCTIONS[name](*map(self.value, e.args))

    def truncated(self, e: Any) -> Any:
        a, b = self.value(e.a), self.value(e.b)
        if isinstance(e, Mod):
            return np.fmod(a, b)
        if e.dtype.is_float:
            return np.divide(a, b)
        left = a - np.fmod(a, b)
        return np.floor_divide(left, b)


def _binary(function: Any) -> Callable[[_Part, Any], Any]:
    return lambda part, e: function(part.value(e.a), part.value(e.b))


_HANDLERS: Final[dict[type[Any], Callable[[_Part, Any], Any]]] = {
    IntImm: _Part.number,
    FloatImm: _Part.number,
    Var: _Part.variable,
    ProducerLoad: _Part.load,
    Cast: _Part.cast,
    Let: _Part.let,
    Call: _Part.call,
    Div: _Part.truncated,
    Mod: _Part.truncated,
    Not: lambda part, e: np.logical_not(part.value(e.a)),
    Select: lambda part, e: part.choice(e.condition, e.true_value, e.false_value),
    **{
        kind: _binary(function)
        for kind, function in {
            Add: np.add, Sub: np.subtract, Mul: np.multiply, FloorDiv: np.floor_divide, FloorMod: np.mod,
            Min: np.minimum, Max: np.maximum, EQ: np.equal, NE: np.not_equal, LT: np.less, LE: np.less_equal,
            GT: np.greater, GE: np.greater_equal, And: np.logical_and, Or: np.logical_or,
        }.items()
    },
}  # fmt: skip


_ERF_STEP: Final = 4096  # a straight line between points so close is off by less than 1e-8


@lru_cache(maxsize=1)
def _erf_table() -> tuple[Any, Any]:
    """erf from 0 to 6, where it is 1, and the differences to the next."""
    values = np.array([math.erf(i / _ERF_STEP) for i in range(6 * _ERF_STEP + 2)])
    return values[:-1], np.diff(values)


def _erf(x: Any) -> Any:
    kind = np.result_type(x)
    if kind != np.float32 or np.size(x) < 1000:
        return np.asarray(np.frompyfunc(math.erf, 1, 1)(x)).astype(kind)
    values, steps = _erf_table()
    at = np.minimum(np.abs(x, dtype=np.float64) * _ERF_STEP, len(values) - 1)
    before = np.clip(at.astype(np.int64), 0, len(values) - 1)  # NaN has none
    return np.copysign(values[before] + (at - before) * steps[before], x).astype(kind)


def _sigmoid(x: Any) -> Any:
    one = np.result_type(x).type(1)
    return one / (one + np.exp(-x))


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "sqrt": np.sqrt, "rsqrt": lambda x: np.result_type(x).type(1) / np.sqrt(x), "tanh": np.tanh, "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "atan2": np.arctan2, "pow": np.power, "fabs": np.abs, "abs": np.abs, "floor": np.floor,
    "ceil": np.ceil, "trunc": np.trunc, "round": np.rint, "nearbyint": np.rint, "isnan": np.isnan,
    "isinf": np.isinf, "isfinite": np.isfinite, "erf": _erf, "sigmoid": _sigmoid, "fmod": np.fmod,
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "bitwise_not": np.invert,
}  # fmt: skip


_APPROXIMATE: Final = frozenset(
    "exp exp2 log log2 log10 log1p rsqrt tanh sin cos tan sinh cosh asin acos atan atan2 pow erf sigmoid".split()
)


def _check(stage: _Stage) -> None:
    """Refuse what the handlers do not know, and find the linear indices."""
    stack: list[Any] = [stage.source] if stage.reduced else list(stage.op.body)
    seen: set[int] = set()
    bound = set(stage.place)
    while stack:
        e = stack.pop()
        if id(e) in seen:
            continue
        seen.add(id(e))
        if type(e) not in _HANDLERS:
            raise NotEvaluated(f"{stage.op.what}: `{e}`")
        _numpy_type(e.dtype)
        if isinstance(e, Call) and not (
            isinstance(e.op, Op)
            and (e.op.short_name in _FUNCTIONS or e.op.short_name in ("if_then_else", "likely"))
        ):
            raise NotEvaluated(f"{stage.op.what}: NumPy has no counterpart of `{e}`")
        if isinstance(e, Call) and e.op.short_name in _APPROXIMATE:
            stage.exact = False
        if isinstance(e, Let):
            bound.add(e.var)
        elif isinstance(e, Var) and e not in bound:
            raise NotEvaluated(f"{stage.op.what}: `{e.name}` is a size that is not known")
        elif isinstance(e, ProducerLoad):
            found = [_linear(i) for i in e.indices]
            known = all(f is not None and f.factors.keys() <= stage.place.keys() for f in found)
            stage.indices[id(e)] = [f for f in found if f is not None] if known else None
            if not known:
                stack.extend(e.indices)
            else:
                stack.extend(i for i in e.indices if const_value(i) is None)
            continue
        stack.extend(e.children())
