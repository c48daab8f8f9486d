"""HIP C++ for AMD's GPUs: CUDA's words, and clang's own half."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ...ir.dtype import DataType
from .cuda import Cuda
from .dialect import Dialect, Packed

_HEAD = "static __device__ __forceinline__"


class Hip(Cuda):
    name = "rocm"
    apart = ""
    intrinsics: ClassVar[Mapping[str, Callable[[Any, Any], Any]]] = {}
    helpers: ClassVar[Mapping[str, str]] = {
        **{name: text for name, text in Cuda.helpers.items() if not name.startswith("tw_dp4a")},
        "tw_h2f": (
            f"{_HEAD} float tw_h2f(unsigned short x) {{ return (float)__builtin_bit_cast(_Float16, x); }}"
        ),
        "tw_f2h": (
            f"{_HEAD} unsigned short tw_f2h(float x) {{\n"
            "  return __builtin_bit_cast(unsigned short, (_Float16)x);\n}"
        ),
        "tw_f2b": (
            f"{_HEAD} unsigned short tw_f2b(float x) {{\n"
            "  unsigned int u = __float_as_uint(x);\n"
            "  return x != x ? (unsigned short)(u >> 16 | 64)\n"
            "                : (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16);\n}"
        ),
        "tw_dp4a": (
            f"{_HEAD} int tw_dp4a(int a, int b, int c) {{ return __builtin_amdgcn_sdot4(a, b, c, false); }}"
        ),
    }

    def helper(self, name: str) -> str:
        return Dialect.helper(self, name)

    def barrier(self, scope: str) -> str:
        return "__builtin_amdgcn_wave_barrier();" if scope == "warp" else "__syncthreads();"

    def clustered(self, head: str, blocks: int) -> str:
        return Dialect.clustered(self, head, blocks)

    def load_once(self, packed: Packed, kind: DataType, pointer: str, scope: str) -> str:
        return self.load(packed, kind, pointer, scope)

    def shuffle(self, how: str, mask: str, value: str, lane: str, width: str) -> str:
        name = {"idx": "__shfl", "up": "__shfl_up", "down": "__shfl_down"}[how]
        return f"{name}({value}, {lane}, {width})"

    def active_mask(self) -> str:
        return "(unsigned int)__ballot(1)"

    def infinity(self, kind: DataType) -> str:
        return "__builtin_inff()" if kind.bits == 32 else "__builtin_inf()"

    def nan(self, kind: DataType) -> str:
        return '__builtin_nanf("")' if kind.bits == 32 else '__builtin_nan("")'
