"""Layouts in type relations: NCHW, NHWC, NCHW16c, OIHW4i8o.

sizes("NCHW4c", (1, 8, 56, 56, 4)) = {N: 1, C: 32, H: 56, W: 56}      shape_in is the way back
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.data_layout import layout_axes
from .registry import refuse
from .shapes import ceildiv, differ, floordiv, mul


def axes(layout: str) -> tuple[tuple[str, int], ...]:
    """The dimensions of a layout: letter and, of an inner part, its size (else 0)."""
    out = layout_axes(layout)
    if out is None or any(v.islower() and not size for v, size in out):
        raise refuse(f"{layout!r} is not a layout, such as NCHW, NHWC or NCHW16c")
    return out


def letters(layout: str) -> str:
    """The axes of a layout without their inner parts, in order."""
    return "".join(v for v, _ in axes(layout) if v.isupper())


def blocks(layout: str) -> dict[str, int]:
    """The blocked axes, and their block sizes."""
    out: dict[str, int] = {}
    for letter, size in axes(layout):
        if size:
            out[letter.upper()] = out.get(letter.upper(), 1) * size
    return out


def axis_in(layout: str, letter: str) -> int:
    """The index of the (outer) axis of a letter."""
    return [v for v, _ in axes(layout)].index(letter)


def sizes(layout: str, shape: Sequence[Any], argument: str = "data") -> dict[str, Any]:
    """The size of each axis, its parts multiplied."""
    parts = axes(layout)
    if len(parts) != len(shape):
        raise refuse(f"has {len(shape)} dimensions and its layout {layout} has {len(parts)}", argument)
    out: dict[str, Any] = {}
    for (letter, factor), d in zip(parts, shape, strict=True):
        if factor and differ(d, factor):
            raise refuse(f"has a dimension of {d} where its layout {layout} says {factor}{letter}", argument)
        out[letter.upper()] = mul(out.get(letter.upper(), 1), d)
    return out


def shape_in(layout: str, named: Mapping[str, Any], exact: bool = True) -> tuple[Any, ...]:
    """The shape of a tensor of these sizes in a layout; without `exact`, axes are padded to whole blocks."""
    parts = axes(layout)
    inner = blocks(layout)
    out: list[Any] = []
    for letter, factor in parts:
        d = named.get(letter.upper(), 1)
        whole = inner.get(letter, 0)
        if whole and exact and isinstance(d, int) and d % whole:
            raise refuse(f"axis {letter} of {d} is not a multiple of {whole}, the block of layout {layout}")
        out.append(
            factor or (ceildiv(d, whole) if whole and not exact else floordiv(d, whole) if whole else d)
        )
    return tuple(out)
