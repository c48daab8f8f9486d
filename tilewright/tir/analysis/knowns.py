"""What is known about the contents of buffers at a point of the program.

A `Known` is a condition with loads that holds for all values of its variables, as after
`for i in range(16): A[i] = i`: for all q in range(16), `A[q] == q`. Only integers and truth values are followed.
Two pointers never point to the same memory; who cannot be sure of it calls `forget_all`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from ...arith import Analyzer, detect_linear_equation
from ...ir.equal import structural_equal
from ...ir.expr import EQ, Broadcast, BufferLoad, IntImm, Or, PrimExpr, Ramp, Range, Var, const
from ...ir.functor import pre_order, rewrite, substitute, vars_used
from ...ir.ops import add, conjunction, conjuncts, in_range, logical_not, logical_or, mul, sub
from ...ir.stmt import BufferStore, For, LetStmt, Stmt
from .effects import has_effect, reads_memory

_MOST: Final = 32  # knowns at one point; older ones are forgotten
_MOST_CASES: Final = 6  # alternatives in one known


@dataclass(frozen=True, eq=False)
class Known:
    """The condition holds for all values of the variables in their ranges."""

    ranges: Mapping[Var, Range]
    condition: PrimExpr

    @cached_property
    def loads(self) -> list[BufferLoad]:
        return [e for e in pre_order(self.condition) if isinstance(e, BufferLoad)]

    @cached_property
    def memory(self) -> frozenset[Var]:
        return frozenset(x.buffer.data for x in self.loads)

    def vars(self) -> set[Var]:
        parts = [self.condition, *(e for r in self.ranges.values() for e in (r.min, r.extent))]
        return set().union(*map(vars_used, parts)) - set(self.ranges)

    def unless(self, other: PrimExpr) -> Known:
        return Known(self.ranges, logical_or(other, self.condition))

    def at(self, values: Mapping[Var, PrimExpr], need: Iterable[PrimExpr]) -> Known:
        """The case in which variables have these values, if what it needs holds."""
        ranges = {
            v: Range.from_min_extent(substitute(r.min, values), substitute(r.extent, values))
            for v, r in self.ranges.items()
            if v not in values
        }
        made = substitute(self.condition, values)
        wrong = [logical_not(substitute(c, values)) for c in need]
        for c in wrong:
            made = logical_or(c, made)
        return Known(ranges, made)


@dataclass(frozen=True, eq=False)
class Loop:
    """The stores of a loop: per pointer, the dimension and index by which no two iterations write the same element."""

    n: For
    written: frozenset[Var]
    own: Mapping[Var, tuple[Any, int, PrimExpr]]


class Knowns:
    """The knowns at the current point, and how statements change them."""

    def __init__(self, ana: Analyzer) -> None:
        self.ana = ana
        self.held: list[Known] = []

    # -- use -------------------------------------------------------------------------------
    @contextmanager
    def assumed(self, e: PrimExpr) -> Iterator[None]:
        """A scope in which the analyzer knows what is known about the elements that an expression loads."""
        with self.ana.scope():
            for fact in self._facts(e):
                made = self.ana.simplify(fact)
                if not isinstance(made, (IntImm, Or)):
                    self.ana.assume(made)
            yield

    def _facts(self, e: PrimExpr) -> list[PrimExpr]:
        """Conditions that hold for the elements that an expression loads, and for those that they are compared with."""
        facts = [k.condition for k in self.held if not k.loads and not k.ranges]
        todo, seen = [e], 0
        while todo and seen < _MOST:
            for load in [x for x in pre_order(todo.pop()) if isinstance(x, BufferLoad)]:
                seen += 1
                new = [f for f in self._about(load) if not any(structural_equal(f, g) for g in facts)]
                facts += new
                todo += new
        return facts

    def _about(self, load: BufferLoad) -> Iterator[PrimExpr]:
        if not _scalar(load.indices):
            return
        for k in self.held:
            for mine in k.loads:
                if mine.buffer is load.buffer:
                    values, need = self._solve(k, tuple(zip(mine.indices, load.indices, strict=True)))
                    open_ = [c for c in need if not self.ana.can_prove(c)]
                    made = k.at(values, open_)
                    if not made.ranges:
                        yield made.condition

    def _solve(
        self, known: Known, pairs: Sequence[tuple[PrimExpr, PrimExpr]]
    ) -> tuple[dict[Var, PrimExpr], list[PrimExpr]]:
        """Values of the variables that make each pair equal, and the conditions for it."""
        values: dict[Var, PrimExpr] = {}
        need: list[PrimExpr] = []
        for mine, wanted in pairs:
            free = [v for v in vars_used(mine) if v in known.ranges and v not in values]
            factor, rest = _linear(mine, free[0]) if len(free) == 1 else (0, mine)
            if abs(factor) == 1 and mine.dtype == wanted.dtype:
                rest = sub(wanted, substitute(rest, values))
                values[free[0]] = self.ana.simplify(mul(rest, const(factor, rest.dtype)))
            else:
                need.append(EQ(mine, wanted) if mine.dtype == wanted.dtype else const(False))
        need = [substitute(c, values) for c in need]
        for v, value in values.items():
            dom = known.ranges[v]
            dom = Range.from_min_extent(substitute(dom.min, values), substitute(dom.extent, values))
            need.append(in_range(value, dom))
        return values, need

    def value(self, e: PrimExpr) -> PrimExpr:
        """An expression with loads replaced by the values that they are known to have."""

        def replaced(load: BufferLoad) -> PrimExpr:
            for fact in self._about(load):
                if isinstance(fact, EQ) and isinstance(fact.a, BufferLoad) and _same_element(fact.a, load):
                    return fact.b
            return load

        def _same_element(a: BufferLoad, b: BufferLoad) -> bool:
            return a.buffer is b.buffer and all(map(self.ana.can_prove_equal, a.indices, b.indices))

        return self.ana.simplify(rewrite(e, {BufferLoad: replaced})) if self.held else e

    # -- change ----------------------------------------------------------------------------
    def learn(self, condition: PrimExpr) -> None:
        """A condition holds here."""
        for c in conjuncts(condition):
            if not has_effect(c) and not isinstance(c, IntImm) and _exact(c):
                self._add(Known({}, c))

    def _add(self, known: Known) -> None:
        self.held = [*self.held, known][-_MOST:]

    def forget_all(self) -> None:
        """Any memory may have changed."""
        self.held = [k for k in self.held if not k.memory]

    def forget_memory(self, pointers: frozenset[Var]) -> None:
        """The memory at these pointers may have changed."""
        self.held = [k for k in self.held if not k.memory & pointers]

    def forget_var(self, v: Var) -> None:
        """A variable goes out of scope."""
        self.held = [k for k in self.held if v not in k.vars() and v not in k.memory]

    def store(self, s: BufferStore) -> None:
        """An element gets a value."""
        dtype, value = s.buffer.dtype, s.value
        fixed = s.predicate is None and (dtype.is_int or dtype.is_uint) and not dtype.is_bool
        if fixed and not has_effect(value):
            value = self.value(value)
        self._overwrite(s)
        if not fixed or has_effect(value) or any(map(reads_memory, s.indices)):
            return
        if any(isinstance(e, BufferLoad) and e.buffer.data is s.buffer.data for e in pre_order(value)):
            return
        if _scalar(s.indices) and value.dtype.lanes == 1:
            self._add(Known({}, EQ(BufferLoad(s.buffer, s.indices), value)))
        elif len(s.indices) == 1 and isinstance(s.indices[0], Ramp):
            self._store_lanes(s, s.indices[0], value)

    def _store_lanes(self, s: BufferStore, at: Ramp, value: PrimExpr) -> None:
        lanes, stride = at.dtype.lanes, at.stride
        if not isinstance(stride, IntImm) or stride.value == 0 or not isinstance(lanes, int):
            return
        lane = Var("lane", at.base.dtype)
        if isinstance(value, Broadcast):
            one = value.value
        elif isinstance(value, Ramp) and value.base.dtype == lane.dtype:
            one = add(value.base, mul(value.stride, lane))
        else:
            return
        load = BufferLoad(s.buffer, (add(at.base, mul(stride, lane)),))
        dom = Range.from_min_extent(const(0, lane.dtype), const(lanes, lane.dtype))
        self._add(Known({lane: dom}, EQ(load, one)))

    def _overwrite(self, s: BufferStore) -> None:
        """What is known about the overwritten element is known only of the others from now on."""
        kept: list[Known] = []
        plain = _scalar(s.indices) and not any(map(reads_memory, s.indices))
        for k in self.held:
            mine = [x for x in k.loads if x.buffer.data is s.buffer.data]
            if mine and not (plain and all(x.buffer is s.buffer for x in mine)):
                continue
            for load in mine:
                with self.ana.scope():
                    self.ana.bind_ranges(k.ranges)
                    hit = self.ana.simplify(conjunction(map(_equal, load.indices, s.indices)))
                if not isinstance(hit, IntImm):
                    k = k.unless(hit)
                elif hit.value:
                    break
            else:
                if sum(isinstance(e, Or) for e in pre_order(k.condition)) <= _MOST_CASES:
                    kept.append(k)
        self.held = kept

    # -- branches and loops ----------------------------------------------------------------
    def join(self, condition: PrimExpr, then: list[Known], other: list[Known]) -> None:
        """After a branch, what is known on one side is known under its condition."""
        self.held = [k for k in then if k in other]
        if not reads_memory(condition) and not has_effect(condition):
            self.held += [k.unless(logical_not(condition)) for k in then if k not in other]
            self.held += [k.unless(condition) for k in other if k not in then]
            self.held = self.held[-_MOST:]

    def enter(self, n: For, body: Stmt) -> tuple[Loop, list[Known]]:
        """Keep what holds at the start of each iteration; also gives what the loop leaves true as it is.

        Called where the analyzer knows the range of the loop.
        """
        stores = [s for s in pre_order(body) if isinstance(s, BufferStore)]
        written = frozenset(s.buffer.data for s in stores)
        inner = {m.loop_var for m in pre_order(body) if isinstance(m, For)}
        inner |= {m.var for m in pre_order(body) if isinstance(m, LetStmt)}
        own = {}
        for pointer in written:
            found = self._own(n.loop_var, [s for s in stores if s.buffer.data is pointer], inner)
            if found is not None:
                own[pointer] = found
        loop = Loop(n, written, own)
        untouched = [k for k in self.held if not k.memory & written]
        special = [self._own_part(loop, k) for k in self.held if k.memory & written]
        self.held = untouched + [k for k in special if k is not None]
        return loop, untouched

    def _own(self, v: Var, stores: list[BufferStore], inner: set[Var]) -> tuple[Any, int, PrimExpr] | None:
        buffer = stores[0].buffer
        if any(s.buffer is not buffer or not _scalar(s.indices) for s in stores):
            return None
        for d, at in enumerate(stores[0].indices):
            if reads_memory(at) or vars_used(at) & inner or _linear(at, v)[0] == 0:
                continue
            if all(self.ana.can_prove_equal(at, s.indices[d]) for s in stores):
                return buffer, d, at
        return None

    def _own_part(self, loop: Loop, k: Known) -> Known | None:
        """What is known of the elements that only this iteration writes."""
        mine = [x for x in k.loads if x.buffer.data in loop.written]
        place = loop.own.get(mine[0].buffer.data)
        if place is None or any(not structural_equal(x, mine[0]) for x in mine):
            return None
        buffer, d, at = place
        if mine[0].buffer is not buffer:
            return None
        return k.at(*self._solve(k, [(mine[0].indices[d], at)]))

    def leave(self, loop: Loop, untouched: list[Known]) -> None:
        """After the loop, what held at the end of an iteration holds for all of them if no other one changed it."""
        v = loop.n.loop_var
        new = [k for k in self.held if k not in untouched and v in k.vars() and self._lasts(loop, k)]
        self.held = list(untouched)
        if reads_memory(loop.n.min) or reads_memory(loop.n.extent):
            return
        for k in new:
            every = Var(v.name, v.dtype)
            made = k.at({v: every}, ())
            dom = Range.from_min_extent(loop.n.min, loop.n.extent)
            self._add(Known({**made.ranges, every: dom}, made.condition))

    def _lasts(self, loop: Loop, k: Known) -> bool:
        for x in k.loads:
            if x.buffer.data in loop.written:
                place = loop.own.get(x.buffer.data)
                if place is None or place[0] is not x.buffer:
                    return False
                if not self.ana.can_prove_equal(x.indices[place[1]], place[2]):
                    return False
        return True


def _exact(e: PrimExpr) -> bool:
    """Whether a condition loads only scalars of integers and truth values."""
    loads = [x for x in pre_order(e) if isinstance(x, BufferLoad)]
    return all(x.buffer.dtype.is_integral and x.predicate is None and _scalar(x.indices) for x in loads)


def _scalar(indices: Sequence[PrimExpr]) -> bool:
    return all(i.dtype.lanes == 1 for i in indices)


def _equal(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return EQ(a, b) if a.dtype == b.dtype else EQ(a.astype("int64"), b.astype("int64"))


def _linear(e: PrimExpr, v: Var) -> tuple[int, PrimExpr]:
    """The constant factor of a variable in an index, and the rest; the factor is 0 if there is none."""
    if v not in vars_used(e):
        return 0, e
    found = detect_linear_equation(e, [v])
    if len(found) != 2 or not isinstance(found[0], IntImm):
        return 0, e
    return found[0].value, found[1]
