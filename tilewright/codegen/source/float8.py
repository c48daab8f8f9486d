"""Floats of eight bits: stored as bytes, computed in float32. The conversion functions, in any dialect.

e4m3fn   s eeee mmm    bias 7, up to 448, no infinity; 0x7f is NaN, and what is too large becomes it
e5m2     s eeeee mm    bias 15, up to 57344, then infinity
"""

from __future__ import annotations

from typing import Any

from ...ir.dtype import FLOAT32, DataType
from ...ir.float8 import FORMS

_UINT32, _UINT8 = DataType("uint32"), DataType("uint8")


def widening(kind: DataType) -> str:
    """The name of the function that gives the float32 of a byte."""
    return f"tw_{kind.code.removeprefix('float8_')}_to_float"


def narrowing(kind: DataType) -> str:
    """The name of the function that gives the nearest byte of a float32, ties to even."""
    return f"tw_float_to_{kind.code.removeprefix('float8_')}"


def reading(d: Any, name: str) -> str | None:
    """The definition of such a function in a dialect; None for other names."""
    for code in FORMS:
        kind = DataType(code)
        if name == widening(kind):
            return _widen(d, kind)
        if name == narrowing(kind):
            return _narrow(d, kind)
    return None


def _widen(d: Any, kind: DataType) -> str:
    form, word, byte = FORMS[kind.code], d.type(_UINT32), d.type(_UINT8)
    shift = 23 - form.mantissa
    normal = d.reinterpret(FLOAT32, _UINT32, f"(a << {shift}) + {(127 - form.bias) << 23:#x}u")[0]
    small = f"(float)a * {form.least!r}f"
    if kind.code == "float8_e5m2":
        special = f"a >= 0x7cu ? (a > 0x7cu ? {d.nan(FLOAT32)} : {d.infinity(FLOAT32)}) : "
    else:
        special = f"a == 0x7fu ? {d.nan(FLOAT32)} : "
    return (
        f"{d.prefix} float {widening(kind)}({byte} x) {{\n"
        f"  {word} a = ({word})x & 0x7fu;\n"
        f"  float r = {special}a < {1 << form.mantissa}u ? {small} : {normal};\n"
        "  return x & 0x80 ? -r : r;\n}"
    )


def _narrow(d: Any, kind: DataType) -> str:
    form, word, byte = FORMS[kind.code], d.type(_UINT32), d.type(_UINT8)
    shift = 23 - form.mantissa
    bits = d.reinterpret(_UINT32, FLOAT32, "x")[0]
    # a number whose ulp is the spacing of subnormal numbers: adding it rounds to them
    one = form.least * 2.0**23
    placed = d.reinterpret(FLOAT32, _UINT32, "a")[0]
    rounded = d.reinterpret(_UINT32, FLOAT32, f"{placed} + {one!r}f")[0]
    start = d.reinterpret(_UINT32, FLOAT32, f"{one!r}f")[0]
    down = (127 - form.bias) << form.mantissa
    return (
        f"{d.prefix} {byte} {narrowing(kind)}(float x) {{\n"
        f"  {word} u = {bits}, a = u & 0x7fffffffu, r;\n"
        f"  if (a > 0x7f800000u) r = {form.nan:#x}u;\n"
        f"  else if (a > {form.most:#x}u) r = {form.beyond:#x}u;\n"
        f"  else if (a < {form.least_normal:#x}u) r = {rounded} - {start};\n"
        f"  else r = ((a + {(1 << (shift - 1)) - 1:#x}u + (a >> {shift} & 1u)) >> {shift}) - {down}u;\n"
        f"  return ({byte})(r | (u >> 24 & 0x80u));\n}}"
    )
