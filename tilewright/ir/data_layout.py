"""Layouts of tensors as text: NCHW, NHWC, NCHW16c."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from .dtype import DataType
from .errors import OperandTypeError, OperandValueError
from .expr import IterVar, PrimExpr, Range, Var, const, const_value, convert
from .ops import add, ceildiv, floordiv, floormod, mul

_UNDEFINED = "__undef__"  # the classic name of no layout


@lru_cache(maxsize=256)
def layout_axes(text: str) -> tuple[tuple[str, int], ...] | None:
    """The letter of each dimension and, of an inner part, its size (0 if it is not written); None for other texts.

    An upper-case letter is an axis, a number with a lower-case one an inner part of it:

    "NCHW16c"  ->  (("N", 0), ("C", 0), ("H", 0), ("W", 0), ("c", 16))
    """
    found = re.findall(r"(\d*)([A-Za-z])", text)
    outer = [v for _, v in found if v.isupper()]
    whole = bool(found) and "".join(size + v for size, v in found) == text and len(set(outer)) == len(outer)
    if not whole or any(v.upper() not in outer or (size and v.isupper()) for size, v in found):
        return None
    return tuple((v, int(size or 0)) for size, v in found)


class Layout:
    """The dimensions of a tensor by letter: `Layout("NCHW16c")` has C in blocks of 16, the blocks last."""

    __slots__ = ("dtype", "name", "parts")

    def __init__(self, name: str, dtype: str = "int32") -> None:
        if not isinstance(dtype, str) or not DataType(dtype).is_int:
            raise OperandTypeError(f"layout {name!r}: sizes are of a type of integers, not of {dtype!r}")
        parts = () if name in ("", _UNDEFINED) else layout_axes(name)
        if parts is None:
            raise OperandValueError(
                f"{name!r} is not a layout: letters are axes, and 16c after them an inner part of C of size 16"
            )
        self.name, self.dtype, self.parts = name, DataType(dtype), parts

    @property
    def axes(self) -> list[IterVar]:
        """An iterator for each dimension; the extent of an outer one is a variable."""
        out = []
        for letter, size in self.parts:
            extent = const(size, self.dtype) if size else Var(f"{letter}_extent", self.dtype)
            dom = Range.from_min_extent(const(0, self.dtype), extent)
            out.append(IterVar(dom, Var(letter, self.dtype), IterVar.DataPar))
        return out

    def index_of(self, axis: str) -> int:
        """The dimension of an axis, or -1."""
        letters = [letter for letter, _ in self.parts]
        return letters.index(axis) if axis in letters else -1

    def factor_of(self, axis: str) -> int:
        """The size of the inner part of an axis, or -1 if it has none."""
        sizes = [size for letter, size in self.parts if size and letter == axis.lower()]
        return math.prod(sizes) if sizes else -1

    def __contains__(self, axis: str) -> bool:
        return self.index_of(axis) >= 0

    def __getitem__(self, index: int) -> str:
        return self.parts[index][0]

    def __len__(self) -> int:
        return len(self.parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and (self.parts, self.dtype) == (other.parts, other.dtype)

    def __hash__(self) -> int:
        return hash((self.parts, self.dtype))

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Layout({self.name!r})"


class BijectiveLayout:
    """Shapes and indices of a tensor in two layouts.

    NCHW -> NCHW16c        (1, 32, 7, 7) -> (1, 2, 7, 7, 16)        [0, 18, 6, 6] -> [0, 1, 6, 6, 2]
    """

    __slots__ = ("dst_layout", "src_layout")

    def __init__(self, src_layout: Layout, dst_layout: Layout) -> None:
        self.src_layout, self.dst_layout = src_layout, dst_layout

    def forward_index(self, index: Sequence[Any]) -> list[PrimExpr]:
        """The indices in the second layout of an element of the first."""
        return _index(index, self.src_layout, self.dst_layout)

    def backward_index(self, index: Sequence[Any]) -> list[PrimExpr]:
        """The indices in the first layout of an element of the second."""
        return _index(index, self.dst_layout, self.src_layout)

    def forward_shape(self, shape: Sequence[Any]) -> list[PrimExpr]:
        """The shape in the second layout; blocks that are not full count as such."""
        return _shape(shape, self.src_layout, self.dst_layout)

    def backward_shape(self, shape: Sequence[Any]) -> list[PrimExpr]:
        """The shape in the first layout."""
        return _shape(shape, self.dst_layout, self.src_layout)


def layout(layout_str: str, dtype: str = "int32") -> Layout:
    """The layout that a text such as NCHW16c describes."""
    return Layout(layout_str, dtype)


def bijective_layout(src_layout: str | Layout, dst_layout: str | Layout) -> BijectiveLayout | None:
    """The conversion between two layouts, or None if they do not have the same axes."""
    src, dst = (x if isinstance(x, Layout) else Layout(x) for x in (src_layout, dst_layout))
    axes = [sorted(letter for letter, _ in x.parts if letter.isupper()) for x in (src, dst)]
    whole = all(size or letter.isupper() for x in (src, dst) for letter, size in x.parts)
    return BijectiveLayout(src, dst) if axes[0] and axes[0] == axes[1] and whole else None


def _strides(x: Layout) -> list[int]:
    """How far a step along each dimension goes along its axis."""
    return [
        math.prod(size for k, (other, size) in enumerate(x.parts) if other == letter.lower() and k > own)
        if letter.islower()
        else math.prod(size for other, size in x.parts if other == letter.lower())
        for own, (letter, _) in enumerate(x.parts)
    ]


def _check_rank(values: Sequence[Any], x: Layout, what: str) -> list[PrimExpr]:
    if len(values) != len(x.parts):
        raise OperandValueError(f"layout {x} has {len(x.parts)} dimensions, and the {what} has {len(values)}")
    return [convert(v) for v in values]


def _index(index: Sequence[Any], src: Layout, dst: Layout) -> list[PrimExpr]:
    place: dict[str, PrimExpr] = {}
    for (letter, _), i, by in zip(src.parts, _check_rank(index, src, "index"), _strides(src), strict=True):
        step = mul(i, by)
        place[letter.upper()] = add(place[letter.upper()], step) if letter.upper() in place else step
    out = []
    for (letter, size), by in zip(dst.parts, _strides(dst), strict=True):
        at = floordiv(place[letter.upper()], by)
        out.append(floormod(at, size) if letter.islower() else at)
    return out


def _shape(shape: Sequence[Any], src: Layout, dst: Layout) -> list[PrimExpr]:
    total: dict[str, PrimExpr] = {}
    for (letter, size), n in zip(src.parts, _check_rank(shape, src, "shape"), strict=True):
        if size and const_value(n) != size:
            raise OperandValueError(f"layout {src} has {size} of {letter}, and the shape has {n}")
        total[letter.upper()] = mul(total[letter.upper()], n) if letter.upper() in total else n
    return [
        const(size, total[letter.upper()].dtype) if size else ceildiv(total[letter], by)
        for (letter, size), by in zip(dst.parts, _strides(dst), strict=True)
    ]
