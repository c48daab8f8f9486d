"""The search space of a program, as tables: a candidate is a row number for each stage.

    stage T_matmul                                         stage T_softmax
    row   space  tile      vectors  outer  threads  unroll  contrary      row   bits  threads
      0       0  [1, 0]          1      0        0       1         0        0    512        1
      1       0  [1, 0]          1      0        1       1         0        …
      …

Features and predicted costs of all rows are computed once, with arrays; to score a candidate is to look them up.
Only candidates that are measured are scheduled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any

import numpy as np

from ..forks import cached_property
from ..ir.errors import ScheduleError
from ..target.machine import CpuMachine, GpuMachine, with_figures
from ..tir.schedule import Schedule
from ..tir.schedule.schedule import Position
from .auto import Function
from .explain import Explanation
from .features import machine_features, simple_features, tile_features
from .program.facts import Axis, Facts
from .rules.cpu.elementwise import cycles_of, pays_in_parallel
from .rules.cpu.tiles import Best, TileSpace, evaluate, tile_spaces
from .rules.cpu.winograd import FilterCost, Left
from .workload import Task

__all__ = ["Decisions", "Sketches", "Space", "Stage"]

Array = Any
Decisions = list[dict[str, Any]] | None  # one for each stage, in order; None: the zero-trial schedule
_UNROLLS = (1, 2, 4)
# Added to the predicted time of a candidate, as a fraction of it, for each doubling of the unrolling and for producers
# in the opposite place: of candidates that are predicted alike, the simpler comes first.
_UNROLL_COST = 0.02
_CONTRARY_COST = 0.05
_BITS = (128, 256, 512, 1024)


@dataclass
class Stage:
    """The possible decisions of one stage: a row of `points` for each way to schedule it.

    `seconds` is the time by the analytical model, `effort` the estimated logarithm (base 2) of the size of the code,
    which the time to build it follows, and `default` the row of the zero-trial schedule.
    """

    name: str
    sketch: str  # "tile", or "simple" for rows and elementwise stages
    columns: tuple[str, ...]
    points: Array
    features: Array
    seconds: Array
    effort: Array
    default: int
    spaces: tuple[TileSpace, ...] = ()

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
        if self.sketch != "tile":
            return {"stage": self.name, "sketch": self.sketch, **point}
        number = point["space"]
        vector, lanes, packed = self._heads[number]
        axes, own = self.spaces[number].facts.spatial, self.spaces[number].vector
        return {
            "stage": self.name,
            "sketch": "tile",
            "vector": vector,
            "lanes": lanes,
            "packed": packed,
            "tile": [point[f"tile{i}"] for i, a in enumerate(axes) if a is not own],
            "vectors": point["vectors"],
            "outer": point["outer"],
            "threads": point["threads"],
            "unroll": point["unroll"],
            "contrary": point["contrary"],
        }

    @cached_property
    def _heads(self) -> list[tuple[int, int, int | None]]:
        """The key of each space: the number of the vector axis, the lanes, and the number of the packed read."""
        return [
            (
                _place(s.facts.axes, s.vector),
                s.lanes,
                None if s.packed is None else _place(s.facts.reads, s.packed),
            )
            for s in self.spaces
        ]

    def row(self, decision: dict[str, Any]) -> int | None:
        """The row of a decision; None if it is not in the table."""
        if decision.get("stage") != self.name or decision.get("sketch") != self.sketch:
            return None
        try:
            point = dict(decision)
            if self.sketch == "tile":
                head = (decision["vector"], decision["lanes"], decision["packed"])
                point["space"] = self._heads.index(head)
                space, tiles = self.spaces[point["space"]], list(decision["tile"])
                for i, axis in enumerate(space.facts.spatial):
                    point[f"tile{i}"] = 0 if axis is space.vector else tiles.pop(0)
            found = int(self.find(np.array([[point[c] for c in self.columns]], np.int64))[0])
        except (KeyError, ValueError, IndexError, TypeError):
            return None
        return found if found >= 0 else None


def _place(of: Sequence[Any], one: Any) -> int:
    return next(i for i, x in enumerate(of) if x is one)


class Space:
    """All stages of a function. Candidates are arrays of row numbers, one column for each stage."""

    def __init__(self, stages: Sequence[Stage], machine: CpuMachine | GpuMachine, fixed: float = 0.0) -> None:
        self.stages, self.machine = list(stages), machine
        self.fixed = fixed  # seconds of the work that has no decisions
        # the two stages that take longest contribute their features, the others only their seconds
        order = sorted(range(len(stages)), key=lambda s: -float(stages[s].seconds[stages[s].default]))
        self._heavy = order[:2]

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
        total = np.full(len(candidates), self.fixed)
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
        """The positions of the candidates to measure, of candidates that are ranked with the best first."""
        return np.arange(min(count, len(ranked)))

    def machine_features(self) -> Array:
        assert isinstance(self.machine, CpuMachine)
        return machine_features(self.machine)

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


class Forms(Space):
    """Several forms of one computation, each with stages of its own. The first column of a candidate is its form.

    A form is the size of the Winograd tiles of each convolution, 0 for a plain one.
    """

    def __init__(self, forms: Mapping[tuple[int, ...], Space]) -> None:
        # the form of the zero-trial scheduler is the first
        self.names, self.spaces = list(forms), list(forms.values())
        self.width = max(len(s.stages) for s in self.spaces)
        super().__init__(self.spaces[0].stages, self.spaces[0].machine)

    @property
    def size(self) -> int:
        return sum(s.size for s in self.spaces)

    @property
    def default(self) -> Array:
        return self.beginnings[0]

    @property
    def beginnings(self) -> Array:
        """The zero-trial schedule of each form."""
        return np.concatenate([self._here(i, s.default[None]) for i, s in enumerate(self.spaces)])

    def _here(self, number: int, candidates: Array) -> Array:
        """Candidates of one form as candidates of this space."""
        out = np.zeros((len(candidates), 1 + self.width), np.int64)
        out[:, 0], out[:, 1 : 1 + candidates.shape[1]] = number, candidates
        return out

    def _there(self, number: int, candidates: Array) -> Array:
        return candidates[:, 1 : 1 + len(self.spaces[number].stages)]

    def _each(self, candidates: Array) -> Iterator[tuple[int, Space, Array, Array]]:
        """For each form of the candidates: its number, its space, the positions of its candidates, their rows there."""
        for number, space in enumerate(self.spaces):
            which = np.flatnonzero(candidates[:, 0] == number)
            if len(which):
                yield number, space, which, self._there(number, candidates[which])

    def _told(self, candidates: Array, f: Callable[[Space, Array], Array]) -> Array:
        """Apply `f` to the candidates of each form; the results are in the order of `candidates`."""
        out: Array = np.zeros(len(candidates))
        for _, space, which, there in self._each(candidates):
            told = f(space, there)
            if out.shape[1:] != told.shape[1:]:
                out = np.zeros((len(candidates), *told.shape[1:]))
            out[which] = told
        return out

    def decisions(self, rows: Array) -> Decisions:
        number = int(rows[0])
        own = self.spaces[number].decisions(self._there(number, rows[None])[0])
        return [{"sketch": "form", "winograd": list(self.names[number])}, *(own or [])]

    def rows(self, decisions: Decisions) -> Array | None:
        form, own = split_form(decisions)
        form = self.names[0] if form is None else form
        if form not in self.names:
            return None
        number = self.names.index(form)
        found = self.spaces[number].rows(own)
        return None if found is None else self._here(number, found[None])[0]

    def everything(self) -> Array:
        return np.concatenate([self._here(i, s.everything()) for i, s in enumerate(self.spaces)])

    def sample(self, rng: Any, count: int) -> Array:
        shares = [count // len(self.spaces)] * len(self.spaces)
        shares[0] += count - sum(shares)
        parts = zip(self.spaces, shares, strict=True)
        return np.concatenate([self._here(i, s.sample(rng, n)) for i, (s, n) in enumerate(parts)])

    def seconds(self, candidates: Array) -> Array:
        return self._told(candidates, lambda space, there: space.seconds(there))

    def effort(self, candidates: Array) -> Array:
        return self._told(candidates, lambda space, there: space.effort(there))

    def features(self, candidates: Array, zero: float | None = None) -> Array:
        known = self.expected if zero is None else zero
        return self._told(candidates, lambda space, there: space.features(there, known))

    def mutate(self, rng: Any, candidates: Array) -> Array:
        out = candidates.copy()
        for number, space, which, there in self._each(candidates):
            out[which] = self._here(number, space.mutate(rng, there))
        return out

    def cross(self, rng: Any, one: Array, other: Array) -> Array:
        """Cross parents of the same form. Parents of different forms have nothing in common: the child is the first."""
        out, same = one.copy(), one[:, 0] == other[:, 0]
        for number, space, which, there in self._each(one):
            alike = same[which]
            if alike.any():
                mates = self._there(number, other[which[alike]])
                out[which[alike]] = self._here(number, space.cross(rng, there[alike], mates))
        return out


def split_form(decisions: Decisions) -> tuple[tuple[int, ...] | None, Decisions]:
    """The form that decisions are for, if they name one, and the decisions of its stages."""
    if decisions and decisions[0].get("sketch") == "form":
        return tuple(int(size) for size in decisions[0]["winograd"]), decisions[1:]
    return None, decisions


# ---------------------------------------------------------------------------- from a program
_FORMS = 6  # the most forms that are tried besides that of the zero-trial scheduler


class Sketches:
    """The sketches of a task: its space, and the schedule of any decisions."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.begun: dict[tuple[int, bool], tuple[Position, Left]] = {}  # steps that candidates share

    @cached_property
    def space(self) -> Space:
        """The search space; stages without rows are left out."""
        run = self._run(None, tell=True)
        found = [s for s in run.found if len(s)]
        if self.task.target.is_gpu:
            from .gpu_decided import GpuSpace  # it imports this file

            return GpuSpace(found, self.task.target.gpu)
        forms = {tuple(run.sizes): Space(found, self.task.target.cpu, run.fixed)}
        for form in islice(product(*run.choices), _FORMS) if run.choices else ():
            if form not in forms:
                run = self._run(None, tell=True, form=form)
                if tuple(run.sizes) == form:
                    found = [s for s in run.found if len(s)]
                    forms[form] = Space(found, self.task.target.cpu, run.fixed)
        return Forms(forms) if len(forms) > 1 else next(iter(forms.values()))

    def renamed(self, decisions: Decisions) -> Decisions:
        """Decisions of a program whose stages have other names, with the names of the stages of this one."""
        form, own = split_form(decisions)
        space = self.space
        if form is not None and isinstance(space, Forms) and form in space.names:
            space = space.spaces[space.names.index(form)]
        if own is None or len(space.stages) != len(own):
            return decisions
        own = [{**d, "stage": s.name} for d, s in zip(own, space.stages, strict=True)]
        return own if decisions is None or form is None else [decisions[0], *own]

    def apply(self, decisions: Decisions = None) -> Schedule:
        """The schedule of some decisions; the zero-trial schedule if there are none."""
        return self._run(decisions).sch

    def _run(self, decisions: Decisions, tell: bool = False, form: tuple[int, ...] | None = None) -> Any:
        made: Any = _Decided
        if self.task.target.is_gpu:
            from .gpu_decided import GpuDecided as made  # as above
        elif self.task.target.kind.name not in ("llvm", "c"):
            raise ScheduleError(
                f"there are no decisions to tune for targets of kind {self.task.target.kind.name!r} yet"
            )
        task, notes = self.task, Explanation(str(self.task.target))
        sch = Schedule(task.mod)
        sch.work_on(task.name)
        if form is None:
            form, decisions = split_form(decisions)
        run = made(
            sch, task.func, task.target, notes, frozenset(task.constants), decisions=decisions, tell=tell
        )
        run.form, run.begun = form, self.begun
        run.run()
        if decisions and run.number != len(decisions):
            raise ScheduleError(
                f"there are {len(decisions)} decisions for the {run.number} stages of {task.name}"
            )
        sch.explanation = notes
        return run


