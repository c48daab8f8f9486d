"""What only a CUDA device can show: PyTorch's memory, events, graphs, streams, large shared memory, faults.

Each function takes a device, needs no pytest, and raises if something is wrong. What it returns is told.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from gpu_programs import PROGRAMS, asynchronous_copies, axis, flat, random

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.errors import LoweringError

CHECKS: dict[str, Callable[[Any], Any]] = {}


def check(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    CHECKS[f.__name__] = f
    return f


def scaled(n: Any = None, lanes: int = 1) -> Any:
    """`B = A * 2`, for any size or one."""
    size = te.var("n") if n is None else n
    A = te.placeholder((size,), name="A")
    B = te.compute((size,), lambda i: A[i] * 2.0, name="B")
    s = te.create_schedule(B.op)
    if lanes == 1:
        flat(s, B, 256)
    else:
        outer, lane = s[B].split(B.op.axis[0], factor=lanes)
        bx, tx = s[B].split(outer, factor=256)
        s[B].bind(bx, axis("blockIdx.x"))
        s[B].bind(tx, axis("threadIdx.x"))
        s[B].vectorize(lane)
    return tvm.build(s, [A, B], target="cuda")


@check
def attributes(dev: Any) -> str:
    assert dev.exist and dev.max_threads_per_block >= 512 and dev.warp_size == 32
    assert dev.max_shared_memory_per_block >= 49152 and dev.multi_processor_count > 0
    target = tvm.target.Target.from_device(dev)
    assert target.arch.startswith("sm_")
    assert not dev.memory_bandwidth or target.gpu.bandwidth == dev.memory_bandwidth
    told = f"{dev.device_name}, {dev.compute_version}, {dev.multi_processor_count} processors"
    return f"{told}, {target.gpu.bandwidth:.0f} GB/s, {target}"


@check
def arrays(dev: Any) -> None:
    for dtype in ("float32", "float16", "int8", "int64", "bool"):
        a = np.arange(100).astype(dtype).reshape(4, 25)
        x = tvm.nd.array(a, dev)
        np.testing.assert_array_equal(x.numpy(), a)
        np.testing.assert_array_equal(x.copyto(dev).numpy(), a)
        np.testing.assert_array_equal(x.copyto(tvm.cpu(0)).numpy(), a)
    assert tvm.nd.empty((0, 3), "float32", dev).numpy().shape == (0, 3)


@check
def torch_tensors(dev: Any) -> str:
    """PyTorch's tensors as arguments, and arrays handed over both ways without a copy."""
    import torch

    f = scaled()
    a = torch.randn(1000, device="cuda")
    b = torch.empty_like(a)
    f(a, b)
    torch.cuda.synchronize()
    torch.testing.assert_close(b, a * 2)
    view = tvm.nd.from_dlpack(a)
    assert view.device == dev and view.data_ptr == a.data_ptr()
    out = tvm.nd.empty((1000,), "float32", dev)
    f(view, out)
    back = torch.from_dlpack(out)
    assert back.data_ptr() == out.data_ptr
    torch.testing.assert_close(back, a * 2)
    del out
    assert torch.isfinite(back).all()
    return f"torch {torch.__version__}"


@check
def events(dev: Any) -> str:
    n = 1 << 26
    f = scaled(n, 4)
    x, y = tvm.nd.empty((n,), "float32", dev), tvm.nd.empty((n,), "float32", dev)
    result = f.time_evaluator(f.entry_name, dev, number=20, repeat=5)(x, y)
    rate = 2 * 4 * n / result.median / 1e9
    assert rate > 50, rate
    return f"{n} floats scaled in {result.median * 1e6:.1f} us, {rate:.0f} GB/s"


@check
def launch_overhead(dev: Any) -> str:
    f = scaled()
    x, y = tvm.nd.array(random(256), dev), tvm.nd.empty((256,), "float32", dev)
    f(x, y)
    bound = f.get_function(f.entry_name).bind(x, y)
    out = []
    for call in (lambda: f(x, y), bound):
        dev.sync()
        start = time.perf_counter()
        for _ in range(2000):
            call()
        spent = time.perf_counter() - start
        dev.sync()
        out.append(spent / 2000 * 1e6)
    return f"a call {out[0]:.2f} us, a bound call {out[1]:.2f} us"


