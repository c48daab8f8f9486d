"""Sparse matrices and points."""

from __future__ import annotations

from typing import Any

from ..expr import Call, as_expr, const_like
from ..ty import TensorType, TupleType, Type
from . import dyn
from .attributes import text
from .computes import topi
from .gradients import index as grads
from .registry import Ints, Place, Tensor, given, operator, refuse
from .shapes import differ, floordiv, mul, need_dtype, need_integers, need_rank, sub
from .traits import Traits

__all__ = ["sparse_reshape", "sparse_to_dense"]

_INPUTS = ("dense_mat", "weight_data", "weight_indices", "weight_indptr")


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


def _reshape_rel(types: list[Any], attrs: Any) -> Type:
    points, old, new = types
    need_rank(points, 2, "sparse_indices")
    for kind, name in ((points, "sparse_indices"), (old, "prev_shape"), (new, "new_shape")):
        need_integers(kind, name)
    return TupleType((TensorType((points.shape[0], new.shape[0]), points.dtype), new))


@operator(
    "sparse_reshape",
    rel=_reshape_rel,
    compute=lambda attrs, ins, out: topi.sparse_reshape(
        ins[0], ins[1], ins[2], (ins[0].shape[0], ins[2].shape[0]), ins[2].shape
    ),
    results=2,
)
def sparse_reshape(sparse_indices: Tensor, prev_shape: Tensor, new_shape: Tensor) -> Any:
    """The points of a sparse tensor in another shape, and that shape, of which one size may be -1."""


def _need_sparse(parts: list[Any], dtype: Any, name: str = "weight") -> tuple[Any, Any]:
    """The sizes of the blocks of a sparse matrix: 1 by 1 in the CSR form."""
    values, indices, indptr = parts
    need_integers(indices, f"{name}_indices")
    need_integers(indptr, f"{name}_indptr")
    need_rank(indices, 1, f"{name}_indices")
    need_rank(indptr, 1, f"{name}_indptr")
    need_dtype(values, dtype, f"{name}_data")
    if len(values.shape) not in (1, 2, 3):
        raise refuse(f"is {values} and must be a list of numbers or of blocks", f"{name}_data")
    if differ(values.shape[0], indices.shape[0]):
        raise refuse(
            f"is {values} and {name}_indices is {indices}: there is a column for each", f"{name}_data"
        )
    tall, wide = (*values.shape[1:], 1, 1)[:2]
    return tall, wide


def _sparse_dense_rel(types: list[Any], attrs: Any) -> Type:
    data, *parts = types
    need_rank(data, 2, "dense_mat")
    tall, _ = _need_sparse(parts, data.dtype)
    if len(parts[0].shape) == 2:
        raise refuse(f"is {parts[0]} and must be a list of numbers or of blocks", "weight_data")
    rows = mul(sub(parts[2].shape[0], 1), tall)
    shape = (rows, data.shape[0]) if attrs.sparse_lhs else (data.shape[0], rows)
    return TensorType(shape, data.dtype)


def _columns(types: list[Any], dim: int) -> list[Place]:
    """The indices of a sparse matrix, whose columns, in blocks, are a dimension of the data, and its row pointers."""
    wide = (*types[1].shape[2:], 1)[0]
    blocks = Place(2, "position", 0, (dim,))
    if wide != 1:
        blocks = Place(2, "position", sizes=(floordiv(types[0].shape[dim], wide),))
    return [blocks, Place(3, "length", 1, (0,))]


def _parts(sparse_mat: Any) -> Any:
    """(data, indices, indptr) of a sparse matrix that is given as these, or as an object that has them."""
    if hasattr(sparse_mat, "indptr"):
        sparse_mat = (sparse_mat.data, sparse_mat.indices, sparse_mat.indptr)
    values, indices, indptr = sparse_mat
    return given(weight_data=values, weight_indices=indices, weight_indptr=indptr)


@operator(
    "nn.sparse_dense",
    rel=_sparse_dense_rel,
    compute=lambda attrs, ins, out: [
        topi.nn.sparse_dense(ins[0], ins[1], ins[2], ins[3], attrs.sparse_lhs, node=attrs.node)
    ],
    places=lambda types, attrs: _columns(types, 1),
    inputs=_INPUTS,
    attrs={"node": text("")},
)
def sparse_dense(dense_mat: Tensor, sparse_mat: Any, sparse_lhs: bool = False) -> Call:
    """`dense @ sparse.T`, or `sparse @ dense.T`; the sparse matrix is CSR or BSR: (data, indices, indptr)."""
    return _parts(sparse_mat)


