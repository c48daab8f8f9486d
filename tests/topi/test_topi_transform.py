"""Operators that move elements, slices, and tensors from nothing, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.ir.errors import TensorExpressionError
from tilewright.runtime.dtypes import element

Check = Callable[..., None]
slow = pytest.mark.slow


def floats(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def test_dimensions(check: Check) -> None:
    x, y = floats(2, 3, 5), floats(1, 4, 1)
    a, b = te.placeholder(x.shape), te.placeholder(y.shape)
    outs = [
        topi.transpose(a),
        topi.transpose(a, (1, -1, 0)),
        topi.expand_dims(a, 1, 2),
        topi.expand_dims(a, -1),
    ]
    outs += [topi.reshape(a, (5, -1)), topi.reshape(a, (2, 15)), topi.reshape(a, 30), topi.flatten(a)]
    outs += [
        topi.squeeze(b),
        topi.squeeze(b, 0),
        topi.squeeze(b, (-1, 0)),
        topi.shape(a),
        topi.ndarray_size(a),
    ]
    outs += [
        topi.expand_like(topi.flatten(b), a2 := te.placeholder((2, 4, 3)), (0, 2)),
        topi.reverse_reshape(a, (-1, 0)),
    ]
    wanted = [x.T, x.transpose(1, 2, 0), x[:, None, None], x[..., None], x.reshape(5, -1), x.reshape(2, 15)]
    wanted += [x.reshape(30), x.ravel(), y.squeeze(), y.squeeze(0), y.squeeze((2, 0)), np.array(x.shape), 30]
    wanted += [np.broadcast_to(y.reshape(1, 4, 1), (2, 4, 3)), x.reshape(-1, 5)]
    check(outs, {a: x, b: y, a2: floats(2, 4, 3)}, wanted)


@pytest.mark.parametrize(
    "dtype", ["float32", *(pytest.param(d, marks=slow) for d in ("int8", "bool", "bfloat16"))]
)
def test_joining_and_parting(check: Check, dtype: str) -> None:
    rng = np.random.default_rng(0)
    make = lambda *s: rng.integers(0, 2, s).astype(element(dtype).numpy)
    x, y, z = make(3, 4), make(3, 1), make(3, 0)
    a, b, c = (te.placeholder(t.shape, dtype) for t in (x, y, z))
    many = [
        topi.concatenate([a, b, c, a, b, b, a], 1),
        topi.concatenate((a, a), 0),
        topi.concatenate([c, c], -1),
    ]
    outs = [*many, topi.stack([a, a, a], 0), topi.stack([a, a], -1)]
    outs += topi.split(a, 2, 1) + topi.split(a, [1, 3], -1) + topi.split(a, (0, 2), 0)
    wanted = [np.concatenate([x, y, z, x, y, y, x], 1), np.concatenate([x, x]), np.concatenate([z, z], -1)]
    wanted += [np.stack([x, x, x]), np.stack([x, x], -1), *np.split(x, 2, 1), *np.split(x, [1, 3], -1)]
    check(outs, {a: x, b: y, c: z}, [*wanted, *np.split(x, (0, 2), 0)])


def test_repeating_and_turning(check: Check) -> None:
    x = floats(3, 5)
    lengths = np.array([0, 2, 9], "int32")
    a, n = te.placeholder(x.shape), te.placeholder((3,), "int32")
    outs = [
        topi.repeat(a, 2, 1),
        topi.repeat(a, 3, -2),
        topi.repeat(a, 0, 0),
        topi.tile(a, (2, 1, 3)),
        topi.tile(a, 2),
    ]
    outs += [
        topi.flip(a, 1),
        topi.flip(a, None),
        topi.roll(a, 2),
        topi.roll(a, -7, 1),
        topi.roll(a, (1, 2), (0, 1)),
    ]
    outs += [topi.reverse_sequence(a, n), topi.tile(a, (0, 1))]
    wanted = [
        x.repeat(2, 1),
        x.repeat(3, 0),
        x.repeat(0, 0),
        np.tile(x, (2, 1, 3)),
        np.tile(x, 2),
        x[:, ::-1],
    ]
    wanted += [x[::-1, ::-1], np.roll(x, 2), np.roll(x, -7, 1), np.roll(x, (1, 2), (0, 1))]
    turned = np.stack([x[0], np.r_[x[1, 1::-1], x[1, 2:]], x[2, ::-1]])
    check(outs, {a: x, n: lengths}, [*wanted, turned, np.tile(x, (0, 1))])


def test_sliding_window(check: Check) -> None:
    x = floats(2, 7, 6)
    a = te.placeholder(x.shape)
    wanted = np.lib.stride_tricks.sliding_window_view(x, (3, 2), (1, 2))[:, ::2, ::1]
    check(topi.sliding_window(a, 1, (3, 2), (2, 1)), {a: x}, wanted)


def test_empty(check: Check) -> None:
    x = np.zeros((0, 4), "float32")
    a = te.placeholder(x.shape)
    outs = [
        topi.transpose(a),
        topi.reshape(a, (4, 0)),
        topi.flip(a),
        topi.roll(a, 1),
        topi.tile(a, (2, 2)),
        topi.flatten(a),
    ]
    outs += [
        topi.concatenate([a, a]),
        topi.strided_slice(a, [0, 1], [9, 3]),
        topi.expand_dims(a, 0),
        topi.repeat(a, 2),
    ]
    shapes = [(4, 0), (4, 0), (0, 4), (0, 4), (0, 8), (0,), (0, 4), (0, 2), (1, 0, 4), (0, 4)]
    check(outs, {a: x}, [np.zeros(s, "float32") for s in shapes])


@pytest.mark.slow
def test_symbolic(check: Check) -> None:
    n, m = te.size_var("n"), te.size_var("m")
    x, y = floats(5, 6), floats(3, 6)
    a, b = te.placeholder((n, 6)), te.placeholder((m, 6))
    outs = [
        topi.transpose(a),
        topi.concatenate([a, b], 0),
        topi.reshape(a, (n, 2, 3)),
        topi.reshape(a, (-1,)),
        topi.flip(a),
    ]
    outs += [
        topi.stack([a, a], 1),
        topi.strided_slice(a, [1], [-1]),
        topi.strided_slice(a, [-1], [-10], [-2]),
    ]
    outs += [
        topi.tile(a, (2, 1)),
        topi.expand_dims(a, 0),
        topi.shape(a),
        topi.roll(a, 2, 0),
        *topi.split(a, 3, 1),
    ]
    wanted = [x.T, np.vstack([x, y]), x.reshape(5, 2, 3), x.ravel(), x[::-1], np.stack([x, x], 1), x[1:-1]]
    wanted += [x[::-2], np.tile(x, (2, 1)), x[None], np.array([5, 6]), np.roll(x, 2, 0), *np.split(x, 3, 1)]
    check(outs, {a: x, b: y}, wanted)


# ---------------------------------------------------------------------------- slices
SLICES: list[Any] = [
    ([1, 2], [4, 9], None),
    ([0, -1], [5, -8], [2, -1]),
    ([-2], [2**31 - 1], [1]),
    ([4, 6], [-(2**31), 0], [-1, -3]),
    ([3, 0], [1, 7], [1, 1]),
    ([7], [-100], [-2]),
    ([None, 1], [None, None], [-1, 2]),
]


def test_strided_slice(check: Check) -> None:
    x = floats(5, 7)
    a = te.placeholder(x.shape)
    outs = [topi.strided_slice(a, *case) for case in SLICES]
    wanted = [topi.testing.strided_slice_python(x, *case) for case in SLICES]
    outs += [
        topi.strided_slice(a, [1], [5], [3], axes=[-1]),
        topi.strided_slice(a, [1, 2], [2, -1], slice_mode="size"),
    ]
    check(outs, {a: x}, [*wanted, x[:, 1:5:3], x[1:3, 2:]])


@pytest.mark.slow
def test_strided_set(check: Check) -> None:
    x = floats(5, 7)
    a = te.placeholder(x.shape)
    cases: list[Any] = [([1, 2], [4, 7], [1, 2]), ([4, -1], [0, 0], [-2, -3]), ([0], [2], None)]
    feed: dict[Any, Any] = {a: x}
    outs, wanted = [], []
    for begin, end, strides in cases:
        v = -floats(*topi.testing.strided_slice_python(x, begin, end, strides).shape)
        b = te.placeholder(v.shape)
        feed[b] = v
        outs.append(topi.strided_set(a, b, begin, end, strides))
        wanted.append(topi.testing.strided_set_python(x, v, begin, end, strides))
        lists = []
        for given in (begin, end, strides or [1]):
            lists.append(te.placeholder((len(given),), "int32"))
            feed[lists[-1]] = np.array(given, "int32")
        outs.append(topi.strided_set(a, b, *lists))
        wanted.append(wanted[-1])
    check(outs, feed, wanted)


def test_dynamic_strided_slice(check: Check) -> None:
    x = floats(5, 7)
    a = te.placeholder(x.shape)
    b, e, s = (te.placeholder((2,), "int64") for _ in range(3))
    out = topi.dynamic_strided_slice(a, b, e, s, (2, 3))
    begin, end, step = np.array([1, -1]), np.array([5, 0]), np.array([2, -2])
    check(out, {a: x, b: begin, e: end, s: step}, x[1:5:2, -1:0:-2])
    with pytest.raises(
        TensorExpressionError, match=r"topi\.strided_slice: begin, end or strides is a tensor"
    ):
        topi.strided_slice(a, b, e, s, axes=[0, 1])


@pytest.mark.parametrize(
    ("begin", "end", "strides"),
    [([1, 0], [3, 4], [1, 2]), ([2, -1], [-3, -4], [-1, -1]), ([0, 1], [9, 9], [2, 1])],
)
def test_a_slice_takes_its_sizes_from_the_result(begin: Any, end: Any, strides: Any) -> None:
    a = te.placeholder((3, 4), name="a")
    bounds = [te.placeholder((2,), "int64", name) for name in ("begin", "end", "strides")]
    out = topi.strided_slice(a, *bounds)
    run = tvm.build(te.create_schedule(out.op), [a, *bounds, out], "llvm")
    x = floats(3, 4)
    want = x[tuple(map(slice, begin, end, strides))]
    got = tvm.nd.empty(want.shape)
    run(tvm.nd.array(x), *(tvm.nd.array(np.array(v, "int64")) for v in (begin, end, strides)), got)
    np.testing.assert_array_equal(got.numpy(), want)


# ---------------------------------------------------------------------------- layouts
def test_layout_transform(check: Check) -> None:
    x = floats(2, 6, 3, 5)
    a = te.placeholder(x.shape)
    blocked = x.reshape(2, 3, 2, 3, 5).transpose(0, 1, 3, 4, 2)
    padded = np.pad(x, ((0, 0), (0, 2), (0, 0), (0, 0))).reshape(2, 2, 4, 3, 5).transpose(0, 1, 3, 4, 2)
    there = topi.layout_transform(a, "NCHW", "NCHW2c")
    outs = [topi.layout_transform(a, "NCHW", "NHWC"), there, topi.layout_transform(there, "NCHW2c", "NCHW")]
    outs += [topi.layout_transform(there, "NCHW2c", "NHWC"), topi.layout_transform(a, "NCHW", "NCHW4c")]
    check(outs, {a: x}, [x.transpose(0, 2, 3, 1), blocked, x, x.transpose(0, 2, 3, 1), padded])
    with pytest.raises(TensorExpressionError, match=r"topi\.layout_transform: 'NCHWc' is not a layout"):
        topi.layout_transform(a, "NCHW", "NCHWc")


# ---------------------------------------------------------------------------- from nothing
def test_creation(check: Check) -> None:
    x, y = np.arange(3, dtype="float32"), np.arange(4, dtype="float32") * 2
    z = floats(2, 4, 5)
    k = np.array(1, "int64")
    a, b, c, d = (
        te.placeholder((3,)),
        te.placeholder((4,)),
        te.placeholder(z.shape),
        te.placeholder((), "int64"),
    )
    outs = [
        topi.arange(7),
        topi.arange(2, 11, 3, "int32"),
        topi.arange(5, 0, -2, "int64"),
        topi.arange(0, 1, 0.25),
    ]
    outs += [
        topi.arange(3, 3),
        topi.full((2, 3), "float16", 1.5),
        topi.full((), "int32", 7),
        topi.eye(3, 5, 1),
    ]
    outs += topi.meshgrid([a, b], "ij") + topi.meshgrid([a, b], "xy")
    outs += [topi.trilu(c, 0, True), topi.trilu(c, -1, False), topi.trilu(c, d, True)]
    wanted = [np.arange(7.0), np.arange(2, 11, 3), np.arange(5, 0, -2), np.arange(0, 1, 0.25), np.zeros(0)]
    wanted += [
        np.full((2, 3), 1.5),
        7,
        np.eye(3, 5, 1),
        *np.meshgrid(x, y, indexing="ij"),
        *np.meshgrid(x, y),
    ]
    wanted += [np.triu(z), np.tril(z, -1), np.triu(z, 1)]
    check(outs, {a: x, b: y, c: z, d: k}, wanted)
    n = te.size_var("n")
    check(topi.arange(1, n, 2, "int32"), {te.placeholder((n,)): floats(8)}, np.arange(1, 8, 2))


def test_refusals() -> None:
    a, b = te.placeholder((3, 4)), te.placeholder((3, 5))
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: topi.transpose(a, (0, 0)), r"topi\.transpose: axes \(0, 0\) names a dimension twice"),
        (lambda: topi.transpose(a, (0,)), r"topi\.transpose: axes \(0,\) must name all 2"),
        (lambda: topi.reshape(a, (5, 2)), r"topi\.reshape: \(3, 4\) has 12 elements"),
        (lambda: topi.reshape(a, (-1, -1)), r"topi\.reshape: newshape is \(-1, -1\)"),
        (lambda: topi.squeeze(a, 0), r"topi\.squeeze: dimension 0 of \(3, 4\) is not 1"),
        (lambda: topi.concatenate([a, b]), r"topi\.concatenate: tensor 1 of shape \(3, 5\)"),
        (lambda: topi.stack([a, b]), r"topi\.stack: tensor 1 has shape \(3, 5\)"),
        (lambda: topi.concatenate([a, topi.cast(a, "int32")]), r"topi\.concatenate: tensor 1 is int32"),
        (lambda: topi.concatenate([]), r"topi\.concatenate: there are no tensors"),
        (lambda: topi.split(a, 3, 1), r"topi\.split: dimension 1 is 4 and cannot be split into 3"),
        (lambda: topi.flip(a, 2), r"topi\.flip: axis is 2"),
        (lambda: topi.strided_slice(a, [0], [1], [0]), r"topi\.strided_slice: strides has 0"),
        (lambda: topi.strided_slice(a, [0, 0, 0], [1]), r"topi\.strided_slice: begin has 3 entries"),
        (lambda: topi.tile(a, (-1,)), r"topi\.tile: reps"),
        (lambda: topi.arange(0, 5, 0), r"topi\.arange: step is 0"),
        (lambda: topi.expand_dims(a, 4), r"topi\.expand_dims: axis is 4 and goes from -3 to 2"),
        (lambda: topi.trilu(te.placeholder((3,))), r"topi\.trilu: data of shape \(3,\)"),
    ]
    for call, message in cases:
        with pytest.raises(TensorExpressionError, match=message):
            call()
