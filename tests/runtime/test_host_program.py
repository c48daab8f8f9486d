"""Functions that launch kernels: the Python that a host program becomes, and what it refuses."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tilewright.runtime import dlpack
from tilewright.runtime.device_module import DeviceModule, HostModule
from tilewright.runtime.devices import Device, DeviceApi, register_device_api
from tilewright.runtime.dtypes import element
from tilewright.runtime.errors import LoadError, TVMError
from tilewright.runtime.host_program import host_function, host_source
from tilewright.runtime.layout import layout_of
from tilewright.runtime.metadata import FunctionInfo, parse_metadata
from tilewright.runtime.ndarray import array, empty


def function_info(device: str = "ext_dev") -> FunctionInfo:
    def param(name: str, access: str) -> dict[str, Any]:
        return {
            "kind": "buffer",
            "name": name,
            "dtype": "float32",
            "shape": ["n"],
            "access": access,
            "device": device,
        }

    data = {
        "format": 1,
        "functions": [
            {
                "name": "f",
                "params": [param("A", "r"), param("B", "w")],
                "symbols": [{"name": "n", "dtype": "int32"}],
            }
        ],
    }
    return parse_metadata(data, "test").functions["f"]


PROGRAM = {
    "kernels": {"first": ["ptr", "ptr", "int32"], "second": ["ptr"]},
    "body": [
        [
            "alloc",
            "T",
            ["*", "n", 4],
            [
                [
                    "let",
                    "blocks",
                    ["//", ["+", "n", 31], 32],
                    [["launch", "first", ["A", "T", "n"], ["blocks", 1, 1], [32, 1, 1], 0]],
                ],
                [
                    "for",
                    "i",
                    0,
                    2,
                    [["if", ["<", "i", "n"], [["launch", "second", ["T"], [1, 1, 1], [8, 2, 1], 64]], []]],
                ],
            ],
        ]
    ],
}


class Recorder:
    """A device that only notes what it is told."""

    max_threads = 256

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def kernel(self, name: str, kinds: Any) -> Any:
        return lambda *sizes: self.calls.append((name, *sizes))

    def workspace(self, slot: int, nbytes: int) -> int:
        self.calls.append(("workspace", slot, nbytes))
        return 4096


def test_the_source(expect) -> None:
    expect(
        host_source(function_info(), PROGRAM),
        """
        def make(*, kernels, workspace, refuse, fail, tensor_map, most_threads):
            launch0, launch1 = kernels
            def run(v0, v1, v2):
                v3 = workspace(0, (v2 * 4))
                v4 = ((v2 + 31) // 32)
                e0, e1, e2, e3, e4, e5 = v4, 1, 1, 32, 1, 1
                if e0:
                    if e0 > 2147483647:
                        refuse('first', (e0, e1, e2), (e3, e4, e5))
                    launch0(e0, e1, e2, e3, e4, e5, 0, (v0, v3, v2))
                for v5 in range(0, 0 + 2):
                    if (v5 < v2):
                        launch1(1, 1, 1, 8, 2, 1, 64, (v3,))
                return 0
            return run
        """,
    )


def test_what_is_launched() -> None:
    device = Recorder()
    run = host_function(function_info(), PROGRAM, device)
    assert run(100, 200, 70) == 0
    assert device.calls == [
        ("workspace", 0, 280),
        ("first", 3, 1, 1, 32, 1, 1, 0, (100, 4096, 70)),
        ("second", 1, 1, 1, 8, 2, 1, 64, (4096,)),
        ("second", 1, 1, 1, 8, 2, 1, 64, (4096,)),
    ]
    del device.calls[:]
    run(100, 200, 0)
    assert [c[0] for c in device.calls] == ["workspace"]


def body(*steps: Any) -> dict[str, Any]:
    return {"kernels": {"k": ["ptr"]}, "body": list(steps)}


@pytest.mark.parametrize(
    ("program", "n", "reason"),
    [
        (
            body(["launch", "k", ["A"], [1, 1, 1], ["n", 1, 1], 0]),
            257,
            "f: k would be launched with 257 threads in a block, and the device allows 256",
        ),
        (
            body(["launch", "k", ["A"], [1, "n", 1], [1, 1, 1], 0]),
            65536,
            "f: k would be launched with 65536 blocks along blockIdx.y, and the device allows 65535",
        ),
        (
            body(["assert", ["==", ["%", "n", 4], 0], "n must be a multiple of 4", []]),
            5,
            "f: n must be a multiple of 4",
        ),
    ],
)
def test_refusals(program: Any, n: int, reason: str) -> None:
    run = host_function(function_info(), program, Recorder())
    with pytest.raises(TVMError) as caught:
        run(1, 2, n)
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        (["launch", "k", ["Z"], [1, 1, 1], [1, 1, 1], 0], "the host program uses 'Z', which is not defined"),
        (["__init__", []], "the host program has the unknown step '__init__'"),
        (["let", "x", ["system", 1], []], "the host program has the unknown operation 'system'"),
    ],
)
def test_foreign_programs(steps: Any, reason: str) -> None:
    with pytest.raises(LoadError, match=reason):
        host_source(function_info(), body(steps))


def test_division_rounds_as_c_does() -> None:
    seen: list[Any] = []
    device = Recorder()
    device.calls = seen
    program = body(["launch", "k", [["quot", ["-", 0, "n"], 2]], [1, 1, 1], [1, 1, 1], 0])
    host_function(function_info(), program, device)(1, 2, 7)
    program = body(["launch", "k", [["rem", ["-", 0, "n"], 2]], [1, 1, 1], [1, 1, 1], 0])
    host_function(function_info(), program, device)(1, 2, 7)
    assert [c[-1] for c in seen] == [(-3,), (-1,)]


class HostMemory(DeviceApi):
    """Devices whose memory is the host's, under addresses of their own."""

    def __init__(self) -> None:
        self.blocks: dict[int, Any] = {}
        self.recorder = Recorder()

    def count(self) -> int:
        return 2

    def allocate(self, index: int, nbytes: int) -> int:
        block = ctypes.create_string_buffer(max(1, nbytes) + 64)
        address = -(-ctypes.addressof(block) // 64) * 64
        self.blocks[address] = block
        return address

    def release(self, index: int, address: int) -> None:
        self.blocks.pop(address, None)

    def upload(self, index: int, address: int, source: int, nbytes: int) -> None:
        ctypes.memmove(address, source, nbytes)

    def download(self, index: int, address: int, target: int, nbytes: int) -> None:
        ctypes.memmove(target, address, nbytes)

    def copy(self, index: int, target: int, source: int, nbytes: int) -> None:
        ctypes.memmove(target, source, nbytes)

    def sync(self, index: int) -> None:
        pass

    def launcher(self, index: int, source: str, options: Any) -> Recorder:
        self.recorder.calls.append(("compile", index))
        return self.recorder


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> HostMemory:
    from tilewright.runtime import devices

    monkeypatch.setattr(devices, "_apis", dict(devices._apis))
    made = HostMemory()
    register_device_api("ext_dev", made)
    return made


def module() -> HostModule:
    info = function_info()
    functions = [
        {
            "name": "f",
            "params": [
                {
                    "kind": "buffer",
                    "name": p.name,
                    "dtype": "float32",
                    "shape": ["n"],
                    "access": "rw",
                    "device": "ext_dev",
                }
                for p in info.params
            ],
            "symbols": [{"name": "n", "dtype": "int32"}],
        }
    ]
    description = {"format": 1, "functions": functions, "programs": {"f": PROGRAM}}
    return HostModule(description, DeviceModule("ext_dev", "source", ["first", "second"]))


def test_a_module_compiles_for_each_device_once(api: HostMemory) -> None:
    f = module()
    for index in (0, 1, 0):
        dev = Device(12, index)
        f(empty((40,), "float32", dev), empty((40,), "float32", dev))
    assert [c for c in api.recorder.calls if c[0] == "compile"] == [("compile", 0), ("compile", 1)]
    assert len([c for c in api.recorder.calls if c[0] == "first"]) == 3


def test_arrays_of_two_devices_do_not_meet(api: HostMemory) -> None:
    with pytest.raises(
        ValueError, match=r"f: the arrays are on several devices: ext_dev\(0\), ext_dev\(1\); copy them"
    ):
        module()(empty((4,), "float32", Device(12, 0)), empty((4,), "float32", Device(12, 1)))


def test_a_bound_call_goes_to_its_device(api: HostMemory) -> None:
    dev = Device(12, 1)
    bound = module()["f"].bind(empty((4,), "float32", dev), empty((4,), "float32", dev))
    bound()
    bound()
    assert [c for c in api.recorder.calls if c[0] == "compile"] == [("compile", 1)]
    assert len([c for c in api.recorder.calls if c[0] == "first"]) == 2


def test_copies_and_views_on_a_device(api: HostMemory) -> None:
    dev = Device(12, 0)
    a = np.arange(24, dtype="float32").reshape(4, 6)
    x = array(a, dev)
    y = empty((4, 6), "float32", dev).copyfrom(x)
    np.testing.assert_array_equal(y.numpy(), a)
    np.testing.assert_array_equal(x.reshape(3, -1).numpy(), a.reshape(3, 8))
    np.testing.assert_array_equal(x._create_view((24,), "int32").numpy(), a.reshape(-1).view("int32"))
    with pytest.raises(ValueError, match="cannot reshape array of shape"):
        x.reshape(5, 5)


def test_memory_is_lent_as_a_capsule() -> None:
    """With the host's memory in place of a device's, so that somebody here can take it."""
    torch = pytest.importorskip("torch")
    values = np.arange(12, dtype="float32").reshape(3, 4)

    class Owner:
        held = values

    owner = Owner()
    import weakref

    alive = weakref.ref(owner)
    layout = layout_of("float32", (3, 4))
    taken = torch.from_dlpack(dlpack.export_device(values.ctypes.data, layout, element("float32"), owner))
    del owner
    assert alive() is not None
    assert taken.data_ptr() == values.ctypes.data and taken.shape == (3, 4)
    assert float(taken[2, 3]) == 11
    del taken
    assert alive() is None
    dlpack.export_device(values.ctypes.data, layout, element("float32"), other := Owner())
    gone = weakref.ref(other)
    del other
    assert gone() is None  # nobody took it


def test_a_module_goes_when_nobody_uses_it(api: HostMemory) -> None:
    """Without waiting for the collector: a tuner makes many."""
    import weakref

    f = module()
    dev = Device(12, 0)
    f(empty((4,), "float32", dev), empty((4,), "float32", dev))
    function, alive = f["f"], weakref.ref(f.imported_modules[0])
    del f
    assert alive() is not None
    del function
    assert alive() is None
