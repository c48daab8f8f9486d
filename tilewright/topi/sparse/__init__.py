"""Products with sparse matrices."""

from ..scatter import sparse_to_dense
from . import utils
from .csr import csrmm, csrmv

__all__ = ["csrmm", "csrmv", "sparse_to_dense", "utils"]
