"""Loop-carried dependences: the elements that one iteration of a loop needs from another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import Any

from ...arith import Analyzer, eval_set, relax_region
from ...ir.buffer import Buffer, BufferRegion
from ...ir.equal import structural_equal
from ...ir.expr import BufferLoad, PrimExpr, Range, Var, const, const_value
from ...ir.functor import pre_order, substitute, vars_used
from ...ir.ops import add, conjunction, conjuncts, is_one, less, less_equal, logical_not, sub
from ...ir.stmt import Block, BlockRealize, BufferStore, For, IfThenElse, Stmt
from .elements import Box, filled_box, is_gapless


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
        "together",
        "values",
        "write",
    )

    def __init__(
        self,
        realize: BlockRealize,
        region: BufferRegion,
        write: bool,
        inner: dict[Var, Range],
        conditions: list[PrimExpr],
        table: Mapping[Any, Any],
    ) -> None:
        self.realize, self.block, self.write = realize, realize.block, write
        # Inner loops whose iterations are threads that share the memory.
        self.together: frozenset[Var] = frozenset()
        self.boxes: dict[bool, Box | None] = {}
        self.region, self.inner, self.conditions = region, inner, conditions
        self.values = [table[iv.var] for iv in self.block.iter_vars]
        self.ranges = [(substitute(r.min, table), substitute(r.extent, table)) for r in region.region]

    def box(self, narrow: bool = False) -> Box | None:
        """The bounding box of the use while the inner loops run, restricted by the conditions if `narrow`; None if
        unknown."""
        if narrow not in self.boxes:
            self.boxes[narrow] = self._box(narrow)
        return self.boxes[narrow]

    def _box(self, narrow: bool) -> Box | None:
        ranges = [Range.from_min_extent(low, size) for low, size in self.ranges]
        if narrow and self.conditions:
            sets = relax_region(ranges, self.inner, conjunction(self.conditions))
        else:
            sets = [eval_set(r, self.inner) for r in ranges]
        out: Box = []
        for found in sets:
            ends = found.min_value, found.max_value
            if any(_unknown(e, self.inner) for e in ends):
                return None
            out.append(ends)
        return out

    def filled(self, conditions: Iterable[PrimExpr] = ()) -> Box | None:
        """The box of which the use visits every element as the inner loops run where conditions hold; None if
        unknown."""
        single: dict[Any, Any] = {v: r.min for v, r in self.inner.items() if is_one(r.extent)}
        ranges = [(substitute(low, single), substitute(size, single)) for low, size in self.ranges]
        inside = [substitute(c, single) for c in conditions]
        used = [(vars_used(low) | vars_used(size)) & self.inner.keys() for low, size in ranges]
        doms = {v: self.inner[v] for one in (*used, *map(vars_used, inside)) for v in one}
        if any((vars_used(r.min) | vars_used(r.extent)) & self.inner.keys() for r in doms.values()):
            return None
        times = Counter(v for one in used for v in one)
        apart = not inside and max(times.values(), default=1) == 1
        if apart and all(is_gapless(low, size, doms) for low, size in ranges):
            return self.box()
        # Elements out of bounds do not count.
        for (low, size), dim in zip(ranges, self.region.buffer.shape, strict=True):
            if vars_used(low) <= doms.keys() and const_value(dim) is not None:
                inside += [less_equal(const(0, low.dtype), low), less_equal(add(low, size), dim)]
        return filled_box(ranges, doms, conjunction(inside))

    def fixed(self, loops: Iterable[Var]) -> Use:
        """The same use in one iteration of some of the inner loops."""
        made = copy(self)
        held = set(loops)
        made.inner, made.boxes = {v: r for v, r in self.inner.items() if v not in held}, {}
        return made

    def widened(self, more: Mapping[Var, Range]) -> Use:
        """The same use with more inner loops, whose iterations are threads: the union over them."""
        if not more:
            return self
        made = copy(self)
        made.inner, made.together, made.boxes = {**more, **self.inner}, self.together | more.keys(), {}
        return made

    def renamed(self, names: Mapping[Var, Var], more: Mapping[Var, Range]) -> Use:
        """The same use with loop variables renamed, and `more` inner loops."""
        made, table = copy(self), dict[Any, Any](names)
        kept = {
            names.get(v, v): Range.from_min_extent(substitute(r.min, table), substitute(r.extent, table))
            for v, r in self.inner.items()
        }
        made.inner, made.boxes = {**more, **kept}, {}
        made.ranges = [(substitute(low, table), substitute(size, table)) for low, size in self.ranges]
        made.conditions = [substitute(c, table) for c in self.conditions]
        return made

    def continues_reduction(self) -> bool:
        """Whether the use writes a reduction of which the inner loops take only some of the steps."""
        return self.write and _reduces(self.block) and not _within(self)

    def same_walk(self, other: Use, ana: Analyzer) -> bool:
        """Whether the inner loops of both uses visit the same elements in the same order; `ana` knows the loops of the
        other one."""
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
        """The inner loops that the indices use, in order of appearance, and the ranges."""
        single: dict[Any, Any] = {v: r.min for v, r in self.inner.items() if is_one(r.extent)}
        at = [(substitute(low, single), substitute(size, single)) for low, size in self.ranges]
        found = (m for low, _ in at for m in pre_order(low) if isinstance(m, Var))
        return [*dict.fromkeys(v for v in found if v in self.inner)], at

    def same_place(self, other: Use) -> bool:
        """Whether both use the same elements in each iteration."""
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
    """The uses of each buffer inside a loop, in program order; None for a buffer that is used outside of blocks that
    declare it, about which nothing is known. Buffers that a block inside allocates are not listed."""
    walk = _Uses()
    walk.go(loop.body, {}, [], {}, frozenset())
    return walk.found


class _Uses:
    def __init__(self) -> None:
        self.found: dict[Buffer, list[Use] | None] = {}
        self.threads: set[Var] = set()

    def go(
        self,
        n: Any,
        inner: dict[Var, Range],
        conditions: list[PrimExpr],
        table: dict[Any, Any],
        seen: frozenset[Buffer],
    ) -> None:
        """Walk with the enclosing loops and conditions, the values of iterators, and the declared regions."""
        if isinstance(n, BlockRealize):
            self.block(n, inner, conditions, table, seen)
            return
        if isinstance(n, (BufferLoad, BufferStore)) and n.buffer not in seen:
            self.found[n.buffer] = None
        if isinstance(n, For):
            low, size = substitute(n.min, table), substitute(n.extent, table)
            inner = {**inner, n.loop_var: Range.from_min_extent(low, size)}
            if n.thread_binding is not None and n.thread_binding.thread_tag.startswith("threadIdx"):
                self.threads.add(n.loop_var)
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
                use = Use(n, region, write, inner, conditions, table)
                if region.buffer.scope() != "local":
                    use.together = frozenset(self.threads & inner.keys())
                held.append(use)
        own = (*block.alloc_buffers, *(m.buffer for m in block.match_buffers))
        seen = seen | {r.buffer for r in (*block.reads, *block.writes)} | set(own)
        for part in (block.init, block.body):
            if part is not None:
                self.go(part, inner, conditions, table, seen)


def is_disjoint(loop: For, uses: list[Use], ana: Analyzer) -> bool:
    """Whether the iterations of the loop use disjoint elements: each iteration starts after the last element of the
    previous one."""
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
    """Whether every iteration of the loop writes each element before it reads it."""
    written: list[Use] = []
    with ana.scope():
        ana.bind_loop(loop.loop_var, loop.min, loop.extent)
        for use in uses:
            # A reduction reads its accumulator, unless all its steps are inside one iteration.
            reads = not use.write or (_reduces(use.block) and not (_within(use) and _starts(use)))
            if reads and not _is_covered(written, use if use.write else _guarded(use), ana):
                return False
            written += _stores(use) if use.write else []
    return True


def _is_covered(written: list[Use], read: Use, ana: Analyzer) -> bool:
    return any(_covers(w, read, ana) for w in written) or _cover_jointly(written, read, ana)


def _guarded(read: Use) -> Use:
    """The read under the conditions that all loads inside its block have in common."""
    buffer, at = (
        read.region.buffer,
        dict(zip((iv.var for iv in read.block.iter_vars), read.values, strict=True)),
    )
    each: list[list[PrimExpr]] = []  # the conditions of each load
    stack: list[tuple[Any, list[PrimExpr]]] = [
        (part, []) for part in (read.block.init, read.block.body) if part
    ]
    while stack:
        n, conditions = stack.pop()
        if isinstance(n, BufferLoad) and n.buffer is buffer:
            each.append(conditions)
        if isinstance(n, IfThenElse):
            met = substitute(n.condition, at)
            stack.append((n.condition, conditions))
            stack.append((n.then_case, [*conditions, *conjuncts(met)]))
            if n.else_case is not None:
                stack.append((n.else_case, [*conditions, logical_not(met)]))
            continue
        stack.extend((c, conditions) for c in n.children() if isinstance(c, (Stmt, Block, PrimExpr)))
    # Only loops around the block give them a meaning outside of it, and memory may have changed since the write.
    around = {v for value in read.values for v in vars_used(value)} | read.inner.keys()
    common = [c for c in (each[0] if each else []) if vars_used(c) <= around and not _reads_memory(c)]
    common = [c for c in common if all(any(structural_equal(c, d) for d in other) for other in each[1:])]
    if not common:
        return read
    made = copy(read)
    made.conditions, made.boxes = [*read.conditions, *common], {}
    return made


def _reads_memory(e: PrimExpr) -> bool:
    return any(isinstance(m, BufferLoad) for m in pre_order(e))


def _stores(use: Use) -> list[Use]:
    """The elements that a block writes each time it runs: the indices of its stores with the loops and conditions
    inside the block; the declared region if it is one element, or an instruction writes it."""
    buffer, at = use.region.buffer, dict(zip((iv.var for iv in use.block.iter_vars), use.values, strict=True))
    out: list[Use] = []
    stack: list[tuple[Any, dict[Var, Range], list[PrimExpr], dict[Any, Any]]] = [
        (part, use.inner, use.conditions, at) for part in (use.block.init, use.block.body) if part is not None
    ]
    while stack:
        n, inner, conditions, table = stack.pop()
        if isinstance(n, BufferStore) and n.buffer is buffer:
            made = copy(use)
            made.inner, made.conditions, made.boxes = inner, conditions, {}
            if not all(is_one(size) for _, size in use.ranges):
                made.ranges = [(substitute(i, table), const(1, i.dtype)) for i in n.indices]
            out.append(made)
        elif isinstance(n, For):
            low, size = substitute(n.min, table), substitute(n.extent, table)
            inner = {**inner, n.loop_var: Range.from_min_extent(low, size)}
        elif isinstance(n, BlockRealize):
            values = n.bindings
            table = {**table, **{iv.var: substitute(v, table) for iv, v in values}}
            conditions = conditions + conjuncts(substitute(n.predicate, table))
        elif isinstance(n, IfThenElse):
            met = substitute(n.condition, table)
            if n.else_case is not None:
                stack.append((n.else_case, inner, [*conditions, logical_not(met)], table))
            stack.append((n.then_case, inner, conditions + conjuncts(met), table))
            continue
        stack.extend((c, inner, conditions, table) for c in n.children() if isinstance(c, (Stmt, Block)))
    return out or [use]


def _reduces(block: Block) -> bool:
    return any(iv.is_reduction for iv in block.iter_vars)


def _within(use: Use) -> bool:
    for iv, value in zip(use.block.iter_vars, use.values, strict=True):
        if iv.is_reduction and not vars_used(value) <= set(use.inner):
            return False
    return True


def _starts(use: Use) -> bool:
    """Whether the init of a reduction runs in the first iteration of the inner loops."""
    init, buffer = use.block.init, use.region.buffer
    if init is None:
        return True  # it declares the read of its accumulator
    if any(isinstance(m, BufferLoad) and m.buffer is buffer for m in pre_order(init)):
        return False
    first: dict[Any, Any] = {v: r.min for v, r in use.inner.items()}
    ana = Analyzer()
    return all(
        ana.can_prove_equal(substitute(value, first), iv.dom.min)
        for iv, value in zip(use.block.iter_vars, use.values, strict=True)
        if iv.is_reduction
    )


def _covers(write: Use, read: Use, ana: Analyzer) -> bool:
    """Whether a write covers a later read in each iteration of the serial loops around both: in the same iteration, or
    in those of the innermost loop up to it."""
    common = {
        v: r
        for v, r in read.inner.items()
        if v in write.inner and v not in read.together and not is_one(r.extent)
    }
    with ana.scope():
        ana.bind_ranges(common)
        held = read.fixed(common)
        if _covers_together(write.fixed(common), held, ana):
            return True
        if not common:
            return False
        last, r = list(common.items())[-1]
        before = last.copy_with_suffix("_before")
        extent = add(sub(last, r.min), const(1, last.dtype))
        earlier = write.fixed(common).renamed({last: before}, {before: Range.from_min_extent(r.min, extent)})
        return _covers_together(earlier, held, ana)


def _cover_jointly(writes: list[Use], read: Use, ana: Analyzer) -> bool:
    """Whether several writes together cover a later read with adjoining boxes."""
    if len(writes) < 2:
        return False
    common = {v: r for v, r in read.inner.items() if v not in read.together and not is_one(r.extent)}
    around = {v: r for v, r in common.items() if any(v in w.inner for w in writes)}
    held = read.fixed(around)
    with ana.scope():
        ana.bind_ranges(around)
        needed = held.box(narrow=True)
        if needed is None:
            return False
        _assume_read(held, ana)
        boxes = [b for w in writes for b in _boxes(w.fixed(around), held, needed, ana)]
        return any(_lies_in(needed, b, read.region.buffer, ana) for b in _joined(boxes, ana))


def _joined(boxes: list[Box], ana: Analyzer) -> list[Box]:
    """Boxes, with those merged that adjoin along one dimension and are equal along the others."""
    done: list[Box] = []
    while boxes:
        box = boxes.pop()
        for i, other in enumerate(boxes):
            made = _join(box, other, ana) or _join(other, box, ana)
            if made is not None:
                boxes[i] = made
                break
        else:
            done.append(box)
    return done


def _join(a: Box, b: Box, ana: Analyzer) -> Box | None:
    differ = [
        i
        for i, (x, y) in enumerate(zip(a, b, strict=True))
        if not all(ana.can_prove_equal(p, q) for p, q in zip(x, y, strict=True))
    ]
    if len(differ) != 1:
        return None
    (low, high), (begin, end) = a[differ[0]], b[differ[0]]
    one = const(1, high.dtype)
    if not all(
        map(ana.can_prove, (less_equal(low, begin), less_equal(begin, add(high, one)), less_equal(high, end)))
    ):
        return None
    return [(low, end) if i == differ[0] else x for i, x in enumerate(a)]


def _covers_together(write: Use, read: Use, ana: Analyzer) -> bool:
    """Whether all iterations of the inner loops together cover a later read."""
    with ana.scope():
        _assume_read(read, ana)
        if _comes_along(write, read, ana):
            return True
        needed = read.box(narrow=True)
        return needed is not None and any(
            _lies_in(needed, b, read.region.buffer, ana) for b in _boxes(write, read, needed, ana)
        )


def _assume_read(read: Use, ana: Analyzer) -> None:
    """Assume the conditions of a read: only where it happens must the element be written."""
    ana.bind_ranges(read.inner)
    for c in read.conditions:
        ana.assume(c)


def _conditions(write: Use, ana: Analyzer) -> list[PrimExpr] | None:
    """The conditions of a write in the first iteration of the inner loops that its indices do not use; None if such a
    loop may have a trip count of 0."""
    told = {v for low, _ in write.ranges for v in vars_used(low)}
    first: dict[Any, Any] = {v: r.min for v, r in write.inner.items() if v not in told}
    if any(_may_be_empty(write.inner[v].extent, ana) for v in first):
        return None
    return [substitute(c, first) for c in write.conditions]


def _may_be_empty(extent: PrimExpr, ana: Analyzer) -> bool:
    """Whether a loop may have no iteration although sizes of which nothing is known, `n` or that in `(n + 15) // 16`,
    are not 0: where they are, no iteration of any loop around comes to the write."""
    if not -(1 << 31) < ana.const_int_bound(extent).min_value < 1:
        return False
    with ana.scope():
        for v in vars_used(extent):
            if ana.const_int_bound(v).min_value <= -(1 << 31):
                ana.assume(less(const(0, v.dtype), v))
        return ana.const_int_bound(extent).min_value < 1


def _comes_along(write: Use, read: Use, ana: Analyzer) -> bool:
    """Whether each iteration of the read matches one of the write, under conditions that hold there."""
    conditions = _conditions(write, ana)
    table: dict[Any, Any] = {}
    if not write.same_place(read):
        if not write.same_walk(read, ana):
            return False
        table = dict(zip(write._walk()[0], read._walk()[0], strict=True))
    with ana.scope():
        _assume_inside(read.ranges, read.region.buffer, ana)
        return conditions is not None and all(_holds(substitute(c, table), read, ana) for c in conditions)


def _boxes(write: Use, read: Use, needed: Box, ana: Analyzer) -> Iterator[Box]:
    """Boxes of which a write covers every needed element where its conditions hold."""
    conditions = _conditions(write, ana)
    if conditions is None:
        return
    # Conditions on inner loops only are enumerated with the elements; all others have to be proved.
    own = [c for c in conditions if vars_used(c) <= write.inner.keys()]
    others = [c for c in conditions if not vars_used(c) <= write.inner.keys()]
    for met, left in [([], conditions), (own, others)] if own else [([], conditions)]:
        box = write.filled(met)
        if box is not None and (not left or _let_through(write, read, needed, left, ana)):
            yield box


def _lies_in(inner: Box, outer: Box, buffer: Buffer, ana: Analyzer) -> bool:
    """Whether a box contains another one; elements out of bounds are guarded, and not read."""
    return all(
        (ana.can_prove(less_equal(low, a)) or ana.can_prove(less_equal(low, const(0, low.dtype))))
        and (ana.can_prove(less_equal(b, high)) or ana.can_prove(less(sub(dim, const(2, dim.dtype)), high)))
        for (low, high), (a, b), dim in zip(outer, inner, buffer.shape, strict=True)
    )


def _let_through(write: Use, read: Use, box: Box, conditions: list[PrimExpr], ana: Analyzer) -> bool:
    """Whether conditions hold in each iteration of a write that writes an element of a box."""
    names: dict[Any, Any] = {v: v.copy_with_suffix("_write") for v in write.inner}
    ranges = [(substitute(low, names), substitute(size, names)) for low, size in write.ranges]
    with ana.scope():
        for v, r in write.inner.items():
            ana.bind_loop(names[v], substitute(r.min, names), substitute(r.extent, names))
        _assume_inside(ranges, read.region.buffer, ana)
        for (low, size), (a, b) in zip(ranges, box, strict=True):
            ana.assume(less_equal(low, b))
            ana.assume(less(a, add(low, size)))
        return all(_holds(substitute(c, names), read, ana) for c in conditions)


def _assume_inside(ranges: list[tuple[PrimExpr, PrimExpr]], buffer: Buffer, ana: Analyzer) -> None:
    """Assume that the elements are in bounds."""
    for (low, size), dim in zip(ranges, buffer.shape, strict=True):
        ana.assume(less(low, dim))
        ana.assume(less(const(0, low.dtype), add(low, size)))


def _holds(condition: PrimExpr, read: Use, ana: Analyzer) -> bool:
    return ana.can_prove(condition) or any(structural_equal(condition, c) for c in read.conditions)
