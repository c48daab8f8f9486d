"""Functions of quantised operators in NumPy, over real numbers, under their classic names."""

from __future__ import annotations

from typing import Any

import numpy as np


def hardswish_func(x: Any) -> Any:
    """`x * clip(x + 3, 0, 6) / 6`."""
    return x * np.clip(x + 3.0, 0.0, 6.0) / 6.0
