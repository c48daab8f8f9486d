"""Histograms of magnitudes, and the thresholds that calibration reads off them."""

from __future__ import annotations

from math import frexp
from typing import Any, Final

import numpy as np

from ...ir.errors import TVMError

BINS: Final = 8192
PERCENTILE: Final = 0.99999
_STRIDE: Final = 32  # bins between the thresholds that are compared


class Histogram:
    """The magnitudes of all values so far, in bins over [0, limit), where the limit is a power of two.

    A greater value doubles the limit and merges pairs of bins, so that one run over the data suffices.
    """

    def __init__(self) -> None:
        self.counts = np.zeros(BINS, np.int64)
        self.limit = 0.0  # nothing but zeros so far
        self.zeros = 0

    def add(self, values: Any) -> None:
        """Count the values of an array."""
        sizes = np.abs(np.asarray(values, np.float64)).reshape(-1)
        if not np.isfinite(sizes).all():
            raise TVMError(
                "quantize: the float model computes an infinity or NaN for the dataset; repair the data or the weights"
            )
        self.zeros += int((sizes == 0).sum())
        sizes = sizes[sizes != 0]
        if not sizes.size:
            return
        wanted = 2.0 ** frexp(float(sizes.max()))[1]  # the least power of two above all values
        self.limit = self.limit or wanted
        while self.limit < wanted:
            merged = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts = np.concatenate([merged, np.zeros_like(merged)])
            self.limit *= 2
        self.counts += np.bincount((sizes * (BINS / self.limit)).astype(np.int64), minlength=BINS)

    @property
    def width(self) -> float:
        return self.limit / BINS

    def percentile(self, share: float = PERCENTILE) -> float:
        """The magnitude that a share of all values does not exceed, to the width of a bin; 1 if all are zero."""
        if not self.limit:
            return 1.0
        below = self.zeros + np.cumsum(self.counts)
        return (int(np.searchsorted(below, share * below[-1])) + 1) * self.width

    def least_divergence(self, levels: int) -> float:
        """The threshold whose quantized values are distributed most like the original ones.

        For a threshold, the reference is the histogram with greater values moved into its last bin. The candidate has
        the same counts in `levels` groups of bins, spread evenly over the bins of a group that are not empty. The
        threshold with the least Kullback-Leibler divergence of the two wins.
        """
        if not self.limit:
            return 1.0
        last = int(np.flatnonzero(self.counts)[-1]) + 1
        counts = self.counts.astype(np.float64)
        best, threshold = np.inf, last
        for end in (*range(levels, last, _STRIDE), max(last, levels)):
            found = _divergence(counts, end, levels)
            if found <= best:
                best, threshold = found, end
        return threshold * self.width


def _divergence(counts: Any, end: int, levels: int) -> float:
    """The Kullback-Leibler divergence between the first bins and their quantized form."""
    inside = counts[:end]
    reference = inside.copy()
    reference[-1] += counts[end:].sum()
    group = np.arange(end) * levels // end
    filled = inside > 0
    totals = np.bincount(group, inside, levels)
    sizes = np.bincount(group, filled, levels)
    candidate = np.where(filled, totals[group] / np.maximum(sizes[group], 1), 0.0)
    reference, candidate = (p / max(p.sum(), 1.0) for p in (reference, candidate))
    # A bin that only the reference has is unlikely, not impossible.
    support = reference > 0
    ratio = reference[support] / np.maximum(candidate[support], 1e-9)
    return float((reference[support] * np.log(ratio)).sum())
