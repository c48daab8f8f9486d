"""The boxes of single-shot detectors: anchors, and their decoding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ... import te
from ...ir import ops
from ...ir.expr import PrimExpr
from ...tir import ir_builder
from .. import tag
from ..utils import equal_const_int, extern, fail, get_float_tuple, injective, shape_text, tensor_arg
from .nms import non_max_suppression


def _pick(index: PrimExpr, values: Sequence[float], dtype: str) -> PrimExpr:
    """The value at an index that is data."""
    out: PrimExpr = te.const(values[-1], dtype)
    for place in range(len(values) - 2, -1, -1):
        out = ops.select(ops.equal(index, place), te.const(values[place], dtype), out)
    return out


def multibox_prior(
    data: Any,
    sizes: Any = (1,),
    ratios: Any = (1,),
    steps: Any = (-1, -1),
    offsets: Any = (0.5, 0.5),
    clip: bool = False,
) -> te.Tensor:
    """The anchors of a map [batch, channels, height, width]: (x1, y1, x2, y2) as parts of the image, [1, anchors, 4].

    A pixel has a square for each size, then one of the first size for each ratio but the first.
    """
    name = "vision.ssd.multibox_prior"
    x = tensor_arg(name, "data", data)
    if len(x.shape) != 4:
        raise fail(name, f"data has {len(x.shape)} dimensions and must have four")
    s, q, step, off = (get_float_tuple(v) for v in (sizes, ratios, steps, offsets))
    if not s or not q or len(step) != 2 or len(off) != 2:
        raise fail(name, "sizes and ratios need a number each, steps and offsets two")
    height, width = x.shape[2], x.shape[3]
    kind = "float32"
    each = len(s) + len(q) - 1
    # Half of each box's width and height, for a square image.
    wide = [v / 2 for v in s] + [s[0] * math.sqrt(r) / 2 for r in q[1:]]
    high = [v / 2 for v in s] + [s[0] / math.sqrt(r) / 2 for r in q[1:]]

    def spot(i: PrimExpr, offset: float, given: float, size: PrimExpr) -> PrimExpr:
        place = ops.cast(kind, i) + te.const(offset, kind)
        return place * te.const(given, kind) if given > 0 else place / ops.cast(kind, size)

    def element(_: Any, anchor: Any, side: Any) -> PrimExpr:
        pixel, k = ops.floordiv(anchor, each), ops.floormod(anchor, each)
        across = ops.equal(ops.floormod(side, 2), 0)
        at_x = spot(ops.floormod(pixel, width), off[1], step[1], width)
        at_y = spot(ops.floordiv(pixel, width), off[0], step[0], height)
        shape = ops.cast(kind, height) / ops.cast(kind, width)
        half = ops.select(across, _pick(k, wide, kind) * shape, _pick(k, high, kind))
        out = ops.select(across, at_x, at_y) + ops.select(side < 2, -half, half)
        if not clip:
            return out
        return ops.min_of(ops.max_of(out, te.const(0, kind)), te.const(1, kind))

    return injective(name, (1, height * width * each, 4), element, tag.INJECTIVE, "multibox_prior")


def _moved(box: list[Any], move: list[Any], clip: bool, kind: Any) -> list[PrimExpr]:
    """The corners of a box whose middle moves, and whose sides grow, as its network says."""
    left, top, right, bottom = box
    half, zero, one = (te.const(v, kind) for v in (0.5, 0, 1))
    width, height = right - left, bottom - top
    x, y = move[0] * width + (left + right) * half, move[1] * height + (top + bottom) * half
    w, h = te.exp(move[2]) * width * half, te.exp(move[3]) * height * half
    out = [x - w, y - h, x + w, y + h]
    return [ops.min_of(ops.max_of(c, zero), one) for c in out] if clip else out


def multibox_transform_loc(
    cls_prob: Any,
    loc_pred: Any,
    anchor: Any,
    clip: bool = True,
    threshold: float = 0.01,
    variances: Any = (0.1, 0.1, 0.2, 0.2),
    keep_background: bool = False,
) -> list[te.Tensor]:
    """Decoded anchors: rows (class, score, x1, y1, x2, y2) and the number of valid ones.

    cls_prob is [batch, classes, anchors] with class 0 the background, loc_pred [batch, anchors·4]. An anchor takes
    its best class; the background and scores below the threshold are left out.
    """
    name = "vision.ssd.multibox_transform_loc"
    prob, loc, prior = (
        tensor_arg(name, n, t)
        for n, t in (("cls_prob", cls_prob), ("loc_pred", loc_pred), ("anchor", anchor))
    )
    if (
        len(prob.shape) != 3
        or len(loc.shape) != 2
        or len(prior.shape) != 3
        or not equal_const_int(prior.shape[2], 4)
    ):
        shapes = ", ".join(shape_text(t.shape) for t in (prob, loc, prior))
        raise fail(
            name, f"shapes are {shapes}", "(batch, classes, anchors), (batch, anchors·4) and (1, anchors, 4)"
        )
    batch, classes, count = prob.shape
    scale = get_float_tuple(variances)
    kind = prob.dtype
    first = 0 if keep_background else 1

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        p, moves, boxes, rows, counts = (ib.buffer_ptr(x) for x in (*ins, *outs))
        with ib.for_range(0, batch, "b", kind="parallel") as b:
            state = ib.allocate("int32", (2,), "state", scope="local")
            best = ib.allocate(kind, (1,), "best", scope="local")
            state[0] = 0
            with ib.for_range(0, count, "n") as n:
                best[0] = te.const(-1, kind)
                state[1] = 0
                with ib.for_range(first, classes, "c") as c, ib.if_scope(p[b, c, n] > best[0]):
                    best[0] = p[b, c, n]
                    state[1] = c
                good = best[0] >= te.const(threshold, kind)
                with ib.if_scope(good if keep_background else te.all(good, state[1] > 0)):
                    rows[b, state[0], 0] = ops.cast(kind, state[1] - first)
                    rows[b, state[0], 1] = best[0]
                    move = [moves[b, n * 4 + k] * te.const(scale[k], kind) for k in range(4)]
                    box = [boxes[0, n, k] for k in range(4)]
                    for k, corner in enumerate(_moved(box, move, clip, kind)):
                        rows[b, state[0], 2 + k] = corner
                    state[0] = state[0] + 1
            counts[b] = state[0]
            with ib.for_range(state[0], count, "n") as n, ib.for_range(0, 6, "v") as v:
                rows[b, n, v] = te.const(-1, kind)
        return ib.get()

    return extern(name, [(batch, count, 6), (batch,)], [prob, loc, prior], build, [kind, "int32"])


def multibox_detection(
    cls_prob: Any,
    loc_pred: Any,
    anchor: Any,
    clip: bool = True,
    threshold: float = 0.01,
    nms_threshold: float = 0.5,
    force_suppress: bool = False,
    variances: Any = (0.1, 0.1, 0.2, 0.2),
    nms_topk: int = -1,
) -> te.Tensor:
    """multibox_transform_loc, then non_max_suppression of its rows."""
    rows, counts = multibox_transform_loc(cls_prob, loc_pred, anchor, clip, threshold, variances)
    return non_max_suppression(
        rows,
        counts,
        None,
        iou_threshold=nms_threshold,
        force_suppress=force_suppress,
        top_k=nms_topk,
        return_indices=False,
    )
