"""Fitted figures of a GPU from measurements on it: kernels whose times each show one figure.

    probe      a program, the decision it is scheduled with, the figure, and the counts that the cost model expects
    solve      the value of the figure for which the cost model predicts the measured time

Each probe is bound by what its figure is about: a long copy by DRAM, a large product by arithmetic, a deep product of
one tile for each SM by the latency of copies, a tiny one by its launch. Figures that a time hardly depends on keep the
value of the table. The time of a probe depends a little on the figures of others, so all are solved a few times over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..target import Target
from ..target.gpu_machine import GpuMachine, gpu_figures, with_gpu_figures
from ..te import compute, placeholder, reduce_axis
from ..te import sum as te_sum
from ..te.create_prim_func import create_prim_func
from ..tir.schedule import Schedule
from .cost.gpu import Counts, cycles_of, seconds_of
from .program.facts import Facts, facts_of
from .rules.gpu.figures import stage_counts
from .rules.gpu.mma import Mma
from .rules.gpu.product import Product, Tile, product_of
from .rules.gpu.product_rule import ProductRule, Source
from .rules.gpu.simt import Simt
from .rules.gpu.simt_tma import SimtTma
from .rules.gpu.wgmma import Wgmma

__all__ = ["Found", "Probe", "calibrated_figures", "probes_of", "solved"]

_NEAR = 0.005  # a prediction is right if it is this close to the measured time
_FAR = 30.0  # a figure is sought within this factor of the table's
_PASSES = 4


@dataclass(frozen=True)
class Probe:
    """A kernel that shows one figure."""

    figure: str
    program: list[Any]  # its tensors
    counts: Callable[[GpuMachine], Counts]
    decisions: list[dict[str, Any]] | None = None  # None: the zero-trial schedule


@dataclass(frozen=True)
class Found:
    """What a probe shows by itself: the known value of its figure and the one that explains the measured seconds; None
    if none does, or if the time hardly depends on the figure."""

    figure: str
    known: float
    value: float | None
    seconds: float


def calibrated_figures(
    target: Target, run: Callable[[Probe], float], tell: Callable[[Found], None]
) -> dict[str, int | float]:
    """The figures of the GPU on which `run` measures the seconds of a probe."""
    took = []
    for probe in probes_of(target):
        seconds = run(probe)
        took.append((probe, seconds))
        tell(solved(probe, target.gpu, seconds))
    machine, table, out = target.gpu, gpu_figures(target.gpu), dict[str, int | float]()
    for _ in range(_PASSES):
        for probe, seconds in took:
            value = solved(probe, machine, seconds).value
            if value is None:
                out.pop(probe.figure, None)
                value = table[probe.figure]
            else:
                out[probe.figure] = value
            machine = with_gpu_figures(machine, {probe.figure: value}, machine.source)
    return {**out, **_slower(target.gpu, out)}


def _slower(known: GpuMachine, out: dict[str, int | float]) -> dict[str, int | float]:
    """The rates of tiles with an operand that is contiguous along the reduction, in proportion to the others."""
    table, more = gpu_figures(known), dict[str, int | float]()
    for name, value in out.items():
        if name.startswith("tma_simt.tiles."):
            other = name.removesuffix("rate") + "slower"
            more[other] = _digits(table[other] * value / table[name])
    return more


def solved(probe: Probe, machine: GpuMachine, seconds: float) -> Found:
    """The value of a figure for which the prediction is the measured time, by bisection."""
    known = float(gpu_figures(machine)[probe.figure])

    def predicted(value: float) -> float:
        made = with_gpu_figures(machine, {probe.figure: value}, machine.source)
        return float(seconds_of(probe.counts(made), made))

    low, high = known / _FAR, known * _FAR
    rising = predicted(high) > predicted(low)
    for _ in range(60):
        middle = math.sqrt(low * high)
        if (predicted(middle) < seconds) == rising:
            low = middle
        else:
            high = middle
    value = _digits(math.sqrt(low * high))
    right = abs(predicted(value) / seconds - 1) < _NEAR
    # A prediction that a tenth more would not change does not depend on the figure.
    depends = abs(predicted(value * 1.1) / predicted(value / 1.1) - 1) > _NEAR
    return Found(probe.figure, known, value if right and depends else None, seconds)


def _digits(value: float) -> float:
    """Four digits: those behind them are noise."""
    return float(f"{value:.4g}")


# ---------------------------------------------------------------------------- probes
def probes_of(target: Target) -> Iterator[Probe]:
    """The probes for what a target has, in order."""
    yield _copy("tile.launch_seconds", 1 << 10)
    yield _copy("bandwidth", 1 << 26)
    if target.has("mma.f16"):
        yield from _mma_probes(target)
    if target.has("wgmma"):
        yield from _wgmma_probes(target)
    if target.has("cp.async"):
        yield from _simt_probes(target)
    if target.has("tma") and target.has("setmaxnreg"):
        yield from _tma_simt_probes(target)


def _copy(figure: str, size: int) -> Probe:
    """An elementwise kernel over `size` float32: it is bound by DRAM, or by its launch. `bandwidth` means that of the
    data sheet, to which all rates are relative: no kernel reaches it."""
    x = placeholder((size,), "float32", name="x")
    tensors = [x, compute((size,), lambda i: x[i] + 1.0, name="y")]
    f = _facts(tensors)

    def counts(gpu: GpuMachine) -> Counts:
        c = stage_counts([f], gpu, max(1, size // (4 * gpu.elementwise.threads)))
        return replace(c, dram_rate=c.dram_rate * gpu.tile.copy_rate)

    return Probe(figure, tensors, counts)


def _product(m: int, n: int, k: int, dtype: str, trans_a: bool = False) -> tuple[list[Any], Source]:
    """C[m, n] = A * B, with A[m, k] or A[k, m] and B[k, n]."""
    a = placeholder((k, m) if trans_a else (m, k), dtype, name="a")
    b, steps = placeholder((k, n), dtype, name="b"), reduce_axis((0, k), name="k")

    def term(i: Any, j: Any) -> Any:
        left = a[steps, i] if trans_a else a[i, steps]
        return te_sum(left.astype("float32") * b[steps, j].astype("float32"), axis=steps)

    tensors = [a, b, compute((m, n), term, name="c")]
    facts = _facts(tensors)
    found = product_of(facts)
    assert found is not None
    return tensors, Source(facts, found)


def _facts(tensors: list[Any]) -> Facts:
    sch = Schedule(create_prim_func(tensors))
    (block,) = sch.get_child_blocks(sch.get_block("root"))
    return facts_of(sch, block)


def _probe(
    rule: ProductRule,
    target: Target,
    figure: str,
    sizes: tuple[int, int, int],
    dtype: str,
    wanted: dict[str, int] | None = None,
) -> Probe:
    """A product by a rule: with the best of all tiles, or of those with the `wanted` sizes."""
    tensors, source = _product(*sizes, dtype)
    p, gpu = source.product, target.gpu
    tiles = rule.tiles(p, target, source, wanted is not None)
    fits = [t for t in tiles if all(getattr(t, k) == v for k, v in (wanted or {}).items())]
    tile = min(fits, key=lambda t: cycles_of(rule.counts(p, t, gpu), gpu))
    return _tiled(rule, figure, tensors, p, tile)


def _tiled(rule: ProductRule, figure: str, tensors: list[Any], p: Product, tile: Tile) -> Probe:
    row = {"stage": "c", "rule": rule.name, "transposed": 0, **asdict(tile)}
    return Probe(figure, tensors, lambda gpu: rule.counts(p, tile, gpu), [row])


def _mma_probes(target: Target) -> Iterator[Probe]:
    # One small tile for each SM, and one step ahead: the latency of copies is not hidden.
    stages = 3 if target.has("cp.async") else 2
    small = {"rows": 64, "columns": 64, "stages": stages, "parts": 1, "depth": 32}
    sizes = (512, 64 * (target.gpu.multiprocessors // 8), 8192)
    yield _probe(Mma(), target, "mma.latency", sizes, "float16", small)
    yield _probe(Mma(), target, "mma.product", (4096, 4096, 4096), "float16")


def _wgmma_probes(target: Target) -> Iterator[Probe]:
    small = {"rows": 64, "columns": 64, "stages": 2, "parts": 1, "per_processor": 1}
    sizes = (512, 64 * (target.gpu.multiprocessors // 8), 8192)
    yield _probe(Wgmma(), target, "wgmma.latency", sizes, "float16", small)
    yield _probe(Wgmma(), target, "wgmma.rate", (4096, 4096, 4096), "float16")


def _simt_probes(target: Target) -> Iterator[Probe]:
    whole = {"parts": 1, "depth": 16, "lanes": 8}
    yield _probe(Simt(), target, "simt.kernel.launch", (64, 64, 32), "float32", whole)
    yield _probe(Simt(), target, "simt.rate", (4096, 4096, 1024), "float32", whole)


def _tma_simt_probes(target: Target) -> Iterator[Probe]:
    tensors, source = _product(4096, 4096, 1024, "float32", trans_a=True)
    for tile in SimtTma().tiles(source.product, target, source, False):
        if tile.parts == 1:
            figure = f"tma_simt.tiles.{tile.rows}x{tile.columns}.rate"
            yield _tiled(SimtTma(), figure, tensors, source.product, tile)
