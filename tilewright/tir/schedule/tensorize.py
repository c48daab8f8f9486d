"""Primitives that hand a part of the program to the hardware: blockize, tensorize."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ...arith import (
    Analyzer,
    IterMark,
    IterSplitExpr,
    IterSumExpr,
    normalize_iter_map_to_expr,
    subspace_divide,
)
from ...ir.buffer import Buffer, BufferRegion, MatchBufferRegion
from ...ir.expr import IntImm, IterVar, PrimExpr, Range, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import pre_order, renew_defs, substitute, vars_used
from ...ir.ops import (
    add,
    conjuncts,
    equal,
    floordiv,
    floormod,
    greater_equal,
    is_one,
    less_equal,
    logical_and,
    mul,
    sub,
)
from ...ir.span import user_span
from ...ir.stmt import Block, BlockRealize, For, SeqStmt, Stmt
from ..analysis.carried import reads_are_covered, uses_under
from ..analysis.reductions import init_nest, reduction_loops
from ..analysis.regions import reads_elsewhere
from ..analysis.views import rows_apart, used_whole
from ..tensor_intrin.intrin import TensorIntrin, body_block, near, params
from .blocks import enclosing_block, refresh_regions
from .matching import Different, Matched, Unlike, match_bodies
from .points import check_distinct_writes, check_init_runs
from .primitive import BlockRV, LoopRV, Refusal, primitive, refuse
from .reduction import decompose_reduction

if TYPE_CHECKING:
    from .schedule import Schedule


@primitive
def blockize(
    sch: Schedule, target: LoopRV | Sequence[BlockRV | str], preserve_unit_iters: bool = True
) -> BlockRV:
    """Make one block of everything under a loop, or of some neighbouring blocks.

    for i_0 in range(8):                           for i_0 in range(8):
        for i_1 in range(4):                           with block("B_o"):
            with block("B"):                               vi_o = spatial(8, i_0)
                vi = spatial(32, i_0 * 4 + i_1)   ->       for i_1 in range(4):
                B[vi] = A[vi]                                  with block("B"):
                                                                   vi_i = spatial(4, i_1)
                                                                   B[vi_o * 4 + vi_i] = A[…]

    If loops outside carry a part of the reduction, its init becomes an init of the new block, over the spatial loops
    inside. `preserve_unit_iters=False` leaves out iterators of extent 1.
    """
    if isinstance(target, LoopRV):
        place: Stmt = sch.loop(target)
        inside = sch.state.index.blocks_under(place)
        _check_only_loops(place)
    else:
        given = [target] if isinstance(target, BlockRV) else list(target)
        if not given:
            refuse("there are no blocks to put into one")
        inside = [sch.realize(b) for b in given]
        place = inside[0]
    if len(inside) == 1:
        return _blockize_one(sch, place, inside[0], preserve_unit_iters)
    return _blockize_many(sch, place if isinstance(target, LoopRV) else None, inside)


def _check_only_loops(place: Stmt) -> None:
    """Refuse if something stands under a loop that is neither a loop nor in a block."""
    stack: list[Stmt] = [place]
    while stack:
        n = stack.pop()
        if isinstance(n, For):
            stack.append(n.body)
        elif isinstance(n, SeqStmt):
            stack.extend(n.seq)
        elif not isinstance(n, BlockRealize):
            refuse("a statement under it is in no block", at=n, hint="put the statement into a block")


def _blockize_one(sch: Schedule, place: Stmt, me: BlockRealize, keep_units: bool) -> BlockRV:
    nest, name = sch.state.index.loops_of(me), me.block.name_hint
    inner = nest[nest.index(place) :] if isinstance(place, For) else []
    outer = nest[: len(nest) - len(inner)]
    for x in inner:
        if (vars_used(x.min) | vars_used(x.extent)) & {y.loop_var for y in outer}:
            refuse(
                f"the bounds of loop `{x.loop_var.name}` depend on a loop outside",
                at=x,
                hint="choose that loop, so that both are inside",
            )
    check_init_runs(sch, me, "blockize")
    pairs = _divide(me, outer, inner)
    made = _Divided(me.block, pairs[:-1], keep_units)
    outside, inside = (p.source for p in pairs[-1])
    # A loop that runs once may stand in the condition on the outer loops, which it will not be around.
    outside = substitute(outside, {x.loop_var: x.min for x in inner if is_one(x.extent)})
    inside = substitute(inside, {x.loop_var: x.min for x in outer if is_one(x.extent)})
    for condition, others in ((outside, inner), (inside, outer)):
        if vars_used(condition) & {x.loop_var for x in others}:
            refuse(
                f"the condition `{condition}` ties loops inside and outside of the block together",
                at=me,
                hint="choose the outermost of these loops, so that all of them are inside",
            )
    for iv in made.inner_iters:
        tied = [x for x in inner if x.loop_var in vars_used(iv.dom.extent)]
        if tied:
            refuse(
                f"the bounds of a loop depend on `{tied[0].loop_var.name}`, so that iterator `{iv.var.name}` of the "
                "block inside would have no domain",
                at=tied[0],
                hint="write the loop to its end, with the condition in the value that the block stores",
            )
    block = substitute(me.block.replace(iter_vars=made.inner_iters), made.table)
    init: Stmt | None = None
    if block.init is not None and made.reduces_outside:
        check_distinct_writes(me, "taking the init out")
        if any(reads_elsewhere(me.block, w.buffer) for w in me.block.writes):
            refuse(
                f"block {name} reads what it writes at other places too, and would see its init sooner",
                at=me,
                hint="blockize a loop that holds all of the reduction",
            )
        realized = BlockRealize(made.inner_values, inside, block)
        init = init_nest(realized, inner, 0)
        if init is None:
            refuse(
                f"a loop drives both spatial and reduction iterators of block {name}",
                at=me,
                hint="blockize before the reduction is fused with other loops",
            )
        block = refresh_regions(block.replace(init=None))
    body: Stmt = BlockRealize(made.inner_values, inside, block, span=me.span)
    for x in reversed(inner):
        body = x.replace(body=body)
    around = Block(made.outer_iters, (), (), f"{name}_o", body, init)
    around = _with_own_buffers(sch, [place], outer, refresh_regions(around))
    sch.state.replace(place, BlockRealize(made.outer_values, outside, around, span=me.span))
    return BlockRV(around.key, around.name_hint)


def _divide(me: BlockRealize, outer: list[For], inner: list[For]) -> list[list[IterMark]]:
    """The values of a block's iterators as parts over the outer and over the inner loops."""
    domains = {x.loop_var: x.dom for x in (*outer, *inner)}
    if me.block.iter_vars:
        found = subspace_divide(me.iter_values, domains, [x.loop_var for x in inner], me.predicate)
    else:
        marks = [IterMark(me.predicate, const(0)), IterMark(const(True, "bool"), const(0))]
        around = vars_used(me.predicate) & {x.loop_var for x in outer}
        found = [marks if around else marks[::-1]]
    if not found:
        found = _divide_touched(me, domains, [x.loop_var for x in inner])
    if not found:
        names = ", ".join(f"`{x.loop_var.name}`" for x in inner) or "no loop"
        values = ", ".join(f"{iv.var.name} = {v}" for iv, v in me.bindings)
        only = "" if is_one(me.predicate) else f" where {me.predicate}"
        refuse(
            f"the iterators of block {me.block.name_hint} ({values}{only}) do not fall into a part over "
            f"{names} and a part over the loops outside",
            at=me,
            hint="split by a factor that divides the extent, or pad_einsum first"
            if only
            else "let the loops outside count whole tiles of the loops inside",
        )
    return found


