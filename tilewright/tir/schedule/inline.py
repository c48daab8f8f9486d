"""Primitives that inline a block into its consumers or into its producer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from ...arith import (
    Analyzer,
    IterMapLevel,
    detect_iter_map,
    inverse_affine_iter_map,
    relax_region,
)
from ...ir.buffer import Buffer
from ...ir.equal import structural_equal
from ...ir.expr import BufferLoad, FloorDiv, FloorMod, IntImm, PrimExpr, Range, Var, const, const_value
from ...ir.functor import Mutator, pre_order, substitute, vars_used
from ...ir.ops import add, cast, greater_equal, is_one, is_zero, less, less_equal, logical_and
from ...ir.stmt import Block, BlockRealize, BufferStore, For, SeqStmt, Stmt, stmt_list
from .blocks import (
    check_dominant,
    check_no_pointer,
    check_not_read_before,
    check_predicate,
    consumers_of,
    enclosing_block,
    is_output,
    is_reduction,
    producers_of,
    refresh_regions,
    remove_stmt,
)
from .dependence import check_inputs_unchanged, recheck
from .flow import concurrent_loops, covers_domain, points_injective
from .points import check_distinct_writes, check_full_domain, check_reads_own_element, check_unobserved
from .primitive import BlockRV, primitive, refuse

if TYPE_CHECKING:
    from .schedule import Schedule

_T = TypeVar("_T")
MANY = 64  # blocks to be inlined: with fewer, any order will do


def _single_store(me: BlockRealize, what: str) -> BufferStore:
    """The one store that a block consists of."""
    body = me.block.body
    if not isinstance(body, BufferStore):
        refuse(
            f"block {me.block.name_hint} does more than store one value, so it cannot be {what}",
            at=me,
            hint=_AT,
        )
    return body


def _distinct_vars(me: BlockRealize, indices: tuple[PrimExpr, ...], whose: str) -> list[Var]:
    """Indices that are iterators of the block, each at most once."""
    own = {iv.var for iv in me.block.iter_vars}
    out: list[Var] = []
    for i in indices:
        if not isinstance(i, Var) or i not in own or i in out:
            refuse(
                f"{whose} at `{i}`, which is not one iterator of block {me.block.name_hint}: "
                "an element cannot be traced back to the point that makes it",
                at=me,
                hint=_AT if whose.startswith("it writes") else _BACK,
            )
        out.append(i)
    return out


def short_first(blocks: Sequence[_T]) -> list[_T]:
    """Blocks to be inlined, of which many may be a chain, in an order in which expressions stay short.

    One after the other along a chain, each step would copy all that came before it. So every second one goes into its
    reader first, then every second one of those that are left: a chain of n takes n log n in all.
    """
    if len(blocks) < MANY:
        return list(blocks)
    return [b for _, b in sorted(enumerate(blocks, 1), key=lambda pair: pair[0] & -pair[0])]


@primitive
def compute_inline(sch: Schedule, block: BlockRV | str) -> None:
    """Inline a block into its consumers: its expression replaces every read of its buffer.

    B[i] = A[i] * 2                 C[i] = A[i] * 2 + 1
    C[i] = B[i] + 1         ->

    A block whose buffer nothing reads is removed.
    """
    me = sch.realize(block)
    name = me.block.name_hint
    if is_reduction(me.block):
        refuse(f"block {name} is a reduction, which takes many steps for one element", at=me, hint=_AT)
    if is_output(sch, me):
        refuse(f"block {name} writes an output of its scope, which must be stored", at=me, hint=_OUTPUT)
    check_dominant(sch, me)
    check_not_read_before(sch, me)
    store = _single_store(me, "inlined")
    variables = _distinct_vars(me, store.indices, f"it writes {store.buffer.name}")
    used = vars_used(store.value)
    extra = next((iv.var for iv in me.block.iter_vars if iv.var in used and iv.var not in variables), None)
    if extra is not None:
        refuse(
            f"iterator `{extra.name}` of block {name} does not say which element is written", at=me, hint=_AT
        )
    if any(isinstance(m, BufferLoad) and m.buffer is store.buffer for m in pre_order(store.value)):
        refuse(f"block {name} reads what it writes", at=me, hint=_AT)
    readers = consumers_of(sch, me)
    if not readers:  # the block and the buffer go, unless a pointer to it is taken where no read is declared
        for r in sch.siblings(me):
            check_no_pointer(r, store.buffer, "there must be memory for it")
    for r in readers:
        check_inputs_unchanged(sch, me, r, "its readers")
        check_no_pointer(r, store.buffer, "there must be memory for it")
    parts = _reading_parts(sch, me)
    _check_loads_outside(sch, me, store.buffer, parts)
    _drop(sch, me, store.buffer, parts, readers, _Inline(store.buffer, variables, store.value).visit)
    sch.forget(me.block.key, f"compute_inline({name})")


_AT = "use compute_at to compute it close to its consumer"
_BACK = "use reverse_compute_at to compute it close to its producer, or compute_inline on the producer"
_OUTPUT = "use reverse_compute_inline to take it into its producer"


class _Inline(Mutator):
    """A rewriter that replaces loads of a buffer by the expression of its elements."""

    def __init__(self, buffer: Buffer, variables: list[Var], value: PrimExpr) -> None:
        self.buffer, self.variables, self.value = buffer, variables, value

    def visit_BufferLoad(self, n: BufferLoad) -> PrimExpr:
        made = n.map_children(self.visit)
        if made.buffer is not self.buffer:
            return made
        # an index may be wider than the iterator it stands for, whose values it has
        indices = [cast(v.dtype, i) for v, i in zip(self.variables, made.indices, strict=True)]
        return substitute(self.value, dict(zip(self.variables, indices, strict=True)))

    def visit_Block(self, n: Block) -> Block:
        iters = tuple(self.visit(iv) for iv in n.iter_vars)  # their domains may be read from memory
        if not any(r.buffer is self.buffer for r in n.reads):
            return n.updated(iter_vars=iters)
        body = self.visit(n.body)
        init = None if n.init is None else self.visit(n.init)
        return refresh_regions(n.replace(iter_vars=iters, body=body, init=init))


def _drop(
    sch: Schedule,
    me: BlockRealize,
    buffer: Buffer,
    parts: Sequence[Stmt],
    others: Sequence[BlockRealize],
    rewrite: Callable[[Stmt], Stmt],
) -> None:
    """Rewrite other blocks of the scope and the `parts` of it that read memory outside of blocks by `rewrite`, then
    take the block and the buffer out of it."""
    key = me.block.key
    left = [x.loop_var for x in concurrent_loops(sch, me)]
    loose = {r for part in parts for r in sch.state.index.blocks_under(part)}
    for stmt in (*parts, *(r for r in others if r not in loose)):
        made = rewrite(stmt)
        if made is not stmt:
            sch.state.replace(stmt, made)
    remove_stmt(sch, sch.state.index.blocks[key], buffer)
    assert key not in sch.state.index.blocks
    recheck(sch, left)


def _reading_parts(sch: Schedule, me: BlockRealize) -> list[Stmt]:
    """The statements of the scope of a block that may read memory outside of the blocks in them."""
    scope, inside = enclosing_block(sch, me), sch.state.in_blocks
    assert scope is not None
    parts = [part for part in stmt_list(scope.body) if part not in inside]
    inside.update(part for part in parts if _loads_in_blocks(part))
    return [part for part in parts if part not in inside]


def _check_loads_outside(sch: Schedule, me: BlockRealize, buffer: Buffer, parts: Sequence[Stmt]) -> None:
    """Refuse if a bound of a loop, a condition or a binding, whose reads no block declares, reads the buffer before it
    is written, or after its inputs have changed."""
    index = sch.state.index
    for part in parts:
        if not _loads_outside(part, buffer):
            continue
        first = next(iter(index.blocks_under(part)), me)
        if first is me or part in index.ancestors(me) or index.order.index(first) < index.order.index(me):
            refuse(
                f"{buffer.name} is read outside of blocks, by a bound of a loop, a condition or a binding, which may "
                f"come before block {me.block.name_hint} writes it",
                at=part,
                hint=_AT,
            )
        check_inputs_unchanged(sch, me, part, "what reads it outside of blocks")


def _loads_outside(stmt: Stmt, buffer: Buffer) -> bool:
    """Whether a statement reads a buffer other than in the blocks in it."""
    stack: list[Any] = [stmt]
    while stack:
        n = stack.pop()
        if isinstance(n, BufferLoad) and n.buffer is buffer:
            return True
        stack.extend(n.iter_vars if isinstance(n, Block) else n.children())
    return False


def _loads_in_blocks(stmt: Stmt) -> bool:
    """Whether all that a statement reads is read by the blocks in it."""
    stack: list[Stmt] = [stmt]
    while stack:
        n = stack.pop()
        if isinstance(n, BlockRealize):
            domains = [e for iv in n.block.iter_vars for e in (iv.dom.min, iv.dom.extent)]
            own: tuple[PrimExpr, ...] = (n.predicate, *n.iter_values, *domains)
        elif isinstance(n, For):
            own = (n.min, n.extent)
            stack.append(n.body)
        elif isinstance(n, SeqStmt):
            own = ()
            stack.extend(n.seq)
        else:
            return False
        if any(isinstance(m, BufferLoad) for e in own if e.__class__ is not IntImm for m in pre_order(e)):
            return False
    return True


@primitive
def reverse_compute_inline(sch: Schedule, block: BlockRV | str) -> None:
    """Inline a block into its producer: its expression is applied to each element where it is computed.

    B[i] = A[i] * 2                 C[i] = A[i] * 2 + 1
    C[i] = B[i] + 1         ->

    The block may read the elements in another order, if it reads none twice:

    B[i] = A[i] * 2                 C[i // 8, i % 8] = A[i] * 2
    C[j, k] = B[j * 8 + k]  ->
    """
    me = sch.realize(block)
    name = me.block.name_hint
    if is_reduction(me.block):
        refuse(f"block {name} is a reduction", at=me, hint=_BACK)
    check_dominant(sch, me)
    check_predicate(sch, me, "its producer")
    check_full_domain(sch, me, "inlining it")
    check_distinct_writes(me, "inlining it")
    check_reads_own_element(me, "inlining it")
    check_not_read_before(sch, me)
    store = _single_store(me, "inlined into its producer")
    local = {r.buffer for r in me.block.reads}
    maker = _only_maker(sch, me)
    made = _single_store(maker, "the producer of an inlined block")
    if any(r.buffer is store.buffer for r in me.block.reads):
        _check_updates_once(sch, me, maker, store.buffer)
    if made.buffer not in local:
        refuse(f"block {name} does not read {made.buffer.name}", at=me)
    crossed = [x for x in sch.state.index.loops_of(me) if x not in sch.state.index.ancestors(maker)]
    if crossed:
        check_unobserved(sch, me, crossed[0], f"block {name}", local - {made.buffer, store.buffer})
    if is_output(sch, maker):
        refuse(f"{made.buffer.name} is an output of its scope, which must be stored", at=maker, hint=_BACK)
    others = [r for r in consumers_of(sch, maker) if r is not me]
    if others:
        refuse(f"block {others[0].block.name_hint} reads {made.buffer.name} too", at=others[0], hint=_BACK)
    parts = _reading_parts(sch, me)
    for part in parts:
        if _loads_outside(part, made.buffer):
            refuse(
                f"{made.buffer.name} is read outside of blocks too, by a bound of a loop, a condition or a binding",
                at=part,
                hint=_BACK,
            )
    places = _places_read(me, store, made.buffer)
    table = places.iterators(made.indices, maker)
    value = _Replace(made.buffer, made.value).visit(store.value)
    fused = BufferStore(store.buffer, substitute(value, table), [substitute(i, table) for i in store.indices])
    limits = [(table[v], dom) for v, dom in places.limits.items()]
    inside = _inside(sch, maker, [*zip(made.indices, places.domains, strict=True), *limits])
    _check_reached(me, maker, made, places)
    if not covers_domain(sch, me):
        refuse(
            f"the loops of block {name} do not come to all values of its iterators, and in block "
            f"{maker.block.name_hint} it would run at all of them",
            at=me,
            hint="let the iterators have the domains that the loops run through",
        )
    key = maker.block.key

    _drop(sch, me, made.buffer, parts, [maker], _Swap(key, fused, inside).visit)
    sch.forget(me.block.key, f"reverse_compute_inline({name})")


def _only_maker(sch: Schedule, me: BlockRealize) -> BlockRealize:
    """The only producer of a block, which must not be a reduction."""
    name, makers = me.block.name_hint, producers_of(sch, me)
    if len(makers) != 1:
        names = ", ".join(m.block.name_hint for m in makers) or "none"
        refuse(
            f"block {name} must read what exactly one block makes, and the blocks are: {names}",
            at=me,
            hint=_BACK if makers else "no block computes the inputs of the function, so it stays where it is",
        )
    maker = makers[0]
    if is_reduction(maker.block):
        refuse(
            f"block {maker.block.name_hint} is a reduction: its elements are not complete when written",
            at=maker,
            hint="use reverse_compute_at to apply the block after the reduction",
        )
    return maker


def _check_updates_once(sch: Schedule, me: BlockRealize, maker: BlockRealize, buffer: Buffer) -> None:
    """Refuse if a block that updates a buffer in place runs more than once at a point, here or in its producer."""
    check_distinct_writes(maker, "inlining into it")
    for one in (maker, me):
        loops = sch.state.index.loops_of(one)
        if not points_injective(sch, one, loops, loops):
            refuse(
                f"block {one.block.name_hint} may come to a point more than once, and block {me.block.name_hint} "
                f"updates {buffer.name} in place",
                at=one,
                hint=_BACK,
            )


@dataclass(frozen=True, slots=True)
class _Places:
    """The elements of a buffer that a block reads, each once: variables for their indices, the domains of these, the
    iterators of the block in terms of them, and those that may leave their domains there."""

    indices: list[Var]
    domains: list[Range]
    back: dict[Var, PrimExpr]
    limits: dict[Var, Range] = field(default_factory=dict)

    def iterators(self, indices: Sequence[PrimExpr], maker: BlockRealize) -> dict[Var, PrimExpr]:
        """The iterators of the block at the element with these indices, which `maker` writes."""
        table = dict(zip(self.indices, indices, strict=True))
        plain = all(e.__class__ is Var for e in self.back.values())
        ana = Analyzer()
        ana.bind_ranges({iv.var: iv.dom for iv in maker.block.iter_vars})
        made = {v: substitute(e, table) for v, e in self.back.items()}
        return made if plain else {v: ana.simplify(e) for v, e in made.items()}


def _places_read(me: BlockRealize, store: BufferStore, buffer: Buffer) -> _Places:
    """The elements of a buffer that a block reads: the same in each read, and each at one point of the block."""
    name = me.block.name_hint
    loads = [m for m in pre_order(store.value) if isinstance(m, BufferLoad) and m.buffer is buffer]
    if not loads:
        refuse(f"block {name} asks {buffer.name} where to write, and not for what", at=me, hint=_BACK)
    same = all(all(map(structural_equal, x.indices, loads[0].indices)) for x in loads)
    found = _reordered(me, loads[0].indices) if same else None
    if found is not None:
        return found
    variables = _distinct_vars(me, loads[0].indices, f"it reads {buffer.name}")
    if any(_distinct_vars(me, x.indices, f"it reads {buffer.name}") != variables for x in loads):
        refuse(f"block {name} reads {buffer.name} at several places", at=me, hint=_BACK)
    missing = next((iv.var for iv in me.block.iter_vars if iv.var not in variables), None)
    if missing is not None:
        refuse(
            f"iterator `{missing.name}` of block {name} is not an index of {buffer.name}", at=me, hint=_BACK
        )
    doms = {iv.var: iv.dom for iv in me.block.iter_vars}
    return _Places(variables, [doms[v] for v in variables], {v: v for v in variables})


def _reordered(me: BlockRealize, indices: Sequence[PrimExpr]) -> _Places | None:
    """The places of a block that reads at each of its points another element, in an order that can be inverted;
    None if it reads at its iterators as they are, or if the order cannot be inverted."""
    doms = {iv.var: iv.dom for iv in me.block.iter_vars}
    used = {v for i in indices for v in vars_used(i)}
    as_they_are = len(indices) == len(doms) and all(i.__class__ is Var for i in indices)
    if as_they_are or not used <= set(doms):
        return None
    limits: dict[Var, Range] = {}
    sums = detect_iter_map(indices, doms, check_level=IterMapLevel.Bijective).indices
    if not sums:
        whole = _whole_tiles(indices, doms)
        limits = {v: dom for v, dom in doms.items() if whole[v] is not dom}
        sums = detect_iter_map(indices, whole, check_level=IterMapLevel.Bijective).indices
    if len(sums) != len(indices) or any(len(s.args) > 1 for s in sums):
        return None
    places = [Var(str(i), i.dtype) for i in indices]  # the names are for messages
    domains = []
    for s, i in zip(sums, indices, strict=True):
        part: Any = s.args[0] if s.args else None
        if part is not None and not is_one(part.scale):
            return None
        domains.append(Range.from_min_extent(s.base, const(1, i.dtype) if part is None else part.extent))
    back = inverse_affine_iter_map(sums, places)
    for v, dom in doms.items():
        if v not in back:
            if not is_one(dom.extent):
                return None
            back[v] = dom.min
    return _Places(places, domains, back, limits)


def _whole_tiles(indices: Sequence[PrimExpr], doms: Mapping[Var, Range]) -> dict[Var, Range]:
    """Domains rounded up to multiples of what their iterators are divided by: `v // 16` and `v % 16` for v up to 127
    are those of v up to 128."""
    tiles = dict.fromkeys(doms, 1)
    for n in (n for i in indices for n in pre_order(i)):
        if (
            isinstance(n, (FloorDiv, FloorMod))
            and isinstance(n.a, Var)
            and isinstance(n.b, IntImm)
            and n.b.value > 0
        ):
            tiles[n.a] = math.lcm(tiles[n.a], n.b.value)
    out = dict(doms)
    for v, dom in doms.items():
        size = const_value(dom.extent)
        if size is not None and is_zero(dom.min) and size % tiles[v]:
            whole = -(-int(size) // tiles[v]) * tiles[v]
            out[v] = Range.from_min_extent(dom.min, const(whole, dom.extent.dtype))
    return out


class _Replace(Mutator):
    """A rewriter that replaces loads of a buffer by one value."""

    def __init__(self, buffer: Buffer, value: PrimExpr) -> None:
        self.buffer, self.value = buffer, value

    def visit_BufferLoad(self, n: BufferLoad) -> PrimExpr:
        return self.value if n.buffer is self.buffer else n.map_children(self.visit)


def _inside(sch: Schedule, maker: BlockRealize, indices: list[tuple[PrimExpr, Range]]) -> PrimExpr:
    """The condition on the loops that the consumer reads an element of the producer; true if it reads all."""
    ana = sch.state.analyzer_at(maker)
    values = dict(zip((iv.var for iv in maker.block.iter_vars), maker.iter_values, strict=True))
    out: PrimExpr = const(True, "bool")
    with ana.constraint_scope(maker.predicate):
        for index, dom in indices:
            at = ana.simplify(substitute(index, values))
            for condition in (greater_equal(at, dom.min), less(at, add(dom.min, dom.extent))):
                if not ana.can_prove(condition):
                    out = logical_and(out, condition)
    return out


def _check_reached(me: BlockRealize, maker: BlockRealize, made: BufferStore, places: _Places) -> None:
    """Refuse if the consumer has points that no point of the producer stands for."""
    ana = Analyzer()
    own = {iv.var: iv.dom for iv in maker.block.iter_vars}
    for v, taken, index in zip(places.indices, places.domains, made.indices, strict=True):
        whole = relax_region([Range.from_min_extent(index, const(1, index.dtype))], own, analyzer=ana)[0]
        if not (
            whole.has_lower_bound()
            and whole.has_upper_bound()
            and ana.can_prove(less_equal(whole.min_value, taken.min))
            and ana.can_prove(less(add(taken.min, taken.extent), add(whole.max_value, const(2, index.dtype))))
        ):
            refuse(
                f"block {me.block.name_hint} has more points than block {maker.block.name_hint} along "
                f"`{v.name}`, and these would not be computed",
                at=me,
                hint=_BACK,
            )


class _Swap(Mutator):
    """A rewriter that replaces the body of one block, and adds a condition on the loops to its predicate."""

    def __init__(self, key: object, body: Stmt, inside: PrimExpr) -> None:
        self.key, self.body, self.inside = key, body, inside

    def visit_BlockRealize(self, n: BlockRealize) -> Stmt:
        made = n.map_children(self.visit)
        if n.block.key is not self.key:
            return made
        block = refresh_regions(n.block.replace(body=self.body))
        return BlockRealize(n.iter_values, logical_and(n.predicate, self.inside), block, span=n.span)
