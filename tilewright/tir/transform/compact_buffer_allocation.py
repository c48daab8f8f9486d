"""Allocations no larger than the region in use."""

from __future__ import annotations

from collections.abc import Iterable, Set
from functools import reduce
from typing import Any

from ...arith import Analyzer, eval_set, relax_region
from ...ir.buffer import Buffer, BufferRegion
from ...ir.expr import BufferLoad, Call, IntImm, IterVar, Let, PrimExpr, Range, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, pre_order, vars_used
from ...ir.op import Op
from ...ir.ops import add, conjuncts, logical_and, max_of, min_of, sub
from ...ir.stmt import (
    AttrStmt,
    Block,
    BlockRealize,
    BufferStore,
    DeclBuffer,
    For,
    IfThenElse,
    LetStmt,
    Stmt,
    stmt_list,
)

_ADDRESS = Op.get("tir.address_of")


def compact_buffer_allocation(func: PrimFunc, *, is_strict: bool = True) -> PrimFunc:
    """Shrink each allocation to the region that is accessed inside its block.

        for i in range(8):                        for i in range(8):
            with block(""):                           with block(""):
                B = alloc_buffer((8, 8))   ->             B = alloc_buffer((1, 8))
                … B[i, j] …                               … B[0, j] …

    Needs: blocks without iterators, allocations in place. Gives: the same accesses, moved to start at 0.
    """
    return _Compact().run(func)


class _Compact(Mutator):
    def __init__(self) -> None:
        self.ana = Analyzer()
        self.moved: dict[Buffer, tuple[Buffer, list[PrimExpr]]] = {}
        self.threads: dict[Var, tuple[str, Range]] = {}  # the enclosing loops that are bound to thread axes

    def visit_For(self, n: For) -> Stmt:
        with self.ana.scope():
            self.ana.bind_loop(n.loop_var, n.min, n.extent)
            if n.thread_binding is None:
                return n.map_children(self.visit)
            self.threads[n.loop_var] = (n.thread_binding.thread_tag, n.dom)
            made = n.map_children(self.visit)
            del self.threads[n.loop_var]
            return made

    def sharers(self, buffer: Buffer) -> dict[Var, Range]:
        """The enclosing thread axes whose threads share the memory: it must hold the accesses of all of them."""
        scope = buffer.scope() if buffer.scope() == "shared.cluster" else buffer.scope().partition(".")[0]
        seen_by = {
            "shared": ("threadIdx",),
            "shared.cluster": ("threadIdx", "clusterCtaIdx"),
            "global": ("blockIdx", "clusterCtaIdx", "threadIdx"),
            "warp": ("threadIdx.x",),
            "wgmma": ("threadIdx.x",),  # the threads of a warpgroup hold a tile together
        }.get(scope, ())
        return {v: dom for v, (tag, dom) in self.threads.items() if tag.startswith(seen_by)}

    def visit_Block(self, n: Block) -> Block:
        allocs = []
        # Statements by the pointers that they use, so that each buffer walks only over its own.
        parts = [(part, _pointers(part)) for part in stmt_list(n.body)] if n.alloc_buffers else []
        for buffer in n.alloc_buffers:
            region = self.region([part for part, used in parts if buffer.data in used], buffer)
            if region is None:
                allocs.append(buffer)
                continue
            shape = tuple(r.extent for r in region)
            if all(_same(a, b) for a, b in zip(shape, buffer.shape, strict=True)):
                allocs.append(buffer)
                continue
            made = buffer.replace(shape=shape)
            self.moved[buffer] = (made, [r.min for r in region])
            allocs.append(made)
        made_block = n.map_children(self.visit)
        if all(a is b for a, b in zip(allocs, n.alloc_buffers, strict=True)):
            return made_block
        return made_block.replace(alloc_buffers=tuple(allocs))

    def region(self, parts: Iterable[Stmt], buffer: Buffer) -> list[Range] | None:
        """The box of `buffer` that the statements access; None if unknown."""
        if buffer.strides or not buffer.shape:
            return None
        virtual = {v for v, (tag, _) in self.threads.items() if tag.startswith("vthread")}
        found = _Accesses(buffer, virtual)
        for part in parts:
            found.walk(part, self.sharers(buffer), [])
        if found.opaque or not found.boxes:
            return None
        lows: list[PrimExpr] = []
        sizes: list[PrimExpr] = []
        for axis, dim in enumerate(buffer.shape):
            low = high = None
            for box in found.boxes:
                a, b = box[axis]
                if a is None or b is None:
                    return None
                low = a if low is None else min_of(low, a)
                high = b if high is None else max_of(high, b)
            assert low is not None and high is not None
            low = self.ana.simplify(max_of(low, const(0, low.dtype)))
            high = self.ana.simplify(min_of(high, sub(dim, const(1, dim.dtype))))
            size = self.ana.simplify(add(sub(high, low), const(1, low.dtype)))
            if not isinstance(size, IntImm):
                bound = self.ana.const_int_bound(size).max_value
                limit = self.ana.const_int_bound(dim).max_value
                if isinstance(dim, IntImm) or bound < limit:
                    size = const(min(bound, limit), dim.dtype) if bound < (1 << 31) else dim
                else:
                    low, size = const(0, dim.dtype), dim
            if isinstance(size, IntImm) and size.value < 1:
                size = const(1, dim.dtype)
            lows.append(low)
            sizes.append(size)
        return [Range.from_min_extent(a, b) for a, b in zip(lows, sizes, strict=True)]

    def access(self, n: Any) -> Any:
        made = n.map_children(self.visit)
        found = self.moved.get(made.buffer)
        if found is None:
            return made
        buffer, starts = found
        indices = tuple(
            self.ana.simplify(sub(i, s)) if i.dtype.lanes == 1 else sub(i, s)
            for i, s in zip(made.indices, starts, strict=True)
        )
        return made.replace(buffer=buffer, indices=indices)

    visit_BufferLoad = visit_BufferStore = access

    def visit_BufferRegion(self, n: BufferRegion) -> BufferRegion:
        made = n.map_children(self.visit)
        found = self.moved.get(made.buffer)
        if found is None:
            return made
        buffer, starts = found
        region = tuple(
            Range.from_min_extent(self.ana.simplify(sub(r.min, s)), r.extent)
            for r, s in zip(made.region, starts, strict=True)
        )
        return BufferRegion(buffer, region)


