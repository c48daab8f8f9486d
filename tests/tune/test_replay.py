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

from tilewright.tune.cost import cpu
from tilewright.tune.rules.gpu.simt import Simt

SCRIPT = Path(replay.__file__)
TARGETS = ["znver4", "sm_80"]


def written(path: Path, only: str = "bench/matmul 1*", **more: Any) -> replay.Recording:
    """A recording of this process."""
    options = {"targets": TARGETS, "only": only, "sample": 2, "workers": 1, "slowest": 0, "commit": path.stem}
    replay_record.write(path, {**options, **more})
    return replay.read(path)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> replay.Recording:
    return written(tmp_path_factory.mktemp("replay") / "old")


def best_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the scheduler take the first row of each table."""
    monkeypatch.setattr(cpu, "best_row", lambda table, machine, figures: 0)


@pytest.mark.slow
def test_a_recording_holds_what_becomes_of_a_program(old: replay.Recording) -> None:
    assert len(old.programs) == 2 and len(old.found()) == 4
    for found in old.found().values():
        assert set(found) == {"input", "trace", "explain", "us", "program", "lowered", "source"}
        assert "sch.split" in found["trace"] and found["us"] > 0
        assert found["explain"]["stages"]


@pytest.mark.slow
def test_nothing_changed(old: replay.Recording, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not replay.report(old, written(tmp_path / "new"), 10)
    assert capsys.readouterr().out == "old -> new: 0 of 4 changed\n"


@pytest.mark.slow
def test_a_changed_decision_is_reported(
    old: replay.Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    best_of_few(monkeypatch)
    monkeypatch.setattr(Simt, "match", lambda self, stage, target: 1 / 0)
    new = written(tmp_path / "new")
    by_target = {
        t: [kinds for (_, of), kinds in replay.changes(old, new).items() if of == t] for t in TARGETS
    }
    everything = ["trace", "explain", "time", "program", "lowered", "source"]
    assert by_target == {"znver4": [everything] * 2, "sm_80": [[*everything, "error"]] * 2}
    assert replay.report(old, new, 10)
    said = capsys.readouterr().out
    assert said.count("    no error -> schedule: ZeroDivisionError: division by zero\n") == 2
    assert "old -> new: 4 of 4 changed" in said and "trace, explain, time, program, lowered, source  " in said


@pytest.mark.slow
def test_traces_are_shown_line_by_line(
    old: replay.Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    best_of_few(monkeypatch)
    name = min(old.programs)
    new = written(tmp_path / "new", name, targets=["znver4"])
    capsys.readouterr()
    replay.show(old, new, name, "znver4")
    said = capsys.readouterr().out
    assert "--- trace old\n+++ trace new" in said and "-  sch.parallel(" in said
    with pytest.raises(
        SystemExit, match="neither recording has 'bench/matmul' for 'znver4'; there are bench/"
    ):
        replay.show(old, new, "bench/matmul", "znver4")


@pytest.mark.slow
def test_what_one_recording_has_and_another_has_not(old: replay.Recording) -> None:
    name = min(old.programs)
    fewer = replay.Recording(old.head, {k: p for k, p in old.programs.items() if k != name})
    keys = [(name, target) for target in sorted(TARGETS)]
    assert replay.changes(old, fewer) == {key: ["gone"] for key in keys}
    assert replay.changes(fewer, old) == {key: ["added"] for key in keys}
    options = replay.Options(("sm_80",), "*", 1)
    assert replay.narrowed(old, options).found().keys() == {(replay.sampled(old.programs, 1)[0], "sm_80")}


@pytest.mark.long
@pytest.mark.slow
def test_recordings_do_not_depend_on_process_or_hashes(tmp_path: Path) -> None:
    """Ten operators, by one process and by two, with other hashes and another environment."""
    made = []
    for workers, seed in ((1, "1"), (2, "2")):
        path = tmp_path / f"{workers}"
        command = [sys.executable, str(SCRIPT), "record", str(path), "--sample", "10", "--only", "topi/*"]
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
