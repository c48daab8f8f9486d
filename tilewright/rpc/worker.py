"""The server side of one session: its files, arrays, modules and functions, which are freed at its end."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..runtime.devices import Device, device_api
from ..runtime.module import Module, load_module
from ..runtime.ndarray import NDArray, empty
from ..runtime.registry import get_global_func
from ..runtime.timing import BenchmarkResult, time_evaluator
from .base import RPCError

Answer = tuple[Any, list[bytes]]


class _Request(dict[str, Any]):
    """A message; a missing field is an error with its name."""

    def __missing__(self, field: str) -> Any:
        raise RPCError(f"the request {self.get('do')!r} lacks `{field}`")


class Worker:
    """The server side of a session: requests by name, each with plain values and bytes, and plain answers.

    Arrays are identified by opaque addresses, objects by numbers.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._own = None if folder is not None else tempfile.TemporaryDirectory(prefix="tilewright-rpc-")
        self._folder = os.path.realpath(folder or self._own.name)  # type: ignore[union-attr]
        self._numbers = itertools.count(1)
        self._arrays: dict[int, NDArray] = {}
        self._objects: dict[int, Any] = {}

    def answer(self, message: dict[str, Any], parts: Sequence[bytes]) -> Answer:
        """Handle a request."""
        message = _Request(message)
        for number in message.get("drop", ()):
            self._arrays.pop(number, None)
            self._objects.pop(number, None)
        ask: Callable[..., Answer] | None = getattr(self, f"_do_{message.get('do')}", None)
        if ask is None:
            raise RPCError(
                f"there is no request {message.get('do')!r}; the two sides are of different versions"
            )
        return ask(message, parts)

    def close(self) -> None:
        """Free all objects."""
        self._arrays.clear()
        self._objects.clear()
        if self._own is not None:
            self._own.cleanup()

    # -- files -----------------------------------------------------------------------------
    def _path(self, name: str) -> str:
        path = os.path.realpath(os.path.join(self._folder, name))
        if not path.startswith(self._folder + os.sep):
            raise RPCError(f"{name!r}: files of a session must be in its folder")
        return path

    def _do_upload(self, message: dict[str, Any], parts: Sequence[bytes]) -> Answer:
        path = self._path(message["name"])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(parts[0])
        return None, []

    def _do_download(self, message: dict[str, Any], parts: Sequence[bytes]) -> Answer:
        with open(self._path(message["name"]), "rb") as file:
            return None, [file.read()]

    def _do_remove(self, message: dict[str, Any], parts: Sequence[bytes]) -> Answer:
        os.remove(self._path(message["name"]))
        return None, []

    def _do_list(self, message: dict[str, Any], parts: Sequence[bytes]) -> Answer:
        return sorted(os.listdir(self._folder)), []

    # -- arrays ----------------------------------------------------------------------------
    def _do_count(self, message: dict[str, Any], parts: Sequence[bytes]) -> Answer:
        kind, count = message["kind"], 0
        while Device(kind, count).exist:
            count += 1
        return count, []

    def _do_attribute(self, message: dict[str, Any], parts: Sequence[bytes]) -> Answer:
        return Device(*message["device"])._attribute(message["name"]), []

    def _do_sync(self, message: dict[str, Any], parts: Sequence[bytes]) -> Answer:
        Device(*message["device"]).sync()
        return None, []

    def _do_allocate(self, message: dict[str, Any], parts: Sequence[bytes]) -> Answer:
        return self._keep_array(empty((message["nbytes"],), "uint8", Device(*message["device"]))), []

    def _keep_array(self, array: NDArray) -> int:
        number = next(self._numbers)
        self._arrays[number] = array
        return number

    def _array(self, number: int) -> NDArray:
        found = self._arrays.get(number)
        if found is None:
            raise RPCError(f"array {number} does not belong to this session")
        return found

    def _do_write(self, message: dict[str, Any], parts: Sequence[bytes]) -> Answer:
        held = self._array(message["array"])
        plain = np.frombuffer(parts[0], np.uint8)
        if plain.nbytes > held.nbytes:
            raise RPCError(f"{plain.nbytes} bytes do not fit into an array of {held.nbytes}")
        if held.device.device_type == 1:
            np.asarray(held).reshape(-1).view(np.uint8)[: plain.size] = plain
        else:
            api = device_api(held.device)
            api.upload(held.device.device_id, held.data_ptr, plain.ctypes.data, plain.nbytes)
        return None, []

    def _do_read(self, message: dict[str, Any], parts: Sequence[bytes]) -> Answer:
        return None, [self._array(message["array"]).numpy().tobytes()[: message["nbytes"]]]

    def _do_copy(self, message: dict[str, Any], parts: Sequence[bytes]) -> Answer:
        self._array(message["to"]).copyfrom(self._array(message["array"]))
        return None, []

    # -- modules and functions -------------------------------------------------------------
    def _keep(self, thing: Any) -> int:
        number = next(self._numbers)
        self._objects[number] = thing
        return number

    def _do_load(self, message: dict[str, Any], parts: Sequence[bytes]) -> Answer:
        module = load_module(self._path(message["name"]))
        entry = module._entry() if hasattr(module, "_entry") else None
        return {"object": self._keep(module), "name": module.name, "entry": entry}, []

    def _do_global(self, message: dict[str, Any], parts: Sequence[bytes]) -> Answer:
        return {"object": self._keep(get_global_func(message["name"]))}, []

    def _do_member(self, message: dict[str, Any], parts: Sequence[bytes]) -> Answer:
        return {"object": self._keep(self._function(message))}, []

    def _do_call(self, message: dict[str, Any], parts: Sequence[bytes]) -> Answer:
        function, args = self._function(message), self._values(message["args"], parts)
        named = dict(zip(message["names"], self._values(message["named"], parts), strict=True))
        return self._plain(function(*args, **named))

    def _do_time(self, message: dict[str, Any], parts: Sequence[bytes]) -> Answer:
        device, options = Device(*message["device"]), message["options"]
        measure = time_evaluator(self._function(message), device, **options)
        return measure(*self._values(message["args"], parts)).results, []

    def _function(self, message: dict[str, Any]) -> Any:
        thing, name = self._objects.get(message["object"]), message.get("member")
        if thing is None:
            raise RPCError(f"object {message['object']} does not belong to this session")
        if name is None:
            return thing
        if isinstance(thing, Module):
            return thing.get_function(name, query_imports=True)
        if name.startswith("_"):
            raise RPCError(f"{name!r} cannot be called remotely")
        return getattr(thing, name)

    def _values(self, given: Sequence[Any], parts: Sequence[bytes]) -> list[Any]:
        return [self._value(v, parts) for v in given]

    def _value(self, given: Any, parts: Sequence[bytes]) -> Any:
        """The value of a plain description."""
        if not isinstance(given, dict):
            return given
        kind, what = next(iter(given.items()))
        if kind == "array":
            held = self._array(what)
            return held._create_view(tuple(given["shape"]), given["dtype"]) if held.size else held
        if kind == "copy":
            made = empty(tuple(given["shape"]), given["dtype"])
            values = np.asarray(made)
            values.reshape(-1).view(np.uint8)[:] = np.frombuffer(parts[what], np.uint8)
            return values if given.get("of_numpy") else made  # an input converts arrays of NumPy
        if kind == "device":
            return Device(*what)
        if kind == "bytes":
            return parts[what]
        if kind == "object":
            return self._objects[what]
        return self._values(what, parts)

    def _plain(self, result: Any) -> Answer:
        """A result in the form that is sent."""
        if result is None or isinstance(result, (bool, int, float, str)):
            return result, []
        if isinstance(result, NDArray):
            dense = result if result.is_contiguous() else empty(result.shape, result.dtype).copyfrom(result)
            device = [dense.device.device_type, dense.device.device_id]
            return {
                "array": self._keep_array(dense),
                "shape": list(dense.shape),
                "dtype": dense.dtype,
                "device": device,
            }, []
        if isinstance(result, BenchmarkResult):
            return {"times": result.results}, []
        if isinstance(result, (bytes, bytearray)):
            return {"bytes": 0}, [bytes(result)]
        if isinstance(result, (list, tuple)):
            several = [self._plain(r) for r in result]
            if not any(more for _, more in several):
                return {"list" if isinstance(result, list) else "tuple": [r for r, _ in several]}, []
        if isinstance(result, dict):
            (names, _), (values, more) = self._plain(list(result)), self._plain(list(result.values()))
            if not more:
                return {"dict": [names, values]}, []
        return {"object": self._keep(result)}, []
