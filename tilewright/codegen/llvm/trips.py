"""The work of a parallel loop of dynamic size, known when it is reached: for a small one no threads are woken."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from ...ir.expr import (
    BufferLoad,
    Call,
    Div,
    FloorDiv,
    FloorMod,
    Mod,
    PrimExpr,
    Var,
    const,
    const_value,
)
from ...ir.functor import pre_order, substitute, vars_used
from ...ir.ops import add, cast, mul
from ...ir.stmt import For, IfThenElse, LetStmt, SeqStmt

_UNKNOWN: Final = 8  # trips of a loop whose extent is not known before the parallel loop
_MOST_TERMS: Final = 4
_DIVISIONS: Final = (FloorDiv, FloorMod, Div, Mod)

# A product of dynamic extents, and the operations that are done as many times.
_Terms = dict[tuple[PrimExpr, ...], int]


def operations(loop: For, known: Callable[[Var], bool]) -> PrimExpr | None:
    """About how many operations on scalars or vectors a loop does, as an expression of variables that are `known`
    before it; None if it has no dynamic size.

        for i in parallel(n):
            for j in range(m // 16):                ->      n * (m // 16) * 3
                A[i, j * 16:+16] = B[…] + 1

    Only the innermost nests count, those with the most dynamic sizes.
    """
    terms = _terms(loop, known, {})
    depth = max(map(len, terms), default=0)
    if not depth:
        return None
    total: PrimExpr | None = None
    deepest = sorted(((n, sizes) for sizes, n in terms.items() if len(sizes) == depth), key=lambda t: -t[0])
    for count, sizes in deepest[:_MOST_TERMS]:
        term: PrimExpr = const(count, "int64")
        for size in sizes:
            term = mul(term, cast("int64", size))
        total = term if total is None else add(total, term)
    return total


def _terms(s: Any, known: Callable[[Var], bool], lets: dict[Var, Any]) -> _Terms:
    if isinstance(s, For):
        inner = _terms(s.body, known, lets)
        extent = substitute(s.extent, lets) if lets else s.extent
        trips = const_value(extent)
        # What is read from memory may be written, or allocated, inside.
        if trips is None and all(map(known, vars_used(extent))) and _is_plain(extent):
            return {(*sizes, extent): n for sizes, n in inner.items()}
        times = _UNKNOWN if trips is None else int(trips)
        return {sizes: n * times for sizes, n in inner.items()}
    if isinstance(s, SeqStmt):
        return _sum(_terms(each, known, lets) for each in s.seq)
    if isinstance(s, LetStmt):
        return _terms(s.body, known, {**lets, s.var: substitute(s.value, lets)})
    if isinstance(s, IfThenElse):
        return _sum(_terms(each, known, lets) for each in (s.then_case, s.else_case) if each is not None)
    body = getattr(s, "body", None)
    if body is not None:
        return _terms(body, known, lets)
    return {(): sum(1 for m in pre_order(s) if isinstance(m, PrimExpr) and not isinstance(m, Var))}


def _is_plain(extent: PrimExpr) -> bool:
    """Whether an extent may be evaluated early: without loads and calls, and without divisors that may be 0."""
    return not any(
        isinstance(m, (BufferLoad, Call)) or (isinstance(m, _DIVISIONS) and not const_value(m.b))
        for m in pre_order(extent)
    )


def _sum(parts: Iterable[_Terms]) -> _Terms:
    """The terms of several statements; those of equal extents, node for node, together."""
    out: _Terms = {}
    for part in parts:
        for sizes, n in part.items():
            out[sizes] = out.get(sizes, 0) + n
    return out
