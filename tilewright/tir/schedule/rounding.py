"""Domains rounded up to whole tiles: round_up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...arith import Analyzer, detect_linear_equation
from ...ir.buffer import Buffer, decl_buffer
from ...ir.expr import (
    BufferLoad,
    Call,
    Div,
    FloorDiv,
    FloorMod,
    IterVar,
    Mod,
    PrimExpr,
    Range,
    Var,
    const,
    const_value,
)
from ...ir.functor import pre_order, vars_used
from ...ir.op import Op
from ...ir.ops import add, ceildiv, greater_equal, is_zero, less, mul, sub
from ...ir.stmt import BlockRealize, BufferStore
from .blocks import check_dominant
from .buffers import check_plain_accesses, holder_of, swap_buffer
from .nests import trivial_nest
from .points import check_distinct_writes, check_self_initialized
from .primitive import BlockRV, primitive, refuse

if TYPE_CHECKING:
    from .schedule import Schedule

_IF = Op.get("tir.if_then_else")
_DIVISIONS = (FloorDiv, FloorMod, Div, Mod)


@primitive
def round_up(sch: Schedule, block: BlockRV | str, factors: Sequence[int]) -> None:
    """Compute an intermediate result for a domain of whole tiles: each iterator up to a multiple of its factor.

    for i in range(n + 2):                                         for i in range(ceildiv(n, 4) * 4 + 2):
        P[i] = if_then_else(1 <= i < n + 1, A[i - 1], 0)               P[i] = …
    for i in range(n):                                    ->       for i in range(ceildiv(n, 4) * 4):
        C[i] = P[i] + P[i + 1] + P[i + 2]                              C[i] = P[i] + P[i + 1] + P[i + 2]
    for i in range(n):                                             for i in range(n):
        B[i] = max(C[i], 0)                                            B[i] = max(C[i], 0)

    Tiles of these sizes need no predicates then. Further elements that it reads are computed as well, which must not
    read out of bounds; nobody reads its own ones.
    """
    me = sch.realize(block)
    name, iters = me.block.name_hint, me.block.iter_vars
    if len(factors) != len(iters):
        refuse(f"factors={list(factors)}: block {name} has {len(iters)} iterators", at=me)
    if any(int(f) < 1 for f in factors):
        refuse(f"factors={list(factors)}: they must be at least 1", at=me)
    ana = sch.state.analyzer_at(me)
    grown: dict[Var, PrimExpr] = {}
    for iv, f in zip(iters, factors, strict=True):
        factor = const(int(f), iv.dom.extent.dtype)
        size = ana.simplify(mul(ceildiv(iv.dom.extent, factor), factor))
        if not ana.can_prove_equal(size, iv.dom.extent):
            grown[iv.var] = size
    if not grown:
        return
    wanted: dict[BlockRealize, dict[Var, PrimExpr]] = {me: grown}
    _check_result(sch, me, grown)
    for read, by in _beyond(sch, me, grown).items():
        producer = _producer(sch, me, read)
        more = {v: ana.simplify(add(_extent(producer, v), extra)) for v, extra in _by_iterator(producer, by)}
        _check_result(sch, producer, more)
        _check_in_bounds(sch, producer, more)
        wanted[producer] = more
    _grow(sch, wanted)


def _extent(me: BlockRealize, var: Var) -> PrimExpr:
    return next(iv.dom.extent for iv in me.block.iter_vars if iv.var is var)


def _store(me: BlockRealize) -> BufferStore:
    store = me.block.body
    if not isinstance(store, BufferStore):
        refuse(f"block {me.block.name_hint} does more than store one value", at=me)
    return store


def _check_result(sch: Schedule, me: BlockRealize, grown: Mapping[Var, PrimExpr]) -> None:
    """Refuse unless a block may write more: an intermediate buffer, each element in an iteration of its own."""
    store, name = _store(me), me.block.name_hint
    buffer = store.buffer
    check_dominant(sch, me)
    check_self_initialized(sch, me, buffer, "the larger buffer")
    check_distinct_writes(me, "rounding up")
    check_plain_accesses(sch, me, buffer, "rounding up")
    if holder_of(sch, buffer) is None:
        refuse(
            f"{buffer.name} is a parameter of the function, which has no further elements",
            at=me,
            hint=f"cache_write block {name} first",
        )
    places = store.indices
    for iv in me.block.iter_vars:
        if not is_zero(iv.dom.min):
            refuse(f"iterator `{iv.var.name}` of block {name} does not start at 0", at=me)
        if iv.var in grown and (iv.iter_type != IterVar.DataPar or sum(i is iv.var for i in places) != 1):
            refuse(
                f"iterator `{iv.var.name}` does not say which element of {buffer.name} is written",
                at=me,
                hint="leave its factor at 1",
            )
    if any(i not in grown and vars_used(i) & set(grown) for i in places):
        refuse(f"block {name} does not write {buffer.name} at its iterators", at=me)
    if any(
        isinstance(m, _DIVISIONS) and m.dtype.is_int and not const_value(m.b) for m in pre_order(store.value)
    ):
        refuse(f"block {name} divides by elements, which further ones may not be fit for", at=me)


def _beyond(
    sch: Schedule, me: BlockRealize, grown: Mapping[Var, PrimExpr]
) -> dict[Buffer, dict[int, PrimExpr]]:
    """How many further elements of each dimension of its inputs a block reads; a dimension that it does not exceed is
    left out."""
    ana, store = sch.state.analyzer_at(me), _store(me)
    ana.bind_ranges({iv.var: Range(grown.get(iv.var, iv.dom.extent)) for iv in me.block.iter_vars})
    out: dict[Buffer, dict[int, PrimExpr]] = {}
    for m in _loads(store.value, ana):
        if m.buffer is store.buffer:
            continue
        for d, (i, dim) in enumerate(zip(m.indices, m.buffer.shape, strict=True)):
            moved = [v for v in grown if v in vars_used(i)]
            if not moved or ana.can_prove(less(i, dim)):
                continue
            more = _growth(i, moved, grown, me)
            if more is None:
                refuse(
                    f"block {me.block.name_hint} reads {m.buffer.name} at `{i}`, which is not linear", at=me
                )
            held = out.setdefault(m.buffer, {})
            if d in held and not ana.can_prove_equal(held[d], more):
                refuse(f"block {me.block.name_hint} reads {m.buffer.name} in several steps", at=me)
            held[d] = more
    return out


def _growth(
    index: PrimExpr, moved: list[Var], grown: Mapping[Var, PrimExpr], me: BlockRealize
) -> PrimExpr | None:
    """How much further an index reaches, which is linear in the iterators that grow."""
    linear = detect_linear_equation(index, moved)
    if not linear:
        return None
    more: PrimExpr = const(0, index.dtype)
    for v, factor in zip(moved, linear, strict=False):
        if (const_value(factor) or 0) < 1:
            return None
        more = add(more, mul(factor, sub(grown[v], _extent(me, v))))
    return Analyzer().simplify(more)


def _producer(sch: Schedule, me: BlockRealize, buffer: Buffer) -> BlockRealize:
    """The block that writes an input."""
    found = [r for r in sch.state.index.order if any(w.buffer is buffer for w in r.block.writes)]
    if len(found) != 1 or holder_of(sch, buffer) is None:
        refuse(
            f"block {me.block.name_hint} would read {buffer.name} out of bounds",
            at=me,
            hint="pad it first, or leave the factors of the iterators that it is read at at 1",
        )
    return found[0]


def _by_iterator(producer: BlockRealize, by: Mapping[int, PrimExpr]) -> list[tuple[Var, PrimExpr]]:
    """The iterators of a block by the dimensions of its result."""
    places = _store(producer).indices
    own = {iv.var for iv in producer.block.iter_vars}
    for d in by:
        if places[d] not in own:
            refuse(
                f"block {producer.block.name_hint} writes at `{places[d]}`, which is no iterator", at=producer
            )
    return [(places[d], extra) for d, extra in by.items()]  # type: ignore[misc]


def _check_in_bounds(sch: Schedule, me: BlockRealize, grown: Mapping[Var, PrimExpr]) -> None:
    """Refuse if a block would read out of bounds for its further elements."""
    ana = sch.state.analyzer_at(me)
    ana.bind_ranges({iv.var: Range(grown.get(iv.var, iv.dom.extent)) for iv in me.block.iter_vars})

    for m in _loads(_store(me).value, ana):
        for i, dim in zip(m.indices, m.buffer.shape, strict=True):
            if vars_used(i) & set(grown) and not (
                ana.can_prove(greater_equal(i, const(0, i.dtype))) and ana.can_prove(less(i, dim))
            ):
                refuse(
                    f"block {me.block.name_hint} would read {m.buffer.name} out of bounds, at `{i}` of {dim}",
                    at=me,
                )


def _loads(e: PrimExpr, ana: Analyzer) -> Iterator[BufferLoad]:
    """The loads of an expression, each while the analyzer knows the conditions under which it is evaluated."""
    if isinstance(e, Call) and e.op is _IF:
        condition, value, otherwise = e.args
        yield from _loads(condition, ana)
        with ana.constraint_scope(condition):
            yield from _loads(value, ana)
        yield from _loads(otherwise, ana)
        return
    if isinstance(e, BufferLoad):
        yield e
    for c in e.children():
        if isinstance(c, PrimExpr):
            yield from _loads(c, ana)


def _grow(sch: Schedule, wanted: Mapping[BlockRealize, Mapping[Var, PrimExpr]]) -> None:
    """Let blocks run over larger domains, and their results have as many elements."""
    for me in wanted:
        trivial_nest(sch, me, "round_up")  # all refusals before the first change
    for key, grown in [(me.block.key, grown) for me, grown in wanted.items()]:
        me = sch.state.index.blocks[key]
        iters = [iv.replace(dom=Range(grown[iv.var])) if iv.var in grown else iv for iv in me.block.iter_vars]
        sizes = {value: grown[iv.var] for iv, value in me.bindings if iv.var in grown}
        nest = trivial_nest(sch, me, "round_up")
        core: Any = me.replace(block=me.block.replace(iter_vars=tuple(iters)))
        for x in reversed(nest):
            core = x.replace(extent=sizes.get(x.loop_var, x.extent), body=core)
        sch.state.replace(nest[0], core)
        old, places = _store(me).buffer, _store(me).indices
        shape = [grown.get(i, dim) for i, dim in zip(places, old.shape, strict=True)]  # type: ignore[call-overload]
        swap_buffer(sch, old, decl_buffer(shape, old.dtype, old.name, scope=old.scope()))
