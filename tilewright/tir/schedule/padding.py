"""Primitives over padding: decompose_padding takes it out of a block, pad_einsum puts it around one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...arith import Analyzer
from ...ir.buffer import Buffer, BufferRegion, decl_buffer
from ...ir.expr import (
    GE,
    GT,
    LE,
    LT,
    Add,
    BufferLoad,
    Call,
    Cast,
    FloatImm,
    IntImm,
    IterVar,
    Max,
    Min,
    Mul,
    PrimExpr,
    Range,
    Select,
    Sub,
    Var,
    const,
    const_value,
)
from ...ir.functor import pre_order, renew_defs_in, substitute, vars_used
from ...ir.op import Op
from ...ir.ops import (
    add,
    ceildiv,
    conjunction,
    conjuncts,
    greater_equal,
    if_then_else,
    is_zero,
    less,
    logical_and,
    max_of,
    min_of,
    mul,
    sub,
)
from ...ir.stmt import Block, BlockRealize, BufferStore, For, Stmt
from .blocks import check_dominant, check_not_read_before, enclosing_block, insert_beside, refresh_regions
from .buffers import check_plain_accesses, holder_of
from .cache import _name
from .flow import written_box
from .nests import loop_nest, simplified, spatial_nest, trivial_nest
from .points import check_distinct_writes, check_self_initialized, check_unobserved
from .primitive import BlockRV, LoopRV, Refusal, primitive, refuse

if TYPE_CHECKING:
    from .schedule import Schedule

_IF = Op.get("tir.if_then_else")


# ---------------------------------------------------------------------------- decompose_padding
@primitive
def decompose_padding(sch: Schedule, block: BlockRV | str, loop: LoopRV) -> BlockRV:
    """Fill the buffer with the padding value before `loop`, and compute only the interior inside it.

    for i in range(140):                                          for i in range(140):
        y[i] = if_then_else(6 <= i < 134, x[i - 6], 0)    ->          y[i] = 0
                                                                  for i in range(128):
                                                                      y[i + 6] = x[i]
    """
    me, before = sch.realize(block), sch.loop(loop)
    store, condition, value, pad = _padding_of(sch, me, before)
    index = sch.state.index
    nest = index.loops_of(me)
    inner = nest[nest.index(before) :]
    fill = _fill_nest(sch, me, inner, store, pad)
    filled = next(m for m in pre_order(fill) if isinstance(m, Block))
    made, core = _inside(me, inner, store, condition, value)
    if made is None:
        sch.state.replace(me, core)
        insert_beside(sch, sch.loop(loop), fill, before=True)
    else:
        sch.state.replace(before, made)
        insert_beside(sch, made, fill, before=True)
    return BlockRV(filled.key, filled.name_hint)


def can_decompose_padding(sch: Schedule, block: BlockRV | str, loop: LoopRV) -> bool:
    """Whether `decompose_padding` would accept the block and loop."""
    try:
        _padding_of(sch, sch.realize(block), sch.loop(loop))
    except Refusal:
        return False
    return True


def _padding_of(
    sch: Schedule, me: BlockRealize, before: For
) -> tuple[BufferStore, PrimExpr, PrimExpr, PrimExpr]:
    """The store of a padding block, the condition for what is not padding, its value, and the padding's."""
    block, name = me.block, me.block.name_hint
    if before not in sch.state.index.loops_of(me):
        refuse(f"loop `{before.loop_var.name}` is not around block {name}", at=before)
    for iv in block.iter_vars:
        if iv.iter_type != IterVar.DataPar:
            refuse(f"iterator `{iv.var.name}` of block {name} is not spatial", at=me)
    check_dominant(sch, me)
    check_not_read_before(sch, me)
    check_distinct_writes(me, "filling before the loop")
    check_unobserved(sch, me, before, "the padding", set())
    store = block.body
    if not isinstance(store, BufferStore) or block.init is not None:
        refuse(f"block {name} does more than store one value", at=me)
    parts = _choice(store.value)
    if parts is None or const_value(parts[2]) is None:
        refuse(
            f"block {name} stores `{store.value}`, which is not if_then_else(inside, value, constant)",
            at=me,
        )
    own = {iv.var for iv in block.iter_vars}
    if len(set(store.indices)) != len(store.indices) or not all(i in own for i in store.indices):
        refuse(f"block {name} does not write {store.buffer.name} at its iterators", at=me)
    if own - {i for i in store.indices if isinstance(i, Var)}:
        missing = next(iv.var for iv in block.iter_vars if iv.var not in store.indices)
        refuse(f"iterator `{missing.name}` of block {name} does not say which element is written", at=me)
    condition, value, _ = parts
    for part in (condition, value):
        if any(isinstance(m, BufferLoad) and m.buffer is store.buffer for m in pre_order(part)):
            refuse(f"block {name} reads what it writes", at=me)
    return store, condition, value, parts[2]


