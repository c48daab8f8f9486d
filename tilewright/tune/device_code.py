"""Kernels of candidates as plain data, which one process builds and another one launches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..config import using
from ..runtime.device_module import DeviceModule, HostModule

__all__ = ["DeviceUnit", "device_unit"]


@dataclass(frozen=True, slots=True)
class DeviceUnit:
    """Kernels, and the description of the function that launches them."""

    description: dict[str, Any]
    kind: str
    source: str
    kernels: list[str]
    options: dict[str, Any] = field(default_factory=dict)

    def function(self) -> Any:
        """What launches them in this process."""
        module = HostModule(
            self.description, DeviceModule(self.kind, self.source, self.kernels, self.options)
        )
        (name,) = module.function_names
        return module.get_function(name)


def device_unit(module: Any) -> DeviceUnit:
    """What `build` made for a GPU; kernels of CUDA's as machine code, so that who measures does not compile."""
    (device,) = (m for m in module.imported_modules if isinstance(m, DeviceModule))
    options = dict(device.options)
    if device.type_key == "cuda":
        from ..runtime.cuda_driver import compile_cubin

        with using(cache=False):  # most candidates are never seen again
            options["image"] = compile_cubin(device.source, options)
    return DeviceUnit(module.description, device.type_key, device.source, list(device.kernels), options)
