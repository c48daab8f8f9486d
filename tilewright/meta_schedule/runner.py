"""Runners: from a library in a file to the seconds of its runs."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..ir.errors import TVMError, UnsupportedError
from ..runtime import ndarray as nd
from ..runtime.devices import Device, device
from ..runtime.module import load_module
from ..tune.measure.building import schedule_of
from ..tune.measure.measurer import Duel, Each, MeasureInput, MeasureOptions, MeasureResult, Status
from .arg_info import ArgInfo, TensorInfo
from .builder import Builder, BuilderInput


@dataclass(eq=False)
class RunnerInput:
    """A library to be run on a device, with parameters."""

    artifact_path: str
    device_type: str
    args_info: Sequence[TensorInfo]


@dataclass(eq=False)
class RunnerResult:
    """The seconds of runs, or the reason why there are none."""

    run_secs: Sequence[float] | None
    error_msg: str | None = None


class RunnerFuture:
    """A result that may come later: `f_done` says whether it is there, `f_result` waits for it."""

    def __init__(self, f_done: Callable[[], bool], f_result: Callable[[], RunnerResult]) -> None:
        self.done, self.result = f_done, f_result


PyRunnerFuture = RunnerFuture


@dataclass(frozen=True)
class EvaluatorConfig:
    """How often a candidate runs: `repeat` measurements of `number` runs, each of at least `min_repeat_ms`."""

    number: int = 3
    repeat: int = 1
    min_repeat_ms: int = 100
    enable_cpu_cache_flush: bool = False


@dataclass(frozen=True)
class RPCConfig:
    """The place of an RPC tracker."""

    tracker_host: str | None = None
    tracker_port: int | None = None
    tracker_key: str | None = None
    session_priority: int = 1
    session_timeout_sec: int = 10


class Runner:
    """Runs the candidates of a search."""

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        """Run libraries."""
        raise NotImplementedError(f"{type(self).__name__} must override run(runner_inputs)")

    @staticmethod
    def create(kind: Any = "local", *args: Any, **kwargs: Any) -> Runner:
        """A runner by its name: local."""
        if isinstance(kind, Runner):
            return kind
        made: dict[str, type[Runner]] = {"local": LocalRunner, "rpc": RPCRunner}
        if kind not in made:
            raise ValueError(f"there is no runner {kind!r}; there are {', '.join(made)}")
        return made[kind](*args, **kwargs)


class PyRunner(Runner):
    """A runner of your own: override `run`."""


class LocalRunner(Runner):
    """Runs in processes of this machine while a search runs, and in this process when it is called by hand."""

    def __init__(
        self,
        timeout_sec: float = 30.0,
        evaluator_config: EvaluatorConfig | None = None,
        cooldown_sec: float = 0.0,
        **functions: Any,
    ) -> None:
        if functions:
            raise UnsupportedError(
                f"LocalRunner({', '.join(functions)}=…): the engine allocates and runs by itself; a PyRunner does that "
                "your own way"
            )
        self.timeout_sec, self.cooldown_sec = timeout_sec, cooldown_sec
        self.evaluator_config = evaluator_config

    def options(self, before: MeasureOptions) -> MeasureOptions:
        """The options of the engine's measurer."""
        timing = replace(before.timing, cool_seconds=self.cooldown_sec)
        if (config := self.evaluator_config) is not None:
            timing = replace(timing, repeats=max(1, config.repeat), sample_seconds=config.min_repeat_ms / 1e3)
            if config.enable_cpu_cache_flush:
                timing = replace(timing, flush_bytes=1 << 26)
        return replace(before, run_limit=self.timeout_sec, timing=timing)

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        return [_ready(self._ran(each)) for each in runner_inputs]

    def _ran(self, given: RunnerInput) -> RunnerResult:
        config = self.evaluator_config or EvaluatorConfig()
        try:
            dev: Device = device(given.device_type, 0)
            module = load_module(given.artifact_path)
            rng = np.random.default_rng(0)
            args = [nd.array(_random(rng, info), dev) for info in given.args_info]
            timer = module.time_evaluator(
                module.entry_name,
                dev,
                number=config.number,
                repeat=config.repeat,
                min_repeat_ms=config.min_repeat_ms,
            )
            return RunnerResult(list(timer(*args).results))
        except (TVMError, OSError, ValueError) as error:
            return RunnerResult(None, str(error))


def _ready(result: RunnerResult) -> RunnerFuture:
    return RunnerFuture(lambda: True, lambda: result)


def _random(rng: Any, info: TensorInfo) -> Any:
    values = rng.random(info.shape) if info.dtype.is_float else rng.integers(0, 2, info.shape)
    return np.asarray(values).astype(str(info.dtype))


class RPCRunner(Runner):
    """Remote measurement, which goes through a Dask cluster here."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedError(
            "RPCRunner: other machines measure as workers of a Dask cluster, not through an RPC tracker; use "
            "auto_scheduler.RPCRunner, or `tilewright tune MODEL --cluster tcp://host:8786`"
        )


class Others:
    """The measurer of a builder and a runner of users, for the engine's search."""

    def __init__(self, builder: Builder, runner: Runner) -> None:
        self.builder, self.runner = builder, runner

    def measure(
        self, inputs: Sequence[MeasureInput], incumbent: MeasureInput | None = None, each: Each | None = None
    ) -> list[MeasureResult]:
        out = []
        for number, inp in enumerate(inputs):
            out.append(self._one(inp))
            if each is not None:
                each(number, inp, out[-1])
        return out

    def _one(self, inp: MeasureInput) -> MeasureResult:
        sch = schedule_of(inp.task, inp.kind, inp.what)
        (built,) = self.builder.build([BuilderInput(sch.mod, inp.task.target)])
        if built.artifact_path is None:
            return MeasureResult(Status.BUILD_ERROR, error=str(built.error_msg))
        kind = "cpu" if inp.task.target.is_cpu else inp.task.target.kind.name
        args = ArgInfo.from_prim_func(inp.task.func)
        (future,) = self.runner.run([RunnerInput(built.artifact_path, kind, args)])
        ran = future.result()
        _remove(built.artifact_path)
        if not ran.run_secs:
            return MeasureResult(Status.RUN_ERROR, error=str(ran.error_msg))
        seconds = tuple(float(getattr(s, "value", s)) for s in ran.run_secs)
        return MeasureResult(Status.OK, seconds, trace=sch.trace.as_json())

    def duel(self, first: MeasureInput, second: MeasureInput, rounds: int = 12) -> Duel:
        one, other = self.measure([first, second])
        ratio = one.time / other.time if one.ok and other.ok else math.nan
        return Duel(one, other, ratio)

    def close(self) -> None:
        pass


def _remove(path: str) -> None:
    """Remove the file of a candidate, and its folder if it was made for it."""
    if Path(path).parent.name.startswith("tilewright-artifact-"):
        shutil.rmtree(Path(path).parent, ignore_errors=True)


create = Runner.create
