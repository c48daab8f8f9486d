"""Four kernels for a GPU, scheduled by hand: vector addition, sums of rows, a matrix product, a convolution.

They run on an NVIDIA GPU where there is one, else on OpenCL's first device: with PoCL that is the processor.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import tilewright as tvm
from tilewright import te, topi

Array = np.ndarray
Kernel = tuple[te.Schedule, list[te.Tensor], list[Array], Array]  # schedule, arguments, inputs, result


def vector_add(n: int = 10_000) -> Kernel:
    """A thread for each element; blocks of 64 of them."""
    A, B = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    C = te.compute((n,), lambda i: A[i] + B[i], name="C")
    s = te.create_schedule(C.op)
    block, thread = s[C].split(C.op.axis[0], factor=64)
    s[C].bind(block, te.thread_axis("blockIdx.x"))
    s[C].bind(thread, te.thread_axis("threadIdx.x"))
    a, b = numbers(n), numbers(n, seed=1)
    return s, [A, B, C], [a, b], a + b


def row_sum(n: int = 60, m: int = 500) -> Kernel:
    """The threads of a block add up parts of a row, then the parts: a reduction across threads."""
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    _, part = s[B].split(k, factor=32)
    partial = s.rfactor(B, part)
    s[B].bind(s[B].op.axis[0], te.thread_axis("blockIdx.x"))
    thread = te.thread_axis("threadIdx.x")
    s[B].bind(s[B].op.reduce_axis[0], thread)
    s[partial].compute_at(s[B], s[B].op.reduce_axis[0])
    s[B].set_store_predicate(thread.var.equal(0))  # one thread writes the result
    a = numbers(n, m)
    return s, [A, B], [a], a.sum(1)


def matmul(m: int = 96, n: int = 128, k: int = 64) -> Kernel:
    """Blocks of 32 x 32 results, 4 x 4 of them in the registers of each thread, from tiles in shared memory.

    Virtual threads give a thread two columns of results that lie 16 apart, so that neighbours read neighbours.
    """
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), "r")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    s = te.create_schedule(C.op)
    registers = s.cache_write(C, "local")
    tiles = [s.cache_read(t, "shared", [registers]) for t in (A, B)]
    by, bx, i, j = s[C].tile(*C.op.axis, 32, 32)
    ty, i = s[C].split(i, factor=4)
    vx, j = s[C].split(j, nparts=2)
    tx, j = s[C].split(j, factor=2)
    s[C].reorder(by, bx, vx, ty, tx, i, j)
    for axis, name in (
        (by, "blockIdx.y"),
        (bx, "blockIdx.x"),
        (vx, "vthread"),
        (ty, "threadIdx.y"),
        (tx, "threadIdx.x"),
    ):
        s[C].bind(axis, te.thread_axis(name))
    s[registers].compute_at(s[C], tx)
    ro, ri = s[registers].split(s[registers].op.reduce_axis[0], factor=8)
    s[registers].reorder(ro, ri, *s[registers].op.axis)
    for tile in tiles:
        s[tile].compute_at(s[registers], ro)
        fetch_together(s, tile, 8, 8)
    a, b = numbers(m, k), numbers(k, n, seed=1)
    return s, [A, B, C], [a, b], a @ b


def convolution(channels: int = 8, filters: int = 16, size: int = 14) -> Kernel:
    """A block for each filter and 7 rows: its part of the image and its weights in shared memory, sums in registers."""
    data = te.placeholder((1, channels, size, size), name="data")
    weight = te.placeholder((filters, channels, 3, 3), name="weight")
    C = topi.nn.conv2d_nchw(data, weight, 1, 1, 1)
    s = te.create_schedule(C.op)
    padded = C.op.input_tensors[0]
    s[padded].compute_inline()  # zeros come into being on the way to shared memory
    sums = s.cache_write(C, "local")
    image = s.cache_read(padded, "shared", [sums])
    weights = s.cache_read(weight, "shared", [sums])
    n, f, y, x = C.op.axis
    by, y = s[C].split(y, factor=7)
    s[C].reorder(n, f, by, y, x)
    s[C].bind(s[C].fuse(n, f), te.thread_axis("blockIdx.y"))
    s[C].bind(by, te.thread_axis("blockIdx.x"))
    s[C].bind(y, te.thread_axis("threadIdx.y"))
    s[C].bind(x, te.thread_axis("threadIdx.x"))
    s[sums].compute_at(s[C], x)
    c, ry, rx = s[sums].op.reduce_axis
    co, ci = s[sums].split(c, factor=4)
    s[sums].reorder(co, ci, ry, rx, *s[sums].op.axis)
    for tile in (image, weights):
        s[tile].compute_at(s[sums], co)
        fetch_together(s, tile, 7, size)
    a, w = numbers(1, channels, size, size), numbers(filters, channels, 3, 3, seed=1)
    around = np.pad(a, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), axis=(2, 3))
    return s, [data, weight, C], [a, w], np.einsum("ncyxij,fcij->nfyx", windows, w)


def fetch_together(s: te.Schedule, tile: te.Tensor, rows: int, columns: int) -> None:
    """Let all threads of a block copy a tile to shared memory, neighbours next to each other."""
    rest, tx = s[tile].split(s[tile].fuse(*s[tile].op.axis), factor=columns)
    _, ty = s[tile].split(rest, factor=rows)
    s[tile].bind(ty, te.thread_axis("threadIdx.y"))
    s[tile].bind(tx, te.thread_axis("threadIdx.x"))


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def device() -> tvm.runtime.Device | None:
    return next((d for d in (tvm.cuda(0), tvm.opencl(0)) if d.exist), None)


def main() -> None:
    dev = device()
    target = "opencl" if dev is None else dev.kind
    print(f"kernels for {'no device that is here' if dev is None else dev.device_name}\n")
    kernels: list[Callable[[], Kernel]] = [vector_add, row_sum, matmul, convolution]
    for make in kernels:
        s, args, given, want = make()
        f = tvm.build(s, args, target=target, name=make.__name__)
        source = f.imported_modules[0].get_source()
        barriers = source.count("barrier(") + source.count("__syncthreads")
        told = f"{len(source.splitlines())} lines, {barriers} barriers"
        if dev is not None:
            arrays = [tvm.nd.array(a, dev) for a in given]
            out = tvm.nd.array(np.full(want.shape, np.nan, "float32"), dev)
            f(*arrays, out)
            np.testing.assert_allclose(out.numpy(), want, rtol=1e-4, atol=1e-4)
            seconds = f.time_evaluator(make.__name__, dev, number=10)(*arrays, out).mean
            told += f", {seconds * 1e6:.0f} µs"
        print(f"{make.__name__:<12} {told}")
    print("\nThe matrix product:\n")
    s, args, *_ = matmul()
    print(tvm.build(s, args, target=target).imported_modules[0].get_source())


if __name__ == "__main__":
    main()
