"""Programs for GPUs with schedules by hand, what they take, and what must come out.

They are run on PoCL by tests/compiler/test_opencl.py, compiled by NVRTC in tests/codegen/test_source_cuda.py, and
run on a GPU by tests/gpu/run.py, which has no pytest: nothing here needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import tilewright as tvm
from tilewright import te, tir

Array = Any


@dataclass
class Program:
    """A schedule with its arguments, arrays for them, and the last array as it must be afterwards."""

    schedule: Any
    args: list[Any] | None
    arrays: list[Array]
    result: Array
    rtol: float = 1e-5
    atol: float = 1e-5

    def build(self, target: str) -> Any:
        return tvm.build(self.schedule, self.args, target=target)

    def run(self, target: str, dev: Any) -> None:
        """Compile, run on the device, compare."""
        self.check(self.build(target), dev)

    def check(self, mod: Any, dev: Any) -> None:
        given = [tvm.nd.array(a, dev) for a in self.arrays]
        poison = np.full(self.result.shape, 77, self.result.dtype)
        given.append(tvm.nd.array(poison, dev))
        mod(*given)
        got = given[-1].numpy()
        if got.dtype.kind in "iub":
            np.testing.assert_array_equal(got, self.result)
        else:
            np.testing.assert_allclose(
                got.astype("float64"), self.result.astype("float64"), self.rtol, self.atol
            )
        for before, after in zip(self.arrays, given[:-1], strict=True):
            assert after.numpy().tobytes() == before.tobytes(), "an input was written to"


PROGRAMS: dict[str, Callable[[], Program]] = {}
# One of each kind, for where compiling all of them takes too long.
QUICK = ("vector_add", "wide_accesses", "two_kernels", "float16_add", "row_sum", "matmul_tiled", "integers")


def program(make: Callable[[], Program]) -> Callable[[], Program]:
    PROGRAMS[make.__name__] = make
    return make


def axis(name: str) -> te.IterVar:
    return te.thread_axis(name)


def random(*shape: int, dtype: str = "float32", seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    if dtype.startswith("int"):
        return rng.integers(-100, 100, shape).astype(dtype)
    return rng.standard_normal(shape).astype(getattr(ml_dtypes, dtype, dtype))


def flat(s: te.Schedule, stage: te.Tensor, threads: int = 64) -> Any:
    """All axes of a stage as one, over blocks of threads."""
    whole = s[stage].fuse(*s[stage].op.axis)
    bx, tx = s[stage].split(whole, factor=threads)
    s[stage].bind(bx, axis("blockIdx.x"))
    s[stage].bind(tx, axis("threadIdx.x"))
    return bx, tx


# ---------------------------------------------------------------------------- element by element
@program
def vector_add() -> Program:
    n = te.var("n")
    A, B = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    C = te.compute((n,), lambda i: A[i] + B[i], name="C")
    s = te.create_schedule(C.op)
    flat(s, C)
    a, b = random(1000), random(1000, seed=1)
    return Program(s, [A, B, C], [a, b], a + b)


@program
def wide_accesses() -> Program:
    """Four elements at a time, as one load and one store."""
    A, B = te.placeholder((4096,), name="A"), te.placeholder((4096,), name="B")
    C = te.compute((4096,), lambda i: A[i] * B[i] + te.const(1.0), name="C")
    s = te.create_schedule(C.op)
    outer, lanes = s[C].split(C.op.axis[0], factor=4)
    bx, tx = s[C].split(outer, factor=64)
    s[C].bind(bx, axis("blockIdx.x"))
    s[C].bind(tx, axis("threadIdx.x"))
    s[C].vectorize(lanes)
    a, b = random(4096), random(4096, seed=1)
    return Program(s, [A, B, C], [a, b], a * b + np.float32(1))


@program
def two_kernels() -> Program:
    """What the first kernel leaves in memory of its own, the second takes."""
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m), name="A")
    B = te.compute((n, m), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((m, n), lambda j, i: B[i, j] + 1.0, name="C")
    s = te.create_schedule(C.op)
    flat(s, B)
    flat(s, C, 32)
    a = random(37, 51)
    return Program(s, [A, C], [a], (a * 2 + 1).T)


@program
def float16_add() -> Program:
    A, B = te.placeholder((777,), "float16", name="A"), te.placeholder((777,), "float16", name="B")
    C = te.compute((777,), lambda i: A[i] * B[i] + A[i], name="C")
    s = te.create_schedule(C.op)
    flat(s, C)
    a, b = random(777, dtype="float16"), random(777, dtype="float16", seed=1)
    return Program(s, [A, B, C], [a, b], a * b + a, rtol=1e-3, atol=1e-3)


@program
def float16_wide() -> Program:
    """Eight halves are sixteen bytes."""
    A = te.placeholder((2048,), "float16", name="A")
    C = te.compute((2048,), lambda i: tir.max(A[i], tir.const(0, "float16")), name="C")
    s = te.create_schedule(C.op)
    outer, lanes = s[C].split(C.op.axis[0], factor=8)
    bx, tx = s[C].split(outer, factor=32)
    s[C].bind(bx, axis("blockIdx.x"))
    s[C].bind(tx, axis("threadIdx.x"))
    s[C].vectorize(lanes)
    a = random(2048, dtype="float16")
    return Program(s, [A, C], [a], np.maximum(a, 0))


@program
def bfloat16_add() -> Program:
    A, B = te.placeholder((300,), "bfloat16", name="A"), te.placeholder((300,), "bfloat16", name="B")
    C = te.compute((300,), lambda i: A[i] + B[i], name="C")
    s = te.create_schedule(C.op)
    flat(s, C)
    a, b = random(300, dtype="bfloat16"), random(300, dtype="bfloat16", seed=1)
    return Program(s, [A, B, C], [a, b], a + b, rtol=1e-2, atol=1e-2)


@program
def functions() -> Program:
    """Mathematical functions of the device's own library."""
    A = te.placeholder((500,), name="A")

    def body(i: Any) -> Any:
        x = A[i]
        return (
            (
                te.exp(x)
                + te.tanh(x)
                + te.sigmoid(x)
                + te.erf(x)
                + te.log(te.abs(x) + 1.0)
                + te.sqrt(te.abs(x))
            )
            + te.floor(x)
            + te.power(te.abs(x) + 0.5, 1.5)
            + te.sin(x) * te.cos(x)
            + tir.rsqrt(te.abs(x) + 1.0)
        )

    C = te.compute((500,), body, name="C")
    s = te.create_schedule(C.op)
    flat(s, C)
    a = random(500)
    x = a.astype("float64")
    import math

    erf = np.array([math.erf(v) for v in x])
    size = np.abs(x)
    want = np.exp(x) + np.tanh(x) + 1 / (1 + np.exp(-x)) + erf + np.log(size + 1) + np.sqrt(size)
    want = want + np.floor(x) + (size + 0.5) ** 1.5 + np.sin(x) * np.cos(x) + 1 / np.sqrt(size + 1)
    return Program(s, [A, C], [a], want.astype("float32"), rtol=2e-5, atol=2e-5)


