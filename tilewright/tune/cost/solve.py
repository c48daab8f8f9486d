"""The value of a figure for which a cost function predicts a measured time."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["solved"]

_NEAR = 0.005  # a prediction is right if it is this close to the measurement
_TURNS = 60


def solved(
    predicted: Callable[[float], float], measured: float, known: float, far: float, depends: float = _NEAR
) -> float | None:
    """The value of a figure, within a factor of `far` of the `known` one, for which the prediction is right.

    None if there is no such value, or if the prediction hardly depends on it: if it changes by less than the fraction
    `depends` when the value changes by a tenth in both directions.
    """
    low, high = known / far, known * far
    rising = predicted(high) > predicted(low)
    for _ in range(_TURNS):
        middle = math.sqrt(low * high)
        if (predicted(middle) < measured) == rising:
            low = middle
        else:
            high = middle
    value = float(f"{math.sqrt(low * high):.3g}")  # further digits are noise
    right = abs(predicted(value) / measured - 1) < _NEAR
    shown = abs(predicted(value * 1.1) / predicted(value / 1.1) - 1) > depends
    return value if right and shown else None
