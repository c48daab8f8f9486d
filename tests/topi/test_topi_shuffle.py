"""Moving channels, pixels and batch into each other, and upsampling, against torch and NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from topi_sweeps import sweep

import tilewright as tvm
from tilewright import te, topi

torch = pytest.importorskip("torch")
F = torch.nn.functional


def count(shape, dtype="int32"):
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


def hold(shape, dtype="int32", name="A"):
    return te.placeholder(shape, dtype, name)


def depth_to_space(x, b, mode):
    n, c, h, w = x.shape
    if mode == "DCR":
        return (
            x.reshape(n, b, b, c // b**2, h, w)
            .transpose(0, 3, 4, 1, 5, 2)
            .reshape(n, c // b**2, h * b, w * b)
        )
    return x.reshape(n, c // b**2, b, b, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // b**2, h * b, w * b)


@pytest.mark.parametrize("layout", sweep(["NCHW", "NHWC"]))
@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize(
    ("shape", "block"),
    sweep([((2, 12, 3, 5), 2), ((1, 9, 1, 1), 3), ((2, 3, 4, 5), 1), ((0, 4, 3, 2), 2)], 2, True),
)
def test_depth_and_space(check, shape, block, mode, layout):
    deep = count(shape)
    wide = depth_to_space(deep, block, mode)
    if layout == "NHWC":
        deep, wide = (np.ascontiguousarray(t.transpose(0, 2, 3, 1)) for t in (deep, wide))
    A, B = hold(deep.shape), hold(wide.shape)
    check(topi.nn.depth_to_space(A, block, layout, mode), {A: deep}, wide)
    check(topi.nn.space_to_depth(B, block, layout, mode), {B: wide}, deep)


@pytest.mark.slow
def test_depth_and_space_of_symbolic_sizes(check):
    n, h, w = te.var("n"), te.var("h"), te.var("w")
    deep = count((2, 8, 3, 5))
    A = hold((n, 8, h, w))
    check(topi.nn.depth_to_space(A, 2), {A: deep}, depth_to_space(deep, 2, "DCR"))


@pytest.mark.parametrize("shape", sweep([(2, 12, 3, 5), (4, 2, 3), (2, 3, 8, 1, 2)], 1))
def test_pixel_shuffle(check, shape):
    x = count(shape)
    wanted = F.pixel_shuffle(torch.from_numpy(x), 2).numpy()
    A, B = hold(shape), hold(wanted.shape)
    check(topi.nn.pixel_shuffle(A, 2), {A: x}, wanted)
    check(topi.nn.pixel_unshuffle(B, 2), {B: wanted}, x)


@pytest.mark.parametrize(
    ("shape", "groups"), sweep([((2, 6, 3), 3), ((1, 8, 2, 2), 2), ((2, 5, 1), 1)], 1, True)
)
def test_channel_shuffle(check, shape, groups):
    x = count(shape)
    wanted = x.reshape(shape[0], groups, -1, *shape[2:]).swapaxes(1, 2).reshape(shape)
    A = hold(shape)
    check(topi.nn.channel_shuffle(A, groups), {A: x}, wanted)


def space_to_batch(x, blocks, before, after, value):
    m = len(blocks)
    x = np.pad(x, [(0, 0), *zip(before, after), *[(0, 0)] * (x.ndim - m - 1)], constant_values=value)
    shape = [x.shape[0]]
    for size, b in zip(x.shape[1:], blocks):
        shape += [size // b, b]
    x = x.reshape(*shape, *x.shape[m + 1 :])
    inner = [2 * d + 2 for d in range(m)]
    outer = [2 * d + 1 for d in range(m)]
    x = x.transpose(*inner, 0, *outer, *range(2 * m + 1, x.ndim))
    return x.reshape(np.prod(x.shape[: m + 1], dtype=int), *x.shape[m + 1 :])


@pytest.mark.parametrize(
    ("shape", "blocks", "before", "after"),
    sweep(
        [
            ((2, 4, 6, 3), [2, 3], [0, 0], [0, 0]),
            ((2, 3, 5, 2), [2, 2], [1, 0], [0, 3]),
            ((3, 5), [2], [2], [1]),
            ((1, 2, 2, 2), [2, 2, 2], [0, 0, 0], [0, 0, 0]),
            ((0, 4), [2], [0], [0]),
        ],
        2,
        True,
    ),
)
def test_space_and_batch(check, shape, blocks, before, after):
    x = count(shape, "float32")
    wanted = space_to_batch(x, blocks, before, after, 7.5)
    A, B = hold(shape, "float32"), hold(wanted.shape, "float32")
    check(topi.nn.space_to_batch_nd(A, blocks, before, after, 7.5), {A: x}, wanted)
    check(topi.nn.batch_to_space_nd(B, blocks, before, after), {B: wanted}, x)


# ---------------------------------------------------------------------------- upsampling
@pytest.mark.parametrize("layout", sweep(["NCHW", "NHWC", "NCHW2c"], 1))
def test_upsampling_by_the_nearest(check, layout):
    x = count((1, 4, 3, 5), "float32")
    moves = {
        "NCHW": lambda t: t,
        "NHWC": lambda t: t.transpose(0, 2, 3, 1),
        "NCHW2c": lambda t: t.reshape(1, 2, 2, *t.shape[2:]).transpose(0, 1, 3, 4, 2),
    }
    given = np.ascontiguousarray(moves[layout](x))
    A = hold(given.shape, "float32")
    check(topi.nn.upsampling(A, 2, 3, layout), {A: given}, moves[layout](x.repeat(2, 2).repeat(3, 3)))


@pytest.mark.parametrize("method", sweep(["bilinear", "bicubic"], 1))
def test_upsampling_with_aligned_corners(check, method):
    x = np.random.default_rng(0).normal(size=(2, 2, 3, 4)).astype("float32")
    A = hold(x.shape, "float32")
    out = topi.nn.upsampling(A, 2.5, 2.0, method=method, align_corners=True)
    wanted = F.interpolate(torch.from_numpy(x.astype("float64")), (8, 8), mode=method, align_corners=True)
    if method == "bilinear":
        check(out, {A: x}, wanted.numpy())
    else:  # torch's cubic has another coefficient
        B = hold(x.shape, "float32")
        other = topi.image.resize2d(
            B,
            None,
            (8, 8),
            method="cubic",
            coordinate_transformation_mode="align_corners",
            bicubic_alpha=-0.5,
        )
        result = np.zeros((2, 2, 8, 8), "float32")
        tvm.build(te.create_prim_func([B, other]))(x, result)
        check(out, {A: x}, result)


@pytest.mark.slow
def test_upsampling3d(check):
    x = np.random.default_rng(0).normal(size=(1, 2, 3, 2, 4)).astype("float32")
    A = hold(x.shape, "float32")
    wanted = F.interpolate(torch.from_numpy(x), scale_factor=(2, 3, 2), mode="nearest").numpy()
    check(topi.nn.upsampling3d(A, 2, 3, 2), {A: x}, wanted)
    wanted = F.interpolate(torch.from_numpy(x), (6, 6, 8), mode="trilinear").numpy()
    check(topi.nn.upsampling3d(A, 2, 3, 2, method="trilinear"), {A: x}, wanted)
    last = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    B = hold(last.shape, "float32")
    out = topi.nn.upsampling3d(B, 2, 3, 2, "NDHWC", "trilinear")
    check(out, {B: last}, np.moveaxis(wanted, 1, -1))


@pytest.mark.slow
def test_upsampling_of_symbolic_sizes(check):
    n, h, w = te.var("n"), te.var("h"), te.var("w")
    x = count((2, 1, 3, 4), "float32")
    A = hold((n, 1, h, w), "float32")
    check(topi.nn.upsampling(A, 2, 2), {A: x}, x.repeat(2, 2).repeat(2, 3))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda A: topi.nn.depth_to_space(A, 2), "the number of channels is 6 and must be a multiple of 4"),
        (lambda A: topi.nn.space_to_depth(A, 2), "the width is 5 and must be a multiple of 2"),
        (lambda A: topi.nn.depth_to_space(A, 2, "NCWH"), "layout is 'NCWH'"),
        (lambda A: topi.nn.depth_to_space(A, 2, mode="XYZ"), "mode is 'XYZ'"),
        (lambda A: topi.nn.depth_to_space(A, 0), "block_size is 0"),
        (lambda A: topi.nn.channel_shuffle(A, 4), "must be a multiple of 4"),
        (lambda A: topi.nn.pixel_shuffle(hold((2, 2)), 2), "has 2 dimensions"),
        (lambda A: topi.nn.space_to_batch_nd(A, [4], [0], [0]), "dimension 1 with its padding is 6"),
        (
            lambda A: topi.nn.space_to_batch_nd(A, [2], [0, 1], [0]),
            "pad_before has 2 numbers for 1 dimensions",
        ),
        (lambda A: topi.nn.batch_to_space_nd(A, [3], [0], [0]), "the batch is 2 and must be a multiple of 3"),
        (lambda A: topi.nn.batch_to_space_nd(A, [2], [9], [9]), "cropping takes more than dimension 1 has"),
        (lambda A: topi.nn.upsampling(A, 2, 0), "the scale 0 must be positive"),
        (lambda A: topi.nn.upsampling(A, 2, 2, "NCDW"), "does not name H, W once"),
    ],
)
def test_refusals(make, reason):
    with pytest.raises(tvm.TVMError, match=reason):
        make(hold((2, 6, 4, 5)))
