"""Normalisations and softmax against torch, with sums that must not cancel, and shapes of all kinds."""

from __future__ import annotations

import numpy as np
import pytest
from topi_sweeps import sweep

import tilewright as tvm
from tilewright import te, topi

torch = pytest.importorskip("torch")
F = torch.nn.functional


def normal(shape, dtype="float32", seed=0, scale=1.0, shift=0.0):
    return (np.random.default_rng(seed).normal(size=shape) * scale + shift).astype(dtype)


def hold(shape, dtype="float32", name="A"):
    return te.placeholder(shape, dtype, name)


def wide(x):
    return torch.from_numpy(np.asarray(x, "float64"))


# ---------------------------------------------------------------------------- softmax
@pytest.mark.parametrize(
    ("shape", "axis"),
    sweep(
        [((3, 7), -1), ((2, 1, 13, 2), -2), ((0, 4), 1), ((3, 7), 0), ((2, 3, 5), 1), ((1, 1), 1), ((5,), 0)],
        3,
        True,
    ),
)
@pytest.mark.parametrize("name", ["softmax", "fast_softmax", "log_softmax"])
def test_softmax(check, name, shape, axis):
    x = normal(shape, scale=4)
    A = hold(shape)
    reference = F.log_softmax if name == "log_softmax" else F.softmax
    check(
        getattr(topi.nn, name)(A, axis=axis), {A: x}, reference(wide(x), axis).numpy(), rtol=2e-5, atol=1e-6
    )


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_large_numbers_and_infinity(check, name):
    x = np.array([[1e4, 1e4 - 1, 0], [-1e4, -1e4, -1e4], [-np.inf, 0, 1], [88, 89, 90]], "float32")
    A = hold(x.shape)
    check(getattr(topi.nn, name)(A), {A: x}, getattr(F, name)(wide(x), -1).numpy())


@pytest.mark.parametrize("dtype", sweep(["float16", "float64", "bfloat16"]))
def test_softmax_types(check, dtype):
    import ml_dtypes

    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    x = normal((4, 33), scale=3).astype(kind)
    A = hold(x.shape, dtype)
    tolerance = {"float16": 1e-3, "float64": 1e-12, "bfloat16": 1e-2}[dtype]
    wanted = F.softmax(wide(x), -1).numpy()
    check(topi.nn.softmax(A), {A: x}, wanted, rtol=tolerance, atol=tolerance)
    wanted = F.log_softmax(wide(x), -1).numpy()
    check(topi.nn.log_softmax(A), {A: x}, wanted, rtol=tolerance, atol=tolerance)


def test_softmax_over_several_axes(check):
    x = normal((2, 3, 4, 5))
    A = hold(x.shape)
    wanted = F.softmax(wide(x).permute(0, 2, 1, 3).reshape(2, 4, 15), -1)
    wanted = wanted.reshape(2, 4, 3, 5).permute(0, 2, 1, 3).numpy()
    check(topi.nn.softmax(A, axis=[1, -1]), {A: x}, wanted)


@pytest.mark.slow
def test_softmax_of_symbolic_sizes(check):
    n, m = te.var("n"), te.var("m")
    for shape in ((3, 5), (0, 5)):
        x, A = normal(shape), hold((n, m))
        check(topi.nn.softmax(A), {A: x}, F.softmax(wide(x), -1).numpy())
        A = hold((n, m))
        check(topi.nn.log_softmax(A, 0), {A: x}, F.log_softmax(wide(x), 0).numpy())


def test_softmax_is_a_chain_of_plain_stages():
    A = hold((4, 8))
    out = topi.nn.softmax(A)
    (exp, share) = out.op.input_tensors
    (total,) = share.op.input_tensors
    assert (out.op.tag, exp.op.tag, total.op.tag) == ("softmax_output", "injective", "comm_reduce")
    assert out.op.attrs["axis"] == 1
    names = ["T_softmax_exp", "T_softmax_expsum", "T_softmax_share"]
    assert [t.op.name for t in (exp, total, share)] == names
    assert total.op.input_tensors == (exp,)


