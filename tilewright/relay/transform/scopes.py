"""The scope of each expression of a graph: the innermost one that contains all its uses."""

from __future__ import annotations

from typing import Any

from ..adt import Match
from ..expr import Call, Expr, Function, If, Let, Var
from ..visitor import ScopeTree, below, in_order


class Scopes(ScopeTree):
    """The scopes under an expression. A function's body and the branches of an `if` or a `match` are scopes; a let is
    not.

    A use of a let-bound variable counts as a use of its value. With `ordered`, a let uses its value too, before its
    body: a program that writes to references.
    """

    def __init__(self, root: Expr, ordered: bool = False) -> None:
        super().__init__()
        self.ordered = ordered
        self.inner: dict[tuple[Any, int], int] = {}  # (function or if, which part) and its scope
        self.values: dict[Var, Expr] = {}
        order = self._order(root)
        self.of: dict[Any, int] = {root: 0}
        self.crosses: set[Any] = set()  # expressions of an outer scope that an inner one uses
        used_in: dict[Any, list[int]] = {}
        for at in reversed(order):
            here = self.of.setdefault(at, 0)
            for i, b in enumerate(self.below(at)):
                scope = self._scope_for(at, i, here)
                used_in.setdefault(b, []).append(scope)
                self.of[b] = scope if b not in self.of else self.common(self.of[b], scope)
        for b, scopes in used_in.items():
            if any(s != self.of[b] for s in scopes):
                self.crosses.add(b)
        self.members: dict[int, list[Any]] = {}
        for at in order:
            self.members.setdefault(self.of[at], []).append(at)

    def _scope_for(self, at: Any, i: int, here: int) -> int:
        if isinstance(at, Function) or (isinstance(at, (If, Match)) and i > 0):
            if (at, i) not in self.inner:
                self.inner[at, i] = self.new(here)
            return self.inner[at, i]
        return here

    def below(self, at: Any) -> list[Any]:
        """The operands of an expression."""
        if isinstance(at, Let):
            return [at.value, at.body] if self.ordered else [at.body]
        if isinstance(at, Match):
            return [at.data, *(c.rhs for c in at.clauses)]
        if isinstance(at, Var):
            return [self.values[at]] if at in self.values else []
        if isinstance(at, Function):
            return [at.body]
        if isinstance(at, Call):
            return [at.op, *at.args] if isinstance(at.op, Expr) else list(at.args)
        return below(at)

    def _order(self, root: Expr) -> list[Any]:
        def inside(e: Any) -> list[Any]:
            if isinstance(e, Let):
                self.values[e.var] = e.value
            return [b for b in self.below(e) if isinstance(b, Expr)]

        return in_order(root, inside)
