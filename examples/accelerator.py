"""A network on an accelerator: the roofline and the timeline of its layers, and its answer beside the CPU's.

The chip is `tilewright.vta`, in its simulator. Convolutions of ResNet-18 are scheduled with and without latency hiding;
then the whole network, quantized to int8 with random weights, is compiled for the chip and for this CPU. Cycles are the
same on every machine.

    python examples/accelerator.py --out pictures
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import tilewright as tvm
from tilewright import relay, vta
from tilewright.contrib import graph_executor
from tilewright.relay.testing import quantized
from tilewright.target import Target
from tilewright.te import create_prim_func
from tilewright.vta.module import RUNS

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
import accelerator as bench
from accelerator_pictures import roofline, timeline

LAYERS = ("C2", "C5", "C7", "C9", "C10", "C12")


# -- layers --------------------------------------------------------------------------------------
def layers(names: list[str], progress: Progress) -> list[bench.Run]:
    """Each layer in each way, simulated and checked."""
    env, target = vta.get_env(), Target("ext_dev")
    task = progress.add_task("convolutions of ResNet-18", total=len(names) * len(bench.WAYS))
    runs = []
    for layer in names:
        func = create_prim_func(bench.convolution(layer, env))
        for way, allowed in bench.WAYS.items():
            runs.append(bench.measure(layer, way, bench.scheduled(func, target, allowed), env))
            progress.advance(task)
    return runs


def layers_table(runs: list[bench.Run]) -> Table:
    """How busy the compute engine is, and how far each layer is from its bound."""
    table = Table(title="How busy the compute engine is")
    for name in ("layer", *bench.WAYS, "of the bound"):
        table.add_column(name, justify="left" if name == "layer" else "right")
    for layer in dict.fromkeys(r.layer for r in runs):
        own = {r.way: r for r in runs if r.layer == layer}
        best = min(own.values(), key=lambda r: r.cycles)
        shares = [f"{own[way].utilisation:.1%}" for way in bench.WAYS]
        table.add_row(layer, *shares, f"{best.bound / best.cycles:.2f}")
    means = [np.mean([r.utilisation for r in runs if r.way == way]) for way in bench.WAYS]
    table.add_section()
    table.add_row("mean", *(f"{m:.1%}" for m in means), "")
    return table


# -- a network -----------------------------------------------------------------------------------
def answer(lib: Any, device: Any, image: Any) -> Any:
    """The scores of an image."""
    model = graph_executor.GraphModule(lib["default"](device))
    model.set_input("data", image)
    model.run()
    return model.get_output(0).numpy()


def network(size: int, widths: tuple[int, ...], progress: Progress) -> tuple[Table, bool]:
    """The answers of the network on the chip and on the CPU, and whether they are equal."""
    mod, params = quantized.get_workload("resnet", image_shape=(3, size, size), widths=widths)
    image = np.random.default_rng(0).normal(0, 1, (1, 3, size, size)).astype("float32")
    task = progress.add_task("ResNet-18, int8", total=4)
    found = []
    for target, device in (("llvm", tvm.cpu()), ("ext_dev", tvm.ext_dev(0))):
        lib = relay.build(mod, target, params=params)
        progress.advance(task)
        RUNS.clear()
        start = time.perf_counter()
        scores = answer(lib, device, image)[0]
        found.append((scores, time.perf_counter() - start, lib))
        progress.advance(task)
    (cpu, _, _), (chip, simulated, lib) = found
    total, clock = RUNS.total, vta.get_env().config.clock_mhz * 1e6
    table = Table(title=f"ResNet-18 at {size} × {size}, int8, random weights: the five most likely classes")
    for name in ("rank", "CPU", "chip"):
        table.add_column(name, justify="right")
    for rank in range(5):
        table.add_row(
            str(rank + 1),
            *(f"class {np.argsort(-x)[rank]}: {np.sort(x)[::-1][rank]:.4f}" for x in (cpu, chip)),
        )
    table.add_section()
    table.add_row("time", "", f"{total.cycles / clock * 1e3:.1f} ms at {clock / 1e6:.0f} MHz")
    steps = len(lib.model.steps)
    table.add_row(
        "kernels", str(steps), f"{sum(s.kernel in lib.programs for s in lib.model.steps)} of {steps}"
    )
    table.add_row("compute engine", "", f"busy {total.busy['compute'] / max(total.cycles, 1):.1%}")
    table.add_row("simulated in", "", f"{simulated:.1f} s")
    return table, bool(np.array_equal(cpu, chip))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", default="build/accelerator", help="the folder of the pictures")
    parser.add_argument("--layers", default=",".join(LAYERS), help=f"some of {','.join(bench.LAYERS)}")
    parser.add_argument("--size", type=int, default=224, help="the image of the network, in pixels")
    parser.add_argument("--widths", default="64,128,256,512", help="the channels of its stages")
    options = parser.parse_args()
    console = Console()
    with Progress(console=console, transient=True) as progress:
        runs = layers(options.layers.split(","), progress)
        answers, equal = network(options.size, tuple(map(int, options.widths.split(","))), progress)
    console.print(layers_table(runs), answers)
    console.print("The answers are equal, bit for bit." if equal else "[red]The answers differ.[/red]")
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    worst = min((r for r in runs if r.way == "no hiding"), key=lambda r: r.utilisation).layer
    pictures = {
        "roofline.svg": roofline(runs, vta.get_env()),
        "timeline.svg": timeline([r for r in runs if r.layer == worst]),
    }
    for name, picture in pictures.items():
        (folder / name).write_text(picture, encoding="utf-8")
        console.print(f"{name.removesuffix('.svg')}: {folder / name}", soft_wrap=True)
    if not equal:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
