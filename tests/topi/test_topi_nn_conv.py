"""Convolutions of every rank, layout and grouping against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import tilewright as tvm
from tilewright import te, topi
from tilewright.ir.errors import TensorExpressionError

RNG = np.random.default_rng(0)
TORCH = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
FIRST = {1: ("NCW", "OIW"), 2: ("NCHW", "OIHW"), 3: ("NCDHW", "OIDHW")}
LAST = {1: ("NWC", "WIO"), 2: ("NHWC", "HWIO"), 3: ("NDHWC", "DHWIO")}


def few(fast: int, cases: Any, several: bool = False) -> list[Any]:
    """The cases, of which all but the first are left to the slow run; `several` arguments each, or one."""
    marks = [()] * fast + [pytest.mark.slow] * len(cases)
    return [pytest.param(*(c if several else (c,)), marks=m) for c, m in zip(cases, marks)]


def draw(shape: Any, dtype: str = "float32") -> np.ndarray:
    if dtype.startswith("float"):
        return RNG.standard_normal(shape).astype(dtype)
    return RNG.integers(0 if dtype[0] == "u" else -100, 100, shape).astype(dtype)


def place(array: np.ndarray, source: str, target: str) -> np.ndarray:
    return np.ascontiguousarray(np.transpose(array, [source.index(c) for c in target]))


def reference(x, w, stride=1, padding=0, dilation=1, groups=1) -> np.ndarray:
    """PyTorch's answer in double precision; padding is before and after each dimension, last one first."""
    rank = x.ndim - 2
    if isinstance(padding, (list, tuple)) and len(padding) == 2 * rank:
        before, after = padding[:rank], padding[rank:]
        flat = [p for b, a in zip(reversed(before), reversed(after)) for p in (b, a)]
        x = np.pad(x, [(0, 0), (0, 0), *zip(before, after)]) if any(flat) else x
        padding = 0
    args = (torch.tensor(x.astype("float64")), torch.tensor(w.astype("float64")))
    return TORCH[rank](*args, None, stride, padding, dilation, groups).numpy()


def tensors(x: np.ndarray, w: np.ndarray) -> tuple[te.Tensor, te.Tensor]:
    return te.placeholder(x.shape, str(x.dtype), "x"), te.placeholder(w.shape, str(w.dtype), "w")


# data, kernel, stride, padding, dilation, groups
CASES = [
    ((2, 3, 7), (4, 3, 3), 1, 1, 1, 1),
    ((1, 4, 11), (6, 2, 4), 3, (2, 1), 2, 2),
    ((1, 3, 8, 9), (5, 3, 3, 3), 1, 1, 1, 1),
    ((2, 4, 7, 5), (6, 2, 3, 2), (2, 1), (1, 0), (1, 2), 2),
    ((1, 6, 6, 6), (6, 1, 3, 3), 1, 1, 1, 6),
    ((1, 2, 4, 5, 3), (3, 2, 2, 3, 1), 1, (0, 1, 0), 1, 1),
]
MORE = [
    ((1, 1, 1), (1, 1, 1), 1, 0, 1, 1),
    ((3, 2, 13), (7, 2, 5), 2, 4, 1, 1),
    ((2, 6, 9), (6, 1, 3), 1, (0, 2), 3, 6),
    ((1, 1, 1, 1), (1, 1, 1, 1), 1, 0, 1, 1),
    ((0, 3, 5, 5), (2, 3, 3, 3), 1, 1, 1, 1),
    ((1, 3, 4, 4), (2, 3, 5, 5), 1, (2, 1, 3, 2), 1, 1),
    ((1, 3, 13, 11), (7, 3, 7, 7), 2, 3, 1, 1),
    ((1, 5, 7, 7), (3, 5, 1, 1), 2, 0, 1, 1),
    ((2, 12, 5, 7), (8, 3, 3, 3), (1, 3), (0, 1, 2, 3), (2, 1), 4),
    ((1, 3, 5, 6), (12, 1, 2, 3), 1, 1, 1, 3),
    ((2, 3, 1, 17), (4, 3, 1, 5), (1, 2), (0, 2), 1, 1),
    ((2, 4, 5, 4, 3), (6, 2, 3, 2, 2), (2, 1, 1), (1, 0, 1, 0, 1, 1), (1, 2, 1), 2),
    ((1, 4, 3, 3, 3), (4, 1, 3, 3, 3), 1, 1, 1, 4),
    ((0, 1, 3, 3, 3), (1, 1, 2, 2, 2), 1, 0, 1, 1),
]


