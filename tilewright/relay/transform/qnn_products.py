"""Products of quantised tensors as products of their integers, which dot-product instructions take as they are.

    Σ (x - zx)·(w - zw)  =  Σ x·w  -  zx·(Σ w - K·zw)  -  zw·Σ x          K: the number of terms

The sums of a constant weight are constants, which FoldConstant adds to the bias. A constant weight moves into the range
of int8, with zero point 0 where that is possible. int32 arithmetic is modular, so all forms give the same sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import op as R
from ..expr import Call, Constant, Expr, const
from ..op import layouts as names
from ..op.expansions import along_axis
from .rewriting import ndim_of, static_shape, type_of

__all__ = ["batch_matmul", "conv2d", "conv2d_transpose", "dense", "is_number", "spread"]


def is_number(expr: Any, value: float) -> bool:
    return isinstance(expr, Constant) and bool((expr.numpy() == value).all())


def spread(parameter: Expr, data: Any, axis: int) -> Expr:
    """A scale or zero point in a shape that broadcasts: a scalar, or a vector along an axis."""
    if _is_single(parameter):
        return R.reshape(parameter, newshape=()) if static_shape(parameter) else parameter
    return along_axis(parameter, axis, ndim_of(data))


def _centred(q: Expr, zero: Expr, axis: int) -> Expr:
    """The quantised numbers minus their zero point, in a type that can hold the difference."""
    if is_number(zero, 0):
        return q
    kind = "int16" if type_of(q).dtype.bits == 8 else "int32"
    return R.subtract(R.cast(q, dtype=kind), R.cast(spread(zero, q, axis), dtype=kind))


def _is_single(parameter: Expr) -> bool:
    return static_shape(parameter) in ((), (1,))


class _Weight(NamedTuple):
    expr: Expr
    zero: Expr


def _in_int8(weight: Expr, zero: Expr, axis: int) -> _Weight:
    """A constant weight of 8 bits as int8, with zero point 0 if the differences fit."""
    if not isinstance(weight, Constant) or not isinstance(zero, Constant) or type_of(weight).dtype.bits != 8:
        return _Weight(weight, zero)
    w, z = weight.numpy().astype(np.int32), zero.numpy().astype(np.int32)
    along = z.reshape(()) if z.size == 1 else z.reshape([-1 if d == axis else 1 for d in range(w.ndim)])
    if (w - along).min(initial=0) >= -128 and (w - along).max(initial=0) <= 127:
        return _Weight(const((w - along).astype(np.int8)), const(0, "int32"))
    if type_of(weight).dtype == "uint8":
        return _Weight(const((w - 128).astype(np.int8)), const(z - 128, "int32"))
    return _Weight(weight, zero)


def _sums(x: Expr, kept: Sequence[int], keepdims: bool = False) -> Expr:
    """The sums of integers over all axes but some."""
    axes = tuple(d for d in range(ndim_of(x)) if d not in kept)
    if isinstance(x, Constant):
        return const(x.numpy().sum(axes, np.int32, keepdims=keepdims), "int32")
    return R.sum(R.cast(x, dtype="int32"), axis=axes, keepdims=keepdims)


def _corrected(
    total: Expr, zero: Expr, weight_zero: Expr, data_sums: Any, weight_sums: Any, terms: int
) -> Expr:
    """Σ x·w  -  zx·(Σ w - K·zw)  -  zw·Σ x; zero points and sums broadcast with the total."""
    if not is_number(zero, 0):
        w = weight_sums()
        if not is_number(weight_zero, 0):
            w = R.subtract(w, R.multiply(weight_zero, const(terms, "int32")))
        total = R.add(total, R.multiply(w, R.negative(zero)))
    if not is_number(weight_zero, 0):
        total = R.subtract(total, R.multiply(data_sums(), weight_zero))
    return total


# ---------------------------------------------------------------------------- rules
def dense(at: Call) -> Expr:
    data, weight, zero, weight_zero = at.args[:4]
    attrs = dict(at.attrs.items())
    terms = static_shape(weight)
    weight, weight_zero = _in_int8(weight, weight_zero, 0)
    if terms is None or not _is_single(zero):
        return R.nn.dense(_centred(data, zero, 0), _centred(weight, weight_zero, 0), **attrs)
    last = ndim_of(data) - 1
    return _corrected(
        R.nn.dense(data, weight, **attrs),
        spread(zero, data, -1),
        _flat(weight_zero),
        lambda: _sums(data, range(last), keepdims=True),
        lambda: _sums(weight, (0,)),
        terms[1],
    )


def batch_matmul(at: Call) -> Expr:
    x, y, zero, y_zero = at.args[:4]
    shape, kind = static_shape(y), at.attrs.out_dtype
    if shape is None or not (_is_single(zero) and _is_single(y_zero)):
        return R.nn.batch_matmul(_centred(x, zero, -1), _centred(y, y_zero, -1), out_dtype=kind)
    return _corrected(
        R.nn.batch_matmul(x, y, out_dtype=kind),
        _flat(zero),
        _flat(y_zero),
        lambda: _sums(x, (0, 1), keepdims=True),
        lambda: R.expand_dims(_sums(y, (0, 1)), axis=1),
        shape[2],
    )


def _flat(zero: Expr) -> Expr:
    """A scalar, or the vector along the last axis."""
    return R.reshape(zero, newshape=()) if static_shape(zero) == (1,) else zero


def conv2d(at: Call) -> Expr:
    data, weight, zero, weight_zero = at.args[:4]
    attrs = dict(at.attrs.items())
    outputs = names.axis_in(at.attrs.kernel_layout, "O")
    weight, weight_zero = _in_int8(weight, weight_zero, outputs)
    shape = static_shape(weight)
    layouts = (at.attrs.data_layout, at.attrs.kernel_layout, at.attrs.out_layout or at.attrs.data_layout)
    plain = not any(names.blocks(name) for name in layouts) and _is_single(zero) and shape is not None
    windows = at.attrs.groups == 1 or is_number(weight_zero, 0)  # sums of windows are a product with ones
    if shape is None or not plain or not windows:
        return R.nn.conv2d(_centred(data, zero, -1), _centred(weight, weight_zero, outputs), **attrs)
    if not is_number(zero, 0):
        data, attrs["padding"] = _padded(data, zero, at), (0, 0)
    channels = names.axis_in(layouts[2], "C")
    ones = np.ones([1 if d == outputs else n for d, n in enumerate(shape)], np.int8)
    of_windows = {**attrs, "channels": 1}
    return _corrected(
        R.nn.conv2d(data, weight, **attrs),
        spread(zero, data, -1),
        spread(weight_zero, at, channels),
        lambda: R.nn.conv2d(data, const(ones), **of_windows),
        lambda: along_axis(_sums(weight, (outputs,)), channels, 4),
        ones.size,
    )


def _padded(data: Expr, zero: Expr, at: Call) -> Expr:
    """The image with its border: padding is the real number 0, so the zero point."""
    p = [int(n) for n in at.attrs.padding]
    top, left, bottom, right = p if len(p) == 4 else (*p, *p) if len(p) == 2 else p * 4
    if not any((top, left, bottom, right)):
        return data
    width = {"H": (top, bottom), "W": (left, right)}
    pads = [width.get(v, (0, 0)) for v in names.letters(at.attrs.data_layout)]
    return R.nn.pad(data, pads, R.cast(spread(zero, data, -1), dtype=type_of(data).dtype))


def conv2d_transpose(at: Call) -> Expr:
    data, weight, zero, weight_zero = at.args[:4]
    outputs = names.axis_in(at.attrs.kernel_layout, "O")
    attrs = dict(at.attrs.items())
    return R.nn.conv2d_transpose(_centred(data, zero, -1), _centred(weight, weight_zero, outputs), **attrs)
