"""Sorting, and operators based on it: argsort, topk, unique, searchsorted."""

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

_RUN = 16  # elements of a run that is sorted by insertion before runs are merged
_BLOCK = 32  # elements that a selection tests together


def _comparable(x: PrimExpr) -> PrimExpr:
    return ops.cast("int8", x) if x.dtype.is_bool else x


def _before(ascending: bool) -> Callable[[PrimExpr, PrimExpr], PrimExpr]:
    """Whether one element must stand before another; NaN is greater than all."""

    def before(a: PrimExpr, b: PrimExpr) -> PrimExpr:
        a, b = _comparable(a), _comparable(b)
        if not ascending:
            a, b = b, a
        if a.dtype.is_float:  # what cannot be compared counts as less, unless it is `a` that is NaN
            return ops.logical_and(ops.logical_not(ops.greater_equal(a, b)), ops.logical_not(ops.isnan(a)))
        return ops.less(a, b)

    return before


class _Order:
    """Sort keys: integers in the order of the elements, which are fast to compare.

    The bits of a float are ordered if those of negative numbers are inverted:

        -2.0  c0000000 -> bfffffff      -0.0  80000000 -> ffffffff      0.0  00000000      NaN  7fffffff
    """

    def __init__(self, kind: DataType, ascending: bool) -> None:
        self.kind, self.ascending = kind, ascending
        # Narrow floats have their order in wide ones.
        self.wide = DataType("float32") if kind.is_float and kind.bits < 32 else kind
        self.key = (
            DataType(f"int{self.wide.bits}") if kind.is_float else DataType("int8") if kind.is_bool else kind
        )

    def _turned(self, bits: PrimExpr) -> PrimExpr:
        most = te.const((1 << (self.key.bits - 1)) - 1, self.key)
        return ops.bitwise_xor(bits, ops.bitwise_and(ops.shift_right(bits, self.key.bits - 1), most))

    def of(self, x: PrimExpr, zeros_differ: bool) -> PrimExpr:
        """The key of an element; -0.0 and 0.0 are one unless they may differ."""
        key = ops.cast(self.key, x) if not self.kind.is_float else self._of_float(x, zeros_differ)
        return key if self.ascending else ops.bitwise_not(key)

    def _of_float(self, x: PrimExpr, zeros_differ: bool) -> PrimExpr:
        wide = ops.cast(self.wide, x)
        key = self._turned(ops.reinterpret(self.key, wide))
        if not zeros_differ:
            key = ops.select(ops.equal(wide, te.const(0, self.wide)), te.const(0, self.key), key)
        return ops.select(ops.isnan(wide), te.const((1 << (self.key.bits - 1)) - 1, self.key), key)

    def back(self, key: PrimExpr) -> PrimExpr:
        """The element of a key (the inverse of `of`)."""
        key = key if self.ascending else ops.bitwise_not(key)
        if not self.kind.is_float:
            return ops.cast(self.kind, key)
        return ops.cast(self.kind, ops.reinterpret(self.wide, self._turned(key)))


class _Row:
    """Two scratch lines for sorting a row: the keys, and their indices if they are needed."""

    def __init__(self, ib: Any, row: Any, lines: list[Any]) -> None:
        self.ib, self.row, self.lines, self.keys = ib, row, lines, lines[0]
        self.hold = [ib.allocate(line.dtype, (1,), "hold", scope="local") for line in lines]
        self.state = ib.allocate("int32", (6,), "state", scope="local")

    def move(self, to: tuple[Any, Any], source: tuple[Any, Any]) -> None:
        for line in self.lines:
            line[self.row, to[0], to[1]] = line[self.row, source[0], source[1]]

    def sort(self, n: PrimExpr) -> PrimExpr:
        """The first `n` elements of line 0 in order, equal ones as they came; gives the line they are in."""
        self.insertion(n)
        return self.merge(n)

    def insertion(self, n: PrimExpr) -> None:
        """Each run of a few elements in order."""
        ib, row, state = self.ib, self.row, self.state
        no = te.const(False, BOOL)
        with ib.for_range(0, ceil_div(n, _RUN), "run") as run:
            first = ib.let("first", run * _RUN)
            with ib.for_range(1, ops.min_of(n - first, _RUN), "step") as step:
                for hold, line in zip(self.hold, self.lines, strict=True):
                    hold[0] = line[row, 0, first + step]
                state[0] = first + step
                later = ops.less(self.hold[0][0], self.keys[row, 0, state[0] - 1])
                with ib.while_loop(ops.if_then_else(ops.greater(state[0], first), later, no)):
                    self.move((0, state[0]), (0, state[0] - 1))
                    state[0] = state[0] - 1
                for hold, line in zip(self.hold, self.lines, strict=True):
                    line[row, 0, state[0]] = hold[0]

    def merge(self, n: PrimExpr) -> PrimExpr:
        """Runs merged two by two from one line to the other until one is left; gives the line it is in."""
        ib, state = self.ib, self.state
        width, side, low = (state[i] for i in range(3))
        state[0] = _RUN
        state[1] = 0
        with ib.while_loop(ops.less(width, n)):
            state[2] = 0
            with ib.while_loop(ops.less(low, n)):
                middle = ib.let("middle", ops.min_of(low + width, n))
                high = ib.let("high", ops.min_of(middle + width, n))
                self._merge_two(ib.let("source", side), low, middle, high)
                state[2] = high
            state[0] = width * 2
            state[1] = 1 - side
        return ib.let("line", side)

    def _merge_two(self, source: Any, low: Any, middle: Any, high: Any) -> None:
        """Merge two runs without branches, which would be unpredictable."""
        ib, state = self.ib, self.state
        left, right, out = (state[i] for i in range(3, 6))
        state[3] = low
        state[4] = middle
        state[5] = low
        with ib.while_loop(ops.logical_and(ops.less(left, middle), ops.less(right, high))):
            ends = [[ib.let("end", x[self.row, source, at]) for at in (right, left)] for x in self.lines]
            first = ib.let("first", ops.less(*ends[0]))
            for line, (a, b) in zip(self.lines, ends, strict=True):
                line[self.row, 1 - source, out] = ops.select(first, a, b)
            taken = ib.let("taken", ops.cast(INT32, first))
            state[3] = left + 1 - taken
            state[4] = right + taken
            state[5] = out + 1
        for run, end in ((left, middle), (right, high)):
            rest, place = ib.let("rest", run), ib.let("place", out)
            with ib.for_range(0, end - rest, "k") as k:
                self.move((1 - source, place + k), (source, rest + k))
            state[5] = place + ops.max_of(end - rest, 0)