class _Decided(Function):
    """The scheduler for CPUs that takes its choices from `decisions`, if there are any. With `tell` it collects the
    possible decisions as stages, in `found`."""

    def __init__(self, *given: Any, decisions: Decisions, tell: bool) -> None:
        super().__init__(*given)
        self.decisions, self.tell = decisions, tell
        self.found: list[Stage] = []
        self.number = 0
        self.form: tuple[int, ...] | None = None  # the sizes of Winograd tiles that were decided
        # schedules after Winograd's transforms, by size of tiles and whether in parallel
        self.begun: dict[tuple[int, bool], tuple[Position, Left]] = {}
        self.sizes: list[int] = []  # of the Winograd tiles of each convolution; 0: plain
        self.choices: list[tuple[int, ...]] = []  # the possible sizes of each
        self.fixed, self._around = 0.0, 0.0

    def _next(self, name: str, sketch: str) -> dict[str, Any]:
        """The decision for the stage that is scheduled now."""
        assert self.decisions is not None
        if self.number >= len(self.decisions):
            raise ScheduleError(f"there is no decision for the stage {name}")
        decision = self.decisions[self.number]
        if decision.get("stage") != name or decision.get("sketch") != sketch:
            raise ScheduleError(f"the decision is for {decision.get('stage')}, and the stage is {name}")
        self.number += 1
        return decision

    # -- tiles ---------------------------------------------------------------------------------------
    def tile(self, f: Facts) -> None:
        if self.decisions is None:
            return super().tile(f)
        self.done.add(f.rv.key)
        before = self.at_root()
        if self.number < len(self.decisions) and self.decisions[self.number].get("sketch") != "tile":
            self.alone(f, "no tile")  # as the zero-trial scheduler does if a tile is refused
        elif not self.filtered(f, before):
            self.fused_tile(f)
        self.take(before)

    def filter_size(self, costs: Mapping[int, FilterCost]) -> int:
        size, place = super().filter_size(costs), len(self.sizes)
        if self.form is not None:
            size = self.form[place] if place < len(self.form) else 0
        if size not in costs:
            raise ScheduleError(f"tiles of {size} are not possible here, only {sorted(costs)}")
        self.sizes.append(size)
        self.choices.append(tuple(costs))
        self._around = costs[size].around
        return size

    def transforms(self, f: Facts, size: int, pays: bool) -> Left:
        if self.decisions is None or self.number:
            return super().transforms(f, size, pays)
        found = self.begun.get((size, pays))
        if found is None:  # only the size is decided so far: all candidates begin with the same steps
            left = super().transforms(f, size, pays)
            found = self.begun[size, pays] = self.sch.position(), left
        else:
            self.sch.go_to(found[0])
        return found[1]

    def filtered(self, f: Facts, before: set[object]) -> bool:
        place = len(self.sizes)
        made = super().filtered(f, before)
        if made:
            cores = self.machine.num_cores if pays_in_parallel(f, self.machine) else 1
            self.fixed += self._around / (cores * self.machine.clock * 1e9)
        elif len(self.sizes) > place:
            self.sizes[place] = 0  # it was refused
        return made

    def fused_tile(self, f: Facts) -> None:
        super().fused_tile(f)
        if self.decisions is not None:
            self._unroll(f, self.decisions[self.number - 1]["unroll"])

    @property
    def strict(self) -> bool:
        return self.decisions is not None

    def mark(self) -> tuple[int, int]:
        return self.number, len(self.found)

    def back_to(self, mark: tuple[int, int]) -> None:
        self.number = mark[0]
        del self.found[mark[1] :]

    def pick_tile(self, f: Facts) -> tuple[Best, bool]:
        if self.decisions is not None:
            return self._decided_tile(f, self._next(f.name, "tile"))
        best, threads = super().pick_tile(f)
        if not self.tell:
            return best, threads
        places = bool(self.own_producers(f, best))
        self.found.append(_tile_stage(f, self.machine, self.constants, best, threads, places))
        return best, threads

    def _decided_tile(self, f: Facts, decision: dict[str, Any]) -> tuple[Best, bool]:
        axis = f.axes[decision["vector"]]
        packed = None if decision["packed"] is None else f.reads[decision["packed"]]
        for space in tile_spaces(f, self.machine, self.constants):
            if space.vector is axis and space.packed is packed and space.lanes == decision["lanes"]:
                one = replace(
                    space,
                    tiles=np.array([decision["tile"]], np.int64).reshape(1, len(space.rows)),
                    vectors=np.array([decision["vectors"]]),
                    outer=np.array([decision["outer"]]),
                )
                cores = self.machine.num_cores if decision["threads"] else 1
                figures = {k: float(v[0]) for k, v in evaluate(one, self.machine, cores).items()}
                made = Best(one, 0, figures["cycles"], 1, figures, bool(decision["contrary"]))
                return made, bool(decision["threads"])
        raise ScheduleError(f"{f.name} cannot lie in vectors as decided: {decision}")

    def _unroll(self, f: Facts, times: int) -> None:
        """Unroll the innermost loop of the reduction `times` times."""
        if times == 1:
            return
        loops = [
            x
            for x in self.sch.get_loops(f.rv)
            if any(
                x.var in _vars(value)
                for iv, value in zip(
                    self.sch.realize(f.rv).block.iter_vars, self.sch.realize(f.rv).iter_values, strict=True
                )
                if iv.iter_type == iv.CommReduce
            )
        ]
        _, inner = self.sch.split(loops[-1], [None, times])
        self.sch.unroll(inner)

    # -- the others ----------------------------------------------------------------------------------
    def alone(self, f: Facts, refused: str = "") -> None:
        if refused and self.found and self.found[-1].name == f.name:
            self.found.pop()  # the tile that was refused
        self._simply(f, f, lambda: super(_Decided, self).alone(f, refused))

    def rows(self, last: Facts, group: list[Facts]) -> None:
        if len(group) == 1:
            return self.alone(last)
        heavy = max(group, key=lambda g: g.points * (g.work + 1))
        self._simply(last, heavy, lambda: super(_Decided, self).rows(last, group))

    def _simply(self, f: Facts, heavy: Facts, run: Any) -> None:
        """Schedule a stage whose only decisions are the width of vectors, and whether threads share it."""
        if f.kind == "opaque" or getattr(self, "_inside", False):
            return run()
        machine = self.machine
        if self.tell:
            self.found.append(_simple_stage(f, heavy, machine))
        elif self.decisions is not None:
            decision = self._next(f.name, "simple")
            self.machine = _as_decided(machine, decision)
        self._inside = True  # a chain that is refused is scheduled stage by stage, all as decided here
        try:
            run()
        finally:
            self.machine, self._inside = machine, False


