"""Measurement on this machine by the engine: processes that build, and one that runs and checks.

LocalBuilder ──▶ a program for each configuration ──▶ LocalRunner ──▶ tune.measure.Measurer
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...cpus import usable_cpus
from ...ir.errors import UnsupportedError
from ...rpc.client import Leases, request_remote, servers_here
from ...tune.errors import TuneError
from ...tune.measure.building import DEFAULT_BUILD
from ...tune.measure.error_numbers import NUMBERS, MeasureErrorNo
from ...tune.measure.machines import cache_flush_bytes, fingerprint
from ...tune.measure.measurer import MeasureInput as EngineInput
from ...tune.measure.measurer import MeasureOptions, Measurer
from ...tune.measure.measurer import MeasureResult as EngineResult
from ...tune.measure.remote import Remote
from ...tune.measure.running import Timing
from ..task.space import InstantiationError
from .measure import Builder, BuildResult, MeasureInput, MeasureResult, Runner

__all__ = [
    "BuildResult",
    "LocalBuilder",
    "LocalRunner",
    "RPCRunner",
    "check_remote",
    "request_remote",
    "set_cuda_target_arch",
]

logger = logging.getLogger("autotvm")
_SAMPLE = 0.002  # the least duration of a sample, in seconds
_BATCH = 8  # configurations that are measured before a tuner learns from them


class LocalBuilder(Builder):
    """Builds on this machine, each configuration in a process that may die.

    The template runs in this process; lowering and code generation, which take longer, run in `n_parallel` processes.
    `timeout` is the limit of each in seconds. `build_func` is "default", or a function that the processes can import:
    it is called as `build_func(mod, target=target)`. `build_kwargs`, `do_fork` and `runtime` change nothing.
    """

    def __init__(
        self,
        timeout: float = 10,
        n_parallel: int | None = None,
        build_kwargs: Mapping[str, Any] | None = None,
        build_func: str | Callable[..., Any] = "default",
        do_fork: bool = False,
        runtime: Any = None,
    ) -> None:
        super().__init__(timeout, n_parallel)
        self.user_build_kwargs = dict(build_kwargs or {})
        self.workers = n_parallel or usable_cpus()
        self.n_parallel = max(_BATCH, self.workers)
        self.build_func = _build_name(build_func)
        self.do_fork, self.runtime = do_fork, runtime

    def build(self, measure_inputs: Sequence[MeasureInput]) -> list[Any]:
        """The program of each configuration, or the error of the template as a result."""
        out: list[Any] = []
        for inp in measure_inputs:
            begin = time.perf_counter()
            try:
                with _limited(self.timeout):
                    made = EngineInput.of(inp.task.engine_task, inp.task.candidate(inp.config))
            except Exception as error:  # any error of a template is about this configuration
                late = isinstance(error, _Late)
                number = MeasureErrorNo.BUILD_TIMEOUT if late else MeasureErrorNo.INSTANTIATION_ERROR
                out.append(_failed(error, number, time.perf_counter() - begin))
                continue
            out.append(BuildResult(None, None, None, time.perf_counter() - begin, made))
        return out


class _Late(TuneError):
    """A template that exceeds its time limit."""


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Limit the processor time of a template. It runs in this process, so that only a signal can end it."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGPROF"):
        yield
        return

    def late(*_: Any) -> None:
        raise _Late(f"the template ran for more than its limit of {seconds:g} s")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _build_name(build_func: str | Callable[..., Any]) -> str:
    """The name by which the engine's processes import a function that compiles."""
    if build_func == "default":
        return DEFAULT_BUILD
    if isinstance(build_func, str) and ":" in build_func:
        return build_func
    if isinstance(build_func, str):
        raise UnsupportedError(
            f"LocalBuilder(build_func={build_func!r}): candidates are built for and run on this machine; there is "
            "'default', or a function build(mod, target=target)"
        )
    name = f"{build_func.__module__}:{build_func.__qualname__}"
    found: Any = None
    if build_func.__module__ != "__main__":
        found = getattr(importlib.import_module(build_func.__module__), build_func.__qualname__, None)
    if found is not build_func:
        raise ValueError(
            f"LocalBuilder: {name} cannot be imported by other processes: put build_func into a module of its own, "
            "at its top"
        )
    return name


