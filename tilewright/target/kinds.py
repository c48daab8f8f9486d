"""The kinds of targets and the options that each takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..ir.errors import TargetError, near_matches

__all__ = ["KINDS", "Option", "TargetKind", "kind_named"]

# What runs code, as DLPack numbers devices.
CPU, CUDA, OPENCL, VULKAN, METAL, ROCM, EXT_DEV, WEBGPU = 1, 2, 4, 7, 8, 10, 12, 15


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a kind: what type its values have, which of them are allowed, and what it means."""

    type: str  # "text", "list", "int", "bool"
    doc: str = ""
    low: int | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetKind:
    """A kind of target: its name, the device it runs on, its keys and its options."""

    name: str
    device_type: int
    default_keys: tuple[str, ...]
    options: Mapping[str, Option] = field(repr=False, hash=False, compare=False)
    defaults: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False, compare=False)

    @property
    def default_device_type(self) -> int:
        return self.device_type

    def __str__(self) -> str:
        return self.name


_text, _list, _flag = Option("text"), Option("list"), Option("bool")


def _count(doc: str) -> Option:
    """An option that counts something: an integer greater than 0."""
    return Option("int", doc, low=1)


_COMMON: Final[dict[str, Option]] = {
    "keys": Option("list", "names that operator strategies are looked up by"),
    "device": Option("text", "one more key, put first"),
    "model": Option("text", "the name of the hardware, for tuning records"),
    "libs": Option("list", "libraries that may stand in for generated code"),
    "tag": Option("text", "the tag that the target was made from"),
    "from_device": Option("int", "the number of the device to ask for its figures", low=0),
}

_CPU_CODE: Final[dict[str, Option]] = {
    "mcpu": Option("text", "the processor; `native` is this machine's"),
    "mattr": Option("list", "processor features to switch on (+avx2) or off (-avx2)"),
    "mtriple": Option("text", "architecture, vendor and system, as LLVM names them"),
    "mabi": Option("text", "the calling convention"),
    "mfloat-abi": Option("text", "how floats are passed", choices=("soft", "softfp", "hard")),
    "num-cores": _count("how many cores a program may use"),
    "vector-width": _count("bits of a vector register"),
    "machine": Option("text", "figures of the processor, as clock:3.7,fma_ports:2"),
    "system-lib": Option("bool", "functions register themselves when the library is loaded"),
    "link-params": Option("bool", "parameters become part of the library"),
    "runtime": Option("text", "which runtime the code is for", choices=("c", "c++", "cpp", "crt")),
    "executor": Option("text", "what runs the graph", choices=("graph", "aot", "vm")),
    "unpacked-api": Option("bool", "functions take their arguments one by one"),
    "interface-api": Option("text", "how the library is called", choices=("c", "packed")),
    "constants-byte-alignment": _count("bytes that constants are aligned to"),
    "workspace-byte-alignment": _count("bytes that workspaces are aligned to"),
}

_FAST_MATH: Final = ("", "-nnan", "-ninf", "-nsz", "-arcp", "-contract", "-reassoc")
_LLVM: Final[dict[str, Option]] = {
    **_CPU_CODE,
    **{f"fast-math{part}": Option("bool", "floating point rules that may be broken") for part in _FAST_MATH},
    "opt-level": Option("int", "how hard LLVM tries, 0 to 3", low=0),
    "cl-opt": Option("list", "options for LLVM's own command line"),
    "jit": Option("text", "which of LLVM's compilers runs", choices=("mcjit", "orcjit")),
}

_GPU: Final[dict[str, Option]] = {
    "max_num_threads": _count("threads of a block that schedules use"),
    "max_threads_per_block": _count("threads of a block that the hardware allows"),
    "max_shared_memory_per_block": _count("bytes of shared memory of a block"),
    "max_dynamic_shared_memory_per_block": _count("the same, asked for when the kernel is launched"),
    "thread_warp_size": _count("threads that run in step"),
    "registers_per_block": _count("32-bit registers of a block"),
    "max_function_args": _count("arguments of a kernel"),
    "max_local_memory_per_block": _count("bytes of private memory"),
    "vector_unit_bytes": _count("bytes of the widest load"),
    "l2_cache_size_bytes": _count("bytes of the cache that all blocks share"),
    "multi_processor_count": _count("SMs, which run thread blocks"),
    "memory_bandwidth": _count("GB/s of the main memory"),
    "machine": Option("text", "figures of the GPU, as clock:1.9,mma.latency:1200"),
}
_OLD_NAMES: Final = {"shared_memory_per_block": "max_shared_memory_per_block"}

