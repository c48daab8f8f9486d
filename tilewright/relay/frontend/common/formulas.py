"""Functions of elements that no operator computes."""

from __future__ import annotations

import math
from typing import Any

from .build import R, Refusal, dtype_of, full, literal, scalar, shape_of


def expm1(x: Any) -> Any:
    """tanh(x/2)·(exp(x) + 1), which loses nothing near 0; exp(x) - 1 where that overflows."""
    one = scalar(1, x)
    grown = R.exp(x)
    near = R.multiply(R.tanh(R.multiply(x, scalar(0.5, x))), R.add(grown, one))
    small = R.less(R.abs(x), one)
    return R.where(small, near, R.subtract(grown, one))


def log1p(x: Any) -> Any:
    """log(u)·x/(u - 1) with u = 1 + x: what was lost in u is lost in u - 1 as well."""
    one = scalar(1, x)
    u = R.add(x, one)
    far = R.subtract(u, one)
    lost = R.equal(far, scalar(0, x))
    safe = R.where(lost, full(1, shape_of(x), dtype_of(x)), far)
    small = R.less(R.abs(x), one)
    exact = R.where(lost, x, R.divide(R.multiply(R.log(u), x), safe))
    return R.where(small, exact, R.log(u))


def whole_power(base: Any, count: int) -> Any:
    """A power with a small whole exponent by squaring."""
    if count < 0:
        raise Refusal("whole numbers have no negative powers")
    shape, dtype = shape_of(base), dtype_of(base)
    out = None
    while count:
        if count & 1:
            out = base if out is None else R.multiply(out, base)
        count >>= 1
        base = R.multiply(base, base) if count else base
    return full(1, shape, dtype) if out is None else out


def atan2(y: Any, x: Any) -> Any:
    """atan(y/x), moved by half a turn where x is negative, and a quarter where it is 0."""
    dtype = dtype_of(x)
    zero, half, quarter = literal(0, dtype), literal(math.pi, dtype), literal(math.pi / 2, dtype)
    low, up = R.less(x, zero), R.greater_equal(y, zero)
    flat = R.equal(x, zero)
    safe = R.where(flat, full(1, shape_of(x), dtype), x)
    angle = R.atan(R.divide(y, safe))
    moved = R.where(low, R.where(up, R.add(angle, half), R.subtract(angle, half)), angle)
    steep = R.where(up, R.where(R.equal(y, zero), zero, quarter), R.negative(quarter))
    return R.where(flat, steep, moved)
