"""Arrays: values in and out, sharing with NumPy, PyTorch and JAX, refusals."""

from __future__ import annotations

import copy
import ctypes
import gc
import pickle
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tvm
from tilewright import runtime, te
from tilewright.runtime import Device, DeviceApi, nd, register_device_api
from tilewright.runtime.devices import _apis

ALL = [
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float16", "float32", "float64", "bfloat16", "float8_e4m3fn", "float8_e5m2", "bool"),
]


def numpy_dtype(name: str) -> Any:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def sample(name: str) -> np.ndarray[Any, Any]:
    return np.array([[0, 1, 2], [3, 1, 0]]).astype(numpy_dtype(name))


class TestDevice:
    def test_names_and_numbers(self) -> None:
        assert str(runtime.cpu()) == "cpu(0)"
        assert runtime.device("llvm -mcpu=znver4", 0) == runtime.cpu(0)
        assert runtime.device("cuda", 1) == runtime.cuda(1) != runtime.cuda(0)
        assert len({runtime.cpu(0), runtime.cpu(0), runtime.opencl(0)}) == 2
        assert runtime.device(4).device_type == runtime.cl().device_type
        assert runtime.vulkan().kind == "vulkan"

    def test_a_target_names_its_device(self) -> None:
        class Kind:
            name = "cuda"

        class Target:
            kind = Kind()

        assert runtime.device(Target()) == runtime.cuda(0)

    def test_unknown(self) -> None:
        with pytest.raises(ValueError, match="unknown device 'toaster'; known are cpu, cuda, opencl"):
            runtime.device("toaster")

    def test_presence(self) -> None:
        assert runtime.cpu().exist
        assert not runtime.metal().exist
        runtime.cpu().sync()
        with pytest.raises(ValueError, match=r"device metal\(0\) is not available"):
            runtime.metal().sync()


class TestValues:
    @pytest.mark.parametrize("name", ALL)
    def test_round_trip(self, name: str) -> None:
        values = sample(name)
        x = nd.array(values)
        assert (x.dtype, x.shape, x.ndim, x.size) == (name, (2, 3), 2, 6)
        assert x.nbytes == values.nbytes
        assert x.numpy().dtype == values.dtype
        np.testing.assert_array_equal(x.asnumpy(), values)

    @pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (5, 7)])
    def test_memory_is_aligned_and_dense(self, shape: tuple[int, ...]) -> None:
        x = nd.empty(shape, "int8")
        assert x.data_ptr % 64 == 0
        assert x.is_contiguous()
        assert x.numpy().shape == shape

    def test_numpy_is_a_copy_and_asarray_is_not(self) -> None:
        x = nd.array(np.zeros(3, "float32"))
        copied, shared = x.numpy(), np.asarray(x)
        shared[0] = 5
        assert copied[0] == 0
        assert x[0] == 5
        assert np.asarray(x, "float64").dtype == np.float64
        with pytest.raises(ValueError, match="cannot become float64 without a copy"):
            x.__array__("float64", copy=False)

    def test_elements_and_parts(self) -> None:
        x = nd.array(np.arange(6, dtype="int32").reshape(2, 3))
        assert x[1, 2] == 5
        assert x[:] is x
        assert x[...] is x
        x[0, 1] = 9
        x[1][0] = 7
        np.testing.assert_array_equal(x.numpy(), [[0, 9, 2], [7, 4, 5]])
        x[:] = 1
        x[...] = nd.array(np.full((2, 3), 4))
        assert [int(row[0]) for row in x] == [4, 4]
        assert len(x) == 2
        with pytest.raises(TypeError, match="zero dimensions"):
            len(nd.array(3))

    def test_scalars(self) -> None:
        one = nd.array(np.float32(1.5))
        assert (float(one), int(one), bool(one), one.item()) == (1.5, 1, True, 1.5)

    def test_copies(self) -> None:
        x = nd.array([1.0, 2.0])
        assert x.dtype == "float64"
        y = nd.empty((2,), "float64")
        assert x.copyto(y) is y
        np.testing.assert_array_equal(y.numpy(), [1, 2])
        z = x.copyto(runtime.cpu(0))
        z[0] = 8
        assert x[0] == 1
        assert y.copyfrom([3, 4])[1] == 4
        with pytest.raises(ValueError, match=r"values of shape \(3,\) into an array of shape \(2,\)"):
            y.copyfrom([1, 2, 3])
        with pytest.raises(ValueError, match="array of float64 into one of float32"):
            x.copyto(nd.empty((2,)))
        with pytest.raises(TypeError, match="not list"):
            x.copyto([1.0])  # type: ignore[arg-type]

    def test_views(self) -> None:
        x = nd.array(np.arange(6, dtype="float32"))
        y = x.reshape(2, 3)
        y[0, 0] = 9
        assert x[0] == 9
        assert x._create_view((6,), "int32").dtype == "int32"
        with pytest.raises(ValueError, match="dense"):
            nd.numpyasarray(np.zeros((4, 4))[:, ::2]).reshape(8)

    def test_pickle_and_copy(self) -> None:
        x = nd.array(sample("bfloat16"))
        for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
            assert (y.dtype, y.device) == (x.dtype, x.device)
            np.testing.assert_array_equal(y.numpy(), x.numpy())

    def test_refusals(self) -> None:
        with pytest.raises(ValueError, match=r"arrays of 'complex64'|'<c8'"):
            nd.array(np.zeros(2, "complex64"))
        with pytest.raises(ValueError, match="negative extent"):
            nd.empty((-1,))
        with pytest.raises(TypeError, match="a tuple of integers"):
            nd.empty("ab")
        with pytest.raises(ValueError, match="memory scope 'shared'"):
            nd.empty((1,), mem_scope="shared")
        with pytest.raises(TypeError, match=r"made with nd\.array"):
            nd.NDArray()
        frozen = np.zeros(2)
        frozen.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            nd.numpyasarray(frozen)[0] = 1

    def test_text(self) -> None:
        text = repr(nd.array(np.zeros(2, "int8")))
        assert text.startswith("<NDArray shape=(2,), dtype=int8, device=cpu(0)>")


