"""The GPU programs of the seed documents, with only their import line changed, run to the end and checked.

A program is a text as the document has it, after what the document leaves open (sizes, arrays). On a machine without
an NVIDIA GPU `cuda` in it stands for `opencl`. They are run on PoCL by tests/seeds/test_gpu_seeds.py and on a GPU by
tests/gpu/run.py, which has no pytest: nothing here needs it. tests/seeds/test_schedule_programs.py takes the same texts
to the interpreter, thread by thread.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import relay, te, tir, topi
from tilewright.contrib import graph_executor
from tilewright.ir.module import IRModule

SEEDS: dict[str, Callable[[str, Any], Any]] = {}


def seed(f: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    SEEDS[f.__name__] = f
    return f


def whole(*shape: int, seed: int = 3) -> Any:
    """Small whole numbers, so that sums are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def run(text: str, target: str, **given: Any) -> dict[str, Any]:
    """What a program leaves: its names after the last line."""
    kind = target.split()[0]
    text = text.replace('"cuda', f'"{kind}').replace("tvm.cuda(", f"tvm.{kind}(").replace("'cuda", f"'{kind}")
    scope: dict[str, Any] = {"tvm": tvm, "te": te, "np": np, **given}
    exec(compile(text, "<seed>", "exec"), scope)
    return scope


def called(f: Any, dev: Any, *arrays: Any, out: tuple[int, ...]) -> Any:
    """What a function writes to its last argument, which is poisoned before."""
    given = [tvm.nd.array(a, dev) for a in arrays]
    given.append(tvm.nd.array(np.full(out, np.nan, np.float32), dev))
    f(*given)
    return given[-1].numpy()


# ---------------------------------------------------------------------------- 000_c94b23ed02cfc284
EXPRESSION = """
# Example: Element-wise addition
n = te.var("n")
A = te.placeholder((n,), name="A")
B = te.placeholder((n,), name="B")
C = te.compute((n,), lambda i: A[i] + B[i], name="C")
"""
SCHEDULE = """
# Create schedule
s = te.create_schedule(C.op)

# Apply optimizations (tiling, parallelization, etc.)
xo, xi = s[C].split(C.op.axis[0], factor=32)
s[C].parallel(xo)
s[C].vectorize(xi)
"""
BUILD_AND_EXECUTE = """
# Build function for target hardware
func = tvm.build(s, [A, B, C], target="cuda")  # or "llvm" for CPU

# Prepare data
dev = tvm.cuda(0)
a = tvm.nd.array(np.random.randn(1024).astype(np.float32), dev)
b = tvm.nd.array(np.random.randn(1024).astype(np.float32), dev)
c = tvm.nd.array(np.zeros(1024, dtype=np.float32), dev)

# Execute
func(a, b, c)
"""
BIND = """
s = te.create_schedule(C.op)
xo, xi = s[C].split(C.op.axis[0], factor=32)
# Bind loops to GPU thread hierarchy
s[C].bind(xo, te.thread_axis("blockIdx.x"))
s[C].bind(xi, te.thread_axis("threadIdx.x"))
"""


@seed
def build_and_execute(target: str, dev: Any) -> None:
    """000_c94b23ed02cfc284: Core Concepts, 1 to 3, with the schedule of 2 as it stands: iterations of a parallel loop
    are threads of a GPU."""
    held = run(EXPRESSION + SCHEDULE + BUILD_AND_EXECUTE, target)
    np.testing.assert_array_equal(held["c"].numpy(), held["a"].numpy() + held["b"].numpy())
    a, b = whole(1000), whole(1000, seed=4)
    np.testing.assert_array_equal(called(held["func"], dev, a, b, out=(1000,)), a + b)


@seed
def bound_to_threads(target: str, dev: Any) -> None:
    """000_c94b23ed02cfc284: Core Concepts, 1 and 3, with the schedule of Schedule Primitives, 4. Bind."""
    held = run(EXPRESSION + BIND + BUILD_AND_EXECUTE, target)
    np.testing.assert_array_equal(held["c"].numpy(), held["a"].numpy() + held["b"].numpy())


