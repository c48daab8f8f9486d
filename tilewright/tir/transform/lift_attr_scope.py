"""Attributes lifted around statements that all carry them."""

from __future__ import annotations

from typing import Any

from ...ir.equal import structural_equal
from ...ir.expr import IterVar
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, uses_var
from ...ir.stmt import (
    AttrStmt,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    seq,
)


def lift_attr_scope(func: PrimFunc, attr_key: str) -> PrimFunc:
    """Move the attribute `attr_key` outwards, and join statements that carry the same one.

        for i in range(n):                    # attr [dev] scope = 1
            # attr [dev] scope = 1            for i in range(n):
            S(i)                     ->           S(i)
            # attr [dev] scope = 1                T(i)
            T(i)

    Needs: nothing. Gives: the attribute on as few statements, as far out, as its meaning allows.
    """
    return _Lift(attr_key).run(func)


class _Lift(Mutator):
    def __init__(self, attr_key: str) -> None:
        self.key = attr_key

    def carried(self, s: Stmt | None) -> AttrStmt | None:
        return s if isinstance(s, AttrStmt) and s.attr_key == self.key else None

    def _through(self, n: Any) -> Stmt:
        """The attribute of the body around the statement, if it does not use a variable that the statement binds."""
        made = self.visit_children(n)
        attr = self.carried(made.body)
        if attr is None or (isinstance(made, For) and uses_var(attr.value, made.loop_var)):
            return made  # type: ignore[no-any-return]
        if isinstance(made, LetStmt) and uses_var(attr.value, made.var):
            return made
        if attr.node is not None and attr.node is _bound(made):
            return made
        return attr.replace(body=made.replace(body=attr.body))

    visit_For = visit_LetStmt = visit_Allocate = visit_AssertStmt = visit_DeclBuffer = _through

    def visit_AttrStmt(self, n: AttrStmt) -> Stmt:
        if n.attr_key == self.key or isinstance(n.node, IterVar):
            return self.visit_children(n)
        return self._through(n)

    def visit_IfThenElse(self, n: IfThenElse) -> Stmt:
        made = self.visit_children(n)
        first = self.carried(made.then_case)
        if first is None:
            return made
        if made.else_case is None:
            return first.replace(body=made.replace(then_case=first.body))
        second = self.carried(made.else_case)
        if second is None or not _same(first, second):
            return made
        return first.replace(body=made.replace(then_case=first.body, else_case=second.body))

    def visit_SeqStmt(self, n: SeqStmt) -> Stmt:
        made = [self.visit(s) for s in n.seq]
        groups: list[list[Stmt]] = []
        for s in made:
            a, b = self.carried(groups[-1][-1]) if groups else None, self.carried(s)
            if a is not None and b is not None and _same(a, b):
                groups[-1].append(s)
            else:
                groups.append([s])
        if len(groups) == len(made):
            return n if all(a is b for a, b in zip(made, n.seq, strict=True)) else seq(*made)
        return seq(*[_joined(g) for g in groups])


def _bound(n: Any) -> Any:
    return getattr(n, "buffer_var", None) or getattr(n, "buffer", None)


def _same(a: AttrStmt, b: AttrStmt) -> bool:
    return (a.node is b.node or structural_equal(a.node, b.node)) and structural_equal(a.value, b.value)


def _joined(group: list[Stmt]) -> Stmt:
    if len(group) == 1:
        return group[0]
    first: Any = group[0]
    return first.replace(body=seq(*[s.body for s in group]))  # type: ignore[no-any-return, attr-defined]
