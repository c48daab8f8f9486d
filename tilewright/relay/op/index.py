"""Indexing: slices, take, gather, scatter, masks, coordinates, sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.dtype import DataType
from ..expr import Call, as_expr, const
from ..ty import MOST_DIMENSIONS, TensorType, Type
from ..ty import Any as AnySize
from . import dyn
from .arguments import is_computed
from .attributes import dtype, integer, ints, known, text
from .computes import R, te, topi
from .gradients import index as grads
from .registry import INJECTIVE, Dtype, Int32, Ints, Place, Tensor, Tensors, given, operator, refuse
from .shapes import (
    add,
    assume_inside,
    axes_of,
    axis_of,
    broadcast,
    differ,
    is_known,
    need_dtype,
    need_integers,
    need_one_of,
    need_rank,
    need_scalar,
    product,
    unlike,
)
from .spatial import windows
from .traits import FULL, Traits

__all__ = [
    "adv_index",
    "argwhere",
    "gather",
    "gather_nd",
    "invert_permutation",
    "matrix_set_diag",
    "one_hot",
    "reverse_sequence",
    "scatter_elements",
    "scatter_nd",
    "segment_sum",
    "sequence_mask",
    "slice_like",
    "sliding_window",
    "strided_set",
    "strided_slice",
    "take",
    "trilu",
    "unravel_index",
]


# ---------------------------------------------------------------------------- slices
def slice_range(begin: Any, end: Any, stride: int, size: Any) -> Any:
    """The number of elements of begin:end:stride; None is an end of the dimension."""
    if isinstance(size, AnySize) or not is_known(stride):
        return AnySize()
    if is_known(size) and all(v is None or is_known(v) for v in (begin, end)):
        return len(range(*slice(begin, end, stride).indices(size)))
    # As the operator does: constants are clamped, expressions must be in range.
    for place in (begin, end):
        if place is not None:
            assume_inside(place, size)
    line = te.placeholder((size,), name="line")
    low = (0 if stride > 0 else 2**31 - 1) if begin is None else begin
    high = (2**31 - 1 if stride > 0 else -(2**31)) if end is None else end
    return TensorType(topi.strided_slice(line, [low], [high], [stride]).shape).shape[0]


def slice_rows(attrs: Any, shape: Sequence[Any]) -> list[tuple[Any, Any, int]]:
    """(begin, end, stride) for each dimension."""
    ndim = len(shape)
    axes = axes_of(attrs.axes, ndim, "axes") if attrs.axes is not None else tuple(range(len(attrs.begin)))
    if len(axes) > ndim or len(attrs.begin) < len(axes) or len(attrs.end) < len(axes):
        raise refuse(f"begin {attrs.begin} and end {attrs.end} do not fit {ndim} dimensions", "begin")
    strides = attrs.strides or (1,)
    rows: list[tuple[Any, Any, int]] = [(None, None, 1)] * ndim
    for i, d in enumerate(axes):
        step = strides[i] if i < len(strides) else strides[0] if len(strides) == 1 else 1
        if attrs.slice_mode == "size":
            low, count = attrs.begin[i], attrs.end[i]
            rows[d] = (low, None if is_known(count) and count < 0 else add(low, count), 1)
        else:
            if is_known(step) and step == 0:
                raise refuse("has a 0", "strides")
            rows[d] = (attrs.begin[i], attrs.end[i], step)
    return rows


def _slice_rel(types: list[Any], attrs: Any) -> Type:
    data = types[0]
    rows = slice_rows(attrs, data.shape)
    return TensorType(
        [d if r == (None, None, 1) else slice_range(*r, d) for r, d in zip(rows, data.shape, strict=True)],
        data.dtype,
    )


def _slice_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    steps = attrs.strides if len(attrs.strides) == len(attrs.begin) else attrs.strides * len(attrs.begin)
    return [topi.strided_slice(ins[0], attrs.begin, attrs.end, steps, attrs.axes, attrs.slice_mode)]


@operator(
    "strided_slice",
    traits=Traits(quantised="same", gradient=grads.strided_slice),
    attrs={"strides": ints((1,))},
    rel=_slice_rel,
    compute=_slice_compute,
    pattern=INJECTIVE,
)
def strided_slice(
    data: Tensor, begin: Ints, end: Ints, strides: Ints = None, axes: Ints = None, slice_mode: str = "end"
) -> Call:
    """The elements from `begin` to `end` in steps, along all dimensions or those named."""
    steps = (1,) if strides is None else strides
    if axes is None and any(map(is_computed, (begin, end, steps))):
        return dyn.strided_slice(data, begin, end, steps, slice_mode)
    low, high = (
        [edge if v is None else v for v in known(places)] for places, edge in ((begin, 0), (end, 2**31 - 1))
    )
    if axes is None:
        _fill(low, high, steps, slice_mode)
    return given(begin=low, end=high, strides=steps)


def _fill(low: list[Any], high: list[Any], strides: Any, slice_mode: str) -> None:
    """Give the dimensions that only one of the lists names the ends of the whole dimension in the others."""
    steps = known(strides)
    steps = list(steps) if isinstance(steps, Sequence) and len(steps) > 1 else []
    for d in range(max(len(low), len(high), len(steps) if slice_mode == "end" else 0)):
        back = d < len(steps) and is_known(steps[d]) and steps[d] < 0
        if d >= len(low):
            low.append(2**31 - 1 if back else 0)
        if d >= len(high):
            high.append(-1 if slice_mode == "size" else -(2**31) if back else 2**31 - 1)


def _slice_like_shape(data: TensorType, like: TensorType, axes: Any) -> list[Any]:
    chosen = axes_of(axes, len(data.shape), "axes") if axes else range(min(len(data.shape), len(like.shape)))
    shape = list(data.shape)
    for d in chosen:
        if d >= len(like.shape):
            raise refuse(f"has no dimension {d}: {like}", "shape_like")
        shape[d] = like.shape[d]
    return shape


@operator(
    "slice_like",
    traits=Traits(gradient=grads.slice_like),
    rel=lambda types, attrs: TensorType(_slice_like_shape(types[0], types[1], attrs.axes), types[0].dtype),
    compute=lambda attrs, ins, out: [
        topi.strided_slice(ins[0], [0] * ins[0].ndim, list(out.shape), [1] * ins[0].ndim)
    ],
    pattern=INJECTIVE,
)
def slice_like(data: Tensor, shape_like: Tensor, axes: Ints = None) -> Call:
    """The front part of a tensor, as large as another along some dimensions."""


def _strided_set_rel(types: list[Any], attrs: Any) -> Type:
    data, v, *places = types
    need_dtype(v, data.dtype, "v")
    need_rank(v, len(data.shape), "v")
    for kind, name in zip(places, ("begin", "end", "strides"), strict=True):
        need_rank(kind, 1, name)
        need_integers(kind, name)
    return data


@operator(
    "strided_set",
    traits=Traits(gradient=grads.strided_set),
    rel=_strided_set_rel,
    compute="strided_set",
    pattern=INJECTIVE,
)
def strided_set(data: Tensor, v: Tensor, begin: Int32, end: Int32, strides: Int32 = None) -> Call:
    """The tensor with `data[begin:end:strides] = v` done."""
    if strides is not None:
        return given()
    return given(strides=[1])  # dimensions without a stride have 1


# ---------------------------------------------------------------------------- elements by their places
def _take_rel(types: list[Any], attrs: Any) -> Type:
    data, indices = types
    if attrs.axis is None:
        return TensorType(indices.shape, data.dtype)
    at = axis_of(attrs.axis, len(data.shape))
    batch = attrs.batch_dims + (len(indices.shape) if attrs.batch_dims < 0 else 0)
    if not 0 <= batch <= min(at, len(indices.shape)):
        raise refuse(f"is {attrs.batch_dims}, with axis {at} and indices {indices}", "batch_dims")
    return TensorType([*data.shape[:at], *indices.shape[batch:], *data.shape[at + 1 :]], data.dtype)


def kind_of(attrs: Any) -> str:
    """The legal range of an index: negative ones count from the end, unless `negative` is False."""
    return "index" if attrs.negative else "position"


def _take_places(types: list[Any], attrs: Any) -> list[Place]:
    if attrs.mode != "fast":  # the other modes define out-of-bounds indices
        return []
    if attrs.axis is None:
        return [Place(1, kind_of(attrs), sizes=(product(types[0].shape),))]
    return [Place(1, kind_of(attrs), 0, (axis_of(attrs.axis, len(types[0].shape)),))]


@operator(
    "take",
    traits=Traits(gradient=grads.take),
    rel=_take_rel,
    compute="take",
    pattern=INJECTIVE,
    places=_take_places,
)
def take(
    data: Tensor,
    indices: Tensor,
    axis: int | None = None,
    batch_dims: int = 0,
    mode: str = "clip",
    negative: bool = True,
) -> Call:
    """The slices along `axis` that `indices` names.

    An out-of-bounds index is clamped (mode "clip"), wraps around ("wrap") or gives NaN ("nan"); with mode "fast" a
    negative index counts from the end (unless `negative` is False: then it is out of bounds), and an out-of-bounds
    index is an error, unless `config.data_check` disables the check.
    """


def _gather_rel(types: list[Any], attrs: Any) -> Type:
    data, indices = types
    axis_of(attrs.axis, len(data.shape))
    if len(data.shape) != len(indices.shape):
        raise refuse(f"is {indices} and data is {data}: they need the same number of dimensions", "indices")
    return TensorType(indices.shape, data.dtype)


@operator(
    "gather",
    traits=Traits(gradient=grads.gather),
    attrs={"axis": integer(0)},
    rel=_gather_rel,
    compute=lambda attrs, ins, out: [topi.gather(ins[0], attrs.axis, ins[1])],
    pattern=INJECTIVE,
    places=lambda types, attrs: [Place(1, kind_of(attrs), 0, (axis_of(attrs.axis, len(types[0].shape)),))],
)
def gather(data: Tensor, axis: int, indices: Tensor, negative: bool = True) -> Call:
    """For each element of `indices`, the element of `data` at that index along `axis`; `negative` as in `take`."""


def _gather_nd_rel(types: list[Any], attrs: Any) -> Type:
    data, indices = types
    if not indices.shape or not is_known(indices.shape[0]):
        raise refuse(f"is {indices}; how many coordinates it has must be known", "indices")
    count, batch = indices.shape[0], attrs.batch_dims
    if count + batch > len(data.shape):
        raise refuse(f"has {count} coordinates after {batch} batch dimensions, and data is {data}", "indices")
    return TensorType([*indices.shape[1:], *data.shape[count + batch :]], data.dtype)


@operator(
    "gather_nd",
    traits=Traits(gradient=grads.gather_nd),
    rel=_gather_nd_rel,
    compute="gather_nd",
    pattern=INJECTIVE,
    places=lambda types, attrs: [
        Place(1, "index", 0, tuple(attrs.batch_dims + c for c in range(types[1].shape[0])))
    ],
)
def gather_nd(data: Tensor, indices: Tensor, batch_dims: int = 0, index_rank: int | None = None) -> Call:
    """The slices at the points whose coordinates are the columns of `indices`."""


def _one_hot_rel(types: list[Any], attrs: Any) -> Type:
    shape = types[0].shape
    at = len(shape) if attrs.axis == -1 else axis_of(attrs.axis, len(shape) + 1)
    return TensorType([*shape[:at], attrs.depth, *shape[at:]], attrs.dtype)


@operator(
    "one_hot",
    traits=Traits(precision=FULL, gradient=grads.one_hot),
    attrs={"axis": integer(-1), "dtype": dtype("float32")},
    rel=_one_hot_rel,
    compute=lambda attrs, ins, out: [
        topi.one_hot(ins[0], ins[1](), ins[2](), attrs.depth, attrs.axis, attrs.dtype)
    ],
    pattern=INJECTIVE,
    dynamic=dyn.one_hot,
)
def one_hot(
    indices: Tensor, on_value: Tensor, off_value: Tensor, depth: int, axis: int, dtype: Dtype
) -> Call:
    """`on_value` at the `indices` along a new dimension, `off_value` elsewhere."""


# ---------------------------------------------------------------------------- scatter
INT32 = DataType("int32")


_REDUCTIONS = ("update", "add", "mul", "min", "max", "mean")


def _need_shape(kind: TensorType, wanted: Any, argument: str, why: str) -> None:
    if unlike(kind.shape, wanted):
        raise refuse(f"is {kind} and must be {TensorType(wanted, kind.dtype)}: {why}", argument)


def _scatter_elements_rel(types: list[Any], attrs: Any) -> Type:
    data, indices, updates = types
    need_integers(indices, "indices")
    need_dtype(updates, data.dtype, "updates")
    axis_of(attrs.axis, len(data.shape))
    need_rank(indices, len(data.shape), "indices")
    _need_shape(updates, indices.shape, "updates", "as indices")
    need_one_of(attrs.reduction, _REDUCTIONS, "reduction")
    return data


@operator(
    "scatter_elements",
    traits=Traits(gradient=grads.scatter_elements),
    attrs={"node": text("")},
    rel=_scatter_elements_rel,
    compute="scatter_elements",
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
    """A copy of the data with each update written at its index along `axis`, or combined with the old value.

    A negative index counts from the end, unless `negative` is False: then it is out of bounds.
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
    need_one_of(attrs.mode, _REDUCTIONS, "mode")
    return data


