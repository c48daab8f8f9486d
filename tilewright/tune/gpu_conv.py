"""Convolutions, and other sums over several axes, as products of matrices for tensor cores.

    Out[n, y, x, f] += Data[n, y*s + r, x*s + t, c] * W[r, t, c, f]

    m = (n, y, x)     k = (r, t, c)     View[m, k] = Data[…], 0 in the padding
    C[m, f] += View[m, k] * W[k, f]

The view is never in memory: bulk copies look through it (the copy engine walks the windows of an image by itself),
and warps gather what they fetch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..ir.errors import LoweringError, ScheduleError
from ..ir.expr import Add, BufferLoad, Mul, PrimExpr, Var, const_value
from ..ir.functor import vars_used
from ..ir.stmt import BufferStore
from ..tir.schedule.primitive import BlockRV
from ..tir.transform.bulk_views import VIEW, view_of
from .facts import Axis, Facts, facts_of
from .gpu_tensor import LINE, by_warpgroups, by_warps, factors, moves, product_of, sums_from_zero

if TYPE_CHECKING:
    from .gpu import GpuFunction

__all__ = ["Windows", "by_tensor_cores", "windows_of"]


@dataclass(frozen=True, slots=True)
class Windows:
    """A sum of products of data, read in windows, and of weights, which are the same for all pixels."""

    pixels: tuple[Axis, ...]  # the results' axes that the data moves along, in the results' order
    f: Axis  # the one that the weights move along, the last
    window: tuple[Axis, ...]  # what is summed up, in the weights' order
    c: Axis  # the one of them along which the data lies in line
    data: BufferLoad
    weights: BufferLoad

    @property
    def wide(self) -> bool:
        """Whether a window is more than one place."""
        return any(x.extent > 1 for x in self.window if x is not self.c)

    @property
    def in_line(self) -> int:
        """How many channels can be fetched at once; eight, one by one, if they must be taken apart."""
        together = math.gcd(self.c.extent, 8) if self.window[-1] is self.c else 1
        return together if together > 1 else 8


def windows_of(f: Facts) -> Windows | None:
    """A block as a convolution, if it is one: of floats of 16 bits, added up in float32."""
    body = f.block.body
    if not isinstance(body, BufferStore) or not sums_from_zero(f) or not all(x.known for x in f.axes):
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
        str(data.buffer.dtype) not in ("float16", "bfloat16")
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
    """Whether an index is a sum of axes, each times a constant."""
    if isinstance(e, Add):
        return _steps(e.a, axes) and _steps(e.b, axes)
    if isinstance(e, Mul):
        return (_steps(e.a, axes) and const_value(e.b) is not None) or (
            _steps(e.b, axes) and const_value(e.a) is not None
        )
    return e in axes or const_value(e) is not None


def by_tensor_cores(g: GpuFunction, f: Facts, w: Windows, warpgroups: bool) -> dict[str, Any]:
    """Schedule a convolution as a product, by the instructions of warpgroups or of warps."""
    if warpgroups and (w.window[-1] is not w.c or w.c.extent % 8 or w.f.extent % 8):
        raise ScheduleError("bulk copies take whole pieces of 16 bytes")
    if warpgroups and w.wide and 3 * w.c.extent < LINE:
        raise ScheduleError(f"lines of {w.c.extent} channels would be mostly padding")
    made, view, after = _as_product(g, f, w, LINE if warpgroups else 1)
    product = product_of(made)
    if product is None:
        raise ScheduleError(f"{f.name} is no product of matrices over its windows")
    windows = math.prod(x.extent for x in w.window if x is not w.c)
    product = replace(product, windows=windows, in_line=w.in_line)
    if not warpgroups:
        return by_warps(g, made, product, after)
    g.sch.annotate(view, VIEW, [x.extent for x in w.pixels])
    g.done.add(view.key)
    block = g.sch.get(view)
    try:
        view_of(block, [(iv.var, iv.dom) for iv in block.iter_vars])
    except LoweringError as why:
        raise ScheduleError(str(why)) from None
    return by_warpgroups(g, made, product, after)


def _as_product(g: GpuFunction, f: Facts, w: Windows, line: int) -> tuple[Facts, BlockRV, BlockRV]:
    """Rewrite a block as C[m, f] += View[m, k] * W[k, f], and what takes its results as a block over m and f."""
    sch, rv = g.sch, f.rv
    consumer = g.fusable_consumer(f)
    if consumer is None:
        consumer = sch.cache_write(rv, 0, "global")
    axes = [x.var for x in f.axes]
    if len(axes) != len(f.block.iter_vars):
        raise ScheduleError(f"{f.name} has iterators with one value")
    ends = [w.data.buffer, w.weights.buffer]
    if w.wide and w.c.extent % line:
        _pad_channels(sch, rv, axes, w, line)
        reads = [r.buffer for r in sch.get(rv).reads]
        ends = [reads[_place(f, b)] for b in ends]
    sizes = [x.extent for x in w.pixels]
    at = {v: i for i, v in enumerate(axes)}

    def joined(its: tuple[Any, ...], order: tuple[Axis, ...]) -> Any:
        total = its[at[order[0].var]]
        for x in order[1:]:
            total = total * _size(x, w, line) + its[at[x.var]]
        return total

    sch.transform_block_layout(
        rv, lambda *its: (joined(its, w.pixels), its[at[w.f.var]], joined(its, w.window))
    )
    last = len(sizes)

    def flat(*its: Any) -> Any:
        total = its[0]
        for n, i in zip(sizes[1:], its[1:last], strict=True):
            total = total * n + i
        return total, its[last]

    sch.transform_layout(rv, ("write", 0), flat)
    sch.transform_block_layout(consumer, flat)
    reads = [r.buffer for r in sch.get(rv).reads]
    view = sch.reindex_cache_read(rv, reads.index(ends[0]), "global", lambda m, n, k: (m, k))
    turned = w.weights.indices[0] is w.f.var
    reads = [r.buffer for r in sch.get(rv).reads]
    panel = sch.reindex_cache_read(
        rv, reads.index(ends[1]), "global", lambda m, n, k: (n, k) if turned else (k, n)
    )
    for copy in (view, panel):
        while any(_dissolve(g, copy, p) for p in sch.get_producers(copy)):
            pass
    return facts_of(sch, rv), view, consumer


def _size(x: Axis, w: Windows, line: int) -> int:
    """The extent of an axis, padded."""
    return -(-x.extent // line) * line if x is w.c and w.wide else x.extent


def _place(f: Facts, b: Any) -> int:
    return [r.buffer for r in f.block.reads].index(b)


def _pad_channels(sch: Any, rv: BlockRV, axes: list[Var], w: Windows, line: int) -> None:
    """Let the channels be whole lines, so that a line belongs to one element of the window."""
    used = [i for i, v in enumerate(axes) if v in set().union(*map(vars_used, w.data.indices))]
    reads = [r.buffer for r in sch.get(rv).reads]
    sch.reindex_cache_read(rv, reads.index(w.data.buffer), "global", lambda *its: [its[i] for i in used])
    sch.pad_einsum(rv, [line if v is w.c.var else 1 for v in axes])


def _dissolve(g: GpuFunction, copy: BlockRV, producer: BlockRV) -> bool:
    """Read through a stage that only moves elements, or pads them with zeros; whether it was one."""
    body = g.sch.get(producer).body
    if producer.key in g.done or not isinstance(body, BufferStore) or not moves(body.value):
        return False
    if [c.key for c in g.sch.get_consumers(producer)] != [copy.key]:
        return False
    g.sch.compute_inline(producer)
    return True
