"""The extent between two bounds, with terms cancelled.

    i*4 : i*4 + 4    ->  4            n + 1 : n + 1 + m   ->  m           (i+1)*4 - i*4   ->  4

Printing writes a range as `start:stop` and parsing must find the same extent again, so both use this.
"""

from __future__ import annotations

from typing import Any

from .equal import structural_equal
from .expr import Add, FloorDiv, IntImm, Mul, PrimExpr, Sub, const
from .ops import add, floordiv, mul, sub


def difference(stop: PrimExpr, start: PrimExpr) -> PrimExpr:
    """`stop - start`, simplified by collecting equal terms."""
    if stop.__class__ is IntImm and start.__class__ is IntImm:
        return sub(stop, start)
    if start.__class__ is IntImm and start.value == 0:  # type: ignore[attr-defined]
        return stop
    if structural_equal(stop, start):
        return const(0, stop.dtype)
    if stop.__class__ is Add and structural_equal(stop.a, start):  # type: ignore[attr-defined]
        return stop.b  # type: ignore[attr-defined, no-any-return]
    if stop.dtype is not start.dtype or not stop.dtype.is_integral or stop.dtype.lanes != 1:
        return sub(stop, start)
    terms: list[tuple[PrimExpr, int]] = []
    constant = _collect(stop, 1, terms) + _collect(start, -1, terms)
    left = [(e, c) for e, c in terms if c]
    if len(left) >= len(terms):
        return sub(stop, start)
    left.sort(key=lambda item: item[1] < 0)
    out: PrimExpr | None = None
    for e, c in left:
        if out is None:
            out = mul(e, const(c, e.dtype))
        elif c < 0:
            out = sub(out, mul(e, const(-c, e.dtype)))
        else:
            out = add(out, mul(e, const(c, e.dtype)))
    if out is None:
        return const(constant, stop.dtype)
    return add(out, const(constant, stop.dtype)) if constant >= 0 else sub(out, const(-constant, stop.dtype))


def stop_after(start: PrimExpr, extent: PrimExpr) -> PrimExpr:
    """The end of a range, from which `difference` finds `extent` again, with constants taken together.

    v - 1, 3  ->  v + 2
    """
    plain = add(start, extent)
    cls = start.__class__
    if extent.__class__ is not IntImm or cls not in (Add, Sub) or start.b.__class__ is not IntImm:  # type: ignore[attr-defined]
        return plain
    offset = start.b.value if cls is Add else -start.b.value  # type: ignore[attr-defined]
    total = offset + extent.value  # type: ignore[attr-defined]
    base: PrimExpr = start.a  # type: ignore[attr-defined]
    try:
        made = add(base, const(total, base.dtype)) if total >= 0 else sub(base, const(-total, base.dtype))
        return made if structural_equal(difference(made, start), extent) else plain
    except ValueError:  # a constant that does not fit its type
        return plain


def _collect(e: Any, scale: int, terms: list[tuple[PrimExpr, int]]) -> int:
    """Add `scale * e` to `terms`; returns its constant part."""
    kind = e.__class__
    if kind is IntImm:
        return scale * int(e.value)
    if kind is Add:
        return _collect(e.a, scale, terms) + _collect(e.b, scale, terms)
    if kind is Sub:
        return _collect(e.a, scale, terms) + _collect(e.b, -scale, terms)
    if kind is Mul and e.b.__class__ is IntImm:
        return _collect(e.a, scale * e.b.value, terms)
    if kind is Mul and e.a.__class__ is IntImm:
        return _collect(e.b, scale * e.a.value, terms)
    for i, (have, c) in enumerate(terms):
        if have is e or (have.__class__ is kind and structural_equal(have, e)):
            terms[i] = (have, c + scale)
            return 0
    if kind is FloorDiv and e.b.__class__ is IntImm and e.b.value > 0:
        whole = _whole_part(e, scale, terms)
        if whole is not None:
            return whole
    terms.append((e, scale))
    return 0


def _whole_part(e: Any, scale: int, terms: list[tuple[PrimExpr, int]]) -> int | None:
    """The terms of `(x*d*k + r) // d` that divide evenly."""
    d = e.b.value
    inner: list[tuple[PrimExpr, int]] = []
    constant = _collect(e.a, 1, inner)
    even = [(t, c // d) for t, c in inner if c % d == 0]
    odd = [(t, c) for t, c in inner if c % d and c]
    if not even and constant // d == 0:
        return None
    rest: PrimExpr = const(constant % d, e.dtype)
    for t, c in odd:
        rest = add(mul(t, const(c, e.dtype)), rest)
    total = scale * (constant // d)
    for t, c in even:
        total += _collect(t, scale * c, terms)
    if odd:
        total += _collect(floordiv(rest, e.b), scale, terms)
    return total