@program
def special_values() -> Program:
    """NaN goes through min and max; infinities are constants; comparisons with NaN do not hold."""
    A = te.placeholder((6,), name="A")

    def body(i: Any) -> Any:
        x = A[i]
        low = tir.min(x, tir.const(float("inf"), "float32"))
        high = tir.max(x, tir.const(float("-inf"), "float32"))
        kept = tir.if_then_else(tir.isnan(x), tir.const(float("nan"), "float32"), low + high)
        return tir.Select(tir.isinf(x), tir.const(-1.0, "float32"), kept)

    C = te.compute((6,), body, name="C")
    s = te.create_schedule(C.op)
    flat(s, C, 8)
    a = np.array([1.5, np.nan, np.inf, -np.inf, -0.0, 3e38], "float32")
    with np.errstate(over="ignore"):
        want = np.where(np.isinf(a), np.float32(-1), a + a)
    return Program(s, [A, C], [a], want)


@program
def integers() -> Program:
    """Division rounds down, arithmetic wraps around, shifts keep the sign."""
    A, B = te.placeholder((400,), "int32", name="A"), te.placeholder((400,), "int32", name="B")

    def body(i: Any) -> Any:
        x, y = A[i], B[i]
        whole = (
            te.floordiv(x, y) * 1000003 + te.floormod(x, y) * 2147483 + te.floordiv(x, 7) + te.floormod(x, 8)
        )
        return whole + tir.truncdiv(x, y) + tir.truncmod(x, y) + (x >> 3) + (x << 5) + (x ^ y) + tir.max(x, y)

    C = te.compute((400,), body, name="C")
    s = te.create_schedule(C.op)
    flat(s, C, 32)
    rng = np.random.default_rng(5)
    a = rng.integers(-(2**31), 2**31 - 1, 400).astype("int32")
    b = np.where((b := rng.integers(-50, 50, 400)) == 0, 3, b).astype("int32")
    x, y = a.astype("int64"), b.astype("int64")
    trunc = (np.abs(x) // np.abs(y)) * np.sign(x) * np.sign(y)
    want = x // y * 1000003 + x % y * 2147483 + x // 7 + x % 8 + trunc + (x - trunc * y) + (x >> 3)
    want = want + (x << 5) + (x ^ y) + np.maximum(x, y)
    return Program(s, [A, B, C], [a, b], want.astype("int32"))


@program
def small_integers() -> Program:
    """int8 and uint8 wrap in their own width; int64 counts further than 32 bits."""
    A = te.placeholder((200,), "int8", name="A")
    B = te.placeholder((200,), "uint8", name="B")

    def body(i: Any) -> Any:
        x, y = (
            tir.max(A[i] + A[i] * A[i], tir.const(-100, "int8")),
            tir.min(B[i] + B[i], tir.const(200, "uint8")),
        )
        return x.astype("int64") * 3000000000 + y.astype("int64")

    C = te.compute((200,), body, name="C")
    s = te.create_schedule(C.op)
    flat(s, C, 32)
    a, b = np.arange(200).astype("int8"), np.arange(200).astype("uint8")
    want = np.maximum(a + a * a, np.int8(-100)).astype("int64") * 3000000000
    want = want + np.minimum(b + b, np.uint8(200)).astype("int64")
    return Program(s, [A, B, C], [a, b], want)


@program
def truth_values() -> Program:
    A, B = te.placeholder((300,), "bool", name="A"), te.placeholder((300,), name="B")
    C = te.compute((300,), lambda i: te.all(A[i], B[i] > 0.0), name="C")
    s = te.create_schedule(C.op)
    flat(s, C, 32)
    b = random(300)
    a = np.arange(300) % 3 == 0
    return Program(s, [A, B, C], [a, b], a & (b > 0))


@program
def gather() -> Program:
    A, B = te.placeholder((90, 16), name="A"), te.placeholder((40,), "int64", name="B")
    C = te.compute((40, 16), lambda i, j: A[B[i], j], name="C")
    s = te.create_schedule(C.op)
    flat(s, C, 64)
    a, b = random(90, 16), np.random.default_rng(0).integers(0, 90, 40)
    return Program(s, [A, B, C], [a, b], a[b])


@program
def padded() -> Program:
    """A branch that reads only inside."""
    A = te.placeholder((14, 14), name="A")
    C = te.compute(
        (16, 16),
        lambda i, j: tir.if_then_else(
            tir.all(i >= 1, i < 15, j >= 1, j < 15), A[i - 1, j - 1], tir.const(0.0, "float32")
        ),
        name="C",
    )
    s = te.create_schedule(C.op)
    outer, lanes = s[C].split(C.op.axis[1], factor=4)
    s[C].bind(C.op.axis[0], axis("blockIdx.x"))
    s[C].bind(outer, axis("threadIdx.x"))
    s[C].vectorize(lanes)
    a = random(14, 14)
    return Program(s, [A, C], [a], np.pad(a, 1))


# ---------------------------------------------------------------------------- threads together
@program
def row_sum() -> Program:
    """Each thread sums a part of a row, and the threads of a row combine theirs."""
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    _, ki = s[B].split(B.op.reduce_axis[0], factor=16)
    BF = s.rfactor(B, ki)
    xo, xi = s[B].split(s[B].op.axis[0], factor=8)
    s[B].bind(xo, axis("blockIdx.x"))
    s[B].bind(xi, axis("threadIdx.y"))
    tx = axis("threadIdx.x")
    s[B].bind(s[B].op.reduce_axis[0], tx)
    s[BF].compute_at(s[B], s[B].op.reduce_axis[0])
    s[B].set_store_predicate(tx.var.equal(0))
    a = random(53, 119)
    return Program(s, [A, B], [a], a.sum(1), rtol=1e-4, atol=1e-4)


@program
def argmax() -> Program:
    """Two results of one reduction, shared out among threads."""

    def better(x: Any, y: Any) -> Any:
        return tir.Select(x[1] >= y[1], x[0], y[0]), tir.Select(x[1] >= y[1], x[1], y[1])

    def start(t0: str, t1: str) -> Any:
        return tir.const(-1, t0), tir.min_value(t1)

    most = te.comm_reducer(better, start, name="argmax")
    A = te.placeholder((20, 64), name="A")
    index = te.placeholder((20, 64), "int32", name="index")
    k = te.reduce_axis((0, 64), "k")
    at, value = te.compute((20,), lambda i: most((index[i, k], A[i, k]), axis=k), name="M")
    C = te.compute((20,), lambda i: at[i], name="C")
    s = te.create_schedule(C.op)
    _, ki = s[at].split(at.op.reduce_axis[0], factor=16)
    s[at].bind(at.op.axis[0], axis("blockIdx.x"))
    s[at].bind(ki, axis("threadIdx.x"))
    flat(s, C, 32)
    a = random(20, 64)
    where = np.broadcast_to(np.arange(64, dtype="int32"), (20, 64)).copy()
    return Program(s, [A, index, C], [a, where], a.argmax(1).astype("int32"))


@program
def softmax() -> Program:
    """A row for a block of threads: the greatest, the sum of powers, then the quotients."""
    A = te.placeholder((24, 200), name="A")
    k, l = te.reduce_axis((0, 200), "k"), te.reduce_axis((0, 200), "l")
    M = te.compute((24,), lambda i: te.max(A[i, k], axis=k), name="M")
    E = te.compute((24, 200), lambda i, j: te.exp(A[i, j] - M[i]), name="E")
    S = te.compute((24,), lambda i: te.sum(E[i, l], axis=l), name="S")
    C = te.compute((24, 200), lambda i, j: E[i, j] / S[i], name="C")
    sch = tir.Schedule(te.create_prim_func([A, C]))
    i, j = sch.get_loops("C")
    sch.bind(i, "blockIdx.x")
    for name in ("S", "E", "M"):
        sch.set_scope(name, 0, "shared")
        sch.compute_at(name, i)
        sch.bind(sch.split(sch.get_loops(name)[-1], [None, 64])[1], "threadIdx.x")
    sch.bind(sch.split(j, [None, 64])[1], "threadIdx.x")
    a = random(24, 200)
    power = np.exp(a - a.max(1, keepdims=True))
    return Program(sch, None, [a], power / power.sum(1, keepdims=True))


@program
def transpose() -> Program:
    """Through a tile of shared memory whose rows are one element longer than they need to be."""
    A = te.placeholder((96, 64), name="A")
    C = te.compute((64, 96), lambda i, j: A[j, i], name="C")
    sch = tir.Schedule(te.create_prim_func([A, C]))
    i, j = sch.get_loops("C")
    io, ii = sch.split(i, [None, 16])
    jo, ji = sch.split(j, [None, 16])
    sch.reorder(io, jo, ii, ji)
    tile = sch.cache_read("C", 0, "shared")
    for loop, name in ((io, "blockIdx.y"), (jo, "blockIdx.x"), (ii, "threadIdx.y"), (ji, "threadIdx.x")):
        sch.bind(loop, name)
    sch.compute_at(tile, jo)
    y, x = sch.get_loops(tile)[-2:]
    sch.bind(y, "threadIdx.y")
    sch.bind(x, "threadIdx.x")
    sch.storage_align(tile, 0, 0, 16, 1)
    a = random(96, 64)
    return Program(sch, None, [a], a.T.copy())


def matmul_stages(m: Any, n: Any, k: Any, dtype: str = "float32", out: str = "float32") -> Any:
    A, B = te.placeholder((m, k), dtype, name="A"), te.placeholder((k, n), dtype, name="B")
    r = te.reduce_axis((0, k), "r")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r].astype(out) * B[r, j].astype(out), axis=r), name="C")
    return A, B, C


