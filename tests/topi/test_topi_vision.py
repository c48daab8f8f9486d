"""Suppression of boxes, regions of interest and anchors against plain loops and the ONNX reference."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from topi_sweeps import onnx_run, sweep

import tilewright as tvm
from tilewright import te, topi


def hold(array, name="A"):
    return te.placeholder(array.shape, str(array.dtype), name)


def random_boxes(rng, *shape):
    corner, size = rng.random((*shape, 2)) * 0.6, rng.random((*shape, 2)) * 0.5 + 0.05
    return np.concatenate([corner, corner + size], -1).astype("float32")


def overlap(a, b):
    a, b = (np.array([*np.minimum(t[:2], t[2:]), *np.maximum(t[:2], t[2:])], "float64") for t in (a, b))
    h, w = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(h, 0) * max(w, 0)
    whole = np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - shared
    return shared / whole if whole > 0 else 0.0


# ---------------------------------------------------------------------------- valid counts
@pytest.mark.parametrize(
    ("shape", "id_index", "score_index"),
    sweep([((2, 7, 6), 0, 1), ((1, 5, 5), -1, 0), ((3, 1, 6), 0, 1)], 1, True),
)
def test_get_valid_counts(check, shape, id_index, score_index):
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape).astype("float32")
    wanted, rows, places = np.zeros(shape[0], "int32"), np.full(shape, -1.0), np.full(shape[:2], -1)
    for b, n in itertools.product(*map(range, shape[:2])):
        if x[b, n, score_index] > 0.1 and (id_index < 0 or x[b, n, id_index] >= 0):
            rows[b, wanted[b]], places[b, wanted[b]] = x[b, n], n
            wanted[b] += 1
    A = hold(x)
    check(topi.vision.get_valid_counts(A, 0.1, id_index, score_index), {A: x}, [wanted, rows, places])
    T = te.placeholder((1,), "float32", "T")
    out = topi.vision.get_valid_counts(A, T, id_index, score_index)
    check(out, {A: x, T: np.array([0.1], "float32")}, [wanted, rows, places])


# ---------------------------------------------------------------------------- classic suppression
def suppress(x, valid, ids, most, threshold, force, top_k, coord, score, klass, packed):
    """Boxes in order of score, each judged against those kept before it."""
    batch, boxes, _ = x.shape
    indices, counts = np.full((batch, boxes), -1, "int32"), np.zeros((batch, 1), "int32")
    rows = np.full_like(x, -1)
    for b in range(batch):
        order = np.argsort(-x[b, : valid[b], score], kind="stable")
        order = order[:top_k] if top_k > 0 else order
        kept, place = [], 0
        for n in order:
            same = [k for k in kept if force or klass < 0 or x[b, k, klass] == x[b, n, klass]]
            four = slice(coord, coord + 4)
            removed = any(overlap(x[b, k, four], x[b, n, four]) >= threshold for k in same)
            if most > 0 and len(kept) == most:
                if not packed:
                    if removed:
                        rows[b, place] = x[b, n]
                        rows[b, place, score] = -1
                        if klass >= 0:
                            rows[b, place, klass] = -1
                    place += 1
                continue
            if not removed:
                kept.append(n)
                rows[b, place] = x[b, n]
                place += 1
            elif not packed:
                rows[b, place] = x[b, n]
                rows[b, place, score] = -1
                if klass >= 0:
                    rows[b, place, klass] = -1
                place += 1
        indices[b, : len(kept)] = ids[b, kept]
        counts[b] = len(kept)
    return indices, counts, rows


def detections(rng, batch, boxes, classes=3):
    klass = rng.integers(0, classes, (batch, boxes, 1)).astype("float32")
    score = rng.permutation(batch * boxes).reshape(batch, boxes, 1).astype("float32") / (batch * boxes) + 0.01
    return np.concatenate([klass, score, random_boxes(rng, batch, boxes)], -1).astype("float32")


@pytest.mark.parametrize("force", sweep([False, True]))
@pytest.mark.parametrize(("most", "top_k"), sweep([(2, 8), (-1, -1), (3, -1), (-1, 5)], several=True))
@pytest.mark.slow
def test_non_max_suppression(check, force, most, top_k):
    rng = np.random.default_rng(1)
    x = detections(rng, 2, 13)
    valid = np.array([13, 9], "int32")
    ids = np.stack([rng.permutation(13) for _ in range(2)]).astype("int32")
    indices, counts, _ = suppress(x, valid, ids, most, 0.3, force, top_k, 2, 1, 0, False)
    A, V, I = hold(x), hold(valid, "V"), hold(ids, "I")
    out = topi.vision.non_max_suppression(A, V, I, most, 0.3, force, top_k)
    check(out, {A: x, V: valid, I: ids}, [indices, counts])


@pytest.mark.parametrize("packed", sweep([False, True]))
@pytest.mark.parametrize("klass", sweep([0, -1]))
@pytest.mark.slow
def test_non_max_suppression_rows(check, packed, klass):
    rng = np.random.default_rng(2)
    x = detections(rng, 2, 11)
    valid = np.array([11, 0], "int32")
    ids = np.zeros((2, 11), "int32")
    _, _, rows = suppress(x, valid, ids, -1, 0.4, False, -1, 2, 1, klass, packed)
    A, V, I = hold(x), hold(valid, "V"), hold(ids, "I")
    out = topi.vision.non_max_suppression(
        A, V, I, iou_threshold=0.4, id_index=klass, return_indices=False, invalid_to_bottom=packed
    )
    check(out, {A: x, V: valid}, rows)


@pytest.mark.slow
def test_non_max_suppression_of_the_classic_example(check):
    x = np.array(
        [
            [
                [0, 0.8, 1, 20, 25, 45],
                [1, 0.7, 30, 60, 50, 80],
                [0, 0.4, 4, 21, 19, 40],
                [2, 0.9, 35, 61, 52, 79],
                [1, 0.5, 100, 60, 70, 110],
            ]
        ],
        "float32",
    )
    valid, ids = np.array([4], "int32"), np.arange(5, dtype="int32")[None]
    A, V, I = hold(x), hold(valid, "V"), hold(ids, "I")
    out = topi.vision.non_max_suppression(A, V, I, 2, 0.7, True, 2)
    check(out, {A: x, V: valid, I: ids}, [np.array([[3, 0, -1, -1, -1]]), np.array([[2]])])


@pytest.mark.slow
def test_valid_counts_then_suppression(check):
    """The two as detectors chain them, indices into the first input."""
    rng = np.random.default_rng(3)
    x = detections(rng, 1, 10)
    A = hold(x)
    count, rows, places = topi.vision.get_valid_counts(A, 0.4)
    out = topi.vision.non_max_suppression(rows, count, places, -1, 0.3)
    good = np.flatnonzero(x[0, :, 1] > 0.4)
    sorted_rows = x[:, good]
    indices, counts, _ = suppress(
        sorted_rows, [len(good)], good[None].astype("int32"), -1, 0.3, False, -1, 2, 1, 0, False
    )
    wanted = np.full((1, 10), -1)
    wanted[:, : len(good)] = indices
    check(out, {A: x}, [wanted, counts])


@pytest.mark.slow
def test_no_boxes(check):
    x = np.zeros((1, 0, 6), "float32")
    valid, ids = np.zeros(1, "int32"), np.zeros((1, 0), "int32")
    A, V, I = hold(x), hold(valid, "V"), hold(ids, "I")
    out = topi.vision.non_max_suppression(A, V, I)
    check(out, {A: x, V: valid, I: ids}, [np.zeros((1, 0)), np.zeros((1, 1))])


# ---------------------------------------------------------------------------- every class on its own
@pytest.mark.slow
@pytest.mark.parametrize(
    ("most", "iou", "least", "center"),
    sweep([(3, 0.5, 0.0, 0), (100, 0.2, 0.4, 1), (1, 0.5, 0.2, 0), (0, 0.5, 0.0, 0)], several=True),
)
def test_all_class_against_onnx(check, most, iou, least, center):
    rng = np.random.default_rng(4)
    boxes = random_boxes(rng, 2, 9)
    scores = rng.permutation(2 * 3 * 9).reshape(2, 3, 9).astype("float32") / 54
    wanted = onnx_run(
        "NonMaxSuppression",
        [
            boxes,
            scores,
            *(np.array([v], t) for v, t in ((most, "int64"), (iou, "float32"), (least, "float32"))),
        ],
        center_point_box=center,
    )
    rows = np.zeros((54, 3), "int64")
    rows[: len(wanted)] = wanted
    B, S = hold(boxes, "B"), hold(scores, "S")
    out = topi.vision.all_class_non_max_suppression(B, S, most, iou, least, center_point_box=center)
    check(out, {B: boxes, S: scores}, [rows, np.array([len(wanted)])])


@pytest.mark.slow
def test_all_class_with_tensors_as_limits(check):
    rng = np.random.default_rng(5)
    boxes, scores = random_boxes(rng, 1, 6), rng.random((1, 2, 6)).astype("float32")
    limits = [np.array([2], "int64"), np.array(0.3, "float32"), np.array([0.1], "float32")]
    B, S = hold(boxes, "B"), hold(scores, "S")
    M, I, T = (hold(v, n) for v, n in zip(limits, "MIT"))
    selected = []
    for c in range(2):
        kept = []
        for n in np.argsort(-scores[0, c], kind="stable"):
            near = any(overlap(boxes[0, k], boxes[0, n]) > 0.3 for k in kept)
            if scores[0, c, n] > 0.1 and not near and len(kept) < 2:
                kept.append(n)
        selected.append(kept)
    rows, best = np.zeros((1, 12, 2), "int64"), np.zeros((1, 12), "float32")
    pairs = [(c, n) for c in range(2) for n in selected[c]]
    for place, (c, n) in enumerate(pairs):
        rows[0, place], best[0, place] = (c, n), scores[0, c, n]
    out = topi.vision.all_class_non_max_suppression(B, S, M, I, T, "tensorflow")
    total = np.array([sum(map(len, selected))])
    check(out, {B: boxes, S: scores, M: limits[0], I: limits[1], T: limits[2]}, [rows, best, total])


@pytest.mark.slow
def test_all_class_of_symbolic_sizes(check):
    n = te.var("n")
    rng = np.random.default_rng(6)
    boxes, scores = random_boxes(rng, 1, 5), rng.random((1, 1, 5)).astype("float32")
    B = te.placeholder((1, n, 4), "float32", "B")
    S = te.placeholder((1, 1, n), "float32", "S")
    kept = []
    for k in np.argsort(-scores[0, 0]):
        if not any(overlap(boxes[0, j], boxes[0, k]) > 0.25 for j in kept):
            kept.append(k)
    rows = np.zeros((5, 3), "int64")
    rows[: len(kept), 2] = kept
    out = topi.vision.all_class_non_max_suppression(B, S, -1, 0.25, 0.0)
    check(out, {B: boxes, S: scores}, [rows, np.array([len(kept)])])


# ---------------------------------------------------------------------------- regions of interest
REGIONS = np.array(
    [[0, 1, 2, 9, 7], [1, 0, 0, 15, 11], [1, 3.3, 4.1, 4.0, 5.2], [0, -4, -3, 6, 30], [1, 13, 9, 20, 14]],
    "float32",
)


def bilinear(image, y, x):
    h, w = image.shape[1:]
    if y < -1 or y > h or x < -1 or x > w:
        return np.zeros(len(image))
    y, x = min(max(y, 0), h - 1), min(max(x, 0), w - 1)
    i, j = int(y), int(x)
    i2, j2 = min(i + 1, h - 1), min(j + 1, w - 1)
    top = image[:, i, j] * (1 - x + j) + image[:, i, j2] * (x - j)
    return top * (1 - y + i) + (image[:, i2, j] * (1 - x + j) + image[:, i2, j2] * (x - j)) * (y - i)


def roi_align(x, rois, size, scale, mode, ratio, aligned):
    out = np.zeros((len(rois), x.shape[1], *size))
    for n, roi in enumerate(rois.astype("float64")):
        x1, y1, x2, y2 = roi[1:] * np.float64(np.float32(scale)) - (0.5 if aligned else 0)
        h, w = y2 - y1, x2 - x1
        if not aligned:
            h, w = max(h, 1), max(w, 1)
        h, w = h / size[0], w / size[1]
        rows = ratio if ratio > 0 else int(np.ceil(np.float32(h)))
        columns = ratio if ratio > 0 else int(np.ceil(np.float32(w)))
        for i, j in itertools.product(range(size[0]), range(size[1])):
            points = [
                bilinear(x[int(roi[0])], y1 + (i + (a + 0.5) / rows) * h, x1 + (j + (b + 0.5) / columns) * w)
                for a in range(rows)
                for b in range(columns)
            ]
            out[n, :, i, j] = np.mean(points, 0) if mode == "avg" else np.max(points, 0)
    return out


@pytest.mark.sample(1)
@pytest.mark.parametrize("layout", sweep(["nchw", "nhwc"], 0))
@pytest.mark.parametrize("ratio", [2, -1])
def test_roi_align(check, layout, ratio):
    x = np.random.default_rng(7).normal(size=(2, 3, 6, 8)).astype("float32")
    ways = list(itertools.product(("avg", "max"), (False, True)))
    wanted = [
        roi_align(x.astype("float64"), REGIONS, (3, 2), 0.5, mode, ratio, aligned) for mode, aligned in ways
    ]
    if layout == "nhwc":
        x, wanted = np.ascontiguousarray(x.transpose(0, 2, 3, 1)), [w.transpose(0, 2, 3, 1) for w in wanted]
    A, R = hold(x), hold(REGIONS, "R")
    align = getattr(topi.vision, f"roi_align_{layout}")
    outs = [align(A, R, (3, 2), 0.5, mode, ratio, aligned) for mode, aligned in ways]
    check(outs, {A: x, R: REGIONS}, wanted, 1e-4, 1e-4)


@pytest.mark.parametrize("ratio", sweep([2, 0], 1))
@pytest.mark.parametrize("half", sweep([False, True]))
def test_roi_align_against_onnx(check, ratio, half):
    x = np.random.default_rng(8).normal(size=(2, 2, 10, 12)).astype("float32")
    regions = np.array([[0, 1, 1, 7, 5], [1, 2, 0, 11, 9]], "float32")
    wanted = onnx_run(
        "RoiAlign",
        [x, regions[:, 1:].copy(), regions[:, 0].astype("int64")],
        mode="avg",
        output_height=3,
        output_width=4,
        sampling_ratio=ratio,
        spatial_scale=0.75,
        coordinate_transformation_mode="half_pixel" if half else "output_half_pixel",
    )
    A, R = hold(x), hold(regions, "R")
    out = topi.vision.roi_align_nchw(A, R, (3, 4), 0.75, b"avg", ratio, half)
    check(out, {A: x, R: regions}, wanted, 1e-4, 1e-4)


@pytest.mark.slow
def test_roi_align_of_half_floats_and_no_regions(check):
    x = np.random.default_rng(9).normal(size=(2, 3, 6, 8)).astype("float16")
    wanted = roi_align(x.astype("float64"), REGIONS, (2, 2), 0.5, "avg", 2, False)
    A, R = hold(x), hold(REGIONS, "R")
    check(topi.vision.roi_align_nchw(A, R, 2, 0.5, 0, 2), {A: x, R: REGIONS}, wanted, 3e-3, 3e-3)
    E = te.placeholder((0, 5), "float32", "E")
    none = np.zeros((0, 5), "float32")
    for ratio in (2, -1):
        out = topi.vision.roi_align_nchw(A, E, 2, 0.5, 0, ratio)
        check(out, {A: x, E: none}, np.zeros((0, 3, 2, 2)))


@pytest.mark.parametrize("layout", sweep(["nchw", "nhwc"]))
@pytest.mark.parametrize("size", sweep([(3, 2), (1, 1), (7, 7)]))
def test_roi_pool(check, layout, size):
    x = np.random.default_rng(10).normal(size=(2, 3, 6, 8)).astype("float32")
    wanted = np.zeros((len(REGIONS), 3, *size), "float32")
    for n, roi in enumerate(REGIONS):
        x1, y1, x2, y2 = np.floor(roi[1:] * 0.5 + 0.5).astype(int)
        h, w = max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1)
        for i, j in itertools.product(range(size[0]), range(size[1])):
            top, bottom = (np.clip(v + y1, 0, 6) for v in (i * h // size[0], -(-(i + 1) * h // size[0])))
            left, right = (np.clip(v + x1, 0, 8) for v in (j * w // size[1], -(-(j + 1) * w // size[1])))
            if top < bottom and left < right:
                wanted[n, :, i, j] = x[int(roi[0]), :, top:bottom, left:right].max((1, 2))
    if layout == "nhwc":
        x, wanted = np.ascontiguousarray(x.transpose(0, 2, 3, 1)), wanted.transpose(0, 2, 3, 1)
    A, R = hold(x), hold(REGIONS, "R")
    out = getattr(topi.vision, f"roi_pool_{layout}")(A, R, size, 0.5)
    check(out, {A: x, R: REGIONS}, wanted)


# ---------------------------------------------------------------------------- single-shot detectors
@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize(
    ("sizes", "ratios", "steps"), [((0.5,), (1,), (-1, -1)), ((0.4, 0.9), (1.3, 2, 0.5), (0.3, 0.2))]
)
def test_multibox_prior(check, sizes, ratios, steps, clip):
    h, w = 3, 4
    wanted = []
    for i, j in itertools.product(range(h), range(w)):
        y = (i + 0.5) * (steps[0] if steps[0] > 0 else 1 / h)
        x = (j + 0.5) * (steps[1] if steps[1] > 0 else 1 / w)
        shapes = [(s, 1.0) for s in sizes] + [(sizes[0], r) for r in ratios[1:]]
        for s, r in shapes:
            a, b = s * h / w * r**0.5 / 2, s / r**0.5 / 2
            wanted.append([x - a, y - b, x + a, y + b])
    wanted = np.array(wanted)[None]
    A = te.placeholder((1, 2, h, w), "float32", "A")
    out = topi.vision.ssd.multibox_prior(A, sizes, ratios, steps, clip=clip)
    check(out, {}, wanted.clip(0, 1) if clip else wanted)


@pytest.mark.slow
def test_multibox_transform_and_detection(check):
    rng = np.random.default_rng(11)
    prob = rng.random((2, 4, 7)).astype("float32")
    prob[:, 0, :2] = 2  # the background does not count
    prob[0, :, 3] = 0.001
    loc = rng.normal(size=(2, 28)).astype("float32")
    anchor = random_boxes(rng, 1, 7)
    variances = np.array([0.1, 0.1, 0.2, 0.2])
    rows, counts = np.full((2, 7, 6), -1.0), np.zeros(2, "int32")
    for b, n in itertools.product(range(2), range(7)):
        klass = 1 + prob[b, 1:, n].argmax()
        if prob[b, klass, n] < 0.01:
            continue
        x1, y1, x2, y2 = anchor[0, n].astype("float64")
        v = loc[b, 4 * n : 4 * n + 4] * variances
        x, y = v[0] * (x2 - x1) + (x1 + x2) / 2, v[1] * (y2 - y1) + (y1 + y2) / 2
        w, h = np.exp(v[2]) * (x2 - x1) / 2, np.exp(v[3]) * (y2 - y1) / 2
        box = np.clip([x - w, y - h, x + w, y + h], 0, 1)
        rows[b, counts[b]] = [klass - 1, prob[b, klass, n], *box]
        counts[b] += 1
    P, L, C = hold(prob, "P"), hold(loc, "L"), hold(anchor, "C")
    feed = {P: prob, L: loc, C: anchor}
    check(topi.vision.ssd.multibox_transform_loc(P, L, C), feed, [rows, counts])
    _, _, kept = suppress(
        rows.astype("float32"), counts, np.zeros((2, 7), "int32"), -1, 0.5, False, -1, 2, 1, 0, False
    )
    check(topi.vision.ssd.multibox_detection(P, L, C), feed, kept)


# ---------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda p: topi.vision.get_valid_counts(p(2, 3)), r"data has shape \(2, 3\)"),
        (lambda p: topi.vision.non_max_suppression(p(1, 3, 6), p(2), p(1, 3)), "valid_count has shape"),
        (lambda p: topi.vision.non_max_suppression(p(1, 3, 6), p(1), None), "indices is None"),
        (
            lambda p: topi.vision.all_class_non_max_suppression(p(1, 3, 5), p(1, 2, 3), 1, 0.5, 0),
            "boxes and scores",
        ),
        (
            lambda p: topi.vision.all_class_non_max_suppression(p(1, 3, 4), p(1, 2, 3), 1, 0.5, 0, "x"),
            "output_format is 'x'",
        ),
        (lambda p: topi.vision.roi_align_nchw(p(1, 1, 2, 2), p(3, 4), 2, 1, "avg"), "rois has shape"),
        (lambda p: topi.vision.roi_align_nchw(p(1, 1, 2, 2), p(3, 5), 2, 1, "sum"), "mode is 'sum'"),
        (lambda p: topi.vision.roi_pool_nchw(p(1, 1, 2, 2), p(3, 5), 0, 1), "pooled_size is 0"),
        (lambda p: topi.vision.ssd.multibox_prior(p(1, 2, 3)), "data has 3 dimensions"),
        (lambda p: topi.vision.ssd.multibox_transform_loc(p(1, 2), p(1, 2), p(1, 2)), "shapes are"),
    ],
)
def test_refusals(make, reason):
    with pytest.raises(tvm.TVMError, match=reason):
        make(lambda *shape: te.placeholder(shape, "float32", "A"))
