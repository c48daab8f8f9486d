"""The quality of a ranking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..utils import get_rank


def max_curve(trial_scores: Sequence[float]) -> Any:
    """The best score so far, for each trial."""
    return np.maximum.accumulate(np.asarray(trial_scores, float))


def mean_curve(trial_scores: Sequence[float]) -> Any:
    """The mean score so far, for each trial."""
    scores = np.asarray(trial_scores, float)
    return np.cumsum(scores) / np.arange(1, len(scores) + 1)


def recall_curve(trial_ranks: Sequence[int], top: int | None = None) -> Any:
    """The fraction of the best n among the first n trials, for each n; or of the best `top`, after each trial."""
    ranks = np.asarray(trial_ranks)
    if top is None:
        return np.array([(ranks[:n] < n).mean() for n in range(1, len(ranks) + 1)])
    return np.cumsum(ranks < top) / top


def average_recall(preds: Sequence[float], labels: Sequence[float], N: int) -> float:
    """The mean recall of the best 1 to N, if configurations were tried in the order of the predictions."""
    order = np.argsort(-np.asarray(preds, float), kind="stable")
    ranks = get_rank([float(x) for x in np.asarray(labels, float)[order]])
    return float(np.mean(recall_curve(ranks)[:N]))
