"""Primitives over the iterators of a block: transform_block_layout, reorder_block_iter_var."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...ir.expr import IterVar, PrimExpr, Var
from ...ir.functor import substitute, vars_used
from ...ir.stmt import BlockRealize
from .dependence import check_any_order
from .index_map import IndexMap
from .nests import loop_nest, simplified, trivial_nest
from .primitive import BlockRV, primitive, refuse

if TYPE_CHECKING:
    from .schedule import Schedule


def block_map(sch: Schedule, block: BlockRV, function: Any) -> IndexMap:
    """The map that a function over the iterators of a block is."""
    if isinstance(function, IndexMap):
        return function
    count = len(sch.realize(block).block.iter_vars)
    try:
        return IndexMap.from_func(function, index_dtype="int32")
    except ValueError:  # it takes any number of indices
        return IndexMap.from_func(function, count, index_dtype="int32")


@primitive(index_map=block_map)
def transform_block_layout(sch: Schedule, block: BlockRV | str, index_map: Any) -> None:
    """Replace the iterators of a block by `index_map` of them (`lambda i, j: (i * 16 + j,)`), with new loops.

    for i, j in grid(16, 16):                 for ax0 in range(256):
        B[i, j] = A[i, j]             ->          B[ax0 // 16, ax0 % 16] = A[ax0 // 16, ax0 % 16]
    """
    me = sch.realize(block)
    old, name = me.block, me.block.name_hint
    nest = trivial_nest(sch, me, "transform_block_layout")
    if len(index_map.initial_indices) != len(old.iter_vars):
        refuse(
            f"the map takes {len(index_map.initial_indices)} indices, and block {name} has "
            f"{len(old.iter_vars)} iterators",
            at=me,
        )
    if not nest:
        refuse(f"block {name} has no loops", at=me)
    check_any_order(sch, nest)
    doms = [iv.dom for iv in old.iter_vars]
    index_map = index_map.with_dtype(doms[0].extent.dtype)
    types = _new_types(me, index_map)
    try:
        inverse = index_map.inverse(doms)
        ranges = index_map.map_ranges(doms)
    except ValueError as why:
        refuse(
            f"{why}, so the points of block {name} cannot be told from it",
            at=me,
            hint="use a map that gives each point an index of its own and leaves none out",
        )
    iters = [
        IterVar(r, Var(f"v_ax{i}", r.extent.dtype), t)
        for i, (r, t) in enumerate(zip(ranges, types, strict=True))
    ]
    values = inverse.map_indices([iv.var for iv in iters])
    table: dict[Any, Any] = dict(zip((iv.var for iv in old.iter_vars), values, strict=True))
    made = simplified(substitute(old.replace(iter_vars=()), table).replace(iter_vars=tuple(iters)))
    loops = [Var(f"ax{i}", r.extent.dtype) for i, r in enumerate(ranges)]
    bound: list[PrimExpr] = [r.min + v for v, r in zip(loops, ranges, strict=True)]
    sch.state.replace(
        nest[0], loop_nest(loops, [r.extent for r in ranges], BlockRealize(bound, True, made, span=me.span))
    )
    for x in nest:
        sch.forget(x.loop_var, f"transform_block_layout({name}, …)")


def _new_types(me: BlockRealize, index_map: IndexMap) -> list[int]:
    """What each new iterator is: what all that it is made of are."""
    old = dict(zip(index_map.initial_indices, me.block.iter_vars, strict=True))
    out = []
    for e in index_map.final_indices:
        used = [old[v] for v in index_map.initial_indices if v in vars_used(e)]
        for iv in used:
            if iv.iter_type not in (IterVar.DataPar, IterVar.CommReduce):
                refuse(f"iterator `{iv.var.name}` of block {me.block.name_hint} must run in order", at=me)
            if iv.iter_type != used[0].iter_type:
                refuse(
                    f"`{e}` mixes the spatial and the reduction iterators of block {me.block.name_hint}",
                    at=me,
                    hint="keep each new index to one kind",
                )
        out.append(used[0].iter_type if used else IterVar.DataPar)
    return out


@primitive
def reorder_block_iter_var(sch: Schedule, block: BlockRV | str, new_order: Sequence[int]) -> None:
    """Reorder the list of iterators of a block; `new_order` gives their positions. The computation stays the same.

    vi, vj, vk = remap("SSR", [i, j, k])    ->    vk, vj, vi = remap("RSS", [k, j, i])
    """
    me = sch.realize(block)
    order, count = [int(i) for i in new_order], len(me.block.iter_vars)
    if sorted(order) != list(range(count)):
        refuse(f"new_order={order} is not an order of the {count} iterators, 0 to {count - 1}", at=me)
    if order == list(range(count)):
        return
    made = me.block.replace(iter_vars=tuple(me.block.iter_vars[i] for i in order))
    values = [me.iter_values[i] for i in order]
    sch.state.replace(me, BlockRealize(values, me.predicate, made, span=me.span))
