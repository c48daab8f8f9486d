"""Measurement under the classic names; the engine measures (`tune.measure`)."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir.errors import UnsupportedError
from ..rpc.client import Leases, servers_here
from ..tune.errors import TuneError
from ..tune.measure import measurer as engine
from ..tune.measure.building import DEFAULT_BUILD
from ..tune.measure.error_numbers import NUMBERS, STATUSES, MeasureErrorNo
from ..tune.measure.machines import cache_flush_bytes
from ..tune.measure.measurer import Measurer, Measures, Status
from ..tune.measure.remote import Remote
from .loop_state import State

if TYPE_CHECKING:
    from .search_task import SearchTask


class _Seconds(float):
    """A time with the attribute `value`, like the numbers of the classic API."""

    @property
    def value(self) -> float:
        return float(self)


class MeasureInput:
    """A candidate: a task and a state of its program."""

    def __init__(self, task: SearchTask, state: State) -> None:
        self.task, self.state = task, state

    @property
    def candidate(self) -> engine.MeasureInput:
        """The candidate of the engine."""
        kind, what = self.state.candidate
        return engine.MeasureInput(self.task.task, kind, what)

    def serialize(self) -> list[Any]:
        """The key of the candidate, as plain data."""
        kind, what = self.state.candidate
        return [self.task.workload_key, str(self.task.target), kind, what if kind != "program" else str(what)]

    def __repr__(self) -> str:
        return f"MeasureInput({self.task.workload_key}, {self.task.target})"


class MeasureResult:
    """A measurement: the times in seconds (`costs`), or the number and the text of an error; the time that building
    and measuring took (`all_cost`), and when it was measured (`timestamp`)."""

    def __init__(
        self,
        costs: Sequence[Any] | None,
        error_no: int = 0,
        error_msg: str | None = "",
        all_cost: float = 0.0,
        timestamp: float = 0.0,
    ) -> None:
        self.costs = [_Seconds(float(c)) for c in costs or ()]
        self.error_no = int(error_no)
        self.error_msg = error_msg or ""
        self.all_cost, self.timestamp = float(all_cost), float(timestamp)

    @staticmethod
    def of(result: engine.MeasureResult, timestamp: float | None = None) -> MeasureResult:
        """The classic form of a result of the engine."""
        spent = result.build_seconds + result.run_seconds
        when = time.time() if timestamp is None else timestamp
        return MeasureResult(result.seconds, NUMBERS[result.status], result.error, spent, when)

    @property
    def result(self) -> engine.MeasureResult:
        """The form of the engine."""
        status = STATUSES[MeasureErrorNo(self.error_no)]
        seconds = tuple(float(c) for c in self.costs) if status is Status.OK else ()
        return engine.MeasureResult(status, seconds, self.error_msg, self.all_cost)

    def __repr__(self) -> str:
        if self.error_no:
            return f"MeasureResult(error_no={self.error_no}, error_msg={self.error_msg[:80]!r})"
        return f"MeasureResult(costs={[float(c) for c in self.costs]}, all_cost={self.all_cost:.3f})"


class BuildResult:
    """The outcome of building a candidate."""

    def __init__(
        self,
        filename: str | None,
        args: Sequence[Any],
        error_no: int,
        error_msg: str | None,
        time_cost: float,
    ) -> None:
        self.filename, self.args = filename or "", list(args)
        self.error_no, self.error_msg, self.time_cost = int(error_no), error_msg or "", float(time_cost)

    def __repr__(self) -> str:
        return f"BuildResult(error_no={self.error_no}, time_cost={self.time_cost:.3f})"


# ---------------------------------------------------------------------------- callbacks
class MeasureCallback:
    """A callback for measurements."""

    def callback(self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        raise NotImplementedError


class PythonBasedMeasureCallback(MeasureCallback):
    """A base class: `callback(policy, inputs, results)` is called after each round."""


# ---------------------------------------------------------------------------- builders and runners
class ProgramBuilder:
    """Builds candidates."""

    def change(self, options: engine.MeasureOptions) -> engine.MeasureOptions:
        """The options of the engine, with the settings of this builder."""
        return options

    def build(self, measure_inputs: Sequence[MeasureInput], verbose: int = 1) -> list[BuildResult]:
        """Build candidates, each in a process that may die, without running them."""
        with Measurer(self.change(engine.MeasureOptions())) as measurer:
            results = measurer.build([inp.candidate for inp in measure_inputs])
        return [
            BuildResult(None, inp.task.compute_dag.tensors, NUMBERS[r.status], r.error, r.build_seconds)
            for inp, r in zip(measure_inputs, results, strict=True)
        ]


class LocalBuilder(ProgramBuilder):
    """Builds in `n_parallel` processes of this machine, with a limit of `timeout` seconds for each candidate.

    `build_func` is "default", or names the function that compiles (package.module:function).
    """

    def __init__(
        self, timeout: float = 30, n_parallel: int | None = None, build_func: Any = "default"
    ) -> None:
        if build_func != "default" and not (isinstance(build_func, str) and ":" in build_func):
            raise UnsupportedError(
                f"LocalBuilder(build_func={build_func!r}): candidates are compiled in other processes, and run on this "
                'machine; use "default", or the name of a function as package.module:function'
            )
        self.timeout, self.n_parallel = timeout, n_parallel
        self.build_func = DEFAULT_BUILD if build_func == "default" else str(build_func)

    def change(self, options: engine.MeasureOptions) -> engine.MeasureOptions:
        return replace(
            options, build_limit=float(self.timeout), builders=self.n_parallel, build=self.build_func
        )


@dataclass(eq=False)
class ProgramRunner:
    """Runs candidates. `timeout` is the limit of a candidate and `cooldown_interval` a pause before each sample, both
    in seconds. There are at least `repeat` samples of at least `min_repeat_ms`. `number` and `device` change nothing:
    the engine chooses the number of runs in a sample."""

    timeout: float = 10
    number: int = 3
    repeat: int = 1
    min_repeat_ms: float = 0
    cooldown_interval: float = 0.0
    enable_cpu_cache_flush: bool = False
    device: int = 0

    def change(self, options: engine.MeasureOptions) -> engine.MeasureOptions:
        """The options of the engine, with the settings of this runner."""
        timing = options.timing
        timing = replace(
            timing,
            repeats=max(timing.repeats, self.repeat),
            sample_seconds=max(timing.sample_seconds, self.min_repeat_ms / 1e3),
            cool_seconds=float(self.cooldown_interval),
            flush_bytes=cache_flush_bytes() if self.enable_cpu_cache_flush else 0,
        )
        return replace(options, run_limit=float(self.timeout), timing=timing)

    def open(self, builder: ProgramBuilder, options: engine.MeasureOptions) -> Measures:
        """The measurer of the engine for a builder and this runner."""
        return Measurer(self.change(builder.change(options)))

    def run(
        self,
        measure_inputs: Sequence[MeasureInput],
        build_results: Sequence[BuildResult] = (),
        verbose: int = 1,
    ) -> list[MeasureResult]:
        """Run and check candidates; a candidate with a build error keeps it."""
        out: list[MeasureResult | None] = [None] * len(measure_inputs)
        for i, built in enumerate(build_results):
            if built.error_no:
                out[i] = MeasureResult([], built.error_no, built.error_msg, built.time_cost, time.time())
        left = [i for i, r in enumerate(out) if r is None]
        with closing(self.open(LocalBuilder(), engine.MeasureOptions())) as measures:
            found = measures.measure([measure_inputs[i].candidate for i in left])
        for i, result in zip(left, found, strict=True):
            out[i] = MeasureResult.of(result)
        return [r for r in out if r is not None]


class LocalRunner(ProgramRunner):
    """Runs in a process of this machine, with limits of time and memory."""


class RPCRunner(ProgramRunner):
    """Runs on other machines: servers of the device `key` of the `rpc.Tracker` at `host` and `port`, or the workers,
    tagged with the key, of the Dask cluster whose scheduler is there (see `tune.measure.fleet`).

    If the servers of the key are on this machine, this machine measures. `priority` and `n_parallel` change nothing."""

    def __init__(
        self,
        key: str,
        host: str,
        port: int,
        priority: int = 1,
        n_parallel: int = 1,
        timeout: float = 10,
        number: int = 3,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
        device: int = 0,
    ) -> None:
        super().__init__(
            timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush, device
        )
        self.key, self.host, self.port = key, host, port
        self.priority, self.n_parallel = priority, n_parallel

    def open(self, builder: ProgramBuilder, options: engine.MeasureOptions) -> Measures:
        if servers_here(self.key, self.host, self.port):
            return super().open(builder, options)
        boards = Leases(self.host, self.port, self.key)
        if boards.there:
            return Remote(boards.session, self.key, self.change(builder.change(options)))
        try:
            from ..tune.measure.fleet import Fleet, scheduler_at  # which loads Dask
        except ImportError as error:
            raise TuneError(
                f"RPCRunner({self.key!r}, {self.host!r}, {self.port}): other machines measure as workers of a Dask "
                f"cluster, which cannot be used here ({error}); pip install 'tilewright[fleet]', or use LocalRunner"
            ) from None
        return Fleet(
            scheduler_at(self.host, self.port),
            device=self.key or "cpu",
            options=self.change(builder.change(options)),
        )


@dataclass(eq=False)
class LocalRPCMeasureContext:
    """A context whose `runner` measures in another process, as every runner does here; `priority` and `n_parallel`
    change nothing."""

    priority: int = 1
    n_parallel: int = 1
    timeout: float = 10
    number: int = 3
    repeat: int = 1
    min_repeat_ms: float = 0
    cooldown_interval: float = 0.0
    enable_cpu_cache_flush: bool = False
    device: int = 0
    tracker = server = None  # none is needed

    def __post_init__(self) -> None:
        self.runner = LocalRunner(**{f.name: getattr(self, f.name) for f in fields(LocalRunner)})

    def __enter__(self) -> LocalRPCMeasureContext:
        return self

    def __exit__(self, *ignored: object) -> None:
        """Do nothing, as there is nothing to close."""


class ProgramMeasurer:
    """A builder, a runner and callbacks, for `SearchPolicy.search`."""

    def __init__(
        self,
        builder: Any = "local",
        runner: Any = "local",
        callbacks: Sequence[Any] | None = None,
        verbose: int = 1,
        max_continuous_error: int | None = None,
    ) -> None:
        self.builder, self.runner = builder_of(builder), runner_of(runner)
        self.callbacks, self.verbose = list(callbacks or ()), verbose


def builder_of(given: Any) -> ProgramBuilder:
    """A builder; "local" and None are the default one."""
    if given is None or given == "local":
        return LocalBuilder()
    if not isinstance(given, ProgramBuilder):
        raise ValueError(f'builder= takes "local" or a LocalBuilder, not {given!r}')
    return given


def runner_of(given: Any) -> Any:
    """A runner; "local" and None are the default one. A measurer of the engine is accepted too."""
    if given is None or given == "local":
        return LocalRunner()
    if not isinstance(given, ProgramRunner) and not hasattr(given, "measure"):
        raise ValueError(
            f'runner= takes "local", a LocalRunner, an RPCRunner or a tune.measure.Measures, not {given!r}'
        )
    return given


@contextmanager
def opened(builder: ProgramBuilder, runner: Any, reproducers: str | None = None) -> Iterator[Measures]:
    """The measurer of a builder and a runner, closed at the end of a `with` block."""
    if not isinstance(runner, ProgramRunner):
        yield runner
        return
    with closing(runner.open(builder, engine.MeasureOptions(reproducers=reproducers))) as measures:
        yield measures


# ---------------------------------------------------------------------------- values of parameters
TASK_INPUT_BUFFER_TABLE: dict[str, dict[str, Any]] = {}
_CHECKS: dict[str, Callable[..., Any]] = {}


def register_task_input_buffer(
    workload_key: str, input_name: str, input_data: Any, overwrite: bool = False, save_to_file: bool = False
) -> Any:
    """Set the value of a parameter for the candidates of a workload, instead of random numbers. Returns it.

    A value that was registered, or is in a file that `save_to_file` wrote, is kept unless `overwrite`.
    """
    held = TASK_INPUT_BUFFER_TABLE.setdefault(workload_key, {})
    if input_name not in held and not overwrite and Path(_file_of(input_name, input_data)).exists():
        held[input_name] = np.load(_file_of(input_name, input_data), allow_pickle=False)
    if input_name in held and not overwrite:
        return held[input_name]
    held[input_name] = array = _array(input_data)
    if save_to_file:
        np.save(_file_of(input_name, input_data), array, allow_pickle=False)
    return array


def get_task_input_buffer(workload_key: str, input_name: str) -> Any:
    """The registered value of a parameter."""
    held = TASK_INPUT_BUFFER_TABLE.get(workload_key, {})
    if input_name not in held:
        known = ", ".join(sorted(held)) or "none"
        raise ValueError(f"{input_name} of {workload_key} has no registered value; those that have: {known}")
    return held[input_name]


def task_input_buffers(workload_key: str) -> Mapping[str, Any]:
    """The registered values of a workload, by the names of its parameters."""
    return TASK_INPUT_BUFFER_TABLE.get(workload_key, {})


def _array(data: Any) -> Any:
    return np.asarray(data.numpy() if hasattr(data, "numpy") else data)


def _file_of(name: str, data: Any) -> str:
    array = _array(data)
    sizes = "x".join(map(str, array.shape))
    return f"{name.replace(os.sep, '_')}.{sizes}_{array.dtype}.npy"


def register_task_input_check_func(
    func_name: Any, f: Callable[..., Any] | None = None, override: bool = False
) -> Any:
    """Register the function that finds the inputs of a workload which need registered values.

    It is called with the tensors of the program, and returns the names of registered values by tensor.
    """
    if callable(func_name):
        f, func_name = func_name, func_name.__qualname__

    def register(check: Callable[..., Any]) -> Callable[..., Any]:
        if func_name in _CHECKS and not override:
            raise ValueError(f"{func_name} has been registered already; override=True replaces it")
        _CHECKS[func_name] = check
        return check

    return register(f) if f is not None else register


def special_inputs(name: str, tensors: Sequence[Any]) -> Mapping[Any, str]:
    """The names of the registered values that a workload needs, by tensor."""
    check = _CHECKS.get(name)
    return dict(check(tensors)) if check is not None else {}


def recover_measure_input(inp: MeasureInput, rebuild_state: bool = False) -> MeasureInput:
    """A copy of a candidate from a file; with `rebuild_state`, its schedule is made now."""
    if rebuild_state:
        _ = inp.state.schedule  # made on demand
    return MeasureInput(inp.task, inp.state)


def time_of(result: MeasureResult) -> float:
    """The time that counts; infinite for a failure."""
    return result.result.time if result.costs and not result.error_no else math.inf
