"""Image and detection operators: types, values, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import TVMError, relay, te
from tilewright.relay.testing import run_infer_type

image, vision = relay.image, relay.vision


def var(name: str, *shape: Any, dtype: str = "float32") -> Any:
    return relay.var(name, shape=shape, dtype=dtype)


def type_of(expr: Any) -> Any:
    return run_infer_type(expr.tuple_value if isinstance(expr, relay.TupleWrapper) else expr).checked_type


def test_dilation_steps_for_all_dimensions() -> None:
    x, w = relay.var("x", shape=(1, 5, 24, 24)), relay.var("w", shape=(5, 8, 8))
    found = [relay.image.dilation2d(x, w, strides=s) for s in ([1, 1, 2, 3], [2, 3])]
    assert found[0].attrs.strides == found[1].attrs.strides == (2, 3)
    with pytest.raises(
        TVMError, match=r"strides: is \(2, 1, 1, 1\) in NCHW, and that of N and C can only be 1"
    ):
        relay.image.dilation2d(x, w, strides=[2, 1, 1, 1])


def test_resize_and_sampling(run_graph: Any, rng: Any) -> None:
    torch = pytest.importorskip("torch")
    f = torch.nn.functional
    x = rng.standard_normal((1, 2, 4, 5)).astype("float32")
    theta = rng.standard_normal((1, 2, 3)).astype("float32")
    w = rng.standard_normal((2, 2, 2)).astype("float32")
    v, t, k = var("x", 1, 2, 4, 5), var("t", 1, 2, 3), var("w", 2, 2, 2)
    data, maps = torch.tensor(x), torch.tensor(theta)
    grid = f.affine_grid(maps, [1, 2, 3, 3], align_corners=True)
    patches = np.lib.stride_tricks.sliding_window_view(x, (2, 2), (2, 3))
    pairs = [
        (image.resize2d(v, (8, 7)), f.interpolate(data, (8, 7), mode="bilinear", align_corners=False)),
        (
            image.resize2d(v, (3, 3), method="linear", coordinate_transformation_mode="align_corners"),
            f.interpolate(data, (3, 3), mode="bilinear", align_corners=True),
        ),
        (
            image.resize2d(v, (2, 3), cubic_exclude=1, antialias=True),
            f.interpolate(data, (2, 3), mode="bilinear", align_corners=False, antialias=True),
        ),
        (
            image.resize1d(relay.reshape(v, (2, 4, 5)), 10),
            f.interpolate(data[0].reshape(2, 4, 5), 10, mode="linear"),
        ),
        (
            image.resize3d(relay.expand_dims(v, 0), (4, 2, 5)),
            f.interpolate(data[None], (4, 2, 5), mode="trilinear"),
        ),
        (image.affine_grid(t, (3, 3)), grid.permute(0, 3, 1, 2)),
        (
            image.grid_sample(v, image.affine_grid(t, (3, 3)), padding_mode="border"),
            f.grid_sample(data, grid, padding_mode="border", align_corners=True),
        ),
        (
            image.crop_and_resize(v, relay.const([[0.0, 0.0, 1.0, 1.0]]), relay.const([0]), (4, 5), "NCHW"),
            data,
        ),
        (image.dilation2d(v, k), torch.tensor((patches + w[:, None, None]).max((-1, -2)))),
    ]
    got = run_graph(relay.Tuple([e for e, _ in pairs]), x=x, t=theta, w=w)
    for (call, want), y in zip(pairs, got, strict=True):
        np.testing.assert_allclose(y, want.numpy(), rtol=1e-3, atol=1e-4, err_msg=call.op.name)


BOXES = np.array(
    [[[0, 0.9, 0, 0, 2, 2], [0, 0.8, 0, 0, 2, 1.8], [1, 0.7, 5, 5, 6, 6], [0, 0.1, 8, 8, 9, 9]]], "float32"
)


@pytest.mark.slow
def test_suppression(run_graph: Any) -> None:
    data = var("d", 1, 4, 6)
    count, rows, places = run_graph(vision.get_valid_counts(data, 0.5), d=BOXES)
    assert count.tolist() == [3] and places.tolist() == [[0, 1, 2, -1]]
    np.testing.assert_allclose(rows[0, :3], BOXES[0, :3])

    valid = vision.get_valid_counts(data, 0.5)
    kept, number = run_graph(vision.non_max_suppression(valid[1], valid[0], valid[2]), d=BOXES)
    assert number.tolist() == [[2]] and kept[0, :2].tolist() == [0, 2]


def test_suppression_of_each_class(run_graph: Any) -> None:
    corners, scores = BOXES[:, :, 2:], BOXES[:, :, 1][:, None]
    made = vision.all_class_non_max_suppression(var("b", 1, 4, 4), var("s", 1, 1, 4), 2, 0.5, 0.2)
    chosen, total = run_graph(made, b=corners, s=scores)
    assert total.tolist() == [2] and chosen[:2].tolist() == [[0, 0, 0], [0, 0, 2]]


@pytest.mark.slow
def test_suppression_in_other_forms(run_graph: Any) -> None:
    data = var("d", 1, 4, 6)
    moved = vision.non_max_suppression(
        data, relay.const(np.array([3], "int32")), relay.const(np.arange(4, dtype="int32")[None]),
        return_indices=False, invalid_to_bottom=True,
    )  # fmt: skip
    np.testing.assert_allclose(run_graph(moved, d=BOXES)[0, :2], BOXES[0, [0, 2]])
    corners, scores = BOXES[:, :, 2:], BOXES[:, :, 1][:, None]
    made = vision.all_class_non_max_suppression(
        var("b", 1, 4, 4), var("s", 1, 1, 4), -1, 0.5, 0.0, output_format="tensorflow"
    )
    chosen, best, total = run_graph(made, b=corners, s=scores)
    assert total.tolist() == [3] and chosen[0, :3, 1].tolist() == [0, 2, 3]
    np.testing.assert_allclose(best[0, :3], [0.9, 0.7, 0.1])


def test_anchors(run_graph: Any) -> None:
    prior = run_graph(
        vision.multibox_prior(var("x", 1, 3, 1, 2), sizes=(0.5,)), x=np.zeros((1, 3, 1, 2), "float32")
    )
    np.testing.assert_allclose(prior, [[[0.125, 0.25, 0.375, 0.75], [0.625, 0.25, 0.875, 0.75]]])
    moved = vision.multibox_transform_loc(var("p", 1, 2, 2), var("l", 1, 8), var("a", 1, 2, 4))
    rows, count = run_graph(
        moved,
        p=np.array([[[0.1, 0.9], [0.9, 0.005]]], "float32"),
        l=np.zeros((1, 8), "float32"),
        a=prior,
    )
    assert count.tolist() == [1]
    np.testing.assert_allclose(rows[0, 0], [0, 0.9, *prior[0, 0]], rtol=1e-5)


@pytest.mark.slow
def test_regions(run_graph: Any) -> None:
    x = np.arange(16, dtype="float32").reshape(1, 1, 4, 4)
    rois = np.array([[0, 0, 0, 3, 3]], "float32")
    v, r = var("x", 1, 1, 4, 4), var("r", 1, 5)
    turned = relay.transpose(v, (0, 2, 3, 1))
    calls = [
        vision.roi_pool(v, r, (2, 2), 1.0),
        vision.roi_pool(turned, r, (2, 2), 1.0, "NHWC"),
        vision.roi_align(v, r, 1, 1.0, sample_ratio=1),
        vision.roi_align(v, r, 1, 1.0, sample_ratio=2, mode="max"),
    ]
    pool, last, middle, most = run_graph(relay.Tuple(calls), x=x, r=rois)
    np.testing.assert_allclose(pool, [[[[5, 7], [13, 15]]]])
    np.testing.assert_allclose(last[..., 0], [[[5, 7], [13, 15]]])
    np.testing.assert_allclose(middle, [[[[7.5]]]])  # the middle of the region
    np.testing.assert_allclose(most, [[[[11.25]]]])


def test_symbolic_and_unknown_sizes() -> None:
    n, a = te.size_var("n"), relay.Any()
    assert type_of(image.resize2d(var("x", n, 3, a, a), (4, 5))).shape == (n, 3, 4, 5)
    assert type_of(image.grid_sample(var("x", n, 3, 8, 8), var("g", n, 2, a, 4))).shape == (n, 3, a, 4)
    assert type_of(vision.roi_align(var("x", 1, 3, a, a), var("r", n, 5), 7, 0.5)).shape == (n, 3, 7, 7)
    counts = type_of(vision.get_valid_counts(var("d", n, a, 6), 0.5))
    assert [t.shape for t in counts.fields] == [(n,), (n, a, 6), (n, a)]
    assert type_of(vision.multibox_prior(var("x", 1, 3, a, 4))).shape == (1, a, 4)


REFUSALS: list[tuple[Callable[[], Any], str]] = [
    (lambda: image.resize2d(var("x", 1, 3, 8), (4, 5)), "data: has 3 dimensions and its layout NCHW has 4"),
    (lambda: image.resize2d(var("x", 1, 3, 8, 8), (4, 5), method="magic"), "method: is 'magic'"),
    (lambda: image.affine_grid(var("t", 1, 3, 2), (3, 3)), "data: must be (batch, 2, 3) and is"),
    (lambda: image.grid_sample(var("x", 1, 3, 8, 8), var("g", 1, 3, 4, 4)), "grid: must have 2 coordinates"),
    (
        lambda: image.crop_and_resize(
            var("x", 1, 3, 8, 8), var("b", 2, 4), var("i", 3, dtype="int32"), 4, "NCHW"
        ),
        "box_indices: is Tensor[(3,), int32] for 2 boxes",
    ),
    (lambda: image.dilation2d(var("x", 1, 3, 8, 8), var("w", 2, 2, 2)), "weight: has 2 channels and data 3"),
    (
        lambda: vision.roi_pool(var("x", 1, 3, 8, 8), var("r", 1, 4), 2, 1.0),
        "rois: must have rows (image, x1, y1, x2, y2)",
    ),
    (lambda: vision.get_valid_counts(var("d", 4, 6), 0.5), "data: must have 3 dimensions"),
    (
        lambda: vision.non_max_suppression(
            var("d", 1, 4, 6), var("c", 2, dtype="int32"), var("i", 1, 4, dtype="int32")
        ),
        "valid_count: is Tensor[(2,), int32] and data has 1 images",
    ),
    (
        lambda: vision.all_class_non_max_suppression(var("b", 1, 4, 4), var("s", 1, 2, 5)),
        "scores: is Tensor[(1, 2, 5), float32] and boxes is Tensor[(1, 4, 4), float32]",
    ),
    (
        lambda: vision.multibox_transform_loc(var("p", 1, 2, 2), var("l", 1, 7), var("a", 1, 2, 4)),
        "loc_pred: is",
    ),
]


@pytest.mark.parametrize(("build", "reason"), REFUSALS)
def test_refusals(build: Any, reason: str) -> None:
    with pytest.raises(relay.RelayTypeError) as caught:
        type_of(build())
    assert reason in str(caught.value)
