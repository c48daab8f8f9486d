"""Non-maximum suppression: of boxes that overlap, only the best one stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import te
from ...ir import ops
from ...ir.expr import PrimExpr
from ...tir import ir_builder
from ..sort import argsort, argsort_above
from ..utils import (
    equal_const_int,
    extern,
    fail,
    injective,
    prod,
    same_size,
    shape_text,
    shown,
    static_int,
    tensor_arg,
)

# The corners of a box: top or left first, whichever way it was given.
Corners = tuple[PrimExpr, PrimExpr, PrimExpr, PrimExpr]


# ---------------------------------------------------------------------------- arguments that may be tensors
class _Scalars:
    """Numbers that are known now, or elements of tensors that join the inputs."""

    def __init__(self, name: str, first: list[te.Tensor]) -> None:
        self.name, self.inputs = name, first
        self._sources: dict[str, tuple[int, Any, str]] = {}

    def take(self, argument: str, value: Any, dtype: str) -> None:
        if isinstance(value, te.Tensor):
            if not equal_const_int(prod(value.shape), 1):
                raise fail(
                    self.name, f"{argument} has shape {shape_text(value.shape)} and must be one number"
                )
            self._sources[argument] = (len(self.inputs), value, dtype)
            self.inputs.append(value)
        else:
            self._sources[argument] = (-1, value, dtype)

    def get(self, ib: Any, ins: Any, argument: str) -> PrimExpr:
        place, value, dtype = self._sources[argument]
        if place >= 0:
            return ops.cast(dtype, ib.buffer_ptr(ins[place])[(0,) * len(value.shape)])
        return ops.cast(dtype, value) if isinstance(value, PrimExpr) else te.const(value, dtype)


def _area(box: Corners) -> PrimExpr:
    y1, x1, y2, x2 = box
    return (y2 - y1) * (x2 - x1)


def _overlap(a: Corners, b: Corners) -> PrimExpr:
    """The part of their union that two boxes share; 0 where the union is empty."""
    zero = te.const(0, a[0].dtype)
    height = ops.max_of(ops.min_of(a[2], b[2]) - ops.max_of(a[0], b[0]), zero)
    width = ops.max_of(ops.min_of(a[3], b[3]) - ops.max_of(a[1], b[1]), zero)
    shared = height * width
    union = _area(a) + _area(b) - shared
    return ops.select(union > zero, shared / ops.select(union > zero, union, te.const(1, zero.dtype)), zero)


def _corners(load: Callable[[int], PrimExpr], center: bool = False) -> Corners:
    """A box given by two opposite corners, or by its middle and its size."""
    a, b, c, d = (load(k) for k in range(4))
    if center:
        half = te.const(0.5, a.dtype)
        x, y, w, h = a, b, c * half, d * half
        return y - h, x - w, y + h, x + w
    return ops.min_of(a, c), ops.min_of(b, d), ops.max_of(a, c), ops.max_of(b, d)


def _flag(name: str, argument: str, value: Any) -> bool:
    if isinstance(value, (bool, int)):
        return bool(value)
    raise fail(name, f"{argument} is {shown(value)} and must be True or False")


# ---------------------------------------------------------------------------- valid boxes
def get_valid_counts(
    data: Any, score_threshold: Any = 0, id_index: int = 0, score_index: int = 1
) -> list[te.Tensor]:
    """Boxes whose score is above the threshold, moved to the front: [how many, boxes, where they were].

    With `id_index`, a box of negative class does not count either. What is left over is -1.
    """
    name = "vision.get_valid_counts"
    x = tensor_arg(name, "data", data)
    if len(x.shape) != 3:
        raise fail(name, f"data has shape {shape_text(x.shape)} and must be (batch, boxes, values)")
    class_at, score_at = (
        static_int(name, n, v) for n, v in (("id_index", id_index), ("score_index", score_index))
    )
    batch, boxes, values = x.shape
    scalars = _Scalars(name, [x])
    scalars.take("score_threshold", score_threshold, x.dtype)

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        source, counts, rows, places = (ib.buffer_ptr(b) for b in (ins[0], *outs))
        threshold = scalars.get(ib, ins, "score_threshold")
        minus = te.const(-1, x.dtype)
        with ib.for_range(0, batch, "b", kind="parallel") as b:
            found = ib.allocate("int32", (1,), "found", scope="local")
            found[0] = 0
            with ib.for_range(0, boxes, "n") as n:
                good = source[b, n, score_at] > threshold
                if class_at >= 0:
                    good = te.all(good, source[b, n, class_at] >= te.const(0, x.dtype))
                with ib.if_scope(good):
                    with ib.for_range(0, values, "v") as v:
                        rows[b, found[0], v] = source[b, n, v]
                    places[b, found[0]] = n
                    found[0] = found[0] + 1
            counts[b] = found[0]
            with ib.for_range(found[0], boxes, "n") as n:
                places[b, n] = -1
                with ib.for_range(0, values, "v") as v:
                    rows[b, n, v] = minus
        return ib.get()

    shapes = [(batch,), x.shape, (batch, boxes)]
    return extern(name, shapes, scalars.inputs, build, ["int32", x.dtype, "int32"])


# ---------------------------------------------------------------------------- classic suppression
def non_max_suppression(
    data: Any,
    valid_count: Any,
    indices: Any,
    max_output_size: Any = -1,
    iou_threshold: Any = 0.5,
    force_suppress: bool = False,
    top_k: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = 0,
    return_indices: bool = True,
    invalid_to_bottom: bool = False,
) -> Any:
    """The boxes that stay when each one, the best first, removes those that overlap it by the threshold or more.

    Boxes of different classes do not touch each other unless `force_suppress`. Gives [indices, how many], or, without
    `return_indices`, the boxes in order of score: those removed have score and class -1, or, with
    `invalid_to_bottom`, make room and leave rows of -1 at the end.
    """
    name = "vision.non_max_suppression"
    x, counts = tensor_arg(name, "data", data), tensor_arg(name, "valid_count", valid_count)
    if len(x.shape) != 3:
        raise fail(name, f"data has shape {shape_text(x.shape)} and must be (batch, boxes, values)")
    if len(counts.shape) != 1 or not same_size(counts.shape[0], x.shape[0]):
        raise fail(name, f"valid_count has shape {shape_text(counts.shape)} and must be ({x.shape[0]},)")
    batch, boxes, values = x.shape
    at = _Columns(name, coord_start, score_index, id_index, _flag(name, "force_suppress", force_suppress))
    scores = injective(name, (batch, boxes), lambda b, n: x(b, n, at.score), name="nms_scores")
    order = argsort(scores, counts, axis=1, is_ascend=False, dtype="int32")
    scalars = _Scalars(name, [x, order, counts])
    scalars.take("max_output_size", max_output_size, "int32")
    scalars.take("iou_threshold", iou_threshold, x.dtype)
    limit = static_int(name, "top_k", top_k)
    ids = tensor_arg(name, "indices", indices) if return_indices else None
    if ids is not None:
        scalars.inputs.append(ids)

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        source, sorted_at, valid = (ib.buffer_ptr(b) for b in ins[:3])
        most = scalars.get(ib, ins, "max_output_size")
        threshold = scalars.get(ib, ins, "iou_threshold")
        dead = ib.allocate("int8", (batch, boxes), "dead")
        with ib.for_range(0, batch, "b", kind="parallel") as b:
            count = ops.cast("int32", ops.max_of(ops.min_of(valid[b], boxes), 0))
            kept = ib.let("kept", ops.min_of(count, limit) if limit > 0 else count)
            found = ib.allocate("int32", (1,), "found", scope="local")

            def row(j: PrimExpr, b: PrimExpr = b) -> PrimExpr:
                return sorted_at[b, j]

            def suppressed(j: PrimExpr, k: PrimExpr, b: PrimExpr = b) -> PrimExpr:
                first = _corners(lambda v: source[b, row(j), at.coord + v])
                second = _corners(lambda v: source[b, row(k), at.coord + v])
                near = te.all(threshold > te.const(0, x.dtype), _overlap(first, second) >= threshold)
                return te.all(at.same_class(lambda n: source[b, row(n), at.klass], j, k), near)

            _suppress(ib, b, kept, ops.select(most > 0, most, kept), dead, found, suppressed)
            if ids is not None:
                _write_indices(ib, b, boxes, kept, found, dead, row, ib.buffer_ptr(ins[-1]), outs)
            else:
                out = ib.buffer_ptr(outs[0])
                _write_boxes(
                    ib, b, (boxes, values), kept, dead, row, source, out, at, bool(invalid_to_bottom)
                )
        return ib.get()

    if ids is not None:
        return extern(name, [(batch, boxes), (batch, 1)], scalars.inputs, build, ["int32", "int32"])
    return extern(name, [x.shape], scalars.inputs, build, [x.dtype])[0]


class _Columns:
    """The columns of corners, score and class in a row."""

    def __init__(self, name: str, coord: Any, score: Any, klass: Any, force: bool) -> None:
        self.coord, self.score = (
            static_int(name, "coord_start", coord),
            static_int(name, "score_index", score),
        )
        self.klass, self.force = static_int(name, "id_index", klass), force
        if self.score < 0 or self.coord < 0:
            raise fail(name, f"coord_start {self.coord} and score_index {self.score} cannot be negative")

    def same_class(self, load: Callable[[Any], PrimExpr], j: PrimExpr, k: PrimExpr) -> PrimExpr:
        if self.force or self.klass < 0:
            return te.const(True, "bool")
        return ops.equal(load(j), load(k))


# The state of a box: kept, suppressed by a better one, or not considered.
_STAYS, _REMOVED, _UNASKED = 2, 1, 0


def _suppress(
    ib: Any, b: Any, kept: Any, most: Any, fate: Any, found: Any, suppressed: Callable[..., PrimExpr]
) -> None:
    """Go through the boxes of row `b` in order of score until `most` of them stay."""
    place = ib.allocate("int32", (1,), "place", scope="local")
    with ib.for_range(0, kept, "j") as j:
        fate[b, j] = _UNASKED
    found[0] = 0
    place[0] = 0
    with ib.while_loop(te.all(place[0] < kept, found[0] < most)):
        j = place[0]
        with ib.if_scope(ops.equal(fate[b, j], te.const(_UNASKED, "int8"))):
            fate[b, j] = _STAYS
            found[0] = found[0] + 1
            with ib.for_range(j + 1, kept, "k") as k:
                open_ = ops.equal(fate[b, k], te.const(_UNASKED, "int8"))
                with ib.if_scope(open_), ib.if_scope(suppressed(j, k)):
                    fate[b, k] = _REMOVED
        place[0] = place[0] + 1


def _write_indices(
    ib: Any, b: Any, boxes: Any, kept: Any, found: Any, fate: Any, row: Any, ids: Any, outs: Any
) -> None:
    chosen, count = ib.buffer_ptr(outs[0]), ib.buffer_ptr(outs[1])
    count[b, 0] = found[0]
    found[0] = 0
    with ib.for_range(0, kept, "j") as j, ib.if_scope(ops.equal(fate[b, j], te.const(_STAYS, "int8"))):
        chosen[b, found[0]] = ops.cast("int32", ids[b, row(j)])
        found[0] = found[0] + 1
    with ib.for_range(found[0], boxes, "j") as j:
        chosen[b, j] = -1


def _write_boxes(
    ib: Any,
    b: Any,
    size: Any,
    kept: Any,
    fate: Any,
    row: Any,
    source: Any,
    out: Any,
    at: _Columns,
    packed: bool,
) -> None:
    boxes, values = size
    minus = te.const(-1, out.dtype)
    place = ib.allocate("int32", (1,), "row", scope="local")
    place[0] = 0
    with ib.for_range(0, kept, "j") as j:
        stays = ops.equal(fate[b, j], te.const(_STAYS, "int8"))
        with ib.if_scope(stays):
            with ib.for_range(0, values, "v") as v:
                out[b, place[0], v] = source[b, row(j), v]
            place[0] = place[0] + 1
        if not packed:
            with ib.else_scope():
                removed = ops.equal(fate[b, j], te.const(_REMOVED, "int8"))
                with ib.for_range(0, values, "v") as v:
                    hidden = ops.equal(v, at.score)
                    hidden = te.any(hidden, ops.equal(v, at.klass)) if at.klass >= 0 else hidden
                    shown_value = ops.select(hidden, minus, source[b, row(j), v])
                    out[b, place[0], v] = ops.select(removed, shown_value, minus)
                place[0] = place[0] + 1
    with ib.for_range(place[0], boxes, "j") as j, ib.for_range(0, values, "v") as v:
        out[b, j, v] = minus


# ---------------------------------------------------------------------------- every class on its own
def all_class_non_max_suppression(
    boxes: Any,
    scores: Any,
    max_output_boxes_per_class: Any,
    iou_threshold: Any,
    score_threshold: Any,
    output_format: str = "onnx",
    center_point_box: int = 0,
) -> list[te.Tensor]:
    """Suppression for each class alone, of boxes [batch, boxes, 4] with scores [batch, classes, boxes].

    "onnx" gives rows (batch, class, box) one behind the other and their number, [batch·classes·boxes, 3] and [1];
    "tensorflow" gives for each image rows (class, box), their scores and their number. A box counts if its score is
    above the threshold, and goes if it overlaps a better one by more than the threshold. A negative number of
    boxes per class is no limit.
    """
    name = "vision.all_class_non_max_suppression"
    rects, points = tensor_arg(name, "boxes", boxes), tensor_arg(name, "scores", scores)
    if output_format not in ("onnx", "tensorflow"):
        raise fail(name, f"output_format is {output_format!r}", "it is onnx or tensorflow")
    fits = len(rects.shape) == 3 and len(points.shape) == 3 and equal_const_int(rects.shape[2], 4)
    if (
        not fits
        or not same_size(rects.shape[1], points.shape[2])
        or not same_size(rects.shape[0], points.shape[0])
    ):
        shapes = f"{shape_text(rects.shape)} and {shape_text(points.shape)}"
        raise fail(
            name, f"boxes and scores have shapes {shapes}", "(batch, boxes, 4) and (batch, classes, boxes)"
        )
    batch, classes, count = points.shape
    bar = _Scalars(name, [points])
    bar.take("score_threshold", score_threshold, points.dtype)
    # Most boxes are none of most classes: what is below the threshold need not be sorted.
    order = argsort_above(points, lambda ib, ins: bar.get(ib, ins, "score_threshold"), inputs=bar.inputs[1:])
    scalars = _Scalars(name, [rects, points, order])
    scalars.take("max_output_boxes_per_class", max_output_boxes_per_class, "int32")
    scalars.take("iou_threshold", iou_threshold, rects.dtype)
    scalars.take("score_threshold", score_threshold, points.dtype)
    rows = batch * classes
    selected, totals = extern(
        name,
        [(rows, count), (rows,)],
        scalars.inputs,
        _selection(scalars, points.shape, bool(center_point_box)),
        ["int32", "int32"],
    )
    if output_format == "onnx":
        return _collect_rows(name, selected, totals, (batch, classes, count))
    return _collect_images(name, selected, totals, points)


def _selection(scalars: _Scalars, size: Any, center: bool) -> Callable[[Any, Any], Any]:
    """For each image and class the boxes that stay, in order of score, and their number."""
    batch, classes, count = size

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        box, score, sorted_at = (ib.buffer_ptr(b) for b in ins[:3])
        chosen, totals = (ib.buffer_ptr(b) for b in outs)
        most = scalars.get(ib, ins, "max_output_boxes_per_class")
        threshold = scalars.get(ib, ins, "iou_threshold")
        least = scalars.get(ib, ins, "score_threshold")
        fate = ib.allocate("int8", (batch * classes, count), "fate")
        with ib.for_range(0, batch * classes, "r", kind="parallel") as r:
            b, c = ib.let("b", ops.floordiv(r, classes)), ib.let("c", ops.floormod(r, classes))
            state = ib.allocate("int32", (1,), "valid", scope="local")
            found = ib.allocate("int32", (1,), "found", scope="local")
            state[0] = 0
            with ib.for_range(0, count, "n") as n:
                state[0] = state[0] + ops.cast("int32", score[b, c, n] > least)
            kept = ib.let("kept", state[0])

            def overlap(j: PrimExpr, k: PrimExpr, b: PrimExpr = b, c: PrimExpr = c) -> PrimExpr:
                first = _corners(lambda v: box[b, sorted_at[b, c, j], v], center)
                return _overlap(first, _corners(lambda v: box[b, sorted_at[b, c, k], v], center))

            _suppress(
                ib,
                r,
                kept,
                ops.select(most < 0, kept, most),
                fate,
                found,
                lambda j, k: overlap(j, k) > threshold,
            )
            totals[r] = found[0]
            found[0] = 0
            with ib.for_range(0, kept, "j") as j:
                stays = ops.equal(fate[r, j], te.const(_STAYS, "int8"))
                with ib.if_scope(stays):
                    chosen[r, found[0]] = sorted_at[b, c, j]
                    found[0] = found[0] + 1
        return ib.get()

    return build


def _collect_rows(name: str, selected: te.Tensor, totals: te.Tensor, size: Any) -> list[te.Tensor]:
    batch, classes, count = size
    rows = batch * classes * count

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        chosen, total, out, number = (ib.buffer_ptr(b) for b in (*ins, *outs))
        place = ib.allocate("int32", (1,), "place", scope="local")
        place[0] = 0
        with ib.for_range(0, batch * classes, "r") as r, ib.for_range(0, total[r], "j") as j:
            out[place[0], 0] = ops.cast("int64", ops.floordiv(r, classes))
            out[place[0], 1] = ops.cast("int64", ops.floormod(r, classes))
            out[place[0], 2] = ops.cast("int64", chosen[r, j])
            place[0] = place[0] + 1
        number[0] = ops.cast("int64", place[0])
        with ib.for_range(place[0], rows, "j") as j, ib.for_range(0, 3, "v") as v:
            out[j, v] = 0
        return ib.get()

    return extern(name, [(rows, 3), (1,)], [selected, totals], build, ["int64", "int64"])


def _collect_images(name: str, selected: te.Tensor, totals: te.Tensor, scores: te.Tensor) -> list[te.Tensor]:
    batch, classes, count = scores.shape
    rows = classes * count

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        chosen, total, score, out, best, number = (ib.buffer_ptr(b) for b in (*ins, *outs))
        with ib.for_range(0, batch, "b", kind="parallel") as b:
            place = ib.allocate("int32", (1,), "place", scope="local")
            place[0] = 0
            with ib.for_range(0, classes, "c") as c, ib.for_range(0, total[b * classes + c], "j") as j:
                picked = chosen[b * classes + c, j]
                out[b, place[0], 0] = ops.cast("int64", c)
                out[b, place[0], 1] = ops.cast("int64", picked)
                best[b, place[0]] = score[b, c, picked]
                place[0] = place[0] + 1
            number[b] = ops.cast("int64", place[0])
            with ib.for_range(place[0], rows, "j") as j:
                out[b, j, 0] = 0
                out[b, j, 1] = 0
                best[b, j] = te.const(0, scores.dtype)
        return ib.get()

    shapes = [(batch, rows, 2), (batch, rows), (batch,)]
    return extern(name, shapes, [selected, totals, scores], build, ["int64", scores.dtype, "int64"])