def same(check, case, layouts, dtype="float32", out_dtype=None, tolerance=1e-4) -> None:
    xs, ws, stride, padding, dilation, groups = case
    rank = len(xs) - 2
    x, w = draw(xs, dtype), draw(ws, dtype)
    wanted = reference(x, w, stride, padding, dilation, groups)
    data, kernel = layouts[rank]
    x, w = place(x, FIRST[rank][0], data), place(w, FIRST[rank][1], kernel)
    tx, tw = tensors(x, w)
    out = topi.nn.conv(tx, tw, stride, padding, dilation, groups, data, kernel, out_dtype)
    assert out.dtype == (out_dtype or dtype)
    check(out, {tx: x, tw: w}, place(wanted, FIRST[rank][0], data).astype(out.dtype), tolerance, tolerance)


@pytest.mark.parametrize("case", few(4, CASES))
def test_channels_first(check, case) -> None:
    same(check, case, FIRST)


@pytest.mark.parametrize("case", few(1, [CASES[3], CASES[1], CASES[5]]))
def test_channels_last(check, case) -> None:
    same(check, case, LAST)


@pytest.mark.slow
@pytest.mark.parametrize("case", MORE)
@pytest.mark.parametrize("layouts", [FIRST, LAST], ids=["first", "last"])
def test_many(check, case, layouts) -> None:
    same(check, case, layouts)


@pytest.mark.parametrize("kernel", few(1, ["IHWO", "OIHW", "HWIO"]))
def test_kernel_layouts(check, kernel) -> None:
    same(check, CASES[3], {2: ("HWCN", kernel)})


@pytest.mark.parametrize(
    ("dtype", "out_dtype", "tolerance"),
    few(
        2,
        [
            ("float16", None, 0.05),
            ("int8", "int32", 0),
            ("float16", "float32", 1e-3),
            ("float64", None, 1e-10),
            ("uint8", "int32", 0),
            ("int16", "int64", 0),
        ],
        True,
    ),
)
@pytest.mark.slow
def test_types(check, dtype, out_dtype, tolerance) -> None:
    same(check, CASES[3], FIRST, dtype, out_dtype, tolerance)


def test_mixed_types_as_in_quantised_models(check) -> None:
    x, w = draw((1, 4, 5, 5), "uint8"), draw((3, 4, 3, 3), "int8")
    tx, tw = tensors(x, w)
    check(
        topi.nn.conv2d(tx, tw, 1, 1, 1, out_dtype="int32"),
        {tx: x, tw: w},
        reference(x, w, 1, 1).astype("int32"),
    )


# ---------------------------------------------------------------------------- the public names
@pytest.mark.slow
def test_conv1d_names(check) -> None:
    x, w, g = draw((2, 4, 9)), draw((6, 4, 3)), draw((6, 2, 3))
    swapped = [place(x, "NCW", "NWC"), place(w, "OIW", "WIO"), place(g, "OIW", "WIO")]
    for function, a, b, arguments, groups, last in [
        (topi.nn.conv1d_ncw, x, w, (2, "SAME", 2), 1, False),
        (topi.nn.conv1d_nwc, swapped[0], swapped[1], (2, "SAME", 2), 1, True),
        (topi.nn.group_conv1d_ncw, x, g, (1, (2, 1), 1, 2), 2, False),
        (topi.nn.group_conv1d_nwc, swapped[0], swapped[2], (1, (2, 1), 1, 2), 2, True),
        (topi.nn.conv1d, x, w, (), 1, False),
    ]:
        ta, tb = tensors(a, b)
        stride, padding, dilation = (*arguments[:3], *(1, 0, 1)[len(arguments[:3]) :])
        padding = (2, 2) if padding == "SAME" else padding
        wanted = reference(x, g if groups == 2 else w, stride, padding, dilation, groups)
        check(
            function(ta, tb, *arguments),
            {ta: a, tb: b},
            place(wanted, "NCW", "NWC") if last else wanted,
            1e-4,
            1e-4,
        )


