"""`scripts/replay.py`: a recording equals itself wherever it is made, and a decision that changes is reported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import replay
import replay_record

from tilewright.tune import auto, gpu

SCRIPT = Path(replay.__file__)
TARGETS = ["znver4", "sm_80"]


def written(path: Path, only: str = "bench/matmul 1*", **more: Any) -> replay.Recording:
    """A recording of this process."""
    options = {"targets": TARGETS, "only": only, "sample": 3, "workers": 1, "slowest": 0, "commit": path.stem}
    replay_record.write(path, {**options, **more})
    return replay.read(path)


def test_a_recording_holds_what_becomes_of_a_program(tmp_path: Path) -> None:
    made = written(tmp_path / "one")
    assert len(made.programs) == 3 and len(made.found()) == 6
    for found in made.found().values():
        assert set(found) == {"input", "trace", "explain", "us", "program", "lowered", "source"}
        assert "sch.split" in found["trace"] and found["us"] > 0
        assert found["explain"]["stages"]


def test_a_changed_decision_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = written(tmp_path / "old")
    assert replay.changes(old, written(tmp_path / "same")) == {}
    assert not replay.report(old, replay.read(tmp_path / "same"), 10)
    monkeypatch.setattr(
        auto, "best_of", lambda spaces, machine, cores, best=auto.best_of: best(spaces, machine, 1)
    )
    monkeypatch.setattr(gpu.GpuFunction, "tile", lambda self, f: 1 / 0)
    new = written(tmp_path / "new")
    changed = replay.changes(old, new)
    everything = ["trace", "explain", "program", "lowered", "source"]
    on_gpus = [kinds for (_, target), kinds in changed.items() if target == "sm_80"]
    assert on_gpus == [["trace", "explain", "time", "program", "lowered", "source", "error"]] * 3
    on_cpus = [kinds for (_, target), kinds in changed.items() if target == "znver4"]
    assert on_cpus and all(set(kinds) & set(everything) for kinds in on_cpus)
    capsys.readouterr()
    assert replay.report(old, new, 10)
    said = capsys.readouterr().out
    assert "no error -> schedule: ZeroDivisionError: division by zero" in said and "old -> new" in said


def test_traces_are_shown_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = written(tmp_path / "old", "bench/matmul 16x768x3072", targets=["znver4"])
    monkeypatch.setattr(
        auto, "best_of", lambda spaces, machine, cores, best=auto.best_of: best(spaces[:1], machine, 1)
    )
    new = written(tmp_path / "new", "bench/matmul 16x768x3072", targets=["znver4"])
    capsys.readouterr()
    replay.show(old, new, "bench/matmul 16x768x3072", "znver4")
    said = capsys.readouterr().out
    assert "--- trace old" in said and "-  sch.parallel(" in said
    with pytest.raises(
        SystemExit, match="neither recording has 'bench/matmul' for 'znver4'; there are bench/matmul 16"
    ):
        replay.show(old, new, "bench/matmul", "znver4")


def test_what_differs_in_one_recording_only(tmp_path: Path) -> None:
    both = written(tmp_path / "both", targets=["znver4"], sample=2)
    name = next(iter(both.programs))
    fewer = replay.Recording(both.head, {k: p for k, p in both.programs.items() if k != name})
    assert replay.changes(both, fewer) == {(name, "znver4"): ["gone"]}
    assert replay.changes(fewer, both) == {(name, "znver4"): ["added"]}


@pytest.mark.slow
def test_recordings_do_not_depend_on_process_or_hashes(tmp_path: Path) -> None:
    """Ten programs of all kinds, by one process and by two, with other hashes and another environment."""
    made = []
    for workers, seed in ((1, "1"), (2, "2")):
        path = tmp_path / f"{workers}"
        command = [sys.executable, str(SCRIPT), "record", str(path), "--sample", "10"]
        command += ["--targets", "haswell,sm_90a", "--workers", str(workers)]
        environment = {
            **replay.os.environ,
            "PYTHONHASHSEED": seed,
            "TILEWRIGHT_NUM_THREADS": f"{workers + 2}",
        }
        subprocess.run(command, check=True, env=environment, capture_output=True)
        made.append(path.read_bytes())
    assert made[0] == made[1]


def test_a_file_that_is_no_recording_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_text("nothing")
    with pytest.raises(SystemExit, match=r"cannot be read as a recording.*`record` writes one"):
        replay.read(path)