def _divide_touched(me: BlockRealize, domains: dict[Var, Range], inner: list[Var]) -> list[list[IterMark]]:
    """The same where iterators that no inner loop moves overlap, as rows of a window do: those stay whole, outside."""

    def stays(value: PrimExpr) -> bool:
        return not vars_used(value) & set(inner)

    moved = [value for value in me.iter_values if not stays(value)]
    if len(moved) == len(me.iter_values):
        return []  # nothing would be different
    true = const(True, "bool")
    conditions = [c for c in conjuncts(me.predicate) if not is_one(c)]
    tied = functools.reduce(logical_and, (c for c in conditions if not stays(c)), true)
    if moved:
        rest = subspace_divide(moved, domains, inner, tied)
        if not rest:
            return []
    else:
        rest = [[IterMark(true, const(0)), IterMark(tied, const(0))]]
    *parts, (outside, inside) = rest
    follow = iter(parts)
    found = []
    for iv, value in me.bindings:
        one = const(1, value.dtype)
        counted = IterMark(sub(value, iv.dom.min), iv.dom.extent)
        split = IterSplitExpr(counted, one, iv.dom.extent, one)
        whole = IterMark(IterSumExpr((split,), iv.dom.min), iv.dom.extent)
        nothing = IterMark(IterSumExpr((), const(0, value.dtype)), one)
        found.append([whole, nothing] if stays(value) else next(follow))
    kept = functools.reduce(logical_and, (c for c in conditions if stays(c)), outside.source)
    return [*found, [IterMark(kept, outside.extent), inside]]


