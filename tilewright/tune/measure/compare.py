"""Whether results are right."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

_PIECE = 1 << 15  # elements that are compared at a time, so that they stay in a cache


@dataclass(frozen=True, slots=True)
class Tolerance:
    """`relative` is the largest error of an element, as a fraction of its magnitude plus the root mean square of all.
    `mismatches` is the largest fraction of integers that may differ, since they may come from comparisons of floats."""

    relative: float
    mismatches: float

    def as_json(self) -> list[float]:
        return [self.relative, self.mismatches]


def compare(got: Any, want: Any, tolerance: Tolerance) -> str:
    """Why a result is wrong; empty if it is right.

    NaN and infinities are right where the reference has them.
    """
    if got.size == 0:
        return ""
    got, want = np.atleast_1d(got), np.atleast_1d(want)
    if got.dtype.kind in "iub":
        wrong = int(np.count_nonzero(got != want))
        if wrong <= tolerance.mismatches * got.size:
            return ""
        return f"{wrong} of {got.size} elements differ; {_first(got, want, got != want)}"
    if got.dtype.itemsize < 4 or got.dtype.kind not in "f":
        got, want = got.astype(np.float32), want.astype(np.float32)
    with np.errstate(all="ignore"):
        if _close(got, want, tolerance.relative):
            return ""
        bound = np.abs(want)
        scale = math.sqrt(float(np.vdot(want, want).real) / want.size)
        odd = not math.isfinite(scale)
        if odd:
            finite = want[np.isfinite(want)].astype(np.float64)
            scale = math.sqrt(float(np.mean(finite * finite))) if finite.size else 1.0
        bound += scale
        bound *= tolerance.relative
        error = np.subtract(got, want)
        np.abs(error, out=error)
        fine = error <= bound
        if odd:
            fine &= np.isfinite(error)  # the bound of an infinite element is infinite
        if fine.all():
            return ""
        fine |= (got == want) | (np.isnan(got) & np.isnan(want))
        bad = ~fine
        if not bad.any():
            return ""
        nans = int(np.count_nonzero(np.isnan(got) & bad))
        told = f"{int(np.count_nonzero(bad))} of {got.size} elements are wrong"
        return f"{told}{f', {nans} of them NaN' if nans else ''}; {_first(got, want, bad)}"


def _close(got: Any, want: Any, relative: float) -> bool:
    """Whether all elements are within a stricter bound, which is quick to check piece by piece. False says nothing."""
    a, b = got.reshape(-1), want.reshape(-1)
    worst, squares = 0.0, 0.0
    for i in range(0, a.size, _PIECE):
        some = b[i : i + _PIECE]
        error = a[i : i + _PIECE] - some
        squares += float(np.vdot(some, some).real)
        high, low = float(np.max(error)), float(np.min(error))
        if not high - low < math.inf:  # also if there is a NaN
            return False
        worst = max(worst, high, -low)
    return worst <= relative * math.sqrt(squares / a.size)


def _first(got: Any, want: Any, bad: Any) -> str:
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"the first at {list(at)}: {got[at]!s} instead of {want[at]!s}"
