"""The figures of a target that schedules and cost models reckon with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .cpus import architecture_of_cpu, architecture_of_triple, cpu_named
from .gpus import GPUS, figures_of_arch, gpu_of
from .host import (
    CacheSizes,
    host_architecture,
    host_cache_sizes,
    host_cores,
    host_cpu_name,
    host_feature_string,
    host_features,
    host_triple,
)

if TYPE_CHECKING:
    from .target import Target

__all__ = ["CpuMachine", "GpuMachine", "LlvmSettings", "llvm_settings", "machine_of"]


class LlvmSettings(NamedTuple):
    """What LLVM is told about a processor. `is_host`: code for it runs in this process."""

    triple: str
    cpu: str
    features: str
    abi: str
    is_host: bool


@dataclass(frozen=True, slots=True)
class CpuMachine:
    """A processor in numbers.

    `vector_bits` is the widest vector it has and `preferred_vector_bits` the one it runs best: some
    processors slow down for their widest. `fma_ports` counts fused multiply-adds of the widest vector
    that begin in one cycle.
    """

    arch: str
    cpu: str
    features: frozenset[str]
    vector_bits: int
    preferred_vector_bits: int
    vector_registers: int
    fma: bool
    fma_ports: int
    cache_sizes: CacheSizes
    num_cores: int

    def lanes(self, bits: int) -> int:
        """How many values of `bits` bits a vector holds."""
        return max(1, self.preferred_vector_bits // bits)


@dataclass(frozen=True, slots=True)
class GpuMachine:
    """A GPU in numbers. Sizes are in bytes, `bandwidth` in GB/s, `clock` in GHz."""

    arch: str
    warp_size: int
    max_threads_per_block: int
    shared_memory_per_block: int
    dynamic_shared_memory_per_block: int
    registers_per_block: int
    multiprocessors: int
    l2_cache: int
    bandwidth: float
    clock: float
    fma_per_cycle: int  # float32, of one multiprocessor

    @property
    def peak_flops(self) -> float:
        """float32 operations in a second, without tensor cores."""
        return 2e9 * self.clock * self.fma_per_cycle * self.multiprocessors


def is_host_cpu(target: Target) -> bool:
    """Whether a CPU target means this very machine: nothing else said, or `-mcpu=native`."""
    if target.attrs.get("mcpu", "native") != "native":
        return False
    triple = target.attrs.get("mtriple")
    return triple is None or architecture_of_triple(triple) == host_architecture()


def target_architecture(target: Target) -> str:
    """The architecture of a CPU target."""
    triple = target.attrs.get("mtriple")
    if triple is not None:
        return architecture_of_triple(triple) or ""
    return architecture_of_cpu(target.attrs.get("mcpu", "")) or host_architecture()


def llvm_settings(target: Target) -> LlvmSettings:
    """Triple, processor and feature string for LLVM.

    Without `-mcpu` that is this machine with its features as they really are; with it, the
    processor's own defaults, and `-mattr` in both cases.
    """
    attrs = target.attrs
    asked = ",".join(attrs.get("mattr", ()))
    abi = str(attrs.get("mabi", ""))
    if is_host_cpu(target):
        features = f"{host_feature_string()},{asked}" if asked else host_feature_string()
        return LlvmSettings(attrs.get("mtriple", host_triple()), host_cpu_name(), features, abi, True)
    arch = target_architecture(target)
    triple = attrs.get("mtriple") or (
        host_triple() if arch == host_architecture() else f"{arch}-unknown-linux-gnu"
    )
    cpu = attrs.get("mcpu", "")
    if cpu == "native":
        cpu = ""
    if not cpu:
        cpu = {"riscv64": "generic-rv64", "riscv32": "generic-rv32"}.get(arch, "generic")
        if arch == "x86_64":
            cpu = "x86-64"
    if arch == "riscv64" and "mattr" not in attrs and cpu.startswith("generic"):
        asked, abi = "+m,+a,+f,+d,+c", abi or "lp64d"
    # Code for a named processor runs here if this one has all that it needs.
    runs = arch == host_architecture() and cpu_features(target) <= host_features()
    return LlvmSettings(triple, cpu, asked, abi, runs)


def cpu_features(target: Target) -> frozenset[str]:
    """The features that code for a CPU target may use."""
    if is_host_cpu(target):
        found = set(host_features())
    else:
        found = set(cpu_named(target.attrs.get("mcpu", ""), target_architecture(target)).features)
    for item in target.attrs.get("mattr", ()):
        if item[0] == "+":
            found.update(_implied(item[1:]))
        else:
            found.discard(item[1:])
            found.difference_update([f for f in found if item[1:] in _implied(f)])
    return frozenset(found)


_NEEDS = {
    "avx": ("sse4.2",),
    "avx2": ("avx",),
    "fma": ("avx",),
    "f16c": ("avx",),
    "avx512f": ("avx2", "fma", "f16c"),
    "sve": ("neon", "fullfp16"),
    "sve2": ("sve",),
    "dotprod": ("neon",),
    "i8mm": ("neon",),
    "amx-int8": ("amx-tile",),
    "amx-bf16": ("amx-tile",),
}


def _implied(feature: str) -> set[str]:
    """The feature with all that it needs."""
    out, todo = set[str](), [feature]
    while todo:
        one = todo.pop()
        if one not in out:
            out.add(one)
            todo += _NEEDS.get(one, ())
            if one.startswith("avx512") and one != "avx512f":
                todo.append("avx512f")
    return out


def _vector_shape(arch: str, features: frozenset[str]) -> tuple[int, int]:
    """Bits of a vector register, and how many of them there are."""
    if arch in ("x86_64", "x86"):
        few = 8 if arch == "x86" else 16
        if "avx512f" in features:
            return 512, 32 if arch == "x86_64" else 8
        return (256, few) if "avx" in features else (128, few)
    if arch == "aarch64":
        return 128, 32
    if arch == "arm":
        return (128, 16) if "neon" in features else (128, 8) if "mve" in features else (32, 32)
    if arch.startswith("riscv"):
        return (128, 32) if "v" in features else (64, 32)
    if arch.startswith("wasm"):
        return (128, 16) if "simd128" in features else (64, 16)
    return (128, 32) if arch == "powerpc" else (64, 16)


def _cpu_machine(target: Target) -> CpuMachine:
    arch, here = target_architecture(target), is_host_cpu(target)
    name = host_cpu_name() if here else target.attrs.get("mcpu", "generic")
    known = cpu_named(name, arch)
    features = cpu_features(target)
    bits, registers = _vector_shape(arch, features)
    preferred = min(bits, known.preferred_bits or bits)
    bits = target.attrs.get("vector-width", bits)
    preferred = min(preferred, bits) if "vector-width" not in target.attrs else bits
    caches = host_cache_sizes() if here else None
    if caches is None:
        caches = CacheSizes(known.l1d, known.l2, known.l3, known.line)
    has_fma = arch not in ("x86_64", "x86") or "fma" in features
    cores = target.attrs.get("num-cores") or (host_cores() if here else known.cores)
    return CpuMachine(
        arch, name, features, bits, preferred, registers, has_fma, known.fma_ports, caches, cores
    )


def _gpu_machine(target: Target) -> GpuMachine:
    attrs = target.attrs
    arch = str(attrs.get("arch", attrs.get("mcpu", "")))
    known = gpu_of(str(attrs.get("model", "")), arch) if target.kind.name == "cuda" else GPUS["t4"]
    if target.kind.name == "cuda" and not arch:
        known = figures_of_arch("sm_75")
    shared = attrs.get("max_shared_memory_per_block", 49152)
    dynamic = attrs.get("max_dynamic_shared_memory_per_block")
    if dynamic is None:
        dynamic = known.shared if target.kind.name == "cuda" else shared
    threads = attrs.get("max_threads_per_block", attrs.get("max_num_threads", 256))
    return GpuMachine(
        arch,
        attrs.get("thread_warp_size", 32),
        threads,
        shared,
        max(shared, dynamic),
        attrs.get("registers_per_block", known.registers),
        attrs.get("multi_processor_count", known.sms),
        attrs.get("l2_cache_size_bytes", known.l2),
        known.bandwidth,
        known.clock,
        known.cores_per_sm,
    )


def machine_of(target: Target) -> CpuMachine | GpuMachine:
    """The figures of a target."""
    return _cpu_machine(target) if target.kind.name in ("llvm", "c", "ext_dev") else _gpu_machine(target)