def _choice(e: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr] | None:
    if isinstance(e, Call) and e.op is _IF:
        return e.args[0], e.args[1], e.args[2]
    return (e.condition, e.true_value, e.false_value) if isinstance(e, Select) else None


def _fill_nest(sch: Schedule, me: BlockRealize, inner: list[For], store: BufferStore, pad: PrimExpr) -> Stmt:
    """Copies of the loops around a block that writes the padding's value everywhere."""
    name = _name(sch, f"{me.block.name_hint}_pad_const")
    body = BufferStore(store.buffer, pad, store.indices)
    writes = [BufferRegion.point(store.buffer, store.indices)]
    made: Stmt = BlockRealize(me.iter_values, me.predicate, Block(me.block.iter_vars, [], writes, name, body))
    for x in reversed(inner):
        made = x.replace(body=made)
    return renew_defs_in(made)


def _inside(
    me: BlockRealize, inner: list[For], store: BufferStore, condition: PrimExpr, value: PrimExpr
) -> tuple[Stmt | None, BlockRealize]:
    """The loops shortened to where the condition holds, and the block in them.

    Where a loop is not all of an iterator, or the condition no bound of one, it becomes the predicate; if no
    loop is shortened there is no new nest.
    """
    block = me.block
    alone = all(a.body is b for a, b in zip(inner, [*inner[1:], me], strict=True))
    sides = [iv for iv, v in me.bindings if alone and _side(v, iv, inner, me)]
    bounds, left = _bounds(block, condition, {iv.var for iv in sides})
    loops: dict[PrimExpr, PrimExpr] = {x.loop_var: x.extent for x in inner}
    iters = []
    shifted: dict[Any, Any] = {}
    outside: dict[Any, Any] = {}
    for iv, v in me.bindings:
        outside[iv.var] = v
        if iv.var in bounds:
            low, size = bounds[iv.var]
            loops[v] = size
            shifted[iv.var], outside[iv.var] = add(iv.var, low), add(v, low)
            iv = IterVar(Range.from_min_extent(const(0, size.dtype), size), iv.var, iv.iter_type)
        iters.append(iv)
    predicate = me.predicate
    for c in left:
        predicate = logical_and(predicate, substitute(c, outside))
    body = BufferStore(
        store.buffer, substitute(value, shifted), [substitute(i, shifted) for i in store.indices]
    )
    made = simplified(refresh_regions(block.replace(iter_vars=tuple(iters), body=body)))
    core = BlockRealize(me.iter_values, predicate, made, span=me.span)
    if not bounds:
        return None, core
    out: Stmt = core
    for x in reversed(inner):
        out = x.replace(extent=loops[x.loop_var], body=out)
    return out, core


def _side(value: PrimExpr, iv: IterVar, inner: list[For], me: BlockRealize) -> bool:
    """Whether an iterator is all of one of the loops, which drives nothing else."""
    ana = Analyzer()
    loop = next((x for x in inner if x.loop_var is value), None)
    if loop is None or not is_zero(loop.min) or not is_zero(iv.dom.min):
        return False
    uses = sum(value in vars_used(v) for v in me.iter_values)
    return uses == 1 and ana.can_prove_equal(loop.extent, iv.dom.extent)


