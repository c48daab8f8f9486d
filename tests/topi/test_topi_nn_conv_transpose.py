"""Transposed convolutions against PyTorch."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import tilewright as tvm
from tilewright import te, topi
from tilewright.ir.errors import TensorExpressionError
from tilewright.topi.nn import phases

RNG = np.random.default_rng(1)
TORCH = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
FIRST = {1: ("NCW", "IOW"), 2: ("NCHW", "IOHW"), 3: ("NCDHW", "IODHW")}
LAST = {1: ("NWC", "WOI"), 2: ("NHWC", "HWOI"), 3: ("NDHWC", "DHWOI")}


def few(fast: int, cases: Any, several: bool = False) -> list[Any]:
    """The cases, of which all but the first are left to the slow run; `several` arguments each, or one."""
    marks = [()] * fast + [pytest.mark.slow] * len(cases)
    return [pytest.param(*(c if several else (c,)), marks=m) for c, m in zip(cases, marks)]


def place(array: np.ndarray, source: str, target: str) -> np.ndarray:
    return np.ascontiguousarray(np.transpose(array, [source.index(c) for c in target]))


# data, kernel, stride, padding, output padding, groups, dilation
CASES = [
    ((1, 3, 6), (3, 4, 3), 2, 1, 1, 1, 1),
    ((1, 3, 5, 4), (3, 4, 3, 3), 1, 1, 0, 1, 1),
    ((2, 4, 4, 5), (4, 3, 2, 4), (2, 3), (0, 1), (1, 2), 2, (2, 1)),
    ((1, 2, 3, 2, 3), (2, 3, 2, 3, 2), (1, 2, 1), 1, (0, 1, 0), 1, 1),
]
MORE = [
    ((2, 4, 1), (4, 1, 1), 1, 0, 0, 4, 1),
    ((1, 1, 7), (1, 2, 5), 3, 0, 2, 1, 2),
    ((1, 3, 4, 4), (3, 2, 1, 1), 2, 0, 1, 1, 1),
    ((1, 3, 5, 5), (3, 2, 2, 2), 1, 2, 0, 1, 1),  # the padding is greater than the kernel
    ((0, 3, 4, 4), (3, 2, 3, 3), 2, 1, 0, 1, 1),
    ((1, 6, 3, 7), (6, 1, 3, 3), 2, 1, 1, 6, 1),
    ((1, 4, 2, 3, 2), (4, 2, 2, 2, 2), 2, 0, 1, 2, 1),
]


def same(
    check, case, layouts, dtype: str = "float32", out_dtype: str | None = None, tol: float = 1e-4
) -> None:
    xs, ws, stride, padding, extra, groups, dilation = case
    rank = len(xs) - 2
    draw = RNG.standard_normal if dtype[0] == "f" else lambda s: RNG.integers(-9, 9, s)
    x, w = draw(xs).astype(dtype), draw(ws).astype(dtype)
    args = (torch.tensor(x.astype("float64")), torch.tensor(w.astype("float64")))
    wanted = TORCH[rank](*args, None, stride, padding, extra, groups, dilation).numpy()
    data, kernel = layouts[rank]
    x, w = place(x, FIRST[rank][0], data), place(w, FIRST[rank][1], kernel)
    tx, tw = te.placeholder(x.shape, dtype, "x"), te.placeholder(w.shape, dtype, "w")
    out = topi.nn.conv_transpose(tx, tw, stride, padding, dilation, groups, extra, data, kernel, out_dtype)
    check(out, {tx: x, tw: w}, place(wanted, FIRST[rank][0], data).astype(out.dtype), tol, tol)


@pytest.mark.parametrize("case", few(3, CASES))
def test_channels_first(check, case) -> None:
    same(check, case, FIRST)


@pytest.mark.slow
@pytest.mark.parametrize("case", few(1, CASES[2:0:-1]))
def test_channels_last(check, case) -> None:
    same(check, case, LAST)


@pytest.mark.slow
@pytest.mark.parametrize("case", MORE)
@pytest.mark.parametrize("layouts", [FIRST, LAST], ids=["first", "last"])
def test_many(check, case, layouts) -> None:
    same(check, case, layouts)


STRIDED = [
    ((2, 3, 4, 5), (3, 2, 4, 4), 2, 1, 0, 1, 1),  # the phases shift
    ((1, 4, 3, 4), (4, 2, 3, 5), (2, 3), (1, 2), (1, 2), 2, 1),  # taps that some phases lack
    ((1, 3, 9), (3, 2, 8), 4, 2, 0, 1, 1),  # the result begins within a round of phases
    ((1, 3, 7), (3, 2, 9), 3, 2, 1, 1, 1),
    ((2, 4, 5, 5), (4, 1, 4, 4), 2, 1, 0, 4, 1),  # one channel in each group
    ((1, 3, 4, 4), (3, 2, 2, 2), 3, 0, 2, 1, 1),  # some phases have no tap at all
    ((1, 2, 4, 6), (2, 3, 3, 4), (1, 2), (2, 1), 0, 1, (2, 1)),  # dilated where the stride is 1
    ((1, 2, 9, 9), (2, 3, 2, 4), 2, 4, 0, 1, 1),  # the padding is greater than the kernel
    ((1, 2, 3, 3, 2), (2, 3, 3, 3, 3), 2, 1, 1, 1, 1),
]


@pytest.mark.parametrize("case", few(2, STRIDED))
@pytest.mark.parametrize("form", ["by_products", "by_phases"])
@pytest.mark.parametrize("layouts", few(1, [FIRST, LAST]))
def test_both_forms_agree_with_torch(check, monkeypatch, case, form, layouts) -> None:
    home = sys.modules["tilewright.topi.nn.conv_transpose"]
    monkeypatch.setattr(home, "form_of", lambda given, dims: getattr(phases, form))
    same(check, case, layouts)


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "groups", "dilation", "stage"),
    [
        (99, (8, 4, 2, 2), 2, 1, 1, "conv2d_transpose_nchw_parts"),
        (99, (8, 4, 4, 4), 2, 1, 1, "conv2d_transpose_nchw_phases"),
        (9, (8, 4, 4, 4), 2, 1, 1, "conv2d_transpose_nchw_parts"),  # few products in all
        (99, (8, 4, 3, 3), 2, 1, 1, "conv2d_transpose_nchw_parts"),
        (9, (8, 4, 7, 7), 2, 1, 1, "conv2d_transpose_nchw_phases"),  # too many products for each element
        (9, (8, 1, 3, 3), 2, 8, 1, "group_conv2d_transpose_nchw_phases"),
        (9, (8, 4, 3, 3), 1, 1, 1, "data_spread"),
        (9, (8, 4, 3, 3), 2, 1, 2, "data_spread"),
    ],
)
def test_which_form_is_taken(size, kernel, stride, groups, dilation, stage) -> None:
    x, w = te.placeholder((1, 8, size, size), name="x"), te.placeholder(kernel, name="w")
    out = topi.nn.conv_transpose(x, w, stride, 1, dilation, groups)
    assert out.op.input_tensors[0].op.name == stage


def test_phases_multiply_with_no_zeros() -> None:
    """4x4 with stride 2 meets 2x2 taps in each element: a quarter of what the spread data would take."""
    x, w = te.placeholder((1, 8, 99, 99), name="x"), te.placeholder((8, 4, 4, 4), name="w")
    out = topi.nn.conv_transpose(x, w, 2, 1)
    (sums,) = out.op.input_tensors
    assert tuple(map(int, sums.shape)) == (4, 2, 2, 1, 99, 99)
    assert [int(k.dom.extent) for k in sums.op.reduce_axis] == [8, 2, 2]


@pytest.mark.parametrize(
    ("dtype", "out", "tol"), few(1, [("float16", None, 0.05), ("int8", "int32", 0)], True)
)
@pytest.mark.slow
def test_types(check, dtype, out, tol) -> None:
    same(check, CASES[2], FIRST, dtype, out, tol)


@pytest.mark.parametrize(
    ("name", "xs", "ws", "groups"),
    few(
        1,
        [
            ("group_conv2d_transpose_nchw", (1, 4, 5, 4), (4, 3, 3, 3), 2),
            ("conv1d_transpose_ncw", (1, 2, 5), (2, 3, 3), 1),
            ("group_conv1d_transpose_ncw", (1, 4, 5), (4, 3, 3), 2),
            ("conv1d_transpose_nwc", (1, 5, 2), (3, 3, 2), 1),
            ("conv2d_transpose_nchw", (1, 2, 5, 4), (2, 3, 3, 3), 1),
            ("conv2d_transpose_nhwc", (1, 5, 4, 2), (3, 3, 3, 2), 1),
            ("conv3d_transpose_ncdhw", (1, 2, 3, 3, 4), (2, 3, 3, 3, 3), 1),
            ("group_conv3d_transpose_ncdhw", (1, 2, 3, 3, 4), (2, 3, 3, 3, 3), 2),
            ("conv3d_transpose_ndhwc", (1, 3, 3, 4, 2), (3, 3, 3, 3, 2), 1),
        ],
        True,
    ),
)
@pytest.mark.slow
def test_names(check, name, xs, ws, groups) -> None:
    x, w = RNG.standard_normal(xs).astype("float32"), RNG.standard_normal(ws).astype("float32")
    rank, last = len(xs) - 2, name.endswith("c") and "ncw" not in name
    data, kernel = (LAST if last else FIRST)[rank]
    plain = (place(x, data, FIRST[rank][0]), place(w, kernel, FIRST[rank][1]))
    wanted = TORCH[rank](*map(torch.tensor, plain), None, 2, 1, 1, groups).numpy()
    tx, tw = te.placeholder(xs, name="x"), te.placeholder(ws, name="w")
    split = (groups,) if name.startswith("group") else ()
    out = getattr(topi.nn, name)(tx, tw, 2, 1, "float32", 1, *split)
    assert name in ("group_" * (groups > 1) + out.op.tag, out.op.tag)
    check(out, {tx: x, tw: w}, place(wanted, FIRST[rank][0], data), 1e-4, 1e-4)


@pytest.mark.slow
def test_symbolic_sizes() -> None:
    n, h = te.size_var("n"), te.size_var("h")
    tx, tw = te.placeholder((n, 2, h, 4), name="x"), te.placeholder((2, 3, 3, 3), name="w")
    out = topi.nn.conv2d_transpose_nchw(tx, tw, 2, 1, "float32", 1)
    built = tvm.build(te.create_prim_func([tx, tw, out]))
    for size in ((2, 5), (1, 1), (0, 3)):
        x = RNG.standard_normal((size[0], 2, size[1], 4)).astype("float32")
        w = RNG.standard_normal((2, 3, 3, 3)).astype("float32")
        wanted = F.conv_transpose2d(torch.tensor(x), torch.tensor(w), None, 2, 1, 1).numpy()
        got = np.empty(wanted.shape, "float32")
        built(x, w, got)
        np.testing.assert_allclose(got, wanted, 1e-4, 1e-4)


@pytest.mark.slow
def test_asymmetric_padding_cuts_the_sides(check) -> None:
    x, w = (
        RNG.standard_normal((1, 2, 4, 4)).astype("float32"),
        RNG.standard_normal((2, 3, 3, 3)).astype("float32"),
    )
    whole = F.conv_transpose2d(torch.tensor(x), torch.tensor(w), None, 2).numpy()
    tx, tw = te.placeholder(x.shape, name="x"), te.placeholder(w.shape, name="w")
    out = topi.nn.conv2d_transpose_nchw(tx, tw, 2, (0, 1, 2, 3), "float32", 0)
    check(out, {tx: x, tw: w}, whole[:, :, 0:-2, 1:-3], 1e-4, 1e-4)


def test_output_padding_beyond_the_stride_adds_zeros(check) -> None:
    x = RNG.standard_normal((1, 2, 4, 4)).astype("float32")
    w = RNG.standard_normal((2, 3, 3, 3)).astype("float32")
    whole = F.conv_transpose2d(torch.tensor(x), torch.tensor(w), None, 2).numpy()
    tx, tw = te.placeholder(x.shape, name="x"), te.placeholder(w.shape, name="w")
    out = topi.nn.conv2d_transpose_nchw(tx, tw, 2, 0, "float32", 3)
    check(out, {tx: x, tw: w}, np.pad(whole, ((0, 0), (0, 0), (0, 3), (0, 3))), 1e-4, 1e-4)


def refusal(shape, kernel, *arguments) -> str:
    x, w = te.placeholder(shape, name="x"), te.placeholder(kernel, name="w")
    with pytest.raises(TensorExpressionError) as caught:
        topi.nn.group_conv2d_transpose_nchw(x, w, *arguments)
    return str(caught.value)


def test_refusals() -> None:
    a, b = (1, 4, 5, 5), (4, 3, 3, 3)
    assert "the data has 4 channels and the kernel takes 2" in refusal(a, (2, 3, 3, 3), 2, 0, None, 0, 1)
    assert "4 input channels cannot be split into 3 groups" in refusal(a, b, 1, 0, None, 0, 3)
    assert "nothing is left of dimension H" in refusal((1, 4, 1, 1), b, 1, 3, None, 0, 1)
    assert "strides is 0" in refusal(a, b, 0, 0, None, 0, 1)
