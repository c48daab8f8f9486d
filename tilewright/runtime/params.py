"""Parameters on disk: named arrays in the safetensors format.

    8 bytes: length of the header │ header: JSON, name → type, shape, place │ the arrays' bytes

Files are not trusted: every length and offset is checked before memory is accessed. The header's metadata holds a
checksum of header and arrays (computed with zeros in its place); files without one (of other programs, of earlier
versions) are read without this check.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..files import write_whole
from .dtypes import ELEMENTS, Element
from .errors import LoadError
from .json_reader import read_json
from .ndarray import NDArray, array, numpyasarray
from .seal import checksum

_TO_NAME = {
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "bool": "BOOL",
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
}
_FROM_NAME = {short: ELEMENTS[name] for name, short in _TO_NAME.items()}
_MOST_DIMENSIONS = 32
_SUM, _NO_SUM = "sha256", b"0" * 64
_HEADER_LIMIT = 100_000_000  # the limit of the format


def save_param_dict(params: Mapping[str, Any]) -> bytes:
    """Named arrays as bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "tilewright", _SUM: _NO_SUM.decode()}}
    pieces, position = [], 0
    # wide types first, so that every array stays aligned to its type
    arrays = {str(name): _as_array(name, value) for name, value in params.items()}
    for name in sorted(arrays, key=lambda key: (-ELEMENTS[arrays[key].dtype].itemsize, key)):
        value = arrays[name]
        data = value.numpy().tobytes()
        header[name] = {
            "dtype": _TO_NAME[value.dtype],
            "shape": list(value.shape),
            "data_offsets": [position, position + len(data)],
        }
        pieces.append(data)
        position += len(data)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    text = text.replace(_NO_SUM, checksum(text, *pieces).hex().encode(), 1)
    return b"".join([struct.pack("<Q", len(text)), text, *pieces])


def _as_array(name: Any, value: Any) -> NDArray:
    if not isinstance(name, str):
        raise TypeError(f"the name of a parameter is a string, not {name!r}")
    if name == "__metadata__":
        raise ValueError("the name '__metadata__' is reserved by the file format")
    try:
        return value if isinstance(value, NDArray) else array(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"parameter {name!r} cannot be saved: {error}") from error


def load_param_dict(param_bytes: bytes | bytearray | memoryview) -> dict[str, NDArray]:
    """The arrays that `save_param_dict` wrote."""
    return _load(memoryview(param_bytes).cast("B"), "the parameter data")


def save_param_dict_to_file(params: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write named arrays to a file."""
    write_whole(path, save_param_dict(params))


def load_param_dict_from_file(path: str | os.PathLike[str]) -> dict[str, NDArray]:
    """Read a file that `save_param_dict_to_file`, or anyone else's safetensors, wrote."""
    with open(path, "rb") as file:
        return _load(memoryview(file.read()), os.fspath(path))


def _load(data: memoryview, where: str) -> dict[str, NDArray]:
    if len(data) < 8:
        raise LoadError(f"{where}: truncated: {len(data)} bytes, a parameter file has at least 8")
    (length,) = struct.unpack("<Q", data[:8])
    if length > _HEADER_LIMIT:
        raise LoadError(f"{where}: not a parameter file (safetensors): the header would have {length} bytes")
    if 8 + length > len(data):
        raise LoadError(f"{where}: truncated: the header has {length} bytes, the data ends after {len(data)}")
    text, body = bytes(data[8 : 8 + length]), data[8 + length :]
    header = read_json(text, f"{where}: not a parameter file (safetensors), or damaged")
    if not isinstance(header, dict):
        raise LoadError(f"{where}: damaged: the header is not a table of arrays")
    arrays = {n: _read(n, entry, body, where) for n, entry in header.items() if n != "__metadata__"}
    about = header.get("__metadata__")
    found = about.get(_SUM) if isinstance(about, dict) else None
    if isinstance(found, str) and found:
        if checksum(text.replace(found.encode(errors="replace"), _NO_SUM, 1), body).hex() != found:
            raise LoadError(
                f"{where}: damaged: its content does not match its checksum; save or copy it again"
            )
    return arrays


def _read(name: str, entry: Any, body: memoryview, where: str) -> NDArray:
    kind, shape, begin, end = _entry(name, entry, where)
    needed = kind.itemsize
    for extent in shape:
        needed *= extent
    if end - begin != needed:
        raise LoadError(
            f"{where}: damaged: parameter {name!r} of {kind.name} and shape {shape} needs {needed} bytes, "
            f"and its entry has {end - begin}"
        )
    if end > len(body):
        raise LoadError(
            f"{where}: truncated: parameter {name!r} ends at byte {end} of the data, which has {len(body)}"
        )
    try:
        values = np.frombuffer(body[begin:end], np.uint8).view(kind.numpy).reshape(shape)
    except (ValueError, OverflowError) as error:
        raise LoadError(f"{where}: parameter {name!r} of shape {shape} is not an array: {error}") from error
    return array(numpyasarray(values))


def _entry(name: str, entry: Any, where: str) -> tuple[Element, tuple[int, ...], int, int]:
    try:
        short, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise LoadError(f"{where}: damaged: the entry of parameter {name!r} is incomplete") from error
    numbers = [*shape, begin, end] if isinstance(shape, list) else [None]
    if not all(type(number) is int and 0 <= number < 1 << 62 for number in numbers):
        raise LoadError(
            f"{where}: damaged: the shape or the offsets of parameter {name!r} are not non-negative integers"
        )
    if len(shape) > _MOST_DIMENSIONS or math.prod(max(extent, 1) for extent in shape) >= 1 << 62:
        raise LoadError(
            f"{where}: damaged: parameter {name!r} has {len(shape)} dimensions, or more elements than fit into memory"
        )
    if not isinstance(short, str) or short not in _FROM_NAME:
        raise LoadError(f"{where}: parameter {name!r} has type {short!r}; known are {', '.join(_FROM_NAME)}")
    return _FROM_NAME[short], tuple(shape), begin, end
