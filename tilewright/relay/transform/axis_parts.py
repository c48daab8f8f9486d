"""Axes through views: the axes of a result in the tensor that it is a view of (reshapes, transposes, slices, …)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import op as R
from ..expr import Call, Constant, TupleGetItem
from ..op.traits import traits_of
from .rewriting import is_call, static_shape, type_of


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """An axis that a dimension indexes, alone or fused with others.

    It may be one element (`index`) of an axis that the view drops.
    """

    size: int
    index: int | None = None


Dims = tuple[tuple[Part, ...], ...]


@dataclass(frozen=True, slots=True)
class View:
    """An expression, the axes that each of its dimensions indexes (row-major), and a factor."""

    expr: Any
    dims: Dims
    factor: float = 1.0

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(p for d in self.dims for p in d)


def regrouped(parts: Sequence[Part], shape: Sequence[int]) -> Dims | None:
    """Consecutive axes regrouped into dimensions of other sizes; None if an axis would have to be split."""
    left, out = list(parts), []
    for size in shape:
        own: list[Part] = []
        while math.prod(p.size for p in own) < size and left:
            own.append(left.pop(0))
        if math.prod(p.size for p in own) != size:
            return None
        out.append(tuple(own))
    return None if left else tuple(out)


def number_of(expr: Any) -> float | None:
    """The value of a constant scalar of any type and rank; None if the expression is not one."""
    while is_call(expr, R.cast):
        expr = expr.args[0]
    if isinstance(expr, Constant) and math.prod(expr.data.shape) == 1:
        return float(expr.numpy().item())
    return None


# ---------------------------------------------------------------------------- downwards
def source_of(view: View, scaled: bool = True) -> list[View]:
    """The view itself, and its sources step by step; with `scaled`, scalar factors are collected on the way."""
    out = [view]
    while True:
        below = _below(out[-1], scaled)
        if below is None:
            return out
        out.append(below)


def _below(view: View, scaled: bool) -> View | None:
    at = view.expr
    if isinstance(at, TupleGetItem) and is_call(at.tuple_value, R.split):
        return _part_of_split(view, at)
    if not isinstance(at, Call):
        return None
    if is_call(at, R.multiply, R.divide) and scaled:
        return _scaled(view, at, is_call(at, R.divide))
    given = static_shape(at.args[0]) if len(at.args) == 1 else None
    if given is None:
        return None
    if traits_of(at).view:
        dims = regrouped(view.parts, given)
        return None if dims is None else View(at.args[0], dims, view.factor)
    if is_call(at, R.transpose):
        axes = at.attrs.axes or tuple(reversed(range(len(given))))
        dims = tuple(view.dims[list(axes).index(n)] for n in range(len(given)))
        return View(at.args[0], dims, view.factor)
    if is_call(at, R.broadcast_to):
        more = len(view.dims) - len(given)
        kept = [
            () if n == 1 else d for n, d in zip(given, view.dims[more:], strict=True)
        ]  # broadcast dimensions index no axis
        return View(at.args[0], tuple(kept), view.factor)
    if is_call(at, R.strided_slice):
        return _slice(view, at, given)
    return None


def _scaled(view: View, at: Call, divides: bool) -> View | None:
    for a, b in ((at.args[0], at.args[1]), (at.args[1], at.args[0])):
        by = number_of(b)
        if by and by > 0 and type_of(a) == type_of(at):
            return View(a, view.dims, view.factor / by if divides else view.factor * by)
        if divides:
            break
    return None


def _slice(view: View, at: Call, given: tuple[int, ...]) -> View | None:
    made = static_shape(at)
    changed = [d for d, n in enumerate(given) if made is not None and made[d] != n]
    if made is None or len(changed) != 1 or any(s != 1 for s in at.attrs.strides or (1,)):
        return None
    axes = at.attrs.axes if at.attrs.axes is not None else tuple(range(len(at.attrs.begin)))
    place = [a % len(given) for a in axes].index(changed[0])
    begin = at.attrs.begin[place]
    if not isinstance(begin, int):
        return None
    return _chosen(view, at.args[0], changed[0], begin % given[changed[0]], given)


def _part_of_split(view: View, at: TupleGetItem) -> View | None:
    whole: Any = at.tuple_value
    given, own = static_shape(whole.args[0]), static_shape(at)
    places = whole.attrs.indices_or_sections
    if given is None or own is None:
        return None
    axis = whole.attrs.axis % len(given)
    begins = range(0, given[axis], own[axis]) if isinstance(places, int) else (0, *places)
    begin = begins[at.index]
    return _chosen(view, whole.args[0], axis, begin, given) if isinstance(begin, int) else None


def _chosen(view: View, source: Any, axis: int, begin: int, given: tuple[int, ...]) -> View | None:
    """The selection of one of several equal parts of a dimension."""
    size = math.prod(p.size for p in view.dims[axis])
    if given[axis] % size or begin % size:
        return None
    own = (Part(given[axis] // size, begin // size), *view.dims[axis])
    return View(source, (*view.dims[:axis], own, *view.dims[axis + 1 :]), view.factor)


# ---------------------------------------------------------------------------- upwards
def used_as(view: View, user: Call) -> View | None:
    """The view of a reshape or a transpose of a view."""
    made = static_shape(user)
    if made is None or len(user.args) != 1:
        return None
    if traits_of(user).view:
        dims = regrouped(view.parts, made)
        return None if dims is None else View(user, dims, view.factor)
    if is_call(user, R.transpose):
        axes = user.attrs.axes or tuple(reversed(range(len(made))))
        return View(user, tuple(view.dims[n] for n in axes), view.factor)
    return None


# ---------------------------------------------------------------------------- expressions
def shown(expr: Any, shape: Sequence[int]) -> Any:
    """An expression in another shape."""
    return expr if static_shape(expr) == tuple(shape) else R.reshape(expr, newshape=list(shape))


def transposed(expr: Any, order: Sequence[int]) -> Any:
    return expr if list(order) == sorted(order) else R.transpose(expr, axes=list(order))


def ordered(expr: Any, parts: Sequence[Part], wanted: Sequence[Part]) -> Any:
    """An expression with a dimension for each of `parts`, in the order of `wanted`; an axis with one selected element
    is dropped, a missing axis has size 1."""
    gone = [n for n, p in enumerate(parts) if p.index is not None]
    for n in gone:
        index = parts[n].index or 0
        expr = R.strided_slice(expr, begin=[index], end=[index + 1], axes=[n])
    if gone:
        expr = R.squeeze(expr, axis=gone)
    left = [p for p in parts if p.index is None]
    expr = transposed(expr, [left.index(p) for p in wanted if p in left])
    for n, p in enumerate(wanted):
        if p not in left:
            expr = R.expand_dims(expr, axis=n)
    return expr
