"""Convolutions, and other contractions over several axes, as matrix products (im2col) whose elements threads gather.

    Out[n, f, y, x] += Data[n, c, y*s + r, x*s + t] * W[f, c, r, t]

    rows f     columns (n, y, x)     steps (c, r, t)
    C[f, (n, y, x)] += W[f, (c, r, t)] * View[(c, r, t), (n, y, x)]

The view, im2col, is never in memory: threads gather its elements when they copy to shared memory. The depth of a tile
is a number of whole windows, so that a thread that stays with a pixel finds its elements at constant offsets. If a
window is one pixel, and the pixels are contiguous, nothing is gathered: TMA copies the operands of a batch of products
with one matrix. Tensor cores multiply what threads gather too: of any layout, and with any number of channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....arith import Analyzer
from ....ir.expr import BufferLoad, PrimExpr, Var, const
from ....ir.functor import substitute, vars_used
from ....ir.stmt import BufferStore
from ....target import Target
from ....tir.schedule.primitive import BlockRV
from ....tir.transform.bulk_views import VIEW, View, find_view
from ...program.facts import Axis, Facts, facts_of, fused_index
from ...program.stages import Stage
from ..rule import Refusal
from .kernel import Kernel
from .mma import Mma
from .product import Product, Sketch, factors, product_of, stored_bytes, sums_from_zero
from .product_rule import ProductRule, Source, Way
from .simt import Simt, Threads
from .simt_tma import SimtTma
from .views import digits, fused_axis, operand, read_through, view_ahead

__all__ = ["Contraction", "GatheredMma", "Im2colSimt", "Im2colSimtTma", "contraction_of"]


# The types of the operands by the type of the accumulators.
TYPES = {"float32": {"float16", "bfloat16", "float32"}, "int32": {"int8"}}


@dataclass(frozen=True, slots=True)
class Contraction:
    """A reduction over products. Each axis of its results indexes one of the operands, or both."""

    both: tuple[Axis, ...]
    rows: tuple[Axis, ...]  # the axes that index `high` only
    columns: tuple[Axis, ...]  # the axes that index `wide` only; the results are contiguous along the last
    steps: tuple[Axis, ...]  # the reduction axes
    high: BufferLoad
    wide: BufferLoad

    @property
    def kind(self) -> str:
        """The type of the operands."""
        return str(self.wide.buffer.dtype)

    @property
    def depth(self) -> int:
        """The depth of a tile: whole windows, if they are not too large."""
        size = 1
        for x in reversed(self.steps):
            if size * x.extent <= (_MOST if size < _LEAST else _USUAL):
                size *= x.extent
                continue
            size *= max((n for n in range(1, _USUAL // size + 1) if x.extent % n == 0), default=1)
            break
        return size if size >= _LEAST else 16  # and the reduction is padded with zeros


# The depth of a tile: at least; at most; at most if it is below the least without another whole axis of the window.
_LEAST, _USUAL, _MOST = 8, 18, 25


def contraction_of(f: Facts) -> Contraction | None:
    """A block as a contraction, if it is one: of floats accumulated in float32, or of int8 in int32."""
    body = f.block.body
    if not isinstance(body, BufferStore) or not all(x.known for x in f.axes):
        return None
    if not sums_from_zero(f, "float32", "int32"):
        return None
    loads = factors(body)
    by_var = {x.var: x for x in f.axes}
    if loads is None or loads[0].buffer is loads[1].buffer or len(f.axes) != len(f.block.iter_vars):
        return None
    kinds = {str(x.buffer.dtype) for x in loads}
    if (
        len(kinds) != 1
        or not kinds <= TYPES[str(body.buffer.dtype)]
        or any(i not in by_var for i in body.indices)
    ):
        return None
    out = [by_var[v] for v in body.indices]  # type: ignore[index]
    used = [set().union(*map(vars_used, x.indices)) for x in loads]
    sides = [tuple(x for x in out if x.var in a and x.var not in b) for a, b in (used, used[::-1])]
    both = tuple(x for x in out if x.var in used[0] & used[1])
    if len(both) + sum(map(len, sides)) != len(out) or not all(sides):
        return None
    if any(x.var not in used[0] & used[1] for x in f.reduce) or out[-1] in both:
        return None
    if out[-1] in sides[0]:
        sides, loads = sides[::-1], loads[::-1]
    return Contraction(both, sides[0], sides[1], tuple(f.reduce), *loads)


class _Contracted(ProductRule):
    def found(self, f: Facts, target: Target) -> Any:
        c = contraction_of(f)
        if c is None or c.kind not in self.types:
            return Refusal(f"it is not a contraction of {' or '.join(self.types)} operands")
        return c if product_of(f) is None else Refusal("it is a product of matrices")

    def no_product(self, f: Facts) -> Refusal:
        return Refusal(f"{f.name} is not a product of matrices", near=True)


class _Gathering(_Contracted):
    """Threads gather the elements of windows when they copy them."""

    def source(self, stage: Stage, c: Any) -> Source | Refusal:
        p = _product_ahead(c)
        return self.no_product(stage.facts) if p is None else self.completed(Source(stage.facts, p), c)

    def rewritten(self, g: Kernel, f: Facts, c: Any, source: Source) -> Source | Refusal:
        made, after = _as_product(g, f, c)
        p = product_of(made)
        return self.no_product(f) if p is None else self.completed(Source(made, p, after), c)

    def completed(self, source: Source, c: Contraction) -> Source:
        # data that is read in windows is smaller than its im2col view
        windows = math.prod(x.extent for x in c.steps[1:])
        return replace(source, product=replace(source.product, windows=windows), depth=c.depth)


class Im2colSimt(_Gathering, Simt):
    """By threads."""

    name = "im2col SIMT"

    def steps(self, *given: Any) -> Sketch:
        return Gathered(*given)


class GatheredMma(_Gathering, Mma):
    """By warps: any layout, and any number of channels."""

    name = "gathered mma"
    needs = frozenset({"mma.f16", "cp.async", "shared_memory"})

    def source(self, stage: Stage, c: Any) -> Source | Refusal:
        found = super().source(stage, c)
        consumer = stage.program.fusable_consumer(stage.facts)
        if isinstance(found, Refusal) or consumer is None:
            return found
        stored = stored_bytes(facts_of(stage.program.sch, consumer))
        return replace(found, product=replace(found.product, stored=stored))

    def completed(self, source: Source, c: Contraction) -> Source:
        high, wide = (
            16 if _in_order(x, (*c.both, *axes), c.steps) else 1
            for x, axes in ((c.high, c.rows), (c.wide, c.columns))
        )
        view = 0 if high == 1 and wide > 1 else 1
        windows = math.prod(x.extent for x in c.steps[1:])
        return replace(
            source, product=replace(source.product, windows=windows, view=view, pieces=(high, wide))
        )

    def ways(self, p: Product, target: Target) -> list[Way]:
        """Views are not in memory, and are not transposed."""
        return [way for way in super().ways(p, target) if not way.sides]


def _in_order(x: BufferLoad, own: Sequence[Axis], steps: Sequence[Axis]) -> bool:
    """Whether an operand is a matrix in memory: its indices are its own axes, and then those of the reduction."""
    axes = (*own, *steps)
    return len(axes) == len(x.indices) and all(i is a.var for i, a in zip(x.indices, axes, strict=True))


class Im2colSimtTma(_Contracted, SimtTma):
    """By threads, with TMA copies of windows of one pixel: nothing is gathered."""

    name = "im2col SIMT with TMA"

    def ways(self, p: Product, target: Target) -> list[Way]:
        """Views are not in memory, and are not transposed."""
        return [way for way in super().ways(p, target) if not way.sides]

    def source(self, stage: Stage, c: Any) -> Source | Refusal:
        lines = _lines(c)
        if lines is None:
            return Refusal("its windows have several pixels", near=True)
        p = _product_ahead(lines)
        if p is None:
            return self.no_product(stage.facts)
        value = read_through(stage.program, stage.facts.rv, lines.wide, lambda f: f.kind == "injective")
        order = (p.n, p.k) if p.trans_b else (p.k, p.n)
        values = _values(lines, p)
        found = view_ahead(value, values, p.b, (*p.others, *order), [x.extent for x in (*p.others, p.n)])
        return self.gathered(found, lines) or Source(stage.facts, p)

    def rewritten(self, g: Kernel, f: Facts, c: Any, source: Source) -> Source | Refusal:
        lines = _lines(c)
        assert lines is not None  # `source` has checked it
        made, after = _as_product(g, f, lines)
        p = product_of(made)
        if p is None:
            return self.no_product(f)
        return self.gathered(_leave(g, made, p), lines) or Source(made, p, after)

    def gathered(self, view: View | str, c: Contraction) -> Refusal | None:
        """The refusal of a view that is not the memory of its source in other dimensions."""
        if isinstance(view, str):
            return Refusal(f"TMA cannot copy {c.wide.buffer.name}, which requires that {view}", near=True)
        if view.windows is not None:
            return Refusal(f"{c.wide.buffer.name} is gathered from its source", near=True)
        return None


def _product_ahead(c: Contraction) -> Product | None:
    """The product that `_as_product` will make of a contraction; None if an axis has a single value."""
    m, n, k = (
        fused_axis(name, [x.extent for x in axes], axes[0])
        for name, axes in (("m", c.rows), ("n", c.columns), ("k", c.steps))
    )
    if any(x.extent == 1 for x in (*c.both, m, n, k)):
        return None
    along = [x.indices[-1] is c.steps[-1].var for x in (c.high, c.wide)]
    a, b = (
        operand(x.buffer, (*c.both, *((own, k) if deep else (k, own))))
        for x, own, deep in ((c.high, m, along[0]), (c.wide, n, along[1]))
    )
    return Product(m, n, k, c.both, a, b, not along[0], along[1])


def _values(c: Contraction, p: Product) -> dict[Var, PrimExpr]:
    """The axes of a contraction as functions of the axes of its product."""
    out: dict[Var, PrimExpr] = {}
    for axis, axes in ((p.m, c.rows), (p.n, c.columns), (p.k, c.steps)):
        out |= dict(zip([x.var for x in axes], digits(axis, [x.extent for x in axes]), strict=True))
    return out


def _lines(c: Contraction) -> Contraction | None:
    """A contraction over one axis, with some of the columns before it in the wide operand and the others after it:
    a batch of products with one matrix, for which nothing has to be gathered. None if it is not one.

        Out[n, f, y, x] += W[f, c] * Data[n, c, y, x]
    """
    order: list[Any] = [x.var for x in c.columns]
    sums = [x for x in c.steps if x.extent > 1]
    if len(sums) != 1 or c.both:
        return None
    ana, alone = Analyzer(), {x.var: const(0, x.var.dtype) for x in c.steps if x.extent == 1}
    places = [ana.simplify(substitute(e, alone)) for e in c.wide.indices]
    at = next((i for i, e in enumerate(places) if e is sums[0].var), 0)
    if [*places[:at], *places[at + 1 :]] != order or not 0 < at < len(order):
        return None
    if all(x.extent == 1 for x in c.columns[:at]):
        return c
    return replace(c, both=c.columns[:at], columns=c.columns[at:])


def _leave(g: Kernel, f: Facts, p: Product) -> View | str:
    """Make the wide operand a view that is never in memory: TMA reads its source with other dimensions. Returns the
    view, or the requirement that it does not meet."""
    sch = g.sch
    (view,) = [b for b in sch.get_producers(f.rv) if sch.get(b).writes[0].buffer is p.b]
    # The iterators in the order of the dimensions.
    sch.transform_block_layout(view, lambda *its: (*its[:-2], its[-1], its[-2]))
    sizes = [x.extent for x in (*p.others, p.n)]
    sch.annotate(view, VIEW, sizes)
    g.finished.append(view.key)
    block = sch.get(view)
    return find_view(block.body, [(iv.var, iv.dom) for iv in block.iter_vars], sizes)


class Gathered(Threads):
    """Products whose operands are im2col views, copied element by element."""

    def contiguous(self, which: int) -> bool:
        return False


def _joined(axes: Sequence[Axis], at: Callable[[Axis], Any]) -> Any:
    """The index of several axes fused into one."""
    return fused_index([at(x) for x in axes], [x.extent for x in axes])


def _as_product(g: Kernel, f: Facts, c: Contraction) -> tuple[Facts, BlockRV]:
    """Rewrite a block as C[…, m, n] += A[m, k] * B[k, n], and its epilogue as a block over m and n."""
    sch, rv = g.sch, f.rv
    consumer = g.fusable_consumer(f)
    if consumer is None:
        consumer = sch.cache_write(rv, 0, "global")
    assert isinstance(f.block.body, BufferStore)
    axes, out = [x.var for x in f.axes], list(f.block.body.indices)

    def flat(place: Callable[[Axis], Any]) -> tuple[Any, ...]:
        return (*map(place, c.both), _joined(c.rows, place), _joined(c.columns, place))

    sch.transform_block_layout(
        rv,
        lambda *its: (
            *flat(lambda x: its[axes.index(x.var)]),
            _joined(c.steps, lambda x: its[axes.index(x.var)]),
        ),
    )
    sch.transform_layout(rv, ("write", 0), lambda *its: flat(lambda x: its[out.index(x.var)]))
    sch.transform_block_layout(consumer, lambda *its: flat(lambda x: its[out.index(x.var)]))
    count = len(c.both)
    for load, at in ((c.high, count), (c.wide, count + 1)):
        reads = [r.buffer for r in sch.get(rv).reads]
        along = load.indices[-1] is c.steps[-1].var  # it is contiguous along the reduction
        view = sch.reindex_cache_read(rv, reads.index(load.buffer), "global", _placed(count, at, along))
        while any(_dissolve(g, view, p) for p in sch.get_producers(view)):
            pass
    return facts_of(sch, rv), consumer


def _placed(count: int, at: int, along: bool) -> Callable[..., tuple[Any, ...]]:
    """The index map from the iterators of the product to those of an operand."""

    def place(*its: Any) -> tuple[Any, ...]:
        own = (its[at], its[-1]) if along else (its[-1], its[at])
        return (*its[:count], *own)

    return place


def _dissolve(g: Kernel, copy: BlockRV, producer: BlockRV) -> bool:
    """Inline a stage that only `copy` reads; whether that was possible."""
    if g.is_done(producer) or [c.key for c in g.sch.get_consumers(producer)] != [copy.key]:
        return False
    return g.inlines(producer)
