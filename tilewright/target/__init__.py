"""Hardware: targets, their kinds and options, and the figures that cost models use."""

from ..homes import lazily
from . import codegen, tag
from .generic_func import GenericFunc, generic_func, get_native_generic_func, override_native_generic_func
from .host import CacheSizes
from .machine import CpuMachine, GpuMachine, LlvmSettings
from .makers import arm_cpu, bifrost, cuda, hexagon, intel_graphics, mali, riscv_cpu, rocm, vta
from .measure import measure
from .tag import list_tags, register_tag
from .target import Target, TargetKind, create, register_device_lookup
from .virtual_device import VirtualDevice

__all__ = [
    "CacheSizes",
    "CpuMachine",
    "GenericFunc",
    "GpuMachine",
    "LlvmSettings",
    "Target",
    "TargetKind",
    "VirtualDevice",
    "arm_cpu",
    "bifrost",
    "codegen",
    "create",
    "cuda",
    "generic_func",
    "get_native_generic_func",
    "hexagon",
    "intel_graphics",
    "list_tags",
    "mali",
    "measure",
    "override_native_generic_func",
    "register_device_lookup",
    "register_tag",
    "riscv_cpu",
    "rocm",
    "tag",
    "vta",
]

__getattr__ = lazily(__name__, {}, "datatype")
