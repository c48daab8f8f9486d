"""Sorting and what stands on it: argsort, topk, unique, searchsorted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import te
from ..ir import ops
from ..ir.dtype import BOOL, INT32, DataType
from ..ir.expr import ExprOp, PrimExpr, convert
from ..tir import ir_builder
from .transform import transpose
from .utils import (
    ceil_div,
    dtype_of,
    equal_const_int,
    extern,
    fail,
    get_const_tuple,
    injective,
    int_list,
    is_empty_shape,
    normalize_axis,
    prod,
    same_size,
    shape_text,
    shown,
    swap,
    tensor_arg,
)

__all__ = ["argsort", "searchsorted", "sort", "topk", "unique"]

_RUN = 16  # so many elements are sorted by insertion before runs are merged


def _comparable(x: PrimExpr) -> PrimExpr:
    return ops.cast("int8", x) if x.dtype.is_bool else x


def _before(ascending: bool) -> Callable[[PrimExpr, PrimExpr], PrimExpr]:
    """Whether one element must stand before another; NaN is greater than all."""

    def before(a: PrimExpr, b: PrimExpr) -> PrimExpr:
        a, b = _comparable(a), _comparable(b)
        if not ascending:
            a, b = b, a
        less = ops.less(a, b)
        if a.dtype.is_float:
            less = ops.logical_or(less, ops.logical_and(ops.isnan(b), ops.logical_not(ops.isnan(a))))
        return less

    return before


class _Row:
    """A row of two scratch lines to be sorted: the values, and where they came from if anybody asks."""

    def __init__(self, ib: Any, row: Any, values: Any, places: Any) -> None:
        self.ib, self.row, self.values, self.places = ib, row, values, places
        self.hold = ib.allocate(values.dtype, (1,), "hold", scope="local")
        self.state = ib.allocate("int32", (5,), "state", scope="local")

    def move(self, to: tuple[Any, Any], source: tuple[Any, Any]) -> None:
        self.values[self.row, to[0], to[1]] = self.values[self.row, source[0], source[1]]
        if self.places is not None:
            self.places[self.row, to[0], to[1]] = self.places[self.row, source[0], source[1]]

    def insertion(self, n: PrimExpr, before: Callable[..., PrimExpr]) -> None:
        """Each run of a few elements in order."""
        ib, row, state = self.ib, self.row, self.state
        no = te.const(False, BOOL)
        with ib.for_range(0, ceil_div(n, _RUN), "run") as run:
            first = ib.let("first", run * _RUN)
            with ib.for_range(1, ops.min_of(n - first, _RUN), "step") as step:
                self.hold[0] = self.values[row, 0, first + step]
                if self.places is not None:
                    state[1] = self.places[row, 0, first + step]
                state[0] = first + step
                later = before(self.hold[0], self.values[row, 0, state[0] - 1])
                with ib.while_loop(ops.if_then_else(ops.greater(state[0], first), later, no)):
                    self.move((0, state[0]), (0, state[0] - 1))
                    state[0] = state[0] - 1
                self.values[row, 0, state[0]] = self.hold[0]
                if self.places is not None:
                    self.places[row, 0, state[0]] = state[1]

    def merge(self, n: PrimExpr, before: Callable[..., PrimExpr]) -> PrimExpr:
        """Runs merged two by two from one line to the other until one is left; gives the line it is in."""
        ib, state = self.ib, self.state
        width, side, low, left, right = (state[i] for i in range(5))
        yes, no = te.const(True, BOOL), te.const(False, BOOL)
        state[0] = _RUN
        state[1] = 0
        with ib.while_loop(ops.less(width, n)):
            state[2] = 0
            with ib.while_loop(ops.less(low, n)):
                middle = ib.let("middle", ops.min_of(low + width, n))
                high = ib.let("high", ops.min_of(middle + width, n))
                source = ib.let("source", side)
                state[3] = low
                state[4] = middle
                with ib.for_range(0, high - low, "out") as out:
                    first = before(self.values[self.row, source, right], self.values[self.row, source, left])
                    rest = ops.if_then_else(ops.greater_equal(left, middle), yes, first)
                    with ib.if_scope(ops.if_then_else(ops.greater_equal(right, high), no, rest)):
                        self.move((1 - source, low + out), (source, right))
                        state[4] = right + 1
                    with ib.else_scope():
                        self.move((1 - source, low + out), (source, left))
                        state[3] = left + 1
                state[2] = high
            state[0] = width * 2
            state[1] = 1 - side
        return ib.let("line", side)


def _sorted(
    name: str,
    x: te.Tensor,
    ascending: bool,
    count: Any,
    values: bool,
    places: DataType | None,
    lengths: te.Tensor | None = None,
) -> list[te.Tensor]:
    """The first `count` of each row of the last dimension in order: their values, their places, or both.

    A stable merge sort, rows in parallel. With `lengths`, only so many elements of each row are sorted.
    """
    n, rows = x.shape[-1], prod(x.shape[:-1])
    before = _before(ascending)
    kinds = ([x.dtype] if values else []) + ([places] if places is not None else [])
    shapes = [(*x.shape[:-1], count)] * len(kinds)
    scratch = [x.dtype] + ([INT32] if places is not None else [])

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        source = ib.buffer_ptr(ins[0], (rows, n))
        results = [ib.buffer_ptr(b, (rows, count)) for b in outs[: len(kinds)]]
        lines = [ib.buffer_ptr(b, (rows, 2, n)) for b in outs[len(kinds) :]]
        with ib.for_range(0, rows, "row", kind="parallel") as row:
            with ib.for_range(0, n, "k") as k:
                lines[0][row, 0, k] = source[row, k]
                if places is not None:
                    lines[1][row, 0, k] = ops.cast(INT32, k)
            task = _Row(ib, row, lines[0], lines[1] if places is not None else None)
            size = ops.cast(INT32, n)
            if lengths is not None:
                told = ops.cast(INT32, ib.buffer_ptr(ins[1], (rows,))[row])
                size = ib.let("size", ops.max_of(ops.min_of(told, size), 0))
            task.insertion(size, before)
            line = task.merge(size, before)
            with ib.for_range(0, count, "k") as k:
                # What lies behind the sorted part was never moved from line 0.
                at = line if lengths is None else ops.select(ops.less(k, size), line, 0)
                if values:
                    results[0][row, k] = lines[0][row, at, k]
                if places is not None:
                    results[-1][row, k] = ops.cast(places, lines[1][row, at, k])
        return ib.get()

    inputs = [x] if lengths is None else [x, lengths]
    made = extern(name, [*shapes, *[(rows, 2, n)] * len(scratch)], inputs, build, [*kinds, *scratch])
    return made[: len(kinds)]


def _along(name: str, data: Any, axis: Any, work: Callable[[te.Tensor], list[te.Tensor]]) -> list[te.Tensor]:
    """`work` over the last dimension done over another one."""
    x = tensor_arg(name, "data", data)
    d = normalize_axis(name, axis, x.ndim)
    if d == x.ndim - 1:
        return work(x)
    order = swap(x.shape, d)
    return [transpose(t, order) for t in work(transpose(x, order))]


def _nothing(shape: Any, kinds: list[DataType], name: str) -> list[te.Tensor]:
    return [injective(name, shape, lambda *i, k=k: te.const(0, k)) for k in kinds]


def sort(data: te.Tensor, axis: int = -1, is_ascend: Any = 1) -> te.Tensor:
    """The elements along `axis` in order, NaN behind all others (in front, if descending)."""

    def work(x: te.Tensor) -> list[te.Tensor]:
        if is_empty_shape(x.shape):
            return _nothing(x.shape, [x.dtype], "sort")
        return _sorted("sort", x, bool(is_ascend), x.shape[-1], True, None)

    return _along("sort", data, axis, work)[0]


def argsort(
    data: te.Tensor,
    valid_count: te.Tensor | None = None,
    axis: int = -1,
    is_ascend: Any = 1,
    dtype: str = "float32",
) -> te.Tensor:
    """The places of the elements along `axis` in the order of their values; equal ones stay in their order.

    With `valid_count`, only the first so many of each row are sorted and the others keep their place.
    """
    kind = dtype_of("argsort", dtype)
    x = tensor_arg("argsort", "data", data)
    if valid_count is not None:
        rest = list(x.shape)
        del rest[normalize_axis("argsort", axis, x.ndim)]
        if normalize_axis("argsort", axis, x.ndim) != x.ndim - 1:
            raise fail("argsort", "valid_count goes with the last axis only", "transpose the data")
        if not same_size(convert(prod(valid_count.shape)), convert(prod(rest))):
            raise fail(
                "argsort",
                f"valid_count has shape {shape_text(valid_count.shape)} for rows {shape_text(rest)}",
            )

    def work(t: te.Tensor) -> list[te.Tensor]:
        if is_empty_shape(t.shape):
            return _nothing(t.shape, [kind], "argsort")
        return _sorted("argsort", t, bool(is_ascend), t.shape[-1], False, kind, valid_count)

    return _along("argsort", x, axis, work)[0]


def topk(
    data: te.Tensor,
    k: Any = 1,
    axis: int = -1,
    ret_type: str = "both",
    is_ascend: bool = False,
    dtype: str = "int64",
) -> Any:
    """The `k` greatest elements along `axis` (the least, if ascending) in order, their places, or both.

    k below 1 takes all of them.
    """
    if ret_type not in ("both", "values", "indices"):
        raise fail("topk", f"ret_type is {shown(ret_type)} and may be 'both', 'values' or 'indices'")
    kind = dtype_of("topk", dtype)
    x = tensor_arg("topk", "data", data)
    size = get_const_tuple(x.shape)[normalize_axis("topk", axis, x.ndim)]
    count: Any = int_list("topk", "k", k)[0]
    if not isinstance(count, ExprOp):
        count = size if count < 1 else count
        if isinstance(size, int) and isinstance(count, int) and count > size:
            raise fail("topk", f"k is {count} and the axis has {size} elements")

    def work(t: te.Tensor) -> list[te.Tensor]:
        values, places = ret_type != "indices", ret_type != "values"
        if is_empty_shape(t.shape):
            kinds = [t.dtype] * values + [kind] * places
            return _nothing((*t.shape[:-1], count), kinds, "topk")
        return _sorted("topk", t, bool(is_ascend), count, values, kind if places else None)

    made = _along("topk", x, axis, work)
    return made if ret_type == "both" else made[0]


# ---------------------------------------------------------------------------- unique
def _differ(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """Whether two elements differ; one NaN is as good as another."""
    out = ops.not_equal(a, b)
    if a.dtype.is_float:
        out = ops.logical_and(out, ops.logical_not(ops.logical_and(ops.isnan(a), ops.isnan(b))))
    return out


def unique(data: te.Tensor, is_sorted: bool = True, return_counts: bool = False) -> list[te.Tensor]:
    """The distinct elements of a list, in order or as they first occur, padded with zeros to its length.

    Gives [elements, where each occurs first, which of them each element is, how many there are], and how often
    each occurs if `return_counts`; all but the elements are int32.
    """
    x = tensor_arg("unique", "data", data)
    if x.ndim != 1:
        raise fail("unique", f"data has shape {shape_text(x.shape)} and must have one dimension")
    n = x.shape[0]
    kinds = [x.dtype, INT32, INT32, INT32] + [INT32] * return_counts
    shapes = [(n,), (n,), (n,), (1,)] + [(n,)] * return_counts
    if equal_const_int(n, 0):
        return [injective("unique", s, lambda i, k=k: te.const(0, k)) for s, k in zip(shapes, kinds)]
    order = argsort(x, dtype="int32")

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        source, place = ib.buffer_ptr(ins[0]), ib.buffer_ptr(ins[1])
        elements, first, inverse, number = (ib.buffer_ptr(b) for b in outs[:4])
        counts = ib.buffer_ptr(outs[4]) if return_counts else None
        leader, own = ib.buffer_ptr(outs[-2]), ib.buffer_ptr(outs[-1])
        with ib.for_range(0, n, "i") as i:
            elements[i] = te.const(0, x.dtype)
            first[i] = 0
            if counts is not None:
                counts[i] = 0
        number[0] = 0

        def found(at: Any) -> None:
            """A new element, first met at `at`."""
            elements[number[0]] = source[at]
            first[number[0]] = ops.cast(INT32, at)
            number[0] = number[0] + 1

        def belongs(at: Any, which: Any) -> None:
            inverse[at] = which
            if counts is not None:
                counts[which] = counts[which] + 1

        yes = te.const(True, BOOL)
        with ib.for_range(0, n, "i") as i:
            at = ib.let("at", place[i])
            changed = _differ(source[at], source[place[i - 1]])
            with ib.if_scope(ops.if_then_else(ops.equal(i, 0), yes, changed)):
                if is_sorted:
                    found(at)
                leader[at] = at
            with ib.else_scope():
                leader[at] = leader[place[i - 1]]
            if is_sorted:
                belongs(at, ib.let("which", number[0] - 1))
        if not is_sorted:
            with ib.for_range(0, n, "i") as i:
                # Places of equal elements are in order, so the leader comes before those it leads.
                with ib.if_scope(ops.equal(leader[i], i)):
                    own[i] = number[0]
                    found(i)
                belongs(i, ib.let("which", own[leader[i]]))
        return ib.get()

    made = extern("unique", [*shapes, (n,), (n,)], [x, order], build, [*kinds, INT32, INT32])
    return made[: len(kinds)]


# ---------------------------------------------------------------------------- searchsorted
def searchsorted(
    sorted_sequence: te.Tensor, values: te.Tensor, right: bool = False, out_dtype: str = "int64"
) -> te.Tensor:
    """Where to insert each value so that the sequence stays sorted: before equal elements, or behind them.

    The sequence has one dimension, or the leading dimensions of the values.
    """
    line = tensor_arg("searchsorted", "sorted_sequence", sorted_sequence)
    wanted = tensor_arg("searchsorted", "values", values)
    kind = dtype_of("searchsorted", out_dtype)
    own = line.shape[:-1]
    if line.ndim == 0 or (
        own and not (line.ndim == wanted.ndim and all(same_size(a, b) for a, b in zip(own, wanted.shape)))
    ):
        raise fail(
            "searchsorted",
            f"sorted_sequence of shape {shape_text(line.shape)} does not go with values of shape "
            f"{shape_text(wanted.shape)}: it has one dimension or the same leading ones",
        )
    n, total = line.shape[-1], prod(wanted.shape)
    rows, each = (prod(own), wanted.shape[-1]) if own else (1, total)
    before = _before(True)

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        sequence, asked = ib.buffer_ptr(ins[0], (rows, n)), ib.buffer_ptr(ins[1], (total,))
        result = ib.buffer_ptr(outs[0], (total,))
        with ib.for_range(0, total, "v", kind="parallel") as v:
            state = ib.allocate("int32", (2,), "state", scope="local")
            row = ib.let("row", ops.floordiv(v, each))
            state[0] = 0
            state[1] = ops.cast(INT32, n)
            with ib.while_loop(ops.less(state[0], state[1])):
                middle = ib.let("middle", ops.floordiv(state[0] + state[1], 2))
                element, value = sequence[row, middle], asked[v]
                further = ops.logical_not(before(value, element)) if right else before(element, value)
                with ib.if_scope(further):
                    state[0] = middle + 1
                with ib.else_scope():
                    state[1] = middle
            result[v] = ops.cast(kind, state[0])
        return ib.get()

    if is_empty_shape(wanted.shape) or equal_const_int(n, 0):
        return injective("searchsorted", wanted.shape, lambda *i: te.const(0, kind))
    return extern("searchsorted", [wanted.shape], [line, wanted], build, [kind])[0]
