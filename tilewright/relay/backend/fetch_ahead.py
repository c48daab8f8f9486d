"""Prefetching of weights: while one kernel computes, the weights of the next kernels are loaded into the caches.

The weights of a model are stored in the order of its steps, and the caches do not keep all of them from one run to
the next, so each kernel would wait for its own. Therefore a kernel has slots in its innermost loop. A slot is long
enough for one cache line to arrive. The caller says where the prefetches begin and the stride from slot to slot:

    def kernel(x, y, weights, ahead, stride):
        for tile in parallel(32):
            for k in range(96):                                  # 8 multiply-adds: a slot
                prefetch(&ahead[(tile * 96 + k) * stride])
                …
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...ir.buffer import decl_buffer
from ...ir.expr import (
    Add,
    Broadcast,
    BufferLoad,
    Cast,
    IntImm,
    Mul,
    PrimExpr,
    Sub,
    Var,
    const,
)
from ...ir.fold import cast
from ...ir.function import PrimFunc
from ...ir.ops import add, mul
from ...ir.stmt import BufferStore, Evaluate, For, ForKind, LetStmt, Stmt, seq
from ...ir.transform import ModulePass, Pass, PassContext, PassInfo
from ...runtime.model import LINE
from ...target import Target
from ...tir.transform.inject_prefetch import asked_for

_SLOT: Final = 8  # vector operations of a slot: enough time for one cache line to arrive
_LEAST: Final = 8  # vector operations of an iteration that has room for a slot
_MOST: Final = 8  # slots in an iteration: more prefetches at once would wait for each other
_INFO: Final = PassInfo(0, "FetchAhead")


def wants_fetches(weights: int, target: Target) -> bool:
    """Whether the weights of a model are larger than the L2 cache, and its kernels short enough for prefetching to pay.

    `weights` is their size in bytes. If they are larger than the L3 cache, the kernels are long, and each streams its
    own weights faster than it uses them.
    """
    if not target.has("aot_executor") or not PassContext.current().option("tilewright.fetch_ahead"):
        return False
    sizes = target.cpu.cache_sizes
    return 0 < sizes.l2 < weights <= max(sizes.l3, 16 * sizes.l2)


@dataclass
class FetchAhead:
    """Adds prefetch slots to kernels; `slots` counts them."""

    vector_bits: int
    slots: int = 0

    def added(self) -> Pass:
        """The pass that adds the slots to a lowered function."""
        return ModulePass(lambda mod, ctx: mod.map_functions(self.add), _INFO)

    def add(self, func: Any) -> Any:
        """Give a function the parameters `ahead` and `stride`, if a loop has room for slots. Needs: flat loops."""
        if not isinstance(func, PrimFunc):
            return func
        costs = _Costs(self.vector_bits)
        nests = [n for n in _nests(func.body) if costs.of(n)]
        whole = sum(costs.of(n) for n in nests)
        chosen = [p for n in nests if 4 * costs.of(n) >= whole and (p := _path(n, costs))]
        if not chosen:
            return func
        ahead = decl_buffer((LINE,), "uint8", name="ahead")
        handle, stride = Var("ahead", "handle"), Var("stride", "int64")
        body = func.body
        for path in chosen:
            inner = path[-1]
            each = min(_MOST, max(1, costs.of(inner.body) // _SLOT))
            hints = [asked_for(ahead, mul(_slot(path, each, self.slots + i), stride)) for i in range(each)]
            body = _put(body, inner, inner.replace(body=seq(*hints, inner.body)))
            self.slots += each * math.prod(_int(loop.extent) for loop in path)
        buffers = {**func.buffer_map, handle: ahead}
        return PrimFunc((*func.params, handle, stride), body, func.ret_type, buffers, func.attrs, func.span)


def _slot(path: Sequence[For], each: int, first: int) -> PrimExpr:
    """The number of a slot: the slots of an iteration are consecutive."""
    turn: PrimExpr = const(0, "int64")
    for loop in path:
        now = add(cast("int64", loop.loop_var), const(-_int(loop.min), "int64"))
        turn = add(mul(turn, const(_int(loop.extent), "int64")), now)
    return add(mul(turn, const(each, "int64")), const(first, "int64"))


def _int(e: PrimExpr) -> int:
    assert isinstance(e, IntImm)
    return int(e.value)


def _nests(s: Stmt) -> list[For]:
    """The outermost loops of a function."""
    if isinstance(s, For):
        return [s]
    return [n for c in s.children() if isinstance(c, Stmt) for n in _nests(c)]


def _path(nest: For, costs: _Costs) -> list[For]:
    """The loops of a nest, from the outermost to the innermost that has room for a slot, along the path on which it
    spends most of its time."""
    path: list[For] = []
    found: For | None = nest
    while found is not None and _runs(found) and costs.of(found.body) >= _LEAST:
        path.append(found)
        below = [n for n in _nests(found.body) if 2 * costs.of(n) >= costs.of(path[-1].body)]
        found = below[0] if below else None
    return path


def _runs(loop: For) -> bool:
    """Whether a loop is still a loop in the generated code, and its length is known."""
    known = isinstance(loop.min, IntImm) and isinstance(loop.extent, IntImm)
    return known and loop.kind in (ForKind.SERIAL, ForKind.PARALLEL) and loop.thread_binding is None


def _put(s: Any, old: Stmt, new: Stmt) -> Any:
    if s is old:
        return new
    return s.map_children(lambda c: _put(c, old, new) if isinstance(c, Stmt) else c)


class _Costs:
    """A rough count of the vector operations of statements, on values and not on indices."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self._known: dict[int, tuple[Stmt, int]] = {}

    def of(self, s: Stmt) -> int:
        found = self._known.get(id(s))
        if found is None:
            found = self._known[id(s)] = (s, self._count(s))
        return found[1]

    def _count(self, s: Any) -> int:
        own = 0
        if isinstance(s, (BufferStore, LetStmt, Evaluate)):
            own = self._value(s.value)
        if isinstance(s, BufferStore):
            own = max(1, own)
        below = sum(self.of(c) for c in s.children() if isinstance(c, Stmt))
        if isinstance(s, For):
            return below * (_int(s.extent) if isinstance(s.extent, IntImm) else 1)
        return own + below

    def _value(self, e: Any) -> int:
        """The operations of an expression. A multiply-add is one; loads are free, because they overlap with others."""
        if isinstance(e, BufferLoad) or not e.children() or e.dtype.is_handle:
            return 0
        inner = [c for c in e.children() if isinstance(c, PrimExpr)]
        below = sum(self._value(c) for c in inner)
        free = isinstance(e, (Broadcast, Cast)) or (
            isinstance(e, (Add, Sub)) and any(isinstance(c, Mul) for c in inner)
        )
        return below if free else below + max(1, e.dtype.lanes * e.dtype.bits // self.bits)


def plan_fetches(needs: Sequence[tuple[int, int]], slots: Sequence[int], reach: int) -> list[tuple[int, int]]:
    """The prefetches of each step: the offset of the first byte, and the bytes from slot to slot.

    Step `i` needs the bytes `needs[i]` (from, to) of the weights, in ascending order, and has `slots[i]` slots. Its
    weights are prefetched as late as possible: by the step before it, as far as that has slots, the rest by the step
    before that one, and so on, but never more than `reach` bytes ahead.
    """
    plan = [(0, 0)] * len(needs)
    begin = end = 0  # the bytes that later steps need and no step prefetches yet
    for i in reversed(range(len(needs))):
        end = min(end, begin + reach)
        room = slots[i] * LINE
        if end > begin and room:
            start = max(begin, (end - room) // LINE * LINE)
            plan[i] = (start, min(LINE, -(-(end - start) // slots[i])))
            end = start
        low, high = needs[i]
        if high > low:
            begin, end = low, end if end > begin else high
    return plan
