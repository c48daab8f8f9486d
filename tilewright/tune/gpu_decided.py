"""The scheduler for GPUs under the tuner: it collects the possible decisions as tables, or applies given decisions.

tell     each stage is scheduled twice: in a dry run every sketch that could be applied hands over its table and
         refuses, so that the next one is asked; then the zero-trial choice is applied
decide   every sketch refuses but the one that was decided on, so that the scheduler comes to that one
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import MISSING, astuple, dataclass, field, fields
from typing import Any, TypeVar

import numpy as np

from ..ir.errors import ScheduleError
from ..target.machine import GpuMachine
from .gpu import GpuFunction
from .gpu_space import FIGURES, SIMPLE_COLUMNS, Table, simple_table, stage_features
from .program.facts import Facts
from .program.patterns import across_of
from .program.stages import reason_of
from .space import Decisions, Space, Stage

__all__ = ["GpuDecided", "GpuSpace", "GpuStage"]

Array = Any
T = TypeVar("T")
_HEAD = "kind"
_FINE = ("fetch", "unroll", "stages", "lanes")  # the columns that do not change the tile


class _Elsewhere(ScheduleError):
    """This sketch was not decided on: the scheduler goes on to the next."""


@dataclass
class GpuStage(Stage):
    """The decisions of a stage to which several kinds of sketches could be applied: each row names its kind.

    `names` gives the columns of each kind; the other columns are 0 in its rows.
    """

    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)  # the rows that the rules of each kind choose

    def decision(self, row: int) -> dict[str, Any]:
        point = dict(zip(self.columns, map(int, self.points[row]), strict=True))
        kind = list(self.names)[point[_HEAD]]
        return {"stage": self.name, "sketch": kind, **{name: point[name] for name in self.names[kind]}}

    def row(self, decision: dict[str, Any]) -> int | None:
        kind = decision.get("sketch")
        if decision.get("stage") != self.name or kind not in self.names:
            return None
        point = dict.fromkeys(self.columns, 0) | {_HEAD: list(self.names).index(kind)}
        try:
            point |= {name: int(decision[name]) for name in self.names[kind]}
        except (KeyError, TypeError, ValueError):
            return None
        found = int(self.find(np.array([[point[c] for c in self.columns]], np.int64))[0])
        return found if found >= 0 else None


class GpuSpace(Space):
    """The stages of a function for a GPU."""

    def __init__(self, stages: list[Stage], machine: GpuMachine) -> None:
        super().__init__(stages, machine)

    @property
    def beginnings(self) -> Array:
        """The zero-trial schedule, then the same with the choices of the other kinds of sketches for the stage that
        takes longest."""
        out = [self.default]
        for s in self._heavy[:1]:
            for row in getattr(self.stages[s], "starts", [])[1:]:
                out.append(self.default)
                out[-1][s] = row
        return np.stack(out)

    def varied(self, ranked: Array, count: int) -> Array:
        """Rank the first candidate of each family with the same tile before the second ones: the analytical model
        hardly distinguishes candidates that differ only in copies and unrolling."""
        family = np.zeros((len(ranked), 0), np.int64)
        for s, stage in enumerate(self.stages):
            kept = [c for c, name in enumerate(stage.columns) if name not in _FINE]
            family = np.concatenate([family, stage.points[ranked[:, s]][:, kept]], axis=1)
        _, member = np.unique(family, axis=0, return_inverse=True)
        member = member.ravel()
        order = np.argsort(member, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(member[order]) != 0])
        place = np.empty(len(ranked), np.int64)
        place[order] = np.arange(len(ranked)) - np.repeat(starts, np.diff(np.r_[starts, len(ranked)]))
        return np.argsort(np.minimum(place, 64), kind="stable")[:count]

    def machine_features(self) -> Array:
        gpu = self.machine
        assert isinstance(gpu, GpuMachine)
        sizes = [gpu.max_threads_per_block, gpu.shared_memory_per_block, gpu.dynamic_shared_memory_per_block]
        rates = [gpu.multiprocessors, gpu.l2_cache, gpu.bandwidth, gpu.fma_per_cycle]
        return np.array([*(math.log2(1 + x) for x in (*sizes, *rates)), gpu.clock], np.float32)


@dataclass
class _Found:
    """What the sketches told of a stage: a table for each kind, its default, and the decision that was taken."""

    tables: dict[str, tuple[tuple[str, ...], Table]] = field(default_factory=dict)
    taken: tuple[str, tuple[int, ...]] | None = None
    default: dict[str, tuple[int, ...]] = field(default_factory=dict)


class GpuDecided(GpuFunction):
    """The scheduler for GPUs that takes its choices from `decisions`, if there are any. With `tell` it collects the
    possible decisions as stages, in `found`."""

    def __init__(self, *given: Any, decisions: Decisions, tell: bool) -> None:
        super().__init__(*given)
        self.decisions, self.tell = decisions, tell
        self.found: list[Stage] = []
        self.number = 0
        self._asking: _Found | None = None  # set while the tables of a stage are collected
        self._dry = False  # … and no sketch is applied
        self._decision: dict[str, Any] | None = None  # of the current stage
        self._inside = False
        self._at_it = False  # the sketch that was decided on is being applied
        self._why = ""  # … and why it was refused

    # -- tiles ---------------------------------------------------------------------------------------
    def choose(self, f: Facts, kind: str, default: T, table: Callable[[], Table]) -> T:
        if self._decision is not None:
            return self._decided(kind, default)
        if self._asking is None:
            return default
        values = astuple(default)  # type: ignore[call-overload]
        names = tuple(x.name for x in fields(default))  # type: ignore[arg-type]
        if self._dry:
            if kind not in self._asking.tables:
                self._asking.tables[kind] = (names, table())
                self._asking.default[kind] = values
            raise _Elsewhere("it is asked what else there is")
        self._asking.taken = (kind, values)
        return default

    def _decided(self, kind: str, default: T) -> T:
        decision = self._decision
        assert decision is not None
        if decision["sketch"] != kind:
            raise _Elsewhere(f"{decision['sketch']} was decided")
        self._at_it = True
        try:
            kept = [x for x in fields(default) if x.name in decision or x.default is MISSING]  # type: ignore[arg-type]
            return type(default)(**{x.name: int(decision[x.name]) for x in kept})
        except (KeyError, TypeError, ValueError) as why:
            raise ScheduleError(f"the decision for {decision['stage']} is damaged: {why!r}") from None

    def refused(self, why: ScheduleError) -> None:
        if self._at_it:
            self._at_it, self._why = False, reason_of(why)

    def tile(self, f: Facts) -> None:
        if self.decisions is not None:
            return self._tile_as_decided(f)
        if not self.tell:
            return super().tile(f)
        asking = self._asking = _Found()
        self._ask(f)
        mark = len(self.notes.outcomes)
        self._inside = True  # a stage that gets no tile after all is recorded here
        try:
            super().tile(f)
        finally:
            self._asking, self._inside = None, False
        if asking.taken is None or any(o.gave_way for o in self.notes.outcomes[mark:]):
            self.found.append(_simple_stage(f, f, self.target.gpu))
        else:
            self.found.append(_tile_stage(f, asking))
        return None

    def _ask(self, f: Facts) -> None:
        """Collect the tables of all sketches in a dry run, and restore the state."""
        done, counts = set(self.done), (len(self.notes.records), len(self.notes.outcomes))
        self._dry = self.free = True
        try:
            with self.sch.tried():
                super().tile(f)
        except ScheduleError:
            pass
        finally:
            self._dry = self.free = False
            self.done = done
            del self.notes.records[counts[0] :], self.notes.outcomes[counts[1] :]

    def _tile_as_decided(self, f: Facts) -> None:
        decision = self._next(f.name)
        if decision["sketch"] == "simple":
            decision = {**decision, "sketch": ""}  # no tile: every sketch with a tile was refused
            self.threads, self.widest = int(decision["threads"]), int(decision["wide"])
        mark = len(self.notes.outcomes)
        self._decision, self.free, self._inside, self._at_it, self._why = decision, True, True, False, ""
        try:
            super().tile(f)
        except ScheduleError:
            raise
        except (ArithmeticError, ValueError) as why:  # a record that somebody has edited
            raise ScheduleError(f"the decision for {f.name} is damaged: {why}") from None
        finally:
            self._decision, self.free, self._inside, self.threads, self.widest = None, False, False, 0, 0
        gone = any(o.gave_way for o in self.notes.outcomes[mark:])
        if decision["sketch"] and (self._why or gone):
            reason = self._why or f"no sketch of the kind {decision['sketch']!r} is for it"
            raise ScheduleError(f"{f.name} cannot be scheduled as decided: {reason}")

    def _next(self, name: str) -> dict[str, Any]:
        """The decision for the current stage."""
        assert self.decisions is not None
        if self.number >= len(self.decisions):
            raise ScheduleError(f"there is no decision for the stage {name}")
        decision = self.decisions[self.number]
        if decision.get("stage") != name or not isinstance(decision.get("sketch"), str):
            raise ScheduleError(f"the decision is for {decision.get('stage')}, and the stage is {name}")
        self.number += 1
        return decision

    # -- the others ----------------------------------------------------------------------------------
    def alone(self, f: Facts, refused: str = "") -> None:
        self._simply(f, f, lambda: super(GpuDecided, self).alone(f, refused))

    def rows(self, last: Facts, group: list[Facts]) -> None:
        heavy = max(group, key=lambda g: g.points * (g.work + 1))
        self._simply(last, heavy, lambda: super(GpuDecided, self).rows(last, group))

    def _simply(self, f: Facts, heavy: Facts, run: Callable[[], None]) -> None:
        """Schedule a stage whose only decisions are the threads of a block and the width of vectors."""
        if f.kind == "opaque" or self._inside or self._dry:
            return run()
        if self.tell:
            self.found.append(_simple_stage(f, heavy, self.target.gpu))
        elif self.decisions is not None:
            decision = self._next(f.name)
            if decision["sketch"] != "simple":
                raise ScheduleError(f"{f.name} takes no decisions of the kind {decision['sketch']!r}")
            self.threads, self.widest = int(decision["threads"]), int(decision["wide"])
        self._inside = True  # a chain that is refused is scheduled stage by stage, all with this decision
        try:
            run()
        finally:
            self._inside, self.threads, self.widest = False, 0, 0
        return None


# ---------------------------------------------------------------------------- tables
def _tile_stage(f: Facts, asked: _Found) -> Stage:
    """All kinds of sketches of a stage as one table, which always contains the choice of the zero-trial scheduler."""
    assert asked.taken is not None
    kinds = {kind: names for kind, (names, _) in asked.tables.items()}
    columns = (_HEAD, *dict.fromkeys(name for names in kinds.values() for name in names))
    points, figures = [], []
    for number, (names, table) in enumerate(asked.tables.values()):
        rows = np.zeros((len(table), len(columns)), np.int64)
        rows[:, 0] = number
        for i, name in enumerate(names):
            rows[:, columns.index(name)] = table.points[:, i]
        points.append(rows)
        figures.append(np.stack([table.figures[name] for name in FIGURES], axis=1))
    every, counts = np.concatenate(points), np.concatenate(figures)
    kind, values = asked.taken
    own = np.zeros((1, len(columns)), np.int64)
    own[0, 0] = list(kinds).index(kind)
    for name, value in zip(kinds[kind], values, strict=True):
        own[0, columns.index(name)] = value
    at = np.flatnonzero((every == own).all(axis=1))
    if not len(at):  # a rule may choose a decision that is not in the table
        same = np.flatnonzero(every[:, 0] == own[0, 0])
        near = same[np.argmin(np.abs(every[same] - own).sum(axis=1))] if len(same) else None
        line = counts[near] if near is not None else np.full(len(FIGURES), 1.0)
        every, counts = np.concatenate([every, own]), np.concatenate([counts, line[None]])
        at = np.array([len(every) - 1])
    seconds = np.maximum(counts[:, 0], 1e-7)
    written = np.where(counts[:, FIGURES.index("unroll")] > 0, counts[:, FIGURES.index("depth")], 1.0)
    effort = 2.0 + 0.5 * np.log2(8 + counts[:, FIGURES.index("results")] * written)
    features = stage_features(f, counts, every[:, 0])
    made = GpuStage(f.name, "tile", columns, every, features, seconds, effort, int(at[0]), names=kinds)
    others = [
        made.row({"stage": f.name, "sketch": k, **dict(zip(kinds[k], v, strict=True))})
        for k, v in asked.default.items()
    ]
    made.starts = [made.default, *(r for r in others if r is not None and r != made.default)]
    return made


def _simple_stage(f: Facts, heavy: Facts, gpu: GpuMachine) -> Stage:
    transposed = f.kind == "injective" and across_of(f) is not None
    points, counts = simple_table(heavy, gpu, f.kind == "injective" and f is heavy and not transposed)
    if transposed:  # a transpose has nothing to decide
        points, counts = points[:1], counts[:1]
    features = stage_features(heavy, counts, np.full(len(points), -1))
    effort = np.full(len(points), 3.0)
    return Stage(f.name, "simple", SIMPLE_COLUMNS, points, features, counts[:, 0], effort, 0)
