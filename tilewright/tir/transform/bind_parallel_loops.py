"""Parallel loops of a CPU schedule as threads of a GPU."""

from __future__ import annotations

from typing import Any

from ...ir.expr import IterVar, PrimExpr, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import pre_order, statements, substitute
from ...ir.ops import add, floordiv, less, logical_and, mul
from ...ir.stmt import BlockRealize, For, ForKind, IfThenElse, Stmt
from ..analysis.threads import is_hardware_loop

_THREADS = 64  # threads per block


def bind_parallel_loops(func: PrimFunc) -> PrimFunc:
    """Make each iteration of a parallel loop outside of kernels a thread.

        for i in parallel(n):          for b in thread_binding((n + 63) // 64, "blockIdx.x"):
            with block("S"): … i …  ->     for t in thread_binding(64, "threadIdx.x"):
                                               with block("S"): where(b * 64 + t < n); … b * 64 + t …

    Loops inside kernels, and loops around bound loops, are unchanged.
    Needs: a function for a GPU, in block form or not. Gives: no parallel loop outside of kernels.
    """
    if not any(isinstance(m, For) and m.kind is ForKind.PARALLEL for m in statements(func.body)):
        return func
    return func.updated(body=_outside(func.body))


def _outside(n: Any) -> Any:
    """A statement with its parallel loops bound, except those in kernels."""
    if not isinstance(n, Stmt) or is_hardware_loop(n):
        return n
    if isinstance(n, For) and n.kind is ForKind.PARALLEL:
        if not any(is_hardware_loop(m) for m in pre_order(n.body)):
            return _bound(n)
    return n.map_children(_outside)


def _bound(n: For) -> Stmt:
    kind, extent = n.loop_var.dtype, n.extent
    size = const_value(extent)
    threads = _THREADS if size is None else max(1, min(_THREADS, int(size)))
    block, thread = Var(f"{n.loop_var.name}_block", kind), Var(f"{n.loop_var.name}_thread", kind)
    place = add(mul(block, threads), thread)
    blocks = floordiv(add(extent, threads - 1), const(threads, kind))
    body: Stmt = substitute(n.body, {n.loop_var: add(n.min, place)})
    if size is None or size % threads:
        body = _guarded(body, less(place, extent))
    zero = const(0, kind)
    for var, count, tag in ((thread, const(threads, kind), "threadIdx.x"), (block, blocks, "blockIdx.x")):
        axis = IterVar(None, tag, IterVar.ThreadIndex, tag)
        body = For(var, zero, count, ForKind.THREAD_BINDING, body, axis)
    return body


def _guarded(body: Stmt, condition: PrimExpr) -> Stmt:
    """A statement for the threads that have an iteration: a predicate on each of its blocks."""
    if not any(isinstance(m, BlockRealize) for m in statements(body)):
        return IfThenElse(condition, body)

    def go(n: Any) -> Any:
        if isinstance(n, BlockRealize):
            return n.replace(predicate=logical_and(condition, n.predicate))
        return n.map_children(go) if isinstance(n, Stmt) else n

    guarded: Stmt = go(body)
    return guarded
