"""Tuners on functions whose optimum is known: who finds it, and how they go about it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from autotvm_synthetic import Nothing, Synthetic, Told, best_time, tuned

from tilewright import autotvm
from tilewright.autotvm.measure import MeasureInput, MeasureResult
from tilewright.autotvm.task.space import ConfigSpace
from tilewright.autotvm.tuner import (
    DropletTuner,
    GATuner,
    GridSearchTuner,
    RandomTuner,
    SimulatedAnnealingOptimizer,
    XGBTuner,
    metric,
)
from tilewright.autotvm.tuner.model_based_tuner import point2knob, submodular_pick
from tilewright.autotvm.utils import format_si_prefix, get_rank, sample_ints
from tilewright.testing.autotvm import DummyRunner, get_sample_task
from tilewright.tune.errors import TuneError

ALL = [RandomTuner, GridSearchTuner, GATuner, XGBTuner, DropletTuner]


def small() -> Any:
    task = Synthetic()
    task.config_space = ConfigSpace()
    task.config_space.define_knob("a", list(range(5)))
    task.config_space.define_knob("b", list(range(6)))
    return task


def bowl(config: Any) -> float:
    return 1.0 + (config["a"].val - 3) ** 2 + (config["b"].val - 4) ** 2


# ---------------------------------------------------------------------------- who finds what
def test_learning_finds_more_than_chance() -> None:
    task, seeds = Synthetic(), range(6)
    times = {
        kind: np.mean([best_time(tuned(kind(task, seed=seed), trials=48)[0]) for seed in seeds])
        for kind in (RandomTuner, GATuner)
    }
    assert times[GATuner] < 0.9 * times[RandomTuner]


@pytest.mark.slow
def test_a_model_finds_the_most() -> None:
    task, seeds = Synthetic(), range(3)
    chance, genes, model = (
        np.mean([best_time(tuned(kind(task, seed=seed), trials=64)[0]) for seed in seeds])
        for kind in (RandomTuner, GATuner, XGBTuner)
    )
    assert model < genes < chance and model < 1.3


@pytest.mark.parametrize("kind", ALL)
def test_the_whole_of_a_small_space_is_found(kind: Any) -> None:
    tuner, runner = tuned(kind(small()), bowl, trials=100)
    assert len(set(runner.seen)) == len(runner.seen) <= 30  # nothing is measured twice
    assert best_time(tuner) == 1.0 and tuner.best_flops == 1e9
    assert (tuner.best_config["a"].val, tuner.best_config["b"].val) == (3, 4)
    assert kind is DropletTuner or len(runner.seen) == 30
    assert not tuner.has_next()


@pytest.mark.parametrize("kind", ALL)
def test_the_same_seed_gives_the_same_sequence(kind: Any) -> None:
    first, again = (tuned(kind(Synthetic(), seed=3), trials=12)[1].seen for _ in range(2))
    assert first == again
    if kind in (RandomTuner, GATuner, XGBTuner):
        assert tuned(kind(Synthetic(), seed=4), trials=8)[1].seen != first[:8]


@pytest.mark.parametrize("kind", ALL)
def test_a_tuner_begins_anew(kind: Any) -> None:
    tuner, first = tuned(kind(small()), bowl, trials=8)
    tuner.reset()
    assert tuner.best_config is None and tuner.best_flops == 0
    _, again = tuned(tuner, bowl, trials=100)
    assert len(again.seen) > len(first.seen) and best_time(tuner) == 1.0


@pytest.mark.parametrize("kind", ALL)
def test_filters_hold_for_all(kind: Any) -> None:
    task = small()
    task.config_space.multi_filter(lambda c: (c["a"].val + c["b"].val) % 2 == 1)
    tuner, runner = tuned(kind(task), bowl, trials=100)
    assert len(task.config_space) == 15
    assert all(sum(task.config_space.point2knob(i)) % 2 == 1 for i in runner.seen)
    assert best_time(tuner) == 1.0 or kind is DropletTuner


def test_tuners_with_part_of_a_space() -> None:
    for kind in (RandomTuner, GridSearchTuner):
        tuner, runner = tuned(kind(small(), range_idx=(3, 9)), bowl, trials=100)
        assert sorted(runner.seen) == list(range(3, 10)) and tuner.visited_max == 7
    assert tuned(GridSearchTuner(small(), (3, 9)), bowl)[1].seen == list(range(3, 10))
    with pytest.raises(ValueError, match=r"range_idx=\(3, 30\) is not within the indices 0 to 29"):
        RandomTuner(small(), range_idx=(3, 30))


# ---------------------------------------------------------------------------- the loop
def test_the_next_index_of_a_grid_search() -> None:
    task, _ = get_sample_task()
    task.config_space.multi_filter(lambda c: c["tile_x"].size[1] * c["tile_y"].size[1] >= 32)
    tuner = autotvm.tuner.GridSearchTuner(task, range_idx=(8, 15))
    assert tuner.index == 12 and tuner.visited_max == 4
    tuner.next_batch(4)
    assert tuner.index is None and not tuner.has_next()


def test_it_stops_when_nothing_better_comes() -> None:
    tuner, runner = tuned(
        GridSearchTuner(Synthetic()), lambda c: 1.0 + c.index, trials=500, early_stopping=20
    )
    assert len(runner.seen) == 24 and tuner.ttl == 20 - 24 and tuner.best_iter == 0


def test_failures_are_no_end_and_never_the_best() -> None:
    def some(config: Any) -> float:
        if config.index % 3:
            raise ZeroDivisionError("no")
        return bowl(config)

    for kind in (RandomTuner, GATuner, XGBTuner):
        tuner, _ = tuned(kind(small()), some, trials=30)
        assert tuner.best_config.index % 3 == 0 and best_time(tuner) == 1.0 + 1.0


def test_if_nothing_can_be_measured_the_causes_are_told() -> None:
    def none(config: Any) -> float:
        raise OverflowError("too large") if config.index % 4 else ZeroDivisionError("divided by zero\nby far")

    with pytest.raises(TuneError) as caught:
        tuned(GridSearchTuner(Synthetic()), none, trials=8)
    assert str(caught.value) == (
        "tuning synthetic: none of 8 configurations could be measured\n"
        "  count  status          cause\n"
        "      6  RUNTIME_DEVICE  too large\n"
        "      2  RUNTIME_DEVICE  divided by zero"
    )


def test_callbacks_are_told_each_batch() -> None:
    monitor, lines = autotvm.callback.Monitor(), io.StringIO()
    db = autotvm.database.DummyDatabase()
    shown = autotvm.callback.progress_bar(20, prefix="[Task 1/1]", si_prefix="M", file=(out := io.StringIO()))
    sizes: list[int] = []
    callbacks = [
        monitor,
        shown,
        autotvm.callback.log_to_file(lines),
        autotvm.callback.log_to_database(db),
        lambda tuner, inputs, results: sizes.append(len(inputs)),
    ]

    def times(config: Any) -> float:
        if config.index == 5:
            raise ZeroDivisionError("no")
        return 1.0 + config.index

    tuner, _ = tuned(GridSearchTuner(Synthetic()), times, trials=20, callbacks=callbacks)
    assert sizes == [8, 8, 4] and len(lines.getvalue().splitlines()) == 20
    scores = monitor.trial_scores()
    assert scores[0] == 1e9 and scores[5] == 0 and (np.diff(monitor.trial_timestamps()) >= 0).all()
    assert db.load(MeasureInput(tuner.task.target, tuner.task, tuner.best_config)).costs == (1.0,)
    last = out.getvalue().splitlines()[-1]
    assert last.startswith("[Task 1/1] Current/Best:   50.00/1000.00 MFLOPS | Progress: (20/20) | ")
    assert last.endswith(" s | runtime device 1 Done.")
    monitor.reset()
    assert len(monitor.trial_scores()) == 0


def test_units() -> None:
    assert format_si_prefix(2e9, "G") == 2 and format_si_prefix(5e-6, "u") == pytest.approx(5)
    with pytest.raises(ValueError, match="there is no prefix 'Q'"):
        tuned(RandomTuner(small()), bowl, si_prefix="Q")
    assert get_rank([3.0, 9.0, 1.0]) == [1, 0, 2]
    assert len(set(sample_ints(3, 30, 20))) == 20


def test_what_cannot_measure_is_refused() -> None:
    from tilewright.ir.errors import TVMError

    with pytest.raises(TVMError, match=r"measure_option takes a builder and a runner"):
        RandomTuner(small()).tune(4, {"builder": None, "runner": None})
    with pytest.raises(ValueError, match="there is no runner 'remote'"):
        autotvm.measure_option("local", "remote")
    with pytest.raises(
        TuneError, match="LocalRunner runs results of LocalBuilder, and the builder is a Nothing"
    ):
        RandomTuner(small()).tune(4, autotvm.measure_option(Nothing(), "local"))


def test_the_sample_task_is_tuned() -> None:
    task, _ = get_sample_task()
    option = autotvm.measure_option(builder=autotvm.LocalBuilder(n_parallel=1), runner=DummyRunner())
    for kind in ALL:
        tuner = kind(task)
        tuner.tune(n_trial=10, measure_option=option)
        assert tuner.best_flops > 0


# ---------------------------------------------------------------------------- by a model
@pytest.mark.parametrize(
    "kwargs",
    [
        {"loss_type": "rank"},
        {"loss_type": "rank-binary"},
        {"diversity_filter_ratio": 2.0},
        {"plan_size": 16},
        {"feature_type": "itervar"},
        {"feature_type": "curve"},
    ],
)
def test_models_of_all_kinds(kwargs: dict[str, Any]) -> None:
    task, _ = get_sample_task(64)

    def times(config: Any) -> float:
        sizes = config["tile_y"].size[1], config["tile_x"].size[1]
        return 1.0 + abs(np.log2(sizes[0] / 8)) + abs(np.log2(sizes[1] / 16))

    tuner, runner = tuned(XGBTuner(task, **kwargs), times, trials=32)
    assert best_time(tuner) <= 2.0 and tuner.train_ct >= 2
    assert len(set(runner.seen)) == 32


def test_what_a_model_does_not_know() -> None:
    task = Synthetic()
    for kwargs, told in (
        ({"feature_type": "loops"}, "feature_type='loops' must be one of knob, itervar, curve"),
        ({"loss_type": "square"}, "loss_type='square' must be one of reg, rank, rank-binary"),
        ({"optimizer": "reg"}, "optimizer='reg' must be \"sa\" or a ModelOptimizer"),
        ({"diversity_filter_ratio": 0.5}, "diversity_filter_ratio=0.5 must be 1 or more"),
    ):
        with pytest.raises(ValueError, match=told):
            XGBTuner(task, **kwargs)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="elite_num=3 of pop_size=1"):
        GATuner(task, pop_size=1)
    with pytest.raises(ValueError, match="is not within the knobs"):
        DropletTuner(task, start_position=[0, 0, 0, 9, 0])


def test_what_was_learned_of_another_size_helps() -> None:
    """Records of a task whose best sizes are near: the first batch is better than by chance."""
    before, task = Synthetic((32, 32, 4)), Synthetic((16, 32, 4))
    rng = np.random.default_rng(0)
    history = []
    for index in before.config_space.sample_ints(200, rng):
        config = before.config_space.get(int(index))
        result = MeasureResult((before.time(config),), 0, 0.0, 0.0)
        history.append((MeasureInput(before.target, before, config), result))
    firsts = []
    for data in (history, history[:4], []):  # too few teach nothing
        tuner = XGBTuner(task)
        tuner.load_history(data, min_seed_records=8)
        firsts.append(np.mean([task.time(c) for c in tuner.next_batch(8)]))
    assert firsts[0] < 0.6 * firsts[2] and firsts[1] == firsts[2]
    with pytest.raises(NotImplementedError, match="Tuner does not learn from records; XGBTuner does"):
        autotvm.tuner.Tuner(task).load_history(history)


def test_annealing_finds_what_a_model_likes() -> None:
    class Exact:
        def __init__(self, task: Synthetic) -> None:
            self.task = task

        def predict(self, indices: Any) -> Any:
            return -np.array([self.task.time(self.task.config_space.get(int(i))) for i in indices])

    task = Synthetic()
    best = [
        SimulatedAnnealingOptimizer(task, n_iter=40, parallel_size=24, seed=seed).find_maximums(
            Exact(task), 8, exclusive=set()
        )
        for seed in range(2)
    ]
    for found in best:
        times = [task.time(task.config_space.get(i)) for i in found]
        assert len(set(found)) == 8 and times == sorted(times) and times[0] < 1.7
    few = SimulatedAnnealingOptimizer(
        task, n_iter=5, parallel_size=8, temp=0.5, persistent=False, early_stop=1
    )
    without = few.find_maximums(Exact(task), 4, exclusive=set(best[0]))
    assert not set(without) & set(best[0])


def test_a_pick_has_different_knobs() -> None:
    scores = np.array([1.0, 0.99, 0.98, 0.5])
    knobs = np.array([[0, 0], [0, 0], [1, 1], [2, 2]])
    assert submodular_pick(scores, knobs, 3, knob_weight=2.0) == [0, 2, 3]
    assert submodular_pick(scores, knobs, 3, knob_weight=0.0) == [0, 1, 2]
    assert submodular_pick(np.zeros(0), np.zeros((0, 2)), 3) == []
    assert point2knob(17, [5, 3, 2]) == [2, 0, 1]


def test_coordinates_are_not_followed_by_chance() -> None:
    """A neighbour that seems faster by less than its samples lie apart is not gone to."""
    task = small()

    class Noisy(Told):
        def run(self, measure_inputs: Any, build_results: Any) -> list[Any]:
            out = []
            for inp in measure_inputs:
                self.seen.append(inp.config.index)
                shift = 0.0 if inp.config.index else 0.05
                out.append(MeasureResult(tuple(2.0 + x - shift for x in (-1.0, 0.0, 1.0)), 0, 0.0, 0.0))
            return out

    runner = Noisy(bowl)
    tuner = DropletTuner(task)
    tuner.tune(100, autotvm.measure_option(Nothing(), runner))
    assert len(runner.seen) == 5  # the start and its neighbours, at two steps and at one
    assert tuned(DropletTuner(small(), start_position=[4, 5]), bowl)[1].seen[0] == 29


def test_metrics() -> None:
    assert list(metric.max_curve([1, 3, 2])) == [1, 3, 3]
    assert list(metric.mean_curve([1, 3, 2])) == [1, 2, 2]
    assert list(metric.recall_curve([0, 2, 1])) == [1, 0.5, 1]
    assert list(metric.recall_curve([0, 2, 1], top=2)) == [0.5, 0.5, 1]
    assert (
        metric.average_recall([3, 2, 1], [3, 2, 1], 3) == 1 > metric.average_recall([1, 2, 3], [3, 2, 1], 2)
    )
