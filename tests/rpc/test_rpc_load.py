"""Many connections, clients that die, a tracker that is killed: nothing is lost. See `load.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def loaded(*options: str) -> str:
    command = [sys.executable, str(Path(__file__).with_name("load.py")), *options]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.slow
def test_nothing_is_lost_in_some_seconds() -> None:
    out = loaded(
        "--minutes", "0.15", "--connections", "200", "--clients", "10", "--servers", "2",
        "--restart", "4", "--pause", "1",
    )  # fmt: skip
    assert "2  servers that serve at the end" in out and "trackers killed and started again" in out


@pytest.mark.heavy
def test_nothing_is_lost_in_ten_minutes() -> None:
    assert "4  servers that serve at the end" in loaded("--minutes", "10")
