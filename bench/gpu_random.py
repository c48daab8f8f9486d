"""Random kernels on a CUDA GPU: shapes that nobody chose, of all operators and types, anew in each run.

    python bench/gpu_random.py                     100 programs beside PyTorch, eager and compiled; the seed is printed
    python bench/gpu_random.py --seed 7 --count 30 these again
    python bench/gpu_random.py --only conv         operators with this text in their name
    python bench/gpu_random.py --no-compile        without torch.compile
    python bench/gpu_random.py --rules             the best schedule of each rule beside the chosen one, and no peers

Several processes compile, and take turns on the device. Everybody works on the same tensors; a sample is the time
between two events around the replay of a graph of launches; medians. Results are poisoned before they are computed, and
compared with float64. The ratio is the peer's time over tilewright's: above 1, tilewright is faster.

With `--rules` the table says what the cost model costs: the time of the chosen schedule over that of the fastest rule.
`--json FILE` keeps every row, with its decisions and its predicted time: `bench/gpu_fit.py` fits figures to them.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import queue
import random
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gpu import MORE_THAN_THE_CACHE, ROUNDS, recorded, seconds
from rich.console import Console
from rich.table import Table

import tilewright as tvm
from tilewright import te, topi
from tilewright.tune.plan import Plan, plan_of

# A rule whose best schedule is predicted to take so many times as long as the chosen one is not measured.
_HOPELESS = 20.0
FLOATS = ("float32", "tf32", "float16", "bfloat16")
HALVES = ("float16", "bfloat16")
# The greatest error, relative to the greatest value, that rounding explains.
TOLERANCE = {"float32": 2e-5, "tf32": 3e-3, "float16": 3e-3, "bfloat16": 2e-2, "int8": 0.0}

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Kind:
    """An operator: how its sizes are drawn, the shapes of its operands, what it is in te and in torch, its work."""

    types: tuple[str, ...]
    draw: Callable[[random.Random], Sizes]
    shapes: Callable[[Sizes], list[Sizes]]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    flop: Callable[[Sizes], float] = lambda s: 0.0


@dataclass(frozen=True)
class Case:
    """An operator with its sizes and its type."""

    kind: str
    sizes: Sizes
    dtype: str

    @property
    def name(self) -> str:
        return f"{self.kind} {'x'.join(map(str, self.sizes))} {self.dtype}"

    @property
    def storage(self) -> str:
        return "float32" if self.dtype == "tf32" else self.dtype

    @property
    def tensors(self) -> list[Any]:
        """The operands and the result as tensor expressions."""
        kind = KINDS[self.kind]
        args = [te.placeholder(s, self.storage, name=f"x{i}") for i, s in enumerate(kind.shapes(self.sizes))]
        return [*args, kind.ours(self.sizes, *args)]

    def target(self, base: Any) -> Any:
        return tvm.target.Target(base).with_attr("tf32", True) if self.dtype == "tf32" else base


def around(draw: random.Random, low: int, high: int) -> int:
    """A size between two others, uniform in its logarithm: any number, or a multiple of 8 or of 64."""
    n = round(math.exp(draw.uniform(math.log(low), math.log(high))))
    step = draw.choice((1, 1, 8, 64))
    return max(low, n // step * step or n)


# ---------------------------------------------------------------------------- operators
def _product(draw: random.Random) -> Sizes:
    while True:
        m, n, k = (around(draw, low, 4096) for low in (1, 16, 16))
        if 1 << 16 <= m * n * k <= 1 << 36:
            return m, n, k


def _products(draw: random.Random) -> Sizes:
    while True:
        b, m, n, k = (around(draw, low, high) for low, high in ((2, 256), (1, 1024), (8, 1024), (8, 1024)))
        if 1 << 18 <= b * m * n * k <= 1 << 33:
            return b, m, n, k


def _image(draw: random.Random, filters: int) -> Sizes:
    """Batch, channels, side, results, window, stride."""
    while True:
        window, stride = draw.choice(((1, 1), (3, 1), (3, 1), (3, 2), (5, 1), (7, 2), (1, 2)))
        b, c, side, o = (
            draw.choice((1, 1, 4, 8)),
            around(draw, 3, 1024),
            around(draw, 7, 112),
            around(draw, 8, filters),
        )
        if side >= window and b * c * side**2 * o * window**2 <= 1 << 34 and b * c * side**2 <= 1 << 24:
            return b, c, side, o, window, stride


def _rows(draw: random.Random) -> Sizes:
    while True:
        m, n = around(draw, 1, 1 << 17), around(draw, 8, 1 << 16)
        if 1 << 12 <= m * n <= 1 << 26:
            return m, n


def _heads(draw: random.Random) -> Sizes:
    """Batch, heads, queries, keys, width of a head."""
    while True:
        b, h = draw.choice((1, 1, 2, 8)), draw.choice((1, 4, 8, 12, 16, 25, 32))
        keys, width = around(draw, 16, 4096), draw.choice((32, 40, 64, 64, 80, 96, 128, 128, 256))
        queries = draw.choice((1, keys, keys, keys))
        if b * h * queries * keys * width <= 1 << 35 and b * h * keys * width <= 1 << 25:
            return b, h, queries, keys, width


def _window_shapes(s: Sizes) -> list[Sizes]:
    b, c, side, o, window, _ = s
    return [(b, c, side, side), (o, c, window, window)]


def _conv(s: Sizes, x: Any, w: Any) -> Any:
    return topi.nn.conv2d(x, w, s[5], s[4] // 2, 1, data_layout="NCHW", out_dtype=x.dtype)


def _torch_conv(s: Sizes, x: Any, w: Any) -> Any:
    import torch.nn.functional as F

    return F.conv2d(x, w, stride=s[5], padding=s[4] // 2)


def _depthwise(s: Sizes, x: Any, w: Any) -> Any:
    return topi.nn.depthwise_conv2d_nchw(x, w, s[5], s[4] // 2, 1, out_dtype=x.dtype)


def _torch_depthwise(s: Sizes, x: Any, w: Any) -> Any:
    import torch.nn.functional as F

    return F.conv2d(x, w, stride=s[5], padding=s[4] // 2, groups=s[1])


def _pool(s: Sizes, x: Any) -> Any:
    pad = (s[4] // 2,) * 4
    return topi.nn.pool2d(x, (s[4],) * 2, (s[5],) * 2, (1, 1), pad, "max", layout="NCHW")


def _torch_pool(s: Sizes, x: Any) -> Any:
    import torch.nn.functional as F

    return F.max_pool2d(x, s[4], s[5], s[4] // 2)


def _torch(name: str, *given: Any) -> Callable[..., Any]:
    """A function of torch by its name, with further arguments."""

    def call(s: Sizes, *xs: Any) -> Any:
        import torch

        part: Any = torch
        for word in name.split("."):
            part = getattr(part, word)
        return part(*xs, *given)

    return call


def _torch_norm(s: Sizes, x: Any, g: Any, b: Any) -> Any:
    import torch.nn.functional as F

    return F.layer_norm(x, g.shape, g, b)


def _torch_dense(s: Sizes, x: Any, w: Any) -> Any:
    import torch
    import torch.nn.functional as F

    return torch._int_mm(x, w.t()) if x.dtype == torch.int8 else F.linear(x, w)


def _dense(s: Sizes, x: Any, w: Any) -> Any:
    return topi.nn.dense(x, w, out_dtype="int32" if x.dtype == "int8" else x.dtype)


def _torch_gelu(s: Sizes, x: Any) -> Any:
    import torch.nn.functional as F

    return F.gelu(x * 2 + 1)


def _torch_transpose(s: Sizes, x: Any) -> Any:
    return x.t().contiguous()


KINDS: dict[str, Kind] = {
    "matmul": Kind(
        FLOATS, _product, lambda s: [(s[0], s[2]), (s[2], s[1])],
        lambda s, a, b: topi.matmul(a, b), _torch("matmul"), lambda s: 2.0 * math.prod(s),
    ),
    "dense": Kind(
        (*FLOATS, "int8"), _product, lambda s: [(s[0], s[2]), (s[1], s[2])],
        _dense, _torch_dense, lambda s: 2.0 * math.prod(s),
    ),
    "batch matmul": Kind(
        FLOATS, _products, lambda s: [(s[0], s[1], s[3]), (s[0], s[2], s[3])],
        lambda s, a, b: topi.nn.batch_matmul(a, b),
        lambda s, a, b: a @ b.transpose(1, 2), lambda s: 2.0 * math.prod(s),
    ),
    "conv": Kind(
        FLOATS, lambda d: _image(d, 1024), _window_shapes, _conv, _torch_conv,
        lambda s: 2.0 * s[0] * s[1] * math.ceil(s[2] / s[5]) ** 2 * s[3] * s[4] ** 2,
    ),
    "depthwise": Kind(
        ("float32", *HALVES), lambda d: _image(d, 8),
        lambda s: [(s[0], s[1], s[2], s[2]), (s[1], 1, s[4], s[4])], _depthwise, _torch_depthwise,
    ),
    "max pool": Kind(
        ("float32", *HALVES), lambda d: _image(d, 8), lambda s: [(s[0], s[1], s[2], s[2])], _pool, _torch_pool
    ),
    "attention": Kind(
        HALVES, _heads,
        lambda s: [(s[0], s[1], s[2], s[4]), (s[0], s[1], s[3], s[4]), (s[0], s[1], s[3], s[4])],
        lambda s, q, k, v: topi.nn.scaled_dot_product_attention(q, k, v),
        _torch("nn.functional.scaled_dot_product_attention"),
        lambda s: 4.0 * math.prod(s),
    ),
    "softmax": Kind(
        ("float32", *HALVES), _rows, lambda s: [s], lambda s, x: topi.nn.softmax(x, axis=1), _torch("softmax", 1)
    ),
    "layer norm": Kind(
        ("float32", *HALVES), _rows, lambda s: [s, s[1:], s[1:]],
        lambda s, x, g, b: topi.nn.layer_norm(x, g, b, [1]), _torch_norm,
    ),
    "row sums": Kind(
        ("float32", *HALVES), _rows, lambda s: [s], lambda s, x: topi.sum(x, axis=1), _torch("sum", 1)
    ),
    "column sums": Kind(
        ("float32", *HALVES), _rows, lambda s: [s], lambda s, x: topi.sum(x, axis=0), _torch("sum", 0)
    ),
    "argmax": Kind(
        ("float32",), _rows, lambda s: [s], lambda s, x: topi.argmax(x, axis=1), _torch("argmax", 1)
    ),
    "cumsum": Kind(
        ("float32", *HALVES), _rows, lambda s: [s], lambda s, x: topi.cumsum(x, axis=1), _torch("cumsum", 1)
    ),
    "cumsum of columns": Kind(
        ("float32", *HALVES), _rows, lambda s: [s], lambda s, x: topi.cumsum(x, axis=0), _torch("cumsum", 0)
    ),
    "argmin of all": Kind(
        ("float32",), _rows, lambda s: [s], lambda s, x: topi.argmin(x, axis=None), _torch("argmin")
    ),
    "gelu": Kind(
        ("float32", *HALVES), _rows, lambda s: [s], lambda s, x: topi.nn.gelu(x * 2 + 1), _torch_gelu
    ),
    "transpose": Kind(
        ("float32", *HALVES), _rows, lambda s: [s], lambda s, x: topi.transpose(x), _torch_transpose
    ),
}  # fmt: skip


def cases(seed: int, count: int, only: str = "") -> list[Case]:
    """Programs of all kinds in turn, products more often than the others."""
    draw, kinds = random.Random(seed), [k for k in KINDS if only in k]
    every = [k for k in kinds for _ in range(2 if KINDS[k].flop((1,) * 6) else 1)]
    out = []
    for i in range(count):
        kind = KINDS[name := every[i % len(every)]]
        dtype = draw.choice(kind.types)
        case = Case(name, kind.draw(draw), dtype)
        # torch's product of bytes takes multiples of eight, and more than 16 rows
        while dtype == "int8" and (any(n % 8 for n in case.sizes) or case.sizes[0] <= 16):
            case = Case(name, kind.draw(draw), dtype)
        out.append(case)
    return out


# ---------------------------------------------------------------------------- schedules
@dataclass
class Made:
    """A schedule: what forced it, its choices, and the function that launches its kernels."""

    forced: dict[int, str]
    plan: Plan
    function: Any

    def said(self) -> dict[str, Any]:
        """The choices, with the predicted time of each in microseconds, without margins."""
        rows = [(c.winner.rule.name, c.row) for c in self.plan.choices]
        return {
            "forced": {str(k): v for k, v in self.forced.items()},
            "choices": [
                {"rule": n, "values": {k: int(v) for k, v in r.values.items()}, "predicted": r.own * 1e6}
                for n, r in rows
            ],
            "predicted": sum(r.own for _, r in rows) * 1e6,
        }


def schedules(case: Case, target: Any, rules: bool) -> Iterator[Made]:
    """The zero-trial schedule; and those in which another rule takes a stage."""
    func = te.create_prim_func(case.tensors)
    plan = plan_of(func, target)
    ways: list[dict[int, str]] = [{}]
    for number, choice in enumerate(plan.choices if rules else ()):
        least = choice.row.predicted
        for offer in choice.rivals:
            if offer.row(offer.best).predicted < _HOPELESS * least:
                ways.append({number: offer.rule.name})
    for forced in ways:
        made = plan if not forced else plan_of(func, target, forced=forced)
        taken = [c.winner.rule.name for c in made.choices]
        if any(taken[n : n + 1] != [rule] for n, rule in forced.items()):
            continue  # a primitive has refused the rule
        yield Made(forced, made, _compiled(made, target))


def _compiled(plan: Plan, target: Any) -> Any:
    """The function of a schedule; its kernels are machine code before anybody takes the device."""
    from tilewright.tune.measure.device_code import device_unit

    return device_unit(tvm.build(plan.sch.mod, target=target))


# ---------------------------------------------------------------------------- measuring
def measure(case: Case, base: str, rules: bool, compiled: bool, device: Any) -> list[dict[str, Any]]:
    """A row for each schedule; the first has the times of the peers."""
    target = case.target(tvm.target.Target(base))
    made = list(schedules(case, target, rules))
    with device:
        return _on_device(case, made, rules, compiled)


def _on_device(case: Case, made: list[Made], rules: bool, compiled: bool) -> list[dict[str, Any]]:
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = case.dtype == "tf32"
    kind, dtype = KINDS[case.kind], getattr(torch, case.storage)
    out = case.tensors[-1]
    result, shape = getattr(torch, out.dtype), [int(d) for d in out.shape]
    shapes = kind.shapes(case.sizes)
    each = sum(dtype.itemsize * math.prod(s) for s in shapes) + result.itemsize * math.prod(shape)
    sets = max(1, min(16, -(-MORE_THAN_THE_CACHE // each)))
    xs = [[_random(s, dtype) for s in shapes] for _ in range(sets)]
    outs = [_poisoned(shape, result) for _ in range(sets)]

    def theirs(*x: Any) -> Any:
        return kind.theirs(case.sizes, *x)

    want = theirs(*xs[0]) if case.dtype == "int8" else theirs(*[t.double() for t in xs[0]])
    runs: list[tuple[str, Callable[[int], Any]]] = []
    rows: list[dict[str, Any]] = []
    for m in made:
        row = {"case": [case.kind, case.sizes, case.dtype], "name": case.name, **m.said()}
        rows.append(row)
        function = m.function.function()
        ours = [[tvm.nd.from_dlpack(t) for t in (*x, o)] for x, o in zip(xs, outs, strict=True)]
        outs[0].copy_(_poisoned(shape, result))
        function(*ours[0])
        torch.cuda.synchronize()
        got, wanted = outs[0].double(), want.double()
        error = (got - wanted).abs().max() / wanted.abs().max().clamp(min=1e-30)
        row["error"] = float(error.nan_to_num(math.inf)) if math.prod(shape) else 0.0
        runs.append(("tilewright", lambda k, f=function, o=ours: f(*o[k])))
    if not rules:
        runs.append(("torch", lambda k: theirs(*xs[k])))
    if compiled and not rules and case.dtype != "int8":
        torch._dynamo.reset()
        fast = torch.compile(theirs, dynamic=False)
        runs.append(("torch.compile", lambda k: fast(*xs[k])))
    graphs = []
    for name, run in runs:
        for k in range(sets):
            run(k)
        torch.cuda.synchronize()
        graphs.append(recorded(run, sets, name == "tilewright"))
        graphs[-1]()
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(ROUNDS):
        for t, replay in zip(times, graphs, strict=True):
            t.append(seconds(replay, sets))
    for i, (name, _) in enumerate(runs):
        row = rows[i] if name == "tilewright" else rows[0]
        row[name] = statistics.median(times[i]) * 1e6
    torch.cuda.empty_cache()
    return rows


def _random(shape: Sizes, dtype: Any) -> Any:
    import torch

    if dtype == torch.int8:
        return torch.randint(-127, 128, shape, device="cuda", dtype=dtype)
    return torch.randn(shape, device="cuda").to(dtype)


def _poisoned(shape: list[int], dtype: Any) -> Any:
    import torch

    return torch.full(
        shape, float("nan") if dtype.is_floating_point else -(1 << 30), device="cuda", dtype=dtype
    )


def work(jobs: Any, done: Any, device: Any, base: str, rules: bool, compiled: bool) -> None:
    """A process: programs from a queue, until there is none."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    for i, case in iter(jobs.get, None):
        try:
            done.put((i, measure(case, base, rules, compiled, device)))
        except Exception as error:
            where = traceback.format_exc().splitlines()[-3:]
            done.put((i, [{"name": case.name, "failed": f"{type(error).__name__}: {error}", "at": where}]))


