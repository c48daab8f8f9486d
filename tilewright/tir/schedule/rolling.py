"""The primitive that keeps what neighbouring iterations share: rolling_buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...arith import Analyzer, relax_region
from ...ir.buffer import Buffer, BufferRegion
from ...ir.expr import PrimExpr, Range, Var, const, const_value
from ...ir.functor import Mutator, substitute, vars_used
from ...ir.ops import add, floormod, greater_equal, is_zero, less, less_equal, logical_and, logical_or, sub
from ...ir.stmt import Block, BlockRealize, For, ForKind, SeqStmt
from .blocks import check_dominant, check_predicate, consumers_of, producers_of
from .buffers import check_plain_accesses, chosen_buffer, holder_of
from .primitive import BlockRV, primitive, refuse
from .regions import touched

if TYPE_CHECKING:
    from .schedule import Schedule


class _Roll(NamedTuple):
    """A dimension whose window moves by less than its size with each iteration of a loop."""

    axis: int
    loop: For
    size: int  # of the window
    overlap: int  # of two neighbouring windows
    offset: PrimExpr  # of the point in the window
    start: PrimExpr  # of the window


@primitive
def rolling_buffer(sch: Schedule, block: BlockRV | str, write_buffer_index: int) -> None:
    """Compute only the new elements in an iteration, and keep the rest of the window in a circular buffer.

    B = alloc_buffer((10,))                       B = alloc_buffer((6,))
    for i in range(2):                            for i in range(2):
        for ax in range(6):               ->          for ax in range(6):
            B[i * 4 + ax] = f(i * 4 + ax)                 if i < 1 or ax >= 2:
        for j in range(4):                                    B[(i * 4 + ax) % 6] = f(i * 4 + ax)
            C[i * 4 + j] = B[i * 4 + j] + …           for j in range(4):
                                                          C[i * 4 + j] = B[(i * 4 + j) % 6] + …
    """
    me = sch.realize(block)
    name = me.block.name_hint
    _, _, buffer = chosen_buffer(me, ("write", write_buffer_index))
    if holder_of(sch, buffer) is None:
        refuse(
            f"{buffer.name} is a parameter of the function, of which all must be kept",
            at=me,
            hint="cache_write it first, and roll the copy",
        )
    check_dominant(sch, me)
    check_predicate(sch, me, "the ring")
    check_plain_accesses(sch, me, buffer, "a ring")
    readers = [r for r in consumers_of(sch, me) if any(x.buffer is buffer for x in r.block.reads)]
    if not readers:
        refuse(f"nothing reads the buffer that block {name} writes", at=me)
    common = _common(sch, me, readers)
    _check_way(sch, me, common)
    rolls = _rolls(me, buffer, common, sch.state.index.loops_of(me)[len(common) :])
    if not rolls:
        refuse(
            f"the windows of {buffer.name} in neighbouring iterations do not overlap, so nothing can be kept",
            at=common[-1],
            hint="compute_at it under a loop in which its consumer reads a window, as a convolution does",
        )
    chosen = min(rolls, key=lambda r: common.index(r.loop))
    _check_inputs(sch, me, chosen.loop)
    _check_window(sch, buffer, readers, common, chosen)
    _roll(sch, me, buffer, rolls, chosen)


def _common(sch: Schedule, me: BlockRealize, readers: list[BlockRealize]) -> list[For]:
    """The loops around a block and all its readers."""
    nests = [sch.state.index.loops_of(r) for r in readers]
    out = [x for x in sch.state.index.loops_of(me) if all(x in nest for nest in nests)]
    if not out:
        refuse(
            f"no loop holds block {me.block.name_hint} and all that read it",
            at=me,
            hint="compute_at it under a loop of its consumer first",
        )
    return out


def _check_way(sch: Schedule, me: BlockRealize, common: list[For]) -> None:
    """Each iteration must come after the one before, and none may be left out."""
    for x in common:
        if x.kind not in (ForKind.SERIAL, ForKind.UNROLLED):
            refuse(
                f"the iterations of loop `{x.loop_var.name}` run at once, so none can use the one before",
                at=x,
                hint="roll first under a serial loop, and run a loop outside of the ring at once",
            )
    for up in sch.state.index.ancestors(me):
        if isinstance(up, Block):
            return
        if not isinstance(up, (For, SeqStmt)):
            refuse(f"block {me.block.name_hint} is under a condition", at=up)


def _check_inputs(sch: Schedule, me: BlockRealize, loop: For) -> None:
    """What is kept must be what would be computed again."""
    for w in producers_of(sch, me):
        if loop not in sch.state.index.ancestors(w):
            continue
        check_dominant(sch, w)
        reads = {r.buffer for r in w.block.reads}
        if w.block.init is None and any(x.buffer in reads for x in w.block.writes):
            refuse(
                f"block {w.block.name_hint} changes what block {me.block.name_hint} reads "
                "from iteration to iteration",
                at=w,
            )


def _rolls(me: BlockRealize, buffer: Buffer, common: list[For], inner: list[For]) -> list[_Roll]:
    """The dimensions that can be rolled, each with its loop."""
    block = me.block
    region = next(w for w in block.writes if w.buffer is buffer)
    bound = {iv.var: v for iv, v in me.bindings}
    points = [r.min for r in region.region]
    if any(const_value(r.extent) != 1 for r in region.region) or not all(p in bound for p in points):
        refuse(f"block {block.name_hint} does not write {buffer.name} at its iterators", at=me)
    doms = {x.loop_var: x.dom for x in inner}
    out = []
    for axis, p in enumerate(points):
        value = bound[p]  # type: ignore[index]
        found = _window(axis, value, common, doms)
        if found is not None:
            others = {v for q in points if q is not p for v in vars_used(bound[q])}  # type: ignore[index]
            if found.loop.loop_var in others:
                refuse(
                    f"two dimensions of {buffer.name} move with loop `{found.loop.loop_var.name}`, so that what an "
                    "iteration keeps is not what the next one needs",
                    at=found.loop,
                )
            out.append(found)
    return out


def _window(axis: int, value: PrimExpr, common: list[For], doms: dict[Var, Range]) -> _Roll | None:
    ana = Analyzer()
    ana.bind_ranges({x.loop_var: x.dom for x in common})
    (box,) = relax_region([Range.from_min_extent(value, const(1, value.dtype))], doms, True, ana)
    if not box.has_lower_bound() or not box.has_upper_bound():
        return None
    start = ana.simplify(box.min_value)
    size = const_value(ana.simplify(add(sub(box.max_value, start), const(1, start.dtype))))
    movers = [x for x in common if x.loop_var in vars_used(start)]
    if size is None or len(movers) != 1 or not is_zero(movers[0].min):
        return None
    var = movers[0].loop_var
    free = Analyzer()  # without the loop's range: the step must be the same everywhere
    table: dict[Any, Any] = {var: add(var, const(1, var.dtype))}
    step = const_value(free.simplify(sub(substitute(start, table), start)))
    if step is None or not 0 < step < size:
        return None
    offset = ana.simplify(sub(value, start))
    return _Roll(axis, movers[0], int(size), int(size - step), offset, start)


def _check_window(
    sch: Schedule, buffer: Buffer, readers: Sequence[BlockRealize], common: list[For], roll: _Roll
) -> None:
    """Readers may look at the window of their iteration only: the ring holds no more."""
    place = common[-1].body
    ana = sch.state.analyzer_at(place)
    end = add(roll.start, const(roll.size, roll.start.dtype))
    for r in readers:
        used = touched(sch, place, [r], lambda b: b.reads, {buffer})[buffer][roll.axis]
        known = used.has_lower_bound() and used.has_upper_bound()
        if not (
            known
            and ana.can_prove(less_equal(roll.start, used.min_value))
            and ana.can_prove(less(used.max_value, end))
        ):
            refuse(
                f"block {r.block.name_hint} may read more of {buffer.name} than one iteration of loop "
                f"`{common[-1].loop_var.name}` computes",
                at=r,
            )


def _roll(sch: Schedule, me: BlockRealize, buffer: Buffer, rolls: list[_Roll], chosen: _Roll) -> None:
    predicate = me.predicate
    for r in rolls:
        var = r.loop.loop_var
        new = greater_equal(r.offset, const(r.overlap, r.offset.dtype))
        predicate = logical_and(predicate, logical_or(less(var, const(1, var.dtype)), new))
    sch.state.replace(me, me.replace(predicate=predicate))
    holder = holder_of(sch, buffer)
    assert holder is not None
    shape = list(buffer.shape)
    shape[chosen.axis] = const(chosen.size, shape[chosen.axis].dtype)
    ring = buffer.replace(shape=tuple(shape))
    body = _Ring(buffer, ring, chosen.axis).visit(holder.body)
    allocs = tuple(ring if b is buffer else b for b in holder.alloc_buffers)
    sch.state.replace(holder, holder.replace(body=body, alloc_buffers=allocs))


class _Ring(Mutator):
    """Accesses of a buffer at indices that go round in one dimension."""

    def __init__(self, old: Buffer, new: Buffer, axis: int) -> None:
        self.old, self.new, self.axis = old, new, axis
        self.ana = Analyzer()

    def visit_Block(self, n: Block) -> Block:
        with self.ana.scope():
            self.ana.bind_ranges({iv.var: iv.dom for iv in n.iter_vars})
            return n.map_children(self.visit)  # type: ignore[no-any-return]

    def around(self, i: PrimExpr) -> PrimExpr:
        return self.ana.simplify(floormod(i, self.new.shape[self.axis]))  # type: ignore[no-any-return]

    def access(self, n: Any) -> Any:
        made = n.map_children(self.visit)
        if made.buffer is not self.old:
            return made
        indices = [self.around(i) if a == self.axis else i for a, i in enumerate(made.indices)]
        return made.replace(buffer=self.new, indices=tuple(indices))

    visit_BufferLoad = visit_BufferStore = access

    def visit_BufferRegion(self, n: BufferRegion) -> BufferRegion:
        made: BufferRegion = n.map_children(self.visit)
        if made.buffer is not self.old:
            return made
        ranges = list(made.region)
        r = ranges[self.axis]
        if const_value(r.extent) == 1:
            ranges[self.axis] = Range.from_min_extent(self.around(r.min), r.extent)
        else:
            ranges[self.axis] = Range(self.new.shape[self.axis])
        return BufferRegion(self.new, tuple(ranges))
