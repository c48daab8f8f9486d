"""Convolutions, and other reductions over several axes, as matrix products for tensor cores (im2col).

    Out[n, y, x, f] += Data[n, y*s + r, x*s + t, c] * W[r, t, c, f]

    m = (n, y, x)     k = (r, t, c)     View[m, k] = Data[…], 0 in the padding
    C[m, f] += View[m, k] * W[k, f]

The view, im2col, is never in memory: TMA copies windows of the image by itself, and warps gather the elements that they
copy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ....arith import Analyzer
from ....ir.equal import structural_equal
from ....ir.expr import Add, BufferLoad, Mul, PrimExpr, Var, const, const_value
from ....ir.functor import substitute, vars_used
from ....ir.ops import floordiv, floormod, if_then_else
from ....ir.stmt import BufferStore
from ....target import Target
from ....tir.schedule.primitive import BlockRV
from ....tir.transform.bulk_views import VIEW, find_view
from ....tir.transform.lower_bulk_copies import line_of
from ...program.facts import Axis, Facts, facts_of, fused_index
from ...program.stages import Stage
from ..rule import Refusal
from .dp4a import Dp4a
from .elementwise import by_elements
from .kernel import Kernel
from .mma import Mma
from .product import Product, factors, moves, product_of, some_of, stored_bytes, sums_from_zero, takes
from .product_rule import ProductRule, Source
from .views import digits, fused_axis, operand, read_through, view_ahead
from .wgmma import Wgmma

__all__ = ["Im2colDp4a", "Im2colLines", "Im2colMma", "Im2colWgmma", "Windows", "windows_of"]


# The types of the operands by the type of the accumulators.
_FACTORS = {"float32": ("float16", "bfloat16", "float32"), "int32": ("int8",)}


@dataclass(frozen=True, slots=True)
class Windows:
    """A reduction over products of data, read in windows, and of weights, which are the same for all pixels."""

    pixels: tuple[Axis, ...]  # the axes of the results that index the data, in the order of the results
    f: Axis  # the last axis of the results, which indexes the weights
    window: tuple[Axis, ...]  # the reduction axes, in the order of the weights
    c: Axis  # the reduction axis along which the data is contiguous
    data: BufferLoad
    weights: BufferLoad

    @property
    def wide(self) -> bool:
        """Whether a window has more than one pixel."""
        return any(x.extent > 1 for x in self.window if x is not self.c)

    @property
    def transposed(self) -> bool:
        """Whether the channels of the results are the first axis of the weights (contiguous along the reduction)."""
        return self.weights.indices[0] is self.f.var

    @property
    def contiguous(self) -> int:
        """The number of channels of a vector copy; 1 if they are copied one by one."""
        return math.gcd(self.c.extent, 16) if self.window[-1] is self.c else 1


def windows_of(f: Facts) -> Windows | None:
    """A block as a convolution, if it is one: of 16- or 32-bit floats accumulated in float32, or of int8 in int32."""
    body = f.block.body
    if (
        not isinstance(body, BufferStore)
        or not sums_from_zero(f, "float32", "int32")
        or not all(x.known for x in f.axes)
    ):
        return None
    loads = factors(body)
    by_var = {x.var: x for x in f.axes}
    if loads is None or loads[0].buffer is loads[1].buffer or any(i not in by_var for i in body.indices):
        return None
    last = by_var[body.indices[-1]]  # type: ignore[index]
    data, weights = loads if last.var in loads[1].indices else loads[::-1]
    reduce = {x.var for x in f.reduce}
    c = data.indices[-1]
    if (
        str(data.buffer.dtype) not in _FACTORS[str(body.buffer.dtype)]
        or data.buffer.dtype is not weights.buffer.dtype
        or last.reduce
        or c not in reduce
        or last.var in set().union(*map(vars_used, data.indices))
        or set(weights.indices) != reduce | {last.var}
        or len(weights.indices) != len(reduce) + 1
        or weights.indices.index(last.var) not in (0, len(reduce))
        or not all(_steps(i, by_var) for i in data.indices)
    ):
        return None
    pixels = tuple(by_var[v] for v in body.indices[:-1])  # type: ignore[index]
    moving = set().union(*map(vars_used, data.indices))
    if not pixels or any(x.var not in moving for x in (*pixels, *f.reduce)):
        return None
    window = tuple(by_var[v] for v in weights.indices if v is not last.var)  # type: ignore[index]
    return Windows(pixels, last, window, by_var[c], data, weights)  # type: ignore[index]


def _steps(e: PrimExpr, axes: dict[Var, Axis]) -> bool:
    """Whether an index is a sum of axes, each with a constant factor, and constants."""
    if isinstance(e, Add):
        return _steps(e.a, axes) and _steps(e.b, axes)
    if isinstance(e, Mul):
        return (_steps(e.a, axes) and const_value(e.b) is not None) or (
            _steps(e.b, axes) and const_value(e.a) is not None
        )
    return e in axes or const_value(e) is not None


class _Im2col(ProductRule):
    """A convolution that is rewritten as a product: `line` is the size of the pieces that are copied along a window, or
    1 if single elements are gathered."""

    warpgroups = False

    def found(self, f: Facts, target: Target) -> Any:
        w = windows_of(f)
        if w is None:
            return Refusal("it is not a convolution whose channels are the last dimension")
        if len(w.pixels) == 1 and product_of(f) is not None:
            return Refusal("it is a product of matrices")
        kind = str(w.data.buffer.dtype)
        if kind not in self.types or not takes(target, kind) or (self.warpgroups and kind == "int8"):
            return Refusal(f"it does not multiply {kind}")
        why = (
            self.unfit(w)
            if len(f.axes) == len(f.block.iter_vars)
            else f"{f.name} has iterators with one value"
        )
        return Refusal(why, near=True) if why else w

    def unfit(self, w: Windows) -> str:
        """Why this kernel cannot copy the windows of a convolution; empty if it can."""
        return ""

    def source(self, stage: Stage, w: Any) -> Source | Refusal:
        consumer = stage.program.fusable_consumer(stage.facts)
        last = None if consumer is None else facts_of(stage.program.sch, consumer)
        after = last.work if last else 1  # the work of the epilogue, or of a copy
        made, line = self.prepared_windows(w), self.line(w)
        sizes = [_size(x, made, line) for x in made.window]
        m = fused_axis("m", [x.extent for x in made.pixels], made.pixels[0])
        k = fused_axis("k", sizes, made.c)
        if 1 in (m.extent, k.extent, w.f.extent):
            return self.no_product(stage.facts)
        along = self.along(w)
        view = operand(w.data.buffer, (m, k))
        panel = operand(w.weights.buffer, (w.f, k) if along else (k, w.f))
        stored = stored_bytes(last or stage.facts)
        p = Product(m, w.f, k, (), view, panel, False, along, after=after, stored=stored)
        if self.warpgroups:
            value = read_through(stage.program, stage.facts.rv, w.data, _only_moves)
            values = self.values(w, m, k, sizes)
            if sizes[-1] != made.c.extent:
                value = if_then_else(digits(k, sizes)[-1] < made.c.extent, value, const(0, value.dtype))
            found = view_ahead(value, values, view, (m, k), [x.extent for x in made.pixels])
            if isinstance(found, str):
                return _no_view(found)
        return Source(stage.facts, self.completed(p, made))

    def rewritten(self, g: Kernel, f: Facts, w: Any, source: Source) -> Source | Refusal:
        consumer = g.fusable_consumer(f)
        f, w = self.prepared(g, f, w)
        made, view, after = _as_product(g, f, w, self.line(w), consumer, self.along(w))
        p = product_of(made)
        if p is None:
            return self.no_product(f)
        if self.warpgroups:
            sizes = [x.extent for x in w.pixels]
            g.sch.annotate(view, VIEW, sizes)
            g.finished.append(view.key)
            block = g.sch.get(view)
            found = find_view(block.body, [(iv.var, iv.dom) for iv in block.iter_vars], sizes)
            if isinstance(found, str):
                return _no_view(found)
        return Source(made, self.completed(replace(p, after=facts_of(g.sch, after).work), w), after)

    def line(self, w: Windows) -> int:
        """The elements that the channels of a window are padded to multiples of."""
        return line_of(w.data.buffer.dtype) if self.warpgroups else 1

    def along(self, w: Windows) -> bool:
        """Whether the weights are read contiguously along the reduction: if they are, or if instructions require it."""
        kind = w.data.buffer.dtype
        return w.transposed or kind == "int8" or (self.warpgroups and kind == "float32")

    def completed(self, p: Product, w: Windows) -> Product:
        windows = math.prod(x.extent for x in w.window if x is not w.c)
        return replace(p, windows=windows, pieces=(w.contiguous, 16))

    def no_product(self, f: Facts) -> Refusal:
        return Refusal(f"{f.name} is not a product of matrices over its windows", near=True)

    def values(self, w: Windows, m: Axis, k: Axis, sizes: list[int]) -> dict[Var, PrimExpr]:
        """The axes of a convolution as functions of the axes of the product."""
        pixels = digits(m, [x.extent for x in w.pixels])
        window = digits(k, sizes)
        return dict(zip([x.var for x in (*w.pixels, *w.window)], [*pixels, *window], strict=True))

    def prepared_windows(self, w: Windows) -> Windows:
        """The windows that `prepared` will lead to."""
        return w

    def prepared(self, g: Kernel, f: Facts, w: Windows) -> tuple[Facts, Windows]:
        return f, w


def _only_moves(f: Facts) -> bool:
    return isinstance(f.block.body, BufferStore) and moves(f.block.body.value)


def _no_view(must: str) -> Refusal:
    return Refusal(f"TMA cannot copy its windows, which requires that {must}", near=True)


class Im2colWgmma(_Im2col, Wgmma):
    """By warpgroups: TMA copies the channels of windows."""

    name = "im2col wgmma"
    warpgroups = True

    def unfit(self, w: Windows) -> str:
        kind = w.data.buffer.dtype
        piece, line = 16 // kind.nbytes, line_of(kind)
        across = (
            not w.transposed and kind != "float32"
        )  # weights are contiguous along the channels of the results
        if w.window[-1] is not w.c or w.c.extent % piece or (across and w.f.extent % piece):
            return "TMA copies whole pieces of 16 bytes"
        return self.padded(w, line)

    def padded(self, w: Windows, line: int) -> str:
        """Why most of the copied elements would be padding, which `mma` does not need; empty if they would not."""
        few = (8 if w.data.buffer.dtype == "float32" else 3) * w.c.extent < line
        return f"lines of {w.c.extent} channels would be mostly padding" if w.wide and few else ""


class Im2colLines(Im2colWgmma):
    """By warpgroups: TMA copies rows of windows, because there are few channels."""

    name = "im2col lines wgmma"

    def padded(self, w: Windows, line: int) -> str:
        few = w.c.extent
        if not (w.wide and 3 * few < line):
            return f"{few} channels are enough for a line"
        t = w.window[-2]
        column = Analyzer().simplify(substitute(w.data.indices[-2], {t.var: const(0)}) + t.var)
        same = structural_equal(column, Analyzer().simplify(w.data.indices[-2]))
        if const_value(w.data.buffer.shape[-1]) != few or 3 * t.extent * few < line or not same:
            return f"lines of {few} channels would be mostly padding"
        return ""

    def prepared_windows(self, w: Windows) -> Windows:
        t = w.window[-2]
        row = fused_axis(f"{t.var.name}_{w.c.var.name}", [t.extent, w.c.extent], w.c)
        return replace(w, window=(*w.window[:-2], row), c=row)

    def values(self, w: Windows, m: Axis, k: Axis, sizes: list[int]) -> dict[Var, PrimExpr]:
        made = self.prepared_windows(w)
        out = super().values(made, m, k, sizes)
        row, few = out.pop(made.c.var), const(w.c.extent, k.var.dtype)
        return {**out, w.window[-2].var: floordiv(row, few), w.c.var: floormod(row, few)}

    def prepared(self, g: Kernel, f: Facts, w: Windows) -> tuple[Facts, Windows]:
        return _joined(g, f, w)


class Im2colMma(_Im2col, Mma):
    """By warps, which gather the elements that they copy."""

    name = "im2col mma"


class Im2colDp4a(_Im2col, Dp4a):
    """By `dp4a`, for int8 without tensor cores."""

    name = "im2col dp4a"


def _joined(g: Kernel, f: Facts, w: Windows) -> tuple[Facts, Windows]:
    """Fuse the last axis of the windows with the channels, of which there are few: both together are contiguous.

    Out[n, y, x, f] += Data[n, y + r, x + t, c] * W[f, r, t, c]
        ->   Out[n, y, x, f] += Lines[n, y, x, r, tc] * V[f, r, tc]     Lines[…] = Data[n, y + r, x + tc // C, tc % C]
    """
    few, t = w.c.extent, w.window[-2]
    sch, rv = g.sch, f.rv
    axes = [x.var for x in f.axes]
    at, last = axes.index(t.var), axes.index(w.c.var)
    kept = [i for i in range(len(axes)) if i not in (at, last)]
    sch.transform_block_layout(rv, lambda *its: [*(its[i] for i in kept), its[at] * few + its[last]])
    for b in (w.data.buffer, w.weights.buffer):
        made = facts_of(sch, rv)
        now = {axes[i]: x for i, x in zip(kept, made.axes, strict=False)}
        own, window = now[w.f.var], (*(now[x.var] for x in w.window[:-2]), made.axes[-1])
        pixels = tuple(now[x.var] for x in w.pixels)
        order = [*pixels, *window]
        if b is w.weights.buffer:
            order = [own, *window] if w.transposed else [*window, own]
        reads = [r.buffer for r in made.block.reads]
        sch.reindex_cache_read(rv, reads.index(b), "global", some_of(made, [x.var for x in order]))
    made = facts_of(sch, rv)
    loads = factors(made.block.body)  # type: ignore[arg-type]
    assert loads is not None
    data, weights = loads if own.var in loads[1].indices else loads[::-1]
    return made, Windows(pixels, own, window, window[-1], data, weights)


def _as_product(
    g: Kernel, f: Facts, w: Windows, line: int, consumer: BlockRV | None, contiguous: bool
) -> tuple[Facts, BlockRV, BlockRV]:
    """Rewrite a block as C[m, f] += View[m, k] * W[k, f], and its epilogue as a block over m and f. The weights are
    read as W[f, k] if they must be contiguous along the reduction (`contiguous`)."""
    sch, rv = g.sch, f.rv
    if consumer is None:
        consumer = sch.cache_write(rv, 0, "global")
    axes = [x.var for x in f.axes]
    ends = [w.data.buffer, w.weights.buffer]
    if w.wide and w.c.extent % line:
        _pad_channels(sch, rv, axes, w, line)
        reads = [r.buffer for r in sch.get(rv).reads]
        ends = [reads[_place(f, b)] for b in ends]
    sizes = [x.extent for x in w.pixels]
    at = {v: i for i, v in enumerate(axes)}

    def joined(its: tuple[Any, ...], order: tuple[Axis, ...]) -> Any:
        return fused_index([its[at[x.var]] for x in order], [_size(x, w, line) for x in order])

    sch.transform_block_layout(
        rv, lambda *its: (joined(its, w.pixels), its[at[w.f.var]], joined(its, w.window))
    )
    last = len(sizes)

    def flat(*its: Any) -> Any:
        return fused_index(its[:last], sizes), its[last]

    sch.transform_layout(rv, ("write", 0), flat)
    sch.transform_block_layout(consumer, flat)
    reads = [r.buffer for r in sch.get(rv).reads]
    view = sch.reindex_cache_read(rv, reads.index(ends[0]), "global", lambda m, n, k: (m, k))
    reads = [r.buffer for r in sch.get(rv).reads]
    panel = sch.reindex_cache_read(
        rv, reads.index(ends[1]), "global", lambda m, n, k: (n, k) if contiguous else (k, n)
    )
    for copy in (view, panel):
        while any(_dissolve(g, copy, p) for p in sch.get_producers(copy)):
            pass
    if contiguous and not w.transposed:  # a separate kernel transposes the weights
        by_elements(g, facts_of(sch, panel))
        g.finished.append(panel.key)
    return facts_of(sch, rv), view, consumer


def _size(x: Axis, w: Windows, line: int) -> int:
    """The extent of an axis, after the padding of channels."""
    return -(-x.extent // line) * line if x is w.c and w.wide else x.extent


def _place(f: Facts, b: Any) -> int:
    return [r.buffer for r in f.block.reads].index(b)


def _pad_channels(sch: Any, rv: BlockRV, axes: list[Var], w: Windows, line: int) -> None:
    """Pad the channels to whole rows of a TMA tile, so that each row belongs to one pixel of the window."""
    used = [i for i, v in enumerate(axes) if v in set().union(*map(vars_used, w.data.indices))]
    reads = [r.buffer for r in sch.get(rv).reads]
    sch.reindex_cache_read(rv, reads.index(w.data.buffer), "global", lambda *its: [its[i] for i in used])
    sch.pad_einsum(rv, [line if v is w.c.var else 1 for v in axes])


def _dissolve(g: Kernel, copy: BlockRV, producer: BlockRV) -> bool:
    """Inline a stage that only moves elements, or pads them with zeros; whether it was one."""
    body = g.sch.get(producer).body
    if g.is_done(producer) or not isinstance(body, BufferStore) or not moves(body.value):
        return False
    if [c.key for c in g.sch.get_consumers(producer)] != [copy.key]:
        return False
    g.sch.compute_inline(producer)
    return True
