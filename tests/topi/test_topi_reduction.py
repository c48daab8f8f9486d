"""Reductions, positions, cumulative operators and products of tensors against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

from tilewright import te, topi
from tilewright.ir.errors import TensorExpressionError
from tilewright.runtime.dtypes import element

Check = Callable[..., None]
slow = pytest.mark.slow
RNG = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        pytest.param((5, 7, 3), None, marks=slow),
        ((5, 7, 3), -2),
        pytest.param((13,), 0, marks=slow),
        pytest.param((1, 1), (0, 1), marks=slow),
        pytest.param((4, 0, 3), 1, marks=slow),
        pytest.param((2, 3, 5, 7), (0, -1), marks=slow),
        pytest.param((2, 3), (), marks=slow),
    ],
)
def test_reductions(check: Check, shape: tuple[int, ...], axis: Any) -> None:
    x = floats(*shape)
    a = te.placeholder(shape)
    outs, wanted = [], []
    for keep in (False, True):
        outs += [topi.sum(a, axis, keep), topi.prod(a, axis, keep), topi.mean(a, axis, keep)]
        outs += [topi.all(a, axis, keep), topi.any(a, axis, keep), topi.logsumexp(a, axis, keep)]
        with np.errstate(all="ignore"):
            wanted += [x.sum(axis, keepdims=keep), x.prod(axis, keepdims=keep)]
            # NumPy warns at the mean of nothing, which is NaN here, too
            wanted += [x.sum(axis, keepdims=keep) / (x.size / max(x.sum(axis).size, 1))]
            wanted += [x.all(axis, keepdims=keep), x.any(axis, keepdims=keep)]
            wanted += [np.log(np.exp(x).sum(axis, keepdims=keep))]
        if x.size:
            outs += [topi.max(a, axis, keep), topi.min(a, axis, keep)]
            wanted += [x.max(axis, keepdims=keep), x.min(axis, keepdims=keep)]
    check(outs, {a: x}, wanted, 1e-4, 1e-5)


@pytest.mark.parametrize(
    "dtype",
    ["int8", "float16", *(pytest.param(d, marks=slow) for d in ("int64", "float64", "bfloat16", "bool"))],
)
def test_reductions_of_types(check: Check, dtype: str) -> None:
    x = RNG.integers(0, 2 if dtype == "bool" else 9, (6, 11)).astype(element(dtype).numpy)
    a = te.placeholder(x.shape, dtype)
    kind = x.dtype  # of truth values: whether one is true
    wide = x.astype("float64" if x.dtype.kind not in "iub" else "int64")
    mean = "float32" if x.dtype.kind in "iub" else x.dtype
    outs = [topi.sum(a, 1), topi.max(a, 0), topi.min(a), topi.mean(a, 1), topi.argmax(a, 1), topi.all(a, 0)]
    wanted = [wide.sum(1).astype(kind), x.max(0), x.min(), wide.mean(1).astype(mean), x.argmax(1)]
    check(outs, {a: x}, [*wanted, wide.astype(bool).all(0)], 1e-2 if dtype == "bfloat16" else 1e-3)


def test_sums_of_narrow_floats_are_held_wide(check: Check) -> None:
    x = np.full((5000,), 1.0, "float16")
    a = te.placeholder(x.shape, "float16")
    check([topi.sum(a), topi.mean(a)], {a: x}, [np.float16(5000), np.float16(1)], 0, 0)


def test_nan_and_infinity(check: Check) -> None:
    x = np.array([[1, np.nan, 3], [-np.inf, -np.inf, -np.inf], [np.inf, 1, np.inf], [2, 2, 1]], "float32")
    a = te.placeholder(x.shape)
    outs = [topi.max(a, 1), topi.min(a, 1), topi.argmax(a, 1), topi.argmin(a, 1), topi.logsumexp(a, 1)]
    with np.errstate(all="ignore"):
        wanted = [x.max(1), x.min(1), x.argmax(1), x.argmin(1), special.logsumexp(x, 1)]
    check(outs, {a: x}, wanted)


@pytest.mark.slow
def test_positions(check: Check) -> None:
    x = RNG.integers(0, 4, (5, 6, 7)).astype("float32")
    a = te.placeholder(x.shape)
    turned = x[:, ::-1]
    outs = [topi.argmax(a, 1), topi.argmax(a, 1, True, True), topi.argmin(a), topi.argmin(a, -2, False, True)]
    outs += [topi.argmax(a, (0, 2))]
    wanted = [
        x.argmax(1),
        5 - turned.argmax(1)[:, None],
        x.argmin(),
        5 - turned.argmin(1),
        x.transpose(1, 0, 2).reshape(6, -1).argmax(1),
    ]
    check(outs, {a: x}, wanted)
    assert all(o.dtype == "int32" for o in outs)


def test_collapse_sum(check: Check) -> None:
    x = floats(2, 3, 4)
    a = te.placeholder(x.shape)
    outs = [topi.collapse_sum(a, (3, 1)), topi.collapse_sum(a, (4,)), topi.collapse_sum(a, (1, 1, 4))]
    check(outs, {a: x}, [x.sum((0, 2)).reshape(3, 1), x.sum((0, 1)), x.sum((0, 1), keepdims=True)])
    with pytest.raises(TensorExpressionError, match=r"topi\.collapse_sum: \(2,\) does not broadcast"):
        topi.collapse_sum(a, (2,))


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape",
    [
        (5, 7, 3),
        pytest.param((2, 3, 131), marks=slow),
        pytest.param((0, 4), marks=slow),
        pytest.param((1,), marks=slow),
    ],
)
def test_cumulative(check: Check, shape: tuple[int, ...]) -> None:
    x = floats(*shape)
    a = te.placeholder(shape)
    outs, wanted = [topi.cumsum(a), topi.cumprod(a)], [x.cumsum(), x.cumprod()]
    for axis in range(-1, len(shape) - 1):
        outs += [topi.cumsum(a, axis), topi.cumprod(a, axis), topi.cumsum(a, axis, exclusive=True)]
        wanted += [x.cumsum(axis), x.cumprod(axis), x.cumsum(axis) - x]
    check(outs, {a: x}, wanted, 1e-4, 1e-4)


def test_cumulative_types(check: Check) -> None:
    x = RNG.integers(0, 100, (3, 9)).astype("int8")
    a, b = te.placeholder(x.shape, "int8"), te.placeholder((4,), "bool")
    y = np.array([True, False, True, True])
    outs = [
        topi.cumsum(a, 1, "int32"),
        topi.cumsum(a, 0),
        topi.cumsum(b),
        topi.cumprod(a, 1, "float64", True),
    ]
    before = np.hstack([np.ones((3, 1)), x[:, :-1].astype("float64")]).cumprod(1)
    check(outs, {a: x, b: y}, [x.cumsum(1, "int32"), x.cumsum(0, "int8"), y.cumsum(), before])


@pytest.mark.slow
def test_symbolic(check: Check) -> None:
    n, m = te.size_var("n"), te.size_var("m")
    x = floats(5, 7)
    a = te.placeholder((n, m))
    outs = [
        topi.sum(a, 0),
        topi.max(a, 1),
        topi.mean(a),
        topi.argmax(a, 1),
        topi.cumsum(a, 0),
        topi.cumsum(a),
    ]
    outs += [topi.matmul(a, a, False, True), topi.tensordot(a, a, ((0,), (0,))), topi.einsum("ij->ji", a)]
    wanted = [x.sum(0), x.max(1), x.mean(), x.argmax(1), x.cumsum(0), x.cumsum(), x @ x.T, x.T @ x, x.T]
    check(outs, {a: x}, wanted, 1e-4, 1e-5)


def test_refusals() -> None:
    a = te.placeholder((3, 4))
    with pytest.raises(TensorExpressionError, match=r"topi\.sum: axis is 2 and the tensor has 2 dimensions"):
        topi.sum(a, 2)
    with pytest.raises(TensorExpressionError, match=r"topi\.max: axis \(0, -2\) names a dimension twice"):
        topi.max(a, (0, -2))
    with pytest.raises(TensorExpressionError, match=r"topi\.min: data of shape \(0, 4\) has no elements"):
        topi.min(te.placeholder((0, 4)), 0)
    with pytest.raises(TensorExpressionError, match=r"topi\.argmax: data is 3 and must be a tensor"):
        topi.argmax(3)
    with pytest.raises(TensorExpressionError, match=r"topi\.matmul: shapes \(3, 4\) and \(3, 4\) do not"):
        topi.matmul(a, a)
    with pytest.raises(TensorExpressionError, match=r"topi\.einsum: 'ij,jk->ik': `j` is 4 and 3"):
        topi.einsum("ij,jk->ik", a, a)
    with pytest.raises(TensorExpressionError, match=r"topi\.einsum: 'ijk->k': `ijk` names 3"):
        topi.einsum("ijk->k", a)
    with pytest.raises(TensorExpressionError, match=r"topi\.tensordot: axes is 3"):
        topi.tensordot(a, a, 3)


def test_tags() -> None:
    a = te.placeholder((3, 4))
    assert topi.sum(a, 0).op.tag == topi.tag.COMM_REDUCE
    found = topi.argmax(a, 0)
    assert found.op.tag == topi.tag.COMM_REDUCE
    assert found.op.input_tensors[0].op.tag == topi.tag.COMM_REDUCE_IDX


# ---------------------------------------------------------------------------- products
@pytest.mark.parametrize(
    "shapes",
    [
        [((5, 7), (7, 3)), ((2, 1, 5, 7), (3, 7, 4))],
        pytest.param([((7,), (7, 3)), ((2, 5, 7), (7,)), ((7,), (7,)), ((1, 1), (1, 1))], marks=slow),
        pytest.param([((0, 7), (7, 3)), ((4, 0), (0, 3)), ((2, 0, 5, 7), (7, 4))], marks=slow),
    ],
)
def test_matmul(check: Check, shapes: Any) -> None:
    feed: dict[Any, Any] = {}
    outs, wanted = [], []
    for one, two in shapes:
        x, y = floats(*one), floats(*two)
        a, b = te.placeholder(one), te.placeholder(two)
        feed[a], feed[b] = x, y
        outs.append(topi.matmul(a, b))
        wanted.append(x @ y)
    check(outs, feed, wanted, 1e-4, 1e-5)


def test_matmul_transposed_and_types(check: Check) -> None:
    x, y = floats(2, 7, 5), floats(3, 7)
    h = RNG.integers(-8, 8, (4, 6)).astype("float16")
    i = RNG.integers(-8, 8, (4, 6)).astype("int32")
    a, b = te.placeholder(x.shape), te.placeholder(y.shape)
    p, q = te.placeholder(h.shape, "float16"), te.placeholder(i.shape, "int32")
    outs = [topi.matmul(a, b, True, True), topi.matmul(p, p, False, True), topi.matmul(q, q, True)]
    check(outs, {a: x, b: y, p: h, q: i}, [x.transpose(0, 2, 1) @ y.T, h @ h.T, i.T @ i], 1e-4, 1e-5)


@pytest.mark.slow
def test_tensordot(check: Check) -> None:
    x, y = floats(2, 3, 4), floats(3, 4, 5)
    a, b = te.placeholder(x.shape), te.placeholder(y.shape)
    cases: list[Any] = [2, ((1, 2), (0, 1)), ((2,), (1,)), ([-2], [0]), 0]
    outs = [topi.tensordot(a, b, axes) for axes in cases] + [topi.tensordot(a, b, (1, 0))]
    check(outs, {a: x, b: y}, [np.tensordot(x, y, axes) for axes in [*cases, (1, 0)]], 1e-4, 1e-5)


EINSUMS = [
    ("ij,jk->ik", [(3, 4), (4, 5)]),
    ("ij,jk", [(3, 4), (4, 5)]),
    ("bij,bkj->bik", [(2, 3, 4), (2, 5, 4)]),
    ("...ij,jk->...ik", [(2, 6, 3, 4), (4, 5)]),
    ("...,...->...", [(3, 1), (5,)]),
    ("ii->i", [(4, 4)]),
    ("ii", [(4, 4)]),
    ("ij->", [(3, 4)]),
    ("i,j->ij", [(3,), (4,)]),
    ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 2)]),
    ("a,ab,abc->abc", [(2,), (2, 3), (2, 3, 4)]),
    ("b...->...", [(3, 4, 2)]),
    ("ij,ij->ij", [(3, 1), (1, 4)]),
]


@pytest.mark.slow
def test_einsum(check: Check) -> None:
    feed: dict[Any, Any] = {}
    outs, wanted = [], []
    for text, shapes in EINSUMS:
        arrays = [floats(*s) for s in shapes]
        tensors = [te.placeholder(s) for s in shapes]
        feed.update(zip(tensors, arrays))
        outs.append(topi.einsum(text, *tensors))
        wanted.append(np.einsum(text, *arrays))
    check(outs, feed, wanted, 1e-4, 1e-5)