@program
def matmul_vthread() -> Program:
    """The classic pattern: tiles to blocks, virtual threads, shared tiles fetched together, registers."""
    A, B, C = matmul_stages(64, 64, 48)
    s = te.create_schedule(C.op)
    AA, BB = s.cache_read(A, "shared", [C]), s.cache_read(B, "shared", [C])
    CL = s.cache_write(C, "local")
    AL, BL = s.cache_read(AA, "local", [CL]), s.cache_read(BB, "local", [CL])
    by, yi = s[C].split(s[C].op.axis[0], factor=32)
    bx, xi = s[C].split(s[C].op.axis[1], factor=32)
    vy, yi = s[C].split(yi, nparts=2)
    vx, xi = s[C].split(xi, nparts=2)
    ty, yi = s[C].split(yi, nparts=4)
    tx, xi = s[C].split(xi, nparts=4)
    s[C].reorder(by, bx, vy, vx, ty, tx, yi, xi)
    s[C].bind(by, axis("blockIdx.y"))
    s[C].bind(bx, axis("blockIdx.x"))
    s[C].bind(vy, te.thread_axis("vthread", name="vy"))
    s[C].bind(vx, te.thread_axis("vthread", name="vx"))
    s[C].bind(ty, axis("threadIdx.y"))
    s[C].bind(tx, axis("threadIdx.x"))
    s[CL].compute_at(s[C], tx)
    y, x = s[CL].op.axis
    ko, ki = s[CL].split(s[CL].op.reduce_axis[0], factor=8)
    s[CL].reorder(ko, ki, y, x)
    s[AA].compute_at(s[CL], ko)
    s[BB].compute_at(s[CL], ko)
    s[AL].compute_at(s[CL], ki)
    s[BL].compute_at(s[CL], ki)
    for shared in (AA, BB):
        whole = s[shared].fuse(*s[shared].op.axis)
        whole, lane = s[shared].split(whole, factor=2)
        whole, x = s[shared].split(whole, factor=4)
        whole, y = s[shared].split(whole, factor=4)
        s[shared].bind(y, axis("threadIdx.y"))
        s[shared].bind(x, axis("threadIdx.x"))
        s[shared].vectorize(lane)
    a, b = random(64, 48), random(48, 64, seed=1)
    return Program(s, [A, B, C], [a, b], a @ b, rtol=1e-4, atol=1e-4)


