"""NVIDIA GPUs through cuda-bindings: memory, streams, events, kernels compiled by NVRTC, graphs of launches.

The context is the primary context of the device, which PyTorch and others use too: arrays are shared without a copy.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .cuda_compiler import CompilerMissing, Image, compile_program, compiled, number_of, supported
from .devices import Device, DeviceApi, DriverMissing, device_api
from .errors import TVMError
from .host_program import Launch
from .reports import BLOCK, Report

_FORMATS = {
    "ptr": "Q",
    "map": "128s",
    "int8": "b7x",
    "uint8": "B7x",
    "bool": "B7x",
    "int16": "h6x",
    "uint16": "H6x",
    "float16": "H6x",
    "bfloat16": "H6x",
    "int32": "i4x",
    "uint32": "I4x",
    "int64": "q",
    "uint64": "Q",
    "float32": "f4x",
    "float64": "d",
}
# CUlaunchConfig: grid, block, dynamic shared memory, stream, attributes and their number
_CONFIG = struct.Struct("<7I4xQQI4x")
# CUlaunchAttribute for programmatic dependent launch: a kernel that itself waits for the previous one is launched while
# that one still runs.
_ATTRIBUTE, _SERIALIZES = struct.Struct("<I4xi60x"), 6
# Codes of errors such as illegal addresses, after which the context cannot be used any more.
_LOST = (700, 716, 717, 718, 719)
_last = ["no kernel"]  # the kernel that was launched last, for asynchronous errors
_ROUND = 512  # allocations are rounded up to a multiple of this, in bytes
_MOST_MAPS = 1024  # the most tensor maps that a program keeps
_HOST_FLAGS = 3  # portable, mapped: pinned host memory that all contexts and the kernels of a device can use
_DECLARED_SHARED = 49152  # shared memory that a kernel may have without opting in to more, in bytes


class CudaError(TVMError):
    """A failed call of the driver."""


def _driver() -> Any:
    from cuda.bindings import driver

    return driver


def _ok(result: tuple[Any, ...], what: str) -> Any:
    """The values of a driver call; CudaError if it failed."""
    code, *values = result
    if int(code) != 0:
        raise CudaError(f"{what}: {_meaning(code)}")
    return values[0] if len(values) == 1 else tuple(values)


def _meaning(code: Any) -> str:
    driver = _driver()
    name, text = driver.cuGetErrorName(code), driver.cuGetErrorString(code)
    told = f"{name[1].decode()} ({text[1].decode()})" if int(name[0]) == 0 else f"code {int(code)}"
    if int(code) in _LOST:
        told += (
            f"; a kernel failed ({_last[0]} was launched last), and this process can no longer use the device"
        )
    return told


def make_api() -> CudaApi:
    """The API of CUDA devices; DriverMissing says why there is none."""
    driver = _driver()
    try:
        (code,) = driver.cuInit(0)
    except RuntimeError as error:
        raise DriverMissing(f"there is no NVIDIA driver on this machine: {error}") from error
    if int(code) != 0:
        raise DriverMissing(f"the NVIDIA driver does not start: {_meaning(code)}")
    code, count = driver.cuDeviceGetCount()
    if int(code) != 0 or count == 0:
        raise DriverMissing("the NVIDIA driver sees no device")
    return CudaApi(int(count))


# -- compilation -----------------------------------------------------------------------------------
def compile_ptx(source: str, options: dict[str, Any]) -> bytes:
    """The program as PTX for the architecture of its options."""
    return compile_program(source, _arch_of(options).replace("sm_", "compute_"), True)


def compile_cubin(source: str, options: dict[str, Any]) -> bytes:
    """The program as machine code for the architecture of its options."""
    return compile_program(source, _arch_of(options), False)


def _arch_of(options: dict[str, Any]) -> str:
    """The architecture of the options, else that of the first device, else sm_75."""
    asked = options.get("arch")
    if asked:
        return str(asked)
    dev = Device(2, 0)
    return _device_arch(dev.compute_version) if dev.exist else "sm_75"


def _device_arch(version: str | None) -> str:
    major, _, minor = (version or "7.5").partition(".")
    return f"sm_{major}{minor}{'a' if int(major) >= 9 else ''}"


# -- the device ------------------------------------------------------------------------------------
class _Thread(threading.local):
    """The state of one thread: the device whose context is current, and the stream of each device."""

    def __init__(self) -> None:
        self.device = -1
        self.streams: dict[int, int] = {}


class CudaApi(DeviceApi):
    captures_graphs = True

    def __init__(self, count: int) -> None:
        self._count = count
        self._contexts: dict[int, Any] = {}
        self._thread = _Thread()
        self._lock = threading.Lock()
        self._free: dict[tuple[int, int], list[int]] = {}
        self._sizes: dict[tuple[int, int], int] = {}
        # the launchers and reports that the graph in capture must keep alive; None if there is no capture
        self.recording: list[_Launcher | Report] | None = None
        self.later: list[Callable[[], None]] = []  # calls that would break a capture, to be made after it

    def count(self) -> int:
        return self._count

    def enter(self, index: int) -> None:
        """Make the device current in this thread."""
        if self._thread.device == index:
            return
        if not 0 <= index < self._count:
            raise ValueError(f"there is no device cuda({index}); there are {self._count}")
        driver = _driver()
        with self._lock:
            if index not in self._contexts:
                device = _ok(driver.cuDeviceGet(index), f"cuda({index})")
                self._contexts[index] = _ok(driver.cuDevicePrimaryCtxRetain(device), f"cuda({index})")
        _ok(driver.cuCtxSetCurrent(self._contexts[index]), f"cuda({index})")
        self._thread.device = index if self._count == 1 else -1  # others may switch between several

    def stream(self, index: int) -> int:
        """The stream that this thread works on; 0 is the default stream."""
        return self._thread.streams.get(index, 0)

    # -- memory ----------------------------------------------------------------------------
    def allocate(self, index: int, nbytes: int) -> int:
        self.enter(index)
        size = max(1, -(-nbytes // _ROUND)) * _ROUND
        with self._lock:
            kept = self._free.get((index, size))
            address = kept.pop() if kept else 0
        if not address:
            code, pointer = _driver().cuMemAlloc(size)
            if int(code) == 2:  # out of memory: free what is kept for reuse, and try again
                self.trim(index)
                code, pointer = _driver().cuMemAlloc(size)
            if int(code) != 0:
                left = self.attribute(index, "available_global_memory")
                raise MemoryError(
                    f"cuda({index}): no room for {nbytes} bytes ({left} are free): {_meaning(code)}"
                )
            address = int(pointer)
        self._sizes[index, address] = size
        return address

    def release(self, index: int, address: int) -> None:
        size = self._sizes.pop((index, address), None)
        if size is not None:
            with self._lock:
                self._free.setdefault((index, size), []).append(address)

    def trim(self, index: int) -> None:
        """Return released memory to the driver."""
        self.sync(index)
        with self._lock:
            kept = [a for (i, _), held in self._free.items() if i == index for a in held]
            self._free = {key: held for key, held in self._free.items() if key[0] != index}
        for address in kept:
            _driver().cuMemFree(address)

    def upload(self, index: int, address: int, source: int, nbytes: int) -> None:
        self.enter(index)
        stream = self.stream(index)
        _ok(
            _driver().cuMemcpyHtoDAsync(address, source, nbytes, stream), f"cuda({index}): copy to the device"
        )
        _ok(_driver().cuStreamSynchronize(stream), f"cuda({index}): copy to the device")

    def download(self, index: int, address: int, target: int, nbytes: int) -> None:
        self.enter(index)
        stream = self.stream(index)
        _ok(
            _driver().cuMemcpyDtoHAsync(target, address, nbytes, stream),
            f"cuda({index}): copy from the device",
        )
        _ok(_driver().cuStreamSynchronize(stream), f"cuda({index}): copy from the device")

    def copy(self, index: int, target: int, source: int, nbytes: int) -> None:
        self.enter(index)
        result = _driver().cuMemcpyDtoDAsync(target, source, nbytes, self.stream(index))
        _ok(result, f"cuda({index}): copy on the device")

    def copy_part(self, index: int, target: int, at: int, source: int, start: int, nbytes: int) -> None:
        self.copy(index, target + at, source + start, nbytes)

    def sync(self, index: int) -> None:
        self.enter(index)
        _ok(_driver().cuStreamSynchronize(self.stream(index)), f"cuda({index}): waiting for the device")

    # -- streams ---------------------------------------------------------------------------
    def create_stream(self, index: int) -> int:
        self.enter(index)
        flags = int(_driver().CUstream_flags.CU_STREAM_NON_BLOCKING)
        return int(_ok(_driver().cuStreamCreate(flags), f"cuda({index}): creating a stream"))

    def free_stream(self, index: int, stream: int) -> None:
        self.enter(index)
        _ok(_driver().cuStreamDestroy(stream), f"cuda({index}): freeing a stream")

    def set_stream(self, index: int, stream: int) -> None:
        self._thread.streams[index] = stream

    # -- facts -----------------------------------------------------------------------------
    def attribute(self, index: int, name: str) -> Any:
        driver = _driver()
        device = _ok(driver.cuDeviceGet(index), f"cuda({index})")

        def ask(what: str) -> int:
            key = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{what}")
            return int(_ok(driver.cuDeviceGetAttribute(key, device), f"cuda({index}): {what}"))

        plain = _ATTRIBUTES.get(name)
        if plain is not None:
            return ask(plain)
        if name == "memory_bandwidth":  # double data rate: the bus moves its width twice a cycle (kHz)
            return round(2 * ask("MEMORY_CLOCK_RATE") * ask("GLOBAL_MEMORY_BUS_WIDTH") / 8e6)
        if name == "compute_version":
            return f"{ask('COMPUTE_CAPABILITY_MAJOR')}.{ask('COMPUTE_CAPABILITY_MINOR')}"
        if name == "max_thread_dimensions":
            return [ask(f"MAX_BLOCK_DIM_{axis}") for axis in "XYZ"]
        if name == "device_name":
            return _ok(driver.cuDeviceGetName(256, device), f"cuda({index})").split(b"\0")[0].decode()
        if name == "total_global_memory":
            return int(_ok(driver.cuDeviceTotalMem(device), f"cuda({index})"))
        if name == "available_global_memory":
            self.enter(index)
            return int(_ok(driver.cuMemGetInfo(), f"cuda({index})")[0])
        if name in ("driver_version", "api_version"):
            version = int(_ok(driver.cuDriverGetVersion(), f"cuda({index})"))
            return version if name == "api_version" else f"{version // 1000}.{version % 1000 // 10}"
        return None

    def compilers(self) -> dict[str, str]:
        try:
            from cuda.bindings import nvrtc

            return {"nvrtc": ".".join(str(int(v)) for v in nvrtc.nvrtcVersion()[1:])}
        except (ImportError, RuntimeError):
            return {"nvrtc": "none"}

    def timer(self, index: int) -> Callable[[], Callable[[], float]]:
        self.enter(index)
        driver = _driver()
        events = [_ok(driver.cuEventCreate(0), f"cuda({index}): an event") for _ in range(2)]

        def start() -> Callable[[], float]:
            self.sync(index)
            stream = self.stream(index)
            _ok(driver.cuEventRecord(events[0], stream), f"cuda({index}): an event")

            def stop() -> float:
                _ok(driver.cuEventRecord(events[1], stream), f"cuda({index}): an event")
                _ok(driver.cuEventSynchronize(events[1]), f"cuda({index}): waiting for the device")
                return float(_ok(driver.cuEventElapsedTime(*events), f"cuda({index}): an event")) * 1e-3

            return stop

        return start

    def report_block(self, index: int) -> _ReportBlock:
        return _ReportBlock(self, index)

    def launcher(self, index: int, source: str, options: dict[str, Any]) -> _Launcher:
        return _Launcher(self, index, source, options)


_ATTRIBUTES = {
    "max_threads_per_block": "MAX_THREADS_PER_BLOCK",
    "warp_size": "WARP_SIZE",
    "max_shared_memory_per_block": "MAX_SHARED_MEMORY_PER_BLOCK",
    "max_dynamic_shared_memory_per_block": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "max_clock_rate": "CLOCK_RATE",
    "multi_processor_count": "MULTIPROCESSOR_COUNT",
    "registers_per_block": "MAX_REGISTERS_PER_BLOCK",
    "l2_cache_size_bytes": "L2_CACHE_SIZE",
}


class _ReportBlock:
    """A flag on the device that the first failed check sets, and mapped host memory that its kernel then writes to.

    device  [ flag | address of the host's memory ]        host  [ number of the check | value | value | … ]

    So the host sees the report without a copy, and only one thread of the device ever writes it.
    """

    visible = True

    def __init__(self, api: CudaApi, index: int) -> None:
        self._api, self._index, driver = api, index, _driver()
        api.enter(index)
        told = f"cuda({index}): memory for reports"
        host = int(_ok(driver.cuMemHostAlloc(BLOCK, _HOST_FLAGS), told))
        self._held = (ctypes.c_int64 * (BLOCK // 8)).from_address(host)
        self._flag = (ctypes.c_int64 * 2)(0, int(_ok(driver.cuMemHostGetDevicePointer(host, 0), told)))
        self.address = api.allocate(index, ctypes.sizeof(self._flag))
        self.clear()
        # not at exit: the driver may be gone by then
        weakref.finalize(self, _free_block, api, index, host, self.address).atexit = False

    def read(self) -> Sequence[int]:
        return list(self._held) if self._held[0] else (0,)

    def clear(self) -> None:
        ctypes.memset(self._held, 0, BLOCK)
        self._api.upload(self._index, self.address, ctypes.addressof(self._flag), ctypes.sizeof(self._flag))


def _free_block(api: CudaApi, index: int, host: int, address: int) -> None:
    """Free the memory of reports; after the capture of a graph, if there is one, since it would break that."""
    if api.recording is not None:
        api.later.append(lambda: _free_block(api, index, host, address))
        return
    with contextlib.suppress(CudaError):
        api.enter(index)
        # kernels that use it may still run, on any stream
        _ok(_driver().cuCtxSynchronize(), "waiting for the device")
        api.release(index, address)
        _ok(_driver().cuMemFreeHost(host), "freeing memory")


class _Launcher:
    """The kernels of one program on one device."""

    def __init__(self, api: CudaApi, index: int, source: str, options: dict[str, Any]) -> None:
        self.api, self.index = api, index
        api.enter(index)
        self.max_threads = int(api.attribute(index, "max_threads_per_block"))
        self._kept: dict[int, tuple[int, int]] = {}
        self.recorded = False
        self._maps: dict[Any, bytes] = {}
        image = options.get("image")
        self._images = self._compiled(source, options) if image is None else {"": Image(image, "", False)}
        self._modules: dict[bytes, Any] = {}  # each image is loaded once, when a kernel of it is first needed
        # not at exit: the driver may be gone by then
        weakref.finalize(self, _unload, api, index, self._modules, self._kept).atexit = False

    def image(self, name: str) -> Image:
        """The image that contains a kernel."""
        return self._images.get(name) or self._images[""]

    def function(self, name: str) -> Any:
        """The driver's handle of a kernel."""
        image = self.image(name)
        module = self._modules.get(image.code)
        if module is None:
            held = ctypes.create_string_buffer(image.code, len(image.code))
            module = self._modules[image.code] = _ok(
                _driver().cuModuleLoadData(ctypes.addressof(held)), f"cuda({self.index}): loading {name}"
            )
        return _ok(_driver().cuModuleGetFunction(module, (image.name or name).encode()), f"kernel {name}")

    def _compiled(self, source: str, options: dict[str, Any]) -> dict[str, Image]:
        """The images by kernel: machine code for the device, or PTX if they were built for an older architecture."""
        own, index = _device_arch(self.api.attribute(self.index, "compute_version")), self.index
        asked = str(options.get("arch") or own)
        if number_of(asked) > number_of(own):
            raise TVMError(
                f"the kernels were built for {asked}, and cuda({index}) is {own}; build them with "
                f"Target('cuda -arch={own}')"
            )
        try:
            known = supported()
        except CompilerMissing:
            if "ptx" not in options:
                raise
            return {"": Image(options["ptx"], "", False)}
        if number_of(asked) == number_of(own) or (known and number_of(asked) < known[0]):
            return compiled(source, max(asked, own, key=number_of), False)
        return compiled(source, asked.replace("sm_", "compute_"), True)

    def workspace(self, slot: int, nbytes: int) -> int:
        held = self._kept.get(slot)
        if held is None or held[1] < nbytes:
            if held is not None and not self.recorded:  # a captured graph uses the old address
                self.api.sync(self.index)
                self.api.release(self.index, held[0])
            room = nbytes if held is None else max(nbytes, held[1] * 5 // 4)
            held = self._kept[slot] = (self.api.allocate(self.index, room), room)
        return held[0]

    def tensor_map(
        self, pointer: int, kind: str, sizes: tuple[int, ...], steps: tuple[int, ...], box: tuple[int, ...]
    ) -> bytes:
        """The driver's tensor map (CUtensorMap), which TMA copies boxes by. Lines are swizzled over 128 bytes. In boxes
        that threads read (`float32 threads`), lines of 64 or 128 bytes are swizzled, and no others."""
        key = (pointer, kind, sizes, steps, box)
        made = self._maps.get(key)
        if made is None:
            if len(self._maps) >= _MOST_MAPS:
                self._maps.clear()
            made = self._maps[key] = _encode_map(*key)
        return made

    def kernel(self, name: str, kinds: Sequence[str]) -> Launch:
        api, index, driver = self.api, self.index, _driver()
        function = self.function(name)
        form, places, size = "<", [], 0
        for kind in kinds:
            gap = -size % 64 if kind == "map" else 0  # tensor maps are aligned to 64 bytes
            form += f"{gap}x{_FORMATS[kind]}" if gap else _FORMATS[kind]
            places.append(size + gap)
            size += gap + (128 if kind == "map" else 8)
        packed = struct.Struct(form)
        values = ctypes.create_string_buffer(max(8, packed.size) + 64)
        begin = -ctypes.addressof(values) % 64
        start = ctypes.addressof(values) + begin
        pointers = (ctypes.c_void_p * max(1, len(kinds)))(*(start + at for at in places))
        where = ctypes.addressof(pointers)
        config = ctypes.create_string_buffer(_CONFIG.size)
        handle, where_config = int(function), ctypes.addressof(config)
        pack, pack_config, lock = packed.pack_into, _CONFIG.pack_into, threading.Lock()
        call, thread, allowed = _launch_function(), api._thread, [_DECLARED_SHARED]
        attribute = ctypes.create_string_buffer(_ATTRIBUTE.pack(_SERIALIZES, 1), _ATTRIBUTE.size)
        attributes = (ctypes.addressof(attribute), 1) if self.image(name).waits else (0, 0)
        last = _last

        def launch(
            gx: int, gy: int, gz: int, bx: int, by: int, bz: int, dynamic: int, args: tuple[Any, ...]
        ) -> None:
            if thread.device != index:
                api.enter(index)
            if dynamic > allowed[0]:
                _allow(function, name, dynamic)
                allowed[0] = dynamic
            if api.recording is not None:
                api.recording.append(self)
                self.recorded = True
            stream = thread.streams.get(index, 0)
            with lock:  # the driver copies the values before it returns
                pack(values, begin, *args)
                pack_config(config, 0, gx, gy, gz, bx, by, bz, dynamic, stream, *attributes)
                code = call(where_config, handle, where, 0)
            last[0] = name
            if code:
                sizes = f"grid ({gx}, {gy}, {gz}), block ({bx}, {by}, {bz}), {dynamic} bytes of shared memory"
                raise CudaError(
                    f"kernel {name} cannot be launched with {sizes}: {_meaning(driver.CUresult(code))}"
                )

        launch.keep = (self, values, pointers, config, attribute)  # type: ignore[attr-defined]
        return launch


def _encode_map(
    pointer: int, kind: str, sizes: tuple[int, ...], steps: tuple[int, ...], box: tuple[int, ...]
) -> bytes:
    driver = _driver()
    types = driver.CUtensorMapDataType
    held = {
        "float16": types.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        "bfloat16": types.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        "float32": types.CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        "tf32": types.CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,  # float32 in memory, rounded by TMA
    }
    kind, _, by_threads = kind.partition(" ")
    told = f"a tensor of {kind} at {pointer:#x}, {sizes} elements, {steps} bytes apart, in boxes of {box}"
    tensor = (
        held[kind],
        len(sizes),
        pointer,
        [driver.cuuint64_t(n) for n in sizes],
        [driver.cuuint64_t(n) for n in steps],
    )
    line = box[0] * 4 if by_threads else 128  # bytes; boxes for threads are float32
    swizzle = f"{line}B" if line in (64, 128) else "NONE"
    ways = (
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzle}"),
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if len(box) == len(sizes):
        ones = [driver.cuuint32_t(1)] * len(sizes)
        boxes = [driver.cuuint32_t(n) for n in box]
        made = _ok(driver.cuTensorMapEncodeTiled(*tensor, boxes, ones, *ways), told)
    else:  # im2col: channels, pixels, both corners and the strides of each spatial dimension
        channels, pixels, *rest = box
        count = len(sizes) - 2
        low, high, strides = rest[:count], rest[count : 2 * count], rest[2 * count :]
        by = [driver.cuuint32_t(n) for n in (1, *strides, 1)]
        made = _ok(
            driver.cuTensorMapEncodeIm2col(*tensor, low, high, channels, pixels, by, *ways),
            told,
        )
    return ctypes.string_at(int(made.getPtr()), 128)


def _unload(api: CudaApi, index: int, modules: dict[bytes, Any], kept: dict[int, tuple[int, int]]) -> None:
    """Unload kernels that nothing can launch any more, and release their workspaces; after the capture of a graph, if
    there is one, since it would break that."""
    if api.recording is not None:
        api.later.append(lambda: _unload(api, index, modules, kept))
        return
    with contextlib.suppress(CudaError):
        api.sync(index)
        for address, _ in kept.values():
            api.release(index, address)
        for module in modules.values():
            _ok(_driver().cuModuleUnload(module), "unloading kernels")


def _forget(api: CudaApi, graph: Any) -> None:
    """Destroy a graph that is no longer used; also only after a capture."""
    if api.recording is not None:
        api.later.append(lambda: _forget(api, graph))
    else:
        _driver().cuGraphExecDestroy(graph)


def _launch_function() -> Callable[[int, int, int, int], int]:
    """The driver's own `cuLaunchKernelEx`, called directly: through the bindings a launch takes twice as long."""
    driver = _driver()
    code, *found = driver.cuGetProcAddress(b"cuLaunchKernelEx", 12000, 0)
    if int(code) == 0 and int(found[0]):
        return ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(int(found[0]))

    def launch(config: int, function: int, params: int, extra: int) -> int:  # for drivers before CUDA 12
        *sizes, stream, _, _ = _CONFIG.unpack(ctypes.string_at(config, _CONFIG.size))
        return int(driver.cuLaunchKernel(function, *sizes, stream, params, extra)[0])

    return launch


def _allow(function: Any, name: str, nbytes: int) -> None:
    """Opt in to more dynamic shared memory than a kernel has by default."""
    driver = _driver()
    what = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    _ok(driver.cuFuncSetAttribute(function, what, nbytes), f"kernel {name}: {nbytes} bytes of shared memory")


# -- graphs ----------------------------------------------------------------------------------------
class CudaGraph:
    """A CUDA graph: captured launches, which are submitted to the device all at once."""

    def __init__(self, api: CudaApi, index: int) -> None:
        self.api, self.index = api, index
        self._graph: Any = None
        self._kernels: list[_Launcher | Report] = []  # they live as long as the graph
        self._reports: list[Report] = []

    def __call__(self) -> None:
        """Launch the graph on the stream of this thread."""
        self.api.enter(self.index)
        for report in self._reports:
            report.expect()
        _ok(_driver().cuGraphLaunch(self._graph, self.api.stream(self.index)), "launching a CUDA graph")

    def _finish(self, recorded: Any) -> None:
        self._graph = _ok(_driver().cuGraphInstantiate(recorded, 0), "creating a CUDA graph")
        _driver().cuGraphDestroy(recorded)
        self._reports = list(dict.fromkeys(k for k in self._kernels if isinstance(k, Report)))
        # not at exit: the driver may be gone by then
        weakref.finalize(self, _forget, self.api, self._graph).atexit = False


@contextlib.contextmanager
def capture_graph(dev: Device) -> Iterator[CudaGraph]:
    """Capture the launches in the `with` block as a CUDA graph, instead of running them.

    f(a, b)                            # once before, so that everything is compiled and allocated
    with capture_graph(dev) as graph:
        f(a, b)
    graph()
    """
    api = device_api(dev)
    if not isinstance(api, CudaApi):
        raise TVMError(f"launches can be recorded on cuda devices, not on {dev}")
    index, driver = dev.device_id, _driver()
    before, stream = api.stream(index), api.create_stream(index)
    made = CudaGraph(api, index)
    api.sync(index)
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    _ok(driver.cuStreamBeginCapture(stream, mode), "recording launches")
    api.set_stream(index, stream)
    api.recording = made._kernels
    try:
        try:
            yield made
        finally:
            api.recording = None
            recorded = driver.cuStreamEndCapture(stream)
        made._finish(_ok(recorded, "recording launches"))
    finally:
        api.set_stream(index, before)
        api.free_stream(index, stream)
        while api.later:
            api.later.pop(0)()
