"""A model from a path, bytes or a ModelProto, fully validated: files are not trusted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from ....ir.errors import FrontendError
from ....runtime.ndarray import empty
from ...ty import MOST_DIMENSIONS
from .large_tensors import parsed_without_large_tensors

# Element types of ONNX by number, as they are stored here. Narrow ones are widened: an int4 is stored in an int8, a
# float8 as its byte.
_STORED = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    16: "bfloat16",
    17: "uint8",
    18: "uint8",
    19: "uint8",
    20: "uint8",
    21: "uint8",
    22: "int8",
    23: "uint8",
    24: "uint8",
    25: "uint8",
    26: "int8",
}
_NAMES = {0: "undefined", 8: "string", 14: "complex64", 15: "complex128"}
_PLAIN = frozenset((1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13))  # those whose bytes are NumPy's
_LIMIT = 1 << 40  # most elements of a valid tensor


def storage_dtype(elem: int) -> str:
    """The element type that a tensor of an ONNX type has here."""
    found = _STORED.get(elem)
    if found is None:
        raise FrontendError(f"tensors of {_NAMES.get(elem, f'element type {elem}')} are not supported")
    return found


def load_model(model: Any) -> tuple[Any, str, Path | None]:
    """The ModelProto, a name for messages, and the folder of external data."""
    import onnx

    if isinstance(model, onnx.ModelProto):
        return model, model.graph.name or "model", None
    if isinstance(model, (bytes, bytearray, memoryview)):
        return _parse(bytes(model), "model"), "model", None
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        made = onnx.ModelProto()
        if parsed_without_large_tensors(made, path):
            return made, str(path), path.parent
        try:
            data = path.read_bytes()
        except OSError as error:
            raise FrontendError(f"{path}: cannot be read: {error.strerror or error}") from None
        return _parse(data, str(path)), str(path), path.parent
    raise FrontendError(f"from_onnx takes a ModelProto, bytes or a path, not {type(model).__name__}")


def _parse(data: bytes, name: str) -> Any:
    import onnx
    from google.protobuf.message import DecodeError

    made = onnx.ModelProto()
    try:
        made.ParseFromString(data)
    except (DecodeError, RecursionError) as error:
        raise FrontendError(
            f"{name}: is not an ONNX model, or a damaged one ({len(data)} bytes): {error}"
        ) from None
    if not made.HasField("graph"):
        raise FrontendError(f"{name}: is not an ONNX model: it has no graph ({len(data)} bytes)")
    return made


def array_of(tensor: Any, folder: Path | None) -> np.ndarray[Any, Any]:
    """The values of a TensorProto in the element type they are stored with here."""
    from onnx import TensorProto, numpy_helper

    wanted: Any = np.dtype(storage_dtype(tensor.data_type)) if tensor.data_type != 16 else None
    count = 1
    if len(tensor.dims) > MOST_DIMENSIONS:
        raise FrontendError(
            f"tensor {tensor.name!r} has {len(tensor.dims)} dimensions, and {MOST_DIMENSIONS} are the most"
        )
    for d in tensor.dims:
        if d < 0:
            raise FrontendError(f"tensor {tensor.name!r} has a size of {d}")
        count *= d
    if count > _LIMIT:
        raise FrontendError(f"tensor {tensor.name!r} of shape {list(tensor.dims)} has {count} elements")
    if tensor.data_location == TensorProto.EXTERNAL:
        data = _external(tensor, folder, count * wanted.itemsize if tensor.data_type in _PLAIN else -1)
        if not isinstance(data, bytes):
            return data.view(wanted).reshape(tuple(tensor.dims))
        made = TensorProto()
        made.CopyFrom(tensor)
        made.raw_data = data
        made.data_location = TensorProto.DEFAULT
        del made.external_data[:]
        tensor = made
    try:
        found = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, RuntimeError) as error:
        raise FrontendError(
            f"tensor {tensor.name!r} of shape {list(tensor.dims)} is damaged: {error}"
        ) from None
    return stored(found, wanted)


def stored(found: np.ndarray[Any, Any], wanted: Any = None) -> np.ndarray[Any, Any]:
    """An array in the element type that it is stored with here: float8 as bytes, int4 in int8."""
    name = found.dtype.name
    if wanted is None or found.dtype == wanted:
        if name.startswith("float8"):
            return found.view(np.uint8)
        if name == "float4_e2m1fn":
            return found.view(np.uint8)
        small = {"int4": "int8", "uint4": "uint8", "int2": "int8", "uint2": "uint8"}.get(name)
        return found if small is None else found.astype(small)
    if name.startswith(("float8", "float4")):
        return found.view(np.uint8)
    return found.astype(wanted)


def _external(tensor: Any, folder: Path | None, wanted: int) -> bytes | np.ndarray[Any, Any]:
    """The bytes of a tensor in an external file, which must be in the model's folder; in memory of the alignment of
    NDArrays if they are as many as `wanted`."""
    facts = {e.key: e.value for e in tensor.external_data}
    place = facts.get("location", "")
    if folder is None:
        raise FrontendError(
            f"tensor {tensor.name!r} is in the file {place!r}: import the model by its path, or load its data first"
        )
    if "\0" in place:
        raise FrontendError(f"tensor {tensor.name!r} names {place!r}, which is not a valid file name")
    root = folder.resolve()
    if "\0" in place:
        raise FrontendError(f"tensor {tensor.name!r} names {place!r}, which is not the name of a file")
    path = (root / place).resolve()
    if not place or Path(place).is_absolute() or not path.is_relative_to(root) or path == root:
        raise FrontendError(
            f"tensor {tensor.name!r} names {place!r}, which is outside the model's folder {root}"
        )
    try:
        offset = int(facts.get("offset", 0))
        size = path.stat().st_size
        length = int(facts["length"]) if "length" in facts else size - offset
        if not path.is_file() or offset < 0 or length < 0 or offset + length > size:
            raise FrontendError(
                f"tensor {tensor.name!r}: {place!r} has no bytes {offset} to {offset + length}"
            )
        with path.open("rb", buffering=0) as file:
            file.seek(offset)
            if length != wanted:
                return file.read(length)
            held = np.asarray(empty((length,), "uint8"))
            view, done = memoryview(held), 0  # type: ignore[arg-type]
            while done < length:
                count = file.readinto(view[done:])
                if not count:
                    raise OSError("it became shorter while it was read")
                done += count
            return held
    except (OSError, ValueError) as error:
        raise FrontendError(f"tensor {tensor.name!r}: its file {place!r} cannot be read: {error}") from None
