"""Activations that several frameworks have."""

from __future__ import annotations

import math
from typing import Any

from .build import R, scalar


def gelu_of(x: Any, approximate: str = "none") -> Any:
    """x·Φ(x), exactly by erf or by tanh."""
    half = R.multiply(scalar(0.5, x), x)
    if approximate == "tanh":
        cube = R.multiply(scalar(0.044715, x), R.multiply(x, R.multiply(x, x)))
        inner = R.multiply(scalar(math.sqrt(2 / math.pi), x), R.add(x, cube))
        return R.multiply(half, R.add(scalar(1, x), R.tanh(inner)))
    return R.multiply(half, R.add(scalar(1, x), R.erf(R.multiply(x, scalar(math.sqrt(0.5), x)))))
