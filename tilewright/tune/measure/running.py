"""Running candidates, in a process of its own: each is checked against the reference, then timed.

Inputs and reference are mapped read-only, and outputs are between guard regions: out-of-bounds writes are detected, and
cannot make a later candidate look correct.
"""

from __future__ import annotations

import math
import random
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...codegen.llvm.engine import Machine, process_triple
from ...codegen.llvm.linked import LinkedModule, Unit
from ...runtime.dtypes import ELEMENTS
from .artifact import Artifact, told
from .compare import Tolerance, compare

_GUARD = 4096
_MARK = 0xA5
_CONTENDER = 1.03  # a candidate below this ratio to the incumbent's time is measured in turns with it
_ALIKE = 1.02  # the largest ratio of two samples that agree
_LONG = 4  # a first run longer than this many sample times counts as a sample
_BEHIND = 1.02  # measuring in turns ends when a candidate takes more than this ratio to the incumbent's time
_LOADS = 3  # how often each side of a duel is loaded
_STEADY = 1.10  # a turn counts if neither side took more than this ratio to its best time


@dataclass(frozen=True, slots=True)
class Timing:
    """How long to measure: at least `repeats` samples of at least `sample_seconds`, and `seconds` in all.

    A candidate that takes `hopeless` times as long as the incumbent in two samples is not measured further. One that is
    about as fast is measured in turns with it, `rounds` times.
    """

    repeats: int = 2
    sample_seconds: float = 0.002
    seconds: float = 0.015
    rounds: int = 2
    hopeless: float = 1.25
    flush_bytes: int = 0
    cool_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Value:
    """A parameter: a file of numbers, or a number. `reference` is the file of the correct result, if it is written."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str = ""
    scalar: float | int | None = None
    reference: str = ""
    reads: bool = True


@dataclass(frozen=True, slots=True)
class Values:
    """All parameters of a task, and the tolerance of its results."""

    params: tuple[Value, ...]
    tolerance: Tolerance


def mapped(path: str, dtype: str, shape: tuple[int, ...]) -> Any:
    """The numbers of a file, mapped read-only."""
    kind = ELEMENTS[dtype].numpy
    if math.prod(shape) == 0:
        return np.empty(shape, kind)
    return np.memmap(path, np.uint8, "r").view(np.ndarray).view(kind).reshape(shape)


class _Guarded:
    """An array with guard regions before and behind it."""

    def __init__(self, value: Value) -> None:
        kind = ELEMENTS[value.dtype].numpy
        self.size = math.prod(value.shape) * kind.itemsize
        self.memory = np.full(self.size + 2 * _GUARD + 64, _MARK, np.uint8)
        self.start = _GUARD + (-(self.memory.ctypes.data + _GUARD)) % 64
        self.array = self.memory[self.start : self.start + self.size].view(kind).reshape(value.shape)
        self.value = value

    def reset(self, before: Any) -> None:
        """Set the contents before a run: the input if it is also read, else a value that no correct result has."""
        if self.value.reads and before is not None:
            self.array[...] = before
        elif self.array.dtype.kind in "iub":
            mark = _MARK if self.array.dtype.kind != "b" else 1
            self.memory[self.start : self.start + self.size] = mark
        else:
            self.array[...] = np.nan

    @property
    def intact(self) -> bool:
        ends = self.memory[: self.start], self.memory[self.start + self.size :]
        return all(bool((end == _MARK).all()) for end in ends)


class _Loaded:
    """A candidate in this process, with its arguments bound."""

    def __init__(self, run: Callable[[], int], fail: Callable[[int], None], keep: Any) -> None:
        self.run, self.fail, self.keep = run, fail, keep
        self.best = math.inf
        self.first = math.inf  # seconds of the run that was checked
        self.clean = True  # whether the last sample was not preempted

    def seconds(self, times: int) -> float:
        """The mean of `times` runs."""
        run, clock = self.run, time.perf_counter
        before = _interruptions()
        begin = clock()
        for _ in range(times):
            code = run()
            if code:
                self.fail(code)
        taken = (clock() - begin) / times
        self.clean = _interruptions() == before
        self.best = min(self.best, taken)
        return taken


class Runner:
    """Answers requests to run, one at a time."""

    def __init__(self) -> None:
        self.machine = Machine(process_triple(), "", "", 2)
        self.key = ""
        self.values: Values | None = None
        self.inputs: dict[str, Any] = {}
        self.wanted: dict[str, Any] = {}
        self.outputs: dict[str, Any] = {}
        self.kept: dict[str, _Loaded] = {}
        self.flush: Any = None
        self.chance = random.Random(0)

    def requests(self) -> dict[str, Callable[[Any], Any]]:
        return {"task": self.task, "run": self.run, "duel": self.duel, "reference": self.reference}

    # -- data ------------------------------------------------------------------------------------
    def task(self, value: tuple[str, Values]) -> bool:
        """Switch to a task: map its inputs and the reference."""
        self.key, self.values = value
        self.inputs, self.wanted, self.outputs, self.kept = {}, {}, {}, {}
        for p in self.values.params:
            if p.scalar is not None:
                self.inputs[p.name] = p.scalar
                continue
            self.inputs[p.name] = mapped(p.file, p.dtype, p.shape)
            if p.reference:
                self.outputs[p.name] = _Guarded(p)
        return True

    def _argument(self, name: str) -> Any:
        return self.outputs[name].array if name in self.outputs else self.inputs[name]

    def _load(self, artifact: Artifact) -> _Loaded:
        made: dict[str, Any] = {}
        if artifact.before is not None:
            for a in artifact.before_arguments:
                if a.name not in self.inputs:
                    made[a.name] = _aligned(a.shape, a.dtype)
            arguments = [made.get(a.name, self.inputs.get(a.name)) for a in artifact.before_arguments]
            self._function(artifact.before, ())(*arguments)
        assert isinstance(artifact.main, Unit)
        function = self._function(artifact.main, artifact.parts)
        arguments = [made[n] if n in made else self._argument(n) for n in artifact.arguments]
        bound = function.bind(*arguments)
        return _Loaded(bound.run, bound.fail, (bound, arguments))

    def _function(self, unit: Unit, parts: tuple[Unit, ...]) -> Any:
        (info,) = unit.functions
        description = {"format": 1, "functions": [info], "entry": info["name"]}
        module = LinkedModule([unit, *parts], self.machine, description, native=True, name=info["name"])
        return module.get_function(info["name"])

    # -- requests --------------------------------------------------------------------------------
    def reference(self, artifact: Artifact) -> dict[str, Any]:
        """Run the reference program, and write its results into the files of the reference."""
        try:
            loaded = self._load(artifact)
            self._reset()
            seconds = loaded.seconds(1)
            for name, out in self.outputs.items():
                out.array.tofile(out.value.reference)
                if not out.intact:
                    return _answer("wrong", f"the program writes outside of its parameter {name}")
        except Exception as error:
            return _answer("run error", told(error))
        return _answer("ok", seconds=[seconds])

    def run(self, value: tuple[str, Artifact, Timing, tuple[str, Artifact] | None]) -> dict[str, Any]:
        """Check and time a candidate, in turns with the incumbent if they are about equally fast."""
        token, artifact, timing, incumbent = value
        begin = time.perf_counter()
        try:
            against = None if incumbent is None else self._keep(*incumbent, timing)
            loaded = self._load(artifact)
            wrong = self._check(loaded)
            if wrong:
                spoiled = bool(self._guards())
                if not spoiled and not self._check(loaded):
                    wrong += (
                        "; run again it is right: threads race, or memory is read that nothing has written"
                    )
                return {**_answer("wrong", wrong), "spoiled": spoiled}
            answer = self._timed(loaded, against, timing)
            wrong = self._guards()
            if wrong:
                return {**_answer("wrong", wrong), "spoiled": True}
        except MemoryError as error:
            return _answer("memory", told(error))
        except Exception as error:
            return _answer("run error", told(error))
        self.kept = {k: v for k, v in self.kept.items() if incumbent is not None and k == incumbent[0]}
        self.kept[token] = loaded
        return {**answer, "run_seconds": time.perf_counter() - begin}

    def duel(self, value: tuple[tuple[str, Artifact], tuple[str, Artifact], Timing, int]) -> dict[str, Any]:
        """Check two candidates, and measure them in turns. Returns the samples of each.

        The addresses of their own arrays are a matter of luck, and can matter more than the difference of the two: each
        is loaded several times.
        """
        first, second, timing, rounds = value
        pairs: list[tuple[float, float]] = []
        held: list[_Loaded] = []  # kept, or the next would get the same memory again
        try:
            for number in range(_LOADS):
                order = (first, second) if number % 2 == 0 else (second, first)
                for token, artifact in order:
                    held.append(self._load(artifact))
                    wrong = self._check(held[-1])
                    if wrong:
                        return _answer("wrong", f"{token}: {wrong}")
                one, two = held[-2:] if number % 2 == 0 else held[:-3:-1]
                pairs += self._turns(one, two, timing, -(-rounds // _LOADS))
        except MemoryError as error:
            return _answer("memory", told(error))
        except Exception as error:
            return _answer("run error", told(error))
        return _answer("ok", seconds=[a for a, _ in pairs], against=[b for _, b in pairs])

    # -- checks ----------------------------------------------------------------------------------
    def _reset(self) -> None:
        for name, out in self.outputs.items():
            out.reset(self.inputs.get(name))

    def _check(self, loaded: _Loaded) -> str:
        """Run once, and compare with the reference. Returns what is wrong; empty if nothing is."""
        assert self.values is not None
        self._reset()
        loaded.first = loaded.seconds(1)
        loaded.best = math.inf  # the first run pays for cold caches
        for name, out in self.outputs.items():
            if name not in self.wanted:
                self.wanted[name] = mapped(out.value.reference, out.value.dtype, out.value.shape)
            wrong = compare(self._result(name), self.wanted[name], self.values.tolerance)
            if wrong:
                return f"{name}: {wrong}"
        return self._guards()

    def _result(self, name: str) -> Any:
        """The values of an output."""
        return self.outputs[name].array

    def _guards(self) -> str:
        bad = next((name for name, out in self.outputs.items() if not out.intact), None)
        return "" if bad is None else f"it writes outside of its parameter {bad}"

    # -- time ------------------------------------------------------------------------------------
    def _keep(self, token: str, artifact: Artifact, timing: Timing) -> _Loaded:
        """The incumbent: already loaded, or loaded and timed now."""
        if token not in self.kept:
            loaded = self.kept[token] = self._load(artifact)
            loaded.seconds(1)
            loaded.best = math.inf
            for _ in range(2):
                self._sample(loaded, self._inner(loaded, timing), timing)
        return self.kept[token]

    def _inner(self, loaded: _Loaded, timing: Timing) -> int:
        """How many runs make one sample."""
        if timing.flush_bytes:
            return 1
        best = min(loaded.best, loaded.first)
        return max(1, math.ceil(timing.sample_seconds / max(best, 1e-7)))

    def _sample(self, loaded: _Loaded, inner: int, timing: Timing) -> float:
        if timing.flush_bytes:
            if self.flush is None or self.flush.nbytes != timing.flush_bytes:
                self.flush = np.zeros(timing.flush_bytes, np.uint8)
            self.flush += 1
        if timing.cool_seconds:
            time.sleep(timing.cool_seconds)
        return loaded.seconds(inner)

    def _timed(self, loaded: _Loaded, incumbent: _Loaded | None, timing: Timing) -> dict[str, Any]:
        limit = math.inf if incumbent is None else incumbent.best
        near = 0.0 if incumbent is None else _CONTENDER * limit
        samples: list[float] = []
        if loaded.first > near:
            samples = self._samples(loaded, timing, timing.hopeless * limit, near)
        if incumbent is None or (samples and min(samples) > near):
            return _answer("ok", seconds=samples)
        pairs = self._turns(loaded, incumbent, timing, timing.rounds, until=_BEHIND)
        return _answer("ok", seconds=samples + [a for a, _ in pairs], against=[b for _, b in pairs])

    def _samples(self, loaded: _Loaded, timing: Timing, hopeless: float, near: float) -> list[float]:
        """Samples until there are enough without preemption, or the two fastest if they agree, or all after three times
        the time. Two are enough if both took longer than `hopeless`. It also ends as soon as one is below `near`: then
        the candidate is measured in turns with the incumbent."""
        begin = time.perf_counter()
        if loaded.first > _LONG * timing.sample_seconds:  # cold caches cost little then
            begin, first = begin - loaded.first, loaded.first
        else:
            first = self._sample(loaded, 1, timing)
        inner = self._inner(loaded, timing)
        every = [first] if inner == 1 else []
        clean = [first] if inner == 1 and loaded.clean else []
        while not every or min(every) > near:
            every.append(self._sample(loaded, inner, timing))
            if loaded.clean:
                clean.append(every[-1])
            spent = time.perf_counter() - begin
            if len(every) >= 2 and min(every) > hopeless:
                return every
            if len(clean) >= timing.repeats and spent >= timing.seconds:
                return clean
            if len(every) >= timing.repeats and spent >= timing.seconds and _agree(every):
                return sorted(every)[:2]
            if len(every) >= timing.repeats and spent >= 3 * timing.seconds:
                return clean if len(clean) > 1 else every
        return every

    def _turns(
        self, one: _Loaded, other: _Loaded, timing: Timing, rounds: int, until: float = math.inf
    ) -> list[tuple[float, float]]:
        """Samples of two candidates in turns, in random order. A turn in which one of them took much longer than its
        best was disturbed, and is repeated. Ends as soon as the first takes more than `until` times as long as the
        other."""
        for side in (one, other):
            if side.best == math.inf and side.first == math.inf:
                side.seconds(1)
        mine, theirs = self._inner(one, timing), self._inner(other, timing)
        pairs: list[tuple[float, float]] = []
        for _ in range(3 * rounds):
            if self.chance.random() < 0.5:
                b = self._sample(other, theirs, timing)
                a = self._sample(one, mine, timing)
            else:
                a = self._sample(one, mine, timing)
                b = self._sample(other, theirs, timing)
            pairs.append((a, b))
            steady = [p for p in pairs if p[0] <= _STEADY * one.best and p[1] <= _STEADY * other.best]
            behind = steady and min(a for a, _ in steady) > until * min(b for _, b in steady)
            if len(steady) >= rounds or behind:
                return steady
        # the fastest samples of each side on its own: what disturbs one says nothing about the other
        return list(
            zip(sorted(a for a, _ in pairs)[:rounds], sorted(b for _, b in pairs)[:rounds], strict=True)
        )


def _agree(samples: list[float]) -> bool:
    """Whether the two fastest agree: then they were not disturbed."""
    fastest = sorted(samples)[:2]
    return len(fastest) == 2 and fastest[1] <= _ALIKE * fastest[0]


def _interruptions() -> int:
    """The involuntary context switches of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _aligned(shape: tuple[int, ...], dtype: str) -> Any:
    kind = ELEMENTS[dtype].numpy
    size = math.prod(shape) * kind.itemsize
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(kind).reshape(shape)


def _answer(status: str, error: str = "", seconds: Any = (), against: Any = ()) -> dict[str, Any]:
    ratio = None
    if len(against):
        ratio = statistics.median(seconds[-len(against) :]) / statistics.median(against)
    return {
        "status": status,
        "error": error,
        "seconds": [float(s) for s in seconds],
        "against": [float(s) for s in against],
        "ratio": ratio,
    }
