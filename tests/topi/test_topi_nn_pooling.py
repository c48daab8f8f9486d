"""Pooling against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import tilewright as tvm
from tilewright import te, topi
from tilewright.ir.errors import TensorExpressionError

RNG = np.random.default_rng(3)
MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVG = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
ADAPTIVE = {
    "max": {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d},
    "avg": {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d},
}
OURS = {1: topi.nn.pool1d, 2: topi.nn.pool2d, 3: topi.nn.pool3d}
ADAPT = {1: topi.nn.adaptive_pool1d, 2: topi.nn.adaptive_pool, 3: topi.nn.adaptive_pool3d}
FIRST = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
LAST = {1: "NWC", 2: "NHWC", 3: "NDHWC"}


def few(fast: int, cases: Any, several: bool = False) -> list[Any]:
    """The cases, of which all but the first are left to the slow run; `several` arguments each, or one."""
    marks = [()] * fast + [pytest.mark.slow] * len(cases)
    return [pytest.param(*(c if several else (c,)), marks=m) for c, m in zip(cases, marks)]


def draw(shape, dtype: str = "float32") -> np.ndarray:
    if dtype.startswith("float"):
        return (RNG.standard_normal(shape) - 3).astype(dtype)  # below zero: padding must not win a maximum
    return RNG.integers(-100, 100, shape).astype(dtype)


def place(array: np.ndarray, source: str, target: str) -> np.ndarray:
    return np.ascontiguousarray(np.transpose(array, [source.index(c) for c in target]))


# shape, kernel, stride, padding, ceil_mode
CASES = [
    ((2, 3, 9), 3, 2, 1, False),
    ((1, 2, 7, 8), (3, 2), (2, 3), (1, 0), True),
    ((2, 3, 5, 5), 2, 2, 0, True),
    ((1, 2, 4, 5, 6), 2, (1, 2, 2), 1, True),
]
MORE = [
    ((1, 1, 1), 1, 1, 0, False),
    ((1, 2, 13), 5, 3, 2, True),
    ((0, 2, 6, 6), 3, 1, 1, False),
    ((1, 3, 11, 7), 3, 2, 1, True),
    ((1, 3, 4, 4), 4, 1, 2, False),
    ((1, 1, 6, 6), 3, 5, 1, True),
    ((1, 1, 2, 6), 3, 2, 0, True),  # the first window hangs over
    ((1, 2, 3, 4, 5), (3, 1, 2), 2, (1, 0, 1), False),
]


@pytest.mark.parametrize("case", few(3, [*CASES, *MORE]))
def test_max(check, case) -> None:
    shape, kernel, stride, padding, ceil_mode = case
    x, rank = draw(shape), len(shape) - 2
    wanted = MAX[rank](torch.tensor(x), kernel, stride, padding, 1, ceil_mode).numpy()
    t = te.placeholder(shape, name="x")
    check(OURS[rank](t, kernel, stride, 1, padding, "max", ceil_mode), {t: x}, wanted)


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("case", few(2, [*CASES, *MORE]))
def test_average(check, case, include) -> None:
    shape, kernel, stride, padding, ceil_mode = case
    x, rank = draw(shape), len(shape) - 2
    wanted = AVG[rank](torch.tensor(x), kernel, stride, padding, ceil_mode, include).numpy()
    t = te.placeholder(shape, name="x")
    out = OURS[rank](t, kernel, stride, 1, padding, "avg", ceil_mode, FIRST[rank], include)
    check(out, {t: x}, wanted, 1e-4, 1e-4)


@pytest.mark.parametrize("case", few(1, [CASES[1], CASES[0], CASES[3]]))
def test_channels_last(check, case) -> None:
    shape, kernel, stride, padding, ceil_mode = case
    x, rank = draw(shape), len(shape) - 2
    first, last = FIRST[rank], LAST[rank]
    wanted = AVG[rank](torch.tensor(x), kernel, stride, padding, ceil_mode, False).numpy()
    x = place(x, first, last)
    t = te.placeholder(x.shape, name="x")
    out = OURS[rank](t, kernel, stride, 1, padding, "avg", ceil_mode, last, False)
    check(out, {t: x}, place(wanted, first, last), 1e-4, 1e-4)


@pytest.mark.slow
def test_blocked_channels(check) -> None:
    x = draw((1, 8, 6, 5))
    wanted = F.max_pool2d(torch.tensor(x), 3, 2, 1).numpy()
    x, wanted = (a.reshape(1, 2, 4, *a.shape[2:]).transpose(0, 1, 3, 4, 2).copy() for a in (x, wanted))
    t = te.placeholder(x.shape, name="x")
    check(topi.nn.pool2d(t, 3, 2, 1, 1, "max", layout="NCHW4c"), {t: x}, wanted)
    check(topi.nn.global_pool(t, "max", "NCHW4c"), {t: x}, x.max((2, 3), keepdims=True))
    x, wanted = x[..., None, :].copy(), wanted[..., None, :].copy()
    t = te.placeholder(x.shape, name="x")
    check(topi.nn.pool2d(t, 3, 2, 1, 1, "max", layout="NCHW1n4c"), {t: x}, wanted)


@pytest.mark.parametrize("include", [True, False])
def test_asymmetric_padding(check, include) -> None:
    x = draw((1, 2, 5, 6))
    frame = [(0, 0), (0, 0), (0, 2), (1, 0)]
    whole, ones = np.pad(x, frame), np.pad(np.ones_like(x), frame)
    count = np.ones_like(whole) if include else ones
    sums, counts = (F.avg_pool2d(torch.tensor(a), 3, 2, divisor_override=1).numpy() for a in (whole, count))
    t = te.placeholder(x.shape, name="x")
    out = topi.nn.pool2d(t, 3, 2, 1, (0, 1, 2, 0), "avg", False, "NCHW", include)
    check(out, {t: x}, sums / counts, 1e-4, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("padding", [0, 2])
def test_dilation(check, padding) -> None:
    x = draw((1, 2, 9, 8))
    wanted = F.max_pool2d(torch.tensor(x), 4, 2, padding, (2, 1)).numpy()
    t = te.placeholder(x.shape, name="x")
    check(topi.nn.pool2d(t, 4, 2, (2, 1), padding, "max"), {t: x}, wanted)
    # An average is a convolution with ones; what is not padding is counted by pooling ones.
    ones = torch.ones(2, 1, 4, 4)
    sums, counts = (
        F.conv2d(v, ones, None, 2, padding, (2, 1), 2).numpy() for v in (torch.tensor(x), torch.ones(x.shape))
    )
    out = topi.nn.pool2d(t, 4, 2, (2, 1), padding, "avg", count_include_pad=False)
    check(out, {t: x}, sums / counts, 1e-4, 1e-4)
    out = topi.nn.pool2d(t, 4, 2, (2, 1), padding, "avg", count_include_pad=True)
    check(out, {t: x}, sums / 16, 1e-4, 1e-4)


@pytest.mark.slow
def test_same_padding(check) -> None:
    x = draw((1, 2, 5, 5))
    wanted = F.max_pool2d(torch.tensor(x), 3, 1, 1).numpy()
    t = te.placeholder(x.shape, name="x")
    check(topi.nn.pool2d(t, 3, 1, 1, "SAME", "max"), {t: x}, wanted)
    check(topi.nn.pool2d(t, 3, 1, 1, "VALID", "max"), {t: x}, wanted[:, :, 1:-1, 1:-1])


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((2, 3, 11), 4),
        ((1, 2, 7, 10), (3, 4)),
        ((1, 2, 8, 6), (4, 3)),
        pytest.param((1, 2, 5, 7, 6), (2, 3, 4), marks=pytest.mark.slow),
        pytest.param((1, 1, 3, 3), (5, 7), marks=pytest.mark.slow),
        pytest.param((2, 3, 13, 13), 1, marks=pytest.mark.slow),
        pytest.param((0, 3, 5, 5), 2, marks=pytest.mark.slow),
    ],
)
def test_adaptive(check, kind, shape, size) -> None:
    x, rank = draw(shape), len(shape) - 2
    wanted = ADAPTIVE[kind][rank](torch.tensor(x), size).numpy()
    t = te.placeholder(shape, name="x")
    check(ADAPT[rank](t, size, kind), {t: x}, wanted, 1e-4, 1e-4)


def test_adaptive_channels_last_and_none(check) -> None:
    x = draw((1, 5, 7, 3))
    wanted = F.adaptive_avg_pool2d(torch.tensor(place(x, "NHWC", "NCHW")), (None, 3)).numpy()
    t = te.placeholder(x.shape, name="x")
    check(topi.nn.adaptive_pool(t, (None, 3), "avg", "NHWC"), {t: x}, place(wanted, "NCHW", "NHWC"), 1e-4)


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize(
    ("layout", "shape", "axes"), [("NCHW", (2, 3, 5, 7), (2, 3)), ("NDHWC", (1, 2, 3, 4, 5), (1, 2, 3))]
)
def test_global(check, kind, layout, shape, axes) -> None:
    x = draw(shape)
    wanted = (x.max if kind == "max" else x.mean)(axes, keepdims=True)
    t = te.placeholder(shape, name="x")
    check(topi.nn.global_pool(t, kind, layout), {t: x}, wanted)


@pytest.mark.parametrize("dtype", few(2, ["float16", "int8", "uint8", "int32"]))
@pytest.mark.slow
def test_types(check, dtype) -> None:
    x = draw((1, 2, 6, 6), dtype)
    t = te.placeholder(x.shape, dtype, "x")
    wide = torch.tensor(x.astype("float64"))
    check(topi.nn.pool2d(t, 3, 1, 1, 1, "max"), {t: x}, F.max_pool2d(wide, 3, 1, 1).numpy().astype(dtype))
    mean = F.avg_pool2d(wide, 3, 1, 1).numpy()
    mean = mean if dtype == "float16" else np.trunc(mean + np.sign(mean) * 1e-9)
    out = topi.nn.pool2d(t, 3, 1, 1, 1, "avg")
    assert out.dtype == dtype
    check(out, {t: x}, mean.astype(dtype), 1e-3, 1e-3)


@pytest.mark.slow
def test_symbolic_sizes() -> None:
    n, h = te.size_var("n"), te.size_var("h")
    t = te.placeholder((n, 2, h, 6), name="x")
    for ceil_mode in (False, True):
        outs = [topi.nn.pool2d(t, 3, 2, 1, 1, kind, ceil_mode, "NCHW", False) for kind in ("max", "avg")]
        outs += [topi.nn.adaptive_pool(t, 2, "avg"), topi.nn.global_pool(t, "avg")]
        built = tvm.build(te.create_prim_func([t, *outs]))
        for size in ((2, 5), (1, 6), (0, 3)):
            x = torch.tensor(draw((size[0], 2, size[1], 6)))
            wanted = [
                F.max_pool2d(x, 3, 2, 1, 1, ceil_mode),
                F.avg_pool2d(x, 3, 2, 1, ceil_mode, False),
                F.adaptive_avg_pool2d(x, 2),
                x.mean((2, 3), keepdim=True),
            ]
            got = [np.empty(w.shape, "float32") for w in wanted]
            built(x.numpy(), *got)
            for g, w in zip(got, wanted):
                np.testing.assert_allclose(g, w.numpy(), 1e-4, 1e-4)


def test_an_average_is_a_sum_and_a_division() -> None:
    t = te.placeholder((1, 2, 8, 8), name="x")
    out = topi.nn.pool2d(t, 2, 2, 1, 0, "avg")
    assert out.op.tag == "elemwise" and [i.name for i in out.op.input_tensors] == ["pool_sum"]
    assert str(out.op.body[0]) == "pool_sum[i0, i1, i2, i3] / T.float32(4)"
    total = out.op.input_tensors[0].op
    assert total.input_tensors == (t,)
    assert str(total.body[0].source[0]) == "x[i0, i1, i2 * 2 + kh, i3 * 2 + kw]"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: topi.nn.pool2d(t, 0, 1, 1, 0, "max"), "kernel is 0 and must be at least 1"),
        (lambda t: topi.nn.pool2d(t, 2, 0, 1, 0, "max"), "stride is 0 and must be at least 1"),
        (lambda t: topi.nn.pool2d(t, 2, 1, 1, -1, "max"), "padding is -1 and must not be negative"),
        (lambda t: topi.nn.pool2d(t, 9, 1, 1, 0, "max"), "the kernel covers 9 elements of dimension H"),
        (lambda t: topi.nn.pool2d(t, 2, 1, 1, 0, "sum"), "pool_type is 'sum'"),
        (lambda t: topi.nn.pool2d(t, 2, 1, 1, 0, "max", layout="NCW"), "layout is 'NCW'"),
        (lambda t: topi.nn.pool1d(t, 2, 1, 1, 0, "max"), "has 3 dimensions"),
        (lambda t: topi.nn.adaptive_pool(t, 0, "max"), "output_size is .* must be at least 1"),
        (lambda t: topi.nn.adaptive_pool(t, (1, 2, 3), "max"), "there are 2 spatial dimensions"),
    ],
)
def test_refusals(call, message) -> None:
    with pytest.raises(TensorExpressionError, match=message):
        call(te.placeholder((1, 2, 5, 5), name="x"))


def test_module_names() -> None:
    from tilewright.topi.nn.pooling import pool2d

    assert pool2d is topi.nn.pool2d
