"""Data types: `float32`, `int8x4`, `bool`, `handle` as interned strings that know their parts."""

from __future__ import annotations

import re
from typing import Final

_PATTERN = re.compile(
    r"(?P<code>float8_e4m3fn|float8_e5m2|bfloat|float|uint|int|custom\[\w+\]|bool|handle|void|)"
    r"(?P<bits>\d*)(?P<lanes>x(?P<scale>vscalex)?(?P<n>\d+))?"
)
_TYPE_CODES: Final = {
    "int": 0,
    "uint": 1,
    "bool": 1,
    "float": 2,
    "handle": 3,
    "void": 3,
    "bfloat": 4,
    "float8_e4m3fn": 10,
    "float8_e5m2": 12,
}
_KNOWN_BITS: Final = {
    "int": (1, 2, 4, 8, 16, 32, 64),
    "uint": (1, 2, 4, 8, 16, 32, 64),
    "float": (16, 32, 64),
    "bfloat": (16,),
}
_GREATEST: Final = {
    "float64": 1.7976931348623157e308,
    "float32": 3.4028234663852886e38,
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float8_e4m3fn": 448.0,
    "float8_e5m2": 57344.0,
}
_OTHER_NAMES: Final = {"e4m3_float8": "float8_e4m3fn", "e5m2_float8": "float8_e5m2"}
_EXAMPLES = "float32, float16, bfloat16, int8 … int64, uint8 … uint64, bool, handle, float32x8"
_CUSTOM_BITS: Final = (8, 16, 32, 64)
_FIRST_CUSTOM: Final = 129  # the codes below are those of TVM's and DLPack's own types
_custom: dict[str, int] = {}  # the names of the user's own types, and their codes
_cache: dict[str, DataType] = {}
_wider: dict[tuple[DataType, int], DataType] = {}


