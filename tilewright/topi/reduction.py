"""Reductions over axes, argmin and argmax, cumulative sums and products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import te
from ..ir import ops
from ..ir.dtype import FLOAT32, INT32, DataType
from ..ir.expr import Div, PrimExpr
from ..ir.scans import scan_attrs
from ..te.tensor import checked_shape
from ..tir import ir_builder
from . import math as _math
from . import tag
from .utils import (
    ceil_div,
    dtype_of,
    equal_const_int,
    extern,
    fail,
    injective,
    is_empty_shape,
    normalize_axes,
    normalize_axis,
    ravel_index,
    same_size,
    shape_text,
    tensor_arg,
)
from .utils import (
    prod as _size,
)

__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "collapse_sum",
    "cumprod",
    "cumsum",
    "logsumexp",
    "max",
    "mean",
    "min",
    "prod",
    "scanop",
    "sum",
]


def accumulator(kind: DataType) -> DataType:
    """The accumulator type: narrow floats would lose too much precision."""
    return FLOAT32 if kind.is_float and kind.bits < 32 else kind


class _Plan:
    """The reduced dimensions, and the indices of the result in the data."""

    def __init__(self, name: str, data: Any, axis: Any, keepdims: bool) -> None:
        self.name, self.data, self.keepdims = name, tensor_arg(name, "data", data), keepdims
        self.reduced = normalize_axes(name, axis, self.data.ndim)
        self.shape = [
            1 if d in self.reduced else dim
            for d, dim in enumerate(self.data.shape)
            if keepdims or d not in self.reduced
        ]
        self.axes = [te.reduce_axis((0, self.data.shape[d]), f"k{d}") for d in sorted(self.reduced)]

    def at(self, point: Sequence[Any]) -> list[Any]:
        """The indices into the data for a point of the result and one of the reduction axes."""
        kept, over = list(point), list(self.axes)
        out: list[Any] = []
        position = 0
        for d in range(self.data.ndim):
            if d in self.reduced:
                out.append(over.pop(0).var)
                position += self.keepdims
            else:
                out.append(kept[position])
                position += 1
        return out

    def need_elements(self) -> None:
        """Refuse a reduction over an empty dimension, which has no value."""
        if is_empty_shape([self.data.shape[d] for d in self.reduced]) and not is_empty_shape(self.shape):
            raise fail(
                self.name,
                f"data of shape {shape_text(self.data.shape)} has no elements to choose from",
                f"there is no {self.name} of nothing",
            )

    def reduce(self, reducer: Callable[..., Any], value: Callable[[Any], Any]) -> te.Tensor:
        return injective(
            self.name,
            self.shape,
            lambda *i: reducer(value(self.data(*self.at(i))), axis=self.axes),
            tag.COMM_REDUCE,
            f"T_{self.name}_red" if self.name in ("all", "any") else "",
        )


def _total(name: str, reducer: Callable[..., Any], data: Any, axis: Any, keepdims: bool) -> te.Tensor:
    plan = _Plan(name, data, axis, keepdims)
    kind = plan.data.dtype
    held = INT32 if kind.is_bool else accumulator(kind)
    made = plan.reduce(reducer, lambda v: ops.cast(held, v))
    return made if kind.is_bool else _math.cast(made, kind)


def sum(data: te.Tensor, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """The sum over axes, in the type of the data; of truth values, whether one is true.

    Sums of 16-bit floats are held in float32 and rounded once.
    """
    if tensor_arg("sum", "data", data).dtype.is_bool:
        return any(data, axis, keepdims)
    return _total("sum", te.sum, data, axis, keepdims)


def prod(data: te.Tensor, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """The product over axes, in the type of the data."""
    return _total("prod", te.prod, data, axis, keepdims)


def _extreme(
    name: str, reducer: Callable[..., Any], of_truths: Any, data: Any, axis: Any, keepdims: bool
) -> Any:
    plan = _Plan(name, data, axis, keepdims)
    plan.need_elements()
    if plan.data.dtype.is_bool:
        return plan.reduce(of_truths, lambda v: v)
    return plan.reduce(reducer, lambda v: v)


def max(data: te.Tensor, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """The greatest element over axes; NaN if there is one."""
    return _extreme("max", te.max, te.any, data, axis, keepdims)


def min(data: te.Tensor, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """The least element over axes; NaN if there is one."""
    return _extreme("min", te.min, te.all, data, axis, keepdims)


def _truth(x: PrimExpr) -> PrimExpr:
    return x if x.dtype.is_bool else ops.not_equal(x, te.const(0, x.dtype))


def all(data: te.Tensor, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """Whether all elements over axes are true; a number is true if it is not 0."""
    return _Plan("all", data, axis, keepdims).reduce(te.all, _truth)


def any(data: te.Tensor, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """Whether at least one element over axes is true."""
    return _Plan("any", data, axis, keepdims).reduce(te.any, _truth)


def mean(data: te.Tensor, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """The average over axes: in the type of the data if it is a float, in float32 otherwise."""
    plan = _Plan("mean", data, axis, keepdims)
    kind = plan.data.dtype
    held = accumulator(kind) if kind.is_float else FLOAT32
    total = plan.reduce(te.sum, lambda v: ops.cast(held, v))
    count = ops.cast(held, _size(plan.data.shape[d] for d in plan.reduced))
    result = kind if kind.is_float else FLOAT32
    return injective(
        "mean", plan.shape, lambda *i: ops.cast(result, Div(total(*i), count)), tag.ELEMWISE, "T_divide"
    )


def logsumexp(data: te.Tensor, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """log(sum(exp(x))) over axes, from the greatest element on, so that nothing overflows."""
    plan = _Plan("logsumexp", data, axis, True)
    x = plan.data
    held = accumulator(x.dtype) if x.dtype.is_float else FLOAT32
    top = plan.reduce(te.max, lambda v: ops.cast(held, v))
    zero = te.const(0, held)

    def shift(at: Sequence[Any]) -> PrimExpr:
        # infinity minus infinity is NaN; from an infinite greatest element on, nothing is taken away
        found = top(*at)
        return ops.select(ops.isfinite(found), found, zero)

    again = _Plan("logsumexp", data, axis, True)

    def total(*i: Any) -> Any:
        point = again.at(i)
        return te.sum(ops.exp(ops.sub(ops.cast(held, x(*point)), shift(i))), axis=again.axes)

    parts = injective("logsumexp", again.shape, total, tag.COMM_REDUCE, "T_sumexp")
    out = _Plan("logsumexp", data, axis, keepdims)
    result = x.dtype if x.dtype.is_float else FLOAT32

    def element(*i: Any) -> PrimExpr:
        at = list(i)
        if not keepdims:
            for d in sorted(out.reduced):
                at.insert(d, te.const(0))
        return ops.cast(result, ops.add(ops.log(parts(*at)), shift(at)))

    return injective("logsumexp", out.shape, element, tag.INJECTIVE)


# ---------------------------------------------------------------------------- positions
def _chooser(greatest: bool, last: bool) -> Any:
    """The reducer of (position, value) that keeps the extreme value; the first of equal ones, or the last.

    NaN goes before all values, as in NumPy. The identity's position loses against that of any element.
    """

    def combine(x: Any, y: Any) -> tuple[PrimExpr, PrimExpr]:
        better = (ops.greater if greatest else ops.less)(x[1], y[1])
        same = ops.equal(x[1], y[1])
        if x[1].dtype.is_float:
            nan_x, nan_y = ops.isnan(x[1]), ops.isnan(y[1])
            better = ops.logical_or(better, ops.logical_and(nan_x, ops.logical_not(nan_y)))
            same = ops.logical_or(same, ops.logical_and(nan_x, nan_y))
        nearer = (ops.greater if last else ops.less)(x[0], y[0])
        keep = ops.logical_or(better, ops.logical_and(same, nearer))
        return ops.select(keep, x[0], y[0]), ops.select(keep, x[1], y[1])

    def identity(index: str, value: str) -> tuple[PrimExpr, PrimExpr]:
        kind = DataType(value)
        if kind.is_float:
            worst = ops.infinity(kind)
            worst = ops.neg(worst) if greatest else worst
        else:
            worst = ops.min_value(kind) if greatest else ops.max_value(kind)
        return (te.const(-1, index) if last else ops.max_value(index)), worst

    return te.comm_reducer(combine, identity, "argmax" if greatest else "argmin")


def _position(name: str, data: Any, axis: Any, keepdims: bool, last: bool) -> te.Tensor:
    plan = _Plan(name, data, axis, keepdims)
    plan.need_elements()
    x = plan.data
    reducer = _chooser(name == "argmax", last)
    sizes = [x.shape[d] for d in sorted(plan.reduced)]

    def pair(*i: Any) -> Any:
        where = ops.cast(INT32, ravel_index([a.var for a in plan.axes], sizes))
        value = x(*plan.at(i))
        if value.dtype.is_bool:
            value = ops.cast("int8", value)
        return reducer((where, value), axis=plan.axes)

    made = injective(name, plan.shape, pair, tag.COMM_REDUCE_IDX, f"T_{name}_red_temp")
    return injective(name, plan.shape, lambda *i: made[0](*i), tag.COMM_REDUCE, f"T_{name}_red")


def argmax(
    data: te.Tensor, axis: Any = None, keepdims: bool = False, select_last_index: bool = False
) -> te.Tensor:
    """The index of the greatest element along the axes, as int32: the first, or the last one.

    Over several axes it is the linear index in row-major order.
    """
    return _position("argmax", data, axis, keepdims, select_last_index)


def argmin(
    data: te.Tensor, axis: Any = None, keepdims: bool = False, select_last_index: bool = False
) -> te.Tensor:
    """The index of the least element along the axes, as int32: the first, or the last one."""
    return _position("argmin", data, axis, keepdims, select_last_index)


def collapse_sum(data: te.Tensor, target_shape: Sequence[Any]) -> te.Tensor:
    """The sum over the dimensions along which `target_shape` would be broadcast to the data."""
    x = tensor_arg("collapse_sum", "data", data)
    target = checked_shape(target_shape)
    extra = x.ndim - len(target)
    wrong = extra < 0
    axes = list(range(extra))
    for d, want in enumerate(target):
        have = x.shape[d + extra] if not wrong else want
        if equal_const_int(want, 1) and not equal_const_int(have, 1):
            axes.append(d + extra)
        elif not same_size(want, have):
            wrong = True
    if wrong:
        raise fail(
            "collapse_sum", f"{shape_text(target)} does not broadcast to the data's {shape_text(x.shape)}"
        )
    kept = [d for d in range(x.ndim) if d not in axes]
    over = {d: te.reduce_axis((0, x.shape[d]), f"k{d}") for d in axes}
    held = accumulator(x.dtype)

    def element(*i: Any) -> Any:
        at = [over[d].var if d in over else i[d - extra] for d in range(x.ndim)]
        return te.sum(ops.cast(held, x(*at)), axis=list(over.values()))

    if not axes:
        return x if len(kept) == x.ndim else injective("collapse_sum", target, lambda *i: x(*i))
    return _math.cast(injective("collapse_sum", target, element, tag.COMM_REDUCE), x.dtype)


# ---------------------------------------------------------------------------- cumulative
_LANES = 64
_FEW = 4  # elements that are added between two compensations of the rounding error


class _Lines:
    """`width` adjacent lines, along which elements are combined step by step."""

    def __init__(self, ib: Any, width: Any, held: DataType, kind: DataType, exclusive: bool) -> None:
        self.ib, self.width, self.held, self.kind, self.exclusive = ib, width, held, kind, exclusive

    def values(self, name: str, start: Any) -> Any:
        """A value for each line."""
        made = self.ib.allocate(self.held, (_LANES,), name, scope="local")
        self.each(lambda j: made.__setitem__(j, ops.cast(self.held, start)))
        return made

    def each(self, step: Callable[[Any], None]) -> None:
        with self.ib.for_range(0, self.width, "j") as j:
            step(j)

    def combine(self, n: Any, load: Any, store: Any, binop: Any, start: Any) -> None:
        held = self.values("held", start)
        with self.ib.for_range(0, n, "k") as k:
            self.each(lambda j: self.step(k, j, held, load, store, binop, lambda: held[j]))

    def step(self, k: Any, j: Any, into: Any, load: Any, store: Any, binop: Any, so_far: Any) -> None:
        if self.exclusive:
            store(k, j, ops.cast(self.kind, so_far()))
        into[j] = ops.cast(self.held, binop(into[j], load(k, j)))
        if not self.exclusive:
            store(k, j, ops.cast(self.kind, so_far()))

    def add_up(self, n: Any, load: Any, store: Any) -> None:
        """Compensated summation: a few elements, and the previous sum as two numbers, one of which holds the rounding
        error of the other. The last sum is as accurate as the first."""
        before, lost, few = self.values("before", 0), self.values("lost", 0), self.values("few", 0)

        def take(first: Any, count: int) -> None:
            with self.ib.for_range(0, count, "i", kind="unroll") as i:
                self.each(lambda j: self.step(first + i, j, few, load, store, ops.add, lambda: so_far(j)))

        def so_far(j: Any) -> PrimExpr:
            return ops.add(before[j], ops.add(lost[j], few[j]))

        def carry(j: Any) -> None:
            old, new = self.ib.let("old", before[j]), self.ib.let("new", few[j])
            total = self.ib.let("total", ops.add(old, new))
            lost[j] = ops.add(lost[j], _rounded_off(old, new, total))
            before[j] = total
            few[j] = te.const(0, self.held)

        with self.ib.for_range(0, ops.floordiv(n, _FEW), "k") as k:
            take(k * _FEW, _FEW)
            self.each(carry)
        with self.ib.for_range(ops.floordiv(n, _FEW) * _FEW, n, "k") as k:
            take(k, 1)


def _rounded_off(a: PrimExpr, b: PrimExpr, total: PrimExpr) -> PrimExpr:
    """The exact rounding error of `total` = a + b (Knuth's two-sum); 0 if it is not finite."""
    part = ops.sub(total, a)
    off = ops.add(ops.sub(a, ops.sub(total, part)), ops.sub(b, part))
    return ops.select(ops.equal(off, off), off, te.const(0, off.dtype))


def scanop(
    data: te.Tensor,
    binop: Callable[[Any, Any], Any],
    identity_value: Any,
    op_name: str,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
) -> te.Tensor:
    """Along `axis` (or all elements in row-major order) each element combined with those before it.

    `exclusive` leaves out the element itself, so the first is the identity. Lines that lie beside each other
    in memory advance together, a block of them at a time, and blocks run in parallel.
    """
    x = tensor_arg(op_name, "data", data)
    kind = x.dtype if not dtype else dtype_of(op_name, dtype)
    if kind.is_bool:
        kind = INT32
    shape: tuple[Any, ...]
    d = 0
    if axis is None:
        outer, n, inner, shape = 1, _size(x.shape), 1, (_size(x.shape),)
    else:
        d = normalize_axis(op_name, axis, x.ndim)
        outer, n, inner = _size(x.shape[:d]), x.shape[d], _size(x.shape[d + 1 :])
        shape = x.shape
    blocks = ceil_div(inner, _LANES)
    held = accumulator(kind)

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        source = ib.buffer_ptr(ins[0], (outer, n, inner))
        target = ib.buffer_ptr(outs[0], (outer, n, inner))
        with ib.for_range(0, outer * blocks, "b", kind="parallel") as b:
            first = ib.let("first", ops.floormod(b, blocks) * _LANES)
            row = ib.let("row", ops.floordiv(b, blocks))
            width = ib.let("width", ops.min_of(inner - first, _LANES))
            lines = _Lines(ib, width, held, kind, bool(exclusive))
            load = lambda k, j: ops.cast(held, source[row, k, first + j])

            def store(k: Any, j: Any, value: Any) -> None:
                target[row, k, first + j] = value

            if binop is ops.add and held.is_float:
                lines.add_up(n, load, store)
            else:
                lines.combine(n, load, store, binop, identity_value)
        return ib.get()

    if is_empty_shape(x.shape):
        return injective(op_name, shape, lambda *i: te.const(0, kind))
    attrs = scan_attrs(binop, identity_value, d, bool(exclusive), held)
    return extern(op_name, [shape], [x], build, [kind], attrs=attrs)[0]


def cumsum(
    data: te.Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None
) -> te.Tensor:
    """The sums of the elements so far along `axis`, or over all elements in row-major order."""
    return scanop(data, ops.add, 0, "cumsum", axis, dtype, exclusive)


def cumprod(
    data: te.Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None
) -> te.Tensor:
    """The products of the elements so far along `axis`, or over all elements in row-major order."""
    return scanop(data, ops.mul, 1, "cumprod", axis, dtype, exclusive)
