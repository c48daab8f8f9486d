"""What this installation can do, for reports of bugs."""

from __future__ import annotations

import platform
import sys
from importlib import metadata

from .runtime.devices import Device

__all__ = ["describe", "libinfo"]

_PACKAGES = ("llvmlite", "numpy", "onnx", "torch", "xgboost-cpu", "cuda-bindings", "pyopencl", "distributed")


def libinfo() -> dict[str, str]:
    """Versions of what is installed, and the devices that are here."""
    found = {"TVM_VERSION": _version("tilewright")}
    found |= {name.upper().replace("-", "_"): _version(name) for name in _PACKAGES}
    for kind in ("cuda", "opencl"):
        found[f"USE_{kind.upper()}"] = "ON" if Device(Device.STR2MASK[kind]).exist else "OFF"
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
