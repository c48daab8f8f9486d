"""LLVM types of data types, in registers and in memory."""

from __future__ import annotations

import struct
from functools import cache

from ...ir.dtype import DataType
from ...ir.fold import rounded

_FLOATS = {"float32": "float", "float64": "double"}


def is_small_float(kind: DataType) -> bool:
    """Whether it is stored in 16 bits and computed in float32."""
    return kind.bits == 16 and kind.is_float


def _scalar(kind: DataType, memory: bool) -> str:
    if kind.bits == 1:
        return "i8" if memory else "i1"
    if kind.is_integral or is_small_float(kind):
        return f"i{kind.bits}"
    if kind.is_handle:
        return "ptr"
    if kind.is_float and kind.bits == 8:
        return "i8"
    return _FLOATS[kind.element]


def vector_type(one: str, lanes: int) -> str:
    """The type of a vector; the lanes below 0 of a scalable one are multiples of `vscale`."""
    return one if lanes == 1 else f"<{lanes} x {one}>" if lanes > 0 else f"<vscale x {-lanes} x {one}>"


def vector_suffix(one: str, lanes: int) -> str:
    """How the names of overloaded intrinsics end for a vector: `v16f32`, or `nxv4f32` for a scalable one."""
    return one if lanes == 1 else f"v{lanes}{one}" if lanes > 0 else f"nxv{-lanes}{one}"


@cache
def reg_type(kind: DataType) -> str:
    """The type of a value in a register."""
    return vector_type(_scalar(kind, False), kind.lanes)


@cache
def mem_type(kind: DataType) -> str:
    """The type of a value in memory: a bool takes a byte."""
    return vector_type(_scalar(kind, True), kind.lanes)


def suffix(kind: DataType) -> str:
    """How the names of overloaded intrinsics end for values in memory: `v16f32`."""
    one = {"float": "f32", "double": "f64", "ptr": "p0"}.get(name := _scalar(kind, True), name)
    return vector_suffix(one, kind.lanes)


def constant(kind: DataType, value: int | float) -> str:
    """A constant as an operand of type `reg_type(kind)`."""
    one = kind.element
    if is_small_float(one):
        import ml_dtypes
        import numpy as np

        held = ml_dtypes.bfloat16 if one.code == "bfloat" else np.float16
        with np.errstate(over="ignore"):
            text = str(int(np.array(rounded(float(value), one), dtype=held).view(np.int16)))
    elif one.is_float:
        if one.bits == 32:
            import numpy as np

            with np.errstate(over="ignore"):
                value = float(np.float32(value))
        text = f"0x{struct.unpack('>Q', struct.pack('>d', float(value)))[0]:016X}"
    elif one.is_bool:
        text = "true" if value else "false"
    elif one.is_handle:
        text = "null"
    else:
        text = str(int(value))
    return text if kind.lanes == 1 else f"splat ({reg_type(one)} {text})"