@pytest.mark.slow
@pytest.mark.parametrize("padding", few(2, ["SAME", [0, 1, 1, 0], "VALID", 1, (1, 1)]))
def test_conv2d_names_and_padding_forms(check, padding) -> None:
    x, w = draw((1, 3, 6, 7)), draw((4, 3, 3, 4))
    numbers = {"VALID": (0, 0, 0, 0), "SAME": (1, 2, 1, 1)}.get(str(padding), padding)
    wanted = reference(x, w, 1, numbers)
    tx, tw = tensors(x, w)
    check(topi.nn.conv2d_nchw(tx, tw, 1, padding, 1), {tx: x, tw: w}, wanted, 1e-4, 1e-4)
    x, w = place(x, "NCHW", "NHWC"), place(w, "OIHW", "HWIO")
    tx, tw = tensors(x, w)
    wanted = place(wanted, "NCHW", "NHWC")
    check(topi.nn.conv2d_nhwc(tx, tw, 1, padding, 1), {tx: x, tw: w}, wanted, 1e-4, 1e-4)


@pytest.mark.slow
def test_conv2d_hwcn_and_dispatch_by_layout(check) -> None:
    x, w = draw((2, 3, 6, 7)), draw((4, 3, 3, 3))
    wanted = reference(x, w, 2, 1)
    for layout, kernel in [("NCHW", "OIHW"), ("NHWC", "HWIO"), ("HWCN", "HWIO")]:
        a, b = place(x, "NCHW", layout), place(w, "OIHW", kernel)
        ta, tb = tensors(a, b)
        out = topi.nn.conv2d(ta, tb, 2, 1, 1, layout)
        check(out, {ta: a, tb: b}, place(wanted, "NCHW", layout), 1e-4, 1e-4)
    check(topi.nn.conv2d_hwcn(ta, tb, 2, 1, 1), {ta: a, tb: b}, place(wanted, "NCHW", "HWCN"), 1e-4, 1e-4)


