"""Transposed convolutions as convolutions: one result for each phase of the stride, then interleaved."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

from .. import op as R
from ..expr import Call, Constant, const
from .rewriting import static_shape, tensor_type, type_of

_MORE: Final = 4  # most times the multiplications, including those by the padding zeros of windows


class _Side(NamedTuple):
    """One dimension: the windows of the convolution, the zeros around the data, and its results."""

    first: int  # the offset of a window relative to its result
    size: int
    before: int
    after: int
    places: int


def as_convolution(at: Call) -> Any:
    """A transposed convolution by constant weights as a convolution; None if that does not pay.

        nn.conv2d_transpose(%x, %w, strides=[2, 2])     ->     %0 = nn.conv2d(%x, %v, channels=2 * 2 * c)
                                                               %1 = reshape(%0, [n, 2, 2, c, h, w])
                                                               reshape(transpose(%1), [n, c, 2 * h, 2 * w])

    Result s * q + a of a dimension is a sum over the data from q + first on, by every s-th weight: for each phase `a` a
    convolution by weights of its own, zeros where a window of the others reaches farther.
    """
    attrs, weights = at.attrs, at.args[1]
    given, shape = static_shape(at.args[0]), static_shape(at)
    plain = attrs.data_layout == "NCHW" and attrs.kernel_layout == "IOHW" and attrs.out_layout in ("", "NCHW")
    if given is None or shape is None or not plain or not isinstance(weights, Constant):
        return None
    if attrs.groups != 1 or any(d != 1 for d in attrs.dilation) or len(given) != 4:
        return None
    values = weights.numpy()
    channels, strides = values.shape[1], tuple(int(s) for s in attrs.strides)
    sides = [
        _side(given[2 + d], shape[2 + d], values.shape[2 + d], strides[d], int(attrs.padding[d]))
        for d in (0, 1)
    ]
    if math.prod(s.size for s in sides) * math.prod(strides) > _MORE * math.prod(values.shape[2:]):
        return None
    if any(s.before < 0 or s.after < 0 for s in sides):
        return None
    (top, left), (bottom, right) = ([s.before for s in sides], [s.after for s in sides])
    taken = _phases(values, strides, sides, [int(p) for p in attrs.padding[:2]])
    kind = tensor_type(at)
    assert kind is not None
    made = R.nn.conv2d(
        at.args[0],
        const(taken, str(taken.dtype)),
        strides=[1, 1],
        padding=[top, left, bottom, right],
        dilation=[1, 1],
        groups=1,
        channels=taken.shape[0],
        kernel_size=list(taken.shape[2:]),
        data_layout="NCHW",
        kernel_layout="OIHW",
        out_layout="",
        out_dtype=str(kind.dtype),
    )
    return _side_by_side(made, strides, channels, sides, shape)


def _side(size: int, results: int, window: int, stride: int, padding: int) -> _Side:
    first = -((window - 1 - padding) // stride)
    count = (stride - 1 + padding) // stride - first + 1
    places = -(-results // stride)
    return _Side(first, count, -first, places - size + first + count - 1, places)


def _phases(values: Any, strides: tuple[int, ...], sides: list[_Side], padding: list[int]) -> Any:
    """The weights of all phases: [phases * channels, data's channels, windows]."""
    import numpy as np

    (sy, sx), (y, x) = strides, sides
    out = np.zeros((sy, sx, values.shape[1], values.shape[0], y.size, x.size), values.dtype)
    for a, b, e, f in np.ndindex(sy, sx, y.size, x.size):
        u, v = a + padding[0] - sy * (y.first + e), b + padding[1] - sx * (x.first + f)
        if 0 <= u < values.shape[2] and 0 <= v < values.shape[3]:
            out[a, b, :, :, e, f] = values[:, :, u, v].T
    return out.reshape(-1, *out.shape[3:])


def _side_by_side(
    made: Call, strides: tuple[int, ...], channels: int, sides: list[_Side], shape: tuple[int, ...]
) -> Any:
    (sy, sx), (h, w) = strides, (s.places for s in sides)
    parts = R.reshape(made, newshape=[shape[0], sy, sx, channels, h, w])
    turned = R.transpose(parts, axes=[0, 3, 4, 1, 5, 2])
    whole = R.reshape(turned, newshape=[shape[0], channels, h * sy, w * sx])
    if (h * sy, w * sx) != shape[2:]:
        whole = R.strided_slice(whole, begin=[0, 0], end=list(shape[2:]), axes=[2, 3])
    type_of(whole)
    return whole