PRODUCT = """
A = te.placeholder((M, K), name="A")
B = te.placeholder((K, N), name="B")
k = te.reduce_axis((0, K), name="k")
# 1. Define computation
C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
s = te.create_schedule(C.op)
x, y = s[C].op.axis
"""
STEPS = """
ko, ki = s[C].split(k, factor=8)
"""
TYPICAL = """
# 2. Tiling for thread blocks
tile_x, tile_y = 64, 64
xo, xi = s[C].split(x, factor=tile_x)
yo, yi = s[C].split(y, factor=tile_y)

# 3. Cache in shared memory
AA = s.cache_read(A, "shared", [C])
BB = s.cache_read(B, "shared", [C])

# 4. Bind to GPU threads
s[C].bind(xo, te.thread_axis("blockIdx.x"))
s[C].bind(yo, te.thread_axis("blockIdx.y"))

# Further split for thread binding
xii, xiii = s[C].split(xi, factor=8)
yii, yiii = s[C].split(yi, factor=8)
s[C].bind(xii, te.thread_axis("threadIdx.x"))
s[C].bind(yii, te.thread_axis("threadIdx.y"))
"""
REORDER = """
s[C].reorder(xo, yo, xii, yii, ko, ki, xiii, yiii)
"""
COOPERATE = """
# 5. Compute cached reads cooperatively
s[AA].compute_at(s[C], ko)  # Compute AA in the k loop
"""
BOTH = """
s[BB].compute_at(s[C], ko)
"""
FETCH = """
for copy in (AA, BB):
    rest, tx = s[copy].split(s[copy].fuse(*s[copy].op.axis), factor=8)
    _, ty = s[copy].split(rest, factor=8)
    s[copy].bind(tx, te.thread_axis("threadIdx.x"))
    s[copy].bind(ty, te.thread_axis("threadIdx.y"))
"""


SIZES = {"M": 128, "N": 128, "K": 32}


def _typical(target: str, dev: Any, *parts: str) -> None:
    held = run("".join((PRODUCT, STEPS, TYPICAL, *parts)), target, **SIZES)
    f = tvm.build(held["s"], [held[name] for name in "ABC"], target=target)
    a, b = whole(128, 32), whole(32, 128)
    np.testing.assert_array_equal(called(f, dev, a, b, out=(128, 128)), a @ b)


@seed
def typical_schedule(target: str, dev: Any) -> None:
    """000_c94b23ed02cfc284: Typical GPU Schedule Pattern as it stands; both operands are cached, in the order of loops
    of Schedule Primitives, 3. Reorder."""
    _typical(target, dev, REORDER, COOPERATE, BOTH)


@seed
def typical_schedule_fetching_together(target: str, dev: Any) -> None:
    """000_c94b23ed02cfc284: the same, and threads share the fetching."""
    _typical(target, dev, REORDER, COOPERATE, BOTH, FETCH)


@seed
def typical_schedule_without_an_order(target: str, dev: Any) -> None:
    """000_c94b23ed02cfc284: the same with loops in the order that the splits leave."""
    _typical(target, dev, COOPERATE, BOTH)


CACHES = """
# Cache data in faster memory
CC = s.cache_write(C, "local")       # GPU registers
AA = s.cache_read(A, "shared", [CC])  # GPU shared memory
BB = s.cache_read(B, "shared", [CC])
xo, yo, xi, yi = s[C].tile(x, y, x_factor=32, y_factor=32)
s[C].bind(s[C].fuse(xo, yo), te.thread_axis("blockIdx.x"))
tx, xi = s[C].split(xi, nparts=8)
ty, yi = s[C].split(yi, nparts=8)
vx, xi = s[C].split(xi, nparts=2)
s[C].reorder(vx, tx, ty, xi, yi)
s[C].bind(vx, te.thread_axis("vthread"))
s[C].bind(tx, te.thread_axis("threadIdx.x"))
s[C].bind(ty, te.thread_axis("threadIdx.y"))
s[CC].compute_at(s[C], ty)
ko, ki = s[CC].split(s[CC].op.reduce_axis[0], factor=8)
s[CC].reorder(ko, ki, *s[CC].op.axis)
s[CC].unroll(ki)
for copy in (AA, BB):
    s[copy].compute_at(s[CC], ko)
    rest, fx = s[copy].split(s[copy].fuse(*s[copy].op.axis), factor=8)
    _, fy = s[copy].split(rest, factor=8)
    s[copy].bind(fx, te.thread_axis("threadIdx.x"))
    s[copy].bind(fy, te.thread_axis("threadIdx.y"))
"""


@seed
def caches_in_shared_memory_and_registers(target: str, dev: Any) -> None:
    """000_c94b23ed02cfc284: Schedule Primitives, 8. Cache Read/Write; 001_1e32228900fa6a2d: 3.2, Special Memory Scopes."""
    held = run(PRODUCT + CACHES, target, **SIZES)
    f = tvm.build(held["s"], [held[name] for name in "ABC"], target=target)
    a, b = whole(128, 32), whole(32, 128)
    np.testing.assert_array_equal(called(f, dev, a, b, out=(128, 128)), a @ b)