def tiled(sch: tir.Schedule, tile: int = 32, inner: int = 8, each: int = 4, lanes: int = 4) -> tir.Schedule:
    """Blocks of threads with square tiles, each thread with a square of its own; wide fetches."""
    side = tile // each
    i, j, k = sch.get_loops("C")
    by, ty, yi = sch.split(i, [None, side, each])
    bx, tx, xi = sch.split(j, [None, side, each])
    ko, ki = sch.split(k, [None, inner])
    sch.reorder(by, bx, ty, tx, ko, ki, yi, xi)
    kept = sch.cache_write("C", 0, "local")
    sch.reverse_compute_at(kept, tx)
    for loop, name in ((by, "blockIdx.y"), (bx, "blockIdx.x"), (ty, "threadIdx.y"), (tx, "threadIdx.x")):
        sch.bind(loop, name)
    for operand in range(2):
        copy = sch.cache_read("C", operand, "shared")
        sch.compute_at(copy, ko)
        whole = sch.fuse(*sch.get_loops(copy)[-2:])
        _, y, x, lane = sch.split(whole, [None, side, side, lanes])
        sch.bind(y, "threadIdx.y")
        sch.bind(x, "threadIdx.x")
        sch.vectorize(lane)
    sch.decompose_reduction("C", ko)
    return sch


