"""What one iteration of a loop needs from another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from copy import copy
from functools import reduce
from typing import Any

from ...arith import Analyzer, eval_set, relax_region
from ...ir.buffer import Buffer, BufferRegion
from ...ir.equal import structural_equal
from ...ir.expr import BufferLoad, IterVar, Or, PrimExpr, Range, Var, const, const_value
from ...ir.functor import pre_order, substitute, vars_used
from ...ir.ops import add, conjuncts, is_one, less, less_equal, logical_and, sub
from ...ir.stmt import Block, BlockRealize, BufferStore, For, IfThenElse, Stmt
from .elements import fill_box

__all__ = ["Use", "own_part", "reads_are_covered", "uses_under"]

Box = list[tuple[PrimExpr, PrimExpr]]


class Use:
    """A read or a write of a buffer by a block, in terms of the loops around it."""

    __slots__ = (
        "block",
        "boxes",
        "conditions",
        "inner",
        "ranges",
        "realize",
        "region",
        "values",
        "wide",
        "write",
    )

    def __init__(
        self,
        realize: BlockRealize,
        region: BufferRegion,
        write: bool,
        inner: Mapping[Var, Range],
        conditions: list[PrimExpr],
        table: Mapping[Any, Any],
    ) -> None:
        self.realize, self.block, self.write, self.wide = realize, realize.block, write, False
        self.boxes: dict[bool, Box | None] = {}
        self.region, self.inner, self.conditions = region, inner, conditions
        self.values = [table[iv.var] for iv in self.block.iter_vars]
        self.ranges = [(substitute(r.min, table), substitute(r.extent, table)) for r in region.region]

    def box(self, narrow: bool = False) -> Box | None:
        """The least box that holds it while the loops inside run, narrowed by the conditions if that is wanted;
        None if there is no telling."""
        if narrow not in self.boxes:
            self.boxes[narrow] = self._box(narrow)
        return self.boxes[narrow]

    def _box(self, narrow: bool) -> Box | None:
        ranges = [Range.from_min_extent(low, size) for low, size in self.ranges]
        if narrow and self.conditions:
            sets = relax_region(ranges, self.inner, reduce(logical_and, self.conditions))
        else:
            sets = [eval_set(r, self.inner) for r in ranges]
        out: Box = []
        for found in sets:
            ends = found.min_value, found.max_value
            if any(_unknown(e, self.inner) for e in ends):
                return None
            out.append(ends)
        return out

    def is_box(self) -> bool:
        """Whether it is all of that box, as `W[f // 8, f % 8]` is and `W[i, i]` is not."""
        used = [vars_used(low) & self.inner.keys() for low, _ in self.ranges]
        times = Counter(v for one in used for v in one)
        if not any(n > 1 and not is_one(self.inner[v].extent) for v, n in times.items()):
            return True
        inside = [c for c in self.conditions if vars_used(c) <= times.keys()]
        # Iterators that go beyond their domains are cut off where the buffer ends: for others it is a box still.
        cutting = [c for c in inside if not _keeps_domain(self, c)]
        doms = {v: self.inner[v] for v in times}
        return any(
            fill_box(self.ranges, doms, reduce(logical_and, conditions, const(True, "bool")))
            for conditions in ([inside] if len(cutting) == len(inside) else [inside, cutting])
        )

    def fixed(self, loops: Iterable[Var]) -> Use:
        """The same in one iteration of some of the loops inside."""
        made = copy(self)
        held = set(loops)
        made.inner, made.boxes = {v: r for v, r in self.inner.items() if v not in held}, {}
        return made

    def widened(self, more: Mapping[Var, Range]) -> Use:
        """The same with other loops taken to be inside: what all of their iterations do together."""
        if not more:
            return self
        made = copy(self)
        made.inner, made.wide, made.boxes = {**more, **self.inner}, True, {}
        return made

    def goes_on(self) -> bool:
        """Whether it is of a reduction that the loops inside take only a part of the steps of."""
        return self.write and _reduces(self.block) and not _within(self)

    def same_walk(self, other: Use, ana: Analyzer) -> bool:
        """Whether the loops inside, each through its own, come to the same elements in both; those of the other are
        known to the analyzer."""
        (mine, at), (theirs, there) = self._walk(), other._walk()
        if len(mine) != len(theirs) or len(at) != len(there):
            return False
        table: dict[Any, Any] = dict(zip(mine, theirs, strict=True))
        return all(
            structural_equal(self.inner[a].min, other.inner[b].min)
            and structural_equal(self.inner[a].extent, other.inner[b].extent)
            for a, b in table.items()
        ) and all(
            ana.can_prove_equal(substitute(a, table), b)
            for x, y in zip(at, there, strict=True)
            for a, b in zip(x, y, strict=True)
        )

    def _walk(self) -> tuple[list[Var], list[tuple[PrimExpr, PrimExpr]]]:
        """The loops inside that say where it is, in the order in which they are asked for, and where it is."""
        single: dict[Any, Any] = {v: r.min for v, r in self.inner.items() if is_one(r.extent)}
        at = [(substitute(low, single), substitute(size, single)) for low, size in self.ranges]
        found = (m for low, _ in at for m in pre_order(low) if isinstance(m, Var))
        return [*dict.fromkeys(v for v in found if v in self.inner)], at

    def same_place(self, other: Use) -> bool:
        """Whether both are of the same elements, loop for loop."""
        return len(self.ranges) == len(other.ranges) and all(
            structural_equal(a, b)
            for x, y in zip(self.ranges, other.ranges, strict=True)
            for a, b in zip(x, y, strict=True)
        )


def _unknown(e: Any, inner: Mapping[Var, Range]) -> bool:
    if not isinstance(e, PrimExpr):
        return True
    return any(
        isinstance(m, BufferLoad) or (isinstance(m, Var) and (m in inner or m.name in ("pos_inf", "neg_inf")))
        for m in pre_order(e)
    )


def uses_under(loop: For) -> dict[Buffer, list[Use] | None]:
    """The uses of each buffer inside a loop, in the order of the program; None where it is used outside of
    blocks that declare it, about which nothing is known. Memory that a block inside has for itself is not
    among them."""
    walk = _Uses()
    walk.go(loop.body, {}, [], {}, frozenset())
    return walk.found


class _Uses:
    def __init__(self) -> None:
        self.found: dict[Buffer, list[Use] | None] = {}

    def go(
        self,
        n: Any,
        inner: dict[Var, Range],
        conditions: list[PrimExpr],
        table: dict[Any, Any],
        seen: frozenset[Buffer],
    ) -> None:
        """Walk with the loops and conditions around, the values of iterators, and what blocks declared."""
        if isinstance(n, BlockRealize):
            self.block(n, inner, conditions, table, seen)
            return
        if isinstance(n, (BufferLoad, BufferStore)) and n.buffer not in seen:
            self.found[n.buffer] = None
        if isinstance(n, For):
            low, size = substitute(n.min, table), substitute(n.extent, table)
            inner = {**inner, n.loop_var: Range.from_min_extent(low, size)}
        if isinstance(n, IfThenElse):
            condition = substitute(n.condition, table)
            self.go(n.condition, inner, conditions, table, seen)
            self.go(n.then_case, inner, conditions + conjuncts(condition), table, seen)
            if n.else_case is not None:
                self.go(n.else_case, inner, [*conditions, condition], table, seen)
            return
        for child in n.children():
            if isinstance(child, (Stmt, PrimExpr)):
                self.go(child, inner, conditions, table, seen)

    def block(
        self,
        n: BlockRealize,
        inner: dict[Var, Range],
        conditions: list[PrimExpr],
        table: dict[Any, Any],
        seen: frozenset[Buffer],
    ) -> None:
        block = n.block
        values = [substitute(v, table) for v in n.iter_values]
        for value in (*n.iter_values, n.predicate):
            self.go(value, inner, conditions, table, seen)
        table = {**table, **{iv.var: v for iv, v in zip(block.iter_vars, values, strict=True)}}
        conditions = conditions + [c for c in conjuncts(substitute(n.predicate, table)) if vars_used(c)]
        for region, write in [(r, False) for r in block.reads] + [(w, True) for w in block.writes]:
            if region.buffer in seen:
                continue
            held = self.found.setdefault(region.buffer, [])
            if held is not None:
                held.append(Use(n, region, write, inner, conditions, table))
        own = (*block.alloc_buffers, *(m.buffer for m in block.match_buffers))
        seen = seen | {r.buffer for r in (*block.reads, *block.writes)} | set(own)
        for part in (block.init, block.body):
            if part is not None:
                self.go(part, inner, conditions, table, seen)


def own_part(loop: For, uses: list[Use], ana: Analyzer) -> bool:
    """Whether each iteration of the loop has elements of its own: those of the next lie behind them."""
    boxes = [u.box() for u in uses]
    if any(b is None for b in boxes):
        return False
    step: dict[Any, Any] = {loop.loop_var: add(loop.loop_var, const(1, loop.loop_var.dtype))}
    with ana.scope():
        ana.bind_loop(loop.loop_var, loop.min, loop.extent)
        for axis in range(len(uses[0].ranges)):
            pairs = [b[axis] for b in boxes if b is not None]
            if all(ana.can_prove(less(high, substitute(low, step))) for low, _ in pairs for _, high in pairs):
                return True
    return False


def reads_are_covered(loop: For, uses: list[Use], ana: Analyzer) -> bool:
    """Whether every iteration of the loop writes what it reads before it reads it."""
    written: list[Use] = []
    with ana.scope():
        ana.bind_loop(loop.loop_var, loop.min, loop.extent)
        for use in uses:
            if not use.write:
                if not any(_covers(w, use, ana) for w in written):
                    return False
                continue
            # A reduction reads what it writes, unless all of it happens inside one iteration.
            inside = _within(use) and _starts(use)
            if _reduces(use.block) and not inside and not any(_covers(w, use, ana) for w in written):
                return False
            if _always_writes(use):
                written.append(use)
    return True


def _always_writes(use: Use) -> bool:
    """Whether a block writes what it declares each time that it runs, and not under a condition only."""
    buffer, guarded = use.region.buffer, False
    stack: list[tuple[Any, bool]] = [(use.block.body, False), (use.block.init, False)]
    while stack:
        n, inside = stack.pop()
        if isinstance(n, BufferStore) and n.buffer is buffer:
            if not inside:
                return True
            guarded = True
        inside = inside or isinstance(n, IfThenElse)
        if n is not None:
            stack.extend((c, inside) for c in n.children() if isinstance(c, (Stmt, Block)))
    return not guarded  # an instruction writes it


def _reduces(block: Block) -> bool:
    return any(iv.iter_type == IterVar.CommReduce for iv in block.iter_vars)


def _within(use: Use) -> bool:
    for iv, value in zip(use.block.iter_vars, use.values, strict=True):
        if iv.iter_type == IterVar.CommReduce and not vars_used(value) <= set(use.inner):
            return False
    return True


def _starts(use: Use) -> bool:
    """Whether the init of a reduction runs, in the first iteration of the loops inside."""
    init, buffer = use.block.init, use.region.buffer
    if init is None:
        return True  # it says that it reads what it goes on from
    if any(isinstance(m, BufferLoad) and m.buffer is buffer for m in pre_order(init)):
        return False
    first: dict[Any, Any] = {v: r.min for v, r in use.inner.items()}
    ana = Analyzer()
    return all(
        ana.can_prove_equal(substitute(value, first), iv.dom.min)
        for iv, value in zip(use.block.iter_vars, use.values, strict=True)
        if iv.iter_type == IterVar.CommReduce
    )


def _keeps_domain(use: Use, condition: PrimExpr) -> bool:
    """Whether a condition only keeps the iterators of a block in their domains."""
    ana = Analyzer()
    for v, r in use.inner.items():
        ana.bind_loop(v, r.min, r.extent)
    for iv, value in zip(use.block.iter_vars, use.values, strict=True):
        ana.assume(logical_and(less_equal(iv.dom.min, value), less(value, add(iv.dom.min, iv.dom.extent))))
    return ana.can_prove(condition)


def _domain_fills(use: Use) -> bool:
    """Whether a region ends where the buffer does, or nobody knows, as the iterators run through their domains."""
    doms = {iv.var: iv.dom for iv in use.block.iter_vars}
    for r, dim in zip(use.region.region, use.region.buffer.shape, strict=True):
        last, size = const_value(eval_set(r, doms).max_value), const_value(dim)
        if last is not None and size is not None and last < size - 1:
            return False
    return True


def _covers(write: Use, read: Use, ana: Analyzer) -> bool:
    """Whether a write comes to all that a later read does: all iterations together, or each iteration of the loops
    around both."""
    if _covers_together(write, read, ana):
        return True
    common = {v: r for v, r in read.inner.items() if v in write.inner and not is_one(r.extent)}
    if not common:
        return False
    with ana.scope():
        for v, r in common.items():
            ana.bind_loop(v, r.min, r.extent)
        return _covers_together(write.fixed(common), read.fixed(common), ana)


def _covers_together(write: Use, read: Use, ana: Analyzer) -> bool:
    cut = False  # what it writes ends before its domains do
    with ana.scope():
        # Only where something is read must it have been written.
        for v, r in read.inner.items():
            ana.bind_loop(v, r.min, r.extent)
        for c in read.conditions:
            ana.assume(c)
        for c in write.conditions:
            # A condition that cuts off the end of a tile leaves out what nobody reads; one that picks
            # iterations leaves the read to what another iteration wrote, and so does a choice (the first one,
            # or what is new in it).
            picks = not vars_used(c) & set(write.inner) or any(isinstance(m, Or) for m in pre_order(c))
            if any(structural_equal(c, d) for d in read.conditions):
                continue
            if picks and not ana.can_prove(c):
                return False
            inside = _keeps_domain(write, c) and _domain_fills(write)
            cut = cut or not (picks or inside or ana.can_prove(c))
        if not cut and (write.same_place(read) or write.same_walk(read, ana)):
            return True
        outer, inner = write.box(narrow=write.wide or cut), read.box(narrow=True)
        if outer is None or inner is None or not write.is_box():
            return False
        # What lies outside of the buffer is guarded, and not read.
        return all(
            (ana.can_prove(less_equal(low, a)) or ana.can_prove(less_equal(low, const(0, low.dtype))))
            and (
                ana.can_prove(less_equal(b, high)) or ana.can_prove(less(sub(dim, const(2, dim.dtype)), high))
            )
            for (low, high), (a, b), dim in zip(outer, inner, read.region.buffer.shape, strict=True)
        )
