"""SimplifyExpr: removal of inverse or repeated operators, and of arithmetic identities."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from .. import op as R
from ..expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, const
from ..op.index import slice_rows
from ..op.traits import traits_of
from ..qnn import op as Q
from .rewriting import (
    Mutator,
    by_operator,
    is_call,
    ndim_of,
    shape_of,
    static_shape,
    tensor_type,
    type_of,
    typed_pass,
)


def simplify_expr(func: Function) -> Function:
    """Simplify expressions.

        reshape(reshape(%x, …), s)           ->   reshape(%x, s); %x itself where it has that shape
        transpose(transpose(%x, p), q)       ->   transpose(%x, p∘q), or %x
        layout_transform there and back      ->   %x; with transposes around it, one of them
        cast(cast(%x, "float64"), "float32") ->   cast(%x, "float32"), or %x
        %x * 1, %x + 0, %x - 0, %x / 1       ->   %x
        add(%x, ones(shape=…))               ->   add(%x, 1)
        concatenate(split(%x)), full slices  ->   %x
        clip(clip(%x)), relu(relu(%x))       ->   one of them
        clip of all that the type has        ->   %x
        cast(cast(clip(%x), u8), i8)         ->   cast(clip(%x), i8), where the bounds are in u8
        argmax(qnn.dequantize(%x, …))        ->   argmax(%x)
        zeros_like(%x), reshape_like(%x, %y) ->   zeros(shape=…), reshape(%x, …), where the sizes are known

    No rewrite changes rounding: only integer constants are combined across calls.
    """
    return _Simplify().visit(func)


class _Simplify(Mutator):
    def visit_call(self, call: Call) -> Any:
        made: Any = super().visit_call(call)
        for _ in range(8):  # another rule may apply to the result
            new = next((n for rule in _rules(made) if (n := rule(made)) is not None), None)
            if new is None:
                break
            made = new
        return made

    def visit_tuple_getitem(self, op: TupleGetItem) -> Any:
        value = self.visit(op.tuple_value)
        return value.fields[op.index] if isinstance(value, Tuple) else super().visit_tuple_getitem(op)


def _same_type(a: Any, b: Any) -> bool:
    """Whether two tensors provably have the same type: unknown sizes are never equal."""
    p, q = tensor_type(a), tensor_type(b)
    return p is not None and q is not None and static_shape(a) is not None and p == q


# ---------------------------------------------------------------------------- shapes
def _reshape(at: Call) -> Expr | None:
    """Chains of operators that keep the order of the elements."""
    below = at.args[0]
    while traits_of(below).view:
        below = below.args[0]  # type: ignore[attr-defined]
    if _same_type(at, below):
        return below
    shape = static_shape(at)
    if below is at.args[0] or shape is None:
        return None
    return R.reshape(below, newshape=shape, allowzero=0 in shape)


def _order(at: Call) -> tuple[int, ...]:
    ndim = ndim_of(at)
    return tuple(a % ndim for a in at.attrs.axes) if at.attrs.axes else tuple(reversed(range(ndim)))


def _transpose(at: Call) -> Expr | None:
    below: Any = at.args[0]
    order = _order(at)
    if order == tuple(range(len(order))):
        return below  # type: ignore[no-any-return]
    inner = _permutation(below)
    if inner is not None:
        return R.transpose(below.args[0], axes=[inner[d] for d in order])
    if is_call(below, R.layout_transform) and below.attrs.dst_layout.isalpha():
        names = "".join(below.attrs.dst_layout[d] for d in order)
        return R.layout_transform(below.args[0], src_layout=below.attrs.src_layout, dst_layout=names)
    return None


def _permutation(expr: Any) -> tuple[int, ...] | None:
    """The order of the dimensions if an expression only permutes them: a transpose, or another plain layout."""
    if is_call(expr, R.transpose):
        return _order(expr)
    if not is_call(expr, R.layout_transform):
        return None
    source, target = expr.attrs.src_layout, expr.attrs.dst_layout
    plain = source.isalpha() and sorted(source) == sorted(target)
    return tuple(map(source.index, target)) if plain else None


def _layout_transform(at: Call) -> Expr | None:
    below = at.args[0]
    if at.attrs.src_layout == at.attrs.dst_layout:
        return below
    if is_call(below, R.transpose) and at.attrs.src_layout.isalpha():
        order, outer = _order(below), _permutation(at)
        if outer is not None:
            return R.transpose(below.args[0], axes=[order[d] for d in outer])
        names = dict(zip(order, at.attrs.src_layout, strict=True))
        source = "".join(names[d] for d in range(len(order)))
        return R.layout_transform(below.args[0], src_layout=source, dst_layout=at.attrs.dst_layout)
    if not is_call(below, R.layout_transform) or below.attrs.dst_layout != at.attrs.src_layout:
        return None
    origin, between = below.args[0], tensor_type(below)
    have, now = static_shape(origin), static_shape(below)
    if have is None or now is None or between is None or math.prod(have) != math.prod(now):
        return None  # padded to whole blocks in between
    if below.attrs.src_layout == at.attrs.dst_layout:
        return origin
    return R.layout_transform(
        origin,
        src_layout=below.attrs.src_layout,
        dst_layout=at.attrs.dst_layout,
    )


def _broadcast_to(at: Call) -> Expr | None:
    below = at.args[0]
    if _same_type(at, below):
        return below
    if is_call(below, R.broadcast_to):
        return R.broadcast_to(below.args[0], **dict(at.attrs.items()))
    return None


def _concrete(at: Call) -> Expr | None:
    """An operator that takes a shape or a type from another tensor, with that as its attribute."""
    shape, dtype = static_shape(at), str(type_of(at).dtype)
    if shape is None:
        return None
    if is_call(at, R.zeros_like):
        return R.zeros(shape, dtype)
    if is_call(at, R.ones_like):
        return R.ones(shape, dtype)
    if is_call(at, R.full_like):
        return R.full(at.args[1], shape, dtype)
    if is_call(at, R.collapse_sum_like):
        return _no_op(at) or R.collapse_sum_to(at.args[0], shape)
    if is_call(at, R.broadcast_to_like):
        return _no_op(at) or R.broadcast_to(at.args[0], shape)
    return R.reshape(at.args[0], shape) if is_call(at, R.reshape_like) else None


def _no_op(at: Call) -> Expr | None:
    """A repetition by 1, or a full slice."""
    return at.args[0] if _same_type(at, at.args[0]) else None


def _full_slice(at: Call) -> Expr | None:
    below = at.args[0]
    steps = at.attrs.strides or (1,)
    if any(s != 1 for s in steps):
        return None
    if _same_type(at, below):
        return below
    return _slice_of_concatenate(at)


def _slice_of_concatenate(at: Call) -> Expr | None:
    """A slice that is exactly one operand of a concatenation."""
    below = at.args[0]
    if not is_call(below, R.concatenate) or at.attrs.slice_mode != "end":
        return None
    whole, parts = static_shape(below), below.args[0]
    if whole is None or not isinstance(parts, Tuple):
        return None
    axis = below.attrs.axis % len(whole)
    low, high = 0, whole[axis]
    for d, row in enumerate(slice_rows(at.attrs, whole)):
        begin, end, _ = slice(*row).indices(whole[d])
        if d == axis:
            low, high = begin, end
        elif (begin, end) != (0, whole[d]):
            return None
    start = 0
    for part in parts.fields:
        size = shape_of(part)[axis]
        if (start, start + size) == (low, high):
            return part
        start += size
    return None


def _concatenate(at: Call) -> Expr | None:
    parts = at.args[0]
    whole = _all_parts(parts)
    if is_call(whole, R.split):
        return whole.args[0] if _same_axis(at, whole) else None
    if not isinstance(parts, Tuple):
        return None
    if len(parts.fields) == 1:
        return parts.fields[0]
    return _concatenate_of_slices(at, parts.fields)


def _all_parts(parts: Any) -> Any:
    """The tuple whose fields these are, all and in order: (t.0, t.1, …) is t."""
    first = parts.fields[0] if isinstance(parts, Tuple) and parts.fields else None
    if not isinstance(first, TupleGetItem):
        return parts
    whole = first.tuple_value
    if len(type_of(whole).fields) != len(parts.fields):
        return parts
    same = all(
        isinstance(f, TupleGetItem) and f.tuple_value is whole and f.index == i
        for i, f in enumerate(parts.fields)
    )
    return whole if same else parts


def _same_axis(at: Call, split: Call) -> bool:
    ndim = ndim_of(split.args[0])
    return bool(at.attrs.axis % ndim == split.attrs.axis % ndim)


def _concatenate_of_slices(at: Call, parts: Sequence[Expr]) -> Expr | None:
    """Consecutive slices that cover the whole tensor."""
    first = parts[0]
    if not is_call(first, R.strided_slice):
        return None
    origin = first.args[0]
    whole = static_shape(origin)
    if whole is None:
        return None
    axis, at_now = at.attrs.axis % len(whole), 0
    for part in parts:
        if not is_call(part, R.strided_slice) or part.args[0] is not origin:
            return None
        attrs: Any = part.attrs
        if attrs.slice_mode != "end" or any(s != 1 for s in attrs.strides or (1,)):
            return None
        for d, (size, row) in enumerate(zip(whole, slice_rows(attrs, whole), strict=True)):
            begin, end, _ = slice(*row).indices(size)
            if d != axis and (begin, end) != (0, size):
                return None
            if d == axis:
                if begin != at_now:
                    return None
                at_now = end
    return origin if at_now == whole[axis] else None


# ---------------------------------------------------------------------------- element types
def _lossless(source: Any, target: Any) -> bool:
    """Whether every value of one type is one of the other."""
    if source == target:
        return True
    if source == "bool":
        return True
    if source.is_float and target.is_float:
        exact = {
            "float16": ("float32", "float64"),
            "bfloat16": ("float32", "float64"),
            "float32": ("float64",),
        }
        return str(target) in exact.get(str(source), ())
    signed, other = source.is_int, target.is_int
    if source.is_float or target == "bool":
        return False
    if target.is_float:
        digits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}.get(str(target), 0)
        return bool(source.bits - signed <= digits)
    if signed == other:
        return bool(source.bits <= target.bits)
    return bool(not signed and source.bits < target.bits)


def _cast(at: Call) -> Expr | None:
    below, kind = at.args[0], type_of(at).dtype
    if type_of(below).dtype == kind:
        return below
    if is_call(at, R.cast_like):
        return R.cast(below, dtype=kind)
    if is_call(below, R.cast):
        origin = below.args[0]
        between = type_of(below).dtype
        if _lossless(type_of(origin).dtype, between) or _clipped_to(origin, between, kind):
            return R.cast(origin, dtype=kind)
    return None


def _bounds(kind: Any) -> tuple[int, int] | None:
    """The least and the greatest number of an integer type."""
    if not (kind.is_int or kind.is_uint) or kind == "bool":
        return None
    return (-(1 << kind.bits - 1), (1 << kind.bits - 1) - 1) if kind.is_int else (0, (1 << kind.bits) - 1)


def _clipped_to(expr: Any, between: Any, kind: Any) -> bool:
    """Whether clipped numbers lose nothing in an integer type on the way to another one; a fraction is cut off by
    either."""
    bounds = _bounds(between)
    if bounds is None or not is_call(expr, R.clip):
        return False
    inside = bounds[0] <= expr.attrs.a_min and expr.attrs.a_max <= bounds[1]
    whole = _bounds(type_of(expr).dtype) is not None
    if kind.bits > between.bits < type_of(expr).dtype.bits:
        return False  # a tensor between two kernels is best kept in the narrow type
    return bool(inside and (whole or (_lossless(between, kind) and _bounds(kind) is not None)))


# ---------------------------------------------------------------------------- arithmetic
def _filled(expr: Any) -> float | int | None:
    """The common value of all elements, if known."""
    if isinstance(expr, Constant):
        values = expr.numpy()
        if values.size == 0 or values.size > 1 << 16:
            return None
        first = values.reshape(-1)[0]
        return first.item() if bool((values == first).all()) else None
    if is_call(expr, R.full_like):
        return _filled(expr.args[1])
    if is_call(expr, R.full, R.broadcast_to, R.broadcast_to_like) or traits_of(expr).view:
        return _filled(expr.args[0])
    return traits_of(expr).fill


def _neutral(at: Call) -> Expr | None:
    """x, if the other operand is the identity, such as x + 0."""
    value = traits_of(at).neutral
    for kept, other in (at.args, at.args[::-1]) if traits_of(at).commutes else (at.args,):
        if value is not None and _filled(other) == value and _same_type(at, kept):
            return kept
    return None


def _one_number(at: Call) -> Expr | None:
    """A constant-filled operand as a scalar."""
    for i, operand in enumerate(at.args):
        if not _is_filled(operand):
            continue
        value = _filled(operand)
        other = at.args[1 - i]
        if value is None or not _same_shape(at, other) or _is_filled(other):
            continue
        args = list(at.args)
        args[i] = const(value, str(type_of(operand).dtype))
        return at.over(args)
    return None


def _is_filled(e: Any) -> bool:
    return traits_of(e).fill is not None or is_call(e, R.full, R.full_like)


def _same_shape(a: Any, b: Any) -> bool:
    return static_shape(a) is not None and static_shape(a) == static_shape(b)


def _sum_of_constants(at: Call) -> Expr | None:
    """(x + a) + b as x + (a + b), for integers; also where b is a bias."""
    below, last = at.args
    if not isinstance(last, Constant) or not is_call(below, R.add) or type_of(at).dtype.is_float:
        return None
    inner, first = below.args
    if not isinstance(first, Constant):
        return None
    added = last.numpy()
    if is_call(at, R.nn.bias_add):
        behind = ndim_of(at) - 1 - at.attrs.axis % ndim_of(at)
        added = added.reshape(-1, *[1] * behind)
    total = first.numpy() + added
    made = R.add(inner, const(total, str(type_of(at).dtype)))
    return made if _same_type(made, at) else None


def _clip(at: Call) -> Expr | None:
    below, low, high = at.args[0], at.attrs.a_min, at.attrs.a_max
    every = _bounds(type_of(at).dtype)
    if every is not None and low <= every[0] and every[1] <= high:
        return below  # type: ignore[no-any-return]
    if is_call(below, R.clip):
        a, b = below.attrs.a_min, below.attrs.a_max
        # min(max(x, a), b) and then (low, high): inner bounds are themselves clipped by the outer ones.
        bounds = (min(max(a, low), high), min(max(b, low), high))
        return R.clip(below.args[0], a_min=bounds[0], a_max=bounds[1])
    if is_call(below, R.nn.relu) and low <= 0 <= high:
        return R.clip(below.args[0], a_min=0.0, a_max=high)
    if is_call(below, R.nn.relu) and low == 0:
        return R.clip(below.args[0], a_min=low, a_max=high)
    return None


def _repeated(at: Call) -> Expr | None:
    """relu(relu(x)), abs(abs(x)), floor(floor(x)), …"""
    below = at.args[0]
    return below if isinstance(below, Call) and below.op is at.op else None


def _twice(at: Call) -> Expr | None:
    """-(-x), not not x."""
    below = at.args[0]
    return below.args[0] if isinstance(below, Call) and below.op is at.op else None


def _order_of_integers(at: Call) -> Expr | None:
    """The order of dequantized numbers is that of the integers: a positive scale keeps up to 16 bits apart."""
    below = at.args[0]
    if not is_call(below, Q.dequantize) or type_of(below).dtype.bits < 32:
        return None
    data, *given = below.args
    scale, zero = (_filled(g) if isinstance(g, Constant) else None for g in given)
    if type_of(data).dtype.bits > 16 or scale is None or zero is None:
        return None
    if not 1e-30 < scale < 1e30 or abs(zero) >= 1 << 22:
        return None
    made = at.over([data, *at.args[1:]])
    return made if _same_type(made, at) else None


def _where(at: Call) -> Expr | None:
    found = _filled(at.args[0]) if isinstance(at.args[0], Constant) else None
    if found is None:
        return None
    chosen = at.args[1] if found else at.args[2]
    return chosen if _same_type(at, chosen) else None


Rule = Callable[[Call], Expr | None]
_RULES: Final[dict[Any, Rule]] = by_operator(
    {
        R.transpose: _transpose,
        R.layout_transform: _layout_transform,
        R.broadcast_to: _broadcast_to,
        R.argmax: _order_of_integers,
        R.argmin: _order_of_integers,
        R.argsort: _order_of_integers,
        R.broadcast_to_like: _concrete,
        R.collapse_sum_like: _concrete,
        R.full_like: _concrete,
        R.ones_like: _concrete,
        R.reshape_like: _concrete,
        R.zeros_like: _concrete,
        R.tile: _no_op,
        R.repeat: _no_op,
        R.nn.pad: lambda at: None if any(map(any, at.attrs.pad_width)) else at.args[0],
        R.strided_slice: _full_slice,
        R.slice_like: _no_op,
        R.concatenate: _concatenate,
        R.cast: _cast,
        R.cast_like: _cast,
        R.add: _sum_of_constants,
        R.nn.bias_add: _sum_of_constants,
        R.clip: _clip,
        R.where: _where,
    }
)


def _rules(at: Any) -> Iterator[Rule]:
    """The rules of a call, by the traits of its operator and by name."""
    traits = traits_of(at)
    if traits.view:
        yield _reshape
    if traits.neutral is not None:
        yield _neutral
    if traits.neutral is not None or traits.commutes:
        yield _one_number
    if traits.idempotent:
        yield _repeated
    if traits.involution:
        yield _twice
    if isinstance(at, Call) and at.op in _RULES:
        yield _RULES[at.op]


SimplifyExpr = typed_pass(simplify_expr, name="SimplifyExpr", opt_level=3)
