"""Primitives that move a block under a loop of its consumers or producers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from ...arith import Analyzer, ConstIntBound, detect_linear_equation, int_set
from ...ir.buffer import Buffer, BufferRegion
from ...ir.expr import FloorDiv, IntImm, IterVar, PrimExpr, Range, Var, const, const_value
from ...ir.functor import vars_used
from ...ir.ops import add, floordiv, greater_equal, is_one, is_zero, less, less_equal, logical_and, mul, sub
from ...ir.stmt import Block, BlockRealize, For, SeqStmt, Stmt, stmt_list
from ..analysis.elements import Box
from .blocks import (
    buffers_used,
    check_movable,
    check_not_read_before,
    consumers_of,
    declare_reads,
    enclosing_block,
    is_output,
    producers_of,
    remove_stmt,
)
from .buffers import holder_of
from .dependence import (
    check_concurrent,
    check_inputs_unchanged,
    check_no_later_writes,
    lives_inside,
    reads_apart,
    recheck,
)
from .flow import (
    concurrent_loops,
    covered,
    covers_domain,
    loops_around,
    may_read_unwritten,
    must_write_box,
    read_box,
    shared_loop,
    unwritten_read,
    written_box,
)
from .inline import compute_inline
from .marks import check_independent, thread_of
from .nests import loop_nest
from .points import check_recomputable, runs_full_domain
from .primitive import BlockRV, Elsewhere, LoopRV, primitive, refuse
from .regions import touched, unclipped

if TYPE_CHECKING:
    from .schedule import Schedule


@primitive
def compute_at(
    sch: Schedule, block: BlockRV | str, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
) -> None:
    """Move a block under a loop of its consumers: each iteration computes the elements that it reads.

    for i in range(16):                       for i in range(16):
        B[i] = A[i] * 2               ->          B[i] = A[i] * 2
    for i in range(16):                           C[i] = B[i] + 1
        C[i] = B[i] + 1

    `preserve_unit_loops` keeps new loops of extent 1. `index` is the position among the statements of the loop: -1
    for the last possible one, -2 for the first.
    """
    if isinstance(loop, Elsewhere):  # a place that was drawn and is not a loop
        if loop.place == -2:
            compute_inline(sch, block)
        return
    me, target = sch.realize(block), sch.loop(loop)
    name = me.block.name_hint
    _check_place(sch, me, target, name)
    check_movable(sch, me, "computing it again")
    check_recomputable(sch, me, target, "computing it again")
    if is_output(sch, me):
        refuse(
            f"block {name} is an output block of its scope, whose buffer must be complete",
            at=me,
            hint="move its producers to it with compute_at, or it to them with reverse_compute_at",
        )
    readers = consumers_of(sch, me)
    if not readers:
        refuse(
            f"nothing reads the buffer that block {name} writes",
            at=me,
            hint="move a block that is read; this one may go to its producers with reverse_compute_at",
        )
    outside = [r for r in readers if target not in sch.state.index.ancestors(r)]
    if outside:
        legal = _common_loops(sch, readers)
        hint = f"it may go under {', '.join(legal)}" if legal else "its consumers share no loop"
        refuse(
            f"it requires all the consumers of {name} to be under loop `{target.loop_var.name}`, and block "
            f"{outside[0].block.name_hint} is not",
            at=outside[0],
            hint=hint,
        )
    check_not_read_before(sch, me)
    check_inputs_unchanged(sch, me, target, "there it")
    buffers = {w.buffer for w in me.block.writes}
    wanted = touched(sch, target.body, readers, lambda b: b.reads, buffers, by_all=True)
    domains = _domains(sch, me, target, wanted)
    shared = _shared(sch, me, target)
    entered = {x.loop_var for x in (*loops_around(sch, target), target)} - shared
    if _freed(me, domains, shared) is not None or any(vars_used(r.predicate) & entered for r in readers):
        _check_made_so_far(sch, me, target, domains)
    _move(sch, me, target, domains, preserve_unit_loops, _place(sch, me, target, index))


@primitive
def reverse_compute_at(
    sch: Schedule, block: BlockRV | str, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
) -> None:
    """Move a block under a loop of its producers: each iteration consumes the elements that it computes.

    for i in range(16):                       for i in range(16):
        B[i] = A[i] * 2               ->          B[i] = A[i] * 2
    for i in range(16):                           C[i] = B[i] + 1
        C[i] = B[i] + 1

    `preserve_unit_loops` and `index` mean the same as in `compute_at`.
    """
    me, target = sch.realize(block), sch.loop(loop)
    name = me.block.name_hint
    _check_place(sch, me, target, name)
    check_movable(sch, me, "computing it again")
    check_recomputable(sch, me, target, "computing it again")
    makers = producers_of(sch, me)
    order = sch.state.index.order
    later = next((m for m in makers if order.index(m) > order.index(me)), None)
    if later is not None:
        refuse(
            f"block {later.block.name_hint} writes what block {name} has read before, and there it would see the new "
            "values",
            at=later,
            hint=f"cache_read for block {name} first, so that it reads a copy",
        )
    if not makers:
        refuse(
            f"no block makes what block {name} reads",
            at=me,
            hint="move a block whose inputs are computed; this one may go to its consumers with compute_at",
        )
    inside = [m for m in makers if target in sch.state.index.ancestors(m)]
    outside = [m for m in makers if m not in inside and not (inside and _made_before(sch, m, target, inside))]
    if outside:
        legal = _common_loops(sch, makers)
        hint = f"it may go under {', '.join(legal)}" if legal else "its producers share no loop"
        refuse(
            f"it requires all the producers of what {name} reads to be under loop `{target.loop_var.name}` or "
            f"complete before it, and block {outside[0].block.name_hint} is not",
            at=outside[0],
            hint=hint,
        )
    makers = inside
    _check_complete(sch, target, makers, name)
    for m in makers:
        check_no_later_writes(sch, me, m)
    readers = [r for r in consumers_of(sch, me) if target in sch.state.index.ancestors(r)]
    if readers:
        refuse(
            f"block {readers[0].block.name_hint} under the loop reads what {name} writes",
            at=readers[0],
            hint=f"move block {name} to its readers with compute_at instead",
        )
    check_not_read_before(sch, me)
    for r in consumers_of(sch, me):
        check_no_later_writes(sch, r, me, sch.state.index.ancestors(target))
    buffers = {r.buffer for r in me.block.reads} & {w.buffer for m in makers for w in m.block.writes}
    made = touched(sch, target.body, makers, lambda b: b.writes, buffers)
    made |= _exactly(sch, target, makers, buffers)
    domains = _domains_made(sch, me, target, makers, made)
    shared = _shared(sch, me, target)
    _move(sch, me, target, domains, preserve_unit_loops, _place(sch, me, target, index))
    _check_shared(me, target, domains, shared)


def _made_before(sch: Schedule, maker: BlockRealize, target: For, inside: list[BlockRealize]) -> bool:
    """Whether a block has written all of its results before a loop starts, and the producers under the loop write to
    other buffers."""
    order = sch.state.index.order
    both = {w.buffer for w in maker.block.writes} & {w.buffer for m in inside for w in m.block.writes}
    first = min(order.index(m) for m in inside)
    return not both and shared_loop(sch, maker, target) is None and order.index(maker) < first


def _check_place(sch: Schedule, me: BlockRealize, target: For, name: str) -> None:
    if enclosing_block(sch, me) is not enclosing_block(sch, target):
        refuse(
            f"loop `{target.loop_var.name}` is not in the same block scope as block {name}",
            at=target,
            hint=f"choose a loop of the same block: {_loops_in_scope(sch, me)}",
        )
    if target in sch.state.index.ancestors(me):
        refuse(
            f"loop `{target.loop_var.name}` is an ancestor of block {name} already",
            at=target,
            hint="choose a loop of another block",
        )


def _check_complete(sch: Schedule, target: For, makers: list[BlockRealize], name: str) -> None:
    """Results computed inside one iteration must be complete at its end: no reduction loop may be outside."""
    outer = [target, *[a for a in sch.state.index.ancestors(target) if isinstance(a, For)]]
    for m in makers:
        for iv, value in m.bindings:
            if not iv.is_reduction:
                continue
            for x in outer:
                if x.loop_var in vars_used(value):
                    refuse(
                        f"loop `{x.loop_var.name}` carries the reduction of block {m.block.name_hint}, "
                        f"which is not finished inside it, so {name} cannot read it there",
                        at=x,
                        hint=_outside(sch, x),
                    )


def _outside(sch: Schedule, loop: For) -> str:
    """The places outside of a loop."""
    up = [a.loop_var.name for a in sch.state.index.ancestors(loop) if isinstance(a, For)][::-1]
    return f"it may go under {', '.join(up)}" if up else f"it must stay behind loop `{loop.loop_var.name}`"


def _loops_in_scope(sch: Schedule, me: BlockRealize) -> str:
    """The loops of the blocks beside a block."""
    loops = {x: None for r in sch.siblings(me) if r is not me for x in sch.state.index.loops_of(r)}
    return ", ".join(x.loop_var.name for x in loops) or "there is none"


def _common_loops(sch: Schedule, blocks: list[BlockRealize]) -> list[str]:
    nests = [sch.state.index.loops_of(b) for b in blocks]
    return [x.loop_var.name for x in nests[0] if all(x in nest for nest in nests[1:])]


# ---------------------------------------------------------------------------- domains
# For each iterator its first value, how many there are, and the bounds of its domain that they may leave.
Domains = dict[Var, tuple[PrimExpr, PrimExpr, tuple[bool, bool]]]


def _domains(
    sch: Schedule, me: BlockRealize, target: For, wanted: dict[Buffer, list[int_set.IntervalSet]]
) -> Domains:
    """For each iterator the values that write the required elements."""
    ana = _inside_loop(sch, target)
    found: dict[Var, list[int_set.IntervalSet]] = {iv.var: [] for iv in me.block.iter_vars}
    regions = [w for w in me.block.writes if w.buffer in wanted]
    for region in regions:
        here: dict[Var, int_set.IntervalSet] = {}
        for r, s in zip(region.region, wanted[region.buffer], strict=True):
            solved = _solve(ana, r, s, me.block)
            if solved is not None:
                here[solved[0]] = solved[1]
        for var, interval in here.items():
            found[var].append(interval)
    out: Domains = {}
    for iv in _driven(sch, me):
        sets = found[iv.var]  # from each region, or it is all of the domain
        out[iv.var] = _domain(
            ana, iv, int_set.union(sets, ana) if sets and len(sets) == len(regions) else None
        )
    return out


def _domains_made(
    sch: Schedule,
    me: BlockRealize,
    target: For,
    makers: list[BlockRealize],
    made: dict[Buffer, list[int_set.IntervalSet]],
) -> Domains:
    """For each iterator the values whose reads an iteration of the loop has written.

    Refuses if no iteration would compute some value, or if a value would read elements that are not written yet.
    """
    ana = _inside_loop(sch, target)
    each = [
        _points_made(sch, me, target, makers, region, made[region.buffer])
        for region in me.block.reads
        if region.buffer in made
    ]
    # What a point reads by one access is made in one iteration, so that all iterators of that access may be held to it.
    # What it reads by another access may be made in another iteration: of `A[vi] + B[vj]` only vi or vj may be held,
    # or no iteration would compute most of the points.
    held: dict[Var, int_set.IntervalSet] = max(each, key=len, default={})
    found = {var: int_set.union([p[var] for p in each if var in p], ana) for var in held}
    for tight in (False, True):  # the plain form, if the iteration makes all that it reads
        out = {iv.var: _domain(ana, iv, found.get(iv.var), tight=tight) for iv in _driven(sch, me)}
        missing = unwritten_read(sch, me, target, out, makers)
        if missing is None:
            return out
    assert missing is not None
    _refuse_unmade(me, target, missing)


def _points_made(
    sch: Schedule,
    me: BlockRealize,
    target: For,
    makers: list[BlockRealize],
    region: BufferRegion,
    made: list[int_set.IntervalSet],
) -> dict[Var, int_set.IntervalSet]:
    """For iterators by which a block reads a region the values that read nothing but what an iteration has written, and
    perhaps more. The others may have any value."""
    ana = _inside_loop(sch, target)
    at_all = _ever_made(sch, makers, region.buffer)
    doms = {iv.var: iv.dom for iv in me.block.iter_vars}
    found: dict[Var, list[int_set.IntervalSet]] = {}
    for d, s in enumerate(made):
        r = region.region[d]
        shift = _shift(r, me.block)
        solved = _solve(ana, r, s, me.block) if shift is not None or is_one(r.extent) else None
        dim = region.buffer.shape[d]
        if solved is None or _is_all(s, dim, ana):
            continue
        if shift is not None and not ana.can_prove_equal(shift[1], shift[2]):
            _refuse_unmade(me, target, region.buffer)  # a window that reaches into other iterations
        reads = int_set.eval_set(r.min, doms)
        if at_all is None or not (
            ana.can_prove(less_equal(at_all[d][0], reads.min_value))
            and ana.can_prove(less_equal(reads.max_value, at_all[d][1]))
        ):
            refuse(
                f"block {me.block.name_hint} has points that read nothing of {region.buffer.name}, "
                f"and no iteration of loop `{target.loop_var.name}` would compute these",
                at=me,
                hint="move its producer to it with compute_at instead",
            )
        found.setdefault(solved[0], []).append(solved[1])
    return {var: int_set.union(sets, ana) for var, sets in found.items()}


def _solve(
    ana: Analyzer, r: Range, s: int_set.IntervalSet, block: Block
) -> tuple[Var, int_set.IntervalSet] | None:
    """An iterator, and an interval that holds all its values for which an access meets a set; None if it has no such
    form.

        v + 1          in [a, b]  ->  v in [a - 1, b - 1]
        9 - v          in [a, b]  ->  v in [9 - b, 9 - a]
        v*16 : v*16+16 in [a, b]  ->  v in [a // 16, b // 16]
        v // 4         in [a, b]  ->  v in [4*a, 4*b + 3]
        (u*8 + v)//16  in [a, b]  ->  u in [2*a, 2*b + 1],  for v from 0 to 7
    """
    if not s.has_lower_bound() or not s.has_upper_bound():
        return None
    if vars_used(r.extent) & {iv.var for iv in block.iter_vars}:
        return None
    value, high, kind = r.min, s.max_value, r.min.dtype
    low = sub(add(s.min_value, const(1, kind)), r.extent)
    if isinstance(value, FloorDiv) and isinstance(value.b, IntImm) and value.b.value > 0:
        low, high = mul(low, value.b), sub(mul(add(high, const(1, kind)), value.b), const(1, kind))
        value = value.a
    own = {iv.var: iv.dom for iv in block.iter_vars if iv.var in vars_used(value)}
    parts = detect_linear_equation(value, list(own)) if own else []
    steps = [(abs(c), c, v) for v, c in zip(own, map(const_value, parts), strict=False) if c]
    if not steps or len(steps) != len(own):
        return None
    # The iterator of the longest step counts what the others fill: their values are not known here, only their ends.
    size, step, lead = max(steps, key=lambda item: item[0])
    rest = int_set.eval_set(ana.simplify(sub(value, mul(lead, const(step, kind)))), own)
    if not rest.has_lower_bound() or not rest.has_upper_bound():
        return None
    least, most = sub(low, rest.max_value), sub(high, rest.min_value)
    if step < 0:
        least, most = sub(rest.min_value, high), sub(rest.max_value, low)
    by = const(size, kind)
    first = floordiv(add(least, sub(by, const(1, kind))), by)  # rounded up
    return lead, int_set.IntervalSet(ana.simplify(first), ana.simplify(floordiv(most, by)))


def _exactly(
    sch: Schedule, target: For, makers: list[BlockRealize], buffers: set[Buffer]
) -> dict[Buffer, list[int_set.IntervalSet]]:
    """The regions that an iteration writes of buffers, for those where they are known exactly."""
    out: dict[Buffer, list[int_set.IntervalSet]] = {}
    for b in buffers:
        boxes = [
            must_write_box(sch, target.body, m, w) for m in makers for w in m.block.writes if w.buffer is b
        ]
        if len(boxes) == 1 and boxes[0] is not None:
            out[b] = unclipped([int_set.IntervalSet(low, high) for low, high in boxes[0]], b)
    return out


def _inside_loop(sch: Schedule, target: For) -> Analyzer:
    """An analyzer that knows the loops around, and that the sizes of arguments are not negative."""
    ana = sch.state.analyzer_at(target)
    for d in (d for b in sch.state.func.buffer_map.values() for d in b.shape):
        if isinstance(d, Var):
            ana.update(d, ConstIntBound(0, ConstIntBound.POS_INF))
    ana.bind_loop(target.loop_var, target.min, target.extent)
    return ana


def _is_all(s: int_set.IntervalSet, dim: PrimExpr, ana: Analyzer) -> bool:
    """Whether a set holds all of a dimension."""
    if not s.has_lower_bound() or not s.has_upper_bound():
        return False
    return ana.can_prove(less_equal(s.min_value, const(0, dim.dtype))) and ana.can_prove(
        less_equal(dim, add(s.max_value, const(1, dim.dtype)))
    )


def _ever_made(sch: Schedule, makers: list[BlockRealize], buffer: Buffer) -> Box | None:
    """The box of a buffer of which one block writes every element; None if unknown.

    The other blocks only update elements of it, such as the steps of a loop that may have no iterations.
    """
    ana = Analyzer()
    pairs = [(m, written_box(m.block, w)) for m in makers for w in m.block.writes if w.buffer is buffer]
    found = next(
        (box for m, box in pairs if box is not None and runs_full_domain(sch, m) and covers_domain(sch, m)),
        None,
    )
    if found is None or any(box is None or not covered(ana, found, box) for _, box in pairs):
        return None
    return found


def _refuse_unmade(me: BlockRealize, target: For, buffer: Buffer) -> NoReturn:
    refuse(
        f"block {me.block.name_hint} reads elements of {buffer.name} that an iteration of loop "
        f"`{target.loop_var.name}` does not make",
        at=target,
        hint="choose an outer loop, or bring the producer to it with compute_at",
    )


def _shift(r: Range, block: Block) -> tuple[Var, PrimExpr, PrimExpr] | None:
    """An access `v + a : v + b + 1` by one iterator as `v`, `a`, `b`."""
    own = {iv.var for iv in block.iter_vars}
    used = vars_used(r.min) & own
    if len(used) != 1 or vars_used(r.extent) & own:
        return None
    (var,) = used
    ana = Analyzer()
    first = ana.simplify(sub(r.min, var))
    if vars_used(first) & own:
        return None
    return var, first, ana.simplify(sub(add(r.extent, first), const(1, first.dtype)))


def _driven(sch: Schedule, me: BlockRealize) -> list[IterVar]:
    """The iterators of a block, their domains restricted to the values that the loops give them."""
    doms = {x.loop_var: x.dom for x in loops_around(sch, me)}
    out: list[IterVar] = []
    for iv, value in me.bindings:
        given = int_set.eval_set(value, doms)
        first, last = const_value(given.min_value), const_value(given.max_value)
        low, size = const_value(iv.dom.min), const_value(iv.dom.extent)
        if first is not None and last is not None and low is not None and size is not None:
            begin, end = max(first, low), min(last + 1, low + size)
            if begin < end and (begin, end) != (low, low + size):
                kind = iv.var.dtype
                iv = iv.replace(dom=Range.from_min_extent(const(begin, kind), const(end - begin, kind)))
        out.append(iv)
    return out


def _in_domain(value: PrimExpr, iv: IterVar, leaves: tuple[bool, bool]) -> PrimExpr:
    """The condition that a value is in its iterator's domain, as far as it may be outside."""
    out: PrimExpr = const(True, "bool")
    if leaves[0]:
        out = logical_and(out, greater_equal(value, iv.dom.min))
    if leaves[1]:
        out = logical_and(out, less(value, add(iv.dom.min, iv.dom.extent)))
    return out


def _clipped(iv: IterVar, wanted: int_set.IntervalSet) -> tuple[PrimExpr, PrimExpr]:
    """The ends of a set of values, within the domain of their iterator where all of these are numbers."""
    ends = [const_value(e) for e in (wanted.min_value, wanted.max_value, iv.dom.min, iv.dom.extent)]
    if not any(e is None for e in ends):
        low, high, first, size = (int(e or 0) for e in ends)
        low, high = max(low, first), min(high, first + size - 1)
        if low <= high:
            return const(low, iv.var.dtype), const(high, iv.var.dtype)
    return wanted.min_value, wanted.max_value


def _domain(
    ana: Analyzer, iv: IterVar, wanted: int_set.IntervalSet | None, *, tight: bool = False
) -> tuple[PrimExpr, PrimExpr, tuple[bool, bool]]:
    """The values of an iterator that are wanted: all of them where there are no fewer, unless it must be `tight`."""
    full = (iv.dom.min, iv.dom.extent, (False, False))
    if wanted is None or iv.is_reduction:
        return full
    wanted = int_set.IntervalSet(*_clipped(iv, wanted))
    low = ana.simplify(wanted.min_value)
    size = ana.simplify(add(sub(wanted.max_value, low), const(1, low.dtype)))
    if not isinstance(size, IntImm):
        bound = ana.const_int_bound(size).max_value
        if isinstance(iv.dom.extent, IntImm) and bound >= iv.dom.extent.value and not tight:
            return full
        if bound < (1 << 31) - 1:
            size = const(int(bound), low.dtype)
    if ana.can_prove(greater_equal(size, iv.dom.extent)) and not tight:
        return full
    end = add(iv.dom.min, iv.dom.extent)
    below = not ana.can_prove(greater_equal(low, iv.dom.min))
    return low, size, (below, not ana.can_prove(less_equal(add(low, size), end)))


# ---------------------------------------------------------------------------- moving
def _place(sch: Schedule, me: BlockRealize, target: For, index: int) -> int:
    """The position in the loop's body: after the producers of the block, before its consumers."""
    parts = stmt_list(target.body)
    needs = {r.buffer for r in me.block.reads}
    gives = {w.buffer for w in me.block.writes}
    first, last = 0, len(parts)
    for i, part in enumerate(parts):
        used = buffers_used(part)
        blocks = sch.state.index.blocks_under(part)
        makes = {w.buffer for b in blocks for w in b.block.writes}
        reads = {r.buffer for b in blocks for r in b.block.reads}
        if makes & needs and used:
            first = max(first, i + 1)
        if reads & gives:
            last = min(last, i)
    if index == -1:
        return last
    if index == -2:
        return first
    if not first <= index <= last:
        refuse(f"index={index}, and it may stand at {first} to {last} among the loop's statements", at=target)
    return index


def _check_made_so_far(sch: Schedule, me: BlockRealize, target: For, domains: Domains) -> None:
    """Refuse if a block would run where none of its readers does, and read elements there that are not written yet."""
    ana = sch.state.analyzer_at(target.body)
    scope = enclosing_block(sch, me)
    assert scope is not None
    at = sch.state.index.order.index
    around = [x for x in loops_around(sch, me) if x in sch.state.index.ancestors(target)]
    for m in producers_of(sch, me):
        loop = shared_loop(sch, m, target)
        if at(me) < at(m) and _freed(me, domains, _shared(sch, me, target)) is None:
            if reads_apart(sch, me, m, around):
                continue  # what it reads was made in iterations before
        for r in me.block.reads:
            if not any(w.buffer is r.buffer for w in m.block.writes):
                continue
            if loop is None and (holder_of(sch, r.buffer) is None or covers_domain(sch, m)):
                continue  # an argument, which holds something, or all of it was made before
            place = scope.body if loop is None else loop.body
            if may_read_unwritten(sch, ana, place, [m], r.buffer, read_box(ana, me.block, r, domains)):
                _refuse_unmade(me, loop or target, r.buffer)


def _shared(sch: Schedule, me: BlockRealize, target: For) -> set[Var]:
    """The variables of the loops around both a block and another place, and the iterators of the blocks around."""
    above = [up for up in sch.state.index.ancestors(me) if isinstance(up, Block)]
    loops = {x.loop_var for x in loops_around(sch, me) if x in sch.state.index.ancestors(target)}
    return loops | {iv.var for up in above for iv in up.iter_vars}


def _freed(me: BlockRealize, domains: Domains, shared: set[Var]) -> Var | None:
    """A variable around both a block and its new place that selects its points here, and would not there; None if there
    is none."""
    for iv, value in me.bindings:
        fixed = vars_used(value) & shared
        if fixed and not vars_used(domains[iv.var][0]) & shared and not is_one(iv.dom.extent):
            return min(fixed, key=lambda v: v.name)
    return None


def _check_shared(me: BlockRealize, target: For, domains: Domains, shared: set[Var]) -> None:
    freed = _freed(me, domains, shared)
    if freed is not None:
        refuse(
            f"`{freed.name}` is around both, and says at which points block {me.block.name_hint} runs: under loop "
            f"`{target.loop_var.name}` it would run at all of them",
            at=target,
            hint="choose a loop outside of it",
        )


def _move(
    sch: Schedule,
    me: BlockRealize,
    target: For,
    domains: Domains,
    keep_unit: bool,
    position: int,
) -> None:
    key, var = me.block.key, target.loop_var
    nest = _nest(me.replace(block=me.block.replace(iter_vars=tuple(_driven(sch, me)))), domains, keep_unit)
    left = [x.loop_var for x in concurrent_loops(sch, me)]
    remove_stmt(sch, me)
    target = sch.state.index.loops[var]
    parts = stmt_list(target.body)
    parts.insert(position, nest)
    body = parts[0] if len(parts) == 1 else SeqStmt(tuple(parts))
    sch.state.replace(target, target.replace(body=body))
    checked = _check_marks(sch, sch.state.index.blocks[key])
    recheck(sch, [v for v in left if v not in checked])
    scope = enclosing_block(sch, sch.state.index.blocks[key])
    assert scope is not None
    for b in {r.buffer: None for r in me.block.reads}:
        declare_reads(sch, scope.key, b, f"block {me.block.name_hint}")


def _check_marks(sch: Schedule, me: BlockRealize) -> set[Var]:
    """Refuse if concurrent iterations of a loop would compute the same elements, or depend on each other.

    Returns the variables of the loops that were checked.
    """
    around = list(concurrent_loops(sch, me))
    for loop in around:
        if const_value(loop.extent) == 1:
            continue
        if not all(lives_inside(sch, w.buffer, loop) for w in me.block.writes):
            check_independent(sch, loop, me, "parallel", thread_of(loop))
        check_concurrent(
            sch, loop, f"choose another place, or move it before loop `{loop.loop_var.name}` is marked"
        )
    return {loop.loop_var for loop in around}


def _nest(me: BlockRealize, domains: Domains, keep_unit: bool) -> Stmt:
    """The block under new loops over its domains."""
    values: list[PrimExpr] = []
    loops: list[tuple[Var, PrimExpr]] = []
    predicate: PrimExpr = const(True, "bool")
    for i, iv in enumerate(me.block.iter_vars):
        low, size, leaves = domains[iv.var]
        if is_one(size) and not keep_unit:
            value = low
        else:
            var = Var(f"ax{i}", iv.var.dtype)
            loops.append((var, size))
            value = var if is_zero(low) else add(low, var)
        values.append(value)
        predicate = logical_and(predicate, _in_domain(low if is_one(size) else value, iv, leaves))
    made = BlockRealize(values, predicate, me.block, span=me.span)
    return loop_nest([var for var, _ in loops], [size for _, size in loops], made)
