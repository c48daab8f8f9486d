"""Weights of dense layers that can be sparse."""

from __future__ import annotations

from typing import Any

from .sparse_weights import SparseAnalysisResult as SparseAnalysisResult
from .sparse_weights import replace_params
from .sparse_weights import search_dense_op_weight as _search_dense_op_weight


def process_params(
    expr: Any, params: dict[str, Any], block_size: Any, sparsity_threshold: float
) -> SparseAnalysisResult:
    """Replace the weights of dense layers of which at least a part is zero by (data, indices, indptr) in blocks.

    `w` becomes `w.data`, `w.indices` and `w.indptr` in `params`; the result says which, for DenseToSparse.
    """
    names = _search_dense_op_weight(expr)
    return replace_params(names, params, "", block_size, sparsity_threshold, "sparse_dense_bsr")