def _vars(e: Any) -> set[Any]:
    from ..ir.functor import vars_used

    return set(vars_used(e))


# ---------------------------------------------------------------------------- tables
_TILE_END = ("vectors", "outer", "threads", "unroll", "contrary")


def _tile_stage(
    f: Facts, machine: CpuMachine, constants: frozenset[Any], best: Best, threads: bool, places: bool
) -> Stage:
    """The table of a tiled stage: all tiles of all spaces, with and without threads, with each unrolling of the
    reduction. If `places`, also with its producers in the opposite place (see `Best.contrary`)."""
    spaces = [s for s in tile_spaces(f, machine, constants) if len(s.vectors)]
    axes, last = list(f.spatial), f.reduce[-1] if f.reduce else None
    columns = ("space", *(f"tile{i}" for i in range(len(axes))), *_TILE_END)
    points, features, seconds, effort = [], [], [], []
    for number, space in enumerate(spaces):
        base = np.zeros((len(space.vectors), len(columns)), np.int64)
        base[:, 0] = number
        for i, axis in enumerate(space.rows):
            base[:, 1 + _place(axes, axis)] = space.tiles[:, i]
        base[:, -5], base[:, -4] = space.vectors, space.outer
        unrolls = _unrolls(last) if not space.dot and not space.window else [1]
        others = (0, 1) if places and not space.dot else (0,)
        for with_threads in (0, 1) if machine.num_cores > 1 else (0,):
            costs = evaluate(space, machine, machine.num_cores if with_threads else 1)
            for u, contrary in product(unrolls, others):
                rows = base.copy()
                rows[:, -3:] = with_threads, u, contrary
                points.append(rows)
                features.append(tile_features(space, costs, machine, with_threads, u, contrary))
                dearer = 1 + _UNROLL_COST * math.log2(u) + _CONTRARY_COST * contrary
                seconds.append(costs["cycles"] * dearer / (machine.clock * 1e9))
                effort.append(_effort(space) + math.log2(1 + u / 4))
    if not points:
        return Stage(f.name, "tile", columns, np.zeros((0, len(columns)), np.int64), None, None, None, 0)
    stage = Stage(
        f.name,
        "tile",
        columns,
        np.concatenate(points),
        np.concatenate(features),
        np.concatenate(seconds),
        np.concatenate(effort),
        0,
        tuple(spaces),
    )
    chosen = np.zeros((1, len(columns)), np.int64)
    chosen[0, 0] = next(
        i for i, s in enumerate(spaces) if s.vector is best.space.vector and s.packed is best.space.packed
    )
    chosen[0, -5:] = best.vectors, best.vector_outer, threads, 1, 0
    for axis, t in zip(best.space.rows, best.tile, strict=True):
        chosen[0, 1 + _place(axes, axis)] = t
    stage.default = max(0, int(stage.find(chosen)[0]))
    return stage


