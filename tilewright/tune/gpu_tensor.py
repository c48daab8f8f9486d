"""Sketches for tensor cores: products of matrices, alone or in batches, with what follows them element by element.

Their factors have 16 bits, or are bytes, or float32 that a target lets them round to ten bits (`-tf32`).

    wgmma    a warpgroup fetches tiles by bulk copies, others multiply them (sm_90a)
    mma      every warp fetches, loads fragments and multiplies (`gpu_warps`)

Sizes that are no whole tiles are padded with zeros on the way into shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..ir.buffer import Buffer
from ..ir.errors import ScheduleError
from ..ir.expr import Add, BufferLoad, Call, Cast, Mul, PrimExpr, Var, const_value
from ..ir.functor import pre_order
from ..ir.op import Op
from ..ir.stmt import BufferStore
from ..target import Target
from ..target.machine import GpuMachine
from ..tir.schedule import Schedule
from ..tir.schedule.primitive import BlockRV, LoopRV
from ..tir.tensor_intrin.cuda import get_wgmma_intrin
from ..tir.transform.lower_bulk_copies import BULK_COPY, TF32, line_of
from ..tir.transform.specialize_warps import PERSISTENT, SPECIALIZE
from .facts import Axis, Facts, facts_of
from .gpu_space import Table, product_table
from .gpu_transpose import turn, turned_read

if TYPE_CHECKING:
    from .gpu import GpuFunction

__all__ = [
    "Product",
    "Sketch",
    "Tile",
    "across",
    "applied",
    "by_warpgroups",
    "can_be_copied",
    "factors",
    "has_warpgroups",
    "in_line",
    "moves",
    "product_of",
    "some_of",
    "sums_from_zero",
    "takes",
    "turn_operands",
    "turning_cycles",
]

_KEPT = 2048  # bytes of shared memory for barriers and what the driver takes
_AFTER = 4  # additions' worth of work that storing a result takes anyway


@dataclass(frozen=True, slots=True)
class Product:
    """C[…, m, n] = Σ over k of A * B; in their last dimensions A is [m, k] or [k, m], and B [k, n] or [n, k]."""

    m: Axis
    n: Axis
    k: Axis
    others: tuple[Axis, ...]  # the rest of the results' axes
    a: Buffer
    b: Buffer
    trans_a: bool
    trans_b: bool
    windows: int = 1  # how many elements of A are the same one of an image
    in_line: int = 16  # neighbours along k that always lie side by side in A
    after: int = 0  # additions' worth of what is done with each result

    @property
    def kind(self) -> str:
        return str(self.a.dtype)

    @property
    def line(self) -> int:
        """The elements that a bulk copy has side by side."""
        return line_of(self.a.dtype)

    @property
    def batch(self) -> int:
        return math.prod(x.extent for x in self.others)


def product_of(f: Facts) -> Product | None:
    """A block as a product of matrices, if it is one: of floats of 16 or 32 bits that adds up in float32, or of bytes
    that adds up in int32."""
    body = f.block.body
    if len(f.reduce) != 1 or not all(x.known for x in f.axes) or not isinstance(body, BufferStore):
        return None
    loads = factors(body) if sums_from_zero(f, "float32", "int32") else None
    if loads is None or loads[0].buffer is loads[1].buffer or len(body.indices) < 2:
        return None
    by_var = {x.var: x for x in f.axes}
    if any(i not in by_var for i in body.indices):
        return None
    m, n = (by_var[v] for v in body.indices[-2:])  # type: ignore[index]
    k = f.reduce[0]
    sides: list[tuple[BufferLoad, bool]] = []
    for own, other in ((m, n), (n, m)):
        found = next((x for x in loads if own.var in x.indices and other.var not in x.indices), None)
        if found is None or not all(i in by_var or const_value(i) is not None for i in found.indices):
            return None
        last = tuple(by_var.get(i) if isinstance(i, Var) else None for i in found.indices[-2:])
        if last not in ((own, k), (k, own)) or len(set(found.indices)) != len(found.indices):
            return None
        sides.append((found, last[0] is (k if own is m else n)))
    (a, trans_a), (b, trans_b) = sides
    kinds, floats = {str(x.buffer.dtype) for x in (a, b)}, {"float16", "bfloat16", "float32"}
    if len(kinds) != 1 or not kinds <= (floats if body.buffer.dtype == "float32" else {"int8"}):
        return None
    others = tuple(x for x in f.spatial if x is not m and x is not n)
    return Product(m, n, k, others, a.buffer, b.buffer, trans_a, trans_b)


def sums_from_zero(f: Facts, *kinds: str) -> bool:
    """Whether a block adds up in one of some types, or in float32, beginning with 0."""
    first = f.block.init
    kind = None if f.write is None else str(f.write.buffer.dtype)
    return (
        isinstance(first, BufferStore) and const_value(first.value) == 0 and kind in (kinds or ("float32",))
    )


def factors(body: BufferStore) -> tuple[BufferLoad, BufferLoad] | None:
    """The two elements whose product is added."""
    value = body.value
    if not isinstance(value, Add):
        return None
    for total, term in ((value.a, value.b), (value.b, value.a)):
        if isinstance(total, BufferLoad) and total.buffer is body.buffer and isinstance(term, Mul):
            a, b = _narrow(term.a), _narrow(term.b)
            if isinstance(a, BufferLoad) and isinstance(b, BufferLoad):
                return a, b
    return None


def _narrow(e: PrimExpr) -> PrimExpr:
    return e.value if isinstance(e, Cast) else e


def moves(e: PrimExpr) -> bool:
    """Whether a value is an element as it is, or 0 where some condition says so."""
    if isinstance(e, Call) and isinstance(e.op, Op) and e.op.short_name == "if_then_else":
        known = not any(isinstance(m, BufferLoad) for m in pre_order(e.args[0]))
        return known and const_value(e.args[2]) == 0 and moves(e.args[1])
    return isinstance(e, BufferLoad)


# ---------------------------------------------------------------------------- sizes
@dataclass(frozen=True, slots=True)
class Tile:
    """Results of a block, how many steps of the reduction are on their way, and into how many parts it is cut."""

    rows: int
    columns: int
    stages: int
    parts: int
    per_processor: int
    depth: int = 64  # of the reduction, that is fetched at once

    @property
    def threads(self) -> int:
        """Those that multiply."""
        return max(32, self.rows * self.columns // 128)


def best_tile(p: Product, gpu: GpuMachine) -> Tile:
    """The tile that a product should take the least time with, by a count of cycles; the smallest of such."""
    return min(possible_tiles(p, gpu), key=lambda t: (cycles(p, t, gpu), t.rows * t.columns))


def possible_tiles(p: Product, gpu: GpuMachine, fewer_stages: bool = False) -> list[Tile]:
    """The tiles of warpgroups that fit, with as many steps on their way as there is room for, or fewer as well."""
    found: list[Tile] = []
    steps, size_of = -(-p.k.extent // p.line), p.a.dtype.nbytes
    for rows, columns in ((128, 256), (128, 128), (128, 64), (64, 256), (64, 128), (64, 64)):
        if rows >= 2 * max(64, p.m.extent) or columns >= 2 * max(64, p.n.extent):
            continue
        size = (rows + columns) * p.line * size_of
        for per in (1, 2):
            room = (gpu.dynamic_shared_memory_per_block - _KEPT) // per - (_KEPT if per > 1 else 0)
            stages = min(8, room // size, max(2, steps))
            # More warpgroups, or more sums of one, take all registers of a processor.
            if stages < 2 or (per == 2 and (rows > 64 or columns > 128)):
                continue
            for parts in (1, 2, 3, 4, 6, 8, 12, 16):
                if parts > 1 and (steps < 2 * parts or (p.windows > 1 and steps % parts)):
                    continue  # windows have no elements more, that could be 0
                counts = range(stages, 1, -1) if fewer_stages else (stages,)
                found += [Tile(rows, columns, n, parts, per, p.line) for n in counts]
    return found


def cycles(p: Product, t: Tile, gpu: GpuMachine) -> float:
    """About how long a product takes, in cycles of a multiprocessor."""
    down, across = -(-p.m.extent // t.rows), -(-p.n.extent // t.columns)
    tiles = down * across * p.batch * t.parts
    steps, size = math.ceil(p.k.extent / p.line / t.parts), p.a.dtype.nbytes
    at_once = min(t.per_processor, -(-tiles // gpu.multiprocessors))
    # A product of 64 x n x 32 bytes takes n / 2 cycles, or as long as its operands come out of shared memory; one
    # after the other they reach three quarters of that rate.
    work = t.rows // 64 * 4 * max(t.columns / 2, 16 + t.columns / 4) / 0.75
    fetched = (t.rows + t.columns) * p.line * size
    busy = max(work, fetched / 64, fetched / (gpu.bandwidth / gpu.clock / gpu.multiprocessors * 3.5))
    # What is on its way must cover the time that the first of it takes.
    step = max(at_once * busy, 2000 / t.stages)
    rounds = -(-tiles // (gpu.multiprocessors * at_once))
    # Each warpgroup stores 64 rows, all at once. Results of whole tiles go eight at a time, those of others four by
    # four under conditions.
    whole = t.parts > 1 or (p.m.extent % t.rows == 0 and p.n.extent % t.columns == 0)
    column = 10 if whole else 50 if p.n.extent % 4 else 30
    ends = t.columns * column * max(1.0, (p.after if t.parts == 1 else 0) / _AFTER) + 1000
    total = rounds * (steps * step + ends) + 3500
    # All that is read comes from the main memory once, however it is shared: at its full rate only if most
    # processors ask for it, and for long pieces of its rows.
    unique = size * p.batch * p.k.extent * (p.m.extent // p.windows + p.n.extent)
    rate = (0.85 if t.columns >= 128 or p.trans_b else 0.7) * min(1, tiles / (0.8 * gpu.multiprocessors))
    total = max(total, unique / (gpu.bandwidth * rate) * gpu.clock + 4000)
    if t.parts > 1:  # the sums of the parts are written, read and added by another kernel
        sums = 8 * p.batch * down * t.rows * across * t.columns * t.parts
        total += 4000 + sums / gpu.bandwidth * gpu.clock
    return total


# ---------------------------------------------------------------------------- warpgroups
def has_warpgroups(target: Target) -> bool:
    """Whether a target has products of warpgroups and bulk copies."""
    return target.kind.name == "cuda" and target.gpu.arch == "sm_90a"


def takes(target: Target, kind: str) -> bool:
    """Whether a target gives products of a type to tensor cores: float32 only where it may be rounded."""
    return kind != "float32" or bool(target.attrs.get("tf32"))


def can_be_copied(b: Buffer) -> bool:
    """Whether bulk copies can take boxes of a tensor: its lines start at multiples of 16 bytes."""
    sizes = [const_value(s) for s in b.dense_strides()[:-1]]
    return all(s is not None and int(s) * b.dtype.nbytes % 16 == 0 for s in sizes) and len(b.shape) <= 5


def by_warpgroups(g: GpuFunction, f: Facts, p: Product, after: BlockRV | None = None) -> dict[str, Any]:
    """Tiles of a product by warpgroups, results stored from registers."""
    if p.kind == "int8":
        raise ScheduleError("products of warpgroups are made of floats here")
    if not has_warpgroups(g.target) or not takes(g.target, p.kind):
        raise ScheduleError(f"the target has no products of warpgroups for {p.kind}")
    gpu = g.target.gpu
    turned = across(p) if p.kind == "float32" else []
    if turned:
        f, p = in_line(g, f, p, lambda made: cycles(made, best_tile(made, gpu), gpu))
    if not can_be_copied(p.a) or not can_be_copied(p.b):
        raise ScheduleError("bulk copies cannot take its operands")
    taker = after or g.fusable_consumer(f)
    if taker is not None:
        p = replace(p, after=facts_of(g.sch, taker).work)
    tile = g.choose(f, "warpgroups", best_tile(p, gpu), lambda: _warpgroups_table(p, gpu))
    note = applied(Warpgroups, g, f, p, tile, after)
    return {**note, "turned before": turned} if turned else note


def across(p: Product) -> list[str]:
    """The operands that do not lie in line along the reduction."""
    return [b.name for b, turned in ((p.a, p.trans_a), (p.b, not p.trans_b)) if turned]


def in_line(
    g: GpuFunction, f: Facts, p: Product, time: Callable[[Product], float], otherwise: float = 0
) -> tuple[Facts, Product]:
    """A product whose operands lie in line along the reduction, as some instructions take them only: those that do not
    are turned by kernels of their own, where that takes less time than it saves; `time` says how many cycles the
    product takes then, and `otherwise` what it would take: if not said, what float32 does without tensor cores.

        C[i, j] += A[i, k] * B[k, j]     ->     T[j, k] = B[k, j];   C[i, j] += A[i, k] * T[j, k]
    """
    gpu = g.target.gpu
    made = replace(p, trans_a=False, trans_b=True)
    sides = [x for x, turned in ((p.a, p.trans_a), (p.b, not p.trans_b)) if turned]
    # in cycles: float32 reaches about 0.8 of its rate, and its kernel takes some time to begin too
    flops = 2 * p.batch * p.m.extent * p.n.extent * p.k.extent
    plain = flops / (0.8 * gpu.peak_flops) * gpu.clock * 1e9 + 4000
    turning = turning_cycles(sides, gpu)
    if (otherwise or not g.free) and turning + time(made) > (otherwise or plain):
        raise ScheduleError("turning its operands would take longer than it saves")
    return turn_operands(g, f, p, sides, True)


def turning_cycles(sides: Sequence[Buffer], gpu: GpuMachine) -> float:
    """About how long it takes to turn tensors; each kernel more takes some time to begin."""
    moved = sum(2 * math.prod(int(const_value(d) or 1) for d in b.shape) * b.dtype.nbytes for b in sides)
    return moved / (0.8 * gpu.bandwidth) * gpu.clock + 4000 * len(sides)


def turn_operands(
    g: GpuFunction, f: Facts, p: Product, sides: Sequence[Buffer], along: bool
) -> tuple[Facts, Product]:
    """A product some of whose operands are turned by kernels of their own, so that their lines lie along the reduction,
    or across it."""
    sch = g.sch
    for b, own in ((p.a, p.m), (p.b, p.n)):
        if b not in sides:
            continue
        reads = [r.buffer for r in sch.get(f.rv).reads]
        kept = [x.var for x in p.others if x.var in _indices(f, b)]
        last = [own.var, p.k.var] if along else [p.k.var, own.var]
        copy = sch.reindex_cache_read(f.rv, reads.index(b), "global", some_of(f, [*kept, *last]))
        if not along:  # its iterators are those of the product
            sch.transform_block_layout(copy, lambda *its: (*its[:-2], its[-1], its[-2]))
        facts = facts_of(sch, copy)
        read = turned_read(facts)
        if read is None:
            raise ScheduleError(f"{b.name} cannot be turned")
        turn(g, facts, *read)
        g.done.add(copy.key)
    f = facts_of(sch, f.rv)
    found = product_of(f)
    if found is None:
        raise ScheduleError(f"{f.name} with turned operands is no product of matrices")
    return f, found


def some_of(f: Facts, wanted: Sequence[Var]) -> Callable[..., list[Any]]:
    """A map from all iterators of a block to some of them."""
    at = [[x.var for x in f.axes].index(v) for v in wanted]
    return lambda *its: [its[i] for i in at]


def _indices(f: Facts, b: Buffer) -> set[object]:
    """What a buffer is indexed by."""
    return {i for r in f.reads if r.buffer is b for i in r.indices}


def _warpgroups_table(p: Product, gpu: GpuMachine) -> Table:
    tiles, rate = possible_tiles(p, gpu, True), 16.0 * p.line
    return product_table(tiles, p, gpu, lambda t: cycles(p, t, gpu) / (gpu.clock * 1e9), rate)


class Sketch:
    """What both kinds of instructions have in common: padding, parts of the sum, the order of tiles."""

    fragment = ""  # the scope of sums
    lines = 0  # of results that one instruction turns

    def __init__(
        self, g: GpuFunction, f: Facts, p: Product, tile: Tile, after: BlockRV | None = None
    ) -> None:
        self.g, self.sch, self.f, self.p, self.tile = g, g.sch, f, p, tile
        self.after = after or g.fusable_consumer(f)  # what takes the results, one by one
        self.block = f.rv

    def prepare(self) -> tuple[BlockRV, dict[Var | None, LoopRV]]:
        """The block that takes the sums out of registers, and the loops of the product by the axes' variables."""
        sch, t, p = self.sch, self.tile, self.p
        tail = self.pad(self.after)
        if t.parts > 1:
            self.cut(tail)
            tail = None
        if tail is None:
            tail = sch.cache_write(self.block, 0, self.fragment)
        else:
            sch.set_scope(self.block, 0, self.fragment)
        names: list[Var | None] = [x.var for x in self.f.axes]
        if t.parts > 1:
            names.insert(names.index(p.k.var), None)  # the parts
        return tail, dict(zip(names, sch.get_loops(self.block), strict=True))

    def inputs(self, which: int, scope: str) -> BlockRV:
        """A copy of an operand; what only pads it is done on the way."""
        copy = self.sch.cache_read(self.block, which, scope)
        while left := [p for p in self.sch.get_producers(copy) if self.only_moves(p)]:
            self.sch.compute_inline(left[0])
        return copy

    def only_moves(self, rv: BlockRV) -> bool:
        """Whether a stage that nobody has scheduled does nothing but place elements, or pad them with zeros."""
        body = self.sch.get(rv).body
        return rv.key not in self.g.done and isinstance(body, BufferStore) and moves(body.value)

    def tiles(self, i: LoopRV, j: LoopRV, loops: dict[Var | None, LoopRV], *inner: LoopRV) -> LoopRV:
        """One loop over all tiles. Neighbours in time share the cache: some rows of tiles, column by column."""
        sch = self.sch
        count = int(const_value(sch.get(i).extent) or 1)
        band = max(n for n in range(1, min(16, count) + 1) if count % n == 0)
        bands, i1 = sch.split(i, [None, band])
        others = [loops[x.var] for x in self.p.others] + ([loops[None]] if self.tile.parts > 1 else [])
        sch.reorder(*others, bands, j, i1, *inner)
        return sch.fuse(*others, bands, j, i1)

    def pad(self, consumer: BlockRV | None) -> BlockRV | None:
        """Make all sizes whole tiles; the block that takes the results, if there is one."""
        sch, t, p = self.sch, self.tile, self.p
        sizes = {p.m.var: t.rows, p.n.var: t.columns, p.k.var: t.depth * t.parts}
        padding = [sizes.get(x.var, 1) for x in self.f.axes]
        if all(x.extent % n == 0 for x, n in zip(self.f.axes, padding, strict=True)):
            return consumer
        before = {b.key for b in sch.get_child_blocks(self.g.root)}
        sch.pad_einsum(self.block, padding)
        made = [b for b in sch.get_child_blocks(self.g.root) if b.key not in before]
        trim = next((b for b in sch.get_consumers(self.block) if b.key in {x.key for x in made}), None)
        if trim is not None and consumer is not None:
            sch.compute_inline(trim)
            trim = None
        return consumer if trim is None else trim

    def cut(self, last: BlockRV | None) -> None:
        """Sum up parts of the reduction beside each other, and add them in a kernel of its own, with what follows."""
        sch = self.sch
        whole, at = self.block, [x.var for x in self.f.axes].index(self.p.k.var)
        parts, _ = sch.split(sch.get_loops(whole)[at], [self.tile.parts, None])
        self.block = sch.rfactor(parts, 0)
        if last is not None:
            sch.set_scope(whole, 0, "local")
        wide = 2 if self.p.n.extent % 2 == 0 else 1
        loops = sch.get_loops(last or whole)
        if last is None:
            loops = [
                x for x, v in zip(loops, sch.realize(whole).block.iter_vars, strict=True) if v.iter_type == 0
            ]
            sch.reorder(*loops)
        if last is not None and math.prod(_sizes(sch, loops)) % (128 * wide):
            # Threads that go on from one line to the next, and end before they are all used, would seem to share sums.
            *lines, column = loops
            size = _sizes(sch, [column])[0] // wide
            threads = max(n for n in range(1, 129) if size % n == 0)
            threads = threads if threads >= 32 else min(128, size)
            piece, thread, pair = sch.split(column, [None, threads, wide])
            block = self.g.fused([*lines, piece], last)
        else:
            block, thread, pair = sch.split(self.g.fused(loops, last or whole), [None, 128, wide])
        sch.bind(block, "blockIdx.x")
        sch.bind(thread, "threadIdx.x")
        if last is not None:
            sch.compute_at(whole, thread, preserve_unit_loops=True)
            sch.vectorize(pair)

    def store(self, tail: BlockRV, at: LoopRV, turning: str) -> None:
        """What follows the product, from registers to memory; results of 16 bits are turned to go eight at a time, if
        there is an instruction for that."""
        sch, t, p = self.sch, self.tile, self.p
        written = sch.get(tail).writes[0].buffer
        whole = p.m.extent % t.rows == 0 and p.n.extent % t.columns == 0
        if str(written.dtype) != p.kind or not whole or not turning:
            sch.reverse_compute_at(tail, at, preserve_unit_loops=True)
            return self.spread(tail)
        out = sch.reindex_cache_write(tail, 0, self.fragment, lambda *its: its)
        turn = sch.cache_read(out, 0, self.fragment.replace("accumulator", "rows"))
        for block in (tail, turn, out):
            sch.reverse_compute_at(block, at, preserve_unit_loops=True)
        self.spread(tail)
        i = sch.get_loops(turn)[-2]
        if const_value(sch.get(i).extent) != self.lines:
            several, i = sch.split(i, [None, self.lines])
            sch.unroll(several)
        sch.tensorize(i, turning)
        self.spread(out, 8)
        return None

    def apply(self) -> dict[str, Any]:
        """Schedule the product; what is told of it."""
        raise NotImplementedError

    def spread(self, tail: BlockRV, wide: int = 2) -> None:
        """The results to the threads that hold them, so many neighbours at a time."""
        raise NotImplementedError


