"""Dense layers with sparse weights."""

from __future__ import annotations

from typing import Any

from ..analysis.sparse_dense import process_params
from ..transform import DenseToSparse
from .utils import _run_opt_pass


def convert(
    func: Any, params: dict[str, Any], blocksize: Any, sparsity_threshold: float
) -> tuple[Any, dict[str, Any]]:
    """The function and its parameters, with the weights of which at least that part is zero in sparse blocks."""
    found = process_params(func, params, blocksize, sparsity_threshold)
    return _run_opt_pass(func, DenseToSparse(found.weight_name, found.weight_shape)), params
