"""Running a model on an accelerator: its arrays are in the memory of the device, and its steps are programs for the
engines. Steps without a program run on the host, between copies."""

from __future__ import annotations

import base64
import binascii
from functools import partial
from typing import Any

from .accelerator_module import AcceleratorModule
from .device_executor import DeviceModelModule, Uploads, Work
from .devices import Device, device_api
from .errors import LoadError
from .executor import ModelModule
from .json_reader import as_table
from .model import PROGRAMS_OF_CHIP
from .module import Module
from .ndarray import NDArray
from .reports import Report


class ChipFunction:
    """A function for the engines, as a step of a model calls it."""

    def __init__(self, module: AcceleratorModule, name: str) -> None:
        self.module, self.name = module, name

    def bind(self, *arrays: NDArray) -> Work:
        """A call with these arrays, which are on the device."""
        return partial(self.module.call, self.name, arrays)


class AcceleratorModelModule(DeviceModelModule):
    """A compiled model whose steps run on an accelerator."""

    def __init__(self, inner: Module, weights: NDArray | None = None) -> None:
        ModelModule.__init__(self, inner, weights)
        where = inner._library.name
        programs = as_table(inner._library.metadata(), where).get(PROGRAMS_OF_CHIP)
        if not isinstance(programs, dict):
            raise LoadError(f"{where}: damaged: it is a model for {self.model.device}, and has no programs")
        api = device_api(self._device)
        self.programs: dict[str, AcceleratorModule] = {}
        for name, text in programs.items():
            try:
                data = base64.b64decode(text, validate=True)
            except (TypeError, ValueError, binascii.Error):
                raise LoadError(f"{where}: damaged: the program of {name} cannot be read") from None
            self.programs[name] = api.program(0, data)
            self.import_module(self.programs[name])
        self.uploads = None if self.weights is None else Uploads(self.weights)

    @property
    def _device(self) -> Device:
        return Device(Device.STR2MASK[self.model.device], 0)

    def step_function(self, kernel: str) -> Any:
        """The function that runs a step, on the chip or on the host."""
        found = self.programs.get(kernel)
        return self.get_function(kernel) if found is None else ChipFunction(found, kernel)

    def checks(self, kernel: str) -> bool:
        return False

    def new_report(self, device: Device) -> Report | None:
        return None

    def get_source(self, fmt: str = "") -> str:
        """The programs of the chip; `h` and `json` are those of the host's part."""
        if fmt in ("h", "json"):
            return self.inner.get_source(fmt)
        return "\n".join(module.get_source(fmt) for module in self.programs.values())
