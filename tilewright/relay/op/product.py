"""Products of matrices, the bias after them, and sums of products by Einstein's notation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.dtype import DataType
from ..expr import Call
from ..ty import TensorType, Type
from . import layouts
from .computes import topi
from .gradients import product as grads
from .registry import BROADCAST, FUSABLE, Dtype, Place, Tensor, Tensors, operator, refuse
from .shapes import (
    axis_of,
    differ,
    need_dtype,
    need_integers,
    need_rank,
    need_vectors,
    same_size,
    unify,
    vectors,
)
from .traits import SMALL, Traits

__all__ = [
    "batch_matmul",
    "bias_add",
    "blockwise_dense",
    "contrib_dense_pack",
    "dense",
    "grouped_matmul",
    "matmul",
]


def _dense_rel(types: list[Any], attrs: Any) -> Type:
    data, weight = types
    need_rank(weight, 2, "weight")
    if not data.shape:
        raise refuse(f"must have a dimension and is {data}", "data")
    if differ(data.shape[-1], weight.shape[1]):
        raise refuse(f"has {weight.shape[1]} columns and data {data.shape[-1]}", "weight")
    if attrs.units is not None and differ(attrs.units, weight.shape[0]):
        raise refuse(f"is {attrs.units} and weight has {weight.shape[0]} rows", "units")
    return TensorType((*data.shape[:-1], weight.shape[0]), attrs.out_dtype or data.dtype)


def _dense_weights(data: TensorType, attrs: Any) -> list[TensorType | None]:
    return [None if attrs.units is None else TensorType((attrs.units, data.shape[-1]), data.dtype)]


@operator(
    "nn.dense",
    traits=Traits(
        product=True, precision=SMALL, quantised="qnn.dense", weights=_dense_weights, gradient=grads.dense
    ),
    rel=_dense_rel,
    compute="nn.dense",
    pattern=FUSABLE,
)
def dense(data: Tensor, weight: Tensor, units: int | None = None, out_dtype: Dtype = "") -> Call:
    """`data @ weight.T`: each row of the weight makes one output."""


def _matmul_rel(types: list[Any], attrs: Any) -> Type:
    a, b = types
    if len(a.shape) < 2:
        raise refuse(f"must have 2 dimensions or more and is {a}", "tensor_a")
    need_rank(b, 2, "tensor_b")
    *lead, rows, inner = a.shape
    if attrs.transpose_a:
        rows, inner = inner, rows
    other, columns = b.shape[::-1] if attrs.transpose_b else b.shape
    if differ(inner, other):
        raise refuse(f"is {b} and tensor_a is {a}: {inner} against {other}", "tensor_b")
    return TensorType((*lead, rows, columns), attrs.out_dtype or a.dtype)


def _matmul_weights(data: TensorType, attrs: Any) -> list[TensorType | None]:
    if attrs.units is None:
        return [None]
    shape = (data.shape[-2 if attrs.transpose_a else -1], attrs.units)
    return [TensorType(shape[::-1] if attrs.transpose_b else shape, data.dtype)]


@operator(
    "nn.matmul",
    traits=Traits(
        product=True, precision=SMALL, quantised="qnn.dense", weights=_matmul_weights, gradient=grads.matmul
    ),
    rel=_matmul_rel,
    compute="nn.matmul",
    pattern=FUSABLE,
)
def matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    units: int | None = None,
    out_dtype: Dtype = "",
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Call:
    """The product of two matrices; the first may be many, in dimensions in front."""


def _batch_matmul_rel(types: list[Any], attrs: Any) -> Type:
    a, b = types
    need_rank(a, 3, "tensor_a")
    need_rank(b, 3, "tensor_b")
    rows, inner = a.shape[:0:-1] if attrs.transpose_a else a.shape[1:]
    other, columns = b.shape[:0:-1] if attrs.transpose_b else b.shape[1:]
    if differ(inner, other):
        raise refuse(f"is {b} and tensor_a is {a}: {inner} against {other}", "tensor_b")
    if 1 not in (a.shape[0], b.shape[0]) and differ(a.shape[0], b.shape[0]):
        raise refuse(f"is {b} and tensor_a is {a}: the batches differ", "tensor_b")
    batch = (
        b.shape[0] if a.shape[0] == 1 else a.shape[0] if b.shape[0] == 1 else unify(a.shape[0], b.shape[0])
    )
    return TensorType((batch, rows, columns), attrs.out_dtype or a.dtype)


def _single_rows(types: Sequence[Any], attrs: Any) -> tuple[int, ...]:
    """Matrices that are multiplied by one row each, as keys and values are when one token is decoded."""
    a, b = types
    rows = a.shape[2 if attrs.transpose_a else 1]
    return (1,) if rows == 1 and not differ(a.shape[0], b.shape[0]) else ()


@operator(
    "nn.batch_matmul",
    traits=Traits(
        product=True,
        precision=SMALL,
        quantised="qnn.batch_matmul",
        gradient=grads.batch_matmul,
        reads_once=_single_rows,
    ),
    rel=_batch_matmul_rel,
    compute="nn.batch_matmul",
    pattern=FUSABLE,
)
def batch_matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    out_dtype: Dtype = "",
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> Call:
    """The products of pairs of matrices; the second is transposed unless told otherwise."""


def _grouped_rel(types: list[Any], attrs: Any) -> Type:
    data, weight, offsets = types
    need_rank(data, 2, "data")
    need_rank(weight, 3, "weight")
    need_rank(offsets, 1, "offsets")
    need_integers(offsets, "offsets")
    if differ(data.shape[1], weight.shape[1]):
        raise refuse(f"is {weight} and data is {data}: {data.shape[1]} against {weight.shape[1]}", "weight")
    if differ(offsets.shape[0], weight.shape[0]):
        raise refuse(f"is {offsets} and weight has {weight.shape[0]} groups", "offsets")
    return TensorType((data.shape[0], weight.shape[2]), attrs.out_dtype or data.dtype)


@operator(
    "nn.grouped_matmul",
    traits=Traits(precision=SMALL),
    rel=_grouped_rel,
    compute="nn.grouped_matmul",
    pattern=FUSABLE,
    places=lambda types, attrs: [Place(2, "length", 0, (0,))],
)
def grouped_matmul(data: Tensor, weight: Tensor, offsets: Tensor, out_dtype: Dtype = "") -> Call:
    """Each row times the weight of its group: group g ends before row `offsets[g]`; rows of no group give 0."""


def _blockwise_rel(types: list[Any], attrs: Any) -> Type:
    data, weight, scale, zero = types
    need_rank(data, 2, "data")
    need_rank(weight, 2, "weight")
    need_rank(scale, 2, "scale")
    need_dtype(weight, DataType("uint8"), "weight")
    if attrs.bits not in (2, 4, 8):
        raise refuse(f"is {attrs.bits}; weights have 2, 4 or 8 bits", "bits")
    if attrs.data_bits not in (0, 8):
        raise refuse(f"is {attrs.data_bits}; it must be 8, or 0 for data that is not rounded", "data_bits")
    (units, packed), blocks = weight.shape, scale.shape[1]
    if differ(scale.shape[0], units):
        raise refuse(f"is {scale} and weight has {units} rows", "scale")
    if zero.shape and (
        differ(zero.shape[0], units) or differ(zero.shape[-1], blocks) or len(zero.shape) != 2
    ):
        raise refuse(f"is {zero} and scale is {scale}; it has the same shape, or no dimensions", "zero")
    numbers = packed * (8 // attrs.bits)
    if not all(isinstance(n, int) for n in (numbers, blocks, data.shape[1])):
        raise refuse(f"is {weight}, scale is {scale}, data is {data}: columns must be known", "weight")
    if numbers % blocks or data.shape[1] > numbers or data.shape[1] <= numbers - numbers // blocks:
        raise refuse(
            f"has {numbers} numbers in a row, in {blocks} blocks, and data {data.shape[1]} columns", "weight"
        )
    return TensorType((data.shape[0], units), attrs.out_dtype or data.dtype)


@operator(
    "nn.blockwise_dense",
    rel=_blockwise_rel,
    compute="nn.blockwise_dense",
    pattern=FUSABLE,
)
def blockwise_dense(
    data: Tensor,
    weight: Tensor,
    scale: Tensor,
    zero: Tensor,
    bits: int = 4,
    out_dtype: Dtype = "",
    data_bits: int = 0,
) -> Call:
    """`data @ w.T` for weights of few bits, of which each block in a row has a scale and a zero point.

    `data_bits=8` allows to round the data of each block to 8 bits; targets do that which multiply bytes faster.
    """


def _bias_rel(types: list[Any], attrs: Any) -> Type:
    data, bias = types
    need_dtype(bias, data.dtype, "bias")
    need_vectors(data, axis_of(attrs.axis, len(data.shape)), bias=bias)
    return data


@operator(
    "nn.bias_add",
    traits=Traits(vector=("add",), weights=vectors(1), gradient=grads.bias_add),
    rel=_bias_rel,
    compute="nn.bias_add",
    pattern=BROADCAST,
)
def bias_add(data: Tensor, bias: Tensor, axis: int = 1) -> Call:
    """A vector added along one axis."""


def _dense_pack_rel(types: list[Any], attrs: Any) -> Type:
    data, weight = types
    need_rank(data, 2, "data")
    w = layouts.sizes(attrs.weight_layout, weight.shape, "weight")
    if set(w) != {"N", "C"}:
        raise refuse(f"is {attrs.weight_layout} and has the axes N and C, as NC8n", "weight_layout")
    if differ(data.shape[1], w["C"]):
        raise refuse(f"has {w['C']} columns and data {data.shape[1]}", "weight")
    return TensorType((data.shape[0], w["N"]), attrs.out_dtype or data.dtype)


def _dense_pack_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    data, weight = ins
    if weight.ndim == 3 and attrs.weight_layout.startswith("NC") and attrs.weight_layout.endswith("n"):
        return [topi.nn.dense_pack(data, weight, None, out.dtype)]
    plain = topi.layout_transform(weight, attrs.weight_layout, "NC")
    return [topi.nn.dense(data, plain, None, out.dtype)]


@operator(
    "nn.contrib_dense_pack",
    traits=Traits(gradient=grads.dense_pack),
    rel=_dense_pack_rel,
    compute=_dense_pack_compute,
    pattern=FUSABLE,
)
def contrib_dense_pack(
    data: Tensor, weight: Tensor, weight_layout: str = "NC", units: int | None = None, out_dtype: Dtype = ""
) -> Call:
    """`data @ weight.T` with the rows of the weight in blocks: NC8n."""


# ---------------------------------------------------------------------------- Einstein's sums
def _labels(term: str, kind: TensorType, equation: str) -> list[str]:
    """A label for each dimension; those of `...` are numbered from the last."""
    head, dots, tail = term.partition("...")
    count = len(kind.shape) - len(head) - len(tail)
    letters = head + tail
    if (letters and not letters.isalpha()) or count < 0 or (count and not dots):
        raise refuse(f"{equation!r}: `{term}` does not name the dimensions of {kind}", "equation")
    return [*head, *(f".{i}" for i in range(count, 0, -1)), *tail]


def _einsum_rel(types: list[Any], attrs: Any) -> Type:
    fields = types[0].fields
    inputs, arrow, output = attrs.equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if not fields or len(terms) != len(fields):
        raise refuse(f"{attrs.equation!r} has {len(terms)} terms for {len(fields)} tensors", "equation")
    sizes: dict[str, Any] = {}
    every: list[str] = []
    for i, (term, kind) in enumerate(zip(terms, fields, strict=True)):
        need_dtype(kind, fields[0].dtype, f"data[{i}]")
        labels = _labels(term, kind, attrs.equation)
        every += labels
        for label, d in zip(labels, kind.shape, strict=True):
            known = sizes.get(label, 1)
            if same_size(known, 1) is True:
                sizes[label] = d
            elif same_size(d, 1) is not True:
                if differ(known, d):
                    raise refuse(f"{attrs.equation!r}: `{label}` is {known} and {d}", "equation")
                sizes[label] = unify(known, d)
    dots = sorted((v for v in sizes if v[0] == "."), key=lambda v: -int(v[1:]))
    if arrow:
        head, found, tail = output.partition("...")
        result = [*head, *(dots if found else ()), *tail]
    else:
        result = [*dots, *sorted(v for v in sizes if v[0] != "." and every.count(v) == 1)]
    if any(v not in sizes for v in result) or len(set(result)) != len(result):
        raise refuse(f"{attrs.equation!r}: the result has an unknown label, or a label twice", "equation")
    return TensorType([sizes[v] for v in result], fields[0].dtype)


@operator(
    "einsum",
    traits=Traits(gradient=grads.einsum),
    rel=_einsum_rel,
    compute=lambda attrs, ins, out: [topi.einsum(attrs.equation, *ins)],
    pattern=FUSABLE,
)
def einsum(data: Tensors, equation: str) -> Call:
    """The sum of products that an equation names: "ij,jk->ik" is a matrix product."""
