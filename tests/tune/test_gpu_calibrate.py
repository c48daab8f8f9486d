"""Calibration of GPUs: a simulated device, whose times follow the cost model with other figures."""

from __future__ import annotations

import pytest

from tilewright.target import Target
from tilewright.target.gpu_machine import GpuMachine, gpu_figures, with_gpu_figures
from tilewright.tune.cost.gpu import bound_of, seconds_of
from tilewright.tune.gpu_calibrate import Found, Probe, calibrated_figures, probes_of, solved
from tilewright.tune.space import Sketches
from tilewright.tune.workload import task_of

FACTORS = {
    "launch_seconds": 1.3,
    "bandwidth": 1.2,
    "launch": 0.8,
    "latency": 0.9,
    "product": 1.15,
    "rate": 0.9,
}
ARCHS = ["sm_75", "sm_80", "sm_90a", "sm_100a"]


class Simulated:
    """A GPU whose kernels take as long as the cost model says with the figures of `truth`."""

    def __init__(self, truth: GpuMachine) -> None:
        self.truth, self.ran = truth, list[str]()

    def __call__(self, probe: Probe) -> float:
        self.ran.append(probe.figure)
        return float(seconds_of(probe.counts(self.truth), self.truth))


@pytest.mark.parametrize("arch", ARCHS)
def test_figures_of_a_simulated_device_are_found(arch: str) -> None:
    target = Target(f"cuda -arch={arch}")
    table = gpu_figures(target.gpu)
    shown = [p.figure for p in probes_of(target)]
    other = {name: table[name] * FACTORS[name.split(".")[-1]] for name in shown}
    device, told = Simulated(with_gpu_figures(target.gpu, other, "given")), list[Found]()
    found = calibrated_figures(target, device, told.append)
    assert device.ran == shown == [f.figure for f in told]
    # Without asynchronous copies, the products of the T4 wait for memory: their arithmetic does not show.
    hidden = {"mma.product"} if arch == "sm_75" else set()
    assert {*shown} - {*found} == hidden
    for name in {*shown} - hidden:
        assert found[name] == pytest.approx(other[name], rel=0.02), name


def test_an_unchanged_device_keeps_its_figures() -> None:
    target = Target("cuda -arch=sm_90a")
    found = calibrated_figures(target, Simulated(target.gpu), lambda _: None)
    assert found == pytest.approx({name: gpu_figures(target.gpu)[name] for name in found}, rel=2e-3)
    assert found["tma_simt.tiles.64x64.slower"] == pytest.approx(0.6, rel=2e-3)


@pytest.mark.parametrize("arch", ARCHS)
def test_probes_are_bound_by_what_they_show(arch: str) -> None:
    target = Target(f"cuda -arch={arch}")
    bounds = {p.figure: bound_of(p.counts(target.gpu), target.gpu) for p in probes_of(target)}
    assert bounds["bandwidth"] == "DRAM" and bounds["mma.latency"] == "latency of copies"
    for figure, bound in bounds.items():
        if figure.endswith(".rate") or figure == "mma.product":
            assert bound == ("arithmetic" if arch != "sm_75" else "latency of copies"), figure
        if figure.endswith("kernel.launch"):
            assert bound == "launch", figure


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
def test_probes_can_be_scheduled_as_decided(arch: str) -> None:
    target = Target(f"cuda -arch={arch}")
    for probe in probes_of(target):
        Sketches(task_of(probe.program, target)).apply(probe.decisions)


def test_a_time_that_no_value_explains_changes_nothing() -> None:
    target = Target("cuda -arch=sm_80")
    probe = next(p for p in probes_of(target) if p.figure == "mma.product")
    assert solved(probe, target.gpu, 10.0).value is None
    assert solved(probe, target.gpu, 1e-7).value is None
