"""Gradients that a program contains as calls: those of the operator before it, by the rules of our operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...expr import Expr
from ...op.gradients.reverse import as_value, pulled_back
from ...op.shapes import product
from ..common.build import typed
from ..common.norms import over_channels
from .build import R, literal, places, rank, reshape, scatter_rows, shape_of, sizes_of
from .convolve import convolution
from .pool import adaptive_avg_pool, avg_pool
from .table import Refusal, Site, aten


def _back(work: Callable[[], Any], grad: Expr, sources: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
    """The gradients of some tensors, given that of a result; None for those that are not wanted."""
    root = typed(work())
    asked = [s for s, want in zip(sources, wanted, strict=True) if want and s is not None]
    found = pulled_back(root, grad, asked)
    return [
        as_value(found[s], s, typed(s).checked_type) if want and s is not None else None
        for s, want in zip(sources, wanted, strict=True)
    ]


def _forward(name: str, grad: Expr) -> Site:
    """The call before it, whose result is of the type of the gradient."""
    return Site(f"aten.{name}.default", (typed(grad).checked_type,))


@aten("convolution_backward")
def convolution_backward(
    n: Site,
    grad_output: Expr,
    x: Expr,
    weight: Expr,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    output_mask: list[bool],
) -> list[Any]:
    site = _forward("convolution", grad_output)

    def work() -> Any:
        return convolution(
            site, x, weight, None, stride, padding, dilation, transposed, output_padding, groups
        )

    by_data, by_weight = _back(work, grad_output, [x, weight], output_mask[:2])
    others = [d for d in range(rank(grad_output)) if d != 1]
    by_bias = R.sum(grad_output, others, False) if output_mask[2] and bias_sizes is not None else None
    return [by_data, by_weight, by_bias]


@aten("avg_pool2d_backward")
def avg_pool_backward(
    n: Site,
    grad_output: Expr,
    x: Expr,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: Any,
) -> Expr:
    site = _forward("avg_pool2d", grad_output)
    options = kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    return _back(lambda: avg_pool(site, x, *options), grad_output, [x], [True])[0]


@aten("_adaptive_avg_pool2d_backward")
def adaptive_avg_pool_backward(n: Site, grad_output: Expr, x: Expr) -> Expr:
    site, size = _forward("adaptive_avg_pool2d", grad_output), shape_of(grad_output)[-2:]
    return _back(lambda: adaptive_avg_pool(site, x, size), grad_output, [x], [True])[0]


@aten("max_pool2d_with_indices_backward")
def max_pool_backward(
    n: Site,
    grad_output: Expr,
    x: Expr,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    indices: Expr,
) -> Expr:
    """Each gradient goes to where the maximum of its window was found."""
    sizes = sizes_of(x, "the gradient of a pool")
    lead = product(sizes[:-2])
    zeros = R.zeros((lead, product(sizes[-2:])), n.dtype)
    at, part = (reshape(e, (lead, product(shape_of(grad_output)[-2:]))) for e in (indices, grad_output))
    return reshape(R.scatter_elements(zeros, places(at), part, 1, "add", negative=False), n.shape)


def _norm_back(grad: Expr, made: Expr, rstd: Expr, axes: Sequence[int]) -> Expr:
    """The gradient by the data of a normalisation, given the normalised data `made`."""
    mean = R.mean(grad, list(axes), True)
    along = R.multiply(made, R.mean(R.multiply(grad, made), list(axes), True))
    return R.multiply(rstd, R.subtract(R.subtract(grad, mean), along))


@aten("native_layer_norm_backward")
def layer_norm_backward(
    n: Site,
    grad_out: Expr,
    x: Expr,
    normalized_shape: list[Any],
    mean: Expr,
    rstd: Expr,
    weight: Expr | None,
    bias: Expr | None,
    output_mask: list[bool],
) -> list[Any]:
    first = rank(x) - len(normalized_shape)
    made = R.multiply(R.subtract(x, mean), rstd)
    inner = grad_out if weight is None else R.multiply(grad_out, weight)

    def whole(e: Expr) -> Expr:
        return R.sum(e, list(range(first)), False) if first else e

    results: list[Callable[[], Any]] = [
        lambda: _norm_back(inner, made, rstd, range(first, rank(x))),
        lambda: whole(R.multiply(grad_out, made)),
        lambda: whole(grad_out),
    ]
    return [work() if want else None for work, want in zip(results, output_mask, strict=True)]


@aten("native_group_norm_backward")
def group_norm_backward(
    n: Site,
    grad_out: Expr,
    x: Expr,
    mean: Expr,
    rstd: Expr,
    weight: Expr | None,
    group: int,
    output_mask: list[bool],
) -> list[Any]:
    batch, channels, *_ = shape_of(x)
    others = [d for d in range(rank(x)) if d != 1]
    parted = (batch, group, channels // group, -1)
    middle, by = (reshape(e, (batch, group, 1, 1)) for e in (mean, rstd))
    made = R.multiply(R.subtract(R.reshape(x, parted), middle), by)
    whole = R.reshape(made, shape_of(x))
    inner = grad_out if weight is None else R.multiply(grad_out, over_channels(weight, x))

    results: list[Callable[[], Any]] = [
        lambda: R.reshape(_norm_back(R.reshape(inner, parted), made, by, [2, 3]), shape_of(x)),
        lambda: R.sum(R.multiply(grad_out, whole), others, False),
        lambda: R.sum(grad_out, others, False),
    ]
    return [work() if want else None for work, want in zip(results, output_mask, strict=True)]


@aten("embedding_dense_backward")
def embedding_backward(
    n: Site, grad_output: Expr, indices: Expr, num_weights: Any, padding_idx: int, scale_grad_by_freq: bool
) -> Expr:
    if scale_grad_by_freq:
        raise Refusal("scale_grad_by_freq is not supported")
    count = product(shape_of(indices))
    width = shape_of(grad_output)[-1]
    at, part = reshape(places(indices), (count,)), reshape(grad_output, (count, width))
    if padding_idx >= 0:
        counts = R.not_equal(R.expand_dims(at, 1), literal(padding_idx, "int64"))
        part = R.where(counts, part, literal(0, n.dtype))
    return scatter_rows(R.zeros(n.shape, n.dtype), part, 0, reshape(at, (1, count)), "add", False)