class _Divided:
    """The iterators of a block as those of an outer and an inner block."""

    def __init__(self, block: Block, pairs: list[list[IterMark]], keep_units: bool) -> None:
        self.outer_iters: list[IterVar] = []
        self.inner_iters: list[IterVar] = []
        self.outer_values: list[PrimExpr] = []
        self.inner_values: list[PrimExpr] = []
        self.table: dict[Var, PrimExpr] = {}
        self.reduces_outside = False
        ana = Analyzer()
        for iv, (outside, inside) in zip(block.iter_vars, pairs, strict=True):
            kind = iv.var.dtype
            place: PrimExpr = const(0, kind)
            for mark, suffix, iters, values in (
                (outside, "_o", self.outer_iters, self.outer_values),
                (inside, "_i", self.inner_iters, self.inner_values),
            ):
                value, base, step = _value(mark)
                place = add(place, base)
                unit = is_one(mark.extent)
                if not unit or keep_units:
                    v = Var(f"{iv.var.name}{suffix}", kind)
                    iters.append(IterVar(Range.from_min_extent(const(0, kind), mark.extent), v, iv.iter_type))
                    values.append(ana.simplify(value))
                    if not unit:
                        scale = inside.extent if mark is outside else const(1, kind)
                        place = add(place, mul(v, mul(step, scale)))
            self.table[iv.var] = place
            if iv.is_reduction and not is_one(outside.extent):
                self.reduces_outside = True


def _value(mark: IterMark) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
    """What a mark counts, one by one from zero; where it starts, and the step from one to the next.

    `i*2 + 1` counts i, starts at 1 and takes steps of 2: an iterator runs through a whole domain.
    """
    source = mark.source
    assert isinstance(source, IterSumExpr)
    zero: PrimExpr = const(0, source.dtype)
    step: PrimExpr = const(1, source.dtype)
    parts = [p for p in source.args if isinstance(p, IterSplitExpr)]
    if parts and isinstance(parts[-1].scale, IntImm) and not is_one(parts[-1].scale):
        step = parts[-1].scale
        parts = [p.replace(scale=floordiv(p.scale, step)) for p in parts]
    return normalize_iter_map_to_expr(source.replace(base=zero, args=tuple(parts))), source.base, step


