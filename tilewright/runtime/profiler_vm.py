"""A virtual machine that times its kernels: `VirtualMachineProfiler(executable, device).profile(x)`."""

from __future__ import annotations

import math
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from .dtypes import ELEMENTS
from .metadata import Dim, dim_text, names_in
from .profiling import KernelProfile, Profile, arithmetic_type, text_of
from .threads import num_threads
from .vm import Executable, VirtualMachine
from .vm_values import Tensor

Call = tuple[str, str, tuple[str, ...], float, Sequence[Tensor], Sequence[Tensor], int | None, int | None]


def enabled() -> bool:
    """Whether there is a profiler: always."""
    return True


class VirtualMachineProfiler(VirtualMachine):
    """A virtual machine that records the time of each kernel."""

    timed = True

    @staticmethod
    def like(machine: VirtualMachine | Executable) -> VirtualMachineProfiler:
        """A profiler of the same program, with the same inputs."""
        if isinstance(machine, VirtualMachineProfiler):
            return machine
        if isinstance(machine, Executable):
            return VirtualMachineProfiler(machine)
        made = VirtualMachineProfiler(machine.exe, machine.device)
        made._inputs = dict(machine._inputs)
        return made

    def _timing_callbacks(self) -> dict[str, Any]:
        self._calls: list[Call] = []
        self._work = cache(self._work_of)
        return {"clock": time.perf_counter, "took": self._took}

    def _took(
        self,
        kernel: int,
        site: str,
        seconds: float,
        inputs: Sequence[Tensor],
        results: Sequence[Tensor],
        sizes: Sequence[int],
    ) -> None:
        program = self.exe.program
        flops, nbytes = (count and count(*sizes) for count in self._work(kernel))
        nodes = tuple(program.nodes.get(site, ()))
        # without the owners of their memory, which is free for the kernels that follow as it is in other runs
        ins, outs = ([(0, shape, dtype, None) for _, shape, dtype, _ in each] for each in (inputs, results))
        self._calls.append((site, program.kernels[kernel], nodes, seconds, ins, outs, flops, nbytes))

    def _work_of(self, kernel: int) -> tuple[Callable[..., int] | None, Callable[..., int] | None]:
        """The operations and bytes of a kernel, as functions of its sizes."""
        program = self.exe.program
        work = program.work[kernel] if kernel < len(program.work) else None
        if work is None:
            return None, None
        names = [s.name for s in self.exe.native(program.kernels[kernel]).info.symbols]
        flops, nbytes = (_function(each, names) for each in work)
        return flops, nbytes

    def _open(self, number: int, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        start = time.perf_counter()
        made = super()._open(number, tensors)
        took = time.perf_counter() - start
        name = f"compiled for its sizes {number}"
        self._calls.append((name, name, (), took, tensors, made, None, None))
        return made

    def profile(self, *args: Any, func_name: str = "main", number: int = 1, **kwargs: Any) -> Profile:
        """The time of each kernel in a call of a function, as the median of several calls; a kernel that runs for
        several sizes has a line for each."""
        if args or kwargs:
            self.set_input(func_name, *args, **kwargs)
        given = self._inputs.get(func_name, [])
        count = max(1, number)
        whole = _run_seconds(VirtualMachine(self.exe, self.device), func_name, given, count)
        self.call(func_name, given)  # caches warm
        runs: list[list[Call]] = []
        for _ in range(count):
            self._calls = []
            self.call(func_name, given)
            runs.append(self._calls)
        return self._profile(runs, whole)

    def _profile(self, runs: list[list[Call]], whole: float) -> Profile:
        """The calls of some runs as a profile, whose timeline is that of the last run."""
        threads, roof = num_threads(), self.exe.program.roof
        lines: dict[tuple[str, str], int] = {}
        groups: list[list[list[Call]]] = []  # by line, by run
        for r, calls in enumerate(runs):
            for call in calls:
                key = call[0], text_of([(t[2], t[1]) for t in call[5]])
                at = lines.setdefault(key, len(lines))
                if at == len(groups):
                    groups.append([[] for _ in runs])
                groups[at][r].append(call)
        kernels: list[KernelProfile] = []
        names: Counter[str] = Counter()
        for (_, shapes), of_runs in zip(lines, groups, strict=True):
            last = next(calls for calls in reversed(of_runs) if calls)
            _, kernel, nodes, _, inputs, results, *_ = last[0]
            flops, nbytes = (_sum(call[i] for call in last) for i in (6, 7))
            if nbytes is None:
                nbytes = len(last) * sum(map(_bytes, (*inputs, *results)))
            dtype = arithmetic_type([(t[2], _bytes(t)) for t in (inputs or results)])
            seconds = statistics.median(sum(c[3] for c in calls) for calls in of_runs)
            least = None
            if roof is not None:
                each = roof.seconds((flops or 0) / len(last), nbytes / len(last), dtype, threads)
                least = None if each is None else each * len(last)
            name = re.sub(r"^tvmgen_(\w+)_[0-9a-f]{12}$", r"\1", kernel)
            names[name] += 1
            if names[name] > 1:
                name = f"{name}_{names[name] - 1}"
            kernels.append(
                KernelProfile(
                    name,
                    kernel,
                    seconds,
                    shapes,
                    len(last),
                    nodes,
                    text_of([(t[2], t[1]) for t in inputs]),
                    dtype,
                    flops,
                    nbytes,
                    least,
                )
            )
        timeline = tuple(
            (lines[call[0], text_of([(t[2], t[1]) for t in call[5]])], call[3]) for call in runs[-1]
        )
        return Profile(tuple(kernels), "vm", self.device.kind, threads, roof, whole, timeline)


def _run_seconds(machine: VirtualMachine, func_name: str, given: Sequence[Any], number: int) -> float:
    """The time of a call, the median of `number`, with the kernels compiled and the caches warm."""
    machine.call(func_name, given)
    times = []
    for _ in range(number):
        start = time.perf_counter()
        machine.call(func_name, given)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _bytes(tensor: Tensor) -> int:
    return math.prod(tensor[1]) * ELEMENTS[tensor[2]].itemsize


def _sum(counts: Any) -> int | None:
    found = list(counts)
    return None if any(c is None for c in found) else sum(found)


def _function(count: Dim, names: Sequence[str]) -> Callable[..., int] | None:
    """A count of work as a function of a kernel's sizes; None if it depends on others."""
    if not names_in(count) <= set(names):
        return None
    given = {name: f"s{i}" for i, name in enumerate(names)}
    made = eval(
        f"lambda {', '.join(given.values())}: {dim_text(count, given.__getitem__)}", {"min": min, "max": max}
    )
    return made  # type: ignore[no-any-return]
