"""Models with sparse weights, for topi.sparse.utils."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...homes import home_of
from ...ir.module import IRModule
from ...topi.sparse.utils import random_bsr_matrix
from ..analysis.sparse_weights import as_matrix, search_conv2d_op_weight, search_dense_op_weight
from . import bsr_conv2d, bsr_dense, simplify_fc_transpose
from .utils import typed


def random_sparse_dense_params(
    func: Any, params: dict[str, Any], bs_r: int, bs_c: int, density: float
) -> dict[str, Any]:
    """The parameters, with random sparse blocks for the weights of dense layers that fall into them."""
    out, array = dict(params), home_of("arrays").array
    for name in search_dense_op_weight(func):
        rows, columns = out[name].shape
        if rows % bs_r == 0 and columns % bs_c == 0:
            made = random_bsr_matrix(rows, columns, bs_r, bs_c, density, str(out[name].dtype))
            out[name] = array(np.asarray(made.todense()))
    return out


def random_sparse_conv2d_params(
    func: Any, params: dict[str, Any], bs_r: int, bs_c: int, density: float, layout: str
) -> dict[str, Any]:
    """The parameters, with random sparse blocks for the weights of 1 by 1 convolutions that fall into them."""
    out, array = dict(params), home_of("arrays").array
    for name in search_conv2d_op_weight(typed(func), layout, 1):
        weight = out[name].numpy()
        rows, columns = as_matrix(weight, layout).shape
        if rows % bs_r == 0 and columns % bs_c == 0:
            made = random_bsr_matrix(rows, columns, bs_r, bs_c, density, str(weight.dtype)).todense()
            turned = np.asarray(made).T if layout == "NHWC" else np.asarray(made)
            out[name] = array(np.ascontiguousarray(turned).reshape(weight.shape))
    return out


def convert_model_dense_to_sparse(
    mod: IRModule,
    params: dict[str, Any],
    random_params: bool = False,
    bs_r: int = 1,
    bs_c: int = 1,
    sparsity: float = 0.85,
    layout: str = "NHWC",
) -> tuple[IRModule, dict[str, Any]]:
    """The model and its parameters with the weights of which four fifths are zero in sparse blocks.

    With `random_params` the weights are replaced by random ones of that sparsity first.
    """
    func, params = simplify_fc_transpose.convert(mod["main"], dict(params))
    if random_params:
        params = random_sparse_dense_params(func, params, bs_r, bs_c, 1 - sparsity)
        params = random_sparse_conv2d_params(func, params, bs_r, bs_c, 1 - sparsity, layout)
    func, params = bsr_dense.convert(func, params, (bs_r, bs_c), sparsity_threshold=0.8)
    func, params = bsr_conv2d.convert(func, params, (bs_r, bs_c), sparsity_threshold=0.8, layout=layout)
    return IRModule.from_expr(func), params
