"""The references of topi.testing: small cases by hand, and against each other."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import topi

ref = topi.testing


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).random(shape, "float32")


def test_dispatch_takes_the_first_key_of_a_target() -> None:
    table = {"generic": 0, "cpu": 1, "gpu": 2, "arm_cpu": 3}
    assert [ref.dispatch(t, table) for t in ("llvm", "cuda", "llvm -device=arm_cpu")] == [1, 2, 3]
    assert ref.dispatch(tvm.target.Target("llvm"), {"generic": 0, "gpu": 2}) == 0


def test_an_operator_is_compared_with_numpy() -> None:
    x = floats(3, 4)
    args = ("llvm", tvm.cpu(), lambda a: topi.exp(a), topi.x86.schedule_injective)
    ref.compare_numpy_tvm([x], np.exp(x), *args)
    with pytest.raises(AssertionError):
        ref.compare_numpy_tvm([x], np.exp(x) + 1, *args)


def test_transposed_convolutions_are_adjoint_to_convolutions() -> None:
    """`<conv(x), y>` is `<x, conv_transpose(y)>` for the same weight."""
    x, w = floats(2, 3, 8, 7), floats(4, 3, 3, 2)
    made = ref.conv2d_nchw_python(x, w, (2, 1), (1, 0))
    y = floats(*made.shape)
    back = ref.conv2d_transpose_nchw_python(y, w, (2, 1), (1, 0), (1, 0))
    np.testing.assert_allclose((made * y).sum(), (x * back).sum(), 1e-4)
    grad = ref.conv2d_backward_weight_python(y, x, (3, 2), (2, 1), (1, 0))
    np.testing.assert_allclose((made * y).sum(), (w * grad).sum(), 1e-4)
    nhwc = ref.conv2d_transpose_nhwc_python(
        y.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), "HWOI", (2, 1), (1, 0), (1, 0)
    )
    np.testing.assert_allclose(nhwc.transpose(0, 3, 1, 2), back, 1e-5)


def test_convolutions_in_groups_and_blocks() -> None:
    x, w = floats(1, 4, 5, 5), floats(4, 1, 3, 3)
    wanted = ref.conv2d_nchw_python(x, w, 1, 1, groups=4)
    np.testing.assert_allclose(ref.depthwise_conv2d_python_nchw(x, w, 1, 1), wanted, 1e-5)
    blocked = x.reshape(1, 2, 2, 5, 5).transpose(0, 1, 3, 4, 2)
    filters = w.reshape(2, 2, 1, 1, 3, 3).transpose(0, 2, 4, 5, 3, 1)
    made = ref.depthwise_conv2d_python_nchwc(blocked, filters, 1, 1)
    np.testing.assert_allclose(made.transpose(0, 1, 4, 2, 3).reshape(wanted.shape), wanted, 1e-5)
    still = np.zeros((1, 18, 5, 5), "float32")
    full = floats(6, 4, 3, 3)
    np.testing.assert_allclose(
        ref.deformable_conv2d_nchw_python(x, still, full, 1, 1, 1, 1, 1),
        ref.conv2d_nchw_python(x, full, 1, 1),
        1e-4,
    )


def test_pooling_and_its_gradient() -> None:
    x = np.arange(16, dtype="float32").reshape(1, 1, 4, 4)
    args = ((2, 2), (2, 2), (1, 1), (0, 0), (0, 0))
    np.testing.assert_array_equal(ref.poolnd_python(x, *args, "max")[0, 0], [[5, 7], [13, 15]])
    np.testing.assert_array_equal(ref.poolnd_python(x, *args, "avg")[0, 0], [[2.5, 4.5], [10.5, 12.5]])
    np.testing.assert_array_equal(ref.adaptive_pool(x, (2, 2), "max", "NCHW")[0, 0], [[5, 7], [13, 15]])
    ones = np.ones((1, 1, 2, 2), "float32")
    most = ref.pool_grad_nchw(x, ones, (2, 2), (2, 2), (0, 0, 0, 0), "max", False)
    np.testing.assert_array_equal(np.argwhere(most[0, 0]), [[1, 1], [1, 3], [3, 1], [3, 3]])
    mean = ref.pool_grad_nchw(x, ones, (2, 2), (2, 2), (0, 0, 0, 0), "avg", False)
    np.testing.assert_array_equal(mean, np.full_like(x, 0.25))


def test_what_moves_elements_is_undone() -> None:
    x = floats(2, 8, 4, 6)
    np.testing.assert_array_equal(ref.space_to_depth_python(ref.depth_to_space_python(x, 2), 2), x)
    blocks = ref.space_to_batch_nd_python(x, (2, 3), (1, 0), (1, 2))
    np.testing.assert_array_equal(ref.batch_to_space_nd_python(blocks, (2, 3), (1, 0), (1, 2)), x)
    assert sorted(ref.reorg_python(x, 2).ravel()) == sorted(x.ravel())


def test_images_at_the_size_that_they_have() -> None:
    x = floats(1, 3, 5, 4)
    for method in ("nearest_neighbor", "linear", "cubic"):
        np.testing.assert_allclose(ref.resize2d_python(x, (1, 1), "NCHW", method), x, 1e-6)
    whole = np.array([[0, 0, 1, 1]], "float32")
    np.testing.assert_allclose(ref.crop_and_resize_python(x, whole, [0], (5, 4), "NCHW"), x, 1e-5)
    same = ref.affine_grid_python(np.array([[[1, 0, 0], [0, 1, 0]]], "float32"), (5, 4))
    for method in ("nearest", "bilinear", "bicubic"):
        np.testing.assert_allclose(ref.grid_sample_python(x, same, method), x, 1e-5, 1e-6)
    region = np.array([[0, 0, 0, 3, 4]], "float32")
    assert ref.roi_pool_nchw_python(x, region, 1, 1.0)[0, :, 0, 0].tolist() == x.max((0, 2, 3)).tolist()
    flat = np.ones((1, 6, 6, 2), "float32")
    assert (ref.roi_align_nhwc_python(flat, region, 2, 1.0, 2) == 1).all()


def test_norms_and_losses() -> None:
    x = floats(2, 6, 4)
    g, b = floats(6), floats(6)
    one = ref.group_norm_python(x, g, b, 6, 1, [2])
    per = ref.instance_norm_python(x, g[:, None], b[:, None], 2)
    np.testing.assert_allclose(one, per, 1e-4, 1e-5)
    out, mean, _ = ref.batch_norm(x, g, b, g * 0, g * 0, training=True, momentum=1.0)
    np.testing.assert_allclose(mean, x.mean((0, 2)), 1e-5)
    np.testing.assert_allclose(out.mean((0, 2)), b, 1e-4, 1e-5)
    np.testing.assert_allclose(np.square(ref.l2_normalize_python(x, 1e-9)).sum(), 1, 1e-5)
    np.testing.assert_allclose(ref.lrn_python(x, 1, 1, 1.0, 0.0, 1.0), x)
    targets = np.array([[0, 5, 2, 2], [1, 1, 5, 0]])
    loss = ref.nll_loss(x, targets, np.ones(6), "none", ignore_index=5)
    assert loss[0, 1] == loss[1, 2] == 0 and loss[0, 2] == -x[0, 2, 2]
    h, c = ref.lstm_python(floats(3, 2, 4), floats(12, 4), floats(12, 3))
    assert h.shape == c.shape == (3, 2, 3) and abs(h).max() < 1