@program
def matmul_tiled() -> Program:
    A, B, C = matmul_stages(64, 96, 32)
    a, b = random(64, 32), random(32, 96, seed=1)
    sch = tiled(tir.Schedule(te.create_prim_func([A, B, C])))
    return Program(sch, None, [a, b], a @ b, rtol=1e-4, atol=1e-4)


@program
def matmul_ragged() -> Program:
    """Sizes that no tile divides."""
    A, B, C = matmul_stages(67, 45, 29)
    a, b = random(67, 29), random(29, 45, seed=1)
    sch = tiled(tir.Schedule(te.create_prim_func([A, B, C])))
    return Program(sch, None, [a, b], a @ b, rtol=1e-4, atol=1e-4)


@program
def matmul_symbolic() -> Program:
    m, n, k = te.var("m"), te.var("n"), te.var("k")
    A, B, C = matmul_stages(m, n, k)
    sch = tir.Schedule(te.create_prim_func([A, B, C]))
    i, j, r = sch.get_loops("C")
    by, ty = sch.split(i, [None, 8])
    bx, tx = sch.split(j, [None, 8])
    sch.reorder(by, bx, ty, tx, r)
    for loop, name in ((by, "blockIdx.y"), (bx, "blockIdx.x"), (ty, "threadIdx.y"), (tx, "threadIdx.x")):
        sch.bind(loop, name)
    a, b = random(37, 19), random(19, 53, seed=1)
    return Program(sch, None, [a, b], a @ b, rtol=1e-4, atol=1e-4)


