"""Targets by name of the hardware: `target.cuda("a100")`, `target.arm_cpu("rasp4b64")`."""

from __future__ import annotations

from typing import Any, Final

from ..absent import absent
from ..ir.errors import TargetError, near_matches
from .target import Target


def _options(options: str | list[str] | None) -> str:
    if options is None:
        return ""
    return " " + (options if isinstance(options, str) else " ".join(options))


def cuda(model: str = "unknown", arch: str | None = None, options: Any = None) -> Target:
    """An NVIDIA GPU; a known model includes its figures."""
    words = f"cuda -model={model}" + (f" -arch={arch}" if arch else "")
    return Target(words + _options(options))


def rocm(model: str = "unknown", options: Any = None) -> Target:
    """An AMD GPU."""
    return Target(f"rocm -model={model}" + _options(options))


def mali(model: str = "unknown", options: Any = None) -> Target:
    """An ARM Mali GPU of the Midgard line."""
    return Target(f"opencl -device=mali -model={model}" + _options(options))


def bifrost(model: str = "unknown", options: Any = None) -> Target:
    """An ARM Mali GPU of the Bifrost line."""
    return Target(f"opencl -device=bifrost -model={model}" + _options(options))


def intel_graphics(model: str = "unknown", options: Any = None) -> Target:
    """An Intel GPU."""
    return Target(f"opencl -device=intel_graphics -model={model} -thread_warp_size=16" + _options(options))


def vta(model: str = "unknown", options: Any = None) -> Target:
    """The example accelerator."""
    return Target(f"ext_dev -keys=vta,cpu -device=vta -model={model}" + _options(options))


_A64, _A32 = "aarch64-linux-gnu", "armv7l-linux-gnueabihf"
_BOARDS: Final[dict[str, str]] = {
    "pixel2": "-model=snapdragon835 -mtriple=arm64-linux-android -mattr=+neon",
    "mate10": "-model=kirin970 -mtriple=arm64-linux-android -mattr=+neon",
    "mate10pro": "-model=kirin970 -mtriple=arm64-linux-android -mattr=+neon",
    "p20": "-model=kirin970 -mtriple=arm64-linux-android -mattr=+neon",
    "p20pro": "-model=kirin970 -mtriple=arm64-linux-android -mattr=+neon",
    "rasp3b": f"-model=bcm2837 -mtriple={_A32} -mattr=+neon",
    "rasp4b": "-model=bcm2711 -mtriple=armv8l-linux-gnueabihf -mattr=+neon -mcpu=cortex-a72 -num-cores=4",
    "rasp4b64": f"-model=bcm2711 -mtriple={_A64} -mattr=+neon -mcpu=cortex-a72 -num-cores=4",
    "rasp5": f"-model=bcm2712 -mtriple={_A64} -mattr=+neon,+dotprod -mcpu=cortex-a76 -num-cores=4",
    "rk3399": f"-model=rk3399 -mtriple={_A64} -mattr=+neon",
    "pynq": f"-model=pynq -mtriple={_A32} -mattr=+neon",
    "ultra96": f"-model=ultra96 -mtriple={_A64} -mattr=+neon",
    "beagleai": f"-model=beagleai -mtriple={_A32} -mattr=+neon,+vfp4 -mcpu=cortex-a15",
    "stm32mp1": f"-model=stm32mp1 -mtriple={_A32} -mattr=+neon,+vfp4 -mcpu=cortex-a7",
    "thunderx": f"-model=thunderx -mtriple={_A64} -mattr=+neon,+crc,+lse",
}


def arm_cpu(model: str = "unknown", options: Any = None) -> Target:
    """An ARM board by its name; an unknown name only sets the model."""
    return Target(
        f"llvm -keys=arm_cpu,cpu -device=arm_cpu {_BOARDS.get(model, f'-model={model}')}" + _options(options)
    )


_RISCV: Final[dict[str, str]] = {
    "sifive-e31": "-model=sifive-e31 -mtriple=riscv32-unknown-linux-gnu -mcpu=sifive-e31 -mabi=ilp32",
    "sifive-e76": "-model=sifive-e76 -mtriple=riscv32-unknown-linux-gnu -mcpu=sifive-e76 -mabi=ilp32",
    "sifive-u54": "-model=sifive-u54 -mtriple=riscv64-unknown-linux-gnu -mcpu=sifive-u54 -mabi=lp64d",
    "sifive-u74": "-model=sifive-u74 -mtriple=riscv64-unknown-linux-gnu -mcpu=sifive-u74 -mabi=lp64d",
    "licheepi3a": (
        "-model=spacemit-x60 -mtriple=riscv64-unknown-linux-gnu -mcpu=spacemit-x60 -mabi=lp64d -num-cores=8"
    ),
}


def riscv_cpu(model: str = "sifive-u54", options: Any = None) -> Target:
    """A RISC-V processor by its name."""
    if model not in _RISCV:
        raise TargetError(f"unknown RISC-V processor {model!r}{near_matches(model, _RISCV)}")
    return Target(f"llvm -keys=riscv_cpu,cpu -device=riscv_cpu {_RISCV[model]}" + _options(options))


hexagon = absent("target.hexagon")