class _Task:
    """Rows of the last dimension, and the results for the first `count` elements in order: values, indices, or both.

    If the indices are known the values are read there; otherwise they are computed from their keys.
    """

    def __init__(
        self, name: str, x: te.Tensor, ascending: bool, count: Any, values: bool, places: DataType | None
    ) -> None:
        self.name, self.x, self.count, self.values, self.places = name, x, count, values, places
        self.n, self.rows = x.shape[-1], prod(x.shape[:-1])
        self.order = _Order(x.dtype, ascending)

    def extern(self, inputs: list[te.Tensor], room: Any, of_row: Callable[..., Any]) -> list[te.Tensor]:
        """The results, as many of each row as there are: `of_row(ib, ins, row, source, lines)` sorts into the scratch.

        It gives the line in which entry k then is, as a function of k, and their number.
        """
        kinds = ([self.x.dtype] if self.values else []) + ([self.places] if self.places is not None else [])
        scratch = [self.order.key] + ([INT32] if self.places is not None else [])

        def build(ins: Any, outs: Any) -> Any:
            ib = ir_builder.create()
            source = ib.buffer_ptr(ins[0], (self.rows, self.n))
            results = [ib.buffer_ptr(b, (self.rows, self.count)) for b in outs[: len(kinds)]]
            lines = [ib.buffer_ptr(b, (self.rows, 2, room)) for b in outs[len(kinds) :]]
            with ib.for_range(0, self.rows, "row", kind="parallel") as row:
                line, number = of_row(ib, ins, row, source, lines)
                with ib.for_range(0, number, "k") as k:
                    if self.places is None:
                        results[0][row, k] = self.order.back(lines[0][row, line(k), k])
                    else:
                        place = ib.let("place", lines[1][row, line(k), k])
                        results[-1][row, k] = ops.cast(self.places, place)
                        if self.values:
                            results[0][row, k] = source[row, place]
            return ib.get()

        shapes = [(*self.x.shape[:-1], self.count)] * len(kinds)
        shapes += [(self.rows, 2, room)] * len(scratch)
        return extern(self.name, shapes, inputs, build, [*kinds, *scratch])[: len(kinds)]

    def put(self, lines: list[Any], row: Any, at: Any, element: Any, place: Any) -> None:
        """An element and its place as entry `at` of line 0."""
        lines[0][row, 0, at] = self.order.of(element, self.places is None)
        if self.places is not None:
            lines[1][row, 0, at] = ops.cast(INT32, place)


def _sorted(task: _Task, lengths: te.Tensor | None = None) -> list[te.Tensor]:
    """By a stable merge sort, rows in parallel. With `lengths`, only so many elements of each row are sorted."""

    def of_row(ib: Any, ins: Any, row: Any, source: Any, lines: list[Any]) -> Any:
        with ib.for_range(0, task.n, "k") as k:
            task.put(lines, row, k, source[row, k], k)
        size = ops.cast(INT32, task.n)
        if lengths is not None:
            told = ib.buffer_ptr(ins[1], (task.rows,))[row]
            size = ib.let("size", ops.cast(INT32, ops.max_of(ops.min_of(told, size), 0)))
        line = _Row(ib, row, lines).sort(size)
        # What lies behind the sorted part was never moved from line 0.
        within = lambda k: line if lengths is None else ops.select(ops.less(k, size), line, 0)
        return within, task.count

    return task.extern([task.x] if lengths is None else [task.x, lengths], task.n, of_row)


