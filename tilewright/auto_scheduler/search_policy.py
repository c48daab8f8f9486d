"""Search policies: the cost model and the parameters of the engine's search, earlier records, and custom rules."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice, product
from typing import Any

import numpy as np

from ..ir.errors import ScheduleError
from ..tir.schedule import Schedule
from ..tir.schedule.trace import Trace
from ..tune.errors import TuneError, causes_table
from ..tune.measure.machines import fingerprint, machine_of
from ..tune.measure.measurer import MeasureInput as Candidate
from ..tune.measure.measurer import MeasureResult as Measured
from ..tune.measure.measurer import Measures
from ..tune.records.database import Record
from ..tune.search.display import Display
from ..tune.search.evolution import evolve, unique_rows
from ..tune.search.search import SearchOptions, Tuner
from ..tune.space import Sketches
from .cost_model import CostModel, Watched, XGBModel, states_of
from .loop_state import State
from .measure import ProgramMeasurer, opened
from .measure_record import Journal, RecordToFile
from .search_task import SearchTask, TuningOptions

_BATCH = 16  # the most candidates between two trainings of the model, which take milliseconds
_STRUCTURES, _SHOWN = 4096, 64  # the most structures that `generate_sketches` considers, and returns
_SLOW_MODEL = 48  # the population for a PythonBasedModel
_CLEARLY = 0.99  # a winner's time must be below this fraction of the time of the other


# ---------------------------------------------------------------------------- before a search
class SearchCallback:
    """A callback before a search begins."""

    def prepare(self, policy: SearchPolicy, journal: Journal) -> None:
        """Prepare a search."""


class PreloadMeasuredStates(SearchCallback):
    """Loads the records of a file: they are not measured again, and the model learns from them."""

    def __init__(self, filename: Any) -> None:
        self.filename = filename

    def prepare(self, policy: SearchPolicy, journal: Journal) -> None:
        journal.preload(self.filename)


class PreloadCustomSketchRule(SearchCallback):
    """A rule that adds user-defined states to the candidates.

    For each stage, from the last to the first, `meet_condition_func(policy, state, stage_id)` returns whether the rule
    applies: PASS, APPLY, or APPLY_AND_SKIP_REST, which also excludes the engine's own candidates.
    `apply_func(policy, state, stage_id)` returns pairs of a state and the next stage (-1: done), or a tir.Schedule of
    `policy.search_task.compute_dag.mod` in the place of a pair. Factors of splits by None are sampled.
    """

    PASS, APPLY, APPLY_AND_SKIP_REST = 0, 1, 2

    def __init__(
        self,
        meet_condition_func: Callable[..., int],
        apply_func: Callable[..., Sequence[Any]],
        rule_name: str = "CustomSketchRule",
    ) -> None:
        self.meet_condition_func, self.apply_func, self.rule_name = meet_condition_func, apply_func, rule_name


# ---------------------------------------------------------------------------- policies
class SearchPolicy:
    """The search for a task."""

    def __init__(
        self, task: SearchTask, init_search_callbacks: Sequence[SearchCallback] | None = None
    ) -> None:
        self.search_task = task
        self.init_search_callbacks = list(init_search_callbacks or ())
        self.verbose = 1
        self.best_record: Record | None = None  # of the last search

    def run(self, options: TuningOptions, task: SearchTask | None = None) -> State:
        """Search, and return the best state."""
        task = task or self.search_task
        mine = self.search_task
        if (mine.task.workload, str(mine.target)) != (task.task.workload, str(task.target)):
            raise ValueError(f"the policy is for {mine!r}, not for {task!r}")
        with Journal([task], options.measure_callbacks) as journal:
            for callback in self.init_search_callbacks:
                callback.prepare(self, journal)
            with opened(options.builder, options.runner, reproducers_of(options)) as measures:
                try:
                    found = self._search(options, measures, journal)
                finally:
                    journal.notify(self)
            self.best_record = journal.best(task.task, fingerprint(machine_of(measures, task.target)))
        return found

    def _search(self, options: TuningOptions, measures: Measures, journal: Journal) -> State:
        raise NotImplementedError

    def search(
        self,
        num_measure_trials: int,
        early_stopping: int = -1,
        num_measures_per_round: int = 64,
        measurer: ProgramMeasurer | None = None,
    ) -> State:
        """`run` with the options as arguments."""
        given = measurer or ProgramMeasurer()
        return self.run(
            TuningOptions(
                num_measure_trials,
                early_stopping,
                num_measures_per_round,
                given.verbose,
                given.builder,
                given.runner,
                given.callbacks,
            )
        )


class EmptyPolicy(SearchPolicy):
    """Measures the unscheduled program once."""

    def _search(self, options: TuningOptions, measures: Measures, journal: Journal) -> State:
        task = self.search_task
        plain = Trace().as_json()
        state = State.found(task.compute_dag, lambda: Schedule(task.task.mod), ("trace", plain))
        if options.num_measure_trials > 0:
            inp = Candidate(task.task, "trace", plain)
            (result,) = measures.measure([inp])
            journal.add(Record.of(inp, result, origin="as written"), task.task)
            if not result.ok:
                raise _nothing(task, {(str(result.status), result.error): 1})
        return state


class SketchPolicy(SearchPolicy):
    """The search over the sketches of the engine, with a cost model (by default `XGBModel`).

    `params` are those of the classic policy. Only eps_greedy, evolutionary_search_population,
    evolutionary_search_num_iters and, in `sample_initial_population`, sample_init_min_population have an effect.
    """

    DEFAULT_PARAMS: dict[str, Any] = {
        "eps_greedy": 0.1,
        "retry_search_one_round_on_empty": 1,
        "sample_init_min_population": 50,
        "sample_init_use_measured_ratio": 0.2,
        "evolutionary_search_population": 1024,
        "evolutionary_search_num_iters": 4,
        "evolutionary_search_mutation_prob": 0.85,
        "cpu_multi_level_tiling_structure": "SSRSRS",
        "gpu_multi_level_tiling_structure": "SSSRRSRS",
        "hexagon_multi_level_tiling_structure": "SRSRS",
        "max_innermost_split_factor": 64,
        "max_vectorize_size": 16,
        "disable_change_compute_location": 0,
    }

    def __init__(
        self,
        task: SearchTask,
        program_cost_model: CostModel | None = None,
        params: Mapping[str, Any] | None = None,
        seed: int | None = None,
        verbose: int = 1,
        init_search_callbacks: Sequence[SearchCallback] | None = None,
    ) -> None:
        super().__init__(task, init_search_callbacks)
        unknown = sorted(set(params or {}) - set(self.DEFAULT_PARAMS))
        if unknown:
            raise ValueError(
                f"SketchPolicy: there is no parameter {', '.join(unknown)}; there are {', '.join(self.DEFAULT_PARAMS)}"
            )
        self.params = {**self.DEFAULT_PARAMS, **(params or {})}
        self.program_cost_model = program_cost_model if program_cost_model is not None else XGBModel()
        self.seed, self.verbose = 0 if seed is None else int(seed), verbose
        self._calls = 0  # of methods that sample

    # -- the search --------------------------------------------------------------------------------
    def _search(self, options: TuningOptions, measures: Measures, journal: Journal) -> State:
        task = self.search_task
        if not options.num_measure_trials:
            best = journal.best(task.task)
            return task.state_of(best) if best is not None else self.zero_trial_state()
        tuner = self._tuner(options, measures, journal)
        wanted = len(tuner.trials) + options.num_measure_trials
        verbose = options.verbose and self.verbose
        with Display() if verbose else nullcontext() as display:
            own, only = self._measure_rules(options, measures, journal, tuner)
            wanted -= len(own)
            self._measure_until(tuner, 1 if only and own else max(1, wanted), journal, display)
        return self._finish(tuner, own, measures, journal)

    def _tuner(self, options: TuningOptions, measures: Measures, journal: Journal) -> Tuner:
        task = self.search_task
        model = self.program_cost_model.engine(task.target, self.seed)
        settings = search_options(options, self.seed, self.params, model, options.early_stopping)
        try:
            tuner = Tuner(task.task, measures, journal, settings)
        except ScheduleError as error:
            raise cannot_tune(task.workload_key, task.target, error) from None
        if isinstance(model, Watched):
            model.watch(task, tuner.sketches)
        return tuner

    def _measure_until(self, tuner: Tuner, wanted: int, journal: Journal, display: Any) -> None:
        """Measure until there are `wanted` trials, with display and callbacks after each round."""
        began, before = time.monotonic(), len(tuner.trials)
        while len(tuner.trials) < wanted and not tuner.should_stop:
            if not tuner.step(wanted - len(tuner.trials)):
                break
            journal.notify(self)
            if display is not None:
                display(tuner.progress(wanted, began, before))
        if display is not None and len(tuner.trials) < wanted:
            why = "all candidates were measured" if tuner.exhausted else "little gain is expected"
            print(f"ended after {len(tuner.trials)} of {wanted} trials: {why}", file=display.file, flush=True)

    def _finish(
        self, tuner: Tuner, own: list[tuple[Candidate, Measured]], measures: Measures, journal: Journal
    ) -> State:
        """The winner of the engine, or a state of a rule that is clearly faster when both are measured in turns."""
        task = self.search_task
        good = sorted((pair for pair in own if pair[1].ok), key=lambda pair: pair[1].time)
        try:
            sch = tuner.finish()
        except TuneError:
            if not good:
                raise
            return self._win(good[0], journal)
        record = journal.best(task.task, fingerprint(tuner.machine))
        what = None if record is None else record.decisions
        if good:
            duel = measures.duel(good[0][0], Candidate.of(task.task, what))
            if duel.first.ok and duel.ratio < _CLEARLY:
                return self._win((good[0][0], duel.first), journal)
        return State.found(task.compute_dag, lambda: sch, ("decisions", what))

    def _win(self, pair: tuple[Candidate, Measured], journal: Journal) -> State:
        inp, result = pair
        record = Record.of(inp, result, self.seed, "winner")
        journal.add(record, inp.task)
        return self.search_task.state_of(record)

    # -- states of rules -----------------------------------------------------------------------------
    def _measure_rules(
        self, options: TuningOptions, measures: Measures, journal: Journal, tuner: Tuner
    ) -> tuple[list[tuple[Candidate, Measured]], bool]:
        """Measure the states of custom rules. Returns the results, and whether a rule excludes other candidates."""
        states, only = self._rule_states()
        room = options.num_measure_trials - 1 if only else options.num_measure_trials // 2
        inputs = list(islice(self._drawn(states), room)) if states else []
        out: list[tuple[Candidate, Measured]] = []

        def each(i: int, inp: Candidate, result: Measured) -> None:
            out.append((inp, result))
            journal.add(Record.of(inp, result, self.seed, "rule"), self.search_task.task, tuner.machine)

        if inputs:
            measures.measure(inputs, None, each)
            journal.notify(self)
        return out, only

    def _rule_states(self) -> tuple[list[State], bool]:
        """The states of custom rules, and whether a rule excludes other candidates."""
        rules = [c for c in self.init_search_callbacks if isinstance(c, PreloadCustomSketchRule)]
        if not rules:
            return [], False
        begin = self.search_task.compute_dag.get_init_state()
        waiting: list[tuple[State, int, bool]] = [(begin, len(begin.stages) - 1, False)]
        done, only = [], False
        while waiting:
            state, stage, touched = waiting.pop(0)
            if stage < 0 or not state.by_hand:
                done += [state] if touched else []
                continue
            met = False
            for rule in rules:
                answer = int(rule.meet_condition_func(self, state, stage))
                if answer == PreloadCustomSketchRule.PASS:
                    continue
                met = True
                waiting += [(*pair, True) for pair in self._given(rule, state, stage)]
                if answer == PreloadCustomSketchRule.APPLY_AND_SKIP_REST:
                    only = True
                    break
            if not met:
                waiting.append((state, stage - 1, touched))
        return done, only

    def _pair(self, out: Any, rule: PreloadCustomSketchRule) -> tuple[State, int]:
        state, stage = out if isinstance(out, (list, tuple)) and len(out) == 2 else (out, -1)
        if isinstance(state, Schedule):
            sch = state
            state = State.found(self.search_task.compute_dag, lambda: sch, ("trace", sch.trace.as_json()))
        if not isinstance(state, State):
            raise TypeError(
                f"the rule {rule.rule_name} returned {type(state).__name__}; a rule returns pairs of a State and the "
                "number of the next stage, or tir.Schedules"
            )
        return state, int(stage)

    def _given(self, rule: PreloadCustomSketchRule, state: State, stage: int) -> list[tuple[State, int]]:
        """The states that a rule returns for a state, each with the next stage."""
        found = list(rule.apply_func(self, state, stage) or ())
        if len(found) == 2 and isinstance(found[0], State) and isinstance(found[1], int):
            found = [found]  # a single pair
        return [self._pair(out, rule) for out in found]

    def _drawn(self, states: Sequence[State]) -> Iterator[Candidate]:
        """The candidates of states in turn, without repetitions; several of a state with undecided extents."""
        rng = np.random.default_rng([self.seed, 1])
        seen: set[str] = set()
        fruitless = 0
        while fruitless < 8:
            fruitless += 1
            for state in states:
                try:
                    kind, what = state.with_sizes(rng).candidate
                except ScheduleError:
                    continue  # a primitive refuses the sampled extents
                inp = Candidate(self.search_task.task, kind, what)
                if inp.token not in seen:
                    seen.add(inp.token)
                    fruitless = 0
                    yield inp
            if all(s.concrete for s in states):
                return

    # -- steps of the search ---------------------------------------------------------------------------
    def _sketches(self) -> Sketches:
        return Sketches(self.search_task.task)

    def zero_trial_state(self) -> State:
        """The state of the zero-trial schedule."""
        task, sketches = self.search_task, self._sketches()
        return State.found(task.compute_dag, lambda: sketches.apply(), ("decisions", None))

    def generate_sketches(self, print_for_debug: bool = False) -> list[State]:
        """The structures in the search space: for each, the state that is fastest by the analytical model.

        Structures differ in the vectorized axis and the packed operand of each stage.
        """
        sketches = self._sketches()
        space = sketches.space.first
        states, only = self._rule_states()
        if not only:
            heads = islice(product(*[_first_rows(stage) for stage in space.stages]), _STRUCTURES)
            best = sorted(heads, key=lambda rows: _seconds(space, rows))[:_SHOWN]
            rows = np.array(best, np.int64).reshape(-1, len(space.stages))
            states = states + states_of(self.search_task, sketches, sketches.space.from_first(rows))
        if print_for_debug:
            for number, state in enumerate(states):
                print(f"==================== Sketch {number} ====================\n{state}")
        return states

    def _rng(self) -> Any:
        self._calls += 1
        return np.random.default_rng([self.seed, 2, self._calls])

    def sample_initial_population(self) -> list[State]:
        """Random states, without repetitions."""
        sketches = self._sketches()
        rows = sketches.space.sample(self._rng(), int(self.params["sample_init_min_population"]))
        return states_of(self.search_task, sketches, unique_rows(rows))

    def evolutionary_search(self, init_populations: Sequence[State], out_size: int) -> list[State]:
        """The best `out_size` states by the cost model, after some generations from given states."""
        sketches = self._sketches()
        space = sketches.space
        begin = [space.default]
        for state in init_populations:
            kind, what = state.candidate
            rows = space.rows(what) if kind == "decisions" else None
            begin += [rows] if rows is not None else []
        model = self.program_cost_model.engine(self.search_task.target, self.seed)
        population = int(self.params["evolutionary_search_population"])
        if isinstance(model, Watched):
            model.watch(self.search_task, sketches)
            population = min(population, _SLOW_MODEL)
        rows = evolve(
            space,
            model,
            self._rng(),
            np.stack(begin),
            population,
            int(self.params["evolutionary_search_num_iters"]),
        )
        return states_of(self.search_task, sketches, rows[:out_size])


_HEAD = 2  # the columns that distinguish structures of tiles on CPUs: the vector axis and the packed operand


def _first_rows(stage: Any) -> list[int]:
    """The best row of each structure of a stage, by the analytical model."""
    order = np.argsort(stage.seconds, kind="stable")
    heads = stage.points[order, : _HEAD if stage.rule == "tile" else 0]
    _, first = np.unique(heads, axis=0, return_index=True)
    return [int(order[i]) for i in first]


def _seconds(space: Any, rows: Sequence[int]) -> float:
    return float(sum(stage.seconds[r] for stage, r in zip(space.stages, rows, strict=True)))


def search_options(
    options: TuningOptions, seed: int, params: Mapping[str, Any], model: Any, patience: int | None = None
) -> SearchOptions:
    """The search options of the engine; `patience` is the number of trials without an improvement that ends a task."""
    slow = isinstance(model, Watched)
    plain = SearchOptions()
    population = int(params.get("evolutionary_search_population", plain.population))
    return SearchOptions(
        seed=seed,
        model=model,
        batch=min(options.num_measures_per_round, _BATCH),
        epsilon=float(params.get("eps_greedy", plain.epsilon)),
        population=min(population, _SLOW_MODEL) if slow else population,
        generations=int(params.get("evolutionary_search_num_iters", plain.generations)),
        exhaustive=0 if slow else plain.exhaustive,
        patience=plain.patience if patience is None else max(1, patience),
        min_gain=plain.min_gain if patience is None else math.inf,
    )


def reproducers_of(options: TuningOptions) -> str | None:
    """The folder for scripts that reproduce wrong results: beside the first file of records."""
    files = [c.filename for c in options.measure_callbacks if isinstance(c, RecordToFile)]
    return f"{files[0]}.wrong" if files else None


def cannot_tune(what: str, target: Any, error: ScheduleError) -> TuneError:
    """The error for a program without a search space."""
    return TuneError(
        f"tuning {what} for `{target}`: {error}; use the zero-trial schedule: auto_scheduler.auto_schedule(task), or "
        "tvm.auto_schedule(tensors, target)"
    )


def _nothing(task: SearchTask, causes: Mapping[tuple[str, str], int]) -> TuneError:
    return TuneError(f"tuning {task.workload_key}: nothing could be measured\n{causes_table(causes)}")
