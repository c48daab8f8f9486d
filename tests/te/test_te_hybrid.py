"""Hybrid script: functions of loops as operations, against Python itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.ir.errors import ScheduleError, TensorExpressionError

MORE = 5
# ruff: noqa: F821  (the names of hybrid script are those of no module)


@te.hybrid.script
def outer(a, b):
    """Every product, and a number from outside."""
    c = output_tensor((a.shape[0], b.shape[0]), a.dtype)
    for i in range(a.shape[0]):
        for j in vectorize(b.shape[0]):
            c[i, j] = a[i] * b[j] + float32(MORE)
    return c


@te.hybrid.script
def greatest(a):
    m = output_tensor((a.shape[0],), "float32")
    where = output_tensor((a.shape[0],), "int32")
    for i in parallel(a.shape[0]):
        best = a[i, 0]
        at = 0
        for j in range(1, a.shape[1]):
            if a[i, j] > best and not j < 1:
                best = a[i, j]
                at = j
            elif 0 <= at < 1:
                at += 0
        m[i] = best if at >= 0 else 0.0
        where[i] = at
    return m, where


@te.hybrid.script
def filtered(a, w, scale):
    c = output_tensor((6,), "float32")
    t = allocate((3,), "float32", "local")
    assert len(a.shape) == 1
    for i in range(6):
        for k in const_range(3):
            t[k] = max(a[i + k], 0.0)
        c[i] = 0.0
        for k in const_range(3):
            c[i] += t[k] * w[k] / scale
    return c


@te.hybrid.script
def by_threads(a):
    c = output_tensor(a.shape, a.dtype)
    for block in bind("blockIdx.x", 4):
        for thread in bind("threadIdx.x", 16):
            c[block * 16 + thread] = exp(a[block * 16 + thread]) * 2.0
    return c


@te.hybrid.script
def sum_and_double(a):
    s = output_tensor(a.shape, a.dtype)
    d = output_tensor(a.shape, a.dtype)
    for i in range(a.shape[0]):
        s[i] = a[i] + 1.0
        d[i] = a[i] * 2.0
    return s, d


@te.hybrid.script
def of_others(a, b):
    more, twice = sum_and_double(a)
    both = outer(more, b)
    c = output_tensor(both.shape, both.dtype)
    for i in range(both.shape[0]):
        for j in range(both.shape[1]):
            c[i, j] = both[i, j] + twice[i]
    return c


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def compiled(f: Any, args: list[Any], target: str = "llvm", dev: Any = None) -> list[Any]:
    dev = dev or tvm.cpu()
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    given = [te.placeholder(a.shape, str(a.dtype)) if isinstance(a, np.ndarray) else a for a in args]
    outs = f(*given)
    outs = list(outs) if isinstance(outs, (list, tuple)) else [outs]
    tensors = [t for t in given if isinstance(t, te.Tensor)]
    built = tvm.build(te.create_schedule([o.op for o in outs]), [*tensors, *outs], target)
    results = [tvm.nd.empty([int(d) for d in o.shape], str(o.dtype), dev) for o in outs]
    built(*[tvm.nd.array(a, dev) for a in arrays], *results)
    return [r.numpy() for r in results]


@pytest.mark.parametrize(
    ("f", "args"),
    [
        (outer, [values(4), values(3, seed=1)]),
        (greatest, [values(4, 7)]),
        (filtered, [values(8), values(3), 2]),
        (of_others, [values(4), values(3, seed=1)]),
    ],
    ids=["outer", "greatest", "filtered", "of_others"],
)
def test_what_is_compiled_is_what_python_does(f: Any, args: list[Any]) -> None:
    want = f(*args)
    for got, wanted in zip(compiled(f, args), want if isinstance(want, tuple) else (want,), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


@pytest.mark.needs("opencl")
def test_loops_that_are_threads() -> None:
    a = values(64)
    np.testing.assert_allclose(
        compiled(by_threads, [a], "opencl", tvm.opencl(0))[0], np.exp(a) * 2, rtol=1e-5
    )
    np.testing.assert_allclose(by_threads(a), np.exp(a) * 2, rtol=1e-5)


def test_refusals() -> None:
    @te.hybrid.script
    def no_return(a):
        for i in range(4):
            a[i] = 0.0

    @te.hybrid.script
    def odd_loop(a):
        c = output_tensor((4,), "float32")
        for x in a:
            c[0] = x
        return c

    @te.hybrid.script
    def unknown(a):
        c = output_tensor((4,), "float32")
        for i in range(4):
            c[i] = nowhere + a[i]
        return c

    @te.hybrid.script
    def other(a):
        c = output_tensor((4,), "float32")
        while True:
            c[0] = 0.0
        return c

    @te.hybrid.script
    def in_place(a):
        c = output_tensor((4,), "float32")
        for i in range(4):
            a[i] = 0.0
            c[i] = a[i]
        return c

    @te.hybrid.script
    def too_few(a):
        c = output_tensor((4,), "float32")
        one = sum_and_double(a)
        c[0] = one[0]
        return c

    written = "a is an input of the operation, which cannot be written; "
    A = te.placeholder((4,), name="A")
    for f, line, told in (
        (in_place, 5, written + "write to an output_tensor or to allocated memory"),
        (too_few, 4, "there are 2 results, each of which is assigned to a name"),
        (no_return, 3, "it must end with a return of its output tensors"),
        (odd_loop, 4, "a loop runs over range, parallel, vectorize, unroll, const_range or bind"),
        (unknown, 5, "there is no name 'nowhere'"),
        (other, 4, "While is not for hybrid script"),
    ):
        with pytest.raises(TensorExpressionError) as caught:
            f(A)
        assert str(caught.value) == f"te.hybrid.script `{f.__name__}`, line {line}: {told}"
    with pytest.raises(TypeError, match=r"outer\(\) takes 2 arguments, and 1 are given"):
        outer(A)
    with pytest.raises(NotImplementedError, match="is a text that can be read back"):
        te.hybrid.build(None, [], [])


def test_asserts_that_are_known_later_are_checks_of_the_program() -> None:
    @te.hybrid.script
    def reciprocal(n, a):
        c = output_tensor((n,), "float32")
        for i in range(n):
            assert a[i] != 0.0, "a division by zero"
            c[i] = float32(1) / a[i]
        return c

    n = te.size_var("n")
    A = te.placeholder((n,), name="A")
    C = reciprocal(n, A)
    f = tvm.build(te.create_schedule(C.op), [n, A, C])
    a, c = np.array([1, 2, 4], "float32"), tvm.nd.empty((3,))
    f(3, tvm.nd.array(a), c)
    np.testing.assert_array_equal(c.numpy(), 1 / a)
    np.testing.assert_array_equal(reciprocal(3, a), 1 / a)
    a[1] = 0
    with pytest.raises(Exception, match="a division by zero"):
        f(3, tvm.nd.array(a), c)
    with pytest.raises(AssertionError, match="a division by zero"):
        reciprocal(3, a)


def test_the_names_of_hybrid_script_as_python_runs_it() -> None:
    from tilewright.te.hybrid.runtime import HYBRID_GLOBALS

    assert HYBRID_GLOBALS["popcount"](255) == 8
    with tvm.target.Target("cuda"):
        assert HYBRID_GLOBALS["max_num_threads"]() == 1024
    assert not HYBRID_GLOBALS.keys() & globals().keys()


def test_lists_of_tensors_and_of_numbers() -> None:
    @te.hybrid.script
    def weighted(inputs, table):
        c = output_tensor((4,), "float32")
        for i in range(4):
            c[i] = 0.0
            for j in const_range(len(inputs)):
                for k in const_range(len(table[0])):
                    c[i] += inputs[j][i] * float32(table[j, k])
        return c

    tensors = [te.placeholder((4,), name=f"t{i}") for i in range(2)]
    table = [[1, 2, 3], [4, 5, 6]]
    C = weighted(tensors, table)
    assert [t.op.name for t in C.op.input_tensors] == ["t0", "t1"]
    f = tvm.build(te.create_schedule(C.op), [*tensors, C])
    a, b = np.arange(4, dtype="float32"), np.ones(4, "float32")
    c = tvm.nd.empty((4,))
    f(tvm.nd.array(a), tvm.nd.array(b), c)
    np.testing.assert_array_equal(c.numpy(), 6 * a + 15 * b)
    np.testing.assert_array_equal(weighted([a, b], np.array(table)), 6 * a + 15 * b)


# -- schedules --------------------------------------------------------------------------------------------
@te.hybrid.script
def products(a, b):
    c = output_tensor((24, 20), "float32")
    for i in range(24):
        for j in range(20):
            c[i, j] = a[i] * b[j]
    return c


@te.hybrid.script
def row_sums(a):
    c = output_tensor((7,), "float32")
    for i in range(7):
        c[i] = 0.0
        for k in range(9):
            c[i] += a[i, k]
    return c


@te.hybrid.script
def running(a):
    c = output_tensor((16,), "float32")
    for i in range(16):
        c[i] = a[i] + (c[i - 1] if i > 0 else 0.0)
    return c


def scheduled(s: Any, args: list[Any], *given: Any) -> Any:
    out = tvm.nd.empty(tuple(int(n) for n in args[-1].shape))
    tvm.build(s, args, "llvm")(*map(tvm.nd.array, given), out)
    return out.numpy()


def test_the_loops_of_a_script_are_scheduled() -> None:
    a, b = te.placeholder((24,), name="a"), te.placeholder((20,), name="b")
    c = products(a, b)
    assert isinstance(c.op, te.HybridOp) and [iv.var.name for iv in c.op.axis] == ["i", "j"]
    s = te.create_schedule(c.op)
    i, j = c.op.axis
    io, ii = s[c].split(i, 5)
    jo, ji = s[c].split(j, 4)
    s[c].reorder(ii, jo, io, ji)
    s[c].parallel(ii)
    s[c].vectorize(ji)
    text = tvm.lower(s, [a, b, c]).script()
    assert text.index("i_inner in T.parallel(5)") < text.index("j_outer, i_outer in T.grid(5, 5)")
    x, y = (np.random.default_rng(0).random(n, dtype="float32") for n in (24, 20))
    np.testing.assert_allclose(scheduled(s, [a, b, c], x, y), np.outer(x, y))
    s = te.create_schedule(c.op)
    s[c].fuse(*c.op.axis)
    assert "i_j_fused in range(480)" in tvm.lower(s, [a, b, c]).script()
    np.testing.assert_allclose(scheduled(s, [a, b, c], x, y), np.outer(x, y))


def test_a_script_with_loops_further_in_and_stages_around_it() -> None:
    """Only the loops around all statements are axes; a producer is computed at one of them."""
    a = te.placeholder((7, 9), name="a")
    doubled = te.compute((7, 9), lambda i, j: a[i, j] * 2.0, name="doubled")
    c = row_sums(doubled)
    (i,) = c.op.axis
    s = te.create_schedule(c.op)
    io, ii = s[c].split(i, 3)
    s[doubled].compute_at(s[c], io)
    s[c].parallel(io)
    assert "for i_outer in T.parallel(3)" in tvm.lower(s, [a, c]).script()
    x = np.random.default_rng(1).random((7, 9), dtype="float32")
    np.testing.assert_allclose(scheduled(s, [a, c], x), 2 * x.sum(1), rtol=1e-5)
    c = row_sums(a)
    s = te.create_schedule(c.op)
    s[c].bind(c.op.axis[0], te.thread_axis("threadIdx.x"))
    assert 'launch_thread("threadIdx.x", 7)' in tvm.lower(s, [a, c]).script()


def test_iterations_that_read_each_other_keep_their_order() -> None:
    a = te.placeholder((16,), name="a")
    c = running(a)
    (i,) = c.op.axis
    s = te.create_schedule(c.op)
    s[c].split(i, 4)
    x = np.random.default_rng(2).random(16, dtype="float32")
    np.testing.assert_allclose(scheduled(s, [a, c], x), np.cumsum(x), rtol=1e-5)
    s = te.create_schedule(c.op)
    s[c].parallel(i)
    with pytest.raises(ScheduleError, match="must run in order"):
        tvm.lower(s, [a, c])


@te.hybrid.script
def clipped_sums(a):
    c = output_tensor((6,), "float32")
    for i in range(6):
        total = 0.0
        for k in range(9):
            total += a[i, k]
        c[i] = total if total < 4.0 else 4.0
    return c


def test_memory_of_a_script_inside_of_its_axes() -> None:
    a = te.placeholder((6, 9), name="a")
    c = clipped_sums(a)
    s = te.create_schedule(c.op)
    s[c].parallel(c.op.axis[0])
    x = np.random.default_rng(3).random((6, 9), dtype="float32")
    np.testing.assert_allclose(scheduled(s, [a, c], x), np.minimum(x.sum(1), 4), rtol=1e-5)
