"""Dot products of bytes on x86: AVX-512 with and without VNNI."""

from __future__ import annotations

from .dot_product_common import register_dot

VNNI_DOT_16x4_INTRIN = "dot_16x4_vnni"
AVX512_DOT_16x4_INTRIN = "dot_16x4_avx512"

_KINDS = ("uint8", "int8", "int32")

dot_product_16x4_u8i8i32_desc = register_dot(
    VNNI_DOT_16x4_INTRIN,
    16,
    _KINDS,
    """
A_i32 = T.reinterpret("int32", A.vload([0], "uint8x4"))
B_i32x16 = T.reinterpret("int32x16", B.vload([0, 0], "int8x64"))
C[T.ramp(0, 1, 16)] = T.call_llvm_pure_intrin(
    "int32x16", "llvm.x86.avx512.vpdpbusd.512", C.vload([0], "int32x16"), T.broadcast(A_i32, 16), B_i32x16
)
""",
)

# Pairs of products are added to 16 bits with saturation, so that the sum is exact only while both
# products of a pair together fit: |a0*b0 + a1*b1| < 2**15.
register_dot(
    AVX512_DOT_16x4_INTRIN,
    16,
    _KINDS,
    """
A_i32 = T.reinterpret("int32", A.vload([0], "uint8x4"))
A_u8x64 = T.reinterpret("uint8x64", T.broadcast(A_i32, 16))
B_i8x64 = B.vload([0, 0], "int8x64")
Pairs = T.call_llvm_pure_intrin("int16x32", "llvm.x86.avx512.pmaddubs.w.512", A_u8x64, B_i8x64)
C[T.ramp(0, 1, 16)] = C.vload([0], "int32x16") + T.call_llvm_pure_intrin(
    "int32x16", "llvm.x86.avx512.pmaddw.d.512", Pairs, T.broadcast(T.int16(1), 32)
)
""",
)