@pytest.mark.parametrize("last", few(1, [False, True]))
def test_group_conv2d(check, last) -> None:
    x, w = draw((1, 6, 5, 5)), draw((9, 2, 3, 3))
    wanted = reference(x, w, 1, 1, 1, 3)
    if last:
        x, w, wanted = place(x, "NCHW", "NHWC"), place(w, "OIHW", "HWIO"), place(wanted, "NCHW", "NHWC")
    tx, tw = tensors(x, w)
    function = topi.nn.group_conv2d_nhwc if last else topi.nn.group_conv2d_nchw
    check(function(tx, tw, 1, 1, 1, 3), {tx: x, tw: w}, wanted, 1e-4, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("last", few(1, [True, False]))
def test_conv3d(check, last) -> None:
    x, w = draw((1, 4, 4, 5, 5)), draw((4, 2, 2, 3, 3))
    wanted = reference(x, w, (1, 2, 1), 1, 1, 2)
    if last:
        x, w = place(x, "NCDHW", "NDHWC"), place(w, "OIDHW", "DHWIO")
        wanted = place(wanted, "NCDHW", "NDHWC")
    tx, tw = tensors(x, w)
    function = topi.nn.conv3d_ndhwc if last else topi.nn.conv3d_ncdhw
    check(function(tx, tw, (1, 2, 1), 1, 1, 2), {tx: x, tw: w}, wanted, 1e-4, 1e-4)


# ---------------------------------------------------------------------------- depthwise
@pytest.mark.slow
@pytest.mark.parametrize("multiplier", few(1, [3, 1]))
@pytest.mark.parametrize(
    ("stride", "padding", "dilation"), few(1, [(2, (0, 1, 2, 1), (1, 2)), (1, 1, 1)], True)
)
def test_depthwise(check, multiplier, stride, padding, dilation) -> None:
    x, w = draw((2, 4, 7, 8)), draw((4, multiplier, 3, 3))
    wanted = reference(x, w.reshape(4 * multiplier, 1, 3, 3), stride, padding, dilation, 4)
    tx, tw = tensors(x, w)
    out = topi.nn.depthwise_conv2d_nchw(tx, tw, stride, padding, dilation)
    assert [a.var.name for a in out.op.reduce_axis] == ["kh", "kw"]
    check(out, {tx: x, tw: w}, wanted, 1e-4, 1e-4)
    x, wanted = place(x, "NCHW", "NHWC"), place(wanted, "NCHW", "NHWC")
    for kernel in ("HWOI", "HWIO"):
        v = place(w, "OIHW", kernel)
        tx, tv = tensors(x, v)
        out = topi.nn.depthwise_conv2d_nhwc(tx, tv, stride, padding, dilation, kernel)
        check(out, {tx: x, tv: v}, wanted, 1e-4, 1e-4)


@pytest.mark.slow
def test_depthwise_blocked(check) -> None:
    x, w = draw((1, 8, 5, 6)), draw((8, 1, 3, 3))
    wanted = pack(reference(x, w, 1, 1, 1, 8), 4)
    x, w = pack(x, 4), w.reshape(2, 4, 1, 3, 3).transpose(0, 2, 3, 4, 1)[:, :, :, :, None].copy()
    tx, tw = tensors(x, w)
    out = topi.nn.depthwise_conv2d_NCHWc(tx, tw, 1, 1, 1, "NCHW4c", "NCHW4c")
    check(out, {tx: x, tw: w}, wanted, 1e-4, 1e-4)


# ---------------------------------------------------------------------------- blocked layouts
def pack(x: np.ndarray, block: int) -> np.ndarray:
    n, c, h, w = x.shape
    return np.ascontiguousarray(x.reshape(n, c // block, block, h, w).transpose(0, 1, 3, 4, 2))


def pack_kernel(w: np.ndarray, inner: int, outer: int) -> np.ndarray:
    o, i, h, v = w.shape
    return np.ascontiguousarray(
        w.reshape(o // outer, outer, i // inner, inner, h, v).transpose(0, 2, 4, 5, 3, 1)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("channels", "outputs", "groups", "inner", "outer"),
    few(1, [(8, 12, 2, 2, 3), (8, 8, 1, 4, 4), (6, 8, 1, 3, 2)], True),
)
def test_blocked(check, channels, outputs, groups, inner, outer) -> None:
    x, w = draw((1, channels, 6, 5)), draw((outputs, channels // groups, 3, 3))
    wanted = pack(reference(x, w, 1, 1, 1, groups), outer)
    x, w = pack(x, inner), pack_kernel(w, inner, outer)
    tx, tw = tensors(x, w)
    out = topi.nn.conv2d_NCHWc(tx, tw, 1, 1, 1, f"NCHW{inner}c", f"NCHW{outer}c")
    check(out, {tx: x, tw: w}, wanted, 1e-4, 1e-4)


@pytest.mark.slow
def test_blocked_int8_and_back(check) -> None:
    x, w = draw((1, 16, 4, 4), "uint8"), draw((8, 16, 3, 3), "int8")
    wanted = reference(x, w, 1, 1).astype("int32")
    x, w = pack(x, 8), pack_kernel(w, 8, 4)
    w = np.ascontiguousarray(w.reshape(2, 2, 3, 3, 2, 4, 4).transpose(0, 1, 2, 3, 4, 6, 5))
    tx, tw = tensors(x, w)
    out = topi.nn.conv2d_NCHWc_int8(tx, tw, 1, 1, 1, "NCHW8c", "NCHW4c")
    check(topi.nn.unpack_NCHWc_to_nchw(out, "int32"), {tx: x, tw: w}, wanted)


@pytest.mark.slow
def test_blocks_of_the_batch(check) -> None:
    """The layout of accelerators: rows of the batch beside channels."""
    x, w = draw((4, 8, 5, 5), "int8"), draw((12, 8, 3, 3), "int8")
    wanted = reference(x, w, 1, 1).astype("int32")

    def blocks(t):
        n, c, h, w = t.shape
        return np.ascontiguousarray(t.reshape(n // 2, 2, c // 4, 4, h, w).transpose(0, 2, 4, 5, 1, 3))

    kernel = np.ascontiguousarray(w.reshape(3, 4, 2, 4, 3, 3).transpose(0, 2, 4, 5, 1, 3))
    tx, tw = tensors(blocks(x), kernel)
    out = topi.nn.conv2d(tx, tw, 1, 1, 1, "NCHW2n4c", "OIHW4o4i", "int32")
    check(out, {tx: blocks(x), tw: kernel}, blocks(wanted))


def test_blocks_of_the_batch_are_kept() -> None:
    x, w = te.placeholder((2, 1, 8, 8, 4), name="x"), te.placeholder((1, 1, 3, 3, 4, 4), name="w")
    with pytest.raises(TensorExpressionError) as error:
        topi.nn.conv2d_NCHWc(x, w, 1, 1, 1, "NCHW4c", "NCHW2n4c")
    assert str(error.value).splitlines()[0] == (
        "topi.nn.conv2d_NCHWc: out_layout is 'NCHW2n4c' and splits N otherwise than data_layout, 'NCHW4c'"
    )


# ---------------------------------------------------------------------------- form, symbols, refusals
def test_the_sum_is_plain() -> None:
    """What the schedules count on: a padded stage only if there is padding, and no condition in the sum."""
    x, w = te.placeholder((1, 4, 8, 8), name="x"), te.placeholder((6, 2, 3, 3), name="w")
    out = topi.nn.conv2d(x, w, 2, 0, 1, groups=2)
    assert out.op.input_tensors == (x, w) and out.op.tag == "conv2d_nchw"
    assert (
        str(out.op.body[0].source[0])
        == "x[n, co // 3 * 2 + ci, oh * 2 + kh, ow * 2 + kw] * w[co, ci, kh, kw]"
    )
    padded = topi.nn.conv2d(x, w, 1, 1, 2, groups=2)
    assert [t.name for t in padded.op.input_tensors] == ["pad_temp", "w"]
    assert padded.op.input_tensors[0].op.tag == "injective,pad"


@pytest.mark.slow
def test_symbolic_batch_and_space() -> None:
    n, h, w = te.size_var("n"), te.size_var("h"), te.size_var("w")
    tx, tw = te.placeholder((n, 3, h, w), name="x"), te.placeholder((4, 3, 3, 3), name="k")
    built = tvm.build(te.create_prim_func([tx, tw, topi.nn.conv2d(tx, tw, 2, 1, 1)]))
    for size in ((3, 3, 6, 5), (1, 3, 7, 7), (0, 3, 3, 3)):
        x, k = draw(size), draw((4, 3, 3, 3))
        wanted = reference(x, k, 2, 1)
        got = np.empty(wanted.shape, "float32")
        built(x, k, got)
        np.testing.assert_allclose(got, wanted, 1e-4, 1e-4)


def refusal(shape, kernel, *arguments, **named) -> str:
    x, w = te.placeholder(shape, name="x"), te.placeholder(kernel, name="w")
    with pytest.raises(TensorExpressionError) as caught:
        topi.nn.conv2d(x, w, *arguments, **named)
    return str(caught.value)


def test_refusals() -> None:
    a, b = (1, 4, 8, 8), (6, 4, 3, 3)
    assert "the data has 5 channels and the kernel takes 4 in each of 1 group" in refusal(
        (1, 5, 8, 8), b, 1, 0, 1
    )
    assert "4 input channels cannot be split into 3 groups" in refusal(a, b, 1, 0, 1, groups=3)
    assert "groups is 0 and must be at least 1" in refusal(a, b, 1, 0, 1, groups=0)
    assert "strides is 0 and must be at least 1" in refusal(a, b, 0, 0, 1)
    assert "dilation is (1, 0)" in refusal(a, b, 1, 0, (1, 0))
    assert "padding is -1 and must not be negative" in refusal(a, b, 1, -1, 1)
    assert "padding is (1, 2, 3) and has 1, 2 or 4 numbers" in refusal(a, b, 1, (1, 2, 3), 1)
    assert "padding is 'FULL'" in refusal(a, b, 1, "FULL", 1)
    assert "the kernel covers 9 elements of dimension H, which has 8" in refusal(a, b, 1, 0, 4)
    assert "`x` has shape (4, 8, 8) and layout NCHW has 4 dimensions" in refusal((4, 8, 8), b, 1, 0, 1)
    assert "data_layout is 'NCXY'" in refusal(a, b, 1, 0, 1, "NCXY", "OIHW")
    message = refusal(a, b, 1, 0, 1, groups=3)
    assert message.startswith("topi.nn.conv2d: ") and "test_topi_nn_conv.py" in message


def test_names_and_modules() -> None:
    from tilewright.topi.nn.conv2d import _get_workload
    from tilewright.topi.nn.utils import get_pad_tuple

    assert callable(topi.nn.conv2d) and topi.nn.utils.get_pad_tuple is get_pad_tuple
    assert get_pad_tuple("SAME", (3, 4)) == (1, 2, 1, 1) and get_pad_tuple((1, 2), (3, 3)) == (1, 2, 1, 2)
    assert topi.nn.utils.get_pad_tuple1d(2, 3) == (2, 2)
    assert topi.nn.utils.get_pad_tuple3d((1, 2, 3), (3, 3, 3)) == (1, 2, 3, 1, 2, 3)
    x, w = te.placeholder((1, 4, 8, 9)), te.placeholder((6, 2, 3, 3))
    work = _get_workload(x, w, (1, 2), (1, 2, 3, 4), 1, "float32")
    assert (work.height, work.width, work.in_filter, work.groups, work.out_filter) == (8, 9, 4, 2, 6)
    assert (work.padt, work.padl, work.padb, work.padr, work.stride_h, work.stride_w) == (1, 2, 3, 4, 1, 2)
    assert topi.nn.conv2d_alter_layout(None, None, None, None) is None
