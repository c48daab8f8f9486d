"""What the core costs and what its loops reach, each figure beside its budget.

    python bench/core.py                 tables
    python bench/core.py --json          the same as JSON
    python bench/core.py --only import   one section (see SECTIONS for their names)

Peers are measured in the same run, in turn with our own code, so that drift of the machine hits all alike.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

import tilewright as tvm
from tilewright import config, te, tir


@dataclass
class Figure:
    """One measured number. `at_most` tells whether the budget is an upper or a lower limit."""

    section: str
    name: str
    value: float
    unit: str
    budget: float | None = None
    at_most: bool = True
    note: str = ""

    @property
    def met(self) -> bool | None:
        if self.budget is None:
            return None
        return self.value <= self.budget if self.at_most else self.value >= self.budget


def seconds_of(run: Callable[[], Any], batches: int = 15, calls: int = 1) -> float:
    """The median over batches of what one call takes."""
    samples = []
    for _ in range(batches):
        start = time.perf_counter()
        for _ in range(calls):
            run()
        samples.append((time.perf_counter() - start) / calls)
    return statistics.median(samples)


def in_turn(runs: dict[str, Callable[[], Any]], rounds: int, rest: float = 0.0) -> dict[str, float]:
    """The median of what each takes, sampled in turn.

    Threads of a library may spin on for a while after its work is done, on cores that the next one wants:
    where several threads are at work, `rest` seconds let them fall asleep.
    """
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            time.sleep(rest)
            start = time.perf_counter()
            run()
            samples[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in samples.items()}


# ---------------------------------------------------------------------------- import
def import_time() -> list[Figure]:
    """Imports and the command line in a new process, measured inside it."""
    runs = {
        "import tilewright": ("import tilewright", 200.0),
        "from tilewright import relay": ("import tilewright.relay", 300.0),
        "tilewright --help": (
            "import io, sys; out = sys.stdout; sys.stdout = io.StringIO(); sys.argv = ['tilewright', '--help']\n"
            "try: from tilewright.__main__ import main; main()\nexcept SystemExit: sys.stdout = out",
            500.0,
        ),
    }
    out = []
    for name, (program, budget) in runs.items():
        timed = f"import time; s = time.perf_counter()\n{program}\nprint(time.perf_counter() - s)"
        command = [sys.executable, "-c", timed]
        subprocess.run(command, check=True, capture_output=True)  # the first one writes the byte code
        times = [float(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(9)]
        note = "median of 9 new processes"
        out.append(Figure("import", name, statistics.median(times) * 1e3, "ms", budget, note=note))
    return out


# ---------------------------------------------------------------------------- calls
def call_overhead() -> list[Figure]:
    """A whole call of a function that adds 16 numbers: what is not overhead in it is a few nanoseconds."""
    A, B = te.placeholder((16,), name="A"), te.placeholder((16,), name="B")
    C = te.compute((16,), lambda i: A[i] + B[i], name="C")
    add = tvm.build(te.create_schedule(C.op), [A, B, C], target="llvm", name="add")["add"]
    plain = [np.arange(16, dtype=np.float32) for _ in range(3)]
    kinds: dict[str, list[Any]] = {"NDArray": [tvm.nd.array(x) for x in plain], "NumPy arrays": plain}
    if importlib.util.find_spec("torch"):
        import torch

        kinds["torch tensors"] = [torch.from_numpy(x.copy()) for x in plain]
    out = [
        Figure(
            "calls",
            f"f(a, b, c) with {kind}",
            seconds_of(lambda v=values: add(*v), 15, 2000) * 1e6,
            "µs",
            5.0,
        )
        for kind, values in kinds.items()
    ]
    peer = seconds_of(lambda: np.add(plain[0], plain[1], out=plain[2]), 15, 2000)
    return [*out, Figure("calls", "peer: np.add(a, b, out=c)", peer * 1e6, "µs")]


# ---------------------------------------------------------------------------- compile
def scheduled_matmul(n: int = 1024) -> tuple[te.Schedule, list[te.Tensor]]:
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    io, jo, ii, ji = s[C].tile(*C.op.axis, 8, 32)
    s[C].reorder(jo, io, k, ii, ji)
    s[C].unroll(ii)
    s[C].vectorize(ji)
    s[C].parallel(jo)
    return s, [A, B, C]


def compile_time(rounds: int = 9) -> list[Figure]:
    """From a schedule to a function that can be called, and where the time goes."""
    scheduled = [scheduled_matmul() for _ in range(rounds + 1)]
    totals, parts, again = [], [], []
    for round_, (s, args) in enumerate(scheduled):
        with config.using(cache=False):
            start = time.perf_counter()
            tvm.build(s, args, target="llvm", name="matmul")["matmul"]
            if round_:  # LLVM itself is loaded by the first
                totals.append(time.perf_counter() - start)
                parts.append(_compile_parts(s, args))
    with tempfile.TemporaryDirectory() as folder, config.using(cache=True, cache_dir=folder):
        for round_, (s, args) in enumerate(scheduled):
            start = time.perf_counter()
            tvm.build(s, args, target="llvm", name="matmul")["matmul"]
            if round_:
                again.append(time.perf_counter() - start)
    note = f"median of {rounds} in one process"
    out = [
        Figure(
            "compile",
            "matmul 1024³, schedule to function",
            statistics.median(totals) * 1e3,
            "ms",
            200.0,
            note=note,
        )
    ]
    cached = statistics.median(again) * 1e3
    out.append(Figure("compile", "the same again, from the cache on disk", cached, "ms", 1000.0, note=note))
    for name in parts[0]:
        out.append(Figure("compile", f"  {name}", statistics.median(p[name] for p in parts) * 1e3, "ms"))
    return out


def _compile_parts(s: te.Schedule, args: list[te.Tensor]) -> dict[str, float]:
    """The same steps one by one."""
    from tilewright.codegen.llvm import build_llvm
    from tilewright.compiler.build_module import schedule_to_module
    from tilewright.compiler.lower import phases
    from tilewright.ir.transform import pass_session, run_passes

    times: dict[str, float] = {}
    last = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal last
        now = time.perf_counter()
        times[name], last = now - last, now

    target = tvm.target.Target("llvm")
    with target, pass_session():
        mod = schedule_to_module(s, args, "matmul")
        lap("replay of the schedule")
        for number, phase in enumerate(phases()):
            mod = run_passes(phase, mod)
            lap(f"lowering, phase {number}")
        mod = run_passes((tir.transform.LowerIntrin(), tir.transform.Simplify()), mod)
        lap("lowering of intrinsics")
        built = build_llvm(mod, target)
        lap("LLVM IR as text")
    module = built.machine.parse(built.text)
    lap("LLVM parses it")
    built.machine.optimize(module)
    lap("LLVM optimises it")
    built.machine.object_code(module)
    lap("LLVM makes machine code")
    return times


# ---------------------------------------------------------------------------- scheduling
def conv_stages(n: int = 56, channels: int = 64) -> tir.PrimFunc:
    """A convolution in three stages: padding, sums, and what is positive of them."""
    X = te.placeholder((1, channels, n, n), name="X")
    W = te.placeholder((channels, channels, 3, 3), name="W")
    P = te.compute(
        (1, channels, n + 2, n + 2),
        lambda b, c, y, x: te.if_then_else(
            tir.all(y >= 1, y < n + 1, x >= 1, x < n + 1), X[b, c, y - 1, x - 1], 0.0
        ),
        name="P",
    )
    rc, ry, rx = (te.reduce_axis((0, size), name) for size, name in ((channels, "rc"), (3, "ry"), (3, "rx")))
    C = te.compute(
        (1, channels, n, n),
        lambda b, f, y, x: te.sum(P[b, rc, y + ry, x + rx] * W[f, rc, ry, rx], axis=[rc, ry, rx]),
        name="C",
    )
    R = te.compute(C.shape, lambda *at: tir.max(C(*at), tir.const(0.0)), name="R")
    return te.create_prim_func([X, W, R])


def scheduled_conv(func: tir.PrimFunc) -> tir.Schedule:
    """Tiles, packed weights, a write cache, and marks: about thirty steps."""
    sch = tir.Schedule(func)
    padding, sums, result = (sch.get_block(name) for name in "PCR")
    b, f, y, x, rc, ry, rx = sch.get_loops(sums)
    fo, fm, fi = sch.split(f, [None, 2, 8])
    yo, ym, yi = sch.split(y, [None, 2, 2])
    xo, xm, xi = sch.split(x, [None, 2, 14])
    ro, ri = sch.split(rc, [None, 8])
    sch.reorder(b, fo, yo, xo, fm, ym, xm, ro, ry, rx, ri, yi, xi, fi)
    sch.reverse_compute_at(sch.cache_write(sums, 0, "local"), xm)
    sch.reverse_compute_at(result, xo)
    sch.compute_at(padding, xo)
    weights = sch.cache_read(sums, 1, "global")
    sch.compute_at(weights, ro)
    # channels in line, so that the vectors of the tile are vectors in memory
    sch.transform_layout(sums, ("write", 0), lambda b, f, y, x: (b, y, x, f))
    sch.transform_layout(sums, ("read", 1), lambda f, c, y, x: (c, y, x, f))
    tile = sch.fuse(b, fo, yo)
    sch.parallel(tile)
    sch.vectorize(fi)
    sch.unroll(xi)
    sch.unroll(yi)
    sch.annotate(tile, "pragma_auto_unroll_max_step", 16)
    sch.vectorize(sch.split(sch.get_loops(padding)[-1], [None, 8])[1])
    fused = sch.fuse(*sch.get_loops(result)[-2:])
    sch.vectorize(sch.split(fused, [None, 16])[1])
    sch.decompose_reduction(sums, ro)
    return sch


def schedule_time(rounds: int = 15) -> list[Figure]:
    """Steps on a convolution of three stages, and its way to machine code."""
    from tilewright.codegen.llvm import build_llvm

    func = conv_stages()
    sch = scheduled_conv(func)
    steps = seconds_of(lambda: scheduled_conv(func), rounds) * 1e3
    again = seconds_of(lambda: sch.trace.apply_to_schedule(tir.Schedule(func)), rounds) * 1e3
    target = tvm.target.Target("llvm")

    def compiled() -> None:
        with target:
            mod = tvm.lower(sch.mod)
            mod = tir.transform.Simplify()(tir.transform.LowerIntrin()(mod))
            built = build_llvm(mod, target)
        module = built.machine.parse(built.text)
        built.machine.optimize(module)
        built.machine.object_code(module)

    compiled()  # LLVM itself is loaded by the first
    return [
        Figure("steps", f"conv2d of three stages, {len(sch.trace)} steps", steps, "ms", 30.0),
        Figure("steps", "  its trace applied again", again, "ms", 30.0),
        Figure("steps", "  lowering and LLVM", seconds_of(compiled, 5) * 1e3, "ms", 500.0),
    ]


# ---------------------------------------------------------------------------- automatic schedules
def automatic() -> list[Figure]:
    """The scheduler without trials: the time for a convolution, and how many candidates it weighs in a second."""
    from tilewright import topi
    from tilewright.tune.cost.cpu import seconds
    from tilewright.tune.program.facts import facts_of
    from tilewright.tune.rules.cpu.tile import tile_table
    from tilewright.tune.rules.cpu.tile_space import tile_spaces

    data = te.placeholder((1, 64, 56, 56), name="data")
    weight = te.placeholder((64, 64, 3, 3), name="weight")
    conv = topi.nn.conv2d(data, weight, 1, 1, 1)
    func = te.create_prim_func([data, weight, conv])
    whole = seconds_of(lambda: tvm.auto_schedule(func, "llvm", constants=["weight"]), 15) * 1e3
    sch = tir.Schedule(func)
    facts = facts_of(sch, sch.get_block(conv.op.name))
    machine = tvm.target.Target("llvm").cpu

    def weighed() -> int:
        return len(seconds(tile_table(facts, machine, tile_spaces(facts, machine, frozenset())), machine))

    spent = seconds_of(weighed, 15)
    return [
        Figure("auto", "conv2d 3x3 64@56, program to schedule", whole, "ms", 50.0),
        Figure("auto", "candidates weighed in a second", weighed() / spent, "", 50_000, at_most=False),
    ]


# ---------------------------------------------------------------------------- simplify
def simplify_time() -> list[Figure]:
    """The flat index into the input of a tiled convolution whose outer loops were fused."""
    fused, oh, ow, ic_o, ic_i, kh, kw = (tir.Var(n, "int32") for n in "fused oh ow ic_o ic_i kh kw".split())
    row, column = (fused // 7) * 8 + oh, (fused % 7) * 8 + ow
    channel = ic_o * 16 + ic_i
    flat = ((channel * 114) + (row * 2 + kh)) * 114 + (column * 2 + kw)
    # The shape that inlining a fused and split loop leaves behind: quotients and remainders of the same sum.
    index = (flat // 12996) * 12996 + ((flat % 12996) // 114) * 114 + flat % 114
    ranges = {fused: 49, oh: 8, ow: 8, ic_o: 4, ic_i: 16, kh: 3, kw: 3}

    def run() -> Any:
        analyzer = tvm.arith.Analyzer()
        for var, extent in ranges.items():
            analyzer.bind(var, tvm.ir.Range(0, extent))
        return analyzer.simplify(index)

    return [
        Figure(
            "simplify", "index of a tiled conv2d", seconds_of(run, 15, 20) * 1e3, "ms", 1.0, note=str(run())
        )
    ]


# ---------------------------------------------------------------------------- launch
def launch_time() -> list[Figure]:
    """A parallel loop of two iterations that do next to nothing, less the same loop run serially."""
    A = te.placeholder((2,), name="A")
    runs: dict[str, Callable[[], Any]] = {}
    x, y = tvm.nd.array(np.zeros(2, np.float32)), tvm.nd.empty((2,))
    for name in ("serial", "parallel"):
        B = te.compute((2,), lambda i: A[i] + 1.0, name="B")
        s = te.create_schedule(B.op)
        if name == "parallel":
            s[B].parallel(B.op.axis[0])
        function = tvm.build(s, [A, B], target="llvm", name="f")["f"]
        runs[name] = lambda f=function: [f(x, y) for _ in range(500)]
    times = in_turn(runs, 21)
    threads = tvm.runtime.num_threads()
    cost = (times["parallel"] - times["serial"]) / 500
    return [Figure("launch", f"parallel launch on {threads} threads", cost * 1e6, "µs", 5.0)]


# ---------------------------------------------------------------------------- loops
C_SOURCE = """
void matmul(const float* restrict a, const float* restrict b, float* restrict c) {
  for (int i = 0; i < 512; ++i) for (int j = 0; j < 512; ++j) {
    float s = 0; for (int k = 0; k < 512; ++k) s += a[i * 512 + k] * b[k * 512 + j];
    c[i * 512 + j] = s; } }