def _bounds(
    block: Block, condition: PrimExpr, sides: set[Var]
) -> tuple[dict[Var, tuple[PrimExpr, PrimExpr]], list[PrimExpr]]:
    """First value and number of values that a condition leaves to iterators, and what it says more."""
    ana, plain = Analyzer(), Analyzer()
    ana.bind_ranges({iv.var: iv.dom for iv in block.iter_vars})
    doms = {iv.var: (iv.dom.min, add(iv.dom.min, iv.dom.extent)) for iv in block.iter_vars if iv.var in sides}
    conditions = [c for c in conjuncts(condition) if not ana.can_prove(c)]
    found = {c: _bound(c, {iv.var for iv in block.iter_vars}) for c in conditions}
    out = {}
    for v, (low, end) in doms.items():
        for bound in found.values():
            if bound is not None and bound[0] is v:
                low = low if bound[1] is None else max_of(low, bound[1])
                end = end if bound[2] is None else min_of(end, bound[2])
        low, size = plain.simplify(low), plain.simplify(sub(end, low))
        if not plain.can_prove(greater_equal(size, const(1, size.dtype))):
            continue  # nothing may be left: a predicate says so without an empty loop
        if not plain.can_prove_equal(size, sub(doms[v][1], doms[v][0])):
            out[v] = (low, size)
    left = [c for c, bound in found.items() if bound is None or bound[0] not in out]
    return out, left


def _bound(c: PrimExpr, own: set[Var]) -> tuple[Var, PrimExpr | None, PrimExpr | None] | None:
    """A comparison as `low <= v` or `v < end` of one iterator."""
    if not isinstance(c, (LT, LE, GT, GE)):
        return None
    small, large = (c.a, c.b) if isinstance(c, (LT, LE)) else (c.b, c.a)
    free = Analyzer()
    gap = free.simplify(sub(large, small))  # >= 0, or > 0 if strict
    if any(isinstance(m, BufferLoad) for m in pre_order(gap)) or len(vars_used(gap) & own) != 1:
        return None
    (v,) = vars_used(gap) & own
    one = const(1 if isinstance(c, (LT, GT)) else 0, gap.dtype)
    rest = free.simplify(sub(gap, v))
    if v not in vars_used(rest):  # v + rest >= one
        return v, free.simplify(sub(one, rest)), None
    rest = free.simplify(add(gap, v))
    if v not in vars_used(rest):  # rest - v >= one
        return v, None, free.simplify(add(sub(rest, one), const(1, gap.dtype)))
    return None


# ---------------------------------------------------------------------------- pad_einsum
@primitive
def pad_einsum(sch: Schedule, block: BlockRV | str, padding: Sequence[int]) -> None:
    """Pad each iterator of an einsum to a multiple of its entry in `padding`, over copies padded with zeros.

                                              for i, k in grid(128, 128):
                                                  A_pad[i, k] = A[i, k] if i < 127 and k < 127 else 0
    for i, j, k in grid(127, 127, 127):       …   (B_pad in the same way)
        C[i, j] += A[i, k] * B[k, j]    ->    for i, j, k in grid(128, 128, 128):
                                                  C_pad[i, j] += A_pad[i, k] * B_pad[k, j]
                                              for i, j in grid(127, 127):
                                                  C[i, j] = C_pad[i, j]
    """
    me = sch.realize(block)
    name, iters = me.block.name_hint, me.block.iter_vars
    if len(padding) != len(iters):
        refuse(f"padding={list(padding)}: block {name} has {len(iters)} iterators", at=me)
    if any(int(p) < 1 for p in padding):
        refuse(f"padding={list(padding)}: they must be at least 1", at=me)
    nest = trivial_nest(sch, me, "pad_einsum")
    store = _einsum(sch, me)
    ana = sch.state.analyzer_at(me)
    sizes: dict[Var, PrimExpr] = {}
    for iv, p in zip(iters, padding, strict=True):
        factor = const(int(p), iv.dom.extent.dtype)
        sizes[iv.var] = ana.simplify(mul(ceildiv(iv.dom.extent, factor), factor))
    grown = {iv.var for iv in iters if not ana.can_prove_equal(sizes[iv.var], iv.dom.extent)}
    if not grown:
        return
    _check_neutral(me, store, grown)
    scope = enclosing_block(sch, me)
    assert scope is not None
    _pad_around(sch, me, nest, store, sizes, grown, scope)
    for x in nest:
        sch.forget(x.loop_var, f"pad_einsum({name}, …)")