@operator(
    "scatter_nd",
    traits=Traits(gradient=grads.scatter_nd),
    attrs={"node": text("")},
    rel=_scatter_nd_rel,
    compute="scatter_nd",
    places=lambda types, attrs: [Place(1, kind_of(attrs), 0, tuple(range(types[1].shape[0])))],
)
def scatter_nd(
    data: Tensor, indices: Tensor, updates: Tensor, mode: str = "update", negative: bool = True
) -> Call:
    """A copy of the data with the slices at the points (columns of `indices`) replaced or combined.

    A negative coordinate counts from the end, unless `negative` is False: then it is out of bounds.
    """


def _segment_rel(types: list[Any], attrs: Any) -> Type:
    data, ids = types
    need_integers(ids, "segment_ids")
    need_rank(ids, 1, "segment_ids")
    if attrs.num_segments is None:
        raise refuse("must be given to a call; relay.segment_sum finds it", "num_segments")
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
    traits=Traits(gradient=grads.segment_sum),
    attrs={"node": text("")},
    rel=_segment_rel,
    compute=_segment_compute,
    places=lambda types, attrs: [Place(1, "index", sizes=(attrs.num_segments,))],
)
def segment_sum(data: Tensor, segment_ids: Tensor, num_segments: int | None = None) -> Call:
    """The sum of the rows of each segment; without their number, there are as many as the largest id needs."""
    if num_segments is not None:
        return given()
    ids: Any = as_expr(segment_ids)
    count = R.add(R.cast(R.reshape(R.max(ids), (1,)), "int32"), const([1], "int32"))
    sizes = R.concatenate([count, R.strided_slice(R.shape_of(data), [1], [MOST_DIMENSIONS])], 0)
    empty = R.broadcast_to(R.cast_like(const(0, "int32"), data), sizes)
    return scatter_nd(empty, R.expand_dims(ids, 0), data, "add")


