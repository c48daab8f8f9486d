"""Calibration of the fitted figures of CPUs: a simulated machine, whose times follow the cost function."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tilewright.target import Target
from tilewright.target.cpu_fit import FIT, FITTED
from tilewright.target.machine import CpuMachine, with_figures
from tilewright.tune.cpu_calibrate import Found, Kernel, calibrated_fit, probes_of
from tilewright.tune.space import Sketches
from tilewright.tune.workload import task_of

CALL = 2e-7  # seconds
MEASURED = [name for name, one in FITTED.items() if not one.unmeasured]
CPUS = ["znver4", *(pytest.param(name, marks=pytest.mark.slow) for name in ("haswell", "neoverse-n1"))]


class Simulated:
    """A machine whose kernels take as long as the cost function says with the figures of `truth`, and the call."""

    def __init__(self, truth: CpuMachine) -> None:
        self.truth = truth

    def __call__(self, kernels: Sequence[Kernel]) -> list[float]:
        return [CALL, *(k.predicted(self.truth) + CALL for k in kernels[1:])]


def core(cpu: str) -> Target:
    return Target(f"llvm -mcpu={cpu} -num-cores=1")


@pytest.mark.parametrize("cpu", CPUS)
def test_figures_of_a_simulated_machine_are_found(cpu: str) -> None:
    target = core(cpu)
    table = {name: getattr(target.cpu.fit, name) for name in MEASURED}
    other = {FIT + name: 1.3 * value for name, value in table.items()}
    told = list[Found]()
    found = calibrated_fit(target, Simulated(with_figures(target.cpu, other, "given")), told.append)
    assert sorted(f.figure for f in told) == sorted(MEASURED)
    # Lines of the smaller tiles of CPUs with 16 registers fit the sets of the L1 cache.
    for name, value in found.items():
        assert value == pytest.approx(other[name], rel=0.02), name
    assert len(found) >= len(MEASURED) - 2, {*other} - {*found}


@pytest.mark.slow
def test_an_unchanged_machine_keeps_its_figures() -> None:
    target = core("znver4")
    found = calibrated_fit(target, Simulated(target.cpu), lambda _: None)
    assert found == pytest.approx({FIT + n: getattr(target.cpu.fit, n) for n in MEASURED}, rel=0.01)


@pytest.mark.slow
def test_a_time_that_no_value_explains_changes_nothing() -> None:
    target = core("znver4")

    def interrupted(kernels: Sequence[Kernel]) -> list[float]:
        return [1e-6, *(1e-7 for _ in kernels[1:])]

    def far(kernels: Sequence[Kernel]) -> list[float]:
        return [0.0, 1.0, 1e-6]

    told = list[Found]()
    assert calibrated_fit(target, interrupted, told.append) == {}
    assert calibrated_fit(target, far, told.append) == {}
    assert all(f.value is None for f in told) and len(told) == 2 * len(MEASURED)


@pytest.mark.slow
def test_probes_can_be_scheduled_as_decided() -> None:
    target = core("znver4")
    for probe in probes_of(target):
        for kernel in (probe.shown, probe.plain):
            Sketches(task_of(kernel.program, target)).apply([dict(kernel.decision)])
