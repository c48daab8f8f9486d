"""Evolution over arrays of candidates: the fitter have more children, which differ in a decision or mix two parents."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..space import Space
from .cost_models import CostModel

Array = Any


def unique_rows(rows: Array) -> Array:
    """The rows without repetitions, in the order of their first occurrence."""
    if len(rows) < 2 or not rows.shape[1]:
        return rows[:1]
    _, first = np.unique(rows, axis=0, return_index=True)
    return rows[np.sort(first)]


def evolve(
    space: Space,
    model: CostModel,
    rng: Any,
    begin: Array,
    population: int,
    generations: int,
    avoid: set[bytes] = frozenset(),  # type: ignore[assignment]
) -> Array:
    """The fittest candidates by a model, after some generations from `begin` and from a random sample.

    Candidates in `avoid` may have children, but are not in the result.
    """
    drawn = space.sample(rng, 8 * population)
    # the best of the sample by the analytical model: most of a uniform sample is hopeless
    drawn = drawn[np.argsort(space.seconds(drawn), kind="stable")][: 2 * population]
    alive = unique_rows(np.concatenate([begin, drawn, space.sample(rng, population)]))
    scores = model.predict(space.features(alive))
    for _ in range(generations):
        order = np.argsort(scores, kind="stable")[:population]
        alive, scores = alive[order], scores[order]
        chances = 1.0 / (1.0 + np.arange(len(alive)))
        chances /= chances.sum()
        one = alive[rng.choice(len(alive), 2 * population, p=chances)]
        other = alive[rng.choice(len(alive), 2 * population, p=chances)]
        crossed = np.where(rng.random((len(one), 1)) < 0.3, space.cross(rng, one, other), one)
        children = unique_rows(np.concatenate([alive, space.mutate(rng, crossed)]))
        alive, scores = children, model.predict(space.features(children))
    kept = np.array([row.tobytes() not in avoid for row in alive], bool)
    alive, scores = alive[kept], scores[kept]
    return alive[np.argsort(scores, kind="stable")[: 4 * population]]
