"""Figures of well-known NVIDIA GPUs, by the name that `-model=` and the tags use.

    the table below           from the data sheets: SMs, L2 cache, bandwidth, clock, multiply-adds of an SM in a cycle
    _LIMITS                   from the table of compute capabilities in NVIDIA's programming guide
    mma of h100, h200, b200   measured on an H200, which reaches half of the rate of `wgmma` by `mma`; inherited by the
                              B200, whose tensor cores have instructions of their own
    fitted figures            `GpuMachine.wgmma`, `mma`, `simt`, …: measured on an H200 and inherited by all others,
                              until `tilewright calibrate` has run on one

A GPU that is not in the table is taken for the nearest earlier one of its architecture.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from .capabilities import arch_number
from .gpu_machine import SmLimits

_K, _M = 1024, 1024 * 1024


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU: the limits of a thread block, and the sizes and rates of the device."""

    arch: str
    sms: int
    l2: int  # bytes
    shared: int  # bytes that a block may ask for at its launch
    bandwidth: float  # GB/s of the main memory
    clock: float  # GHz, boost
    registers: int = 65536
    threads: int = 1024
    cores_per_sm: int = 64  # float32 multiply-adds in a cycle
    mma: int = 0  # multiply-adds of 16-bit floats in a cycle of an SM by `mma`, accumulated in float32

    @property
    def limits(self) -> SmLimits:
        """What an SM holds at once."""
        threads, blocks, shared = _LIMITS[arch_number(self.arch)]
        # From Ampere on the driver takes some shared memory of every thread block.
        reserved = 1024 if arch_number(self.arch) >= 80 else 0
        return SmLimits(threads, blocks, shared_memory=shared * _K, reserved_shared=reserved)

    def attrs(self) -> dict[str, Any]:
        """The options of a target that stand for this GPU."""
        return {
            "arch": self.arch,
            "max_threads_per_block": self.threads,
            # What every kernel may declare; more must be asked for, up to the dynamic limit.
            "max_shared_memory_per_block": 49152,
            "max_dynamic_shared_memory_per_block": self.shared,
            "registers_per_block": self.registers,
            "thread_warp_size": 32,
            "l2_cache_size_bytes": self.l2,
            "multi_processor_count": self.sms,
        }


# Threads and thread blocks of an SM, and KiB of its shared memory, by compute capability.
_LIMITS: Final = {
    53: (2048, 32, 64),
    60: (2048, 32, 64),
    61: (2048, 32, 96),
    62: (2048, 32, 64),
    70: (2048, 32, 96),
    72: (2048, 32, 96),
    75: (1024, 16, 64),
    80: (2048, 32, 164),
    86: (1536, 16, 100),
    87: (1536, 16, 164),
    89: (1536, 24, 100),
    90: (2048, 32, 228),
    100: (2048, 32, 228),
    120: (1536, 24, 100),
}

