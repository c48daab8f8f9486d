"""Operators that read and write at places: scatter, masks, coordinates, sequences, sparse points."""

from __future__ import annotations

from typing import Any

from ...ir.dtype import DataType
from ..expr import Call, Expr, TupleWrapper, as_expr, const_like
from ..ty import Any as AnySize
from ..ty import TensorType, TupleType, Type
from . import dyn
from .computes import topi
from .picking import kind_of
from .registry import Int32, Ints, OpPattern, Place, Tensor, Tensors, given, integer, operator, refuse, text
from .shapes import axis_of, broadcast, differ, is_known, need_dtype, need_rank
from .spatial import windows
from .transform import reshaped

__all__ = [
    "adv_index",
    "argwhere",
    "invert_permutation",
    "matrix_set_diag",
    "meshgrid",
    "reverse_reshape",
    "reverse_sequence",
    "scatter_elements",
    "scatter_nd",
    "segment_sum",
    "sequence_mask",
    "sliding_window",
    "sparse_to_dense",
    "strided_set",
    "trilu",
    "unravel_index",
]

INT32 = DataType("int32")
INJECTIVE = OpPattern.INJECTIVE
_REDUCTIONS = ("update", "add", "mul", "min", "max", "mean")


def need_integers(kind: TensorType, argument: str) -> None:
    """Refuse a tensor that is no place."""
    if not kind.dtype.is_integral or kind.dtype.is_bool:
        raise refuse(f"must hold integers and is {kind}", argument)


def _need_shape(kind: TensorType, wanted: Any, argument: str, why: str) -> None:
    wrong = len(kind.shape) != len(wanted)
    if wrong or any(differ(a, b) for a, b in zip(kind.shape, wanted, strict=True)):
        raise refuse(f"is {kind} and must be {TensorType(wanted, kind.dtype)}: {why}", argument)


# ---------------------------------------------------------------------------- scatter
def _combination(value: str, argument: str) -> None:
    if value not in _REDUCTIONS:
        raise refuse(f"is {value!r} and may be {', '.join(map(repr, _REDUCTIONS))}", argument)


def _scatter_elements_rel(types: list[Any], attrs: Any) -> Type:
    data, indices, updates = types
    need_integers(indices, "indices")
    need_dtype(updates, data.dtype, "updates")
    axis_of(attrs.axis, len(data.shape))
    need_rank(indices, len(data.shape), "indices")
    _need_shape(updates, indices.shape, "updates", "as indices")
    _combination(attrs.reduction, "reduction")
    return data  # type: ignore[no-any-return]


@operator(
    "scatter_elements",
    attrs={"node": text("")},
    rel=_scatter_elements_rel,
    compute=lambda attrs, ins, out: [
        topi.scatter_elements(
            ins[0], ins[1], ins[2], attrs.axis, attrs.reduction, node=attrs.node, negative=attrs.negative
        )
    ],
    places=lambda types, attrs: [Place(1, kind_of(attrs), 0, (axis_of(attrs.axis, len(types[0].shape)),))],
)
def scatter_elements(
    data: Tensor,
    indices: Tensor,
    updates: Tensor,
    axis: int = 0,
    reduction: str = "update",
    negative: bool = True,
) -> Call:
    """A copy of the data with each update written at its index along `axis`, or combined with what is there.

    A negative index counts from the end, unless `negative` is False: then it is outside.
    """


def _scatter_nd_rel(types: list[Any], attrs: Any) -> Type:
    data, indices, updates = types
    need_integers(indices, "indices")
    need_dtype(updates, data.dtype, "updates")
    if not indices.shape or not is_known(indices.shape[0]):
        raise refuse(f"is {indices}; how many coordinates it has must be known", "indices")
    count = indices.shape[0]
    if count > len(data.shape):
        raise refuse(f"has {count} coordinates and data is {data}", "indices")
    wanted = (*indices.shape[1:], *data.shape[count:])
    _need_shape(updates, wanted, "updates", "the points, then what a point of data holds")
    _combination(attrs.mode, "mode")
    return data  # type: ignore[no-any-return]


@operator(
    "scatter_nd",
    attrs={"node": text("")},
    rel=_scatter_nd_rel,
    compute=lambda attrs, ins, out: [
        topi.scatter_nd(ins[0], ins[1], ins[2], attrs.mode, node=attrs.node, negative=attrs.negative)
    ],
    places=lambda types, attrs: [Place(1, kind_of(attrs), 0, tuple(range(types[1].shape[0])))],
)
def scatter_nd(
    data: Tensor, indices: Tensor, updates: Tensor, mode: str = "update", negative: bool = True
) -> Call:
    """A copy of the data with the slices at the points (columns of `indices`) replaced or combined.

    A negative coordinate counts from the end, unless `negative` is False: then it is outside.
    """


