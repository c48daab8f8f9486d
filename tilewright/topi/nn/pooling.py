"""Pooling: maximum, average, adaptive, global."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ... import te
from ...ir import ops
from ...ir.dtype import DataType
from ..utils import ceil_div, fail, get_const_tuple, prod, shown, simplify
from .padding import pad
from .utils import Layout, layout_of, paddings, spatial, spatial_letters, window_count

__all__ = [
    "adaptive_pool",
    "adaptive_pool1d",
    "adaptive_pool3d",
    "global_pool",
    "pool1d",
    "pool2d",
    "pool3d",
]

_TYPES = ("avg", "max")


class _Pool(NamedTuple):
    """What is pooled: the tensor, its layout, and where its spatial dimensions are."""

    what: str
    data: te.Tensor
    layout: Layout
    shape: tuple[Any, ...]
    places: list[int]
    maximum: bool

    def sizes(self) -> list[Any]:
        return [self.shape[p] for p in self.places]

    def with_sizes(self, sizes: Sequence[Any]) -> list[Any]:
        """The shape with other spatial sizes."""
        out = list(self.shape)
        for p, s in zip(self.places, sizes, strict=True):
            out[p] = s
        return out


def _pool(what: str, data: te.Tensor, pool_type: str, layout: str, rank: int | None = None) -> _Pool:
    if not isinstance(pool_type, str) or pool_type.lower() not in _TYPES:
        raise fail(what, f"pool_type is {shown(pool_type)}", "known are 'avg' and 'max'")
    letters = "DHW"[3 - rank :] if rank else spatial_letters(what, "layout", layout, "")
    known = layout_of(what, "layout", layout, f"NC{letters}", letters)
    shape = known.checked_shape(what, "data", data)
    places = [known.places(c)[0] for c in letters]
    return _Pool(what, data, known, shape, places, pool_type.lower() == "max")


def _sum_type(dtype: DataType) -> str:
    """The type that values are summed in: one that holds the sum of many narrow ones."""
    if dtype.is_float:
        return dtype if dtype.bits >= 32 else "float32"
    return dtype if dtype.bits >= 32 else "int32"


def _least(dtype: DataType) -> Any:
    return ops.neg(ops.infinity(dtype)) if dtype.is_float else ops.min_value(dtype)


def _reduced(
    p: _Pool, shape: Sequence[Any], axes: Sequence[Any], value: Callable[..., Any], count: Callable[..., Any]
) -> te.Tensor:
    """The maximum of the window's values; or their sum, and in a stage of its own their average."""
    dtype = p.data.dtype
    if p.maximum:
        return te.compute(
            shape, lambda *at: te.max(value(*at), axis=list(axes)), name="pool_max", tag="pool_max"
        )
    kind = _sum_type(dtype)
    total = te.compute(
        shape,
        lambda *at: te.sum(ops.cast(kind, value(*at)), axis=list(axes)),
        name="pool_sum",
        tag="pool_sum",
    )

    def average(*at: Any) -> Any:
        number = ops.cast(kind, count(*at))
        whole = total(*at)
        mean = ops.div(whole, number) if dtype.is_float else ops.truncdiv(whole, number)
        return ops.cast(dtype, mean)

    return te.compute(shape, average, name="pool_avg", tag="elemwise")


# ---------------------------------------------------------------------------- windows of one size
class _Windows(NamedTuple):
    """Windows along one dimension."""

    size: Any
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    number: Any

    @property
    def overhang(self) -> Any:
        """What must be added after the data for the last window to fit."""
        end = (self.number - 1) * self.stride + (self.kernel - 1) * self.dilation + 1
        return simplify(end - self.size - self.before)

    def elements(self, i: Any, include_pad: bool) -> Any:
        """The number of elements of window `i`; padding may count, elements beyond it never do."""
        least = 0 if include_pad else self.before
        end = self.size + (self.after if include_pad else 0)
        fits = isinstance(self.overhang, int) and self.overhang <= (self.after if include_pad else 0)
        if least == 0 and fits:
            return self.kernel
        start = i * self.stride - self.before
        top = ops.floordiv(end - start + (self.dilation - 1), self.dilation)
        top = te.const(self.kernel) if fits else ops.min_of(top, self.kernel)
        if least == 0:
            return top
        low = ops.floordiv(ops.max_of(self.dilation - 1 - start, 0), self.dilation)
        return ops.max_of(ops.sub(top, low), 1)


