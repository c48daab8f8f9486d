"""Reductions without steps: their elements still get the initial value.

    for i in range(8):                            n = 0: the block never runs, and yet C[i] = 0 for
        for k in range(n):                        every i, since a sum over nothing is 0
            with block("C"):
                with init(): C[vi] = 0
                C[vi] += A[vi, vk]

A block's `init` runs at the first step, where all its reduction iterators have their first value. It also belongs to
the outermost loop that drives one of them: when this loop is entered, the `init` runs on its own for each point of the
other loops inside for which no iteration of the reduction loops satisfies the block's predicate. Where a loop drives
both spatial and reduction iterators, or there are conditions or bindings between loop and block, only the first rule
holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...arith import Analyzer
from ...ir.buffer import Buffer
from ...ir.expr import BufferLoad, IntImm, IterVar, PrimExpr, Var, const
from ...ir.functor import pre_order, substitute, vars_used
from ...ir.ops import conjunction, conjuncts, in_range, is_one, logical_and
from ...ir.stmt import AttrStmt, Block, BlockRealize, BufferStore, For, SeqStmt
from ..analysis.reductions import reduction_loops
from ..analysis.regions import get_block_read_write_region


@dataclass(slots=True)
class Steps:
    """The steps of a block's reduction: `start` runs for each point of `points` that has no step."""

    points: list[For]
    reducing: list[For]
    condition: PrimExpr  # the predicate of a step
    start: BlockRealize


def steps_below(loop: For, around: list[For], held: set[Var]) -> list[Steps]:
    """The reductions whose outermost loop is `loop` and that may have no steps.

    `around` are the loops inside the enclosing block, `held` the reduction iterators of the enclosing blocks.
    """
    found = []
    for path, realize in _blocks(loop.body, [loop]):
        if realize.block.init is None:
            continue
        driving = reduction_loops(realize, [*around, *path])
        if driving and driving[0] is loop:
            made = _steps(path, driving, realize, held)
            if made is not None:
                found.append(made)
    return found


def _blocks(
    s: Any, path: list[For], own: frozenset[Buffer] = frozenset()
) -> Iterator[tuple[list[For], BlockRealize]]:
    """The blocks below a statement with only loops between, or blocks without iterators, which hold allocations: a
    block that uses such an allocation belongs to one iteration."""
    while isinstance(s, (For, AttrStmt)) or _holds_memory(s):
        if isinstance(s, For):
            path = [*path, s]
        elif isinstance(s, BlockRealize):
            own = own.union(s.block.alloc_buffers)
        s = s.block.body if isinstance(s, BlockRealize) else s.body
    if isinstance(s, BlockRealize):
        init = s.block.init
        used = (
            {m.buffer for m in pre_order(init) if isinstance(m, (BufferLoad, BufferStore))} if init else set()
        )
        if not used & own:
            yield path, s
    elif isinstance(s, SeqStmt):
        for one in s.seq:
            yield from _blocks(one, path, own)


def _holds_memory(s: Any) -> bool:
    return isinstance(s, BlockRealize) and not s.block.iter_vars and is_one(s.predicate)


def _steps(path: list[For], driving: list[For], realize: BlockRealize, held: set[Var]) -> Steps | None:
    block, reducers = realize.block, {f.loop_var for f in driving}
    steps = {iv.var for iv in block.iter_vars if iv.is_reduction}
    if block.init is None or vars_used(block.init) & steps:
        return None
    points = [f for f in path if f.loop_var not in reducers]
    if any(vars_used(e) & reducers for f in points for e in (f.min, f.extent)):
        return None
    spatial: list[tuple[IterVar, PrimExpr]] = []
    for iv, value in realize.bindings:
        used = vars_used(value)
        if iv.is_reduction:
            if used & held:
                return None  # a step of the enclosing block, whose own init counts
        elif used & reducers:
            return None
        else:
            spatial.append((iv, value))
    condition = predicate = const(True, "bool")
    mixed = False
    for c in conjuncts(realize.predicate):
        if vars_used(c) & reducers:
            condition = logical_and(condition, c)
            mixed = mixed or bool(vars_used(c) - reducers)  # loops inside, or around
        else:
            predicate = logical_and(predicate, c)
    if _surely(driving, condition):
        return None
    if mixed:  # the condition helps to keep the iterators in their domains
        predicate = conjunction([predicate, *(in_range(value, iv.dom) for iv, value in spatial)])
    return Steps(points, driving, condition, _start(block, spatial, predicate))


def _surely(driving: list[For], condition: PrimExpr) -> bool:
    """Whether the first iteration exists and is a step."""
    if not all(isinstance(f.extent, IntImm) and f.extent.value > 0 for f in driving):
        return False
    return Analyzer().can_prove(substitute(condition, {f.loop_var: f.min for f in driving}))


def _start(block: Block, spatial: list[tuple[IterVar, PrimExpr]], predicate: PrimExpr) -> BlockRealize:
    assert block.init is not None
    made = Block([iv for iv, _ in spatial], (), block.writes, block.name_hint, block.init, span=block.span)
    reads, _ = get_block_read_write_region(made, None)
    return BlockRealize([value for _, value in spatial], predicate, made.replace(reads=tuple(reads)))
