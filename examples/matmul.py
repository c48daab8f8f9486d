"""A matrix product, from plain loops to a schedule that keeps up with a BLAS library.

The computation is written once (twice, where an operand is packed). Each step changes only the schedule:
how the same loops are run. NumPy's BLAS library is measured in the same run, in turn with each step.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

import tilewright as tvm
from tilewright import te

Built = tuple[te.Schedule, list[te.Tensor]]


def matmul(n: int) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """What to compute: C = A @ B."""
    A = te.placeholder((n, n), name="A")
    B = te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return A, B, C


def naive(n: int) -> Built:
    """for i, for j, for k"""
    A, B, C = matmul(n)
    return te.create_schedule(C.op), [A, B, C]


def blocked(n: int) -> Built:
    """tiles that stay in cache"""
    s, args = naive(n)
    C = args[-1]
    i, j = C.op.axis
    (k,) = C.op.reduce_axis
    io, jo, ii, ji = s[C].tile(i, j, 32, 32)
    ko, ki = s[C].split(k, factor=4)
    s[C].reorder(io, jo, ko, ki, ii, ji)
    return s, args


def vectorized(n: int) -> Built:
    """the inner loop as vectors"""
    s, args = blocked(n)
    stage = s[args[-1]]
    stage.vectorize(stage.leaf_iter_vars[-1])
    return s, args


def permuted(n: int) -> Built:
    """A is read along its rows"""
    s, args = vectorized(n)
    stage = s[args[-1]]
    io, jo, ko, ki, ii, ji = stage.leaf_iter_vars
    stage.reorder(io, jo, ko, ii, ki, ji)
    return s, args


def packed_matmul(n: int, width: int) -> tuple[te.Tensor, te.Tensor, te.Tensor, te.Tensor]:
    """The same product, with B laid out anew in panels of `width` columns."""
    A = te.placeholder((n, n), name="A")
    B = te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    P = te.compute((n // width, n, width), lambda panel, row, col: B[row, panel * width + col], name="P")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * P[j // width, k, j % width], axis=k), name="C")
    return A, B, P, C


def packed(n: int) -> Built:
    """B in panels, read in order"""
    A, B, P, C = packed_matmul(n, 32)
    s = te.create_schedule(C.op)
    i, j = C.op.axis
    (k,) = C.op.reduce_axis
    io, jo, ii, ji = s[C].tile(i, j, 32, 32)
    ko, ki = s[C].split(k, factor=4)
    s[C].reorder(io, jo, ko, ii, ki, ji)
    s[C].vectorize(ji)
    s[P].vectorize(P.op.axis[2])
    return s, [A, B, C]


def cached(n: int) -> Built:
    """a tile of C in registers"""
    A, B, P, C = packed_matmul(n, 64)
    s = te.create_schedule(C.op)
    tile = s.cache_write(C, "local")
    i, j = C.op.axis
    io, jo, ii, ji = s[C].tile(i, j, 6, 64)
    s[C].reorder(jo, io, ii, ji)
    s[C].vectorize(ji)
    s[tile].compute_at(s[C], io)
    ti, tj = s[tile].op.axis
    (k,) = s[tile].op.reduce_axis
    s[tile].reorder(k, ti, tj)
    s[tile].unroll(ti)
    s[tile].vectorize(tj)
    s[P].vectorize(P.op.axis[2])
    return s, [A, B, C]


def parallel(n: int) -> Built:
    """the same on all cores"""
    s, args = cached(n)
    for stage in s.stages:
        if stage.op.name in ("P", "C"):
            stage.parallel(stage.leaf_iter_vars[0])
    return s, args


STEPS = (naive, blocked, vectorized, permuted, packed, cached, parallel)


def measure(functions: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Median seconds of each, sampled in turn so that drift of the machine hits all alike."""
    samples: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(rounds):
        for name, run in functions.items():
            if turn > 2 and samples[name][0] > 0.5:
                continue  # slow ones need no more samples
            start = time.perf_counter()
            run()
            samples[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in samples.items()}


def work(n: int, rounds: int) -> dict[str, dict[str, float]]:
    """Compile, check and measure every step in this process."""
    rng = np.random.default_rng(0)
    a, b = rng.random((n, n), dtype=np.float32), rng.random((n, n), dtype=np.float32)
    c = np.empty((n, n), np.float32)
    arrays = [tvm.nd.array(a), tvm.nd.array(b), tvm.nd.empty((n, n))]
    want = a @ b
    runs: dict[str, Callable[[], None]] = {}
    compiled: dict[str, float] = {}
    for step in STEPS:
        start = time.perf_counter()
        s, args = step(n)
        function = tvm.build(s, args, target="llvm", name="matmul")["matmul"]
        compiled[step.__name__] = time.perf_counter() - start
        function(*arrays)
        np.testing.assert_allclose(arrays[2].numpy(), want, rtol=1e-3)
        runs[step.__name__] = lambda f=function: f(*arrays)
    runs["NumPy"] = lambda: np.matmul(a, b, out=c)
    return {"compiled": compiled, "seconds": measure(runs, rounds)}


def in_child(threads: int, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """The same in a process where both sides have so many threads."""
    env = {**os.environ, "TILEWRIGHT_NUM_THREADS": str(threads)}
    env.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads)))
    command = [
        sys.executable,
        __file__,
        "--worker",
        "--size",
        str(options.size),
        "--rounds",
        str(options.rounds),
    ]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1024, help="rows and columns; a multiple of 64")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--show", action="store_true", help="print the loops of each step, and stop")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    n, console = options.size, Console()
    if n % 64:
        parser.error("--size must be a multiple of 64: the packed steps use panels of 64 columns")
    if options.show:
        for step in STEPS:
            print(f"# {step.__name__}: {step.__doc__}")
            tvm.lower(*step(n)).show()
        return
    if options.worker:
        print(json.dumps(work(n, options.rounds)))
        return

    cores = len(os.sched_getaffinity(0))
    results = {}
    for threads in sorted({1, cores}):
        with console.status(f"compiling and measuring with {threads} thread{'s' * (threads > 1)}"):
            results[threads] = in_child(threads, options)

    table = Table(title=f"C = A @ B, {n} × {n} × {n}, float32: GFLOP/s, and the ratio to NumPy")
    table.add_column("schedule", no_wrap=True)
    for threads in results:
        table.add_column(f"{threads} core{'s' * (threads > 1)}", justify="right", no_wrap=True)
        table.add_column("ratio", justify="right", no_wrap=True)
    about = {step.__name__: step.__doc__ for step in STEPS} | {"NumPy": "its BLAS library"}
    for name, what in about.items():
        row = [f"{name:<10} [dim]{what}[/dim]"]
        for found in results.values():
            seconds = found["seconds"]
            row.append(f"{2 * n**3 / seconds[name] / 1e9:.1f}")
            row.append(f"{seconds['NumPy'] / seconds[name]:.2f}")
        table.add_row(*row, style="bold" if name == "parallel" else "")
    console.print(table)
    times = [t * 1e3 for t in next(iter(results.values()))["compiled"].values()]
    console.print(f"Each schedule was compiled in {min(times):.0f} to {max(times):.0f} ms.")


if __name__ == "__main__":
    main()