def _pointers(n: Stmt) -> set[Var]:
    """The pointers that a statement uses, bare or behind a buffer."""
    out: set[Var] = set()
    for m in pre_order(n):
        if isinstance(m, (BufferLoad, BufferStore, BufferRegion, DeclBuffer)):
            out.add(m.buffer.data)
        elif isinstance(m, Var) and m.dtype.is_handle:
            out.add(m)
    return out


def _same(a: PrimExpr, b: PrimExpr) -> bool:
    return a is b or (isinstance(a, IntImm) and isinstance(b, IntImm) and a.value == b.value)


class _Accesses:
    """The boxes of one buffer that a statement accesses, relaxed over the loops inside it."""

    def __init__(self, buffer: Buffer, virtual: Set[Var]) -> None:
        # `virtual`: the enclosing virtual threads, which share a tile.
        self.buffer, self.virtual = buffer, virtual
        self.boxes: list[list[tuple[PrimExpr | None, PrimExpr | None]]] = []
        self.opaque = False
        self.bound: set[Var] = set()

    def walk(self, n: Any, loops: dict[Var, Range], conditions: list[PrimExpr]) -> None:
        if self.opaque:
            return
        if getattr(n, "buffer", self.buffer) is not self.buffer and n.buffer.data is self.buffer.data:
            self.opaque = True  # an alias of the memory
        if isinstance(n, For):
            self.walk(n.min, loops, conditions)
            self.walk(n.extent, loops, conditions)
            inner = {**loops, n.loop_var: n.dom}
            self.walk(n.body, inner, conditions)
            return
        if isinstance(n, AttrStmt) and isinstance(n.node, IterVar):
            inner = {**loops, n.node.var: Range.from_min_extent(const(0, n.node.var.dtype), n.value)}
            self.walk(n.body, inner, conditions)
            return
        if isinstance(n, BlockRealize):
            for value in (*n.iter_values, n.predicate):
                self.walk(value, loops, conditions)
            more = conditions + conjuncts(n.predicate)
            for match in n.block.match_buffers:
                if match.source.buffer is self.buffer:
                    self.box(
                        [
                            (r.min, sub(add(r.min, r.extent), const(1, r.min.dtype)))
                            for r in match.source.region
                        ],
                        loops,
                        more,
                    )
            if n.block.init is not None:
                self.walk(n.block.init, loops, more)
            self.walk(n.block.body, loops, more)
            return
        if isinstance(n, IfThenElse):
            self.walk(n.condition, loops, conditions)
            self.walk(n.then_case, loops, conditions + conjuncts(n.condition))
            if n.else_case is not None:
                self.walk(n.else_case, loops, conditions)
            return
        if isinstance(n, (LetStmt, Let)):
            # The range of the variable is not known outside: an access that uses it is opaque.
            self.bound.add(n.var)
        if isinstance(n, (BufferLoad, BufferStore)) and n.buffer is self.buffer:
            self.box([(i, i) for i in n.indices], loops, conditions)
        elif isinstance(n, Call) and self.handed_out(n):
            self.opaque = True
        for child in n.children():
            self.walk(child, loops, conditions)

    def handed_out(self, call: Call) -> bool:
        """Whether a call takes the buffer's pointer or the address of an element, and may access others from there."""
        if call.op is _ADDRESS and getattr(call.args[0], "buffer", None) is self.buffer:
            return True
        return any(a is self.buffer.data for a in call.args)

    def box(
        self, ranges: Iterable[tuple[PrimExpr, PrimExpr]], loops: dict[Var, Range], conditions: list[PrimExpr]
    ) -> None:
        out: list[tuple[PrimExpr | None, PrimExpr | None]] = []
        # A cooperative fetch is cut off at its end. A tile that extends past the end of its buffer is still
        # as large as the others: conditions on what is outside are left out.
        cuts = [c for c in conditions if vars_used(c) <= loops.keys() | self.virtual]
        for low, high in ranges:
            lo, hi = _ends(low, high, loops, cuts)
            for e in (lo, hi):
                if not isinstance(e, PrimExpr) or e.dtype.is_vector or _unbounded(e):
                    self.opaque = True
                    return
                used = vars_used(e)
                if (
                    used & set(loops)
                    or used & self.bound
                    or any(isinstance(m, BufferLoad) for m in pre_order(e))
                ):
                    self.opaque = True
                    return
            out.append((lo, hi))
        self.boxes.append(out)
        # The whole buffer is accessed: stop.
        self.opaque = all(
            _is_within(lo, 0) and _is_within(dim, hi, 1)
            for (lo, hi), dim in zip(out, self.buffer.shape, strict=True)
        )


def _ends(
    low: PrimExpr, high: PrimExpr, loops: dict[Var, Range], cuts: list[PrimExpr]
) -> tuple[PrimExpr, PrimExpr]:
    """The least value of `low` and the greatest of `high` while loops run, where conditions hold."""
    if cuts and not vars_used(high).isdisjoint(loops):
        size = add(sub(high, low), const(1, low.dtype))
        (found,) = relax_region([Range.from_min_extent(low, size)], loops, reduce(logical_and, cuts))
        return found.min_value, found.max_value
    a = eval_set(low, loops)
    return a.min_value, (a if high is low else eval_set(high, loops)).max_value


def _is_within(a: Any, b: Any, more: int = 0) -> bool:
    """Whether a number is provably at most another one plus a slack."""
    low, high = const_value(a), const_value(b)
    return low is not None and high is not None and low <= high + more


def _unbounded(e: PrimExpr) -> bool:
    return any(isinstance(m, Var) and m.name in ("pos_inf", "neg_inf") for m in pre_order(e))