def _segment_rel(types: list[Any], attrs: Any) -> Type:
    data, ids = types
    need_integers(ids, "segment_ids")
    need_rank(ids, 1, "segment_ids")
    if not data.shape or differ(data.shape[0], ids.shape[0]):
        raise refuse(f"is {ids} and data is {data}", "segment_ids")
    return TensorType((attrs.num_segments, *data.shape[1:]), data.dtype)


def _segment_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    data, ids = ins
    if attrs.node:
        ids = topi.checks.check_each(ids, "index", (attrs.num_segments,), attrs.node)
    empty = topi.full((attrs.num_segments, *data.shape[1:]), data.dtype, 0)
    return [topi.scatter_nd(empty, topi.expand_dims(ids, 0), data, "add")]


@operator(
    "segment_sum",
    attrs={"node": text("")},
    rel=_segment_rel,
    compute=_segment_compute,
    places=lambda types, attrs: [Place(1, "index", sizes=(attrs.num_segments,))],
)
def segment_sum(data: Tensor, segment_ids: Tensor, num_segments: int) -> Call:
    """The sum of the rows of each segment; how many segments there are must be said."""


# ---------------------------------------------------------------------------- coordinates


@operator(
    "argwhere",
    rel=lambda types, attrs: TensorType((AnySize(), len(types[0].shape)), INT32),
    compute=lambda attrs, ins, out: [topi.argwhere(dyn.room(out), ins[0])],
)
def argwhere(condition: Tensor) -> Call:
    """The coordinates of the elements that are not zero, a row for each; how many, only the run tells."""


def _unravel_rel(types: list[Any], attrs: Any) -> Type:
    indices, shape = types
    need_integers(indices, "indices")
    need_integers(shape, "shape")
    need_rank(shape, 1, "shape")
    return TensorType((shape.shape[0], *indices.shape), indices.dtype)


@operator(
    "unravel_index",
    rel=_unravel_rel,
    compute=lambda attrs, ins, out: [topi.unravel_index(ins[0], ins[1])],
    pattern=INJECTIVE,
    places=lambda types, attrs: [Place(1, "divisor")],
)
def unravel_index(indices: Tensor, shape: Int32) -> Call:
    """The coordinates of positions in a tensor of a shape, along a new first dimension."""


def _adv_index_rel(types: list[Any], attrs: Any) -> Type:
    fields = types[0].fields
    if len(fields) < 2:
        raise refuse("must have a tensor and at least one index", "inputs")
    data, *indices = fields
    if len(indices) > len(data.shape):
        raise refuse(f"has {len(indices)} indices and data is {data}", "inputs")
    shape: tuple[Any, ...] = ()
    for i, kind in enumerate(indices, 1):
        need_integers(kind, f"inputs[{i}]")
        shape = broadcast(shape, kind.shape, "the indices")
    return TensorType((*shape, *data.shape[len(indices) :]), data.dtype)


@operator(
    "adv_index",
    rel=_adv_index_rel,
    compute=lambda attrs, ins, out: [topi.adv_index(ins[0], ins[1:])],
    pattern=INJECTIVE,
    places=lambda types, attrs: [
        Place(0, "index", 0, (d,), field=d + 1) for d in range(len(types[0].fields) - 1)
    ],
)
def adv_index(inputs: Tensors) -> Call:
    """`data[index0, index1, …]` of a list (data, index0, index1, …); the indices broadcast."""


def _permutation_rel(types: list[Any], attrs: Any) -> Type:
    need_rank(types[0], 1, "data")
    need_integers(types[0], "data")
    return types[0]  # type: ignore[no-any-return]


@operator(
    "invert_permutation",
    attrs={"node": text("")},
    rel=_permutation_rel,
    compute=lambda attrs, ins, out: [topi.invert_permutation(ins[0], node=attrs.node)],
    places=lambda types, attrs: [Place(0, "position", 0, (0,))],
)
def invert_permutation(data: Tensor) -> Call:
    """The permutation that undoes one."""


