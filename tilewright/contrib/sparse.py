"""Sparse matrices in CSR form: values, their columns, and where each row begins."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import te
from ..runtime.ndarray import NDArray
from ..runtime.ndarray import array as dense_array

_INDEX = "int32"


class CSRNDArray:
    """A sparse matrix: row i has the values data[indptr[i]:indptr[i + 1]] in the columns indices[…].

    Made of a dense NumPy array, or of the tuple (data, indices, indptr) with the shape.
    """

    stype = "csr"

    def __init__(self, arg1: Any, device: Any = None, shape: Any = None) -> None:
        if isinstance(arg1, tuple):
            if len(arg1) != 3 or shape is None:
                raise ValueError("a CSRNDArray is made of (data, indices, indptr) and its shape")
            self.data, self.indices, self.indptr = arg1
        elif isinstance(arg1, np.ndarray):
            if arg1.ndim != 2:
                raise ValueError(f"a CSRNDArray is a matrix, and the array has {arg1.ndim} dimensions")
            rows, columns = np.nonzero(arg1)
            counts = np.bincount(rows, minlength=arg1.shape[0])
            self.data = dense_array(arg1[rows, columns], device)
            self.indices = dense_array(columns.astype(_INDEX), device)
            self.indptr = dense_array(np.concatenate([[0], np.cumsum(counts)]).astype(_INDEX), device)
            shape = arg1.shape
        else:
            raise RuntimeError(
                f"a CSRNDArray is made of a NumPy array or of (data, indices, indptr), not of {type(arg1).__name__}"
            )
        self.shape, self.dtype = tuple(shape), self.data.dtype
        for name, part in (("data", self.data), ("indices", self.indices), ("indptr", self.indptr)):
            if not isinstance(part, NDArray):
                raise TypeError(f"{name} of a CSRNDArray must be an NDArray, not {type(part).__name__}")
            if name != "data" and part.dtype not in ("int32", "int64"):
                raise TypeError(f"{name} of a CSRNDArray must be int32 or int64, not {part.dtype}")

    def numpy(self) -> Any:
        """The dense matrix."""
        full = np.zeros(self.shape, self.dtype)
        rows = np.repeat(np.arange(self.shape[0]), np.diff(self.indptr.numpy()))
        full[rows, self.indices.numpy()] = self.data.numpy()
        return full

    asnumpy = numpy


def array(source_array: Any, device: Any = None, shape: Any = None, stype: str = "csr") -> CSRNDArray:
    """A sparse matrix of a dense NumPy array, or of its parts."""
    _check_form(stype)
    return CSRNDArray(source_array, shape=shape, device=device)


def _check_form(stype: str) -> None:
    if stype != "csr":
        raise NotImplementedError(f"sparse tensors of the form {stype!r} are not there; the form is 'csr'")


class SparsePlaceholderOp:
    """A sparse input of a program."""

    stype = "unknown"

    def __init__(self, shape: Any, nonzeros: Any, dtype: str, name: str) -> None:
        self.shape, self.dtype, self.name = shape, dtype, name


class CSRPlaceholderOp(SparsePlaceholderOp):
    """A sparse matrix as an input: three placeholders, `data`, `indices` and `indptr`."""

    stype = "csr"

    def __init__(self, shape: Any, nonzeros: Any, dtype: str, name: str) -> None:
        super().__init__(shape, nonzeros, dtype, name)
        self.data = te.placeholder((nonzeros,), dtype, f"{name}_data")
        self.indices = te.placeholder((nonzeros,), _INDEX, f"{name}_indices")
        self.indptr = te.placeholder((shape[0] + 1,), _INDEX, f"{name}_indptr")


def placeholder(
    shape: Any,
    nonzeros: Any = None,
    dtype: str | None = None,
    name: str = "placeholder",
    stype: str | None = None,
) -> CSRPlaceholderOp:
    """A sparse matrix that the caller gives, with `nonzeros` values."""
    _check_form(stype or "csr")
    dims = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    return CSRPlaceholderOp(dims, 0 if nonzeros is None else nonzeros, dtype or "float32", name)