def _sparse_conv2d_rel(types: list[Any], attrs: Any) -> Type:
    data, *parts = types
    need_rank(data, 4, "dense_mat")
    if attrs.layout not in ("NHWC", "NCHW") or attrs.kernel_size not in (1, 3):
        raise refuse(
            f"layout {attrs.layout!r} with kernel_size {attrs.kernel_size}: NHWC or NCHW with 1 or 3"
        )
    tall, _ = _need_sparse(parts, data.dtype)
    channels = mul(sub(parts[2].shape[0], 1), tall)
    n, *sizes = data.shape
    shape = (n, *sizes[:2], channels) if attrs.layout == "NHWC" else (n, channels, *sizes[1:])
    return TensorType(shape, data.dtype)


def _conv_columns(types: list[Any], attrs: Any) -> list[Place]:
    channel = 3 if attrs.layout == "NHWC" else 1
    if attrs.kernel_size == 1:
        return _columns(types, channel)
    wide = (*types[1].shape[2:], 1)[0]
    size = floordiv(mul(types[0].shape[channel], attrs.kernel_size**2), wide)
    return [Place(2, "position", sizes=(size,)), Place(3, "length", 1, (0,))]


@operator(
    "nn.sparse_conv2d",
    rel=_sparse_conv2d_rel,
    compute=lambda attrs, ins, out: [
        topi.nn.sparse_conv2d(
            ins[0], ins[1], ins[2], ins[3], attrs.layout, attrs.kernel_size, node=attrs.node
        )
    ],
    places=_conv_columns,
    inputs=_INPUTS,
    attrs={"node": text("")},
)
def sparse_conv2d(dense_mat: Tensor, sparse_mat: Any, layout: str = "NHWC", kernel_size: int = 1) -> Call:
    """Convolution with a sparse weight of 1 by 1, or of 3 by 3 with a padding of 1: (data, indices, indptr)."""
    return _parts(sparse_mat)


def _sparse_transpose_rel(types: list[Any], attrs: Any) -> Type:
    values, indices, indptr = types
    need_rank(values, 1, "sparse_data")
    _need_sparse(types, values.dtype, "sparse")
    return TupleType((values, TensorType(indices.shape, "int32"), TensorType(indptr.shape, "int32")))


@operator(
    "nn.sparse_transpose",
    rel=_sparse_transpose_rel,
    compute=lambda attrs, ins, out: topi.nn.sparse_transpose(*ins, node=attrs.node),
    places=lambda types, attrs: [
        Place(1, "position", sizes=(sub(types[2].shape[0], 1),)),
        Place(2, "length", 0, (0,)),
    ],
    inputs=("sparse_data", "sparse_indices", "sparse_indptr"),
    attrs={"node": text("")},
    results=3,
)
def sparse_transpose(x: Any) -> Call:
    """The transpose of a square CSR matrix (data, indices, indptr), as the same three."""
    if hasattr(x, "indptr"):
        x = (x.data, x.indices, x.indptr)
    values, indices, indptr = x
    return given(sparse_data=values, sparse_indices=indices, sparse_indptr=indptr)


def _sparse_add_rel(types: list[Any], attrs: Any) -> Type:
    data, *parts = types
    need_rank(data, 2, "dense_mat")
    need_rank(parts[0], 1, "weight_data")
    _need_sparse(parts, data.dtype)
    if differ(sub(parts[2].shape[0], 1), data.shape[0]):
        raise refuse(f"is {parts[2]} and dense_mat is {data}: a sum needs the same rows", "weight_indptr")
    return data  # type: ignore[no-any-return]


@operator(
    "nn.sparse_add",
    rel=_sparse_add_rel,
    compute=lambda attrs, ins, out: [topi.nn.sparse_add(*ins, node=attrs.node)],
    places=lambda types, attrs: _columns(types, 1),
    inputs=_INPUTS,
    attrs={"node": text("")},
)
def sparse_add(dense_mat: Tensor, sparse_mat: Any) -> Call:
    """A matrix plus a sparse one in the CSR form: (data, indices, indptr)."""
    return _parts(sparse_mat)
