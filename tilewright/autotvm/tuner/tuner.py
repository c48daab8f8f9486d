"""The base of all tuners: a loop that proposes configurations, measures them and learns.

next_batch ──▶ measure ──▶ update, callbacks ──▶ … until n_trial, or early_stopping trials without an improvement
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...tune.errors import TuneError, causes_table
from ..env import GLOBAL_SCOPE
from ..measure import MeasureErrorNo, MeasureInput, MeasureResult, create_measure_batch
from ..utils import format_si_prefix

logger = logging.getLogger("autotvm")
Callback = Callable[[Any, Sequence[MeasureInput], Sequence[MeasureResult]], None]


class Tuner:
    """A search for the fastest configuration of a task; the results are `best_config` and `best_flops`.

    The same seed and the same measurements give the same sequence of configurations.
    """

    def __init__(self, task: Any, seed: int = 0) -> None:
        self.task = task
        self.space = task.config_space
        self.rng = np.random.default_rng(seed)
        self.param: dict[str, Any] = {}
        self.recorder: Any = None
        self.best_config: Any = None
        self.best_flops: float = 0.0
        self.best_measure_pair: tuple[MeasureInput, MeasureResult] | None = None
        self.best_iter = 0
        self.ttl: float | None = None  # the number of trials that are left
        self.n_trial = 0
        self.early_stopping: float = math.inf
        self._causes: Counter[tuple[str, str]] = Counter()

    # -- for subclasses ----------------------------------------------------------------------------
    def has_next(self) -> bool:
        """Whether there is a configuration left to measure."""
        raise NotImplementedError

    def next_batch(self, batch_size: int) -> list[Any]:
        """The configurations to measure next, up to `batch_size`."""
        raise NotImplementedError

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn from measurements."""

    def load_history(
        self, data_set: Iterable[tuple[MeasureInput, MeasureResult]], min_seed_records: int = 8
    ) -> None:
        """Learn from records of this task, or of other tasks of its template."""
        raise NotImplementedError(f"{type(self).__name__} does not learn from records; XGBTuner does")

    def reset(self) -> None:
        """Start again, without the best configuration so far."""
        self.best_config, self.best_measure_pair = None, None
        self.best_flops, self.best_iter = 0.0, 0
        self._causes.clear()

    # -- the loop ----------------------------------------------------------------------------------
    def tune(
        self,
        n_trial: int,
        measure_option: Mapping[str, Any],
        early_stopping: int | None = None,
        callbacks: Iterable[Callback] = (),
        si_prefix: str = "G",
    ) -> None:
        """Measure up to `n_trial` configurations; fewer if there is no improvement in `early_stopping` of them.

        `measure_option` is the result of `autotvm.measure_option`. Each of `callbacks` is called with the tuner, the
        inputs and the results of every batch. `si_prefix` is that of speeds in the log. If no configuration could be
        measured, TuneError is raised, with a table of the causes.
        """
        format_si_prefix(0, si_prefix)  # raises for an invalid prefix
        told = list(callbacks)
        self.n_trial, self.early_stopping = n_trial, early_stopping or math.inf
        measure_batch = create_measure_batch(self.task, measure_option)
        size = int(getattr(measure_batch, "n_parallel", None) or 1)
        before, GLOBAL_SCOPE.in_tuning = GLOBAL_SCOPE.in_tuning, True
        try:
            done = self._rounds(measure_batch, size, told, si_prefix)
        finally:
            GLOBAL_SCOPE.in_tuning = before
            for callback in told:
                end = getattr(callback, "on_end", None)
                if end is not None:
                    end()
        if done and self.best_config is None:
            raise TuneError(
                f"tuning {self.task.name}: none of {done} configurations could be measured\n"
                f"{causes_table(self._causes)}"
            )

    def _rounds(
        self, measure_batch: Callable[..., Any], size: int, callbacks: list[Callback], prefix: str
    ) -> int:
        done = 0
        while done < self.n_trial and self.has_next():
            configs = [] if done else [self.space.get(i) for i in self.space.known]
            configs += self.next_batch(min(size, self.n_trial - done) - len(configs))
            if not configs:
                break
            inputs = [MeasureInput(self.task.target, self.task, config) for config in configs]
            results = measure_batch(inputs)
            for k, (inp, result) in enumerate(zip(inputs, results, strict=True)):
                self._take(done + k, inp, result, prefix)
            done += len(results)
            self.ttl = min(self.early_stopping + self.best_iter, self.n_trial) - done
            self.update(inputs, results)
            for callback in callbacks:
                callback(self, inputs, results)
            if done >= self.best_iter + self.early_stopping:
                logger.debug("there was no improvement in %s trials", self.early_stopping)
                break
        return done

    def _take(self, number: int, inp: MeasureInput, result: MeasureResult, prefix: str) -> None:
        flops = flops_of(inp, result)
        if result.error_no:
            text = str(result.costs[0]) if result.costs else ""
            self._causes[MeasureErrorNo(result.error_no).name, text.splitlines()[0] if text else ""] += 1
        elif flops > self.best_flops:
            self.best_flops, self.best_config = flops, inp.config
            self.best_measure_pair, self.best_iter = (inp, result), number
        logger.debug(
            "No: %d\t%sFLOPS: %.2f/%.2f\tresult: %s\t%s",
            number + 1,
            prefix,
            format_si_prefix(flops, prefix),
            format_si_prefix(self.best_flops, prefix),
            result,
            inp.config,
        )


def flops_of(inp: MeasureInput, result: MeasureResult) -> float:
    """The operations per second of a result; 0 for a failure."""
    if result.error_no:
        return 0.0
    return float((inp.task.flop or 1.0) / np.mean(result.costs))
