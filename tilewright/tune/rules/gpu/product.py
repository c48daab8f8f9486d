"""Matrix products, alone or in batches: their sizes and operands, and the steps that all kernels for them share.

Sizes that are not multiples of a tile are padded with zeros by the copies to shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ....ir.buffer import Buffer
from ....ir.expr import Add, BufferLoad, Call, Cast, Mul, PrimExpr, Var, const_value
from ....ir.functor import pre_order
from ....ir.op import Op
from ....ir.stmt import BufferStore
from ....target import Target
from ....target.gpu_machine import GpuMachine, KernelFigures
from ....tir.schedule import Schedule
from ....tir.schedule.primitive import BlockRV, LoopRV
from ....tir.transform.lower_bulk_copies import line_of
from ...program.facts import Axis, Facts, facts_of
from ...program.patterns import TRANSPOSED
from ..rule import Refusal
from .kernel import Kernel
from .transpose import transpose, transposed_read

__all__ = [
    "Product",
    "Sketch",
    "Tile",
    "across",
    "can_be_copied",
    "can_be_transposed",
    "factors",
    "moves",
    "product_of",
    "some_of",
    "split_counts",
    "stored_bytes",
    "sums_from_zero",
    "takes",
    "transpose_cycles",
    "transpose_operands",
]


@dataclass(frozen=True, slots=True)
class Product:
    """C[…, m, n] = Σ over k of A * B; in their last dimensions A is [m, k] or [k, m], and B [k, n] or [n, k]."""

    m: Axis
    n: Axis
    k: Axis
    others: tuple[Axis, ...]  # the batch axes of the results
    a: Buffer
    b: Buffer
    trans_a: bool
    trans_b: bool
    windows: int = 1  # im2col: how many elements of the view are copies of one element of the image
    view: int = 0  # which operand is the view: 0 or 1
    pieces: tuple[int, int] = (
        16,
        16,
    )  # elements of A and of B that are always contiguous in memory; 1: gathered
    after: int = 0  # work of the epilogue for each result, in additions
    stored: int = 4  # bytes of a result in memory

    @property
    def kind(self) -> str:
        return str(self.a.dtype)

    @property
    def line(self) -> int:
        """The elements of a row of a TMA tile."""
        return line_of(self.a.dtype)

    @property
    def batch(self) -> int:
        return math.prod(x.extent for x in self.others)

    def vector(self, which: int) -> int:
        """The elements of A or B that a thread can copy at once: up to 16 bytes that are contiguous and aligned."""
        b = self.b if which else self.a
        rows = [int(const_value(s) or 1) for s in b.dense_strides()[:-1]]
        return math.gcd(16 // b.dtype.nbytes, self.pieces[which], *rows)

    def by_registers(self, which: int) -> bool:
        """Whether the elements that are copied at once are too few for an asynchronous copy, of 4 bytes at least."""
        return self.vector(which) * self.a.dtype.nbytes < 4


def stored_bytes(f: Facts) -> int:
    """The bytes of a result of a block in memory."""
    return 4 if f.write is None else int(f.write.buffer.dtype.nbytes)


def product_of(f: Facts, dynamic: bool = False) -> Product | None:
    """A block as a matrix product, if it is one: of 16- or 32-bit floats accumulated in float32, or of int8 accumulated
    in int32. With `dynamic` the number of its rows may be a dynamic size."""
    body = f.block.body
    if len(f.reduce) != 1 or not isinstance(body, BufferStore):
        return None
    loads = factors(body) if sums_from_zero(f, "float32", "int32") else None
    if loads is None or loads[0].buffer is loads[1].buffer or len(body.indices) < 2:
        return None
    by_var = {x.var: x for x in f.axes}
    if any(i not in by_var for i in body.indices):
        return None
    m, n = (by_var[v] for v in body.indices[-2:])  # type: ignore[index]
    k = f.reduce[0]
    if not all(x.known or (dynamic and x is m) for x in f.axes):
        return None
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
    """Whether a block accumulates in one of `kinds` (float32 if none is given), beginning with 0."""
    first = f.block.init
    kind = None if f.write is None else str(f.write.buffer.dtype)
    return (
        isinstance(first, BufferStore) and const_value(first.value) == 0 and kind in (kinds or ("float32",))
    )


def factors(body: BufferStore) -> tuple[BufferLoad, BufferLoad] | None:
    """The two factors of the product that a reduction adds."""
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
    """Whether a value is an unchanged element, or 0 under some condition (padding)."""
    if isinstance(e, Call) and isinstance(e.op, Op) and e.op.short_name == "if_then_else":
        known = not any(isinstance(m, BufferLoad) for m in pre_order(e.args[0]))
        return known and const_value(e.args[2]) == 0 and moves(e.args[1])
    return isinstance(e, BufferLoad)


# ---------------------------------------------------------------------------- sizes
@dataclass(frozen=True, slots=True)
class Tile:
    """The results of a thread block, the stages of its pipeline, and the parts of split-K."""

    rows: int
    columns: int
    stages: int
    parts: int
    per_processor: int
    depth: int = 64  # elements along the reduction of a stage

    @property
    def threads(self) -> int:
        """The threads that multiply."""
        return max(32, self.rows * self.columns // 128)


def split_counts(p: Product, results: int, parts: int, kernel: KernelFigures) -> dict[str, Any]:
    """The counts of split-K: partial sums in float32 are written, and another kernel reads and adds them."""
    if parts == 1:
        return {}
    return {
        "split": 8 * p.batch * results * parts,
        "split_rate": kernel.split_rate,
        "split_launch": kernel.split_launch,
    }


# ---------------------------------------------------------------------------- operands
def takes(target: Target, kind: str) -> bool:
    """Whether a target multiplies a type on tensor cores: float32 only if it may be rounded to tf32."""
    return kind != "float32" or bool(target.attrs.get("tf32"))


def can_be_copied(b: Buffer) -> bool:
    """Whether TMA can copy boxes of a tensor: its rows begin at multiples of 16 bytes, and its rank is at most 5."""
    sizes = [const_value(s) for s in b.dense_strides()[:-1]]
    return all(s is not None and int(s) * b.dtype.nbytes % 16 == 0 for s in sizes) and len(b.shape) <= 5


def across(p: Product) -> list[Buffer]:
    """The operands that are not contiguous along the reduction."""
    return [b for b, apart in ((p.a, p.trans_a), (p.b, not p.trans_b)) if apart]


def can_be_transposed(p: Product, b: Buffer) -> bool:
    """Whether a kernel can transpose an operand: its rows and columns are not too few."""
    return min(p.k.extent, (p.m if b is p.a else p.n).extent) >= TRANSPOSED


def transpose_cycles(sides: Sequence[Buffer], gpu: GpuMachine) -> float:
    """Estimated cycles for transposing tensors, with the launch of a kernel for each."""
    moved = sum(2 * math.prod(int(const_value(d) or 1) for d in b.shape) * b.dtype.nbytes for b in sides)
    return moved / (gpu.tile.transpose_rate * gpu.bandwidth) * gpu.clock + gpu.tile.kernel_launch * len(sides)


def transpose_operands(
    g: Kernel, f: Facts, p: Product, sides: Sequence[Buffer], along: bool
) -> tuple[Facts, Product]:
    """Transpose the operands `sides` of a product by separate kernels, so that they are contiguous `along` the
    reduction, or else along the results."""
    sch = g.sch
    for b, own in ((p.a, p.m), (p.b, p.n)):
        if b not in sides:
            continue
        reads = [r.buffer for r in sch.get(f.rv).reads]
        kept = [x.var for x in p.others if x.var in _indices(f, b)]
        last = [own.var, p.k.var] if along else [p.k.var, own.var]
        copy = sch.reindex_cache_read(f.rv, reads.index(b), "global", some_of(f, [*kept, *last]))
        if not along:  # the copy has the order of iterators that the product has
            sch.transform_block_layout(copy, lambda *its: (*its[:-2], its[-1], its[-2]))
        facts = facts_of(sch, copy)
        read = transposed_read(facts)
        assert read is not None  # `can_be_transposed` has checked it
        transpose(g, facts, *read)
        g.finished.append(copy.key)
    f = facts_of(sch, f.rv)
    found = product_of(f)
    assert found is not None  # its operands have changed their order, and nothing else
    return f, found


def some_of(f: Facts, wanted: Sequence[Var]) -> Callable[..., list[Any]]:
    """A map from all iterators of a block to some of them."""
    at = [[x.var for x in f.axes].index(v) for v in wanted]
    return lambda *its: [its[i] for i in at]


def _indices(f: Facts, b: Buffer) -> set[object]:
    """The indices of all reads of a buffer."""
    return {i for r in f.reads if r.buffer is b for i in r.indices}


# ---------------------------------------------------------------------------- the sketch
class Sketch:
    """The common part of the sketches for products: padding, split-K, the order of tiles, the epilogue."""

    fragment = ""  # the scope of the accumulators
    lines = 0  # rows of results that one instruction transposes between threads

    def __init__(self, g: Kernel, f: Facts, p: Product, tile: Tile, after: BlockRV | None = None) -> None:
        self.g, self.sch, self.f, self.p, self.tile = g, g.sch, f, p, tile
        self.after = after or g.fusable_consumer(f)  # the epilogue
        self.block = f.rv

    def prepare(self) -> tuple[BlockRV, dict[Var | None, LoopRV]]:
        """Pad and split the product. Returns the block that stores the accumulators (the epilogue, or a copy), and the
        loops of the product by the variables of its axes."""
        sch, t, p = self.sch, self.tile, self.p
        epilogue = self.pad(self.after)
        if t.parts > 1:
            self.cut(epilogue)
            epilogue = None
        if epilogue is None:
            epilogue = sch.cache_write(self.block, 0, self.fragment)
        else:
            sch.set_scope(self.block, 0, self.fragment)
        names: list[Var | None] = [x.var for x in self.f.axes]
        if t.parts > 1:
            names.insert(names.index(p.k.var), None)  # the parts of split-K
        return epilogue, dict(zip(names, sch.get_loops(self.block), strict=True))

    def inputs(self, which: int, scope: str) -> BlockRV:
        """A copy of an operand, with the stages inlined that only move or pad its elements."""
        copy = self.sch.cache_read(self.block, which, scope)
        while left := [p for p in self.sch.get_producers(copy) if self.only_moves(p)]:
            self.sch.compute_inline(left[0])
        return copy

    def only_moves(self, rv: BlockRV) -> bool:
        """Whether a stage that is not scheduled yet only moves elements, or pads them with zeros."""
        body = self.sch.get(rv).body
        return not self.g.is_done(rv) and isinstance(body, BufferStore) and moves(body.value)

    def tiles(self, i: LoopRV, j: LoopRV, loops: dict[Var | None, LoopRV], *inner: LoopRV) -> LoopRV:
        """One loop over all tiles. Tiles that run at the same time share operands in the L2 cache: bands of some rows
        of tiles, traversed column by column."""
        sch = self.sch
        count = int(const_value(sch.get(i).extent) or 1)
        band = max(n for n in range(1, min(16, count) + 1) if count % n == 0)
        bands, i1 = sch.split(i, [None, band])
        others = [loops[x.var] for x in self.p.others] + ([loops[None]] if self.tile.parts > 1 else [])
        sch.reorder(*others, bands, j, i1, *inner)
        return sch.fuse(*others, bands, j, i1)

    def pad(self, consumer: BlockRV | None) -> BlockRV | None:
        """Pad all sizes to multiples of the tile. Returns the block that consumes the results, if there is one."""
        sch, t, p = self.sch, self.tile, self.p
        sizes = {p.m.var: t.rows, p.n.var: t.columns, p.k.var: t.depth * t.parts}
        padding = [sizes.get(x.var, 1) for x in self.f.axes]
        if all(x.extent % n == 0 and (x.known or n == 1) for x, n in zip(self.f.axes, padding, strict=True)):
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
        """Split-K: reduce the parts in parallel, and add their sums in a second kernel, with the epilogue."""
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
            # The last thread block would be partial and threads would continue from one row to the next: the analysis
            # could not tell that they do not share sums.
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

    def store(self, epilogue: BlockRV, at: LoopRV, transposing: str) -> None:
        """Schedule the epilogue from registers to memory. If there is an instruction for it, 16-bit results are
        transposed between threads first, so that each stores eight at a time."""
        sch, t, p = self.sch, self.tile, self.p
        written = sch.get(epilogue).writes[0].buffer
        whole = p.m.extent % t.rows == 0 and p.n.extent % t.columns == 0
        if str(written.dtype) != p.kind or not whole or not transposing:
            sch.reverse_compute_at(epilogue, at, preserve_unit_loops=True)
            return self.spread(epilogue)
        out = sch.reindex_cache_write(epilogue, 0, self.fragment, lambda *its: its)
        rows = sch.cache_read(out, 0, self.fragment.replace("accumulator", "rows"))
        for block in (epilogue, rows, out):
            sch.reverse_compute_at(block, at, preserve_unit_loops=True)
        self.spread(epilogue)
        i = sch.get_loops(rows)[-2]
        if const_value(sch.get(i).extent) != self.lines:
            several, i = sch.split(i, [None, self.lines])
            sch.unroll(several)
        sch.tensorize(i, transposing)
        self.spread(out, 8)
        return None

    def apply(self) -> dict[str, Any] | Refusal:
        """Schedule the product. Returns the notes for `explain()`; a Refusal if the program does not allow it."""
        raise NotImplementedError

    def spread(self, epilogue: BlockRV, wide: int = 2) -> None:
        """Bind the results to the threads that hold them, `wide` neighbours at a time."""
        raise NotImplementedError


def _sizes(sch: Schedule, loops: Sequence[LoopRV]) -> list[int]:
    return [int(const_value(sch.get(x).extent) or 1) for x in loops]
