"""Arrays: dense tensors on a device, shared with NumPy, PyTorch and JAX where they can be."""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from . import dlpack
from .devices import Device, device_api
from .devices import cl as cl
from .devices import cpu as cpu
from .devices import cuda as cuda
from .devices import device as device
from .devices import ext_dev as ext_dev
from .devices import gpu as gpu
from .devices import hexagon as hexagon
from .devices import metal as metal
from .devices import opencl as opencl
from .devices import rocm as rocm
from .devices import vulkan as vulkan
from .devices import webgpu as webgpu
from .dtypes import ELEMENTS, Element, element, name_of_numpy
from .layout import Layout, layout_of
from .reports import check_reports

_SHAREABLE = (2,)  # kinds of devices whose addresses are valid in other packages: CUDA
ALIGNMENT = 64  # a cache line, and the widest vector register


class NDArray:
    """A tensor in the memory of a device.

    On the CPU it is backed by a NumPy array, and `numpy.asarray(x)` shares that memory; `x.numpy()` returns a copy, for
    programs that keep the result and overwrite `x`.
    """

    __slots__ = ("__weakref__", "_host", "_owner", "_tw_layout", "_tw_ptr")

    _host: np.ndarray[Any, Any] | None
    _owner: object
    _tw_layout: Layout
    _tw_ptr: int

    def __init__(self) -> None:
        raise TypeError("arrays are made with nd.array(values), nd.empty(shape, dtype) or nd.from_dlpack(x)")

    # -- parts -----------------------------------------------------------------------------
    @property
    def shape(self) -> tuple[int, ...]:
        return self._tw_layout.shape

    @property
    def dtype(self) -> str:
        return self._tw_layout.dtype

    @property
    def device(self) -> Device:
        return Device(self._tw_layout.device_type, self._tw_layout.device_id)

    @property
    def ctx(self) -> Device:
        """The old name of `device`."""
        return self.device

    @property
    def ndim(self) -> int:
        return len(self._tw_layout.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._tw_layout.size

    @property
    def nbytes(self) -> int:
        return self._tw_layout.size * ELEMENTS[self._tw_layout.dtype].itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides in elements."""
        return self._tw_layout.all_strides()

    @property
    def data_ptr(self) -> int:
        """The address of the first element on its device."""
        return self._tw_ptr

    def is_contiguous(self) -> bool:
        """Whether the array is contiguous and row-major."""
        return self._tw_layout.strides is None

    def same_as(self, other: object) -> bool:
        """Whether both are the same array, not only equal ones."""
        return self is other

    # -- values in and out -----------------------------------------------------------------
    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy of the values as a NumPy array."""
        if self._host is not None:
            return np.array(self._host, order="C")
        out = np.empty(self.shape, ELEMENTS[self.dtype].numpy)
        if out.size:
            self._check_dense()
            api, index = device_api(self.device), self._tw_layout.device_id
            api.download(index, self._tw_ptr, out.ctypes.data, out.nbytes)
            check_reports(api, index)
        return out

    def _check_dense(self) -> None:
        if self._tw_layout.strides is not None:
            raise ValueError(
                f"the array on {self.device} has strides {self.strides}; only dense ones can be copied as they are"
            )

    def _same_place(self, other: NDArray) -> bool:
        """Whether both are dense arrays of the same device, type and shape."""
        a, b = self._tw_layout, other._tw_layout
        return (
            a.strides is None
            and b.strides is None
            and (a.device_type, a.device_id, a.dtype, a.shape)
            == (b.device_type, b.device_id, b.dtype, b.shape)
            and b.writeable
        )

    def asnumpy(self) -> np.ndarray[Any, Any]:
        """The old name of `numpy`."""
        return self.numpy()

    def item(self) -> Any:
        """The one value of an array of one element."""
        return self.numpy().item()

    def copyfrom(self, source: Any) -> NDArray:
        """Overwrite all values; the shapes must be the same, other types are converted."""
        if isinstance(source, NDArray) and source._host is None and source._same_place(self):
            api, index = device_api(self.device), self._tw_layout.device_id
            api.copy(index, self._tw_ptr, source._tw_ptr, self.nbytes)
            return self
        refuse_masked(source)
        values = source._values() if isinstance(source, NDArray) else np.asarray(source)
        if values.shape != self.shape:
            raise ValueError(
                f"cannot copy values of shape {values.shape} into an array of shape {self.shape}"
            )
        if not self._tw_layout.writeable:
            raise ValueError("cannot copy into an array that shares read-only memory")
        if self._host is not None:
            self._host[...] = values
        elif values.size:
            self._check_dense()
            plain = np.ascontiguousarray(values, ELEMENTS[self.dtype].numpy)
            api, index = device_api(self.device), self._tw_layout.device_id
            api.upload(index, self._tw_ptr, plain.ctypes.data, plain.nbytes)
        return self

    def copyto(self, target: NDArray | Device, mem_scope: str | None = None) -> NDArray:
        """Copy into another array of the same shape and type, or into a new one on a device."""
        if isinstance(target, Device):
            return empty(self.shape, self.dtype, target, mem_scope).copyfrom(self)
        if not isinstance(target, NDArray):
            raise TypeError(f"copyto takes an NDArray or a Device, not {type(target).__name__}")
        if target.dtype != self.dtype:
            raise ValueError(f"cannot copy an array of {self.dtype} into one of {target.dtype}")
        return target.copyfrom(self)

    def _values(self) -> np.ndarray[Any, Any]:
        """The values for reading, without a copy if the host can access the memory."""
        return self._host if self._host is not None else self.numpy()

    @property
    def is_view(self) -> bool:
        """Whether it is the memory of a caller, which ends with the call; an array here keeps its memory alive."""
        return False

    def _create_view(self, shape: Any, dtype: Any = None, relative_byte_offset: int = 0) -> NDArray:
        """A view of the same memory, or of a part of it, with another shape or type."""
        if not self.is_contiguous():
            raise ValueError("only dense arrays can be viewed under another shape")
        kind = element(dtype) if dtype is not None else ELEMENTS[self.dtype]
        extents = self._extents(shape, kind)
        start, size = int(relative_byte_offset), math.prod(extents) * kind.itemsize
        if start < 0 or start + size > self.nbytes:
            raise ValueError(
                f"a view of shape {tuple(extents)} and type {kind.name} at byte {start} would occupy bytes "
                f"{start} <= i_byte < {start + size}, but the NDArray being viewed only contains {self.nbytes} bytes"
            )
        if start % kind.itemsize:
            raise ValueError(f"a view of {kind.name} cannot begin at byte {start}")
        if self._host is None:
            held = self._tw_layout
            layout = layout_of(
                kind.name, tuple(extents), None, held.device_type, held.device_id, held.writeable
            )
            return _make(layout, self._tw_ptr + start, None, self)
        part = self._host.reshape(-1).view(np.uint8)[start : start + size]
        return _of_host(part.view(kind.numpy).reshape(extents))

    def _extents(self, shape: Any, kind: Any) -> list[int]:
        """A shape with its -1, if it has one, filled in by what is left of the memory."""
        extents = list(_shape(tuple(shape) if hasattr(shape, "__iter__") else (shape,), True))
        if -1 in extents:
            known = math.prod(e for e in extents if e != -1)
            rest = self.nbytes // kind.itemsize
            if extents.count(-1) > 1 or not known or rest % known:
                raise ValueError(
                    f"{self.nbytes} bytes cannot be viewed as {kind.name} of shape {tuple(shape)}"
                )
            extents[extents.index(-1)] = rest // known
        return extents

    def reshape(self, *shape: Any) -> NDArray:
        """A view of the same memory with another shape."""
        wanted = shape[0] if len(shape) == 1 else shape
        extents = self._extents(wanted, ELEMENTS[self.dtype])
        if math.prod(extents) * ELEMENTS[self.dtype].itemsize != self.nbytes:
            raise ValueError(f"cannot reshape array of shape {self.shape} into shape {tuple(extents)}")
        return self._create_view(extents)

    # -- as a Python sequence --------------------------------------------------------------
    def __getitem__(self, index: Any) -> Any:
        """An element as a scalar; a part as an array that shares the memory."""
        if _is_whole(index):
            return self
        if self._host is None:
            raise ValueError(f"elements of an array on {self.device} are read with .numpy()[index]")
        found = self._host[index]
        return _of_host(found) if isinstance(found, np.ndarray) else found

    def __setitem__(self, index: Any, value: Any) -> None:
        values = value._values() if isinstance(value, NDArray) else value
        if _is_whole(index):
            self.copyfrom(np.broadcast_to(np.asarray(values), self.shape))
        elif self._host is None:
            raise ValueError(f"an array on {self.device} is written as a whole: x[:] = values")
        else:
            if not self._tw_layout.writeable:
                raise ValueError("cannot write to an array that shares read-only memory")
            self._host[index] = values

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array of zero dimensions has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        return bool(self._values())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __repr__(self) -> str:
        return f"<NDArray shape={self.shape}, dtype={self.dtype}, device={self.device}>\n{self._values()!r}"

    def __reduce__(self) -> tuple[Any, ...]:
        return array, (self.numpy(), self.device)  # so that worker processes can be sent arrays

    # -- sharing with other packages ---------------------------------------------------------
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        values = self._values()
        if dtype is not None and np.dtype(dtype) != values.dtype:
            if copy is False:
                raise ValueError(f"an array of {self.dtype} cannot become {np.dtype(dtype)} without a copy")
            return values.astype(dtype)
        return values.copy() if copy else values

    def to_dlpack(self) -> Any:
        """A DLPack capsule that shares the memory."""
        return self.__dlpack__()

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        if self._host is None:
            if self._tw_layout.device_type not in _SHAREABLE:
                raise BufferError(
                    f"an array on {self.device} cannot be exported by DLPack; copy it to the CPU"
                )
            api, index = device_api(self.device), self._tw_layout.device_id
            if stream != -1 and (stream or dlpack.DEFAULT_STREAM) != (
                api.stream(index) or dlpack.DEFAULT_STREAM
            ):
                api.sync(index)  # the consumer works on another stream
                check_reports(api, index)
            return dlpack.export_device(self._tw_ptr, self._tw_layout, ELEMENTS[self.dtype], self)
        options = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        return dlpack.export_host(self._host, ELEMENTS[self.dtype], options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._tw_layout.device_type, self._tw_layout.device_id


def _is_whole(index: Any) -> bool:
    return index is ... or (isinstance(index, slice) and index == slice(None))


class _DeviceMemory:
    """Memory on a device, freed when no array uses it any more."""

    __slots__ = ("_api", "_index", "address")

    def __init__(self, dev: Device, nbytes: int) -> None:
        self._api, self._index = device_api(dev), dev.device_id  # at exit, names of modules are gone
        self.address = self._api.allocate(self._index, nbytes)

    def __del__(self) -> None:
        if hasattr(self, "address"):
            self._api.release(self._index, self.address)


class _Part:
    """A part of memory on a device; it keeps the whole alive."""

    __slots__ = ("_device", "_whole", "address")

    def __init__(self, whole: NDArray, offset: int, nbytes: int) -> None:
        self._whole, self._device = whole, whole.device
        api = device_api(self._device)
        self.address = api.part(self._device.device_id, whole._tw_ptr, offset, nbytes)

    def __del__(self) -> None:
        if hasattr(self, "address"):
            device_api(self._device).drop_part(self._device.device_id, self.address)


def part_of(memory: NDArray, offset: int, dtype: str, shape: tuple[int, ...]) -> NDArray:
    """A dense tensor at an offset of an array on a device."""
    held, nbytes = memory._tw_layout, ELEMENTS[dtype].itemsize
    for extent in shape:
        nbytes *= extent
    if offset + nbytes > memory.nbytes:
        raise ValueError(f"{nbytes} bytes at {offset} are not within an array of {memory.nbytes} bytes")
    part = _Part(memory, offset, nbytes)
    layout = layout_of(dtype, shape, None, held.device_type, held.device_id, held.writeable)
    return _make(layout, part.address, None, part)


def _make(layout: Layout, address: int, host: np.ndarray[Any, Any] | None, owner: object = None) -> NDArray:
    made = object.__new__(NDArray)
    made._tw_layout = layout
    made._tw_ptr = address
    made._host = host
    made._owner = owner
    return made


def _of_host(values: np.ndarray[Any, Any]) -> NDArray:
    """An array on a NumPy array's memory."""
    kind = element(values.dtype)
    layout, address = host_layout(values, kind)
    return _make(layout, address, values)


def refuse_masked(values: object) -> None:
    """Refuse NumPy's masked arrays: masked elements would count, as the mask is not part of the memory."""
    masks = sys.modules.get("numpy.ma")
    if masks is not None and isinstance(values, masks.MaskedArray):
        raise ValueError(
            "it is a masked array, whose mask would be lost; pass x.filled(value), or x.data to ignore the mask"
        )


def host_layout(values: np.ndarray[Any, Any], kind: Element | None = None) -> tuple[Layout, int]:
    """Layout and address of a NumPy array."""
    interface = values.__array_interface__
    address, read_only = interface["data"]
    strides = interface["strides"]
    name = kind.name if kind is not None else name_of_numpy(values.dtype)
    if strides is not None:
        itemsize = values.dtype.itemsize
        if any(stride % itemsize for stride in strides):
            raise ValueError(f"strides of {strides} bytes are not whole elements of {itemsize} bytes")
        strides = tuple(stride // itemsize for stride in strides)
    return layout_of(name, interface["shape"], strides, writeable=not read_only), address


def _of_borrowed(taken: dlpack.Borrowed) -> NDArray:
    host = None
    if taken.layout.device_type == 1:
        host = dlpack.host_array(taken.address, taken.element, taken.layout, taken)
    return _make(taken.layout, taken.address, host, taken)


def of_tensor(address: int) -> NDArray:
    """A view of a `DLTensor` at an address; it is valid as long as the tensor's memory."""
    tensor = dlpack.DLTensor.from_address(address)
    start, kind, layout = dlpack.tensor_parts(tensor)
    host = dlpack.host_array(start, kind, layout, None) if layout.device_type == 1 else None
    return _make(layout, start, host)


def _shape(shape: Any, one_open: bool = False) -> tuple[int, ...]:
    try:
        extents = (shape,) if isinstance(shape, int) else tuple(_extent(extent) for extent in shape)
    except TypeError as error:
        raise TypeError(f"a shape is a tuple of integers, not {shape!r}") from error
    if one_open and sum(extent == -1 for extent in extents) == 1:
        return extents
    if any(extent < 0 for extent in extents):
        raise ValueError(f"the shape {extents} has a negative extent")
    return extents


def _extent(value: Any) -> int:
    """An extent given as an integer or as a constant of the IR, which carries its `value`."""
    if hasattr(value, "__index__"):
        return int(value.__index__())
    constant = getattr(value, "value", value)
    if isinstance(constant, int):
        return constant
    raise TypeError(value)


def empty(shape: Any, dtype: Any = "float32", device: Any = None, mem_scope: str | None = None) -> NDArray:
    """A new uninitialized array; one of vectors, such as float32x2, has a last dimension of their lanes."""
    extents, kind = _of_vectors(_shape(shape), dtype)
    dev = _device(device)
    if mem_scope not in (None, "", "global"):
        raise ValueError(f"memory scope {mem_scope!r} is not available; arrays live in scope 'global'")
    nbytes = kind.itemsize
    for extent in extents:
        nbytes *= extent
    if dev.device_type != 1:
        layout = layout_of(kind.name, extents, None, dev.device_type, dev.device_id)
        memory = _DeviceMemory(dev, nbytes)
        return _make(layout, memory.address, None, memory)
    return _on_host(extents, kind, np.empty(nbytes + ALIGNMENT, np.uint8))


def fresh(shape: tuple[int, ...], dtype: str) -> Callable[[], NDArray]:
    """A function that makes uninitialized arrays of one shape and type on the host, without checking them again."""
    kind, size = ELEMENTS[dtype], math.prod(shape)
    nbytes, layout = kind.itemsize * size + ALIGNMENT, layout_of(dtype, shape)

    def make() -> NDArray:
        raw = np.empty(nbytes, np.uint8)
        start = ctypes.addressof(ctypes.c_char.from_buffer(raw))  # type: ignore[arg-type]
        offset = -start % ALIGNMENT
        return _make(layout, start + offset, np.ndarray(shape, kind.numpy, raw, offset))

    return make


def zeros(shape: Any, dtype: Any = "float32") -> NDArray:
    """A new array of zeros on the host."""
    extents, kind = _of_vectors(_shape(shape), dtype)
    return _on_host(extents, kind, np.zeros(kind.itemsize * math.prod(extents) + ALIGNMENT, np.uint8))


def _of_vectors(extents: tuple[int, ...], dtype: Any) -> tuple[tuple[int, ...], Element]:
    """The extents and the type of the elements in memory, where functions take arrays of vectors as such."""
    scalar, times, lanes = str(dtype).rpartition("x") if isinstance(dtype, str) else ("", "", "")
    if times and lanes.isdigit() and scalar in ELEMENTS:
        return (*extents, int(lanes)), ELEMENTS[scalar]
    return extents, element(dtype)


def _on_host(extents: tuple[int, ...], kind: Element, raw: np.ndarray[Any, Any]) -> NDArray:
    """An array that begins at the first aligned address of its memory."""
    return _of_host(np.ndarray(extents, kind.numpy, raw, -raw.ctypes.data % ALIGNMENT))


def array(arr: Any, device: Any = None, mem_scope: str | None = None, dtype: Any = None) -> NDArray:
    """A new array with a copy of these values: NumPy's, another NDArray's, a tensor's, or nested lists."""
    values = arr._values() if isinstance(arr, NDArray) else _as_numpy(arr)
    return empty(values.shape, dtype or values.dtype, device, mem_scope).copyfrom(values)


def _as_numpy(values: Any) -> np.ndarray[Any, Any]:
    refuse_masked(values)
    if isinstance(values, np.ndarray):
        return values
    if hasattr(values, "__dlpack__") and not isinstance(values, np.generic):
        return _of_borrowed(dlpack.borrow(values))._values()
    return np.asarray(values)


def _device(given: Any) -> Device:
    if given is None:
        return cpu(0)
    if isinstance(given, Device):
        return given
    return device(given)


def from_dlpack(source: Any) -> NDArray:
    """An array that shares the memory of a DLPack capsule, or of an object that can give one."""
    if isinstance(source, NDArray):
        return source
    if isinstance(source, np.ndarray):
        return _of_host(source)
    return _of_borrowed(dlpack.borrow(source))


def numpyasarray(values: np.ndarray[Any, Any]) -> NDArray:
    """An array that shares a NumPy array's memory."""
    refuse_masked(values)
    return _of_host(np.asarray(values))
