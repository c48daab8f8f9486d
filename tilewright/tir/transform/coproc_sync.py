"""Tokens between engines: each dependence through memory, and none that is redundant."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ...arith import detect_linear_equation
from ...ir.errors import LoweringError
from ...ir.expr import BufferLoad, Call, PrimExpr, Select, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Mutator
from ...ir.op import Op
from ...ir.ops import call, logical_not
from ...ir.stmt import AttrStmt, BufferStore, Evaluate, For, IfThenElse, Stmt, seq
from ...target.accelerator import Accelerator
from ..analysis.commands import Rows, Site, Unknown, engine_of, engine_of_site, sites
from ..analysis.iterations import condition_for

_IF = Op.get("tir.if_then_else")


def coproc_sync(func: PrimFunc, chip: Accelerator) -> PrimFunc:
    """Let engines wait for each other where their commands depend on each other through memory.

        for k in range(8):                            for k in range(8):
            # attr coproc_scope = 1                       if k != 0: coproc_dep_pop(2, 1)
            A[0] = X[k]                                   # attr coproc_scope = 1
            # attr coproc_scope = 2           ->          A[0] = X[k]
            C[0] += A[0]                                  coproc_dep_push(1, 2)
                                                          coproc_dep_pop(1, 2)
                                                          # attr coproc_scope = 2
                                                          C[0] += A[0]
                                                          if k != 7: coproc_dep_push(2, 1)

    The commands of the whole run are known, with the elements that each reads and writes. In program order, a command
    waits for the last command of another engine whose result it reads, or whose operands or result it overwrites,
    unless a token it has waited for already says that this one is done. The n-th pop of an engine takes the n-th push
    of the other: tokens are pushed and popped in the same order, so they need no names.

    Where one engine cannot push tokens to the other, an engine between them passes the token on: it pops one and pushes
    one without a command.

    Needs: memories placed. Gives: a program whose engines may run side by side.
    """
    try:
        found = [s for s in sites(func.body) if engine_of(s.statement) is not None]
        if not found:
            return func
        waits = _Sync(chip, found).waits()
    except Unknown as error:
        reason, where = error.args
        line = where.script().splitlines()[-1].strip()
        raise LoweringError(
            f"{chip.name}: the commands of the engines must be known before the program runs: {reason}\n"
            f"  | {line}\n  hint: mark the stage for an engine, or let the host compute it"
        ) from None
    made = _Mark(waits).run(func)
    return made.with_attr("coproc_engines", [e.number for e in chip.engines])


# ---------------------------------------------------------------------------- accesses of commands
class _Access(NamedTuple):
    """A load or store of a command, with the loops and conditions of the command around it."""

    node: BufferLoad | BufferStore
    loops: tuple[For, ...]
    conditions: tuple[PrimExpr, ...]


def _accesses(n: Any, loops: tuple[For, ...] = (), holds: tuple[PrimExpr, ...] = ()) -> Iterator[_Access]:
    """The accesses in a statement or expression."""
    if isinstance(n, (BufferLoad, BufferStore)):
        yield _Access(n, loops, holds)
    elif isinstance(n, For):
        loops = (*loops, n)
    cases = _cases(n)
    if cases is not None:
        test, first, second = cases
        yield from _accesses(test, loops, holds)
        yield from _accesses(first, loops, (*holds, test))
        if second is not None:
            yield from _accesses(second, loops, (*holds, logical_not(test)))
        return
    for c in n.children():
        yield from _accesses(c, loops, holds)


def _cases(n: Any) -> tuple[PrimExpr, Any, Any] | None:
    """The condition of a statement or expression that chooses, and what it chooses from."""
    if isinstance(n, IfThenElse):
        return n.condition, n.then_case, n.else_case
    if isinstance(n, Select):
        return n.condition, n.true_value, n.false_value
    return n.args if isinstance(n, Call) and n.op is _IF else None  # type: ignore[return-value]


class _Runs(NamedTuple):
    """Bytes of a memory: `starts` for each of some times of a command, and at each the runs `begin` to `end`."""

    times: Any
    starts: Any
    begin: Any
    end: Any


def _runs(offsets: Any, size: int) -> tuple[Any, Any]:
    """The first bytes and the ends of contiguous runs of elements of `size` bytes at the given offsets."""
    offsets = np.unique(offsets)
    breaks = np.flatnonzero(np.diff(offsets) != size)
    first, last = np.r_[0, breaks + 1], np.r_[breaks, len(offsets) - 1]
    return offsets[first], offsets[last] + size


def _touched(a: _Access, s: Site) -> Iterator[_Runs]:
    """The bytes that an access of a command touches each time: the same runs, shifted, at many times."""
    size = a.node.buffer.dtype.nbytes
    (index,) = a.node.indices
    linear = detect_linear_equation(index, [x.loop_var for x in a.loops])
    steps = [const_value(k) for k in linear[:-1]]
    try:
        if a.conditions or not linear or any(not isinstance(k, int) for k in steps):
            yield from _one_by_one(a, s, index, size)
            return
        base = s.evaluate(linear[-1]) * size
        extents = np.stack([np.zeros(s.times, np.int64), *(s.evaluate(x.extent) for x in a.loops)], axis=1)
        base = base + sum(s.evaluate(x.min) * k * size for x, k in zip(a.loops, steps, strict=True))
    except ValueError:
        raise Unknown(f"the index `{index}` of {a.node.buffer.name} is not known", s.statement) from None
    for shape in np.unique(extents, axis=0):
        times = np.flatnonzero((extents == shape).all(axis=1))
        offsets = np.zeros(1, np.int64)
        for k, extent in zip(steps, shape[1:], strict=True):
            offsets = np.add.outer(offsets, int(k or 0) * size * np.arange(extent)).ravel()
        if len(offsets):
            yield _Runs(times, base[times], *_runs(offsets, size))


def _one_by_one(a: _Access, s: Site, index: PrimExpr, size: int) -> Iterator[_Runs]:
    """The bytes of an access under conditions, for each time on its own."""
    time = Var("time")
    rows = Rows(s.times, {**s.values, time: np.arange(s.times)}, ())
    for x in a.loops:
        rows = rows.of_loop(x)
    for c in a.conditions:
        rows = rows.where(c)
    at = rows.evaluate(index) * size
    for t in np.unique(rows.values[time]):
        yield _Runs(np.asarray([t]), np.zeros(1, np.int64), *_runs(at[rows.values[time] == t], size))


# ---------------------------------------------------------------------------- who waits for whom
@dataclass
class Waits:
    """The tokens of a site: for each engine, the times at which the site pops one of its tokens, or pushes one to it.

    `passes` are the engines that pass tokens on just before the command, by the way from there to the command.
    """

    site: Site
    pops: dict[int, Any] = field(default_factory=dict)
    pushes: dict[int, Any] = field(default_factory=dict)
    passes: dict[tuple[int, ...], Waits] = field(default_factory=dict)

    def mark(self, table: dict[int, Any], engine: int, time: int) -> None:
        table.setdefault(engine, np.zeros(self.site.times, bool))[time] = True


class _Issue(NamedTuple):
    """An entry of an engine's queue: its tokens, its time, and all commands that are done when it starts."""

    waits: Waits
    time: int
    position: int  # in program order
    clock: dict[int, int]


