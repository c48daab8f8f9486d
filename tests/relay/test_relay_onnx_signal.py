"""Transforms of signals beside onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
from onnx_beside import check


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("shape", [(2, 50), (2, 50, 1)])
def test_stft_of_real_signals(shape: tuple[int, ...], onesided: int) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    inputs = {
        "x": x,
        "step": np.int64(8),
        "window": np.hanning(16).astype(np.float32),
        "length": np.int64(16),
    }
    check("STFT", "", inputs, {"onesided": onesided}, constants=("step", "window", "length"), tol=1e-4)
