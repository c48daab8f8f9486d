"""Kernels on an OpenCL device: by default the processor itself, through PoCL."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))

from gpu_programs import PROGRAMS, QUICK, axis, flat, random

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.errors import LoweringError

DEV = tvm.opencl(0)
pytestmark = pytest.mark.needs("opencl")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in PROGRAMS]
)
def test_program(name: str) -> None:
    PROGRAMS[name]().run("opencl", DEV)


def scaled(n=None, threads: int = 64):
    size = te.var("n") if n is None else n
    A = te.placeholder((size,), name="A")
    B = te.compute((size,), lambda i: A[i] * 2.0, name="B")
    s = te.create_schedule(B.op)
    flat(s, B, threads)
    return s, [A, B]


def test_arrays_go_there_and_back() -> None:
    for dtype in ("float32", "float16", "int8", "int64", "bool"):
        a = np.arange(60).astype(dtype).reshape(4, 15)
        x = tvm.nd.array(a, DEV)
        assert x.device == DEV
        np.testing.assert_array_equal(x.numpy(), a)
        np.testing.assert_array_equal(x.copyto(DEV).numpy(), a)
        np.testing.assert_array_equal(x.copyto(tvm.cpu(0)).numpy(), a)
        np.testing.assert_array_equal(x.reshape(-1, 6).numpy(), a.reshape(-1, 6))
    assert tvm.nd.empty((0, 3), "float32", DEV).numpy().shape == (0, 3)


def test_the_device_tells_of_itself() -> None:
    assert DEV.max_threads_per_block >= 64
    assert DEV.max_shared_memory_per_block >= 16384
    assert DEV.multi_processor_count >= 1
    assert DEV.device_name
    assert tvm.opencl(1000).exist is False
    target = tvm.target.Target.from_device(DEV)
    assert target.kind.name == "opencl"
    assert target.gpu.max_threads_per_block == DEV.max_threads_per_block


def test_a_call_checks_its_arguments() -> None:
    s, args = scaled(32)
    f = tvm.build(s, args, target="opencl")
    x, y = tvm.nd.empty((32,), "float32", DEV), tvm.nd.empty((32,), "float32", DEV)
    with pytest.raises(
        ValueError, match=r"argument 1 \(`A`\) must be on device opencl, got an array on cpu\(0\)"
    ):
        f(np.zeros(32, "float32"), y)
    with pytest.raises(ValueError, match="dimension 0 is 31, expected 32"):
        f(tvm.nd.empty((31,), "float32", DEV), y)
    with pytest.raises(TypeError, match="must have dtype float32, got int32"):
        f(tvm.nd.empty((32,), "int32", DEV), y)
    f(x, y)


def test_nothing_is_launched_for_nothing() -> None:
    s, args = scaled()
    f = tvm.build(s, args, target="opencl")
    f(tvm.nd.empty((0,), "float32", DEV), tvm.nd.empty((0,), "float32", DEV))


def test_bound_calls_and_time() -> None:
    s, args = scaled()
    f = tvm.build(s, args, target="opencl", name="scale")
    a = random(5000)
    x, y = tvm.nd.array(a, DEV), tvm.nd.empty((5000,), "float32", DEV)
    f["scale"].bind(x, y)()
    np.testing.assert_array_equal(y.numpy(), a * 2)
    result = f.time_evaluator("scale", DEV, number=3, repeat=2)(x, y)
    assert len(result.results) == 2 and result.min > 0


def test_the_source_is_in_the_imported_module() -> None:
    s, args = scaled(64)
    f = tvm.build(s, args, target="opencl")
    (inner,) = f.imported_modules
    assert inner.is_device_module and inner.type_key == "opencl" and inner.format == "cl"
    assert inner.get_source() == inner.get_source("cl")
    assert inner.get_source().startswith("__kernel void default_function_kernel(")
    with pytest.raises(tvm.error.TVMError, match="no source in format 'ptx'"):
        inner.get_source("ptx")


def test_limits_are_checked_before_anything_runs() -> None:
    s, args = scaled(4096, threads=512)
    with pytest.raises(LoweringError) as caught:
        tvm.build(s, args, target="opencl")
    assert str(caught.value) == (
        "default_function_kernel: a block has 512 threads, 512 (threadIdx.x), and target opencl allows 256; "
        "split the loops that are bound to threadIdx by smaller factors"
    )
    tvm.build(s, args, target="opencl -max_threads_per_block=1024")


def test_threads_whose_number_comes_late_are_checked_at_the_launch() -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    s[B].bind(B.op.axis[0], axis("threadIdx.x"))
    f = tvm.build(s, [A, B], target="opencl")
    a = random(7)
    y = tvm.nd.empty((7,), "float32", DEV)
    f(tvm.nd.array(a, DEV), y)
    np.testing.assert_array_equal(y.numpy(), a + 1)
    many = DEV.max_threads_per_block + 1
    with pytest.raises(
        tvm.error.TVMError, match=f"default_function_kernel would be launched with {many} threads"
    ):
        f(tvm.nd.empty((many,), "float32", DEV), tvm.nd.empty((many,), "float32", DEV))


def test_too_much_shared_memory_is_refused() -> None:
    A = te.placeholder((8192,), name="A")
    B = te.compute((8192,), lambda i: A[8191 - i], name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    (i,) = sch.get_loops("B")
    unit = sch.add_unit_loop(i)
    sch.bind(unit, "blockIdx.x")
    copy = sch.cache_read("B", 0, "shared")
    sch.compute_at(copy, unit)
    for loop in (sch.get_loops(copy)[-1], i):
        sch.bind(sch.split(loop, [None, 64])[1], "threadIdx.x")
    with pytest.raises(
        LoweringError, match="a block uses 32768 bytes of shared memory, and target opencl allows 16384"
    ):
        tvm.build(sch, target="opencl")


def test_what_is_in_no_kernel_is_named() -> None:
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
    with pytest.raises(
        LoweringError, match="B is written outside of every kernel, where the host runs; bind a loop"
    ):
        tvm.build(te.create_schedule(B.op), [A, B], target="opencl")


def test_two_functions_of_one_module() -> None:
    first, second = scaled(32), scaled(64)
    mod = tvm.IRModule({n: s.to_prim_func(a, name=n) for n, (s, a) in (("one", first), ("two", second))})
    f = tvm.build(mod, target="opencl")
    assert f.function_names == ["one", "two"]
    for name, n in (("one", 32), ("two", 64)):
        a = random(n)
        y = tvm.nd.empty((n,), "float32", DEV)
        f[name](tvm.nd.array(a, DEV), y)
        np.testing.assert_array_equal(y.numpy(), a * 2)


def test_dynamic_shared_memory() -> None:
    """Memory in scope shared.dyn is a parameter of the kernel."""
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[63 - i], name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    (i,) = sch.get_loops("B")
    unit = sch.add_unit_loop(i)
    sch.bind(unit, "blockIdx.x")
    copy = sch.cache_read("B", 0, "shared.dyn")
    sch.compute_at(copy, unit)
    sch.bind(sch.get_loops(copy)[-1], "threadIdx.x")
    sch.bind(i, "threadIdx.x")
    f = tvm.build(sch, target="opencl")
    assert "__local uchar* tw_dynamic_shared" in f.imported_modules[0].get_source()
    a = random(64)
    y = tvm.nd.empty((64,), "float32", DEV)
    f(tvm.nd.array(a, DEV), y)
    np.testing.assert_array_equal(y.numpy(), a[::-1])


# ---------------------------------------------------------------------------- files
def run_scaled(f) -> None:
    a = random(100)
    y = tvm.nd.empty((100,), "float32", DEV)
    f(tvm.nd.array(a, DEV), y)
    np.testing.assert_array_equal(y.numpy(), a * 2)


@pytest.mark.parametrize("suffix", ["so", "tar"])
def test_a_library_carries_its_kernels(tmp_path, suffix) -> None:
    s, args = scaled()
    f = tvm.build(s, args, target="opencl", name="scale")
    path = f.export_library(tmp_path / f"scale.{suffix}")
    loaded = tvm.runtime.load_module(path)
    assert loaded.function_names == ["scale"]
    assert loaded.imported_modules[0].get_source() == f.imported_modules[0].get_source()
    run_scaled(loaded)


def test_host_and_kernels_in_files_of_their_own(tmp_path) -> None:
    """As the documents do it: object file and kernels are saved, linked, loaded and joined."""
    from tilewright.contrib import cc

    s, args = scaled()
    f = tvm.build(s, args, target="opencl", name="myadd")
    f.save(str(tmp_path / "myadd.o"))
    f.imported_modules[0].save(str(tmp_path / "myadd.cl"))
    cc.create_shared(str(tmp_path / "myadd.so"), [str(tmp_path / "myadd.o")])
    loaded = tvm.runtime.load_module(str(tmp_path / "myadd.so"))
    given = tvm.nd.empty((4,), "float32", DEV)
    with pytest.raises(
        tvm.error.TVMError, match=r"the kernels of myadd \(myadd_kernel\) are in another file"
    ):
        loaded(given, given)
    loaded.import_module(tvm.runtime.load_module(str(tmp_path / "myadd.cl")))
    run_scaled(loaded)


def test_a_file_without_kernels_is_refused(tmp_path) -> None:
    (tmp_path / "x.cl").write_text("int x;")
    with pytest.raises(tvm.runtime.errors.LoadError, match="the file contains no kernel"):
        tvm.runtime.load_module(tmp_path / "x.cl")


# ---------------------------------------------------------------------------- less common statements
def test_constant_arrays() -> None:
    values = [1.5, -2.0, 3e38, 0.0, 1e-30, 3.0, 4.0, 5.0]
    text = f"""
