"""Instructions of processors that multiply the numbers of two words and add them to an accumulator."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ..ir.words import DotProduct

__all__ = ["DOT_PRODUCTS", "dot_products", "multiplies_bytes"]


def _x86(
    kinds: tuple[str, str, str], name: str, needs: str, narrow: str, words: bool = True
) -> list[DotProduct]:
    """The instruction for vectors of 512 bits, and with the features in `narrow` for those of 256 and 128."""
    made = []
    for bits, features in ((512, needs), *(((256, narrow), (128, narrow)) if narrow else ())):
        held = frozenset(features.split())
        made.append(DotProduct(held, *kinds, bits // 32, f"llvm.x86.{name}.{bits}", words=words))
    return made


_BYTES: Final = ("uint8", "int8", "int32")
_SHORTS: Final = ("int16", "int16", "int32")
_HALVES: Final = ("bfloat16", "bfloat16", "float32")

DOT_PRODUCTS: Final = (
    *_x86(_BYTES, "avx512.vpdpbusd", "avx512vnni", "avx512vnni avx512vl"),
    *_x86(_BYTES, "avx512.vpdpbusd", "avxvnni", "avxvnni")[1:],
    *_x86(_SHORTS, "avx512.vpdpwssd", "avx512vnni", "avx512vnni avx512vl"),
    *_x86(_SHORTS, "avx512.vpdpwssd", "avxvnni", "avxvnni")[1:],
    DotProduct(frozenset({"avx512bw"}), *_SHORTS, 16, "llvm.x86.avx512.pmaddw.d.512", adds=False),
    DotProduct(frozenset({"avx2"}), *_SHORTS, 8, "llvm.x86.avx2.pmadd.wd", adds=False),
    DotProduct(frozenset({"sse2"}), *_SHORTS, 4, "llvm.x86.sse2.pmadd.wd", adds=False),
    *_x86(_HALVES, "avx512bf16.dpbf16ps", "avx512bf16", "avx512bf16 avx512vl", words=False),
    DotProduct(frozenset({"dotprod"}), "int8", "int8", "int32", 4, "llvm.aarch64.neon.sdot.v4i32.v16i8"),
    DotProduct(frozenset({"dotprod"}), "uint8", "uint8", "int32", 4, "llvm.aarch64.neon.udot.v4i32.v16i8"),
    DotProduct(frozenset({"i8mm"}), *_BYTES, 4, "llvm.aarch64.neon.usdot.v4i32.v16i8"),
    DotProduct(frozenset({"bf16", "neon"}), *_HALVES, 4, "llvm.aarch64.neon.bfdot.v4f32.v8bf16"),
)


def dot_products(features: Collection[str]) -> list[DotProduct]:
    """The instructions that a processor with these features has."""
    have = frozenset(features)
    return [d for d in DOT_PRODUCTS if d.needs <= have]


def multiplies_bytes(features: Collection[str], lanes: int = 0) -> bool:
    """Whether a processor multiplies bytes by signed bytes, in vectors of so many words if that is given."""
    return any((d.a, d.b) == _BYTES[:2] and lanes in (0, d.lanes) for d in dot_products(features))
