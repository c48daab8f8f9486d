"""Dot products of bytes on 64-bit ARM: by NEON's widening multiplications, and by the dot instructions."""

from __future__ import annotations

from .dot_product_common import (
    DP4A_S8S8S32_INTRIN,
    DP4A_S8U8S32_INTRIN,
    DP4A_U8S8S32_INTRIN,
    DP4A_U8U8S32_INTRIN,
    DP4A_U8U8U32_INTRIN,
    register_dot,
)

__all__ = [
    "ARM_DOT_4x4_i8_NEON_INTRIN",
    "ARM_DOT_4x4_i8_SDOT_INTRIN",
    "ARM_DOT_4x4_u8_UDOT_INTRIN",
    "ARM_DOT_4x4_u8_HDOT_INTRIN",
    "DP4A_S8S8S32_INTRIN",
    "DP4A_S8U8S32_INTRIN",
    "DP4A_U8S8S32_INTRIN",
    "DP4A_U8U8S32_INTRIN",
    "DP4A_U8U8U32_INTRIN",
]

ARM_DOT_4x4_i8_NEON_INTRIN = "dot_4x4_i8i8s32_neon"
ARM_DOT_4x4_i8_SDOT_INTRIN = "dot_4x4_i8i8s32_sdot"
ARM_DOT_4x4_u8_UDOT_INTRIN = "dot_4x4_u8u8u32_udot"
ARM_DOT_4x4_u8_HDOT_INTRIN = "dot_4x4_u8u8i32_hdot"

# Two rows of B at a time: products to 16 bits, pairs of them to 32 bits, pairs of these are the sums.
register_dot(
    ARM_DOT_4x4_i8_NEON_INTRIN,
    4,
    ("int8", "int8", "int32"),
    """
A_i32 = T.reinterpret("int32", A.vload([0], "int8x4"))
A_i8x8 = T.reinterpret("int8x8", T.broadcast(A_i32, 2))
Low = T.call_llvm_pure_intrin("int16x8", "llvm.aarch64.neon.smull.v8i16", A_i8x8, B.vload([0, 0], "int8x8"))
High = T.call_llvm_pure_intrin("int16x8", "llvm.aarch64.neon.smull.v8i16", A_i8x8, B.vload([2, 0], "int8x8"))
Low_pairs = T.call_llvm_pure_intrin("int32x4", "llvm.aarch64.neon.saddlp.v4i32.v8i16", Low)
High_pairs = T.call_llvm_pure_intrin("int32x4", "llvm.aarch64.neon.saddlp.v4i32.v8i16", High)
Sums = T.call_llvm_pure_intrin("int32x4", "llvm.aarch64.neon.addp.v4i32", Low_pairs, High_pairs)
C[T.ramp(0, 1, 4)] = C.vload([0], "int32x4") + Sums
""",
)

_BY_DOT = """
A_i32 = T.reinterpret("int32", A.vload([0], "{a}x4"))
A_x16 = T.reinterpret("{a}x16", T.broadcast(A_i32, 4))
C[T.ramp(0, 1, 4)] = T.call_llvm_pure_intrin(
    "{c}x4", "llvm.aarch64.neon.%s.v4i32.v16i8", C.vload([0], "{c}x4"), A_x16, B.vload([0, 0], "{b}x16")
)
"""

register_dot(ARM_DOT_4x4_i8_SDOT_INTRIN, 4, ("int8", "int8", "int32"), _BY_DOT % "sdot")
register_dot(ARM_DOT_4x4_u8_UDOT_INTRIN, 4, ("uint8", "uint8", "uint32"), _BY_DOT % "udot")
register_dot(ARM_DOT_4x4_u8_HDOT_INTRIN, 4, ("uint8", "uint8", "int32"), _BY_DOT % "udot")