class DataType(str):
    """A scalar or vector type. It is a `str` (`"float32x8"`), interned, with its parts as attributes.

    `code` is one of int, uint, float, bfloat, float8_e4m3fn, float8_e5m2, bool, handle, void, or `custom[posit]` for a
    type that the user has registered as "posit". `lanes` below 0 are those of a scalable vector: -4 means
    `vscale * 4`, and the type is written "float32xvscalex4".
    """

    code: str
    bits: int
    lanes: int
    low: int | float  # the least and the greatest finite value
    high: int | float
    element: DataType  # the type of one lane
    is_custom: (
        bool  # whether the user has registered it: a type of real numbers, with functions of the user's
    )

    def __new__(cls, text: str | DataType) -> DataType:
        if text.__class__ is DataType:
            return text  # type: ignore[return-value]
        found = _cache.get(text)
        if found is None:
            # `float`, `bool` and NumPy's scalar types stand for themselves by name.
            name = text.__name__ if isinstance(text, type) else str(text)
            found = _cache[text] = cls._parse(name)
        return found

    @classmethod
    def _parse(cls, text: str) -> DataType:
        element, cross, lanes_text = text.partition("x")
        text = _OTHER_NAMES.get(element, element) + cross + lanes_text
        match = _PATTERN.fullmatch(text)
        if match is None or (match["code"] in ("bool", "handle") and match["bits"] not in ("", "1", "64")):
            raise ValueError(f"unknown data type {text!r}; known are {_EXAMPLES}")
        code, bits_text = match["code"], match["bits"]
        bits = int(bits_text) if bits_text else 0
        lanes = int(match["n"]) if match["lanes"] else 1
        if text == "" or (code in ("void",) and not bits_text):
            code, bits = "void", 0
        elif code == "bool" or (code == "uint" and bits == 1):
            code, bits = "bool", 1
        elif code == "handle":
            bits = 64
        elif code.startswith("float8"):
            bits = 8
        elif code.startswith("custom"):
            if code[7:-1] not in _custom:
                raise ValueError(
                    f"unknown data type {text!r}: target.datatype.register({code[7:-1]!r}, {_FIRST_CUSTOM}) "
                    "makes it known"
                )
            if bits not in _CUSTOM_BITS:
                raise ValueError(f"data type {text!r}: a type of the user's has 8, 16, 32 or 64 bits")
        else:
            bits = bits or 32
            if bits not in _KNOWN_BITS.get(code, ()):
                raise ValueError(f"unknown data type {text!r}; known are {_EXAMPLES}")
        if lanes < 1:
            raise ValueError(f"data type {text!r} has no lanes")
        if match["scale"]:
            lanes = -lanes
        name = cls._name(code, bits) + cls._lanes_name(lanes)
        known = _cache.get(name)
        if known is not None:
            return known
        made = str.__new__(cls, name)
        made.code, made.bits, made.lanes = code, bits, lanes
        made.is_custom = code.startswith("custom")
        made.element = made if lanes == 1 else DataType(cls._name(code, bits))
        made.high = made._greatest()
        made.low = -made.high if made.is_float else -(1 << (bits - 1)) if code == "int" else 0
        _cache[name] = made
        return made

    @staticmethod
    def _name(code: str, bits: int) -> str:
        if code in ("bool", "handle", "void") or code.startswith("float8"):
            return code
        return f"{code}{bits}"

    @staticmethod
    def _lanes_name(lanes: int) -> str:
        return "" if lanes == 1 else f"x{lanes}" if lanes > 0 else f"xvscalex{-lanes}"

    # -- parts -----------------------------------------------------------------------------
    @property
    def is_scalable(self) -> bool:
        """Whether the number of lanes is a multiple of `vscale`, which the hardware knows."""
        return self.lanes < 0

    def with_lanes(self, lanes: int) -> DataType:
        """This type with another number of lanes."""
        if lanes == self.lanes:
            return self
        found = _wider.get((self, lanes))
        if found is None:
            name = self._name(self.code, self.bits)
            found = _wider[self, lanes] = DataType(name + self._lanes_name(lanes))
        return found

    @property
    def is_float(self) -> bool:
        return self.code in ("float", "bfloat", "float8_e4m3fn", "float8_e5m2") or self.is_custom

    @property
    def is_int(self) -> bool:
        """Signed integer."""
        return self.code == "int"

    @property
    def is_uint(self) -> bool:
        return self.code == "uint"

    @property
    def is_integral(self) -> bool:
        """Signed or unsigned integer, not bool."""
        return self.code in ("int", "uint")

    @property
    def is_bool(self) -> bool:
        return self.code == "bool"

    @property
    def is_predicate(self) -> bool:
        """bool, or an integer of one bit."""
        return self.bits == 1 and self.code in ("bool", "int", "uint")

    @property
    def is_handle(self) -> bool:
        return self.code == "handle"

    @property
    def is_vector(self) -> bool:
        return self.lanes != 1

    @property
    def nbytes(self) -> int:
        """Bytes that one value takes in memory (a bool takes one)."""
        if self.lanes < 0:
            raise ValueError(f"the size of {self} is known to the hardware alone")
        return (self.bits + 7) // 8 * self.lanes

    def itemsize(self) -> int:
        """The same, as the classic method."""
        return self.nbytes

    # -- the classic names -----------------------------------------------------------------
    @property
    def type_code(self) -> int:
        """DLPack's code of the type."""
        return _custom[self.code[7:-1]] if self.is_custom else _TYPE_CODES[self.code]

    def with_bits(self, bits: int) -> DataType:
        if bits == self.bits:
            return self
        code = "uint" if self.code == "bool" else self.code
        return DataType(f"{code}{bits}").with_lanes(self.lanes)

    def min_value(self) -> int | float:
        """The least finite value."""
        return self.low

    def max_value(self) -> int | float:
        """The greatest finite value."""
        return self.high

    def _greatest(self) -> int | float:
        if self.is_custom:
            return _GREATEST["float64"]
        if self.is_float:
            return _GREATEST[self._name(self.code, self.bits)]
        return (1 << (self.bits - 1)) - 1 if self.code == "int" else (1 << self.bits) - 1


def register_custom(name: str, code: int) -> None:
    """Make `custom[name]8` to `custom[name]64` types, whose code is `code`."""
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise ValueError(f"a data type cannot be named {name!r}: letters, digits and underscores are allowed")
    if not _FIRST_CUSTOM <= code <= 255:
        raise ValueError(f"the code of {name!r} is {code} and must be {_FIRST_CUSTOM} to 255")
    other = next((n for n, c in _custom.items() if c == code and n != name), None)
    if other is not None or _custom.get(name, code) != code:
        known = f"{other!r} has this code" if other else f"it is registered with code {_custom[name]}"
        raise ValueError(f"data type {name!r}, code {code}: {known}")
    _custom[name] = code


def custom_types() -> dict[str, int]:
    """The user's own types and their codes."""
    return dict(_custom)


INT32: Final = DataType("int32")
INT64: Final = DataType("int64")
FLOAT16: Final = DataType("float16")
FLOAT32: Final = DataType("float32")
FLOAT64: Final = DataType("float64")
BOOL: Final = DataType("bool")
HANDLE: Final = DataType("handle")
VOID: Final = DataType("void")