class TestSharing:
    def test_numpy(self) -> None:
        values = np.arange(4.0)
        x = nd.from_dlpack(values)
        values[2] = 9
        assert x[2] == 9
        assert np.from_dlpack(x).__array_interface__["data"][0] == x.data_ptr
        assert nd.numpyasarray(values).data_ptr == x.data_ptr

    def test_a_capsule_is_used_once(self) -> None:
        capsule = nd.array([1.0]).to_dlpack()
        assert nd.from_dlpack(capsule)[0] == 1.0
        with pytest.raises(ValueError, match="already consumed"):
            nd.from_dlpack(capsule)

    @pytest.mark.slow
    def test_the_capsule_keeps_the_memory(self) -> None:
        values = np.full(1000, 7.0)
        gone = weakref.ref(values)
        capsule = nd.numpyasarray(values).to_dlpack()
        del values
        gc.collect()
        assert gone() is not None
        x = nd.from_dlpack(capsule)
        del capsule
        view = np.asarray(x)
        del x
        gc.collect()
        assert view[999] == 7.0
        del view
        gc.collect()
        assert gone() is None

    def test_an_unused_capsule_frees_the_memory(self) -> None:
        values = np.zeros(10)
        gone = weakref.ref(values)
        capsule = nd.numpyasarray(values).to_dlpack()
        del values, capsule
        gc.collect()
        assert gone() is None

    def test_read_only_memory_stays_read_only(self) -> None:
        values = np.zeros(2)
        values.flags.writeable = False
        capsule = nd.numpyasarray(values).__dlpack__(max_version=(1, 0))
        x = nd.from_dlpack(capsule)
        with pytest.raises(ValueError, match="read-only"):
            x[:] = 1

    def test_what_is_no_tensor(self) -> None:
        with pytest.raises(TypeError, match="int does not support DLPack"):
            nd.from_dlpack(3)

    @pytest.mark.parametrize("name", ALL)
    def test_torch(self, name: str) -> None:
        torch = pytest.importorskip("torch")
        x = nd.array(sample(name))
        t = torch.from_dlpack(x)
        assert str(t.dtype) == f"torch.{name}"
        assert t.data_ptr() == x.data_ptr
        back = nd.from_dlpack(t)
        assert (back.data_ptr, back.dtype) == (x.data_ptr, name)
        np.testing.assert_array_equal(back.numpy(), x.numpy())
        back[0, 0] = 1
        assert float(t[0, 0]) == 1

    def test_torch_strides(self) -> None:
        torch = pytest.importorskip("torch")
        t = torch.arange(12.0).reshape(3, 4)
        x = nd.from_dlpack(t.T)
        assert (x.shape, x.strides, x.is_contiguous()) == ((4, 3), (1, 4), False)
        del t
        gc.collect()
        np.testing.assert_array_equal(x.numpy(), np.arange(12.0).reshape(3, 4).T)
        np.testing.assert_array_equal(nd.array(x).numpy(), x.numpy())

    @pytest.mark.parametrize("name", [n for n in ALL if "64" not in n])
    def test_jax(self, name: str) -> None:
        jnp = pytest.importorskip("jax.numpy")
        x = nd.array(sample(name))
        j = jnp.from_dlpack(x)
        assert j.dtype == numpy_dtype(name)
        assert j.unsafe_buffer_pointer() == x.data_ptr
        back = nd.from_dlpack(j)
        assert (back.data_ptr, back.dtype) == (x.data_ptr, name)
        np.testing.assert_array_equal(back.numpy(), x.numpy())
        with pytest.raises(ValueError, match="read-only"):
            back[:] = 0

    def test_unsupported_types_are_refused_and_freed_once(self) -> None:
        torch = pytest.importorskip("torch")
        t = torch.zeros(4, dtype=torch.complex64)
        for _ in range(3):
            with pytest.raises(TypeError, match="DLPack type code 5 of 64 bits"):
                nd.from_dlpack(t)
        gc.collect()
        assert t.sum() == 0


