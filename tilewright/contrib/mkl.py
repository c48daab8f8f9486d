"""The names of `contrib.cblas` for programs that ask for MKL: the BLAS library is NumPy's."""

from __future__ import annotations

from typing import Any

from .cblas import product


def matmul(lhs: Any, rhs: Any, transa: bool = False, transb: bool = False, **kwargs: Any) -> Any:
    """The product of two matrices; `transa` and `transb` say which are transposed."""
    return product("mkl.matmul", lhs, rhs, transa, transb, kwargs)


def matmul_u8s8s32(lhs: Any, rhs: Any, transa: bool = False, transb: bool = False, **kwargs: Any) -> Any:
    """The product of bytes, added up in 32 bits."""
    return product("mkl.matmul_u8s8s32", lhs, rhs, transa, transb, {"dtype": "int32", **kwargs})


def batch_matmul(
    lhs: Any, rhs: Any, transa: bool = False, transb: bool = False, iterative: bool = False, **kwargs: Any
) -> Any:
    """The products of the matrices of two batches."""
    name = "mkl.batch_matmul_iterative" if iterative else "mkl.batch_matmul"
    return product(name, lhs, rhs, transa, transb, kwargs)
