"""Padding of tensors: constant, edge, reflect or wrap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .build import R, Refusal, shape_of, take_rows


def padded(x: Any, widths: Sequence[tuple[int, int]], mode: str = "constant", value: Any = 0) -> Any:
    """A tensor padded by (before, after) along each dimension; a negative width crops.

    `mode` is constant, edge, reflect or wrap.
    """
    for d, (before, after) in enumerate(widths):
        if before < 0 or after < 0:
            x = R.strided_slice(x, [max(-before, 0)], [shape_of(x)[d] - max(-after, 0)], axes=[d])
    grown = [(max(a, 0), max(b, 0)) for a, b in widths]
    if mode == "constant":
        return R.nn.pad(x, grown, value) if any(a or b for a, b in grown) else x
    for d, (before, after) in enumerate(grown):
        if before or after:
            size = shape_of(x)[d]
            known = isinstance(size, int)
            x = (
                take_rows(x, _rows(size, before, after, mode), d)
                if known
                else _framed(x, d, before, after, mode)
            )
    return x


def _rows(size: int, before: int, after: int, mode: str) -> list[int]:
    """The source row of each index of a padded axis."""
    if mode not in ("edge", "reflect", "wrap"):
        raise Refusal(f"mode {mode!r} is unknown")
    if size == 0:
        raise Refusal(f"mode {mode!r} on an empty dimension")
    modes: Any = mode
    return np.pad(np.arange(size), (before, after), mode=modes).tolist()


def _framed(x: Any, axis: int, before: int, after: int, mode: str) -> Any:
    """An axis of dynamic size with padding: slices of it, or of its reverse, before and after."""
    back = R.reverse(x, axis)
    rows = {
        "edge": ((x, [0] * before), (back, [0] * after)),
        "reflect": ((x, list(range(before, 0, -1))), (back, list(range(1, after + 1)))),
        "wrap": ((back, list(range(before - 1, -1, -1))), (x, list(range(after)))),
    }.get(mode)
    if rows is None:
        raise Refusal(f"mode {mode!r} is unknown")
    parts = [take_rows(e, index, axis) if index else None for e, index in rows]
    return R.concatenate([p for p in (parts[0], x, parts[1]) if p is not None], axis)
