"""The example accelerator on the convolutions of ResNet-18: utilisation, roofline and timeline, in simulated cycles.

    python bench/accelerator.py                    a table of the ten layers, and two pictures in build/accelerator/
    python bench/accelerator.py --trials 64        with tuned schedules too
    python bench/accelerator.py --layers C2,C12 --out /tmp/pictures

Cycles are exact and the same on every machine. Each layer is scheduled four ways: without latency hiding (one thread,
one version of each buffer), with two virtual threads, as the rules choose without trials, and tuned. Results are
compared with the integer convolution of NumPy, bit for bit.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from accelerator_pictures import roofline, timeline

import tilewright as tvm
from tilewright import te, topi, vta
from tilewright.ir.module import IRModule
from tilewright.target import Target
from tilewright.te import create_prim_func
from tilewright.tir.schedule import Schedule
from tilewright.tune.explain import Explanation
from tilewright.tune.plan import Plan, plan_of
from tilewright.tune.program.stages import Stages
from tilewright.vta.module import RUNS

# The convolutions of ResNet-18 behind the first one: name, image, channels in and out, kernel, stride.
LAYERS = {
    "C2": (56, 64, 64, 3, 1),
    "C4": (56, 64, 128, 3, 2),
    "C5": (56, 64, 128, 1, 2),
    "C6": (28, 128, 128, 3, 1),
    "C7": (28, 128, 256, 3, 2),
    "C8": (28, 128, 256, 1, 2),
    "C9": (14, 256, 256, 3, 1),
    "C10": (14, 256, 512, 3, 2),
    "C11": (14, 256, 512, 1, 2),
    "C12": (7, 512, 512, 3, 1),
}
WAYS: dict[str, Callable[[dict[str, int]], bool]] = {
    "no hiding": lambda row: row["threads"] == 1 and row["versions"] == 1,
    "virtual threads": lambda row: row["threads"] == 2,
    "zero trials": lambda row: True,
}


@dataclass(frozen=True)
class Run:
    """A layer, scheduled one way and simulated."""

    layer: str
    way: str
    cycles: int
    busy: int  # cycles of the compute engine
    products: int  # cycles of the matrix unit, at one product of matrices a cycle
    nbytes: int  # of DRAM
    instructions: int
    bound: int  # cycles that arithmetic or the DRAM port take at least
    timeline: Any

    @property
    def utilisation(self) -> float:
        return self.busy / self.cycles


def convolution(layer: str, env: vta.Environment) -> list[Any]:
    """A packed convolution with the epilogue of a quantized network: shift, clip and narrow."""
    size, inside, outside, kernel, stride = LAYERS[layer]
    pad = kernel // 2
    out = (size + 2 * pad - kernel) // stride + 1
    data = te.placeholder(
        (1, inside // env.BLOCK_IN, size, size, env.BATCH, env.BLOCK_IN), env.inp_dtype, "data"
    )
    weight = te.placeholder(
        (outside // env.BLOCK_OUT, inside // env.BLOCK_IN, kernel, kernel, env.BLOCK_OUT, env.BLOCK_IN),
        env.wgt_dtype,
        "weight",
    )
    source = topi.nn.pad(data, [0, 0, pad, pad, 0, 0], name="padded") if pad else data
    ic, ii = te.reduce_axis((0, inside // env.BLOCK_IN), "ic"), te.reduce_axis((0, env.BLOCK_IN), "ii")
    dy, dx = te.reduce_axis((0, kernel), "dy"), te.reduce_axis((0, kernel), "dx")
    shape = (1, outside // env.BLOCK_OUT, out, out, env.BATCH, env.BLOCK_OUT)
    conv = te.compute(
        shape,
        lambda n, oc, y, x, b, oo: te.sum(
            source[n, ic, y * stride + dy, x * stride + dx, b, ii].astype(env.acc_dtype)
            * weight[oc, ic, dy, dx, oo, ii].astype(env.acc_dtype),
            axis=[ic, dy, dx, ii],
        ),
        name="conv",
    )
    shifted = te.compute(shape, lambda *i: conv(*i) >> 8, name="shifted")
    positive = te.compute(shape, lambda *i: te.max(shifted(*i), 0), name="positive")
    clipped = te.compute(shape, lambda *i: te.min(positive(*i), 127), name="clipped")
    result = te.compute(shape, lambda *i: clipped(*i).astype(env.out_dtype), name="result")
    return [data, weight, result]


def packed(x: np.ndarray[Any, Any], rows: int, columns: int) -> np.ndarray[Any, Any]:
    """An array of images or kernels in elements of rows x columns."""
    a, b, *rest = x.shape
    blocked = x.reshape(a // rows, rows, b // columns, columns, *rest)
    return np.ascontiguousarray(blocked.transpose(0, 2, 4, 5, 1, 3))


def reference(data: Any, weight: Any, stride: int) -> np.ndarray[Any, Any]:
    """The convolution in integers."""
    kernel = weight.shape[2]
    pad = kernel // 2
    image = np.pad(data.astype(np.int64), [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    out = (data.shape[2] + 2 * pad - kernel) // stride + 1
    total = np.zeros((1, weight.shape[0], out, out), np.int64)
    for dy in range(kernel):
        for dx in range(kernel):
            part = image[:, :, dy : dy + out * stride : stride, dx : dx + out * stride : stride][
                :, :, :out, :out
            ]
            total += np.einsum("ncyx,oc->noyx", part, weight[:, :, dy, dx].astype(np.int64), optimize=True)
    return np.clip(total >> 8, 0, 127).astype(np.int8)


def scheduled(func: Any, target: Target, allowed: Callable[[dict[str, int]], bool]) -> IRModule:
    """The cheapest row of the rule's table that is allowed, applied."""
    (choice,) = plan_of(func, target).choices
    table = choice.winner.table
    rows = [i for i in range(len(table)) if allowed(table.values(i))]
    best = min(rows, key=lambda i: float(choice.winner.seconds[i]))
    decision = {"rule": choice.winner.rule.name, "stage": choice.stage.name, **table.values(best)}
    sch = Schedule(IRModule({"main": func}))
    sch.work_on("main")
    sch.explanation = Explanation(str(target))
    Plan(Stages(sch, func, target, sch.explanation, frozenset()), decisions=[decision]).run()
    return sch.mod