def _blockize_many(sch: Schedule, place: Stmt | None, inside: list[BlockRealize]) -> BlockRV:
    """One block around several, over the loops around them."""
    part = _run_of(sch, inside) if place is None else [place]
    nest = [x for x in sch.state.index.ancestors(part[0]) if isinstance(x, (For, Block))]
    scope = next((i for i, x in enumerate(nest) if isinstance(x, Block)), len(nest))
    outer = [x for x in reversed(nest[:scope]) if isinstance(x, For)]
    iters: list[IterVar] = []
    values: list[PrimExpr] = []
    table: dict[Var, PrimExpr] = {}
    for x in outer:
        kinds = {iv.iter_type for r in inside for iv, value in r.bindings if x.loop_var in vars_used(value)}
        if not kinds:
            continue
        for r in inside:
            if r.block.init is not None and _reduces(r, x.loop_var):
                refuse(
                    f"loop `{x.loop_var.name}` carries the reduction of block {r.block.name_hint}, whose "
                    "init cannot stay inside",
                    at=r,
                    hint=f"decompose_reduction({r.block.name_hint}, {x.loop_var.name}) first",
                )
        v = Var(f"v_{x.loop_var.name}", x.loop_var.dtype)
        # A loop that drives a reduction anywhere must be run as one; spatial is what all of them agree on.
        kind = next((k for k in (IterVar.Ordered, IterVar.CommReduce) if k in kinds), IterVar.DataPar)
        iters.append(IterVar(x.dom, v, kind))
        values.append(x.loop_var)
        table[x.loop_var] = v
    body = part[0] if len(part) == 1 else SeqStmt(tuple(part))
    name = "_".join(r.block.name_hint for r in inside) + "_o"
    around = Block(iters, (), (), name, substitute(body, table))
    around = _with_own_buffers(sch, part, outer, refresh_regions(around))
    made = BlockRealize(values, const(True, "bool"), around)
    if place is not None:
        sch.state.replace(place, made)
    else:
        holder = sch.state.index.parents[part[0]]
        assert isinstance(holder, SeqStmt)
        at = holder.seq.index(part[0])
        whole = (*holder.seq[:at], made, *holder.seq[at + len(part) :])
        sch.state.replace(holder, whole[0] if len(whole) == 1 else SeqStmt(whole))
    return BlockRV(around.key, around.name_hint)


def _with_own_buffers(sch: Schedule, part: list[Stmt], outer: list[For], around: Block) -> Block:
    """The block around some statements, with the memory that only these use.

    A region of it in the block would say that it is needed outside, where the iterations of a parallel loop share it.
    """
    own = [b for b in _own_buffers(sch, part) if not outer or _is_made_inside(sch, outer[-1], b)]
    if not own:
        return around
    reads, writes = (
        tuple(r for r in regions if r.buffer not in own) for regions in (around.reads, around.writes)
    )
    holding = enclosing_block(sch, part[0])
    assert holding is not None
    kept = tuple(b for b in holding.alloc_buffers if b not in own)
    sch.state.replace(holding, holding.replace(alloc_buffers=kept))
    return around.replace(reads=reads, writes=writes, alloc_buffers=tuple(own))


def _own_buffers(sch: Schedule, part: list[Stmt]) -> list[Buffer]:
    """The buffers of the scope that only some statements of it use."""
    scope = enclosing_block(sch, part[0])
    if scope is None:
        return []
    elsewhere: set[Buffer] = set()
    left_out = set(part)
    stack: list[Any] = [scope.body]
    while stack:
        n = stack.pop()
        if n in left_out:
            continue
        buffer = getattr(n, "buffer", None)
        if isinstance(buffer, Buffer):
            elsewhere.add(buffer)
        stack.extend(n.children())
    inside = {getattr(m, "buffer", None) for p in part for m in pre_order(p)}
    return [b for b in scope.alloc_buffers if b in inside and b not in elsewhere]


def _is_made_inside(sch: Schedule, loop: For, buffer: Buffer) -> bool:
    """Whether an iteration of a loop reads of a buffer only what it has written."""
    uses = uses_under(loop)[buffer]
    return uses is not None and reads_are_covered(loop, uses, sch.state.analyzer_at(loop))


def _reduces(r: BlockRealize, var: Var) -> bool:
    pairs = r.bindings
    return any(iv.is_reduction and var in vars_used(v) for iv, v in pairs)


def _run_of(sch: Schedule, inside: list[BlockRealize]) -> list[Stmt]:
    """The statements of a sequence that hold some blocks: neighbours, with no other block in them."""
    index = sch.state.index
    paths = [[r, *index.ancestors(r)] for r in inside]
    holder = next((n for n in paths[0] if all(n in p for p in paths)), None)
    if not isinstance(holder, SeqStmt) or any(
        enclosing_block(sch, r) is not enclosing_block(sch, holder) for r in inside
    ):
        refuse(
            "the blocks are not next to each other in one scope",
            at=inside[-1],
            hint="bring them under one loop with compute_at or reverse_compute_at",
        )
    held = [next(i for i, s in enumerate(holder.seq) if s in p) for p in paths]
    run = list(holder.seq[min(held) : max(held) + 1])
    for s in run:
        _check_only_loops(s)
        for r in index.blocks_under(s):
            if r not in inside:
                refuse(
                    f"block {r.block.name_hint} is between the blocks",
                    at=r,
                    hint=f"name block {r.block.name_hint} too, or move it away",
                )
    return run


