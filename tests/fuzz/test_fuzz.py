"""A few attempts of each fuzzer: enough to see that it works, and what breaks at once. `make fuzz` makes more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import how_many
import pytest

from fuzz import fuzzers


@pytest.mark.long
@pytest.mark.slow
def test_a_few_attempts_of_each():
    """In processes of their own, which one process starts that has loaded them all: what an attempt breaks is counted,
    and does not end the tests."""
    command = [sys.executable, "-m", "fuzz", "--short", str(how_many.share), "--workers", "1", "--seed", "0"]
    ran = subprocess.run(
        command, cwd=Path(__file__).parent.parent, capture_output=True, text=True, env=os.environ
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    made = {line.split()[0]: line.split()[1] for line in ran.stdout.splitlines() if " attempts in " in line}
    assert made == {name: str(-(-fuzzer.short // how_many.share)) for name, fuzzer in fuzzers().items()}
