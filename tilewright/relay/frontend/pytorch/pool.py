"""Pooling: windows, and windows that fit a size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...expr import Expr
from ...op.shapes import product
from .build import NN, R, dtype_of, literal, places, rank, reshape, shape_of, sizes_of
from .table import Refusal, Site, aten

__all__: list[str] = []


def _each(value: Any, count: int) -> list[int]:
    listed = list(value) if isinstance(value, (list, tuple)) else [value]
    return listed * count if len(listed) == 1 else listed


def _dims(n: Site) -> int:
    """How many spatial dimensions the operator's name says."""
    return next(d for d in (1, 2, 3) if f"pool{d}d" in n.name)


def _batched(x: Expr, dims: int) -> Expr:
    return R.expand_dims(x, 0) if rank(x) == dims + 1 else x


def _fit(n: Site, made: Expr) -> Expr:
    """Without a batch that was put in front; torch leaves out a last window that begins in the frame."""
    wanted = n.shape
    full = wanted if len(wanted) == rank(made) else (1, *wanted)
    for d, (have, want) in enumerate(zip(shape_of(made), full, strict=True)):
        if isinstance(have, int) and isinstance(want, int) and have > want:
            made = R.strided_slice(made, [0], [want], [1], axes=[d])
    return reshape(made, wanted)


def _max_pool(
    n: Site, x: Expr, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Expr:
    dims = _dims(n)
    size = _each(kernel_size, dims)
    around = _each(padding, dims)
    work = (NN.max_pool1d, NN.max_pool2d, NN.max_pool3d)[dims - 1]
    made = work(
        _batched(x, dims),
        tuple(size),
        tuple(_each(stride, dims) if stride else size),
        tuple(_each(dilation, dims)),
        tuple(around + around),
        ceil_mode=ceil_mode,
    )
    return _fit(n, made)


@aten("max_pool1d", "max_pool2d", "max_pool3d")
def max_pool(
    n: Site,
    x: Expr,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Expr:
    return _max_pool(n, x, kernel_size, stride, padding, dilation, ceil_mode)


@aten("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool_with_indices(
    n: Site,
    x: Expr,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> list[Any]:
    return [_max_pool(n, x, kernel_size, stride, padding, dilation, ceil_mode), None]


@aten("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    n: Site,
    x: Expr,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Expr:
    dims = _dims(n)
    size, around = _each(kernel_size, dims), _each(padding, dims)
    steps = _each(stride, dims) if stride else size
    whole = count_include_pad or not any(around)
    if divisor_override is not None and ceil_mode:
        raise Refusal("divisor_override with ceil_mode is not supported")
    x = _batched(x, dims)
    work = (NN.avg_pool1d, NN.avg_pool2d, NN.avg_pool3d)[dims - 1]

    def pooled(e: Expr, include: bool) -> Expr:
        given = {"ceil_mode": ceil_mode, "count_include_pad": include}
        return _fit(n, work(e, tuple(size), tuple(steps), 1, tuple(around + around), **given))

    if divisor_override is not None:
        total = R.multiply(pooled(x, True), literal(float(product(size)), n.dtype))
        return R.divide(total, literal(float(divisor_override), n.dtype))  # type: ignore[no-any-return]
    if ceil_mode and whole and any(around):
        return _framed(n, x, size, steps, around)
    return pooled(x, count_include_pad and not ceil_mode)


def _framed(n: Site, x: Expr, size: Sequence[int], steps: Sequence[int], around: Sequence[int]) -> Expr:
    """The frame counts, what a last window has beyond it does not: put the frame on, then average what is there."""
    dims = len(size)
    widths = [(0, 0), (0, 0), *((p, p) for p in around)]
    framed = NN.pad(x, widths, literal(0.0, n.dtype))
    work = (NN.avg_pool1d, NN.avg_pool2d, NN.avg_pool3d)[dims - 1]
    return _fit(n, work(framed, tuple(size), tuple(steps), 1, 0, ceil_mode=True, count_include_pad=False))


# ---------------------------------------------------------------------------- to a size
@aten("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "_adaptive_avg_pool2d",
      "_adaptive_avg_pool3d")  # fmt: skip
def adaptive_avg_pool(n: Site, x: Expr, output_size: Any) -> Expr:
    dims = _dims(n)
    x = _batched(x, dims)
    if all(d == 1 for d in _each(output_size, dims)):
        return reshape(R.mean(x, list(range(rank(x) - dims, rank(x))), True), n.shape)
    work = (NN.adaptive_avg_pool1d, NN.adaptive_avg_pool2d, NN.adaptive_avg_pool3d)[dims - 1]
    return reshape(work(x, tuple(_each(output_size, dims))), n.shape)


@aten("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(n: Site, x: Expr, output_size: Any) -> list[Any]:
    dims = _dims(n)
    work = (NN.adaptive_max_pool1d, NN.adaptive_max_pool2d, NN.adaptive_max_pool3d)[dims - 1]
    return [reshape(work(_batched(x, dims), tuple(_each(output_size, dims))), n.shape), None]


# ---------------------------------------------------------------------------- back
@aten("max_unpool2d", "max_unpool3d")
def max_unpool(
    n: Site, x: Expr, indices: Expr, output_size: Any, stride: Any = None, padding: Any = None
) -> Expr:
    """Elements written back to where they were found; 0 elsewhere."""
    dims = 2 if "2d" in n.name else 3
    lead = shape_of(x)[: rank(x) - dims]
    rows, many = product(lead), product(sizes_of(x, "unpooling")[rank(x) - dims :])
    total = product(_each(output_size, dims))
    flat = R.zeros((rows, total), dtype_of(x))
    made = R.scatter_elements(
        flat, places(reshape(indices, (rows, many))), reshape(x, (rows, many)), 1, "update"
    )
    return reshape(made, n.shape)
