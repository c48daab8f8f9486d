"""The operands of a product that a convolution will be rewritten to (im2col), before anything is scheduled.

`View[m, k] = Data[m // W, m % W + k // C, k % C]`, 0 in the padding: a match reads such a view as an expression.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ....arith import Analyzer
from ....ir.buffer import Buffer, decl_buffer
from ....ir.expr import BufferLoad, PrimExpr, Range, Var, const
from ....ir.functor import rewrite, substitute
from ....ir.ops import floordiv, floormod
from ....ir.stmt import BufferStore
from ....tir.schedule.primitive import BlockRV
from ....tir.transform.bulk_views import View, find_view
from ...program.facts import Axis, Facts, facts_of
from ...program.stages import Stages

__all__ = ["digits", "fused_axis", "operand", "read_through", "view_ahead"]


def fused_axis(name: str, sizes: Sequence[int], like: Axis) -> Axis:
    """The axis that several axes of some sizes will be fused into."""
    return replace(like, var=Var(name, like.var.dtype), extent=math.prod(sizes))


def digits(axis: Axis, sizes: Sequence[int]) -> list[PrimExpr]:
    """The axes of some sizes that `axis` is fused from, as functions of it."""
    at, below, kind = axis.var, axis.extent, axis.var.dtype
    out: list[PrimExpr] = []
    for n in sizes:
        below //= n
        out.append(floormod(floordiv(at, const(below, kind)), const(n, kind)))
    return out


def operand(source: Buffer, axes: Sequence[Axis]) -> Buffer:
    """The operand of a product, indexed by `axes`, that will be read from `source`."""
    return decl_buffer([a.extent for a in axes], source.dtype, source.name)


def read_through(
    program: Stages, reader: BlockRV, value: PrimExpr, inlines: Callable[[Facts], bool]
) -> PrimExpr:
    """A value of `reader` when the stages are inlined that nothing else reads, if `inlines` takes them."""
    for rv in program.producers(reader):
        f = facts_of(program.sch, rv)
        body = f.block.body
        alone = [c.key for c in program.consumers(rv)] == [reader.key]
        if not alone or rv.key in program.done or not isinstance(body, BufferStore) or not inlines(f):
            continue
        inner, made, own = read_through(program, rv, body.value, inlines), body.buffer, body.indices
        if not all(isinstance(i, Var) for i in own):
            continue

        def instead(
            load: BufferLoad, inner: PrimExpr = inner, made: Buffer = made, own: Sequence[PrimExpr] = own
        ) -> PrimExpr | None:
            if load.buffer is not made:
                return None
            return substitute(inner, dict(zip(own, load.indices, strict=True)))  # type: ignore[arg-type]

        value = rewrite(value, {BufferLoad: instead})
    return value


def view_ahead(
    value: PrimExpr, values: Mapping[Var, PrimExpr], made: Buffer, axes: Sequence[Axis], sizes: Sequence[int]
) -> View | str:
    """The view that TMA would read instead of `made[axes] = value`, or the requirement that it does not meet. `values`
    gives the iterators of the block as functions of the axes; `sizes` are those of the pixels, row-major."""
    ana = Analyzer()
    for a in axes:
        ana.bind_loop(a.var, const(0, a.var.dtype), const(a.extent, a.var.dtype))
    value = ana.simplify(substitute(value, values))
    point = [(a.var, Range(const(a.extent, a.var.dtype))) for a in axes]
    return find_view(BufferStore(made, value, [a.var for a in axes]), point, sizes)
