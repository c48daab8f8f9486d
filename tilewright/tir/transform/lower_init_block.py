"""Reduction initialisation: from a block's `init` to a nest of its own."""

from __future__ import annotations

from typing import Any

from ...ir.errors import LoweringError
from ...ir.expr import BufferLoad, Var, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, pre_order
from ...ir.ops import conjunction, equal
from ...ir.stmt import Block, BlockRealize, BufferStore, For, IfThenElse, Stmt, seq
from ..analysis.elements import loops_injective, undetermined_iterator
from ..analysis.reductions import init_nest, reduction_loops, starts_at_first
from ..analysis.regions import reads_elsewhere


def lower_init_block(func: PrimFunc) -> PrimFunc:
    """Run the `init` of a reduction before its outermost reduction loop.

        for i, k in grid(8, 4):              for i in range(8):
            with block("C"):                     with block("C_init"): C[vi] = 0
                with init(): C[vi] = 0   ->      for k in range(4):
                C[vi] += A[vi, vk]                   with block("C"): C[vi] += A[vi, vk]

    Where the init cannot be separated (a loop drives both spatial and reduction iterators, or there is a condition or
    a use of C between them) it is guarded instead: `if vk == 0: C[vi] = 0`. Pragmas of a loop hold for its init too.
    Needs: block form. Gives: no block with an `init`.
    """
    return _LowerInit().run(func)


class _LowerInit(Mutator):
    def __init__(self) -> None:
        self.path: list[Stmt] = []  # loops, conditions and bindings up to the enclosing block
        self.reducers: set[Var] = set()  # reduction iterators of the enclosing blocks
        self.pending: dict[Var, list[Stmt]] = {}

    def visit_For(self, n: For) -> Stmt:
        self.path.append(n)
        body = self.visit(n.body)
        self.path.pop()
        made = n.updated(body=body)
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
        self.reducers.update(iv.var for iv in n.block.iter_vars if iv.is_reduction)
        block = self.visit(n.block)
        self.path, self.reducers = outer, held
        loops = [x for x in self.path if isinstance(x, For)]
        reducing = reduction_loops(n, loops)
        _check_threads(n, reducing)
        if block.init is None:
            return n.updated(block=block)
        if not starts_at_first(n, reducing, self.reducers):
            return n.replace(block=_guarded(block))
        if not reducing:
            return n.replace(block=block.replace(init=None, body=seq(block.init, block.body)))
        nest = None
        inside = self.path[self.path.index(reducing[0]) :]
        if all(isinstance(x, For) for x in inside) and _alone(n, reducing[0]) and _once(n, loops, reducing):
            nest = init_nest(n.replace(block=block), loops, loops.index(reducing[0]), pragmas=True)
        if nest is None:
            return n.replace(block=_guarded(block))
        self.pending.setdefault(reducing[0].loop_var, []).append(nest)
        return n.replace(block=block.replace(init=None))


def _check_threads(realize: BlockRealize, reducing: list[For]) -> None:
    """Refuse threads that update one element concurrently: updates would be lost."""
    for loop in reducing:
        if loop.thread_binding is not None:
            name, tag = realize.block.name_hint, loop.thread_binding.thread_tag
            how = (
                "run tir.transform.UnifyThreadBinding() and LowerCrossThreadReduction() before LowerInitBlock()"
                if tag.startswith(("threadIdx", "clusterCtaIdx"))
                else "they run concurrently without synchronization; bind a loop that does not carry the reduction"
            )
            raise LoweringError(
                f"block {name} is reduced by the threads of {tag} (loop `{loop.loop_var.name}`): {how}"
            )


def _alone(realize: BlockRealize, loop: For) -> bool:
    """Whether no other statement in the loop uses the buffers that the init writes, or writes those that it reads."""
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
    """Whether the loops of a reduction initialize no element twice, and no point reads an element before its init."""
    loops = [x for x in around[around.index(reducing[0]) :] if const_value(x.extent) != 1]
    if any(x not in reducing for x in loops):
        block = realize.block
        if any(
            undetermined_iterator(block, w) is not None or reads_elsewhere(block, w.buffer)
            for w in block.writes
        ):
            return False
    return loops_injective(realize, loops, around)


def _guarded(block: Block) -> Block:
    assert block.init is not None
    first = conjunction(equal(iv.var, iv.dom.min) for iv in block.iter_vars if iv.is_reduction)
    return block.replace(init=None, body=seq(IfThenElse(first, block.init), block.body))