# ---------------------------------------------------------------------------- batch
@pytest.mark.parametrize(
    ("shape", "axis"), sweep([((2, 3, 4, 5), 1), ((2, 4, 5, 3), 3), ((6, 7), -1), ((0, 3, 2), 1)], 1, True)
)
def test_batch_norm_at_inference(check, shape, axis):
    c = shape[axis]
    x, gamma, beta, mean = normal(shape), normal(c, seed=1), normal(c, seed=2), normal(c, seed=3)
    var = np.random.default_rng(4).random(c).astype("float32") + 0.1
    places = [hold(shape), *(hold((c,), name=n) for n in "gbmv")]
    outs = topi.nn.batch_norm(*places, axis=axis, epsilon=1e-3)
    along = [-1 if i == axis % len(shape) else 1 for i in range(len(shape))]
    g, b, m, v = (t.astype("float64").reshape(along) for t in (gamma, beta, mean, var))
    wanted = (x - m) / np.sqrt(v + 1e-3) * g + b
    check(outs, dict(zip(places, [x, gamma, beta, mean, var])), [wanted, mean, var])


@pytest.mark.parametrize(("center", "scale"), sweep([(True, False), (False, True), (False, False)], 1, True))
def test_batch_norm_without_center_or_scale(check, center, scale):
    x, gamma, beta = normal((2, 3, 4)), normal(3, seed=1), normal(3, seed=2)
    mean, var = normal(3, seed=3), np.array([0.5, 1, 2], "float32")
    places = [hold(x.shape), *(hold((3,), name=n) for n in "gbmv")]
    outs = topi.nn.batch_norm(*places, center=center, scale=scale)
    wanted = F.batch_norm(
        *map(wide, (x, mean, var)), wide(gamma) if scale else None, wide(beta) if center else None
    )
    feed = dict(zip(places, [x, gamma, beta, mean, var]))
    used = [p for p, u in zip(places, [True, scale, center, True, True]) if u]
    check(outs, {p: feed[p] for p in used}, [wanted.numpy(), mean, var])


def test_batch_norm_in_training(check):
    x, gamma, beta = normal((5, 3, 4), shift=2), normal(3, seed=1), normal(3, seed=2)
    mean, var = normal(3, seed=3), np.array([0.5, 1, 2], "float32")
    places = [hold(x.shape), *(hold((3,), name=n) for n in "gbmv")]
    outs = topi.nn.batch_norm(*places, training=True, momentum=0.3)
    wanted = F.batch_norm(*map(wide, (x, mean, var, gamma, beta)), training=True).numpy()
    batch_mean, batch_var = x.astype("float64").mean((0, 2)), x.astype("float64").var((0, 2))
    check(
        outs,
        dict(zip(places, [x, gamma, beta, mean, var])),
        [wanted, 0.7 * mean + 0.3 * batch_mean, 0.7 * var + 0.3 * batch_var],
    )


# ---------------------------------------------------------------------------- layer, instance, group, RMS
@pytest.mark.parametrize(
    ("shape", "axes"),
    sweep(
        [
            ((3, 7), [-1]),
            ((2, 3, 5), [1, 2]),
            ((2, 3, 4, 5), [-1]),
            ((4, 1), [1]),
            ((0, 3), [1]),
            ((1, 13), 1),
        ],
        2,
        True,
    ),
)
def test_layer_norm(check, shape, axes):
    size = [shape[a] for a in (axes if isinstance(axes, list) else [axes])]
    x, gamma, beta = normal(shape, shift=3), normal(size, seed=1), normal(size, seed=2)
    A, G, B = hold(shape), hold(size, name="G"), hold(size, name="B")
    wanted = F.layer_norm(wide(x), size, wide(gamma), wide(beta)).numpy()
    check(topi.nn.layer_norm(A, G, B, axes), {A: x, G: gamma, B: beta}, wanted, rtol=2e-5, atol=2e-5)


def test_layer_norm_over_an_axis_in_the_middle(check):
    x, gamma = normal((2, 5, 3)), normal(5, seed=1)
    A, G = hold(x.shape), hold((5,), name="G")
    wanted = F.layer_norm(wide(x).permute(0, 2, 1), [5], wide(gamma), eps=1e-3).permute(0, 2, 1).numpy()
    check(topi.nn.layer_norm(A, G, None, [1], 1e-3), {A: x, G: gamma}, wanted)


def test_layer_norm_of_a_large_mean_keeps_its_digits(check):
    """The variance by E[x²] - E[x]² would be noise here."""
    x = normal((3, 64), shift=3000.0)
    A = hold(x.shape)
    check(topi.nn.layer_norm(A, None, None, -1), {A: x}, F.layer_norm(wide(x), [64]).numpy(), 2e-3, 2e-3)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_layer_norm_types(check, dtype):
    x, gamma = normal((2, 500), dtype, scale=30, shift=10), normal(500, dtype, seed=1)
    A, G = hold(x.shape, dtype), hold((500,), dtype, "G")
    tolerance = 2e-3 if dtype == "float16" else 1e-10
    wanted = F.layer_norm(wide(x), [500], wide(gamma)).numpy()
    check(topi.nn.layer_norm(A, G, None, -1), {A: x, G: gamma}, wanted, tolerance, tolerance)


