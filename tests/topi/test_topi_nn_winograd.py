"""Winograd convolutions against PyTorch, and the other convolutions that are not plain sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import tilewright as tvm
from tilewright import te, topi
from tilewright.arith.minimal_filtering import filter_matrices as _matrices
from tilewright.ir.errors import TensorExpressionError

RNG = np.random.default_rng(2)


def few(fast: int, cases: Any, several: bool = False) -> list[Any]:
    """The cases, of which all but the first are left to the slow run; `several` arguments each, or one."""
    marks = [()] * fast + [pytest.mark.slow] * len(cases)
    return [pytest.param(*(c if several else (c,)), marks=m) for c, m in zip(cases, marks)]


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def wanted(x: np.ndarray, w: np.ndarray, padding=0) -> np.ndarray:
    if isinstance(padding, tuple) and len(padding) == 4:
        x = np.pad(x, [(0, 0), (0, 0), (padding[0], padding[2]), (padding[1], padding[3])])
        padding = 0
    return F.conv2d(torch.tensor(x), torch.tensor(w), None, 1, padding).numpy()


@pytest.mark.parametrize(("tile", "kernel"), [(1, 3), (2, 3), (4, 3), (6, 3), (2, 5), (4, 5), (3, 1)])
def test_matrices_filter_exactly(tile, kernel) -> None:
    a, b, g = (np.array(m) for m in _matrices(tile, kernel))
    size = tile + kernel - 1
    d, k = [int(v) for v in RNG.integers(-9, 9, size)], [int(v) for v in RNG.integers(-9, 9, kernel)]
    y = a.T @ ((g @ k) * (b.T @ d))
    assert list(y) == [sum(d[i + j] * k[j] for j in range(kernel)) for i in range(tile)]


@pytest.mark.parametrize(
    ("shape", "padding", "tile"),
    [
        pytest.param((1, 3, 8, 8), 1, 4, marks=pytest.mark.slow),
        ((2, 2, 7, 5), (0, 1, 2, 0), 2),
        pytest.param((1, 1, 3, 3), 0, 4, marks=pytest.mark.slow),
        pytest.param((0, 2, 6, 6), 1, 2, marks=pytest.mark.slow),
        pytest.param((2, 5, 13, 11), 1, 4, marks=pytest.mark.slow),
        pytest.param((1, 2, 9, 9), "SAME", 6, marks=pytest.mark.slow),
    ],
)
def test_nchw(check, shape, padding, tile) -> None:
    x, w = draw(*shape), draw(4, shape[1], 3, 3)
    tx, tw = te.placeholder(x.shape, name="x"), te.placeholder(w.shape, name="w")
    out = topi.nn.conv2d_winograd_nchw(tx, tw, 1, padding, 1, "float32", tile_size=tile)
    check(out, {tx: x, tw: w}, wanted(x, w, 1 if padding == "SAME" else padding), 2e-3, 2e-3)


@pytest.mark.slow
def test_nhwc(check) -> None:
    x, w = draw(2, 3, 6, 7), draw(5, 3, 3, 3)
    expected = wanted(x, w, 1).transpose(0, 2, 3, 1)
    x, w = x.transpose(0, 2, 3, 1).copy(), w.transpose(2, 3, 1, 0).copy()
    tx, tw = te.placeholder(x.shape, name="x"), te.placeholder(w.shape, name="w")
    out = topi.nn.conv2d_winograd_nhwc(tx, tw, 1, 1, 1, "float32")
    assert out.op.tag == "conv2d_winograd_nhwc"
    check(out, {tx: x, tw: w}, expected, 1e-3, 1e-3)


@pytest.mark.slow
def test_larger_kernel_and_double_precision(check) -> None:
    x, w = draw(1, 2, 9, 8).astype("float64"), draw(3, 2, 5, 5).astype("float64")
    tx, tw = te.placeholder(x.shape, "float64", "x"), te.placeholder(w.shape, "float64", "w")
    out = topi.nn.conv2d_winograd_nchw(tx, tw, 1, 2, 1, tile_size=2)
    check(out, {tx: x, tw: w}, wanted(x, w, 2), 1e-9, 1e-9)


@pytest.mark.parametrize("tile", few(1, [4, 2]))
@pytest.mark.slow
def test_kernel_transformed_before(check, tile) -> None:
    x, w = draw(1, 3, 6, 6), draw(2, 3, 3, 3)
    tx, tw = te.placeholder(x.shape, name="x"), te.placeholder(w.shape, name="w")
    ready = topi.nn.conv2d_winograd_weight_transform(tw, tile)
    assert [int(d) for d in ready.shape] == [tile + 2, tile + 2, 2, 3]
    g = np.array(_matrices(tile, 3)[2], "float64")
    u = np.einsum("ea,oiab,nb->enoi", g, w, g).astype("float32")
    check(ready, {tw: w}, u)
    tu = te.placeholder(u.shape, name="u")
    out = topi.nn.conv2d_winograd_nchw_without_weight_transform(tx, tu, 1, 1, 1, "float32")
    check(out, {tx: x, tu: u}, wanted(x, w, 1), 1e-3, 1e-3)


@pytest.mark.slow
def test_symbolic_batch() -> None:
    n = te.size_var("n")
    tx, tw = te.placeholder((n, 2, 6, 6), name="x"), te.placeholder((3, 2, 3, 3), name="w")
    built = tvm.build(
        te.create_prim_func([tx, tw, topi.nn.conv2d_winograd_nchw(tx, tw, 1, 1, 1, tile_size=2)])
    )
    x, w = draw(3, 2, 6, 6), draw(3, 2, 3, 3)
    got = np.empty((3, 3, 6, 6), "float32")
    built(x, w, got)
    np.testing.assert_allclose(got, wanted(x, w, 1), 1e-3, 1e-3)


@pytest.mark.parametrize(
    ("kernel", "arguments", "message"),
    [
        ((2, 3, 3, 3), (2, 0, 1), "strides and dilation must be 1"),
        ((2, 3, 3, 2), (1, 0, 1), "the kernel is 3 by 2 and must be square"),
        ((2, 4, 3, 3), (1, 0, 1), "the data has 3 channels and the kernel takes 4"),
        ((2, 3, 3, 3), (1, 0, 1, "int32"), "must be a float"),
        ((2, 3, 3, 3), (1, 0, 1, None, False, 40), "outside of what is exact enough"),
    ],
)
def test_refusals(kernel, arguments, message) -> None:
    tx, tw = te.placeholder((1, 3, 8, 8), name="x"), te.placeholder(kernel, name="w")
    with pytest.raises(TensorExpressionError, match=message):
        topi.nn.conv2d_winograd_nchw(tx, tw, *arguments)


# ---------------------------------------------------------------------------- deformable
def sampled(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """x[c] at rows y and columns z, between its elements, zero outside: PyTorch's grid_sample."""
    _, height, width = x.shape
    grid = np.stack([2 * z / max(width - 1, 1) - 1, 2 * y / max(height - 1, 1) - 1], -1)
    return F.grid_sample(
        torch.tensor(x[None], dtype=torch.float64), torch.tensor(grid[None]), align_corners=True
    )[0].numpy()