def measure(layer: str, way: str, mod: IRModule, env: vta.Environment) -> Run:
    """Build a scheduled layer, run it in the simulator and check its result."""
    size, inside, outside, kernel, stride = LAYERS[layer]
    rng = np.random.default_rng(0)
    data = rng.integers(-128, 128, (1, inside, size, size)).astype(np.int8)
    weight = rng.integers(-128, 128, (outside, inside, kernel, kernel)).astype(np.int8)
    wanted = packed(reference(data, weight, stride), env.BATCH, env.BLOCK_OUT)
    got = np.zeros(wanted.shape, np.int8)
    module = tvm.build(mod, target="ext_dev")
    module(packed(data, env.BATCH, env.BLOCK_IN), packed(weight, env.BLOCK_OUT, env.BLOCK_IN), got)
    if not np.array_equal(got, wanted):
        raise SystemExit(f"{layer}, {way}: the result is wrong")
    assert RUNS.last is not None
    s = RUNS.last.statistics
    products = outside * inside * kernel * kernel * wanted.shape[2] * wanted.shape[3]
    products //= env.BATCH * env.BLOCK_IN * env.BLOCK_OUT
    nbytes = sum(v for k, v in s.counters.items() if k.endswith("nbytes"))
    # At least: all products, a reset and three vector operations for each element of the result; and each array once.
    elements = wanted.size // (env.BATCH * env.BLOCK_OUT)
    least = data.nbytes + weight.nbytes + wanted.nbytes
    bound = max(products + 4 * elements, least // env.config.dram_bytes_per_cycle)
    return Run(
        layer, way, s.cycles, s.busy["compute"], products, nbytes, s.instructions, bound, RUNS.last.timeline
    )


def row(run: Run, env: vta.Environment) -> str:
    clock = env.config.clock_mhz * 1e6
    operations = 2 * run.products * env.BATCH * env.BLOCK_IN * env.BLOCK_OUT
    return (
        f"{run.layer:<6}{run.way:<17}{run.cycles:>9}{run.utilisation:>9.1%}{run.bound / run.cycles:>9.3f}"
        f"{operations / run.cycles * clock / 1e9:>9.1f}{operations / run.nbytes:>9.1f}{run.nbytes / 1024:>10.0f}"
        f"{run.instructions:>7}"
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--layers", default=",".join(LAYERS), help="the layers, as C2,C12")
    parser.add_argument("--trials", type=int, default=0, help="trials for each layer; 0: no tuned schedules")
    parser.add_argument("--out", default="build/accelerator", help="the folder of the pictures")
    options = parser.parse_args(argv)
    env, target = vta.get_env(), Target("ext_dev")
    print(
        f"chip {env.BITSTREAM}, {env.config.clock_mhz} MHz, {env.config.dram_bytes_per_cycle} bytes a cycle of DRAM"
    )
    print(
        f"{'layer':<6}{'schedule':<17}{'cycles':>9}{'compute':>9}{'of bound':>9}{'GOP/s':>9}{'op/byte':>9}{'KiB':>10}"
        f"{'insns':>7}"
    )
    runs: list[Run] = []
    for layer in options.layers.split(","):
        func = create_prim_func(convolution(layer, env))
        mods = {way: scheduled(func, target, allowed) for way, allowed in WAYS.items()}
        if options.trials:
            mods[f"{options.trials} trials"] = tvm.auto_schedule(func, target, options.trials).mod
        for way, mod in mods.items():
            runs.append(measure(layer, way, mod, env))
            print(row(runs[-1], env), flush=True)
    for way in dict.fromkeys(r.way for r in runs):
        own = [r for r in runs if r.way == way]
        mean, least = np.mean([r.utilisation for r in own]), min(r.bound / r.cycles for r in own)
        print(
            f"{way:<17} mean utilisation of the compute engine {mean:.1%}, least share of the bound {least:.3f}"
        )
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "roofline.svg").write_text(roofline(runs, env), encoding="utf-8")
    worst = min((r for r in runs if r.way == "no hiding"), key=lambda r: r.utilisation).layer
    shown = [r for r in runs if r.layer == worst]
    (folder / "timeline.svg").write_text(timeline(shown), encoding="utf-8")
    print(f"pictures: {folder / 'roofline.svg'}, {folder / 'timeline.svg'}")


if __name__ == "__main__":
    main()
