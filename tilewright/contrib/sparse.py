"""Sparse matrices in the CSR form: arrays, and placeholders for tensor expressions.

A = contrib.sparse.placeholder((m, k), nonzeros=n, dtype="float32")
C = topi.sparse.csrmm(A, B)
f = tvm.build(te.create_schedule(C.op), [A.data, A.indices, A.indptr, B, C])
a = contrib.sparse.array(matrix)
f(a.data, a.indices, a.indptr, b, c)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import te
from ..runtime.ndarray import NDArray, cpu
from ..runtime.ndarray import array as _array

__all__ = ["CSRNDArray", "CSRPlaceholderOp", "SparsePlaceholderOp", "array", "placeholder"]

_INDEX = "int32"


class CSRNDArray:
    """A sparse matrix: the values that are not zero, their columns, and where each row begins."""

    stype = "csr"

    def __init__(self, arg1: Any, device: Any = None, shape: Any = None) -> None:
        """From a dense matrix, or from (data, indices, indptr) and a shape."""
        where = cpu(0) if device is None else device
        if isinstance(arg1, tuple):
            if len(arg1) != 3 or shape is None:
                raise ValueError("a sparse matrix is made of (data, indices, indptr) and a shape")
            parts: tuple[Any, ...] = arg1
            self.shape = tuple(shape)
        else:
            dense = arg1.numpy() if isinstance(arg1, NDArray) else np.asarray(arg1)
            if dense.ndim != 2:
                raise ValueError(
                    f"a sparse matrix is made of a matrix, and this array has {dense.ndim} dimensions"
                )
            rows, columns = np.nonzero(dense)
            begins = np.searchsorted(rows, np.arange(dense.shape[0] + 1))
            parts = (dense[rows, columns], columns.astype(_INDEX), begins.astype(_INDEX))
            self.shape = dense.shape
        self.data, self.indices, self.indptr = (
            p if isinstance(p, NDArray) else _array(np.ascontiguousarray(p), where) for p in parts
        )
        self.dtype = str(self.data.dtype)

    def numpy(self) -> Any:
        """The dense matrix."""
        out = np.zeros(self.shape, self.dtype)
        begins = self.indptr.numpy()
        rows = np.repeat(np.arange(self.shape[0]), np.diff(begins))
        out[rows, self.indices.numpy()] = self.data.numpy()
        return out

    asnumpy = numpy


def array(source_array: Any, device: Any = None, shape: Any = None, stype: str = "csr") -> CSRNDArray:
    """A sparse matrix of a dense one, or of (data, indices, indptr) and a shape."""
    if stype != "csr":
        raise NotImplementedError(f"stype is {stype!r}, and sparse matrices are 'csr'")
    return CSRNDArray(source_array, device, shape)


class SparsePlaceholderOp:
    """A sparse matrix that a program is given."""

    def __init__(self, shape: Any, nonzeros: Any, dtype: Any, name: str) -> None:
        self.shape, self.dtype, self.name, self.stype = tuple(shape), dtype, name, "unknown"


class CSRPlaceholderOp(SparsePlaceholderOp):
    """A sparse matrix that a program is given, as the placeholders `data`, `indices` and `indptr`."""

    def __init__(self, shape: Any, nonzeros: Any, dtype: Any, name: str) -> None:
        super().__init__(shape, nonzeros, dtype, name)
        self.stype = "csr"
        self.data = te.placeholder((nonzeros,), dtype, f"{name}_data")
        self.indices = te.placeholder((nonzeros,), _INDEX, f"{name}_indices")
        self.indptr = te.placeholder((self.shape[0] + 1,), _INDEX, f"{name}_indptr")


def placeholder(
    shape: Any, nonzeros: Any = None, dtype: Any = None, name: str = "placeholder", stype: str | None = None
) -> CSRPlaceholderOp:
    """A sparse matrix of `nonzeros` values that a program is given."""
    if stype not in (None, "csr"):
        raise NotImplementedError(f"stype is {stype!r}, and sparse matrices are 'csr'")
    count = 0 if nonzeros is None else nonzeros
    return CSRPlaceholderOp(shape, count, "float32" if dtype is None else dtype, name)