@pytest.mark.slow
def test_norms_of_symbolic_sizes(check):
    n, m = te.var("n"), te.var("m")
    for shape in ((3, 5), (0, 4)):
        x, gamma = normal(shape), normal(shape[1], seed=1)
        A, G = hold((n, m)), hold((m,), name="G")
        wanted = F.layer_norm(wide(x), shape[1:], wide(gamma)).numpy()
        check(topi.nn.layer_norm(A, G, None, -1), {A: x, G: gamma}, wanted)
        wanted = F.rms_norm(wide(x), shape[1:], wide(gamma), 1e-5).numpy()
        check(topi.nn.rms_norm(A, G, -1), {A: x, G: gamma}, wanted)


@pytest.mark.parametrize(
    ("shape", "axes"), sweep([((2, 3, 4, 5), [2, 3]), ((2, 4, 5, 3), [1, 2]), ((1, 2, 7), [2])], 1, True)
)
def test_instance_norm(check, shape, axes):
    channel = next(a for a in (1, 3, 2) if a < len(shape) and a not in axes)
    c = shape[channel]
    x, gamma, beta = normal(shape), normal(c, seed=1), normal(c, seed=2)
    A, G, B = hold(shape), hold((c,), name="G"), hold((c,), name="B")
    moved = wide(x).movedim(channel, 1)
    wanted = F.instance_norm(moved, weight=wide(gamma), bias=wide(beta)).movedim(1, channel).numpy()
    check(topi.nn.instance_norm(A, G, B, axes, channel_axis=channel), {A: x, G: gamma, B: beta}, wanted)


def test_instance_norm_whose_scale_belongs_to_the_axes(check):
    x, gamma, beta = normal((2, 3, 4)), normal((3, 4), seed=1), normal((3, 4), seed=2)
    A, G, B = hold((2, 3, 4)), hold((3, 4), name="G"), hold((3, 4), name="B")
    wanted = topi.testing.instance_norm_python(x, gamma, beta, (1, 2))
    check(topi.nn.instance_norm(A, G, B, [1, 2]), {A: x, G: gamma, B: beta}, wanted)


@pytest.mark.parametrize(
    ("shape", "groups"),
    sweep([((2, 6, 4, 5), 3), ((2, 6, 3), 1), ((1, 4, 2, 2), 4), ((0, 4, 3), 2)], 1, True),
)
def test_group_norm(check, shape, groups):
    x, gamma, beta = normal(shape), normal(shape[1], seed=1), normal(shape[1], seed=2)
    A, G, B = hold(shape), hold((shape[1],), name="G"), hold((shape[1],), name="B")
    axes = list(range(2, len(shape)))
    wanted = F.group_norm(wide(x), groups, wide(gamma), wide(beta)).numpy() if x.size else x
    check(topi.nn.group_norm(A, G, B, groups, 1, axes), {A: x, G: gamma, B: beta}, wanted)


@pytest.mark.slow
def test_group_norm_with_channels_last(check):
    x, gamma = normal((2, 4, 5, 6)), normal(6, seed=1)
    A, G = hold(x.shape), hold((6,), name="G")
    wanted = F.group_norm(wide(x).movedim(3, 1), 2, wide(gamma)).movedim(1, 3).numpy()
    check(topi.nn.group_norm(A, G, None, 2, -1, [1, 2]), {A: x, G: gamma}, wanted)


@pytest.mark.parametrize(
    ("shape", "axes"), sweep([((3, 7), [-1]), ((2, 3, 5), [1, 2]), ((1, 1), [1])], 1, True)
)
def test_rms_norm(check, shape, axes):
    size = [shape[a] for a in axes]
    x, weight = normal(shape), normal(size, seed=1)
    A, W = hold(shape), hold(size, name="W")
    wanted = F.rms_norm(wide(x), size, wide(weight), 1e-6).numpy()
    check(topi.nn.rms_norm(A, W, axes, 1e-6), {A: x, W: weight}, wanted)


def test_mean_variance_norm(check):
    x = normal((3, 2, 5, 4), shift=4)
    A = hold(x.shape)
    y = x.astype("float64")
    wanted = (y - y.mean((0, 2, 3), keepdims=True)) / (y.std((0, 2, 3), keepdims=True) + 1e-9)
    check(topi.nn.mean_variance_norm(A), {A: x}, wanted)


