"""Activation functions against torch, over types, edge values and shapes."""

from __future__ import annotations

import numpy as np
import pytest
from topi_sweeps import sweep

import tilewright as tvm
from tilewright import te, topi

torch = pytest.importorskip("torch")
F = torch.nn.functional

EDGES = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    3.0,
    -3.0,
    6.0,
    0.5,
    -0.5,
    1e-4,
    -1e-4,
    20.5,
    -20.5,
    88.0,
    -88.0,
    300.0,
    -300.0,
]

ACTIVATIONS = {
    "relu": (topi.nn.relu, F.relu),
    "relu6": (topi.nn.relu6, F.relu6),
    "leaky_relu": (lambda x: topi.nn.leaky_relu(x, 0.3), lambda x: F.leaky_relu(x, 0.3)),
    "elu": (topi.nn.elu, F.elu),
    "elu_alpha": (lambda x: topi.nn.elu(x, 0.7), lambda x: F.elu(x, 0.7)),
    "selu": (topi.nn.selu, F.selu),
    "celu": (lambda x: topi.nn.celu(x, 1.7), lambda x: F.celu(x, 1.7)),
    "gelu": (topi.nn.gelu, F.gelu),
    "gelu_tanh": (lambda x: topi.nn.gelu(x, "tanh"), lambda x: F.gelu(x, approximate="tanh")),
    "silu": (topi.nn.silu, F.silu),
    "swish": (lambda x: topi.nn.swish(x, 1.5), lambda x: x * torch.sigmoid(1.5 * x)),
    "mish": (topi.nn.mish, F.mish),
    "hard_sigmoid": (topi.nn.hard_sigmoid, F.hardsigmoid),
    "hard_sigmoid_onnx": (lambda x: topi.nn.hard_sigmoid(x, 0.2, 0.5), lambda x: (x * 0.2 + 0.5).clamp(0, 1)),
    "hard_swish": (topi.nn.hard_swish, F.hardswish),
    "hard_tanh": (lambda x: topi.nn.hard_tanh(x, -0.7, 2.0), lambda x: F.hardtanh(x, -0.7, 2.0)),
    "hard_shrink": (topi.nn.hard_shrink, F.hardshrink),
    "soft_shrink": (topi.nn.soft_shrink, F.softshrink),
    "tanh_shrink": (topi.nn.tanh_shrink, F.tanhshrink),
    "softplus": (topi.nn.softplus, F.softplus),
    "softplus_beta": (lambda x: topi.nn.softplus(x, 2.0, 10.0), lambda x: F.softplus(x, 2.0, 10.0)),
    "softsign": (topi.nn.softsign, F.softsign),
    "log_sigmoid": (topi.nn.log_sigmoid, F.logsigmoid),
    "thresholded_relu": (lambda x: topi.nn.thresholded_relu(x, 0.5), lambda x: F.threshold(x, 0.5, 0.0)),
    "dropout": (topi.nn.dropout, lambda x: x),
}


def edges(dtype):
    return np.concatenate([np.array(EDGES), np.random.default_rng(0).normal(0, 3, 20)]).astype(dtype)


def expected(name, x):
    return ACTIVATIONS[name][1](torch.from_numpy(x.astype("float64"))).numpy()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(check, name):
    x = edges("float32")
    A = te.placeholder(x.shape, "float32", "A")
    # gelu of large negative numbers cancels: 1 + erf(x) has no more digits than 1
    check(ACTIVATIONS[name][0](A), {A: x}, expected(name, x), rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), sweep([("float64", 1e-12), ("float16", 2e-3)], several=True))
@pytest.mark.slow
def test_other_types(check, dtype, tolerance):
    x = edges(dtype)
    A = te.placeholder(x.shape, dtype, "A")
    outs = [ours(A) for ours, _ in ACTIVATIONS.values()]
    assert {str(o.dtype) for o in outs} == {dtype}
    with np.errstate(over="ignore"):
        wanted = [expected(name, x).astype(dtype) for name in ACTIVATIONS]
    check(outs, {A: x}, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["elu", "selu", "celu", "softplus", "log_sigmoid"])
def test_near_zero_and_far_out_keep_their_digits(check, name):
    """exp(x) - 1 and log(1 + exp(x)) written plainly would lose everything here."""
    ours, reference = ACTIVATIONS[name]
    x = np.array([-1e-7, -3e-5, -1e-3, -40.0, 15.0], "float32")
    A = te.placeholder(x.shape, "float32", "A")
    wanted = reference(torch.from_numpy(x.astype("float64"))).numpy()
    check(ours(A), {A: x}, wanted.astype("float32"), rtol=3e-6, atol=0)