def argsort_above(
    data: te.Tensor, least: Callable[[Any, Any], PrimExpr], inputs: list[te.Tensor]
) -> te.Tensor:
    """The int32 indices of the elements above `least(ib, ins)` in each row, the greatest first; the rest is undefined.

    `ins` are the buffers of the data and of `inputs`.
    """
    if is_empty_shape(data.shape):
        return _nothing(data.shape, [INT32], "argsort_above")[0]
    task = _Task("argsort_above", data, False, data.shape[-1], False, INT32)

    def of_row(ib: Any, ins: Any, row: Any, source: Any, lines: list[Any]) -> Any:
        used = ib.allocate("int32", (1,), "used", scope="local")
        used[0] = 0
        bar = ib.let("bar", least(ib, ins))
        with ib.for_range(0, task.n, "k") as k:
            task.put(lines, row, used[0], source[row, k], k)
            used[0] = used[0] + ops.cast(INT32, ops.greater(source[row, k], bar))
        line = _Row(ib, row, lines).sort(ib.let("size", used[0]))
        return lambda k: line, used[0]

    return task.extern([data, *inputs], task.n, of_row)[0]


def _selected(task: _Task) -> list[te.Tensor]:
    """As `_sorted`, for a count that is small relative to the rows: only candidates are sorted.

        best  . . . . . . worst | candidates . . . free
                                ^ count            ^ room

    An element that does not come before the worst of the best ones so far is passed over, many at a time.
    The others queue up as candidates; when there is no room for more, best ones and candidates are sorted.
    """
    count, room, size = task.count, _room(task.count), ops.cast(INT32, task.n)

    def of_row(ib: Any, ins: Any, row: Any, source: Any, lines: list[Any]) -> Any:
        work = _Row(ib, row, lines)
        at = ib.allocate("int32", (3,), "at", scope="local")
        upcoming, used, hits = (at[i] for i in range(3))
        at[0] = 0
        at[1] = 0
        with ib.while_loop(ops.less(upcoming, size)):
            full = ib.let("full", ops.greater(upcoming, 0))  # else there is no worst one yet
            worst = ib.let(
                "worst", ops.if_then_else(full, lines[0][row, 0, count - 1], te.const(0, task.order.key))
            )

            def fits(element: Any, full: Any = full, worst: Any = worst) -> Any:
                better = ops.less(task.order.of(element, task.places is None), worst)
                return ops.cast(INT32, ops.logical_or(ops.logical_not(full), better))

            with ib.while_loop(
                ops.logical_and(ops.less(upcoming, size), ops.less_equal(used, room - _BLOCK))
            ):
                begin = ib.let("begin", upcoming)
                length = ib.let("length", ops.min_of(size - begin, _BLOCK))
                at[2] = 0
                with ib.for_range(0, length, "k") as k:
                    at[2] = ops.bitwise_or(hits, fits(source[row, begin + k]))
                with ib.if_scope(ops.greater(hits, 0)), ib.for_range(0, length, "k") as k:
                    task.put(lines, row, used, source[row, begin + k], begin + k)
                    at[1] = used + fits(source[row, begin + k])
                at[0] = begin + length
            line = work.sort(ib.let("filled", used))
            at[1] = ops.min_of(used, count)
            with ib.if_scope(ops.equal(line, 1)), ib.for_range(0, used, "k") as k:
                work.move((0, k), (1, k))
        return lambda k: 0, count

    return task.extern([task.x], room, of_row)


def _room(count: int) -> int:
    """The capacity of a selection: each time it is sorted, about half of the elements may be new."""
    return max(2 * count, count + 2 * _BLOCK)


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
        return _sorted(_Task("sort", x, bool(is_ascend), x.shape[-1], True, None))

    return _along("sort", data, axis, work)[0]


def argsort(
    data: te.Tensor,
    valid_count: te.Tensor | None = None,
    axis: int = -1,
    is_ascend: Any = 1,
    dtype: str = "float32",
) -> te.Tensor:
    """The indices of the elements along `axis` in the order of their values (stable).

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
        return _sorted(_Task("argsort", t, bool(is_ascend), t.shape[-1], False, kind), valid_count)

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
        some = isinstance(count, int) and not (isinstance(size, int) and size < 2 * _room(count))
        task = _Task("topk", t, bool(is_ascend), count, values, kind if places else None)
        return _selected(task) if some else _sorted(task)

    made = _along("topk", x, axis, work)
    return made if ret_type == "both" else made[0]


# ---------------------------------------------------------------------------- unique
def _differ(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """Whether two elements differ; all NaN are equal."""
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
    """The index at which to insert each value so that the sequence stays sorted: before equal elements, or after them.

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
