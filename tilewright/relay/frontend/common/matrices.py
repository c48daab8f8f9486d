"""Products of stacks of matrices, as NumPy's `matmul` has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...op.shapes import broadcast, same_size
from .build import R, cast, dtype_of, rank, reshape, shape_of

# Sums of products of these are kept in 32 bits.
SHORT = ("float16", "bfloat16")


def matmul(a: Any, b: Any, out_dtype: str = "") -> Any:
    """Matrices in the last two dimensions, the others broadcast; a vector is a row before, and a column behind."""
    if rank(a) == 0 or rank(b) == 0:
        raise ValueError("a matrix product needs tensors of one dimension at least")
    if not out_dtype and dtype_of(a) in SHORT:
        return cast(matmul(a, b, "float32"), dtype_of(a))
    gone = []
    if rank(a) == 1:
        a, gone = R.expand_dims(a, 0), [-2]
    if rank(b) == 1:
        b, gone = R.expand_dims(b, 1), [*gone, -1]
    made = _matrices(a, b, out_dtype)
    return R.squeeze(made, [d % rank(made) for d in gone]) if gone else made


def _matrices(a: Any, b: Any, out_dtype: str) -> Any:
    if rank(a) == 2 and rank(b) == 2:
        return R.nn.matmul(a, b, out_dtype=out_dtype)
    if rank(b) == 2:
        rows = R.reshape(a, [-1, shape_of(a)[-1]])
        return reshape(R.nn.matmul(rows, b, out_dtype=out_dtype), [*shape_of(a)[:-1], shape_of(b)[-1]])
    batch = broadcast(shape_of(a)[:-2], shape_of(b)[:-2])
    made = R.nn.batch_matmul(_as_batch(a, batch), _as_batch(b, batch), out_dtype=out_dtype, transpose_b=False)
    return reshape(made, [*batch, shape_of(a)[-2], shape_of(b)[-1]]) if len(batch) != 1 else made


def _as_batch(x: Any, batch: Sequence[Any]) -> Any:
    """Matrices with one dimension before them."""
    have, whole = shape_of(x), (*batch, *shape_of(x)[-2:])
    if len(have) == 2:
        x = R.expand_dims(x, 0)
    if len(batch) == 1 and len(have) <= 3:
        return x  # one for all is told from one for each by its size
    same = len(have) == len(whole) and all(
        p is q or same_size(p, q) is True for p, q in zip(have, whole, strict=True)
    )
    x = x if same else R.broadcast_to(x, whole)
    return x if len(batch) == 1 else R.reshape(x, [-1, *shape_of(x)[-2:]])
