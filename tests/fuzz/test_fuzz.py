"""A few attempts of each fuzzer: enough to see that it works, and what breaks at once. `make fuzz` makes more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz import fuzzers


@pytest.mark.slow
@pytest.mark.parametrize("name", list(fuzzers()))
def test_a_few_attempts(name):
    """In a process of its own: what an attempt breaks is counted, and does not end the tests."""
    short = str(fuzzers()[name].short)
    command = [sys.executable, "-m", "fuzz", name, "--attempts", short, "--workers", "1", "--seed", "0"]
    ran = subprocess.run(
        command, cwd=Path(__file__).parent.parent, capture_output=True, text=True, env=os.environ
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f" {short} attempts" in ran.stdout
