"""Floats of eight bits: their formats.

float8_e4m3fn   s eeee mmm    bias 7, up to 448, no infinity; 0x7f is NaN, and what is too large becomes it
float8_e5m2     s eeeee mm    bias 15, up to 57344, then infinity
"""

from __future__ import annotations

from typing import Final, NamedTuple

from .dtype import DataType


class Form(NamedTuple):
    """A format: the constants of conversions from and to float32."""

    mantissa: int  # bits of the mantissa
    bias: int
    least: float  # the spacing of subnormal numbers
    nan: int
    least_normal: int  # as bits of a float32
    most: int  # the bits of the largest float32 that does not overflow
    beyond: int  # the result of larger ones


FORMS: Final = {
    "float8_e4m3fn": Form(3, 7, 2.0**-9, 0x7F, 0x3C800000, 0x43E80000, 0x7F),
    "float8_e5m2": Form(2, 15, 2.0**-16, 0x7E, 0x38800000, 0x476FFFFF, 0x7C),
}


def is_float8(kind: DataType) -> bool:
    return kind.is_float and kind.bits == 8
