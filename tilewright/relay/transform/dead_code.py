"""DeadCodeElimination: unused let bindings are removed."""

from __future__ import annotations

from typing import Any

from ...ir.op import Op
from ..adt import Constructor, Match
from ..expr import Call, Expr, Function, If, Let, RefWrite, Var
from ..visitor import below
from .rewriting import Mutator, is_pure_op, let_chain, rebuilt_lets, typed_pass


def dead_code_elimination(
    func: Function, inline_once: bool = False, ignore_impurity: bool = False
) -> Function:
    """Remove let bindings whose variable is not used.

        let %a = nn.relu(%x);
        let %b = exp(%x);               let %b = exp(%x);
        %b                      ->      %b

    A value with a side effect (a call of an operator with an effect) stays, unless `ignore_impurity`. With
    `inline_once`, a value that is used once is inlined.
    """
    found = _Live(func, ignore_impurity)
    return _Drop(found, inline_once).visit(func)


class _Live:
    """Liveness of let-bound variables from the result of the function, with the number of uses."""

    def __init__(self, func: Function, ignore_impurity: bool) -> None:
        self.uses: dict[Var, int] = {}
        self.kept: set[Var] = set()
        self.recursive: set[Var] = set()
        self.ignore = ignore_impurity
        self.values: dict[Var, Expr] = {}
        self.impure: dict[Any, bool] = {}
        self.walk(func)

    def walk(self, root: Any) -> None:
        seen: set[Any] = set()
        stack = [root]
        waiting: dict[Var, Expr] = {}  # values of variables without a use so far
        while stack:
            at = stack.pop()
            if isinstance(at, Var):
                self.uses[at] = self.uses.get(at, 0) + 1
                if at in waiting:
                    stack.append(waiting.pop(at))
                continue
            if at in seen:
                continue
            seen.add(at)
            if isinstance(at, Let):
                chain, tail = let_chain(at)
                seen.update(chain)
                for let in chain:
                    self.values[let.var] = let.value
                    if not self.ignore and self.has_effect(let.value):
                        self.kept.add(let.var)
                        stack.append(let.value)
                    elif let.var in self.uses:
                        stack.append(let.value)
                    else:
                        waiting[let.var] = let.value
                stack.append(tail)
            elif isinstance(at, Function):
                stack.append(at.body)
            elif isinstance(at, Expr):
                stack.extend(below(at))

    def has_effect(self, expr: Any) -> bool:
        """Whether computing the value may have a side effect."""
        stack, seen = [expr], {expr}
        while stack:
            at = stack.pop()
            known = self.impure.get(at)
            if known:
                return True
            if known is False:
                continue
            if isinstance(at, RefWrite):
                self.impure[at] = True
                return True
            if isinstance(at, Call) and not isinstance(at.op, Constructor):
                if isinstance(at.op, Op):
                    if not is_pure_op(at.op):
                        self.impure[at] = True
                        return True
                elif not isinstance(at.op, Function):
                    self.impure[at] = True
                    return True
            if isinstance(at, Function):
                continue  # a closure has no effect until it is called
            under = (
                [at.op.body, *at.args] if isinstance(at, Call) and isinstance(at.op, Function) else below(at)
            )
            for b in under:
                if isinstance(b, Expr) and b not in seen:
                    seen.add(b)
                    stack.append(b)
        for at in seen:
            self.impure[at] = False
        return False


class _Drop(Mutator):
    def __init__(self, live: _Live, inline_once: bool) -> None:
        super().__init__()
        self.live, self.inline_once = live, inline_once
        self.inlined: dict[Var, Any] = {}

    def visit_var(self, var: Var) -> Any:
        return self.inlined.get(var, var)

    def visit_let(self, let: Let) -> Any:
        chain, tail = let_chain(let)
        rows: list[tuple[Let, Any]] = []
        for at in chain:
            used = self.live.uses.get(at.var, 0)
            if not used and at.var not in self.live.kept:
                continue
            value = self.visit(at.value)
            once = self.inline_once and used == 1 and at.var not in self.live.kept
            if once and not isinstance(value, (Function, If, Match)):
                self.inlined[at.var] = self.memo_map[at.var] = value
            else:
                rows.append((at, value))
        return rebuilt_lets(rows, self.visit(tail))


DeadCodeElimination = typed_pass(dead_code_elimination, name="DeadCodeElimination", opt_level=1)