# ---------------------------------------------------------------------------- tensorize
@primitive
def tensorize(
    sch: Schedule, block_or_loop: BlockRV | LoopRV | str, tensor_intrin: str, preserve_unit_iters: bool = True
) -> None:
    """Replace a block, or everything under a loop, by a tensor intrinsic.

    for i_0 in range(8):                        for i_0 in range(8):
        for i_1, k in grid(4, 4):                   with block("C_o"):
            with block("C"):                 ->         c = match_buffer(C[i_0 * 4:i_0 * 4 + 4], (4,))
                C[vi] += A[vk] * B[vi, vk]              …
                                                        call_extern("dot_4x4", c, a, b)

    `tensor_intrin` is a registered name. The body must be equal to the intrinsic's `desc`, up to names, offsets and the
    order of operands that commute.
    """
    found = TensorIntrin.get(tensor_intrin, allow_missing=True)
    if found is None:
        refuse(f"no tensor intrinsic is registered as {tensor_intrin!r}{near(tensor_intrin)}")
    here: Stmt = sch.loop(block_or_loop) if isinstance(block_or_loop, LoopRV) else sch.realize(block_or_loop)
    if isinstance(block_or_loop, LoopRV):
        block_or_loop = blockize(sch, block_or_loop, preserve_unit_iters)
    me = sch.realize(block_or_loop)
    try:
        matched = match_bodies(
            sch.state.analyzer_at(me.block.body), me.block.body, body_block(found.desc, "desc").body
        )
    except Different as different:
        hint = _about_init(me.block.body, found.desc.body)
        raise Unlike(different, me.block.name_hint, tensor_intrin, here, hint) from None
    impl = renew_defs(found.impl)
    _implement(sch, me, here, matched, found.desc, impl)


def _about_init(ours: Stmt, theirs: Stmt) -> str:
    """What to do if only one of the body and the description initialises what it sums up."""
    mine, their = (
        next((n.name_hint for n in pre_order(s) if isinstance(n, Block) and n.init is not None), None)
        for s in (ours, theirs)
    )
    if mine is not None and their is None:
        return f"the intrinsic does not initialise: call decompose_reduction on block {mine} first"
    if their is not None and mine is None:
        return (
            "the intrinsic initialises: leave the init in the block, and the whole reduction in loops inside"
        )
    return ""