@program
def matmul_float16() -> Program:
    """Halves multiplied and summed in float32."""
    A, B, C = matmul_stages(64, 64, 32, "float16", "float32")
    a, b = random(64, 32, dtype="float16"), random(32, 64, dtype="float16", seed=1)
    sch = tiled(tir.Schedule(te.create_prim_func([A, B, C])))
    return Program(sch, None, [a, b], a.astype("float32") @ b.astype("float32"), rtol=1e-3, atol=1e-3)


@program
def matmul_int8() -> Program:
    A, B, C = matmul_stages(32, 64, 32, "int8", "int32")
    a, b = random(32, 32, dtype="int8"), random(32, 64, dtype="int8", seed=1)
    sch = tiled(tir.Schedule(te.create_prim_func([A, B, C])))
    return Program(sch, None, [a, b], a.astype("int32") @ b.astype("int32"))


@program
def conv2d() -> Program:
    """The classic GPU schedule of a convolution, height and width first: shared and local caches, vthreads."""
    size, channels, filters, batch, width = 7, 16, 16, 8, 3
    A = te.placeholder((size, size, channels, batch), name="A")
    W = te.placeholder((width, width, channels, filters), name="W")
    P = te.compute(
        (size + 2, size + 2, channels, batch),
        lambda y, x, c, n: tir.if_then_else(
            tir.all(y >= 1, y - 1 < size, x >= 1, x - 1 < size),
            A[y - 1, x - 1, c, n],
            tir.const(0.0, "float32"),
        ),
        name="P",
    )
    rc = te.reduce_axis((0, channels), "rc")
    ry, rx = te.reduce_axis((0, width), "ry"), te.reduce_axis((0, width), "rx")
    C = te.compute(
        (size, size, filters, batch),
        lambda y, x, f, n: te.sum(P[y + ry, x + rx, rc, n] * W[ry, rx, rc, f], axis=[ry, rx, rc]),
        name="C",
    )
    s = te.create_schedule(C.op)
    s[P].compute_inline()
    AA, WW = s.cache_read(P, "shared", [C]), s.cache_read(W, "shared", [C])
    AL, WL = s.cache_read(AA, "local", [C]), s.cache_read(WW, "local", [C])
    CL = s.cache_write(C, "local")
    y, x, f, n = s[C].op.axis
    bz = s[C].fuse(y, x)
    by, fi = s[C].split(f, factor=8)
    bx, ni = s[C].split(n, factor=8)
    vy, fi = s[C].split(fi, nparts=2)
    vx, ni = s[C].split(ni, nparts=2)
    ty, fi = s[C].split(fi, nparts=2)
    tx, ni = s[C].split(ni, nparts=2)
    s[C].reorder(bz, by, bx, vy, vx, ty, tx, fi, ni)
    for loop, name in ((bz, "blockIdx.z"), (by, "blockIdx.y"), (bx, "blockIdx.x")):
        s[C].bind(loop, axis(name))
    s[C].bind(vy, te.thread_axis("vthread", name="vy"))
    s[C].bind(vx, te.thread_axis("vthread", name="vx"))
    s[C].bind(ty, axis("threadIdx.y"))
    s[C].bind(tx, axis("threadIdx.x"))
    s[CL].compute_at(s[C], tx)
    yi, xi, fi, ni = s[CL].op.axis
    ry, rx, rc = s[CL].op.reduce_axis
    rco, rci = s[CL].split(rc, factor=8)
    s[CL].reorder(rco, ry, rx, rci, fi, ni)
    s[AA].compute_at(s[CL], rx)
    s[WW].compute_at(s[CL], rx)
    s[AL].compute_at(s[CL], rci)
    s[WL].compute_at(s[CL], rci)
    for shared in (AA, WW):
        _, _, outer, inner = s[shared].op.axis
        ty, outer = s[shared].split(outer, nparts=2)
        tx, inner = s[shared].split(inner, nparts=2)
        _, lane = s[shared].split(inner, factor=4)
        s[shared].reorder(ty, tx, outer, lane)
        s[shared].bind(ty, axis("threadIdx.y"))
        s[shared].bind(tx, axis("threadIdx.x"))
        s[shared].vectorize(lane)
    a, w = random(size, size, channels, batch), random(width, width, channels, filters, seed=1)
    padded_a = np.pad(a, ((1, 1), (1, 1), (0, 0), (0, 0)))
    want = np.zeros((size, size, filters, batch), "float32")
    for dy in range(width):
        for dx in range(width):
            part = padded_a[dy : dy + size, dx : dx + size]
            want += np.einsum("yxcn,cf->yxfn", part, w[dy, dx])
    return Program(s, [A, W, C], [a, w], want, rtol=1e-3, atol=1e-3)


