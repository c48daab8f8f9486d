"""A task that nothing is built of: its configurations take the time that a function says."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright import autotvm
from tilewright.autotvm.measure import Builder, MeasureInput, MeasureResult, Runner
from tilewright.autotvm.task.space import ConfigSpace


class Synthetic(autotvm.task.Task):
    """Three tiles that should have certain sizes, not too large together, and two options."""

    def __init__(self, wanted: Sequence[int] = (16, 32, 4), name: str = "synthetic") -> None:
        super().__init__(name, tuple(wanted))
        self.wanted, self.flop, self.target = wanted, 1e9, autotvm.record.Target("llvm")
        self.config_space = ConfigSpace()
        for knob in "abc":
            self.config_space.define_split(knob, self.config_space.axis(1024), num_outputs=2)
        self.config_space.define_knob("u", [0, 1, 2, 4])
        self.config_space.define_knob("v", ["x", "y", "z"])

    def time(self, config: Any) -> float:
        sizes = [config[knob].size[1] for knob in "abc"]
        off = sum(abs(math.log2(size / best)) for size, best in zip(sizes, self.wanted, strict=True))
        options = 0.2 * abs(config["u"].val - 2) + {"x": 0.5, "y": 0.0, "z": 0.9}[config["v"].val]
        return 1.0 + 0.3 * off + options + (2.0 if sizes[0] * sizes[1] > 4096 else 0.0)


class Nothing(Builder):
    """Builds nothing."""

    def __init__(self, batch: int = 8) -> None:
        super().__init__(n_parallel=batch)

    def build(self, measure_inputs: Sequence[MeasureInput]) -> list[Any]:
        return [None] * len(measure_inputs)


class Told(Runner):
    """Times by a function of the configuration; an exception fails."""

    def __init__(self, times: Callable[[Any], float]) -> None:
        super().__init__()
        self.times = times
        self.seen: list[int] = []

    def run(self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[Any]) -> list[Any]:
        out = []
        for inp in measure_inputs:
            self.seen.append(inp.config.index)
            try:
                out.append(MeasureResult((self.times(inp.config),), 0, 0.0, time.time()))
            except ArithmeticError as error:
                out.append(MeasureResult((error,), 4, 0.0, time.time()))
        return out


def tuned(tuner: Any, times: Any = None, trials: int = 64, **kwargs: Any) -> tuple[Any, Told]:
    """A tuner at its end, and the runner that was asked."""
    runner = Told(times or tuner.task.time)
    option = autotvm.measure_option(builder=Nothing(), runner=runner)
    tuner.tune(n_trial=trials, measure_option=option, **kwargs)
    return tuner, runner


def best_time(tuner: Any) -> float:
    return float(np.mean(tuner.best_measure_pair[1].costs))
