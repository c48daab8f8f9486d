"""A matrix product, from plain loops to a schedule in the class of a BLAS library.

The computation is written once. Each step changes only the schedule: how the same loops are run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

import tilewright as tvm
from tilewright import te


def matmul(n: int) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """What to compute: C = A @ B."""
    A = te.placeholder((n, n), name="A")
    B = te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return A, B, C


def naive(s: te.Schedule, C: te.Tensor) -> None:
    """The loops as they come: the innermost one walks down a column of B, one cache line for each element."""


def reordered(s: te.Schedule, C: te.Tensor) -> None:
    """k before j: the innermost loop walks along rows of B and C."""
    i, j = C.op.axis
    (k,) = C.op.reduce_axis
    s[C].reorder(i, k, j)


def blocked(s: te.Schedule, C: te.Tensor) -> None:
    """Tiles of 16 × 64 of C and 16 steps of k, so that what a tile reads stays in cache."""
    i, j = C.op.axis
    (k,) = C.op.reduce_axis
    io, jo, ii, ji = s[C].tile(i, j, 16, 64)
    ko, ki = s[C].split(k, factor=16)
    s[C].reorder(io, jo, ko, ii, ki, ji)


def vectorized(s: te.Schedule, C: te.Tensor) -> None:
    """The innermost loop as vectors, not left to LLVM's own judgement."""
    blocked(s, C)
    s[C].vectorize(s[C].leaf_iter_vars[-1])


def registers(s: te.Schedule, C: te.Tensor) -> None:
    """Tiles of 8 × 32 of C that live in registers while k runs: each load is used many times."""
    i, j = C.op.axis
    (k,) = C.op.reduce_axis
    io, jo, ii, ji = s[C].tile(i, j, 8, 32)
    s[C].reorder(jo, io, k, ii, ji)
    s[C].unroll(ii)
    s[C].vectorize(ji)


def parallel(s: te.Schedule, C: te.Tensor) -> None:
    """The same on all cores."""
    registers(s, C)
    s[C].parallel(s[C].leaf_iter_vars[0])


STEPS = {
    naive: "for i, for j, for k",
    reordered: "for i, for k, for j",
    blocked: "tiles in cache",
    vectorized: "inner loop as vectors",
    registers: "8 × 32 in registers",
    parallel: "on all cores",
}


def measure(functions: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Median seconds of each, sampled in turn so that drift of the machine hits all alike."""
    samples: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, run in functions.items():
            start = time.perf_counter()
            run()
            samples[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in samples.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1024, help="rows and columns of the matrices")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--show", action="store_true", help="print the loops of each step")
    options = parser.parse_args()
    n, console = options.size, Console()

    rng = np.random.default_rng(0)
    a, b = rng.random((n, n), dtype=np.float32), rng.random((n, n), dtype=np.float32)
    c = np.empty((n, n), np.float32)
    arrays = [tvm.nd.array(a), tvm.nd.array(b), tvm.nd.empty((n, n))]
    want = a @ b

    with console.status("starting LLVM"):  # once for the process, not a part of what the first step costs
        one = te.placeholder((1,), name="one")
        two = te.compute((1,), lambda i: one[i] + 1.0, name="two")
        tvm.build(te.create_schedule(two.op), [one, two], target="llvm", name="two")["two"]

    runs: dict[str, Callable[[], None]] = {}
    compiled: dict[str, float] = {}
    for step in STEPS:
        A, B, C = matmul(n)
        s = te.create_schedule(C.op)
        step(s, C)
        start = time.perf_counter()
        with console.status(f"compiling {step.__name__}"):
            function = tvm.build(s, [A, B, C], target="llvm", name="matmul")["matmul"]
        compiled[step.__name__] = time.perf_counter() - start
        if options.show:
            console.rule(step.__name__)
            tvm.lower(s, [A, B, C]).show()
        function(*arrays)
        np.testing.assert_allclose(arrays[2].numpy(), want, rtol=1e-3)
        runs[step.__name__] = lambda f=function: f(*arrays)
    runs["NumPy"] = lambda: np.matmul(a, b, out=c)

    with console.status("measuring"):
        times = measure(runs, options.rounds)

    table = Table(title=f"C = A @ B, {n} × {n} × {n}, float32", box=box.SIMPLE_HEAD)
    table.add_column("schedule")
    table.add_column("what it does")
    for name in ("compile", "run", "GFLOP/s", "× NumPy"):
        table.add_column(name, justify="right", no_wrap=True)
    for step, label in STEPS.items():
        name = step.__name__
        table.add_row(
            name,
            label,
            f"{compiled[name] * 1e3:.0f} ms",
            f"{times[name] * 1e3:.1f} ms",
            f"{2 * n**3 / times[name] / 1e9:.1f}",
            f"{times['NumPy'] / times[name]:.2f}",
        )
    library = f"{2 * n**3 / times['NumPy'] / 1e9:.1f}"
    table.add_row("NumPy", "its BLAS library", "", f"{times['NumPy'] * 1e3:.1f} ms", library, "1.00")
    console.print(table)


if __name__ == "__main__":
    main()
