"""The source coordinate of a pixel of a resized image, along one axis."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

from ... import te
from ...ir import ops
from ...ir.dtype import DataType
from ...ir.expr import PrimExpr
from ..utils import fail, simplify

MODES = (
    "half_pixel",
    "align_corners",
    "asymmetric",
    "pytorch_half_pixel",
    "half_pixel_symmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
ROUNDINGS = ("round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def clamp(index: PrimExpr, size: Any) -> PrimExpr:
    """The nearest index inside, in the type of the index."""
    return ops.min_of(ops.max_of(index, te.const(0, index.dtype)), ops.cast(index.dtype, size) - 1)


@dataclass
class Exact:
    """The coordinate top / bottom as a fraction of integers, so that rounding errors miss no pixel.

    `first` and `last` are the least and greatest coordinates if they are known.
    """

    top: PrimExpr
    bottom: Any
    first: Fraction | None = None
    last: Fraction | None = None

    @property
    def whole(self) -> bool:
        """Whether every coordinate is an integer."""
        return isinstance(self.bottom, int) and self.bottom == 1

    def floor(self) -> PrimExpr:
        return ops.floordiv(self.top, self.bottom)

    def fraction(self, kind: DataType) -> PrimExpr:
        return ops.cast(kind, ops.floormod(self.top, self.bottom)) / ops.cast(kind, self.bottom)

    def nearest(self, rounding: str) -> PrimExpr:
        if self.whole:
            return self.top
        if rounding == "floor":
            return self.floor()
        if rounding == "ceil":
            return ops.floordiv(self.top + (self.bottom - 1), self.bottom)
        if rounding == "round_prefer_floor":
            return ops.floordiv(self.top * 2 + (self.bottom - 1), self.bottom * 2)
        return ops.floordiv(self.top * 2 + self.bottom, self.bottom * 2)

    def inside(self, size: Any, before: int, after: int) -> bool:
        """Whether the pixels from `before` below the floor to `after` above it are known to exist."""
        if self.first is None or self.last is None or not isinstance(size, int):
            return False
        return self.first.__floor__() - before >= 0 and self.last.__floor__() + after < size


@dataclass
class Measured:
    """A coordinate as a float, computed from data."""

    value: PrimExpr
    whole = False

    def floor(self) -> PrimExpr:
        return ops.cast("int32", te.floor(self.value))

    def fraction(self, kind: DataType) -> PrimExpr:
        return self.value - te.floor(self.value)

    def nearest(self, rounding: str) -> PrimExpr:
        half = te.const(0.5, self.value.dtype)
        made = {
            "floor": lambda v: te.floor(v),
            "ceil": lambda v: te.ceil(v),
            "round_prefer_floor": lambda v: te.ceil(v - half),
        }.get(rounding, lambda v: te.floor(v + half))(self.value)
        return ops.cast("int32", made)

    def inside(self, size: Any, before: int, after: int) -> bool:
        return False


Place = Exact | Measured


@dataclass
class Axis:
    """How one dimension is resized: `size` pixels become `out`; `step` is the given size of an output pixel."""

    position: int
    size: Any
    out: Any
    step: Fraction | None = None
    start: Any = None
    end: Any = None


def place_of(operator_name: str, x: PrimExpr, axis: Axis, mode: str, kind: DataType) -> Place:
    """The source coordinate of output pixel `x`."""
    if mode == "tf_crop_and_resize":
        return _cropped(x, axis, kind)
    if isinstance(axis.size, int) and isinstance(axis.out, int):
        return _known(x, axis, mode)
    if axis.step is not None:
        raise fail(operator_name, "scales are given for sizes that are not known at compile time")
    return _symbolic(x, axis, mode)


def _known(x: PrimExpr, axis: Axis, mode: str) -> Exact:
    """The coordinate as slope·x + start with constant fractions."""
    size, out = axis.size, axis.out
    slope = axis.step if axis.step is not None else Fraction(size, out or 1)
    start = slope / 2 - Fraction(1, 2)
    if mode == "align_corners":
        slope, start = Fraction(size - 1, out - 1) if out > 1 else Fraction(0), Fraction(0)
    elif mode == "asymmetric":
        start = Fraction(0)
    elif mode == "pytorch_half_pixel" and out <= 1:
        slope, start = Fraction(0), Fraction(0)
    elif mode == "half_pixel_symmetric":
        start += (size - out * slope) / 2
    elif mode == "tf_half_pixel_for_nn":
        start = slope / 2
    bottom = lcm(slope.denominator, start.denominator)
    a, b = int(slope * bottom), int(start * bottom)
    large = 2 * (abs(a) * max(out, 1) + abs(b) + bottom) >= 2**31
    at = ops.cast("int64", x) if large else x
    return Exact(at * a + b, bottom, start, start + slope * max(out - 1, 0))


def _symbolic(x: PrimExpr, axis: Axis, mode: str) -> Exact:
    """The coordinate for symbolic sizes, in 64 bits: products of sizes are large."""
    at, size, out = (ops.cast("int64", v) for v in (x, axis.size, axis.out))
    one = te.const(1, "int64")
    if mode == "align_corners":
        return Exact(at * (size - 1), ops.max_of(out - 1, one))
    if mode == "asymmetric":
        return Exact(at * size, ops.max_of(out, one))
    bottom = ops.max_of(out * 2, one)
    if mode == "tf_half_pixel_for_nn":
        return Exact((at * 2 + 1) * size, bottom)
    top = (at * 2 + 1) * size - out
    if mode == "pytorch_half_pixel":
        top = ops.select(out > one, top, te.const(0, "int64"))
    return Exact(top, bottom)


def _cropped(x: PrimExpr, axis: Axis, kind: DataType) -> Measured:
    """A line of pixels from `start` to `end`, which are parts of the original's last pixel."""
    start, end = (
        ops.cast(kind, te.const(v, kind) if isinstance(v, float) else v) for v in (axis.start, axis.end)
    )
    last = ops.cast(kind, simplify(axis.size - 1))
    steps = simplify(axis.out - 1)
    middle = te.const(0.5, kind) * (start + end) * last
    if isinstance(steps, int):
        if steps <= 0:
            return Measured(middle)
        return Measured(start * last + ops.cast(kind, x) * ((end - start) * last / te.const(steps, kind)))
    parts = ops.cast(kind, ops.max_of(steps, te.const(1, "int32")))
    spread = start * last + ops.cast(kind, x) * ((end - start) * last / parts)
    return Measured(ops.select(steps > 0, spread, middle))