@program
def scan() -> Program:
    """A running sum over rows, each column by a thread."""
    m, n = 12, te.var("n")
    X = te.placeholder((m, n), name="X")
    state = te.placeholder((m, n))
    init = te.compute((1, n), lambda _, i: X[0, i])
    update = te.compute((m, n), lambda t, i: state[t - 1, i] + X[t, i])
    Y = te.scan(init, update, state, inputs=[X])
    s = te.create_schedule(Y.op)
    for stage in (init, update):
        bx, tx = s[stage].split(stage.op.axis[1], factor=32)
        s[stage].bind(bx, axis("blockIdx.x"))
        s[stage].bind(tx, axis("threadIdx.x"))
    x = random(m, 70)
    return Program(s, [X, Y], [x], np.cumsum(x, 0), rtol=1e-4, atol=1e-4)


def from_script(text: str) -> Any:
    return tvm.script.from_source(f"from tilewright.script import tir as T\n{text}")


@program
def bytes_multiplied() -> Program:
    """Four products of bytes at once; those of A are loaded as one number, those of B are put together."""
    func = from_script(
        """
@T.prim_func
def main(A: T.Buffer((256,), "int8"), B: T.Buffer((256,), "int8"), C: T.Buffer((64,), "int32")):
    tx = T.launch_thread("threadIdx.x", 64)
    C[tx] = T.Call("int32", "tir.dp4a", [A[tx * 4:tx * 4 + 4:1], B[T.Ramp(tx, 64, 4)], tx])
"""
    )
    a, b = random(256, dtype="int8"), random(256, dtype="int8", seed=1)
    wide = a.reshape(64, 4).astype("int32") * b.reshape(4, 64).T.astype("int32")
    return Program(func, None, [a, b], (wide.sum(1) + np.arange(64)).astype("int32"))


def asynchronous_copies() -> Program:
    """Sixteen bytes on their own way from global to shared memory; only CUDA has that."""
    func = from_script(
        """
@T.prim_func
def main(A: T.Buffer((256,), "float32"), B: T.Buffer((256,), "float32")):
    tx = T.launch_thread("threadIdx.x", 64)
    S = T.allocate([256], "float32", "shared")
    S_1 = T.Buffer((256,), data=S, scope="shared")
    T.evaluate(T.Call("float32", "tir.ptx_cp_async", [S, tx * 4, A.data, tx * 4, 16]))
    T.evaluate(T.Call("int32", "tir.ptx_commit_group", []))
    T.evaluate(T.Call("int32", "tir.ptx_wait_group", [0]))
    for i in range(4):
        B[tx * 4 + i] = S_1[255 - tx * 4 - i]
"""
    )
    a = random(256)
    return Program(func, None, [a], a[::-1].copy())
