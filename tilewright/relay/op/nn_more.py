"""Neural-network operators beside the common ones: norms, losses, blocks of pixels, upsampling, packed products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..expr import Call, Constant
from ..ty import Any as AnySize
from ..ty import TensorType, Type
from . import dyn, layouts
from .computes import topi
from .registry import (
    Attr,
    Constructor,
    Dtype,
    Ints,
    OpPattern,
    Place,
    Tensor,
    flag,
    given,
    integer,
    number,
    operator,
    refuse,
    text,
)
from .shapes import (
    add,
    axes_of,
    axis_of,
    differ,
    floordiv,
    is_known,
    mul,
    need_dtype,
    need_rank,
    product,
    sub,
)

__all__ = [
    "batch_to_space_nd",
    "contrib_dense_pack",
    "cross_entropy",
    "cross_entropy_with_logits",
    "depth_to_space",
    "dilate",
    "fifo_buffer",
    "group_norm",
    "instance_norm",
    "l2_normalize",
    "lrn",
    "mirror_pad",
    "nll_loss",
    "rms_norm",
    "space_to_batch_nd",
    "space_to_depth",
    "sparse_dense",
    "upsampling",
    "upsampling3d",
]


def _number(value: Any) -> Any:
    """A constant as a number, an expression as it is."""
    return value.numpy().item() if isinstance(value, Constant) and not value.data.shape else value


def _part(size: Any, by: int, argument: str, what: str) -> Any:
    """size / by, which must come out even."""
    if is_known(size) and size % by:
        raise refuse(f"{what} is {size} and must be a multiple of {by}", argument)
    return floordiv(size, by)


# ---------------------------------------------------------------------------- norms
def _beside(data: TensorType, at: int, **vectors: TensorType) -> None:
    """Vectors with an element for each index of a dimension."""
    for name, kind in vectors.items():
        need_rank(kind, 1, name)
        if differ(kind.shape[0], data.shape[at]):
            raise refuse(f"has {kind.shape[0]} elements and dimension {at} of data {data.shape[at]}", name)


_NORM = {"axis": integer(1), "epsilon": number(1e-5), "center": flag(True), "scale": flag(True)}


def _channel(attrs: Any, ndim: int) -> int:
    at = axis_of(attrs.axis, ndim)
    if at == 0:
        raise refuse("is 0, which is the batch", "axis")
    return at


def _scales(attrs: Any, ins: Sequence[Any]) -> tuple[Any, Any]:
    return ins[1] if attrs.scale else None, ins[2] if attrs.center else None


def _instance_norm_rel(types: list[Any], attrs: Any) -> Type:
    data, gamma, beta = types
    _beside(data, _channel(attrs, len(data.shape)), gamma=gamma, beta=beta)
    return data  # type: ignore[no-any-return]


def _instance_norm_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    at = _channel(attrs, ins[0].ndim)
    inner = [d for d in range(1, ins[0].ndim) if d != at]
    return [topi.nn.instance_norm(ins[0], *_scales(attrs, ins), inner, attrs.epsilon)]


@operator(
    "nn.instance_norm",
    rel=_instance_norm_rel,
    compute=_instance_norm_compute,
)
def instance_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Call:
    """Each channel of each image normalised by its own mean and variance."""


def _group_norm_rel(types: list[Any], attrs: Any) -> Type:
    data, gamma, beta = types
    at = _channel(attrs, len(data.shape))
    _beside(data, at, gamma=gamma, beta=beta)
    if attrs.num_groups < 1:
        raise refuse(f"is {attrs.num_groups}", "num_groups")
    _part(data.shape[at], attrs.num_groups, "num_groups", "the number of channels")
    return data  # type: ignore[no-any-return]


def _group_norm_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    at = _channel(attrs, ins[0].ndim)
    inner = [d for d in range(1, ins[0].ndim) if d != at]
    return [topi.nn.group_norm(ins[0], *_scales(attrs, ins), attrs.num_groups, at, inner, attrs.epsilon)]


@operator(
    "nn.group_norm",
    rel=_group_norm_rel,
    compute=_group_norm_compute,
)
def group_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    num_groups: int,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Call:
    """Groups of channels of each image normalised by their own mean and variance."""


def _rms_norm_rel(types: list[Any], attrs: Any) -> Type:
    data, weight = types
    axes = sorted(axes_of(attrs.axis, len(data.shape)))
    need_rank(weight, len(axes), "weight")
    for d, size in zip(axes, weight.shape, strict=True):
        if differ(size, data.shape[d]):
            raise refuse(f"is {weight} and dimension {d} of data {data.shape[d]}", "weight")
    return data  # type: ignore[no-any-return]


@operator(
    "nn.rms_norm",
    rel=_rms_norm_rel,
    compute=lambda attrs, ins, out: [
        topi.nn.rms_norm(ins[0], ins[1], sorted(axes_of(attrs.axis, ins[0].ndim)), attrs.epsilon)
    ],
)
def rms_norm(data: Tensor, weight: Tensor, axis: Ints = (-1,), epsilon: float = 1e-5) -> Call:
    """x / sqrt(mean(x²) + epsilon) · weight."""


def _axes_rel(types: list[Any], attrs: Any) -> Type:
    axes_of(attrs.axis, len(types[0].shape))
    return types[0]  # type: ignore[no-any-return]


@operator(
    "nn.l2_normalize",
    rel=_axes_rel,
    compute=lambda attrs, ins, out: [topi.nn.l2_normalize(ins[0], attrs.eps, attrs.axis)],
)
def l2_normalize(data: Tensor, eps: float, axis: Ints = None) -> Call:
    """x / sqrt(max(sum(x²), eps)) over some dimensions."""


def _lrn_rel(types: list[Any], attrs: Any) -> Type:
    axis_of(attrs.axis, len(types[0].shape))
    if attrs.size < 1:
        raise refuse(f"is {attrs.size}", "size")
    return types[0]  # type: ignore[no-any-return]


@operator(
    "nn.lrn",
    rel=_lrn_rel,
    compute=lambda attrs, ins, out: [
        topi.nn.lrn(ins[0], attrs.size, attrs.axis, attrs.alpha, attrs.beta, attrs.bias)
    ],
)
def lrn(
    data: Tensor, size: int = 5, axis: int = 1, bias: float = 2, alpha: float = 1e-05, beta: float = 0.75
) -> Call:
    """Each element divided by (bias + alpha/size · sum of squares of its neighbours)^beta."""


# ---------------------------------------------------------------------------- losses
def _entropy_rel(types: list[Any], attrs: Any) -> Type:
    predictions, targets = types
    need_rank(predictions, 2, "predictions")
    need_rank(targets, 2, "targets")
    need_dtype(targets, predictions.dtype, "targets")
    if any(differ(a, b) for a, b in zip(predictions.shape, targets.shape, strict=True)):
        raise refuse(f"are {targets} and predictions are {predictions}", "targets")
    return TensorType((), predictions.dtype)


@operator(
    "nn.cross_entropy",
    rel=_entropy_rel,
    compute=lambda attrs, ins, out: [topi.nn.cross_entropy(*ins)],
)
def cross_entropy(predictions: Tensor, targets: Tensor) -> Call:
    """-sum(log(predictions)·targets) / batch."""


@operator(
    "nn.cross_entropy_with_logits",
    rel=_entropy_rel,
    compute=lambda attrs, ins, out: [topi.nn.cross_entropy_with_logits(*ins)],
)
def cross_entropy_with_logits(predictions: Tensor, targets: Tensor) -> Call:
    """-sum(predictions·targets) / batch, of predictions that are logarithms already."""


def _nll_rel(types: list[Any], attrs: Any) -> Type:
    predictions, targets, weights = types
    if not predictions.shape:
        raise refuse(f"must have classes and are {predictions}", "predictions")
    at = 0 if len(predictions.shape) == 1 else 1
    places = (*predictions.shape[:at], *predictions.shape[at + 1 :])
    wrong = len(places) != len(targets.shape)
    if wrong or any(differ(a, b) for a, b in zip(places, targets.shape, strict=True)):
        raise refuse(f"are {targets} and predictions are {predictions}", "targets")
    if not targets.dtype.is_integral:
        raise refuse(f"are {targets.dtype} and must be integers", "targets")
    _beside(predictions, at, weights=weights)
    if attrs.reduction not in ("mean", "sum", "none"):
        raise refuse(f"is {attrs.reduction!r} and may be 'mean', 'sum' or 'none'", "reduction")
    return TensorType(places if attrs.reduction == "none" else (), predictions.dtype)


@operator(
    "nn.nll_loss",
    attrs={"node": text("")},
    rel=_nll_rel,
    compute=lambda attrs, ins, out: [
        topi.nn.nll_loss(ins[0], ins[1], ins[2], attrs.reduction, attrs.ignore_index, node=attrs.node)
    ],
    places=lambda types, attrs: [
        Place(
            1,
            "position",
            0,
            (min(1, len(types[0].shape) - 1),),
            ignored=attrs.ignore_index,
        )
    ],
)
def nll_loss(
    predictions: Tensor, targets: Tensor, weights: Tensor, reduction: str = "mean", ignore_index: int = -100
) -> Call:
    """-weight·prediction of the class that each place has, averaged, summed or each for itself."""


# ---------------------------------------------------------------------------- blocks of pixels
def _block_attrs(attrs: Any) -> int:
    if attrs.block_size < 1:
        raise refuse(f"is {attrs.block_size}", "block_size")
    if attrs.layout not in ("NCHW", "NHWC"):
        raise refuse(f"is {attrs.layout} and must be NCHW or NHWC", "layout")
    if attrs.mode not in ("DCR", "CRD"):
        raise refuse(f"is {attrs.mode!r} and must be DCR or CRD", "mode")
    return int(attrs.block_size)


def _depth_to_space_rel(types: list[Any], attrs: Any) -> Type:
    b = _block_attrs(attrs)
    named = layouts.sizes(attrs.layout, types[0].shape)
    named["C"] = _part(named["C"], b * b, "data", "the number of channels")
    named["H"], named["W"] = mul(named["H"], b), mul(named["W"], b)
    return TensorType(layouts.shape_in(attrs.layout, named), types[0].dtype)


def _space_to_depth_rel(types: list[Any], attrs: Any) -> Type:
    b = _block_attrs(attrs)
    named = layouts.sizes(attrs.layout, types[0].shape)
    named["C"] = mul(named["C"], b * b)
    named["H"], named["W"] = (
        _part(named["H"], b, "data", "the height"),
        _part(named["W"], b, "data", "the width"),
    )
    return TensorType(layouts.shape_in(attrs.layout, named), types[0].dtype)


_BLOCK: dict[str, Attr] = {"block_size": integer(), "layout": text("NCHW"), "mode": text("DCR")}


@operator(
    "nn.depth_to_space",
    rel=_depth_to_space_rel,
    compute=lambda attrs, ins, out: [
        topi.nn.depth_to_space(ins[0], attrs.block_size, attrs.layout, attrs.mode)
    ],
    pattern=OpPattern.INJECTIVE,
)
def depth_to_space(data: Tensor, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> Call:
    """Channels become blocks of pixels; DCR or CRD says which part of a channel's number is the depth."""


