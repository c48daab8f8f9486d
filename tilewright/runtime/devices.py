"""Devices, which hold arrays and run code."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

from .reports import DeviceBlock, ReportBlock, check_reports


class DeviceApi(ABC):
    """The interface of devices other than the CPU."""

    captures_graphs: ClassVar[bool] = False  # a sequence of launches can be recorded and launched as one

    @abstractmethod
    def count(self) -> int:
        """The number of devices of this kind."""

    @abstractmethod
    def allocate(self, index: int, nbytes: int) -> int:
        """The address of new memory on device number `index`."""

    @abstractmethod
    def release(self, index: int, address: int) -> None:
        """Free memory from `allocate`."""

    @abstractmethod
    def upload(self, index: int, address: int, source: int, nbytes: int) -> None:
        """Copy host memory at `source` to the device."""

    @abstractmethod
    def download(self, index: int, address: int, target: int, nbytes: int) -> None:
        """Copy device memory to the host's memory at `target`."""

    @abstractmethod
    def sync(self, index: int) -> None:
        """Wait until all work given to the device is done."""

    def attribute(self, index: int, name: str) -> Any:
        """An attribute of the device (`max_threads_per_block`, …); None if unknown."""
        return None

    def copy(self, index: int, target: int, source: int, nbytes: int) -> None:
        """Copy memory within the device."""
        raise NotImplementedError

    def copy_part(self, index: int, target: int, at: int, source: int, start: int, nbytes: int) -> None:
        """Copy memory within the device to byte `at` of an array, from byte `start` of another."""
        raise NotImplementedError

    def part(self, index: int, address: int, offset: int, nbytes: int) -> int:
        """The address of a part of memory from `allocate`; `drop_part` releases the address, not the memory."""
        return address + offset

    def drop_part(self, index: int, address: int) -> None:
        """Release the address of a part."""
        return None

    def timer(self, index: int) -> Callable[[], Callable[[], float]] | None:
        """A timer on the device: a function that starts it and returns the function that stops it and returns the
        seconds between. None if the device has no clock."""
        return None

    def compilers(self) -> dict[str, str]:
        """The versions of the kernel compilers for the device, by name."""
        return {}

    def launcher(self, index: int, source: str, options: dict[str, Any]) -> Any:
        """The launcher of a program's kernels: a `host_program.Launcher`."""
        raise NotImplementedError(f"{type(self).__name__} runs no kernels")

    def program(self, index: int, data: bytes) -> Any:
        """The functions of a program for the engines of an accelerator: an `accelerator_module.AcceleratorModule`."""
        raise NotImplementedError(f"{type(self).__name__} has no engines")

    def report_block(self, index: int) -> ReportBlock:
        """New memory for kernels' reports of bad data."""
        return DeviceBlock(self, index)

    # objects of launches during a capture, which must live as long as the graph
    recording: list[Any] | None = None

    def create_stream(self, index: int) -> int:
        """Create a stream."""
        raise NotImplementedError(f"{type(self).__name__} has no streams")

    def free_stream(self, index: int, stream: int) -> None:
        """Free a stream."""
        raise NotImplementedError(f"{type(self).__name__} has no streams")

    def stream(self, index: int) -> int:
        """The stream of this thread; 0 is the default stream."""
        return 0

    def set_stream(self, index: int, stream: int) -> None:
        """Set the stream of this thread; 0 is the default stream."""
        raise NotImplementedError(f"{type(self).__name__} has no streams")


_apis: dict[int, DeviceApi] = {}
# Drivers, loaded at the first use of a device of their kind: module, package, extra to install.
DRIVERS: dict[int, tuple[str, str]] = {2: ("cuda_driver", "cuda"), 4: ("opencl_driver", "opencl")}
# Why a driver is not available.
_missing: dict[int, str] = {12: "import the package of the chip first, such as tilewright.vta"}


def _find(mask: int) -> DeviceApi | None:
    """The driver of a kind of device, loaded if it can be."""
    api = _apis.get(mask)
    if api is not None or mask not in DRIVERS or mask in _missing:
        return api
    module, extra = DRIVERS[mask]
    try:
        api = importlib.import_module(f".{module}", __package__).make_api()
    except ImportError as error:
        _missing[mask] = f"{error}; install it with: pip install 'tilewright[{extra}]'"
        return None
    except DriverMissing as error:
        _missing[mask] = str(error)
        return None
    _apis[mask] = api
    return api


