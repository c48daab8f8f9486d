"""Programs of the virtual machine on a device: Python on the host launches kernels in order, and nothing waits for them
but reads of values.

    (address, shape, dtype, owner)     a tensor, as on the CPU; its owner is a `Place`, and the address is not used

A place says where the values are: on the device, on the host, or on both. A kernel of the device uploads what is only
on the host. Kernels without code for the device, conditions of branches and shape functions download what is only on
the device, which waits for it.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from .devices import Device, device_api
from .dtypes import ELEMENTS
from .errors import ArgumentValueError
from .layout import Layout, layout_of
from .ndarray import ALIGNMENT, NDArray, _DeviceMemory, _make, array, from_dlpack
from .pool import Block, Pool, Storage
from .reports import check_reports
from .vm_code import FunctionText, operand_text, size_text
from .vm_values import HostTensors, Tensor, rows_of, shapes, values_at, written

_SMALL: Final = 1024  # bytes of integers that are often sizes: they are uploaded when a kernel reads them


class Place:
    """The places of a tensor's values: addresses on the device and on the host, 0 where they are not, and the owners of
    the memory there. The owner of an argument is a pair: the caller's value, and what it keeps alive."""

    __slots__ = ("device", "here", "host", "nbytes", "there")

    def __init__(
        self, nbytes: int, device: int = 0, there: object = None, host: int = 0, here: object = None
    ) -> None:
        self.nbytes, self.device, self.there, self.host, self.here = nbytes, device, there, host, here


