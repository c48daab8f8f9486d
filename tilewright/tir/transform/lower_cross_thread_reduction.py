"""Cross-thread reductions: the steps are distributed over threads."""

from __future__ import annotations

from ...ir.buffer import Buffer, decl_buffer
from ...ir.equal import structural_equal
from ...ir.errors import LoweringError
from ...ir.expr import BufferLoad, IterVar, PrimExpr, Var, const
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, renew_defs_in, statements, vars_used
from ...ir.ops import conjuncts, equal, logical_and
from ...ir.stmt import Block, BlockRealize, BufferStore, For, Stmt, seq
from ..analysis.combiner import Combination, NotACombination, combination_of, store_all
from ..analysis.reductions import inside_domains, reduction_loops
from ..analysis.threads import is_hardware_loop
from .thread_allreduce import (
    Exchange,
    exchange_by_warps,
    exchange_in_cluster,
    exchange_in_shared_memory,
    opaque_block,
    with_regions,
)


def lower_cross_thread_reduction(func: PrimFunc, *, warp: int = 0) -> PrimFunc:
    """Reduce the steps of each thread, and combine the partial results through shared memory.

        for tx in thread_binding(32, "threadIdx.x"):   for tx in thread_binding(32, "threadIdx.x"):
            for ko in range(4):                            part[0] = 0
                with block("B"):                  ->       for ko in range(4):
                    vk = ko * 32 + tx                          part[0] += A[i, ko * 32 + tx]
                    with init(): B[i] = 0                  shared[tx] = part[0]
                    B[i] += A[i, vk]                       if tx < 16: shared[tx] += shared[tx + 16]
                                                           …
                                                           if tx == 0: B[i] = shared[0]

    If the result is in local memory, every thread gets it. `thread_sync` inserts the barriers, none of them under a
    condition. On hardware with warps (of `warp` threads) the threads of a warp combine by shuffles first. The results
    of the blocks of a cluster are combined last.
    Needs: block form, thread axes around everything (`unify_thread_binding`). Gives: no reduction iterator
    bound to a thread.
    """
    if not any(is_hardware_loop(m) for m in statements(func.body)):
        return func
    return _Lower(warp).run(func)


class _Lower(Mutator):
    def __init__(self, warp: int) -> None:
        self.path: list[For] = []  # the enclosing loops, thread axes too
        self.warp = warp

    def visit_For(self, n: For) -> Stmt:
        if not is_hardware_loop(n):
            loops, realize = _nest_of(n)
            if realize is not None and self.threads_of(realize, loops):
                return self.lowered(loops, realize)
        self.path.append(n)
        body = self.visit(n.body)
        self.path.pop()
        return n.updated(body=body)

    def visit_BlockRealize(self, n: BlockRealize) -> Stmt:
        if self.threads_of(n, []):
            return self.lowered([], n)
        return n.map_children(self.visit)

    def threads_of(self, realize: BlockRealize, loops: list[For]) -> list[For]:
        """The thread axes that a block is reduced over."""
        found = reduction_loops(realize, [*self.path, *loops])
        return [x for x in found if is_hardware_loop(x)]

    def lowered(self, loops: list[For], realize: BlockRealize) -> Stmt:
        """The reduction under `loops`, all of which belong to it."""
        name = realize.block.name_hint
        threads = self.threads_of(realize, loops)
        try:
            held = combination_of(realize.block)
        except NotACombination as why:
            raise LoweringError(
                f"block {name} is reduced by the threads of {_tags(threads)}, and {why}; "
                "bind a loop that is not reduced"
            ) from None
        reducing = reduction_loops(realize, [*self.path, *loops])
        _check_apart(realize, {x.loop_var for x in reducing})
        own = [x for x in loops if x in reducing]
        parts = [decl_buffer((1,), b.dtype, f"{b.name}_part", scope="local") for b in held.buffers]
        zero = (const(0),)
        start = seq(
            *(BufferStore(b, e, zero) for b, e in zip(parts, held.reducer.identity_element, strict=True))
        )
        steps: Stmt = _partial(realize, held, parts)
        for x in reversed(own):
            steps = For(x.loop_var, x.min, x.extent, x.kind, steps, None, x.annotations)
        others = [
            x for x in self.path if is_hardware_loop(x) and _is_thread(x) and not any(x is y for y in threads)
        ]
        given = [BufferLoad(b, zero) for b in parts]
        inside = [x for x in threads if _is_thread(x)]
        exchange = exchange_by_warps(held, given, inside, others, self.warp) if self.warp else None
        by_warps = exchange is not None
        if exchange is None:
            exchange = exchange_in_shared_memory(held, given, inside, others)
        if len(inside) < len(threads):
            blocks = next(x for x in threads if not _is_thread(x))
            exchange = exchange_in_cluster(
                held, given, exchange, blocks, inside, others, self.warp if by_warps else 0
            )
        above = [x for x in reducing if x not in loops and not is_hardware_loop(x)]
        last = self.result(realize, held, exchange, threads, above, [*self.path, *loops])
        body = seq(opaque_block(f"{name}_part_init", start), steps, *exchange.stmts, last)
        made: Stmt = BlockRealize(
            [], True, Block([], [], [], "", body, alloc_buffers=[*parts, *exchange.buffers])
        )
        for x in reversed([x for x in loops if x not in own]):
            made = For(x.loop_var, x.min, x.extent, x.kind, made, x.thread_binding, x.annotations)
        return made

    def result(
        self,
        realize: BlockRealize,
        held: Combination,
        exchange: Exchange,
        threads: list[For],
        above: list[For],
        around: list[For],
    ) -> Stmt:
        """The block that writes the result; it keeps the name and identity of the original one."""
        block = realize.block
        pairs = [(iv, v) for iv, v in realize.bindings if not iv.is_reduction]
        predicate = _spatial_part(realize, pairs, around)
        if any(b.scope().startswith(("global", "shared")) for b in held.buffers):
            for x in threads:
                predicate = logical_and(predicate, equal(x.loop_var, const(0, x.loop_var.dtype)))
        for x in above:
            var = Var(f"v{x.loop_var.name}", x.loop_var.dtype)
            dom = x.dom
            pairs.append((IterVar(dom, var, IterVar.CommReduce), x.loop_var))
        places = [(b, held.indices) for b in held.buffers]
        init = block.init
        if above or init is None:
            body = held.update(places, exchange.values)
        else:
            init = None
            same = all(map(structural_equal, held.start, held.reducer.identity_element))
            body = store_all(places, exchange.values if same else held.reducer(held.start, exchange.values))
        made = with_regions(
            Block(
                [iv for iv, _ in pairs],
                [],
                [],
                block.name_hint,
                body,
                init,
                annotations=block.annotations,
                key=block.key,
                span=block.span,
            )
        )
        return BlockRealize([v for _, v in pairs], predicate, made)