class DriverMissing(RuntimeError):
    """The packages are installed, but there is no driver or platform."""


_T = TypeVar("_T")


class _Reported(Generic[_T]):
    """The value that a device reports for the attribute of this name; None if it reports none."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, dev: Device | None, owner: type | None = None) -> _T | None:
        return None if dev is None else dev._attribute(self.name)


class Device:
    """One device: its kind and its number among those of the kind."""

    __slots__ = ("device_id", "device_type")

    # the numbers are DLPack's, those above 12 the classic API's
    MASK2STR: ClassVar[dict[int, str]] = {
        1: "cpu",
        2: "cuda",
        3: "cuda_host",
        4: "opencl",
        5: "aocl",
        7: "vulkan",
        8: "metal",
        9: "vpi",
        10: "rocm",
        12: "ext_dev",
        14: "hexagon",
        15: "webgpu",
    }
    STR2MASK: ClassVar[dict[str, int]] = {
        "llvm": 1,
        "stackvm": 1,
        "cpu": 1,
        "c": 1,
        "test": 1,
        "hybrid": 1,
        "composite": 1,
        "cuda": 2,
        "nvptx": 2,
        "gpu": 2,
        "cuda_host": 3,
        "cl": 4,
        "opencl": 4,
        "sdaccel": 4,
        "aocl": 5,
        "aocl_sw_emu": 5,
        "vulkan": 7,
        "metal": 8,
        "vpi": 9,
        "rocm": 10,
        "ext_dev": 12,
        "hexagon": 14,
        "webgpu": 15,
    }

    kDLCPU: ClassVar[int] = 1
    kDLCUDA: ClassVar[int] = 2
    kDLCUDAHost: ClassVar[int] = 3
    kDLOpenCL: ClassVar[int] = 4
    kDLAOCL: ClassVar[int] = 5
    kDLVulkan: ClassVar[int] = 7
    kDLMetal: ClassVar[int] = 8
    kDLVPI: ClassVar[int] = 9
    kDLROCM: ClassVar[int] = 10
    kDLExtDev: ClassVar[int] = 12
    kDLHexagon: ClassVar[int] = 14
    kDLWebGPU: ClassVar[int] = 15

    def __init__(self, device_type: int, device_id: int = 0) -> None:
        self.device_type = int(device_type)
        self.device_id = int(device_id)

    @property
    def kind(self) -> str:
        """The name of the kind: cpu, cuda, …"""
        # Devices of RPC sessions are offset by multiples of 128: see rpc.client.
        number, own = divmod(self.device_type, 128)
        name = self.MASK2STR.get(own, f"device_type_{own}")
        return f"remote[{number - 1}]:{name}" if number else name

    @property
    def exist(self) -> bool:
        """Whether the device is present and usable from this process."""
        if self.device_type == 1:
            return self.device_id == 0
        api = _find(self.device_type)
        return api is not None and 0 <= self.device_id < api.count()

    def sync(self, stream: Any = None) -> None:
        """Wait for the device, or for one of its streams; the CPU is always done."""
        if self.device_type == 1:
            return
        api = device_api(self)
        before = api.stream(self.device_id)
        if not stream or int(stream) == before:
            api.sync(self.device_id)
            check_reports(api, self.device_id)
            return
        api.set_stream(self.device_id, int(stream))
        try:
            api.sync(self.device_id)
            check_reports(api, self.device_id)
        finally:
            api.set_stream(self.device_id, before)

    # -- attributes ------------------------------------------------------------------------
    def _attribute(self, name: str) -> Any:
        api = _find(self.device_type)
        return (
            None
            if api is None or not 0 <= self.device_id < api.count()
            else api.attribute(self.device_id, name)
        )

    max_threads_per_block = _Reported[int]()
    warp_size = _Reported[int]()
    max_shared_memory_per_block = _Reported[int]()
    max_dynamic_shared_memory_per_block = _Reported[int]()  # the most of a launch, in bytes
    compute_version = _Reported[str]()  # the compute capability: `9.0`
    device_name = _Reported[str]()
    max_clock_rate = _Reported[int]()  # in kHz
    multi_processor_count = _Reported[int]()
    max_thread_dimensions = _Reported[list[int]]()
    registers_per_block = _Reported[int]()
    l2_cache_size_bytes = _Reported[int]()
    memory_bandwidth = _Reported[int]()  # in GB/s, of the bus; programs reach about 90 % of it
    total_global_memory = _Reported[int]()
    available_global_memory = _Reported[int]()
    api_version = _Reported[int | str]()
    driver_version = _Reported[str]()

    # -- streams ---------------------------------------------------------------------------
    def create_raw_stream(self) -> int:
        """Create a stream."""
        return device_api(self).create_stream(self.device_id)

    def free_raw_stream(self, stream: int) -> None:
        """Free a stream."""
        device_api(self).free_stream(self.device_id, stream)

    def set_raw_stream(self, stream: int) -> None:
        """Set the stream of this thread; 0 is the default stream."""
        device_api(self).set_stream(self.device_id, stream)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Device)
            and self.device_type == other.device_type
            and self.device_id == other.device_id
        )

    def __hash__(self) -> int:
        return hash((self.device_type, self.device_id))

    def __repr__(self) -> str:
        return f"{self.kind}({self.device_id})"


def register_device_api(kind: str, api: DeviceApi, number: int | None = None) -> Device:
    """Make devices of `kind` usable: a code generator calls this when it finds its driver. Returns the first of them.

    `number` is that of a new kind of device, below 128 and not one of DLPack's.
    """
    if kind not in Device.STR2MASK:
        if number is None or not 0 < number < 128 or number in Device.MASK2STR:
            taken = ", ".join(f"{n} {name}" for n, name in Device.MASK2STR.items())
            raise ValueError(
                f"device kind {kind!r} is new and needs a number below 128 that is not taken, not {number}; taken are "
                f"{taken}"
            )
        Device.STR2MASK[kind], Device.MASK2STR[number] = number, kind
    made = Device(Device.STR2MASK[kind], 0)
    _apis[made.device_type] = api
    return made


def device_api(dev: Device) -> DeviceApi:
    """The driver of a device."""
    api = _apis.get(dev.device_type) or _find(dev.device_type)
    if api is None:
        present = ", ".join(["cpu", *(Device(mask).kind for mask in _apis)])
        why = f": {_missing[dev.device_type]}" if dev.device_type in _missing else ""
        raise ValueError(f"device {dev} is not available in this process{why}; available are: {present}")
    return api


def device(dev_type: Any, dev_id: int = 0) -> Device:
    """The device of a name, a target (`"llvm -mcpu=znver4"`, a target object) or a DLPack number."""
    if isinstance(dev_type, Device):
        return dev_type
    if isinstance(dev_type, int):
        return Device(dev_type, dev_id)
    if not isinstance(dev_type, str):
        kind = getattr(dev_type, "kind", None)
        dev_type = getattr(kind, "name", None) or str(kind or dev_type)
    words = dev_type.split()
    if words and ":" in words[0]:  # as in "cuda:1"
        words[0], _, number = words[0].partition(":")
        if not number.isdigit():
            raise ValueError(f"the number of the device is missing in {dev_type!r}; write {words[0]}:0")
        dev_id = int(number)
    mask = Device.STR2MASK.get(words[0]) if words else None
    if mask is None:
        raise ValueError(f"unknown device {dev_type!r}; known are {', '.join(_known())}")
    return Device(mask, dev_id)


def _known() -> list[str]:
    """The devices with a driver in this package, and those of registered drivers; others have only a name."""
    return list(dict.fromkeys(Device(mask).kind for mask in (1, *DRIVERS, *_apis)))


def cpu(dev_id: int = 0) -> Device:
    return Device(1, dev_id)


def cuda(dev_id: int = 0) -> Device:
    return Device(2, dev_id)


def opencl(dev_id: int = 0) -> Device:
    return Device(4, dev_id)


gpu, cl = cuda, opencl  # their old names


def vulkan(dev_id: int = 0) -> Device:
    return Device(7, dev_id)


def metal(dev_id: int = 0) -> Device:
    return Device(8, dev_id)


def rocm(dev_id: int = 0) -> Device:
    return Device(10, dev_id)


def ext_dev(dev_id: int = 0) -> Device:
    """An external device: accelerators and their simulators."""
    return Device(12, dev_id)


def hexagon(dev_id: int = 0) -> Device:
    return Device(14, dev_id)


def webgpu(dev_id: int = 0) -> Device:
    return Device(15, dev_id)
