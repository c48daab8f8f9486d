"""Matrix products by the BLAS library that NumPy was built with, as operations of a program."""

from __future__ import annotations

from typing import Any

from .. import te
from ..ir.ops import call_packed


def matmul(lhs: Any, rhs: Any, transa: bool = False, transb: bool = False, **kwargs: Any) -> Any:
    """The product of two matrices; `transa` and `transb` say which are transposed."""
    return product("cblas.matmul", lhs, rhs, transa, transb, kwargs)


def batch_matmul(
    lhs: Any, rhs: Any, transa: bool = False, transb: bool = False, iterative: bool = False, **kwargs: Any
) -> Any:
    """The products of the matrices of two batches."""
    name = "cblas.batch_matmul_iterative" if iterative else "cblas.batch_matmul"
    return product(name, lhs, rhs, transa, transb, kwargs)


def product(name: str, lhs: Any, rhs: Any, transa: bool, transb: bool, more: dict[str, Any]) -> Any:
    """The product that the library function `name` computes."""
    rows = lhs.shape[-1 if transa else -2]
    columns = rhs.shape[-2 if transb else -1]
    batch = () if len(lhs.shape) == 2 else (te.max(lhs.shape[0], rhs.shape[0]),)
    return te.extern(
        (*batch, rows, columns),
        [lhs, rhs],
        lambda ins, outs: call_packed(f"tvm.contrib.{name}", ins[0], ins[1], outs[0], transa, transb),
        **{"name": "C", **more},
    )
