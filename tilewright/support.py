"""What this installation can do, for reports of bugs."""

from __future__ import annotations

import platform
import sys
from importlib import metadata

from .runtime.devices import DRIVERS, Device

_PACKAGES = ("llvmlite", "numpy", "onnx", "torch", "xgboost-cpu", "cuda-bindings", "pyopencl", "distributed")


def libinfo() -> dict[str, str]:
    """Versions of what is installed, and the devices that are here."""
    found = {"TVM_VERSION": _version("tilewright")}
    found |= {name.upper().replace("-", "_"): _version(name) for name in _PACKAGES}
    for mask in DRIVERS:
        device = Device(mask)
        found[f"USE_{device.kind.upper()}"] = "ON" if device.exist else "OFF"
    return found


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "NOT-FOUND"


def describe() -> None:
    """Print it, with the machine and the Python."""
    print(f"Python {sys.version.split()[0]} on {platform.platform()}")
    for name, value in libinfo().items():
        print(f"{name}: {value}")