def _failed(error: Any, number: MeasureErrorNo, spent: float) -> MeasureResult:
    return MeasureResult((error,), int(number), spent, time.time())


class LocalRunner(Runner):
    """Runs on this machine, one configuration at a time, in a process that may die.

    The result of every configuration is compared with that of the unscheduled program before it is timed; if they
    differ, the error is `MeasureErrorNo.WRONG_ANSWER`. There are at least `repeat` samples of at least `min_repeat_ms`
    (2 ms if it is 0). `timeout` is the limit of a configuration in seconds, `memory` its limit in MiB.
    `cooldown_interval` is a pause before each sample in seconds. `number` and `check_correctness` change nothing: the
    engine chooses the number of runs in a sample, and always checks.
    """

    def __init__(
        self,
        timeout: float = 10,
        number: int = 4,
        repeat: int = 3,
        min_repeat_ms: float = 0,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
        module_loader: Any = None,
        check_correctness: bool = True,
        memory: int = 4096,
    ) -> None:
        super().__init__(timeout, 1)
        if module_loader is not None:
            raise UnsupportedError("LocalRunner(module_loader=…): candidates are loaded by the engine alone")
        self.number, self.repeat, self.min_repeat_ms = number, repeat, min_repeat_ms
        self.cooldown_interval, self.enable_cpu_cache_flush = cooldown_interval, enable_cpu_cache_flush
        self.check_correctness = True
        self.memory = memory
        self.ref_input: Sequence[Any] | None = None  # values of the parameters, instead of random numbers
        self._options: MeasureOptions | None = None
        self._measurer: Any = None
        self._best: dict[str, tuple[EngineInput, float]] = {}

    def attach(self, builder: Any) -> None:
        """Combine the settings of a builder with those of this runner."""
        if not isinstance(builder, LocalBuilder):
            raise TuneError(
                f"LocalRunner runs results of LocalBuilder, and the builder is a {type(builder).__name__}: give it a "
                "runner of its own"
            )
        sample = max(self.min_repeat_ms * 1e-3, _SAMPLE)
        timing = Timing(
            repeats=self.repeat,
            sample_seconds=sample,
            seconds=sample * self.repeat,
            flush_bytes=cache_flush_bytes() if self.enable_cpu_cache_flush else 0,
            cool_seconds=self.cooldown_interval,
        )
        options = MeasureOptions(
            builders=builder.workers,
            build_limit=builder.timeout,
            run_limit=self.timeout,
            memory=self.memory,
            timing=timing,
            build=builder.build_func,
        )
        if options != self._options:
            self.close()
            self._options = options

    def set_task(self, task: Any) -> None:
        super().set_task(task)
        self._best.clear()
        if self.ref_input is not None:
            task.give_inputs(self.ref_input)
            self.close()  # it holds results for other inputs

    @property
    def measurer(self) -> Any:
        """The engine's pool, whose processes are kept for the next task."""
        if self._measurer is None:
            self._measurer = self._open()
        return self._measurer

    def _open(self) -> Any:
        return Measurer(self._options)

    def close(self) -> None:
        """End the processes, which otherwise end with this object."""
        if self._measurer is not None:
            self._measurer.close()
            self._measurer = None

    def run(self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[Any]) -> list[Any]:
        out: list[Any] = list(build_results)
        waiting = [i for i, built in enumerate(build_results) if isinstance(built, BuildResult)]
        by_program: dict[str, list[int]] = {}
        for i in waiting:
            by_program.setdefault(build_results[i].candidate.task.workload, []).append(i)
        for key, places in by_program.items():
            self._measure(key, places, build_results, out)
        return out

    def _measure(self, key: str, places: list[int], built: Sequence[Any], out: list[Any]) -> None:
        best = self._best.get(key)
        inputs = [built[i].candidate for i in places]
        results = self.measurer.measure(inputs, None if best is None else best[0])
        for i, inp, result in zip(places, inputs, results, strict=True):
            out[i], seconds = _result(result, built[i].time_cost, math.inf if best is None else best[1])
            known = self._best.get(key)
            if seconds < (math.inf if known is None else known[1]):
                self._best[key] = (inp, seconds)