@check
def graphs(dev: Any) -> str:
    from tilewright.runtime.cuda_driver import capture_graph

    program = PROGRAMS["two_kernels"]()
    f = program.build("cuda")
    x = tvm.nd.array(program.arrays[0], dev)
    y = tvm.nd.empty(program.result.shape, "float32", dev)
    f(x, y)
    with capture_graph(dev) as graph:
        f(x, y)
    y.copyfrom(np.zeros(program.result.shape, "float32"))
    graph()
    np.testing.assert_allclose(y.numpy(), program.result, 1e-5)
    x.copyfrom(program.arrays[0] * 3)
    graph()
    np.testing.assert_allclose(y.numpy(), (program.arrays[0] * 6 + 1).T, 1e-5)
    start = time.perf_counter()
    for _ in range(1000):
        graph()
    spent = time.perf_counter() - start
    dev.sync()
    return f"two kernels replayed in {spent * 1e3:.2f} us"


@check
def graphs_while_kernels_go(dev: Any) -> None:
    """A module that nobody holds any more goes when nothing is recorded, for that would end the recording."""
    import gc

    from tilewright.runtime.cuda_driver import capture_graph

    program = PROGRAMS["two_kernels"]()
    f, old = program.build("cuda"), scaled()
    x = tvm.nd.array(program.arrays[0], dev)
    y = tvm.nd.empty(program.result.shape, "float32", dev)
    a = tvm.nd.array(random(64), dev)
    old(a, tvm.nd.empty((64,), "float32", dev))
    f(x, y)
    with capture_graph(dev) as graph:
        f(x, y)
        del old
        gc.collect()
        f(x, y)
    y.copyfrom(np.zeros(program.result.shape, "float32"))
    graph()
    np.testing.assert_allclose(y.numpy(), program.result, 1e-5)


@check
def streams(dev: Any) -> None:
    f = scaled()
    stream = dev.create_raw_stream()
    dev.set_raw_stream(stream)
    try:
        a = random(5000)
        x, y = tvm.nd.array(a, dev), tvm.nd.empty((5000,), "float32", dev)
        f(x, y)
        np.testing.assert_allclose(y.numpy(), a * 2)
    finally:
        dev.set_raw_stream(0)
        dev.free_raw_stream(stream)