def test_nan_stays_nan(check):
    x = np.array([np.nan, np.inf, -np.inf], "float32")
    A = te.placeholder(x.shape, "float32", "A")
    names = ["relu", "silu", "mish", "softplus", "elu", "hard_shrink"]
    wanted = [ACTIVATIONS[name][1](torch.from_numpy(x)).numpy() for name in names]
    for name, w in zip(names, wanted):
        if name in ("silu", "mish"):
            w[2] = np.nan  # -inf · 0, as the definition has it
    check([ACTIVATIONS[name][0](A) for name in names], {A: x}, wanted)


def test_relu_of_integers(check):
    x = np.array([-5, 0, 7, 127, -128], "int8")
    A = te.placeholder(x.shape, "int8", "A")
    check(topi.nn.relu(A), {A: x}, np.maximum(x, 0))
    check(topi.nn.relu6(A), {A: x}, np.clip(x, 0, 6))


@pytest.mark.parametrize(("shape", "axis"), [((2, 3, 5, 7), 1), ((2, 3, 4), -1), ((5,), 0), ((3, 2, 2), 0)])
def test_prelu(check, shape, axis):
    rng = np.random.default_rng(1)
    x, slope = rng.normal(size=shape).astype("float32"), rng.random(shape[axis]).astype("float32")
    A, S = te.placeholder(shape, "float32", "A"), te.placeholder(slope.shape, "float32", "S")
    spread = slope.reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))])
    check(topi.nn.prelu(A, S, axis), {A: x, S: slope}, np.where(x > 0, x, x * spread))


def test_prelu_with_one_slope(check):
    x, slope = np.array([[-1.0, 2.0], [3.0, -4.0]], "float32"), np.array([0.5], "float32")
    A, S = te.placeholder(x.shape, "float32", "A"), te.placeholder((1,), "float32", "S")
    check(topi.nn.prelu(A, S), {A: x, S: slope}, np.where(x > 0, x, x * 0.5))


@pytest.mark.parametrize(("shape", "axis"), [((3, 4), -1), ((6, 3), 0), ((2, 10, 3), 1), ((0, 4), 1)])
def test_glu(check, shape, axis):
    x = np.random.default_rng(2).normal(size=shape).astype("float32")
    A = te.placeholder(shape, "float32", "A")
    check(topi.nn.glu(A, axis), {A: x}, F.glu(torch.from_numpy(x), axis).numpy())


def test_symbolic_and_empty(check):
    n = te.var("n")
    for size in (0, 1, 13):
        x = np.linspace(-2, 2, size, dtype="float32")
        A = te.placeholder((n,), "float32", "A")
        check(topi.nn.silu(A), {A: x}, F.silu(torch.from_numpy(x)).numpy())


def test_stage_tags():
    A, S = te.placeholder((4, 3), "float32", "A"), te.placeholder((3,), "float32", "S")
    assert topi.nn.relu(A).op.tag == "elemwise"
    assert topi.nn.prelu(A, S).op.tag == "broadcast"
    with te.tag_scope("mine"):
        assert topi.nn.gelu(A).op.tag == "mine"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda A: topi.nn.gelu(A, "fast"), "approximate is 'fast'"),
        (lambda A: topi.nn.glu(A, 1), "dimension 1 of `A` is 3 and must be even"),
        (lambda A: topi.nn.glu(A, 2), "axis is 2 and the tensor has 2 dimensions"),
        (
            lambda A: topi.nn.prelu(A, te.placeholder((4,), name="S"), 1),
            "slope has 4 elements and dimension 1",
        ),
        (lambda A: topi.nn.prelu(A, A), "slope has 2 dimensions"),
        (lambda A: topi.nn.celu(A, 0), "alpha is 0"),
        (lambda A: topi.nn.hard_tanh(A, 2, 1), "min_val 2 is above max_val 1"),
        (lambda A: topi.nn.silu(te.placeholder((2,), "int32", "I")), "must be of a float type"),
        (lambda A: topi.nn.relu([1, 2]), "must be a tensor"),
        (lambda A: topi.nn.dropout(A, 1.5), "rate is 1.5"),
    ],
)
def test_refusals(make, reason):
    with pytest.raises(tvm.TVMError, match=reason):
        make(te.placeholder((2, 3), "float32", "A"))
