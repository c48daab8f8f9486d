"""Unpredicated vectors in private memory."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import numpy as np

from ...arith import Analyzer, detect_linear_equation, eval_set
from ...ir.equal import structural_equal
from ...ir.expr import (
    LT,
    Broadcast,
    BufferLoad,
    FloorDiv,
    IntImm,
    Let,
    PrimExpr,
    Ramp,
    Range,
    SizeVar,
    Var,
    const,
    const_value,
)
from ...ir.function import PrimFunc
from ...ir.functor import LeafKeeper, Mutator, pre_order, substitute, vars_used
from ...ir.ops import add, less, mul, sub
from ...ir.stmt import SLACK, Allocate, BufferStore, DeclBuffer, For, IfThenElse, LetStmt, Stmt

Access = BufferLoad | BufferStore
_ACCESSES: frozenset[Any] = frozenset((BufferLoad, BufferStore))
_MOST = 1 << 16  # most iterations of the loops around an access that are enumerated


def unmask_scratch(func: PrimFunc) -> PrimFunc:
    """Drop the predicates of vectors in allocated memory if each element always has the same one: it is used, or never.

        s = allocate(16)                                        s = allocate(16)
        s[0:16] if lane < n = 0                                 s[0:16] = 0
        for k in range(100):                           ->       for k in range(100):
            s[0:16] if lane < n = s[0:16] + A[k, 0:n]               s[0:16] = s[0:16] + A[k, 0:n]
        B[0:n] = s[0:16]                                        B[0:n] = s[0:16]

    A vector that is stored as a whole can stay in a register; a masked store goes through memory, and delays the next
    load of it. The last tile of a dynamic size has several vectors, of which some may be without any active lane:

        for v in unroll(2):                                     for v in unroll(2):
            if v * 16 < n:                             ->           s[v * 16:+16] = s[v * 16:+16] + A[k, v * 16:+16]
                s[v * 16:+16] if v * 16 + lane < n = …                 (A under its predicate, without a branch)

    Needs: flat loops, vectors; allocations inside the loops that their predicates depend on.
    """
    masked: set[Var] = set()
    whole: set[Var] = set()
    loaded: set[Var] = set()
    for m in pre_order(func.body):
        if m.__class__ in _ACCESSES:
            (whole if m.predicate is None else masked).add(m.buffer.data)
            if m.predicate is not None and isinstance(m, BufferLoad):
                loaded.add(m.buffer.data)
    return _Unmask(masked - whole, loaded).run(func) if masked - whole or loaded else func


class _Unmask(LeafKeeper):
    def __init__(self, masked: Set[Var], loaded: Set[Var]) -> None:
        self.masked = masked  # allocations that are accessed under predicates only
        self.loaded = loaded  # memory that is loaded under predicates
        self.loops: dict[Var, Range] = {}

    def visit_For(self, n: For) -> Stmt:
        self.loops[n.loop_var] = Range.from_min_extent(n.min, n.extent)
        return n.map_children(self.visit)

    def visit_Allocate(self, n: Allocate) -> Stmt:
        made = n.map_children(self.visit)
        if n.buffer_var in self.masked and _masked_alike(made):
            return made.replace(body=_Whole(made.buffer_var, self.loops).visit(made.body))
        if n.buffer_var in self.loaded and len(n.extents) == 1 and const_value(n.extents[0]) is None:
            return self.with_slack(made)
        return made

    def with_slack(self, n: Allocate) -> Allocate:
        """An allocation of dynamic size, marked with how far vectors without predicates reach behind its end."""
        loads = _Loads(self.loops)
        reaches = [
            loads.reach(m)
            for m in pre_order(n.body)
            if isinstance(m, BufferLoad) and m.buffer.data is n.buffer_var and m.predicate is not None
        ]
        known = [r for r in reaches if r is not None]
        if len(known) < len(reaches) or not n.dtype.is_float:
            return n
        return n.replace(annotations={**n.annotations, SLACK: max(known)})


class _Loads:
    """Loads under predicates, and how far they would reach without."""

    def __init__(self, loops: dict[Var, Range]) -> None:
        self.loops = loops

    def reach(self, n: BufferLoad) -> int | None:
        """The elements from the first lane of the first vector of a tile, which is active, to the last of the last."""
        parts, index = _ramp_below(n.predicate), n.indices[0]
        if parts is None or not isinstance(index, Ramp) or const_value(index.stride) != 1 or index.lanes < 0:
            return None
        base, limit = parts
        # The loops over the vectors of a tile have constant extents.
        inner = {
            v: (int(const_value(r.min) or 0), int(const_value(r.extent) or 0))
            for v, r in self.loops.items()
            if v in vars_used(base) and const_value(r.min) is not None and const_value(r.extent) is not None
        }
        used = list(inner)
        here, there = _linear(index.base, used), _linear(base, used)
        if here is None or there is None or not np.array_equal(here[0], there[0]) or np.any(there[0] < 0):
            return None
        first = there[1] + sum(int(c) * inner[v][0] for c, v in zip(there[0], used, strict=True))
        if not self.active(first, limit):
            return None
        span = sum(int(c) * (inner[v][1] - 1) for c, v in zip(there[0], used, strict=True))
        return span + index.lanes

    def active(self, first: PrimExpr, limit: PrimExpr) -> bool:
        """Whether the first lane of a tile is always active."""
        ana = Analyzer()
        for v, r in self.loops.items():
            ana.bind_loop(v, r.min, r.extent)
        condition = less(first, limit)
        if ana.can_prove(condition):
            return True
        # The last tile of `n` begins at n // 32 and ends before n // 32 + (n % 32 + 31) // 32: with n = q * 32 + r,
        # these are q and q + (r + 31) // 32.
        last = {v: sub(add(r.min, r.extent), const(1, v.dtype)) for v, r in self.loops.items()}
        condition = less(substitute(first, {v: last[v] for v in vars_used(first) if v in last}), limit)
        for m in pre_order(condition):
            if isinstance(m, FloorDiv) and isinstance(m.a, SizeVar) and isinstance(m.b, IntImm):
                whole, rest = SizeVar("q", m.a.dtype), Var("r", m.a.dtype)
                ana.bind_loop(rest, const(0, rest.dtype), m.b)
                return bool(ana.can_prove(substitute(condition, {m.a: add(mul(whole, m.b), rest)})))
        return False


class _Whole(Mutator):
    """All accesses of some memory without their predicates, and without branches around empty vectors."""

    def __init__(self, data: Var, loops: dict[Var, Range]) -> None:
        self.data, self.loops = data, loops

    def _plain(self, n: Any) -> Any:
        made = n.map_children(self.visit)
        return made.replace(predicate=None) if made.buffer.data is self.data else made

    visit_BufferLoad = visit_BufferStore = _plain

    def visit_IfThenElse(self, n: IfThenElse) -> Stmt:
        return self.visit(n.then_case) if self.needless(n) else n.map_children(self.visit)

    def needless(self, n: IfThenElse) -> bool:
        """Whether a branch only skips a store without active lanes, and its scalar loads are in bounds anyway."""
        store, guard = n.then_case, n.condition
        if n.else_case is not None or not isinstance(store, BufferStore) or not isinstance(guard, LT):
            return False
        mask = store.predicate
        parts = _ramp_below(mask)
        if parts is None or not (structural_equal(guard.a, parts[0]) and structural_equal(guard.b, parts[1])):
            return False
        return all(
            structural_equal(m.predicate, mask) if m.predicate is not None else self.in_bounds(m)
            for m in pre_order(store.value)
            if isinstance(m, BufferLoad)
        )

    def in_bounds(self, m: BufferLoad) -> bool:
        if len(m.indices) != 1 or m.indices[0].dtype.lanes != 1:
            return False
        size, box = const_value(m.buffer.shape[0]), eval_set(m.indices[0], self.loops)
        if size is None or not isinstance(box.min_value, PrimExpr) or not isinstance(box.max_value, PrimExpr):
            return False
        low, high = const_value(box.min_value), const_value(box.max_value)
        return low is not None and high is not None and low >= 0 and high < size


def _masked_alike(n: Allocate) -> bool:
    """Whether all accesses of an allocation are vectors in bounds, each element under one predicate that is constant in
    its live range."""
    size = 1
    for extent in n.extents:
        known = const_value(extent)
        if known is None:
            return False
        size *= int(known)
    if not n.dtype.is_float or n.dtype.is_vector:  # an integer in an unused lane may be a divisor
        return False
    accesses: list[Access] = []
    inner: dict[Var, Range] = {}
    bound: set[Var] = set()
    for m in pre_order(n.body):
        if isinstance(m, (BufferLoad, BufferStore)) and m.buffer.data is n.buffer_var:
            if m.predicate is None:
                return False
            accesses.append(m)
        elif isinstance(m, DeclBuffer) and m.buffer.data is n.buffer_var:
            if m.buffer.dtype is not n.dtype:
                return False
        elif isinstance(m, For):
            inner[m.loop_var] = Range.from_min_extent(m.min, m.extent)
            bound.add(m.loop_var)
        elif isinstance(m, (LetStmt, Let)):
            bound.add(m.var)
        elif m is n.buffer_var:
            return False  # its address escapes
    if not accesses:
        return False
    if not all(_inside(m, inner, size) for m in accesses):
        return False
    first: Any = accesses[0].predicate
    if not vars_used(first) & bound:
        return all(structural_equal(m.predicate, first) for m in accesses)
    return _by_place(accesses, inner, bound, size)


def _by_place(accesses: list[Access], inner: dict[Var, Range], bound: set[Var], size: int) -> bool:
    """Whether each element is accessed under one predicate `place < limit`, whose place may change between elements.

    The places of all elements are found by enumerating the loops around the accesses.
    """
    places = np.full(size, np.iinfo(np.int64).min)
    common: tuple[PrimExpr, PrimExpr] | None = None
    for m in accesses:
        parts = _ramp_below(m.predicate)
        if parts is None or vars_used(parts[1]) & bound:
            return False
        base, limit = parts
        index: Any = m.indices[0]
        used = [v for v in inner if v in vars_used(index.base) | vars_used(base)]
        grid = _grid([inner[v] for v in used])
        here, there = _linear(index.base, used), _linear(base, used)
        if grid is None or here is None or there is None or const_value(here[1]) is None:
            return False
        if vars_used(there[1]) & bound:
            return False
        if common is None:
            common = there[1], limit
        shift = const_value(Analyzer().simplify(there[1] - common[0]))
        if shift is None or not structural_equal(limit, common[1]):
            return False
        lanes = np.arange(index.lanes)[:, None]
        at = int(const_value(here[1]) or 0) + np.dot(here[0], grid)[None, :] + lanes
        place = int(shift) + np.dot(there[0], grid)[None, :] + lanes
        seen = places[at]
        if not np.all((seen == place) | (seen == np.iinfo(np.int64).min)):
            return False
        places[at] = place
        if not np.array_equal(places[at], place):  # two iterations disagree about an element
            return False
    return True


def _ramp_below(predicate: PrimExpr | None) -> tuple[PrimExpr, PrimExpr] | None:
    """The first place and the limit of a predicate `place + lane < limit`."""
    if not isinstance(predicate, LT):
        return None
    a, b = predicate.a, predicate.b
    if not isinstance(a, Ramp) or not isinstance(b, Broadcast) or const_value(a.stride) != 1:
        return None
    return a.base, b.value


def _grid(ranges: list[Range]) -> Any:
    """All values of loops, a row for each loop; None if there are too many, or some extent is not constant."""
    axes, count = [], 1
    for r in ranges:
        low, extent = const_value(r.min), const_value(r.extent)
        if low is None or extent is None:
            return None
        count *= int(extent)
        if count > _MOST:
            return None
        axes.append(np.arange(int(low), int(low) + int(extent)))
    return (
        np.stack([x.ravel() for x in np.meshgrid(*axes, indexing="ij")])
        if axes
        else np.zeros((0, 1), np.int64)
    )


def _linear(e: PrimExpr, loops: list[Var]) -> tuple[Any, PrimExpr] | None:
    """The constant coefficients of the loops in an expression, and the rest."""
    if not loops:
        return np.zeros(0, np.int64), e
    found = detect_linear_equation(e, loops)
    if not found:
        return None
    values = [const_value(c) for c in found[:-1]]
    if any(c is None for c in values):
        return None
    return np.array([int(c or 0) for c in values], np.int64), found[-1]


def _inside(m: Access, inner: dict[Var, Range], size: int) -> bool:
    """Whether all lanes of a vector are in bounds."""
    if len(m.indices) != 1:
        return False
    (index,) = m.indices
    if not isinstance(index, Ramp) or const_value(index.stride) != 1 or index.dtype.is_scalable:
        return False
    box = eval_set(index.base, inner)
    if not isinstance(box.min_value, PrimExpr) or not isinstance(box.max_value, PrimExpr):
        return False
    low, high = const_value(box.min_value), const_value(box.max_value)
    return low is not None and high is not None and low >= 0 and high + index.lanes <= size
