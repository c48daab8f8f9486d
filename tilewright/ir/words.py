"""Words of 32 bits that hold several numbers, for instructions that multiply and add all of them at once.

pack_word(a, b, c, d)       a word of four bytes, the first one lowest; or of two numbers of 16 bits
dp4a(x, y, c)               c + the products of the bytes of two words; signed where a word is int32, else unsigned
dp2a(x, y, c)               c + the products of two int16 each; of two bfloat16 where c is a float32
"""

from __future__ import annotations

from dataclasses import dataclass

from .dtype import DataType
from .expr import Call, PrimExpr
from .op import Op

__all__ = ["PER_WORD", "DotProduct", "dot_of_words", "element_of_word", "pack_word"]

# How many numbers the words of each operator hold.
PER_WORD = {"dp4a": 4, "dp2a": 2}
_BYTES = {"int32": DataType("int8"), "uint32": DataType("uint8")}
_INT16, _BFLOAT16 = DataType("int16"), DataType("bfloat16")


@dataclass(frozen=True, slots=True)
class DotProduct:
    """An instruction: sums[i] += Σ a[i, j] * b[i, j] over the numbers of a word of 32 bits, for each of `lanes` words.

    `name` is LLVM's intrinsic. It takes the sums first, unless `adds` is False: then they are added afterwards. With
    `words`, it takes vectors of words, else vectors of numbers.
    """

    needs: frozenset[str]
    a: str
    b: str
    sums: str
    lanes: int
    name: str
    adds: bool = True
    words: bool = False

    @property
    def per_word(self) -> int:
        return 4 if self.a.endswith("8") else 2


def element_of_word(call: Call, word: PrimExpr) -> DataType:
    """The type of the numbers in an operand of `dp4a` or `dp2a`."""
    assert isinstance(call.op, Op)
    if call.op.short_name == "dp4a":
        return _BYTES[str(word.dtype.element)]
    return _BFLOAT16 if call.dtype.is_float else _INT16


def pack_word(*values: PrimExpr) -> PrimExpr:
    """The word that holds four bytes or two numbers of 16 bits; it is signed if they are."""
    kind = DataType("uint32" if values[0].dtype.is_uint else "int32")
    return Call(kind.with_lanes(values[0].dtype.lanes), Op.get("tir.pack_word"), values)


def dot_of_words(per_word: int, x: PrimExpr, y: PrimExpr, c: PrimExpr) -> Call:
    """c + the products of the numbers in two words."""
    name = next(n for n, count in PER_WORD.items() if count == per_word)
    return Call(c.dtype, Op.get(f"tir.{name}"), (x, y, c))
