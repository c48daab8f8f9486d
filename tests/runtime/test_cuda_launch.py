"""How a launch is handed to CUDA's driver, without one: what a stand-in for the driver finds at the addresses."""

from __future__ import annotations

import ctypes
import struct
from types import SimpleNamespace
from typing import Any

import pytest

import tilewright as tvm
from tilewright.runtime import cuda_driver
from tilewright.runtime.cuda_compiler import Image, after_others, compiled
from tilewright.runtime.cuda_driver import CudaApi, CudaError

COUNT = [0]  # parameters of the kernel at hand


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    seen: list[Any] = []
    code = [0]

    def launch(config: int, function: int, params: int, extra: int) -> int:
        numbers = struct.unpack("<7I4xQQI4x", ctypes.string_at(config, 56))
        slots = (ctypes.c_void_p * COUNT[0]).from_address(params)
        values = [ctypes.string_at(slot, 8) for slot in slots]
        seen.append((function, numbers, values))
        return code[0]

    def set_attribute(function: Any, what: Any, value: int) -> tuple[int]:
        seen.append(("shared", value))
        return (0,)

    driver = SimpleNamespace(
        cuModuleGetFunction=lambda module, name: (0, 77 if name == b"k" else 78),
        cuFuncSetAttribute=set_attribute,
        CUfunction_attribute=SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8),
        CUresult=int,
        cuGetErrorName=lambda c: (0, b"CUDA_ERROR_INVALID_VALUE"),
        cuGetErrorString=lambda c: (0, b"invalid argument"),
    )
    monkeypatch.setattr(cuda_driver, "_driver", lambda: driver)
    monkeypatch.setattr(cuda_driver, "_launch_function", lambda: launch)
    seen.append(code)
    return seen


def kernel(kinds: list[str], waits: bool = False) -> Any:
    COUNT[0] = len(kinds)
    api = CudaApi(1)
    api._thread.device = 0
    made = object.__new__(cuda_driver._Launcher)
    made.api, made.index, made._kept, made.recorded = api, 0, {}, False
    made._images, made._modules = {"": Image(b"code", "", waits)}, {b"code": 5}
    return made.kernel("k", kinds), api


def test_values_and_sizes_arrive(launches: list[Any]) -> None:
    launch, api = kernel(["ptr", "int32", "float32", "int64"])
    api.set_stream(0, 1234)
    launch(3, 2, 1, 64, 1, 1, 0, (1 << 40, -5, 1.5, -(1 << 40)))
    function, numbers, values = launches[-1]
    assert function == 77
    assert numbers == (3, 2, 1, 64, 1, 1, 0, 1234, 0, 0)
    assert struct.unpack("<Q", values[0]) == (1 << 40,)
    assert struct.unpack("<i", values[1][:4]) == (-5,)
    assert struct.unpack("<f", values[2][:4]) == (1.5,)
    assert struct.unpack("<q", values[3]) == (-(1 << 40),)


def test_a_kernel_that_waits_by_itself_is_launched_so(launches: list[Any]) -> None:
    launch, _ = kernel(["ptr"], waits=True)
    launch(1, 1, 1, 32, 1, 1, 0, (1,))
    *_, attributes, count = launches[-1][1]
    assert count == 1
    # CUlaunchAttribute: programmatic stream serialization is allowed
    assert struct.unpack("<I4xi60x", ctypes.string_at(attributes, 72)) == (6, 1)


KERNELS = """static __device__ int helper(int a) { return a; }
extern "C" __global__ void __launch_bounds__(32) one(float* __restrict__ a) {
  a[0] = 1.0f;
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(32) other(float* __restrict__ a,
    int n) {
  a[n] = 1.0f;
}
"""


def test_kernels_wait_for_others_first() -> None:
    made, waits = after_others(KERNELS)
    wait = '  asm volatile("griddepcontrol.wait;\\n\\tgriddepcontrol.launch_dependents;" ::: "memory");\n'
    assert waits and made.count(wait) == 2 and made.replace(wait, "") == KERNELS
    assert f"int n) {{\n{wait}" in made
    theirs = KERNELS.replace('extern "C" __global__ void __launch_bounds__(32) one', "__global__ void one")
    assert after_others(theirs) == (theirs, False)  # nobody knows what that one does


@pytest.mark.needs("nvrtc")
@pytest.mark.parametrize(("arch", "waits"), [("sm_90a", True), ("sm_80", False)])
def test_only_where_the_device_knows_how(arch: str, waits: bool) -> None:
    one = KERNELS[: KERNELS.index('extern "C" __global__ void __cluster_dims__')]
    assert compiled(one, arch, False)[""].waits == waits


def test_much_shared_memory_is_asked_for_once(launches: list[Any]) -> None:
    launch, _ = kernel(["ptr"])
    for _ in range(2):
        launch(1, 1, 1, 32, 1, 1, 100_000, (1,))
    assert launches.count(("shared", 100_000)) == 1
    assert launches[-1][1][6] == 100_000