from tilewright.script import tir as T

@T.prim_func
def main(A: T.Buffer((8,), "float32")):
    tx = T.launch_thread("threadIdx.x", 8)
    W = T.allocate_const({values}, "float32", [8])
    W_1 = T.Buffer((8,), data=W)
    A[tx] = W_1[7 - tx]
"""
    f = tvm.build(tvm.script.from_source(text), target="opencl")
    y = tvm.nd.empty((8,), "float32", DEV)
    f(y)
    np.testing.assert_array_equal(y.numpy(), np.array(values, "float32")[::-1])


def test_loops_and_conditions_of_the_host() -> None:
    """Kernels inside of loops and branches whose conditions the host knows."""
    text = """
from tilewright.script import tir as T

@T.prim_func
def main(A: T.Buffer((64,), "int32"), n: T.int32):
    for k in range(n):
        if k % 2 == 0:
            with T.launch_thread("threadIdx.x", 64) as tx:
                A[tx] = A[tx] + k
        else:
            with T.launch_thread("threadIdx.x", 64) as tx:
                A[tx] = A[tx] * 2
"""
    f = tvm.build(tvm.script.from_source(text), target="opencl")
    x = tvm.nd.array(np.arange(64, dtype="int32"), DEV)
    f(x, 5)
    want = np.arange(64, dtype="int32")
    for k in range(5):
        want = want + k if k % 2 == 0 else want * 2
    np.testing.assert_array_equal(x.numpy(), want)


def test_while_and_atomics() -> None:
    text = """
