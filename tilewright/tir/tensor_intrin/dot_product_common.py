"""Dot products of four bytes: the common description of these instructions, and CUDA's dp4a."""

from __future__ import annotations

from typing import Any

from ...ir.function import PrimFunc
from ..script import from_source
from .intrin import built_in

_DOT = """
@T.prim_func
def dot(
    A: T.Buffer((4,), "{a}", offset_factor=1),
    B: T.Buffer(({lanes}, 4), "{b}", offset_factor=1),
    C: T.Buffer(({lanes},), "{c}", offset_factor=1),
):
    with T.block("root"):
        T.reads(C[0:{lanes}], A[0:4], B[0:{lanes}, 0:4])
        T.writes(C[0:{lanes}])
"""
_DOT_DESC = """\
        for i in range({lanes}):
            for k in range(4):
                with T.block("update"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    C[vi] = C[vi] + T.Cast("{c}", A[vk]) * T.Cast("{c}", B[vi, vk])
"""


def register_dot(name: str, lanes: int, kinds: tuple[str, str, str], impl: str) -> PrimFunc:
    """Register C[i] += Σ A[k] * B[i, k] over four k and `lanes` i, done by the statements in `impl`.

    B lies in memory as one vector, and C as another. Returns the description.
    """
    a, b, c = kinds
    facts: dict[str, Any] = {"lanes": lanes, "a": a, "b": b, "c": c, "all": 4 * lanes}
    desc, done = (from_source((_DOT + part).format(**facts)) for part in (_DOT_DESC, _indented(impl)))
    built_in(name, desc, done)
    return desc


def _indented(text: str) -> str:
    return "".join(f"        {line}\n" for line in text.strip().splitlines())


_DP4A = """
@T.prim_func
def dp4a(
    A: T.Buffer((4,), "{a}", offset_factor=1, align=4, scope="shared"),
    B: T.Buffer((4,), "{b}", offset_factor=1, align=4, scope="shared"),
    C: T.Buffer((1,), "{c}", offset_factor=1, align=4, scope="local"),
):
    with T.block("root"):
        T.reads(C[0], A[0:4], B[0:4])
        T.writes(C[0])
"""
_DP4A_DESC = """\
        for i in range(4):
            with T.block("update"):
                vi = T.axis.reduce(4, i)
                C[0] = C[0] + T.Cast("{c}", A[vi]) * T.Cast("{c}", B[vi])
"""
_DP4A_IMPL = """\
        C[0] = T.dp4a(A.vload([0], "{a}x4"), B.vload([0], "{b}x4"), C[0])
"""
# The bits of a sum modulo 2**32 are the same with and without a sign.
_DP4A_UNSIGNED = """\
        C[0] = T.reinterpret(
            "uint32", T.dp4a(A.vload([0], "{a}x4"), B.vload([0], "{b}x4"), T.reinterpret("int32", C[0]))
        )
"""


def _register_dp4a(name: str, a: str, b: str, c: str = "int32") -> str:
    impl = _DP4A_UNSIGNED if c == "uint32" else _DP4A_IMPL
    desc, done = (from_source((_DP4A + part).format(a=a, b=b, c=c)) for part in (_DP4A_DESC, impl))
    return built_in(name, desc, done)


DP4A_S8S8S32_INTRIN = _register_dp4a("dp4a_s8s8s32", "int8", "int8")
DP4A_S8U8S32_INTRIN = _register_dp4a("dp4a_s8u8s32", "int8", "uint8")
DP4A_U8S8S32_INTRIN = _register_dp4a("dp4a_u8s8s32", "uint8", "int8")
DP4A_U8U8S32_INTRIN = _register_dp4a("dp4a_u8u8s32", "uint8", "uint8")
DP4A_U8U8U32_INTRIN = _register_dp4a("dp4a_u8u8u32", "uint8", "uint8", "uint32")
