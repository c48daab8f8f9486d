"""Facts about a block: its axes, its accesses as linear functions of them, its work."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from ...arith import Analyzer
from ...ir.buffer import Buffer
from ...ir.dtype import DataType
from ...ir.equal import structural_equal
from ...ir.expr import (
    USUAL_SIZE,
    BufferLoad,
    Call,
    FloorDiv,
    IntImm,
    IterVar,
    PrimExpr,
    Range,
    SizeVar,
    Var,
    const,
    const_value,
)
from ...ir.functor import pre_order, substitute, vars_used
from ...ir.op import Op
from ...ir.ops import add, floordiv, floormod, is_one, mul, sub
from ...ir.stmt import Block, BlockRealize, BufferStore, For, ForKind, IfThenElse, LetStmt, Stmt, stmt_list
from ...tir.schedule import Schedule
from ...tir.schedule.primitive import BlockRV, LoopRV

__all__ = [
    "Access",
    "Axis",
    "Facts",
    "divided",
    "divisions",
    "extent_of",
    "facts_of",
    "fused_index",
    "is_plain",
    "joined",
    "number",
    "with_axes",
    "with_dense_results",
    "with_fused_axes",
    "with_joined_axes",
    "with_split_axes",
    "work_of",
]

# The cost of an operator, in additions.
_HEAVY = {
    "exp": 8, "exp2": 8, "exp10": 8, "log": 10, "log2": 10, "log10": 10, "log1p": 10, "tanh": 14, "sigmoid": 12,
    "erf": 14, "pow": 20, "sqrt": 4, "rsqrt": 4, "sin": 12, "cos": 12, "tan": 16, "atan": 14, "asin": 14,
    "acos": 14, "sinh": 14, "cosh": 14, "asinh": 16, "acosh": 16, "atanh": 16, "atan2": 16, "fmod": 20,
}  # fmt: skip
_DIVISIONS = ("Div", "Mod", "FloorDiv", "FloorMod")


class Vectors(Protocol):
    """An object with a vector width: a machine, or a schedule of a stage."""

    def lanes(self, bits: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Axis:
    """An iterator of a block. If the size is dynamic, `known` is False and `extent` is a guess."""

    var: Var
    extent: int
    known: bool
    reduce: bool


@dataclass(frozen=True, slots=True)
class Access:
    """An element of `buffer`; moving along an axis moves it by `strides[axis]` elements.

    A stride of None means that the access is not linear in the axis. Axes that are absent do not move the access.
    """

    buffer: Buffer
    indices: tuple[PrimExpr, ...]
    strides: dict[Var, int | None]

    def stride(self, axis: Axis) -> int | None:
        """The stride along an axis, in elements; 0 if the access does not move with it."""
        return self.strides.get(axis.var, 0)

    def moves(self, axis: Axis) -> bool:
        return axis.var in self.strides

    @property
    def gathered(self) -> bool:
        """Whether an index is itself loaded from memory (a gather)."""
        return any(isinstance(m, BufferLoad) for i in self.indices for m in pre_order(i))

    @property
    def bytes(self) -> int:
        """The size of an element."""
        return max(1, self.buffer.dtype.nbytes)

    def contiguous(self, outer: Axis, inner: Axis) -> bool:
        """Whether `outer` and `inner` are contiguous in this access (outer stride = inner extent times inner stride),
        so that the two could be fused."""
        far, near = self.stride(outer), self.stride(inner)
        return far is not None and near is not None and far == near * inner.extent

    def steady(self, axis: Axis, count: int) -> bool:
        """Whether each aligned group of `count` values of an axis accesses a single element, as `gamma[i // 64]` does
        for 64."""
        if not self.moves(axis):
            return True
        many, lane, ana = Var("many", axis.var.dtype), Var("lane", axis.var.dtype), Analyzer()
        ana.bind_loop(many, const(0, many.dtype), const(axis.extent // count, many.dtype))
        ana.bind_loop(lane, const(0, many.dtype), const(count, many.dtype))
        place = add(mul(many, const(count, many.dtype)), lane)
        return not any(
            lane in vars_used(ana.simplify(substitute(i, {axis.var: place})))
            for i in self.indices
            if axis.var in vars_used(i)
        )

    def runs(self, axis: Axis, count: int) -> bool:
        """Whether each aligned group of `count` values of an axis accesses contiguous elements, as
        `x[i // 64, i % 64]` does for 64."""
        if self.stride(axis) is not None or self.gathered:
            return self.stride(axis) == 1
        many, lane, ana = Var("many", axis.var.dtype), Var("lane", axis.var.dtype), Analyzer()
        ana.bind_loop(many, const(0, many.dtype), const(max(1, axis.extent // count), many.dtype))
        ana.bind_loop(lane, const(0, many.dtype), const(max(1, count - 1), many.dtype))
        place = self.buffer.offset_at(self.indices)
        first = add(mul(many, const(count, many.dtype)), lane)
        here = substitute(place, {axis.var: first})
        after = substitute(place, {axis.var: add(first, const(1, many.dtype))})
        return const_value(ana.simplify(sub(after, here))) == 1

    def dimension(self, axis: Axis) -> int | None:
        """The dimension along which an axis walks element by element: its index is the axis, as in `w[co, ci]`, or ends
        with it, as in `w[group * 32 + co, ci]` for an axis of 32; None if there is no such dimension."""
        moved = [n for n, i in enumerate(self.indices) if axis.var in vars_used(i)]
        if len(moved) != 1:
            return None
        index = self.indices[moved[0]]
        if index is axis.var:
            return moved[0]
        ana = Analyzer()
        start = ana.simplify(sub(index, axis.var))
        whole = axis.known and not self.gathered and axis.var not in vars_used(start)
        if whole and const_value(ana.simplify(floormod(start, const(axis.extent, start.dtype)))) == 0:
            return moved[0]
        return None

    def footprint(self, spans: dict[Var, int]) -> int:
        """Estimated number of elements that are touched while each axis takes `spans[axis.var]` values."""
        size = 1
        for var, stride in self.strides.items():
            if stride != 0:
                size *= spans.get(var, 1)
        return min(size, _size(self.buffer))


@dataclass(frozen=True, slots=True)
class Facts:
    """A block, as the scheduler sees it.

    `kind` is "injective" (each element is computed from elements of other buffers), "reduction" (one output, reduced
    by any combiner over the reduction axes), "several" (a reduction with several results, such as the largest value
    and its index) or "opaque" (anything else, and blocks that are already scheduled: they are left as they are).
    """

    rv: BlockRV
    name: str
    block: Block
    kind: str
    axes: tuple[Axis, ...]
    reads: tuple[Access, ...]
    write: Access | None
    work: int  # the cost of one point, in additions
    guarded: bool  # some reads are under a condition, as those of padding are

    @property
    def spatial(self) -> list[Axis]:
        return [a for a in self.axes if not a.reduce]

    @property
    def reduce(self) -> list[Axis]:
        return [a for a in self.axes if a.reduce]

    @property
    def points(self) -> int:
        """The number of times that the body runs."""
        return math.prod(a.extent for a in self.axes)

    @property
    def accesses(self) -> list[Access]:
        """All reads, and the write if there is one."""
        return [*self.reads, *([self.write] if self.write is not None else [])]

    def touched(self, r: Access) -> int:
        """The bytes that an access touches over all points of the block."""
        return r.footprint({a.var: a.extent for a in self.axes}) * r.bytes

    def lanes(self, vectors: Vectors) -> int:
        """The lanes of a vector of the widest type that the block reads or writes."""
        return vectors.lanes(max([self.bits, *(r.buffer.dtype.element.bits for r in self.reads)]))

    @property
    def bits(self) -> int:
        """The width of its results in memory: a bool takes a byte."""
        return max(8, self.write.buffer.dtype.element.bits) if self.write is not None else 32

    def axis(self, var: Var) -> Axis | None:
        return next((a for a in self.axes if a.var is var), None)


def _size(buffer: Buffer) -> int:
    return math.prod(number(dim) for dim in buffer.shape)


def number(e: Any) -> int:
    """A size as a number: a guess if it is dynamic."""
    known = const_value(e)
    if known is not None:
        return int(known)
    ana, names = Analyzer(), vars_used(e)
    known = const_value(ana.simplify(substitute(e, {v: const(likely(v), v.dtype) for v in names})))
    return int(known) if known is not None else USUAL_SIZE


def likely(var: Var) -> int:
    """The value assumed for a dynamic size."""
    return var.likely if isinstance(var, SizeVar) else USUAL_SIZE


def work_of(e: PrimExpr) -> int:
    """The estimated cost of an expression, in additions."""
    total = 0
    for m in pre_order(e):
        if isinstance(m, Call):
            total += _HEAVY.get(m.op.short_name, 1) if isinstance(m.op, Op) else 20
        elif m.__class__.__name__ in _DIVISIONS and m.dtype.is_float:
            total += 4
        elif m.dtype.is_float and len(m.children()) > 1 and not isinstance(m, BufferLoad):
            total += 1
    return total


def _strides(
    ana: Analyzer, buffer: Buffer, indices: Iterable[PrimExpr], axes: list[Axis]
) -> dict[Var, int | None]:
    indices = tuple(indices)
    used = set().union(*[vars_used(i) for i in indices])
    if not any(a.var in used for a in axes):
        return {}
    place = buffer.offset_at(indices)
    out: dict[Var, int | None] = {}
    for a in axes:
        if a.var not in used:
            continue
        step = ana.simplify(sub(substitute(place, {a.var: add(a.var, const(1, a.var.dtype))}), place))
        linear = a.var not in vars_used(step) and not any(isinstance(m, BufferLoad) for m in pre_order(step))
        out[a.var] = number(step) if linear else None
    return {v: s for v, s in out.items() if s != 0}


def is_plain(realize: BlockRealize, loops: Sequence[For]) -> bool:
    """Whether a block has one loop for each iterator, in order, all of them serial and without annotations.

    An iterator with a single value needs no loop. The loop of an ordered iterator, such as the steps of a scan, may
    contain more than the block.
    """
    block = realize.block
    pairs = list(zip(block.iter_vars, realize.iter_values, strict=True))
    looped = [(iv, v) for iv, v in pairs if not _single(iv, v)]
    while (
        loops and looped and looped[0][0].iter_type == IterVar.Ordered and looped[0][1] is loops[0].loop_var
    ):
        loops, looped = loops[1:], looped[1:]
    if const_value(realize.predicate) != 1 or len(looped) != len(loops):
        return False
    body: Any = loops[0] if loops else realize
    for loop, (iv, value) in zip(loops, looped, strict=True):
        same = value is loop.loop_var and _same(iv.dom.min, loop.min) and _same(iv.dom.extent, loop.extent)
        if body is not loop or not same or loop.kind is not ForKind.SERIAL or loop.annotations:
            return False
        body = loop.body
    return body is realize


def _single(iv: IterVar, value: PrimExpr) -> bool:
    """Whether an iterator has a single value, which is bound to a constant and not to a loop."""
    return is_one(iv.dom.extent) and const_value(value) is not None


def _same(a: PrimExpr, b: PrimExpr) -> bool:
    return a is b or structural_equal(a, b)


def divisions(f: Facts, of: Callable[[Buffer], bool] = lambda _: True) -> list[int]:
    """For each axis, the constant by which reads divide it, as `c // 16` selects the group of a grouped convolution.
    It is 1 if there is none. `of` selects the buffers whose reads count."""
    sizes: dict[Var, int] = {}
    for r in f.reads:
        for m in (m for i in r.indices if of(r.buffer) for m in pre_order(i)):
            if isinstance(m, FloorDiv) and isinstance(m.a, Var) and isinstance(m.b, IntImm):
                sizes.setdefault(m.a, int(m.b.value))
    found = [1 if a.reduce or not a.known else sizes.get(a.var, 1) for a in f.axes]
    return [n if a.extent % n == 0 and n < a.extent else 1 for a, n in zip(f.axes, found, strict=True)]


def divided(parts: Sequence[int]) -> Callable[..., list[Any]]:
    """The index map that splits an axis into quotient and remainder by its part, unless that is 1; further axes stay
    as they are."""

    def mapped(*axes: Any) -> list[Any]:
        whole = zip(axes, (*parts, *[1] * (len(axes) - len(parts))), strict=True)
        return [x for axis, n in whole for x in ([axis] if n == 1 else [axis // n, axis % n])]

    return mapped


def fused_index(indices: Sequence[Any], sizes: Sequence[int]) -> Any:
    """The index along the axis that several axes of some sizes are fused into, row-major."""
    at = indices[0]
    for i, n in zip(indices[1:], sizes[1:], strict=True):
        at = at * n + i
    return at


def joined(groups: Sequence[Sequence[int]], sizes: Sequence[int]) -> Callable[..., list[Any]]:
    """The index map that fuses the axes at the positions of each group; further axes stay as they are."""
    count = sum(map(len, groups))

    def mapped(*axes: Any) -> list[Any]:
        fused = (fused_index([axes[i] for i in g], [sizes[i] for i in g]) for g in groups)
        return [*fused, *axes[count:]]

    return mapped


def with_axes(f: Facts, axes: Sequence[Axis], values: Mapping[Var, PrimExpr]) -> Facts:
    """The facts that a block would have with other iterators; `values` gives the present ones as functions of them."""
    ana = Analyzer()
    for a in axes:
        if a.known:
            ana.bind_loop(a.var, const(0, a.var.dtype), const(a.extent, a.var.dtype))

    def moved(r: Access) -> Access:
        indices = tuple(ana.simplify(substitute(i, values)) for i in r.indices)
        return Access(r.buffer, indices, _strides(ana, r.buffer, indices, list(axes)))

    own = {a.var for a in f.axes}
    single = [iv for iv in f.block.iter_vars if iv.var not in own]
    kinds = {True: IterVar.CommReduce, False: IterVar.DataPar}
    made = [IterVar(Range(const(a.extent, a.var.dtype)), a.var, kinds[a.reduce]) for a in axes]
    return replace(
        f,
        block=f.block.replace(iter_vars=(*made, *single)),
        axes=tuple(axes),
        reads=tuple(map(moved, f.reads)),
        write=None if f.write is None else moved(f.write),
    )


def with_split_axes(f: Facts, parts: Sequence[int]) -> Facts:
    """The facts of a block whose axes are `divided` by the parts of each, unless the part is 1."""
    axes: list[Axis] = []
    values: dict[Var, PrimExpr] = {}
    for a, n in zip(f.axes, parts, strict=True):
        if n == 1:
            axes.append(a)
            continue
        outer, inner = (replace(a, var=Var(f"{a.var.name}_{i}", a.var.dtype)) for i in (0, 1))
        axes += [replace(outer, extent=a.extent // n), replace(inner, extent=n)]
        values[a.var] = add(mul(outer.var, const(n, a.var.dtype)), inner.var)
    return with_axes(f, axes, values)


def with_fused_axes(f: Facts, count: int) -> Facts:
    """The facts of a block whose last `count` axes are fused."""
    first = len(f.axes) - count
    return with_joined_axes(f, [*([i] for i in range(first)), list(range(first, len(f.axes)))])


def with_joined_axes(f: Facts, groups: Sequence[Sequence[int]]) -> Facts:
    """The facts of a block whose axes at the positions of each group, which are consecutive, are fused into one."""
    axes: list[Axis] = []
    values: dict[Var, PrimExpr] = {}
    for group in groups:
        first, *others = own = [f.axes[i] for i in group]
        if not others:
            axes.append(first)
            continue
        size = inside = math.prod(a.extent for a in own)
        kind = first.var.dtype if size <= int(first.var.dtype.high) else DataType("int64")
        fused = replace(first, var=Var(f"{first.var.name}_fused", kind), extent=size)
        axes.append(fused)
        for a in own:
            inside //= a.extent
            at = floordiv(fused.var, const(inside, kind))
            values[a.var] = (at if a is first else floormod(at, const(a.extent, kind))).astype(a.var.dtype)
    return with_axes(f, axes, values)


def with_dense_results(f: Facts) -> Facts:
    """The facts of a block that writes to a buffer of the same shape without gaps, as a cache is."""
    write = f.write
    if write is None or not write.buffer.strides:
        return f
    dense = write.buffer.replace(strides=())
    ana = Analyzer()
    return replace(f, write=Access(dense, write.indices, _strides(ana, dense, write.indices, list(f.axes))))


# The facts of blocks by schedule and statement: they are asked for again and again.
_known: WeakKeyDictionary[Schedule, dict[int, tuple[BlockRealize, bool, Facts]]] = WeakKeyDictionary()


def facts_of(sch: Schedule, rv: BlockRV) -> Facts:
    """The facts of a block. It is opaque unless it still has one loop for each iterator (see `is_plain`)."""
    realize: BlockRealize = sch.realize(rv)
    plain = is_plain(realize, sch.state.index.loops_of(realize)) and not realize.block.match_buffers
    known = _known.setdefault(sch, {})
    found = known.get(id(realize))
    if found is None or found[0] is not realize or found[1] is not plain:
        known[id(realize)] = found = (realize, plain, _facts(rv, realize, plain))
    return found[2]


def extent_of(sch: Schedule, loop: LoopRV) -> int | None:
    """The number of iterations of a loop, if it is known."""
    size = const_value(sch.loop(loop).extent)
    return None if size is None else int(size)


def _facts(rv: BlockRV, realize: BlockRealize, plain: bool) -> Facts:
    block = realize.block
    axes: list[Axis] = []
    ana = Analyzer()
    for iv, value in zip(block.iter_vars, realize.iter_values, strict=True):
        ana.bind_loop(iv.var, iv.dom.min, iv.dom.extent)
        if _single(iv, value):
            continue
        size = const_value(iv.dom.extent)
        axes.append(Axis(iv.var, number(iv.dom.extent), size is not None, iv.iter_type == IterVar.CommReduce))
    guarded = False
    stores = _stores(block.body)
    if not stores:
        return Facts(rv, block.name_hint, block, "opaque", tuple(axes), (), None, 1, False)
    reads, seen, written = [], set(), {s.buffer for s in stores}
    for m in pre_order(block.body):
        if isinstance(m, BufferLoad):
            if m.buffer in written:
                continue
            key = (m.buffer, tuple(str(i) for i in m.indices))
            if key not in seen:
                seen.add(key)
                reads.append(Access(m.buffer, m.indices, _strides(ana, m.buffer, m.indices, axes)))
        if isinstance(m, Call) and isinstance(m.op, Op) and m.op.short_name == "if_then_else":
            guarded = True
    store = stores[0]
    write = Access(store.buffer, store.indices, _strides(ana, store.buffer, store.indices, axes))
    return Facts(
        rv,
        block.name_hint,
        block,
        _kind(block, stores, axes) if plain else "opaque",
        tuple(axes),
        tuple(reads),
        write,
        max(1, sum(work_of(s.value) for s in stores)),
        guarded,
    )


def _stores(body: Stmt) -> list[BufferStore]:
    """The stores that a body consists of, inside any `let`s; empty if there are other statements."""
    while isinstance(body, LetStmt):
        body = body.body
    parts = stmt_list(body)
    stores = [s for s in parts if isinstance(s, BufferStore)]
    return stores if len(stores) == len(parts) else []


def _kind(block: Block, stores: list[BufferStore], axes: list[Axis]) -> str:
    store = stores[0]
    if any(isinstance(m, IfThenElse) for m in pre_order(block.body)) or block.alloc_buffers:
        return "opaque"
    if any(iv.iter_type not in (IterVar.DataPar, IterVar.CommReduce) for iv in block.iter_vars):
        return "opaque"
    spatial = {a.var for a in axes if not a.reduce}
    named = [i for i in store.indices if isinstance(i, Var) and i in spatial]
    if len(set(named)) != len(spatial):
        return "opaque"
    if len(stores) > 1:
        together = all(
            structural_equal(i, j) for s in stores for i, j in zip(s.indices, store.indices, strict=True)
        )
        return "several" if together and block.init is not None else "opaque"
    if not isinstance(block.body, BufferStore):
        return "opaque"
    if any(a.reduce for a in axes):
        return "reduction" if block.init is not None else "opaque"
    reads_itself = any(isinstance(m, BufferLoad) and m.buffer is store.buffer for m in pre_order(store.value))
    return "opaque" if reads_itself or block.init is not None else "injective"
