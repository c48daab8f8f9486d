"""Arithmetic on forms: products, quotients, remainders, minima, each brought to its normal form."""

from __future__ import annotations

from contextlib import suppress
from math import gcd

from ..ir.expr import Mul
from .form import (
    CAST,
    MAX,
    MIN,
    PROD,
    SELECT,
    SPLIT,
    SYMDIV,
    SYMMOD,
    TRUNCDIV,
    TRUNCMOD,
    Atom,
    DoesNotFit,
    Lin,
    constant,
    dtype_of,
    of_atom,
    same,
)
from .prove import Prover

_LEAST = -(1 << 31)  # of the smallest index type; greater values can be negated
_MEETING = frozenset(
    (SYMMOD, MIN, MAX, SELECT, CAST, TRUNCDIV, TRUNCMOD)
)  # atoms that may join others of a sum
_MOST_TERMS = 12  # a product of sums is multiplied out up to this many terms


class Algebra(Prover):
    """The operators of integer arithmetic on forms."""

    # -- sums ------------------------------------------------------------------------------
    def finish(self, terms: dict[Atom, int], const: int) -> Lin:
        """A form from collected terms: adjacent digits of one number are merged."""
        splits = mods = 0
        for a in terms:
            kind = a.kind
            if kind == SPLIT:
                splits += 1
            elif kind in _MEETING:
                mods += 1
        form = Lin(terms, const)
        if splits and (len(terms) > 1 or self.residues):
            form = self._join_digits(form)
        if mods and len(form.terms) + (const != 0) > 1:
            form = self._join_symbolic(form)
            form = self._join_casts(form)
            form = self._join_selects(form)
            form = self._join_extremes(form)
            form = self._push_into_extremes(form)
        return form

    def _join_digits(self, form: Lin) -> Lin:
        """`(x // 4) * 4 + x % 4 -> x`, and the same for digits in between."""
        changed = True
        while changed:
            changed = False
            for a, k in form.terms.items():
                if a.kind != SPLIT:
                    continue
                made = self._joined(form, a, k)
                if made is not None:
                    form, changed = made, True
                    break
        return form

    def _joined(self, form: Lin, a: Atom, k: int) -> Lin | None:
        e, lower, upper = a.args
        for other, c in form.terms.items():
            if c == -k and other.kind == SPLIT and self._single(a).key == self._single(other).key:
                return _replaced(form, (a, other), constant(0))
        if upper is None:
            if self.residues and k % lower == 0:
                c, b = self.residue(e)
                if c % lower == 0:
                    return _replaced(form, (a,), e.shift(-(b % lower)).scale(k // lower))
            return self._joined_quotient(form, a, k) if len(form.terms) > 1 else None
        step = upper // lower
        if lower == 1 and len(form.terms) > 1:
            made = _less_multiple(form, a, e, -k, True)
            if made is not None:  # x - x % 4  ->  x // 4 * 4
                return made + self.div_const(e, upper).scale(-k * upper)
            if upper == 2:
                made = self._joined_parity(form, a, k)
                if made is not None:
                    return made
        for high, c in form.terms.items():
            if high.kind != SPLIT or c != k * step or high.args[1] != upper or high is a:
                continue
            if high.args[0].key == e.key:
                top = high.args[2]
                whole = e if top is None and lower == 1 else of_atom(self.forms.split(e, lower, top))
                return _replaced(form, (a, high), whole.scale(k))
            # a remainder keeps no multiples of its divisor: (x * 32) // 28 * 28 + (x * 4) % 28
            more = high.args[0] - e
            if lower == 1 and more.const % upper == 0 and more.gcd() % upper == 0:
                top = high.args[2]
                whole = high.args[0] if top is None else self.mod_const(high.args[0], top)
                return _replaced(form, (a, high), whole.scale(k))
        if lower == 1:
            return self._joined_inside(form, a, k, upper)
        return None

    def _joined_parity(self, form: Lin, a: Atom, k: int) -> Lin | None:
        """A sum in which `e % 2` meets a neighbour.

        x % 2 + (x + 1) % 2  ->  1
        x // 2 + x % 2       ->  (x + 1) // 2
        (x + 1) // 2 - x % 2 ->  x // 2
        """
        e: Lin = a.args[0]
        for other, c in form.terms.items():
            if other.kind != SPLIT or other is a or abs(c) != abs(k):
                continue
            more = other.args[0] - e
            if c == k and other.args[1:] == (1, 2) and more.const % 2 and more.gcd() % 2 == 0:
                return _replaced(form, (a, other), constant(k))
            if other.args[1:] == (2, None) and not more.terms and more.const % 2 == (c != k):
                half = self.div_const(other.args[0].shift(1 if c == k else -1), 2)
                return _replaced(form, (a, other), half.scale(c))
        return None

    def _joined_quotient(self, form: Lin, a: Atom, k: int) -> Lin | None:
        """A sum in which `e // l` meets its remainder.

        x - x // 3 * 3             -> x % 3
        (x + 2) // 3 - x // 3      -> (x % 3 + 2) // 3
        x // 3 + (x % 3 + 2) // 3  -> (x + 2) // 3
        """
        e, lower, _ = a.args
        if k % lower == 0:
            made = _less_multiple(form, a, e, -k // lower)
            if made is not None:
                return made + self.mod_const(e, lower).scale(-k // lower)
        for other, c in form.terms.items():
            if other.kind != SPLIT or other.args[1] != lower or other.args[2] is not None or other is a:
                continue
            if c == -k:
                more = e - other.args[0]
                if not more.terms and more.const > 0:
                    rest = self.mod_const(other.args[0], lower).shift(more.const)
                    return _replaced(form, (a, other), self.div_const(rest, lower).scale(k))
            elif c == k:
                low = self.forms.find_split(other.args[0], 1, lower)
                if low is not None and e.terms.get(low) == 1:
                    whole = self.div_const(e.without(low) + other.args[0], lower)
                    return _replaced(form, (a, other), whole.scale(k))
        return None

    def _joined_inside(self, form: Lin, a: Atom, k: int, upper: int) -> Lin | None:
        """`((x + y // 4) % 8) * 4 + y % 4 -> (x * 4 + y) % 32`, seen from `y % 4`."""
        low = a.args[0]
        part = self.forms.find_split(low, upper, None)
        if part is None:
            return None
        for high, c in form.terms.items():
            if high.kind != SPLIT or high.args[1] != 1 or high.args[2] is None or c != k * upper:
                continue
            e = high.args[0]
            if e.terms.get(part) == 1:
                whole = e.without(part).scale(upper) + low
                return _replaced(form, (a, high), self.mod_const(whole, high.args[2] * upper).scale(k))
        return None

    def _join_symbolic(self, form: Lin) -> Lin:
        """`(x // n) * n + x % n -> x`, and `x - truncdiv(x, 4) * 4 -> truncmod(x, 4)`."""
        for a, k in form.terms.items():
            if a.kind == TRUNCDIV and not a.args[1].terms and k % a.args[1].const == 0:
                e, times = a.args[0], -k // a.args[1].const
                made = _less_multiple(form, a, e, times)
                if made is not None:
                    return self._join_symbolic(made + self.truncmod(*a.args).scale(times))
            if a.kind != SYMMOD and a.kind != TRUNCMOD:
                continue
            e, d = a.args
            made = _less_multiple(form, a, e, -k, True)
            if made is not None:  # x - x % n  ->  x // n * n
                whole = self.div(e, d) if a.kind == SYMMOD else self.truncdiv(e, d)
                return self._join_symbolic(made + self.mul(whole, d).scale(-k))
            q = self.forms.table.get((SYMDIV if a.kind == SYMMOD else TRUNCDIV, e.key, d.key))
            if q is None:
                continue
            part = self.mul(of_atom(q), d).scale(k)
            if all(form.terms.get(x) == c for x, c in part.terms.items()):
                return self._join_symbolic(_replaced(form, (a, *part.terms), e.scale(k)).shift(-part.const))
        return form

    def _join_casts(self, form: Lin) -> Lin:
        """`int64(i + j + 1) - int64(i) -> int64(j) + 1`: sums leave their casts where that cancels something."""
        casts = [a for a in form.terms if a.kind == CAST]
        if len(casts) < 2:
            return form
        made = Lin({a: c for a, c in form.terms.items() if a.kind != CAST}, form.const)
        for a in casts:
            made = made + (self._cast_sum(a) or of_atom(a)).scale(form.terms[a])
        return made if len(made.terms) < len(form.terms) else form

    def _cast_sum(self, a: Atom) -> Lin | None:
        """The cast of a sum as a sum of casts, if none of them can change a value."""
        e: Lin = a.args[0]
        if any(x.reads for x in e.terms):
            return None  # data wrap around
        if a.dtype.bits < dtype_of(e).bits:
            for part in (e, *[Lin({x: c}, 0) for x, c in e.terms.items()], *map(of_atom, e.terms)):
                low, high = self.bound(part)
                if low < a.dtype.low or high > a.dtype.high:
                    return None
        return Lin({self.forms.cast(a.dtype, of_atom(x)): c for x, c in e.terms.items()}, e.const)

    def _join_selects(self, form: Lin) -> Lin:
        """Selects with one condition are one, and take in what cancels.

        select(c, x, 0) + select(c, 1, y)  ->  select(c, x + 1, y)
        select(c, x, y) - x                ->  select(c, 0, y - x)
        """
        for a, k in form.terms.items():
            if a.kind != SELECT:
                continue
            condition, yes, no, lazy = a.args
            joined = [a]
            moved: dict[Atom, int] = {}
            one, two = yes.scale(k), no.scale(k)
            for x, c in form.terms.items():
                if x is a:
                    continue
                if x.kind == SELECT:
                    if x.args[3] == lazy and same(x.args[0], condition):
                        joined.append(x)
                        one, two = one + x.args[1].scale(c), two + x.args[2].scale(c)
                elif yes.terms.get(x, 0) * k == -c or no.terms.get(x, 0) * k == -c:
                    moved[x] = c
            if len(joined) == 1 and not moved:
                continue
            one, two = (self.finish(*_raw(part + Lin(moved, 0))) for part in (one, two))
            whole = (
                one if one.key == two.key else of_atom(self.forms.select(condition, one, two, a.dtype, lazy))
            )
            made = _replaced(form, (*joined, *moved), whole)
            return self.finish(*_raw(made))
        return form

    def _join_extremes(self, form: Lin) -> Lin:
        """`min(x, y) + max(x, y) -> x + y`, and `min(x + 1, y + 1) - min(x, y) -> 1`."""
        found = [a for a in form.terms if a.kind in (MIN, MAX) and len(a.args) == 2]
        for n, a in enumerate(found):
            k = form.terms[a]
            for b in found[n + 1 :]:
                c = form.terms[b]
                if a.kind != b.kind and c == k and {x.key for x in a.args} == {x.key for x in b.args}:
                    return self.finish(*_raw(_replaced(form, (a, b), (a.args[0] + a.args[1]).scale(k))))
                if a.kind == b.kind and c == -k:
                    more = _apart(a, b)
                    if more is not None:
                        return self.finish(*_raw(_replaced(form, (a, b), constant(more * k))))
        return form

    def _push_into_extremes(self, form: Lin) -> Lin:
        """`min(x + 4, n) - x -> min(4, n - x)`: terms go inside where they cancel something."""
        for a, k in form.terms.items():
            if a.kind not in (MIN, MAX) or abs(k) != 1:
                continue
            moved = {
                x: c
                for x, c in form.terms.items()
                if x is not a and any(e.terms.get(x) == -c * k for e in a.args)
            }
            const = form.const if any(e.terms and e.const == -form.const * k for e in a.args) else 0
            if moved or const:
                inner = Lin(moved, const).scale(k)
                kept = {x: c for x, c in form.terms.items() if x is not a and x not in moved}
                rest = Lin(kept, form.const - const)
                parts = [e + inner for e in a.args]
                other = [e.scale(-1) for e in parts]
                if k < 0 and (not rest.terms or _negatives(other) < _negatives(parts)):
                    made = self.extreme(MIN + MAX - a.kind, other)  # x - min(x, y)  ->  max(0, x - y)
                else:
                    made = self.extreme(a.kind, parts).scale(k)
                return self.finish(*_raw(rest + made))
        return form

    # -- products --------------------------------------------------------------------------
    def mul(self, x: Lin, y: Lin) -> Lin:
        """`x * y`, multiplied out unless that would be long."""
        if not y.terms:
            return x.scale(y.const)
        if not x.terms:
            return y.scale(x.const)
        one, two = x.single(), y.single()
        if one is not None and two is not None and {one.kind, two.kind} == {MIN, MAX} and len(one.args) == 2:
            if {e.key for e in one.args} == {e.key for e in two.args}:
                return self.mul(*one.args)  # min(x, y) * max(x, y)
        size = (len(x.terms) + (x.const != 0)) * (len(y.terms) + (y.const != 0))
        if size > _MOST_TERMS:
            dtype = dtype_of(x)
            with suppress(DoesNotFit):
                product = Mul(self.forms.build(x, dtype), self.forms.build(y, dtype))
                return of_atom(self.forms.opaque(product))
        terms: dict[Atom, int] = {}
        for a, c in x.terms.items():
            for b, d in y.terms.items():
                p = self.forms.prod([a, b])
                terms[p] = terms.get(p, 0) + c * d
            if y.const:
                terms[a] = terms.get(a, 0) + c * y.const
        if x.const:
            for b, d in y.terms.items():
                terms[b] = terms.get(b, 0) + d * x.const
        return self.finish({a: c for a, c in terms.items() if c}, x.const * y.const)

    # -- quotients and remainders by constants ---------------------------------------------
    def div_const(self, e: Lin, d: int) -> Lin:
        """`e // d` for a constant that is not zero."""
        if d < 0:
            e, d = e.scale(-1), -d
        if d == 1:
            return e
        if not e.terms:
            return constant(e.const // d)
        whole: dict[Atom, int] = {}
        part: dict[Atom, int] = {}
        for a, c in e.terms.items():
            if c % d == 0:
                whole[a] = c // d
            else:
                part[a] = c
        out, left = Lin(whole, e.const // d), e.const % d
        if not part:
            return out
        rest = Lin(part, left)
        low, high = self.bound(rest)
        if low // d == high // d:
            return out.shift(low // d)
        made = self._div_part(rest, d)
        return self.finish(*_raw(out + made)) if out.terms or out.const else made

    def _div_part(self, e: Lin, d: int) -> Lin:
        """`e // d` where no coefficient is a multiple of d."""
        g = gcd(e.gcd(), d)
        if g > 1:
            return self.div_const(e.divide(g), d // g)
        for g in _shared_factors(e, d):
            coarse, fine = _coarse(e, g)
            low, high = self.bound(fine)
            if low >= 0 and high < g:
                return self.div_const(coarse.divide(g), d // g)
        if self.residues:
            made = self._drop_by_residue(e, d)
            if made is not None:
                return self.div_const(made, d)
        if len(e.terms) == 1:
            ((a, c),) = e.terms.items()
            if c == 1 and a.kind in (MIN, MAX):
                # min(x * 6, y) // 2  ->  min(x * 3, y // 2)
                parts = [x.shift(e.const) for x in a.args]
                if any(x.const % d == 0 and x.gcd() % d == 0 and x.terms for x in parts):
                    return self.extreme(a.kind, [self.div_const(x, d) for x in parts])
            if a.kind == SPLIT and c == 1:
                if d == 2 and e.const == 1 and a.args[1] == 1 and a.args[2] == 2:
                    return of_atom(a)  # (x % 2 + 1) // 2
                x, lower, upper = a.args
                if upper is None:
                    return self.div_const(x.shift(e.const * lower), lower * d)
                if e.const == 0 and upper % (lower * d) == 0:
                    return self.mod_const(self.div_const(x, lower * d), upper // (lower * d))
                if e.const == 0 and lower != 1:
                    return self.div_const(self.mod_const(x, upper), lower * d)
        return of_atom(self.forms.split(e, d, None))

    def _drop_by_residue(self, e: Lin, d: int) -> Lin | None:
        """`(x + y) // 4 -> x // 4` where x is known to be a multiple of 4 and `0 <= y < 4`."""
        coarse: dict[Atom, int] = {}
        fine: dict[Atom, int] = {}
        for a, c in e.terms.items():
            r, b = self.atom_residue(a)
            (coarse if r * c % d == 0 and b * c % d == 0 else fine)[a] = c
        if not coarse or (not fine and not e.const):
            return None
        low, high = self.bound(Lin(fine, e.const))
        return Lin(coarse, low // d * d) if low // d == high // d else None

    def _single(self, a: Atom) -> Lin:
        """A quotient with quotients in its dividend, as one: `(x + y // 4) // 8` as `(x*4 + y) // 32`. The normal form
        has some of either kind."""
        x, lower, upper = a.args
        x = self._single_in(x)
        while inner := next((q for q, c in x.terms.items() if _is_quotient(q) and c == 1), None):
            y, d, _ = inner.args
            x, lower, upper = (x - of_atom(inner)).scale(d) + y, lower * d, upper and upper * d
        if not x.terms:
            return constant(x.const // lower if upper is None else x.const // lower % (upper // lower))
        return of_atom(a if x.key == a.args[0].key else self.forms.split(x, lower, upper))

    def _single_in(self, e: Lin) -> Lin:
        if not any(a.kind == SPLIT for a in e.terms):
            return e
        made = constant(e.const)
        for a, c in e.terms.items():
            made = made + (self._single(a) if a.kind == SPLIT else of_atom(a)).scale(c)
        return made

    def mod_const(self, e: Lin, m: int) -> Lin:
        """`e % m` for a constant that is not zero."""
        if m < 0:
            return self.mod_const(e.scale(-1), -m).scale(-1)
        if m == 1:
            return constant(0)
        low, high = self.bound(e)
        if low // m == high // m:
            return e.shift(-(low // m) * m)
        e = self._reduced(e, m)
        if not e.terms:
            return constant(e.const % m)
        low, high = self.bound(e)
        if low // m == high // m:
            return e.shift(-(low // m) * m)
        g = gcd(e.gcd(), m)
        if g > 1:
            return self.mod_const(e.divide(g), m // g).scale(g).shift(e.const % g)
        for g in _shared_factors(e, m):
            coarse, fine = _coarse(e, g)
            low, high = self.bound(fine)
            if low >= 0 and high < g:
                return self.finish(*_raw(self.mod_const(coarse.divide(g), m // g).scale(g) + fine))
        a = e.single()
        if a is not None and a.kind == SPLIT:
            x, lower, upper = a.args
            if upper is None or upper // lower % m == 0:
                return of_atom(self.forms.split(x, lower, lower * m))
        return of_atom(self.forms.split(e, 1, m))

    def _reduced(self, e: Lin, m: int) -> Lin:
        """The form without the multiples of m."""
        terms: dict[Atom, int] = {}
        const = e.const
        more: list[Lin] = []
        for a, c in e.terms.items():
            if a.kind == SPLIT and a.args[1] == 1 and a.args[2] is not None and c * a.args[2] % m == 0:
                more.append(a.args[0].scale(c))
                continue
            r, b = self.atom_residue(a) if self.residues else (1, 0)
            if r * c % m == 0:
                const += b * c
                continue
            k = c % m
            if k:
                terms[a] = k if c > 0 else k - m
        if not more:
            return Lin(terms, const % m)
        out = Lin(terms, const)
        for x in more:
            out = out + x
        return self._reduced(out, m)

    # -- quotients and remainders in general -----------------------------------------------
    def div(self, e: Lin, d: Lin) -> Lin:
        """`e // d`."""
        if not d.terms and d.const:
            return self.div_const(e, d.const)
        quotient, rest = self._long_division(e, d)
        if self._below(rest, d):
            return quotient
        low = self.bound(d)[0]
        if low > 0 and self.nonneg(rest + d) and self.nonneg(rest.scale(-1).shift(-1)):
            return quotient.shift(-1)
        return quotient + self._symbolic(SYMDIV, rest, d)

    def mod(self, e: Lin, d: Lin) -> Lin:
        """`e % d`."""
        if not d.terms and d.const:
            return self.mod_const(e, d.const)
        _, rest = self._long_division(e, d)
        if self._below(rest, d):
            return rest
        return self._symbolic(SYMMOD, rest, d)

    def _symbolic(self, kind: int, e: Lin, d: Lin) -> Lin:
        if not e.terms and e.const == 0:
            return constant(0)
        return of_atom(self.forms.pair(kind, e, d))

    def _below(self, rest: Lin, d: Lin) -> bool:
        """Whether `0 <= rest < d`."""
        if not rest.terms and rest.const == 0:
            return True
        return self.nonneg(rest) and self.nonneg((d - rest).shift(-1))

    def _long_division(self, e: Lin, d: Lin) -> tuple[Lin, Lin]:
        """A quotient and a rest with `e == quotient * d + rest`, by cancelling the leading term of d."""
        quotient, rest = constant(0), e
        if not d.terms:
            return quotient, rest
        lead, k = max(d.terms.items(), key=lambda t: len(t[0].args) if t[0].kind == PROD else 1)
        for _ in range(8):
            for a, c in rest.terms.items():
                ratio = _ratio(a, lead)
                if ratio is None or c % k:
                    continue
                step = constant(c // k)
                if ratio:
                    step = of_atom(self.forms.prod(list(ratio))).scale(c // k)
                left = rest - self.mul(step, d)
                if len(left.terms) <= len(rest.terms):
                    quotient, rest = quotient + step, left
                    break
            else:
                break
        return quotient, rest

    def truncdiv(self, e: Lin, d: Lin) -> Lin:
        """`e / d` rounded towards zero."""
        sign = self._sign(d)
        if sign < 0:
            return self.truncdiv(e, d.scale(-1)).scale(-1)
        if not d.terms and d.const and e.const % d.const == 0 and e.gcd() % d.const == 0:
            return e.divide(d.const)
        if sign > 0:
            way = self._sign(e)
            if way > 0:
                return self.div(e, d)
            if way < 0 and self.bound(e)[0] > _LEAST:
                return self.div(e.scale(-1), d).scale(-1)
        if not d.terms and d.const:
            g = gcd(gcd(e.gcd(), e.const), d.const)
            if g > 1:
                return self.truncdiv(e.divide(g), constant(d.const // g))
            a = e.single()
            if a is not None and a.kind == TRUNCDIV and not a.args[1].terms:
                return self.truncdiv(a.args[0], constant(a.args[1].const * d.const))
        if d.terms:
            quotient, rest = self._long_division(e, d)
            if not rest.terms and rest.const == 0:
                return quotient
        return of_atom(self.forms.pair(TRUNCDIV, e, d)) if e.terms or d.terms else constant(0)

    def truncmod(self, e: Lin, d: Lin) -> Lin:
        """The remainder of `truncdiv`, which has the sign of e."""
        sign = self._sign(d)
        if sign < 0:
            return self.truncmod(e, d.scale(-1))
        if not d.terms and d.const and e.const % d.const == 0 and e.gcd() % d.const == 0:
            return constant(0)
        if sign > 0:
            way = self._sign(e)
            if way > 0:
                return self.mod(e, d)
            if way < 0 and self.bound(e)[0] > _LEAST:
                return self.mod(e.scale(-1), d).scale(-1)
        if not d.terms and d.const:
            g = gcd(gcd(e.gcd(), e.const), d.const)
            if g > 1:
                return self.truncmod(e.divide(g), constant(d.const // g)).scale(g)
            a = e.single()
            if a is not None and a.kind in (TRUNCDIV, TRUNCMOD) and not a.args[1].terms:
                x, by = a.args[0], a.args[1].const
                if a.kind == TRUNCDIV:  # the digits of truncmod(x, 4): truncmod(truncdiv(x, 2), 2)
                    return self.truncdiv(self.truncmod(x, constant(by * d.const)), constant(by))
                if by % d.const == 0:
                    return self.truncmod(x, d)
        if d.terms:
            _, rest = self._long_division(e, d)
            if not rest.terms and rest.const == 0:
                return rest
        return of_atom(self.forms.pair(TRUNCMOD, e, d)) if e.terms or d.terms else constant(0)

    def _sign(self, e: Lin) -> int:
        """1 if not negative, -1 if not positive, 0 if not known."""
        low, high = self.bound(e)
        if low >= 0:
            return 1
        if high <= 0:
            return -1
        if self.nonneg(e):
            return 1
        return -1 if self.nonneg(e.scale(-1)) else 0

    # -- minima and maxima -----------------------------------------------------------------
    def extreme(self, kind: int, forms: list[Lin]) -> Lin:
        """The least or the greatest of some forms."""
        flat: list[Lin] = []
        for e in forms:
            a = next(iter(e.terms), None)
            if len(e.terms) == 1 and a is not None and a.kind == kind and e.terms[a] == 1:
                flat.extend(x.shift(e.const) for x in a.args)
            else:
                flat.append(e)
        kept: list[Lin] = []
        for e in flat:
            if any(self._beats(kind, x, e) for x in kept):
                continue
            kept = [x for x in kept if not self._beats(kind, e, x)]
            kept.append(e)
        if len(kept) == 1:
            return kept[0]
        shared = {a: c for a, c in kept[0].terms.items() if all(x.terms.get(a) == c for x in kept[1:])}
        if shared:
            common = Lin(shared, 0)
            return self.finish(*_raw(common + self.extreme(kind, [x - common for x in kept])))
        made = self._shared_extreme(kind, kept)
        return of_atom(self.forms.extreme(kind, kept)) if made is None else made

    def _shared_extreme(self, kind: int, forms: list[Lin]) -> Lin | None:
        """The extreme of forms that have a part in common, with that part outside.

        min(max(x, y), max(x, z))                  ->  max(x, min(y, z))
        min(x // 4, y // 4)                        ->  min(x, y) // 4
        min(select(c, x, y), select(c, u, v))      ->  select(c, min(x, u), min(y, v))
        """
        atoms = [x.single() for x in forms]
        first = atoms[0]
        if first is None or any(a is None or a.kind != first.kind for a in atoms):
            return None
        if first.kind == SPLIT:
            if any(a.args[1] != first.args[1] or a.args[2] is not None for a in atoms if a is not None):
                return None
            whole = self.extreme(kind, [a.args[0] for a in atoms if a is not None])
            return self.div_const(whole, first.args[1])
        if first.kind == SELECT:
            condition, _, _, lazy = first.args
            if any(a.args[3] != lazy or not same(a.args[0], condition) for a in atoms if a is not None):
                return None
            yes, no = [self.extreme(kind, [a.args[n] for a in atoms if a is not None]) for n in (1, 2)]
            return (
                yes
                if yes.key == no.key
                else of_atom(self.forms.select(condition, yes, no, first.dtype, lazy))
            )
        if first.kind not in (MIN, MAX) or len(atoms) != 2 or atoms[1] is None:
            return None
        one, two = first.args, atoms[1].args
        if len(one) == len(two) == 2:
            for n, x in enumerate(one):
                for m, y in enumerate(two):
                    if x.key == y.key:
                        return self.extreme(first.kind, [x, self.extreme(kind, [one[1 - n], two[1 - m]])])
        return None

    def _beats(self, kind: int, x: Lin, y: Lin) -> bool:
        """Whether x makes y redundant."""
        return self.known_le(x, y) if kind == MIN else self.known_le(y, x)


def _raw(form: Lin) -> tuple[dict[Atom, int], int]:
    return form.terms, form.const


def _less_multiple(form: Lin, a: Atom, e: Lin, k: int, whole: bool = False) -> Lin | None:
    """The form without k times e and without an atom, if at least half of the terms of e (or all) are found in it."""
    found = sum([form.terms.get(x) == c * k for x, c in e.terms.items()])
    if not found or found < (len(e.terms) if whole else (len(e.terms) + 1) // 2):
        return None
    return form.without(a) - e.scale(k)


def _negatives(forms: list[Lin]) -> int:
    """The number of terms with a minus."""
    return sum([(e.const < 0) + sum([c < 0 for c in e.terms.values()]) for e in forms])


def _apart(a: Atom, b: Atom) -> int | None:
    """The number by which all operands of a minimum differ from those of another, if there is one."""
    for x, y in ((b.args[0], b.args[1]), (b.args[1], b.args[0])):
        one, two = a.args[0] - x, a.args[1] - y
        if not one.terms and not two.terms and one.const == two.const:
            return int(one.const)
    return None


def _replaced(form: Lin, old: tuple[Atom, ...], value: Lin) -> Lin:
    """The form with `value` where the first of some atoms stood, and without the others."""
    terms: dict[Atom, int] = {}
    placed = False
    for x, c in form.terms.items():
        for a, k in [(x, c)] if x not in old else [] if placed else value.terms.items():
            terms[a] = terms.get(a, 0) + k
        placed = placed or x in old
    return Lin({a: c for a, c in terms.items() if c}, form.const + value.const)


def _is_quotient(a: Atom) -> bool:
    return a.kind == SPLIT and a.args[2] is None


def _shared_factors(e: Lin, d: int) -> list[int]:
    """The factors that d shares with some but not all coefficients, the greatest first."""
    if len(e.terms) < 2 and e.const == 0:
        return []
    return sorted({gcd(c, d) for c in e.terms.values()} - {1}, reverse=True)


def _coarse(e: Lin, g: int) -> tuple[Lin, Lin]:
    """The form as multiples of g, and the rest."""
    coarse = {a: c for a, c in e.terms.items() if c % g == 0}
    fine = {a: c for a, c in e.terms.items() if c % g}
    return Lin(coarse, e.const - e.const % g), Lin(fine, e.const % g)


def _ratio(a: Atom, by: Atom) -> tuple[Atom, ...] | None:
    """The quotient of two products of factors, or None if it is not a product."""
    have = list(a.args) if a.kind == PROD else [a]
    for f in by.args if by.kind == PROD else (by,):
        if f not in have:
            return None
        have.remove(f)
    return tuple(have)
