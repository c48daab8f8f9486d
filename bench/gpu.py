"""Kernels on a CUDA GPU: tilewright's automatic schedules (zero trials) beside PyTorch, eager and compiled.

    python bench/gpu.py                      all workloads
    python bench/gpu.py --only softmax       those with this text in their name
    python bench/gpu.py --no-compile         without torch.compile

Everybody works on the same tensors, in turn, for some rounds; the median counts. Several sets of tensors are used one
after the other, so that nothing is found in the second cache. A sample is the time between two events around the replay
of a graph of launches, so that no launch waits for Python. Before it is timed, each result is poisoned, computed, and
compared with float64. The ratio is the peer's time over tilewright's: above 1, tilewright is faster.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import tilewright as tvm
from tilewright import te, topi
from tilewright.runtime.cuda_driver import capture_graph

ROUNDS, LAUNCHES = 7, 20
MORE_THAN_THE_CACHE = 256 << 20  # bytes
AHEAD = 500_000  # cycles of the device, in which Python gives it what is measured


@dataclass(frozen=True)
class Workload:
    """What to compute, in te and in torch; `moved` bytes and `flop` operations at least."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    moved: int = 0
    flop: int = 0
    dtype: str = "float32"
    tf32: bool = False  # whether everybody may round the factors of float32 products to 10 bits
    arch: str = ""  # of older code, that the device runs all the same


def workloads() -> list[Workload]:
    import torch.nn.functional as F

    out = []
    for m, n in ((4096, 4096), (16384, 8192)):
        size, one = f"{m}x{n}", m * n * 4
        x, line = ((m, n),), (n,)
        out += [
            Workload(
                f"softmax {size}", x, lambda x: topi.nn.softmax(x, axis=1), lambda x: F.softmax(x, 1), 2 * one
            ),
            Workload(
                f"layernorm {size}",
                (*x, line, line),
                lambda x, g, b: topi.nn.layer_norm(x, g, b, [1]),
                lambda x, g, b: F.layer_norm(x, g.shape, g, b),
                2 * one,
            ),
            Workload(
                f"gelu(x*2+1) {size}",
                x,
                lambda x: topi.nn.gelu(x * 2.0 + 1.0),
                lambda x: F.gelu(x * 2 + 1),
                2 * one,
            ),
            Workload(f"row sums {size}", x, lambda x: topi.sum(x, axis=1), lambda x: x.sum(1), one),
            Workload(
                f"transpose {size}", x, lambda x: topi.transpose(x), lambda x: x.t().contiguous(), 2 * one
            ),
        ]
    out.append(
        Workload("add 16M", ((4096, 4096),) * 2, lambda a, b: a + b, lambda a, b: a + b, 3 * 4096 * 4096 * 4)
    )
    for n in (1024, 4096):
        out.append(Workload(f"matmul f32 {n}", ((n, n),) * 2, topi.matmul, lambda a, b: a @ b, flop=2 * n**3))
    for name, theirs, ours in (
        ("matmul tf32 4096", lambda a, b: a @ b, topi.matmul),
        ("dense tf32 4096", F.linear, topi.nn.dense),
    ):
        for arch in ("", "sm_80"):
            shapes, flop = ((4096, 4096),) * 2, 2 * 4096**3
            called = f"{name}, {arch} code" if arch else name
            out.append(Workload(called, shapes, ours, theirs, flop=flop, tf32=True, arch=arch))
    products = [(n, n, n) for n in (1024, 2048, 4096, 8192)] + [(16, 4096, 4096), (128, 768, 3072)]
    for m, n, k in products:
        name = f"matmul f16 {m}" if m == n == k else f"matmul f16 {m}x{n}x{k}"
        shapes = ((m, k), (k, n))
        out.append(Workload(name, shapes, topi.matmul, lambda a, b: a @ b, 0, 2 * m * n * k, "float16"))
    for n, arch in ((2048, "sm_80"), (4096, "sm_80"), (8192, "sm_80")):
        name = f"matmul f16 {n}, {arch} code"
        shapes, flop = ((n, n),) * 2, 2 * n**3
        out.append(Workload(name, shapes, topi.matmul, lambda a, b: a @ b, 0, flop, "float16", arch=arch))
    out.append(
        Workload(
            "dense f16 4096, bias, gelu",
            ((4096, 4096), (4096, 4096), (4096,)),
            lambda a, w, b: topi.nn.gelu(
                topi.nn.dense(a, w, None, "float32") + topi.cast(b, "float32")
            ).astype("float16"),
            lambda a, w, b: F.gelu(F.linear(a, w, b)),
            flop=2 * 4096**3,
            dtype="float16",
        )
    )
    return [
        *out,
        convolution("conv f16 64->64@56 3x3", 56, 64, 64, 3),
        convolution("conv f16 256->256@14 3x3", 14, 256, 256, 3),
        convolution("conv f16 1024->256@14 1x1", 14, 1024, 256, 1),
        convolution("conv f16 64->64@56 3x3, bias, add, relu", 56, 64, 64, 3, fused=True),
        convolution("conv f16 64->64@56 3x3, sm_80 code", 56, 64, 64, 3, arch="sm_80"),
        convolution("conv f16 256->256@14 3x3, sm_80 code", 14, 256, 256, 3, arch="sm_80"),
        convolution("conv f16 1024->256@14 1x1, sm_80 code", 14, 1024, 256, 1, arch="sm_80"),
        attention(8, 16, 1024, 64),
        attention(2, 16, 4096, 128),
    ]