_NUMBER_TYPES: Final = ("float16", "float32", "float64", "int8", "int16", "int32", "int64")
_VULKAN_FACTS: Final = (
    *(f"supports_{t}" for t in _NUMBER_TYPES),
    "supports_8bit_buffer",
    "supports_16bit_buffer",
    "supports_storage_buffer_storage_class",
    "supports_push_descriptor",
    "supports_dedicated_allocation",
    "supports_integer_dot_product",
    "supports_cooperative_matrix",
)


def _kind(name: str, device: int, keys: str, options: Mapping[str, Option], **defaults: Any) -> TargetKind:
    return TargetKind(name, device, tuple(keys.split()), {**_COMMON, **options}, defaults)


_TEXTURE: Final = {
    "texture_spatial_limit": _count("the longest side of an image"),
    "texture_depth_limit": _count("the most layers of an image"),
    "image_base_address_alignment": _count("bytes that images are aligned to"),
}

KINDS: Final[dict[str, TargetKind]] = {
    kind.name: kind
    for kind in (
        _kind("llvm", CPU, "cpu", _LLVM),
        _kind(
            "c", CPU, "cpu", {**_CPU_CODE, "march": Option("text", "the architecture, for the C compiler")}
        ),
        _kind(
            "cuda",
            CUDA,
            "cuda gpu",
            {
                **_GPU,
                "arch": Option("text", "the compute capability, as sm_80"),
                "mcpu": Option("text", "the same as -arch"),
                "tf32": Option("bool", "tensor cores may round float32 to 10 bits before products"),
            },
            max_num_threads=1024,
            thread_warp_size=32,
        ),
        _kind(
            "rocm",
            ROCM,
            "rocm gpu",
            {**_GPU, "mcpu": _text, "mtriple": _text, "mattr": _list},
            max_num_threads=256,
            max_threads_per_block=256,
            max_shared_memory_per_block=65536,
            thread_warp_size=64,
        ),
        _kind(
            "opencl",
            OPENCL,
            "opencl gpu",
            {**_GPU, **_TEXTURE},
            max_num_threads=256,
            max_threads_per_block=256,
            max_shared_memory_per_block=16384,
            thread_warp_size=1,
        ),
        _kind(
            "metal",
            METAL,
            "metal gpu",
            {**_GPU, "mtriple": _text},
            max_num_threads=256,
            max_threads_per_block=256,
            max_shared_memory_per_block=32768,
            thread_warp_size=16,
            max_function_args=31,
        ),
        _kind(
            "vulkan",
            VULKAN,
            "vulkan gpu",
            {
                **_GPU,
                **dict.fromkeys(_VULKAN_FACTS, _flag),
                "mattr": _list,
                "supported_subgroup_operations": Option("int", "as flags", low=0),
                "vulkan_api_version": Option("int", "as Vulkan packs it", low=0),
                "max_spirv_version": Option("int", "as SPIR-V packs it", low=0),
            },
            max_num_threads=256,
            max_threads_per_block=256,
            max_shared_memory_per_block=16384,
            thread_warp_size=1,
        ),
        _kind(
            "webgpu",
            WEBGPU,
            "webgpu gpu",
            _GPU,
            max_num_threads=256,
            max_threads_per_block=256,
            max_shared_memory_per_block=16384,
            thread_warp_size=1,
        ),
        _kind("ext_dev", EXT_DEV, "", {"system-lib": _flag}),
    )
}

# Other names of the same things.
_ALIASES: Final = {"hip": "rocm", "nvidia": "cuda", "cpu": "llvm", "vta": "ext_dev"}
OPTION_ALIASES: Final = {
    "target": "mtriple",
    "system_lib": "system-lib",
    "num_cores": "num-cores",
    **_OLD_NAMES,
}


def kind_named(name: str) -> TargetKind:
    """The kind of that name, or an error that lists the kinds there are."""
    found = KINDS.get(_ALIASES.get(name, name))
    if found is None:
        raise TargetError(f"unknown target kind {name!r}{near_matches(name, [*KINDS, 'hip', 'vta'])}")
    return found
