"""Resizing, cropping, grid sampling and dilation against torch, the ONNX reference and plain loops."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from topi_sweeps import onnx_run, sweep

import tilewright as tvm
from tilewright import te, topi

torch = pytest.importorskip("torch")
F = torch.nn.functional


def normal(shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def hold(shape, dtype="float32", name="A"):
    return te.placeholder(shape, dtype, name)


def wide(x):
    return torch.from_numpy(np.asarray(x, "float64"))


# ---------------------------------------------------------------------------- resize against ONNX
MODES = ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric"]
SIZES = [
    ((4, 5), (7, 3)),
    ((4, 6), (8, 12)),
    ((7, 9), (3, 4)),
    ((3, 3), (1, 1)),
    ((1, 1), (3, 2)),
    ((5, 4), (5, 8)),
]


def onnx_resize(x, size, method, mode, **more):
    sizes = np.array([*x.shape[: x.ndim - len(size)], *size], "int64")
    kind = {"nearest_neighbor": "nearest", "linear": "linear", "cubic": "cubic"}[method]
    return onnx_run("Resize", [x, None, None, sizes], mode=kind, coordinate_transformation_mode=mode, **more)


@pytest.mark.parametrize("method", ["nearest_neighbor", "linear", "cubic"])
@pytest.mark.parametrize("sizes", sweep(SIZES))
def test_resize2d_against_onnx(check, sizes, method):
    x = normal((1, 2, *sizes[0]))
    A = hold(x.shape)
    outs, wanted = [], []
    for mode in MODES:
        outs.append(
            topi.image.resize2d(
                A,
                None,
                sizes[1],
                method=method,
                coordinate_transformation_mode=mode,
                rounding_method="round_prefer_floor",
                bicubic_alpha=-0.75,
            )
        )
        # The reference computes places in floats and misses exact halves; ours are exact, so give it float64.
        wanted.append(onnx_resize(x.astype("float64"), sizes[1], method, mode))
        if mode == "pytorch_half_pixel" and sizes[1] == (1, 1):
            wanted[-1] = x[:, :, :1, :1]  # the specification says pixel 0, the reference takes -0.5
    check(outs, {A: x}, wanted)


@pytest.mark.parametrize("sizes", sweep([((4, 5), (8, 3)), ((6, 4), (3, 7)), ((2, 2), (4, 4))]))
def test_nearest_rounding_against_onnx(check, sizes):
    x = normal((1, 1, *sizes[0]))
    A = hold(x.shape)
    outs, wanted = [], []
    for mode in ("half_pixel", "asymmetric"):
        for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
            outs.append(topi.image.resize2d(A, None, sizes[1], "NCHW", "nearest", mode, rounding))
            wanted.append(onnx_resize(x, sizes[1], "nearest_neighbor", mode, nearest_mode=rounding))
    check(outs, {A: x}, wanted)


@pytest.mark.parametrize("exclude", [0, 1])
@pytest.mark.parametrize("alpha", sweep([-0.5, -0.75]))
def test_cubic_options_against_onnx(check, alpha, exclude):
    x = normal((1, 1, 5, 6))
    A = hold(x.shape)
    out = topi.image.resize2d(A, None, (8, 4), method="cubic", bicubic_alpha=alpha, bicubic_exclude=exclude)
    wanted = onnx_resize(x, (8, 4), "cubic", "half_pixel", cubic_coeff_a=alpha, exclude_outside=exclude)
    check(out, {A: x}, wanted)


@pytest.mark.parametrize("method", sweep(["linear", "nearest_neighbor", "cubic"]))
@pytest.mark.slow
def test_crop_mode_against_onnx(check, method):
    x = normal((1, 2, 6, 7))
    roi = np.array([0, 0, 0.2, -0.1, 1, 1, 0.9, 1.2], "float32")
    for size in [(4, 5), (1, 3)]:
        sizes = np.array([1, 2, *size], "int64")
        kind = {"nearest_neighbor": "nearest"}.get(method, method)
        wanted = onnx_run(
            "Resize",
            [x, roi, None, sizes],
            mode=kind,
            coordinate_transformation_mode="tf_crop_and_resize",
            extrapolation_value=7.0,
            nearest_mode="floor",
        )
        A = hold(x.shape)
        out = topi.image.resize2d(
            A,
            [0.2, -0.1, 0.9, 1.2],
            size,
            method=method,
            coordinate_transformation_mode="tf_crop_and_resize",
            rounding_method="floor",
            bicubic_alpha=-0.75,
            extrapolation_value=7.0,
        )
        check(out, {A: x}, wanted)
        R = hold((4,), name="R")
        out = topi.image.resize2d(
            A,
            R,
            size,
            method="linear",
            coordinate_transformation_mode="tf_crop_and_resize",
            extrapolation_value=7.0,
        )
        if method == "linear":
            check(out, {A: x, R: roi[[2, 3, 6, 7]]}, wanted)


@pytest.mark.parametrize("scales", [(0.6, 0.6), (1.7, 2.3), (1 / 3, 2.5)])
@pytest.mark.parametrize("mode", sweep(["half_pixel", "asymmetric", "half_pixel_symmetric"]))
def test_scales_against_onnx(check, mode, scales):
    """Where scales are given the size is their product rounded down, and places follow the scales."""
    x = normal((1, 1, 7, 5))
    full = np.array([1, 1, *scales], "float32")
    wanted = onnx_run("Resize", [x, None, full], mode="linear", coordinate_transformation_mode=mode)
    A = hold(x.shape)
    out = topi.image.resize2d(
        A, None, wanted.shape[2:], method="linear", coordinate_transformation_mode=mode, scales=scales
    )
    check(out, {A: x}, wanted, 1e-4, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("exclude", [0, 1])
@pytest.mark.parametrize("method", ["linear", "cubic"])
def test_antialias_against_onnx(check, method, exclude):
    x = normal((1, 2, 9, 7))
    for size in [(4, 3), (3, 10)]:
        A = hold(x.shape)
        out = topi.image.resize2d(
            A, None, size, method=method, bicubic_alpha=-0.75, bicubic_exclude=exclude, antialias=True
        )
        wanted = onnx_resize(x, size, method, "half_pixel", antialias=1, exclude_outside=exclude)
        check(out, {A: x}, wanted)


# ---------------------------------------------------------------------------- resize against torch
@pytest.mark.parametrize("align", sweep([False, True], 1))
@pytest.mark.parametrize("kind", ["linear", "bilinear", "trilinear", "bicubic"])
def test_resize_against_torch(check, kind, align):
    n = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}[kind]
    x = normal((2, 3, *(5, 4, 6)[:n]))
    size = (7, 9, 3)[:n]
    wanted = F.interpolate(wide(x), size, mode=kind, align_corners=align).numpy()
    A = hold(x.shape)
    resize = {1: topi.image.resize1d, 2: topi.image.resize2d, 3: topi.image.resize3d}[n]
    out = resize(
        A,
        None,
        size,
        method="cubic" if kind == "bicubic" else "linear",
        coordinate_transformation_mode="align_corners" if align else "half_pixel",
        bicubic_alpha=-0.75,
    )
    check(out, {A: x}, wanted)


def test_nearest_against_torch_at_every_size(check):
    """Places are exact: with floats some of these pixels are missed by one."""
    x = np.arange(37, dtype="float32").reshape(1, 1, 37)
    for size in (1, 36, 37, 38, 74, 101):
        A = hold(x.shape)
        out = topi.image.resize1d(A, None, size, "NCW", "nearest_neighbor", "asymmetric")
        check(out, {A: x}, x[:, :, np.arange(size) * 37 // size])


@pytest.mark.parametrize("layout", sweep(["NCHW4c", "NHWC", "NCHW"]))
@pytest.mark.parametrize("method", sweep(["nearest_neighbor", "linear", "cubic"], 1))
def test_layouts(check, layout, method):
    x = normal((2, 8, 5, 4))
    moves = {
        "NCHW": lambda t: t,
        "NHWC": lambda t: t.transpose(0, 2, 3, 1),
        "NCHW4c": lambda t: t.reshape(2, 2, 4, *t.shape[2:]).transpose(0, 1, 3, 4, 2),
    }
    given = np.ascontiguousarray(moves[layout](x))
    mode = {"nearest_neighbor": "nearest", "linear": "bilinear", "cubic": "bicubic"}[method]
    align = None if mode == "nearest" else False
    wanted = F.interpolate(wide(x), (7, 6), mode=mode, align_corners=align).numpy()
    A = hold(given.shape)
    place = "asymmetric" if mode == "nearest" else "half_pixel"
    out = topi.image.resize2d(A, None, (7, 6), layout, method, place, bicubic_alpha=-0.75)
    check(out, {A: given}, moves[layout](wanted))


@pytest.mark.parametrize("dtype", sweep(["uint8", "int8", "float16", "float64"]))
def test_types(check, dtype):
    x = (normal((1, 1, 5, 5)) * 40 + 60).clip(0, 127).astype(dtype)
    A = hold(x.shape, dtype)
    wanted = F.interpolate(wide(x), (8, 7), mode="bicubic").numpy()
    out = topi.image.resize2d(A, None, (8, 7), method="cubic", bicubic_alpha=-0.75)
    info = np.iinfo(dtype) if "int" in dtype else None
    rounded = np.round(wanted).clip(info.min, info.max).astype(dtype) if info else wanted
    check(out, {A: x}, rounded, 1e-3, 1e-3)
    out = topi.image.resize2d(A, None, (8, 7), method="linear", out_dtype="float32")
    check(out, {A: x}, F.interpolate(wide(x), (8, 7), mode="bilinear").numpy(), 1e-5, 1e-4)


@pytest.mark.slow
def test_symbolic_sizes(check):
    h, w, n = te.var("h"), te.var("w"), te.var("n")
    x = normal((2, 1, 4, 5))
    for mode in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"):
        A = hold((n, 1, h, w))
        out = topi.image.resize2d(A, None, (7, 3), coordinate_transformation_mode=mode)
        B = hold(x.shape)
        known = topi.image.resize2d(B, None, (7, 3), coordinate_transformation_mode=mode)
        f = tvm.build(te.create_prim_func([B, known]))
        wanted = np.zeros((2, 1, 7, 3), "float32")
        f(x, wanted)
        check(out, {A: x}, wanted)


def test_empty_batch_and_empty_output(check):
    A = hold((0, 3, 4, 4))
    check(
        topi.image.resize2d(A, None, (8, 8)), {A: np.zeros((0, 3, 4, 4), "float32")}, np.zeros((0, 3, 8, 8))
    )
    A = hold((1, 1, 4, 4))
    check(
        topi.image.resize2d(A, None, (0, 8)), {A: np.zeros((1, 1, 4, 4), "float32")}, np.zeros((1, 1, 0, 8))
    )


def test_doubling_by_the_nearest_pixel_is_affine():
    """No clamps and no floats are left where sizes are known: the scheduler can see through it."""
    A = hold((1, 2, 4, 6))
    out = topi.image.resize2d(A, None, (8, 12), "NCHW", "nearest_neighbor", "asymmetric")
    assert out.op.tag == "injective"
    text = str(out.op.body[0])
    assert "min" not in text and "Cast" not in text and "// 2" in text


# ---------------------------------------------------------------------------- crops
@pytest.mark.slow
@pytest.mark.parametrize("layout", sweep(["NCHW", "NHWC"]))
@pytest.mark.parametrize("method", sweep(["bilinear", "nearest_neighbor"], 1))
def test_crop_and_resize(check, method, layout):
    x = normal((2, 6, 7, 3))
    boxes = np.array(
        [[0, 0, 1, 1], [0.2, 0.1, 0.72, 0.9], [-0.3, 0, 0.5, 1.4], [0.8, 0.9, 0.1, 0]], "float32"
    )
    which = np.array([0, 1, 1, 0], "int32")
    size = (4, 3)
    wanted = np.full((4, *size, 3), 5.0)
    for b, y, z in itertools.product(range(4), range(4), range(3)):
        y1, x1, y2, x2 = boxes[b].astype("float64")
        v = y1 * 5 + y * (y2 - y1) * 5 / 3
        u = x1 * 6 + z * (x2 - x1) * 6 / 2
        if not (0 <= v <= 5 and 0 <= u <= 6):
            continue
        image = x[which[b]].astype("float64")
        if method == "nearest_neighbor":
            wanted[b, y, z] = image[int(np.floor(v + 0.5)), int(np.floor(u + 0.5))]
            continue
        i, j = int(v), int(u)
        i2, j2 = min(i + 1, 5), min(j + 1, 6)
        top = image[i, j] * (1 - u + j) + image[i, j2] * (u - j)
        low = image[i2, j] * (1 - u + j) + image[i2, j2] * (u - j)
        wanted[b, y, z] = top * (1 - v + i) + low * (v - i)
    given = x if layout == "NHWC" else np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    wanted = wanted if layout == "NHWC" else wanted.transpose(0, 3, 1, 2)
    A, B, I = hold(given.shape), hold(boxes.shape, name="B"), hold(which.shape, "int32", "I")
    out = topi.image.crop_and_resize(A, B, I, size, layout, method, 5.0)
    check(out, {A: given, B: boxes, I: which}, wanted)


# ---------------------------------------------------------------------------- grids
@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("shape", sweep([(3, 4), (2, 3, 4), (1, 1), (1, 5)], 1))
def test_affine_grid(check, shape, align):
    n = len(shape)
    theta = normal((2, n, n + 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of sizes of one
        wanted = F.affine_grid(wide(theta), (2, 1, *shape), align_corners=align).movedim(-1, 1).numpy()
    if align:  # a single pixel stands at -1 here, and in the middle in torch
        for d, size in enumerate(shape):
            if size == 1:
                wanted -= theta[:, :, n - 1 - d].astype("float64").reshape(2, n, *[1] * n)
    T = hold(theta.shape)
    check(topi.image.affine_grid(T, shape, align), {T: theta}, wanted)


PADDINGS = ["zeros", "border", "reflection"]


@pytest.mark.parametrize("align", sweep([False, True]))
@pytest.mark.parametrize("method", sweep(["bilinear", "nearest", "bicubic"]))
@pytest.mark.slow
def test_grid_sample(check, method, align):
    x = normal((2, 3, 5, 7))
    grid = (np.random.default_rng(1).random((2, 4, 3, 2)) * 5 - 2.5).astype("float32")
    grid[0, 0, 0] = [-1, 1]
    wanted = [
        F.grid_sample(torch.from_numpy(x), torch.from_numpy(grid), method, p, align).numpy() for p in PADDINGS
    ]
    A, G = hold(x.shape), hold((2, 2, 4, 3), name="G")
    outs = [topi.image.grid_sample(A, G, method, "NCHW", p, align) for p in PADDINGS]
    check(outs, {A: x, G: np.ascontiguousarray(grid.transpose(0, 3, 1, 2))}, wanted, 1e-4, 1e-4)


@pytest.mark.parametrize("method", sweep(["bilinear", "nearest"], 0))
def test_grid_sample_of_volumes(check, method):
    x = normal((2, 2, 3, 4, 5))
    grid = (np.random.default_rng(1).random((2, 2, 3, 2, 3)) * 4 - 2).astype("float32")
    wanted = [
        F.grid_sample(torch.from_numpy(x), torch.from_numpy(grid), method, p, True).numpy() for p in PADDINGS
    ]
    A, G = hold(x.shape), hold((2, 3, 2, 3, 2), name="G")
    outs = [topi.image.grid_sample(A, G, method, "NCDHW", p, True) for p in PADDINGS]
    check(outs, {A: x, G: np.ascontiguousarray(np.moveaxis(grid, -1, 1))}, wanted, 1e-4, 1e-4)


def test_grid_sample_of_one_pixel_and_nan(check):
    """Whatever the places are, nothing outside of the image is read."""
    x = np.array([[[[3.0]]]], "float32")
    grid = np.array([[[[np.nan, np.inf, -np.inf, 0.0, 1e30]], [[0.0, 0, 0, 0, 0]]]], "float32")
    A, G = hold(x.shape), hold(grid.shape, name="G")
    for padding in ("border", "reflection"):
        out = topi.image.grid_sample(A, G, "nearest", "NCHW", padding)
        check(out, {A: x, G: grid}, np.full((1, 1, 1, 5), 3.0))


@pytest.mark.slow
def test_grid_sample_against_onnx(check):
    x = normal((1, 1, 4, 4))
    grid = (np.random.default_rng(3).random((1, 3, 3, 2)) * 2.6 - 1.3).astype("float32")
    wanted = onnx_run("GridSample", [x, grid], mode="linear", padding_mode="zeros", align_corners=0, opset=20)
    A, G = hold(x.shape), hold((1, 2, 3, 3), name="G")
    out = topi.image.grid_sample(A, G, "bilinear", "NCHW", "zeros", False)
    check(out, {A: x, G: np.ascontiguousarray(grid.transpose(0, 3, 1, 2))}, wanted)


# ---------------------------------------------------------------------------- dilation
@pytest.mark.slow
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize(
    ("stride", "padding", "dilation"),
    [(1, 0, 1), (2, 1, 1), ((1, 2), (1, 0), 2), (1, [0, 1, 2, 1], 1), (2, "SAME", 1), (1, "VALID", 2)],
)
def test_dilation2d(check, layout, stride, padding, dilation):
    x, w = normal((2, 3, 6, 7)), normal((3, 2, 3), seed=1)
    sy, sx = stride if isinstance(stride, tuple) else (stride, stride)
    if padding == "SAME":
        reach = [(k - 1) * dilation + 1 for k in (2, 3)]
        whole = [max((-(-s // t) - 1) * t + r - s, 0) for s, t, r in zip((6, 7), (sy, sx), reach)]
        pads = [(v // 2, v - v // 2) for v in whole]
    elif padding == "VALID":
        pads = [(0, 0)] * 2
    else:
        p = [padding] if isinstance(padding, int) else list(padding)
        top, left, bottom, right = p * (4 // len(p))
        pads = [(top, bottom), (left, right)]
    padded = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=-np.inf)
    oh = (padded.shape[2] - dilation - 1) // sy + 1
    ow = (padded.shape[3] - 2 * dilation - 1) // sx + 1
    wanted = np.empty((2, 3, oh, ow), "float32")
    for y, z in itertools.product(range(oh), range(ow)):
        window = padded[:, :, y * sy :: dilation, z * sx :: dilation][:, :, :2, :3]
        wanted[:, :, y, z] = (window + w).max((2, 3))
    if layout == "nhwc":
        x, w = np.ascontiguousarray(x.transpose(0, 2, 3, 1)), np.ascontiguousarray(w.transpose(1, 2, 0))
        wanted = wanted.transpose(0, 2, 3, 1)
    A, W = hold(x.shape), hold(w.shape, name="W")
    out = getattr(topi.image, f"dilation2d_{layout}")(A, W, stride, padding, dilation)
    check(out, {A: x, W: w}, wanted)


# ---------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda A: topi.image.resize2d(A, None, (2, 2), method="lanczos"), "method is 'lanczos'"),
        (lambda A: topi.image.resize2d(A, None, (2, 2), coordinate_transformation_mode="x"), "mode is 'x'"),
        (lambda A: topi.image.resize2d(A, None, (2, 2), rounding_method="up"), "rounding_method is 'up'"),
        (
            lambda A: topi.image.resize2d(A, None, (2, 2), "NHW"),
            "layout is 'NHW' for an image of 4 dimensions",
        ),
        (lambda A: topi.image.resize2d(A, None, (2, 2), "NC4hW"), "layout is 'NC4hW'"),
        (lambda A: topi.image.resize2d(A, None, (2, 2, 2)), "size has 3 numbers and the image 2 axes"),
        (lambda A: topi.image.resize2d(A, None, (2, -1)), "cannot be negative"),
        (
            lambda A: topi.image.resize2d(
                A, None, (2, 2), coordinate_transformation_mode="tf_crop_and_resize"
            ),
            "roi has 0 numbers",
        ),
        (lambda A: topi.image.resize2d(hold((1, 1, 0, 4)), None, (2, 2)), "is empty"),
        (
            lambda A: topi.image.resize2d(A, None, (2, 2), method="nearest", antialias=True),
            "antialias is for",
        ),
        (lambda A: topi.image.grid_sample(A, A), "the grid is"),
        (lambda A: topi.image.grid_sample(A, A, "bicubic", "NCDHW"), "method is 'bicubic'"),
        (lambda A: topi.image.grid_sample(A, A, padding_mode="wrap"), "padding_mode is 'wrap'"),
        (lambda A: topi.image.affine_grid(A, (2, 2)), "the maps are"),
        (lambda A: topi.image.crop_and_resize(A, A, A, (2, 2)), "boxes must have shape"),
        (lambda A: topi.image.dilation2d_nchw(A, hold((2, 1, 1)), 1, 0, 1), "the channels differ"),
        (lambda A: topi.image.dilation2d_nchw(A, hold((3, 1, 1)), 0, 0, 1), "stride is 0"),
    ],
)
def test_refusals(make, reason):
    with pytest.raises(tvm.TVMError, match=reason):
        make(hold((1, 3, 4, 5)))
