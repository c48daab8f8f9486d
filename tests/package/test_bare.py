"""With NumPy, ml_dtypes and llvmlite alone: everything can be imported, and says what is missing when it is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "gpu" / "bare.py"


@pytest.mark.slow
def test_what_is_missing_is_told(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for text in (
        "lines of CUDA",
        "compiling CUDA needs NVRTC: ",
        "device cuda(0) is not available in this process: ",
        "pip install 'tilewright[cuda]'",
        "the learned cost model needs xgboost: pip install 'tilewright[tune]'",
        "the analytical model is used",
    ):
        assert text in done.stdout, done.stdout
