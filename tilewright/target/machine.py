"""The figures of a target that schedules and cost models use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..ir.errors import TargetError, near_matches
from .calibration import calibrated, calibrations, unusable
from .capabilities import arch_number, cuda_capabilities
from .cpu_fit import FIT, FITTED, ZEN4, CpuFit
from .cpus import architecture_of_cpu, architecture_of_triple, cpu_named
from .gpu_machine import GpuMachine, checked_figure, checked_gpu_figures, with_gpu_figures
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
    """The description of a processor for LLVM. `is_host`: code for it runs in this process."""

    triple: str
    cpu: str
    features: str
    abi: str
    is_host: bool


@dataclass(frozen=True, slots=True)
class CpuMachine:
    """A processor in numbers.

    `vector_bits` is the widest vector it has and `preferred_vector_bits` the one it runs best: some
    processors slow down for their widest. Operations in a cycle (`fma_ports`, `loads_per_cycle`,
    `stores_per_cycle`) are those of preferred vectors, by one core; `l2_bandwidth` and `l3_bandwidth` are
    bytes that one core reads in a cycle, `memory_bandwidth` GB/s that one core reads and
    `memory_bandwidth_all` what all cores do together. Latencies of caches and of a multiply-add count
    cycles, that of the memory nanoseconds. `launch_us` is what an empty parallel loop costs.
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
    clock: float = 3.0  # GHz
    fma_latency: int = 4
    loads_per_cycle: float = 2.0
    stores_per_cycle: float = 1.0
    l1_latency: float = 4.0
    l2_latency: float = 14.0
    l3_latency: float = 50.0
    memory_latency: float = 100.0
    l2_bandwidth: float = 32.0
    l3_bandwidth: float = 16.0
    memory_bandwidth: float = 20.0
    memory_bandwidth_all: float = 40.0
    launch_us: float = 3.0
    source: str = "table"  # where the figures come from: "table", "given", "measured" or "calibrated"
    fit: CpuFit = ZEN4  # fitted to measured kernels

    def lanes(self, bits: int) -> int:
        """How many values of `bits` bits a vector holds."""
        return max(1, self.preferred_vector_bits // bits)

    @property
    def l1_bandwidth(self) -> float:
        """Bytes that one core reads from its L1 cache in a cycle."""
        return self.loads_per_cycle * self.preferred_vector_bits / 8

    def peak_gflops(self, cores: int = 1) -> float:
        """float32 operations in a nanosecond, a multiply-add counted as two; 0 cores means all."""
        return 2 * self.fma_ports * self.lanes(32) * self.clock * (cores or self.num_cores)

    def bandwidth(self, cores: int = 1) -> float:
        """GB/s that some cores read from memory together; 0 cores means all."""
        return min(self.memory_bandwidth * (cores or self.num_cores), self.memory_bandwidth_all)

    def figures(self) -> dict[str, int | float]:
        """The figures by name, as `Target.with_machine` takes them and cache files hold them; fitted ones where they
        differ from those of the table."""
        plain = {name: getattr(self, name) for name in OWN_FIGURES if name not in CacheSizes._fields}
        return {**plain, **self.cache_sizes._asdict(), **self._fitted()}

    def _fitted(self) -> dict[str, int | float]:
        """The fitted figures that differ from those of the table."""
        table = cpu_named(self.cpu, self.arch).fit
        own = {name: getattr(self.fit, name) for name in FITTED}
        return {FIT + name: value for name, value in own.items() if value != getattr(table, name)}

    def table(self) -> str:
        """All figures as text, one in a line."""
        return cpu_table(self)

    def __str__(self) -> str:
        return self.table()


# The figures that may be given, with their types and sensible bounds.
Bounds = tuple[type[int] | type[float], float, float]
OWN_FIGURES: Final[dict[str, Bounds]] = {
    "preferred_vector_bits": (int, 8, 2048),
    "fma_ports": (int, 1, 16),
    "num_cores": (int, 1, 4096),
    "clock": (float, 0.001, 20),
    "fma_latency": (int, 1, 100),
    "loads_per_cycle": (float, 0.01, 16),
    "stores_per_cycle": (float, 0.01, 16),
    "l1_latency": (float, 0.5, 1000),
    "l2_latency": (float, 0.5, 1000),
    "l3_latency": (float, 0.5, 10000),
    "memory_latency": (float, 1, 100000),
    "l2_bandwidth": (float, 0.1, 4096),
    "l3_bandwidth": (float, 0.1, 4096),
    "memory_bandwidth": (float, 0.01, 100000),
    "memory_bandwidth_all": (float, 0.01, 100000),
    "launch_us": (float, 0, 100000),
    "l1d": (int, 0, 1 << 40),
    "l2": (int, 0, 1 << 40),
    "l3": (int, 0, 1 << 40),
    "line": (int, 1, 1 << 16),
}
_APART: Final = 1000  # a fitted figure is within this factor of the one in the table
FIGURES: Final[dict[str, Bounds]] = OWN_FIGURES | {
    FIT + name: (type(one.value), max(one.value / _APART, isinstance(one.value, int)), one.value * _APART)
    for name, one in FITTED.items()
}


def checked_figures(given: Mapping[str, Any], what: str) -> dict[str, int | float]:
    """Figures by name, each in its type and in sensible bounds."""
    out: dict[str, int | float] = {}
    for name, value in given.items():
        if name not in FIGURES:
            raise TargetError(f"{what}: {name!r} is not a figure of a processor{near_matches(name, FIGURES)}")
        out[name] = checked_figure(name, value, *FIGURES[name], what)
    return out


def figures_of_text(text: str, what: str) -> dict[str, int | float]:
    """The figures that `-machine=clock:3.7,fma_ports:2` gives."""
    return checked_figures(_given(text, what), f"{what}: -machine")


def _given(text: str, what: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for item in text.split(","):
        name, colon, value = item.partition(":")
        if not colon:
            raise TargetError(f"{what}: -machine takes name:number with commas between, not {item!r}")
        given[name.strip()] = value
    return given


def gpu_figures_of_text(machine: GpuMachine, text: str, what: str) -> dict[str, int | float]:
    """The figures that `-machine=clock:1.9,mma.latency:1200` gives."""
    return checked_gpu_figures(machine, _given(text, what), f"{what}: -machine")


def text_of_figures(figures: Mapping[str, int | float]) -> str:
    """The figures as `-machine` takes them: the same figures give the same text."""
    return ",".join(f"{name}:{FIGURES[name][0](figures[name])}" for name in FIGURES if name in figures)


def with_figures(machine: CpuMachine, figures: Mapping[str, int | float], source: str) -> CpuMachine:
    """The machine with some figures replaced."""
    sizes = {k: int(v) for k, v in figures.items() if k in CacheSizes._fields}
    fitted: dict[str, Any] = {k.removeprefix(FIT): v for k, v in figures.items() if k.startswith(FIT)}
    plain: dict[str, Any] = {k: v for k, v in figures.items() if k in OWN_FIGURES and k not in sizes}
    caches, fit = machine.cache_sizes._replace(**sizes), replace(machine.fit, **fitted)
    return replace(machine, **plain, cache_sizes=caches, fit=fit, source=source)


def _size(amount: int) -> str:
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if amount >= scale:
            return f"{amount / scale:g} {unit}"
    return f"{amount} B" if amount else "none"


def cpu_table(m: CpuMachine) -> str:
    """The figures of a processor as text."""
    caches, per = m.cache_sizes, f"of {m.preferred_vector_bits} bits in a cycle"
    many = f"{m.num_cores} cores" if m.num_cores > 1 else "1 core"
    rows = [
        ("processor", f"{m.cpu} ({m.arch}), {many}, {m.clock:.2f} GHz [{m.source}]"),
        ("vectors", f"{m.vector_registers} x {m.vector_bits} bits, {m.preferred_vector_bits} preferred"),
        ("multiply-add", f"{m.fma_ports} {per}, latency {m.fma_latency}" + ("" if m.fma else " (not fused)")),
        ("loads, stores", f"{m.loads_per_cycle:.3g}, {m.stores_per_cycle:.3g} {per}"),
        ("peak", f"{m.peak_gflops():.1f} GFLOP/s float32 with one core, {m.peak_gflops(0):.1f} with all"),
    ]
    for name, size, latency, speed in (
        ("L1", caches.l1d, m.l1_latency, m.l1_bandwidth),
        ("L2", caches.l2, m.l2_latency, m.l2_bandwidth),
        ("L3", caches.l3, m.l3_latency, m.l3_bandwidth),
    ):
        told = (
            f"{_size(size)}, {latency:.1f} cycles, {speed:.1f} bytes in a cycle ({speed * m.clock:.0f} GB/s)"
        )
        rows.append((name, told if size else "none"))
    rows += [
        ("line", f"{caches.line} bytes"),
        (
            "memory",
            f"{m.memory_latency:.0f} ns, {m.memory_bandwidth:.1f} GB/s with one core, "
            f"{m.memory_bandwidth_all:.1f} with all",
        ),
        ("launch", f"{m.launch_us:.2f} microseconds for a parallel loop"),
    ]
    fitted = ", ".join(f"{name.removeprefix(FIT)} {value:g}" for name, value in m._fitted().items())
    rows += [("fitted", fitted)] if fitted else []
    return "\n".join(f"{name:<14} {text}" for name, text in rows)


def is_host_cpu(target: Target) -> bool:
    """Whether a CPU target means this very machine: nothing else said, or `-mcpu=native`."""
    if target.attrs.get("mcpu", "native") != "native":
        return False
    triple = target.attrs.get("mtriple")
    return triple is None or (
        architecture_of_triple(triple) == host_architecture() and is_host_system(triple)
    )


_SYSTEMS = {"darwin": "darwin", "macos": "darwin", "ios": "darwin"} | {
    name: name for name in ("linux", "windows", "wasi", "freebsd")
}


def is_host_system(triple: str) -> bool:
    """Whether code for a triple is for the operating system of this process, or names none: its files are of another
    format elsewhere."""

    def system(text: str) -> str:
        return next((known for name, known in _SYSTEMS.items() if name in text), "")

    return system(triple) in ("", system(host_triple()))


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
    runs = arch == host_architecture() and is_host_system(triple) and cpu_features(target) <= host_features()
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
    "v9a": ("sve2",),
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
    core = known.core
    made = CpuMachine(
        arch,
        name,
        features,
        bits,
        preferred,
        registers,
        has_fma,
        max(1, int(core.fma.per_cycle(preferred))),
        caches,
        cores,
        core.clock,
        core.fma_latency,
        core.load.per_cycle(preferred),
        core.store.per_cycle(preferred),
        *core.latency,
        core.memory_latency,
        *core.cached,
        core.memory[0],
        min(core.memory[1], core.memory[0] * cores),
        # Waking the workers takes its time, and each of them a bit more.
        2.0 + 0.1 * cores if cores > 1 else 0.1,
        fit=known.fit,
    )
    given = target.attrs.get("machine")
    if given is None:
        return _calibrated_cpu(target, made) if here else made
    figures = figures_of_text(given, f"target {target}")
    if "num-cores" in target.attrs:
        figures.pop("num_cores", None)  # explicit options take precedence
    return with_figures(made, figures, "given")


def _calibrated_cpu(target: Target, made: CpuMachine) -> CpuMachine:
    """This machine with the figures that `tilewright calibrate` measured on it."""
    cores = host_cores()
    found = calibrated("cpu", name=made.cpu, cores=cores)
    if found is None:
        return made
    drop = {"num_cores"}  # explicit options take precedence, and threads may be bound to some of the cores
    if "vector-width" in target.attrs or found[1].figures.get("preferred_vector_bits", 0) > made.vector_bits:
        drop.add("preferred_vector_bits")
    if made.num_cores != cores:
        drop |= {"memory_bandwidth_all", "launch_us"}
    try:
        figures = checked_figures(found[1].figures, str(found[0]))
    except TargetError as error:
        unusable(str(error))
        return made
    return with_figures(made, {k: v for k, v in figures.items() if k not in drop}, "calibrated")


def _calibrated_gpu(target: Target, made: GpuMachine) -> GpuMachine:
    """A GPU of the architecture with the figures that `tilewright calibrate` measured on it."""
    attrs, model = target.attrs, str(target.attrs.get("model", ""))
    for path, one in calibrations("cuda").items():
        name, arch = str(one.machine["name"]), str(one.machine.get("arch", ""))
        count = one.machine.get("multiprocessors")
        other = model and gpu_of(model, made.arch) is not gpu_of(name, arch)
        if arch_number(arch) != arch_number(made.arch) or other:
            continue
        if attrs.get("multi_processor_count", count) != count:
            continue
        said = {
            "multiprocessors": "multi_processor_count",
            "l2_cache": "l2_cache_size_bytes",
            "bandwidth": "memory_bandwidth",
        }
        try:
            figures = checked_gpu_figures(made, one.figures, str(path))
        except TargetError as error:
            unusable(str(error))
            continue
        kept = {k: v for k, v in figures.items() if said.get(k) not in attrs}
        return with_gpu_figures(made, kept, "calibrated")
    return made


def _gpu_machine(target: Target) -> GpuMachine:
    attrs, cuda = target.attrs, target.kind.name == "cuda"
    arch = str(attrs.get("arch", attrs.get("mcpu", "")))
    known = gpu_of(str(attrs.get("model", "")), arch) if cuda else GPUS["t4"]
    if cuda and not arch:
        known = figures_of_arch("sm_75")
    shared = attrs.get("max_shared_memory_per_block", 49152)
    dynamic = attrs.get("max_dynamic_shared_memory_per_block")
    if dynamic is None:
        dynamic = known.shared if cuda else shared
    made = GpuMachine(
        arch,
        attrs.get("thread_warp_size", 32),
        attrs.get("max_threads_per_block", attrs.get("max_num_threads", 256)),
        shared,
        max(shared, dynamic),
        attrs.get("registers_per_block", known.registers),
        attrs.get("multi_processor_count", known.sms),
        attrs.get("l2_cache_size_bytes", known.l2),
        attrs.get("memory_bandwidth", known.bandwidth),
        known.clock,
        known.cores_per_sm,
        known.mma,
        # The hardware guarantees eight thread blocks for a cluster.
        blocks_per_cluster=8 if cuda and "cluster" in cuda_capabilities(arch) else 1,
        limits=known.limits,
    )
    given = attrs.get("machine")
    if given is None:
        return _calibrated_gpu(target, made) if cuda and arch else made
    return with_gpu_figures(made, gpu_figures_of_text(made, given, f"target {target}"), "given")


def machine_of(target: Target) -> CpuMachine | GpuMachine:
    """The figures of a target."""
    return _gpu_machine(target) if target.kind.family == "gpu" else _cpu_machine(target)
