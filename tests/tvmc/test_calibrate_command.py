"""`tilewright calibrate`, from the command to the target that uses its figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tilewright import config
from tilewright.__main__ import app
from tilewright.target import Target
from tilewright.target.calibration import Calibration, keep, read
from tilewright.target.measure import PHYSICAL
from tilewright.tvmc import calibrate


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    with config.using(config_dir=tmp_path):
        yield tmp_path / "machines"


def ran(*words: str) -> Any:
    return CliRunner().invoke(app, ["calibrate", *words])


@pytest.mark.slow
def test_the_processor_is_measured_in_seconds(folder: Path) -> None:
    done = ran("--device", "cpu", "--rounds", "1", "--json")
    assert done.exit_code == 0, done.output
    (path,) = folder.iterdir()
    found = read(path)
    assert found.kind == "cpu"
    for name in ("clock", "fma_ports", "fma_latency"):  # unless other programs disturbed the measurement
        low, high = PHYSICAL[name]
        assert low <= found.figures.get(name, low) <= high
        assert name in found.figures or f"{name}: " in done.stderr
    assert json.loads(done.stdout)["calibrations"][str(path)]["figures"] == dict(found.figures)
    assert "clock" in done.stderr and "fit.transposed_lane" in done.stderr, "progress is shown"
    machine = Target("llvm").cpu
    assert machine.source == "calibrated" and machine.clock == found.figures.get("clock", machine.clock)
    fitted = {name: value for name, value in found.figures.items() if name.startswith("fit.")}
    assert {name: getattr(machine.fit, name.removeprefix("fit.")) for name in fitted} == fitted


def test_show_and_remove(folder: Path) -> None:
    assert "there is no calibration in" in ran("--show").stdout
    keep(Calibration("cpu", {"name": "some cpu", "cores": 2}, {"clock": 2.5}))
    keep(Calibration("cuda", {"name": "Some GPU", "arch": "sm_80", "multiprocessors": 108}, {"clock": 1.5}))
    (folder / "cuda-broken.json").write_text("{")
    shown = ran("--show").stdout
    assert "cpu-some-cpu-2.json" in shown and "cuda-some-gpu.json" in shown
    assert "2.5 GHz" in shown and "not used: " in shown
    removed = ran("--remove", "--device", "cuda").stdout
    assert removed.count("removed ") == 2 and [p.name for p in folder.iterdir()] == ["cpu-some-cpu-2.json"]
    assert ran("--remove").exit_code == 0 and "there is no calibration" in ran("--remove").stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--device", "abacus"], "--device is one of all, cpu, cuda, not 'abacus'"),
        (["--show", "--remove"], "--show and --remove are two commands"),
        (["--rounds", "0"], "greater than or equal to 1"),
    ],
)
def test_refused(words: list[str], why: str) -> None:
    done = ran(*words)
    assert done.exit_code in (1, 2) and why in done.stderr


def test_a_gpu_is_measured_by_a_simulated_clock(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that says what it is, and whose kernels take as long as the cost model says."""
    from tilewright.tune.cost.gpu import seconds_of

    class Device:
        exist, device_name, compute_version = True, "NVIDIA A100-SXM4-80GB", "8.0"
        device_type, multi_processor_count, l2_cache_size_bytes, max_clock_rate = 2, 108, 40 << 20, 1410000

    def runner(target: Target, device: Any, rounds: int) -> Any:
        truth = target.with_machine({"mma.latency": 1000.0}).gpu
        return lambda probe: float(seconds_of(probe.counts(truth), truth))

    monkeypatch.setattr(calibrate, "cuda", lambda _: Device())
    monkeypatch.setattr(calibrate, "_runner", runner)
    done = ran("--device", "cuda")
    assert done.exit_code == 0, done.output
    gpu = Target("cuda -arch=sm_80").gpu
    assert gpu.source == "calibrated" and gpu.mma.latency == pytest.approx(1000, rel=0.01)
    assert gpu.bandwidth == pytest.approx(1555, rel=0.01) and "mma.latency" in done.stderr
