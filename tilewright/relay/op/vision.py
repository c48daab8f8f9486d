"""Detection: anchors, suppression of boxes that overlap, regions of interest."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ...ir.dtype import DataType
from ..expr import Call, TupleWrapper
from ..ty import TensorType, TupleType, Type
from . import layouts
from .registry import FUSABLE, Float32, Int32, Pair, Place, Tensor, Value, given, operator, refuse
from .shapes import differ, floordiv, mul, need_dtype, need_one_of, need_rank, need_scalar

__all__ = [
    "all_class_non_max_suppression",
    "get_valid_counts",
    "multibox_prior",
    "multibox_transform_loc",
    "non_max_suppression",
    "proposal",
    "roi_align",
    "roi_pool",
    "yolo_reorg",
]

INT32 = DataType("int32")
INT64 = DataType("int64")


# ---------------------------------------------------------------------------- anchors
def _prior_rel(types: list[Any], attrs: Any) -> Type:
    data = types[0]
    need_rank(data, 4, "data")
    for name, count in (("steps", 2), ("offsets", 2)):
        if len(attrs[name]) != count:
            raise refuse(f"is {attrs[name]} and must be two numbers", name)
    each = len(attrs.sizes) + len(attrs.ratios) - 1
    if not attrs.sizes or not attrs.ratios:
        raise refuse("is empty", "ratios" if attrs.sizes else "sizes")
    return TensorType((1, mul(mul(data.shape[2], data.shape[3]), each), 4), data.dtype)


@operator("vision.multibox_prior", rel=_prior_rel, compute="vision.ssd.multibox_prior")
def multibox_prior(
    data: Tensor,
    sizes: Value = (1.0,),
    ratios: Value = (1.0,),
    steps: Value = (-1.0, -1.0),
    offsets: Value = (0.5, 0.5),
    clip: bool = False,
) -> Call:
    """The anchors of each pixel of a map, (x1, y1, x2, y2) as parts of the image."""
    sizes, ratios = (tuple(v) if isinstance(v, Sequence) else (v,) for v in (sizes, ratios))
    return given(sizes=sizes, ratios=ratios)


def _transform_loc_rel(types: list[Any], attrs: Any) -> Type:
    classes, moves, anchor = types
    need_rank(classes, 3, "cls_prob")
    need_rank(moves, 2, "loc_pred")
    need_rank(anchor, 3, "anchor")
    batch, _, count = classes.shape
    if differ(moves.shape[0], batch) or differ(moves.shape[1], mul(count, 4)):
        raise refuse(
            f"is {moves} and cls_prob is {classes}: four numbers for each of its anchors", "loc_pred"
        )
    if differ(anchor.shape[1], count) or differ(anchor.shape[2], 4):
        raise refuse(f"is {anchor} and cls_prob has {count} anchors", "anchor")
    return TupleType((TensorType((batch, count, 6), classes.dtype), TensorType((batch,), INT32)))


@operator(
    "vision.multibox_transform_loc",
    rel=_transform_loc_rel,
    compute="vision.ssd.multibox_transform_loc",
    results=2,
)
def multibox_transform_loc(
    cls_prob: Tensor,
    loc_pred: Tensor,
    anchor: Tensor,
    clip: bool = True,
    threshold: float = 0.01,
    variances: Value = (0.1, 0.1, 0.2, 0.2),
    keep_background: bool = False,
) -> TupleWrapper:
    """Anchors moved as the network says: rows (class, score, x1, y1, x2, y2), and how many of them count."""


# ---------------------------------------------------------------------------- suppression
def _valid_counts_rel(types: list[Any], attrs: Any) -> Type:
    data, threshold = types
    need_rank(data, 3, "data")
    need_scalar(threshold, "score_threshold")
    batch, boxes, _ = data.shape
    return TupleType((TensorType((batch,), INT32), data, TensorType((batch, boxes), INT32)))


@operator("vision.get_valid_counts", rel=_valid_counts_rel, compute="vision.get_valid_counts", results=3)
def get_valid_counts(
    data: Tensor, score_threshold: Float32, id_index: int = 0, score_index: int = 1
) -> TupleWrapper:
    """Boxes whose score is above a threshold moved to the front: (how many, boxes, where they were)."""


def _nms_rel(types: list[Any], attrs: Any) -> Type:
    data, counts, indices, most, threshold = types
    need_rank(data, 3, "data")
    need_rank(counts, 1, "valid_count")
    batch, boxes, _ = data.shape
    if differ(counts.shape[0], batch):
        raise refuse(f"is {counts} and data has {batch} images", "valid_count")
    if attrs.return_indices:  # they are not read otherwise
        need_rank(indices, 2, "indices")
        if differ(indices.shape[0], batch) or differ(indices.shape[1], boxes):
            raise refuse(f"is {indices} and data is {data}", "indices")
    need_scalar(most, "max_output_size")
    need_scalar(threshold, "iou_threshold")
    if attrs.return_indices:
        return TupleType((TensorType((batch, boxes), INT32), TensorType((batch, 1), INT32)))
    return data


@operator(
    "vision.non_max_suppression",
    rel=_nms_rel,
    compute="vision.non_max_suppression",
    results=lambda call: 2 if call.attrs.return_indices else 0,
)
def non_max_suppression(
    data: Tensor,
    valid_count: Tensor,
    indices: Tensor,
    max_output_size: Int32 = -1,
    iou_threshold: Float32 = 0.5,
    force_suppress: bool = False,
    top_k: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = 0,
    return_indices: bool = True,
    invalid_to_bottom: bool = False,
) -> Any:
    """The boxes that stay when each one, the best first, removes those that overlap it too much."""


def _all_class_rel(types: list[Any], attrs: Any) -> Type:
    boxes, scores, most, overlap, threshold = types
    need_rank(boxes, 3, "boxes")
    need_rank(scores, 3, "scores")
    if differ(boxes.shape[2], 4):
        raise refuse(f"must be (batch, boxes, 4) and is {boxes}", "boxes")
    batch, classes, count = scores.shape
    if differ(boxes.shape[0], batch) or differ(boxes.shape[1], count):
        raise refuse(f"is {scores} and boxes is {boxes}: it is (batch, classes, boxes)", "scores")
    for kind, name in (
        (most, "max_output_boxes_per_class"),
        (overlap, "iou_threshold"),
        (threshold, "score_threshold"),
    ):
        need_scalar(kind, name)
    if attrs.output_format == "onnx":
        total = mul(mul(batch, classes), count)
        return TupleType((TensorType((total, 3), INT64), TensorType((1,), INT64)))
    if attrs.output_format != "tensorflow":
        raise refuse(f"is {attrs.output_format!r} and may be 'onnx' or 'tensorflow'", "output_format")
    total = mul(classes, count)
    return TupleType(
        (
            TensorType((batch, total, 2), INT64),
            TensorType((batch, total), scores.dtype),
            TensorType((batch,), INT64),
        )
    )


@operator(
    "vision.all_class_non_max_suppression",
    rel=_all_class_rel,
    compute="vision.all_class_non_max_suppression",
    results=lambda call: 2 if call.attrs.output_format == "onnx" else 3,
)
def all_class_non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    max_output_boxes_per_class: Int32 = -1,
    iou_threshold: Float32 = -1.0,
    score_threshold: Float32 = -1.0,
    output_format: str = "onnx",
    center_point_box: int = 0,
) -> TupleWrapper:
    """Suppression for each class alone.

    "onnx" gives rows (image, class, box), the first of which count, and their number; "tensorflow" gives for each
    image rows (class, box), their scores and their number.
    """


# ---------------------------------------------------------------------------- regions
def _roi_rel(types: list[Any], attrs: Any) -> Type:
    data, rois = types
    if attrs.layout not in ("NCHW", "NHWC"):
        raise refuse(f"is {attrs.layout} and must be NCHW or NHWC", "layout")
    named = layouts.sizes(attrs.layout, data.shape)
    need_rank(rois, 2, "rois")
    need_dtype(rois, data.dtype, "rois")
    if differ(rois.shape[1], 5):
        raise refuse(f"must have rows (image, x1, y1, x2, y2) and is {rois}", "rois")
    if len(attrs.pooled_size) != 2:
        raise refuse(f"is {attrs.pooled_size} and must be a height and a width", "pooled_size")
    named["N"], (named["H"], named["W"]) = rois.shape[0], attrs.pooled_size
    return TensorType(layouts.shape_in(attrs.layout, named), data.dtype)


def _roi_places(types: list[Any], attrs: Any) -> list[Place]:
    return [Place(1, "position", 0, (0,), columns=(0,))]


def _roi_align_rel(types: list[Any], attrs: Any) -> Type:
    need_one_of(attrs.mode, ("avg", "max"), "mode")
    return _roi_rel(types, attrs)


@operator(
    "vision.roi_align",
    rel=_roi_align_rel,
    compute="vision.roi_align_{layout}",
    pattern=FUSABLE,
    places=_roi_places,
)
def roi_align(
    data: Tensor,
    rois: Tensor,
    pooled_size: Pair,
    spatial_scale: float,
    sample_ratio: int = -1,
    layout: str = "NCHW",
    mode: str = "avg",
    aligned: bool = False,
) -> Call:
    """Each region (image, x1, y1, x2, y2) in bins: the average or maximum of points sampled in each."""


@operator(
    "vision.roi_pool",
    rel=_roi_rel,
    compute="vision.roi_pool_{layout}",
    pattern=FUSABLE,
    places=_roi_places,
)
def roi_pool(
    data: Tensor, rois: Tensor, pooled_size: Pair, spatial_scale: float, layout: str = "NCHW"
) -> Call:
    """Each region (image, x1, y1, x2, y2), rounded to pixels, in bins: the maximum of each."""


def _proposal_rel(types: list[Any], attrs: Any) -> Type:
    scores, deltas, info = types
    need_rank(scores, 4, "cls_prob")
    need_rank(deltas, 4, "bbox_pred")
    need_rank(info, 2, "im_info")
    return TensorType((mul(scores.shape[0], attrs.rpn_post_nms_top_n), 5), scores.dtype)


@operator("vision.proposal", rel=_proposal_rel, compute="vision.proposal")
def proposal(
    cls_prob: Tensor,
    bbox_pred: Tensor,
    im_info: Tensor,
    scales: Value,
    ratios: Value,
    feature_stride: int,
    threshold: float,
    rpn_pre_nms_top_n: int,
    rpn_post_nms_top_n: int,
    rpn_min_size: int,
    iou_loss: bool,
) -> Call:
    """The best boxes of each image from scores and corrections of anchors: rows (image, x1, y1, x2, y2)."""
    return given(scales=tuple(scales), ratios=tuple(ratios))


def _reorg_rel(types: list[Any], attrs: Any) -> Type:
    (data,) = types
    need_rank(data, 4, "data")
    n, c, h, w = data.shape
    by = attrs.stride
    return TensorType((n, mul(c, by * by), floordiv(h, by), floordiv(w, by)), data.dtype)


@operator("vision.yolo_reorg", rel=_reorg_rel, compute="vision.reorg")
def yolo_reorg(data: Tensor, stride: int) -> Call:
    """NCHW with pixels dealt out to channels, `stride` squared as many."""


__path__: list[str] = []  # the classic had a package here
multibox = nms = rcnn = yolo = sys.modules[__name__]