from tilewright.script import tir as T

@T.prim_func
def main(A: T.Buffer((64,), "int32"), B: T.Buffer((1,), "int32"), C: T.Buffer((1,), "float32")):
    tx = T.launch_thread("threadIdx.x", 64)
    steps = T.allocate([1], "int32", "local")
    steps_1 = T.Buffer((1,), "int32", data=steps, scope="local")
    left = T.allocate([1], "int32", "local")
    left_1 = T.Buffer((1,), "int32", data=left, scope="local")
    steps_1[0] = 0
    left_1[0] = A[tx]
    while left_1[0] > 0:
        left_1[0] = left_1[0] // 2
        steps_1[0] = steps_1[0] + 1
    T.evaluate(T.atomic_add(T.address_of(B[0]), steps_1[0]))
    T.evaluate(T.atomic_add(T.address_of(C[0]), T.Cast("float32", steps_1[0])))
"""
    f = tvm.build(tvm.script.from_source(text), target="opencl")
    a = np.arange(64, dtype="int32")
    x = [tvm.nd.array(v, DEV) for v in (a, np.zeros(1, "int32"), np.zeros(1, "float32"))]
    f(*x)
    total = sum(int(v).bit_length() for v in a)
    assert int(x[1].numpy()[0]) == total and float(x[2].numpy()[0]) == total
