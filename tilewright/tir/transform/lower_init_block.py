"""Reduction initialisation: from a block's `init` to a nest of its own."""

from __future__ import annotations

from ...arith import Analyzer
from ...ir.expr import IterVar, PrimExpr, Var, const
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, renew_defs_in, substitute, vars_used
from ...ir.ops import add, conjuncts, equal, greater_equal, less, logical_and
from ...ir.stmt import Block, BlockRealize, For, ForKind, IfThenElse, Stmt, seq

__all__ = ["init_nest", "lower_init_block"]


def lower_init_block(func: PrimFunc) -> PrimFunc:
    """Run the `init` of a reduction before its outermost reduction loop.

        for i, k in grid(8, 4):              for i in range(8):
            with block("C"):                     with block("C_init"): C[vi] = 0
                with init(): C[vi] = 0   ->      for k in range(4):
                C[vi] += A[vi, vk]                   with block("C"): C[vi] += A[vi, vk]

    Where a loop feeds both spatial and reduction iterators the init cannot stand alone and is
    guarded instead: `if vk == 0: C[vi] = 0`.
    Needs: block form. Gives: no block with an `init`.
    """
    return _LowerInit().run(func)


class _LowerInit(Mutator):
    def __init__(self) -> None:
        self.loops: list[For] = []
        self.pending: dict[Var, list[Stmt]] = {}

    def visit_For(self, n: For) -> Stmt:
        self.loops.append(n)
        body = self.visit(n.body)
        self.loops.pop()
        made = n if body is n.body else n.replace(body=body)
        before = self.pending.pop(n.loop_var, None)
        return made if before is None else seq(*before, made)

    def visit_BlockRealize(self, n: BlockRealize) -> Stmt:
        outer, self.loops = self.loops, []
        block = self.visit(n.block)
        self.loops = outer
        if block.init is None:
            return n if block is n.block else n.replace(block=block)
        bare = n.replace(block=block.replace(init=None))
        reducing = reduction_loops(n, self.loops)
        if not reducing:
            return n.replace(block=block.replace(init=None, body=seq(block.init, block.body)))
        nest = init_nest(n.replace(block=block), self.loops, self.loops.index(reducing[0]))
        if nest is None:
            return n.replace(block=_guarded(block))
        self.pending.setdefault(reducing[0].loop_var, []).append(nest)
        return bare


def reduction_loops(realize: BlockRealize, loops: list[For]) -> list[For]:
    """Those of `loops` that drive a reduction iterator of the block, outermost first."""
    used = {
        v
        for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
        if iv.iter_type == IterVar.CommReduce
        for v in vars_used(value)
    }
    return [loop for loop in loops if loop.loop_var in used]


def init_nest(realize: BlockRealize, around: list[For], start: int) -> Stmt | None:
    """The block's `init` under copies of those loops from `around[start]` on that it needs.

    None if it cannot stand alone: if a loop drives spatial and reduction iterators alike.
    """
    block, loops = realize.block, around[start:]
    assert block.init is not None
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
    if mixed and not _inside(spatial, around, predicate):
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
    realized = BlockRealize([value for _, value in spatial], predicate, stand_alone)
    made: Stmt = substitute(renew_defs_in(realized), copies)
    for loop in reversed(loops):
        if loop.loop_var in needed:
            kind = ForKind.SERIAL if loop.kind is ForKind.PARALLEL and loop is not loops[0] else loop.kind
            low, size = substitute(loop.min, copies), substitute(loop.extent, copies)
            made = For(copies[loop.loop_var], low, size, kind, made, loop.thread_binding)
    return made


def _inside(spatial: list[tuple[IterVar, PrimExpr]], loops: list[For], predicate: PrimExpr) -> bool:
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
