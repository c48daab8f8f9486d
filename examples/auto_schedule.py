"""What the automatic scheduler decides for a matrix product and for a convolution, and why.

Nothing is measured: the register tile, the panels and the order of the loops follow from the program and from the
figures of the machine. The results are compared with NumPy's.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import tilewright as tvm
from tilewright import te, topi


def best_of(run: object, rounds: int) -> float:
    """The shortest of some runs, in milliseconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()  # type: ignore[operator]
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def matmul(n: int, rounds: int) -> None:
    A = te.placeholder((n, n), name="A")
    B = te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")

    print(f"A matrix product, {n} × {n} × {n}")
    tvm.auto_schedule([A, B, C]).explain()

    a, b = np.random.default_rng(0).random((2, n, n), dtype=np.float32)
    c = np.empty((n, n), np.float32)
    plain, automatic = tvm.build(te.create_prim_func([A, B, C])), tvm.compile([A, B, C])
    for name, f in (("plain loops", plain), ("automatic", automatic)):
        c[:] = 0
        took = best_of(lambda f=f: f(a, b, c), rounds)
        np.testing.assert_allclose(c, a @ b, rtol=1e-3)
        print(f"  {name:<12} {took:9.3f} ms")
    print(f"  {'NumPy':<12} {best_of(lambda: np.matmul(a, b, out=c), rounds):9.3f} ms\n")


def convolution(size: int, rounds: int) -> None:
    """A convolution with its bias and activation, as it stands in a network: the weights are known."""
    x = te.placeholder((1, 64, size, size), name="x")
    w = te.placeholder((64, 64, 3, 3), name="w")
    bias = te.placeholder((64, 1, 1), name="bias")
    y = topi.nn.relu(topi.add(topi.nn.conv2d(x, w, strides=1, padding=1, dilation=1), bias))
    func = te.create_prim_func([x, w, bias, y])

    print(f"A convolution, 3 × 3, 64 to 64 channels, {size} × {size}, with bias and relu")
    tvm.auto_schedule(func, constants=["w", "bias"]).explain()

    rng = np.random.default_rng(0)
    xs = rng.standard_normal((1, 64, size, size), dtype=np.float32)
    ws = rng.standard_normal((64, 64, 3, 3), dtype=np.float32)
    bs = rng.standard_normal((64, 1, 1), dtype=np.float32)
    f = tvm.compile(func, constants={"w": ws, "bias": bs})
    out = np.empty((1, 64, size, size), np.float32)
    took = best_of(lambda: f(xs, out), rounds)

    padded = np.pad(xs, [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    wanted = np.maximum(np.einsum("nchwij,ocij->nohw", windows, ws, optimize=True) + bs, 0)
    np.testing.assert_allclose(out, wanted, rtol=1e-3, atol=1e-3)
    print(f"  {'automatic':<12} {took:9.3f} ms, and it computes what NumPy does")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=512, help="rows and columns of the matrices")
    parser.add_argument("--pixels", type=int, default=56, help="rows and columns of the image")
    parser.add_argument("--rounds", type=int, default=20, help="how often each is run")
    options = parser.parse_args()
    matmul(options.size, options.rounds)
    convolution(options.pixels, options.rounds)


if __name__ == "__main__":
    main()
