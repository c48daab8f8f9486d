"""What is known of processors by name: architecture, features, caches, and how wide their units are.

The figures serve cost models; a few percent off does no harm, a wrong vector width does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Final

__all__ = ["Cpu", "architecture_of_cpu", "architecture_of_triple", "cpu_named"]

_K, _M = 1024, 1024 * 1024


@dataclass(frozen=True, slots=True)
class Cpu:
    """A processor: its architecture, the features LLVM gives it by name, and the sizes that matter."""

    arch: str
    features: frozenset[str] = frozenset()
    l1d: int = 32 * _K
    l2: int = 512 * _K
    l3: int = 0  # the part that one core complex shares
    line: int = 64
    cores: int = 4
    fma_ports: int = 2  # fused multiply-adds of the widest vector that begin in a cycle
    preferred_bits: int = 0  # 0: as wide as it gets


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
_ZEN4 = _ICELAKE | {"avx512bf16"}
_NEON = frozenset(("neon", "fp-armv8"))
_ARM82 = _NEON | {"fullfp16", "lse", "crc"}
_DOT = _ARM82 | {"dotprod", "rdm"}


def _x86(features: frozenset[str], **figures: int) -> Cpu:
    return Cpu("x86_64", features, **figures)


def _arm(features: frozenset[str], **figures: int) -> Cpu:
    return Cpu("aarch64", features, **figures)


_SKX: Final = _x86(_V4, l2=_M, l3=24 * _M, cores=16, preferred_bits=256)
_TABLE: Final[dict[str, Cpu]] = {
    "generic": Cpu(""),
    "x86-64": _x86(_V1),
    "x86-64-v2": _x86(_V2),
    "x86-64-v3": _x86(_V3),
    "x86-64-v4": _x86(_V4, preferred_bits=256),
    "nehalem": _x86(_V2, l2=256 * _K, l3=8 * _M),
    "sandybridge": _x86(_AVX, l2=256 * _K, l3=8 * _M, fma_ports=1),
    "ivybridge": _x86(_AVX | {"f16c"}, l2=256 * _K, l3=8 * _M, fma_ports=1),
    "haswell": _x86(_V3, l2=256 * _K, l3=8 * _M),
    "broadwell": _x86(_V3, l2=256 * _K, l3=8 * _M),
    "skylake": _x86(_V3, l2=256 * _K, l3=8 * _M),
    "alderlake": _x86(_V3 | {"avxvnni", "gfni"}, l1d=48 * _K, l2=1280 * _K, l3=30 * _M, cores=8),
    "skylake-avx512": _SKX,
    "cascadelake": replace(_SKX, features=_V4 | {"avx512vnni"}),
    "cooperlake": replace(_SKX, features=_V4 | {"avx512vnni", "avx512bf16"}),
    "cannonlake": _x86(_V4 | {"avx512vbmi", "avx512ifma"}, l2=256 * _K, fma_ports=1, preferred_bits=256),
    "icelake-client": _x86(_ICELAKE, l1d=48 * _K, l3=8 * _M, fma_ports=1, preferred_bits=256),
    "icelake-server": _x86(_ICELAKE, l1d=48 * _K, l2=1280 * _K, l3=48 * _M, cores=32, preferred_bits=256),
    "sapphirerapids": _x86(_SPR, l1d=48 * _K, l2=2 * _M, l3=96 * _M, cores=48, preferred_bits=256),
    "knl": _x86(_V3 | {"avx512f", "avx512cd"}, l2=512 * _K, cores=64),
    "znver1": _x86(_V3 | {"sse4a", "clzero"}, l3=8 * _M, cores=8, fma_ports=1),
    "znver2": _x86(_V3 | {"sse4a", "clzero"}, l3=16 * _M, cores=8),
    "znver3": _x86(_V3 | {"sse4a", "clzero", "vaes"}, l3=32 * _M, cores=8),
    # 512-bit operations run as two halves: one begins in a cycle.
    "znver4": _x86(_ZEN4 | {"sse4a", "clzero"}, l2=_M, l3=32 * _M, cores=8, fma_ports=1),
    "znver5": _x86(_ZEN4 | {"sse4a", "clzero", "avxvnni"}, l1d=48 * _K, l2=_M, l3=32 * _M, cores=8),
    "cortex-a53": _arm(_NEON | {"crc"}, l2=512 * _K, fma_ports=1),
    "cortex-a55": _arm(_DOT, l2=128 * _K, l3=2 * _M, fma_ports=1),
    "cortex-a57": _arm(_NEON | {"crc"}, l2=2 * _M, fma_ports=1),
    "cortex-a72": _arm(_NEON | {"crc"}, l2=_M, fma_ports=1),
    "cortex-a73": _arm(_NEON | {"crc"}, l2=2 * _M, fma_ports=1),
    "cortex-a76": _arm(_DOT, l1d=64 * _K, l2=512 * _K, l3=2 * _M),
    "cortex-a78": _arm(_DOT, l1d=64 * _K, l2=256 * _K, l3=2 * _M, cores=8),
    "carmel": _arm(_ARM82, l1d=64 * _K, l2=2 * _M, l3=4 * _M, cores=8),
    "neoverse-n1": _arm(_DOT, l1d=64 * _K, l2=_M, l3=32 * _M, cores=64),
    "neoverse-v1": _arm(_DOT | {"sve", "bf16", "i8mm"}, l1d=64 * _K, l2=_M, l3=32 * _M, cores=64),
    "neoverse-n2": _arm(_DOT | {"sve", "sve2", "bf16", "i8mm"}, l1d=64 * _K, l2=_M, l3=32 * _M, cores=64),
    "neoverse-v2": _arm(
        _DOT | {"sve", "sve2", "bf16", "i8mm"}, l1d=64 * _K, l2=2 * _M, l3=114 * _M, cores=72, fma_ports=4
    ),
    "a64fx": _arm(_ARM82 | {"sve"}, l1d=64 * _K, l2=8 * _M, line=256, cores=48),
    "apple-m1": _arm(_DOT, l1d=128 * _K, l2=12 * _M, line=128, cores=8, fma_ports=4),
    "apple-m2": _arm(_DOT | {"bf16", "i8mm"}, l1d=128 * _K, l2=16 * _M, line=128, cores=8, fma_ports=4),
    "apple-m4": _arm(_DOT | {"bf16", "i8mm"}, l1d=128 * _K, l2=16 * _M, line=128, cores=10, fma_ports=4),
    "cortex-a7": Cpu("arm", frozenset(("neon", "vfp4")), l2=512 * _K, fma_ports=1),
    "cortex-a9": Cpu("arm", frozenset(("vfp3",)), l2=512 * _K, fma_ports=1, cores=2),
    "cortex-a15": Cpu("arm", frozenset(("neon", "vfp4")), l2=2 * _M, fma_ports=1),
    "cortex-m4": Cpu("arm", frozenset(("dsp", "vfp4")), l1d=0, l2=0, cores=1, fma_ports=1),
    "cortex-m7": Cpu("arm", frozenset(("dsp", "vfp4")), l1d=16 * _K, l2=0, line=32, cores=1, fma_ports=1),
    "cortex-m55": Cpu(
        "arm", frozenset(("dsp", "mve", "mve.fp")), l1d=32 * _K, l2=0, line=32, cores=1, fma_ports=1
    ),
    "generic-rv64": Cpu("riscv64", frozenset(("m", "a", "f", "d", "c")), fma_ports=1),
    "sifive-u74": Cpu("riscv64", frozenset(("m", "a", "f", "d", "c")), l2=2 * _M, fma_ports=1),
    "sifive-u54": Cpu("riscv64", frozenset(("m", "a", "f", "d", "c")), l2=2 * _M, fma_ports=1),
    "sifive-x280": Cpu(
        "riscv64", frozenset(("m", "a", "f", "d", "c", "v")), l2=512 * _K, l3=2 * _M, fma_ports=1
    ),
    "spacemit-x60": Cpu(
        "riscv64", frozenset(("m", "a", "f", "d", "c", "v")), l2=512 * _K, cores=8, fma_ports=1
    ),
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
    "apple-m3": "apple-m2",
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
        "x86": Cpu("x86", frozenset(("sse2",))),
        "aarch64": _TABLE["cortex-a53"],
        "arm": Cpu("arm", frozenset(("vfp3",)), fma_ports=1),
        "riscv64": _TABLE["generic-rv64"],
    }
    return base.get(arch, Cpu(arch, fma_ports=1))


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
