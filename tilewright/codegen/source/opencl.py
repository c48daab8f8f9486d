"""OpenCL C: address spaces in every pointer, vectors of its own, functions without a type in their name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ...ir.dtype import DataType
from ...ir.errors import LoweringError
from .dialect import Dialect, Packed, Parameter, Spaced

_ATOMIC_FLOAT = """inline float NAME(volatile SPACE float* p, float x) {
  union { uint u; float f; } before, after;
  do {
    before.f = *p;
    after.f = before.f + x;
  } while (atomic_cmpxchg((volatile SPACE uint*)p, before.u, after.u) != before.u);
  return before.f;
}"""


class OpenCL(Spaced):
    name = "opencl"
    spaces: ClassVar[Mapping[str, str]] = {
        "global": "__global", "shared": "__local", "shared.dyn": "__local", "constant": "__constant",
    }  # fmt: skip
    own_space = "__private"
    words = Dialect.words | frozenset(
        "global local private constant event_t barrier read_only write_only".split()
    )
    prefix = "inline"
    needs_alignment = False  # vloadn and vstoren take any address of an element
    helpers: ClassVar[Mapping[str, str]] = {
        # half is a storage type everywhere, but an arithmetic type only with an extension
        "tw_h2f": "inline float tw_h2f(ushort x) { return vload_half(0, (const __private half*)&x); }",
        "tw_f2h": (
            "inline ushort tw_f2h(float x) {\n"
            "  ushort r;\n  vstore_half_rte(x, 0, (__private half*)&r);\n  return r;\n}"
        ),
        "tw_b2f": "inline float tw_b2f(ushort x) { return as_float((uint)x << 16); }",
        "tw_f2b": (
            "inline ushort tw_f2b(float x) {\n"
            "  uint u = as_uint(x);\n"
            "  return isnan(x) ? (ushort)(u >> 16 | 64) : (ushort)((u + 0x7fff + (u >> 16 & 1)) >> 16);\n}"
        ),
        "tw_dp4a": (
            "inline int tw_dp4a(int a, int b, int c) {\n"
            "  char4 x = as_char4(a), y = as_char4(b);\n"
            "  return c + x.s0 * y.s0 + x.s1 * y.s1 + x.s2 * y.s2 + x.s3 * y.s3;\n}"
        ),
        "tw_claim": (
            "inline bool tw_claim(__global long* p, int check) {\n"
            "  volatile __global int* flag = (volatile __global int*)p;\n"
            "  return *flag == 0 && atomic_cmpxchg(flag, 0, check) == 0;\n}"
        ),
        "tw_atomic_add_global": _ATOMIC_FLOAT.replace("NAME", "tw_atomic_add_global").replace(
            "SPACE", "__global"
        ),
        "tw_atomic_add_local": _ATOMIC_FLOAT.replace("NAME", "tw_atomic_add_local").replace(
            "SPACE", "__local"
        ),
    }

    def function(self, name: str, kind: DataType) -> str | None:
        found = super().function(name, kind)
        return found if found is None or kind.bits != 32 else found.removesuffix("f")

    def reinterpret(self, new: DataType, old: DataType, text: str) -> tuple[str, str]:
        return f"as_{self.type(new)}({text})", ""

    def packed(self, kind: DataType, lanes: int) -> Packed | None:
        if lanes not in (2, 4, 8, 16) or kind.is_bool:
            return None
        return Packed(f"{self.memory_type(kind)}{lanes}", tuple(f".s{i:x}" for i in range(lanes)))

    def load(self, packed: Packed, kind: DataType, pointer: str, scope: str) -> str:
        return f"vload{len(packed.lanes)}(0, {pointer})"

    def store(self, packed: Packed, kind: DataType, pointer: str, value: str, scope: str) -> str:
        return f"vstore{len(packed.lanes)}({value}, 0, {pointer});"

    def shared_array(self, kind: DataType, name: str, size: int) -> str:
        return f"__local {self.memory_type(kind)} {name}[{size}] __attribute__((aligned(16)));"

    def constant_array(self, kind: DataType, name: str, values: Sequence[str]) -> str:
        return f"__constant {self.memory_type(kind)} {name}[{len(values)}] = {{{', '.join(values)}}};"

    def thread(self, tag: str) -> str:
        what, _, axis = tag.partition(".")
        return f"get_{'group' if what == 'blockIdx' else 'local'}_id({'xyz'.index(axis)})"

    def barrier(self, scope: str) -> str:
        if scope == "warp":
            raise LoweringError("opencl has no barrier for a single warp")
        return f"barrier(CLK_{'GLOBAL' if scope == 'global' else 'LOCAL'}_MEM_FENCE);"

    def dynamic_shared(self) -> str:
        return ""  # a parameter

    def atomic_add(self, kind: DataType, pointer: str, value: str, scope: str) -> tuple[str, str]:
        if kind.is_integral and kind.bits == 32:
            return f"atomic_add({pointer}, {value})", ""
        if kind == "float32":
            helper = f"tw_atomic_add_{'local' if scope.startswith('shared') else 'global'}"
            return f"{helper}({pointer}, {value})", helper
        return super().atomic_add(kind, pointer, value, scope)

    def kernel_head(self, name: str, params: Sequence[Parameter], threads: int | None, noalias: bool) -> str:
        listed = [self.parameter(p, noalias) for p in params]
        return f"__kernel void {name}({', '.join(listed)})"

    def prologue(self, kinds: set[str]) -> list[str]:
        return ["#pragma OPENCL EXTENSION cl_khr_fp64 : enable"] if "float64" in kinds else []
