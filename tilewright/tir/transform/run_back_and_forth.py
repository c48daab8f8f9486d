"""Loops that alternate their direction (serpentine order)."""

from __future__ import annotations

from ...ir.errors import LoweringError
from ...ir.expr import const
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, statements, substitute
from ...ir.ops import add, floormod, mul, sub
from ...ir.stmt import For, ForKind, Stmt

# annotation of a loop: it runs backwards in every second iteration of the outer loop
BACK_AND_FORTH = "tilewright.back_and_forth"


def run_back_and_forth(func: PrimFunc) -> PrimFunc:
    """Run loops that are marked `tilewright.back_and_forth` backwards in every second iteration of the enclosing loop.

        for i in range(4):                                 for i in range(4):
            for j in range(8):   # back_and_forth     ->       for j in range(8):
                S(i, j)                                            S(i, j + i % 2 * (7 - j * 2))

    Each run of the loop begins where the previous one ended, so that its first iteration reuses an operand of the
    previous iteration. In register tiles each FMA then shares an operand with the one before it (GPUs read two
    registers without delay, not three).
    Needs: iterations that may run in any order. Gives: no mark.
    """
    if not any(isinstance(m, For) and BACK_AND_FORTH in m.annotations for m in statements(func.body)):
        return func
    return _Turns().run(func)


class _Turns(Mutator):
    around: For | None = None

    def visit_For(self, n: For) -> Stmt:
        outer, self.around = self.around, n
        body: Stmt = self.visit(n.body)
        self.around = outer
        if BACK_AND_FORTH not in n.annotations:
            return n.updated(body=body)
        if outer is None or n.kind not in (ForKind.SERIAL, ForKind.UNROLLED):
            what = "has no loop around it" if outer is None else f"is {n.kind.name.lower()}"
            raise LoweringError(
                f"loop `{n.loop_var.name}` cannot run back and forth: it {what}; mark a serial or unrolled loop inside "
                f"another one, or remove {BACK_AND_FORTH!r} from it"
            )
        v = n.loop_var
        two = const(2, v.dtype)
        odd = floormod(sub(outer.loop_var, outer.min), const(2, outer.loop_var.dtype)).astype(v.dtype)
        ends = sub(add(mul(n.min, two), n.extent), const(1, v.dtype))
        at = add(v, mul(odd, sub(ends, mul(v, two))))
        keep = {k: x for k, x in n.annotations.items() if k != BACK_AND_FORTH}
        return n.replace(body=substitute(body, {v: at}), annotations=keep)