class HostPosingAsDevice(DeviceApi):
    """Another device whose memory happens to be the host's."""

    def __init__(self) -> None:
        self.held: dict[int, Any] = {}
        self.synced = 0

    def count(self) -> int:
        return 1

    def allocate(self, index: int, nbytes: int) -> int:
        memory = ctypes.create_string_buffer(max(1, nbytes))
        self.held[ctypes.addressof(memory)] = memory
        return ctypes.addressof(memory)

    def release(self, index: int, address: int) -> None:
        del self.held[address]

    def upload(self, index: int, address: int, source: int, nbytes: int) -> None:
        ctypes.memmove(address, source, nbytes)

    def download(self, index: int, address: int, target: int, nbytes: int) -> None:
        ctypes.memmove(target, address, nbytes)

    def sync(self, index: int) -> None:
        self.synced += 1


class TestOtherDevices:
    def test_arrays_on_a_registered_device(self) -> None:
        api = HostPosingAsDevice()
        before = dict(_apis)
        register_device_api("ext_dev", api)
        try:
            dev = runtime.ext_dev(0)
            assert dev.exist
            assert not Device(dev.device_type, 1).exist
            dev.sync()
            assert api.synced == 1
            x = nd.array(np.arange(3, dtype="float32"), dev)
            assert x.device == dev
            np.testing.assert_array_equal(x.numpy(), [0, 1, 2])
            x[:] = 5
            y = x.copyto(runtime.cpu())
            np.testing.assert_array_equal(y.numpy(), [5, 5, 5])
            with pytest.raises(ValueError, match=r"read with \.numpy"):
                x[0]
            with pytest.raises(ValueError, match="written as a whole"):
                x[0] = 1
            with pytest.raises(BufferError, match="copy it to the CPU"):
                x.to_dlpack()
            del x
            gc.collect()
            assert not api.held
        finally:
            del _apis[12]
            _apis.update(before)

    def test_arrays_on_an_absent_device(self) -> None:
        with pytest.raises(ValueError, match=r"device metal\(0\) is not available"):
            nd.empty((1,), device=runtime.metal())


# ---------------------------------------------------------------------------- views of a part
def test_a_view_of_a_part():
    whole = nd.array(np.arange(64, dtype="int32").reshape(8, 8))
    half = whole._create_view((4, 8), relative_byte_offset=4 * 32)
    np.testing.assert_array_equal(half.numpy(), np.arange(32, 64).reshape(4, 8))
    quarter = half._create_view([16], relative_byte_offset=4 * 16)
    np.testing.assert_array_equal(quarter.numpy(), np.arange(48, 64))
    quarter[:] = np.zeros(16, "int32")  # shares the memory
    assert not whole.numpy()[6:].any() and whole.numpy()[5].all()
    bits = whole._create_view([2, 2], "int16")
    np.testing.assert_array_equal(bits.numpy(), [[0, 0], [1, 0]])


def test_a_view_beyond_the_array_is_refused():
    whole = nd.array(np.arange(64, dtype="int32"))
    text = "would occupy bytes 128 <= i_byte < 384, but the NDArray being viewed only contains 256 bytes"
    with pytest.raises(ValueError, match=text):
        whole._create_view([64], relative_byte_offset=128)
    with pytest.raises(ValueError, match="cannot begin at byte 2"):
        whole._create_view([4], relative_byte_offset=2)
    with pytest.raises(ValueError, match=r"cannot reshape array of shape \(64,\) into shape \(32,\)"):
        whole.reshape(32)


def test_devices_by_text():
    assert runtime.device("cuda:1") == Device(2, 1) and runtime.device("cpu") == Device(1, 0)
    with pytest.raises(ValueError, match="the number of the device is missing"):
        runtime.device("cuda:")


def test_an_array_of_vectors_has_a_dimension_of_lanes() -> None:
    a = te.placeholder((8,), "float32x2", "A")
    b = te.compute((8,), lambda i: a[i] + tvm.tir.const(1, a.dtype), name="B")
    f = tvm.build(te.create_schedule(b.op), [a, b], "llvm")
    x = tvm.nd.empty((8,), a.dtype).copyfrom(np.arange(16.0).reshape(8, 2))
    y = tvm.nd.empty((8,), "float32x2")
    f(x, y)
    np.testing.assert_array_equal(y.numpy(), x.numpy() + 1)
    assert tvm.nd.empty((3,), "int8x4").shape == (3, 4)
    with pytest.raises(ValueError, match="the runtime has no arrays of 'float33x2'"):
        tvm.nd.empty((3,), "float33x2")
