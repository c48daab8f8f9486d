"""Random indexing, products and convolutions of JAX: many equations in one function, compiled, held against JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax_cases  # noqa: E402
from jax import lax  # noqa: E402

from tilewright import relay  # noqa: E402

Row = tuple[str, Callable[..., Any], list[Any]]


def _parts(rng: Any) -> tuple[tuple[int, ...], list[int], list[int], list[int], list[int], list[int]]:
    """(shape, batching dimensions, those of the indices, mapped dimensions, sizes of the indices, collapsed ones)."""
    ndim = int(rng.integers(1, 5))
    shape = tuple(int(v) for v in rng.integers(2, 5, ndim))
    dims = [int(d) for d in rng.permutation(ndim)]
    batches = int(rng.integers(0, min(2, ndim)))
    batching, rest = sorted(dims[:batches]), dims[batches:]
    sizes = [int(v) for v in rng.integers(1, 4, int(rng.integers(batches, 4)))]
    ours = [int(v) for v in rng.permutation(len(sizes))[:batches]]
    for d, i in zip(batching, ours, strict=True):
        sizes[i] = shape[d]
    collapsed = sorted(d for d in rest if rng.random() < 0.4)
    return shape, batching, ours, rest[: int(rng.integers(1, len(rest) + 1))], sizes, collapsed


def _mode(rng: Any) -> Any:
    return rng.choice([lax.GatherScatterMode.CLIP, lax.GatherScatterMode.FILL_OR_DROP])


def _gather(rng: Any) -> Row:
    shape, batching, ours, mapped, sizes, collapsed = _parts(rng)
    ones = {*batching, *collapsed}
    windows = tuple(1 if d in ones else int(rng.integers(1, n + 1)) for d, n in enumerate(shape))
    kept = len(shape) - len(ones)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(sorted(int(v) for v in rng.permutation(len(sizes) + kept)[:kept])),
        collapsed_slice_dims=tuple(collapsed),
        start_index_map=tuple(mapped),
        operand_batching_dims=tuple(batching),
        start_indices_batching_dims=tuple(ours),
    )
    index, mode = rng.integers(-2, 6, (*sizes, len(mapped))).astype("int32"), _mode(rng)
    text = f"gather {shape} {numbers} {windows} {mode}"
    x = rng.standard_normal(shape).astype("float32")
    if rng.random() < 0.3:
        return f"{text} known", lambda a: lax.gather(a, index, numbers, windows, mode=mode), [x]
    return text, lambda a, i: lax.gather(a, i, numbers, windows, mode=mode), [x, index]


def _scatter(rng: Any) -> Row:
    shape, batching, ours, mapped, sizes, collapsed = _parts(rng)
    kept = [d for d in range(len(shape)) if d not in collapsed and d not in batching]
    spots = sorted(int(v) for v in rng.permutation(len(sizes) + len(kept))[: len(kept)])
    windows = {s: int(rng.integers(1, shape[d] + 1)) for s, d in zip(spots, kept, strict=True)}
    left = iter(sizes)
    update = [windows[d] if d in windows else next(left) for d in range(len(sizes) + len(kept))]
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(spots),
        inserted_window_dims=tuple(collapsed),
        scatter_dims_to_operand_dims=tuple(mapped),
        operand_batching_dims=tuple(batching),
        scatter_indices_batching_dims=tuple(ours),
    )
    index, mode = rng.integers(-2, 6, (*sizes, len(mapped))).astype("int32"), _mode(rng)
    work = rng.choice([lax.scatter, lax.scatter_add, lax.scatter_min, lax.scatter_max, lax.scatter_mul])
    # Of several elements for one place JAX takes any: equal ones.
    given = np.full(update, 7.0) if work is lax.scatter else rng.standard_normal(update)
    arrays = [rng.standard_normal(shape).astype("float32"), given.astype("float32")]
    text = f"{work.__name__} {shape} {numbers} {update} {mode}"
    if rng.random() < 0.3:
        return f"{text} known", lambda a, u: work(a, index, u, numbers, mode=mode), arrays
    return text, lambda a, u, i: work(a, i, u, numbers, mode=mode), [*arrays, index]


def _dot(rng: Any) -> Row:
    batch, summed, left, right = (
        [int(v) for v in rng.integers(1, 4, int(rng.integers(0, 3)))] for _ in range(4)
    )
    operands, numbers = [], []
    for own in (left, right):
        order = rng.permutation(len(batch) + len(summed) + len(own))
        sizes = [*batch, *summed, *own]
        operands.append(rng.standard_normal([sizes[k] for k in order]).astype("float32"))
        place = [int(v) for v in np.argsort(order)]
        numbers.append((place[len(batch) : len(batch) + len(summed)], place[: len(batch)]))
    dims = tuple(zip(*numbers, strict=True))
    return (
        f"dot {operands[0].shape} {operands[1].shape} {dims}",
        lambda a, b: lax.dot_general(a, b, dims),
        operands,
    )


def _conv(rng: Any) -> Row:
    dims = int(rng.integers(1, 3))
    groups = int(rng.choice([1, 1, 2]))
    inputs, outputs = groups * int(rng.integers(1, 3)), groups * int(rng.integers(1, 3))
    by_batch = groups > 1 and rng.random() < 0.3
    specs = [tuple(int(v) for v in rng.permutation(dims + 2)) for _ in range(3)]
    shapes = [
        (2, inputs, *rng.integers(4, 7, dims)),
        (outputs, inputs if by_batch else inputs // groups, *rng.integers(1, 4, dims)),
    ]
    arrays = []
    for spec, shape in zip(specs, shapes, strict=False):
        laid = [0] * (dims + 2)
        for place, size in zip(spec, shape, strict=True):
            laid[place] = int(size)
        arrays.append(rng.standard_normal(laid).astype("float32"))
    how = {
        "window_strides": [int(v) for v in rng.integers(1, 3, dims)],
        "padding": [tuple(int(v) for v in rng.integers(-1, 4, 2)) for _ in range(dims)],
        "lhs_dilation": [int(v) for v in rng.choice([1, 1, 2, 3], dims)],
        "rhs_dilation": [int(v) for v in rng.integers(1, 3, dims)],
        "dimension_numbers": lax.ConvDimensionNumbers(*specs),
        "batch_group_count" if by_batch else "feature_group_count": groups,
    }
    return f"conv {shapes} {how}", lambda x, w: lax.conv_general_dilated(x, w, **how), arrays


def _rows(rng: Any, make: Callable[[Any], Row], count: int) -> list[Row]:
    rows: list[Row] = []
    while len(rows) < count:
        row = make(rng)
        kind = jax.eval_shape(row[1], *row[2])
        if kind.size:
            rows.append(row)
    return rows


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("make", [_gather, _scatter, _dot, _conv])
def test_random_equations_agree_with_jax(make: Callable[[Any], Row], seed: int) -> None:
    rows = _rows(np.random.default_rng(seed), make, 16)
    flat = [a for _, _, given in rows for a in given]

    def many(*arrays: Any) -> list[Any]:
        left = list(arrays)
        return [work(*[left.pop(0) for _ in given]) for _, work, given in rows]

    mod, params = relay.frontend.from_jax(many, *flat)
    got = jax_cases.run_compiled(mod, params, flat)
    want = jax.jit(many)(*flat)
    found = [(text, jax_cases.difference(a, b)) for (text, _, _), a, b in zip(rows, want, got, strict=True)]
    assert not [f for f in found if f[1]]
