"""Metal: scalar arguments in buffers of their own, thread indices as parameters, address spaces in pointers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ...ir.dtype import DataType
from ...ir.errors import LoweringError
from .dialect import Dialect, Packed, Parameter, Spaced


class Metal(Spaced):
    name = "metal"
    types: ClassVar[Mapping[str, str]] = {k: v for k, v in Spaced.types.items() if k != "float64"}
    spaces: ClassVar[Mapping[str, str]] = {
        "global": "device", "shared": "threadgroup", "shared.dyn": "threadgroup", "constant": "constant",
    }  # fmt: skip
    own_space = "thread"
    words = Dialect.words | frozenset(
        "device threadgroup thread constant kernel vertex fragment using namespace metal threadIdx blockIdx "
        "template class typename".split()
    )
    prefix = "static inline"
    helpers: ClassVar[Mapping[str, str]] = {
        "tw_h2f": "static inline float tw_h2f(ushort x) { return (float)as_type<half>(x); }",
        "tw_f2h": "static inline ushort tw_f2h(float x) { return as_type<ushort>((half)x); }",
        "tw_b2f": "static inline float tw_b2f(ushort x) { return as_type<float>((uint)x << 16); }",
        "tw_f2b": (
            "static inline ushort tw_f2b(float x) {\n"
            "  uint u = as_type<uint>(x);\n"
            "  return isnan(x) ? (ushort)(u >> 16 | 64) : (ushort)((u + 0x7fff + (u >> 16 & 1)) >> 16);\n}"
        ),
        "tw_claim": (
            "static inline bool tw_claim(device long* p, int check) {\n"
            "  device atomic_int* flag = (device atomic_int*)p;\n"
            "  int seen = 0;\n"
            "  while (seen == 0)  // the exchange may fail for no reason\n"
            "    if (atomic_compare_exchange_weak_explicit(\n"
            "            flag, &seen, check, memory_order_relaxed, memory_order_relaxed)) return true;\n"
            "  return false;\n}"
        ),
    }
    _missing = ("erf", "log1p", "hypot", "nextafter")

    def function(self, name: str, kind: DataType) -> str | None:
        found = None if name in self._missing else super().function(name, kind)
        return found if found is None else found.removesuffix("f")

    def reinterpret(self, new: DataType, old: DataType, text: str) -> tuple[str, str]:
        return f"as_type<{self.type(new)}>({text})", ""

    def packed(self, kind: DataType, lanes: int) -> Packed | None:
        if lanes not in (2, 4) or kind.is_bool or kind.bits == 64:
            return None
        return Packed(f"{self.memory_type(kind)}{lanes}", tuple(f".{c}" for c in "xyzw"[:lanes]))

    def pack(self, packed: Packed, values: Sequence[str]) -> str:
        return f"{packed.type}({', '.join(values)})"

    def _packed_pointer(self, packed: Packed, scope: str, const: bool) -> str:
        return f"{self.spaces[scope]} {super()._packed_pointer(packed, scope, const)}"

    def shared_array(self, kind: DataType, name: str, size: int) -> str:
        return f"threadgroup {self.memory_type(kind)} {name}[{size}] __attribute__((aligned(16)));"

    def constant_array(self, kind: DataType, name: str, values: Sequence[str]) -> str:
        return f"constant {self.memory_type(kind)} {name}[{len(values)}] = {{{', '.join(values)}}};"

    def thread(self, tag: str) -> str:
        return tag

    def barrier(self, scope: str) -> str:
        if scope == "warp":
            return "simdgroup_barrier(mem_flags::mem_threadgroup);"
        return "threadgroup_barrier(mem_flags::mem_threadgroup);"

    def dynamic_shared(self) -> str:
        raise LoweringError("metal: shared memory must have a size that the kernel declares (scope 'shared')")

    def shuffle(self, how: str, mask: str, value: str, lane: str, width: str) -> str:
        name = {"idx": "simd_shuffle", "up": "simd_shuffle_up", "down": "simd_shuffle_down"}[how]
        return f"{name}({value}, {lane})"

    def atomic_add(self, kind: DataType, pointer: str, value: str, scope: str) -> tuple[str, str]:
        held = {"int32": "atomic_int", "uint32": "atomic_uint", "float32": "atomic_float"}.get(kind)
        if held is None:
            raise LoweringError(f"metal has no atomic addition of {kind}")
        place = f"({self.spaces.get(scope, 'device')} {held}*)({pointer})"
        return f"atomic_fetch_add_explicit({place}, {value}, memory_order_relaxed)", ""

    def kernel_head(self, name: str, params: Sequence[Parameter], threads: int | None, noalias: bool) -> str:
        listed = []
        for i, p in enumerate(params):
            if p.is_pointer:
                listed.append(f"{self.pointer(p.dtype, 'global', p.is_read_only)} {p.name} [[buffer({i})]]")
            else:
                listed.append(f"constant {self.memory_type(p.dtype)}& {p.name} [[buffer({i})]]")
        listed.append("uint3 blockIdx [[threadgroup_position_in_grid]]")
        listed.append("uint3 threadIdx [[thread_position_in_threadgroup]]")
        return f"kernel void {name}({', '.join(listed)})"

    def prologue(self, kinds: set[str]) -> list[str]:
        return ["#include <metal_stdlib>", "using namespace metal;"]