def _result(result: EngineResult, spent: float, incumbent: float) -> tuple[MeasureResult, float]:
    """A result of the engine in the classic form, and its time.

    If it was measured in turns with the best configuration so far, its samples are scaled to that ratio, so that a
    machine which has become slower meanwhile does not make it look slow.
    """
    total = spent + result.build_seconds + result.run_seconds
    number = NUMBERS[result.status]
    if not result.ok:
        text = f"{result.status}: {result.error}"
        error: Exception = InstantiationError(text) if number == 1 else TuneError(text)
        return _failed(error, number, total), math.inf
    ranked = sorted(result.seconds)
    kept = ranked[: (len(ranked) + 1) // 2]
    seconds = result.time
    if result.ratio is not None and math.isfinite(incumbent) and seconds > 0:
        scale = result.ratio * incumbent / seconds
        kept, seconds = [x * scale for x in kept], seconds * scale
    return MeasureResult(tuple(kept), 0, total, time.time()), seconds


class RPCRunner(LocalRunner):
    """Runs on other machines: servers of the device `key` of the `rpc.Tracker` at `host` and `port`, or the workers,
    tagged with the key, of the Dask cluster whose scheduler is there (see `tune.measure.fleet`). Those workers also
    build, with the settings of the builder.

    If the servers of the key are on this machine, this machine measures. `priority` changes nothing."""

    def __init__(
        self,
        key: str,
        host: str,
        port: int,
        priority: int = 1,
        timeout: float = 10,
        n_parallel: int | None = None,
        number: int = 4,
        repeat: int = 3,
        min_repeat_ms: float = 0,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
        module_loader: Any = None,
    ) -> None:
        super().__init__(
            timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush, module_loader
        )
        self.key, self.host, self.port, self.priority = key, host, port, priority
        if n_parallel is not None:
            self.n_parallel = n_parallel

    def _open(self) -> Any:
        if servers_here(self.key, self.host, self.port):
            return super()._open()
        boards = Leases(self.host, self.port, self.key)
        if boards.there:
            return Remote(boards.session, self.key, self._options)
        from ...tune.measure import fleet  # it needs dask.distributed

        return fleet.Fleet(fleet.scheduler_at(self.host, self.port), self.key, self._options)

    def run(self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[Any]) -> list[Any]:
        out = super().run(measure_inputs, build_results)
        there = getattr(self.measurer, "machine", None)
        for inp in measure_inputs if there is not None else ():
            inp.config.machine = fingerprint(there)
        return out


def set_cuda_target_arch(arch: Any) -> None:
    """Always an error: the target names the GPU to generate code for."""
    raise UnsupportedError(
        f"set_cuda_target_arch({arch!r}): name the architecture in the target: tvm.target.Target('cuda -arch=sm_90')"
    )


def check_remote(
    target: Any, device_key: str, host: str | None = None, port: int | None = None, *_: Any, **__: Any
) -> bool:
    """Whether the Dask cluster at `host` and `port` has a worker with the device `device_key`."""
    from ...tune.measure import fleet

    try:
        address = fleet.scheduler_at(host or "127.0.0.1", port or 8786)
        fleet.Fleet(address, device_key, wait=2.0).close()
    except TuneError:
        return False
    return True