def test_a_launch_that_fails_names_the_kernel(launches: list[Any]) -> None:
    launch, _ = kernel(["ptr"])
    launches[0][0] = 1
    with pytest.raises(CudaError) as caught:
        launch(1, 1, 1, 32, 1, 1, 0, (1,))
    assert str(caught.value) == (
        "kernel k cannot be launched with grid (1, 1, 1), block (32, 1, 1), 0 bytes of shared memory: "
        "CUDA_ERROR_INVALID_VALUE (invalid argument)"
    )


def test_an_older_driver_is_called_through_the_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    driver = SimpleNamespace(
        cuGetProcAddress=lambda name, version, flags: (0, 0, 1),
        cuLaunchKernel=lambda *args: seen.append(args) or (0,),
    )
    monkeypatch.setattr(cuda_driver, "_driver", lambda: driver)
    config = ctypes.create_string_buffer(struct.pack("<7I4xQQI4x", 3, 2, 1, 64, 1, 1, 128, 99, 0, 0), 56)
    assert cuda_driver._launch_function()(ctypes.addressof(config), 77, 5000, 0) == 0
    assert seen == [(77, 3, 2, 1, 64, 1, 1, 128, 99, 5000, 0)]


def test_a_newer_driver_is_called_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    @ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
    def native(*args: Any) -> int:
        seen.append(args)
        return 3

    address = ctypes.cast(native, ctypes.c_void_p).value
    driver = SimpleNamespace(cuGetProcAddress=lambda name, version, flags: (0, address, 0))
    monkeypatch.setattr(cuda_driver, "_driver", lambda: driver)
    assert cuda_driver._launch_function()(4096, 77, 5000, 0) == 3
    assert seen == [(4096, 77, 5000, None)]


def test_kernels_are_given_back_with_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[Any] = []
    driver = SimpleNamespace(
        cuModuleUnload=lambda module: gone.append(module) or (0,), cuStreamSynchronize=lambda s: (0,)
    )
    monkeypatch.setattr(cuda_driver, "_driver", lambda: driver)
    api = CudaApi(1)
    api._thread.device = 0
    api._sizes[0, 4096] = 512
    cuda_driver._unload(api, 0, {b"one": 5, b"two": 6}, {0: (4096, 512)})
    assert gone == [5, 6] and api._free == {(0, 512): [4096]}


def test_a_recording_keeps_its_kernels(launches: list[Any]) -> None:
    launch, api = kernel(["ptr"])
    api.recording = kept = []
    launch(1, 1, 1, 32, 1, 1, 0, (1,))
    api.recording = None
    launch(1, 1, 1, 32, 1, 1, 0, (1,))
    assert len(kept) == 1 and kept[0].recorded


def test_nothing_is_given_back_while_launches_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """`with capture_graph(dev) as graph` drops the graph of that name when it has begun to record."""
    gone: list[Any] = []
    driver = SimpleNamespace(
        cuModuleUnload=lambda module: gone.append(module) or (0,),
        cuGraphExecDestroy=lambda graph: gone.append(graph) or (0,),
        cuStreamSynchronize=lambda s: (0,),
        cuStreamCreate=lambda flags: (0, 9),
        cuStreamDestroy=lambda s: (0,),
        cuStreamBeginCapture=lambda s, mode: (0,),
        cuStreamEndCapture=lambda s: (0, "recorded"),
        cuGraphInstantiate=lambda graph, flags: (0, "new graph"),
        cuGraphDestroy=lambda graph: (0,),
        CUstream_flags=SimpleNamespace(CU_STREAM_NON_BLOCKING=1),
        CUstreamCaptureMode=SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1),
    )
    monkeypatch.setattr(cuda_driver, "_driver", lambda: driver)
    api = CudaApi(1)
    api._thread.device = 0
    monkeypatch.setattr(cuda_driver, "device_api", lambda dev: api)
    with cuda_driver.capture_graph(tvm.cuda(0)) as graph:
        cuda_driver._forget(api, "old graph")
        cuda_driver._unload(api, 0, {b"one": 5}, {})
        assert gone == []
    assert gone == ["old graph", 5]
    del graph
    assert gone[2:] == ["new graph"]


@pytest.mark.parametrize(
    ("clock", "width", "want"),  # kHz and bits, as the driver tells them
    [(3201000, 6144, 4917), (2619000, 5120, 3352), (1215000, 5120, 1555), (5001000, 256, 320), (0, 0, 0)],
    ids=["H200", "H100", "A100", "T4", "none told"],
)
def test_bandwidth_is_clock_times_width(
    monkeypatch: pytest.MonkeyPatch, clock: int, width: int, want: int
) -> None:
    known = {"MEMORY_CLOCK_RATE": clock, "GLOBAL_MEMORY_BUS_WIDTH": width}
    names = {f"CU_DEVICE_ATTRIBUTE_{name}": name for name in known}
    driver = SimpleNamespace(
        cuDeviceGet=lambda index: (0, index),
        CUdevice_attribute=SimpleNamespace(**names),
        cuDeviceGetAttribute=lambda name, device: (0, known[name]),
    )
    monkeypatch.setattr(cuda_driver, "_driver", lambda: driver)
    assert CudaApi(1).attribute(0, "memory_bandwidth") == want