void add(const float* restrict a, const float* restrict b, float* restrict c) {
  for (int i = 0; i < 1000000; ++i) c[i] = a[i] + b[i]; }
void stencil(const float* restrict a, float* restrict b) {
  for (int i = 0; i < 1022; ++i) for (int j = 0; j < 1022; ++j)
    b[i * 1022 + j] = (a[i * 1024 + j + 1] + a[(i + 2) * 1024 + j + 1] + a[(i + 1) * 1024 + j]
                       + a[(i + 1) * 1024 + j + 2]) * 0.25f; }
void rowsum(const float* restrict a, float* restrict b) {
  for (int i = 0; i < 1024; ++i) {
    float s = 0; for (int k = 0; k < 1024; ++k) s += a[i * 1024 + k];
    b[i] = s; } }
"""


def loop_programs() -> dict[str, tuple[list[te.Tensor], Callable[..., Any], float, str]]:
    """Name -> (tensors, the same with NumPy, operations or bytes of one run in 10⁹, unit)."""
    A, B = te.placeholder((512, 512), name="A"), te.placeholder((512, 512), name="B")
    k = te.reduce_axis((0, 512), name="k")
    product = te.compute((512, 512), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    X, Y = te.placeholder((1_000_000,), name="X"), te.placeholder((1_000_000,), name="Y")
    total = te.compute((1_000_000,), lambda i: X[i] + Y[i], name="Z")
    P = te.placeholder((1024, 1024), name="P")
    mean = te.compute(
        (1022, 1022),
        lambda i, j: (P[i, j + 1] + P[i + 2, j + 1] + P[i + 1, j] + P[i + 1, j + 2]) * 0.25,
        name="Q",
    )
    m = te.reduce_axis((0, 1024), name="m")
    rows = te.compute((1024,), lambda i: te.sum(P[i, m], axis=m), name="R")

    def np_stencil(p: Any, q: Any) -> None:
        np.add(p[:-2, 1:-1], p[2:, 1:-1], out=q)
        np.add(q, p[1:-1, :-2], out=q)
        np.add(q, p[1:-1, 2:], out=q)
        np.multiply(q, np.float32(0.25), out=q)

    return {
        "matmul": ([A, B, product], lambda a, b, c: np.matmul(a, b, out=c), 2 * 512**3 / 1e9, "GFLOP/s"),
        "add": ([X, Y, total], lambda a, b, c: np.add(a, b, out=c), 12e6 / 1e9, "GB/s"),
        "stencil": ([P, mean], np_stencil, 8 * 1022 * 1022 / 1e9, "GB/s"),
        "rowsum": ([P, rows], lambda p, r: np.sum(p, axis=1, out=r), 4 * 1024 * 1024 / 1e9, "GB/s"),
    }


def c_compilers() -> dict[str, list[str]]:
    """The C compilers that are here; Clang may come with the ziglang package."""
    found: dict[str, list[str]] = {}
    if shutil.which("gcc"):
        found["GCC"] = ["gcc"]
    if shutil.which("clang"):
        found["Clang"] = ["clang"]
    elif importlib.util.find_spec("ziglang"):
        found["Clang"] = [sys.executable, "-m", "ziglang", "cc", "-fno-sanitize=all"]
    return found


def c_libraries(folder: Path) -> dict[str, Any]:
    """The same loops by each C compiler, at -O3 -march=native."""
    (folder / "loops.c").write_text(C_SOURCE)
    libraries = {}
    for name, command in c_compilers().items():
        file = folder / f"{name}.so"
        command = [*command, "-O3", "-march=native", "-shared", "-fPIC", "loops.c", "-o", str(file)]
        if subprocess.run(command, cwd=folder, capture_output=True).returncode == 0:
            libraries[name] = ctypes.CDLL(str(file))
    return libraries


def naive_loops() -> list[Figure]:
    """Loops as they are written, on one thread, beside NumPy and the same loops in C."""
    out: list[Figure] = []
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        libraries = c_libraries(Path(name))
        for program, (tensors, with_numpy, work, unit) in loop_programs().items():
            s = te.create_schedule(tensors[-1].op)
            ours = tvm.build(s, tensors, target="llvm", name=program)[program]
            arrays = [tvm.nd.array(rng.random([int(d) for d in t.shape], dtype=np.float32)) for t in tensors]
            # One memory for all: where an array lies changes what its loops reach.
            views = [np.from_dlpack(a) for a in arrays]
            runs: dict[str, Callable[[], Any]] = {
                "tilewright": lambda f=ours, v=arrays: f(*v),
                "NumPy": lambda f=with_numpy, v=views: f(*v),
            }
            pointers = [ctypes.c_void_p(v.ctypes.data) for v in views]
            for label, library in libraries.items():
                runs[label] = partial(library[program], *pointers)
            _check_all_agree(program, runs, views[-1])
            times = in_turn(runs, 7 if program == "matmul" else 51)
            rates = {name: work / seconds for name, seconds in times.items()}
            same = rates.get("Clang", rates.get("GCC"))  # LLVM like ours, if it is here
            floor = None if same is None else 0.9 * same
            for peer, rate in rates.items():
                mine = peer == "tilewright"
                out.append(
                    Figure("loops", f"{program}: {peer}", rate, unit, floor if mine else None, at_most=False)
                )
    return out


def _check_all_agree(program: str, runs: dict[str, Callable[[], Any]], result: Any) -> None:
    wanted = None
    for peer, run in runs.items():
        result[...] = 0
        run()
        if wanted is None:
            wanted = result.copy()
        np.testing.assert_allclose(result, wanted, rtol=1e-3, err_msg=f"{program}: {peer}")


# ---------------------------------------------------------------------------- a schedule
def scheduled_loops() -> list[Figure]:
    """A matrix product in register tiles on all cores, beside the BLAS library of NumPy on as many."""
    n = 1024
    s, tensors = scheduled_matmul(n)
    ours = tvm.build(s, tensors, target="llvm", name="matmul")["matmul"]
    rng = np.random.default_rng(0)
    arrays = [tvm.nd.array(rng.random((n, n), dtype=np.float32)) for _ in range(3)]
    a, b, c = (np.from_dlpack(x) for x in arrays)
    runs = {"tilewright": lambda: ours(*arrays), "NumPy": lambda: np.matmul(a, b, out=c)}
    _check_all_agree("matmul", runs, c)
    times = in_turn(runs, 31, rest=0.1)
    return [
        Figure("schedule", f"matmul 1024³: {name}", 2 * n**3 / seconds / 1e9, "GFLOP/s")
        for name, seconds in times.items()
    ]


# ---------------------------------------------------------------------------- the machine
class Neighbours:
    """How much of the machine other programs used meanwhile: figures taken in company are worth less."""

    def __init__(self) -> None:
        self.start = self._busy()

    @staticmethod
    def _busy() -> tuple[float, float, float] | None:
        """Seconds of CPU that anybody used, that we and our children used, and seconds of CPU there were."""
        try:
            words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        except OSError:
            return None
        ticks = [float(w) / os.sysconf("SC_CLK_TCK") for w in words[1:9]]
        return sum(ticks) - ticks[3] - ticks[4], sum(os.times()[:4]), sum(ticks)

    def share(self) -> float | None:
        """The part of the machine that was used by others since the start."""
        end = self._busy()
        if self.start is None or end is None:
            return None
        all_busy, own, whole = (b - a for a, b in zip(self.start, end, strict=True))
        return max(0.0, all_busy - own) / whole if whole else 0.0


# ---------------------------------------------------------------------------- printing
SECTIONS: dict[str, tuple[str, Callable[[], list[Figure]]]] = {
    "import": ("Import", import_time),
    "calls": ("Calls", call_overhead),
    "compile": ("Compilation", compile_time),
    "steps": ("Scheduling", schedule_time),
    "auto": ("Automatic schedules", automatic),
    "simplify": ("Arithmetic", simplify_time),
    "launch": ("Threads", launch_time),
    "schedule": ("Scheduled loops on all cores", scheduled_loops),
    "loops": ("Naive loops on one thread (budget: 0.9 of Clang -O3 -march=native)", naive_loops),
}


def show(console: Console, title: str, figures: list[Figure]) -> None:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, title_style="bold")
    table.add_column("what", min_width=38)
    table.add_column("measured", justify="right", min_width=14)
    table.add_column("budget", justify="right", min_width=10)
    table.add_column("")
    for f in figures:
        limit = "" if f.budget is None else f"{'≤' if f.at_most else '≥'} {f.budget:.3g}"
        mark = {None: "", True: "[green]met[/]", False: "[red]missed[/]"}[f.met]
        table.add_row(
            f.name, f"{f.value:.3g} {f.unit}" if f.value < 1000 else f"{f.value:.0f} {f.unit}", limit, mark
        )
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--only", choices=list(SECTIONS), action="append", help="measure this section only")
    options = parser.parse_args()
    console = Console(stderr=options.json)
    if not options.json:
        console.print(f"{tvm.target.Target('llvm').llvm.cpu}, {tvm.runtime.num_threads()} threads\n")
    neighbours = Neighbours()
    figures: list[Figure] = []
    for name, (title, measure) in SECTIONS.items():
        if options.only and name not in options.only:
            continue
        with console.status(title):
            measured = measure()
        figures += measured
        if not options.json:
            show(console, title, measured)
    others = neighbours.share()
    if options.json:
        found = {"figures": [{**asdict(f), "met": f.met} for f in figures], "used_by_others": others}
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        if others is not None:
            console.print(f"other programs used {others:.0%} of the machine meanwhile")
        missed = [f.name.strip() for f in figures if f.met is False]
        console.print(f"missed: {', '.join(missed)}" if missed else "all budgets are met")


if __name__ == "__main__":
    main()
