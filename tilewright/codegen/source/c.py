"""Plain C for a CPU: serial loops, with only the standard library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ...ir.dtype import DataType
from .dialect import Dialect, Parameter


class C(Dialect):
    name = "c"
    types: ClassVar[Mapping[str, str]] = {
        **Dialect.types,
        **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
        "float16": "uint16_t",
        "bfloat16": "uint16_t",
        "float8_e4m3fn": "uint8_t",
        "float8_e5m2": "uint8_t",
    }
    words = Dialect.words | frozenset(
        "exp log sin cos tan pow sqrt floor ceil malloc free y0 y1 yn j0 j1 jn".split()
    )
    math: ClassVar[Mapping[str, str]] = {"round": "rint", "nearbyint": "rint"}
    unroll = ""
    is_host = True
    helpers: ClassVar[Mapping[str, str]] = {
        "tw_bits": (
            "static inline uint32_t tw_f2u(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }\n"
            "static inline float tw_u2f(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }"
        ),
        "tw_bits64": (
            "static inline uint64_t tw_d2u(double x) { uint64_t u; memcpy(&u, &x, 8); return u; }\n"
            "static inline double tw_u2d(uint64_t u) { double x; memcpy(&x, &u, 8); return x; }"
        ),
        # subnormal numbers are multiples of 2^-24
        "tw_h2f": (
            "static inline float tw_h2f(uint16_t h) {\n"
            "  float x = (h & 0x7c00) == 0x7c00 ? (h & 0x3ff ? NAN : INFINITY)\n"
            "          : h & 0x7c00 ? ldexpf((float)(0x400 | (h & 0x3ff)), ((h >> 10) & 31) - 25)\n"
            "          : ldexpf((float)(h & 0x3ff), -24);\n"
            "  return h & 0x8000 ? -x : x;\n}"
        ),
        "tw_f2h": (
            "static inline uint16_t tw_f2h(float x) {\n"
            "  uint16_t sign = signbit(x) ? 0x8000 : 0;\n"
            "  if (x != x) return 0x7e00;\n"
            "  x = fabsf(x);\n"
            "  if (x >= 65520.0f) return sign | 0x7c00;\n"
            "  if (x < ldexpf(1.0f, -14)) return sign | (uint16_t)rintf(ldexpf(x, 24));\n"
            "  int e;\n"
            "  uint16_t m = (uint16_t)rintf(ldexpf(frexpf(x, &e), 11));\n"
            "  return sign | (uint16_t)(((e + 14) << 10) + (m - 0x400));\n}"
        ),
        "tw_b2f": (
            "static inline float tw_b2f(uint16_t h) {\n"
            "  uint32_t u = (uint32_t)h << 16;\n  float x;\n  memcpy(&x, &u, 4);\n  return x;\n}"
        ),
        "tw_f2b": (
            "static inline uint16_t tw_f2b(float x) {\n"
            "  uint32_t u;\n  memcpy(&u, &x, 4);\n"
            "  return x != x ? (uint16_t)(u >> 16 | 64) : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);\n}"
        ),
    }

    def function(self, name: str, kind: DataType) -> str | None:
        if name == "rsqrt":
            return "1.0f / sqrtf" if kind.bits == 32 else "1.0 / sqrt"
        return None if name == "exp10" else super().function(name, kind)

    def reinterpret(self, new: DataType, old: DataType, text: str) -> tuple[str, str]:
        wide = "64" if old.bits == 64 else ""
        if old.is_float:
            name = "tw_d2u" if wide else "tw_f2u"
            return f"({self.type(new)}){name}({text})", f"tw_bits{wide}"
        name = "tw_u2d" if wide else "tw_u2f"
        return f"{name}(({self.unsigned(old)})({text}))", f"tw_bits{wide}"

    def count_bits(self, name: str, kind: DataType, text: str) -> tuple[str, str]:
        bits = f"({self.unsigned(kind)})({text})"
        if name == "popcount":
            return f"__builtin_popcountll({bits})", ""
        return f"({bits} ? __builtin_clzll({bits}) - {64 - kind.bits} : {kind.bits})", ""

    def kernel_head(self, name: str, params: Sequence[Parameter], threads: int | None, noalias: bool) -> str:
        listed = [self.parameter(p, noalias) for p in params]
        return f"int32_t {name}({', '.join(listed) or 'void'})"

    def prologue(self, kinds: set[str]) -> list[str]:
        return [f"#include <{name}.h>" for name in ("math", "stdbool", "stdint", "stdlib", "string")]
