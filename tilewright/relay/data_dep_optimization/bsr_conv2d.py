"""Convolutions with sparse weights."""

from __future__ import annotations

from typing import Any

from ..analysis.sparse_conv2d import process_params
from ..transform import Conv2dToSparse, Conv2dToSparse2
from .utils import _run_opt_pass, typed


def convert(
    func: Any,
    params: dict[str, Any],
    blocksize: Any,
    sparsity_threshold: float,
    layout: str = "NHWC",
    kernel_size: int = 1,
) -> tuple[Any, dict[str, Any]]:
    """The function and its parameters, with the weights of which at least that part is zero in sparse blocks."""
    func = typed(func)
    found = process_params(func, params, blocksize, sparsity_threshold, layout, kernel_size)
    made = Conv2dToSparse(found.weight_name, found.weight_shape, layout, kernel_size)
    return _run_opt_pass(func, made), params


def convert2(
    func: Any,
    params: dict[str, Any],
    blocksize: Any,
    sparsity_threshold: float,
    layout: str,
    kernel_size: int,
) -> tuple[Any, dict[str, Any]]:
    """The function with its constant weights of which at least that part is zero in sparse blocks."""
    made = Conv2dToSparse2(layout, kernel_size, blocksize, sparsity_threshold)
    return _run_opt_pass(func, made), params
