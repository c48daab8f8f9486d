"""Reduction initialisation: from a block's `init` to a nest of its own."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from ...arith import Analyzer
from ...ir.errors import LoweringError
from ...ir.expr import LE, LT, BufferLoad, IterVar, PrimExpr, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, pre_order, renew_defs_in, substitute, vars_used
from ...ir.ops import add, conjuncts, equal, greater_equal, is_one, less, less_equal, logical_and, sub
from ...ir.stmt import Block, BlockRealize, BufferStore, For, ForKind, IfThenElse, Stmt, seq
from ..analysis.elements import come_once, untold
from ..analysis.regions import get_block_read_write_region, reads_elsewhere

__all__ = ["init_nest", "inside_domains", "lower_init_block", "reduction_loops", "starts_at_first"]


def lower_init_block(func: PrimFunc) -> PrimFunc:
    """Run the `init` of a reduction before its outermost reduction loop.

        for i, k in grid(8, 4):              for i in range(8):
            with block("C"):                     with block("C_init"): C[vi] = 0
                with init(): C[vi] = 0   ->      for k in range(4):
                C[vi] += A[vi, vk]                   with block("C"): C[vi] += A[vi, vk]

    Where the init cannot stand alone (a loop feeds both spatial and reduction iterators, a condition or
    something that uses C stands between) it is guarded instead: `if vk == 0: C[vi] = 0`.
    Needs: block form. Gives: no block with an `init`.
    """
    return _LowerInit().run(func)


class _LowerInit(Mutator):
    def __init__(self) -> None:
        self.path: list[Stmt] = []  # loops, conditions and bindings up to the block around
        self.reducers: set[Var] = set()  # reduction iterators of the blocks around
        self.pending: dict[Var, list[Stmt]] = {}

    def visit_For(self, n: For) -> Stmt:
        self.path.append(n)
        body = self.visit(n.body)
        self.path.pop()
        made = n if body is n.body else n.replace(body=body)
        before = self.pending.pop(n.loop_var, None)
        return made if before is None else seq(*before, made)

    def between(self, n: Stmt) -> Stmt:
        self.path.append(n)
        made = n.map_children(self.visit)
        self.path.pop()
        return made

    visit_IfThenElse = visit_LetStmt = visit_While = visit_AssertStmt = between

    def visit_BlockRealize(self, n: BlockRealize) -> Stmt:
        outer, self.path = self.path, []
        held = set(self.reducers)
        self.reducers.update(iv.var for iv in n.block.iter_vars if iv.iter_type == IterVar.CommReduce)
        block = self.visit(n.block)
        self.path, self.reducers = outer, held
        loops = [x for x in self.path if isinstance(x, For)]
        reducing = reduction_loops(n, loops)
        _check_threads(n, reducing)
        if block.init is None:
            return n if block is n.block else n.replace(block=block)
        if not starts_at_first(n, reducing, self.reducers):
            return n.replace(block=_guarded(block))
        if not reducing:
            return n.replace(block=block.replace(init=None, body=seq(block.init, block.body)))
        nest = None
        inside = self.path[self.path.index(reducing[0]) :]
        if all(isinstance(x, For) for x in inside) and _alone(n, reducing[0]) and _once(n, loops, reducing):
            nest = init_nest(n.replace(block=block), loops, loops.index(reducing[0]))
        if nest is None:
            return n.replace(block=_guarded(block))
        self.pending.setdefault(reducing[0].loop_var, []).append(nest)
        return n.replace(block=block.replace(init=None))


def _check_threads(realize: BlockRealize, reducing: list[For]) -> None:
    """Threads that add to one element at once would lose some of it."""
    for loop in reducing:
        if loop.thread_binding is not None:
            name, tag = realize.block.name_hint, loop.thread_binding.thread_tag
            how = (
                "run tir.transform.UnifyThreadBinding() and LowerCrossThreadReduction() before LowerInitBlock()"
                if tag.startswith(("threadIdx", "clusterCtaIdx"))
                else "they run at once and do not wait for each other; bind a loop that is not reduced"
            )
            raise LoweringError(
                f"block {name} is reduced by the threads of {tag} (loop `{loop.loop_var.name}`): {how}"
            )


def starts_at_first(realize: BlockRealize, loops: list[For], held: Set[Var] = frozenset()) -> bool:
    """Whether the first iteration of the loops is the one that has all reduction iterators at their start."""
    ana = Analyzer()
    first: dict[Any, Any] = {loop.loop_var: loop.min for loop in loops}
    for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        if iv.iter_type != IterVar.CommReduce:
            continue
        if vars_used(value) & held or not ana.can_prove_equal(substitute(value, first), iv.dom.min):
            return False
    # Conditions may leave out the first iteration only together with all others.
    for loop in loops:
        ana.bind_loop(loop.loop_var, loop.min, loop.extent)
    conditions = [c for c in conjuncts(realize.predicate) if vars_used(c) & first.keys()]
    return all(_holds_at_first(ana, c, first) for c in conditions)


def _holds_at_first(ana: Analyzer, condition: PrimExpr, first: dict[Any, Any]) -> bool:
    """Whether a condition that holds in some iteration does so in the first."""
    if isinstance(condition, (LT, LE)):  # `i*4 + k < n` is nearer to fail than `i*4 < n`
        far = sub(condition.a, condition.b)
        if ana.can_prove(less_equal(substitute(far, first), far)):
            return True
    with ana.constraint_scope(condition):
        return ana.can_prove(substitute(condition, first))


def _alone(realize: BlockRealize, loop: For) -> bool:
    """Whether nothing else in the loop uses what the init writes, or writes what it reads."""
    assert realize.block.init is not None
    written = {m.buffer for m in pre_order(realize.block.init) if isinstance(m, BufferStore)}
    read = {m.buffer for m in pre_order(realize.block.init) if isinstance(m, BufferLoad)}
    stack: list[Any] = [loop.body]
    while stack:
        m = stack.pop()
        if m is realize:
            continue
        if isinstance(m, BufferStore) and (m.buffer in written or m.buffer in read):
            return False
        if isinstance(m, BufferLoad) and m.buffer in written:
            return False
        stack.extend(m.children())
    return not read & {w.buffer for w in realize.block.writes}


def _once(realize: BlockRealize, around: list[For], reducing: list[For]) -> bool:
    """Whether no element is started again in the loops of a reduction, by another point or by the same, nor read by
    another one before it is started."""
    loops = [x for x in around[around.index(reducing[0]) :] if const_value(x.extent) != 1]
    if any(x not in reducing for x in loops):
        block = realize.block
        if any(untold(block, w) is not None or reads_elsewhere(block, w.buffer) for w in block.writes):
            return False
    return come_once(realize, loops, around)


def reduction_loops(realize: BlockRealize, loops: list[For]) -> list[For]:
    """Those of `loops` that drive a reduction iterator of the block, outermost first.

    A part of a split may have gone from the bindings, because the predicate lets one iteration of it
    through: `for k_0, k_1 in grid(2, 2): vk = k_1 where k_0 * 2 + k_1 < 1`. It drives the reduction too.
    """
    used: set[Var] = set()
    spatial: set[Var] = set()
    for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        (used if iv.iter_type == IterVar.CommReduce else spatial).update(vars_used(value))
    conditions = [vars_used(c) for c in conjuncts(realize.predicate)]
    single = {loop.loop_var for loop in loops if is_one(loop.extent)}  # which may be part of anything
    more = True
    while more:
        joined = {v for c in conditions if c & used for v in c} - spatial - used - single
        more = bool(joined)
        used |= joined
    return [loop for loop in loops if loop.loop_var in used]


def init_nest(realize: BlockRealize, around: list[For], start: int) -> Stmt | None:
    """The block's `init` under copies of those loops from `around[start]` on that it needs.

    None if it cannot stand alone: if a loop drives spatial and reduction iterators alike, the bounds of a spatial
    one depend on one that reduces, or the init itself asks for the value of a reduction iterator.
    """
    block, loops = realize.block, around[start:]
    assert block.init is not None
    if vars_used(block.init) & {iv.var for iv in block.iter_vars if iv.iter_type == IterVar.CommReduce}:
        return None
    reducing = {loop.loop_var for loop in reduction_loops(realize, loops)}
    spatial: list[tuple[IterVar, PrimExpr]] = []
    needed: set[Var] = set()
    for iv, value in zip(block.iter_vars, realize.iter_values, strict=True):
        if iv.iter_type == IterVar.CommReduce:
            continue
        used = vars_used(value)
        if used & reducing:
            return None
        needed |= used
        spatial.append((iv, value))
    predicate: PrimExpr = const(True, "bool")
    mixed = False
    for condition in conjuncts(realize.predicate):
        used = vars_used(condition)
        if used & reducing:
            mixed = mixed or bool(used & needed)
            continue
        needed |= used
        predicate = logical_and(predicate, condition)
    # A condition on both was left out: the init may run for more points, as long as they are points.
    if mixed and not inside_domains(spatial, around, predicate):
        return None
    for loop in reversed(loops):
        if loop.loop_var in needed:
            needed |= vars_used(loop.min) | vars_used(loop.extent)
    if needed & reducing:  # which elements there are changes with the reduction
        return None
    copies = {loop.loop_var: loop.loop_var.copy_with_suffix("_init") for loop in loops}
    stand_alone = Block(
        [iv for iv, _ in spatial],
        [],
        block.writes,
        f"{block.name_hint}_init",
        block.init,
        annotations={k: v for k, v in block.annotations.items() if k.startswith("tir.init")},
        span=block.span,
    )
    reads, _ = get_block_read_write_region(stand_alone, None)
    stand_alone = stand_alone.replace(reads=tuple(reads))
    realized = BlockRealize([value for _, value in spatial], predicate, stand_alone)
    made: Stmt = substitute(renew_defs_in(realized), copies)
    for loop in reversed(loops):
        if loop.loop_var in needed:
            kind = ForKind.SERIAL if loop.kind is ForKind.PARALLEL and loop is not loops[0] else loop.kind
            low, size = substitute(loop.min, copies), substitute(loop.extent, copies)
            made = For(copies[loop.loop_var], low, size, kind, made, loop.thread_binding)
    return made


def inside_domains(spatial: list[tuple[IterVar, PrimExpr]], loops: list[For], predicate: PrimExpr) -> bool:
    """Whether the iterators stay in their domains for all iterations that the predicate lets through."""
    ana = Analyzer()
    for loop in loops:
        ana.bind_loop(loop.loop_var, loop.min, loop.extent)
    with ana.constraint_scope(predicate):
        return all(
            ana.can_prove(greater_equal(value, iv.dom.min))
            and ana.can_prove(less(value, add(iv.dom.min, iv.dom.extent)))
            for iv, value in spatial
        )


def _guarded(block: Block) -> Block:
    assert block.init is not None
    first: PrimExpr = const(True, "bool")
    for iv in block.iter_vars:
        if iv.iter_type == IterVar.CommReduce:
            first = logical_and(first, equal(iv.var, iv.dom.min))
    return block.replace(init=None, body=seq(IfThenElse(first, block.init), block.body))