FUSE_A_GRAPH = """
with relay.build_config(opt_level=3):
    # Automatic fusion
    graph, lib, params = relay.build(mod, target="cuda")
"""


@seed
def fused_graph(target: str, dev: Any) -> None:
    """000_c94b23ed02cfc284: Advanced Topics, 3. Graph Optimizations: conv2d, batch_norm, relu as one kernel."""
    rng = np.random.default_rng(0)

    def const(*shape: int) -> Any:
        return relay.const(np.abs(rng.standard_normal(shape)).astype("float32"))

    x = relay.var("x", shape=(1, 4, 10, 10))
    y = relay.nn.conv2d(x, const(8, 4, 3, 3), padding=(1, 1))
    y = relay.nn.relu(relay.nn.batch_norm(y, const(8), const(8), const(8), const(8))[0])
    mod = IRModule.from_expr(relay.Function([x], y))
    held = run(FUSE_A_GRAPH, target, relay=relay, mod=mod)
    source = held["lib"].get_source()
    assert source.count("__kernel void ") + source.count("__global__ void ") == 1, source
    module = graph_executor.create(held["graph"], held["lib"], dev)
    module.set_input(**held["params"])
    image = rng.standard_normal((1, 4, 10, 10)).astype("float32")
    module.run(x=image)
    with tvm.transform.PassContext(opt_level=3):
        here = graph_executor.GraphModule(relay.build(mod, target="llvm")["default"](tvm.cpu()))
    here.run(x=image)
    want = here.get_output(0).numpy()
    np.testing.assert_allclose(module.get_output(0).numpy(), want, rtol=1e-4, atol=1e-4)


IMPORT_A_MODEL = """
# Import PyTorch model
model = torch.nn.Linear(128, 64)
input_shape = (1, 128)
input_data = torch.randn(input_shape)

# Convert to TVM Relay
traced = torch.jit.trace(model, input_data)
relay_mod, params = relay.frontend.from_pytorch(traced, [("input", input_shape)])

# Optimize graph
with tvm.transform.PassContext(opt_level=3):
    lib = relay.build(relay_mod, target="cuda", params=params)
"""


@seed
def model_of_pytorch(target: str, dev: Any) -> str:
    """000_c94b23ed02cfc284: Advanced Topics, 1. Relay - High-Level IR."""
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed"
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        held = run(IMPORT_A_MODEL, target, relay=relay, torch=torch)
    module = graph_executor.GraphModule(held["lib"]["default"](dev))
    module.set_input("input", held["input_data"].numpy())
    module.run()
    want = held["model"](held["input_data"]).detach().numpy()
    np.testing.assert_allclose(module.get_output(0).numpy(), want, rtol=1e-4, atol=1e-5)
    return ""


TUNE_A_PRODUCT = """
# 1. Register workload
@auto_scheduler.register_workload
def matmul(M, N, K):
    A = te.placeholder((M, K), name="A")
    B = te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k))
    return [A, B, C]

# 2. Create task
task = auto_scheduler.SearchTask(
    func=matmul,
    args=(1024, 1024, 1024),
    target="cuda"
)

# 3. Configure tuning
tune_option = auto_scheduler.TuningOptions(
    num_measure_trials=1000,  # Try 1000 schedules
    measure_callbacks=[auto_scheduler.RecordToFile("matmul.json")]
)

# 4. Run auto-tuning
task.tune(tune_option)

# 5. Apply best schedule
sch, args = task.apply_best("matmul.json")
"""


@seed
def tune_a_product(target: str, dev: Any) -> str:
    """000_c94b23ed02cfc284: AutoScheduler, with few trials and small matrices."""
    from tilewright import auto_scheduler
    from tilewright.auto_scheduler.workload_registry import WORKLOAD_FUNC_REGISTRY

    text = TUNE_A_PRODUCT.replace("trials=1000", "trials=4").replace("1024, 1024, 1024", "96, 128, 64")
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.chdir(folder)
        try:
            held = run(text, target, auto_scheduler=auto_scheduler)
            count = len(list(auto_scheduler.load_records("matmul.json")))
        finally:
            os.chdir(before)
            WORKLOAD_FUNC_REGISTRY.pop("matmul", None)
    f = tvm.build(held["sch"], held["args"], target)
    a, b = whole(96, 64), whole(64, 128)
    np.testing.assert_array_equal(called(f, dev, a, b, out=(96, 128)), a @ b)
    return f"{count} records"


