"""Sparse matrices to try operators with, and models made sparse."""

from __future__ import annotations

from typing import Any

from ...absent import attributes
from ...homes import home_of


def random_bsr_matrix(m: int, n: int, bs_r: int, bs_c: int, density: float, dtype: str) -> Any:
    """A matrix of SciPy in blocks of `bs_r` by `bs_c`, of which the part `density` is not zero, chosen at random."""
    import numpy as np
    import scipy.sparse

    if m % bs_r or n % bs_c:
        raise ValueError(f"a matrix of {m} by {n} does not fall into blocks of {bs_r} by {bs_c}")
    rows, columns = m // bs_r, n // bs_c
    many = int(density * rows * columns) + 1
    chosen = np.sort(np.random.permutation(rows * columns)[:many])
    begins = np.searchsorted(chosen, np.arange(rows + 1) * columns).astype("int32")
    values = np.random.randn(len(chosen), bs_r, bs_c).astype(dtype)
    return scipy.sparse.bsr_matrix((values, (chosen % columns).astype("int32"), begins), shape=(m, n))


_MODELS = ("convert_model_dense_to_sparse", "random_sparse_conv2d_params", "random_sparse_dense_params")
_absent = attributes(__name__)


def __getattr__(name: str) -> Any:
    """What works on models is where models are."""
    return getattr(home_of("sparse_models"), name) if name in _MODELS else _absent(name)
