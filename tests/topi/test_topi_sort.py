"""Sorting, topk, unique and searchsorted against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import te, topi
from tilewright.ir.errors import TensorExpressionError
from tilewright.runtime.dtypes import element

Check = Callable[..., None]
slow = pytest.mark.slow
RNG = np.random.default_rng(0)


def stable(x: Any, axis: int, ascending: bool) -> tuple[Any, Any]:
    """Values and places in order, equal ones as they come; NaN counts as the greatest."""
    rank = np.unique(x, return_inverse=True)[1].reshape(x.shape)
    places = np.argsort(rank if ascending else -rank, axis, "stable")
    return np.take_along_axis(x, places, axis), places


@pytest.mark.sample(1)
@slow
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((7, 101), -1),
        pytest.param((37, 3), 0, marks=slow),
        pytest.param((2, 19, 5), 1, marks=slow),
        pytest.param((1, 1), 1, marks=slow),
        pytest.param((3, 0), 1, marks=slow),
        pytest.param((16,), 0, marks=slow),
        pytest.param((17,), 0, marks=slow),
        pytest.param((4099,), 0, marks=slow),
    ],
)
def test_sorts(check: Check, shape: tuple[int, ...], axis: int) -> None:
    x = RNG.integers(0, 20, shape).astype("float32")
    if x.size > 2:
        x.flat[1], x.flat[x.size // 2], x.flat[0] = np.nan, np.nan, np.inf
    a = te.placeholder(shape)
    outs, wanted = [], []
    for ascending in (True, False):
        values, places = stable(x, axis, ascending)
        outs += [
            topi.sort(a, axis, ascending),
            topi.argsort(a, axis=axis, is_ascend=ascending, dtype="int32"),
        ]
        wanted += [values, places]
    check(outs, {a: x}, wanted)


@slow
@pytest.mark.parametrize("dtype", ["bool", "int64", "uint8", "int8", "float64", "float16", "bfloat16"])
def test_types(check: Check, dtype: str) -> None:
    x = RNG.integers(0, 2 if dtype == "bool" else 9, (3, 41)).astype(element(dtype).numpy)
    a = te.placeholder(x.shape, dtype)
    order = np.argsort(x.astype("float32"), -1, "stable")
    places = topi.argsort(a, dtype="int64") if dtype == "int64" else topi.argsort(a)
    wanted = order if dtype == "int64" else order.astype("float32")
    check([topi.sort(a), places], {a: x}, [np.take_along_axis(x, order, -1), wanted])


@pytest.mark.slow
def test_argsort_of_valid_parts(check: Check) -> None:
    x = RNG.standard_normal((4, 30)).astype("float32")
    counts = np.array([0, 5, 30, 99], "int32")
    a, n = te.placeholder(x.shape), te.placeholder((4,), "int32")
    wanted = np.tile(np.arange(30), (4, 1))
    for row, count in enumerate(counts):
        wanted[row, :count] = np.argsort(x[row, :count], kind="stable")
    check(topi.argsort(a, n, dtype="int32"), {a: x, n: counts}, wanted)


@pytest.mark.slow
def test_topk(check: Check) -> None:
    x = RNG.integers(0, 9, (5, 33)).astype("int32")
    a = te.placeholder(x.shape, "int32")
    down = stable(x, 1, False)
    outs = topi.topk(a, 4)
    check(outs, {a: x}, [down[0][:, :4], down[1][:, :4]])
    assert [o.dtype for o in outs] == ["int32", "int64"]


@pytest.mark.slow
def test_forms_of_topk(check: Check) -> None:
    x = RNG.integers(0, 9, (5, 33)).astype("int32")
    a = te.placeholder(x.shape, "int32")
    down, up = stable(x, 1, False), stable(x, 1, True)
    outs = [topi.topk(a, 3, ret_type="values", is_ascend=True)]
    outs += [topi.topk(a, 7, ret_type="indices", dtype="int32"), topi.topk(a, 0, ret_type="values")]
    outs += topi.topk(a, 2, axis=0, dtype="float32")
    first = stable(x, 0, False)
    wanted = [up[0][:, :3], down[1][:, :7], down[0], first[0][:2], first[1][:2]]
    check(outs, {a: x}, wanted)


def rows_to_select_from(n: int) -> Any:
    """Ties, NaN and infinities; rising and falling rows, in which each element is the best so far or none is."""
    x = RNG.integers(0, n // 3, (5, n)).astype("float32")
    x[0, RNG.integers(0, n, 6)] = np.nan
    x[1, RNG.integers(0, n, 4)] = (np.inf, -np.inf, -0.0, 0.0)
    x[2] = np.arange(n)
    x[3] = -np.arange(n)
    x[4] = 7
    return x


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "k", "ascending"),
    [
        (300, 10, False),
        (300, 10, True),
        (300, 1, True),
        (1000, 40, False),
        (1000, 150, True),  # the candidates are as many as the best ones
        (149, 10, True),  # the last block is not whole
        (148, 11, False),  # sorted whole: there is little to leave out
    ],
)
def test_topk_of_long_rows(check: Check, n: int, k: int, ascending: bool) -> None:
    x = rows_to_select_from(n)
    a = te.placeholder(x.shape)
    values, places = stable(x, 1, ascending)
    outs = [
        *topi.topk(a, k, is_ascend=ascending, dtype="int32"),
        topi.topk(a, k, ret_type="values", is_ascend=ascending),
    ]
    check(outs, {a: x}, [values[:, :k], places[:, :k], values[:, :k]])


@slow
@pytest.mark.parametrize("dtype", ["bool", "int64", "uint8", "int8", "float64", "float16", "bfloat16"])
def test_topk_of_types(check: Check, dtype: str) -> None:
    x = RNG.integers(0, 2 if dtype == "bool" else 99, (3, 333)).astype(element(dtype).numpy)
    a = te.placeholder(x.shape, dtype)
    places = np.argsort(-x.astype("float32"), -1, "stable")[:, :9]
    check(topi.topk(a, 9), {a: x}, [np.take_along_axis(x, places, -1), places])


def test_topk_keeps_less_than_the_row() -> None:
    a = te.placeholder((4, 5000))
    values = topi.topk(a, 10)[0]
    assert [int(b.shape[-1]) for b in values.op.output_placeholders] == [10, 10, 74, 74]


def test_zeros_of_both_signs_are_equal(check: Check) -> None:
    x = np.array([0.0, -0.0, 1.0, -0.0, 0.0, -1.0], "float32")
    a = te.placeholder(x.shape)
    outs = [topi.argsort(a, dtype="int32"), topi.argsort(a, is_ascend=0, dtype="int32")]
    check(outs, {a: x}, [[5, 0, 1, 3, 4, 2], [2, 0, 1, 3, 4, 5]])


def test_nan_of_either_sign_is_the_greatest(check: Check) -> None:
    bits = np.array([0x7FC00000, 0xFFC00000, 0x7F800000, 0x3F800000, 0xFF800001], "uint32")
    x = bits.view("float32")
    a = te.placeholder(x.shape)
    outs = [topi.argsort(a, dtype="int32"), topi.sort(a, is_ascend=0)]
    check(outs, {a: x}, [[3, 2, 0, 1, 4], [np.nan, np.nan, np.nan, np.inf, 1]])


@pytest.mark.parametrize(
    "dtype", ["int32", pytest.param("float32", marks=slow), pytest.param("bool", marks=slow)]
)
@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.slow
def test_unique(check: Check, dtype: str, in_order: bool) -> None:
    n = 67
    x = RNG.integers(0, 2 if dtype == "bool" else 19, n).astype(dtype)
    if dtype == "float32":
        x[[3, 9]] = np.nan
    a = te.placeholder((n,), dtype)
    elements, first, inverse, counts = np.unique(x, True, True, True)
    if not in_order:
        order = np.argsort(first)
        elements, first, counts, inverse = (
            elements[order],
            first[order],
            counts[order],
            np.argsort(order)[inverse],
        )
    pad = lambda v: np.pad(v, (0, n - len(v)))
    wanted = [pad(elements), pad(first), inverse, [len(elements)], pad(counts)]
    check(topi.unique(a, in_order, True), {a: x}, wanted)
    if in_order:
        check(topi.unique(a), {a: x}, wanted[:4])


@pytest.mark.parametrize("right", [False, True])
def test_searchsorted(check: Check, right: bool) -> None:
    line = np.sort(RNG.integers(0, 30, 41)).astype("float32")
    rows = np.sort(RNG.integers(0, 30, (3, 17)), -1).astype("int32")
    v = RNG.integers(-2, 33, (5, 7)).astype("float32")
    w = RNG.integers(-2, 33, (3, 6)).astype("int32")
    a, b = te.placeholder(line.shape), te.placeholder(rows.shape, "int32")
    p, q = te.placeholder(v.shape), te.placeholder(w.shape, "int32")
    side = "right" if right else "left"
    outs = [topi.searchsorted(a, p, right), topi.searchsorted(b, q, right, "int32")]
    wanted = [np.searchsorted(line, v, side), topi.testing.searchsorted_ref(rows, w, side, "int32")]
    check(outs, {a: line, b: rows, p: v, q: w}, wanted)


@pytest.mark.slow
def test_symbolic(check: Check) -> None:
    n, m = te.size_var("n"), te.size_var("m")
    x = RNG.standard_normal((4, 50)).astype("float32")
    a = te.placeholder((n, m))
    outs = [topi.sort(a), topi.argsort(a, axis=0, dtype="int32"), topi.topk(a, 3, ret_type="values")]
    check(outs, {a: x}, [np.sort(x), np.argsort(x, 0), np.sort(x)[:, ::-1][:, :3]])


def test_refusals() -> None:
    a = te.placeholder((3, 4))
    with pytest.raises(TensorExpressionError, match=r"topi\.sort: axis is 2"):
        topi.sort(a, 2)
    with pytest.raises(TensorExpressionError, match=r"topi\.topk: k is 5 and the axis has 4 elements"):
        topi.topk(a, 5)
    with pytest.raises(TensorExpressionError, match=r"topi\.topk: ret_type is 'all'"):
        topi.topk(a, 1, ret_type="all")
    with pytest.raises(TensorExpressionError, match=r"topi\.unique: data has shape \(3, 4\)"):
        topi.unique(a)
    with pytest.raises(TensorExpressionError, match=r"topi\.searchsorted: sorted_sequence of shape \(3, 4\)"):
        topi.searchsorted(a, te.placeholder((2, 4)))
    with pytest.raises(TensorExpressionError, match=r"topi\.argsort: valid_count has shape \(7,\)"):
        topi.argsort(a, te.placeholder((7,), "int32"))
