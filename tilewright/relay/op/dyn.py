"""Operators whose shape data is computed by the program: the result has sizes that only the run knows.

    dyn.reshape(x, shape_of(y)) : Tensor[(?, ?), float32]

How many dimensions a result has is always known. A kernel is compiled for sizes that are variables: `compute` takes
them from the type it is given, or makes them (`room`); `shape_funcs.py` says which they are when the program runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir import ops
from ..expr import Call, Constant, Expr, TupleWrapper, as_expr, const, const_like
from ..ty import Any as AnySize
from ..ty import TensorType, TupleType, Type, tensor_fields
from . import layouts
from .computes import te, topi
from .registry import Attr, OpPattern, RelayOp, dtype, flag, integer, number, refuse, register, text
from .shapes import axis_of, differ, is_known, need_dtype, need_rank

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


def is_computed(value: Any) -> bool:
    """Whether shape data is an expression, and no constant: a constructor then takes the operator of this family."""
    return isinstance(value, Expr) and not isinstance(value, Constant)


def room(kind: TensorType) -> list[Any]:
    """The sizes of a result, with a variable for each that is not known."""
    return [te.size_var(f"d{i}", "int32") if isinstance(d, AnySize) else d for i, d in enumerate(kind.shape)]


def _list_length(kind: TensorType, argument: str) -> int:
    """How many numbers a list of sizes, places or factors has."""
    need_rank(kind, 1, argument)
    _need_integers(kind, argument)
    if not is_known(kind.shape[0]):
        raise refuse(f"is {kind}: the number of dimensions of the result must be known", argument)
    return int(kind.shape[0])


def _need_integers(kind: TensorType, argument: str) -> None:
    if not kind.dtype.is_integral or kind.dtype.is_bool:
        raise refuse(f"must hold integers and is {kind}", argument)


def _need_scalar(kind: TensorType, argument: str) -> None:
    if any(differ(d, 1) for d in kind.shape):
        raise refuse(f"must be one number and is {kind}", argument)


def _unknown(count: int) -> list[AnySize]:
    return [AnySize() for _ in range(count)]


def _listed(value: Any) -> Any:
    """A list of numbers as a constant, an expression as it is."""
    return value if isinstance(value, Expr) else const(value)


def _one(t: Any) -> Any:
    """The only element of a tensor."""
    return t(*[0] * t.ndim)


# ---------------------------------------------------------------------------- other shapes
_reshape = register(
    "dyn.reshape",
    inputs=("data", "newshape"),
    attrs={"allowzero": flag(False)},
    rel=lambda types, attrs: TensorType(_unknown(_list_length(types[1], "newshape")), types[0].dtype),
    compute=lambda attrs, ins, out: [topi.reshape(ins[0], room(out))],
    pattern=OpPattern.INJECTIVE,
)


def reshape(data: Any, newshape: Any, allowzero: bool = False) -> Call:
    """The same elements under a shape that is computed; 0 keeps a dimension and -1 is what is left."""
    return _reshape(data, _listed(newshape), allowzero=allowzero)


def _squeeze_rel(types: list[Any], attrs: Any) -> Type:
    data, axis = types
    left = len(data.shape) - _list_length(axis, "axis")
    if left < 0:
        raise refuse(f"is {axis} and data is {data}", "axis")
    return TensorType(_unknown(left), data.dtype)


_squeeze = register(
    "dyn.squeeze",
    inputs=("data", "axis"),
    rel=_squeeze_rel,
    compute=lambda attrs, ins, out: [topi.reshape(ins[0], room(out))],
    pattern=OpPattern.INJECTIVE,
)


def squeeze(data: Any, axis: Any) -> Call:
    """The tensor without the dimensions of size 1 that a list names."""
    return _squeeze(data, _listed(axis))


def _expand_rel(types: list[Any], attrs: Any) -> Type:
    data, axis = types
    _need_scalar(axis, "axis")
    _need_integers(axis, "axis")
    return TensorType(_unknown(len(data.shape) + attrs.num_newaxis), data.dtype)


_expand_dims = register(
    "dyn.expand_dims",
    inputs=("data", "axis"),
    attrs={"num_newaxis": integer(1)},
    rel=_expand_rel,
    compute=lambda attrs, ins, out: [topi.reshape(ins[0], room(out))],
    pattern=OpPattern.INJECTIVE,
)


def expand_dims(data: Any, axis: Any, num_newaxis: int = 1) -> Call:
    """New dimensions of size 1 before a dimension that is computed."""
    return _expand_dims(data, axis, num_newaxis=num_newaxis)


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


_broadcast_to = register(
    "dyn.broadcast_to",
    inputs=("data", "shape"),
    attrs={"dtype": dtype(None)},
    rel=_broadcast_rel,
    compute=_broadcast_compute,
    pattern=OpPattern.BROADCAST,
)


def broadcast_to(data: Any, shape: Any) -> Call:
    """The tensor repeated along dimensions of size 1 to a shape that is computed."""
    return _broadcast_to(data, _listed(shape))


def _tile_rel(types: list[Any], attrs: Any) -> Type:
    data, reps = types
    return TensorType(_unknown(max(len(data.shape), _list_length(reps, "reps"))), data.dtype)


_tile = register(
    "dyn.tile",
    inputs=("data", "reps"),
    rel=_tile_rel,
    compute=lambda attrs, ins, out: [topi.dyn_tile(ins[0], room(out))],
    pattern=OpPattern.BROADCAST,
)


def tile(data: Any, reps: Any) -> Call:
    """The whole tensor several times along each dimension, as a list says that is computed."""
    return _tile(data, _listed(reps))


# ---------------------------------------------------------------------------- creation
def _filled(name: str, value: float) -> RelayOp:
    return register(
        name,
        inputs=("shape",),
        attrs={"dtype": dtype("float32")},
        rel=lambda types, attrs: TensorType(_unknown(_list_length(types[0], "shape")), attrs.dtype),
        compute=lambda attrs, ins, out: [topi.full(room(out), out.dtype, value)],
        pattern=OpPattern.ELEMWISE,
    )


_zeros, _ones = _filled("dyn.zeros", 0), _filled("dyn.ones", 1)


def zeros(shape: Any, dtype: str) -> Call:
    """Zeros in a shape that is computed."""
    return _zeros(_listed(shape), dtype=dtype)


def ones(shape: Any, dtype: str) -> Call:
    """Ones in a shape that is computed."""
    return _ones(_listed(shape), dtype=dtype)


def _full_rel(types: list[Any], attrs: Any) -> Type:
    _need_scalar(types[0], "fill_value")
    return TensorType(_unknown(_list_length(types[1], "shape")), attrs.dtype or types[0].dtype)


_full = register(
    "dyn.full",
    inputs=("fill_value", "shape"),
    attrs={"dtype": dtype(None)},
    rel=_full_rel,
    compute=lambda attrs, ins, out: [topi.full(room(out), out.dtype, _one(ins[0]))],
    pattern=OpPattern.ELEMWISE,
)


def full(fill_value: Any, shape: Any, dtype: str = "") -> Call:
    """One value in a shape that is computed."""
    value = fill_value if isinstance(fill_value, Expr) else const(fill_value, dtype or None)
    return _full(value, _listed(shape), dtype=dtype)


def _arange_rel(types: list[Any], attrs: Any) -> Type:
    for kind, name in zip(types, ("start", "stop", "step"), strict=True):
        _need_scalar(kind, name)
    return TensorType((AnySize(),), attrs.dtype)


def _arange_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    start, step = (ops.cast(out.dtype, _one(t)) for t in (ins[0], ins[2]))
    return [
        te.compute(
            room(out), lambda i: ops.add(start, ops.mul(ops.cast(out.dtype, i), step)), "arange", "injective"
        )
    ]


_arange = register(
    "dyn.arange",
    inputs=("start", "stop", "step"),
    attrs={"dtype": dtype("float32")},
    rel=_arange_rel,
    compute=_arange_compute,
    pattern=OpPattern.INJECTIVE,
)


def arange(start: Any, stop: Any, step: Any, dtype: str = "float32") -> Call:
    """Numbers from `start` on in equal steps to before `stop`, all three computed."""
    return _arange(as_expr(start), as_expr(stop), as_expr(step), dtype=dtype)


def _one_hot_rel(types: list[Any], attrs: Any) -> Type:
    shape = types[0].shape
    for kind, name in zip(types[1:], ("on_value", "off_value", "depth"), strict=True):
        _need_scalar(kind, name)
    at = len(shape) if attrs.axis == -1 else axis_of(attrs.axis, len(shape) + 1)
    return TensorType([*shape[:at], AnySize(), *shape[at:]], attrs.dtype)


def _one_hot_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    at = ins[0].ndim if attrs.axis == -1 else attrs.axis
    depth = room(out)[at]
    return [topi.one_hot(ins[0], _one(ins[1]), _one(ins[2]), depth, attrs.axis, attrs.dtype)]


_one_hot = register(
    "dyn.one_hot",
    inputs=("indices", "on_value", "off_value", "depth"),
    attrs={"axis": integer(-1), "dtype": dtype("float32")},
    rel=_one_hot_rel,
    compute=_one_hot_compute,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
)


def one_hot(indices: Any, on_value: Any, off_value: Any, depth: Any, axis: int, dtype: str) -> Call:
    """A new dimension, as long as is computed, with `on_value` at the index and `off_value` elsewhere."""
    return _one_hot(indices, on_value, off_value, depth, axis=axis, dtype=dtype)


def _sparse_rel(types: list[Any], attrs: Any) -> Type:
    indices, shape, values, default = types
    _need_integers(indices, "sparse_indices")
    need_dtype(default, values.dtype, "default_value")
    return TensorType(_unknown(_list_length(shape, "output_shape")), values.dtype)


_sparse_to_dense = register(
    "dyn.sparse_to_dense",
    inputs=("sparse_indices", "output_shape", "sparse_values", "default_value"),
    rel=_sparse_rel,
    compute=lambda attrs, ins, out: [topi.sparse_to_dense(ins[0], room(out), ins[2], ins[3])],
)


def sparse_to_dense(
    sparse_indices: Any, output_shape: Any, sparse_values: Any, default_value: Any = 0
) -> Call:
    """Values at points, the default elsewhere, in a shape that is computed."""
    return _sparse_to_dense(
        sparse_indices, output_shape, sparse_values, const_like(default_value, sparse_values)
    )


# ---------------------------------------------------------------------------- picking
def _topk_rel(types: list[Any], attrs: Any) -> Type:
    data, k = types
    _need_scalar(k, "k")
    _need_integers(k, "k")
    at = axis_of(attrs.axis, len(data.shape))
    shape = [AnySize() if d == at else s for d, s in enumerate(data.shape)]
    values, places = TensorType(shape, data.dtype), TensorType(shape, attrs.dtype)
    if attrs.ret_type == "both":
        return TupleType((values, places))
    if attrs.ret_type not in ("values", "indices"):
        raise refuse(f"is {attrs.ret_type!r} and may be 'both', 'values' or 'indices'", "ret_type")
    return values if attrs.ret_type == "values" else places


def _topk_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    at = axis_of(attrs.axis, ins[0].ndim)
    count = room(tensor_fields(out)[0])[at]
    made = topi.topk(ins[0], count, attrs.axis, attrs.ret_type, attrs.is_ascend, attrs.dtype)
    return list(made) if attrs.ret_type == "both" else [made]


_topk = register(
    "dyn.topk",
    inputs=("data", "k"),
    attrs={
        "axis": integer(-1),
        "ret_type": text("both"),
        "is_ascend": flag(False),
        "dtype": dtype("int64"),
    },
    rel=_topk_rel,
    compute=_topk_compute,
)


def topk(
    data: Any, k: Any, axis: int = -1, ret_type: str = "both", is_ascend: bool = False, dtype: str = "int64"
) -> Any:
    """The greatest elements along an axis, as many as is computed, their places, or both."""
    made = _topk(data, k, axis=axis, ret_type=ret_type, is_ascend=is_ascend, dtype=dtype)
    return TupleWrapper(made, 2) if ret_type == "both" else made


def _slice_rel(types: list[Any], attrs: Any) -> Type:
    data = types[0]
    counts = [_list_length(t, n) for t, n in zip(types[1:], ("begin", "end", "strides"), strict=True)]
    if max(counts) > len(data.shape):
        raise refuse(f"has {max(counts)} places and data is {data}", "begin")
    if attrs.slice_mode not in ("end", "size"):
        raise refuse(f"is {attrs.slice_mode!r} and may be 'end' or 'size'", "slice_mode")
    cut = max(counts)
    return TensorType([*_unknown(cut), *data.shape[cut:]], data.dtype)


_strided_slice = register(
    "dyn.strided_slice",
    inputs=("data", "begin", "end", "strides"),
    attrs={"slice_mode": text("end")},
    rel=_slice_rel,
    compute=lambda attrs, ins, out: [
        topi.dynamic_strided_slice(
            ins[0], ins[1], ins[2], ins[3] if attrs.slice_mode == "end" else None, room(out)
        )
    ],
    pattern=OpPattern.INJECTIVE,
)


def strided_slice(data: Any, begin: Any, end: Any, strides: Any, slice_mode: str = "end") -> Call:
    """The elements from `begin` to `end` in steps along the first dimensions, all three computed."""
    return _strided_slice(data, _listed(begin), _listed(end), _listed(strides), slice_mode=slice_mode)


# ---------------------------------------------------------------------------- frames and images
def _pad_rel(types: list[Any], attrs: Any) -> Type:
    data, width, value = types
    need_rank(width, 2, "pad_width")
    _need_integers(width, "pad_width")
    if differ(width.shape[0], len(data.shape)) or differ(width.shape[1], 2):
        raise refuse(f"must be ({len(data.shape)}, 2) for {data} and is {width}", "pad_width")
    _need_scalar(value, "pad_value")
    if attrs.pad_mode not in ("constant", "edge", "reflect"):
        raise refuse(f"is {attrs.pad_mode!r} and may be 'constant', 'edge' or 'reflect'", "pad_mode")
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


_pad = register(
    "dyn.nn.pad",
    inputs=("data", "pad_width", "pad_value"),
    attrs={"pad_mode": text("constant")},
    rel=_pad_rel,
    compute=_pad_compute,
    pattern=OpPattern.INJECTIVE,
)


def pad(data: Any, pad_width: Any, pad_value: Any = 0, pad_mode: str = "constant") -> Call:
    """The tensor in a frame whose widths are computed."""
    return _pad(data, _listed(pad_width), as_expr(pad_value), pad_mode=pad_mode)


def _enlarged(layout: str, kind: TensorType, axes: str) -> Type:
    named = layouts.sizes(layout, kind.shape)
    if not set(axes) <= set(named):
        raise refuse(f"{layout} has not all of {', '.join(axes)}", "layout")
    return TensorType(layouts.shape_in(layout, {**named, **{v: AnySize() for v in axes}}), kind.dtype)


def _out_sizes(out: TensorType, layout: str, axes: str) -> tuple[list[Any], list[Any]]:
    """The whole shape of a result, and its sizes along some axes."""
    shape = room(out)
    order = [v for v, _ in layouts.axes(layout)]
    return shape, [shape[order.index(v)] for v in axes]


def _scales_rel(types: Sequence[Any], attrs: Any, axes: str) -> Type:
    for kind, letter in zip(types[1:], axes, strict=True):
        _need_scalar(kind, f"scale_{letter.lower()}")
    return _enlarged(attrs.layout, types[0], axes)


def _upsampling_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    _, size = _out_sizes(out, attrs.layout, "HW")
    mode = "align_corners" if attrs.align_corners else "asymmetric"
    return [topi.image.resize2d(ins[0], None, size, attrs.layout, attrs.method, mode)]


_SCALED: dict[str, Attr] = {"layout": text("NCHW"), "method": text("nearest_neighbor")}
_upsampling = register(
    "dyn.nn.upsampling",
    inputs=("data", "scale_h", "scale_w"),
    attrs={**_SCALED, "align_corners": flag(False)},
    rel=lambda types, attrs: _scales_rel(types, attrs, "HW"),
    compute=_upsampling_compute,
    pattern=OpPattern.INJECTIVE,
)


def upsampling(
    data: Any,
    scale_h: Any,
    scale_w: Any,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
) -> Call:
    """An image made larger by factors that are computed."""
    return _upsampling(
        data, as_expr(scale_h), as_expr(scale_w), layout=layout, method=method, align_corners=align_corners
    )


def _upsampling3d_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    _, size = _out_sizes(out, attrs.layout, "DHW")
    mode = attrs.coordinate_transformation_mode
    return [topi.image.resize3d(ins[0], None, size, attrs.layout, attrs.method, mode, "round")]


_upsampling3d = register(
    "dyn.nn.upsampling3d",
    inputs=("data", "scale_d", "scale_h", "scale_w"),
    attrs={**_SCALED, "layout": text("NCDHW"), "coordinate_transformation_mode": text("half_pixel")},
    rel=lambda types, attrs: _scales_rel(types, attrs, "DHW"),
    compute=_upsampling3d_compute,
    pattern=OpPattern.INJECTIVE,
)


def upsampling3d(
    data: Any,
    scale_d: Any,
    scale_h: Any,
    scale_w: Any,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "half_pixel",
) -> Call:
    """A volume made larger by factors that are computed."""
    return _upsampling3d(
        data,
        as_expr(scale_d),
        as_expr(scale_h),
        as_expr(scale_w),
        layout=layout,
        method=method,
        coordinate_transformation_mode=coordinate_transformation_mode,
    )


def _resize_rel(types: list[Any], attrs: Any) -> Type:
    data, size, roi = types
    if _list_length(size, "size") != 2:
        raise refuse(f"must have two numbers and is {size}", "size")
    need_rank(roi, 1, "roi")
    made = _enlarged(attrs.layout, data, "HW")
    assert isinstance(made, TensorType)
    return TensorType(made.shape, attrs.out_dtype or data.dtype)


def _resize_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    _, size = _out_sizes(out, attrs.layout, "HW")
    return [
        topi.image.resize2d(
            ins[0], ins[2], size, attrs.layout, attrs.method, attrs.coordinate_transformation_mode,
            attrs.rounding_method, attrs.cubic_alpha, attrs.cubic_exclude, attrs.extrapolation_value, out.dtype,
        )
    ]  # fmt: skip


RESIZE: dict[str, Attr] = {
    "method": text("linear"),
    "coordinate_transformation_mode": text("half_pixel"),
    "rounding_method": text(""),
    "cubic_alpha": number(-0.5),
    "cubic_exclude": integer(0),
    "extrapolation_value": number(0.0),
    "out_dtype": dtype(None),
}
_resize2d = register(
    "dyn.image.resize2d",
    inputs=("data", "size", "roi"),
    attrs={"layout": text("NCHW"), **RESIZE},
    rel=_resize_rel,
    compute=_resize_compute,
    pattern=OpPattern.INJECTIVE,
)


def resize2d(
    data: Any,
    size: Any,
    roi: Any = None,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    cubic_alpha: float = -0.5,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: Any = None,
) -> Call:
    """An image in a size that is computed."""
    whole = const([0.0, 0.0, 1.0, 1.0], "float32") if roi is None else _listed(roi)
    return _resize2d(
        data,
        _listed(size),
        whole,
        layout=layout,
        method=method,
        coordinate_transformation_mode=coordinate_transformation_mode,
        rounding_method=rounding_method,
        cubic_alpha=cubic_alpha,
        cubic_exclude=cubic_exclude,
        extrapolation_value=extrapolation_value,
        out_dtype=out_dtype,
    )
