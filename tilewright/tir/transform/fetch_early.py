"""Prefetches at the start of a kernel, issued before the previous kernel has ended."""

from __future__ import annotations

from ...ir.buffer import Buffer
from ...ir.expr import BufferLoad, Call, IterVar, PrimExpr, Ramp, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, pre_order, statements, vars_used
from ...ir.op import Op
from ...ir.ops import less
from ...ir.stmt import Allocate, AttrStmt, BufferStore, DeclBuffer, IfThenElse, SeqStmt, Stmt, seq
from .inject_prefetch import asked_for

FETCH_EARLY = "pragma_fetch_early"  # on a block or a loop: how many thread blocks, the first ones, prefetch
EARLY = 1  # the cache argument of such a `tir.prefetch`, which no other prefetch has
_CLUSTER = "clusterCtaIdx.x"
_IF = Op.get("tir.if_then_else")


def fetch_early(func: PrimFunc) -> PrimFunc:
    """Prefetch what is read under `pragma_fetch_early` at the very start of a kernel, in its first thread blocks.

        # blockIdx.x: b, threadIdx.x: t            # blockIdx.x: b, threadIdx.x: t
            # pragma_fetch_early: 528       ->         if b < 528: prefetch(&A[b*64 + t])
                B_local[0] = A[b*64 + t]               B_local[0] = A[b*64 + t]

    The elements come from memory into the L2 cache while the previous kernel is still finishing. A prefetch gives no
    value, so it may be issued before the writes of that kernel. There is no prefetch for loads in loops, in
    conditional expressions, or with indices that are loaded from memory.
    Needs: flat buffers, unrolled loops, simple conditions. Gives: no such mark.
    """
    if not any(isinstance(m, AttrStmt) and m.attr_key == FETCH_EARLY for m in statements(func.body)):
        return func
    return _Kernels().run(func)


class _Kernels(Mutator):
    """Puts the prefetches in front of the body of each kernel."""

    def __init__(self) -> None:
        self.around: list[AttrStmt] = []  # the thread axes, outermost first

    def visit_AttrStmt(self, n: AttrStmt) -> Stmt:
        if n.attr_key == FETCH_EARLY:
            return self.visit(n.body)  # type: ignore[no-any-return]
        if n.attr_key != "thread_extent":
            return n.map_children(self.visit)
        self.around.append(n)
        body: Stmt = self.visit(n.body)
        if not (isinstance(n.body, AttrStmt) and n.body.attr_key == "thread_extent"):
            body = seq(*self.hints(n.body), body)
        self.around.pop()
        return n.replace(body=body)

    def hints(self, body: Stmt) -> list[Stmt]:
        axes = {a.node.thread_tag: a for a in self.around if isinstance(a.node, IterVar)}
        blocks = axes.get("blockIdx.x")
        if blocks is None or _CLUSTER in axes:
            return []
        found = _Loads({a.node.var for a in axes.values()})
        found.look(body, None, 0)
        if not found.hints:
            return []
        first, count = const(found.first, blocks.node.var.dtype), const_value(blocks.value)
        asked = seq(*found.hints)
        return [
            asked
            if count is not None and count <= found.first
            else IfThenElse(less(blocks.node.var, first), asked)
        ]


class _Loads:
    """The loads under the mark that are in no loop, as prefetches."""

    def __init__(self, threads: set[Var]) -> None:
        self.threads, self.first = threads, 0
        self.hints: list[Stmt] = []
        self.seen: set[tuple[Buffer, str]] = set()

    def look(self, s: Stmt, condition: PrimExpr | None, first: int) -> None:
        """Visit the statements that a thread runs at most once, with their condition and the value of the mark."""
        if isinstance(s, SeqStmt):
            for one in s.seq:
                self.look(one, condition, first)
        elif isinstance(s, AttrStmt):
            marked = s.attr_key == FETCH_EARLY
            self.look(s.body, condition, int(const_value(s.value) or 0) if marked else first)
        elif isinstance(s, (Allocate, DeclBuffer)):
            self.look(s.body, condition, first)
        elif isinstance(s, IfThenElse) and condition is None and self.known(s.condition):
            self.look(s.then_case, s.condition, first)
        elif isinstance(s, BufferStore) and first:
            self.first = max(self.first, first)
            if not any(isinstance(m, Call) and m.op is _IF for m in pre_order(s.value)):
                for m in pre_order(s.value):
                    if isinstance(m, BufferLoad) and m.buffer.scope() == "global" and m.predicate is None:
                        self.ask(m, condition)

    def known(self, e: PrimExpr) -> bool:
        """Whether an expression depends on the thread axes only, and loads nothing from memory."""
        return vars_used(e) <= self.threads and not any(isinstance(m, BufferLoad) for m in pre_order(e))

    def ask(self, load: BufferLoad, condition: PrimExpr | None) -> None:
        (index,) = load.indices
        place = index.base if isinstance(index, Ramp) else index
        key = (load.buffer, str(place))
        if place.dtype.is_vector or not self.known(place) or key in self.seen:
            return
        self.seen.add(key)
        hint = asked_for(load.buffer, place, EARLY)
        self.hints.append(hint if condition is None else IfThenElse(condition, hint))
