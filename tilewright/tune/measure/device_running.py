"""Running candidates on a GPU, in a process of its own: checked against the reference, then timed by the device.

There are several copies of the inputs, which take turns, so that the L2 cache does not hold them from the previous run.
Outputs are between guard regions, and are poisoned before a checked run. A failed candidate may have left the device
unusable for this process, which is then ended: the next candidate gets a new one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...runtime.devices import Device, device_api
from ...runtime.dtypes import ELEMENTS
from ...runtime.ndarray import NDArray, array, empty, part_of
from .artifact import Artifact
from .running import Runner, Timing, Value, Values, _Loaded, mapped

_GUARD = 4096
_MARK = 0xA5
_SETS = 16  # the most sets of arrays that take turns
_ROOM = 4 << 30  # the most bytes of all sets
_LAUNCHES = 20  # the approximate number of launches in a captured graph


class _Guarded:
    """An array on a device with guard regions before and behind it; `value` says how it is reset."""

    def __init__(self, value: Value, device: Device) -> None:
        kind = ELEMENTS[value.dtype].numpy
        self.value = value
        self.size = math.prod(value.shape) * kind.itemsize
        whole = -(-self.size // _GUARD) * _GUARD
        self.memory = array(np.full(whole + 2 * _GUARD, _MARK, np.uint8), device)
        self.array = part_of(self.memory, _GUARD, value.dtype, value.shape)
        self._before = part_of(self.memory, 0, "uint8", (_GUARD,))
        at = self.size // _GUARD * _GUARD
        self._inside = self.size - at  # bytes of the result in the last piece
        self._behind = part_of(self.memory, _GUARD + at, "uint8", (whole + _GUARD - at,))

    @property
    def intact(self) -> bool:
        before, behind = self._before.numpy(), self._behind.numpy()[self._inside :]
        return bool((before == _MARK).all()) and bool((behind == _MARK).all())


class _OnDevice(_Loaded):
    """A candidate with its arguments bound, once for each set of arrays."""

    def __init__(self, calls: list[Any], device: Device) -> None:
        super().__init__(calls[0].run, calls[0].fail, calls)
        self._calls, self._device = calls, device
        timer = device_api(device).timer(device.device_id)
        assert timer is not None, "devices that run kernels have events"
        self._start = timer
        self._graph: Callable[[], Any] | None = None
        self._count = -(-_LAUNCHES // len(calls)) * len(calls)

    def seconds(self, times: int) -> float:
        """The mean of `times` runs, by events of the device."""
        if times > 1 and device_api(self._device).captures_graphs:
            return self._replayed(times)
        stop = self._start()
        for i in range(times):
            call = self._calls[i % len(self._calls)]
            code = call.run()
            if code:
                call.fail(code)
        return self._taken(stop() / times)

    def _replayed(self, times: int) -> float:
        """The same with a captured graph, so that no launch waits for Python."""
        from ...runtime.cuda_driver import capture_graph

        if self._graph is None:
            for call in self._calls:  # all memory must be allocated before the capture
                call.run()
            with capture_graph(self._device) as graph:
                for i in range(self._count):
                    self._calls[i % len(self._calls)].run()
            self._graph = graph
        often = -(-times // self._count)
        stop = self._start()
        for _ in range(often):
            self._graph()
        return self._taken(stop() / (often * self._count))

    def _taken(self, seconds: float) -> float:
        taken = max(seconds, 1e-9)
        self.best = min(self.best, taken)
        return taken


class DeviceRunner(Runner):
    """Answers requests to run on a device."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.device = device
        self.sets: list[dict[str, Any]] = []
        self.poison: dict[str, NDArray] = {}
        self.flushed: list[NDArray] = []

    # -- data ------------------------------------------------------------------------------------
    def task(self, value: tuple[str, Values]) -> bool:
        """Switch to a task: copy its inputs to the device."""
        self.key, self.values = value
        self.inputs, self.wanted, self.outputs, self.kept = {}, {}, {}, {}
        self.sets, self.poison = [], {}
        device, arrays = self.device, [p for p in self.values.params if p.scalar is None]
        for p in arrays:
            self.inputs[p.name] = mapped(p.file, p.dtype, p.shape)
            if p.reference:
                self.poison[p.name] = array(_before(p, self.inputs[p.name]), device)
        total = sum(int(x.nbytes) for x in self.inputs.values())
        cache = int(device.l2_cache_size_bytes or 0)
        count = max(1, min(_SETS, -(-2 * cache // max(1, total)), _ROOM // max(1, total)))
        scalars = {p.name: p.scalar for p in self.values.params if p.scalar is not None}
        for _ in range(count):
            held: dict[str, Any] = dict(scalars)
            for p in arrays:
                held[p.name] = _Guarded(p, device) if p.reference else array(self.inputs[p.name], device)
            self.sets.append(held)
        self.outputs = {p.name: self.sets[0][p.name] for p in arrays if p.reference}
        return True

    def _load(self, artifact: Artifact) -> _Loaded:
        function = artifact.main.function()  # type: ignore[union-attr]
        calls = []
        for held in self.sets:
            given = [held[name] for name in artifact.arguments]
            calls.append(function.bind(*[x.array if isinstance(x, _Guarded) else x for x in given]))
        return _OnDevice(calls, self.device)

    # -- requests --------------------------------------------------------------------------------
    def run(self, value: Any) -> dict[str, Any]:
        return _ended(super().run(value))

    def duel(self, value: Any) -> dict[str, Any]:
        return _ended(super().duel(value))

    # -- checks ----------------------------------------------------------------------------------
    def _reset(self) -> None:
        for name, out in self.outputs.items():
            out.array.copyfrom(self.poison[name])

    def _result(self, name: str) -> Any:
        return self.outputs[name].array.numpy()

    # -- time ------------------------------------------------------------------------------------
    def _sample(self, loaded: _Loaded, inner: int, timing: Timing) -> float:
        if timing.flush_bytes:
            if not self.flushed:
                self.flushed = [empty((timing.flush_bytes,), "uint8", self.device) for _ in range(2)]
            self.flushed[0].copyfrom(self.flushed[1])
        return super()._sample(loaded, inner, _unflushed(timing))


def _unflushed(timing: Timing) -> Timing:
    return replace(timing, flush_bytes=0) if timing.flush_bytes else timing


def _before(p: Value, values: Any) -> Any:
    """The contents of an array before a run writes it: the input if it is also read, else a poison value."""
    if p.reads:
        return values
    if values.dtype.kind in "iub":
        mark = 1 if values.dtype.kind == "b" else _MARK
        return np.full(values.nbytes, mark, np.uint8).view(values.dtype).reshape(values.shape)
    return np.full(values.shape, np.nan, np.float32).astype(values.dtype)


def _ended(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer, marked as spoiled after an error of a kernel: this process cannot be trusted any more then."""
    return {**answer, "spoiled": True} if answer["status"] in ("run error", "memory") else answer