def _sizes(sch: Schedule, loops: Sequence[LoopRV]) -> list[int]:
    return [int(const_value(sch.get(x).extent) or 1) for x in loops]


def applied(
    kind: type[Sketch], g: GpuFunction, f: Facts, p: Product, tile: Tile, after: BlockRV | None
) -> dict[str, Any]:
    """Apply a sketch; without parts of the sum where these are refused."""
    try:
        with g.sch.all_or_nothing():
            return kind(g, f, p, tile, after).apply()
    except ScheduleError:
        if tile.parts == 1:
            raise
    return kind(g, f, p, replace(tile, parts=1), after).apply()


class Warpgroups(Sketch):
    fragment, lines = "wgmma.accumulator", 64

    def apply(self) -> dict[str, Any]:
        sch, p, t = self.sch, self.p, self.tile
        tail, loops = self.prepare()
        i, group, i2 = sch.split(loops[p.m.var], [None, t.rows // 64, 64])
        j, j1 = sch.split(loops[p.n.var], [None, t.columns])
        depth, k1 = sch.split(loops[p.k.var], [None, t.depth])
        blocks = self.tiles(i, j, loops, group, depth, i2, j1, k1)
        sch.bind(blocks, "blockIdx.x")
        sch.bind(group, "threadIdx.y")
        for which in (0, 1):
            copy = self.inputs(which, "shared.dyn")
            sch.compute_at(copy, depth, preserve_unit_loops=True)
            around = len(sch.get_loops(self.block)) - 3
            how = TF32 if p.kind == "float32" else 1
            sch.annotate(sch.blockize(sch.get_loops(copy)[around]), BULK_COPY, how)
        sch.annotate(depth, SPECIALIZE, t.stages)
        grid = const_value(sch.get(blocks).extent)
        if t.per_processor == 1 and (grid or 0) > self.g.target.gpu.multiprocessors:
            sch.annotate(depth, PERSISTENT, self.g.target.gpu.multiprocessors)
        intrinsics = get_wgmma_intrin(t.columns, p.kind, p.trans_a, p.trans_b)
        self.store(tail, group, intrinsics.get("turn", ""), intrinsics.get("turn_sums", ""))
        init = sch.decompose_reduction(self.block, depth)
        sch.tensorize(sch.get_loops(init)[-2], intrinsics["init"])
        sch.tensorize(i2, intrinsics["compute"])
        return {
            "tile": f"{t.rows} x {t.columns} x {t.depth}",
            "stages": t.stages,
            "threads": 128 * (t.rows // 64 + 1),
            **({"parts of the sum": t.parts} if t.parts > 1 else {}),
            "instructions": intrinsics["compute"],
        }

    def store(self, tail: BlockRV, at: LoopRV, turning: str, first: str = "") -> None:
        """Results that are not turned eight at a time are turned as sums, before anything is done with them: four go
        to memory at once, and what they are combined with comes so."""
        sch, t, p = self.sch, self.tile, self.p
        whole = p.m.extent % t.rows == 0 and p.n.extent % t.columns == 0
        eight = turning and whole and str(sch.get(tail).writes[0].buffer.dtype) == p.kind
        if eight or not first or p.n.extent % 4:
            return super().store(tail, at, turning)
        turn = sch.cache_write(self.block, 0, self.fragment)
        sch.set_scope(turn, 0, "wgmma.rows")
        for block in (turn, tail):
            sch.reverse_compute_at(block, at, preserve_unit_loops=True)
        sch.tensorize(sch.get_loops(turn)[-2], first)
        return self.spread(tail, 4)

    def spread(self, tail: BlockRV, wide: int = 2) -> None:
        """The results of a warpgroup to the threads that hold them: pairs beside each other, rows eight apart."""
        sch = self.sch
        i, j = sch.get_loops(tail)[-2:]
        warp, half, row = sch.split(i, [4, 2, 8])
        if wide == 4:  # every second thread has the second half of 16 columns
            eight, second, quad, pair = sch.split(j, [None, 2, 2, wide])
            sch.reorder(warp, row, quad, second, eight, half, pair)
            sch.bind(sch.fuse(warp, row, quad, second), "threadIdx.x")
        else:
            eight, quad, pair = sch.split(j, [None, 4, wide])
            sch.reorder(warp, row, quad, eight, half, pair)
            sch.bind(sch.fuse(warp, row, quad), "threadIdx.x")
        for x in (eight, half):
            sch.unroll(x)
        if self.p.n.extent % 2 == 0:
            sch.vectorize(pair)
