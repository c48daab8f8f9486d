"""CUDA C++, with nothing included: NVRTC compiles it where there are no headers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from ...ir.dtype import DataType
from ...ir.errors import LoweringError
from . import mma, ptx, tensor_cores
from .dialect import Dialect, Packed, Parameter

_BUILTIN = {  # element -> name of the built-in vectors, and how many lanes they have
    "float32": ("float", (2, 4)),
    "float64": ("double", (2,)),
    "int8": ("char", (2, 4)),
    "uint8": ("uchar", (2, 4)),
    "int16": ("short", (2, 4)),
    "uint16": ("ushort", (2, 4)),
    "int32": ("int", (2, 4)),
    "uint32": ("uint", (2, 4)),
    "int64": ("longlong", (2,)),
    "uint64": ("ulonglong", (2,)),
    "float16": ("ushort", (2, 4)),
    "bfloat16": ("ushort", (2, 4)),
    "float8_e4m3fn": ("uchar", (2, 4)),
    "float8_e5m2": ("uchar", (2, 4)),
}


def _dp4a(name: str, a: str, b: str) -> str:
    """The dot product of four bytes, signed or unsigned."""
    return (
        f"static __device__ __forceinline__ int {name}(int a, int b, int c) {{\n"
        f'  int d;\n  asm("dp4a.{a}.{b} %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));\n'
        "  return d;\n}"
    )


class Cuda(Dialect):
    name = "cuda"
    apart = "tw_apart"
    keep = "tw_keep"
    registers_need_unrolling = True
    has_straight_logic = True
    prefix = "static __device__ __forceinline__"
    words = Dialect.words | frozenset(
        "class template typename namespace this new delete private public using operator threadIdx blockIdx "
        "blockDim gridDim warpSize asm".split()
    )
    math: ClassVar[Mapping[str, str]] = {"round": "rint", "nearbyint": "rint", "rsqrt": "rsqrt"}
    intrinsics: ClassVar[Mapping[str, Callable[[Any, Any], Any]]] = {
        **ptx.INTRINSICS,
        **tensor_cores.INTRINSICS,
        **mma.INTRINSICS,
    }
    helpers: ClassVar[Mapping[str, str]] = {
        **ptx.HELPERS,
        **tensor_cores.HELPERS,
        **mma.HELPERS,
        "tw_claim": (
            "static __device__ __forceinline__ bool tw_claim(long long* p, int check) {\n"
            "  return *(volatile int*)p == 0 && atomicCAS((int*)p, 0, check) == 0;\n}"
        ),
        "tw_vec": "template <typename T, int N> struct __align__(sizeof(T) * N) tw_vec { T v[N]; };",
        "tw_h2f": (
            "static __device__ __forceinline__ float tw_h2f(unsigned short x) {\n"
            '  float r;\n  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));\n  return r;\n}'
        ),
        "tw_f2h": (
            "static __device__ __forceinline__ unsigned short tw_f2h(float x) {\n"
            '  unsigned short r;\n  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));\n  return r;\n}'
        ),
        "tw_b2f": (
            "static __device__ __forceinline__ float tw_b2f(unsigned short x) {\n"
            "  return __uint_as_float((unsigned int)x << 16);\n}"
        ),
        "tw_f2b": (
            "static __device__ __forceinline__ unsigned short tw_f2b(float x) {\n"
            "#if __CUDA_ARCH__ >= 800\n"
            '  unsigned short r;\n  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));\n  return r;\n'
            "#else\n"
            "  unsigned int u = __float_as_uint(x);\n"
            "  return x != x ? (unsigned short)(u >> 16 | 64)\n"
            "                : (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16);\n"
            "#endif\n}"
        ),
        "tw_dp4a": _dp4a("tw_dp4a", "s32", "s32"),
        "tw_dp4a_us": _dp4a("tw_dp4a_us", "u32", "s32"),
        "tw_dp4a_su": _dp4a("tw_dp4a_su", "s32", "u32"),
        "tw_dp4a_uu": _dp4a("tw_dp4a_uu", "u32", "u32"),
    }

    def infinity(self, kind: DataType) -> str:
        if kind.bits == 64:
            return "__longlong_as_double(0x7ff0000000000000ll)"
        return "__int_as_float(0x7f800000)"

    def nan(self, kind: DataType) -> str:
        if kind.bits == 64:
            return "__longlong_as_double(0x7ff8000000000000ll)"
        return "__int_as_float(0x7fc00000)"

    def least(self, name: str, kind: DataType, a: str, b: str) -> tuple[str, str]:
        if kind.is_integral and kind.bits >= 32:
            return f"{name}({a}, {b})", ""
        return super().least(name, kind, a, b)

    def helper(self, name: str) -> str:
        if name in ("tw_min_float32", "tw_max_float32"):
            what = name[3:6]
            order = "<" if what == "min" else ">"
            return (
                f"{self.prefix} float {name}(float a, float b) {{\n#if __CUDA_ARCH__ >= 800\n"
                f'  float r;\n  asm("{what}.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));\n  return r;\n'
                f"#else\n  return a {order} b || a != a ? a : b;\n#endif\n}}"
            )
        if name.startswith(("tw_min_", "tw_max_")) and name.endswith("float16"):
            what, kind = name[3:6], "bf16" if "bfloat" in name else "f16"
            plain = super().helper(name)
            head, _, body = plain.partition(" { ")
            return (
                f"{head} {{\n#if __CUDA_ARCH__ >= 800\n  unsigned short r;\n"
                f'  asm("{what}.NaN.{kind} %0, %1, %2;" : "=h"(r) : "h"(a), "h"(b));\n  return r;\n'
                f"#else\n  {body.removesuffix(' }')}\n#endif\n}}"
            )
        return tensor_cores.helper(name) or mma.helper(name) or super().helper(name)

    def report(self, name: str, count: int) -> str:
        """The values are written to host memory, whose address follows the flag; the number of the check is written
        last."""
        values = "".join(f", long long v{i}" for i in range(count))
        stores = " ".join(f"out[{i + 1}] = v{i};" for i in range(count))
        return (
            f"{self.prefix} int {name}(long long* p, int check{values}) {{\n  if (tw_claim(p, check)) {{\n"
            f"    volatile long long* out = (volatile long long*)p[1];\n    {stores}\n"
            "    __threadfence_system();\n    out[0] = check;\n  }\n  return 0;\n}"
        )

    def reinterpret(self, new: DataType, old: DataType, text: str) -> tuple[str, str]:
        words = {
            "float32": "float",
            "float64": "double",
            "int32": "int",
            "uint32": "uint",
            "int64": "longlong",
        }
        words["uint64"] = "longlong"
        if new.is_float == old.is_float:
            return f"({self.type(new)})({text})", ""
        if old.is_float:
            name = f"__{words[old]}_as_{words[new]}({text})"
            return (f"({self.type(new)}){name}" if new == "uint64" else name), ""
        source = words[old] if old.bits == 32 else "longlong"
        return f"__{source}_as_{words[new]}({text})", ""

    def count_bits(self, name: str, kind: DataType, text: str) -> tuple[str, str]:
        word = "__popc" if name == "popcount" else "__clz"
        if kind.bits == 64:
            return f"{word}ll({text})", ""
        if kind.bits == 32:
            return f"{word}({text})", ""
        bits = f"(int)({self.unsigned(kind)})({text})"
        return (f"{word}({bits})", "") if name == "popcount" else (f"({word}({bits}) - {32 - kind.bits})", "")

    def packed(self, kind: DataType, lanes: int) -> Packed | None:
        if lanes not in (2, 4, 8, 16) or kind.is_bool:
            return None
        name, widths = _BUILTIN.get(kind, ("", ()))
        if lanes in widths:
            return Packed(f"{name}{lanes}", tuple(f".{c}" for c in "xyzw"[:lanes]))
        return Packed(f"tw_vec<{self.memory_type(kind)}, {lanes}>", tuple(f".v[{i}]" for i in range(lanes)))

    def pack(self, packed: Packed, values: Sequence[str]) -> str:
        if packed.type.startswith("tw_vec"):
            return f"{packed.type}{{{{{', '.join(values)}}}}}"
        return f"make_{packed.type}({', '.join(values)})"

    def shared_array(self, kind: DataType, name: str, size: int) -> str:
        return f"__shared__ __align__(16) {self.memory_type(kind)} {name}[{size}];"

    def constant_array(self, kind: DataType, name: str, values: Sequence[str]) -> str:
        return f"__device__ const {self.memory_type(kind)} {name}[{len(values)}] = {{{', '.join(values)}}};"

    def load_once(self, packed: Packed, kind: DataType, pointer: str, scope: str) -> str:
        if packed.type.startswith("tw_vec"):
            return self.load(packed, kind, pointer, scope)
        return f"__ldcs((const {packed.type}*)({pointer}))"

    def thread(self, tag: str) -> str:
        return tag

    def barrier(self, scope: str) -> str:
        return {"warp": "__syncwarp();", "shared.cluster": "tw_cluster_wait();"}.get(
            scope, "__syncthreads();"
        )

    def clustered(self, head: str, blocks: int) -> str:
        return head.replace("__global__ void", f"__global__ void __cluster_dims__({blocks}, 1, 1)", 1)

    def dynamic_shared(self) -> str:
        return "extern __shared__ __align__(1024) unsigned char tw_dynamic_shared[];"

    def shuffle(self, how: str, mask: str, value: str, lane: str, width: str) -> str:
        name = {"idx": "__shfl_sync", "up": "__shfl_up_sync", "down": "__shfl_down_sync"}[how]
        return f"{name}({mask}, {value}, {lane}, {width})"

    def active_mask(self) -> str:
        return "__activemask()"

    def atomic_add(self, kind: DataType, pointer: str, value: str, scope: str) -> tuple[str, str]:
        if kind in ("int32", "uint32", "uint64", "float32", "float64"):
            return f"atomicAdd({pointer}, {value})", ""
        if kind == "int64":
            return f"(long long)atomicAdd((unsigned long long*){pointer}, (unsigned long long){value})", ""
        raise LoweringError(f"cuda has no atomic addition of {kind}")

    restrict = "__restrict__"

    def parameter(self, p: Parameter, noalias: bool) -> str:
        return (
            f"const __grid_constant__ tw_tensor_map {p.name}" if p.is_map else super().parameter(p, noalias)
        )

    def kernel_head(self, name: str, params: Sequence[Parameter], threads: int | None, noalias: bool) -> str:
        bounds = f" __launch_bounds__({threads})" if threads else ""
        listed = ", ".join(self.parameter(p, noalias) for p in params)
        return f'extern "C" __global__ void{bounds} {name}({listed})'