def deformed(x, offset, w, stride, padding, dilation, deformable_groups, groups) -> np.ndarray:
    n, c, _, _ = x.shape
    o, _, kh, kw = w.shape
    oh, ow = offset.shape[2:]
    cols = np.zeros((n, c, kh, kw, oh, ow))
    rows, columns = np.meshgrid(
        np.arange(oh) * stride - padding, np.arange(ow) * stride - padding, indexing="ij"
    )
    moves = offset.reshape(n, deformable_groups, kh, kw, 2, oh, ow)
    each = c // deformable_groups
    for b, g, i, j in np.ndindex(n, deformable_groups, kh, kw):
        y = rows + i * dilation + moves[b, g, i, j, 0]
        z = columns + j * dilation + moves[b, g, i, j, 1]
        cols[b, g * each : (g + 1) * each, i, j] = sampled(x[b, g * each : (g + 1) * each], y, z)
    cols = cols.reshape(n, groups, c // groups, kh, kw, oh, ow)
    out = np.einsum("ngcijyx,gocij->ngoyx", cols, w.reshape(groups, o // groups, c // groups, kh, kw))
    return out.reshape(n, o, oh, ow)


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "moved", "groups"), few(1, [(2, 0, 2, 2, 2), (1, 1, 1, 1, 1)], True)
)
@pytest.mark.parametrize("last", few(1, [False, True]))
@pytest.mark.slow
def test_deformable(check, stride, padding, dilation, moved, groups, last) -> None:
    x, w = draw(2, 4, 7, 6), draw(2, 4 // groups, 3, 3)
    oh, ow = ((s + 2 * padding - 2 * dilation - 1) // stride + 1 for s in (7, 6))
    offset = (2 * draw(2, moved * 18, oh, ow)).astype("float32")
    expected = deformed(x, offset, w, stride, padding, dilation, moved, groups)
    function = topi.nn.deformable_conv2d_nchw
    if last:
        x, offset, expected = (np.ascontiguousarray(t.transpose(0, 2, 3, 1)) for t in (x, offset, expected))
        w, function = np.ascontiguousarray(w.transpose(2, 3, 1, 0)), topi.nn.deformable_conv2d_nhwc
    tx, to, tw = (te.placeholder(t.shape, name=n) for t, n in ((x, "x"), (offset, "o"), (w, "w")))
    out = function(tx, to, tw, stride, padding, dilation, moved, groups)
    check(out, {tx: x, to: offset, tw: w}, expected, 1e-3, 1e-3)


def test_deformable_refuses_offsets_of_another_shape() -> None:
    tx, tw = te.placeholder((1, 4, 7, 7), name="x"), te.placeholder((2, 4, 3, 3), name="w")
    with pytest.raises(TensorExpressionError, match=r"offset has shape .* and must have \(1, 18, 5, 5\)"):
        topi.nn.deformable_conv2d_nchw(tx, te.placeholder((1, 9, 5, 5)), tw, 1, 0, 1)


# ---------------------------------------------------------------------------- correlation
@pytest.mark.slow
@pytest.mark.parametrize("multiply", [True, False])
@pytest.mark.parametrize(
    ("kernel", "far", "stride1", "stride2", "padding"), [(3, 2, 2, 2, 3), (1, 2, 1, 1, 2)]
)
def test_correlation(check, multiply, kernel, far, stride1, stride2, padding) -> None:
    a, b = draw(1, 3, 8, 7), draw(1, 3, 8, 7)
    frame = [(0, 0), (0, 0), (padding, padding), (padding, padding)]
    pa, pb = np.pad(a, frame), np.pad(b, frame)
    border, radius = far + (kernel - 1) // 2, far // stride2
    size = [-(-(s + 2 * padding - 2 * border) // stride1) for s in (8, 7)]
    expected = np.zeros((1, (2 * radius + 1) ** 2, *size))
    for q, i, j in np.ndindex(*expected.shape[1:]):
        dy, dx = ((v - radius) * stride2 for v in divmod(q, 2 * radius + 1))
        y, x = i * stride1 + far, j * stride1 + far
        one = pa[0, :, y : y + kernel, x : x + kernel]
        two = pb[0, :, y + dy : y + dy + kernel, x + dx : x + dx + kernel]
        expected[0, q, i, j] = (one * two if multiply else np.abs(one - two)).mean()
    ta, tb = te.placeholder(a.shape, name="a"), te.placeholder(b.shape, name="b")
    out = topi.nn.correlation_nchw(ta, tb, kernel, far, stride1, stride2, padding, multiply)
    check(out, {ta: a, tb: b}, expected, 1e-4, 1e-4)