_Cells = tuple[int, bool, Any]  # the number of a memory, whether it is written, and a slice or indices


class _Sync:
    """Finds which command waits for which, in program order, with a vector clock for each."""

    def __init__(self, chip: Accelerator, found: list[Site]) -> None:
        self.chip, self.sites = chip, found
        self.numbers = [e.number for e in chip.engines]
        self.place = {n: i for i, n in enumerate(self.numbers)}
        self.queues: dict[int, list[_Issue]] = {n: [] for n in self.numbers}
        self.cells = self._in_units()

    def _in_units(self) -> list[list[list[_Cells]]]:
        """The cells of memories that each site accesses each time.

        The bytes of a cell are always accessed together: its size divides all starts and all edges of runs.
        """
        accesses = [list(_accesses(s.statement)) for s in self.sites]
        written = {a.node.buffer.data for one in accesses for a in one if isinstance(a.node, BufferStore)}
        touched: list[tuple[int, Var, bool, _Runs]] = []
        for i, (s, one) in enumerate(zip(self.sites, accesses, strict=True)):
            distinct: dict[tuple[Any, ...], _Access] = {}
            for a in one:
                if a.node.buffer.data in written and s.times:  # there is no dependence through other memory
                    writes = isinstance(a.node, BufferStore)
                    key = (a.node.buffer.data, writes, str(a.node.indices[0]), *map(id, a.conditions))
                    distinct.setdefault(key, a)
            for a in distinct.values():
                writes = isinstance(a.node, BufferStore)
                touched += [(i, a.node.buffer.data, writes, r) for r in _touched(a, s)]
        units: dict[Var, int] = {}
        sizes: dict[Var, int] = {}
        for _, memory, _, r in touched:
            edges = np.concatenate([r.starts, r.begin, r.end])
            units[memory] = int(np.gcd(units.get(memory, 0), np.gcd.reduce(edges)))
            sizes[memory] = max(sizes.get(memory, 0), int(r.starts.max() + r.end.max()))
        numbers = {v: i for i, v in enumerate(units)}
        shape = len(self.numbers)
        self.writers = [np.zeros((shape, sizes[v] // units[v]), np.int64) for v in numbers]
        self.readers = [np.zeros_like(w) for w in self.writers]
        out: list[list[list[_Cells]]] = [[[] for _ in range(s.times)] for s in self.sites]
        for i, memory, writes, r in touched:
            unit = units[memory]
            begin, end = r.begin // unit, r.end // unit
            pattern = np.concatenate([np.arange(a, b) for a, b in zip(begin, end, strict=True)])
            for t, start in zip(r.times, r.starts // unit, strict=True):
                first = int(start + begin[0])
                cells = pattern + start if len(begin) > 1 else slice(first, first + len(pattern))
                out[i][t].append((numbers[memory], writes, cells))
        return out

    def waits(self) -> dict[Stmt, Waits]:
        """The tokens of each command."""
        made = [Waits(s) for s in self.sites]
        issued = sorted(
            (int(n), i, t) for i, s in enumerate(self.sites) for t, n in enumerate(s.order.tolist())
        )
        for position, i, t in issued:
            engine = engine_of_site(self.sites[i])
            needs = self._needs(self.cells[i][t], engine)
            self._issue(engine, needs, _Issue(made[i], t, position, {}), made[i], (engine,))
            self._record(self.cells[i][t], engine)
        return {w.site.statement: w for w in made}

    def _issue(
        self, engine: int, needs: dict[int, int], new: _Issue, owner: Waits, way: tuple[int, ...]
    ) -> None:
        """Put an entry into the queue of an engine, behind what it needs: the last command of each other engine.

        The latest command comes first: what it has waited for, this one need not wait for.
        """
        queue = self.queues[engine]
        clock = dict(queue[-1].clock) if queue else {}
        open_ = {p: k for p, k in needs.items() if k > clock.get(p, 0)}
        for p, k in self._passed_on(engine, open_, new, owner, way).items():
            open_[p] = max(k, open_.get(p, 0))
        for p, k in sorted(open_.items(), key=lambda pk: -self.queues[pk[0]][pk[1] - 1].position):
            if k <= clock.get(p, 0):
                continue
            before = self.queues[p][k - 1]
            before.waits.mark(before.waits.pushes, engine, before.time)
            new.waits.mark(new.waits.pops, p, new.time)
            for e, n in before.clock.items():
                clock[e] = max(n, clock.get(e, 0))
        clock[engine] = len(queue) + 1
        queue.append(new._replace(clock=clock))

    def _passed_on(
        self, engine: int, needs: dict[int, int], new: _Issue, owner: Waits, way: tuple[int, ...]
    ) -> dict[int, int]:
        """The commands to wait for in place of those of engines without a token channel to this one.

        An engine between the two that has waited for the command already serves as it is. Otherwise it gets an entry
        without a command. Commands that need not be waited for any longer are dropped from `needs`.
        """
        held: dict[int, int] = {}
        wanted: dict[int, dict[int, int]] = {}
        neighbours = [n for n in self.numbers if (n, engine) in self.chip.tokens]
        for p in [p for p in needs if p not in neighbours]:
            k = needs[p]
            if any(self._knows(d, p, k) <= n for d, n in needs.items() if d != p):
                continue
            known = [(n, d) for d in neighbours if (n := self._knows(d, p, k)) <= len(self.queues[d])]
            if known:
                n, d = min(known, key=lambda nd: self.queues[nd[1]][nd[0] - 1].position)
                held[d] = max(n, held.get(d, 0))
            else:
                wanted.setdefault(self._between(p, engine), {})[p] = k
        for p in [p for p in needs if p not in neighbours]:
            del needs[p]
        for between, its in wanted.items():
            path = (between, *way)
            link = owner.passes.setdefault(path, Waits(owner.site))
            self._issue(between, its, _Issue(link, new.time, new.position, {}), owner, path)
            held[between] = len(self.queues[between])
        return held

    def _knows(self, engine: int, other: int, k: int) -> int:
        """The number of the first entry of an engine that starts when command `k` of the other engine is done."""
        return bisect_left(self.queues[engine], k, key=lambda x: x.clock.get(other, 0)) + 1

    def _between(self, source: int, target: int) -> int:
        """The last engine before `target` on the shortest way of tokens from `source`."""
        seen, line = {target: target}, deque([target])
        while line:
            at = line.popleft()
            for n in self.numbers:
                if (n, at) in self.chip.tokens and n not in seen:
                    seen[n] = n if at == target else seen[at]
                    if n == source:
                        return seen[n]
                    line.append(n)
        self._no_tokens(source, target)

    def _needs(self, cells: Sequence[_Cells], engine: int) -> dict[int, int]:
        """The last command of each other engine that a command depends on."""
        needs = np.zeros(len(self.numbers), np.int64)
        for memory, writes, at in cells:
            needs = np.maximum(needs, self.writers[memory][:, at].max(axis=1))
            if writes:
                needs = np.maximum(needs, self.readers[memory][:, at].max(axis=1))
        return {n: int(k) for n, k in zip(self.numbers, needs, strict=True) if k and n != engine}

    def _record(self, cells: Sequence[_Cells], engine: int) -> None:
        for memory, writes, at in cells:
            table = self.writers if writes else self.readers
            table[memory][self.place[engine], at] = len(self.queues[engine])

    def _no_tokens(self, source: int, target: int) -> NoReturn:
        first, second = (self.chip.engine(e).name for e in (source, target))
        raise LoweringError(
            f"{self.chip.name}: a command of engine {second} depends on one of engine {first}, and no token of {first} "
            f"can reach {second}, not even over other engines\n"
            f"  hint: add a token channel to the chip, or keep both commands on one engine"
        )


# ---------------------------------------------------------------------------- tokens in the program
class _Mark(Mutator):
    """Puts pops before and pushes behind the commands."""

    def __init__(self, waits: dict[Stmt, Waits]) -> None:
        self.waits = waits

    def visit_AttrStmt(self, n: AttrStmt) -> Stmt:
        found = self.waits.get(n)
        engine = engine_of(n)
        if found is None or engine is None:
            return self.visit_children(n)  # type: ignore[no-any-return]
        # An engine passes tokens on behind those that pass tokens on to it.
        ways = sorted(found.passes, key=lambda way: (*way[::-1], math.inf))
        before = [s for way in ways for s in _tokens(found.passes[way], way[0], [])]
        return seq(*before, *_tokens(found, engine, [n]))


def _tokens(w: Waits, engine: int, command: list[Stmt]) -> list[Stmt]:
    """A command between the tokens that it pops and pushes."""
    pops = [_token("pop", p, engine, w.site, when) for p, when in sorted(w.pops.items())]
    pushes = [_token("push", engine, q, w.site, when) for q, when in sorted(w.pushes.items())]
    return [*pops, *command, *pushes]


def _token(kind: str, source: int, target: int, site: Site, when: Any) -> Stmt:
    made: Stmt = Evaluate(call("int32", f"tir.coproc_dep_{kind}", const(source), const(target)))
    condition = condition_for([x.loop_var for x in site.loops], site.values, when)
    return made if condition is None else IfThenElse(condition, made)