def run(every: list[Case], options: argparse.Namespace) -> list[list[dict[str, Any]]]:
    """The rows of all programs, in their order."""
    base, own = "cuda", tvm.cuda(0)
    if not options.target:
        base = f"cuda -arch=sm_{str(own.compute_version).replace('.', '')}"
        base += "a" if base.endswith("sm_90") else ""
    else:
        base = options.target
    spawn = multiprocessing.get_context("spawn")
    jobs, done, device = spawn.Queue(), spawn.Queue(), spawn.Lock()
    for job in enumerate(every):
        jobs.put(job)
    workers = [
        spawn.Process(
            target=work, args=(jobs, done, device, base, options.rules, options.compile), daemon=True
        )
        for _ in range(min(options.jobs, len(every)))
    ]
    for w in workers:
        jobs.put(None)
        w.start()
    found: dict[int, list[dict[str, Any]]] = {}
    begun = time.monotonic()
    while len(found) < len(every):
        try:
            i, rows = done.get(timeout=max(0.0, begun + 60 * options.minutes - time.monotonic()))
        except queue.Empty:
            print(f"{len(found)} of {len(every)} programs in {options.minutes:g} minutes", file=sys.stderr)
            break
        found[i] = rows
        said = rows[0].get("failed") or f"{rows[0]['tilewright']:.1f} us, {len(rows)} schedules"
        print(
            f"{time.monotonic() - begun:6.1f} s  {len(found)}/{len(every)}  {rows[0]['name']}: {said}",
            file=sys.stderr,
        )
    for w in workers:
        w.terminate()
    return [found[i] for i in sorted(found)]


