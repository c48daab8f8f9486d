"""CUDA code for NVIDIA's own instructions: asynchronous copies, memory of clusters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.errors import LoweringError
from ...ir.expr import Call, PrimExpr, Var, const_value
from ...ir.expr_text import Piece
from ...ir.functor import vars_used
from .vectors import Vectors

_HEAD = "static __device__ __forceinline__"
_EARLY = 1  # the cache argument of a `tir.prefetch` of the pass FetchEarly
HELPERS = {
    # A copy in another register: a vector store of four then has four consecutive registers of its own, and the
    # accumulators can stay in registers without bank conflicts. (x + -0 is x; the assembler does not see it.)
    "tw_apart": (
        f"{_HEAD} float tw_apart(float x) {{\n"
        "  float zero;\n"
        '  asm("mov.b32 %0, 0x80000000;" : "=f"(zero));\n'
        "  return x + zero;\n}"
    ),
    "tw_keep": f'{_HEAD} int tw_keep(int x) {{\n  asm("" : "+r"(x));\n  return x;\n}}',
    "tw_cluster_load": (
        f"template <typename T> {_HEAD} T tw_cluster_load(const T* p, int block) {{\n"
        "  unsigned long long at;\n"
        '  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(at) : "l"(p), "r"(block));\n'
        "  return *(const volatile T*)at;\n}"
    ),
    "tw_cluster_leave": (
        f"{_HEAD} void tw_cluster_leave() {{\n"
        '  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");\n}\n'
        f"{_HEAD} void tw_cluster_end() {{\n"
        '  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");\n}'
    ),
    "tw_cluster_wait": (
        f"{_HEAD} void tw_cluster_wait() {{\n"
        '  asm volatile("barrier.cluster.arrive.release.aligned;\\n\\tbarrier.cluster.wait.acquire.aligned;"\n'
        '    ::: "memory");\n}'
    ),
    # Runs before the previous kernels have ended: `after_others` looks for this name.
    "tw_early": (
        f'{_HEAD} void tw_early(const void* p) {{\n  asm volatile("prefetch.global.L2 [%0];" :: "l"(p));\n}}'
    ),
    "tw_copy_async": (
        f"template <int N> {_HEAD} void tw_copy_async(void* to, const void* from) {{\n"
        "#if __CUDA_ARCH__ >= 800\n"
        "  unsigned int at = (unsigned int)__cvta_generic_to_shared(to);\n"
        "  if constexpr (N == 16)\n"
        '    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at), "l"(from) : "memory");\n'
        "  else\n"
        '    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(at), "l"(from), "n"(N) : "memory");\n'
        "#else\n"
        "  if constexpr (N == 16) *(int4*)to = *(const int4*)from;\n"
        "  else for (int i = 0; i < N; i += 4) *(int*)((char*)to + i) = *(const int*)((const char*)from + i);\n"
        "#endif\n}"
    ),
    "tw_copy_or_zero": (
        f"template <int N> {_HEAD} void tw_copy_or_zero(void* to, const void* from, bool copies) {{\n"
        "#if __CUDA_ARCH__ >= 800\n"
        "  unsigned int at = (unsigned int)__cvta_generic_to_shared(to);\n"
        "  int size = copies ? N : 0;\n"
        "  if constexpr (N == 16)\n"
        '    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"\n'
        '      :: "r"(at), "l"(from), "r"(size) : "memory");\n'
        "  else\n"
        '    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"\n'
        '      :: "r"(at), "l"(from), "n"(N), "r"(size) : "memory");\n'
        "#else\n"
        "  if constexpr (N == 16) *(int4*)to = copies ? *(const int4*)from : make_int4(0, 0, 0, 0);\n"
        "  else for (int i = 0; i < N; i += 4)\n"
        "    *(int*)((char*)to + i) = copies ? *(const int*)((const char*)from + i) : 0;\n"
        "#endif\n}"
    ),
    "tw_copy_commit": (
        f"{_HEAD} void tw_copy_commit() {{\n#if __CUDA_ARCH__ >= 800\n"
        '  asm volatile("cp.async.commit_group;" ::: "memory");\n#endif\n}'
    ),
    "tw_copy_wait": (
        f"template <int N> {_HEAD} void tw_copy_wait() {{\n#if __CUDA_ARCH__ >= 800\n"
        '  asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");\n#endif\n}'
    ),
}


def _address(p: Vectors, pointer: Any, offset: PrimExpr, call: Call) -> str:
    """The address `offset` elements of the call's type after a pointer."""
    if not isinstance(pointer, Var):
        raise LoweringError(f"cuda: an asynchronous copy goes between pointers, not `{pointer}`")
    held = p.memory.get(pointer)
    name, kind = p.expr(pointer), call.dtype.element
    if held is not None and p.dialect.memory_type(held[0]) != p.dialect.memory_type(kind):
        name = f"({p.dialect.pointer(kind, held[1])}){name}"
    return name if const_value(offset) == 0 else f"{name} + {_offset(p, offset)}"


def _offset(p: Vectors, offset: PrimExpr) -> str:
    """An offset in elements; in 64 bits if it may be large, as with dynamic sizes."""
    large = p.ana.const_int_bound(offset).max_value >= 1 << 31
    if not large and not any(v in p.wide for v in vars_used(offset)):
        return p.at(9, offset)
    text, level = p.widely(offset)
    return text if level >= 9 else f"({text})"


def _copy(p: Vectors, e: Call) -> Piece:
    """`ptx_cp_async(to, offset, from, offset, bytes[, predicate])`: 4, 8 or 16 contiguous bytes, or zeros."""
    size = const_value(e.args[4])
    if size not in (4, 8, 16):
        raise LoweringError(f"cuda: an asynchronous copy moves 4, 8 or 16 bytes at once, not {e.args[4]}")
    to, source = _address(p, e.args[0], e.args[1], e), _address(p, e.args[2], e.args[3], e)
    name = "tw_copy_async" if len(e.args) < 6 else "tw_copy_or_zero"
    p.need(name)
    listed = [to, source, *(p.expr(a) for a in e.args[5:])]
    p.emit(f"{name}<{size}>({', '.join(listed)});")
    return Piece("0")


def _commit(p: Vectors, e: Call) -> Piece:
    p.need("tw_copy_commit")
    p.emit("tw_copy_commit();")
    return Piece("0")


def _wait(p: Vectors, e: Call) -> Piece:
    p.need("tw_copy_wait")
    p.emit(f"tw_copy_wait<{int(const_value(e.args[0]) or 0)}>();")
    return Piece("0")


def _hint(p: Vectors, e: Call) -> Piece:
    """A prefetch before the previous kernels have ended; other prefetches are for CPUs."""
    if const_value(e.args[2]) != _EARLY:
        return Piece("0")
    p.need("tw_early")
    return Piece(f"tw_early({p.expr(e.args[0])})")


INTRINSICS: dict[str, Callable[[Any, Call], Piece]] = {
    "prefetch": _hint,
    "ptx_cp_async": _copy,
    "ptx_commit_group": _commit,
    "ptx_wait_group": _wait,
}