GPUS: Final[dict[str, Gpu]] = {
    "jetson-nano": Gpu("sm_53", 1, 256 * _K, 49152, 25.6, 0.921, registers=32768, cores_per_sm=128),
    "jetson-tx2": Gpu("sm_62", 2, 512 * _K, 49152, 59.7, 1.30, registers=32768, cores_per_sm=128),
    "jetson-agx-xavier": Gpu("sm_72", 8, 512 * _K, 98304, 136.5, 1.377, mma=512),
    "jetson-agx-orin": Gpu("sm_87", 16, 4 * _M, 166912, 204.8, 1.30, cores_per_sm=128, mma=1024),
    "1080ti": Gpu("sm_61", 28, 2816 * _K, 49152, 484.0, 1.582, cores_per_sm=128),
    "titanx": Gpu("sm_61", 28, 3 * _M, 49152, 480.0, 1.531, cores_per_sm=128),
    "p100": Gpu("sm_60", 56, 4 * _M, 49152, 732.0, 1.328),
    "v100": Gpu("sm_70", 80, 6 * _M, 98304, 900.0, 1.53, mma=512),
    "t4": Gpu("sm_75", 40, 4 * _M, 65536, 320.0, 1.59, mma=512),
    "2080ti": Gpu("sm_75", 68, 5632 * _K, 65536, 616.0, 1.545, mma=256),
    "a100": Gpu("sm_80", 108, 40 * _M, 166912, 1555.0, 1.41, mma=1024),
    "a10g": Gpu("sm_86", 80, 6 * _M, 101376, 600.0, 1.71, cores_per_sm=128, mma=512),
    "3070": Gpu("sm_86", 46, 4 * _M, 101376, 448.0, 1.725, cores_per_sm=128, mma=256),
    "3080": Gpu("sm_86", 68, 5 * _M, 101376, 760.0, 1.71, cores_per_sm=128, mma=256),
    "3090": Gpu("sm_86", 82, 6 * _M, 101376, 936.0, 1.695, cores_per_sm=128, mma=256),
    "4090": Gpu("sm_89", 128, 72 * _M, 101376, 1008.0, 2.52, cores_per_sm=128, mma=256),
    "l4": Gpu("sm_89", 58, 48 * _M, 101376, 300.0, 2.04, cores_per_sm=128, mma=512),
    "l40": Gpu("sm_89", 142, 96 * _M, 101376, 864.0, 2.49, cores_per_sm=128, mma=256),
    "a6000": Gpu("sm_86", 84, 6 * _M, 101376, 768.0, 1.80, cores_per_sm=128, mma=512),
    "4080": Gpu("sm_89", 76, 64 * _M, 101376, 716.8, 2.505, cores_per_sm=128, mma=256),
    "l40s": Gpu("sm_89", 142, 96 * _M, 101376, 864.0, 2.52, cores_per_sm=128, mma=512),
    "h100": Gpu("sm_90a", 132, 50 * _M, 232448, 3350.0, 1.98, cores_per_sm=128, mma=1024),
    "h200": Gpu("sm_90a", 132, 60 * _M, 232448, 4800.0, 1.98, cores_per_sm=128, mma=1024),
    "b200": Gpu("sm_100a", 148, 126 * _M, 232448, 8000.0, 1.965, cores_per_sm=128, mma=1024),
    "5090": Gpu("sm_120a", 170, 96 * _M, 101376, 1792.0, 2.407, cores_per_sm=128, mma=256),
}

# A small member of each generation stands for one of which only the architecture is known.
_BY_ARCH: Final = {
    50: "jetson-nano",
    60: "p100",
    61: "1080ti",
    62: "jetson-tx2",
    70: "v100",
    72: "jetson-agx-xavier",
    75: "t4",
    80: "a100",
    86: "3070",
    87: "jetson-agx-orin",
    89: "l4",
    90: "h100",
    100: "b200",
    120: "5090",
}


def figures_of_model(model: str) -> dict[str, Any] | None:
    """The options that a model's name stands for; None for a name that is not known."""
    found = _named(model)
    return None if found is None else found.attrs()


def figures_of_arch(arch: str) -> Gpu:
    """The GPU that stands for an architecture such as `sm_80`: of the nearest one that is not later."""
    number = arch_number(arch)
    return GPUS[_BY_ARCH[max((known for known in _BY_ARCH if known <= number), default=75)]]


def gpu_of(model: str, arch: str) -> Gpu:
    """The GPU by its model's name, or else by its architecture."""
    return _named(model) or figures_of_arch(arch)


def model_of(device_name: str) -> str:
    """The model whose figures are known, from the name that a driver gives its device; empty if it is none of them."""
    found = _named(re.sub(r"[\s-](sxm\d*|pcie|nvl|hbm\w*|\d+gb)\b.*$", "", device_name.lower()))
    return next((key for key, gpu in GPUS.items() if gpu is found), "")


def _named(model: str) -> Gpu | None:
    """The GPU of a name, however it is written: `RTX 3090`, `tx2`, `nvidia-a100`, `NVIDIA GeForce RTX 4090`."""
    name = re.sub(r"[\s_]+", "-", model.lower())
    short = re.sub(r"^((nvidia|tesla|geforce|jetson)-|(rtx|gtx)-?)+", "", name)
    for key in (name, short, f"jetson-{short}", short.replace("-", "")):
        if key in GPUS:
            return GPUS[key]
    return None