# ---------------------------------------------------------------------------- tables
def mean(values: list[float]) -> float:
    """The geometric mean."""
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def peers_table(found: list[list[dict[str, Any]]]) -> tuple[Table, str]:
    table = Table("program", "rule", "tilewright", "to PyTorch", "to torch.compile", "error", box=None)
    best = []
    for rows in found:
        row = rows[0]
        if "failed" in row:
            table.add_row(row["name"], "", row["failed"][:60])
            continue
        ratios = [row[p] / row["tilewright"] if p in row else None for p in ("torch", "torch.compile")]
        best.append(min(r for r in ratios if r is not None))
        wrong = " wrong" if row["error"] > TOLERANCE[row["case"][2]] else ""
        rules = ", ".join(c["rule"] for c in row["choices"])
        texts = [f"{r:.2f}" if r is not None else "" for r in ratios]
        table.add_row(row["name"], rules, f"{row['tilewright']:.2f} us", *texts, f"{row['error']:.0e}{wrong}")
    slow = sum(b < 0.9 for b in best)
    return (
        table,
        f"to the best peer: mean {mean(best):.3f}, least {min(best):.2f}, {slow} of {len(best)} below 0.9",
    )


def rules_table(found: list[list[dict[str, Any]]]) -> tuple[Table, str]:
    table = Table("program", "schedule", "measured", "predicted", "of the fastest", box=None)
    lost = []
    for rows in found:
        good = [r for r in rows if "failed" not in r]
        least = min((r["tilewright"] for r in good), default=0.0)
        for r in rows:
            if "failed" in r:
                table.add_row(r["name"], r["failed"][:70])
                continue
            first = not r["forced"]
            lost += [r["tilewright"] / least] if first else []
            rules = ", ".join(c["rule"] for c in r["choices"])
            wrong = " wrong" if r["error"] > TOLERANCE[r["case"][2]] else ""
            table.add_row(
                r["name"] if first else "", ("* " if first else "  ") + rules + wrong, f"{r['tilewright']:.2f} us",
                f"{r['predicted']:.2f} us", f"{r['tilewright'] / least:.2f}",
            )  # fmt: skip
    slow = sum(x > 1.1 for x in lost)
    return (
        table,
        f"chosen to fastest: mean {mean(lost):.3f}, most {max(lost):.2f}, {slow} of {len(lost)} above 1.1",
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seed", type=int, default=int(time.time()) % 100_000, help="another number, other programs"
    )
    parser.add_argument("--count", type=int, default=100, help="how many programs")
    parser.add_argument("--only", default="", help="a text that an operator's name must have")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave torch.compile out")
    parser.add_argument("--rules", action="store_true", help="the best schedule of each rule, and no peers")
    parser.add_argument("--target", default="", help="what to compile for, if not this device's architecture")
    parser.add_argument(
        "--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="processes that compile"
    )
    parser.add_argument("--minutes", type=float, default=20, help="then what was measured counts")
    parser.add_argument("--json", default="", help="a file for everything that was measured")
    options = parser.parse_args()
    if not tvm.cuda(0).exist:
        print("there is no CUDA device here", file=sys.stderr)
        return 1
    print(f"seed {options.seed}", flush=True)
    found = run(cases(options.seed, options.count, options.only), options)
    table, text = (rules_table if options.rules else peers_table)(found)
    Console(width=170).print(table)
    print(text)
    rows = [r for rows in found for r in rows]
    wrong = [r["name"] for r in rows if "failed" not in r and r["error"] > TOLERANCE[r["case"][2]]]
    failed = [r["name"] for r in rows if "failed" in r]
    print(f"wrong: {len(wrong)} of {len(rows)}; failed: {len(failed)}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"seed": options.seed, "programs": found}, file, indent=1)
    return 1 if wrong or failed else 0


if __name__ == "__main__":
    sys.exit(main())
