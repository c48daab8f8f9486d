"""Arrays of about 2^31 elements: no index overflows, whatever rule schedules the program and whatever it is built for.

`make test` evaluates index arithmetic at sampled iterations (`overflow.py`); the real thing takes minutes and ten GiB, and
is in `make test-all`.
"""

from __future__ import annotations

import zlib

import numpy as np
import overflow
import pytest

import tilewright as tvm
from tilewright import relay, te, tir, topi
from tilewright.contrib import graph_executor
from tilewright.script import tir as T


def _A(*shape, dtype="int8"):
    return te.placeholder(shape, dtype, name="A")


def _B(*shape, dtype="int8"):
    return te.placeholder(shape, dtype, name="B")


def _of(function, *inputs):
    return [*inputs, function(*inputs)]


def _plus_one(A):
    return te.compute(A.shape, lambda i, j: A[i, j] + tir.const(1, "int8"), name="plus_one")


F, H = "float32", "float16"
# name -> the arguments of a program over n * m elements
PROGRAMS = {
    "elementwise": lambda n, m: _of(_plus_one, _A(n, m)),
    "broadcast": lambda n, m: _of(topi.add, _A(n, 1), _B(1, m)),
    "concatenate": lambda n, m: _of(lambda a, b: topi.concatenate([a, b], 1), _A(n, m - 519), _B(n, 519)),
    "transpose": lambda n, m: _of(lambda a: topi.transpose(a, (1, 0)), _A(n, m)),
    "sum of all": lambda n, m: _of(topi.sum, _A(n, m, dtype=F)),
    "row sums": lambda n, m: _of(lambda a: topi.sum(a, 1), _A(n, m, dtype=F)),
    "column sums": lambda n, m: _of(lambda a: topi.sum(a, 0), _A(n, m, dtype=F)),
    "softmax": lambda n, m: _of(topi.nn.softmax, _A(n, m, dtype=F)),
    "mean": lambda n, m: _of(lambda a: topi.sum(a) / tir.Cast(F, a.shape[0] * a.shape[1]), _A(n, m, dtype=F)),
    "argmax": lambda n, m: _of(lambda a: topi.argmax(a, 1), _A(n, m, dtype=F)),
    "cumsum": lambda n, m: _of(lambda a: topi.cumsum(a, 1), _A(n, m, dtype=F)),
    "pad": lambda n, m: _of(lambda a: topi.nn.pad(a, (1, 2), (3, 1)), _A(n - 4, m - 3)),
    "reshape": lambda n, m: _of(lambda a: topi.reshape(a, (m, n)), _A(n, m)),
    "row sums of a reshape": lambda n, m: _of(
        lambda a: topi.sum(topi.cast(topi.reshape(a, (m, n)), "int32"), 1), _A(n, m)
    ),
    "slice": lambda n, m: _of(lambda a: topi.strided_slice(a, [1, 3], [n - 1, m - 1], [1, 2]), _A(n, m)),
    "flip": lambda n, m: _of(lambda a: topi.flip(a, 1), _A(n, m)),
    "stencil": lambda n, m: _of(
        lambda a: te.compute((n - 2, m - 2), lambda i, j: a[i, j] + a[i + 1, j + 1] + a[i + 2, j + 2]), _A(n, m)
    ),
    "take of rows": lambda n, m: _of(lambda a, i: topi.take(a, i, 0), _A(n, m), _B(1000, dtype="int32")),
    "take of elements": lambda n, m: _of(topi.take, _A(n, m), _B(1000, dtype="int32")),
    "gather_nd": lambda n, m: _of(topi.gather_nd, _A(n, m), _B(2, 1000, dtype="int32")),
    "product with a large A": lambda n, m: _of(topi.matmul, _A(n, m, dtype=F), _B(m, 64, dtype=F)),
    "product with a large C": lambda n, m: _of(topi.matmul, _A(n, 64, dtype=F), _B(64, m, dtype=F)),
    "product of halves": lambda n, m: _of(topi.matmul, _A(n, 64, dtype=H), _B(64, m, dtype=H)),
    "convolution": lambda n, m: _of(
        lambda a, w: topi.nn.conv2d(a, w, 1, 1, 1), _A(n, 16, m // 128, 8, dtype=F), _B(16, 16, 3, 3, dtype=F)
    ),
    "pooling": lambda n, m: _of(
        lambda a: topi.nn.pool2d(a, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max"), _A(n, 16, m // 128, 8, dtype=F)
    ),
    "layout": lambda n, m: _of(
        lambda a: topi.layout_transform(a, "NCHW", "NCHW16c"), _A(n, 64, m // 512, 8)
    ),
}  # fmt: skip
TARGETS = ["llvm -mcpu=znver4", "llvm -mcpu=haswell", "cuda -arch=sm_90a", "cuda -arch=sm_75", "opencl"]
SIZES = [
    (46341, 46341),
    (46340, 46341),
    (65536, 32768),
    (32768, 65535),
]  # a little above 2^31, below, exactly, below


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_index_overflows(name, target):
    n, m = SIZES[zlib.crc32(f"{name} {target}".encode()) % len(SIZES)]
    with tvm.target.Target(target) as t:
        scheduled = tvm.auto_schedule(te.create_prim_func(PROGRAMS[name](n, m)), t)
        for func in tvm.lower(scheduled.mod).functions.values():
            overflow.check(func)


@pytest.mark.parametrize("kind", ["parallel", "vectorize", "unroll"])
def test_schedules_by_hand(kind):
    A = _A(46341, 46341)
    B = _plus_one(A)
    s = te.create_schedule(B.op)
    outer, inner = s[B].split(s[B].fuse(*B.op.axis), factor=48)
    getattr(s[B], kind)(outer if kind == "parallel" else inner)
    (func,) = tvm.lower(s, [A, B]).functions.values()
    overflow.check(func)


def test_the_check_sees_an_overflow():
    """Without the pass that widens, each kind of fault is found."""

    @T.prim_func(private=True)
    def wraps(A: T.Buffer((46341,), "int8")):
        for i in range(46341):
            for j in range(46341):
                A[(i * 46341 + j) // 46341] = T.int8(1)

    @T.prim_func(private=True)
    def outside(A: T.Buffer((100,), "int8")):
        for i in range(101):
            A[i] = T.int8(1)

    for func, said in ((wraps, "is no int32"), (outside, r"A\[100\] of 100 elements")):
        with pytest.raises(overflow.Overflow, match=said):
            overflow.check(func)


def test_symbolic_sizes():
    """A fused loop over symbolic sizes counts in 64 bits; on a GPU larger arrays are refused before the launch."""
    n, m = te.size_var("n"), te.size_var("m")
    A = _A(n, m)
    B = _plus_one(A)
    s = te.create_schedule(B.op)
    _, inner = s[B].split(s[B].fuse(*B.op.axis), factor=64)
    s[B].vectorize(inner)
    (func,) = tvm.lower(s, [A, B]).functions.values()
    overflow.check(func, n=70000, m=40000)
    with tvm.target.Target("cuda -arch=sm_80") as target:
        scheduled = tvm.auto_schedule(te.create_prim_func([A, B]), target)
        (func,) = tvm.lower(scheduled.mod).functions.values()
    overflow.check(func, n=32767, m=65534)
    assert "A has 2^31 elements or more" in str(func)


def test_a_symbolic_size_close_to_2_31_is_refused():
    n = te.size_var("n")
    A = te.placeholder((n,), "int8", name="A")
    f = tvm.build(te.create_schedule((B := te.compute((n,), lambda i: A[i], name="B")).op), [A, B])
    large = np.lib.stride_tricks.as_strided(np.zeros(1, "int8"), (2**31 - 100,), (1,))
    with pytest.raises(ValueError, match="shape 0 is 2147483548, too large for the size n of type int32"):
        f(large, large)


# -- the real thing ------------------------------------------------------------------------------
def _filled(shape, rng):
    """Zeros with a thousand other values, the ends among them."""
    a = np.zeros(shape, "int8")
    flat = a.reshape(-1)
    flat[rng.integers(0, flat.size, 1000)] = rng.integers(-100, 100, 1000)
    flat[:3], flat[-3:] = (1, 2, 3), (5, 6, 7)
    return a


REAL = {
    "elementwise": ([(46341, 46341)], _plus_one, lambda a: a + np.int8(1)),
    "just below": ([(32768, 65535)], _plus_one, lambda a: a + np.int8(1)),
    "concatenate": ([(53001, 40000), (53001, 519)], lambda a, b: topi.concatenate([a, b], 1),
                    lambda a, b: np.concatenate([a, b], 1)),
    "transpose": ([(70000, 31000)], lambda a: topi.transpose(a, (1, 0)), lambda a: a.T),
    "row sums": ([(46341, 46341)], lambda a: topi.sum(topi.cast(a, "int32"), 1), lambda a: a.sum(1, dtype="int32")),
    "column sums": ([(46341, 46341)], lambda a: topi.sum(topi.cast(a, "int32"), 0), lambda a: a.sum(0, dtype="int32")),
    "reshape": ([(46340, 46342)], lambda a: topi.reshape(a, (23170, 92684)), lambda a: a.reshape(23170, 92684)),
    "take": ([(46341, 46341)], lambda a: topi.take(a, te.compute((9,), lambda i: i * 5792), 0),
             lambda a: a[np.arange(9) * 5792]),
}  # fmt: skip


@pytest.mark.heavy
@pytest.mark.parametrize("name", REAL)
def test_the_real_thing(name):
    shapes, function, reference = REAL[name]
    inputs = [te.placeholder(s, "int8", name=f"I{i}") for i, s in enumerate(shapes)]
    out = function(*inputs)
    f = tvm.compile([*inputs, out], "llvm")
    rng = np.random.default_rng(0)
    arrays = [_filled(s, rng) for s in shapes]
    got = np.full([int(d) for d in out.shape], 77, out.dtype)
    f(*arrays, got)
    want = reference(*arrays)
    for i in range(0, len(got), 4096):  # a comparison of all at once would take as much memory again
        np.testing.assert_array_equal(got[i : i + 4096], want[i : i + 4096])


@pytest.mark.heavy
def test_a_model():
    x = relay.var("x", shape=(53001, 40519), dtype="int8")
    net = tvm.IRModule.from_expr(relay.Function([x], relay.add(x, relay.const(1, "int8"))))
    module = graph_executor.GraphModule(relay.build(net, "llvm")["default"](tvm.cpu()))
    a = _filled((53001, 40519), np.random.default_rng(0))
    module.run(x=a)
    got = module.get_output(0).numpy()
    for i in range(0, len(got), 4096):
        np.testing.assert_array_equal(got[i : i + 4096], a[i : i + 4096] + np.int8(1))


@pytest.mark.heavy
def test_symbolic_sizes_by_hand():
    n, m = te.size_var("n"), te.size_var("m")
    A = _A(n, m)
    B = _plus_one(A)
    s = te.create_schedule(B.op)
    outer, inner = s[B].split(s[B].fuse(*B.op.axis), factor=1024)
    s[B].parallel(outer)
    s[B].vectorize(s[B].split(inner, factor=64)[1])
    f = tvm.build(s, [A, B])
    a, b = np.zeros((70000, 40000), "int8"), np.full((70000, 40000), 9, "int8")
    f(a, b)
    assert b.min() == b.max() == 1
