"""Sliding windows: convolutions and pools of one to three dimensions, indices of maxima, and unpooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .build import R, Refusal, cast, constant, dtype_of, reshape, scalar, static_shape, typed


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows over the spatial dimensions, one number for each of these."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    ceil: bool = False  # a last window may extend past the end

    @property
    def padding(self) -> tuple[int, ...]:
        """As the operators take it: all begins, then all ends."""
        return (*self.before, *self.after)

    def counts(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """How many windows fit along each dimension."""
        out = []
        for d, size in enumerate(sizes):
            room = size + self.before[d] + self.after[d] - self.dilations[d] * (self.kernel[d] - 1) - 1
            count = -(-room // self.strides[d]) + 1 if self.ceil else room // self.strides[d] + 1
            if self.ceil and (count - 1) * self.strides[d] >= size + self.before[d]:
                count -= 1
            out.append(count)
        return tuple(out)

    def index(self, sizes: Sequence[int]) -> tuple[Any, Any, tuple[int, ...]]:
        """For each window and offset the flat index into the data, whether it is in bounds, and the counts."""
        counts = self.counts(sizes)
        flat: Any = np.zeros((1, 1), np.int64)
        inside: Any = np.ones((1, 1), bool)
        for d, size in enumerate(sizes):
            first = np.arange(counts[d])[:, None] * self.strides[d] - self.before[d]
            at = first + np.arange(self.kernel[d])[None] * self.dilations[d]
            good = (at >= 0) & (at < size)
            at = np.clip(at, 0, max(size - 1, 0))
            flat = (flat[:, None, :, None] * size + at[None, :, None, :]).reshape(
                flat.shape[0] * counts[d], -1
            )
            inside = (inside[:, None, :, None] & good[None, :, None, :]).reshape(flat.shape)
        return flat, inside, counts


def _named(pattern: str, dims: int) -> Any:
    """The constructor for so many spatial dimensions: `conv{}d`."""
    if not 1 <= dims <= 3:
        raise Refusal(f"{pattern.format('')} over {dims} dimensions is not supported")
    return getattr(R.nn, pattern.format(dims))


# ---------------------------------------------------------------------------- convolution
def convolve(
    x: Any,
    weight: Any,
    w: Windows,
    groups: int = 1,
    out_dtype: str = "",
    layouts: tuple[str, str] | None = None,
) -> Any:
    """A convolution; `weight` is (outputs, inputs of a group, …), or as `layouts` of the data and the kernel say."""
    given = {} if layouts is None else {"data_layout": layouts[0], "kernel_layout": layouts[1]}
    return _named("conv{}d", len(w.kernel))(
        x,
        weight,
        strides=w.strides,
        padding=w.padding,
        dilation=w.dilations,
        groups=groups,
        channels=static_shape(weight)[0 if layouts is None else layouts[1].index("O")],
        kernel_size=w.kernel,
        out_dtype=out_dtype,
        **given,
    )


def transposed(x: Any, weight: Any, w: Windows, groups: int, output_padding: Sequence[int]) -> Any:
    """A transposed convolution; `weight` is (inputs, outputs of a group, …).

    The operator allows output padding of less than a stride; the rest is a separate pad.
    """
    allowed = [
        min(e, max(s, dl) - 1) for e, s, dl in zip(output_padding, w.strides, w.dilations, strict=True)
    ]
    made = _named("conv{}d_transpose", len(w.kernel))(
        x,
        weight,
        strides=w.strides,
        padding=w.padding,
        dilation=w.dilations,
        groups=groups,
        channels=static_shape(weight)[1] * groups,
        kernel_size=w.kernel,
        output_padding=tuple(allowed),
    )
    rest = [(0, 0), (0, 0), *((0, e - a) for e, a in zip(output_padding, allowed, strict=True))]
    return R.nn.pad(made, rest, scalar(0, made)) if any(b for _, b in rest) else made


# ---------------------------------------------------------------------------- pools
def pool(kind: str, x: Any, w: Windows, **more: Any) -> Any:
    """The greatest element ("max") or the average ("avg") of each window."""
    return _named(f"{kind}_pool{{}}d", len(w.kernel))(
        x,
        pool_size=w.kernel,
        strides=w.strides,
        dilation=w.dilations,
        padding=w.padding,
        ceil_mode=w.ceil,
        **more,
    )


def max_with_places(x: Any, w: Windows, by_column: bool = False) -> tuple[Any, Any]:
    """The greatest elements of windows, and their flat indices within the spatial dimensions.

    With `by_column` the first spatial dimension runs fastest.
    """
    sizes = static_shape(x, "pooling with indices: the data")
    flat, inside, counts = w.index(sizes[2:])
    spatial = math.prod(sizes[2:])
    rows = R.take(reshape(x, [*sizes[:2], spatial]), constant(flat.reshape(-1).astype(np.int32)), axis=2)
    low = -math.inf if typed(x).checked_type.dtype.is_float else np.iinfo(dtype_of(x)).min
    seen = R.where(constant(inside), reshape(rows, [*sizes[:2], *flat.shape]), scalar(low, x))
    best = R.argmax(seen, axis=3, keepdims=True)
    place = flat
    if by_column:
        parts = np.unravel_index(flat, tuple(sizes[2:]))
        place = np.ravel_multi_index(parts[::-1], tuple(sizes[2:])[::-1]).astype(np.int64)
    table = R.broadcast_to(constant(place), [*sizes[:2], *place.shape])
    index = reshape(R.gather(table, 3, cast(best, "int64")), [*sizes[:2], *counts])
    return reshape(R.max(seen, axis=3), [*sizes[:2], *counts]), index


def unpooled(x: Any, index: Any, rows: int, total: int) -> Any:
    """(rows, total) zeros with the elements of each row written at their indices."""
    many = math.prod(static_shape(x, "unpooling: the data")) // rows
    zeros = R.zeros((rows, total), dtype_of(x))
    return R.scatter_elements(zeros, reshape(index, (rows, many)), reshape(x, (rows, many)), 1, "update")


# ---------------------------------------------------------------------------- columns
def folded(x: Any, image: Sequence[int], w: Windows) -> Any:
    """col2im: columns (batch, channels · window, windows) summed into an image."""
    dims = len(image)
    batch, columns, count = static_shape(x, "col2im: the data")
    channels = columns // math.prod(w.kernel)
    full = [image[d] + w.before[d] + w.after[d] for d in range(dims)]
    steps = [(full[d] - w.dilations[d] * (w.kernel[d] - 1) - 1) // w.strides[d] + 1 for d in range(dims)]
    if math.prod(steps) != count:
        raise Refusal(f"{count} blocks were given and {steps} fit")
    place = np.zeros([*w.kernel, *steps], np.int64)
    for d in range(dims):
        grid = np.arange(w.kernel[d])[:, None] * w.dilations[d] + np.arange(steps[d])[None] * w.strides[d]
        view = [1] * (2 * dims)
        view[d], view[d + dims] = w.kernel[d], steps[d]
        place = place * full[d] + grid.reshape(view)
    flat = place.reshape(-1)
    data = reshape(x, [batch * channels, flat.size])
    index = constant(np.broadcast_to(flat, (batch * channels, flat.size)).copy())
    zeros = R.zeros([batch * channels, math.prod(full)], dtype_of(x))
    made = reshape(R.scatter_elements(zeros, index, data, 1, "add"), [batch, channels, *full])
    ends = [b + size for b, size in zip(w.before, image, strict=True)]
    return R.strided_slice(made, list(w.before), ends, axes=[d + 2 for d in range(dims)])
