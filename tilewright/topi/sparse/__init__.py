"""Products with sparse matrices."""

from ..scatter import sparse_to_dense
from . import utils
from .csr import csrmm, csrmv, dense

__all__ = ["csrmm", "csrmv", "dense", "sparse_to_dense", "utils"]