def _implement(
    sch: Schedule, me: BlockRealize, here: Stmt, matched: Matched, desc: PrimFunc, impl: PrimFunc
) -> None:
    """Replace the body of a block by the implementation over the regions that the description matched."""
    ana = sch.state.analyzer_at(me.block.body)
    new = body_block(impl, "impl")
    matches: list[MatchBufferRegion] = []
    symbols: dict[Var, PrimExpr] = {}
    told = refresh_regions(body_block(desc, "desc"))
    used = {r.buffer: [x.extent for x in r.region] for r in (*told.reads, *told.writes)}
    for theirs, ours in zip(params(desc, "desc"), params(impl, "impl"), strict=True):
        found = matched.regions.get(theirs)
        if found is None:
            refuse(
                f"the desc of the intrinsic does not use {theirs.name}, so there is nothing to give it",
                at=here,
            )
        source, starts = found
        lead = len(starts) - len(theirs.shape)
        sizes = [const(1, s.dtype) for s in starts[:lead]] + [
            _size(d, s.dtype) for d, s in zip(theirs.shape, starts[lead:], strict=True)
        ]
        ranges = [Range.from_min_extent(ana.simplify(s), n) for s, n in zip(starts, sizes, strict=True)]
        region = BufferRegion(source, tuple(ranges))
        if theirs not in used or not all(map(ana.can_prove_equal, used[theirs], theirs.shape)):
            _check_inside(ana, here, theirs, region)
        _check_view(sch, ana, here, ours, region, new.body)
        _check_symbols(ana, here, ours, region, symbols)
        matches.append(MatchBufferRegion(ours, region))
    views = {m.buffer: m.source for m in matches}
    reads = [_moved(ana, r, views) for r in new.reads]
    writes = [_moved(ana, w, views) for w in new.writes]
    if me.block.init is not None:
        made = {w.buffer for w in writes}
        reads = [r for r in reads if r.buffer not in made]
    block = me.block.replace(
        reads=tuple(reads) or me.block.reads,
        writes=tuple(writes) or me.block.writes,
        body=new.body,
        alloc_buffers=(*me.block.alloc_buffers, *new.alloc_buffers),
        match_buffers=(*me.block.match_buffers, *matches, *new.match_buffers),
        annotations={**me.block.annotations, **new.annotations},
    )
    gone = [n for n in pre_order(me.block.body) if isinstance(n, (For, Block))]
    sch.state.replace(me.block, block)
    for n in gone:
        sch.forget(n.loop_var if isinstance(n, For) else n.key, f"tensorize({_name(here)}, …)")


def _name(n: Stmt) -> str:
    return n.loop_var.name if isinstance(n, For) else n.block.name_hint if isinstance(n, BlockRealize) else ""


def _size(d: PrimExpr, kind: str) -> PrimExpr:
    value = const_value(d)
    return d if value is None else const(int(value), kind)


def _moved(ana: Analyzer, r: BufferRegion, views: dict[Buffer, BufferRegion]) -> BufferRegion:
    """A region of an implementation's buffer as one of the buffer that it stands for."""
    source = views.get(r.buffer)
    if source is None:
        return r
    lead = len(source.region) - len(r.region)
    moved = [
        Range.from_min_extent(ana.simplify(add(s.min, x.min)), x.extent)
        for s, x in zip(source.region[lead:], r.region, strict=True)
    ]
    return BufferRegion(source.buffer, (*source.region[:lead], *moved))


def _check_symbols(
    ana: Analyzer, here: Stmt, view: Buffer, region: BufferRegion, symbols: dict[Var, PrimExpr]
) -> None:
    """Refuse if a variable of the implementation would have to be two things."""
    lead = len(region.region) - len(view.shape)
    for name, value in zip(view.strides, region.buffer.dense_strides()[lead:], strict=False):
        if isinstance(name, Var) and not ana.can_prove_equal(symbols.setdefault(name, value), value):
            refuse(
                f"the intrinsic calls two strides `{name.name}`, and one is {symbols[name]}, the other (of "
                f"{region.buffer.name}) {value}",
                at=here,
                hint="give each stride a variable of its own in the impl",
            )


def _check_inside(ana: Analyzer, here: Stmt, view: Buffer, region: BufferRegion) -> None:
    """Refuse if a buffer of which the description uses only a part may lie partly outside of ours."""
    for r, dim in zip(region.region, region.buffer.shape, strict=True):
        low, high = greater_equal(r.min, const(0, r.min.dtype)), less_equal(add(r.min, r.extent), dim)
        if not ana.can_prove(low) or not ana.can_prove(high):
            refuse(
                f"the intrinsic takes all of {view.name}, and the region of {region.buffer.name} from "
                f"{r.min} on may not have {r.extent} elements",
                at=here,
                hint="pad the buffer to whole tiles with pad_einsum or transform_layout",
            )


