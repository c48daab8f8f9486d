"""Known processors by name: architecture, features, caches, and the throughput of their cores.

From vendors' optimisation guides and published measurements. The figures serve cost models: an error of a
few percent does no harm, a wrong vector width does. `tilewright.target.measure()` measures this machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, NamedTuple

from .cpu_fit import NEOVERSE, ZEN4, ZEN5, CpuFit

_K, _M = 1024, 1024 * 1024


class Pipes(NamedTuple):
    """Operations of one kind that begin in a cycle, and the width of each in bits."""

    ports: int
    bits: int

    def per_cycle(self, bits: int) -> float:
        """Operations on vectors of `bits`: a wider vector takes several turns, a narrower one gains nothing."""
        return self.ports * min(1.0, self.bits / max(bits, 1))


@dataclass(frozen=True, slots=True)
class Core:
    """What one core does in a cycle. Bandwidths are those that plain loops reach, not the widths of buses.

    `latency` counts cycles from one load to the next that needs it, from the first, second and third cache;
    `cached` bytes read in a cycle from the second and third; `memory` GB/s read by one core and by all.
    """

    clock: float  # GHz, with all cores at work
    fma: Pipes
    fma_latency: int
    load: Pipes
    store: Pipes
    latency: tuple[int, int, int]
    memory_latency: float  # ns
    cached: tuple[float, float]
    memory: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Cpu:
    """A processor: its architecture, the features LLVM gives it by name, its caches and its cores."""

    arch: str
    core: Core
    features: frozenset[str] = frozenset()
    l1d: int = 32 * _K
    l2: int = 512 * _K
    l3: int = 0  # the part that one core complex shares
    line: int = 64
    cores: int = 4
    preferred_bits: int = 0  # 0: as wide as it gets
    fit: CpuFit = ZEN4


_V1 = frozenset(("64bit", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2"))
_V2 = _V1 | {"sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16", "sahf"}
_AVX = _V2 | {"avx", "xsave", "pclmul"}
_V3 = _AVX | {"avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_ICELAKE = _V4 | {
    "avx512vnni",
    "avx512vbmi",
    "avx512vbmi2",
    "avx512ifma",
    "avx512bitalg",
    "avx512vpopcntdq",
    "gfni",
}
_SPR = _ICELAKE | {"avx512bf16", "avx512fp16", "avxvnni", "amx-tile", "amx-int8", "amx-bf16"}
_ZEN4_FEATURES = _ICELAKE | {"avx512bf16", "sse4a", "clzero"}
_NEON = frozenset(("neon", "fp-armv8"))
_ARM82 = _NEON | {"fullfp16", "lse", "crc"}
_DOT = _ARM82 | {"dotprod", "rdm"}


def _core(
    clock: float, fma: str, load: str, store: str, latency: str, cached: str, memory: tuple[float, float]
) -> Core:
    """A core from short texts: pipes as `2x256`, the latency after a slash, caches in order.

    _core(4.0, "2x256/4", "2x256", "1x256", "5 14 42 75", "40 15", (20, 34))
    """
    multiply, cycles = fma.split("/")
    first, second, third, far = (int(part) for part in latency.split())
    near, shared = (float(part) for part in cached.split())
    pipes = [Pipes(*map(int, text.split("x"))) for text in (multiply, load, store)]
    return Core(
        clock, pipes[0], int(cycles), pipes[1], pipes[2], (first, second, third), far, (near, shared), memory
    )


#                 GHz  multiply-add  loads    stores   L1 L2 L3 (cycles), ns   L2 L3 (B/cycle)  GB/s: one, all
_PLAIN = _core(3.0, "2x128/5", "2x128", "1x128", "4 12 40 80", "16 12", (12, 25))
_NEHALEM = _core(2.9, "1x128/7", "1x128", "1x128", "4 10 38 70", "16 12", (10, 20))
_SANDY = _core(3.4, "1x256/8", "2x128", "1x128", "4 12 30 70", "20 14", (14, 21))
_HASWELL = _core(3.5, "2x256/5", "2x256", "1x256", "5 12 40 75", "28 14", (16, 26))
_SKYLAKE = _core(4.0, "2x256/4", "2x256", "1x256", "5 14 42 75", "40 15", (20, 34))
_SKYLAKE_SERVER = _core(2.7, "2x512/4", "2x512", "1x512", "5 14 70 90", "48 9", (12, 100))
_CANNON = _core(2.8, "2x256/4", "2x512", "1x512", "5 14 42 80", "40 15", (16, 30))
_ICE_CLIENT = _core(3.7, "2x256/4", "2x512", "1x512", "5 13 42 85", "45 15", (20, 45))
_ICE_SERVER = _core(3.0, "2x512/4", "2x512", "1x512", "5 14 70 90", "48 10", (13, 170))
_GOLDEN_SERVER = _core(3.0, "2x512/4", "2x512", "2x256", "5 15 100 110", "48 10", (14, 240))
_GOLDEN = _core(4.7, "2x256/4", "3x256", "2x256", "5 15 70 85", "45 18", (35, 70))
_KNL = _core(1.4, "2x512/6", "2x512", "1x512", "4 17 140 140", "24 8", (9, 380))
_ZEN1 = _core(3.4, "2x128/5", "2x128", "1x128", "4 14 40 90", "24 16", (18, 34))
_ZEN2 = _core(3.8, "2x256/5", "2x256", "1x256", "4 12 39 85", "28 20", (22, 42))
_ZEN3 = _core(4.2, "2x256/4", "2x256", "1x256", "4 12 46 80", "28 24", (25, 44))
# 512-bit operations run as two halves.
_ZEN4 = _core(3.7, "2x256/4", "2x256", "1x256", "4 14 50 100", "29 24", (28, 56))
_ZEN5 = _core(4.2, "2x512/4", "2x512", "1x512", "4 14 50 95", "56 27", (34, 66))
_A53 = _core(1.4, "1x128/4", "1x64", "1x128", "3 15 40 150", "8 8", (2.5, 4))
_A55 = _core(1.8, "1x128/4", "1x64", "1x128", "3 11 40 140", "12 8", (4, 8))
_A57 = _core(1.8, "1x128/7", "1x128", "1x128", "4 19 40 140", "12 8", (5, 10))
_A76 = _core(2.4, "2x128/4", "2x128", "1x128", "4 11 35 110", "28 14", (14, 24))
_CARMEL = _core(2.2, "2x128/5", "2x128", "1x128", "4 14 40 120", "24 12", (18, 80))
_NEO_N1 = _core(2.6, "2x128/4", "2x128", "1x128", "4 11 80 110", "28 10", (18, 170))
_NEO_V1 = _core(2.6, "4x128/4", "3x128", "2x128", "4 11 80 115", "36 12", (22, 260))
_NEO_N2 = _core(2.9, "2x128/4", "3x128", "2x128", "4 11 75 110", "32 12", (22, 180))
_NEO_V2 = _core(3.2, "4x128/4", "3x128", "2x128", "4 11 80 115", "40 14", (32, 420))
_A64FX = _core(2.0, "2x512/9", "2x512", "1x512", "5 38 140 140", "48 16", (50, 830))
_M1 = _core(3.2, "4x128/3", "3x128", "2x128", "3 18 60 100", "48 24", (55, 62))
_M2 = _core(3.5, "4x128/3", "3x128", "2x128", "3 18 60 100", "48 24", (70, 92))
_M4 = _core(4.3, "4x128/3", "3x128", "2x128", "3 18 60 95", "48 24", (85, 115))
_A7 = _core(1.2, "1x64/8", "1x64", "1x64", "3 10 40 130", "6 6", (1.5, 2.5))
_A15 = _core(1.7, "1x128/8", "1x64", "1x64", "4 20 40 130", "10 8", (4, 7))
_TINY = _core(0.2, "1x32/3", "1x32", "1x32", "2 5 5 50", "4 4", (0.4, 0.4))
_TINY_VECTOR = _core(0.4, "1x64/4", "1x64", "1x64", "2 5 5 50", "8 8", (1.6, 1.6))
_RISCV = _core(1.4, "1x64/5", "1x64", "1x64", "3 20 40 150", "8 8", (2, 4))
_X280 = _core(1.8, "1x256/4", "1x256", "1x256", "3 20 40 130", "16 12", (6, 12))
_X60 = _core(1.6, "1x256/4", "1x256", "1x128", "3 20 40 140", "10 8", (3, 6))


def _x86(core: Core, features: frozenset[str], fit: CpuFit = ZEN4, **sizes: Any) -> Cpu:
    return Cpu("x86_64", core, features, fit=fit, **sizes)


def _arm(core: Core, features: frozenset[str], **sizes: Any) -> Cpu:
    return Cpu("aarch64", core, features, **sizes)


def _neoverse(core: Core, features: frozenset[str], **sizes: Any) -> Cpu:
    return Cpu("aarch64", core, features, l1d=64 * _K, **sizes, fit=NEOVERSE)


def _other(arch: str, core: Core, features: str, **sizes: Any) -> Cpu:
    return Cpu(arch, core, frozenset(features.split()), **sizes)


# Two full 512-bit pipes pay for the lower clock in all that is not short and scalar.
_SKX: Final = _x86(_SKYLAKE_SERVER, _V4, l2=_M, l3=24 * _M, cores=16)
_AMD = _V3 | {"sse4a", "clzero"}
_SVE2 = _DOT | {"sve", "sve2", "bf16", "i8mm"}
_APPLE2 = _DOT | {"bf16", "i8mm"}
_TABLE: Final[dict[str, Cpu]] = {
    "generic": Cpu("", _PLAIN),
    "x86-64": _x86(_PLAIN, _V1),
    "x86-64-v2": _x86(_NEHALEM, _V2),
    "x86-64-v3": _x86(_SKYLAKE, _V3, l3=8 * _M),
    "x86-64-v4": _x86(_SKYLAKE_SERVER, _V4, l2=_M, l3=16 * _M, preferred_bits=256),
    "nehalem": _x86(_NEHALEM, _V2, l2=256 * _K, l3=8 * _M),
    "sandybridge": _x86(_SANDY, _AVX, l2=256 * _K, l3=8 * _M),
    "ivybridge": _x86(_SANDY, _AVX | {"f16c"}, l2=256 * _K, l3=8 * _M),
    "haswell": _x86(_HASWELL, _V3, l2=256 * _K, l3=8 * _M),
    "broadwell": _x86(_HASWELL, _V3, l2=256 * _K, l3=8 * _M),
    "skylake": _x86(_SKYLAKE, _V3, l2=256 * _K, l3=8 * _M),
    "alderlake": _x86(_GOLDEN, _V3 | {"avxvnni", "gfni"}, l1d=48 * _K, l2=1280 * _K, l3=30 * _M, cores=8),
    "skylake-avx512": _SKX,
    "cascadelake": replace(_SKX, features=_V4 | {"avx512vnni"}),
    "cooperlake": replace(_SKX, features=_V4 | {"avx512vnni", "avx512bf16"}),
    "cannonlake": _x86(_CANNON, _V4 | {"avx512vbmi", "avx512ifma"}, l2=256 * _K, preferred_bits=256),
    "icelake-client": _x86(_ICE_CLIENT, _ICELAKE, l1d=48 * _K, l3=8 * _M, preferred_bits=256),
    "icelake-server": _x86(_ICE_SERVER, _ICELAKE, l1d=48 * _K, l2=1280 * _K, l3=48 * _M, cores=32),
    "sapphirerapids": _x86(_GOLDEN_SERVER, _SPR, l1d=48 * _K, l2=2 * _M, l3=96 * _M, cores=48),
    "knl": _x86(_KNL, _V3 | {"avx512f", "avx512cd"}, l2=512 * _K, cores=64),
    "znver1": _x86(_ZEN1, _AMD, l3=8 * _M, cores=8),
    "znver2": _x86(_ZEN2, _AMD, l3=16 * _M, cores=8),
    "znver3": _x86(_ZEN3, _AMD | {"vaes"}, l3=32 * _M, cores=8),
    "znver4": _x86(_ZEN4, _ZEN4_FEATURES, l2=_M, l3=32 * _M, cores=8),
    "znver5": _x86(_ZEN5, _ZEN4_FEATURES | {"avxvnni"}, ZEN5, l1d=48 * _K, l2=_M, l3=32 * _M, cores=8),
    "cortex-a53": _arm(_A53, _NEON | {"crc"}, l2=512 * _K),
    "cortex-a55": _arm(_A55, _DOT, l2=128 * _K, l3=2 * _M),
    "cortex-a57": _arm(_A57, _NEON | {"crc"}, l2=2 * _M),
    "cortex-a72": _arm(_A57, _NEON | {"crc"}, l2=_M),
    "cortex-a73": _arm(_A57, _NEON | {"crc"}, l2=2 * _M),
    "cortex-a76": _arm(_A76, _DOT, l1d=64 * _K, l2=512 * _K, l3=2 * _M),
    "cortex-a78": _arm(_A76, _DOT, l1d=64 * _K, l2=256 * _K, l3=2 * _M, cores=8),
    "carmel": _arm(_CARMEL, _ARM82, l1d=64 * _K, l2=2 * _M, l3=4 * _M, cores=8),
    "neoverse-n1": _neoverse(_NEO_N1, _DOT, l2=_M, l3=32 * _M, cores=64),
    "neoverse-v1": _neoverse(_NEO_V1, _DOT | {"sve", "bf16", "i8mm"}, l2=_M, l3=32 * _M, cores=64),
    "neoverse-n2": _neoverse(_NEO_N2, _SVE2, l2=_M, l3=32 * _M, cores=64),
    "neoverse-v2": _neoverse(_NEO_V2, _SVE2, l2=2 * _M, l3=114 * _M, cores=72),
    "a64fx": _arm(_A64FX, _ARM82 | {"sve"}, l1d=64 * _K, l2=8 * _M, line=256, cores=48),
    "apple-m1": _arm(_M1, _DOT, l1d=128 * _K, l2=12 * _M, line=128, cores=8),
    "apple-m2": _arm(_M2, _APPLE2, l1d=128 * _K, l2=16 * _M, line=128, cores=8),
    "apple-m3": _arm(replace(_M2, clock=3.9), _APPLE2, l1d=128 * _K, l2=16 * _M, line=128, cores=8),
    "apple-m4": _arm(_M4, _APPLE2, l1d=128 * _K, l2=16 * _M, line=128, cores=10),
    "cortex-a7": _other("arm", _A7, "neon vfp4", l2=512 * _K),
    "cortex-a9": _other("arm", _A7, "vfp3", l2=512 * _K, cores=2),
    "cortex-a15": _other("arm", _A15, "neon vfp4", l2=2 * _M),
    "cortex-m4": _other("arm", _TINY, "dsp vfp4", l1d=0, l2=0, cores=1),
    "cortex-m7": _other("arm", _TINY, "dsp vfp4", l1d=16 * _K, l2=0, line=32, cores=1),
    "cortex-m55": _other("arm", _TINY_VECTOR, "dsp mve mve.fp", l1d=32 * _K, l2=0, line=32, cores=1),
    "generic-rv64": _other("riscv64", _RISCV, "m a f d c"),
    "sifive-u74": _other("riscv64", _RISCV, "m a f d c", l2=2 * _M),
    "sifive-u54": _other("riscv64", _RISCV, "m a f d c", l2=2 * _M),
    "sifive-x280": _other("riscv64", _X280, "m a f d c v", l2=512 * _K, l3=2 * _M),
    "spacemit-x60": _other("riscv64", _X60, "m a f d c v", l2=512 * _K, cores=8),
}
_SAME: Final = {
    "core2": "nehalem",
    "penryn": "nehalem",
    "corei7": "nehalem",
    "westmere": "nehalem",
    "core-avx-i": "ivybridge",
    "corei7-avx": "sandybridge",
    "core-avx2": "haswell",
    "skx": "skylake-avx512",
    "rocketlake": "icelake-client",
    "tigerlake": "icelake-client",
    "raptorlake": "alderlake",
    "meteorlake": "alderlake",
    "arrowlake": "alderlake",
    "lunarlake": "alderlake",
    "emeraldrapids": "sapphirerapids",
    "graniterapids": "sapphirerapids",
    "cortex-a75": "cortex-a76",
    "cortex-a77": "cortex-a76",
    "cortex-a510": "cortex-a55",
    "cortex-a710": "neoverse-n2",
    "cortex-a715": "neoverse-n2",
    "cortex-x1": "cortex-a78",
    "cortex-x2": "neoverse-n2",
    "cortex-a35": "cortex-a53",
    "neoverse-512tvb": "neoverse-v1",
    "apple-latest": "apple-m4",
    "sifive-7-rv64": "sifive-u74",
    "cortex-a8": "cortex-a7",
    "cortex-a17": "cortex-a15",
    "cortex-m33": "cortex-m4",
    "cortex-m85": "cortex-m55",
}


def cpu_named(name: str, arch: str = "") -> Cpu:
    """What is known of the processor; of an unknown one what its architecture promises."""
    found = _TABLE.get(_SAME.get(name, name))
    if found is not None and found.arch:
        return found
    base = {
        "x86_64": _TABLE["x86-64"],
        "x86": _other("x86", _PLAIN, "sse2"),
        "aarch64": _TABLE["cortex-a53"],
        "arm": _other("arm", _A7, "vfp3"),
        "riscv64": _TABLE["generic-rv64"],
    }
    return base.get(arch, Cpu(arch, _RISCV))


def nearest_cpu(name: str, features: frozenset[str]) -> str:
    """The name of an x86 processor with these features.

    It is `name`, unless that processor lacks some of them or is not known: a virtual machine may report a model number
    that is not its processor's, and LLVM then takes a server for the desktop processor of that number.
    """
    known = {n: c for n, c in _TABLE.items() if c.arch == "x86_64" and not n.startswith("x86-64")}
    named = known.get(_SAME.get(name, name))
    vectors = frozenset(f for c in known.values() for f in c.features if f.startswith(("avx", "amx", "fma")))
    there = features & vectors
    if named is not None and there <= named.features:
        return name
    amd = "sse4a" in features
    able = [n for n, c in known.items() if there <= c.features and ("sse4a" in c.features) == amd]
    return min(able, key=lambda n: len(known[n].features), default=name)


def architecture_of_cpu(name: str) -> str | None:
    """The architecture that a processor's name belongs to, or None for a name that is not known."""
    found = _TABLE.get(_SAME.get(name, name))
    return found.arch or None if found is not None else None