def _einsum(sch: Schedule, me: BlockRealize) -> BufferStore:
    """The store of a block whose accesses are all at iterators or constants."""
    block, name = me.block, me.block.name_hint
    check_dominant(sch, me)
    store = block.body
    if not isinstance(store, BufferStore):
        refuse(f"block {name} does more than store one value", at=me)
    check_self_initialized(sch, me, store.buffer, "the padded buffer")
    check_distinct_writes(me, "padding")
    _check_all_written(me, store.buffer)
    if block.init is not None and not isinstance(block.init, BufferStore):
        refuse(f"the init of block {name} does more than store one value", at=me)
    if block.init is not None and any(isinstance(m, BufferLoad) for m in pre_order(block.init)):
        refuse(
            f"the init of block {name} reads a buffer, of which there are no elements to start the padding from",
            at=me,
            hint="take the init out first with decompose_reduction",
        )
    own = {iv.var for iv in block.iter_vars}
    for iv in block.iter_vars:
        if not is_zero(iv.dom.min):
            refuse(f"iterator `{iv.var.name}` of block {name} does not start at 0", at=me)
    for b in {m.buffer: None for m in pre_order(block) if isinstance(m, (BufferLoad, BufferStore))}:
        check_plain_accesses(sch, me, b, "padding")
        places = [
            m.indices for m in pre_order(block) if isinstance(m, (BufferLoad, BufferStore)) and m.buffer is b
        ]
        for place in places:
            for i in place:
                if i not in own and const_value(i) is None:
                    refuse(
                        f"block {name} uses {b.name} at `{i}`, which is neither an iterator nor a constant",
                        at=me,
                    )
                if i in own and sum(x is i for x in place) > 1 and holder_of(sch, b) is not None:
                    refuse(
                        f"block {name} uses a diagonal of {b.name}, and the padded copy would read all of it, also "
                        "what nobody may have written",
                        at=me,
                        hint=f"reindex the reads of {b.name} first",
                    )
            if len(place) != len(places[0]) or any(
                not _same(p, q) for p, q in zip(place, places[0], strict=True)
            ):
                refuse(f"block {name} uses {b.name} at several places", at=me)
    for m in pre_order(store.value):
        if isinstance(m, PrimExpr) and not isinstance(m, _EINSUM):
            refuse(
                f"block {name} computes `{m}`: in an einsum there are only sums and products of elements",
                at=me,
            )
    return store


def _check_all_written(me: BlockRealize, buffer: Buffer) -> None:
    """Refuse if a block leaves out elements of the box that is copied back from the padded buffer."""
    if any(written_box(me.block, w) is None for w in me.block.writes):
        refuse(
            f"the elements of {buffer.name} that block {me.block.name_hint} writes are not a box, and a box is copied "
            "back from the padded buffer",
            at=me,
            hint="let it write each dimension at an iterator of its own",
        )


_EINSUM = (Add, Sub, Mul, Max, Min, Cast, BufferLoad, IntImm, FloatImm, Var)


def _same(a: PrimExpr, b: PrimExpr) -> bool:
    return a is b or (const_value(a) is not None and const_value(a) == const_value(b))


def _check_neutral(me: BlockRealize, store: BufferStore, grown: set[Var]) -> None:
    """Padding must add zero to a reduction, and must write elements of its own elsewhere."""
    for iv in me.block.iter_vars:
        if iv.iter_type == IterVar.DataPar:
            if iv.var in grown and iv.var not in store.indices:
                refuse(
                    f"iterator `{iv.var.name}` does not say which element of {store.buffer.name} is written, "
                    "and its padding would write the same one again",
                    at=me,
                    hint=f"leave the padding of `{iv.var.name}` at 1",
                )
            continue
        if not iv.is_reduction:
            refuse(f"iterator `{iv.var.name}` of block {me.block.name_hint} must run in order", at=me)
        if iv.var not in grown:
            continue
        value = store.value
        own = isinstance(value, Add) and isinstance(value.a, BufferLoad) and value.a.buffer is store.buffer
        if not own or not _zero(value.b, iv.var):  # type: ignore[attr-defined]
            refuse(
                f"the padding of reduction iterator `{iv.var.name}` would change the sum: "
                f"`{value}` does not add zero where the elements are zero",
                at=me,
                hint=f"leave the padding of `{iv.var.name}` at 1",
            )


def _zero(e: PrimExpr, var: Var) -> bool:
    """Whether an expression is zero where all elements that `var` chooses are (0 times infinity is not)."""
    if isinstance(e, BufferLoad):
        return var in e.indices
    if isinstance(e, Mul):
        left, right = _zero(e.a, var), _zero(e.b, var)
        return (
            (left and right)
            or (left and const_value(e.b) is not None)
            or (right and const_value(e.a) is not None)
        )
    if isinstance(e, (Add, Sub, Max, Min)):
        return _zero(e.a, var) and _zero(e.b, var)
    return _zero(e.value, var) if isinstance(e, Cast) else const_value(e) == 0


