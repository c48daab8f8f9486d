"""Layouts in type relations: NCHW, NHWC, NCHW16c, OIHW4i8o.

sizes("NCHW4c", (1, 8, 56, 56, 4)) = {N: 1, C: 32, H: 56, W: 56}      shape_in is the way back
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .registry import refuse
from .shapes import ceildiv, differ, floordiv, mul

__all__ = ["axes", "letters", "shape_in", "sizes"]


def axes(layout: str) -> list[tuple[str, int]]:
    """The dimensions of a layout: letter and, of an inner part, its size (else 0)."""
    found = re.findall(r"(\d*)([A-Za-z])", layout)
    out = [(letter, int(size or 0)) for size, letter in found]
    outer = [v for v, size in out if v.isupper()]
    wrong = "".join(s + v for s, v in found) != layout or len(set(outer)) != len(outer)
    wrong = wrong or any(v.islower() != bool(size) or v.upper() not in outer for v, size in out)
    if wrong or not out:
        raise refuse(f"{layout!r} is not a layout, such as NCHW, NHWC or NCHW16c")
    return out


def letters(layout: str) -> str:
    """The axes of a layout without their inner parts, in order."""
    return "".join(v for v, _ in axes(layout) if v.isupper())


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
    inner: dict[str, int] = {}
    for letter, factor in parts:
        if factor:
            inner[letter.upper()] = inner.get(letter.upper(), 1) * factor
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
