"""Sparse matrices and points."""

from __future__ import annotations

from typing import Any

from ..expr import Call, as_expr, const_like
from ..ty import TensorType, Type
from . import dyn
from .attributes import text
from .computes import topi
from .gradients import index as grads
from .registry import Ints, Place, Tensor, given, operator, refuse
from .shapes import differ, need_dtype, need_integers, need_rank, sub
from .traits import Traits

__all__ = ["sparse_to_dense"]


def _sparse_rel(types: list[Any], attrs: Any) -> Type:
    indices, values, default = types
    need_integers(indices, "sparse_indices")
    need_dtype(default, values.dtype, "default_value")
    ndim = len(attrs.output_shape)
    if len(indices.shape) > 2 or len(values.shape) > 1:
        raise refuse(f"is {indices} and sparse_values is {values}: points are rows", "sparse_indices")
    if len(indices.shape) == 2 and differ(indices.shape[1], ndim):
        raise refuse(
            f"has {indices.shape[1]} coordinates and output_shape {attrs.output_shape}", "sparse_indices"
        )
    if len(indices.shape) < 2 and ndim != 1:
        raise refuse(f"is {indices} and output_shape has {ndim} dimensions", "sparse_indices")
    return TensorType(attrs.output_shape, values.dtype)


def _points(kind: TensorType, shape: Any) -> Place:
    """Points of a tensor of that shape, a row each; of a list each is a number."""
    columns = tuple(range(len(shape))) if len(kind.shape) == 2 else ()
    return Place(0, "position", sizes=tuple(shape), columns=columns)


@operator(
    "sparse_to_dense",
    traits=Traits(gradient=grads.sparse_to_dense),
    rel=_sparse_rel,
    compute=lambda attrs, ins, out: [
        topi.sparse_to_dense(ins[0], attrs.output_shape, ins[1], ins[2], node=attrs.node)
    ],
    places=lambda types, attrs: [_points(types[0], attrs.output_shape)],
    attrs={"node": text("")},
    dynamic=dyn.sparse_to_dense,
)
def sparse_to_dense(
    sparse_indices: Tensor, output_shape: Ints, sparse_values: Tensor, default_value: Tensor = 0
) -> Call:
    """Values at points and the default elsewhere; the points are rows of coordinates."""
    return given(default_value=const_like(default_value, as_expr(sparse_values)))


def _sparse_dense_rel(types: list[Any], attrs: Any) -> Type:
    data, values, indices, indptr = types
    need_rank(data, 2, "dense_mat")
    for name, kind in (("weight_data", values), ("weight_indices", indices), ("weight_indptr", indptr)):
        need_rank(kind, 1, name)
    need_dtype(values, data.dtype, "weight_data")
    if attrs.sparse_lhs:
        return TensorType((sub(indptr.shape[0], 1), data.shape[0]), data.dtype)
    return TensorType((data.shape[0], sub(indptr.shape[0], 1)), data.dtype)


def _sparse_dense_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    made = topi.sparse.csrmm(ins[1], ins[2], ins[3], topi.transpose(ins[0]), node=attrs.node)
    return [made if attrs.sparse_lhs else topi.transpose(made)]


@operator(
    "nn.sparse_dense",
    rel=_sparse_dense_rel,
    compute=_sparse_dense_compute,
    places=lambda types, attrs: [Place(2, "position", 0, (1,)), Place(3, "length", 1, (0,))],
    inputs=("dense_mat", "weight_data", "weight_indices", "weight_indptr"),
    attrs={"node": text("")},
)
def sparse_dense(dense_mat: Tensor, sparse_mat: Any, sparse_lhs: bool = False) -> Call:
    """`dense @ sparse.T`, or `sparse @ dense.T`; the sparse matrix is CSR: (data, indices, indptr)."""
    if hasattr(sparse_mat, "indptr"):
        sparse_mat = (sparse_mat.data, sparse_mat.indices, sparse_mat.indptr)
    values, indices, indptr = sparse_mat
    return given(weight_data=values, weight_indices=indices, weight_indptr=indptr)
