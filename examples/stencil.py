"""Heat in a plate: a five-point stencil, stepped until it settles, drawn in the terminal.

The border keeps its temperature, which `te.if_then_else` says. The interpreter, which defines what a program
means, checks the compiled code on a small plate first.
"""

from __future__ import annotations

import time

import numpy as np

import tilewright as tvm
from tilewright import te, tir


def heat(n: int, m: int) -> tuple[te.Tensor, te.Tensor]:
    """One step: each inner point becomes the mean of its four neighbours."""
    A = te.placeholder((n, m), name="A")

    def point(i: tir.Var, j: tir.Var) -> tir.PrimExpr:
        inside = tir.all(i > 0, i < n - 1, j > 0, j < m - 1)
        mean = (A[i - 1, j] + A[i + 1, j] + A[i, j - 1] + A[i, j + 1]) * 0.25
        return te.if_then_else(inside, mean, A[i, j])

    return A, te.compute((n, m), point, name="B")


def compiled(n: int, m: int) -> tvm.runtime.Module:
    A, B = heat(n, m)
    s = te.create_schedule(B.op)
    i, j = B.op.axis
    _, lanes = s[B].split(j, factor=16)
    s[B].vectorize(lanes)
    s[B].parallel(i)
    return tvm.build(s, [A, B], target="llvm", name="heat")


def check() -> None:
    """The compiled step against the interpreter, on a plate whose sides no factor divides."""
    rng = np.random.default_rng(0)
    a = rng.random((13, 37), dtype=np.float32)
    fast, slow = np.empty_like(a), np.empty_like(a)
    compiled(13, 37)(a, fast)
    tir.interpret(te.create_prim_func(list(heat(13, 37))), a, slow)
    np.testing.assert_allclose(fast, slow, rtol=1e-6)


def draw(plate: np.ndarray) -> None:
    shades = " .:-=+*#%@"
    rows = plate[:: plate.shape[0] // 12, :: plate.shape[1] // 60]
    for row in rows:
        print("  " + "".join(shades[min(9, int(value * 10))] for value in row))


def main() -> None:
    check()
    n, m, steps = 240, 480, 4000
    step = compiled(n, m)["heat"]
    now, then = np.zeros((n, m), np.float32), np.zeros((n, m), np.float32)
    for plate in (now, then):
        plate[0, :] = 1.0  # the upper edge is hot
        plate[n // 3 : n // 2, 0] = 0.8  # and a part of the left one
    start = time.perf_counter()
    for _ in range(steps):
        step(now, then)
        now, then = then, now
    spent = time.perf_counter() - start
    print(f"A plate of {n} × {m} points after {steps} steps:\n")
    draw(now)
    print(f"\n{spent / steps * 1e6:.0f} µs a step, {steps * n * m / spent / 1e9:.2f} billion points a second")


if __name__ == "__main__":
    main()
