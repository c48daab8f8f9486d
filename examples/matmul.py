"""A matrix product, from plain loops to a schedule that keeps up with a BLAS library.

The computation is written once. Each step changes only the schedule: how the same loops are run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
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
    """The loops as they come: for i, for j, for k."""


def blocked(s: te.Schedule, C: te.Tensor) -> None:
    """Tiles of 32 × 32 of C, so that what a tile reads stays in cache."""
    i, j = C.op.axis
    (k,) = C.op.reduce_axis
    io, jo, ii, ji = s[C].tile(i, j, 32, 32)
    ko, ki = s[C].split(k, factor=4)
    s[C].reorder(io, jo, ko, ki, ii, ji)


def vectorized(s: te.Schedule, C: te.Tensor) -> None:
    """The innermost loop as vectors."""
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


STEPS = (naive, blocked, vectorized, registers, parallel)


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

    table = Table(title=f"C = A @ B, {n} × {n} × {n}, float32")
    table.add_column("schedule")
    table.add_column("what it does")
    for name in ("compiled in", "runs in", "GFLOP/s", "against NumPy"):
        table.add_column(name, justify="right")
    for step in STEPS:
        name = step.__name__
        table.add_row(
            name,
            (step.__doc__ or "").strip(),
            f"{compiled[name] * 1e3:.0f} ms",
            f"{times[name] * 1e3:.1f} ms",
            f"{2 * n**3 / times[name] / 1e9:.1f}",
            f"{times['NumPy'] / times[name]:.2f}×",
        )
    library = f"{2 * n**3 / times['NumPy'] / 1e9:.1f}"
    table.add_row("NumPy", "its BLAS library", "", f"{times['NumPy'] * 1e3:.1f} ms", library, "1.00×")
    console.print(table)


if __name__ == "__main__":
    main()
