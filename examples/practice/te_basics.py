"""Phase 1: tensor expressions say what to compute; schedules say how."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import te, tir

from . import kit, products
from .kit import Figures, Page

NUMBER = 1
TITLE = "tensor expressions"
QUESTION = (
    "Why is what to compute declared apart from how it runs? What does this enable that eager execution, one "
    "operator after the other, cannot?"
)


# -- what: a sum of vectors ----------------------------------------------------------------------
def vector_add(n: int) -> list[te.Tensor]:
    """C[i] = A[i] + B[i]"""
    A = te.placeholder((n,), name="A")
    B = te.placeholder((n,), name="B")
    C = te.compute((n,), lambda i: A[i] + B[i], name="C")
    return [A, B, C]


# -- how: one declaration, many programs ---------------------------------------------------------
# The product itself is `products.matmul`: te.placeholder, te.reduce_axis, te.compute.
SCHEDULES: dict[str, Callable[[int], products.Built]] = {
    "as declared": products.naive,
    "loops i, k, j": lambda n: products.ordered(n, "ikj"),
    "tiles": products.tiled,
    "vector tiles": products.registers,
    "on all cores": products.parallel,
}


def same_answer(n: int, rounds: int) -> list[Figures]:
    """Each schedule of the one declaration: its time, and how far its result is from NumPy's."""
    bench = products.Bench(n)
    made = {name: tvm.build(*how(n), name="matmul") for name, how in SCHEDULES.items()}
    errors = {name: bench.error(m["matmul"]) for name, m in made.items()}
    times = kit.in_turns({name: bench.run(m) for name, m in made.items()}, rounds)
    return [{"name": name, "error": errors[name], **times[name]} for name in made]


# -- where: the same declaration for other machines ----------------------------------------------
OTHERS = {
    "this machine": ("llvm", "asm"),
    "ARM, 64 bits": ("llvm -mtriple=aarch64-linux-gnu -mattr=+neon", "asm"),
    "RISC-V": ("llvm -mtriple=riscv64-linux-gnu -mcpu=generic-rv64 -mattr=+m,+f,+d,+v", "asm"),
    "C": ("c", "c"),
    "OpenCL": ("opencl", "cl"),
    "CUDA": ("cuda", "cu"),
}
# The line that multiplies and adds, in any of those languages.
WORK = re.compile(r"fmadd\w*ps|\bfmla\b|\bvfmacc\S*|\bfmaf?\(|\+ .*\] \* ")


def for_a_gpu(n: int) -> products.Built:
    """The same declaration once more: rows and columns on blocks and threads."""
    s, args = products.naive(n)
    C = args[-1]
    io, jo, ii, ji = s[C].tile(*C.op.axis, 16, 16)
    for loop, name in zip(
        (io, jo, ii, ji), ("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x"), strict=True
    ):
        s[C].bind(loop, te.thread_axis(name))
    return s, args


def elsewhere(n: int) -> list[Figures]:
    """The code for other targets: how long it is, and the line that does the work."""
    found = []
    for name, (target, kind) in OTHERS.items():
        built = for_a_gpu(n) if target in ("cuda", "opencl") else products.registers(n)
        try:
            source = str(_source(tvm.build(*built, target=target, name="matmul"), kind))
        except tvm.TVMError as error:
            found.append({"name": name, "target": target, "lines": 0, "work": str(error).splitlines()[0]})
            continue
        lines = [line.strip() for line in source.splitlines() if line.strip()]
        work = next((line for line in lines if WORK.search(line)), "")
        found.append({"name": name, "target": target, "lines": len(lines), "work": " ".join(work.split())})
    return found


def _source(module: Any, kind: str) -> Any:
    return module.imported_modules[0].get_source() if kind in ("cl", "cu") else module.get_source(kind)


# -- beside eager execution ----------------------------------------------------------------------
def chain(n: int) -> products.Built:
    """max(x * a + b, 0) * a: four operators, one loop"""
    x, a, b = (te.placeholder((n,), name=name) for name in "xab")
    y = te.compute((n,), lambda i: tir.max(x[i] * a[i] + b[i], 0.0) * a[i], name="y")
    s = te.create_schedule(y.op)
    _, lanes = s[y].split(y.op.axis[0], factor=16)
    s[y].vectorize(lanes)
    return s, [x, a, b, y]


