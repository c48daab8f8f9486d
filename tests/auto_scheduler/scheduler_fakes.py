"""A measurer for tests of the face: nothing is built or run, and times are functions of the candidates."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright import auto_scheduler
from tilewright.testing.auto_scheduler import matmul_auto_scheduler_test
from tilewright.tune.measure.measurer import Duel, MeasureInput, MeasureResult, Status
from tilewright.tune.space import Sketches
from tilewright.tune.workload import Task

TARGET = "llvm -mcpu=skylake-avx512 -num-cores=4"


def odd(inp: MeasureInput) -> float:
    """About a millisecond, more or less by what the candidate is."""
    digest = hashlib.sha256(json.dumps(inp.what, sort_keys=True).encode()).digest()
    return 1e-3 * (1 + int.from_bytes(digest[:6], "big") / 2**48)


_known: dict[str, Any] = {}


def _zero_trial(task: Task) -> Any:
    if task.workload not in _known:
        _known[task.workload] = Sketches(task).apply().trace.as_json()
    return _known[task.workload]


class Fake:
    """Measures in no time; infinite means that a candidate crashes."""

    def __init__(self, times: Callable[[MeasureInput], float] = odd) -> None:
        self.times = times
        self.seen: list[MeasureInput] = []

    def result(self, inp: MeasureInput) -> MeasureResult:
        seconds = self.times(inp)
        if math.isinf(seconds):
            return MeasureResult(Status.CRASH, error="ended by SIGSEGV")
        trace = inp.what if inp.kind == "trace" else None
        if inp.what is None:  # what is measured has steps, those of the schedule without trials too
            trace = _zero_trial(inp.task)
        return MeasureResult(Status.OK, (seconds,) * 3, trace=trace)

    def measure(
        self, inputs: Sequence[MeasureInput], incumbent: MeasureInput | None = None, each: Any = None
    ) -> list[MeasureResult]:
        results = []
        for i, inp in enumerate(inputs):
            self.seen.append(inp)
            results.append(self.result(inp))
            if each is not None:
                each(i, inp, results[-1])
        return results

    def duel(self, first: MeasureInput, second: MeasureInput, rounds: int = 12) -> Duel:
        one, other = self.result(first), self.result(second)
        return Duel(one, other, one.time / other.time if one.ok and other.ok else math.nan)

    def close(self) -> None:
        raise AssertionError("who opened it closes it")


def matmul_task(n: int = 64, target: str = TARGET) -> auto_scheduler.SearchTask:
    return auto_scheduler.SearchTask(func=matmul_auto_scheduler_test, args=(n, n, n), target=target)


def options(trials: int, runner: Any = None, *callbacks: Any, **more: Any) -> auto_scheduler.TuningOptions:
    return auto_scheduler.TuningOptions(
        trials, runner=runner or Fake(), measure_callbacks=callbacks, verbose=0, **more
    )