@cache
def architecture_of_triple(triple: str) -> str | None:
    """`x86_64`, `aarch64`, … from the beginning of a triple, or None if it is none that is known."""
    first = triple.split("-", 1)[0].lower()
    exact = {
        "x86_64": "x86_64",
        "x86_64h": "x86_64",
        "amd64": "x86_64",
        "aarch64": "aarch64",
        "aarch64_be": "aarch64",
        "arm64": "aarch64",
        "arm64e": "aarch64",
        "riscv64": "riscv64",
        "riscv32": "riscv32",
        "wasm32": "wasm32",
        "wasm64": "wasm64",
        "nvptx": "nvptx",
        "nvptx64": "nvptx",
        "amdgcn": "amdgcn",
        "s390x": "s390x",
        "hexagon": "hexagon",
        "xtensa": "xtensa",
        "avr": "avr",
        "msp430": "msp430",
        "sparc": "sparc",
        "sparcv9": "sparc",
        "bpfel": "bpf",
        "spirv64": "spirv",
    }
    if first in exact:
        return exact[first]
    if first in ("i386", "i486", "i586", "i686", "x86"):
        return "x86"
    for prefix, arch in (
        ("armv8.", "arm"),
        ("arm", "arm"),
        ("thumb", "arm"),
        ("powerpc", "powerpc"),
        ("ppc", "powerpc"),
        ("mips", "mips"),
        ("loongarch", "loongarch"),
    ):
        if first.startswith(prefix):
            return arch
    return None