@check
def large_shared_memory(dev: Any) -> str:
    """More than 48 KB must be asked for when the kernel is launched."""
    size = 100 * 1024 // 4
    A = te.placeholder((size,), name="A")
    B = te.compute((size,), lambda i: A[size - 1 - i] + 1.0, name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    (i,) = sch.get_loops("B")
    unit = sch.add_unit_loop(i)
    sch.bind(unit, "blockIdx.x")
    copy = sch.cache_read("B", 0, "shared")
    sch.compute_at(copy, unit)
    sch.bind(sch.split(sch.get_loops(copy)[-1], [None, 256])[1], "threadIdx.x")
    sch.bind(sch.split(i, [None, 256])[1], "threadIdx.x")
    version = dev.compute_version.replace(".", "")
    f = tvm.build(sch, target=f"cuda -arch=sm_{version}")
    assert "extern __shared__" in f.imported_modules[0].get_source()
    a = random(size)
    x, y = tvm.nd.array(a, dev), tvm.nd.empty((size,), "float32", dev)
    f(x, y)
    np.testing.assert_allclose(y.numpy(), a[::-1] + 1)
    return f"{size * 4} bytes"


@check
def warp_shuffles(dev: Any) -> None:
    """The sum of a warp by values that go from thread to thread."""
    A, B = tir.decl_buffer((32,), name="A"), tir.decl_buffer((32,), name="B")
    ib = tir.ir_builder.create()
    tx = te.thread_axis("threadIdx.x")
    ib.scope_attr(tx, "thread_extent", 32)
    part = ib.allocate("float32", (1,), name="part", scope="local")
    a, b = ib.buffer_ptr(A), ib.buffer_ptr(B)
    part[0] = a[tx]
    mask = tir.const(0xFFFFFFFF, "uint32")
    for step in (16, 8, 4, 2, 1):
        other = tir.call_intrin("float32", "tir.tvm_warp_shuffle_down", mask, part[0], step, 32, 32)
        part[0] = part[0] + other
    b[tx] = tir.call_intrin("float32", "tir.tvm_warp_shuffle", mask, part[0], 0, 32, 32)
    f = tvm.build(tir.PrimFunc([A, B], ib.get()), target="cuda")
    x = random(32)
    given, out = tvm.nd.array(x, dev), tvm.nd.empty((32,), "float32", dev)
    f(given, out)
    np.testing.assert_allclose(out.numpy(), np.full(32, x.sum()), 1e-5)


@check
def sources(dev: Any) -> None:
    f = scaled()
    inner = f.imported_modules[0]
    assert "__global__" in inner.get_source() and ".entry" in inner.get_source("ptx")


@check
def older_architecture(dev: Any) -> None:
    """Code for an older GPU goes through PTX."""
    program = PROGRAMS["vector_add"]()
    program.run("cuda -arch=sm_75", dev)


@check
def more_than_2_31_elements(dev: Any) -> str:
    """Each rule over arrays that 32 bits do not count: sampled elements and the ends are compared."""
    from tilewright import topi

    sums = lambda a, k: topi.sum(topi.cast(a, "int32"), k)
    programs: dict[str, tuple[Any, Any, Any]] = {
        "plus one": ((46341, 46341), lambda a: topi.add(a, te.const(1, "int8")), lambda a: a + np.int8(1)),
        "just below": ((32768, 65535), lambda a: topi.add(a, te.const(1, "int8")), lambda a: a + np.int8(1)),
        "transpose": ((70000, 31000), lambda a: topi.transpose(a, (1, 0)), lambda a: a.T),
        "reshape": (
            (46340, 46342),
            lambda a: topi.reshape(a, (23170, 92684)),
            lambda a: a.reshape(23170, 92684),
        ),
        "row sums": ((46341, 46341), lambda a: sums(a, 1), lambda a: a.sum(1, dtype="int32")),
        "column sums": ((46341, 46341), lambda a: sums(a, 0), lambda a: a.sum(0, dtype="int32")),
        "flip": ((46341, 46341), lambda a: topi.flip(a, 1), lambda a: a[:, ::-1]),
    }
    rng = np.random.default_rng(0)
    for name, (shape, function, reference) in programs.items():
        A = te.placeholder(shape, "int8", name="A")
        out = function(A)
        a = np.zeros(shape, "int8")
        flat_view = a.reshape(-1)
        flat_view[rng.integers(0, a.size, 100_000)] = rng.integers(-100, 100, 100_000)
        flat_view[:3], flat_view[-3:] = (1, 2, 3), (5, 6, 7)
        size = [int(d) for d in out.shape]
        result = tvm.nd.empty(size, out.dtype, dev)
        tvm.compile([A, out], "cuda")(tvm.nd.array(a, dev), result)
        got, want = result.numpy().reshape(size), reference(a)
        rows = {0, len(got) - 1, *rng.integers(0, len(got), 500).tolist()}
        for i in rows:
            np.testing.assert_array_equal(got[i], want[i], err_msg=name)
    n, m = te.size_var("n"), te.size_var("m")
    A = te.placeholder((n, m), "int8", name="A")
    f = tvm.compile([A, topi.add(A, te.const(1, "int8"))], "cuda")
    x = tvm.nd.empty((46341, 46341), "int8", dev)
    try:
        f(x, tvm.nd.empty((46341, 46341), "int8", dev))
    except tvm.TVMError as why:
        assert "2^31 elements or more" in str(why), why
    else:
        raise AssertionError("symbolic sizes whose product passes 2^31 are not refused")
    return f"{len(programs)} programs"


@check
def refused_launches(dev: Any) -> None:
    """What cannot be launched is refused before anything runs, with a text that names the kernel."""
    A = te.placeholder((4096,), name="A")
    B = te.compute((4096,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    s[B].bind(B.op.axis[0], axis("threadIdx.x"))
    try:
        tvm.build(s, [A, B], target="cuda")
    except tvm.error.TVMError as error:
        assert "default_function_kernel" in str(error) and "4096 threads" in str(error), error
    else:
        raise AssertionError("a block of 4096 threads was accepted")


@check
def out_of_memory(dev: Any) -> None:
    try:
        tvm.nd.empty((1 << 45,), "int8", dev)
    except MemoryError as error:
        assert "no room" in str(error)
    else:
        raise AssertionError("32 TiB were allocated")
    np.testing.assert_array_equal(tvm.nd.array(np.ones(4), dev).numpy(), np.ones(4))


@check
def random_schedules(dev: Any) -> str:
    """Random schedules of random programs agree with the interpreter."""
    import importlib.util
    import sys
    from pathlib import Path
    from unittest.mock import MagicMock

    for package in ("hypothesis", "pytest"):  # their users are imported, and used for what needs neither
        if importlib.util.find_spec(package) is None:
            sys.modules.setdefault(package, MagicMock())
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tir" / "schedule"))
    from random_schedules import arrays_of, recipe_of, scheduled
    from test_kernels import bind_the_rest

    agreed = 0
    for seed in range(60):
        sch, _ = scheduled(recipe_of(seed, gpu=True))
        if not bind_the_rest(sch, seed):
            continue
        try:
            f = tvm.build(sch.mod, target="cuda")
        except LoweringError:
            continue
        want = arrays_of(sch.origin["main"])
        got = [tvm.nd.array(a, dev) for a in want]
        tir.interpret(sch.origin["main"], *want)
        f["main"](*got)
        for a, b in zip(want, got, strict=True):
            np.testing.assert_array_equal(b.numpy(), a, err_msg=f"seed {seed}")
        agreed += 1
    assert agreed >= 20, agreed
    return f"{agreed} of 60 are kernels, and agree"


@check
def files(dev: Any) -> None:
    """Libraries with the kernels in them, and host and kernels in files of their own."""
    import tempfile
    from pathlib import Path

    from tilewright.contrib import cc

    program = PROGRAMS["vector_add"]()
    f = program.build("cuda")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program.check(tvm.runtime.load_module(f.export_library(folder / "whole.so")), dev)
        f.save(str(folder / "myadd.o"))
        f.imported_modules[0].save(str(folder / "myadd.ptx"))
        f.imported_modules[0].save(str(folder / "myadd.cubin"))
        cc.create_shared(str(folder / "myadd.so"), [str(folder / "myadd.o")])
        for kernels in ("myadd.ptx", "myadd.cubin"):
            loaded = tvm.runtime.load_module(str(folder / "myadd.so"))
            loaded.import_module(tvm.runtime.load_module(str(folder / kernels)))
            program.check(loaded, dev)


FAULT = """
import numpy as np, tilewright as tvm
from tilewright import te, tir
A, n = tir.decl_buffer((1024,), name="A"), tir.Var("n", "int32")
ib = tir.ir_builder.create()
tx = te.thread_axis("threadIdx.x")
ib.scope_attr(tx, "thread_extent", 32)
ib.buffer_ptr(A)[tx + n] = tir.const(1.0)
f = tvm.build(tir.PrimFunc([A, n], ib.get(), attrs={"global_symbol": "outside"}), target="cuda", name="outside")
a = tvm.nd.array(np.zeros(1024, "float32"), tvm.cuda(0))
f(a, 1 << 30)
try:
    a.numpy()
except tvm.error.TVMError as error:
    print(error)
"""


@check
def faults(dev: Any) -> str:
    """An access outside of all memory is told with the kernel's name; in a process of its own, which it ends."""
    import os
    import subprocess
    import sys
    from pathlib import Path

    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", FAULT],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
        timeout=120,
    )
    assert "outside_kernel was launched last" in done.stdout, done.stdout + done.stderr
    return done.stdout.strip()


@check
def copies_on_their_own(dev: Any) -> None:
    asynchronous_copies().run("cuda", dev)
    asynchronous_copies().run("cuda -arch=sm_75", dev)


@check
def modules_come_and_go(dev: Any) -> str:
    """Kernels that nobody can launch any more give back what they use: a tuner makes thousands."""
    import gc

    program = PROGRAMS["two_kernels"]()
    program.run("cuda", dev)
    gc.collect()
    before = dev.available_global_memory
    for _ in range(50):
        program.run("cuda", dev)
    gc.collect()
    lost = before - dev.available_global_memory
    assert lost < 32 << 20, lost
    return f"{lost} bytes fewer are free after 50 modules"


# ---------------------------------------------------------------------------- other packages' streams
@check
def torch_streams(dev: Any) -> str:
    """PyTorch's work on a stream of its own is waited for; kernels can join that stream."""
    import torch

    f = scaled()
    side = torch.cuda.Stream()
    slow = torch.randn(4096, 4096, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        for _ in range(20):
            slow = torch.nn.functional.normalize(slow @ slow)
        a = slow.reshape(-1)[:100000].clone()
        b = tvm.nd.empty((100000,), "float32", dev)
        f(a, b)  # on the device's own stream, after what is being computed
    got = b.numpy()
    np.testing.assert_array_equal(got, a.cpu().numpy() * 2)
    dev.set_raw_stream(side.cuda_stream)
    try:
        with torch.cuda.stream(side):
            for _ in range(20):
                slow = torch.nn.functional.normalize(slow @ slow)
            a = slow.reshape(-1)[:100000].clone()
            c = torch.empty_like(a)
            f(a, c)
            d = c + 1  # after it, on the same stream
        side.synchronize()
        torch.testing.assert_close(d, a * 2 + 1)
        out = tvm.nd.empty((100000,), "float32", dev)
        f(a, out)
        default = torch.from_dlpack(out) + 1  # on another stream, which waits
        torch.testing.assert_close(default, a * 2 + 1)
        dev.sync(side.cuda_stream)
    finally:
        dev.set_raw_stream(0)
    return f"torch {torch.__version__}"


# ---------------------------------------------------------------------------- what fails, and what goes on
@check
def too_many_registers(dev: Any) -> str:
    """A launch that the device has no room for is told with the kernel's name; the next one runs."""
    n = te.var("n")
    A = te.placeholder((n, 52), name="A")
    k = te.reduce_axis((0, 52), "k")
    B = te.compute((n, 52), lambda i, j: te.sum(A[i, k] * A[i, (k + j) % 52], axis=k), name="B")
    s = te.create_schedule(B.op)
    sums = s.cache_write(B, "local")
    row = s.cache_read(A, "local", [sums])
    s[B].bind(B.op.axis[0], axis("threadIdx.x"))
    for stage in (sums, row):
        s[stage].compute_at(s[B], B.op.axis[0])
        s[stage].unroll(stage.op.axis[1])
    s[sums].unroll(s[sums].op.reduce_axis[0])
    f = tvm.build(s, [A, B], target="cuda", name="wide")

    def run(rows: int) -> Any:
        x, y = tvm.nd.array(np.ones((rows, 52), "float32"), dev), tvm.nd.empty((rows, 52), "float32", dev)
        f(x, y)
        return y.numpy()

    try:
        run(1024)
    except tvm.TVMError as error:
        told = str(error)
        assert "wide_kernel cannot be launched with grid (1, 1, 1), block (1024, 1, 1)" in told, told
    else:
        told = "the device has room for all of them"
    assert (run(64) == 52).all()
    return told


@check
def workspace_out_of_memory(dev: Any) -> None:
    """Memory between kernels that there is no room for: an error, and the next call runs."""
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n, 1 << 20), lambda i, j: A[i] + 1.0, name="B")
    C = te.compute((n,), lambda i: B[i, 7], name="C")
    s = te.create_schedule(C.op)
    for stage in (B, C):
        s[stage].bind(stage.op.axis[0], axis("blockIdx.x"))
    f = tvm.build(s, [A, C], target="cuda")
    for rows in (1 << 20, 16):
        x, y = tvm.nd.array(np.ones(rows, "float32"), dev), tvm.nd.empty((rows,), "float32", dev)
        try:
            f(x, y)
        except MemoryError as error:
            assert "no room for 4398046511104 bytes" in str(error) and rows > 16, error
        else:
            assert rows == 16
            assert (y.numpy() == 2).all()


TRAP = """
import numpy as np, tilewright as tvm
from tilewright import te, tir
A = tir.decl_buffer((32,), name="A")
ib = tir.ir_builder.create()
ib.scope_attr(te.thread_axis("threadIdx.x"), "thread_extent", 32)
ib.emit(tir.call_extern("int32", "__trap"))
ib.emit(tir.BufferStore(A, tir.const(1.0), [0]))
f = tvm.build(tir.PrimFunc([A], ib.get(), attrs={"global_symbol": "trapped"}), target="cuda", name="trapped")
a = tvm.nd.array(np.zeros(32, "float32"), tvm.cuda(0))
f(a)
for _ in range(2):
    try:
        a.numpy()
    except tvm.TVMError as error:
        print(error)
"""


@check
def launch_failure(dev: Any) -> str:
    """A kernel that stops itself, in a process that goes on without the device: every use of it says why."""
    import os
    import subprocess
    import sys
    from pathlib import Path

    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", TRAP], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 0 and done.stdout.count("trapped_kernel was launched last") == 2, done
    return done.stdout.splitlines()[0]


@check
def random_rows(dev: Any) -> str:
    """Random stages in shared memory by threads together agree with the interpreter, again and again."""
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tir" / "schedule"))
    from random_rows import rows

    for seed in range(40):
        sch = rows(seed)
        (n, m) = (int(d) for d in sch.origin["main"].buffer_params()[0].shape)
        a = np.random.default_rng(seed).integers(-50, 50, (n, m)).astype("int32")
        want = np.zeros((n, m), "int32")
        tir.interpret(sch.origin["main"], a.copy(), want)
        f = tvm.build(sch.mod, target="cuda")
        x, y = tvm.nd.array(a, dev), tvm.nd.empty((n, m), "int32", dev)
        for _ in range(5):
            y.copyfrom(np.full((n, m), 99, "int32"))
            f["main"](x, y)
            np.testing.assert_array_equal(y.numpy(), want, err_msg=f"seed {seed}")
    return "40 schedules"


@check
def calibration(dev: Any) -> str:
    """`tilewright calibrate` finds most figures, near those of the table, and targets of the device have them."""
    import tempfile

    from tilewright import config
    from tilewright.target.calibration import keep
    from tilewright.target.gpu_machine import gpu_figures
    from tilewright.tvmc.calibrate import _gpu
    from tilewright.tvmc.command_line import Desk

    with tempfile.TemporaryDirectory() as folder, config.using(config_dir=folder):
        start = time.perf_counter()
        found = _gpu(Desk(False, quiet=True), rounds=5)
        took = time.perf_counter() - start
        target = tvm.target.Target(f"cuda -arch={found.machine['arch']}")
        table = gpu_figures(target.gpu)
        keep(found)
        made = tvm.target.Target(str(target)).gpu
    assert made.source == "calibrated" and made.multiprocessors == dev.multi_processor_count
    times = {name: value / table[name] for name, value in found.figures.items()}
    assert len(times) >= 6 and all(0.1 < t < 10 for t in times.values()), times
    return f"{took:.0f} s; relative to the table: " + ", ".join(f"{k} {t:.2f}" for k, t in times.items())
