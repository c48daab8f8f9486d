"""Pooling: windows, and windows that fit a size."""

from __future__ import annotations

from typing import Any

from ...expr import Expr
from ...op.arguments import each
from ...op.shapes import product
from ..common.windows import Windows, max_with_places, pool, unpooled
from .build import NN, R, literal, places, rank, reshape, shape_of
from .table import Refusal, Site, aten


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


def _windows(
    dims: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any = 1, ceil_mode: bool = False
) -> Windows:
    """Windows as torch gives them: without strides, they do not overlap."""
    size, around = each(kernel_size, dims), each(padding, dims)
    return Windows(
        size, each(stride, dims) if stride else size, each(dilation, dims), around, around, ceil_mode
    )


@aten("max_pool1d", "max_pool2d", "max_pool3d", "max_pool1d_with_indices", "max_pool2d_with_indices",
      "max_pool3d_with_indices")  # fmt: skip
def max_pool(
    n: Site,
    x: Expr,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    w = _windows(_dims(n), kernel_size, stride, padding, dilation, ceil_mode)
    data = _batched(x, _dims(n))
    made = _fit(n, pool("max", data, w))
    if len(n.kinds) == 1:
        return made
    return [made, lambda: reshape(max_with_places(data, w)[1], n.shape)]


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
    w = _windows(dims, kernel_size, stride, padding, 1, ceil_mode)
    whole = count_include_pad or not any(w.before)
    if divisor_override is not None and ceil_mode:
        raise Refusal("divisor_override with ceil_mode is not supported")
    x = _batched(x, dims)

    def pooled(e: Expr, include: bool) -> Expr:
        return _fit(n, pool("avg", e, w, count_include_pad=include))

    if divisor_override is not None:
        total = R.multiply(pooled(x, True), literal(float(product(w.kernel)), n.dtype))
        return R.divide(total, literal(float(divisor_override), n.dtype))
    if ceil_mode and whole and any(w.before):
        # The frame counts, what a last window has beyond it does not: put the frame on, then average what is there.
        x = NN.pad(x, [(0, 0), (0, 0), *((p, p) for p in w.before)], literal(0.0, n.dtype))
        w = _windows(dims, kernel_size, stride, 0, 1, True)
    return pooled(x, count_include_pad and not ceil_mode)


# ---------------------------------------------------------------------------- to a size
@aten("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "_adaptive_avg_pool2d",
      "_adaptive_avg_pool3d")  # fmt: skip
def adaptive_avg_pool(n: Site, x: Expr, output_size: Any) -> Expr:
    dims = _dims(n)
    x = _batched(x, dims)
    if all(d == 1 for d in each(output_size, dims)):
        return reshape(R.mean(x, list(range(rank(x) - dims, rank(x))), True), n.shape)
    work = (NN.adaptive_avg_pool1d, NN.adaptive_avg_pool2d, NN.adaptive_avg_pool3d)[dims - 1]
    return reshape(work(x, tuple(each(output_size, dims))), n.shape)


@aten("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(n: Site, x: Expr, output_size: Any) -> list[Any]:
    dims = _dims(n)
    work = (NN.adaptive_max_pool1d, NN.adaptive_max_pool2d, NN.adaptive_max_pool3d)[dims - 1]
    return [reshape(work(_batched(x, dims), tuple(each(output_size, dims))), n.shape), None]


# ---------------------------------------------------------------------------- back
@aten("max_unpool2d", "max_unpool3d")
def max_unpool(
    n: Site, x: Expr, indices: Expr, output_size: Any, stride: Any = None, padding: Any = None
) -> Expr:
    """Elements written back to where they were found; 0 elsewhere."""
    dims = 2 if "2d" in n.name else 3
    lead = shape_of(x)[: rank(x) - dims]
    rows = product(lead)
    made = unpooled(x, places(indices), rows, product(each(output_size, dims)))
    return reshape(made, n.shape)
