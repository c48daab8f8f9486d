"""Checks of data: indices in bounds, divisors other than 0; the data is returned unchanged.

for k in range(n):                      # vectorised, shared by threads where there is much
    out[k] = x[k]
    bad |= x[k] < low or x[k] > high
if bad:
    for k in range(n):
        if x[k] < low or x[k] > high:
            fail("index {} at position [{}] is out of bounds; …", x[k], k)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import te
from ..ir import ops
from ..ir.dtype import INT64, DataType
from ..ir.expr import PrimExpr, const_value, convert
from ..tir import ir_builder
from . import tag
from .utils import extern, injective, prod, unravel_index

# From this many elements on the check is parallel, in chunks of this many.
_SHARED, _PIECE = 1 << 16, 1 << 14
_EACH = "T_check_each"
_WORDS = {"index": "index", "position": "index", "length": "length"}

Test = Callable[[PrimExpr, int], PrimExpr]
Report = Callable[[PrimExpr, list[PrimExpr], int], PrimExpr]


def check_indices(
    indices: te.Tensor,
    kind: str,
    sizes: Sequence[Any],
    node: str,
    ignored: int | None = None,
    columns: Sequence[int] = (),
    others: Sequence[te.Tensor] = (),
    each: bool = False,
) -> te.Tensor:
    """The indices; the kernel fails if one is out of bounds.

    Legal along a dimension of n elements are -n to n - 1 ("index"), 0 to n - 1 ("position"), 0 to n ("length"), and
    the value `ignored`. If `columns` are given, the sizes belong to these indices of the last dimension, and others are
    not checked; else to those of the first dimension, if there are several. With `each` every element has a check of
    its own, for the threads of a GPU.
    """
    limits = [_bounds(kind, s) for s in sizes]

    def test(value: PrimExpr, g: int) -> PrimExpr:
        bad = _outside(value, *limits[g])
        known = value.dtype
        if ignored is not None and (known.is_float or known.low <= ignored <= known.high):
            bad = ops.logical_and(bad, ops.not_equal(value, te.const(ignored, known)))
        return bad

    def report(value: PrimExpr, at: list[PrimExpr], g: int) -> PrimExpr:
        return ops.fail("index", _outside_text(node, kind, at), value, *at, *limits[g])

    if each:
        return _passed_each(indices, limits, columns, test, _outside_text(node, kind, indices.shape))
    return _passed("check_indices", indices, others, len(limits), columns, test, report)


def _passed_each(
    indices: te.Tensor, limits: Sequence[Any], columns: Sequence[int], test: Test, message: str
) -> te.Tensor:
    """The indices as they are, one element at a time."""
    several = len(limits) > 1 or bool(columns)

    def element(*at: Any) -> PrimExpr:
        value, which = indices(*at), at[-1 if columns else 0] if several else 0
        low, high = _of_group(limits, columns, which)
        groups = (
            [ops.equal(which, columns[g] if columns else g) for g in range(len(limits))] if several else []
        )
        tests = [test(value, g) for g in range(len(limits))]
        bad = ops.any(*map(ops.logical_and, groups, tests)) if several else tests[0]
        return ops.checked(value, ops.logical_not(bad), "value", message, value, *at, low, high)

    return injective("check_indices", indices.shape, element, tag.ELEMWISE)


def _of_group(limits: Sequence[Any], columns: Sequence[int], which: Any) -> tuple[Any, Any]:
    """The least and the greatest legal index of the group to which an element belongs."""
    low, high = limits[0]
    for g, (least, most) in enumerate(limits[1:], 1):
        number = columns[g] if columns else g
        low, high = (ops.select(ops.equal(which, number), n, old) for n, old in ((least, low), (most, high)))
    return low, high


def check_each(indices: te.Tensor, kind: str, sizes: Sequence[Any], node: str) -> te.Tensor:
    """The non-negative indices, each checked where it is read, as part of the consumer.

    Several sizes belong to the indices of the first dimension.
    """
    limits = [_bounds(kind, s) for s in sizes]
    message = _outside_text(node, kind, indices.shape)

    def element(*at: Any) -> PrimExpr:
        if len(sizes) == 1:
            return checked_index(indices(*at), sizes[0], node, at, kind)
        value = _widened(indices(*at), *sizes)
        several = not any(n is not None and n < 2 for n in map(_known, sizes))
        return _checked_place(value, kind, *_of_group(limits, (), at[0]), message, at, several)

    return injective("check_each", indices.shape, element, tag.ELEMWISE, _EACH)


def is_checked(indices: te.Tensor) -> bool:
    """Whether indices are checked where they are read, so that each read of an empty tensor fails too."""
    return indices.op.name == _EACH


def checked_index(index: PrimExpr, size: Any, node: str, at: Sequence[Any], kind: str = "index") -> PrimExpr:
    """The non-negative index of an index at a position, checked as part of the consumer."""
    low, high = _bounds(kind, size)
    known = _known(size)
    message, several = _outside_text(node, kind, at), known is None or known > 1
    return _checked_place(_widened(index, size), kind, low, high, message, at, several)


def checked_position(index: PrimExpr, size: int, node: str, at: Sequence[Any], ignored: int) -> PrimExpr:
    """The element that is read for an index, which must be in bounds; 0 for an ignored one."""
    place = _widened(index, size)
    kind, (low, high) = place.dtype, _bounds("position", size)
    if kind.low <= ignored <= kind.high:
        place = ops.select(ops.equal(place, te.const(ignored, kind)), te.const(0, kind), place)
    return _checked_place(place, "position", low, high, _outside_text(node, "position", at), at)


def check_run(ib: Any, indices: Any, first: Any, count: Any, size: Any, node: str) -> None:
    """Statements that fail if one of several consecutive indices in a list is out of bounds."""
    low, high = _bounds("position", size)
    bad = ib.allocate("int32", (1,), "bad", scope="local")
    bad[0] = 0
    with ib.for_range(0, count, "k") as k:
        bad[0] = ops.bitwise_or(bad[0], ops.cast("int32", _outside(indices[first + k], low, high)))
    with ib.if_scope(ops.not_equal(bad[0], 0)), ib.for_range(0, count, "k") as k:
        at = ib.let("at", first + k)
        with ib.if_scope(_outside(indices[at], low, high)):
            ib.emit(ops.fail("index", _outside_text(node, "position", [at]), indices[at], at, low, high))


def _widened(index: PrimExpr, *sizes: Any) -> PrimExpr:
    return ops.cast(place_type(index.dtype, sizes), index)


def _known(size: Any) -> float | None:
    return const_value(convert(size))


def place_type(kind: DataType, sizes: Sequence[Any]) -> DataType:
    """A type that can hold an index and its sizes, some of which may be dynamic."""
    known = list(map(_known, sizes)) or [None]
    narrow = kind.bits < 32 or (kind.bits == 32 and any(n is None or n > kind.high for n in known))
    return INT64 if narrow else kind


def _checked_place(
    value: PrimExpr, kind: str, low: Any, high: Any, message: str, at: Sequence[Any], several: bool = True
) -> PrimExpr:
    """A non-negative index into a dimension that has several elements, or at most one."""
    place, unsigned, size = value, f"uint{value.dtype.bits}", ops.cast(value.dtype, ops.add(high, 1))
    if kind == "index" and not value.dtype.is_uint:
        place = ops.select(ops.less(value, te.const(0, value.dtype)), ops.add(value, size), value)
    if not several:  # with one element the index would not be read, nor checked
        good = ops.logical_not(_outside(value, low, high))
        return ops.checked(place, good, "value", message, value, *at, low, high)
    # one unsigned comparison: negative values are large, and no value is below a size of 0
    good = ops.less(ops.cast(unsigned, place), ops.cast(unsigned, size))
    return ops.checked(place, good, "index", message, value, *at, low, high)


def check_divisor(divisor: te.Tensor, node: str) -> te.Tensor:
    """The divisor, of which no element is 0: each is checked where it is read."""
    message = (
        f"{_plain(node)}: the divisor{_position(divisor.shape)} is 0, and integers cannot be divided by 0"
    )

    def element(*at: Any) -> PrimExpr:
        value = divisor(*at)
        return ops.checked(value, ops.not_equal(value, te.const(0, value.dtype)), "divisor", message, *at)

    return injective("check_divisor", divisor.shape, element, tag.ELEMWISE)


def _bounds(kind: str, size: Any) -> tuple[Any, Any]:
    known = const_value(convert(size))
    n = size if known is None else int(known)
    low = ops.sub(0, n) if kind == "index" else 0
    high = n if kind == "length" else ops.sub(n, 1)
    return low, high


def _outside(value: PrimExpr, low: Any, high: Any) -> PrimExpr:
    """Whether a value is illegal; bounds outside the range of its type are not tested."""
    kind = value.dtype
    if kind.is_float:  # written so that NaN is outside
        inside = ops.logical_and(
            ops.greater_equal(value, ops.cast(kind, low)), ops.less_equal(value, ops.cast(kind, high))
        )
        return ops.logical_not(inside)
    tests = []
    for bound, test, top in ((low, ops.less, False), (high, ops.greater, True)):
        known = const_value(convert(bound))
        if known is not None and (known < kind.high if top else known > kind.low):
            tests.append(
                test(value, te.const(int(known), kind)) if known >= kind.low else te.const(True, "bool")
            )
        elif known is None and not (kind.is_uint and kind.bits == 64):
            tests.append(test(ops.cast("int64", value), ops.cast("int64", bound)))
        elif known is None and top:
            tests.append(ops.less(bound, 0))  # of an empty tensor
            tests.append(test(value, ops.cast(kind, ops.max_of(bound, 0))))
    return ops.any(*tests) if tests else te.const(False, "bool")


def _passed(
    name: str,
    x: te.Tensor,
    others: Sequence[te.Tensor],
    groups: int,
    columns: Sequence[int],
    test: Test,
    report: Report,
) -> te.Tensor:
    """A copy of `x` with one test for each group; the first illegal element is reported."""
    shape = list(x.shape)
    total = prod(shape)
    each = ops.floordiv(total, shape[-1] if columns else groups)
    known = const_value(each)
    pieces = -(-int(known) // _PIECE) if known is not None and known >= _SHARED else 0

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        source, result = (ib.buffer_ptr(b, (total,)) for b in (ins[0], outs[0]))

        def place(g: int, k: Any) -> PrimExpr:
            return ops.add(ops.mul(k, shape[-1]), columns[g]) if columns else ops.add(ops.mul(each, g), k)

        def look(g: int, first: Any, count: Any, bad: Any) -> None:
            bad[0] = 0
            with ib.for_range(0, count, "k") as k:
                at = place(g, ops.add(first, k))
                if not columns:
                    result[at] = source[at]
                bad[0] = ops.bitwise_or(bad[0], ops.cast("int32", test(source[at], g)))

        if columns:
            with ib.for_range(0, total, "i") as i:
                result[i] = source[i]
        for g in range(groups):
            bad = ib.allocate("int32", (1,), f"bad{g}", scope="local")
            if pieces:
                seen = ib.allocate("int32", (pieces,), f"seen{g}")
                with ib.for_range(0, pieces, "piece", kind="parallel") as piece:
                    own, first = ib.allocate("int32", (1,), "own", scope="local"), ops.mul(piece, _PIECE)
                    look(g, first, ops.min_of(_PIECE, ops.sub(each, first)), own)
                    seen[piece] = own[0]
                bad[0] = 0
                with ib.for_range(0, pieces, "piece") as piece:
                    bad[0] = ops.bitwise_or(bad[0], seen[piece])
            else:
                look(g, 0, each, bad)
            with ib.if_scope(ops.not_equal(bad[0], 0)), ib.for_range(0, each, "k") as k:
                at = place(g, k)
                with ib.if_scope(test(source[at], g)):
                    ib.emit(report(source[at], unravel_index(at, shape), g))
        return ib.get()

    return extern(name, [shape], [x, *others], build, [x.dtype])[0]


def _outside_text(node: str, kind: str, at: Sequence[Any]) -> str:
    return f"{_plain(node)}: {_WORDS[kind]} {{}}{_position(at)} is out of bounds; the legal range is {{}} to {{}}"


def _position(at: Sequence[Any]) -> str:
    return f" at position [{', '.join(['{}'] * len(at))}]" if at else ""


def _plain(node: str) -> str:
    """The name of a node without placeholders of messages, truncated."""
    return node.replace("{", "(").replace("}", ")").replace("\0", " ")[:300]
