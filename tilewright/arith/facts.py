"""Facts at a point of the program: bindings of variables and conditions that hold there.

Everything is stored in dictionaries with an undo log, so that entering and leaving the body of a loop costs no more
than its bindings.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from ..ir.expr import Var
from .form import Atom, Forms, Lin

Interval = tuple[int, int]
Residue = tuple[int, int]  # (coeff, base): base modulo coeff; coeff 0 means exactly base

# Infinity is an integer so large that adding, dividing and multiplying by real ones leaves it large;
# `clip` then takes it back to the one true infinity.
BIG: Final = 1 << 400
_EDGE: Final = 1 << 200
_MISSING: Final = object()


def clip(low: int, high: int) -> Interval:
    """An interval with ends beyond the representable range made infinite."""
    return (-BIG if low < -_EDGE else low, BIG if high > _EDGE else high)


class Facts:
    """Bindings and assumptions, with scopes."""

    def __init__(self) -> None:
        self.forms = Forms()
        self.bounds: dict[Atom, Interval] = {}
        self.residues: dict[Atom, Residue] = {}
        self.values: dict[Var, Lin] = {}  # variables bound to a form
        self.about: dict[Atom, tuple[Lin, ...]] = {}  # forms known not to be negative, by atom
        self.sums: dict[Any, Interval] = {}  # bounds of sums of several atoms
        self.nonzero: dict[Any, Lin] = {}  # forms of several atoms known not to be zero
        self.truths: dict[Any, tuple[frozenset[Var], bool]] = {}  # opaque conditions with known truth values
        self._log: list[tuple[dict[Any, Any], Any, Any]] = []
        self._depth = 0
        self._bound_cache: dict[Atom, Interval] = {}
        self._residue_cache: dict[Atom, Residue] = {}
        self._var_cache: dict[Var, Lin] = {}
        self._memo: dict[int, tuple[Any, Lin]] = {}
        self._loads: dict[int, tuple[Any, Any]] = {}  # simplified loads
        self._proofs: dict[Any, bool] = {}  # whether forms are known not to be negative
        self._asked: set[Atom] = set()

    def _set(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        if self._depth:
            self._log.append((table, key, table.get(key, _MISSING)))
        table[key] = value
        self._forget_derived()

    def _drop(self, table: dict[Any, Any], key: Any) -> None:
        if key in table:
            if self._depth:
                self._log.append((table, key, table[key]))
            del table[key]
            self._forget_derived()

    def _forget_derived(self) -> None:
        """Begin new caches. The old ones stay as they are, for the scope that they belong to."""
        self._bound_cache, self._residue_cache, self._var_cache = {}, {}, {}
        self._loads, self._memo, self._proofs = {}, {}, {}

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Bindings and assumptions made inside are undone at the end."""
        mark = len(self._log)
        memo, self._memo = self._memo, {}
        derived = self._bound_cache, self._residue_cache, self._var_cache, self._loads, self._proofs
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            while len(self._log) > mark:
                table, key, old = self._log.pop()
                if old is _MISSING:
                    del table[key]
                else:
                    table[key] = old
            # the facts are those of before, so what followed from them is known
            self._bound_cache, self._residue_cache, self._var_cache, self._loads, self._proofs = derived
            self._memo = memo

    def _forget_var(self, v: Var) -> None:
        """Drop all facts about a variable, which is bound again."""
        self._drop(self.values, v)
        for table in (self.bounds, self.residues):
            for a in [a for a in table if v in a.vars]:
                self._drop(table, a)
        for key in [k for k in self.sums if any(v in a.vars for a, _ in k)]:
            self._drop(self.sums, key)
        for a, facts in list(self.about.items()):
            kept = tuple(f for f in facts if v not in f.vars())
            if len(kept) != len(facts):
                self._set(self.about, a, kept)
        for key in [k for k, f in self.nonzero.items() if v in f.vars()]:
            self._drop(self.nonzero, key)
        for key in [k for k, (held, _) in self.truths.items() if v in held]:
            self._drop(self.truths, key)

    def _copy_into(self, other: Facts) -> None:
        other.forms = self.forms
        for name in ("bounds", "residues", "values", "about", "sums", "nonzero", "truths"):
            setattr(other, name, dict(getattr(self, name)))
