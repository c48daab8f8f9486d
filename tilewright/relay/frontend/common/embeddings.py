"""Embeddings of positions."""

from __future__ import annotations

from typing import Any

from .build import R, Refusal, rank, reshape, shape_of


def rotary(
    x: Any, cos: Any, sin: Any, positions: Any = None, interleaved: bool = False, heads: int = 0
) -> Any:
    """Rotary embedding of (batch, heads, length, width), or of (batch, length, heads · width) with `heads` given.

    The caches are (batch, length, angles); with `positions` (batch, length), tables of rows for these.
    """
    if rank(x) not in (3, 4) or (rank(x) == 3 and heads < 1):
        raise Refusal(f"data of {rank(x)} dimensions with num_heads={heads}: it has 4, or 3 and num_heads")
    if positions is not None:
        cos, sin = (R.take(table, positions, axis=0, mode="fast") for table in (cos, sin))
    if rank(x) == 4:
        return R.nn.rotary_embedding(x, R.expand_dims(cos, 1), R.expand_dims(sin, 1), interleaved)
    batch, length, width = shape_of(x)
    parted = reshape(x, (batch, length, heads, width // heads))
    made = R.nn.rotary_embedding(parted, R.expand_dims(cos, 2), R.expand_dims(sin, 2), interleaved)
    return reshape(made, (batch, length, width))
