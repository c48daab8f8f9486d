"""Sketches for GPUs: every stage becomes a kernel, or a part of one.

    elementwise    a thread for each contiguous vector of elements (gpu_elementwise.py)
    transpose      a thread block for a tile, which is transposed in shared memory (gpu_transpose.py)
    rows           a thread block for each row, which stays in registers (gpu_rows.py)
    columns        a thread block for contiguous results and a part of the rows (gpu_columns.py)
    windows        a thread for some neighbouring results of a pooling or a depthwise convolution (gpu_windows.py)
    tile           a thread block for a tile of results: its threads copy the operands to shared memory together, the
                   results are in registers
    large tile     the same for float32 matrix products, and for convolutions as products (im2col): copied some steps
                   ahead by threads or by TMA, register tiles of about 8 x 8 (gpu_product.py, gpu_product_tma.py,
                   gpu_conv_threads.py)
    tensor cores   the same for products of 16-bit floats and int8, by `mma` or `wgmma`, and of float32 that may be
                   rounded to tf32 (gpu_warps.py, gpu_tensor.py, gpu_conv.py)
    dot products   the same for products of int8 by `dp4a`, if tensor cores cannot take them (gpu_dots.py)
    attention      scores, softmax and the product with the values in one kernel (gpu_attention.py)

Large tiles, tensor cores and attention choose their sizes by an estimate of cycles or rounds, the others by rules.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, NamedTuple, TypeVar

from ..ir.errors import ScheduleError
from ..ir.stmt import For, ForKind, Stmt, stmt_list
from ..target import Target
from ..tir.schedule.primitive import BlockRV, LoopRV
from ..tir.transform.fetch_early import FETCH_EARLY
from .cost.gpu import Counts, seconds_of
from .explain import Outcome
from .gpu_attention import attentions
from .gpu_columns import reduce_columns
from .gpu_conv import FORMS, Windows, by_tensor_cores, windows_of
from .gpu_conv_threads import Contraction, by_gathering, contraction_of
from .gpu_dots import by_dots, dp4a_estimate
from .gpu_elementwise import by_elements
from .gpu_explain import Rival, kernel_figures, lost, operations, simple_rivals, stage_figures
from .gpu_product import by_threads, simt_estimate
from .gpu_product_tma import by_tma, tma_estimate
from .gpu_rows import TooLong, power, reduce_rows, row_by_row
from .gpu_space import SharedTile, Table, bytes_of, shared_tile_counts, shared_tile_table
from .gpu_tensor import Product, by_warpgroups, product_of, wgmma_estimate
from .gpu_transpose import transpose, transposed_read
from .gpu_warps import by_warps, mma_estimate
from .gpu_windows import depthwise, inline_padding, is_contiguous, is_depthwise, is_pooling, pool_windows
from .program.facts import Access, Axis, Facts, extent_of, facts_of, number
from .program.patterns import in_line, reuses, rows_of
from .program.stages import Stages, reason_of

__all__ = ["GpuFunction"]

T = TypeVar("T")
_ROWS = 4  # rows, and columns, of a product that is worth tiles, at least
_DEPTH = 16  # depth of a tile: steps of the reduction that are copied at once


class _Kind(NamedTuple):
    """A kind of kernel for products: the name of its instructions, how `explain()` calls the sketch, the types of the
    operands, the sketch itself, and its estimate, which refuses what the sketch cannot compute."""

    name: str
    sketch: str
    types: tuple[str, ...]
    apply: Callable[[GpuFunction, Facts, Product], dict[str, Any]]
    estimate: Callable[[Target, Product], Counts]


_ALL = ("float16", "bfloat16", "float32", "int8")
_FLOAT, _NOT_FLOAT32 = ("float32",), ("float16", "bfloat16", "int8")
# In the order in which they are tried.
_PRODUCTS = (
    _Kind("wgmma", "tensor cores", _ALL, by_warpgroups, wgmma_estimate),
    _Kind("mma", "tensor cores", _ALL, by_warps, mma_estimate),
    _Kind("SIMT with TMA", "large tile", _FLOAT, by_tma, tma_estimate),
    _Kind("SIMT", "large tile", _FLOAT, by_threads, simt_estimate),
    _Kind("dp4a", "large tile", _NOT_FLOAT32, by_dots, dp4a_estimate),
)
_FORM_KINDS = {"lines": "wgmma", "channels": "wgmma", "warps": "mma", "words": "dp4a"}


class GpuFunction(Stages):
    """Schedules the blocks of one function for a GPU."""

    free = False  # whether the tuner decides: rules that leave a sketch out do not apply then
    threads, widest = 0, 0  # the threads of a block, and the width of vectors, if these are decided (else 0)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.declined: dict[
            str, str
        ] = {}  # the kinds of kernels that cannot compute the current stage, and why

    @property
    def most(self) -> int:
        """The threads of a block."""
        return min(
            self.threads or self.target.gpu.elementwise.plain_threads, int(self.target.max_num_threads)
        )

    def choose(self, f: Facts, kind: str, default: T, table: Callable[[], Table]) -> T:
        """The decision that a sketch is applied with. `table` makes all possible ones, for the tuner."""
        return default

    def refused(self, why: ScheduleError) -> None:
        """Called if a sketch is refused and the scheduler goes on to another; the tuner keeps the reason."""

    def decline(self, kind: str, why: ScheduleError) -> None:
        """Keep the reason why a kind of kernel does not compute the current stage."""
        self.refused(why)
        self.declined.setdefault(kind, reason_of(why))

    @property
    def limit(self) -> int:
        """The greatest number of threads of a block."""
        return min(1024, int(self.target.max_num_threads))

    def finish(self) -> None:
        """Nothing is noted of long sums: threads share them, and each adds a short part."""

    # -- groups ----------------------------------------------------------------------------
    def inline(self) -> None:
        attentions(self)
        super().inline()

    def wants_inline(self, f: Facts, consumers: list[Facts]) -> bool:
        return super().wants_inline(f, consumers) or self.is_small(f, consumers)

    def is_small(self, f: Facts, consumers: list[Facts]) -> bool:
        """Whether a stage that reads only inputs, as `1 / sqrt(variance)` of some channels, takes less time if each
        element that needs it computes it than as a kernel of its own."""
        w = self.target.gpu.elementwise
        light = f.work <= w.light_work and not f.guarded and len(consumers) == 1
        large = all(c.kind == "injective" and c.points >= w.light_times * f.points for c in consumers)
        return light and large and not self.sch.get_producers(f.rv)

    def next_group(self, left: list[Facts]) -> None:
        for f in left:
            if f.kind == "reduction" and (reuses(f) or (is_pooling(f) and not is_contiguous(f))):
                return self.tile(f)
        for f in reversed(left):
            if f.kind in ("opaque", "several"):
                continue
            group = self.row_group(f, left)
            if len(group) > 1 and any(g.kind == "reduction" for g in group):
                return self.rows(f, group)
        for f in left:
            if f.rv.key not in self.done:
                self.alone(f)

    def attempt(self, f: Facts, sketch: Any, name: str, shared: bool = True) -> None:
        """Apply a sketch, whose kernel uses shared memory or not; if it is refused, the stage gets a thread for each
        result, or one thread for all."""
        before = self.at_root()
        try:
            with self.sch.all_or_nothing():
                note = sketch()
        except ScheduleError as why:
            self.decline(name, why)
            for each in (self.plain, self.single):
                try:
                    with self.sch.all_or_nothing():
                        note, name = {**each(f), "instead": reason_of(why)}, "plain"
                    break
                except ScheduleError:
                    continue
            else:
                raise
            self.record(f, name, note, gave_way=True, shared=False)
        else:
            tiled = isinstance(note.get("counts"), Counts)
            rivals = [] if tiled else simple_rivals(name, [f], self.target.gpu)
            if name == "windows":
                rivals = self.shared_rival(f)
            self.record(f, name, note, rivals=rivals, shared=shared)
        self.take(before)

    def record(
        self,
        f: Facts,
        sketch: str,
        note: dict[str, Any],
        group: Sequence[Facts] = (),
        rivals: Sequence[Rival] = (),
        gave_way: bool = False,
        kind: str = "",
        shared: bool = True,
    ) -> None:
        """Add a kernel to what `explain()` says, with its figures and its rivals. `gave_way`: it is the plain one,
        because a better one was refused. `kind` is the name of the kernel among its rivals;
        `shared`: it uses shared memory."""
        gpu, stages = self.target.gpu, list(group) or [f]
        counts, before = note.pop("counts", None), note.pop("before", 0.0)
        if isinstance(counts, Counts):
            work = (
                (int(counts.flop), int(counts.dram))
                if counts.flop
                else (operations(stages), bytes_of(stages))
            )
            figures = kernel_figures(counts, *work, gpu, before)
        else:
            kernel = note.pop("kernel", f.rv)
            figures = stage_figures(self.sch, stages, kernel, gpu, note.get("registers", 0))
        order = f"{kind or sketch} comes first where it is possible"
        others = lost(rivals, self.declined, figures["predicted_us"] / 1e6, order)
        told = {"stage": f.name, "sketch": sketch, **note}
        self.notes.records.append({**told, **figures, **others})
        threads = int(note.get("threads", 0))
        self.notes.outcomes.append(Outcome(f.name, threads, shared, str(note.get("instead", "")), gave_way))

    def alone(self, f: Facts, refused: str = "") -> None:
        self.done.add(f.rv.key)
        self.declined = {}
        across = transposed_read(f) if f.kind == "injective" else None
        if across is not None:
            self.attempt(f, lambda: transpose(self, f, *across), "transpose")
        elif f.kind == "injective":
            self.declined["transpose"] = (
                "it has not one read that is contiguous along another axis than the result"
            )
            self.attempt(f, lambda: by_elements(self, f), "elementwise", shared=False)
        elif f.kind == "opaque" and _in_parallel(
            f.block.body, self.target.gpu.elementwise.parallel_iterations
        ):
            self.notes.left(f.name, "its parallel loops become threads")
        elif f.kind in ("reduction", "several") and f.reduce:
            line = in_line(f)
            along = line is not None and line.reduce
            sketch = reduce_rows if along else reduce_columns
            self.attempt(f, lambda: sketch(self, f), "rows" if along else "columns")
        else:
            self.attempt(f, lambda: self.plain(f), "plain", shared=False)

    def tile(self, f: Facts) -> None:
        self.done.add(f.rv.key)
        self.declined = {}
        product = product_of(f)
        if product is not None and min(product.m.extent, product.n.extent) < _ROWS:
            return self.alone(f)  # there is hardly any reuse
        if product is not None and self.matrix_product(f, product):
            return
        windows = windows_of(f)
        if windows is not None and self.convolution(f, windows):
            return
        if is_depthwise(f):
            return self.attempt(f, lambda: depthwise(self, f), "windows", shared=False)
        sums = contraction_of(f)
        if sums is not None and self.gathered(f, sums):
            return
        if is_pooling(f):
            return self.attempt(f, lambda: pool_windows(self, f), "windows", shared=False)
        self.attempt(f, lambda: self.tiles(f), "shared tile")

    def gathered(self, f: Facts, sums: Contraction) -> bool:
        """Try to schedule a contraction in float32 with large tiles; whether that was possible."""
        before = self.at_root()
        try:
            with self.sch.all_or_nothing():
                note = by_gathering(self, f, sums)
        except ScheduleError as why:
            self.decline("SIMT", why)
            return False
        self.record(f, "large tile", note, rivals=self.shared_rival(f))
        self.take(before)
        return True

    def convolution(self, f: Facts, windows: Windows) -> bool:
        """Try to schedule a convolution on tensor cores; whether that was possible."""
        for i, form in enumerate(FORMS):
            before = self.at_root()
            try:
                with self.sch.all_or_nothing():
                    note = by_tensor_cores(self, f, windows, form)
            except ScheduleError as why:
                self.decline(_FORM_KINDS[form], why)
                continue
            self.declined.pop(_FORM_KINDS[form], None)  # in another form
            later = {_FORM_KINDS[x] for x in FORMS[i + 1 :]} - {_FORM_KINDS[form]}
            rivals = self.estimates([k for k in _PRODUCTS if k.name in later], windows.as_product())
            self.record(
                f, "tensor cores", note, rivals=rivals or self.shared_rival(f), kind=_FORM_KINDS[form]
            )
            self.take(before)
            return True
        return False

    def matrix_product(self, f: Facts, product: Product) -> bool:
        """Try to schedule a matrix product on tensor cores, or with large tiles; whether that was possible."""
        kinds = [k for k in _PRODUCTS if product.kind in k.types]
        for i, kind in enumerate(kinds):
            before = self.at_root()
            try:
                with self.sch.all_or_nothing():
                    note = kind.apply(self, f, product)
            except ScheduleError as why:
                self.decline(kind.name, why)
                continue
            rivals = self.estimates(kinds[i + 1 :], product) or self.shared_rival(f)
            self.record(f, kind.sketch, note, rivals=rivals, kind=kind.name)
            self.take(before)
            return True
        return False

    def estimates(self, kinds: Sequence[_Kind], p: Product) -> list[Rival]:
        """The predicted times of other kinds of kernels for a product; those that are impossible are declined."""
        found = []
        for kind in () if self.free else kinds:
            try:
                seconds = seconds_of(kind.estimate(self.target, p), self.target.gpu)
            except ScheduleError as why:
                self.declined.setdefault(kind.name, reason_of(why))
            else:
                found.append(Rival(kind.name, float(seconds)))
        return found

    def shared_rival(self, f: Facts) -> list[Rival]:
        """The predicted time of a tile in shared memory, which computes any reduction."""
        if self.free or not all(a.known for a in f.axes):
            return []
        try:
            wide, high = self.sides(f)
        except ScheduleError as why:
            self.declined.setdefault("shared tile", reason_of(why))
            return []
        counts = shared_tile_counts(
            f, wide, high, self.shared_reads(f), self.tile_rule(f, wide, high), self.target.gpu
        )
        return [Rival("shared tile", float(seconds_of(counts, self.target.gpu)))]

    def rows(self, last: Facts, group: list[Facts]) -> None:
        before, self.declined = self.at_root(), {}
        try:
            with self.sch.all_or_nothing():
                note = self.chain(*self.in_groups(last, group), self.beside(last))
        except ScheduleError as why:
            for f in self.apart(last, group) if isinstance(why, TooLong) else group:
                if f.rv.key not in self.done:
                    self.alone(f)
        else:
            note = {"stages": [f.name for f in group], **note}
            self.record(last, "rows", note, group, simple_rivals("rows", group, self.target.gpu))
        self.done.update(f.rv.key for f in group)
        self.take(before)

    def beside(self, last: Facts) -> list[BlockRV]:
        """The outputs that are computed elementwise from the output `last`, and from nothing else."""
        if not self.is_output(last) or last.write is None or last.reduce:
            return []
        found = []
        for rv in self.sch.get_consumers(last.rv):
            f = facts_of(self.sch, rv)
            own = [a.var for a in f.axes]
            same = all(len(a.indices) == len(own) and all(map(is_, a.indices, own)) for a in f.accesses)
            alike = [a.extent for a in f.axes] == [a.extent for a in last.axes]
            if f.kind == "injective" and self.is_output(f) and same and alike and not f.guarded:
                found.append(rv)
        return found

    def apart(self, last: Facts, group: list[Facts]) -> list[Facts]:
        """The stages of long rows, for kernels of their own. Each kernel computes the elementwise stages that it reads
        again: that costs less than writing and reading them."""
        left = []
        for f in group:
            if f is not last and f.kind == "injective" and f.points == last.points:
                readers = [self.sch.realize(c).block.name_hint for c in self.sch.get_consumers(f.rv)]
                try:
                    self.sch.compute_inline(f.rv)
                except ScheduleError:
                    left.append(f.rv)
                else:
                    self.notes.inlined(f.name, readers)
            else:
                left.append(f.rv)
        return [facts_of(self.sch, rv) for rv in left]

    # -- sketches --------------------------------------------------------------------------
    def fused(self, loops: list[LoopRV], rv: BlockRV) -> LoopRV:
        if not loops:
            inside = self.sch.get_loops(rv)
            return self.sch.add_unit_loop(inside[0] if inside else rv)
        return self.sch.fuse(*loops) if len(loops) > 1 else loops[0]

    def spread(
        self, loop: LoopRV, threads: int, wide: int = 1, tag: str = "blockIdx.x", several: int = 1
    ) -> None:
        """Bind a loop to blocks and threads; each thread has `several` vectors of `wide` neighbours."""
        sch, size = self.sch, extent_of(self.sch, loop)
        if size is not None:
            threads = min(threads, power(-(-size // wide)))
        if several > 1:
            loop, times, rest = sch.split(loop, [None, several, threads * wide])
            thread, *inner = sch.split(rest, [threads, wide]) if wide > 1 else (rest,)
            sch.reorder(loop, thread, times, *inner)
            sch.unroll(times)
        else:
            loop, thread, *inner = sch.split(loop, [None, threads, wide] if wide > 1 else [None, threads])
        sch.bind(loop, tag)
        sch.bind(thread, "threadIdx.x")
        for x in inner:
            sch.vectorize(x)

    def fetch_early(self, at: BlockRV | LoopRV, threads: int) -> None:
        """Prefetch the first operands of a kernel while the kernel before it ends: those of the thread blocks, of
        `threads` threads, that the SMs have room for at once."""
        gpu = self.target.gpu
        if self.target.has("launch.early"):
            self.sch.annotate(at, FETCH_EARLY, gpu.multiprocessors * (gpu.limits.threads // threads))

    def plain(self, f: Facts) -> dict[str, object]:
        """A thread for each result, with the padding of its operands inlined."""
        sch = self.sch
        inline_padding(self, f)
        spatial = [
            x for x, iv in zip(sch.get_loops(f.rv), f.block.iter_vars, strict=False) if iv.iter_type == 0
        ]
        if not spatial or len(sch.get_loops(f.rv)) != len(f.block.iter_vars):
            raise ScheduleError("no loop can be shared by threads")
        sch.reorder(*spatial)
        self.spread(self.fused(spatial, f.rv), self.most)
        return {"threads": self.most}

    def single(self, f: Facts) -> dict[str, object]:
        """One thread for all results."""
        loop = self.fused([], f.rv)
        self.sch.bind(loop, "blockIdx.x")
        self.sch.bind(self.sch.add_unit_loop(f.rv), "threadIdx.x")
        return {"threads": 1}

    def across(self, loop: LoopRV) -> int:
        """Bind a loop along a row to threads."""
        size = extent_of(self.sch, loop)
        threads = self.most if size is None else min(self.most, power(size))
        _, thread = self.sch.split(loop, [None, threads])
        self.sch.bind(thread, "threadIdx.x")
        return threads

    def chain(self, last: Facts, group: list[Facts], beside: list[BlockRV]) -> dict[str, object]:
        """A chain of stages with its intermediate values in registers, or else in shared memory. The outputs `beside`,
        computed from its result, are part of the same kernel if possible."""
        if beside:
            with contextlib.suppress(ScheduleError), self.sch.all_or_nothing():
                return row_by_row(self, last, group, beside)
        try:
            with self.sch.all_or_nothing():
                return row_by_row(self, last, group)
        except TooLong:
            raise
        except ScheduleError as why:
            line = in_line(max((f for f in group if f.reduce), key=lambda f: f.points))
            if line is not None and not line.reduce:
                raise  # loads of threads along a row would not be coalesced
            return {**self.through_shared(last, group), "instead": reason_of(why)}

    def through_shared(self, last: Facts, group: list[Facts]) -> dict[str, object]:
        sch = self.sch
        rows, columns = rows_of(last, group)
        count = max(1, math.prod(a.extent for a in rows))
        held = sum(
            math.prod(a.extent for a in f.spatial) // count * f.bits // 8 for f in group if f is not last
        )
        if held > self.target.gpu.rows.shared_memory or not all(a.known for f in group for a in f.axes):
            raise ScheduleError(f"{held} bytes between the stages of a row are too much for shared memory")
        loops = dict(zip([a.var for a in last.axes], sch.get_loops(last.rv), strict=True))
        around = [loops[a.var] for a in rows]
        along = [loops[a.var] for a in (columns if last.kind != "reduction" else last.reduce)]
        sch.reorder(*around, *along)
        row = self.fused(around, last.rv)
        widest = max((extent_of(sch, x) or 1 for f in group for x in sch.get_loops(f.rv)), default=1)
        for f in reversed(group):
            if f is last:
                continue
            sch.compute_at(f.rv, row, preserve_unit_loops=True)
            sch.set_scope(f.rv, 0, "shared")
            own = sch.get_loops(f.rv)[1:]
            self.across(self.fused(own[-len(f.reduce) :] if f.kind == "reduction" else own, f.rv))
        self.across(self.fused(along, last.rv))
        sch.bind(row, "blockIdx.x")
        return {"rows": [a.var.name for a in rows], "threads": min(self.most, power(widest))}

    def tiles(self, f: Facts) -> dict[str, object]:
        sch = self.sch
        consumer = self.fusable_consumer(f)
        if consumer is not None:
            sch.set_scope(f.rv, 0, "local")
        epilogue = consumer if consumer is not None else sch.cache_write(f.rv, 0, "local")
        f = facts_of(sch, f.rv)
        wide, high = self.sides(f)
        gpu, shared = self.target.gpu, self.shared_reads(f)
        t = self.choose(
            f,
            "shared tile",
            self.tile_rule(f, wide, high),
            lambda: shared_tile_table(f, wide, high, shared, gpu),
        )
        copies = [self.copy(f, i) for i in range(len(f.block.reads)) if self.worth(f, i)]
        loops = dict(zip([a.var for a in f.axes], sch.get_loops(f.rv), strict=True))
        x = list(sch.split(loops[wide.var], [None, t.groups_wide, t.wide, t.own_wide]))
        y = (
            list(sch.split(loops[high.var], [None, t.groups_high, t.high, t.own_high]))
            if high is not None
            else []
        )
        others = [loops[a.var] for a in f.spatial if a is not wide and a is not high]
        reduces = [loops[a.var] for a in f.reduce]
        outer, *deep = reduces[0], *reduces[1:]
        size = extent_of(sch, reduces[0])
        within: list[LoopRV] = []
        step = t.depth if size is None else min(t.depth, size)
        if size is None or size > step or step > 1:
            outer, some = sch.split(reduces[0], [None, step])
            within = [some]
        parts = [y, x] if y else [x]
        spread = [p[k] for k in (0, 1, 2) for p in parts]
        sch.reorder(*others, *spread, outer, *within, *deep, *[p[3] for p in parts])
        names = ["x", "y"] if len(parts) == 1 else ["y", "x"]
        threads = [extent_of(sch, p[2]) or 1 for p in parts]
        if others:
            sch.bind(self.fused(others, f.rv), "blockIdx.z")
        for p, name in zip(parts, names, strict=False):
            for loop, axis in zip(p, ("blockIdx", "vthread", "threadIdx"), strict=False):
                if axis == "blockIdx" or loop is parts[-1][2] or (extent_of(sch, loop) or 2) > 1:
                    sch.bind(loop, f"{axis}.{name}")
        sch.reverse_compute_at(epilogue, parts[-1][2], preserve_unit_loops=True)
        for loop in [*(within + deep if t.unroll else []), *[p[3] for p in parts]]:
            sch.unroll(loop)
        for copy in copies:
            sch.compute_at(copy, outer, preserve_unit_loops=False)
            own = sch.get_loops(copy)[len(sch.get_loops(f.rv)) - len(within) - len(deep) - len(parts) :]
            shares = {
                n: x for n, x in zip(names, threads, strict=False) if x > 1 or n == names[len(parts) - 1]
            }
            self.fetched(copy, own, shares, t.fetch)
        return {
            "tile": " x ".join(str(t.side(a is wide)) for a in (high, wide) if a is not None),
            "threads": math.prod(threads),
            "shared": [sch.realize(c).block.name_hint for c in copies],
            "counts": shared_tile_counts(f, wide, high, shared, t, gpu),
        }

    def shared_reads(self, f: Facts) -> list[Access]:
        """The accesses to operands that are worth a copy in shared memory."""
        return [r for i in range(len(f.block.reads)) if self.worth(f, i) for r in self.reads_of(f, i)]

    def fetched(self, copy: BlockRV, own: list[LoopRV], threads: dict[str, int], wide: int) -> None:
        """Bind a copy to shared memory to all threads of a block, in vectors of `wide` elements."""
        sch = self.sch
        loop = self.fused(own, copy) if own else sch.add_unit_loop(copy)
        size = extent_of(sch, loop)
        inner = [wide] if wide > 1 and size is not None and size % wide == 0 else []
        _, *shares = sch.split(loop, [None, *threads.values(), *inner])
        for share, name in zip(shares, threads, strict=False):
            sch.bind(share, f"threadIdx.{name}")
        if inner:
            sch.vectorize(shares[-1])

    def tile_rule(self, f: Facts, wide: Axis, high: Axis | None) -> SharedTile:
        """The tile of the zero-trial schedule: small if there are few results, with up to 16 threads along a side."""
        sizes = [self.tile_of(high), self.tile_of(wide)]
        y, x = (min(16, size) for size in sizes)
        depth = max(1, min(_DEPTH // math.prod(a.extent for a in f.reduce[1:]), f.reduce[0].extent))
        return SharedTile(y, x, sizes[0] // y, sizes[1] // x, 1, 1, depth, 1, 0)

    def sides(self, f: Facts) -> tuple[Axis, Axis | None]:
        """The two axes of a tile: the contiguous one of the results, and one along which an operand is reused."""
        assert f.write is not None
        spatial = [a for a in f.spatial if a.extent > 1 and a.known]
        if not spatial:
            raise ScheduleError("there is no axis to make tiles of")
        wide = next((a for a in reversed(spatial) if f.write.stride(a) == 1), spatial[-1])
        rest = [a for a in spatial if a is not wide and any(not r.moves(a) for r in f.reads)]
        rest = rest or [a for a in spatial if a is not wide]
        return wide, max(rest, key=lambda a: a.extent, default=None)

    def tile_of(self, axis: Axis | None) -> int:
        """The size of a tile along an axis: small if the axis is short."""
        size = 1 if axis is None else axis.extent
        return 64 if size >= 512 else 32 if size >= 64 else min(16, power(size))

    def worth(self, f: Facts, index: int) -> bool:
        """Whether an operand is worth a copy in shared memory: threads of a tile read the same elements of it."""
        reads = self.reads_of(f, index)
        if any(r.gathered for r in reads):
            return False  # data-dependent indices: the elements may be anywhere
        return bool(reads) and all(
            any(not r.moves(a) for a in f.spatial if a.extent > 1) or any(r.moves(a) for a in f.reduce)
            for r in reads
        )

    def reads_of(self, f: Facts, index: int) -> list[Access]:
        """The accesses by which a block reads one of its buffers."""
        buffer = f.block.reads[index].buffer
        return [r for r in f.reads if r.buffer is buffer]

    def copy(self, f: Facts, index: int) -> BlockRV:
        """A copy of an operand in shared memory, with the stages inlined that prepare it (padding)."""
        copy = self.sch.cache_read(f.rv, index, "shared")
        for producer in self.sch.get_producers(copy):
            if producer.key in self.done:
                continue
            try:
                self.sch.compute_inline(producer)
            except ScheduleError:
                continue
        return copy


def _in_parallel(body: Stmt, least: int) -> bool:
    """Whether a body consists of loops that are marked parallel and have enough iterations for threads."""
    loops = [s for s in stmt_list(body) if isinstance(s, For) and s.kind is ForKind.PARALLEL]
    return len(loops) == len(stmt_list(body)) and all(number(s.extent) >= least for s in loops)
