"""Gradients of tensor expressions, against differences of their values and as programs."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilewright import te, topi
from tilewright.ir.errors import TensorExpressionError
from tilewright.testing import check_numerical_grads
from tilewright.tir.interpret import interpret

rng = np.random.default_rng(0)
A = te.placeholder((3, 4), "float64", "A")
B = te.placeholder((4, 3), "float64", "B")
S = te.placeholder((3, 3), "float64", "S")
X = te.placeholder((1, 2, 5, 5), "float64", "X")
W = te.placeholder((2, 2, 3, 3), "float64", "W")
I = te.placeholder((6,), "int32", "I")
k = te.reduce_axis((0, 4), "k")
l = te.reduce_axis((1, 3), "l")
pair = te.comm_reducer(
    lambda x, y: (te.if_then_else(x[1] >= y[1], x[0], y[0]), te.max(x[1], y[1])),
    lambda i, v: (te.const(-1, i), te.min_value(v)),
)


def shape_of(t):
    return tuple(int(d) for d in t.shape)


def check(out, *inputs, others=(), low=-2.0, high=2.0):
    """The gradients of `sum(out * head)` by `inputs`, compiled by nothing but the interpreter."""
    values = [rng.uniform(low, high, shape_of(t)) for t in inputs]
    fixed = [rng.integers(0, 3, shape_of(t)).astype(str(t.dtype)) for t in others]
    weights = rng.uniform(0.5, 1.5, shape_of(out))
    head = te.placeholder(out.shape, out.dtype, "head")
    grads = te.gradient(out, list(inputs), head)
    forward = te.create_prim_func([*inputs, *others, out])
    backward = te.create_prim_func([*inputs, *others, head, *grads])

    def loss(*arrays):
        made = np.zeros(shape_of(out))
        interpret(forward, *arrays, *fixed, made)
        return np.sum(made * weights)

    found = [np.full(v.shape, np.nan) for v in values]
    interpret(backward, *values, *fixed, weights, *found)
    check_numerical_grads(loss, values, found, delta=1e-5, atol=1e-4, rtol=1e-4)


ELEMENTWISE = {
    "copy": lambda x, y: x,
    "difference": lambda x, y: x - 2.0 * y,
    "product": lambda x, y: x * y * x,
    "quotient": lambda x, y: x / (y * y + 1.0),
    "power": lambda x, y: te.power(te.abs(x) + 0.5, y),
    "exp": lambda x, y: te.exp(x) + te.exp2(y) + te.exp10(x),
    "log": lambda x, y: te.log(x * x + 1.0) + te.log2(y * y + 1.0) + te.log10(x * x + 1.0) + te.log1p(y * y),
    "roots": lambda x, y: te.sqrt(x * x + 1.0) * te.rsqrt(y * y + 1.0),
    "sigmoid": lambda x, y: te.sigmoid(x) * te.tanh(y) + te.erf(x),
    "circle": lambda x, y: te.sin(x) * te.cos(y) + te.tan(x / 4.0) + te.atan(y),
    "arcs": lambda x, y: (
        te.asin(x / 4.0) + te.acos(y / 4.0) + te.asinh(x) + te.acosh(y + 4.0) + te.atanh(x / 4.0)
    ),
    "hyperbola": lambda x, y: te.sinh(x) + te.cosh(y),
    "extremes": lambda x, y: te.max(x, y) + te.min(x, 0.5),
    "guard": lambda x, y: te.if_then_else(x > 0.0, te.log(te.abs(x) + 0.1) * y, y),
    "steps": lambda x, y: te.floor(x) * y + te.ceil(y) * x + te.round(x) + te.trunc(y),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name):
    f = ELEMENTWISE[name]
    check(te.compute((3, 4), lambda i, j: f(A[i, j], B[j, i])), A, B)


REDUCTIONS = {
    "matmul": lambda i, j: te.sum(A[i, k] * B[k, j], axis=k),
    "where": lambda i, j: te.sum(A[i, k] * B[k, j], axis=k, where=k > i),
    "part of an axis": lambda i, j: te.sum(A[i, l] * B[l, j], axis=l),
    "max": lambda i, j: te.max(A[i, k] * B[k, j], axis=k),
    "min of a part": lambda i, j: te.min(A[i, l] * B[l, j], axis=l),
    "prod": lambda i, j: te.prod(A[i, k] + B[k, j], axis=k),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    check(te.compute((3, 3), REDUCTIONS[name]), A, B)


def test_the_value_of_an_argmax_moves_with_its_element():
    index, value = te.compute((3,), lambda i: pair((k.var, A[i, k]), axis=k), name="best")
    assert index.dtype == "int32"
    check(value, A)


ACCESSES = {
    "an element twice": lambda i, j: S[i, j] * S[j, i],
    "a diagonal": lambda i, j: S[i, i] + S[j, 0],
    "reversed": lambda i, j: S[2 - i, j] * S[i, j],
    "outside guarded": lambda i, j: te.if_then_else(i > 0, S[i - 1, j] * S[i - 1, 0], 0.0),
    "clamped": lambda i, j: S[te.min(i + j, 2), j],
}


@pytest.mark.parametrize("name", ACCESSES)
def test_accesses(name):
    check(te.compute((3, 3), ACCESSES[name]), S)


def test_indices_that_are_read():
    check(te.compute((6,), lambda i: S[I[i], 1] * S[0, I[i]]), S, others=[I])


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2)])
def test_convolution(stride, dilation):
    check(topi.nn.conv2d(X, W, stride, 1, dilation), X, W)


def test_a_chain_with_two_readers_of_one_tensor():
    hidden = topi.tanh(topi.matmul(A, B))
    check(topi.nn.softmax(hidden) * hidden, A, B)


def test_reshape_concatenate_and_pool():
    check(topi.reshape(X, (5, 10)), X)
    check(topi.concatenate((A, topi.transpose(B)), 1), A, B)
    check(topi.nn.pool2d(X, [2, 2], [1, 1], [1, 1], [0, 0, 0, 0], "max"), X)


def test_an_intermediate_tensor_is_an_input():
    C = te.compute((3, 4), lambda i, j: A[i, j] * 2.0, name="C")
    D = te.compute((3, 4), lambda i, j: C[i, j] * C[i, j] + A[i, j], name="D")
    ones = te.compute((3, 4), lambda i, j: te.const(1.0, "float64"), name="ones")
    func = te.create_prim_func([A, *te.gradient(D, [C, A], ones)])
    a, dc, da = rng.uniform(size=(3, 4)), np.zeros((3, 4)), np.zeros((3, 4))
    interpret(func, a, dc, da)
    np.testing.assert_allclose(dc, 4 * a)
    np.testing.assert_allclose(da, 8 * a + 1)


def test_casts_are_undone_on_the_way_back(run):
    N = te.placeholder((4,), "float32", "N")
    C = te.compute((4,), lambda i: N[i].astype("float64") * N[i].astype("int32").astype("float64"), name="C")
    head = te.compute((4,), lambda i: te.const(3.0, "float64"), name="head")
    (grad,) = te.gradient(C, N, head)
    assert grad.dtype == "float32"
    n = np.array([1.5, 2.5, -3.5, 0.5], "float32")
    assert np.array_equal(run([N, grad], n, (4,))[1], 3 * np.trunc(n))


def test_without_a_head_it_is_the_jacobian(run):
    C = te.compute((3,), lambda i: te.sum(A[i, k] * A[i, k], axis=k), name="C")
    (jacobian,) = te.gradient(C, A)
    assert shape_of(jacobian) == (3, 3, 4)
    a = rng.uniform(size=(3, 4))
    want = np.einsum("ij,jk->ijk", np.eye(3), 2 * a)
    np.testing.assert_allclose(run([A, jacobian], a, (3, 3, 4))[1], want)


def test_a_scalar_and_several_outputs(run):
    P, Q = te.compute((3, 4), lambda i, j: (A[i, j] * 2.0, A[i, j] * A[i, j]), name="PQ")
    i = te.reduce_axis((0, 3), "i")
    loss = te.compute((), lambda: te.sum(P[i, k] + Q[i, k], axis=[i, k]), name="loss")
    a = rng.uniform(size=(3, 4))
    np.testing.assert_allclose(run([A, te.gradient(loss, A)[0]], a, (3, 4))[1], 2 + 2 * a)


def test_an_input_that_is_not_read_has_the_gradient_zero(run):
    C = te.compute((3, 4), lambda i, j: A[i, j], name="C")
    zero = te.gradient(C, [B], te.compute((2, 3, 4), lambda *_: te.const(1.0, "float64")))[0]
    assert not run([zero], (2, 4, 3))[0].any()


def test_axes_are_solved_and_not_searched(expect):
    R = te.placeholder((9,), name="R")
    K = te.placeholder((3,), name="K")
    r = te.reduce_axis((0, 3), "r")
    C = te.compute((4,), lambda i: te.sum(R[i * 2 + r] * K[r], axis=r), name="C")
    head = te.placeholder((4,), name="head")
    expect(
        te.create_prim_func([K, head, te.gradient(C, [R], head)[0]]),
        """
        @T.prim_func
        def main(K: T.Buffer((3,), "float32"), head: T.Buffer((4,), "float32"), C_R_grad: T.Buffer((9,), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            for i0, r in T.grid(9, 3):
                with T.block("C_R_grad"):
                    v_i0, v_r = T.axis.remap("SR", [i0, r])
                    T.reads(head[(v_i0 - v_r) // 2], K[v_r])
                    T.writes(C_R_grad[v_i0])
                    with T.init():
                        C_R_grad[v_i0] = T.float32(0)
                    C_R_grad[v_i0] = C_R_grad[v_i0] + T.if_then_else((v_i0 - v_r) % 2 == 0 and (v_i0 >= v_r and v_i0 < v_r + 8), head[(v_i0 - v_r) // 2] * K[v_r], T.float32(0))
        """,
    )


def test_symbolic_sizes(run):
    n = te.var("n")
    V = te.placeholder((n,), "float64", "V")
    r = te.reduce_axis((0, n), "r")
    C = te.compute((n,), lambda i: V[i] * V[n - 1 - i], name="C")
    D = te.compute((1,), lambda i: te.sum(C[r], axis=r), name="D")
    one = te.compute((1,), lambda i: te.const(1.0, "float64"), name="one")
    v = rng.uniform(size=5)
    np.testing.assert_allclose(run([V, te.gradient(D, V, one)[0]], v, (5,))[1], 2 * v[::-1])


def refused(f, *words: str) -> None:
    with pytest.raises(TensorExpressionError) as caught:
        f()
    text = re.sub(r"\n  at \S+:\d+", "\n  at LINE", str(caught.value))
    for w in words:
        assert w in text, text


def test_refusals():
    C = te.compute((3, 4), lambda i, j: A[i, j], name="C")
    E = te.extern((3, 4), [A], lambda ins, outs: te.const(0), name="E", dtype="float64")
    F = te.compute((3, 4), lambda i, j: te.fmod(A[i, j], 2.0), name="F")
    refused(
        lambda: te.gradient(C, [I]), "te.gradient: inputs[0] is `I` of type int32, which has no derivative"
    )
    refused(lambda: te.gradient(C, [3]), "te.gradient: inputs[0] is 3 and must be a tensor")
    refused(
        lambda: te.gradient(C, [A], B),
        "te.gradient: head has shape (4, 3), whose last dimensions must be those of `C`, (3, 4)",
    )
    refused(
        lambda: te.gradient(E, [A]), "te.gradient: te.extern `E` is not differentiated", "only te.compute"
    )
    refused(
        lambda: te.gradient(F, [A]), "te.gradient: the derivative of `fmod` is not known", "known are acos,"
    )
