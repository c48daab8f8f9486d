"""Arrays on a device and bound inputs and results, under onnxruntime's names: `OrtValue` and `IOBinding`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..runtime.devices import Device, cpu, device
from ..runtime.errors import ArgumentTypeError, ArgumentValueError
from ..runtime.ndarray import NDArray, array, empty, from_dlpack

ONNX_TYPES = {
    "float32": "float", "float64": "double", "int64": "int64", "int32": "int32", "int16": "int16", "int8": "int8",
    "uint8": "uint8", "uint16": "uint16", "uint32": "uint32", "uint64": "uint64", "bool": "bool", "float16": "float16",
    "bfloat16": "bfloat16",
}  # fmt: skip
_NUMBERS = {
    "float": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
    "double": 11, "uint32": 12, "uint64": 13, "bfloat16": 16,
}  # fmt: skip


def onnx_type(dtype: str) -> str:
    """An element type as onnxruntime writes it: `tensor(float)`."""
    return f"tensor({ONNX_TYPES.get(dtype, dtype)})"


def _dtype(kind: Any) -> str:
    """The name of an element type that is given as NumPy's, or as its number in ONNX."""
    if isinstance(kind, int):
        named = {number: name for name, number in _NUMBERS.items()}.get(kind)
        found = next((ours for ours, theirs in ONNX_TYPES.items() if theirs == named), None)
        if found is None:
            raise ArgumentValueError(f"there is no element type {kind}; known are {_NUMBERS}")
        return found
    return np.dtype(kind).name


class OrtValue:
    """An array on a device, as onnxruntime's programs pass it.

    x = OrtValue.ortvalue_from_numpy(image)
    (scores,) = session.run_with_ort_values(["scores"], {"image": x})
    """

    def __init__(self, value: NDArray) -> None:
        self._value = value

    @classmethod
    def ortvalue_from_numpy(cls, numpy_obj: Any, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        return cls(array(np.asarray(numpy_obj), device(device_type, device_id)))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls, shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        return cls(empty(tuple(shape), _dtype(element_type), device(device_type, device_id)))

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:
        return cls(from_dlpack(data))

    @property
    def ndarray(self) -> NDArray:
        """The array itself."""
        return self._value

    def numpy(self) -> np.ndarray[Any, Any]:
        return self._value.numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        made = self.numpy()
        return made if dtype is None else made.astype(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return self._value.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._value.__dlpack_device__()

    def update_inplace(self, data: Any) -> None:
        """New elements in the same memory."""
        self._value.copyfrom(np.asarray(data))

    def data_ptr(self) -> int:
        return self._value.data_ptr

    def data_type(self) -> str:
        return onnx_type(self._value.dtype)

    def element_type(self) -> int:
        return _NUMBERS[ONNX_TYPES[self._value.dtype]]

    def device_name(self) -> str:
        return _name_of(self._value.device)

    def shape(self) -> list[int]:
        return list(self._value.shape)

    def tensor_size_in_bytes(self) -> int:
        return self._value.nbytes

    def has_value(self) -> bool:
        return True

    def is_tensor(self) -> bool:
        return True

    def is_sparse_tensor(self) -> bool:
        return False

    def is_tensor_sequence(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"OrtValue({self.data_type()}, {self.shape()}, {self.device_name()})"


def _name_of(where: Device) -> str:
    return str(where).partition("(")[0]


Run = Callable[[Sequence[str], Mapping[str, Any]], list[NDArray]]


class IOBinding:
    """The inputs and results of a session with the memory that they are in: `session.io_binding()`."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Any] = {}  # where a result is written: an array, or the device of a new one
        self._made: list[OrtValue] = []

    def _known(self, name: str, nodes: Sequence[Any], what: str) -> None:
        if name not in (known := [n.name for n in nodes]):
            raise ArgumentValueError(f"there is no {what} {name!r}; there are {', '.join(known)}")

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        self._known(name, self._session.get_inputs(), "input")
        self._inputs[name] = np.asarray(arr_on_cpu)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        self._known(name, self._session.get_inputs(), "input")
        self._inputs[name] = ortvalue.ndarray

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        self._known(name, self._session.get_inputs(), "input")
        self._inputs[name] = _at(name, device_type, element_type, shape, buffer_ptr)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        self._known(name, self._session.get_outputs(), "result")
        if buffer_ptr is None:
            self._outputs[name] = device(device_type, device_id)
        elif element_type is None or shape is None:
            raise ArgumentValueError(f"the result {name!r}: buffer_ptr needs element_type and shape too")
        else:
            self._outputs[name] = _at(name, device_type, element_type, shape, buffer_ptr)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        self._known(name, self._session.get_outputs(), "result")
        self._outputs[name] = ortvalue

    def clear_binding_inputs(self) -> None:
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        self._outputs.clear()
        self._made = []

    def synchronize_inputs(self) -> None:
        """Runs wait for their inputs."""

    def synchronize_outputs(self) -> None:
        """A run is over when it returns."""

    def get_outputs(self) -> list[OrtValue]:
        return list(self._made)

    def copy_outputs_to_cpu(self) -> list[np.ndarray[Any, Any]]:
        return [value.numpy() for value in self._made]

    def run(self, run: Run) -> None:
        """Run on the bound inputs, and put the results where they are bound."""
        names = list(self._outputs)
        if not names:
            raise ArgumentValueError("no result is bound: call bind_output first")
        self._made = [
            _placed(name, made, self._outputs[name])
            for name, made in zip(names, run(names, self._inputs), strict=True)
        ]


def _at(name: str, device_type: str, element_type: Any, shape: Sequence[int], address: int) -> Any:
    """The array at an address in host memory."""
    if device_type != "cpu":
        raise ArgumentTypeError(
            f"{name!r}: addresses on {device_type} are not taken; bind an OrtValue: OrtValue.from_dlpack(x)"
        )
    kind = np.dtype(_dtype(element_type))
    count = int(np.prod(shape)) * kind.itemsize
    memory = (ctypes.c_char * count).from_address(address)
    return np.frombuffer(memoryview(memory), kind).reshape(tuple(shape))


def _placed(name: str, made: NDArray, where: Any) -> OrtValue:
    """A result in the array, or on the device, that is bound for it."""
    if isinstance(where, Device):
        return OrtValue(made if made.device == where else made.copyto(where))
    target = where.ndarray if isinstance(where, OrtValue) else where
    if tuple(target.shape) != made.shape or str(target.dtype) != made.dtype:
        raise ArgumentValueError(
            f"the result {name!r} is {made.dtype}{list(made.shape)}, and {target.dtype}{list(target.shape)} is bound"
        )
    if isinstance(where, OrtValue):
        made.copyto(where.ndarray)
        return where
    target[...] = made.numpy()
    return OrtValue(array(target, cpu(0)))
