"""A virtual machine that times its kernels: `VirtualMachineProfiler(executable, device).profile(x)`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from .profiling import Report, Row
from .vm import Tensor, VirtualMachine


def enabled() -> bool:
    """Whether there is a profiler: always."""
    return True


class VirtualMachineProfiler(VirtualMachine):
    """A virtual machine that records the time of each kernel."""

    timed = True

    def _noted(self) -> dict[str, Any]:
        self._times: dict[tuple[str, str], list[float]] = {}  # a kernel, its results: seconds, calls
        return {"clock": time.perf_counter, "took": self._took}

    def _took(self, kernel: int, seconds: float, results: Sequence[Tensor]) -> None:
        name = self.exe.program.kernels[kernel]
        self._note(name, seconds, results)

    def _note(self, name: str, seconds: float, results: Sequence[Tensor]) -> None:
        shapes = ", ".join(f"{dtype}{list(shape)}" for _, shape, dtype, _ in results)
        found = self._times.setdefault((name, shapes), [0.0, 0])
        found[0] += seconds
        found[1] += 1

    def _open(self, number: int, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        start = time.perf_counter()
        made = super()._open(number, tensors)
        self._note(f"compiled for its sizes {number}", time.perf_counter() - start, made)
        return made

    def profile(self, *args: Any, func_name: str = "main", number: int = 1, **kwargs: Any) -> Report:
        """The time of each kernel in a call of a function, as the mean of several; a kernel that runs for several
        sizes has a row for each."""
        if args or kwargs:
            self.set_input(func_name, *args, **kwargs)
        given = self._inputs.get(func_name, [])
        self.call(func_name, given)  # compiled, and caches warm
        self._times.clear()
        count = max(1, number)
        for _ in range(count):
            self.call(func_name, given)
        return Report(
            tuple(
                Row(name, name, seconds / count, shapes, round(calls / count))
                for (name, shapes), (seconds, calls) in self._times.items()
            )
        )
