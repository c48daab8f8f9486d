"""Which parts of buffers statements touch, seen from a place in the program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ...arith import Analyzer, int_set, relax_region
from ...ir.buffer import Buffer, BufferRegion
from ...ir.equal import structural_equal
from ...ir.expr import BufferLoad, IntImm, Max, Min, PrimExpr, Range, Var, const
from ...ir.functor import pre_order, substitute, vars_used
from ...ir.ops import add, conjunction, conjuncts, greater_equal, is_zero, sub
from ...ir.stmt import Block, BlockRealize, For, Stmt

if TYPE_CHECKING:
    from .schedule import Schedule


def touched(
    sch: Schedule,
    place: Stmt,
    blocks: Iterable[BlockRealize],
    of: Callable[[Block], tuple[BufferRegion, ...]],
    buffers: set[Buffer],
    *,
    by_all: bool = False,
) -> dict[Buffer, list[int_set.IntervalSet]]:
    """The boxes of buffers that blocks touch while `place` runs once: loops inside it are relaxed.

    With `by_all`, what all threads touch that see the same memory.
    """
    ana = sch.state.analyzer_at(place)
    out: dict[Buffer, list[list[int_set.IntervalSet]]] = {}
    for b in blocks:
        inner = _loops_inside(sch, place, b)
        doms = {x.loop_var: x.dom for x in inner}
        table: dict[Var, PrimExpr] = {iv.var: value for iv, value in b.bindings}
        for region in of(b.block):
            if region.buffer in buffers:
                bound = [substitute(r, table) for r in region.region]
                relaxed = {**doms, **_threads_around(sch, place, region.buffer)} if by_all else doms
                predicate = _about(b.predicate, relaxed)
                sets = [_plain(s) for s in relax_region(bound, relaxed, predicate, ana)]
                out.setdefault(region.buffer, []).append(sets)
    return {
        b: [with_ends(int_set.union([s[d] for s in boxes], ana), dim) for d, dim in enumerate(b.shape)]
        for b, boxes in out.items()
    }


def with_ends(s: int_set.IntervalSet, dim: PrimExpr) -> int_set.IntervalSet:
    """The set; where it is empty, because a loop has no iterations, its ends are numbers all the same."""
    return int_set.IntervalSet(const(0, dim.dtype), const(-1, dim.dtype)) if s.is_nothing() else s


def _about(predicate: PrimExpr, relaxed: Mapping[Var, Range]) -> PrimExpr:
    """The conditions on relaxed variables. One on others only says whether anything is touched: ends that
    were made simpler by it would be wrong where it does not hold."""
    return conjunction(c for c in conjuncts(predicate) if vars_used(c) & relaxed.keys())


_HARDWARE = ("blockIdx", "threadIdx", "clusterCtaIdx")
_SEEN_BY = {
    "shared": ("threadIdx", "vthread"),
    "global": (*_HARDWARE, "vthread"),
    "warp": ("threadIdx.x",),
}


def _threads_around(sch: Schedule, place: Stmt, buffer: Buffer) -> dict[Var, Range]:
    """The loops around a statement whose iterations are threads that see the same copy of a buffer.

    Virtual threads outside of a kernel are interleaved in one thread: each has a copy of its own.
    """
    scope = buffer.scope().partition(".")[0]
    seen_by = _SEEN_BY.get(scope, ())
    bound = [
        (x, x.thread_binding.thread_tag)
        for x in sch.state.index.ancestors(place)
        if isinstance(x, For) and x.thread_binding is not None
    ]
    if scope == "global" and not any(tag.startswith(_HARDWARE) for _, tag in bound):
        return {}
    return {x.loop_var: x.dom for x, tag in bound if tag.startswith(seen_by)}


def _plain(s: int_set.IntervalSet) -> int_set.IntervalSet:
    """The set, or everything if its ends are read from memory: bindings of blocks must not be."""
    ends = (s.min_value, s.max_value)
    if any(isinstance(m, BufferLoad) for e in ends for m in pre_order(e)):
        return int_set.IntSet.everything()
    return s


def _loops_inside(sch: Schedule, place: Stmt, b: BlockRealize) -> list[For]:
    """The loops from `place` (itself included) down to a block."""
    out: list[For] = []
    here: Stmt | None = b
    while here is not None:
        if isinstance(here, For):
            out.append(here)
        if here is place:
            return out[::-1]
        here = sch.state.index.parents[here]
    raise AssertionError("the block is not under the statement")


def unclipped(sets: list[int_set.IntervalSet], buffer: Buffer) -> list[int_set.IntervalSet]:
    """Sets without the ends of the buffer: `max(i - 1, 0)` to `i` is `i - 1` to `i`, inside of the buffer."""
    out = []
    for s, dim in zip(sets, buffer.shape, strict=True):
        low, high = s.min_value, s.max_value
        end = Analyzer().simplify(sub(dim, const(1, dim.dtype)))
        if isinstance(low, Max):
            low = low.a if is_zero(low.b) else low.b if is_zero(low.a) else low
        if isinstance(high, Min):
            high = (
                high.a if structural_equal(high.b, end) else high.b if structural_equal(high.a, end) else high
            )
        out.append(int_set.IntervalSet(low, high))
    return out


def last_of(sets: list[int_set.IntervalSet], region: list[Range]) -> list[PrimExpr | None]:
    """The last index of each set whose range has more than the set: what lies behind it is to be left out."""
    out: list[PrimExpr | None] = []
    for s, r in zip(sets, region, strict=True):
        ana = Analyzer()
        size = add(sub(s.max_value, r.min), const(1, r.min.dtype)) if s.has_upper_bound() else None
        out.append(None if size is None or ana.can_prove_equal(size, r.extent) else s.max_value)
    return out


def box(
    sch: Schedule, place: Stmt, buffer: Buffer, sets: list[int_set.IntervalSet], *, from_first: bool = False
) -> list[Range]:
    """Sets as ranges of constant extent where that can be had, else all of the dimension.

    With `from_first` a range starts where its set does, even if its extent is that of the dimension.
    """
    ana = sch.state.analyzer_at(place)
    out = []
    for s, dim in zip(sets, buffer.shape, strict=True):
        full = Range.from_min_extent(const(0, dim.dtype), dim)
        if s.is_nothing() or not s.has_lower_bound() or not s.has_upper_bound():
            out.append(full)
            continue
        low = ana.simplify(s.min_value)
        size = ana.simplify(add(sub(s.max_value, low), const(1, low.dtype)))
        if not isinstance(size, IntImm):
            bound = ana.const_int_bound(size).max_value
            if bound < (1 << 31) - 1:
                size = const(int(bound), low.dtype)
        whole = ana.can_prove(greater_equal(size, dim)) and not (
            from_first and not ana.can_prove_equal(low, const(0, low.dtype))
        )
        out.append(full if whole else Range.from_min_extent(low, size))
    return out
