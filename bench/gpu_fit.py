"""Fits figures of a GPU to measured kernels: what `bench/gpu_random.py --rules --json FILE` kept.

    python bench/gpu_fit.py FILE…                                       how good the predictions are, for each rule
    python bench/gpu_fit.py FILE… --figures mma.kernel.launch,mma.store the values that explain the times best
    python bench/gpu_fit.py FILE… --only matmul                         programs with this text in their name

Needs no GPU: the decisions in the file say which rows of which tables were measured. The error is that of the
logarithm, so that a small kernel counts as much as a large one; outliers count less. A figure stays near its value
unless the times demand another one. The last lines say what the choice among the measured schedules costs, before and
after.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gpu_random import Case, mean
from rich.console import Console
from rich.table import Table
from scipy.optimize import least_squares

from tilewright import te
from tilewright.target import Target
from tilewright.target.gpu_machine import GpuMachine, gpu_figures, with_gpu_figures
from tilewright.tune.cost import gpu as cost
from tilewright.tune.plan import plan_of

_OUTLIER = 0.5  # of the logarithm: what is further off counts less
_INERTIA = 0.15  # the weight of a figure's own change


@dataclass
class Kernel:
    """A measured schedule: the tables of its stages, and its time in seconds."""

    name: str
    rule: str
    parts: list[tuple[Any, Any, dict[str, int]]]  # rule, match and decisions of each stage
    seconds: float

    def predicted(self, machine: GpuMachine, margins: bool = False) -> float:
        total = 0.0
        for rule, match, values in self.parts:
            table = rule.table(match, machine, values)
            table = table.without(table.left) if margins else table.alone()
            total += float(cost.seconds(table, machine)[0])
        return total


def kernels(files: Sequence[str], target: Target, only: str) -> list[list[Kernel]]:
    """The schedules of each program, rebuilt."""
    out = []
    for path in files:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        for rows in found["programs"]:
            made = [k for row in rows if only in row["name"] and (k := _kernel(row, target)) is not None]
            if made:
                out.append(made)
    return out


def _kernel(row: dict[str, Any], target: Target) -> Kernel | None:
    if "failed" in row:
        return None
    kind, sizes, dtype = row["case"]
    case = Case(kind, tuple(sizes), dtype)
    taken = dict(enumerate(c["rule"] for c in row["choices"]))
    plan = plan_of(te.create_prim_func(case.tensors), case.target(target), forced=taken)
    if [c.winner.rule.name for c in plan.choices] != list(taken.values()):
        return None  # today's compiler has other stages, or refuses the rule
    parts = [
        (choice.winner.rule, choice.winner.match, was["values"])
        for choice, was in zip(plan.choices, row["choices"], strict=True)
    ]
    rules = " + ".join(c["rule"] for c in row["choices"])
    return Kernel(row["name"], rules, parts, row["tilewright"] * 1e-6)


def fitted(every: list[Kernel], machine: GpuMachine, names: list[str]) -> GpuMachine:
    """The machine with the named figures as the times of the kernels have them."""
    known = gpu_figures(machine)
    start = np.array([known[n] for n in names], float)
    touched = [k for k in every if _depends(k, machine, names)]
    logs = np.log([k.seconds for k in touched])

    def made(x: Any) -> dict[str, float]:
        return dict(zip(names, start * np.exp(x - 1), strict=True))

    def residual(x: Any) -> Any:
        there = with_gpu_figures(machine, made(x), "fitted")
        off = np.log([k.predicted(there) for k in touched]) - logs
        off = np.sign(off) * np.sqrt(2 * (np.sqrt(1 + (off / _OUTLIER) ** 2) - 1)) * _OUTLIER
        return np.concatenate([off, _INERTIA * (x - 1)])

    # The logarithm of a change, plus 1: steps of the optimizer are relative to its variables.
    found = least_squares(residual, np.ones(len(names)), diff_step=0.02, bounds=(-2.0, 4.0), max_nfev=30)
    return with_gpu_figures(machine, {n: type(known[n])(v) for n, v in made(found.x).items()}, "fitted")


def _depends(k: Kernel, machine: GpuMachine, names: list[str]) -> bool:
    known = gpu_figures(machine)
    before = k.predicted(machine)
    for n in names:
        more = with_gpu_figures(machine, {n: type(known[n])(known[n] * 1.5 + 1e-12)}, "fitted")
        if abs(k.predicted(more) / before - 1) > 1e-4:
            return True
    return False


def errors(every: list[Kernel], machines: Sequence[GpuMachine]) -> Table:
    """Predicted over measured for each rule and machine: the mean, and the spread around it."""
    table = Table(
        "rule", "kernels", *[f"{w} {m.source}" for m in machines for w in ("mean", "spread")], box=None
    )
    by_rule = defaultdict(list)
    for k in every:
        by_rule[k.rule].append(k)
    for rule, group in sorted(by_rule.items()):
        cells = []
        for m in machines:
            logs = [math.log(k.predicted(m) / k.seconds) for k in group]
            cells += [f"{math.exp(statistics.fmean(logs)):.2f}", f"{math.exp(statistics.pstdev(logs)):.2f}"]
        table.add_row(rule, str(len(group)), *cells)
    return table


def choices(programs: list[list[Kernel]], machine: GpuMachine, margins: bool) -> str:
    """The cost of choosing among the measured schedules by their predicted times."""
    lost = []
    for group in programs:
        taken = min(group, key=lambda k: k.predicted(machine, margins))
        lost.append(taken.seconds / min(k.seconds for k in group))
    slow = sum(x > 1.1 for x in lost)
    return f"{mean(lost):.3f} in the mean, {max(lost):.2f} at most, {slow} of {len(lost)} above 1.1"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", help="what `bench/gpu_random.py --rules --json` wrote")
    parser.add_argument("--figures", default="", help="names of figures, separated by commas")
    parser.add_argument("--only", default="", help="a text that a program's name must have")
    parser.add_argument("--target", default="cuda -arch=sm_90a", help="what the kernels were compiled for")
    options = parser.parse_args()
    target = Target(options.target)
    programs = kernels(options.files, target, options.only)
    every = [k for group in programs for k in group]
    names = [n for n in options.figures.split(",") if n]
    machines = [target.gpu, *([fitted(every, target.gpu, names)] if names else [])]
    Console(width=120).print(errors(every, machines))
    for n in names:
        print(f"{n}: {gpu_figures(target.gpu)[n]:g} -> {gpu_figures(machines[-1])[n]:.4g}")
    for m in machines:
        for margins in (True, False):
            words = "with margins" if margins else "without"
            print(f"choice by {m.source} figures, {words}: {choices(programs, m, margins)}")


if __name__ == "__main__":
    main()
