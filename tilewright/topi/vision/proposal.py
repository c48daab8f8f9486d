"""Boxes that may contain an object, from the scores and corrections of anchors (Faster R-CNN)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ... import te
from ...ir import ops
from ...ir.expr import PrimExpr
from ...tir import ir_builder
from ..sort import argsort
from ..utils import const_matrix, extern, fail, get_const_tuple, injective, shape_text, tensor_arg

__all__ = ["proposal"]

_EMPTY = -1.0  # the score of a box that does not count


def _anchor(ratio: float, scale: float, base: float) -> list[float]:
    """Left, top, right and bottom of the box of that ratio and scale around the first cell."""
    center = 0.5 * (base - 1.0)
    width = math.floor(math.sqrt(math.floor(base * base / ratio)) + 0.5) * scale
    height = math.floor(width / scale * ratio + 0.5) * scale
    x, y = 0.5 * (width - 1.0), 0.5 * (height - 1.0)
    return [center - x, center - y, center + x, center + y]


def _corrected(box: Sequence[PrimExpr], delta: Sequence[PrimExpr], iou_loss: bool) -> list[PrimExpr]:
    """A box moved by its edges, or by its center and the logarithm of its size."""
    if iou_loss:
        return [b + d for b, d in zip(box, delta, strict=True)]
    low, high = [], []
    for start, end, move, grow in zip(box[:2], box[2:], delta[:2], delta[2:], strict=True):
        size = end - start + 1.0
        center = start + (size - 1.0) * 0.5 + move * size
        half = (ops.exp(grow) * size - 1.0) * 0.5
        low.append(center - half)
        high.append(center + half)
    return [*low, *high]


def _overlap(a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> PrimExpr:
    """The part of two boxes that they share; edges are pixels, which count."""
    zero = te.const(0.0, a[0].dtype)
    sides = [ops.max_of(ops.min_of(a[d + 2], b[d + 2]) - ops.max_of(a[d], b[d]) + 1.0, zero) for d in (0, 1)]
    areas = [(x[2] - x[0] + 1.0) * (x[3] - x[1] + 1.0) for x in (a, b)]
    both = sides[0] * sides[1]
    return both / (areas[0] + areas[1] - both)


def proposal(
    cls_prob: te.Tensor,
    bbox_pred: te.Tensor,
    im_info: te.Tensor,
    scales: Sequence[float],
    ratios: Sequence[float],
    feature_stride: int,
    threshold: float,
    rpn_pre_nms_top_n: int,
    rpn_post_nms_top_n: int,
    rpn_min_size: int,
    iou_loss: bool,
) -> te.Tensor:
    """The best boxes of each image, as rows (image, left, top, right, bottom).

    Boxes that overlap a better one by more than `threshold` are dropped; if few are left, they are repeated.
    """
    what = "vision.proposal"
    scores, deltas, info = (
        tensor_arg(what, n, t)
        for n, t in (("cls_prob", cls_prob), ("bbox_pred", bbox_pred), ("im_info", im_info))
    )
    sizes = [_anchor(float(r), float(s), float(feature_stride)) for r in ratios for s in scales]
    batch, channels, height, width = get_const_tuple(scores.shape)
    many = len(sizes)
    if channels != 2 * many or get_const_tuple(deltas.shape) != (batch, 4 * many, height, width):
        raise fail(
            what,
            f"cls_prob {shape_text(scores.shape)} and bbox_pred {shape_text(deltas.shape)} must have 2 and 4 channels "
            f"for each of {many} anchors",
        )
    kind, total = str(deltas.dtype), height * width * many
    anchors = const_matrix([[float(v) for v in a] for a in sizes], "anchors")

    def parts(b: Any, i: Any) -> tuple[list[PrimExpr], PrimExpr]:
        k, w, h = i % many, i // many % width, i // (many * width)
        step = [ops.cast(kind, v * feature_stride) for v in (w, h, w, h)]
        box = [ops.cast(kind, anchors(k, e)) + step[e] for e in range(4)]
        made = _corrected(box, [deltas(b, k * 4 + e, h, w) for e in range(4)], bool(iou_loss))
        limits = [info(b, 1 - e % 2) - 1.0 for e in range(4)]
        zero = te.const(0.0, kind)
        inside = [ops.max_of(ops.min_of(m, n), zero) for m, n in zip(made, limits, strict=True)]
        rows, columns = (ops.cast("int32", info(b, e) / float(feature_stride)) for e in (0, 1))
        beyond = ops.logical_or(h >= rows, w >= columns)
        score = ops.select(beyond, te.const(_EMPTY, kind), scores(b, k + many, h, w))
        least = info(b, 2) * float(rpn_min_size)
        small = ops.logical_or(inside[2] - inside[0] + 1.0 < least, inside[3] - inside[1] + 1.0 < least)
        grow = ops.select(small, least * 0.5, zero)
        edges = [v - grow if e < 2 else v + grow for e, v in enumerate(inside)]
        return edges, ops.select(small, te.const(_EMPTY, kind), score)

    def field(b: Any, i: Any, j: Any) -> PrimExpr:
        edges, out = parts(b, i)
        for e in range(4):
            out = ops.select(ops.equal(j, e), edges[e], out)
        return out

    boxes = injective(what, (batch, total, 5), field, name="boxes")
    score = injective(what, (batch, total), lambda b, i: boxes(b, i, 4), name="score")
    order = argsort(score, axis=1, is_ascend=False, dtype="int32")
    kept = min(rpn_pre_nms_top_n, total) if rpn_pre_nms_top_n > 0 else total
    best = injective(what, (batch, kept, 5), lambda b, i, j: boxes(b, order(b, i), j), name="best")
    return _apart(best, threshold, rpn_post_nms_top_n)


def _apart(best: te.Tensor, threshold: float, wanted: int) -> te.Tensor:
    """The boxes that do not overlap a better one, repeated up to the number that is wanted."""
    batch, count, _ = get_const_tuple(best.shape)

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        box, out = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        chosen = ib.allocate("int32", (batch, count), "chosen", scope="global")
        found = ib.allocate("int32", (1,), "found", scope="local")
        near = ib.allocate("int32", (1,), "near", scope="local")
        with ib.for_range(0, batch, "b") as b:
            found[0] = te.const(0)
            with ib.for_range(0, count, "i") as i:
                near[0] = te.const(0)
                with ib.for_range(0, found[0], "l") as before:
                    one = [box[b, chosen[b, before], e] for e in range(4)]
                    shared = _overlap(one, [box[b, i, e] for e in range(4)])
                    with ib.if_scope(shared > te.const(threshold, best.dtype)):
                        near[0] = te.const(1)
                with ib.if_scope(ops.equal(near[0], 0)):
                    chosen[b, found[0]] = ops.cast("int32", i)
                    found[0] = found[0] + 1
            with ib.for_range(0, wanted, "i") as i:
                source = ib.let("source", chosen[b, i % ops.max_of(found[0], te.const(1))])
                out[b * wanted + i, 0] = ops.cast(best.dtype, b)
                for e in range(4):
                    out[b * wanted + i, e + 1] = box[b, source, e]
        return ib.get()

    return extern("proposal", [(batch * wanted, 5)], [best], build, [best.dtype])[0]
