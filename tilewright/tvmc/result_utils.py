"""Results of classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import TVMCException
from .model import TVMCResult


def get_top_results(result: TVMCResult, max_results: int) -> np.ndarray[Any, Any]:
    """The positions and the values of the greatest numbers in the first row of the first result, greatest first."""
    first = result.get_output("output_0")
    if first.ndim != 2:
        raise TVMCException(f"output_0 has the shape {list(first.shape)}, and rows of classes are expected")
    order = np.argsort(first[0], kind="stable")[::-1][:max_results]
    return np.array([order, first[0][order]])
