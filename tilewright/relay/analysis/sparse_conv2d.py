"""Weights of convolutions that can be sparse."""

from __future__ import annotations

from typing import Any

from .sparse_weights import SparseAnalysisResult as SparseAnalysisResult
from .sparse_weights import replace_params, search_conv2d_op_weight


def _search_conv2d_op_weight(expr: Any) -> list[str]:
    """The names of the weights of all convolutions that can be sparse."""
    cases = ((layout, size) for layout in ("NHWC", "NCHW") for size in (1, 3))
    return list(dict.fromkeys(n for case in cases for n in search_conv2d_op_weight(expr, *case)))


def process_params(
    expr: Any,
    params: dict[str, Any],
    block_size: Any,
    sparsity_threshold: float,
    layout: str,
    kernel_size: int,
    reg_task_input: bool = True,
) -> SparseAnalysisResult:
    """Replace the weights of convolutions of which at least a part is zero by (data, indices, indptr) in blocks.

    `w` becomes `w.data`, `w.indices` and `w.indptr` in `params`; the result says which, for Conv2dToSparse.
    """
    names = search_conv2d_op_weight(expr, layout, kernel_size)
    return replace_params(
        names, params, layout, block_size, sparsity_threshold, "sparse_conv2d_bsr", reg_task_input
    )