def _check_view(
    sch: Schedule, ana: Analyzer, here: Stmt, view: Buffer, region: BufferRegion, body: Stmt
) -> None:
    """Refuse if a region does not lie in memory as the implementation takes it to."""
    source = region.buffer
    lead = len(region.region) - len(view.shape)
    have = source.dense_strides()[lead:]
    if source.data_alignment % view.data_alignment:
        refuse(
            f"the intrinsic takes {view.name} aligned to {view.data_alignment} bytes, and {source.name} is "
            f"aligned to {source.data_alignment}",
            at=here,
            hint="take a copy of it with cache_read or cache_write, which is aligned",
        )
    offset = source.offset_at([r.min for r in region.region])
    if not ana.can_prove_equal(
        floormod(offset, const(view.offset_factor, offset.dtype)), const(0, offset.dtype)
    ):
        refuse(
            f"the intrinsic takes {view.name} at a multiple of {view.offset_factor} elements, and the region "
            f"of {source.name} starts at {ana.simplify(offset)}",
            at=here,
            hint="split by multiples of it, or pad the rows with storage_align",
        )
    for d, (want, stride) in enumerate(zip(view.strides, have, strict=False)):
        if not isinstance(want, Var) and not ana.can_prove(equal(want, stride)) and not is_one(view.shape[d]):
            refuse(
                f"the intrinsic takes {view.name} with stride {want} in dimension {d}, and {source.name} has "
                f"{ana.simplify(stride)} there",
                at=here,
                hint="take a copy with cache_read or cache_write, and give it these strides with storage_align",
            )
    how = used_whole(view, body)
    if how is None:
        return
    # The rows of a buffer of ours move together when its allocation is cut to size: lowering looks again.
    if any(source is b for b in sch.state.func.buffer_map.values()):
        apart = rows_apart(view, have, ana)
        if apart is not None:
            refuse(
                f"the intrinsic takes {view.name} as one piece of memory ({how}), and the rows of the region "
                f"of {source.name} lie {apart} elements apart",
                at=here,
                hint=f"stage {source.name} by cache_read, or give {view.name} strides that are variables in "
                "the impl",
            )
    if not isinstance(view.elem_offset, Var) and not ana.can_prove_equal(view.elem_offset, offset):
        refuse(
            f"the intrinsic uses the pointer of {view.name} and leaves no room for an offset, and the region "
            f"of {source.name} starts at {ana.simplify(offset)}",
            at=here,
            hint=f"declare {view.name} with offset_factor=1 in the impl",
        )


# ---------------------------------------------------------------------------- declared with te
Declared = tuple[PrimFunc, PrimFunc]


def tensorize_declared(
    sch: Schedule,
    loop: LoopRV,
    name: str,
    whole: Declared | None,
    reset: Declared | None,
    update: Declared | None,
) -> None:
    """Tensorize by an intrinsic of several forms: all of a reduction, its start, and one more part of it.

    Each is a description and an implementation. A reduction that goes on outside of the loop is taken apart.
    """
    with sch.all_or_nothing():
        outer = blockize(sch, loop)
        if sch.get(outer).init is None:
            _tensorize_by(sch, outer, name, whole)
            return
        nest = sch.state.index.loops_of(sch.realize(outer))
        first = reduction_loops(sch.realize(outer), nest)[0]
        if update is None:
            _refuse_part(
                sch,
                f"tensorize({loop.name})",
                f"loop `{first.loop_var.name}` outside carries on the reduction, and intrinsic {name} has no "
                "reduce_update",
                first,
                f"give fcompute's reset and update, or leave `{first.loop_var.name}` inside of `{loop.name}`",
            )
        start = decompose_reduction(sch, outer, LoopRV(first.loop_var))
        if reset is not None:
            _tensorize_by(sch, start, f"{name}.reset", reset)
        _tensorize_by(sch, outer, f"{name}.update", update)


def _tensorize_by(sch: Schedule, block: BlockRV, name: str, form: Declared | None) -> None:
    if form is None:
        what = f"intrinsic {name} has no body for a whole reduction"
        hint = "split the reduction and reorder, so that a part of it stays outside"
        _refuse_part(sch, f"tensorize({block.name})", what, sch.realize(block), hint)
    assert form is not None
    tensorize(sch, block, TensorIntrin.known_as(name, *form))


def _refuse_part(sch: Schedule, call: str, reason: str, at: Stmt, hint: str) -> NoReturn:
    """Refuse from a step made of primitives, with the program as it is between them."""
    refusal = Refusal(reason, at, hint)
    refusal.call, refusal.place, refusal.program = call, user_span(), sch.state.func
    raise refusal