# ---------------------------------------------------------------------------- 001_1e32228900fa6a2d
@seed
def product_of_the_paper(target: str, dev: Any) -> None:
    """001_1e32228900fa6a2d: 2.1, whose operands are both turned, with 3.2's fetching together and its tensorize; the
    intrinsic of 8 x 8 is a function that the source brings along."""
    t, m, n, h, tile = te, 32, 24, 16, 8
    A, B = t.placeholder((h, m), name="A"), t.placeholder((h, n), name="B")
    k = t.reduce_axis((0, h), name="k")
    C = t.compute((m, n), lambda y, x: t.sum(A[k, y] * B[k, x], axis=k), name="C")
    s = te.create_schedule(C.op)
    yo, xo, yi, xi = s[C].tile(*C.op.axis, tile, tile)
    ko, ki = s[C].split(k, factor=8)
    s[C].reorder(yo, xo, ko, yi, xi, ki)
    s[C].bind(yo, te.thread_axis("blockIdx.x"))
    s[C].bind(xo, te.thread_axis("threadIdx.x"))

    # Declare hardware intrinsic behavior
    w, x = t.placeholder((8, 8), name="w"), t.placeholder((8, 8), name="x")
    r = t.reduce_axis((0, 8))
    y = t.compute((8, 8), lambda i, j: t.sum(w[r, i] * x[r, j], axis=r))
    views = [tir.decl_buffer(v.shape, v.dtype, name=v.op.name, strides=[te.var(f"s{i}"), 1], offset_factor=1)
             for i, v in enumerate((w, x, y))]  # fmt: skip

    # Lowering rule
    def gemm_intrin_lower(inputs: Any, outputs: Any) -> Any:
        def call(name: str, *bufs: Any) -> Any:
            listed = [v for b in bufs for v in (b.access_ptr("rw" if b is outputs[0] else "r"), b.strides[0])]
            return tir.call_extern("int32", name, *listed)

        update = call("gemm8x8", inputs[0], inputs[1], outputs[0])
        return update, call("clear8x8", outputs[0]), update

    gemm8x8 = t.decl_tensor_intrin(y.op, gemm_intrin_lower, binds=dict(zip((w, x, y), views, strict=True)))
    space, inline = ("__global ", "inline") if target.startswith("opencl") else ("", "__device__ inline")
    source = f"""
{inline} int gemm8x8({space}const float* w, int ws, {space}const float* x, int xs, {space}float* y, int ys) {{
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 8; ++j)
      for (int r = 0; r < 8; ++r) y[i * ys + j] += w[r * ws + i] * x[r * xs + j];
  return 0;
}}
{inline} int clear8x8({space}float* y, int ys) {{
  for (int i = 0; i < 64; ++i) y[i / 8 * ys + i % 8] = 0.0f;
  return 0;
}}"""
    # Use in schedule
    s[C].tensorize(yi, gemm8x8)
    s[C].pragma(yo, "import_c", source)
    f = tvm.build(s, [A, B, C], target=target)
    assert "gemm8x8(" in f.imported_modules[0].get_source()
    a, b = whole(h, m), whole(h, n)
    np.testing.assert_array_equal(called(f, dev, a, b, out=(m, n)), a.T @ b)


@seed
def virtual_threads(target: str, dev: Any) -> None:
    """001_1e32228900fa6a2d: Latency Hiding, the program of virtual threads, as a schedule."""
    A = te.placeholder((128, 16), name="A")
    k = te.reduce_axis((0, 128), name="k")
    CL = te.compute((16,), lambda i: te.sum(A[k, i], axis=k), name="CL")
    s = te.create_schedule(CL.op)
    acc = s.cache_write(CL, "local")
    AL = s.cache_read(A, "shared", [acc])
    tx, xi = s[CL].split(CL.op.axis[0], nparts=2)
    s[CL].bind(tx, te.thread_axis("vthread"))
    s[CL].bind(xi, te.thread_axis("threadIdx.x"))
    s[acc].compute_at(s[CL], xi)
    ko, ki = s[acc].split(s[acc].op.reduce_axis[0], factor=8)
    s[AL].compute_at(s[acc], ko)
    _, fx = s[AL].split(s[AL].op.axis[1], factor=8)
    s[AL].bind(fx, te.thread_axis("threadIdx.x"))
    f = tvm.build(s, [A, CL], target=target)
    a = whole(128, 16)
    np.testing.assert_array_equal(called(f, dev, a, out=(16,)), a.sum(0))


