"""Kernels of candidates as plain data: one process builds them and another one launches them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...config import using
from ...runtime.device_module import DeviceModule, HostModule


@dataclass(frozen=True, slots=True)
class DeviceUnit:
    """Kernels, and the description of the function that launches them."""

    description: dict[str, Any]
    kind: str
    source: str
    kernels: list[str]
    options: dict[str, Any] = field(default_factory=dict)

    def function(self) -> Any:
        """The function that launches them in this process."""
        module = HostModule(
            self.description, DeviceModule(self.kind, self.source, self.kernels, self.options)
        )
        (name,) = module.function_names
        return module.get_function(name)


def device_unit(module: Any) -> DeviceUnit:
    """The result of `build` for a GPU. CUDA kernels are machine code, so that the process that measures compiles
    nothing."""
    (device,) = (m for m in module.imported_modules if isinstance(m, DeviceModule))
    with using(cache=False):  # most candidates are never built again
        options = device.compiled_options()
    return DeviceUnit(module.description, device.type_key, device.source, list(device.kernels), options)
