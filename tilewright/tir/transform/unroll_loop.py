"""Loop unrolling."""

from __future__ import annotations

from typing import Any

from ...ir.expr import BufferLoad, Call, IntImm, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, contains, pre_order, uses_var
from ...ir.op import Op
from ...ir.stmt import AttrStmt, BufferStore, Evaluate, For, ForKind, SeqStmt, Stmt, seq
from ..renew import copies

_JUMPS = (Op.get("tir.break_loop"), Op.get("tir.continue_loop"))


def unroll_loop(
    func: PrimFunc,
    *,
    auto_max_step: int = 0,
    auto_max_depth: int = 8,
    auto_max_extent: int = 0,
    explicit_unroll: bool = True,
    unroll_local_access: bool = False,
) -> PrimFunc:
    """Replace each loop marked `unroll` by one copy of its body for each iteration.

        for i in unroll(2):              A[0] = 0
            A[i] = i            ->       A[1] = 1

    An innermost serial loop is treated as marked if its copies have at most `auto_max_step` stores and calls in all, or
    if its trip count is at most `auto_max_extent`; at most `auto_max_depth` nested loops are. The pragmas
    `auto_unroll_max_step` and `unroll_explicit` set the limit, and whether to leave the unrolling to the backend, for
    the statement under them. `unroll_local_access` marks the loops that index local memory, which then can live in
    registers.

    Needs: flat buffers. Gives: no loop of kind UNROLLED, unless left to the backend; a marked loop of
    unknown extent is a serial one.
    """
    unroll = _Unroll(auto_max_step, auto_max_depth, auto_max_extent, explicit_unroll, unroll_local_access)
    return unroll.run(func)


class _Unroll(Mutator):
    """Bottom up. After a visit, `steps` is the number of stores and calls in the visited statement, `loops` the depth
    of the loops that remain in it, and `unrolled` the depth of those that do not."""

    def __init__(self, max_step: int, max_depth: int, max_extent: int, explicit: bool, local: bool) -> None:
        self.max_step, self.max_depth, self.max_extent = max_step, max_depth, max_extent
        self.explicit, self.local = explicit, local
        self.steps = self.loops = self.unrolled = 0

    def visit_AttrStmt(self, n: AttrStmt) -> Stmt:
        if n.attr_key == "pragma_auto_unroll_max_step":
            held, self.max_step = self.max_step, int(_number(n.value))
            body = self.visit(n.body)
            self.max_step = held
        elif n.attr_key == "pragma_unroll_explicit":
            kept, self.explicit = self.explicit, bool(_number(n.value))
            body = self.visit(n.body)
            self.explicit = kept
        else:
            return self.visit_children(n)
        return body  # type: ignore[no-any-return]

    def visit_BufferStore(self, n: BufferStore) -> BufferStore:
        self.steps += 1
        return n

    def visit_Evaluate(self, n: Evaluate) -> Evaluate:
        self.steps += 1
        return n

    def visit_SeqStmt(self, n: SeqStmt) -> Stmt:
        steps = loops = unrolled = 0
        out: list[Stmt] = []
        for s in n.seq:
            self.steps = self.loops = self.unrolled = 0
            out.append(self.visit(s))
            steps += self.steps
            loops, unrolled = max(loops, self.loops), max(unrolled, self.unrolled)
        self.steps, self.loops, self.unrolled = steps, loops, unrolled
        return n if all(a is b for a, b in zip(out, n.seq, strict=True)) else seq(*out)

    def visit_For(self, n: For) -> Stmt:
        body = self.visit(n.body)
        made = n.updated(body=body)
        extent = n.extent.value if isinstance(n.extent, IntImm) else None
        marked = n.kind is ForKind.UNROLLED
        if extent is None:
            self.loops += 1
            return made.replace(kind=ForKind.SERIAL) if marked else made
        if n.kind is ForKind.SERIAL and self.loops == 0 and self.unrolled <= self.max_depth:
            marked = extent * self.steps <= self.max_step or extent <= self.max_extent
        if n.kind is ForKind.SERIAL and self.local and not marked:
            marked = _indexes_local(body, n.loop_var)
        if marked and _jumps(n.body):  # checked last, and on the original body: it walks all of it
            self.loops += 1
            return made.replace(kind=ForKind.SERIAL)
        if marked:
            self.steps *= extent
            self.unrolled += 1
        else:
            self.loops += 1
        trivial = n.kind is ForKind.SERIAL and extent <= 1 == self.max_extent
        if (marked and self.explicit) or trivial:
            return _copies(made, extent)
        return made.replace(kind=ForKind.UNROLLED) if marked and n.kind is not ForKind.UNROLLED else made


def _copies(loop: For, extent: int) -> Stmt:
    """The body for each iteration, one after the other."""
    low, v = loop.min, loop.loop_var
    return seq(*copies(loop.body, v, [low + const(i, v.dtype) for i in range(extent)]))


def _jumps(body: Stmt) -> bool:
    return contains(body, (Call,)) and any(m.__class__ is Call and m.op in _JUMPS for m in pre_order(body))


def _indexes_local(body: Stmt, v: Var) -> bool:
    for m in pre_order(body):
        if isinstance(m, (BufferLoad, BufferStore)) and m.buffer.scope_name in ("local", "warp"):
            if any(uses_var(i, v) for i in m.indices):
                return True
    return False


def _number(value: Any) -> int | float:
    found = const_value(value)
    if found is None:
        raise ValueError(f"an unroll pragma takes a constant, not `{value}`")
    return found
