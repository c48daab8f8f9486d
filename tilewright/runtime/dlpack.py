"""DLPack: arrays of NumPy, PyTorch and JAX in and out without a copy.

NumPy builds and frees the capsules we hand out; it lacks bfloat16 and float8, so those travel through it as
unsigned integers and the type is set right in the capsule afterwards.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .devices import Device, device_api
from .dtypes import Element, element_of_dlpack
from .layout import Layout, dense_strides, layout_of


class DLDevice(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    """DLPack's plain tensor: what packed calls receive."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [("dl_tensor", DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("dl_tensor", DLTensor),
    ]


_READ_ONLY = 1
_CUDA = 2
DEFAULT_STREAM = 1  # DLPack's number for the default stream
_PLAIN, _VERSIONED = b"dltensor", b"dltensor_versioned"
_USED_PLAIN, _USED_VERSIONED = b"used_dltensor", b"used_dltensor_versioned"
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _api(name: str, result: Any, *arguments: Any) -> Any:
    # a prototype of our own: ctypes.pythonapi's shared function objects may be reconfigured by other packages
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_capsule_is = _api("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_capsule_pointer = _api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_capsule_rename = _api("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
for _name in (_USED_PLAIN, _USED_VERSIONED):  # a capsule keeps the pointer for as long as it lives
    _api("Py_IncRef", None, ctypes.py_object)(_name)


class Borrowed:
    """A foreign tensor that is read or written in place; it is released to its owner with this object."""

    __slots__ = ("_deleter", "_managed", "address", "element", "layout")

    def __init__(self, managed: int, deleter: int | None, tensor: DLTensor, writeable: bool) -> None:
        # may raise: only from here on must the tensor be released
        self.address, self.element, self.layout = tensor_parts(tensor, writeable)
        self._managed = managed
        self._deleter = _DELETER(deleter) if deleter else None

    def __del__(self) -> None:
        if getattr(self, "_deleter", None) is not None:
            self._deleter(self._managed)  # type: ignore[misc]


class _Memory:
    """Foreign memory in the form NumPy takes; the array made of it keeps `owner` alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, interface: dict[str, Any], owner: object) -> None:
        self.__array_interface__ = interface
        self.owner = owner


def tensor_parts(tensor: DLTensor, writeable: bool = True) -> tuple[int, Element, Layout]:
    """Address, element type and layout of a DLPack tensor."""
    kind = element_of_dlpack(tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes)
    ndim = tensor.ndim
    shape = tuple(tensor.shape[:ndim]) if ndim else ()
    strides = tuple(tensor.strides[:ndim]) if ndim and tensor.strides else None
    device = tensor.device
    layout = layout_of(kind.name, shape, strides, device.device_type, device.device_id, writeable)
    address = (tensor.data or 0) + tensor.byte_offset
    if address == 0 and layout.size:
        raise ValueError(f"the tensor's data pointer is null although its shape is {shape}")
    return address, kind, layout


def host_array(address: int, kind: Element, layout: Layout, owner: object) -> np.ndarray[Any, Any]:
    """A NumPy array over memory that belongs to `owner`."""
    if layout.size == 0:
        return np.empty(layout.shape, kind.numpy)
    strides = layout.strides if layout.strides is not None else dense_strides(layout.shape)
    interface = {
        "data": (address, not layout.writeable),
        "shape": layout.shape,
        "strides": tuple(stride * kind.itemsize for stride in strides),
        "typestr": kind.typestr,
        "version": 3,
    }
    found: np.ndarray[Any, Any] = np.asarray(_Memory(interface, owner))
    return found if found.dtype == kind.numpy else found.view(kind.numpy)


def borrow(source: Any) -> Borrowed:
    """Borrow a tensor from an object that supports DLPack, or from a bare capsule."""
    capsule = source if type(source).__name__ == "PyCapsule" else _request(source)
    # JAX's arrays must not be written, but its capsules cannot say so
    writeable = not type(source).__module__.startswith("jax")
    if _capsule_is(capsule, _VERSIONED):
        managed = _capsule_pointer(capsule, _VERSIONED)
        versioned = _ManagedVersioned.from_address(managed)
        if versioned.major != 1:
            raise ValueError(f"DLPack version {versioned.major}.{versioned.minor} is not supported")
        writeable = writeable and not versioned.flags & _READ_ONLY
        taken = Borrowed(managed, versioned.deleter, versioned.dl_tensor, writeable)
        _capsule_rename(capsule, _USED_VERSIONED)
        return taken
    if _capsule_is(capsule, _PLAIN):
        managed = _capsule_pointer(capsule, _PLAIN)
        plain = _Managed.from_address(managed)
        taken = Borrowed(managed, plain.deleter, plain.dl_tensor, writeable)
        _capsule_rename(capsule, _USED_PLAIN)
        return taken
    raise ValueError("not a DLPack capsule, or one that was already consumed: a capsule can be used once")


def _request(source: Any) -> Any:
    method = getattr(source, "__dlpack__", None)
    if method is None:
        raise TypeError(f"an object of type {type(source).__name__} does not support DLPack")
    options = _on_stream(source)
    try:
        return method(max_version=(1, 0), **options)
    except TypeError:  # written before versions existed
        return method(**options)


def _on_stream(source: Any) -> dict[str, int]:
    """The CUDA stream that will use a tensor: its owner makes that stream wait for pending work."""
    asked = getattr(source, "__dlpack_device__", None)
    kind, index = asked() if asked is not None else (1, 0)
    if int(kind) != _CUDA:
        return {}
    api = device_api(Device(_CUDA, int(index)))
    return {"stream": api.stream(int(index)) or DEFAULT_STREAM}


def export_host(array: np.ndarray[Any, Any], kind: Element, options: dict[str, Any]) -> Any:
    """A capsule that shares a NumPy array's memory."""
    carrier = array
    if array.dtype.isbuiltin != 1:
        carrier = array.view(f"u{kind.itemsize}")
    given = {key: value for key, value in options.items() if value is not None}
    capsule = carrier.__dlpack__(**given)
    if carrier is not array:
        if _capsule_is(capsule, _VERSIONED):
            address = _capsule_pointer(capsule, _VERSIONED)
            tensor = _ManagedVersioned.from_address(address).dl_tensor
        else:
            tensor = _Managed.from_address(_capsule_pointer(capsule, _PLAIN)).dl_tensor
        tensor.dtype.code, tensor.dtype.bits = kind.dl_code, kind.bits
    return capsule


# -- memory of a device --------------------------------------------------------------------------------
_lent: dict[
    int, tuple[object, ...]
] = {}  # the owners of each capsule's memory, until its consumer releases it


def _returned(managed: int) -> None:
    _lent.pop(managed, None)


def _dropped(capsule: int) -> None:
    """The destructor of a capsule: it was not consumed if it still has its original name."""
    if _bare_is(capsule, _PLAIN):
        _lent.pop(_bare_pointer(capsule, _PLAIN), None)


_give_back, _unclaimed = _DELETER(_returned), ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_dropped)
_bare_is = _api("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_bare_pointer = _api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
_capsule_new = _api("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_api("Py_IncRef", None, ctypes.py_object)(_PLAIN)


def export_device(address: int, layout: Layout, kind: Element, owner: object) -> Any:
    """A capsule that shares memory of a device; `owner` is kept alive as long as it is in use."""
    rank = len(layout.shape)
    shape = (ctypes.c_int64 * max(1, rank))(*layout.shape)
    strides = (ctypes.c_int64 * max(1, rank))(*layout.all_strides())
    managed = _Managed()
    tensor = managed.dl_tensor
    tensor.data = address
    tensor.device = DLDevice(layout.device_type, layout.device_id)
    tensor.ndim = rank
    tensor.dtype = DLDataType(kind.dl_code, kind.bits, 1)
    tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
    tensor.byte_offset = 0
    managed.deleter = ctypes.cast(_give_back, ctypes.c_void_p).value
    where = ctypes.addressof(managed)
    _lent[where] = (managed, shape, strides, owner)
    return _capsule_new(where, _PLAIN, ctypes.cast(_unclaimed, ctypes.c_void_p))