def _windows(
    p: _Pool, kernel: Any, stride: Any, dilation: Any, padding: Any, ceil_mode: bool
) -> list[_Windows]:
    rank = len(p.places)
    kernels = spatial(p.what, "kernel", kernel, rank)
    strides = spatial(p.what, "stride", stride, rank)
    spread = spatial(p.what, "dilation", dilation, rank)
    covered = [(k - 1) * d + 1 for k, d in zip(kernels, spread, strict=True)]
    before, after = paddings(p.what, padding, covered)
    out: list[_Windows] = []
    for n, k, s, d, e, b, a in zip(p.sizes(), kernels, strides, spread, covered, before, after, strict=True):
        letter = p.layout.letters[p.places[len(out)]]
        count = window_count(p.what, n, b, a, e, s, letter, s - 1 if ceil_mode else 0)
        if ceil_mode:
            # A last window that hangs over counts if it starts in the data or in the padding before it.
            whole, started = ceil_div(n + b + a - e, s) + 1, (n + b - 1) // s + 1
            if isinstance(n, int):
                count = max(min(whole, started), count)
            else:
                count = simplify(ops.min_of(whole, started))
        out.append(_Windows(n, k, s, d, b, a, count))
    return out


def _padded(p: _Pool, windows: Sequence[_Windows], ceil_mode: bool) -> te.Tensor:
    before, after = [0] * len(p.shape), [0] * len(p.shape)
    for place, w in zip(p.places, windows, strict=True):
        before[place] = w.before
        if not ceil_mode:
            after[place] = w.after
        else:
            after[place] = max(w.overhang, w.after) if isinstance(w.overhang, int) else w.after + w.stride - 1
    if not any((*before, *after)):
        return p.data
    fill = _least(p.data.dtype) if p.maximum else 0
    return pad(p.data, before, after, fill, name="pad_temp")


def _pool_windows(
    p: _Pool,
    kernel: Any,
    stride: Any,
    dilation: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
) -> te.Tensor:
    windows = _windows(p, kernel, stride, dilation, padding, ceil_mode)
    source = _padded(p, windows, ceil_mode)
    names = [f"k{p.layout.letters[place].lower()}" for place in p.places]
    axes = [te.reduce_axis((0, w.kernel), n) for w, n in zip(windows, names, strict=True)]

    def value(*at: Any) -> Any:
        index = list(at)
        for place, w, axis in zip(p.places, windows, axes, strict=True):
            index[place] = ops.add(ops.mul(at[place], w.stride), ops.mul(axis.var, w.dilation))
        return source(*index)

    def count(*at: Any) -> Any:
        return prod(
            w.elements(at[place], count_include_pad) for place, w in zip(p.places, windows, strict=True)
        )

    return _reduced(p, p.with_sizes([w.number for w in windows]), axes, value, count)


def pool1d(
    data: te.Tensor,
    kernel: Any,
    stride: Any,
    dilation: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCW",
    count_include_pad: bool = True,
) -> te.Tensor:
    """The maximum or average of each window of one dimension."""
    p = _pool("nn.pool1d", data, pool_type, layout, 1)
    return _pool_windows(p, kernel, stride, dilation, padding, ceil_mode, count_include_pad)


def pool2d(
    data: te.Tensor,
    kernel: Any,
    stride: Any,
    dilation: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCHW",
    count_include_pad: bool = True,
) -> te.Tensor:
    """The maximum or average of each window of two dimensions.

    `ceil_mode` keeps a last window that extends past the end, if it starts before it; `count_include_pad` is whether
    padding counts in an average.
    """
    p = _pool("nn.pool2d", data, pool_type, layout, 2)
    return _pool_windows(p, kernel, stride, dilation, padding, ceil_mode, count_include_pad)


def pool3d(
    data: te.Tensor,
    kernel: Any,
    stride: Any,
    dilation: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCDHW",
    count_include_pad: bool = True,
) -> te.Tensor:
    """The maximum or average of each window of three dimensions."""
    p = _pool("nn.pool3d", data, pool_type, layout, 3)
    return _pool_windows(p, kernel, stride, dilation, padding, ceil_mode, count_include_pad)


