"""Fitted figures of a CPU from measurements on it: pairs of kernels whose ratio shows one figure.

    probe     two kernels with their rows; the time of the first depends on the figure, that of the second does not
    solve     the value of the figure for which the cost function predicts the ratio that was measured

    gather_lane    y[i] = x[17 * i] + 1            beside    y[i] = x[i] + 1
    row_entry      96 sums of 64 elements          beside    one sum of 6144 elements
    tile_store     products of few terms           beside    the same tiles of products of many terms

A ratio is independent of the clock, and of what both kernels have in common. Each time is that of the kernel without
the call, which a kernel of one element shows. Figures that no pair shows give the reason in `target/cpu_fit.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir.module import IRModule
from ..target import Target
from ..target.cpu_fit import FIT
from ..target.machine import CpuMachine, with_figures
from ..te import compute, placeholder, reduce_axis
from ..te import exp as te_exp
from ..te import max as te_max
from ..te import sum as te_sum
from ..te.create_prim_func import create_prim_func
from ..tir.schedule import Schedule
from .cost.cpu import seconds
from .cost.solve import solved
from .explain import Explanation
from .plan import Offer, Plan
from .program.stages import Stages

__all__ = ["Found", "Kernel", "Probe", "calibrated_fit", "probes_of"]

_FAR = 8.0  # a figure is sought within this factor of the table's: beyond it, the kernel shows something else
_DEPENDS = 0.01  # the least change of the ratio when the figure changes by a tenth in both directions
_FLOAT = 4  # bytes of the elements of all probes


@dataclass(frozen=True)
class Kernel:
    """A program of one stage (its tensors), and the row with which it is scheduled."""

    program: list[Any]
    offer: Offer
    decision: Mapping[str, Any]

    def predicted(self, machine: CpuMachine) -> float:
        """The predicted seconds on a machine."""
        values = {k: v for k, v in self.decision.items() if k not in ("stage", "rule")}
        return float(seconds(self.offer.rule.table(self.offer.match, machine, values), machine)[0])


@dataclass(frozen=True)
class Probe:
    """Two kernels; the ratio of their times shows a figure."""

    figure: str
    shown: Kernel
    plain: Kernel

    def predicted(self, machine: CpuMachine) -> float:
        return self.shown.predicted(machine) / self.plain.predicted(machine)


@dataclass(frozen=True)
class Found:
    """What a probe shows: the known value of its figure, and the one that explains the measured ratio; None if none
    does."""

    figure: str
    known: float
    value: float | None
    ratio: float


Run = Callable[[Sequence[Kernel]], Sequence[float]]  # the seconds of some kernels, measured in turn


def calibrated_fit(target: Target, run: Run, tell: Callable[[Found], None]) -> dict[str, int | float]:
    """The fitted figures of the machine on which `run` measures kernels, by the names of `-machine`.

    `target` is a core of that machine, with its other figures.
    """
    machine, out = target.cpu, dict[str, int | float]()
    call = _kernel(target, _copy(1), "elementwise")
    assert call is not None
    for probe in probes_of(target):
        least, shown, plain = run([call, probe.shown, probe.plain])
        found = _solved(probe, machine, shown - least, plain - least)
        tell(found)
        if found.value is not None:
            out[FIT + found.figure] = found.value
    return out


def _solved(probe: Probe, machine: CpuMachine, shown: float, plain: float) -> Found:
    known = float(getattr(machine.fit, probe.figure))
    if shown <= 0 or plain <= 0:
        return Found(probe.figure, known, None, float("nan"))

    def predicted(value: float) -> float:
        return probe.predicted(with_figures(machine, {FIT + probe.figure: value}, machine.source))

    return Found(probe.figure, known, solved(predicted, shown / plain, known, _FAR, _DEPENDS), shown / plain)


# ---------------------------------------------------------------------------- kernels
def probes_of(target: Target) -> Iterator[Probe]:
    """The probes that a machine has rows for, in order."""
    for figure, shown, plain in (
        *_vector_pairs(target.cpu),
        ("row_entry", (_sums(96, 64), "rows", {}), (_sums(1, 96 * 64), "rows", {})),
        *_tile_pairs(target.cpu),
    ):
        kernels = [_kernel(target, program, rule, wanted) for program, rule, wanted in (shown, plain)]
        first, second = kernels
        if first is not None and second is not None:
            yield Probe(figure, first, second)


_Half = tuple[list[Any], str, Mapping[str, int]]  # a program, a rule, and decisions that are given
_Pair = tuple[str, _Half, _Half]


def _vector_pairs(machine: CpuMachine) -> Iterator[_Pair]:
    copy: _Half = (_copy(4096), "elementwise", {})
    yield "pair_load", (_copy(4096, 2), "elementwise", {}), copy
    yield "gather_lane", (_copy(4096, 17), "elementwise", {}), copy
    yield "transposed_lane", (_square(128, True), "transpose", {}), (_square(128, False), "elementwise", {})
    short = machine.lanes(8 * _FLOAT) * 5 // 8
    if short > 1:
        rows, columns = _softmax(512, short, 1), _softmax(short, 512, 0)
        yield "strided_lane", (rows, "short rows", {}), (columns, "lane chain", {})


def _tile_pairs(machine: CpuMachine) -> Iterator[_Pair]:
    lanes, held = machine.lanes(8 * _FLOAT), machine.vector_registers
    rows, wide = min(12, (held - 4) // 2), 4 * lanes
    if rows < 2:
        return
    tile = {"tile0": rows, "vectors": 2, "outer": 1, "packed": 0}

    def product(m: int, n: int, k: int) -> _Half:
        return _product(m, n, k, k), "tile", tile

    yield "tile_store", product(8 * rows, wide, lanes), product(8 * rows, wide, 16 * lanes)
    # Lines that are a multiple of the sets of the L1 cache apart, more of them than a set has ways.
    rows, apart = min(20, held - 3), machine.fit.l1_sets * machine.cache_sizes.line // _FLOAT
    column = {"tile0": rows, "vectors": 1, "outer": 1, "packed": 0}
    line = machine.cache_sizes.line // _FLOAT
    yield (
        "conflict_square",
        (_product(12 * rows, lanes, apart // 2, apart), "tile", column),
        (_product(12 * rows, lanes, apart // 2, apart + line), "tile", column),
    )


def _kernel(
    target: Target, program: list[Any], rule: str, wanted: Mapping[str, int] | None = None
) -> Kernel | None:
    """A program with the cheapest row of a rule that has the given decisions; None if there is none."""
    func = create_prim_func(program)
    sch = Schedule(IRModule({"main": func}))
    stages = Stages(sch, func, target, Explanation(str(target)), frozenset())
    plan = Plan(stages, forced={0: rule})
    stages.begin()
    (stage,) = stages.next_stages(stages.stages())
    offers, _ = plan.offers(stage, 0)
    if not offers:
        return None
    (offer,) = offers
    fits = np.ones(len(offer.table), bool)
    for name, value in (wanted or {}).items():
        fits &= offer.table.column(name) == value
    if not fits.any():
        return None
    row = int(np.where(fits, offer.seconds, np.inf).argmin())
    return Kernel(program, offer, {"stage": stage.name, "rule": rule, **offer.table.values(row)})


def _copy(size: int, stride: int = 1) -> list[Any]:
    x = placeholder((size * stride,), "float32", name="x")
    return [x, compute((size,), lambda i: x[i * stride] + 1.0, name="y")]


def _square(size: int, transposed: bool) -> list[Any]:
    x = placeholder((size, size), "float32", name="x")
    return [x, compute((size, size), lambda i, j: x[j, i] if transposed else x[i, j], name="y")]


def _sums(rows: int, columns: int) -> list[Any]:
    x, k = placeholder((rows, columns), "float32", name="x"), reduce_axis((0, columns), name="k")
    return [x, compute((rows,), lambda i: te_sum(x[i, k], axis=k), name="y")]


def _softmax(first: int, second: int, axis: int) -> list[Any]:
    """Softmax of a matrix along an axis."""
    shape = (first, second)
    x = placeholder(shape, "float32", name="x")

    def along(f: Callable[..., Any], of: Any, name: str) -> Any:
        k = reduce_axis((0, shape[axis]), name=f"k_{name}")
        return compute((shape[1 - axis],), lambda i: f(of[(i, k) if axis else (k, i)], axis=k), name=name)

    most = along(te_max, x, "most")
    powers = compute(shape, lambda i, j: te_exp(x[i, j] - most[i if axis else j]), name="powers")
    total = along(te_sum, powers, "total")
    return [x, compute(shape, lambda i, j: powers[i, j] / total[i if axis else j], name="y")]


def _product(m: int, n: int, k: int, width: int) -> list[Any]:
    """C[m, n] = A[:, :k] * B, where A has rows of `width` elements."""
    a, b = placeholder((m, width), "float32", name="a"), placeholder((k, n), "float32", name="b")
    step = reduce_axis((0, k), name="k")
    return [a, b, compute((m, n), lambda i, j: te_sum(a[i, step] * b[step, j], axis=step), name="c")]