@operator(
    "nn.space_to_depth",
    rel=_space_to_depth_rel,
    compute=lambda attrs, ins, out: [
        topi.nn.space_to_depth(ins[0], attrs.block_size, attrs.layout, attrs.mode)
    ],
    pattern=OpPattern.INJECTIVE,
)
def space_to_depth(data: Tensor, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> Call:
    """Blocks of pixels become channels, the way back from depth_to_space."""


def _check_rows(attrs: Any, name: str, ndim: int) -> None:
    blocks, rows = attrs.block_shape, attrs[name]
    if len(blocks) >= ndim or any(b < 1 for b in blocks):
        raise refuse(
            f"is {blocks} and data has {ndim} dimensions, of which the first is the batch", "block_shape"
        )
    if len(rows) != len(blocks) or any(len(r) != 2 or min(r) < 0 for r in rows):
        raise refuse(f"is {rows} and needs two numbers for each of {len(blocks)} dimensions", name)


def _space_to_batch_rel(types: list[Any], attrs: Any) -> Type:
    shape = list(types[0].shape)
    _check_rows(attrs, "paddings", len(shape))
    shape[0] = mul(shape[0], product(attrs.block_shape))
    for d, (b, (before, after)) in enumerate(zip(attrs.block_shape, attrs.paddings, strict=True), 1):
        shape[d] = _part(add(shape[d], before + after), b, "data", f"dimension {d} with its padding")
    return TensorType(shape, types[0].dtype)


def _batch_to_space_rel(types: list[Any], attrs: Any) -> Type:
    shape = list(types[0].shape)
    _check_rows(attrs, "crops", len(shape))
    shape[0] = _part(shape[0], product(attrs.block_shape), "data", "the batch")
    for d, (b, (before, after)) in enumerate(zip(attrs.block_shape, attrs.crops, strict=True), 1):
        shape[d] = sub(mul(shape[d], b), before + after)
        if isinstance(shape[d], int) and shape[d] < 0:
            raise refuse(f"{attrs.crops} takes more than dimension {d} has", "crops")
    return TensorType(shape, types[0].dtype)


def _columns(rows: Any) -> tuple[list[int], list[int]]:
    return [r[0] for r in rows], [r[1] for r in rows]


@operator(
    "nn.space_to_batch_nd",
    rel=_space_to_batch_rel,
    compute=lambda attrs, ins, out: [
        topi.nn.space_to_batch_nd(ins[0], attrs.block_shape, *_columns(attrs.paddings), attrs.pad_value)
    ],
    pattern=OpPattern.INJECTIVE,
)
def space_to_batch_nd(data: Tensor, block_shape: Ints, paddings: Ints, pad_value: float = 0) -> Call:
    """The elements of blocks of space become images of their own."""


@operator(
    "nn.batch_to_space_nd",
    rel=_batch_to_space_rel,
    compute=lambda attrs, ins, out: [
        topi.nn.batch_to_space_nd(ins[0], attrs.block_shape, *_columns(attrs.crops))
    ],
    pattern=OpPattern.INJECTIVE,
)
def batch_to_space_nd(data: Tensor, block_shape: Ints, crops: Ints) -> Call:
    """Images become blocks of space, which is then cropped: the way back from space_to_batch_nd."""


# ---------------------------------------------------------------------------- padding
def _mirror_pad_rel(types: list[Any], attrs: Any) -> Type:
    data = types[0]
    if attrs.mode not in ("SYMMETRIC", "REFLECT"):
        raise refuse(f"is {attrs.mode!r} and must be SYMMETRIC or REFLECT", "mode")
    if len(attrs.pad_width) != len(data.shape):
        raise refuse(f"has {len(attrs.pad_width)} entries and data is {data}", "pad_width")
    kept = 1 if attrs.mode == "REFLECT" else 0
    for d, (size, width) in enumerate(zip(data.shape, attrs.pad_width, strict=True)):
        if is_known(size) and max(width) > max(size - kept, 0):
            raise refuse(f"{width} for dimension {d} of {size}, which has no such mirror image", "pad_width")
    return TensorType(
        [add(d, a + b) for d, (a, b) in zip(data.shape, attrs.pad_width, strict=True)], data.dtype
    )


@operator(
    "nn.mirror_pad",
    rel=_mirror_pad_rel,
    compute=lambda attrs, ins, out: [topi.nn.mirror_pad(ins[0], *_columns(attrs.pad_width), attrs.mode)],
    pattern=OpPattern.INJECTIVE,
)
def mirror_pad(data: Tensor, pad_width: Ints, mode: str = "SYMMETRIC") -> Call:
    """The tensor in a frame of its mirror image, with the edge itself (SYMMETRIC) or without (REFLECT)."""


def _dilate_rel(types: list[Any], attrs: Any) -> Type:
    data = types[0]
    if len(attrs.strides) != len(data.shape) or any(s < 1 for s in attrs.strides):
        raise refuse(
            f"is {attrs.strides} and needs a positive number for each dimension of {data}", "strides"
        )
    return TensorType(
        [add(mul(sub(d, 1), s), 1) for d, s in zip(data.shape, attrs.strides, strict=True)], data.dtype
    )


@operator(
    "nn.dilate",
    rel=_dilate_rel,
    compute=lambda attrs, ins, out: [topi.nn.dilate(ins[0], attrs.strides, attrs.dilation_value)],
    pattern=OpPattern.INJECTIVE,
)
def dilate(data: Tensor, strides: Ints, dilation_value: float = 0.0) -> Call:
    """The elements with `stride - 1` others between them."""


def _fifo_rel(types: list[Any], attrs: Any) -> Type:
    data, buffer = types
    if len(data.shape) != len(buffer.shape):
        raise refuse(f"is {buffer} and data is {data}", "buffer")
    at = axis_of(attrs.axis, len(buffer.shape))
    for d, (x, y) in enumerate(zip(data.shape, buffer.shape, strict=True)):
        if d != at and differ(x, y):
            raise refuse(f"is {buffer} and data is {data}: dimension {d} differs", "buffer")
        if d == at and is_known(x) and is_known(y) and x > y:
            raise refuse(f"has room for {y} elements on axis {at} and data has {x}", "buffer")
    return buffer  # type: ignore[no-any-return]


@operator(
    "nn.fifo_buffer",
    attrs={"axis": integer(0)},
    rel=_fifo_rel,
    compute=lambda attrs, ins, out: [topi.nn.fifo_buffer(ins[0], ins[1], attrs.axis)],
    pattern=OpPattern.OPAQUE,
)
def fifo_buffer(data: Tensor, buffer: Tensor, axis: int) -> Call:
    """The buffer moved on by the size of `data`, which comes in at its end."""


# ---------------------------------------------------------------------------- upsampling
def _times(size: Any, scale: float) -> Any:
    """A size made larger by a factor, rounded to the nearest."""
    if scale <= 0:
        raise refuse(f"{scale} must be positive", "scale")
    if float(scale).is_integer():
        return mul(size, int(scale))
    return round(size * scale) if is_known(size) else AnySize()


def _upsampling(name: str, axes: str, compute: Any, dynamic: Any) -> Callable[[Constructor], Constructor]:
    def rel(types: list[Any], attrs: Any) -> Type:
        named = layouts.sizes(attrs.layout, types[0].shape)
        for letter in axes:
            if letter not in named:
                raise refuse(f"{attrs.layout} has no axis {letter}", "layout")
            named[letter] = _times(named[letter], attrs[f"scale_{letter.lower()}"])
        return TensorType(layouts.shape_in(attrs.layout, named), types[0].dtype)

    return operator(name, rel=rel, compute=compute, pattern=OpPattern.INJECTIVE, dynamic=dynamic)


@_upsampling(
    "nn.upsampling",
    "HW",
    lambda attrs, ins, out: [
        topi.nn.upsampling(
            ins[0], attrs.scale_h, attrs.scale_w, attrs.layout, attrs.method, attrs.align_corners
        )
    ],
    dyn.upsampling,
)
def upsampling(
    data: Tensor,
    scale_h: float = 1,
    scale_w: float = 1,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
) -> Call:
    """An image made larger by factors: nearest_neighbor, bilinear or bicubic."""


@_upsampling(
    "nn.upsampling3d",
    "DHW",
    lambda attrs, ins, out: [
        topi.nn.upsampling3d(
            ins[0], attrs.scale_d, attrs.scale_h, attrs.scale_w,
            attrs.layout, attrs.method, attrs.coordinate_transformation_mode,
        )
    ],
    dyn.upsampling3d,
)  # fmt: skip
def upsampling3d(
    data: Tensor,
    scale_d: float = 1,
    scale_h: float = 1,
    scale_w: float = 1,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "half_pixel",
) -> Call:
    """A volume made larger by factors: nearest_neighbor or trilinear."""


# ---------------------------------------------------------------------------- products
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
    rel=_dense_pack_rel,
    compute=_dense_pack_compute,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
)
def contrib_dense_pack(
    data: Tensor, weight: Tensor, weight_layout: str = "NC", units: int | None = None, out_dtype: Dtype = ""
) -> Call:
    """`data @ weight.T` with the rows of the weight in blocks: NC8n."""


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
    made = topi.sparse.csrmm(ins[1], ins[2], ins[3], topi.transpose(ins[0]))
    return [made if attrs.sparse_lhs else topi.transpose(made)]


@operator(
    "nn.sparse_dense",
    rel=_sparse_dense_rel,
    compute=_sparse_dense_compute,
    places=lambda types, attrs: [Place(2, "position", 0, (1,)), Place(3, "length", 1, (0,))],
    inputs=("dense_mat", "weight_data", "weight_indices", "weight_indptr"),
)
def sparse_dense(dense_mat: Tensor, sparse_mat: Any, sparse_lhs: bool = False) -> Call:
    """`dense @ sparse.T`, or `sparse @ dense.T`; the sparse matrix is CSR: (data, indices, indptr)."""
    if hasattr(sparse_mat, "indptr"):
        sparse_mat = (sparse_mat.data, sparse_mat.indices, sparse_mat.indptr)
    values, indices, indptr = sparse_mat
    return given(weight_data=values, weight_indices=indices, weight_indptr=indptr)
