"""OpenCL devices through pyopencl: memory, queues, kernels. PoCL provides a CPU device."""

from __future__ import annotations

import itertools
import struct
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from .devices import DeviceApi, DriverMissing
from .errors import TVMError
from .host_program import Launch

_FORMATS = {
    "int8": "b",
    "uint8": "B",
    "bool": "B",
    "int16": "h",
    "uint16": "H",
    "float16": "H",
    "bfloat16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float32": "f",
    "float64": "d",
}


def make_api() -> OpenCLApi:
    """The driver; raises an error with the reason if there is none."""
    import pyopencl as cl

    found = []
    try:
        for platform in cl.get_platforms():
            try:
                found += platform.get_devices()
            except cl.Error:
                continue
    except cl.Error as error:
        raise DriverMissing(
            f"no OpenCL platform is installed ({error}); install a driver, or PoCL for processors: "
            "apt install pocl-opencl-icd"
        ) from error
    if not found:
        raise DriverMissing("the OpenCL platforms have no devices")
    # GPUs first: programs expect a GPU as opencl(0)
    found.sort(key=lambda d: not d.type & cl.device_type.GPU)
    return OpenCLApi(found)


class _OneDevice:
    """A device with its context, its queue and its memory."""

    def __init__(self, device: Any) -> None:
        import pyopencl as cl

        self.device = device
        self.context = cl.Context([device])
        self.queue = cl.CommandQueue(self.context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        self.buffers: dict[int, Any] = {}
        self.lock = threading.Lock()


class OpenCLApi(DeviceApi):
    """The OpenCL API. Addresses are opaque handles of buffers."""

    def __init__(self, devices: list[Any]) -> None:
        self._devices = devices
        self._open: dict[int, _OneDevice] = {}
        self._addresses = itertools.count(1 << 40, 1 << 32)
        self._lock = threading.Lock()

    def at(self, index: int) -> _OneDevice:
        """Device number `index`, opened."""
        found = self._open.get(index)
        if found is None:
            if not 0 <= index < len(self._devices):
                raise ValueError(f"there is no device opencl({index}); there are {len(self._devices)}")
            with self._lock:
                found = self._open.get(index)
                if found is None:
                    found = self._open[index] = _OneDevice(self._devices[index])
        return found

    def count(self) -> int:
        return len(self._devices)

    def buffer(self, index: int, address: int) -> Any:
        """The buffer of an address."""
        found = self.at(index).buffers.get(address)
        if found is None:
            raise TVMError(f"opencl({index}): {address:#x} is not the start of an array on the device")
        return found

    # -- memory ----------------------------------------------------------------------------
    def allocate(self, index: int, nbytes: int) -> int:
        import pyopencl as cl

        one = self.at(index)
        try:
            made = cl.Buffer(one.context, cl.mem_flags.READ_WRITE, max(1, nbytes))
        except cl.Error as error:
            raise MemoryError(f"opencl({index}): no room for {nbytes} bytes: {error}") from error
        with one.lock:
            address = next(self._addresses)
            one.buffers[address] = made
        return address

    def release(self, index: int, address: int) -> None:
        made = self.at(index).buffers.pop(address, None)
        if made is not None:
            made.release()

    def part(self, index: int, address: int, offset: int, nbytes: int) -> int:
        import pyopencl as cl

        one, whole = self.at(index), self.buffer(index, address)
        try:
            made = whole.get_sub_region(offset, max(1, nbytes))
        except cl.Error as error:
            raise TVMError(
                f"opencl({index}): there is no part of {nbytes} bytes at byte {offset} of an array of {whole.size} "
                f"bytes: {error}"
            ) from error
        with one.lock:
            token = next(self._addresses)
            one.buffers[token] = made
        return token

    def drop_part(self, index: int, address: int) -> None:
        self.release(index, address)

    def upload(self, index: int, address: int, source: int, nbytes: int) -> None:
        import pyopencl as cl

        cl.enqueue_copy(
            self.at(index).queue, self.buffer(index, address), _bytes_at(source, nbytes), is_blocking=True
        )

    def download(self, index: int, address: int, target: int, nbytes: int) -> None:
        import pyopencl as cl

        cl.enqueue_copy(
            self.at(index).queue, _bytes_at(target, nbytes), self.buffer(index, address), is_blocking=True
        )

    def copy(self, index: int, target: int, source: int, nbytes: int) -> None:
        import pyopencl as cl

        where = self.buffer(index, target)
        cl.enqueue_copy(self.at(index).queue, where, self.buffer(index, source), byte_count=nbytes)

    def copy_part(self, index: int, target: int, at: int, source: int, start: int, nbytes: int) -> None:
        import pyopencl as cl

        where, whole, queue = self.buffer(index, target), self.buffer(index, source), self.at(index).queue
        cl.enqueue_copy(queue, where, whole, byte_count=nbytes, dst_offset=at, src_offset=start)

    def sync(self, index: int) -> None:
        self.at(index).queue.finish()

    # -- facts -----------------------------------------------------------------------------
    def attribute(self, index: int, name: str) -> Any:
        d = self._devices[index]
        reads: dict[str, Callable[[], Any]] = {
            "max_threads_per_block": lambda: int(d.max_work_group_size),
            "warp_size": lambda: 1,
            "max_shared_memory_per_block": lambda: int(d.local_mem_size),
            "compute_version": lambda: str(d.version),
            "device_name": lambda: str(d.name),
            "max_clock_rate": lambda: int(d.max_clock_frequency) * 1000,
            "multi_processor_count": lambda: int(d.max_compute_units),
            "max_thread_dimensions": lambda: [int(x) for x in d.max_work_item_sizes],
            "total_global_memory": lambda: int(d.global_mem_size),
            "api_version": lambda: str(d.opencl_c_version),
            "driver_version": lambda: str(d.driver_version),
        }
        return reads[name]() if name in reads else None

    def timer(self, index: int) -> Callable[[], Callable[[], float]]:
        import pyopencl as cl

        queue = self.at(index).queue

        def start() -> Callable[[], float]:
            queue.finish()
            first = cl.enqueue_marker(queue)

            def stop() -> float:
                last = cl.enqueue_marker(queue)
                last.wait()
                return float(last.profile.end - first.profile.end) * 1e-9

            return stop

        return start

    def launcher(self, index: int, source: str, options: dict[str, Any]) -> _Launcher:
        return _Launcher(self, index, source)


class _Launcher:
    """The kernels of one program on one device."""

    def __init__(self, api: OpenCLApi, index: int, source: str) -> None:
        import pyopencl as cl

        self.api, self.index, self.one = api, index, api.at(index)
        self.max_threads = int(self.one.device.max_work_group_size)
        self._kept: dict[int, tuple[int, int]] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # compilers print notes about every program
            try:
                self.program = cl.Program(self.one.context, source).build(options=_options(self.one.device))
            except cl.Error as error:
                raise TVMError(f"OpenCL cannot compile a program: {error}\n{_numbered(source)}") from error

    def __del__(self) -> None:
        for address, _ in getattr(self, "_kept", {}).values():
            self.api.release(self.index, address)

    def workspace(self, slot: int, nbytes: int) -> int:
        held = self._kept.get(slot)
        if held is None or held[1] < nbytes:
            if held is not None:
                self.api.sync(self.index)
                self.api.release(self.index, held[0])
            held = self._kept[slot] = (self.api.allocate(self.index, nbytes), nbytes)
        return held[0]

    def kernel(self, name: str, kinds: Sequence[str]) -> Launch:
        import pyopencl as cl

        kernel, one = cl.Kernel(self.program, name), self.one
        buffers, enqueue = one.buffers, cl.enqueue_nd_range_kernel
        packers = [None if kind == "ptr" else struct.Struct(_FORMATS[kind]).pack for kind in kinds]
        count, lock = len(kinds), threading.Lock()

        def launch(
            gx: int, gy: int, gz: int, bx: int, by: int, bz: int, dynamic: int, args: tuple[Any, ...]
        ) -> None:
            with lock:
                for i, (pack, value) in enumerate(zip(packers, args)):
                    kernel.set_arg(i, buffers[value] if pack is None else pack(value))
                if dynamic:
                    kernel.set_arg(count, cl.LocalMemory(dynamic))  # type: ignore[arg-type]
                try:
                    enqueue(one.queue, kernel, (gx * bx, gy * by, gz * bz), (bx, by, bz))
                except cl.Error as error:
                    raise TVMError(f"{name}: OpenCL cannot launch it: {error}") from error

        return launch


def _options(device: Any) -> list[str]:
    """PoCL's optimizer moves code across barriers where a condition is tested before and after them: the results
    are wrong then (PoCL 3.1, a tile whose last row is guarded)."""
    plain = ["-cl-std=CL1.2", "-w"]
    return [*plain, "-cl-opt-disable"] if "Portable Computing" in device.platform.name else plain


def _bytes_at(address: int, nbytes: int) -> Any:
    import ctypes

    import numpy as np

    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


def _numbered(source: str) -> str:
    return "\n".join(f"{i:4} {line}" for i, line in enumerate(source.splitlines(), 1))