def convolution(
    name: str, size: int, c: int, f: int, window: int, fused: bool = False, arch: str = ""
) -> Workload:
    """A convolution of 16 images with channels last, as cuDNN takes them best; alone, or with what follows it."""
    import torch.nn.functional as F

    def ours(x: Any, w: Any, *more: Any) -> Any:
        y = topi.nn.conv2d(x, w, 1, window // 2, 1, "NHWC", "OHWI", "float32")
        for t in more:
            y = y + topi.cast(t, "float32")
        return (topi.nn.relu(y) if more else y).astype("float16")

    def theirs(x: Any, w: Any, *more: Any) -> Any:
        y = F.conv2d(x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), *more[:1], padding=window // 2)
        y = y.permute(0, 2, 3, 1)
        return (y + more[1]).relu() if more else y

    pixels = (16, size, size)
    shapes = ((*pixels, c), (f, window, window, c), *(((f,), (*pixels, f)) if fused else ()))
    flop = 2 * 16 * size**2 * f * c * window**2
    return Workload(name, shapes, ours, theirs, 0, flop, "float16", arch=arch)


def attention(batch: int, heads: int, length: int, width: int) -> Workload:
    """softmax(q · kᵀ / sqrt(width)) · v."""
    import torch.nn.functional as F

    shape = (batch, heads, length, width)
    return Workload(
        f"attention f16 {batch}x{heads}x{length}x{width}",
        (shape,) * 3,
        topi.nn.scaled_dot_product_attention,
        F.scaled_dot_product_attention,
        flop=4 * batch * heads * length**2 * width,
        dtype="float16",
    )


def recorded(run: Callable[[int], Any], sets: int, ours: bool) -> Callable[[], Any]:
    """A number of launches over all sets of tensors, as one graph."""
    import torch

    count = -(-LAUNCHES // sets) * sets
    if ours:
        with capture_graph(tvm.cuda(0)) as graph:
            for k in range(count):
                run(k % sets)
        return graph
    held = torch.cuda.CUDAGraph()
    with torch.cuda.graph(held):
        for k in range(count):
            run(k % sets)
    return held.replay


def seconds(replay: Callable[[], Any], sets: int) -> float:
    """The time of one launch."""
    import torch

    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(
        AHEAD
    )  # the device is behind Python when it comes to the events, and waits for nothing between
    begin.record()
    replay()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) * 1e-3 / (-(-LAUNCHES // sets) * sets)


def measure(w: Workload, compiled: bool) -> dict[str, Any]:
    import torch

    target = (
        tvm.target.Target.from_device(tvm.cuda(0)) if hasattr(tvm.target.Target, "from_device") else "cuda"
    )
    if w.tf32:
        target = tvm.target.Target(target).with_attr("tf32", True)
    if w.arch:
        target = tvm.target.Target(target).with_attr("arch", w.arch)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = w.tf32
    args = [te.placeholder(s, w.dtype, name=f"x{i}") for i, s in enumerate(w.shapes)]
    result = w.ours(*args)
    sch = tvm.auto_schedule([*args, result], target)
    func = tvm.build(sch.mod, target=target)
    shape = [int(d) for d in result.shape]
    kind = getattr(torch, w.dtype)
    bytes_of = sum(kind.itemsize * int(np.prod(s)) for s in (*w.shapes, tuple(shape)))
    sets = max(1, min(16, -(-MORE_THAN_THE_CACHE // bytes_of)))
    xs = [[torch.randn(s, device="cuda").to(kind) for s in w.shapes] for _ in range(sets)]
    outs = [torch.full(shape, float("nan"), device="cuda", dtype=kind) for _ in range(sets)]
    ours = [[tvm.nd.from_dlpack(t) for t in (*x, o)] for x, o in zip(xs, outs, strict=True)]
    peers: dict[str, Callable[[int], Any]] = {
        "tilewright": lambda k: func(*ours[k]),
        "torch": lambda k: w.theirs(*xs[k]),
    }
    if compiled:
        torch._dynamo.reset()  # or else it takes the sizes of a function that it has seen before for variables
        made = torch.compile(w.theirs, dynamic=False)
        peers["torch.compile"] = lambda k: made(*xs[k])
    func(*ours[0])
    torch.cuda.synchronize()
    want = w.theirs(*[t.double() for t in xs[0]])
    error = float((outs[0].double() - want).abs().max() / want.abs().max().clamp(min=1e-30))
    graphs = {}
    for name, run in peers.items():
        for k in range(sets):
            run(k)
        torch.cuda.synchronize()
        graphs[name] = recorded(run, sets, name == "tilewright")
        graphs[name]()
    times: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(ROUNDS):
        for name, replay in graphs.items():
            times[name].append(seconds(replay, sets))
    return {
        "workload": w.name,
        "error": error,
        "sketches": [r["sketch"] for r in sch.explanation.records],
        **{name: statistics.median(t) for name, t in times.items()},
        "GB/s": w.moved / statistics.median(times["tilewright"]) / 1e9,
        "TFLOP/s": w.flop / statistics.median(times["tilewright"]) / 1e12,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="a text that a workload's name must have")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave torch.compile out")
    parser.add_argument("--json", default="", help="a file for everything that was measured")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("there is no CUDA device here", file=sys.stderr)
        return 1
    torch.backends.cudnn.benchmark = True
    peers = ["torch", "torch.compile"] if options.compile else ["torch"]
    table = Table(
        "workload",
        "tilewright",
        *peers,
        *[f"to {p}" for p in peers],
        "speed",
        "error",
        title=torch.cuda.get_device_name(0),
    )
    rows = []
    for w in workloads():
        if options.only not in w.name:
            continue
        row = measure(w, options.compile)
        rows.append(row)
        speed = f"{row['GB/s']:.0f} GB/s" if w.moved else f"{row['TFLOP/s']:.1f} TFLOP/s"
        table.add_row(
            w.name,
            *[f"{row[p] * 1e6:.1f} us" for p in ("tilewright", *peers)],
            *[f"{row[p] / row['tilewright']:.2f}" for p in peers],
            speed,
            f"{row['error']:.0e}",
        )
    Console(width=140).print(table)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
