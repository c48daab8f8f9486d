"""The search space of a program: the tables of its plan. A candidate is a row number for each stage.

    stage T_matmul, rule tile                                             stage T_softmax, rule row chain
    row  vector  packed  tile0  vectors  outer  threads  unroll  contrary     row   bits  threads
      0       1       0      1        1      0        0       1         0       0    512        0
      1       1       0      1        1      0        1       1         0       1    512        1
      …

Features and predicted costs of all rows are computed once, with arrays; to score a candidate is to look them up.
Only candidates that are measured are scheduled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..forks import cached_property
from ..tir.schedule import Schedule
from .explain import Explanation
from .plan import Choice, Decisions, Plan, Shared
from .program.stages import Stages
from .rules import Family
from .workload import Task

__all__ = ["Decisions", "Sketches", "Space", "Stage", "Structures"]

Array = Any


@dataclass
class Stage:
    """The possible decisions of one stage: a row of `points` for each way to schedule it.

    `seconds` is the time by the analytical model, `effort` the estimated logarithm (base 2) of the size of the code,
    which the time to build it follows, and `default` the row of the zero-trial schedule.
    """

    name: str
    rule: str
    columns: tuple[str, ...]
    points: Array
    features: Array
    seconds: Array
    effort: Array
    default: int

    def __len__(self) -> int:
        return len(self.points)

    # -- rows by their decisions -------------------------------------------------------------------
    @cached_property
    def _radix(self) -> Array:
        sizes = self.points.max(axis=0).astype(np.int64) + 1
        return np.concatenate([np.cumprod(sizes[::-1])[::-1][1:], [1]])

    @cached_property
    def _keys(self) -> tuple[Array, Array]:
        keys = self.points @ self._radix
        order = np.argsort(keys, kind="stable")
        return keys[order], order

    def find(self, points: Array) -> Array:
        """The row numbers of some points; -1 for those that are not in the table."""
        inside = ((points >= 0) & (points <= self.points.max(axis=0))).all(axis=1)
        keys, order = self._keys
        wanted = points @ self._radix
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(inside & (keys[place] == wanted), order[place], -1)

    @cached_property
    def values(self) -> list[Array]:
        """The values that each column takes, in order."""
        return [np.unique(self.points[:, c]) for c in range(self.points.shape[1])]

    # -- decisions as plain data ---------------------------------------------------------------------
    def decision(self, row: int) -> dict[str, Any]:
        """A row as JSON."""
        point = dict(zip(self.columns, map(int, self.points[row]), strict=True))
        return {"stage": self.name, "rule": self.rule, **point}

    def row(self, decision: dict[str, Any]) -> int | None:
        """The row of a decision; None if it is not in the table."""
        if decision.get("stage") != self.name or decision.get("rule") != self.rule:
            return None
        try:
            found = int(self.find(np.array([[decision[c] for c in self.columns]], np.int64))[0])
        except (KeyError, ValueError, IndexError, TypeError, OverflowError):
            return None
        return found if found >= 0 else None


class Space:
    """All stages of a function. Candidates are arrays of row numbers, one column for each stage."""

    def __init__(self, stages: Sequence[Stage], machine: Any, family: Family) -> None:
        self.stages, self.machine, self.family = list(stages), machine, family
        # the two stages that take longest contribute their features, the others only their seconds
        order = sorted(range(len(stages)), key=lambda s: -float(stages[s].seconds[stages[s].default]))
        self._heavy = order[:2]

    @property
    def first(self) -> Space:
        """The structure of the zero-trial schedule: a space in which every stage has one rule."""
        return self

    def from_first(self, candidates: Array) -> Array:
        """Candidates of `first` as candidates of this space."""
        return candidates

    @property
    def size(self) -> int:
        return math.prod(len(s) for s in self.stages)

    @property
    def default(self) -> Array:
        """The zero-trial schedule."""
        return np.array([s.default for s in self.stages], np.int64)

    @property
    def beginnings(self) -> Array:
        """The candidates that are measured first."""
        return self.default[None]

    @cached_property
    def expected(self) -> float:
        """The seconds of the zero-trial schedule by the analytical model."""
        return float(self.seconds(self.default[None])[0])

    def decisions(self, rows: Array) -> Decisions:
        return [s.decision(int(r)) for s, r in zip(self.stages, rows, strict=True)]

    def rows(self, decisions: Decisions) -> Array | None:
        """The candidate of some decisions; None if it is not in this space."""
        if decisions is None:
            return self.default
        if len(decisions) != len(self.stages):
            return None
        found = [s.row(d) for s, d in zip(self.stages, decisions, strict=True)]
        return None if any(r is None for r in found) else np.array(found, np.int64)

    def everything(self) -> Array:
        """All candidates."""
        grids = np.meshgrid(*[np.arange(len(s)) for s in self.stages], indexing="ij")
        return np.stack([g.ravel() for g in grids], axis=1)

    def sample(self, rng: Any, count: int) -> Array:
        """Candidates drawn uniformly."""
        return np.stack([rng.integers(0, len(s), count) for s in self.stages], axis=1)

    def seconds(self, candidates: Array) -> Array:
        """The seconds of candidates by the analytical model."""
        total = np.zeros(len(candidates))
        for s, stage in enumerate(self.stages):
            total += stage.seconds[candidates[:, s]]
        return total

    def effort(self, candidates: Array) -> Array:
        """The estimated effort to build candidates: the logarithm (base 2) for the stage that takes longest."""
        parts = [stage.effort[candidates[:, s]] for s, stage in enumerate(self.stages)]
        return np.max(parts, axis=0)

    def features(self, candidates: Array, zero: float | None = None) -> Array:
        """The features of candidates for a learned model. The first column is the logarithm of `seconds`, the last one
        that of their ratio to the seconds of the zero-trial schedule (`zero`, if given)."""
        total = self.seconds(candidates)
        parts = [np.log(np.maximum(total, 1e-12))[:, None]]
        for s in self._heavy:
            rows = candidates[:, s]
            share = self.stages[s].seconds[rows] / np.maximum(total, 1e-12)
            parts += [share[:, None], self.stages[s].features[rows]]
        if len(self._heavy) < 2:
            parts.append(np.zeros((len(candidates), 1 + self.stages[0].features.shape[1])))
        parts.append(np.tile(self.machine_features(), (len(candidates), 1)))
        zero = self.expected if zero is None else zero
        parts.append(np.log(np.maximum(total, 1e-12) / max(zero, 1e-12))[:, None])
        return np.concatenate(parts, axis=1)

    def varied(self, ranked: Array, count: int) -> Array:
        """The positions of the candidates to measure, of candidates that are ranked with the best first: the first
        candidate of each coarse choice comes before the second ones, where the cost function hardly distinguishes
        them."""
        if not self.family.fine:
            return np.arange(min(count, len(ranked)))
        _, member = np.unique(self.coarse(ranked), axis=0, return_inverse=True)
        member = member.ravel()
        order = np.argsort(member, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(member[order]) != 0])
        place = np.empty(len(ranked), np.int64)
        place[order] = np.arange(len(ranked)) - np.repeat(starts, np.diff(np.r_[starts, len(ranked)]))
        return np.argsort(np.minimum(place, 64), kind="stable")[:count]

    def coarse(self, candidates: Array) -> Array:
        """The decisions of candidates without the fine ones."""
        parts = [np.zeros((len(candidates), 0), np.int64)]
        for s, stage in enumerate(self.stages):
            kept = [c for c, name in enumerate(stage.columns) if name not in self.family.fine]
            parts.append(stage.points[candidates[:, s]][:, kept])
        return np.concatenate(parts, axis=1)

    def machine_features(self) -> Array:
        return self.family.features(self.machine)

    # -- evolution -----------------------------------------------------------------------------------
    def mutate(self, rng: Any, candidates: Array) -> Array:
        """Each candidate with one decision changed, or as it was if the change gives no candidate."""
        out = candidates.copy()
        weights = np.array([max(1e-9, math.log(len(s))) if len(s) > 1 else 0.0 for s in self.stages])
        if not weights.any():
            return out
        chosen = rng.choice(len(self.stages), len(out), p=weights / weights.sum())
        for s, stage in enumerate(self.stages):
            mine = np.flatnonzero(chosen == s)
            if not len(mine):
                continue
            points = stage.points[out[mine, s]].copy()
            free = [c for c, v in enumerate(stage.values) if len(v) > 1]
            columns = rng.choice(free, len(mine))
            for c in free:
                these = np.flatnonzero(columns == c)
                values = stage.values[c]
                at = np.searchsorted(values, points[these, c])
                near = at + rng.choice([-2, -1, 1, 2], len(these))
                anywhere = rng.integers(0, len(values), len(these))
                place = np.where(rng.random(len(these)) < 0.7, near, anywhere)
                points[these, c] = values[np.clip(place, 0, len(values) - 1)]
            rows = stage.find(points)
            out[mine, s] = np.where(rows >= 0, rows, out[mine, s])
        return out

    def cross(self, rng: Any, one: Array, other: Array) -> Array:
        """Candidates with some decisions of one parent and the rest of the other."""
        out = one.copy()
        for s, stage in enumerate(self.stages):
            mask = rng.random((len(one), stage.points.shape[1])) < 0.5
            points = np.where(mask, stage.points[one[:, s]], stage.points[other[:, s]])
            rows = stage.find(points)
            out[:, s] = np.where(rows >= 0, rows, one[:, s])
        return out


class Structures(Space):
    """Several structures of one program: a structure is the rule of each stage. The rule of one stage decides which
    stages follow, so each structure has tables of its own. The first column of a candidate is its structure.
    """

    def __init__(self, structures: Mapping[tuple[str, ...], Space]) -> None:
        # that of the zero-trial schedule is the first
        self.names, self.spaces = list(structures), list(structures.values())
        self.width = max(len(s.stages) for s in self.spaces)
        super().__init__(self.spaces[0].stages, self.spaces[0].machine, self.spaces[0].family)

    @property
    def first(self) -> Space:
        return self.spaces[0]

    def from_first(self, candidates: Array) -> Array:
        return self._here(0, candidates)

    @property
    def size(self) -> int:
        return sum(s.size for s in self.spaces)

    @property
    def default(self) -> Array:
        return self.beginnings[0]

    @property
    def beginnings(self) -> Array:
        """The best row of each stage, in each structure."""
        return np.concatenate([self._here(i, s.default[None]) for i, s in enumerate(self.spaces)])

    def _here(self, number: int, candidates: Array) -> Array:
        """Candidates of one structure as candidates of this space."""
        out = np.zeros((len(candidates), 1 + self.width), np.int64)
        out[:, 0], out[:, 1 : 1 + candidates.shape[1]] = number, candidates
        return out

    def _there(self, number: int, candidates: Array) -> Array:
        return candidates[:, 1 : 1 + len(self.spaces[number].stages)]

    def _each(self, candidates: Array) -> Iterator[tuple[int, Space, Array, Array]]:
        """For each structure of the candidates: number, space, the positions of its candidates, their rows there."""
        for number, space in enumerate(self.spaces):
            which = np.flatnonzero(candidates[:, 0] == number)
            if len(which):
                yield number, space, which, self._there(number, candidates[which])

    def _evaluated(self, candidates: Array, f: Callable[[Space, Array], Array]) -> Array:
        """Apply `f` to the candidates of each structure; the results are in the order of `candidates`."""
        out: Array = np.zeros(len(candidates))
        for _, space, which, there in self._each(candidates):
            told = f(space, there)
            if out.shape[1:] != told.shape[1:]:
                out = np.zeros((len(candidates), *told.shape[1:]))
            out[which] = told
        return out

    def decisions(self, rows: Array) -> Decisions:
        number = int(rows[0])
        return self.spaces[number].decisions(self._there(number, rows[None])[0])

    def rows(self, decisions: Decisions) -> Array | None:
        names = self.names[0] if decisions is None else tuple(str(d.get("rule")) for d in decisions)
        if names not in self.names:
            return None
        number = self.names.index(names)
        found = self.spaces[number].rows(decisions)
        return None if found is None else self._here(number, found[None])[0]

    def everything(self) -> Array:
        return np.concatenate([self._here(i, s.everything()) for i, s in enumerate(self.spaces)])

    def sample(self, rng: Any, count: int) -> Array:
        shares = [count // len(self.spaces)] * len(self.spaces)
        shares[0] += count - sum(shares)
        parts = zip(self.spaces, shares, strict=True)
        return np.concatenate([self._here(i, s.sample(rng, n)) for i, (s, n) in enumerate(parts)])

    def seconds(self, candidates: Array) -> Array:
        return self._evaluated(candidates, lambda space, there: space.seconds(there))

    def effort(self, candidates: Array) -> Array:
        return self._evaluated(candidates, lambda space, there: space.effort(there))

    def features(self, candidates: Array, zero: float | None = None) -> Array:
        known = self.expected if zero is None else zero
        return self._evaluated(candidates, lambda space, there: space.features(there, known))

    def coarse(self, candidates: Array) -> Array:
        each = [(which, space.coarse(there)) for _, space, which, there in self._each(candidates)]
        out = np.zeros((len(candidates), 1 + max(c.shape[1] for _, c in each)), np.int64)
        out[:, 0] = candidates[:, 0]
        for which, columns in each:
            out[which, 1 : 1 + columns.shape[1]] = columns
        return out

    def mutate(self, rng: Any, candidates: Array) -> Array:
        out = candidates.copy()
        for number, space, which, there in self._each(candidates):
            out[which] = self._here(number, space.mutate(rng, there))
        return out

    def cross(self, rng: Any, one: Array, other: Array) -> Array:
        """Cross parents of the same structure. Others have nothing in common: the child is the first."""
        out, same = one.copy(), one[:, 0] == other[:, 0]
        for number, space, which, there in self._each(one):
            alike = same[which]
            if alike.any():
                mates = self._there(number, other[which[alike]])
                out[which[alike]] = self._here(number, space.cross(rng, there[alike], mates))
        return out


# ---------------------------------------------------------------------------- from a program
_STRUCTURES = 6  # the most structures that are searched besides that of the zero-trial schedule
_HOPELESS = 2.0  # a rule whose best row is predicted to take so many times as long is left out


class Sketches:
    """The plan of a task as a search space, and the schedule of any candidate."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.shared: Shared = {}  # steps that candidates share

    @cached_property
    def space(self) -> Space:
        """The search space: the structure of the zero-trial schedule, and others with another rule for a stage."""
        first = self._plan()
        structures = {_rules(first): self._space(first)}
        for number, rule in _alternatives(first)[:_STRUCTURES]:
            other = self._plan(forced={number: rule})
            if rule in _rules(other)[number : number + 1]:
                structures.setdefault(_rules(other), self._space(other))
        return Structures(structures) if len(structures) > 1 else structures[_rules(first)]

    def _space(self, plan: Plan) -> Space:
        return Space([_stage(c, plan) for c in plan.choices], plan.machine, plan.family)

    def apply(self, decisions: Decisions = None) -> Schedule:
        """The schedule of some decisions; the zero-trial schedule if there are none."""
        return self._plan(decisions).sch

    def _plan(self, decisions: Decisions = None, forced: Mapping[int, str] | None = None) -> Plan:
        plan = Plan(Stages(*self._begun()), decisions, forced, None if decisions is None else self.shared)
        plan.run()
        return plan

    def _begun(self) -> tuple[Any, ...]:
        """A schedule of the task, with what its stages are made from."""
        task, sch = self.task, Schedule(self.task.mod)
        sch.work_on(task.name)
        sch.explanation = Explanation(str(task.target))
        return sch, task.func, task.target, sch.explanation, frozenset(task.constants)


def _rules(plan: Plan) -> tuple[str, ...]:
    """The structure of a plan: the rule of each stage."""
    return tuple(c.winner.rule.name for c in plan.choices)


def _alternatives(plan: Plan) -> list[tuple[int, str]]:
    """The stages by number with another rule that could be as fast, the most promising first."""
    found = [
        (offer.least / max(choice.row.seconds, 1e-12), number, offer.rule.name)
        for number, choice in enumerate(plan.choices)
        for offer in choice.rivals
    ]
    return [(number, rule) for times, number, rule in sorted(found) if times < _HOPELESS]


def _stage(choice: Choice, plan: Plan) -> Stage:
    """The table of a stage, for the tuner."""
    offer = choice.winner
    table = offer.table.whole().alone()
    figures = plan.family.cost.evaluate(table, plan.machine)
    values = [choice.row.values[c] for c in table.columns]
    default = int(np.flatnonzero((table.points == values).all(axis=1))[0])
    assert table.shape is not None
    return Stage(
        choice.stage.name,
        offer.rule.name,
        table.columns,
        table.points,
        table.shape(figures),
        figures["seconds"],
        np.broadcast_to(np.asarray(table.effort, np.float64), (len(table),)),
        default,
    )