# ---------------------------------------------------------------------------- norms of vectors, lrn, scale and shift
@pytest.mark.parametrize("axis", sweep([None, 1, [1, 2], -1], 1))
def test_l2_normalize(check, axis):
    x = normal((2, 3, 4))
    x[0, 0] = 0
    A = hold(x.shape)
    over = tuple(axis) if isinstance(axis, list) else axis
    wanted = x / np.sqrt(np.maximum((x**2).sum(over, keepdims=True), 1e-3))
    check(topi.nn.l2_normalize(A, 1e-3, axis), {A: x}, wanted)


@pytest.mark.parametrize("p", sweep([1, 2, 3.5], 1))
def test_lp_normalize(check, p):
    x = normal((4, 5))
    x[1] = 0
    A = hold(x.shape)
    check(topi.nn.lp_normalize(A, p, -1), {A: x}, F.normalize(wide(x), p, -1).numpy())


@pytest.mark.slow
@pytest.mark.parametrize(("size", "axis"), sweep([(4, 1), (3, 3), (5, 1), (3, 1), (1, 1), (9, 1)], 2, True))
def test_lrn(check, size, axis):
    x = normal((2, 7, 3, 5))
    A = hold(x.shape)
    moved = np.moveaxis(x.astype("float64"), axis, 0)
    total = np.zeros_like(moved)
    for c in range(len(moved)):
        low, high = max(0, c - (size - 1) // 2), min(len(moved), c + size // 2 + 1)
        total[c] = (moved[low:high] ** 2).sum(0)
    wanted = np.moveaxis(moved / (1.5 + 0.2 / size * total) ** 0.6, 0, axis)
    check(topi.nn.lrn(A, size, axis, 0.2, 0.6, 1.5), {A: x}, wanted)


@pytest.mark.slow
def test_lrn_agrees_with_torch(check):
    x = normal((2, 7, 3, 5))
    A = hold(x.shape)
    wanted = F.local_response_norm(wide(x), 5, 1e-2, 0.75, 2.0).numpy()
    check(topi.nn.lrn(A, 5, 1, 1e-2), {A: x}, wanted)


@pytest.mark.parametrize(
    ("name", "shape", "axes"),
    [("nchw", (2, 3, 4, 5), [1]), ("nhwc", (2, 3, 4, 5), [3]), ("nchwc", (2, 3, 4, 5, 8), [1, 4])],
)
def test_scale_shift(check, name, shape, axes):
    size = [shape[a] for a in axes]
    x, scale, shift = normal(shape), normal(size, seed=1), normal(size, seed=2)
    A, S, B = hold(shape), hold(size, name="S"), hold(size, name="B")
    spread = [shape[i] if i in axes else 1 for i in range(len(shape))]
    wanted = x * scale.reshape(spread) + shift.reshape(spread)
    check(getattr(topi.nn, f"scale_shift_{name}")(A, S, B), {A: x, S: scale, B: shift}, wanted)


# ---------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda A, G: topi.nn.softmax(A, 4), "axis is 4 and the tensor has 4 dimensions"),
        (lambda A, G: topi.nn.softmax(A, [1, -3]), "names a dimension twice"),
        (lambda A, G: topi.nn.softmax(te.placeholder((3,), "int32", "I")), "must be of a float type"),
        (
            lambda A, G: topi.nn.layer_norm(A, G, None, [2]),
            r"gamma has shape \(6,?\) where `A` along \(2,\) has \(4",
        ),
        (lambda A, G: topi.nn.group_norm(A, G, None, 4, 1, [2, 3]), "6 channels do not make 4 equal groups"),
        (lambda A, G: topi.nn.group_norm(A, G, None, 2, 1, [1, 2]), "name the channel axis 1"),
        (lambda A, G: topi.nn.instance_norm(A, G, None, [1, 2], channel_axis=1), "and axis names it too"),
        (lambda A, G: topi.nn.batch_norm(A, G, G, G, G, axis=2), "gamma has shape"),
        (lambda A, G: topi.nn.lrn(A, 0), "size is 0"),
        (lambda A, G: topi.nn.lp_normalize(A, 0), "p is 0"),
        (lambda A, G: topi.nn.scale_shift_nchwc(A, G, G), "has 4 dimensions and must have 5"),
    ],
)
def test_refusals(make, reason):
    with pytest.raises(tvm.TVMError, match=reason):
        make(te.placeholder((2, 6, 4, 5), "float32", "A"), te.placeholder((6,), "float32", "G"))