def _meshgrid_rel(types: list[Any], attrs: Any) -> Type:
    fields = types[0].fields
    if not fields:
        raise refuse("is empty", "data")
    if attrs.indexing not in ("ij", "xy"):
        raise refuse(f"is {attrs.indexing!r} and may be 'ij' or 'xy'", "indexing")
    sizes = []
    for i, kind in enumerate(fields):
        if len(kind.shape) > 1:
            raise refuse(f"must have one dimension and is {kind}", f"data[{i}]")
        sizes.append(kind.shape[0] if kind.shape else 1)
    if attrs.indexing == "xy":
        sizes[:2] = sizes[1::-1]
    return TupleType(tuple(TensorType(sizes, kind.dtype) for kind in fields))


def _grids(call: Any) -> int:
    return len(call.args[0].fields)


@operator(
    "meshgrid",
    rel=_meshgrid_rel,
    compute=lambda attrs, ins, out: topi.meshgrid(ins, attrs.indexing),
    pattern=INJECTIVE,
    results=_grids,
)
def meshgrid(data: Tensors, indexing: str = "ij") -> TupleWrapper:
    """The coordinates of all points of a grid, a tensor for each axis."""


# ---------------------------------------------------------------------------- sequences and windows
def _sequence_mask_rel(types: list[Any], attrs: Any) -> Type:
    data, lengths = types
    need_rank(lengths, 1, "valid_length")
    if len(data.shape) < 2 or attrs.axis not in (0, 1):
        raise refuse(f"is {attrs.axis} and must be 0 or 1 of the first two dimensions of {data}", "axis")
    if differ(lengths.shape[0], data.shape[1 - attrs.axis]):
        raise refuse(
            f"has {lengths.shape[0]} elements and the batch, dimension {1 - attrs.axis}, "
            f"{data.shape[1 - attrs.axis]}",
            "valid_length",
        )
    return data  # type: ignore[no-any-return]


@operator(
    "sequence_mask",
    rel=_sequence_mask_rel,
    compute=lambda attrs, ins, out: [topi.sequence_mask(ins[0], ins[1], attrs.mask_value, attrs.axis)],
    pattern=INJECTIVE,
)
def sequence_mask(data: Tensor, valid_length: Tensor, mask_value: float = 0, axis: int = 0) -> Call:
    """The data with another value behind the end of each sequence; `axis` is time, the other one the batch."""


def _reverse_sequence_rel(types: list[Any], attrs: Any) -> Type:
    data, lengths = types
    need_rank(lengths, 1, "seq_lengths")
    need_integers(lengths, "seq_lengths")
    axis_of(attrs.seq_axis, len(data.shape), "seq_axis")
    batch = axis_of(attrs.batch_axis, len(data.shape), "batch_axis")
    if differ(lengths.shape[0], data.shape[batch]):
        raise refuse(f"has {lengths.shape[0]} elements and the batch {data.shape[batch]}", "seq_lengths")
    return data  # type: ignore[no-any-return]


@operator(
    "reverse_sequence",
    rel=_reverse_sequence_rel,
    compute=lambda attrs, ins, out: [topi.reverse_sequence(ins[0], ins[1], attrs.seq_axis, attrs.batch_axis)],
    pattern=INJECTIVE,
    places=lambda types, attrs: [Place(1, "length", 0, (axis_of(attrs.seq_axis, len(types[0].shape)),))],
)
def reverse_sequence(data: Tensor, seq_lengths: Tensor, seq_axis: int = 1, batch_axis: int = 0) -> Call:
    """The first elements of each sequence turned around, as many as its length."""


def _sliding_window_rel(types: list[Any], attrs: Any) -> Type:
    data = types[0]
    at = axis_of(attrs.axis, len(data.shape))
    sizes = data.shape[at:]
    for name in ("window_shape", "strides"):
        if len(attrs[name]) != len(sizes):
            raise refuse(f"is {attrs[name]} for the {len(sizes)} dimensions of {data} from {at} on", name)
    counts = [
        windows(d, w, s, 1, 0) for d, w, s in zip(sizes, attrs.window_shape, attrs.strides, strict=True)
    ]
    return TensorType((*data.shape[:at], *counts, *attrs.window_shape), data.dtype)


@operator(
    "sliding_window",
    rel=_sliding_window_rel,
    compute=lambda attrs, ins, out: [
        topi.sliding_window(
            ins[0], axis_of(attrs.axis, ins[0].ndim), list(attrs.window_shape), list(attrs.strides)
        )
    ],
    pattern=INJECTIVE,
)
def sliding_window(data: Tensor, axis: int, window_shape: Ints, strides: Ints) -> Call:
    """All positions of a window over the dimensions from `axis` on; its own dimensions come last."""