def _nest_of(n: For) -> tuple[list[For], BlockRealize | None]:
    """The loops from `n` on that hold nothing but the next one, and the block in the last."""
    loops, here = [n], n.body
    while isinstance(here, For) and not is_hardware_loop(here):
        loops.append(here)
        here = here.body
    return loops, here if isinstance(here, BlockRealize) else None


def _is_thread(n: For) -> bool:
    return n.thread_binding is not None and n.thread_binding.thread_tag.startswith("threadIdx")


def _tags(threads: list[For]) -> str:
    return " and ".join(x.thread_binding.thread_tag for x in threads if x.thread_binding is not None)


def _check_apart(realize: BlockRealize, reducing: set[Var]) -> None:
    for iv, value in realize.bindings:
        both = vars_used(value) & reducing
        if not iv.is_reduction and both:
            raise LoweringError(
                f"loop `{min(v.name for v in both)}` drives spatial and reduction iterators of block "
                f"{realize.block.name_hint} alike, which is reduced across threads; split it, and bind the part "
                "that is reduced"
            )


def _partial(realize: BlockRealize, held: Combination, parts: list[Buffer]) -> Stmt:
    """The block that reduces the steps of one thread."""
    block = realize.block
    body = held.update([(b, (const(0),)) for b in parts], held.values)
    made = with_regions(Block(block.iter_vars, [], [], f"{block.name_hint}_part", body, span=block.span))
    return renew_defs_in(BlockRealize(realize.iter_values, realize.predicate, made))


def _spatial_part(
    realize: BlockRealize, pairs: list[tuple[IterVar, PrimExpr]], around: list[For]
) -> PrimExpr:
    """The block's conditions that do not use reduction loops."""
    reducing = {x.loop_var for x in reduction_loops(realize, around)}
    spatial = {v for _, value in pairs for v in vars_used(value)}
    out: PrimExpr = const(True, "bool")
    mixed = None
    for condition in conjuncts(realize.predicate):
        used = vars_used(condition)
        if not used & reducing:
            out = logical_and(out, condition)
        elif used & spatial:
            mixed = condition
    if mixed is not None and not inside_domains(pairs, around, out):
        raise LoweringError(
            f"the condition `{mixed}` of block {realize.block.name_hint} ties spatial and reduction loops "
            "together, and the block is reduced by threads; split the loops apart, and bind the part that is "
            "reduced"
        )
    return out