# ---------------------------------------------------------------------------- 003_6d17afb3b306fbc9
PLUS_ONE = """
A = te.placeholder((8,), dtype="float32", name="A")
B = te.compute((8,), lambda *i: A(*i) + 1.0, name="B")
func = te.create_prim_func([A, B])
ir_module = IRModule({"main": func})
"""
SPLIT = """
sch = tvm.tir.Schedule(ir_module)
block_b = sch.get_block("B")
(i,) = sch.get_loops(block_b)
i_0, i_1, i_2 = sch.split(i, factors=[2, 2, 2])
"""
EXCHANGE = """
sch.reorder(i_0, i_2, i_1)
"""
TO_THREADS = """
sch.bind(i_0, "blockIdx.x")
sch.bind(i_2, "threadIdx.x")
"""


@seed
def split_reorder_and_bind(target: str, dev: Any) -> None:
    """003_6d17afb3b306fbc9: Demo for IRModule transform, built."""
    held = run(PLUS_ONE + SPLIT + EXCHANGE + TO_THREADS, target, IRModule=IRModule)
    f = tvm.build(held["sch"].mod, target=target)
    a = whole(8)
    np.testing.assert_array_equal(called(f, dev, a, out=(8,)), a + 1)


@seed
def sum_of_topi(target: str, dev: Any) -> None:
    """003_6d17afb3b306fbc9: TOPI, the sum of rows, with a schedule that is found."""
    A = te.placeholder((37, 50), name="A")
    C = topi.sum(A, axis=1)
    f = tvm.build(tvm.auto_schedule([A, C], target), target=target)
    a = whole(37, 50)
    np.testing.assert_array_equal(called(f, dev, a, out=(37,)), a.sum(1))


# ---------------------------------------------------------------------------- 004_eb1758ed1c90b5cf
MY_ADD = """
n = te.var("n")
A = te.placeholder((n,), name="A")
B = te.placeholder((n,), name="B")
C = te.compute(A.shape, lambda i: A[i] + B[i], name="C")
print(type(C))
"""
SCHEDULE_MY_ADD = """
s = te.create_schedule(C.op)
bx, tx = s[C].split(C.op.axis[0], factor=64)
if tgt == "cuda" or tgt == "rocm" or tgt.startswith("opencl"):
    s[C].bind(bx, te.thread_axis("blockIdx.x"))
    s[C].bind(tx, te.thread_axis("threadIdx.x"))
"""
COMPILE_MY_ADD = """
fadd = tvm.build(s, [A, B, C], tgt, target_host=tgt_host, name="myadd")
"""
SAVE = """
from tilewright.contrib import cc

fadd.save(temp.relpath("myadd.o"))
if tgt == "cuda":
    fadd.imported_modules[0].save(temp.relpath("myadd.ptx"))
if tgt.startswith("opencl"):
    fadd.imported_modules[0].save(temp.relpath("myadd.cl"))
cc.create_shared(temp.relpath("myadd.so"), [temp.relpath("myadd.o")])
"""
LOAD = """
fadd1 = tvm.runtime.load_module(temp.relpath("myadd.so"))
if tgt == "cuda":
    fadd1_dev = tvm.runtime.load_module(temp.relpath("myadd.ptx"))
    fadd1.import_module(fadd1_dev)
if tgt.startswith("opencl"):
    fadd1_dev = tvm.runtime.load_module(temp.relpath("myadd.cl"))
    fadd1.import_module(fadd1_dev)
"""


@seed
def my_add(target: str, dev: Any) -> None:
    """004_eb1758ed1c90b5cf: Flow, 1 to 6: described, scheduled, compiled, saved, linked and loaded again."""
    from tilewright.contrib import utils

    scope = {"tvm": tvm, "te": te, "tgt": target.split()[0], "tgt_host": "llvm", "temp": utils.tempdir()}
    scope["print"] = lambda *_: None
    exec(MY_ADD + SCHEDULE_MY_ADD + COMPILE_MY_ADD + SAVE + LOAD, scope)
    a, b = whole(1024), whole(1024, seed=5)
    for f in (scope["fadd"], scope["fadd1"]):
        np.testing.assert_array_equal(called(f, dev, a, b, out=(1024,)), a + b)
    with tempfile.TemporaryDirectory() as folder:  # packed into one library
        path = scope["fadd"].export_library(f"{folder}/myadd_pack.so")
        np.testing.assert_array_equal(called(tvm.runtime.load_module(path), dev, a, b, out=(1024,)), a + b)
