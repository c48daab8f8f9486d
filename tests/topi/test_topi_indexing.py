"""Operators whose indices are data: taking, gathering, scattering, positions."""

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


def floats(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def test_take(check: Check) -> None:
    x = floats(3, 5, 4)
    i = np.array([[0, 7, -1], [2, -6, 4]], "int32")
    good = np.abs(i) % 3
    a, p, q = te.placeholder(x.shape), te.placeholder(i.shape, "int32"), te.placeholder(i.shape, "int32")
    outs = [
        topi.take(a, p),
        topi.take(a, p, 1),
        topi.take(a, p, -1, mode="wrap"),
        topi.take(a, q, 0, mode="fast"),
    ]
    outs += [topi.take(a, 2, 1), topi.take(a, p, 1, mode="nan")]
    outside = (i < 0) | (i >= 5)
    hollow = np.where(outside[None, :, :, None], np.nan, x.take(i.clip(0, 4), 1))
    wanted = [
        x.take(i, mode="clip"),
        x.take(i, 1, mode="clip"),
        x.take(i, -1, mode="wrap"),
        x[good],
        x[:, 2],
        hollow,
    ]
    check(outs, {a: x, p: i, q: good.astype("int32")}, wanted)


def test_take_in_batches(check: Check) -> None:
    x = floats(2, 5, 3)
    i = RNG.integers(0, 5, (2, 4)).astype("int64")
    a, p = te.placeholder(x.shape), te.placeholder(i.shape, "int64")
    check(topi.take(a, p, 1, batch_dims=1), {a: x, p: i}, np.stack([x[b][i[b]] for b in range(2)]))


def test_gather(check: Check) -> None:
    x = floats(4, 5, 3)
    i = RNG.integers(-4, 4, (2, 5, 3)).astype("int32")
    n = RNG.integers(0, 3, (2, 6)).astype("int32")
    a, p, q = te.placeholder(x.shape), te.placeholder(i.shape, "int32"), te.placeholder(n.shape, "int32")
    outs = [topi.gather(a, 0, p), topi.gather_nd(a, q), topi.gather_nd(a, topi.expand_dims(q, 0), 0)]
    wanted = [np.take_along_axis(x, i, 0), x[n[0], n[1]], x[n]]
    batch = np.stack([x[b, n[0, b]] for b in range(4)])
    r = te.placeholder((1, 4), "int32")
    outs.append(topi.gather_nd(a, r, 1))
    check(outs, {a: x, p: i, q: n, r: n[:1, :4].copy()}, [*wanted, batch])


def test_adv_index(check: Check) -> None:
    x = floats(4, 5, 3)
    i, j = np.array([[0], [-1]], "int32"), np.array([1, 2, 4], "int32")
    a, p, q = te.placeholder(x.shape), te.placeholder(i.shape, "int32"), te.placeholder(j.shape, "int32")
    check(
        [topi.adv_index(a, [p, q]), topi.adv_index(a, [q])],
        {a: x, p: i, q: j % 4},
        [x[i, j % 4], x[j % 4]],
    )


COMBINE: dict[str, Any] = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def scattered(x: Any, i: Any, v: Any, axis: int, mode: str) -> Any:
    """What scatter_elements gives, by NumPy's unbuffered forms of its operators."""
    at = list(np.indices(i.shape))
    at[axis] = i
    out = x.copy()
    if mode == "update":
        out[tuple(at)] = v
    elif mode == "mean":
        counts = np.ones_like(x)
        np.add.at(out, tuple(at), v)
        np.add.at(counts, tuple(at), 1)
        out = out // counts if x.dtype.kind == "i" else out / counts
    else:
        COMBINE[mode].at(out, tuple(at), v)
    return out


@pytest.mark.parametrize(
    ("shape", "axis", "dtype"),
    [
        ((5, 7, 3), 1, "float32"),
        pytest.param((5, 7, 3), -3, "int64", marks=slow),
        pytest.param((11,), 0, "float64", marks=slow),
        pytest.param((1, 1), 1, "int32", marks=slow),
    ],
)
def test_scatter_elements(check: Check, shape: Any, axis: int, dtype: str) -> None:
    x = (RNG.standard_normal(shape) * 9).astype(dtype)
    some = tuple(max(1, d - 1) for d in shape)
    v = (RNG.standard_normal(some) * 9).astype(dtype)
    i = RNG.integers(0, shape[axis], some)
    a, p, q = te.placeholder(shape, dtype), te.placeholder(some, "int64"), te.placeholder(some, dtype)
    # for an update, each place is named once
    once = np.argsort(RNG.random(some), axis % len(shape))
    r = te.placeholder(some, "int64")
    outs = [topi.scatter_elements(a, r, q, axis)]
    wanted = [scattered(x, once, v, axis, "update")]
    for mode in (*COMBINE, "mean"):
        outs.append(topi.scatter_elements(a, p, q, axis, mode))
        wanted.append(scattered(x, i, v, axis, mode))
    check(outs, {a: x, p: i, q: v, r: once}, wanted)


def test_scatter_nd(check: Check) -> None:
    x = floats(5, 4, 3)
    i = RNG.integers(0, 4, (2, 6)).astype("int32")
    i[1, 0] = -1
    v = floats(6, 3)
    a, p, q = te.placeholder(x.shape), te.placeholder(i.shape, "int32"), te.placeholder(v.shape)
    wanted = [x.copy() for _ in range(4)]
    for n in range(6):
        at = tuple(i[:, n])
        wanted[0][at] = v[n]
        wanted[1][at] += v[n]
        wanted[2][at] = np.minimum(wanted[2][at], v[n])
        wanted[3][at] *= v[n]
    outs = [topi.scatter_nd(a, p, q, mode) for mode in ("update", "add", "min", "mul")]
    check(outs, {a: x, p: i, q: v}, wanted)


def test_what_is_scattered_outside_is_dropped(check: Check) -> None:
    x = np.zeros((3,), "float32")
    i, v = np.array([1, 3, -4], "int32"), np.ones(3, "float32")
    a, p, q = te.placeholder((3,)), te.placeholder((3,), "int32"), te.placeholder((3,))
    check(topi.scatter_elements(a, p, q), {a: x, p: i, q: v}, [[0, 1, 0]])


def test_sparse(check: Check) -> None:
    i = np.array([[0, 1], [2, 3], [1, 0]], "int32")
    v = np.array([1.5, 2.5, 3.5], "float32")
    p, q = te.placeholder(i.shape, "int32"), te.placeholder(v.shape)
    dense = np.full((3, 4), -1, "float32")
    dense[tuple(i.T)] = v
    line = np.zeros(5, "float32")
    line[[4, 0, 2]] = v
    r = te.placeholder((3,), "int32")
    outs = [topi.sparse_to_dense(p, (3, 4), q, -1), topi.sparse_to_dense(r, (5,), q)]
    matrix = floats(4, 6)
    c, b, w = te.placeholder((3,), "int32"), te.placeholder((4,), "int32"), te.placeholder(matrix.shape)
    outs.append(topi.sparse.csrmm(q, c, b, w))
    rows = np.zeros((3, 4), "float32")
    rows[[0, 0, 2], [1, 3, 0]] = v
    feed = {p: i, q: v, r: np.array([4, 0, 2], "int32"), c: np.array([1, 3, 0], "int32")}
    check(outs, {**feed, b: np.array([0, 2, 2, 3], "int32"), w: matrix}, [dense, line, rows @ matrix])


def test_masks_and_marks(check: Check) -> None:
    i = np.array([[0, 2], [5, -1]], "int32")
    x = floats(4, 3, 2)
    lengths = np.array([1, 4, 0], "int32")
    p, a, n = te.placeholder(i.shape, "int32"), te.placeholder(x.shape), te.placeholder((3,), "int32")
    outs = [topi.one_hot(p, 1, 0, 3, axis, "float32") for axis in (-1, 0, 1)]
    wanted = [topi.testing.one_hot(i, 1, 0, 3, axis, "float32") for axis in (-1, 0, 1)]
    outs += [
        topi.one_hot(p, 7, -7, 4, -1, "int8"),
        topi.sequence_mask(a, n, -1.5),
        topi.sequence_mask(topi.transpose(a, (1, 0, 2)), n, 0, 1),
    ]
    wanted.append(topi.testing.one_hot(i, 7, -7, 4, -1, "int8"))
    masked = topi.testing.sequence_mask(x, lengths, -1.5, 0)
    check(
        outs,
        {p: i, a: x, n: lengths},
        [*wanted, masked, topi.testing.sequence_mask(x.transpose(1, 0, 2), lengths, 0, 1)],
    )


def test_matrix_set_diag(check: Check) -> None:
    x, one, many = floats(2, 4, 6), -floats(2, 4), -floats(2, 4, 4)
    a, d, m = te.placeholder(x.shape), te.placeholder(one.shape), te.placeholder(many.shape)
    outs, wanted = [topi.matrix_set_diag(a, d, 1)], [topi.testing.matrix_set_diag(x, one, 1)]
    for align in ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT"):
        outs.append(topi.matrix_set_diag(a, m, (-1, 2), align))
        wanted.append(topi.testing.matrix_set_diag(x, many, (-1, 2), align))
    check(outs, {a: x, d: one, m: many}, wanted)
    square = wanted[0][0]
    assert all(square[r, r + 1] == one[0, r] for r in range(4))


@pytest.mark.slow
def test_positions(check: Check) -> None:
    x = RNG.integers(0, 2, (3, 4)).astype("int32")
    i = RNG.integers(0, 60, (7,)).astype("int32")
    order = RNG.permutation(9).astype("int32")
    a, p, q = te.placeholder(x.shape, "int32"), te.placeholder((7,), "int32"), te.placeholder((9,), "int32")
    dims = te.placeholder((3,), "int32")
    found = np.argwhere(x)
    room = np.zeros((12, 2), "int32")
    room[: len(found)] = found
    outs = [topi.argwhere((12, 2), a), topi.argwhere((2, 2), a), topi.unravel_index(p, (3, 4, 5))]
    outs += [topi.unravel_index(p, dims), topi.invert_permutation(q)]
    where = np.stack(np.unravel_index(i, (3, 4, 5)))
    feed = {a: x, p: i, q: order, dims: np.array([3, 4, 5], "int32")}
    check(outs, feed, [room, found[:2], where, where, np.argsort(order)])


@pytest.mark.parametrize(
    "dtype", ["bool", pytest.param("bfloat16", marks=slow), pytest.param("uint8", marks=slow)]
)
def test_types(check: Check, dtype: str) -> None:
    x = RNG.integers(0, 2, (5, 3)).astype(element(dtype).numpy)
    i = np.array([[4, 0, 1]], "int64")
    a, p = te.placeholder(x.shape, dtype), te.placeholder(i.shape, "int64")
    outs = [topi.take(a, p, 0), topi.gather(a, 0, p), topi.scatter_elements(a, p, topi.gather(a, 0, p))]
    check(outs, {a: x, p: i}, [x[i], np.take_along_axis(x, i, 0), x])


def test_empty(check: Check) -> None:
    a, p = te.placeholder((3, 4)), te.placeholder((0,), "int32")
    x = floats(3, 4)
    none = te.placeholder((0, 4))
    outs = [topi.take(a, p, 0), topi.one_hot(p, 1, 0, 3, -1, "int32"), topi.argwhere((0, 2), a)]
    outs += [topi.scatter_elements(a, topi.full((0, 4), "int32", 0), none)]
    wanted = [np.zeros((0, 4)), np.zeros((0, 3)), np.zeros((0, 2)), x]
    check(outs, {a: x, p: np.zeros(0, "int32"), none: np.zeros((0, 4), "float32")}, wanted)


@pytest.mark.slow
def test_symbolic(check: Check) -> None:
    n, m = te.size_var("n"), te.size_var("m")
    x = floats(6, 4)
    i = np.array([5, 0, 2], "int32")
    a, p = te.placeholder((n, 4)), te.placeholder((m,), "int32")
    u = te.placeholder((m, 4))
    wanted = x.copy()
    wanted[i] += x[:3]
    outs = [
        topi.take(a, p, 0),
        topi.one_hot(p, 1, 0, n, -1, "int32"),
        topi.scatter_nd(a, topi.expand_dims(p, 0), u, "add"),
    ]
    check(outs, {a: x, p: i, u: x[:3].copy()}, [x[i], np.eye(6)[i], wanted])


def test_refusals() -> None:
    a, p = te.placeholder((3, 4)), te.placeholder((2,), "int32")
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: topi.take(a, p, 2), r"topi\.take: axis is 2"),
        (lambda: topi.take(a, p, 0, mode="raise"), r"topi\.take: mode is 'raise'"),
        (
            lambda: topi.take(a, te.placeholder((2,))),
            r"topi\.take: indices is float32 and must have integers",
        ),
        (lambda: topi.gather(a, 0, p), r"topi\.gather: indices has 1 dimensions and data has 2"),
        (lambda: topi.gather_nd(a, te.placeholder((3, 2), "int32")), r"topi\.gather_nd: .* more dimensions"),
        (lambda: topi.scatter_elements(a, p, p), r"topi\.scatter_elements: updates is int32"),
        (lambda: topi.scatter_nd(a, p, a), r"topi\.scatter_nd: updates has shape \(3, 4\)"),
        (
            lambda: topi.scatter_nd(a, te.placeholder((1, 3), "int32"), a, "sub"),
            r"topi\.scatter_nd: mode is 'sub'",
        ),
        (lambda: topi.argwhere((3, 3), a), r"topi\.argwhere: output_shape is \(3, 3\)"),
        (lambda: topi.sequence_mask(a, p, axis=2), r"topi\.sequence_mask: axis is 2"),
        (lambda: topi.sparse_to_dense(p, (3, 4), a), r"topi\.sparse_to_dense: sparse_indices \(2,\)"),
        (lambda: topi.adv_index(a, [p, p, p]), r"topi\.adv_index: there are 3 indices"),
    ]
    for call, message in cases:
        with pytest.raises(TensorExpressionError, match=message):
            call()
