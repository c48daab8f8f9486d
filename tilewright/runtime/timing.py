"""Timing of compiled functions."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import repeat as times
from typing import Any

from .devices import Device, cpu, device_api
from .registry import get_global_func, register_func

_LAST_LEVEL = 1 << 26  # bytes that flush the caches of a CPU
_UNITS = (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9))


class BenchmarkResult:
    """Times of several repeats, in seconds, each the mean over its runs."""

    def __init__(self, results: Sequence[float]) -> None:
        self.results = list(results)
        if not self.results:
            raise ValueError("a benchmark needs at least one measurement")
        self.mean = statistics.fmean(self.results)
        self.median = statistics.median(self.results)
        self.min = min(self.results)
        self.max = max(self.results)
        self.std = statistics.pstdev(self.results)

    def __repr__(self) -> str:
        return (
            f"BenchmarkResult(min={self.min}, mean={self.mean}, median={self.median}, max={self.max}, "
            f"std={self.std}, results={self.results})"
        )

    def __str__(self) -> str:
        unit, factor = next(
            ((name, scale) for name, scale in _UNITS if abs(self.mean) * scale >= 1), _UNITS[-1]
        )
        names = ("mean", "median", "min", "max", "std")
        heads = [f"{name} ({unit})" for name in names]
        cells = [f"{getattr(self, name) * factor:.4f}" for name in names]
        widths = [max(len(head), len(cell)) for head, cell in zip(heads, cells)]
        rows = ["  ".join(text.rjust(width) for text, width in zip(row, widths)) for row in (heads, cells)]
        repeats = "1 repeat" if len(self.results) == 1 else f"{len(self.results)} repeats"
        return f"Execution time, {repeats}:\n" + "\n".join(rows)


def time_evaluator(
    function: Callable[..., Any],
    dev: Device | None = None,
    number: int = 10,
    repeat: int = 1,
    min_repeat_ms: int = 0,
    limit_zero_time_iterations: int = 100,
    cooldown_interval_ms: int = 0,
    repeats_to_cooldown: int = 1,
    cache_flush_bytes: int = 0,
    f_preproc: str = "",
) -> Callable[..., BenchmarkResult]:
    """A function of the same arguments that measures: `repeat` times the mean of `number` runs.

    With `min_repeat_ms` the number grows until one repeat lasts that long.
    """
    if number < 1 or repeat < 1:
        raise ValueError(f"number and repeat must be at least 1, got number={number} and repeat={repeat}")
    device = cpu(0) if dev is None else dev
    if not device.exist:
        raise ValueError(f"device {device} is not available in this process")
    prepare = get_global_func(f_preproc) if f_preproc else None
    flush = _Flush(cache_flush_bytes) if cache_flush_bytes > 0 else None

    def evaluate(*args: Any) -> BenchmarkResult:
        run_many = _runner(function, args, device)
        run_many(1)  # the first run pays for page faults and cold caches
        count, results = number, []
        for index in range(repeat):
            if prepare is not None:
                prepare(*args)
            if flush is not None:
                flush()
            seconds, count = _one_repeat(run_many, count, min_repeat_ms, limit_zero_time_iterations)
            results.append(seconds / count)
            if cooldown_interval_ms > 0 and (index + 1) % max(1, repeats_to_cooldown) == 0:
                time.sleep(cooldown_interval_ms / 1000)
        return BenchmarkResult(results)

    return evaluate


def _one_repeat(
    run_many: Callable[[int], float], count: int, min_repeat_ms: int, zero_limit: int
) -> tuple[float, int]:
    """Seconds for `count` runs, with the count raised until they last long enough."""
    zeros = 0
    while True:
        seconds = run_many(count)
        zeros = zeros + 1 if seconds <= 0 else 0
        if seconds * 1000 >= min_repeat_ms or zeros >= zero_limit:
            return seconds, count
        # aim at the target time; grow by the golden ratio at least, so that a few steps suffice
        aimed = math.ceil(min_repeat_ms / 1000 / (seconds / count)) if seconds > 0 else 0
        count = max(aimed, math.ceil(count * 1.618), count + 1)


def _runner(function: Callable[..., Any], args: tuple[Any, ...], device: Device) -> Callable[[int], float]:
    """A function that runs many times and returns the seconds, with minimal overhead between the runs."""
    bind = getattr(function, "bind", None)
    clock = time.perf_counter
    timer = device_api(device).timer(device.device_id) if device.device_type != 1 else None
    if timer is not None:
        call: Callable[[], Any] = bind(*args) if bind is not None else (lambda: function(*args))

        def run_on_device(count: int) -> float:
            stop = timer()
            for _ in times(None, count):
                call()
            return stop()

        return run_on_device
    if bind is None:

        def run_python(count: int) -> float:
            device.sync()
            start = clock()
            for _ in times(None, count):
                function(*args)
            device.sync()
            return clock() - start

        return run_python
    bound = bind(*args)
    run = bound.run

    def run_native(count: int) -> float:
        device.sync()
        start = clock()
        for _ in times(None, count):
            code = run()
            if code:
                bound.fail(code)
        device.sync()
        return clock() - start

    return run_native


class _Flush:
    """Flushes the caches by writing `nbytes` bytes."""

    def __init__(self, nbytes: int) -> None:
        import numpy as np

        self._memory = np.zeros(nbytes, np.uint8)

    def __call__(self) -> None:
        self._memory += 1


@register_func("cache_flush_cpu_non_first_arg")
def _flush_weights(*args: Any) -> None:
    """A classic `f_preproc`: flush everything but the first argument, a model's data, from the caches."""
    if len(args) > 1:
        _Flush(_LAST_LEVEL)()
        first = args[0]
        if getattr(first, "_host", None) is not None:
            first._host.sum()  # bring it back into the caches