def beside_eager(n: int, rounds: int, torch_too: bool) -> Figures:
    """One thread each: NumPy, PyTorch where it is installed, and the loop that was compiled."""
    rng = np.random.default_rng(0)
    x, a, b = (rng.standard_normal(n).astype("float32") for _ in range(3))
    y = tvm.nd.empty((n,))
    f = tvm.build(*chain(n), name="chain")["chain"]
    arrays = [*map(tvm.nd.array, (x, a, b)), y]
    f(*arrays)
    want = np.maximum(x * a + b, np.float32(0)) * a
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-5, atol=1e-6)
    runs: dict[str, Callable[[], Any]] = {
        "compiled": lambda: f(*arrays),
        "NumPy": lambda: np.maximum(x * a + b, np.float32(0)) * a,
    }
    if torch_too and importlib.util.find_spec("torch") is not None:
        import torch

        torch.set_num_threads(1)
        xt, at, bt = map(torch.from_numpy, (x, a, b))
        runs["PyTorch"] = lambda: torch.relu(xt * at + bt) * at
    # An operator reads its operands and writes its result. Four of them: 3 + 3 + 2 + 3 arrays go through memory.
    arrays_moved = {"compiled": 4, "NumPy": 11, "PyTorch": 11}
    times = kit.in_turns(runs, rounds)
    rows = [{"name": name, "bytes": 4 * n * arrays_moved[name], **times[name]} for name in runs]
    return {"elements": n, "rows": rows}


# -- the phase -----------------------------------------------------------------------------------
def measure(quick: bool) -> Figures:
    n = 128 if quick else 512
    args = vector_add(8)
    return {
        "vector_add": str(tvm.lower(te.create_schedule(args[-1].op), args)["main"]),
        "n": n,
        "schedules": same_answer(n, 3 if quick else 7),
        "targets": elsewhere(64),
        "eager": beside_eager(1 << 20 if quick else 1 << 22, 5 if quick else 9, torch_too=not quick),
    }


def report(figures: Figures, page: Page) -> None:
    page.heading("C[i] = A[i] + B[i], as te.compute declares it, becomes this loop:")
    page.program(figures["vector_add"])
    n, rows = figures["n"], figures["schedules"]
    bench = [2 * n**3 / r["seconds"] / 1e9 for r in rows]
    page.table(
        f"C = A @ B, {n} × {n} × {n}: one declaration, {len(rows)} schedules",
        ["schedule", "time", "GFLOP/s", "", "error"],
        [
            [r["name"], kit.seconds(r["seconds"]), f"{g:.3g}", kit.bar(g, max(bench)), f"{r['error']:.0e}"]
            for r, g in zip(rows, bench, strict=True)
        ],
        best=bench.index(max(bench)),
        left=(0, 3),
    )
    page.table(
        "The same declaration, compiled for other machines",
        ["machine", "lines", "the line that multiplies and adds"],
        [[r["name"], r["lines"], r["work"][:48]] for r in figures["targets"]],
        left=(0, 2),
    )
    eager = figures["eager"]
    page.table(
        f"max(x * a + b, 0) * a on {eager['elements']:,} numbers, one thread",
        ["", "time", "through memory", "GB/s"],
        [
            [
                r["name"],
                kit.seconds(r["seconds"]),
                kit.size(r["bytes"]),
                f"{r['bytes'] / r['seconds'] / 1e9:.0f}",
            ]
            for r in eager["rows"]
        ],
    )


def answer(figures: Figures) -> list[str]:
    rows = figures["schedules"]
    first, best = rows[0], min(rows, key=lambda r: r["seconds"])
    worst = max(r["error"] for r in rows)
    told = []
    if best is first:
        told.append(f"Of {len(rows)} schedules of one declaration none beat the plain loops here.")
    else:
        same = (
            f"differs from NumPy's by more than {worst:.0e}" if worst else "differs from NumPy's in any bit"
        )
        told.append(
            f"One declaration gave {len(rows)} programs. The fastest ({best['name']}) is "
            f"{kit.verdict(best, first)} the loops as declared, and no result {same}: "
            "a schedule changes the time, not the answer, so it may be tried, searched for and thrown away."
        )
    there = [r for r in figures["targets"] if r["lines"]]
    told.append(
        f"The same declaration became code for {len(there)} of {len(figures['targets'])} kinds of machines, "
        "with another schedule where the machine has blocks and threads; the mathematics was not touched."
    )
    compiled, *others = figures["eager"]["rows"]
    beside = [f"{kit.verdict(compiled, other)} {other['name']}" for other in others]
    told.append(
        f"Four operators in one loop move {kit.size(compiled['bytes'])}; run one by one they move "
        f"{kit.size(others[0]['bytes'])}. The loop is {kit.listed(beside)}: eager execution has finished one operator "
        "before it knows the next."
    )
    return told


if __name__ == "__main__":
    kit.main([sys.modules[__name__]])
