"""A second witness of what the interpreter says of barriers: Oclgrind, which runs OpenCL kernels thread by thread."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "gpu" / "witness.py"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("oclgrind", "opencl"),
]


def watched(tmp_path: Path, *words: str) -> str:
    """What Oclgrind finds in kernels: races, and accesses outside of arrays."""
    log = tmp_path / "log.txt"
    done = subprocess.run(
        [
            "oclgrind",
            "--data-races",
            "--max-errors",
            "10",
            "--log",
            str(log),
            sys.executable,
            str(SCRIPT),
            *words,
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "Oclgrind" in done.stdout, done.stdout + done.stderr
    return log.read_text()


def test_kernels_have_no_races(tmp_path: Path) -> None:
    assert watched(tmp_path, "kernels", "8") == ""


def test_a_lost_barrier_is_seen(tmp_path: Path) -> None:
    assert "data race at local memory" in watched(tmp_path, "without", "0")
