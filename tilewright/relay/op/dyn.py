"""Operators with computed shapes: the result has dynamic sizes.

    dyn.reshape(x, shape_of(y)) : Tensor[(?, ?), float32]

How many dimensions a result has is always known. A kernel is compiled for sizes that are variables: `compute` takes
them from the type it is given, or makes them (`room`); `runtime/shape_functions.py` says which they are in a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir import ops
from ..expr import Call, Expr, const, const_like
from ..ty import Any as AnySize
from ..ty import TensorType, TupleType, Type, tensor_fields
from . import layouts
from .attributes import dtype, integer
from .computes import te, topi
from .gradients import rearrange as grads
from .gradients import reduce as sums
from .gradients.parts import constant
from .gradients.parts import reshaped as reshaped_back
from .registry import (
    BROADCAST,
    ELEMWISE,
    FUSABLE,
    INJECTIVE,
    Dtype,
    Numbers,
    Tensor,
    given,
    named,
    operator,
    refuse,
)
from .shapes import axis_of, differ, is_known, need_dtype, need_integers, need_one_of, need_rank, need_scalar
from .traits import Traits

__all__ = [
    "arange",
    "broadcast_to",
    "expand_dims",
    "full",
    "one_hot",
    "ones",
    "pad",
    "reshape",
    "resize2d",
    "sparse_to_dense",
    "squeeze",
    "strided_slice",
    "tile",
    "topk",
    "upsampling",
    "upsampling3d",
    "zeros",
]


def room(kind: TensorType) -> list[Any]:
    """The sizes of a result, with a variable for each unknown one."""
    return [te.size_var(f"d{i}", "int32") if isinstance(d, AnySize) else d for i, d in enumerate(kind.shape)]


def _list_length(kind: TensorType, argument: str) -> int:
    """The length of a list of sizes, indices or factors."""
    need_rank(kind, 1, argument)
    need_integers(kind, argument)
    if not is_known(kind.shape[0]):
        raise refuse(f"is {kind}: the number of dimensions of the result must be known", argument)
    return int(kind.shape[0])


def _unknown(count: int) -> list[AnySize]:
    return [AnySize() for _ in range(count)]


def _one(t: Any) -> Any:
    """The only element of a tensor."""
    return t(*[0] * t.ndim)


# ---------------------------------------------------------------------------- other shapes


@operator(
    "dyn.reshape",
    traits=Traits(view=True, sizes="newshape", gradient=reshaped_back),
    rel=lambda types, attrs: TensorType(_unknown(_list_length(types[1], "newshape")), types[0].dtype),
    compute=lambda attrs, ins, out: [topi.reshape(ins[0], room(out))],
    pattern=INJECTIVE,
)
def reshape(data: Tensor, newshape: Numbers, allowzero: bool = False) -> Call:
    """The same elements in a computed shape; 0 keeps a dimension and -1 is inferred."""


def _squeeze_rel(types: list[Any], attrs: Any) -> Type:
    data, axis = types
    left = len(data.shape) - _list_length(axis, "axis")
    if left < 0:
        raise refuse(f"is {axis} and data is {data}", "axis")
    return TensorType(_unknown(left), data.dtype)


@operator(
    "dyn.squeeze",
    traits=Traits(view=True, gradient=reshaped_back),
    rel=_squeeze_rel,
    compute=lambda attrs, ins, out: [topi.reshape(ins[0], room(out))],
    pattern=INJECTIVE,
)
def squeeze(data: Tensor, axis: Numbers) -> Call:
    """The tensor without the dimensions of size 1 that a list names."""


def _expand_rel(types: list[Any], attrs: Any) -> Type:
    data, axis = types
    need_scalar(axis, "axis")
    need_integers(axis, "axis")
    return TensorType(_unknown(len(data.shape) + attrs.num_newaxis), data.dtype)


@operator(
    "dyn.expand_dims",
    traits=Traits(view=True, gradient=reshaped_back),
    rel=_expand_rel,
    compute=lambda attrs, ins, out: [topi.reshape(ins[0], room(out))],
    pattern=INJECTIVE,
)
def expand_dims(data: Tensor, axis: Tensor, num_newaxis: int = 1) -> Call:
    """New dimensions of size 1 before a dimension that is computed."""


# ---------------------------------------------------------------------------- copies
def _broadcast_rel(types: list[Any], attrs: Any) -> Type:
    data, shape = types
    ndim = _list_length(shape, "shape")
    if ndim < len(data.shape):
        raise refuse(f"is {shape} and data has {len(data.shape)} dimensions", "shape")
    # A dimension that is known and not 1 stays as it is.
    kept = [d if is_known(d) and d != 1 else AnySize() for d in data.shape]
    return TensorType([*_unknown(ndim - len(kept)), *kept], data.dtype)


def _broadcast_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    data, sizes = ins[0], room(out)
    extra = len(sizes) - data.ndim

    def element(*at: Any) -> Any:
        places = [ops.select(ops.equal(d, 1), 0, i) for i, d in zip(at[extra:], data.shape, strict=True)]
        return data(*places)

    return [te.compute(sizes, element, "broadcast_to", "broadcast")]


@operator(
    "dyn.broadcast_to",
    traits=Traits(sizes="shape", gradient=sums.broadcast_to),
    attrs={"dtype": dtype(None)},
    rel=_broadcast_rel,
    compute=_broadcast_compute,
    pattern=BROADCAST,
)
def broadcast_to(data: Tensor, shape: Numbers) -> Call:
    """The tensor repeated along dimensions of size 1 to a shape that is computed."""


def _tile_rel(types: list[Any], attrs: Any) -> Type:
    data, reps = types
    return TensorType(_unknown(max(len(data.shape), _list_length(reps, "reps"))), data.dtype)


@operator(
    "dyn.tile",
    rel=_tile_rel,
    compute=lambda attrs, ins, out: [topi.dyn_tile(ins[0], room(out))],
    pattern=BROADCAST,
)
def tile(data: Tensor, reps: Numbers) -> Call:
    """The whole tensor several times along each dimension, as a list says that is computed."""


# ---------------------------------------------------------------------------- creation
def _filled(name: str, value: float) -> Callable[[Any, Any], Call]:
    def build(shape: Numbers, dtype: Dtype) -> Call: ...

    return operator(
        f"dyn.{name}",
        attrs={"dtype": dtype("float32")},
        rel=lambda types, attrs: TensorType(_unknown(_list_length(types[0], "shape")), attrs.dtype),
        compute=lambda attrs, ins, out: [topi.full(room(out), out.dtype, value)],
        pattern=ELEMWISE,
        traits=Traits(sizes="shape", gradient=constant),
    )(named(build, name, __name__, f"{name.capitalize()} in a shape that is computed."))


zeros, ones = _filled("zeros", 0), _filled("ones", 1)


def _full_rel(types: list[Any], attrs: Any) -> Type:
    need_scalar(types[0], "fill_value")
    return TensorType(_unknown(_list_length(types[1], "shape")), attrs.dtype or types[0].dtype)


@operator(
    "dyn.full",
    traits=Traits(sizes="shape", gradient=grads.full),
    rel=_full_rel,
    compute=lambda attrs, ins, out: [topi.full(room(out), out.dtype, _one(ins[0]))],
    pattern=ELEMWISE,
)
def full(fill_value: Tensor, shape: Numbers, dtype: Dtype = "") -> Call:
    """One value in a shape that is computed."""
    return given(fill_value=fill_value if isinstance(fill_value, Expr) else const(fill_value, dtype or None))


def _arange_rel(types: list[Any], attrs: Any) -> Type:
    for kind, name in zip(types, ("start", "stop", "step"), strict=True):
        need_scalar(kind, name)
    return TensorType((AnySize(),), attrs.dtype)


def _arange_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    start, step = (ops.cast(out.dtype, _one(t)) for t in (ins[0], ins[2]))
    return [
        te.compute(
            room(out), lambda i: ops.add(start, ops.mul(ops.cast(out.dtype, i), step)), "arange", "injective"
        )
    ]


@operator(
    "dyn.arange",
    traits=Traits(gradient=grads.arange),
    rel=_arange_rel,
    compute=_arange_compute,
    pattern=INJECTIVE,
)
def arange(start: Tensor, stop: Tensor, step: Tensor, dtype: Dtype = "float32") -> Call:
    """Numbers from `start` on in equal steps to before `stop`, all three computed."""


def _one_hot_rel(types: list[Any], attrs: Any) -> Type:
    shape = types[0].shape
    for kind, name in zip(types[1:], ("on_value", "off_value", "depth"), strict=True):
        need_scalar(kind, name)
    at = len(shape) if attrs.axis == -1 else axis_of(attrs.axis, len(shape) + 1)
    return TensorType([*shape[:at], AnySize(), *shape[at:]], attrs.dtype)


def _one_hot_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    at = ins[0].ndim if attrs.axis == -1 else attrs.axis
    depth = room(out)[at]
    return [topi.one_hot(ins[0], _one(ins[1]), _one(ins[2]), depth, attrs.axis, attrs.dtype)]


@operator(
    "dyn.one_hot",
    attrs={"axis": integer(-1), "dtype": dtype("float32")},
    rel=_one_hot_rel,
    compute=_one_hot_compute,
    pattern=FUSABLE,
)
def one_hot(
    indices: Tensor, on_value: Tensor, off_value: Tensor, depth: Tensor, axis: int, dtype: Dtype
) -> Call:
    """A new dimension of computed size, with `on_value` at the index and `off_value` elsewhere."""


def _sparse_rel(types: list[Any], attrs: Any) -> Type:
    indices, shape, values, default = types
    need_integers(indices, "sparse_indices")
    need_dtype(default, values.dtype, "default_value")
    return TensorType(_unknown(_list_length(shape, "output_shape")), values.dtype)


@operator(
    "dyn.sparse_to_dense",
    rel=_sparse_rel,
    compute=lambda attrs, ins, out: [topi.sparse_to_dense(ins[0], room(out), ins[2], ins[3])],
)
def sparse_to_dense(
    sparse_indices: Tensor, output_shape: Tensor, sparse_values: Tensor, default_value: Tensor = 0
) -> Call:
    """Values at points, the default elsewhere, in a shape that is computed."""
    return given(default_value=const_like(default_value, sparse_values))


# ---------------------------------------------------------------------------- picking
def topk_type(shape: Sequence[Any], dtype: Any, attrs: Any) -> Type:
    """The type of the values, of their indices, or of both."""
    need_one_of(attrs.ret_type, ("both", "values", "indices"), "ret_type")
    values, places = TensorType(shape, dtype), TensorType(shape, attrs.dtype)
    return {"both": TupleType((values, places)), "values": values, "indices": places}[attrs.ret_type]


def _topk_rel(types: list[Any], attrs: Any) -> Type:
    data, k = types
    need_scalar(k, "k")
    need_integers(k, "k")
    at = axis_of(attrs.axis, len(data.shape))
    shape = [AnySize() if d == at else s for d, s in enumerate(data.shape)]
    return topk_type(shape, data.dtype, attrs)


def _topk_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    at = axis_of(attrs.axis, ins[0].ndim)
    count = room(tensor_fields(out)[0])[at]
    made = topi.topk(ins[0], count, attrs.axis, attrs.ret_type, attrs.is_ascend, attrs.dtype)
    return list(made) if attrs.ret_type == "both" else [made]


@operator(
    "dyn.topk",
    rel=_topk_rel,
    compute=_topk_compute,
    results=lambda call: 2 if call.attrs.ret_type == "both" else 0,
)
def topk(
    data: Tensor,
    k: Tensor,
    axis: int = -1,
    ret_type: str = "both",
    is_ascend: bool = False,
    dtype: Dtype = "int64",
) -> Any:
    """A computed number of the greatest elements along an axis, their indices, or both."""


def _slice_rel(types: list[Any], attrs: Any) -> Type:
    data = types[0]
    counts = [_list_length(t, n) for t, n in zip(types[1:], ("begin", "end", "strides"), strict=True)]
    if max(counts) > len(data.shape):
        raise refuse(f"has {max(counts)} places and data is {data}", "begin")
    need_one_of(attrs.slice_mode, ("end", "size"), "slice_mode")
    cut = max(counts)
    return TensorType([*_unknown(cut), *data.shape[cut:]], data.dtype)


@operator(
    "dyn.strided_slice",
    rel=_slice_rel,
    compute=lambda attrs, ins, out: [
        topi.dynamic_strided_slice(
            ins[0], ins[1], ins[2], ins[3] if attrs.slice_mode == "end" else None, room(out)
        )
    ],
    pattern=INJECTIVE,
)
def strided_slice(
    data: Tensor, begin: Numbers, end: Numbers, strides: Numbers, slice_mode: str = "end"
) -> Call:
    """The elements from `begin` to `end` in steps along the first dimensions, all three computed."""


# ---------------------------------------------------------------------------- frames and images
def _pad_rel(types: list[Any], attrs: Any) -> Type:
    data, width, value = types
    need_rank(width, 2, "pad_width")
    need_integers(width, "pad_width")
    if differ(width.shape[0], len(data.shape)) or differ(width.shape[1], 2):
        raise refuse(f"must be ({len(data.shape)}, 2) for {data} and is {width}", "pad_width")
    need_scalar(value, "pad_value")
    need_one_of(attrs.pad_mode, ("constant", "edge", "reflect"), "pad_mode")
    return TensorType(_unknown(len(data.shape)), data.dtype)


def _pad_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    data, width, value = ins

    def element(*at: Any) -> Any:
        places, inside = [], []
        for d, i in enumerate(at):
            place, size = ops.sub(i, ops.cast(i.dtype, width(d, 0))), data.shape[d]
            inside += [ops.greater_equal(place, 0), ops.less(place, size)]
            if attrs.pad_mode == "reflect":
                place = ops.abs(place)
                last = ops.sub(size, 1)
                place = ops.sub(last, ops.abs(ops.sub(last, place)))
            if attrs.pad_mode != "constant":
                place = ops.max_of(ops.min_of(place, ops.sub(size, 1)), 0)
            places.append(place)
        if attrs.pad_mode != "constant" or not places:
            return data(*places)
        return ops.if_then_else(ops.all(*inside), data(*places), ops.cast(data.dtype, _one(value)))

    return [te.compute(room(out), element, "pad", "injective")]


@operator("dyn.nn.pad", rel=_pad_rel, compute=_pad_compute, pattern=INJECTIVE)
def pad(data: Tensor, pad_width: Numbers, pad_value: Tensor = 0, pad_mode: str = "constant") -> Call:
    """The tensor with padding of computed widths."""


def _enlarged(layout: str, kind: TensorType, axes: str) -> Type:
    named = layouts.sizes(layout, kind.shape)
    if not set(axes) <= set(named):
        raise refuse(f"{layout} has not all of {', '.join(axes)}", "layout")
    return TensorType(layouts.shape_in(layout, {**named, **{v: AnySize() for v in axes}}), kind.dtype)


def _out_sizes(out: TensorType, layout: str, axes: str) -> list[Any]:
    """The sizes of a result along some axes."""
    shape = room(out)
    return [shape[layouts.axis_in(layout, v)] for v in axes]


def _scales_rel(types: Sequence[Any], attrs: Any, axes: str) -> Type:
    for kind, letter in zip(types[1:], axes, strict=True):
        need_scalar(kind, f"scale_{letter.lower()}")
    return _enlarged(attrs.layout, types[0], axes)


def _upsampling_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    size = _out_sizes(out, attrs.layout, "HW")
    mode = "align_corners" if attrs.align_corners else "asymmetric"
    return [topi.image.resize2d(ins[0], None, size, attrs.layout, attrs.method, mode)]


@operator(
    "dyn.nn.upsampling",
    rel=lambda types, attrs: _scales_rel(types, attrs, "HW"),
    compute=_upsampling_compute,
    pattern=INJECTIVE,
)
def upsampling(
    data: Tensor,
    scale_h: Tensor,
    scale_w: Tensor,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
) -> Call:
    """An image made larger by factors that are computed."""


def _upsampling3d_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    size = _out_sizes(out, attrs.layout, "DHW")
    mode = attrs.coordinate_transformation_mode
    return [topi.image.resize3d(ins[0], None, size, attrs.layout, attrs.method, mode, "round")]


@operator(
    "dyn.nn.upsampling3d",
    rel=lambda types, attrs: _scales_rel(types, attrs, "DHW"),
    compute=_upsampling3d_compute,
    pattern=INJECTIVE,
)
def upsampling3d(
    data: Tensor,
    scale_d: Tensor,
    scale_h: Tensor,
    scale_w: Tensor,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "half_pixel",
) -> Call:
    """A volume made larger by factors that are computed."""


def _resize_rel(types: list[Any], attrs: Any) -> Type:
    data, size, roi = types
    if _list_length(size, "size") != 2:
        raise refuse(f"must have two numbers and is {size}", "size")
    need_rank(roi, 1, "roi")
    made = _enlarged(attrs.layout, data, "HW")
    assert isinstance(made, TensorType)
    return TensorType(made.shape, attrs.out_dtype or data.dtype)


def _resize_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    size = _out_sizes(out, attrs.layout, "HW")
    return [
        topi.image.resize2d(
            ins[0], ins[2], size, attrs.layout, attrs.method, attrs.coordinate_transformation_mode,
            attrs.rounding_method, attrs.cubic_alpha, attrs.cubic_exclude, attrs.extrapolation_value, out.dtype,
        )
    ]  # fmt: skip


@operator(
    "dyn.image.resize2d",
    traits=Traits(sizes="size"),
    rel=_resize_rel,
    compute=_resize_compute,
    pattern=INJECTIVE,
)
def resize2d(
    data: Tensor,
    size: Numbers,
    roi: Numbers = None,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    cubic_alpha: float = -0.5,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: Dtype = None,
) -> Call:
    """An image resized to a computed size."""
    return given(roi=[0.0, 0.0, 1.0, 1.0] if roi is None else roi)
