"""Running candidates for an accelerator, in a process of its own: each once, on the simulator of the chip.

The module of a candidate says how long the chip took, in cycles: every run of the same program takes as long, whatever
else the machine does. So the run that is checked against the reference is also the measurement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...runtime.accelerator_module import AcceleratorModule
from ...runtime.devices import Device
from ...target import Target
from ...target.kinds import kind_named
from .artifact import Artifact
from .chip_code import ChipUnit
from .device_running import DeviceRunner, _Guarded
from .running import Timing, _answer, _Loaded

__all__ = ["ChipRunner"]


class _OnChip(_Loaded):
    """A candidate with its arguments in the memory of the chip."""

    def __init__(self, module: AcceleratorModule, arguments: Sequence[Any]) -> None:
        super().__init__(lambda: 0, lambda code: None, arguments)
        self._module, self._arguments = module, arguments

    def seconds(self, times: int) -> float:
        """The time that the chip takes, which one run tells."""
        (name,) = self._module.function_names
        self.best = self._module.call(name, self._arguments)
        return self.best


class ChipRunner(DeviceRunner):
    """Answers requests to run on the chip of a kind of target."""

    def __init__(self, kind: str) -> None:
        super().__init__(Device(kind_named(kind).device_type, 0))
        _ = Target(kind).accelerator  # loads the package of the chip, which provides the memory of the device

    def _load(self, artifact: Artifact) -> _Loaded:
        assert isinstance(artifact.main, ChipUnit)
        given = [self.sets[0][name] for name in artifact.arguments]
        arguments = [x.array if isinstance(x, _Guarded) else x for x in given]
        return _OnChip(artifact.main.module(), arguments)

    def _timed(self, loaded: _Loaded, incumbent: _Loaded | None, timing: Timing) -> dict[str, Any]:
        return _answer("ok", seconds=[loaded.first])

    def _turns(self, one: _Loaded, other: _Loaded, *ignored: Any, **more: Any) -> list[tuple[float, float]]:
        return [(one.first, other.first)]