# ---------------------------------------------------------------------------- coordinates
@operator(
    "argwhere",
    rel=lambda types, attrs: TensorType((AnySize(), len(types[0].shape)), INT32),
    compute=lambda attrs, ins, out: [topi.argwhere(dyn.room(out), ins[0])],
)
def argwhere(condition: Tensor) -> Call:
    """The coordinates of the non-zero elements, a row for each; their number is dynamic."""


def _unravel_rel(types: list[Any], attrs: Any) -> Type:
    indices, shape = types
    need_integers(indices, "indices")
    need_integers(shape, "shape")
    need_rank(shape, 1, "shape")
    return TensorType((shape.shape[0], *indices.shape), indices.dtype)


@operator(
    "unravel_index",
    rel=_unravel_rel,
    compute="unravel_index",
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
    traits=Traits(gradient=grads.adv_index),
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
    return types[0]


@operator(
    "invert_permutation",
    attrs={"node": text("")},
    rel=_permutation_rel,
    compute="invert_permutation",
    places=lambda types, attrs: [Place(0, "position", 0, (0,))],
)
def invert_permutation(data: Tensor) -> Call:
    """The inverse of a permutation."""


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
    return data


@operator(
    "sequence_mask",
    traits=Traits(gradient=grads.sequence_mask),
    rel=_sequence_mask_rel,
    compute="sequence_mask",
    pattern=INJECTIVE,
)
def sequence_mask(data: Tensor, valid_length: Tensor, mask_value: float = 0, axis: int = 0) -> Call:
    """The data with a mask value after the end of each sequence; `axis` is time, the other one the batch."""


def _reverse_sequence_rel(types: list[Any], attrs: Any) -> Type:
    data, lengths = types
    need_rank(lengths, 1, "seq_lengths")
    need_integers(lengths, "seq_lengths")
    axis_of(attrs.seq_axis, len(data.shape), "seq_axis")
    batch = axis_of(attrs.batch_axis, len(data.shape), "batch_axis")
    if differ(lengths.shape[0], data.shape[batch]):
        raise refuse(f"has {lengths.shape[0]} elements and the batch {data.shape[batch]}", "seq_lengths")
    return data


@operator(
    "reverse_sequence",
    traits=Traits(gradient=grads.reverse_sequence),
    rel=_reverse_sequence_rel,
    compute="reverse_sequence",
    pattern=INJECTIVE,
    places=lambda types, attrs: [Place(1, "length", 0, (axis_of(attrs.seq_axis, len(types[0].shape)),))],
)
def reverse_sequence(data: Tensor, seq_lengths: Tensor, seq_axis: int = 1, batch_axis: int = 0) -> Call:
    """The elements of each sequence, up to its length, reversed."""


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
    traits=Traits(rearranges=True, gradient=grads.sliding_window),
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
    return data


@operator(
    "matrix_set_diag",
    traits=Traits(gradient=grads.matrix_set_diag),
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
    need_scalar(k, "k")
    return data


@operator("trilu", traits=Traits(gradient=grads.trilu), rel=_trilu_rel, compute="trilu", pattern=INJECTIVE)
def trilu(data: Tensor, k: Int32 = 0, upper: bool = True) -> Call:
    """The upper (or lower) triangle from diagonal `k` on, zeros elsewhere."""
