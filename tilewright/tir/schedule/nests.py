"""Loop nests made anew, and the nests of blocks whose iterators are their loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...arith import Analyzer
from ...ir.buffer import BufferRegion
from ...ir.expr import IterVar, PrimExpr, Range, Var, const
from ...ir.functor import Mutator
from ...ir.ops import add, conjuncts, is_zero
from ...ir.stmt import Block, BlockRealize, BufferStore, For, ForKind, IfThenElse, Stmt
from .blocks import refresh_regions
from .primitive import refuse

if TYPE_CHECKING:
    from .schedule import Schedule


def loop_nest(variables: Sequence[Var], extents: Sequence[PrimExpr | int], body: Stmt) -> Stmt:
    """Serial loops from 0 around a statement, the first outermost."""
    for var, size in reversed(list(zip(variables, extents, strict=True))):
        body = For(var, const(0, var.dtype), size, ForKind.SERIAL, body)
    return body


def spatial_nest(
    doms: Sequence[Range],
    name: str,
    content: Callable[[list[PrimExpr]], tuple[Stmt, list[BufferRegion], list[BufferRegion]]],
) -> tuple[Stmt, Block]:
    """A block over some domains, from what it does at a point (statement, reads, writes), with its loops."""
    iters = [IterVar(d, Var(f"v{i}", d.extent.dtype), IterVar.DataPar) for i, d in enumerate(doms)]
    body, reads, writes = content([iv.var for iv in iters])
    block = Block(iters, reads, writes, name, body)
    loops = [Var(f"ax{i}", d.extent.dtype) for i, d in enumerate(doms)]
    values = [v if is_zero(d.min) else d.min + v for v, d in zip(loops, doms, strict=True)]
    return loop_nest(loops, [d.extent for d in doms], BlockRealize(values, True, block)), block


def block_nest(
    iters: Sequence[IterVar],
    name: str,
    body: Callable[[Mapping[Var, PrimExpr]], tuple[BufferStore, BufferStore | None]],
) -> tuple[Stmt, Block]:
    """A block of its own over iterators of another block, from its store and its init, with its loops."""
    table = {iv.var: Var(iv.var.name, iv.var.dtype) for iv in iters}
    loops = [Var(iv.var.name.removeprefix("v_"), iv.var.dtype) for iv in iters]
    store, init = body(table)
    own = [IterVar(iv.dom, table[iv.var], iv.iter_type) for iv in iters]
    block = refresh_regions(Block(own, (), (), name, store, init=init))
    values = [x if is_zero(iv.dom.min) else add(iv.dom.min, x) for x, iv in zip(loops, iters, strict=True)]
    return loop_nest(loops, [iv.dom.extent for iv in iters], BlockRealize(values, True, block)), block


def trivial_nest(sch: Schedule, me: BlockRealize, what: str) -> list[For]:
    """The loops of a block, if they hold nothing else and are its iterators, one for one."""
    block = me.block
    nest = sch.state.index.loops_of(me)
    inner: Stmt = me
    for x in reversed(nest):
        if x.body is not inner:
            refuse(
                f"loop `{x.loop_var.name}` holds more than block {block.name_hint}",
                at=x,
                hint=f"{what} before other blocks are moved under the loop",
            )
        if x.kind is not ForKind.SERIAL or x.annotations:
            refuse(
                f"loop `{x.loop_var.name}` is marked or annotated, which {what} would lose",
                at=x,
                hint=f"{what} first, then mark the loops",
            )
        inner = x
    if conjuncts(me.predicate):
        refuse(
            f"block {block.name_hint} runs only where `{me.predicate}`",
            at=me,
            hint=f"{what} before the loops are split",
        )
    ana = Analyzer()
    by_var: dict[PrimExpr, For] = {x.loop_var: x for x in nest}
    for iv, value in me.bindings:
        if value not in by_var or not _same_range(by_var.pop(value), iv, ana):
            refuse(
                f"iterator `{iv.var.name}` of block {block.name_hint} is `{value}`, "
                "not all of one loop of its own",
                at=me,
                hint=f"{what} before the loops are split, fused or moved",
            )
    if by_var:
        left = next(iter(by_var.values()))
        refuse(
            f"loop `{left.loop_var.name}` drives no iterator of block {block.name_hint}",
            at=left,
            hint=f"{what} before the block is moved under the loop",
        )
    return nest


def _same_range(x: For, iv: IterVar, ana: Analyzer) -> bool:
    return ana.can_prove_equal(x.min, iv.dom.min) and ana.can_prove_equal(x.extent, iv.dom.extent)


class Ranged(Mutator):
    """A mutator whose analyzer knows the ranges of the loops and of the block iterators around a node."""

    def __init__(self) -> None:
        self.ana = Analyzer()

    def visit_For(self, n: For) -> Stmt:
        with self.ana.scope():
            self.ana.bind_loop(n.loop_var, n.min, n.extent)
            return n.map_children(self.visit)

    def visit_Block(self, n: Block) -> Block:
        with self.ana.scope():
            self.ana.bind_ranges({iv.var: iv.dom for iv in n.iter_vars})
            return n.map_children(self.visit)


class _Simplify(Ranged):
    """Indices, bounds and conditions in normal form."""

    def access(self, n: Any) -> Any:
        made = n.map_children(self.visit)
        return made.updated(
            indices=tuple(self.ana.simplify(i) if i.dtype.lanes == 1 else i for i in made.indices)
        )

    visit_BufferLoad = visit_BufferStore = access

    def visit_Range(self, n: Range) -> Range:
        low, size = self.ana.simplify(n.min), self.ana.simplify(n.extent)
        return n if low is n.min and size is n.extent else Range.from_min_extent(low, size)

    def visit_IfThenElse(self, n: IfThenElse) -> Stmt:
        made = n.map_children(self.visit)
        return made.updated(condition=self.ana.simplify(made.condition))


def simplified(block: Block) -> Block:
    """A block with its indices in normal form, as its iterators' domains allow."""
    return _Simplify().visit(block)  # type: ignore[no-any-return]
