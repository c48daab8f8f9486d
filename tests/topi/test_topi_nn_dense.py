"""Dense layers and their like against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.ir.errors import TensorExpressionError

RNG = np.random.default_rng(5)


def few(fast: int, cases: Any, several: bool = False) -> list[Any]:
    """The cases, of which all but the first are left to the slow run; `several` arguments each, or one."""
    marks = [()] * fast + [pytest.mark.slow] * len(cases)
    return [pytest.param(*(c if several else (c,)), marks=m) for c, m in zip(cases, marks)]


def draw(shape, dtype: str = "float32") -> np.ndarray:
    if dtype.startswith("float"):
        return RNG.standard_normal(shape).astype(dtype)
    return RNG.integers(-100 if dtype[0] == "i" else 0, 100, shape).astype(dtype)


def tensor(x: np.ndarray, name: str) -> te.Tensor:
    return te.placeholder(x.shape, str(x.dtype), name)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", few(2, [(17, 13, 31), (0, 3, 2), (1, 1, 1), (2, 0, 3), (3, 5, 7)]))
def test_dense(check, shape, bias) -> None:
    m, k, n = shape
    x, w, b = draw((m, k)), draw((n, k)), draw((n,))
    tx, tw, tb = tensor(x, "x"), tensor(w, "w"), tensor(b, "b")
    out = topi.nn.dense(tx, tw, tb if bias else None)
    feed = {tx: x, tw: w} | ({tb: b} if bias else {})
    check(out, feed, x @ w.T + (b if bias else 0), 1e-4, 1e-4)


def test_dense_of_more_dimensions(check) -> None:
    x, w, b = draw((2, 3, 4)), draw((5, 4)), draw((5,))
    tx, tw, tb = tensor(x, "x"), tensor(w, "w"), tensor(b, "b")
    check(topi.nn.dense(tx, tw, tb), {tx: x, tw: w, tb: b}, x @ w.T + b, 1e-4, 1e-4)


@pytest.mark.parametrize(
    ("dtype", "out", "tol"), [("float16", None, 1e-3), ("float16", "float32", 1e-3), ("int8", "int32", 0)]
)
def test_types(check, dtype, out, tol) -> None:
    x, w = draw((4, 9), dtype), draw((5, 9), dtype)
    tx, tw = tensor(x, "x"), tensor(w, "w")
    made = topi.nn.dense(tx, tw, out_dtype=out)
    # the sum of narrow products is held in float32, and rounded in a stage of its own
    total = made.op.input_tensors[0] if made.op.tag == "elemwise" else made
    assert made.dtype == (out or dtype) and total.op.tag == "dense" and total.dtype != "float16"
    check(made, {tx: x, tw: w}, (x.astype("float64") @ w.T.astype("float64")).astype(made.dtype), tol, tol)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_matmul(check, transpose_a, transpose_b) -> None:
    a, b, c = draw((4, 6)), draw((6, 5)), draw((5,))
    wanted = a @ b + c
    a, b = np.ascontiguousarray(a.T if transpose_a else a), np.ascontiguousarray(b.T if transpose_b else b)
    ta, tb, tc = tensor(a, "a"), tensor(b, "b"), tensor(c, "c")
    out = topi.nn.matmul(ta, tb, tc, None, transpose_a, transpose_b)
    check(out, {ta: a, tb: b, tc: c}, wanted, 1e-4, 1e-4)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize(("first", "second"), few(1, [(1, 4), (3, 3), (4, 1)], True))
def test_batch_matmul(check, transpose_a, transpose_b, first, second) -> None:
    a, b = draw((first, 4, 6)), draw((second, 6, 5))
    wanted = a @ b
    a = np.ascontiguousarray(a.transpose(0, 2, 1)) if transpose_a else a
    b = np.ascontiguousarray(b.transpose(0, 2, 1)) if transpose_b else b
    ta, tb = tensor(a, "a"), tensor(b, "b")
    out = topi.nn.batch_matmul(ta, tb, None, None, transpose_a, transpose_b)
    check(out, {ta: a, tb: b}, wanted, 1e-4, 1e-4)


def test_batch_matmul_of_bytes_transposes_the_second(check) -> None:
    a, b = draw((2, 3, 8), "uint8"), draw((2, 4, 8), "int8")
    ta, tb = tensor(a, "a"), tensor(b, "b")
    wanted = a.astype("int32") @ b.astype("int32").transpose(0, 2, 1)
    check(topi.nn.batch_matmul(ta, tb, out_dtype="int32"), {ta: a, tb: b}, wanted)


@pytest.mark.parametrize("offsets", [[2, 2, 7], [0, 5, 6], [0, 0, 0]])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_grouped_matmul(check, offsets, dtype) -> None:
    x, w, ends = draw((7, 6)), draw((3, 6, 5)), np.array(offsets, dtype)
    wanted = np.zeros((7, 5), "float32")
    for group, (start, end) in enumerate(zip([0, *offsets], offsets)):
        wanted[start:end] = x[start:end] @ w[group]
    tx, tw, to = tensor(x, "x"), tensor(w, "w"), tensor(ends, "ends")
    check(topi.nn.grouped_matmul(tx, tw, to), {tx: x, tw: w, to: ends}, wanted, 1e-4, 1e-4)


@pytest.mark.parametrize("bits", few(1, [4, 2, 8]))
def test_blockwise_dense(check, bits) -> None:
    """The last block may have more weights than the data has columns."""
    per, blocks, block = 8 // bits, 3, 8
    x, w = draw((3, 20)), RNG.integers(0, 256, (5, blocks * block // per)).astype("uint8")
    s, z = draw((5, blocks)), RNG.integers(0, 1 << bits, (5, blocks)).astype("uint8")
    q = np.stack([w >> (bits * i) & ((1 << bits) - 1) for i in range(per)], -1).reshape(5, blocks, block)
    real = ((q - z[:, :, None].astype("float32")) * s[:, :, None]).reshape(5, -1)[:, :20]
    tx, tw, ts, tz = (tensor(v, n) for v, n in ((x, "x"), (w, "w"), (s, "s"), (z, "z")))
    made = topi.nn.blockwise_dense(tx, tw, ts, tz, bits)
    check(made, {tx: x, tw: w, ts: s, tz: z}, x @ real.T, 1e-4, 1e-3)


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_blockwise_dense_of_rounded_data(check, kind) -> None:
    """Each block of the data has its own scale; a block of zeros stays zero. The sum is exact but for the scales."""
    x, w = draw((3, 24)).astype(kind), RNG.integers(0, 256, (5, 12)).astype("uint8")
    x[1, 8:16] = 0
    s, z = draw((5, 3)), np.float32(8)
    q = np.stack([w & 15, w >> 4], -1).reshape(5, 3, 8)
    real = ((q - z) * s[:, :, None]).reshape(5, -1)
    parts = x.astype("float32").reshape(3, 3, 8)
    top = np.abs(parts).max(axis=2, keepdims=True)
    rounded = np.round(parts * np.where(top > 0, 127 / np.where(top > 0, top, 1), 0)) * (top / 127)
    tx, tw, ts, tz = (tensor(v, n) for v, n in ((x, "x"), (w, "w"), (s, "s"), (np.asarray(z), "z")))
    made = topi.nn.blockwise_dense(tx, tw, ts, tz, out_dtype="float32", data_bits=8)
    check(made, {tx: x, tw: w, ts: s, tz: np.asarray(z)}, rounded.reshape(3, 24) @ real.T, 1e-3, 1e-3)


def test_dense_pack(check) -> None:
    x, w = draw((3, 5)), draw((8, 5))
    packed = np.ascontiguousarray(w.reshape(2, 4, 5).transpose(0, 2, 1))
    tx, tw = tensor(x, "x"), tensor(packed, "w")
    check(topi.nn.dense_pack(tx, tw), {tx: x, tw: packed}, x @ w.T, 1e-4, 1e-4)


@pytest.mark.parametrize("axis", [1, -1, 0])
def test_bias_add(check, axis) -> None:
    x = draw((3, 4, 5))
    b = draw((x.shape[axis],))
    tx, tb = tensor(x, "x"), tensor(b, "b")
    shape = [1, 1, 1]
    shape[axis] = -1
    check(topi.nn.bias_add(tx, tb, axis), {tx: x, tb: b}, x + b.reshape(shape))


@pytest.mark.parametrize(("axis", "new"), [(0, 1), (1, 2), (-1, 4)])
def test_fifo_buffer(check, axis, new) -> None:
    held = draw((3, 5, 4))
    shape = list(held.shape)
    shape[axis] = new
    x = draw(shape)
    tx, tb = tensor(x, "x"), tensor(held, "b")
    kept = np.take(held, range(new, held.shape[axis]), axis)
    check(topi.nn.fifo_buffer(tx, tb, axis), {tx: x, tb: held}, np.concatenate([kept, x], axis))


@pytest.mark.parametrize("shape", [(2, 3, 4), (3,), (0, 2, 2), (1, 1, 1, 5)])
def test_flatten(check, shape) -> None:
    x = draw(shape)
    t = tensor(x, "x")
    check(topi.nn.flatten(t), {t: x}, x.reshape(shape[0], int(np.prod(shape[1:]))))
    assert topi.nn.batch_flatten is topi.nn.flatten


def test_symbolic_sizes() -> None:
    n, k = te.size_var("n"), te.size_var("k")
    tx, tw = te.placeholder((n, k), name="x"), te.placeholder((4, k), name="w")
    ta = te.placeholder((n, 2, 3), name="a")
    outs = [topi.nn.dense(tx, tw), topi.nn.batch_matmul(ta, ta), topi.nn.flatten(ta)]
    built = tvm.build(te.create_prim_func([tx, tw, ta, *outs]))
    for sizes in ((2, 5), (0, 3)):
        x, w, a = draw(sizes), draw((4, sizes[1])), draw((sizes[0], 2, 3))
        wanted = [x @ w.T, a @ a.transpose(0, 2, 1), a.reshape(sizes[0], 6)]
        got = [np.empty(v.shape, "float32") for v in wanted]
        built(x, w, a, *got)
        for g, v in zip(got, wanted):
            np.testing.assert_allclose(g, v, 1e-4, 1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t, u: topi.nn.dense(t, u), "do not multiply: 3 and 2 differ"),
        (
            lambda t, u: topi.nn.dense(t, t, te.placeholder((5,))),
            "bias has shape .5,. and must have one element",
        ),
        (lambda t, u: topi.nn.matmul(t, te.placeholder((3,))), "must have 2 dimensions or more"),
        (lambda t, u: topi.nn.matmul(t, 3), "tensor_b is 3 and must be a tensor"),
        (
            lambda t, u: topi.nn.batch_matmul(te.placeholder((2, 3, 4)), te.placeholder((3, 5, 4))),
            "the batches 2 and 3 differ",
        ),
        (
            lambda t, u: topi.nn.grouped_matmul(t, te.placeholder((2, 3, 4)), te.placeholder((3,), "int32")),
            "offsets has 3 elements and weight 2 groups",
        ),
        (
            lambda t, u: topi.nn.grouped_matmul(t, te.placeholder((2, 3, 4)), te.placeholder((2,))),
            "offsets is of float32 and must be of int32 or int64",
        ),
        (lambda t, u: topi.nn.bias_add(t, te.placeholder((2,))), "bias has 2 elements and dimension 1"),
        (lambda t, u: topi.nn.fifo_buffer(t, u, 0), "dimension 1 of data is 3 and that of buffer is 2"),
        (lambda t, u: topi.nn.fifo_buffer(te.placeholder((3, 3)), t, 0), "buffer has room for 2"),
        (lambda t, u: topi.nn.flatten(te.placeholder(())), "must have a batch"),
    ],
)
def test_refusals(call, message) -> None:
    with pytest.raises(TensorExpressionError, match=message):
        call(te.placeholder((2, 3), name="x"), te.placeholder((4, 2), name="w"))


def test_products_of_batches(check):
    x, y = np.random.rand(4, 5, 3).astype("float32"), np.random.rand(1, 2, 3).astype("float32")
    a, b = te.placeholder(x.shape), te.placeholder(y.shape)
    check(topi.nn.matmul(a, b, transpose_b=True), {a: x, b: y}, x @ y.transpose(0, 2, 1))
    w = te.placeholder((2, 3))
    c = te.placeholder((5, 3))
    check(topi.nn.dense_pack(c, w), {c: x[0], w: y[0]}, x[0] @ y[0].T)