def _pad_around(
    sch: Schedule,
    me: BlockRealize,
    nest: list[For],
    store: BufferStore,
    sizes: dict[Var, PrimExpr],
    grown: set[Var],
    scope: Block,
) -> None:
    table: dict[Buffer, Buffer] = {}
    before: list[Stmt] = []
    after: list[Stmt] = []
    for m in (*pre_order(store.value), store):
        if not isinstance(m, (BufferLoad, BufferStore)) or m.buffer in table or not grown & set(m.indices):
            continue
        if m.buffer is store.buffer and m is not store:
            continue
        shape = [sizes.get(i, dim) for i, dim in zip(m.indices, m.buffer.shape, strict=True)]  # type: ignore[call-overload]
        new = table[m.buffer] = decl_buffer(
            shape, m.buffer.dtype, f"{m.buffer.name}_pad", scope=m.buffer.scope()
        )
        if m is store:
            after.append(_crop(sch, new, m.buffer, m.indices, me.block))
        else:
            before.append(_padded(sch, m.buffer, new, m.indices, me.block))
    iters = [
        iv if iv.var not in grown else IterVar(Range(sizes[iv.var]), iv.var, iv.iter_type)
        for iv in me.block.iter_vars
    ]
    made = substitute(me.block.replace(iter_vars=tuple(iters)), {}, table)
    by_loop = {value: sizes[iv.var] for iv, value in me.bindings}
    loops = [Var(x.loop_var.name, x.loop_var.dtype) for x in nest]
    rename: dict[Any, Any] = {x.loop_var: v for x, v in zip(nest, loops, strict=True)}
    values = [rename[v] for v in me.iter_values]
    core = loop_nest(
        loops, [by_loop[x.loop_var] for x in nest], BlockRealize(values, True, made, span=me.span)
    )
    sch.state.replace(nest[0], core)
    for s in before:
        insert_beside(sch, core, s, before=True)
    for s in after:
        insert_beside(sch, core, s, before=False)
    found = sch.state.index.blocks[scope.key].block
    sch.state.replace(found, found.replace(alloc_buffers=(*found.alloc_buffers, *table.values())))


def _extents(indices: Sequence[PrimExpr], block: Block) -> list[PrimExpr | None]:
    """The extent of the iterator that each index is; None for constants."""
    known = {iv.var: iv.dom.extent for iv in block.iter_vars}
    return [known[i] if isinstance(i, Var) else None for i in indices]


def _padded(sch: Schedule, old: Buffer, new: Buffer, indices: Sequence[PrimExpr], block: Block) -> Stmt:
    """The nest that copies a buffer into a larger one, with zeros around it."""
    ends = _extents(indices, block)
    ana = Analyzer()

    def content(point: list[PrimExpr]) -> tuple[Stmt, list[BufferRegion], list[BufferRegion]]:
        inside = conjunction(
            less(v, end)
            for v, end, dim in zip(point, ends, new.shape, strict=True)
            if end is not None and not ana.can_prove_equal(end, dim)
        )
        value = if_then_else(inside, BufferLoad(old, tuple(point)), const(0, old.dtype))
        return (
            BufferStore(new, value, point),
            [BufferRegion.point(old, point)],
            [BufferRegion.point(new, point)],
        )

    return spatial_nest(_used(indices, new.shape), _name(sch, new.name), content)[0]


def _used(indices: Sequence[PrimExpr], sizes: Sequence[PrimExpr | None]) -> list[Range]:
    """The part of each dimension that is used: one element where the index is a constant, else all of a size."""
    return [
        Range.from_min_extent(i, const(1, i.dtype)) if n is None or not isinstance(i, Var) else Range(n)
        for i, n in zip(indices, sizes, strict=True)
    ]


def _crop(sch: Schedule, new: Buffer, old: Buffer, indices: Sequence[PrimExpr], block: Block) -> Stmt:
    """The nest that copies back the part that is not padding."""

    def content(point: list[PrimExpr]) -> tuple[Stmt, list[BufferRegion], list[BufferRegion]]:
        store = BufferStore(old, BufferLoad(new, tuple(point)), point)
        return store, [BufferRegion.point(new, point)], [BufferRegion.point(old, point)]

    return spatial_nest(_used(indices, _extents(indices, block)), _name(sch, new.name), content)[0]
