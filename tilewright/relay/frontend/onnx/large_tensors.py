"""Models without their large tensors: a file of gigabytes is parsed in milliseconds, and its weights are read once.

    model.onnx   …│initializer "w": dims, type, raw_data (100 MB)│…   is parsed as
                 …│initializer "w": dims, type, external data: this file, offset, length│…

The bytes of a message are fields, each a tag (number of the field, kind of value) and a value; a message within one has
its length in front. Everything that is not as ONNX writes it stays as it is, and the parser of protobuf decides.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

__all__ = ["parsed_without_large_tensors"]

_LARGE: Final = 1 << 12  # bytes of a tensor that is worth the way
_GRAPH, _INITIALIZER, _RAW_DATA, _DATA_LOCATION, _EXTERNAL = 7, 5, 9, 14, 13  # numbers of fields
_BYTES: Final = 2  # the kind of a field that has its length in front


class _Odd(Exception):
    """Bytes that are not as ONNX writes them."""


def parsed_without_large_tensors(model: Any, path: Path) -> bool:
    """Parse a file into an empty ModelProto, with its large initialisers as external data of the same file. Returns
    whether it was possible."""
    try:
        if path.resolve().parent != path.parent.resolve():
            return False  # a link to another folder, from which external data is not taken
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            parts, places = _without(data)
    except (_Odd, OSError, ValueError):
        return False
    if not places:
        return False
    from google.protobuf.message import DecodeError

    try:
        model.ParseFromString(b"".join(parts))
    except (DecodeError, RecursionError):
        model.Clear()
        return False
    for number, (offset, length) in places.items():
        tensor = model.graph.initializer[number]
        tensor.data_location = 1
        for key, value in (("location", path.name), ("offset", offset), ("length", length)):
            entry = tensor.external_data.add()
            entry.key, entry.value = key, str(value)
    return True


def _without(data: Any) -> tuple[list[bytes], dict[int, tuple[int, int]]]:
    """The parts of a model's bytes without large tensors, and where these are, by the number of the initialiser."""
    parts: list[bytes] = []
    places: dict[int, tuple[int, int]] = {}
    graphs = 0
    for number, kind, start, body, end in _fields(data, 0, len(data)):
        if number != _GRAPH or kind != _BYTES:
            parts.append(data[start:end])
            continue
        graphs += 1
        inside: list[bytes] = []
        count, since = 0, body
        for n, k, s, b, e in _fields(data, body, end):
            if n == _INITIALIZER and k == _BYTES:
                found = _raw_data(data, b, e) if e - b > _LARGE else None
                if found is not None:
                    first, at, last = found
                    places[count] = (at, last - at)
                    rest = data[b:first] + data[last:e]
                    inside += [data[since:s], data[s : s + 1], _varint(len(rest)), rest]
                    since = e
                count += 1
        inside.append(data[since:end])
        parts += [data[start : start + 1], _varint(sum(map(len, inside))), *inside]
    if graphs > 1:  # protobuf merges them
        raise _Odd
    return parts, places


def _raw_data(data: Any, start: int, end: int) -> tuple[int, int, int] | None:
    """The start of the field with a tensor's bytes, of the bytes, and their end; None if they are not large."""
    found = []
    for number, kind, s, b, e in _fields(data, start, end):
        if number in (_DATA_LOCATION, _EXTERNAL):
            return None
        if number == _RAW_DATA and kind == _BYTES:
            found.append((s, b, e))
    return found[0] if len(found) == 1 and found[0][2] - found[0][1] >= _LARGE else None


def _fields(data: Any, at: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """The fields of a message: number, kind, start, start of the value, end."""
    while at < end:
        start = at
        tag, at = _read_varint(data, at, end)
        number, kind = tag >> 3, tag & 7
        body = at
        if kind == 0:
            _, at = _read_varint(data, at, end)
        elif kind == _BYTES:
            length, body = _read_varint(data, at, end)
            at = body + length
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise _Odd
        if at > end or not number:
            raise _Odd
        yield number, kind, start, body, at


def _read_varint(data: Any, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise _Odd


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