def _effort(space: TileSpace) -> Array:
    """The estimated size of the code, as a logarithm: the accumulators of a tile, more if there is code for partial
    tiles at the end of an axis, and far more if three rows are transposed in registers: LLVM takes seconds for it."""
    code = np.maximum(8.0, space.vectors * space.tiles.prod(axis=1))
    for i, axis in enumerate(space.rows):
        tiles = space.tiles[:, i]
        code = code * np.where(axis.extent % tiles == 0, 1.0, 1.6)
        if space.transposes:
            code = code * np.where(tiles == 3, 64.0, 1.0)
    return np.log2(code * np.where(space.vector.extent % (space.vectors * space.lanes) == 0, 1.0, 1.6))


def _unrolls(axis: Axis | None) -> list[int]:
    """How many times the innermost reduction may be unrolled."""
    if axis is None or not axis.known:
        return [1]
    small = [axis.extent] if axis.extent in (3, 5) else []
    return [u for u in (*_UNROLLS, *small) if axis.extent % u == 0]


def _simple_stage(f: Facts, heavy: Facts, machine: CpuMachine) -> Stage:
    """The table of a stage without a tile: the width of vectors, and whether threads share the work (0: as the
    analytical model says, 1: no, 2: yes)."""
    bits = [b for b in _BITS if b <= machine.vector_bits] or [machine.preferred_vector_bits]
    if machine.preferred_vector_bits not in bits:
        bits.append(machine.preferred_vector_bits)
    threads = (0, 1, 2) if machine.num_cores > 1 else (0,)
    points = np.array([(b, t) for b in bits for t in threads], np.int64)
    cycles = cycles_of(heavy, machine)
    slower = np.maximum(1.0, machine.preferred_vector_bits / points[:, 0])
    seconds = cycles * slower / (machine.clock * 1e9)
    pays = cycles > 4e3 * machine.launch_us * machine.clock
    shared = (points[:, 1] == 2) | ((points[:, 1] == 0) & pays)
    seconds = np.where(
        shared & (machine.num_cores > 1), seconds / machine.num_cores + machine.launch_us * 1e-6, seconds
    )
    default = int(np.flatnonzero((points[:, 0] == machine.preferred_vector_bits) & (points[:, 1] == 0))[0])
    features = simple_features(heavy, points, seconds, shared)
    effort = np.full(len(points), 3.0)
    return Stage(f.name, "simple", ("bits", "threads"), points, features, seconds, effort, default)


def _as_decided(machine: CpuMachine, decision: dict[str, Any]) -> CpuMachine:
    """A machine for which the scheduler makes this decision by itself."""
    figures: dict[str, int | float] = {}
    if decision["bits"] != machine.preferred_vector_bits:
        figures["preferred_vector_bits"] = decision["bits"]
    if decision["threads"] == 1:
        figures["launch_us"] = 1e5  # threads never pay
    elif decision["threads"] == 2:
        figures["launch_us"] = 0.0
    return with_figures(machine, figures, machine.source) if figures else machine
