"""Element types as the runtime needs them: name, NumPy type, C type, DLPack code.

The compiler has its own, richer `DataType`; both are strings with the same text, so they compare equal.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import ml_dtypes
import numpy as np


class DataTypeCode(IntEnum):
    """DLPack's codes of the kinds of types."""

    INT = 0
    UINT = 1
    FLOAT = 2
    HANDLE = 3
    BFLOAT = 4
    BOOL = 6
    E4M3Float = 10
    E5M2Float = 12


# The code of a type by the word with which its name begins.
_CODES = {
    "int": DataTypeCode.INT,
    "uint": DataTypeCode.UINT,
    "float": DataTypeCode.FLOAT,
    "handle": DataTypeCode.HANDLE,
    "void": DataTypeCode.HANDLE,
    "bfloat": DataTypeCode.BFLOAT,
    "bool": DataTypeCode.BOOL,
    "float8_e4m3fn": DataTypeCode.E4M3Float,
    "float8_e5m2": DataTypeCode.E5M2Float,
}


@dataclass(frozen=True, eq=False, slots=True)
class Element:
    """One element type, with its names in NumPy, C and DLPack."""

    name: str
    numpy: np.dtype[Any]
    ctype: type[ctypes._SimpleCData[Any]]  # the C type of a scalar
    c_name: str
    dl_code: int
    bits: int
    typestr: str  # its code in the array interface; narrow floats are unsigned integers there

    @property
    def itemsize(self) -> int:
        return self.numpy.itemsize

    @property
    def is_integer(self) -> bool:
        return self.dl_code in (0, 1)


def _table() -> dict[str, Element]:
    rows: list[Element] = []

    def row(name: str, kind: Any, ctype: Any, c_name: str, code: int, bits: int) -> None:
        dtype = np.dtype(kind)
        typestr = dtype.str if dtype.isbuiltin == 1 else f"<u{dtype.itemsize}"
        rows.append(Element(name, dtype, ctype, c_name, code, bits, typestr))

    for bits in (8, 16, 32, 64):
        row(f"int{bits}", f"int{bits}", getattr(ctypes, f"c_int{bits}"), f"int{bits}_t", 0, bits)
        row(f"uint{bits}", f"uint{bits}", getattr(ctypes, f"c_uint{bits}"), f"uint{bits}_t", 1, bits)
    row("float16", np.float16, ctypes.c_uint16, "uint16_t", 2, 16)
    row("float32", np.float32, ctypes.c_float, "float", 2, 32)
    row("float64", np.float64, ctypes.c_double, "double", 2, 64)
    row("bfloat16", ml_dtypes.bfloat16, ctypes.c_uint16, "uint16_t", 4, 16)
    row("bool", np.bool_, ctypes.c_uint8, "uint8_t", 6, 8)
    row("float8_e4m3fn", ml_dtypes.float8_e4m3fn, ctypes.c_uint8, "uint8_t", 10, 8)
    row("float8_e5m2", ml_dtypes.float8_e5m2, ctypes.c_uint8, "uint8_t", 12, 8)
    return {entry.name: entry for entry in rows}


ELEMENTS = _table()
_BY_NUMPY = {entry.numpy: entry.name for entry in ELEMENTS.values()}
_BY_DLPACK = {(entry.dl_code, entry.bits): entry for entry in ELEMENTS.values()}


def register_custom(name: str, code: int) -> None:
    """Register a custom type: arrays hold its bits as unsigned integers, and their NumPy type carries its name."""
    for bits in (8, 16, 32, 64):
        held, full = ELEMENTS[f"uint{bits}"], f"custom[{name}]{bits}"
        kind = np.dtype(held.numpy, metadata={"custom": full})
        ELEMENTS[full] = _BY_DLPACK[code, bits] = Element(
            full, kind, held.ctype, held.c_name, code, bits, held.typestr
        )


_SHORT = {"float": "float32", "int": "int32", "uint": "uint32", "bfloat": "bfloat16", "uint1": "bool"}


def element(dtype: Any) -> Element:
    """The element type called `dtype`: a name, a NumPy type, or anything NumPy takes for one."""
    name = dtype_name(dtype)
    found = ELEMENTS.get(name)
    if found is None:
        raise ValueError(f"the runtime has no arrays of {name!r}; known are {', '.join(ELEMENTS)}")
    return found


def element_of_dlpack(code: int, bits: int, lanes: int) -> Element:
    """The element type of a DLPack tensor."""
    found = _BY_DLPACK.get((code, bits)) if lanes == 1 else None
    if found is None and (code, bits, lanes) == (1, 1, 1):
        found = ELEMENTS["bool"]
    if found is None:
        raise TypeError(f"DLPack type code {code} of {bits} bits and {lanes} lanes is not supported")
    return found


def dtype_name(dtype: Any) -> str:
    """The plain name of a data type given in any of the usual ways."""
    if isinstance(dtype, str):
        text = str(dtype)
        return _SHORT.get(text, text)
    return name_of_numpy(np.dtype(dtype))


def name_of_numpy(dtype: np.dtype[Any]) -> str:
    """The name of a NumPy type; foreign byte orders and structures keep NumPy's own text (`>f4`)."""
    if dtype.metadata is not None and "custom" in dtype.metadata:
        return str(dtype.metadata["custom"])
    return _BY_NUMPY.get(dtype) or dtype.str


def held_as(name: str) -> str:
    """The type of values in memory: for a custom type, the unsigned integer of its bits."""
    return f"uint{ELEMENTS[name].bits}" if name.startswith("custom[") and name in ELEMENTS else name


class DataType(str):
    """A type's name that knows its parts: `DataType("float32x4").lanes` is 4."""

    code: str
    bits: int
    lanes: int

    def __new__(cls, text: str) -> DataType:
        text = _SHORT.get(text, text)
        match = re.fullmatch(
            r"(bool|handle|void|float8_e4m3fn|float8_e5m2|bfloat|float|uint|int)(\d*)(?:x(\d+))?", text
        )
        made = str.__new__(cls, text)
        if match is None:
            raise ValueError(
                f"unknown data type {text!r}; known are {', '.join(ELEMENTS)}, handle, float32x8"
            )
        made.code = match[1]
        implied = {"bool": 1, "handle": 64, "void": 0, "float8_e4m3fn": 8, "float8_e5m2": 8}
        made.bits = int(match[2]) if match[2] else implied.get(match[1], 32)
        made.lanes = int(match[3]) if match[3] else 1
        return made

    @property
    def itemsize(self) -> int:
        """Bytes that one value takes in memory."""
        return (self.bits + 7) // 8 * self.lanes

    @property
    def type_code(self) -> int:
        """DLPack's code of the type."""
        return _CODES[self.code]
