"""Tags: short names of whole targets, such as `nvidia/geforce-rtx-3090`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ..ir.errors import TargetError
from .gpus import GPUS, figures_of_arch

if TYPE_CHECKING:
    from .target import Target


def _cpu(triple: str, cpu: str, cores: int, *features: str, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"kind": "llvm", "mtriple": triple, "mcpu": cpu, "num-cores": cores, **more}
    return {**made, "mattr": list(features)} if features else made


def _gpu(model: str, host: Mapping[str, Any] | None = None) -> dict[str, Any]:
    made = {"kind": "cuda", **GPUS[model].attrs(), "model": model}
    return made if host is None else {**made, "host": host}


_ARM = "aarch64-linux-gnu"
_tags: Final[dict[str, dict[str, Any]]] = {
    "nvidia/nvidia-v100": _gpu("v100"),
    "nvidia/tesla-v100": _gpu("v100"),
    "nvidia/tesla-p100": _gpu("p100"),
    "nvidia/nvidia-t4": _gpu("t4"),
    "nvidia/tesla-t4": _gpu("t4"),
    "nvidia/nvidia-a100": _gpu("a100"),
    "nvidia/nvidia-a10g": _gpu("a10g"),
    "nvidia/nvidia-l4": _gpu("l4"),
    "nvidia/nvidia-l40": _gpu("l40"),
    "nvidia/nvidia-h100": _gpu("h100"),
    "nvidia/nvidia-h200": _gpu("h200"),
    "nvidia/nvidia-b200": _gpu("b200"),
    "nvidia/nvidia-l40s": _gpu("l40s"),
    "nvidia/rtx-a6000": _gpu("a6000"),
    "nvidia/geforce-rtx-4080": _gpu("4080"),
    "nvidia/geforce-rtx-5090": _gpu("5090"),
    "nvidia/geforce-gtx-1080-ti": _gpu("1080ti"),
    "nvidia/nvidia-titan-x": _gpu("titanx"),
    "nvidia/geforce-rtx-2080-ti": _gpu("2080ti"),
    "nvidia/geforce-rtx-3070": _gpu("3070"),
    "nvidia/geforce-rtx-3080": _gpu("3080"),
    "nvidia/geforce-rtx-3090": _gpu("3090"),
    "nvidia/geforce-rtx-4090": _gpu("4090"),
    "nvidia/jetson-nano": _gpu("jetson-nano", _cpu(_ARM, "cortex-a57", 4)),
    "nvidia/jetson-tx2": _gpu("jetson-tx2", _cpu(_ARM, "cortex-a57", 4)),
    "nvidia/jetson-agx-xavier": _gpu("jetson-agx-xavier", _cpu(_ARM, "carmel", 8)),
    "nvidia/jetson-agx-orin-32gb": _gpu("jetson-agx-orin", _cpu(_ARM, "cortex-a78", 8)),
    "nvidia/jetson-agx-orin-64gb": _gpu("jetson-agx-orin", _cpu(_ARM, "cortex-a78", 12)),
    "raspberry-pi/3b-aarch64": _cpu(_ARM, "cortex-a53", 4, "+neon"),
    "raspberry-pi/4b-aarch64": _cpu(_ARM, "cortex-a72", 4, "+neon"),
    "raspberry-pi/5-aarch64": _cpu(_ARM, "cortex-a76", 4, "+neon", "+dotprod"),
    "aws/cpu/c5.large": _cpu("x86_64-linux-gnu", "skylake-avx512", 1),
    "aws/cpu/c5.2xlarge": _cpu("x86_64-linux-gnu", "skylake-avx512", 4),
    "aws/cpu/c5.9xlarge": _cpu("x86_64-linux-gnu", "skylake-avx512", 18),
    "aws/cpu/c6g.xlarge": _cpu(_ARM, "neoverse-n1", 4),
    "aws/cpu/c7g.xlarge": _cpu(_ARM, "neoverse-v1", 4),
    "aws/gpu/g4dn.xlarge": _gpu("t4", _cpu("x86_64-linux-gnu", "skylake-avx512", 2)),
    "apple/m1-cpu": _cpu("arm64-apple-macos", "apple-m1", 8),
    "apple/m2-cpu": _cpu("arm64-apple-macos", "apple-m2", 8),
    "apple/m1-gpu": {
        "kind": "metal",
        "max_threads_per_block": 1024,
        "max_num_threads": 1024,
        "max_shared_memory_per_block": 32768,
        "thread_warp_size": 32,
        "host": _cpu("arm64-apple-macos", "apple-m1", 8),
    },
}
# GPUs of which the architecture is all that schedules ask for.
_OTHER_GPUS: Final = {
    "sm_61": "geforce-gtx-1050 geforce-gtx-1050-ti geforce-gtx-1060 geforce-gtx-1070 geforce-gtx-1080 nvidia-titan-xp "
    "tesla-p4 tesla-p40",
    "sm_70": "nvidia-titan-v quadro-gv100",
    "sm_72": "jetson-xavier-nx",
    "sm_75": "geforce-gtx-1650 geforce-gtx-1660-ti geforce-rtx-2060 geforce-rtx-2070 geforce-rtx-2080 nvidia-titan-rtx "
    "quadro-rtx-4000 quadro-rtx-5000 quadro-rtx-6000 quadro-rtx-8000",
    "sm_80": "nvidia-a30",
    "sm_86": "geforce-rtx-3050 geforce-rtx-3060 geforce-rtx-3070-ti geforce-rtx-3080-ti geforce-rtx-3090-ti "
    "nvidia-a10 nvidia-a16 nvidia-a2 nvidia-a40 rtx-a2000 rtx-a4000 rtx-a5000",
    "sm_89": "geforce-rtx-4060 geforce-rtx-4070 rtx-6000-ada",
}
_LIMITS: Final = (
    "max_threads_per_block",
    "max_shared_memory_per_block",
    "registers_per_block",
    "thread_warp_size",
)
for _arch, _names in _OTHER_GPUS.items():
    _held = figures_of_arch(_arch).attrs()
    for _name in _names.split():
        _tags[f"nvidia/{_name}"] = {"kind": "cuda", "arch": _arch, **{k: _held[k] for k in _LIMITS}}
_tags["apple/m2-gpu"] = {**_tags["apple/m1-gpu"], "host": _tags["apple/m2-cpu"]}


def tag_config(name: str) -> dict[str, Any] | None:
    """The options that a tag stands for."""
    found = _tags.get(name)
    return None if found is None else dict(found)


def tag_names() -> list[str]:
    """All tags."""
    return sorted(_tags)


def list_tags() -> dict[str, Target]:
    """All tags with their targets."""
    from .target import Target

    return {name: Target(name) for name in tag_names()}


def register_tag(name: str, config: Mapping[str, Any], override: bool = False) -> Target:
    """Register a short name for a target."""
    from .target import Target

    if not override and name in _tags:
        raise TargetError(f"target tag {name!r} exists already; say override=True to replace it")
    made = Target(dict(config))
    _tags[name] = dict(config)
    return made