def global_pool(data: te.Tensor, pool_type: str, layout: str = "NCHW") -> te.Tensor:
    """The maximum or average of all spatial elements; the spatial dimensions stay, with one element each."""
    p = _pool("nn.global_pool", data, pool_type, layout)
    _check_not_empty(p)
    names = [f"k{p.layout.letters[place].lower()}" for place in p.places]
    axes = [te.reduce_axis((0, n), name) for n, name in zip(p.sizes(), names, strict=True)]

    def value(*at: Any) -> Any:
        index = list(at)
        for place, axis in zip(p.places, axes, strict=True):
            index[place] = axis.var
        return data(*index)

    return _reduced(p, p.with_sizes([1] * len(axes)), axes, value, lambda *at: prod(p.sizes()))


def _check_not_empty(p: _Pool) -> None:
    if any(isinstance(n, int) and n == 0 for n in p.sizes()):
        raise fail(
            p.what, f"a spatial dimension of `{p.data.name}` is empty: {get_const_tuple(p.data.shape)}"
        )


# ---------------------------------------------------------------------------- windows of many sizes
class _Adaptive(NamedTuple):
    """`number` windows that share out `size` elements: window i is from i*size//count to the next's start.

    Starts are rounded down and ends up, so that windows may overlap by one element.
    """

    size: Any
    number: int

    @property
    def even(self) -> bool:
        return isinstance(self.size, int) and self.size % self.number == 0

    def begin(self, i: Any) -> Any:
        return ops.mul(i, self.size // self.number) if self.even else ops.floordiv(i * self.size, self.number)

    def end(self, i: Any) -> Any:
        return ops.floordiv((i + 1) * self.size + (self.number - 1), self.number)

    def longest(self) -> Any:
        if not isinstance(self.size, int):
            return simplify(ceil_div(self.size, self.number) + 1)
        n, m = self.size, self.number
        return max(-(-(i + 1) * n // m) - i * n // m for i in range(m))


def _adaptive(p: _Pool, output_size: Any) -> te.Tensor:
    _check_not_empty(p)
    given = output_size if isinstance(output_size, (tuple, list)) else [output_size] * len(p.places)
    sizes = [n if g is None else g for n, g in zip(p.sizes(), given, strict=False)]
    counts = spatial(p.what, "output_size", sizes if len(given) == len(p.places) else given, len(p.places))
    windows = [_Adaptive(n, c) for n, c in zip(p.sizes(), counts, strict=True)]
    names = [f"k{p.layout.letters[place].lower()}" for place in p.places]
    axes = [te.reduce_axis((0, w.longest()), name) for w, name in zip(windows, names, strict=True)]
    total_type = p.data.dtype
    empty = _least(total_type) if p.maximum else te.const(0, total_type)

    def value(*at: Any) -> Any:
        index, inside = list(at), []
        for place, w, axis in zip(p.places, windows, axes, strict=True):
            index[place] = ops.add(w.begin(at[place]), axis.var)
            if not w.even:
                inside.append(ops.less(index[place], w.end(at[place])))
        found = p.data(*index)
        return ops.if_then_else(ops.all(*inside), found, empty) if inside else found

    def count(*at: Any) -> Any:
        return prod(
            w.size // w.number if w.even else ops.sub(w.end(at[place]), w.begin(at[place]))
            for place, w in zip(p.places, windows, strict=True)
        )

    return _reduced(p, p.with_sizes(counts), axes, value, count)


def adaptive_pool(data: te.Tensor, output_size: Any, pool_type: str, layout: str = "NCHW") -> te.Tensor:
    """The maximum or average of windows such that the height and width come out as `output_size`.

    Window i of an axis is from floor(i * size / output) up to ceil((i + 1) * size / output).
    """
    return _adaptive(_pool("nn.adaptive_pool", data, pool_type, layout, 2), output_size)


def adaptive_pool1d(data: te.Tensor, output_size: Any, pool_type: str, layout: str = "NCW") -> te.Tensor:
    """The maximum or average of windows such that the width comes out as `output_size`."""
    return _adaptive(_pool("nn.adaptive_pool1d", data, pool_type, layout, 1), output_size)


def adaptive_pool3d(data: te.Tensor, output_size: Any, pool_type: str, layout: str = "NCDHW") -> te.Tensor:
    """The maximum or average of windows such that depth, height and width come out as `output_size`."""
    return _adaptive(_pool("nn.adaptive_pool3d", data, pool_type, layout, 3), output_size)