class DevicePool(Pool):
    """Blocks of memory on a device. A block that is given back may be taken at once: the kernels that used it were
    launched before those that will."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.device = device

    def allocated(self, size: int) -> Block:
        try:
            memory = _DeviceMemory(self.device, size)
        except MemoryError:
            self.trim()
            memory = _DeviceMemory(self.device, size)
        return memory.address, memory


class DeviceTensors(HostTensors):
    """The tensors of a program for a device."""

    def __init__(self, device: Device) -> None:
        self.device, self.index, self.api = device, device.device_id, device_api(device)
        self.device_type = device.device_type
        self.pool = DevicePool(device)
        self._pools = {0: self.pool}  # by stream: memory is reused in the order of its launches
        self._host_pool = Pool()
        self._constants: dict[int, Tensor] = {}
        self._lock = threading.RLock()

    def callbacks(self) -> dict[str, Any]:
        return {
            "on_device": self.on_device, "on_host": self.on_host, "up": self.up, "down": self.down,
            "truth": ctypes.c_uint8.from_address, "shapes": self.shapes, "update": self.update, "put": self.put,
            "sync": self.sync,
        }  # fmt: skip

    # -- memory --------------------------------------------------------------------------------------
    def on_device(self, nbytes: int) -> Place:
        """New memory on the device."""
        made = self._taken(nbytes)
        return Place(nbytes, made.address, made)

    def _taken(self, nbytes: int) -> Storage:
        stream = self.api.stream(self.index)
        pool = self._pools.get(stream)
        if pool is None:
            pool = self._pools[stream] = DevicePool(self.device)
        return pool.take(nbytes)

    def on_host(self, nbytes: int) -> Place:
        """New memory on the host."""
        made = self._host_pool.take(nbytes)
        return Place(nbytes, host=made.address, here=made)

    def up(self, tensor: Tensor) -> int:
        """The address on the device of values that are only on the host: they are copied."""
        place: Place = tensor[3]
        with self._lock:
            if not place.device:
                made = self._taken(place.nbytes)
                if place.nbytes:
                    self.api.upload(self.index, made.address, place.host, place.nbytes)
                place.there, place.device = made, made.address
        return place.device

    def down(self, tensor: Tensor) -> int:
        """The address on the host of values that are only on the device: they are awaited and copied."""
        place: Place = tensor[3]
        with self._lock:
            if not place.host:
                made = self._host_pool.take(place.nbytes)
                if place.nbytes:
                    self.api.download(self.index, place.device, made.address, place.nbytes)
                    check_reports(self.api, self.index)
                place.here, place.host = made, made.address
        return place.host

    def sync(self) -> None:
        self.api.sync(self.index)

    # -- arguments -----------------------------------------------------------------------------------
    def accept(self, layout: Layout, name: str) -> None:
        if layout.device_type != 1 and (layout.device_type, layout.device_id) != (
            self.device_type,
            self.index,
        ):
            given = Device(layout.device_type, layout.device_id)
            raise ArgumentValueError(
                f"argument {name!r} must be on {self.device} or on the CPU, not on {given}"
            )
        if layout.device_type != 1 and layout.strides is not None:
            raise ArgumentValueError(f"argument {name!r} must be contiguous to be read on {self.device}")

    def tensor(self, value: Any, layout: Layout, address: int, keep: object) -> Tensor:
        if layout.device_type == 1:
            if layout.strides is not None or address % ELEMENTS[layout.dtype].itemsize:
                return self.of_array(array(value))
            return 0, layout.shape, layout.dtype, Place(_bytes(layout), host=address, here=(value, keep))
        if not isinstance(value, NDArray):
            keep = from_dlpack(value)  # waits for the stream of its package
        place = Place(_bytes(layout), address, (value, keep))
        if not address or address % ALIGNMENT:
            place = self._copied(place)
        return 0, layout.shape, layout.dtype, place

    def _copied(self, place: Place) -> Place:
        """The values of a place in new memory of the device."""
        made = self.on_device(place.nbytes)
        if place.nbytes:
            self.api.copy(self.index, made.device, place.device, place.nbytes)
        return made

    def of_array(self, made: NDArray) -> Tensor:
        if made.device == self.device:
            place = Place(made.nbytes, made._tw_ptr, made)
        else:
            place = Place(made.nbytes, host=made._tw_ptr, here=made)
        return 0, made.shape, made.dtype, place

    def constant(self, made: NDArray) -> Tensor:
        """A constant on the host and on the device, uploaded once."""
        found = self._constants.get(id(made))
        if found is None:
            there = made.copyto(self.device)
            place = Place(made.nbytes, there._tw_ptr, there, made._tw_ptr, made)
            found = self._constants[id(made)] = (0, made.shape, made.dtype, place)
        return found

    def given(self, tensor: Tensor) -> Any:
        """The array of an argument, whatever was copied of it."""
        place: Place = tensor[3]
        owner = place.here if place.here is not None else place.there
        if owner.__class__ is tuple:
            return owner[0]  # type: ignore[index]
        return owner if isinstance(owner, NDArray) else self.array(tensor)

    def before(self, given: Sequence[Any]) -> None:
        """Upload arguments while the device has nothing to do: a copy waits for the kernels before it."""
        for tensor in _tensors(given):
            place: Place = tensor[3]
            if not place.device and (place.nbytes > _SMALL or not ELEMENTS[tensor[2]].is_integer):
                self.up(tensor)

    def values(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        place: Place = tensor[3]
        address = place.host or self.down(tensor)
        return values_at((address, *tensor[1:3], place))

    # -- results -------------------------------------------------------------------------------------
    def array(self, tensor: Tensor) -> NDArray:
        """A tensor as an array on the device; constants, and arguments that were there, are copied."""
        _, shape, dtype, place = tensor
        if not place.device:
            self.up(tensor)
        if place.there.__class__ is not Storage:
            place = self._copied(place)
        layout = layout_of(dtype, shape, None, self.device_type, self.index)
        return _make(layout, place.device, None, place.there)

    # -- instructions --------------------------------------------------------------------------------
    def shapes(self, name: str, attrs: dict[str, Any], tensors: tuple[Tensor, ...], count: int) -> list[int]:
        return shapes(name, attrs, [_Read(self, t) for t in tensors], count)

    def update(self, cache: Tensor, rows: Tensor) -> None:
        """Overwrite the last elements of an argument with those of another tensor."""
        value, size, new = self._writable(cache, rows)
        self._write(cache, value, [(size - new, 0, new)], rows)

    def put(self, cache: Tensor, rows: Tensor, positions: Tensor) -> None:
        """Overwrite rows of an argument; a negative position counts from its end."""
        value, size, new = self._writable(cache, rows)
        place: Place = positions[3]
        places = rows_of(cache, rows, (place.host or self.down(positions), *positions[1:]))
        if not places:
            return
        row, width = size // cache[1][0], new // len(places)
        parts: list[tuple[int, int, int]] = []
        for i, at in enumerate(places):
            if parts and parts[-1][0] + parts[-1][2] == at * row:  # the row after the last one
                target, source, length = parts.pop()
                parts.append((target, source, length + width))
            else:
                parts.append((at * row, i * width, width))
        self._write(cache, value, parts, rows)

    def _writable(self, cache: Tensor, rows: Tensor) -> tuple[Any, int, int]:
        place: Place = cache[3]
        owner = place.here if place.here.__class__ is tuple else place.there
        value = owner[0] if owner.__class__ is tuple else None  # type: ignore[index]
        return (value, *written(cache, rows, value))

    def _write(self, cache: Tensor, value: Any, parts: list[tuple[int, int, int]], rows: Tensor) -> None:
        """Copy parts of a tensor (to, from, bytes) into an argument, wherever its values are."""
        place, new = cache[3], rows[3]
        if place.host:
            source = new.host or self.down(rows)
            for target, start, length in parts:
                ctypes.memmove(place.host + target, source + start, length)
        if place.device:
            source = new.device or self.up(rows)
            for target, start, length in parts:
                self.api.copy_part(self.index, place.device, target, source, start, length)


class _Read(NDArrayOperatorsMixin):
    """A tensor for a shape function, which downloads the values only if the function reads them."""

    def __init__(self, tensors: DeviceTensors, tensor: Tensor) -> None:
        self._tensors, self._tensor = tensors, tensor
        self.shape, self.ndim, self.size = tensor[1], len(tensor[1]), math.prod(tensor[1])

    @property
    def dtype(self) -> Any:
        return ELEMENTS[self._tensor[2]].numpy

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self._tensors.values(self._tensor), dtype)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        given = [np.asarray(x) if isinstance(x, _Read) else x for x in inputs]
        return getattr(function, method)(*given, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tensors.values(self._tensor), name)

    def __getitem__(self, index: Any) -> Any:
        return self._tensors.values(self._tensor)[index]

    def __len__(self) -> int:
        return self.shape[0]


def _bytes(layout: Layout) -> int:
    return layout.size * ELEMENTS[layout.dtype].itemsize


def _tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    for v in values:
        if v.__class__ is tuple:
            yield v
        elif v.__class__ is list:
            yield from _tensors(v)


# ---------------------------------------------------------------------------- as Python
class DeviceText(FunctionText):
    """A function of a program for a device as Python text.

    r1 = (0, (s0, 4,), 'float32', on_device(s0 * 16))
    e = k0(r0[3].device or up(r0), r1[3].device, s0)
    if e: fail(0, e)
    """

    def on_run(self, depth: int, kernel: int, args: Any, outs: Any, symbols: Any) -> None:
        there = self.kernels[self.program.kernels[kernel]].device != "cpu"
        where, copy = ("device", "up") if there else ("host", "down")
        for r, dtype, dims in outs:
            memory = f"on_{where}({self.bytes(dtype, dims)})"
            self.put(depth, f"r{r} = (0, {self.shape(dims)}, {dtype!r}, {memory})")
        given = []
        for a in args:
            if not isinstance(a, list):
                x = operand_text(a)
                given.append(f"{x}[3].{where} or {copy}({x})")
            elif a[0] == "o":
                given.append(f"r{outs[a[1]][0]}[3].{where}")
            else:
                given.append(size_text(a[1]))
        given += [size_text(s) for s in symbols]
        if self.timed:
            self.put(depth, "sync()")
            self.put(depth, "t = clock()")
        self.put(depth, f"e = k{kernel}({', '.join(given)})")
        if self.timed:
            self.put(depth, "sync()")
            self.took(depth, kernel, args, outs, symbols)
        self.put(depth, f"if e: fail({kernel}, e)")

    def truth(self, x: str) -> str:
        return f"truth({x}[3].host or down({x})).value"
