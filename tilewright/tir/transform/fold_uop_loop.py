"""Loops that an instruction runs itself."""

from __future__ import annotations

from ...ir.function import PrimFunc
from ...ir.functor import Mutator
from ...ir.stmt import AttrStmt, For, ForKind, Stmt
from ..analysis.commands import engine_of

UOP = "coproc_uop_scope"


def fold_uop_loop(func: PrimFunc) -> PrimFunc:
    """Make one command of a loop nest around an instruction that is repeated by micro-ops.

        for i, j in T.grid(4, 8):                    # attr coproc_scope = 2
            # attr coproc_scope = 2                  for i, j in T.grid(4, 8):
            # attr coproc_uop_scope           ->         # attr instruction = gemm(C[i*8 + j], A[i], B[j])
            # attr instruction = gemm(…)                 …
            …

    Needs: nothing. Gives: no `coproc_uop_scope`.
    """
    return _Fold().run(func)


class _Fold(Mutator):
    def visit_For(self, n: For) -> Stmt:
        made: For = self.visit_children(n)
        inner = made.body
        if (
            made.kind is ForKind.SERIAL
            and not made.annotations
            and isinstance(inner, AttrStmt)
            and engine_of(inner) is not None
            and self.repeats(inner.body)
        ):
            return inner.replace(body=made.replace(body=inner.body))
        return made

    def repeats(self, s: Stmt) -> bool:
        while isinstance(s, For):
            s = s.body
        return isinstance(s, AttrStmt) and s.attr_key == UOP

    def run(self, func: PrimFunc) -> PrimFunc:
        return _Strip().run(super().run(func))


class _Strip(Mutator):
    def visit_AttrStmt(self, n: AttrStmt) -> Stmt:
        return self.visit(n.body) if n.attr_key == UOP else self.visit_children(n)  # type: ignore[no-any-return]
