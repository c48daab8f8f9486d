"""`tilewright doctor`, and the facts that `support.describe()` prints too."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tilewright as tvm
from tilewright import cpus, support
from tilewright.tvmc import doctor
from tilewright.tvmc.app import app


def call(*args: str) -> Any:
    return CliRunner().invoke(app, ["doctor", *args])


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A self-test that succeeds at once."""
    monkeypatch.setattr(doctor, "_tested", lambda known: [doctor.Check("a kernel", True, 0.1)])


@pytest.mark.slow
def test_a_healthy_installation() -> None:
    result = call("--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["healthy"] and all(c["ok"] for c in told["self_test"])
    assert [c["name"] for c in told["self_test"]][:2] == ["a kernel for the CPU", "a graph for the CPU"]
    assert told["cpu"]["threads"] == tvm.runtime.num_threads()
    assert told["tilewright"]["version"] == tvm.__version__
    assert told["llvm"]["version"] and told["packages"]["numpy"]


def test_as_text(quick: None) -> None:
    result = call()
    assert result.exit_code == 0
    names = {line.split("  ")[0] for line in result.stdout.splitlines()}
    assert {
        "tilewright",
        "Python",
        "CPU",
        "threads",
        "LLVM",
        "C compiler",
        "cuda",
        "opencl",
        "cache",
    } <= names
    assert "self-test    a kernel: right, 0.10 s" in result.stdout
    assert "self-test" not in call("--skip-test").stdout


def test_a_failed_test_is_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = doctor.Check("a kernel", False, 0.1, "ArithmeticError: the result differs from NumPy's by 3")
    monkeypatch.setattr(doctor, "_tested", lambda known: [failed])
    result = call()
    assert result.exit_code == 1
    assert (
        "self-test    a kernel: FAILED: ArithmeticError: the result differs from NumPy's by 3"
        in result.stdout
    )
    assert json.loads(call("--json").stdout)["healthy"] is False


@pytest.mark.slow
def test_a_crash_is_an_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Machine code that this processor does not know ends the process."""
    script = tmp_path / "python"
    script.write_text(
        '#!/bin/sh\necho \'{"name": "a kernel for the CPU", "ok": true, "seconds": 1}\'\nkill -ILL $$\n'
    )
    script.chmod(0o755)
    monkeypatch.setattr(doctor.sys, "executable", str(script))
    first, second = doctor._tested({"devices": {}})
    assert first.ok
    assert second == doctor.Check("a graph for the CPU", False, 0.0, "the process was ended by SIGILL")


def test_the_parts_of_the_self_test(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong() -> None:
        doctor._same(1.0, 2.0 * doctor._SIZE)

    monkeypatch.setattr(doctor, "_run_graph", wrong)
    doctor.test_here(["graph"])
    told = json.loads(capsys.readouterr().out)
    assert not told["ok"] and told["error"].startswith(
        "ArithmeticError: the result differs from NumPy's by 127"
    )


def test_threads_and_quota(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEWRIGHT_NUM_THREADS", raising=False)
    monkeypatch.setattr(cpus, "affinity", lambda: list(range(8)))
    monkeypatch.setattr(cpus, "quota", lambda: 1.5)
    text = call().stdout
    assert "8 in the affinity of the process, a quota of 1.5\n" in text
    assert "threads      2, as the quota of the control groups allows\n" in text
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "8")
    text = call().stdout
    assert "threads      8, from TILEWRIGHT_NUM_THREADS\n" in text
    assert "CPU time: 8 threads share a quota of 1.5 CPUs; unset TILEWRIGHT_NUM_THREADS" in text


def test_what_is_missing() -> None:
    known = support.facts()
    known["packages"] = dict.fromkeys(known["packages"])
    known["c_compiler"] = {"error": "there is none"}
    known["llvm"] = {"error": "No module named 'llvmlite'"}
    known["devices"] = {"cuda": {"found": [], "error": "no driver"}, "opencl": {"found": [], "error": "none"}}
    known["caches"] = [{"path": "/cache", "bytes": 0, "files": 0, "writable": False, "limit": 1}]
    hints = dict(doctor.advice(known))
    assert hints["LLVM"].startswith("pip install llvmlite")
    assert "pip install ziglang" in hints["C compiler"]
    assert hints["models of ONNX"] == "pip install 'tilewright[onnx]'"
    assert "xgboost-cpu" in hints["a learned cost model for tuning"]
    assert hints["cuda devices"].startswith("pip install 'tilewright[cuda]'")
    assert hints["a writable folder for /cache"] == "name one in TILEWRIGHT_CACHE_DIR"


def test_folders(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_bytes(b"x" * 1000)
    assert support._folder("x", tmp_path / "a") == {
        "name": "x", "path": str(tmp_path / "a"), "bytes": 1000, "files": 1, "writable": True,
    }  # fmt: skip
    missing = support._folder("x", tmp_path / "nothing" / "yet")
    assert missing["bytes"] == 0 and missing["writable"] == os.access(tmp_path, os.W_OK)
