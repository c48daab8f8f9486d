"""Figures that were measured on this machine: how they are kept, who finds them, and what is not used."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tilewright import config
from tilewright.ir import say_once
from tilewright.ir.errors import TargetError
from tilewright.target import Target
from tilewright.target.calibration import Calibration, calibrations, keep, read
from tilewright.target.host import host_cores
from tilewright.target.measure import _implausible

H200 = {"name": "NVIDIA H200", "arch": "sm_90a", "multiprocessors": 132}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(say_once, "_said", set())
    with config.using(config_dir=tmp_path):
        yield tmp_path / "machines"


def cpu(**figures: float) -> Calibration:
    return Calibration("cpu", {"name": Target("llvm").cpu.cpu, "cores": host_cores()}, figures)


# ---------------------------------------------------------------------------- processors
def test_targets_find_the_figures_of_this_machine(folder: Path) -> None:
    assert Target("llvm").cpu.source == "table"
    path = keep(cpu(clock=1.25, l2_latency=17.0))
    assert path.parent == folder and read(path).figures == {"clock": 1.25, "l2_latency": 17.0}
    machine = Target("llvm").cpu
    assert (machine.clock, machine.l2_latency, machine.source) == (1.25, 17.0, "calibrated")
    assert str(Target("llvm")) == "llvm -keys=cpu", "records of the target are still found"
    path.unlink()
    assert Target("llvm").cpu.source == "table"


def test_others_do_not() -> None:
    keep(cpu(clock=1.25))
    assert Target("llvm -mcpu=cortex-a72").cpu.clock != 1.25
    assert Target("llvm -machine=clock:2").cpu.clock == 2.0
    keep(Calibration("cpu", {"name": "another", "cores": 3}, {"clock": 1.5}))
    assert Target("llvm").cpu.clock == 1.25 and len(calibrations("cpu")) == 2


def test_what_a_target_says_holds() -> None:
    bits = Target("llvm").cpu.vector_bits
    keep(cpu(num_cores=99, launch_us=77.0, memory_bandwidth_all=5.0, preferred_vector_bits=bits))
    assert Target("llvm").num_cores == host_cores() and Target("llvm").cpu.launch_us == 77.0
    other = Target(f"llvm -num-cores={host_cores() + 1} -vector-width=128").cpu
    assert other.num_cores == host_cores() + 1 and other.preferred_vector_bits == 128
    assert other.launch_us != 77.0 and other.memory_bandwidth_all != 5.0
    keep(cpu(preferred_vector_bits=2048))
    assert Target("llvm").preferred_vector_bits <= bits


# ---------------------------------------------------------------------------- GPUs
def test_gpus_of_the_architecture_are_the_one_that_was_measured() -> None:
    keep(
        Calibration(
            "cuda", H200, {"clock": 1.7, "mma.latency": 1111.0, "multiprocessors": 132, "bandwidth": 4000.0}
        )
    )
    for text in ("cuda -arch=sm_90a", "cuda -model=h200", "cuda -arch=sm_90a -multi_processor_count=132"):
        gpu = Target(text).gpu
        assert (gpu.clock, gpu.mma.latency, gpu.source) == (1.7, 1111.0, "calibrated"), text
    others = ["-arch=sm_80", "-model=h100", "-arch=sm_90a -multi_processor_count=114"]
    others += ["-arch=sm_90a -machine=clock:1.9"]
    for text in others:
        assert Target(f"cuda {text}").gpu.mma.latency == 1400.0, text
    assert Target("opencl").gpu.source == "table" and Target("cuda").gpu.source == "table"
    assert Target("cuda -arch=sm_90a -memory_bandwidth=3000").gpu.bandwidth == 3000


# ---------------------------------------------------------------------------- damaged files
GOOD: dict[str, Any] = {
    "format": 1, "kind": "cpu", "machine": {"name": "x", "cores": host_cores()}, "figures": {"clock": 2.0},
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "this is not JSON"),
        ("[]", "is not a calibration of format 1"),
        (json.dumps({**GOOD, "format": 2}), "is not a calibration of format 1"),
        (json.dumps({**GOOD, "kind": "abacus"}), "says `kind`, `machine` and `figures`"),
        (json.dumps({**GOOD, "figures": []}), "says `kind`, `machine` and `figures`"),
        (json.dumps({**GOOD, "machine": {}}), "`machine` has no `name`"),
        (json.dumps({**GOOD, "figures": {"clock": "fast"}}), "each of `figures` is a number"),
        (json.dumps({**GOOD, "figures": {"clock": -1}}), "clock takes a number from 0.001 to 20, not -1"),
        (json.dumps({**GOOD, "figures": {"clok": 1}}), "'clok' is not a figure of a processor"),
    ],
)
def test_a_damaged_file_is_named_once_and_not_used(text: str, why: str) -> None:
    path = cpu().path
    path.parent.mkdir(parents=True)
    path.write_text(text.replace('"x"', json.dumps(Target("llvm").cpu.cpu)))
    with pytest.warns(UserWarning) as seen:
        assert Target("llvm").cpu.source == "table"
    (said,) = seen
    assert str(path) in str(said.message) and why in str(said.message)
    assert "`tilewright calibrate --remove`" in str(said.message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Target("llvm").cpu.source == "table"


def test_figures_of_a_gpu_that_cannot_be_are_not_used() -> None:
    path = keep(Calibration("cuda", H200, {"clock": 1e9}))
    with pytest.warns(UserWarning, match=f"{path}: clock takes a number from"):
        assert Target("cuda -arch=sm_90a").gpu.source == "table"


def test_a_file_that_is_not_there_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"none\.json cannot be read: No such file"):
        read(tmp_path / "none.json")


def test_figures_that_cannot_be_are_left_out() -> None:
    good = {"l1_latency": 4.0, "l2_latency": 14.0, "l3_latency": 50.0, "memory_latency": 90.0, "clock": 3.0}
    assert _implausible(good) == []
    assert _implausible({**good, "l3_latency": 1860.0}) == ["l3_latency"]
    assert _implausible({**good, "l1_latency": 15.0}) == ["l1_latency"]
    assert _implausible({"clock": 3.0}) == []
