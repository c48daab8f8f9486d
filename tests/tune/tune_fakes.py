"""Measurers for tests: times are functions of the decisions, so that a search can be told what it should find."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tilewright.tune.measure.measurer import Duel, MeasureInput, MeasureResult, Status

Times = Callable[[MeasureInput], float]


def odd(inp: MeasureInput) -> float:
    """A number from 0 to 1 that only depends on the candidate."""
    digest = hashlib.sha256(json.dumps(inp.what, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


class Fake:
    """Nothing is built or run: `times` says what a candidate takes; infinite means that it fails."""

    def __init__(self, times: Times, status: Status = Status.CRASH) -> None:
        self.times, self.status = times, status
        self.seen: list[Any] = []
        self.duels = 0

    def _result(self, inp: MeasureInput) -> MeasureResult:
        seconds = self.times(inp)
        if math.isinf(seconds):
            return MeasureResult(self.status, error="ended by SIGSEGV")
        return MeasureResult(Status.OK, (seconds,) * 3, trace=None)

    def measure(
        self, inputs: Sequence[MeasureInput], incumbent: MeasureInput | None = None, each: Any = None
    ) -> list[MeasureResult]:
        results = [self._result(inp) for inp in inputs]
        for i, (inp, result) in enumerate(zip(inputs, results, strict=True)):
            self.seen.append(inp.what)
            if each is not None:
                each(i, inp, result)
        return results

    def duel(self, first: MeasureInput, second: MeasureInput, rounds: int = 12) -> Duel:
        self.duels += 1
        one, other = self._result(first), self._result(second)
        return Duel(one, other, one.time / other.time if one.ok and other.ok else math.nan)

    def close(self) -> None:
        pass


class Steady(Fake):
    """Candidates are really built, run and checked by another measurer; only their times are given."""

    def __init__(self, inner: Any, times: Times) -> None:
        super().__init__(times)
        self.inner = inner
        self.results: list[MeasureResult] = []

    def measure(
        self, inputs: Sequence[MeasureInput], incumbent: MeasureInput | None = None, each: Any = None
    ) -> list[MeasureResult]:
        def told(i: int, inp: MeasureInput, result: MeasureResult) -> None:
            self.seen.append(inp.what)
            if result.ok:
                result = replace(result, seconds=(self.times(inp),) * 3, ratio=None)
            self.results.append(result)
            if each is not None:
                each(i, inp, result)

        return self.inner.measure(inputs, incumbent, told)  # type: ignore[no-any-return]
