"""Conditions as a conjunction of disjunctions, and without operands that others imply."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from ..ir.expr import And, IntImm, Or, PrimExpr
from .form import reads_state, same
from .logic import FALSE, TRUE, flatten

if TYPE_CHECKING:
    from .analyzer import Analyzer

_MOST: Final = 32  # disjunctions; a condition with more of them stays as it is
_Clause = list[PrimExpr]


def and_of_ors(ana: Analyzer, e: PrimExpr) -> PrimExpr:
    """A condition as a conjunction of disjunctions, without repetitions.

        a or (b and c)      ->      (a or b) and (a or c)

    No operand is evaluated that was not before: one that loads stays behind the operands that guard it.
    """
    clauses = _clauses(e)
    if clauses is None:
        return e
    kept: list[_Clause] = []
    for clause in clauses:
        made = flatten(without_implied(ana, _join(Or, _distinct(clause))), Or)
        if not any(_covers(other, made) for other in kept) and not _merge(ana, kept, made):
            kept.append(made)
    return _join(And, [_join(Or, c) for c in kept])


def _clauses(e: PrimExpr) -> list[_Clause] | None:
    """The disjunctions, or None if there are too many or one would evaluate a load without its guard."""
    if isinstance(e, And):
        a, b = _clauses(e.a), _clauses(e.b)
        return None if a is None or b is None or len(a) + len(b) > _MOST else a + b
    if isinstance(e, Or):
        a, b = _clauses(e.a), _clauses(e.b)
        if a is None or b is None or len(a) * len(b) > _MOST:
            return None
        if len(a) > 1 and any(map(reads_state, flatten(e.a, And)[1:])):
            return None
        return [x + y for x in a for y in b]
    return [[e]]


def _distinct(clause: _Clause) -> _Clause:
    out: _Clause = []
    for x in clause:
        if not _in(x, out):
            out.append(x)
    return out


def _in(x: PrimExpr, clause: _Clause) -> bool:
    return any(same(x, y) for y in clause)


def _covers(a: _Clause, b: _Clause) -> bool:
    """Whether the first disjunction implies the second."""
    return all(_in(x, b) for x in a)


def _merge(ana: Analyzer, kept: list[_Clause], clause: _Clause) -> bool:
    """Join a disjunction to one that differs in one operand: `(a or b) and (a or c)` to `a or d`."""
    for n, other in enumerate(kept):
        mine = [x for x in clause if not _in(x, other)]
        theirs = [x for x in other if not _in(x, clause)]
        if len(mine) == 1 and len(theirs) == 1:
            both = without_implied(ana, And(theirs[0], mine[0]))
            if not isinstance(both, And):
                kept[n] = [both if x is theirs[0] else x for x in other]
                return True
    return False


def without_implied(ana: Analyzer, e: PrimExpr) -> PrimExpr:
    """A conjunction (or disjunction) without the operands that the others decide, whatever their order.

    i != 30 and i == 20      ->      i == 20
    """
    cls = e.__class__
    if cls is not And and cls is not Or:
        return e
    parts = [without_implied(ana, p) for p in flatten(e, cls)]
    n = 0
    while n < len(parts):
        with ana.scope():
            for m, other in enumerate(parts):
                if m < n or (m > n and not reads_state(other)):  # a load does not decide about its guard
                    ana.assume(other, cls is And)
            found: Any = ana.simplify(parts[n])
        if isinstance(found, IntImm):
            if bool(found.value) is not (cls is And):
                return FALSE if cls is And else TRUE
            parts.pop(n)
        else:
            n += 1
    return _join(cls, parts)


def _join(cls: Any, parts: Sequence[PrimExpr]) -> PrimExpr:
    if not parts:
        return TRUE if cls is And else FALSE
    return reduce(cls, parts)
