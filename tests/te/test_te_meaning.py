"""What tensor expressions compute, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright import te
from tilewright.ir import ops as tir
from tilewright.ir.expr import Let, Var
from tilewright.tir.interpret import interpret

rng = np.random.default_rng(0)


def floats(*shape: int, dtype: str = "float32") -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def ints(high: int, *shape: int, dtype: str = "int32") -> np.ndarray:
    return rng.integers(0, high, shape).astype(dtype)


# ---------------------------------------------------------------------------- element by element
def test_symbolic_vector_add(run):
    n = te.var("n")
    A, B = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    C = te.compute((n,), lambda i: A[i] + B[i], name="C")
    a, b = floats(13), floats(13)
    assert np.array_equal(run([A, B, C], a, b, (13,))[2], a + b)


def test_shapes_derived_from_symbols(run):
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m), name="A")
    B = te.compute((n * 2 + 1, m), lambda i, j: te.if_then_else(i < n, A[i, j], te.const(0.0)), name="B")
    a = floats(3, 5)
    want = np.zeros((7, 5), "float32")
    want[:3] = a
    assert np.array_equal(run([A, B], a, (7, 5))[1], want)


def test_int64_symbols(run):
    n = te.var("n", "int64")
    A = te.placeholder((n, 3), name="A")
    B = te.compute((n, 3), lambda i, j: A[n - 1 - i, j], name="B")
    a = floats(4, 3)
    assert np.array_equal(run([A, B], a, (4, 3))[1], a[::-1])


@pytest.mark.parametrize("index_type", ["int64", "int32"])
def test_the_index_type_changes_nothing(run, index_type):
    n = te.var("n", "int64" if index_type == "int32" else "int32")
    A = te.placeholder((n, 4), name="A")
    I = te.placeholder((n,), "int32", "I")
    k = te.reduce_axis((0, n), "k")
    B = te.compute((4,), lambda j: te.sum(A[I[k], j] * k, axis=k, where=tir.all(k > 0, k % 2 == 0)), name="B")
    a, i = floats(7, 4), ints(7, 7)
    out = run([A, I, B], a, i, (4,), index_dtype_override=index_type)[2]
    want = sum(a[i[t]] * np.float32(t) for t in range(2, 7, 2))
    np.testing.assert_allclose(out, want, rtol=1e-5)


def test_stencil(run):
    A = te.placeholder((10, 6), name="A")
    B = te.compute((8, 6), lambda i, j: A[i, j] + A[i + 1, j] + A[i + 2, j], name="B")
    a = floats(10, 6)
    assert np.array_equal(run([A, B], a, (8, 6))[1], a[:-2] + a[1:-1] + a[2:])


def test_padding(run):
    A = te.placeholder((4, 4), name="A")
    inside = lambda i, j: tir.all(i >= 1, i < 5, j >= 1, j < 5)
    P = te.compute(
        (6, 6), lambda i, j: te.if_then_else(inside(i, j), A[i - 1, j - 1], te.const(0.0)), name="P"
    )
    a = floats(4, 4)
    assert np.array_equal(run([A, P], a, (6, 6))[1], np.pad(a, 1))


def test_gather_and_transpose(run):
    A = te.placeholder((9, 4), name="A")
    I = te.placeholder((5,), "int64", "I")
    B = te.compute((4, 5), lambda j, i: A[I[i], j], name="B")
    a, i = floats(9, 4), ints(9, 5, dtype="int64")
    assert np.array_equal(run([A, I, B], a, i, (4, 5))[2], a[i].T)


def test_a_let_inside_an_index(run):
    A = te.placeholder((9,), name="A")

    def rule(i):
        half = Var("half")
        return Let(half, i // 2, A[half] + A[half + 1])

    B = te.compute((9,), rule, name="B")
    a = floats(9)
    at = np.arange(9) // 2
    assert np.array_equal(run([A, B], a, (9,))[1], a[at] + a[at + 1])


def test_several_outputs(run):
    A = te.placeholder((5,), name="A")
    B, C = te.compute((5,), lambda i: (A[i] + 1.0, A[i] > 0.0), name="B")
    a = floats(5)
    _, b, c = run([A, B, C], a, (5,), (5,))
    assert C.dtype == "bool"
    assert np.array_equal(b, a + 1) and np.array_equal(c, a > 0)


def test_rank_zero(run):
    A = te.placeholder((), name="A")
    B = te.compute((), lambda: A() * 2.0, name="B")
    C = te.compute((3,), lambda i: B() + i, name="C")
    a = np.array(1.5, "float32")
    assert run([A, C], a, (3,))[1].tolist() == [3, 4, 5]


def test_an_empty_tensor(run):
    A = te.placeholder((0,), name="A")
    k = te.reduce_axis((0, 4), "k")
    B = te.compute((0,), lambda i: te.sum(A[i] + k, axis=k), name="B")
    assert run([A, B], floats(0), (0,))[1].shape == (0,)


def test_a_diamond_of_operations(run):
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i] * 2.0, name="B")
    C = te.compute((4,), lambda i: B[i] + 1.0, name="C")
    D = te.compute((4,), lambda i: B[i] * C[3 - i], name="D")
    a = floats(4)
    assert np.array_equal(run([A, D], a, (4,))[1], (a * 2) * (a * 2 + 1)[::-1])


def test_scalar_arguments(run):
    alpha = te.var("alpha", "float32")
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i] * alpha, name="B")
    a = floats(4)
    assert np.array_equal(run([alpha, A, B], 0.5, a, (4,))[2], a * np.float32(0.5))


# ---------------------------------------------------------------------------- reductions
@pytest.mark.parametrize(
    ("reduce", "numpy"), [(te.sum, np.sum), (te.prod, np.prod), (te.max, np.max), (te.min, np.min)]
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8"])
def test_reducers(run, reduce, numpy, dtype):
    A = te.placeholder((4, 3, 5), dtype, "A")
    k, l = te.reduce_axis((0, 3), "k"), te.reduce_axis((0, 5), "l")
    B = te.compute((4,), lambda i: reduce(A[i, k, l], axis=[k, l]), name="B")
    a = (ints(5, 4, 3, 5, dtype=dtype) - 2) if dtype.startswith("int") else floats(4, 3, 5, dtype=dtype)
    want = numpy(a.reshape(4, 15), axis=1, **({"dtype": dtype} if numpy in (np.sum, np.prod) else {}))
    np.testing.assert_allclose(run([A, B], a, (4,))[1], want, rtol=1e-5, atol=1e-6)


def test_all_and_any_over_axes(run):
    A = te.placeholder((4, 6), "int32", "A")
    k = te.reduce_axis((0, 6), "k")
    every = te.compute((4,), lambda i: te.all(A[i, k] > 0, axis=k), name="every")
    some = te.compute((4,), lambda i: te.any(A[i, k] > 3, axis=k), name="some")
    a = ints(5, 4, 6)
    a[0] = 1
    _, x, y = run([A, every, some], a, (4,), (4,))
    assert np.array_equal(x, (a > 0).all(1)) and np.array_equal(y, (a > 3).any(1))


def test_the_matmul_of_the_research_note(run):
    m, n, h = te.var("m"), te.var("n"), te.var("h")
    A, B = te.placeholder((h, m), name="A"), te.placeholder((h, n), name="B")
    k = te.reduce_axis((0, h), name="k")
    C = te.compute((m, n), lambda y, x: te.sum(A[k, y] * B[k, x], axis=k), name="C")
    a, b = floats(7, 3), floats(7, 5)
    np.testing.assert_allclose(run([A, B, C], a, b, (3, 5))[2], a.T @ b, rtol=1e-5)


def test_where(run):
    A = te.placeholder((4, 6), name="A")
    k = te.reduce_axis((0, 6), "k")
    B = te.compute((4,), lambda i: te.sum(A[i, k], axis=k, where=k <= i), name="B")
    C = te.compute((4,), lambda i: te.max(A[i, k], axis=k, where=A[i, k] < 0.0), name="C")
    a = -np.abs(floats(4, 6))
    a[:, ::2] *= -1
    _, b, c = run([A, B, C], a, (4,), (4,))
    np.testing.assert_allclose(b, [a[i, : i + 1].sum() for i in range(4)], rtol=1e-5)
    assert np.array_equal(c, np.where(a < 0, a, -np.inf).max(1))


def test_start_and_range(run):
    A, S = te.placeholder((4, 6), name="A"), te.placeholder((4,), name="S")
    k = te.reduce_axis((2, 5), "k")
    B = te.compute((4,), lambda i: te.sum(A[i, k], axis=k, init=S[i]), name="B")
    a, s = floats(4, 6), floats(4)
    np.testing.assert_allclose(run([A, S, B], a, s, (4,))[2], s + a[:, 2:5].sum(1), rtol=1e-5)


def argmax():
    def combine(x, y):
        first = tir.any(x[1] > y[1], tir.all(x[1] == y[1], x[0] < y[0]))
        return te.if_then_else(first, x[0], y[0]), te.if_then_else(first, x[1], y[1])

    return te.comm_reducer(combine, lambda i, v: (te.max_value(i), te.min_value(v)), name="argmax")


def test_argmax(run):
    V = te.placeholder((4, 9), name="V")
    k = te.reduce_axis((0, 9), "k")
    best = te.compute((4,), lambda i: argmax()((k, V[i, k]), axis=k), name="best")
    v = ints(4, 4, 9, dtype="float32")
    _, index, value = run([V, *best], v, (4,), (4,))
    assert np.array_equal(index, v.argmax(1)) and np.array_equal(value, v.max(1))


def test_parts_that_depend_on_each_other(run):
    """A product of complex numbers: each part needs both old parts, so neither may be stored too early."""
    product = te.comm_reducer(
        lambda x, y: (x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]),
        lambda a, b: (te.const(1, a), te.const(0, b)),
    )
    R, I = te.placeholder((3, 5), "float64", "R"), te.placeholder((3, 5), "float64", "I")
    k = te.reduce_axis((0, 5), "k")
    P = te.compute((3,), lambda i: product((R[i, k], I[i, k]), axis=k), name="P")
    r, i = floats(3, 5, dtype="float64"), floats(3, 5, dtype="float64")
    _, _, real, imaginary = run([R, I, *P], r, i, (3,), (3,))
    np.testing.assert_allclose(real + 1j * imaginary, np.prod(r + 1j * i, axis=1), rtol=1e-12)


def test_reduction_over_no_axes_is_the_value(run):
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: te.sum(A[i], axis=[]), name="B")
    C = te.compute((4,), lambda i: te.sum(A[i], axis=[], where=i > 1, init=A[0]), name="C")
    a = floats(4)
    _, b, c = run([A, B, C], a, (4,), (4,))
    assert np.array_equal(b, a) and np.array_equal(c, a[0] + np.where(np.arange(4) > 1, a, 0))


def test_max_and_min_of_two_values(run):
    A, B = te.placeholder((4,), name="A"), te.placeholder((4,), name="B")
    C = te.compute((4,), lambda i: te.max(A[i], B[i], 0.0), name="C")
    D = te.min(A, B)
    a, b = floats(4), floats(4)
    _, _, c, d = run([A, B, C, D], a, b, (4,), (4,))
    assert np.array_equal(c, np.maximum(np.maximum(a, b), 0)) and np.array_equal(d, np.minimum(a, b))


# ---------------------------------------------------------------------------- scan and extern
def test_cumulative_sum(run):
    m, n = te.var("m"), te.var("n")
    X = te.placeholder((m, n), name="X")
    state = te.placeholder((m, n), name="state")
    init = te.compute((1, n), lambda t, i: X[0, i], name="init")
    update = te.compute((m, n), lambda t, i: state[t - 1, i] + X[t, i], name="update")
    S = te.scan(init, update, state, inputs=[X])
    x = floats(6, 3, dtype="float32")
    np.testing.assert_allclose(run([X, S], x, (6, 3))[1], x.cumsum(0), rtol=1e-5)


def test_a_recurrence_of_two_steps_and_an_operation_between(run):
    state = te.placeholder((10,), "int64", "state")
    init = te.compute((2,), lambda t: te.const(1, "int64"), name="init")
    both = te.compute((10,), lambda t: state[t - 1] + state[t - 2], name="both")
    update = te.compute((10,), lambda t: both[t] * 1, name="update")
    fibonacci = te.scan(init, update, state)
    assert run([fibonacci], (10,))[0].tolist() == [1, 1, 2, 3, 5, 8, 13, 21, 34, 55]


def test_two_states_and_a_reduction_in_the_step(run):
    n, T = 3, 5
    W = te.placeholder((n, n), "float64", "W")
    a_state, b_state = te.placeholder((T, n), "float64", "a"), te.placeholder((T,), "float64", "b")
    a_init = te.compute((1, n), lambda t, i: te.const(1.0, "float64"), name="a_init")
    b_init = te.compute((1,), lambda t: te.const(0.5, "float64"), name="b_init")
    k = te.reduce_axis((0, n), "k")
    product = te.compute((T, n), lambda t, i: te.sum(W[i, k] * a_state[t - 1, k], axis=k), name="product")
    a_next = te.compute((T, n), lambda t, i: te.tanh(product[t, i] + b_state[t - 1]), name="a_next")
    b_next = te.compute((T,), lambda t: b_state[t - 1] * a_state[t - 1, 0], name="b_next")
    A, B = te.scan([a_init, b_init], [a_next, b_next], [a_state, b_state], inputs=[W])
    C = te.compute((T, n), lambda t, i: A[t, i] + B[t], name="C")
    w = floats(n, n, dtype="float64")
    _, got, sums = run([W, A, C], w, (T, n), (T, n))
    a, b = [np.ones(n)], [0.5]
    for _ in range(T - 1):
        a, b = [*a, np.tanh(w @ a[-1] + b[-1])], [*b, b[-1] * a[-1][0]]
    np.testing.assert_allclose(got, a, rtol=1e-12)
    np.testing.assert_allclose(sums, np.array(a) + np.array(b)[:, None], rtol=1e-12)


def test_a_scan_over_another_scan(run):
    X = te.placeholder((5,), "int32", "X")

    def cumsum(x):
        state = te.placeholder((5,), "int32", "state")
        init = te.compute((1,), lambda t: x[0], name="init")
        return te.scan(init, te.compute((5,), lambda t: state[t - 1] + x[t], name="update"), state)

    x = ints(9, 5)
    assert np.array_equal(run([X, cumsum(cumsum(X))], x, (5,))[1], x.cumsum().cumsum())


def test_an_extern_of_stores(run):
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    from tilewright.ir.stmt import BufferStore, For, ForKind

    def reverse(ins, outs):
        i = Var("i")
        body = BufferStore(outs[0], ins[0][n - 1 - i], [i])
        return For(i, 0, n, ForKind.SERIAL, body)

    B = te.extern((n,), [A], reverse, name="B")
    C = te.compute((n,), lambda i: B[i] * 2.0, name="C")
    a = floats(6)
    assert np.array_equal(run([A, C], a, (6,))[1], a[::-1] * 2)


def test_a_primfunc_twice(run):
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    double = te.create_prim_func([A, te.compute((n,), lambda i: A[i] * 2.0, name="B")])
    X = te.placeholder((6,), name="X")
    Y = te.extern_primfunc([te.extern_primfunc([X], double, name="first")], double, name="second")
    x = floats(6)
    assert np.array_equal(run([X, Y], x, (6,))[1], x * 4)


# ---------------------------------------------------------------------------- whole tensors
OPERATORS = [
    ("add", lambda a, b: a + b),
    ("subtract", lambda a, b: a - b),
    ("multiply", lambda a, b: a * b),
    ("divide", lambda a, b: a / b),
    ("floor_divide", lambda a, b: a // b),
    ("floor_mod", lambda a, b: a % b),
    ("less", lambda a, b: a < b),
    ("less_equal", lambda a, b: a <= b),
    ("greater", lambda a, b: a > b),
    ("greater_equal", lambda a, b: a >= b),
]


@pytest.mark.parametrize(("name", "f"), OPERATORS)
@pytest.mark.parametrize("kind", ["tensors", "number", "reflected"])
def test_operators(run, name, f, kind):
    A, B = te.placeholder((3, 1, 4), name="A"), te.placeholder((5, 1), name="B")
    a, b = floats(3, 1, 4), floats(5, 1)
    if kind == "tensors":
        C, want, values = f(A, B), f(a, b), ([A, B], [a, b])
    elif kind == "number":
        C, want, values = f(A, 1.5), f(a, np.float32(1.5)), ([A], [a])
    else:
        C, want, values = f(1.5, A), f(np.float32(1.5), a), ([A], [a])
    assert C.op.tag == ("broadcast" if kind == "tensors" else "elemwise")
    if not (kind == "reflected" and want.dtype == bool):
        assert C.op.name == f"T_{name}"
    assert tuple(int(d) for d in C.shape) == want.shape
    np.testing.assert_allclose(run([*values[0], C], *values[1], want.shape)[-1], want, rtol=1e-5, atol=1e-6)


def test_integer_operators(run):
    A = te.placeholder((6,), "int32", "A")
    a = ints(100, 6)
    for f in (
        lambda x: (x << 2) ^ 5,
        lambda x: (x >> 1) & 6 | 1,
        lambda x: ~x,
        lambda x: -x // 3,
        lambda x: 7 - abs(x - 50) % 8,
        lambda x: x**2,
    ):
        assert np.array_equal(run([A, f(A)], a, (6,))[1], f(a))


def test_numpy_scalars_beside_tensors(run):
    A = te.placeholder((3,), name="A")
    a = floats(3)
    assert np.array_equal(run([A, np.float32(2) * A], a, (3,))[1], a * 2)


def test_expressions_beside_tensors(run):
    n, alpha = te.var("n"), te.var("alpha", "float32")
    A = te.placeholder((n,), name="A")
    a = floats(3)
    assert np.array_equal(run([A, alpha, alpha * A + 1], a, 3.0, (3,))[2], a * 3 + 1)


def test_functions_of_whole_tensors(run):
    A = te.placeholder((2, 3), name="A")
    a = np.abs(floats(2, 3)) + 0.5
    for f, want in (
        (te.exp, np.exp),
        (te.sqrt, np.sqrt),
        (te.floor, np.floor),
        (te.abs, np.abs),
        (lambda x: te.power(x, 3.0), lambda x: x**3),
        (lambda x: te.power(2.0, x), lambda x: 2**x),
        (lambda x: te.div(x, x + 1.0), lambda x: x / (x + 1)),
        (lambda x: x.astype("int32"), lambda x: x.astype("int32")),
    ):
        np.testing.assert_allclose(run([A, f(A)], a, (2, 3))[1], want(a), rtol=1e-5)


def test_divisions_of_integers(run):
    A, B = te.placeholder((8,), "int32", "A"), te.placeholder((8,), "int32", "B")
    a = np.array([7, -7, 7, -7, 6, 0, 1, -1], "int32")
    b = np.array([2, 2, -2, -2, 3, 5, 4, 4], "int32")
    quotient = np.trunc(a / b).astype("int32")
    wants = [
        (te.floordiv, a // b),
        (te.floormod, a % b),
        (te.truncdiv, quotient),
        (te.truncmod, a - quotient * b),
        (te.div, quotient),
    ]
    for f, want in wants:
        assert np.array_equal(run([A, B, f(A, B)], a, b, (8,))[2], want)
        C = te.compute((8,), lambda i, f=f: f(A[i], B[i]))
        assert np.array_equal(run([A, B, C], a, b, (8,))[2], want)


# ---------------------------------------------------------------------------- at random
dims = st.lists(st.sampled_from([1, 2, 3, 5]), min_size=0, max_size=3)


@given(dims, dims, st.sampled_from(["float32", "int32"]))
@settings(max_examples=examples(40), derandomize=True, deadline=None)
def test_broadcasting_as_numpy_does(left, right, dtype):
    try:
        shape = np.broadcast_shapes(left, right)
    except ValueError:
        with pytest.raises(ValueError, match="do not broadcast"):
            te.placeholder(left, dtype) + te.placeholder(right, dtype)
        return
    A, B = te.placeholder(left, dtype, "A"), te.placeholder(right, dtype, "B")
    C = A * 2 + B
    a = np.arange(1, 1 + int(np.prod(left)), dtype=dtype).reshape(left)
    b = np.arange(7, 7 + int(np.prod(right)), dtype=dtype).reshape(right)
    c = np.zeros(shape, dtype)
    interpret(te.create_prim_func([A, B, C]), a, b, c, check_regions=True)
    assert np.array_equal(c, a * 2 + b)