def _strided_set_rel(types: list[Any], attrs: Any) -> Type:
    data, v, *places = types
    need_dtype(v, data.dtype, "v")
    need_rank(v, len(data.shape), "v")
    for kind, name in zip(places, ("begin", "end", "strides"), strict=True):
        need_rank(kind, 1, name)
        need_integers(kind, name)
    return data  # type: ignore[no-any-return]


@operator(
    "strided_set",
    rel=_strided_set_rel,
    compute=lambda attrs, ins, out: [topi.strided_set(*ins)],
    pattern=INJECTIVE,
)
def strided_set(data: Tensor, v: Tensor, begin: Int32, end: Int32, strides: Int32 = None) -> Call:
    """The tensor with `data[begin:end:strides] = v` done."""
    if strides is not None:
        return given()
    if isinstance(begin, Expr):
        raise TypeError("strided_set: strides must be given where begin is computed by the program")
    return given(strides=[1] * len(begin))


def _reversed_codes(shape: Any, newshape: Any) -> tuple[Any, ...]:
    """0 keeps the dimension that stands as far from the end; -1 is what is left."""
    if any(is_known(code) and code < -1 for code in newshape):
        raise refuse(f"{newshape} may hold 0 and -1 beside sizes", "newshape")
    full = []
    for i, code in enumerate(newshape):
        at = len(shape) - len(newshape) + i
        if is_known(code) and code == 0:
            if at < 0:
                raise refuse(f"{newshape} keeps a dimension that {tuple(shape)} has not", "newshape")
            code = shape[at]
        full.append(code)
    return reshaped(shape, full, allowzero=True)


@operator(
    "contrib_reverse_reshape",
    rel=lambda types, attrs: TensorType(_reversed_codes(types[0].shape, attrs.newshape), types[0].dtype),
    compute=lambda attrs, ins, out: [topi.reverse_reshape(ins[0], list(attrs.newshape))],
    pattern=INJECTIVE,
)
def reverse_reshape(data: Tensor, newshape: Ints) -> Call:
    """reshape whose special sizes are read from the last dimension on."""


# ---------------------------------------------------------------------------- sparse points
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


# ---------------------------------------------------------------------------- diagonals
def _diag_bounds(attrs: Any) -> tuple[int, int]:
    low, high = attrs.k1, attrs.k2
    if low > high:
        raise refuse(f"goes from {low} to {high}", "k")
    return low, high


def _set_diag_rel(types: list[Any], attrs: Any) -> Type:
    data, diagonal = types
    need_dtype(diagonal, data.dtype, "diagonal")
    if len(data.shape) < 2:
        raise refuse(f"must hold matrices and is {data}", "data")
    low, high = _diag_bounds(attrs)
    lead = data.shape[:-2] if low == high else (*data.shape[:-2], high - low + 1)
    need_rank(diagonal, len(lead) + 1, "diagonal")
    _need_shape(diagonal, (*lead, diagonal.shape[-1]), "diagonal", f"for k from {low} to {high} of {data}")
    sides = attrs.align.split("_")
    if len(sides) != 2 or not {*sides} <= {"LEFT", "RIGHT"}:
        raise refuse(f"is {attrs.align!r}, say 'RIGHT_LEFT'", "align")
    return data  # type: ignore[no-any-return]


@operator(
    "matrix_set_diag",
    rel=_set_diag_rel,
    compute=lambda attrs, ins, out: [topi.matrix_set_diag(ins[0], ins[1], _diag_bounds(attrs), attrs.align)],
    pattern=INJECTIVE,
    inputs=("input", "diagonal"),
    attrs={"k1": integer(0), "k2": integer(0)},
)
def matrix_set_diag(data: Any, diagonal: Tensor, k: Any = 0, align: str = "RIGHT_LEFT") -> Call:
    """Matrices with new values on a diagonal, or on several from k[0] to k[1]."""
    low, high = (k, k) if isinstance(k, int) else (k[0], k[-1])
    return given(input=data, k1=low, k2=high)


def _trilu_rel(types: list[Any], attrs: Any) -> Type:
    data, k = types
    if len(data.shape) < 2:
        raise refuse(f"must hold matrices and is {data}", "data")
    need_integers(k, "k")
    if any(differ(d, 1) for d in k.shape):
        raise refuse(f"must be one number and is {k}", "k")
    return data  # type: ignore[no-any-return]


@operator(
    "trilu",
    rel=_trilu_rel,
    compute=lambda attrs, ins, out: [topi.trilu(ins[0], ins[1], attrs.upper)],
    pattern=INJECTIVE,
)
def trilu(data: Tensor, k: Int32 = 0, upper: bool = True) -> Call:
    """The upper (or lower) triangle from diagonal `k` on, zeros elsewhere."""
