"""Counting n-grams: TfIdfVectorizer over integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .build import R, cast, constant, rank, scalar, static_shape
from .context import Node, converter


def _grams(n: Node) -> list[tuple[int, ...]]:
    """The n-grams of the pool, in its order: pairs, triples, … from where the counts say they begin."""
    pool, starts = n.attr("pool_int64s"), list(n.attr("ngram_counts", []))
    if pool is None:
        raise n.refuse("over strings is not supported")
    out: list[tuple[int, ...]] = []
    for i, begin in enumerate(starts):
        end = starts[i + 1] if i + 1 < len(starts) else len(pool)
        size = i + 1
        if not 0 <= begin <= end <= len(pool) or (end - begin) % size:
            raise n.refuse(f"ngram_counts {starts} do not part a pool of {len(pool)}")
        out += [tuple(pool[j : j + size]) for j in range(begin, end, size)]
    return out


def _counted(x: Any, grams: np.ndarray[Any, Any], step: int) -> Any:
    """How often each of several n-grams stands in each row, its items `step` apart: (rows, grams)."""
    length, size = static_shape(x)[1], grams.shape[1]
    room = length - (size - 1) * step
    if room <= 0:
        return None
    hit: Any = None
    for k in range(size):
        part = R.strided_slice(x, [k * step], [k * step + room], axes=[1])
        same = R.equal(R.expand_dims(part, 2), constant(grams[None, None, :, k].astype(np.int64)))
        hit = same if hit is None else R.logical_and(hit, same)
    return R.sum(cast(hit, "float32"), axis=[1])


@converter("TfIdfVectorizer")
def tf_idf_vectorizer(n: Node) -> Any:
    x = cast(n[0], "int64")
    flat = rank(x) == 1
    if flat:
        x = R.expand_dims(x, 0)
    least, most, skip = (int(n.attr(k, 1)) for k in ("min_gram_length", "max_gram_length", "max_skip_count"))
    grams, places = _grams(n), [int(v) for v in n.attr("ngram_indexes", [])]
    if len(grams) != len(places):
        raise n.refuse(f"{len(places)} ngram_indexes for {len(grams)} n-grams")
    width, rows = max(places, default=-1) + 1, static_shape(x)[0]
    total = R.zeros([rows, width], "float32")
    for size in range(least, most + 1):
        chosen = [i for i, g in enumerate(grams) if len(g) == size]
        if not chosen:
            continue
        wanted = np.asarray([grams[i] for i in chosen], np.int64)
        spread = np.zeros((len(chosen), width), np.float32)
        spread[np.arange(len(chosen)), [places[i] for i in chosen]] = 1
        for step in range(1, (skip if size > 1 else 0) + 2):  # a single item has nothing to skip
            found = _counted(x, wanted, step)
            if found is not None:
                total = R.add(total, R.nn.matmul(found, constant(spread)))
    weights = np.ones(width, np.float32)
    for i, w in zip(places, n.attr("weights") or [], strict=False):
        weights[i] = w
    mode = n.attr("mode")
    if mode == "IDF":
        total = cast(R.greater(total, scalar(0, total)), "float32")
    elif mode not in ("TF", "TFIDF"):
        raise n.refuse(f"mode {mode!r} is unknown")
    made = total if mode == "TF" else R.multiply(total, constant(weights))
    return R.squeeze(made, [0]) if flat else made
