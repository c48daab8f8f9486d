"""Attention with masks, shared heads and windows, rotary embedding, table lookup, losses, against torch."""

from __future__ import annotations

import numpy as np
import pytest
from topi_sweeps import sweep

import tilewright as tvm
from tilewright import te, topi

torch = pytest.importorskip("torch")
F = torch.nn.functional


def normal(shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def wide(x):
    return torch.from_numpy(np.asarray(x, "float64"))


def three(q_shape, k_shape, v_shape=None, dtype="float32"):
    arrays = [normal(s, dtype, i) for i, s in enumerate((q_shape, k_shape, v_shape or k_shape))]
    places = [te.placeholder(a.shape, dtype, n) for a, n in zip(arrays, "QKV")]
    return places, arrays


def reference(q, k, v, **more):
    return F.scaled_dot_product_attention(wide(q), wide(k), wide(v), **more).numpy()


# ---------------------------------------------------------------------------- attention
@pytest.mark.slow
@pytest.mark.parametrize(
    ("q", "k", "v"),
    sweep(
        [
            ((2, 3, 5, 4), (2, 3, 7, 4), None),
            ((3, 5, 4), (3, 7, 4), (3, 7, 6)),
            ((1, 1, 1, 1), (1, 1, 1, 1), None),
            ((5, 8), (11, 8), None),
            ((0, 2, 3, 4), (0, 2, 3, 4), None),
        ],
        2,
        True,
    ),
)
def test_attention(check, q, k, v):
    places, arrays = three(q, k, v)
    check(topi.nn.scaled_dot_product_attention(*places), dict(zip(places, arrays)), reference(*arrays))


@pytest.mark.slow
def test_attention_scale_and_half(check):
    places, arrays = three((2, 2, 5, 8), (2, 2, 6, 8), dtype="float16")
    out = topi.nn.scaled_dot_product_attention(*places, scale=0.7)
    assert out.dtype == "float16"
    check(out, dict(zip(places, arrays)), reference(*arrays, scale=0.7), 3e-3, 3e-3)


@pytest.mark.slow
@pytest.mark.parametrize("lengths", sweep([(3, 7), (5, 5), (7, 3), (1, 4)]))
def test_causal(check, lengths):
    m, n = lengths
    places, arrays = three((2, 2, m, 4), (2, 2, n, 4))
    out = topi.nn.scaled_dot_product_attention(*places, is_causal=True)
    check(out, dict(zip(places, arrays)), reference(*arrays, is_causal=True))


@pytest.mark.slow
def test_causal_after_a_cache(check):
    """Two new queries behind three cached keys: offset says where they stand."""
    places, arrays = three((1, 2, 2, 4), (1, 2, 5, 4))
    out = topi.nn.scaled_dot_product_attention(*places, is_causal=True, offset=3)
    mask = torch.from_numpy(np.arange(5)[None] <= np.arange(2)[:, None] + 3)
    check(out, dict(zip(places, arrays)), reference(*arrays, attn_mask=mask))


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", sweep(["bool", "float32"], 0))
def test_masks(check, kind):
    places, arrays = three((2, 3, 4, 5), (2, 3, 6, 5))
    feed, outs, wanted = dict(zip(places, arrays)), [], []
    for shape in [(4, 6), (1, 1, 4, 6), (2, 1, 4, 6), (2, 3, 4, 6), (1, 6)]:
        mask = normal(shape, seed=9)
        mask = mask > 0 if kind == "bool" else mask
        if kind == "bool":
            mask[..., 0] = True
        M = te.placeholder(shape, kind, f"M{len(outs)}")
        feed[M] = mask
        outs.append(topi.nn.scaled_dot_product_attention(*places, attn_mask=M))
        given = torch.from_numpy(mask) if kind == "bool" else wide(mask)
        wanted.append(reference(*arrays, attn_mask=given))
    check(outs, feed, wanted)


@pytest.mark.slow
def test_a_query_that_sees_nothing_gets_zeros(check):
    places, arrays = three((1, 1, 3, 4), (1, 1, 5, 4))
    mask = np.ones((3, 5), bool)
    mask[1] = False
    M = te.placeholder(mask.shape, "bool", "M")
    out = topi.nn.scaled_dot_product_attention(*places, attn_mask=M)
    wanted = reference(*arrays, attn_mask=torch.from_numpy(mask))
    wanted[0, 0, 1] = 0
    check(out, {**dict(zip(places, arrays)), M: mask}, wanted)


@pytest.mark.parametrize("heads", sweep([(6, 3), (4, 2), (6, 1)]))
@pytest.mark.slow
def test_shared_heads(check, heads):
    places, arrays = three((2, heads[0], 5, 4), (2, heads[1], 7, 4))
    q, k, v = arrays
    wanted = reference(q, *(np.repeat(t, heads[0] // heads[1], 1) for t in (k, v)))
    check(topi.nn.scaled_dot_product_attention(*places), dict(zip(places, arrays)), wanted)


@pytest.mark.parametrize("window", sweep([(2, 0), 1, (0, 3), (-1, 1), (2, -1)]))
@pytest.mark.slow
def test_window(check, window):
    places, arrays = three((1, 2, 6, 4), (1, 2, 6, 4))
    before, after = window if isinstance(window, tuple) else (window, window)
    i, j = np.arange(6)[:, None], np.arange(6)[None]
    mask = ((before < 0) | (j >= i - before)) & ((after < 0) | (j <= i + after))
    out = topi.nn.scaled_dot_product_attention(*places, window=window)
    check(out, dict(zip(places, arrays)), reference(*arrays, attn_mask=torch.from_numpy(mask)))
    check(topi.nn.window_mask(6, 6, window), {}, mask)


@pytest.mark.slow
def test_symbolic_lengths(check):
    n = te.var("n")
    for length in (1, 5):
        arrays = [normal((2, length, 4), seed=i) for i in range(3)]
        places = [te.placeholder((2, n, 4), "float32", name) for name in "QKV"]
        out = topi.nn.scaled_dot_product_attention(*places, is_causal=True)
        check(out, dict(zip(places, arrays)), reference(*arrays, is_causal=True))


def test_masks_as_tensors(check):
    check(topi.nn.causal_mask(3, 5, 1), {}, np.tril(np.ones((3, 5), bool), 1))
    slopes = topi.nn.alibi_slopes(4)
    assert slopes == [2**-2, 2**-4, 2**-6, 2**-8]
    assert topi.nn.alibi_slopes(3) == [2**-4, 2**-8, 2**-2]
    i, j = np.arange(3)[:, None], np.arange(4)[None]
    wanted = np.array(slopes)[:, None, None] * (j - i)
    check(topi.nn.alibi_bias(slopes, 3, 4), {}, wanted)
    S = te.placeholder((4,), "float32", "S")
    check(
        topi.nn.alibi_bias(S, 3, 4, 1),
        {S: np.array(slopes, "float32")},
        wanted - np.array(slopes)[:, None, None],
    )


@pytest.mark.slow
def test_alibi_in_attention(check):
    places, arrays = three((1, 4, 3, 8), (1, 4, 3, 8))
    bias = topi.nn.alibi_bias(topi.nn.alibi_slopes(4), 3, 3)
    out = topi.nn.scaled_dot_product_attention(*places, attn_mask=bias, is_causal=True)
    i, j = np.arange(3)[:, None], np.arange(3)[None]
    mask = np.where(j <= i, np.array(topi.nn.alibi_slopes(4))[:, None, None] * (j - i), -np.inf)
    check(out, dict(zip(places, arrays)), reference(*arrays, attn_mask=torch.from_numpy(mask)))


# ---------------------------------------------------------------------------- rotary embedding
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("shape", "half"), sweep([((2, 3, 5, 8), 4), ((5, 6), 2), ((1, 2), 1)], 1, True))
def test_rotary(check, shape, half, interleaved):
    x, angle = normal(shape), normal((shape[-2], half), seed=1)
    cos, sin = np.cos(angle), np.sin(angle)
    X = te.placeholder(shape, "float32", "X")
    C, S = (te.placeholder(cos.shape, "float32", n) for n in "CS")
    wanted = x.copy()
    pairs = [(2 * d, 2 * d + 1) if interleaved else (d, d + half) for d in range(half)]
    for d, (a, b) in enumerate(pairs):
        wanted[..., a] = x[..., a] * cos[:, d] - x[..., b] * sin[:, d]
        wanted[..., b] = x[..., a] * sin[:, d] + x[..., b] * cos[:, d]
    check(topi.nn.rotary_embedding(X, C, S, interleaved), {X: x, C: cos, S: sin}, wanted)


# ---------------------------------------------------------------------------- embedding
@pytest.mark.parametrize("dtype", sweep(["int32", "int64", "uint8"]))
def test_embedding(check, dtype):
    table = normal((11, 5))
    ids = np.array([[0, 10, 3], [7, 7, 1]], dtype)
    I, W = te.placeholder(ids.shape, dtype, "I"), te.placeholder(table.shape, "float32", "W")
    check(topi.nn.embedding(I, W), {I: ids, W: table}, table[ids])


def test_embedding_stays_in_the_table(check):
    table = np.arange(6, dtype="int32").reshape(3, 2)
    ids = np.array([-5, 99, 1], "int32")
    I, W = te.placeholder((3,), "int32", "I"), te.placeholder((3, 2), "int32", "W")
    check(topi.nn.embedding(I, W), {I: ids, W: table}, table[[0, 2, 1]])


# ---------------------------------------------------------------------------- losses
@pytest.mark.parametrize("reduction", sweep(["mean", "none", "sum"]))
@pytest.mark.parametrize("shape", sweep([(2, 5, 3), (4, 5), (5,)]))
@pytest.mark.parametrize("name", ["nll_loss", "cross_entropy_loss"])
def test_losses(check, name, shape, reduction):
    classes = shape[0] if len(shape) == 1 else shape[1]
    places = () if len(shape) == 1 else (shape[0], *shape[2:])
    x, weight = normal(shape), np.random.default_rng(3).random(classes).astype("float32")
    ids = np.random.default_rng(4).integers(0, classes, places).astype("int64")
    ids = np.asarray(ids)
    if ids.ndim:
        ids.flat[0] = -100
    X, T, W = (te.placeholder(a.shape, str(a.dtype), n) for a, n in ((x, "X"), (ids, "T"), (weight, "W")))
    function = F.nll_loss if name == "nll_loss" else F.cross_entropy
    for w in (None, weight):
        out = getattr(topi.nn, name)(X, T, None if w is None else W, reduction)
        wanted = function(
            wide(x), torch.from_numpy(ids), None if w is None else wide(w), reduction=reduction
        ).numpy()
        check(out, {X: x, T: ids, **({} if w is None else {W: weight})}, wanted)


def test_cross_entropy_of_probabilities(check):
    p = np.random.default_rng(0).random((4, 3)).astype("float32")
    t = np.random.default_rng(1).random((4, 3)).astype("float32")
    P, T = (te.placeholder(p.shape, "float32", n) for n in "PT")
    check(topi.nn.cross_entropy(P, T), {P: p, T: t}, np.float32(-(np.log(p) * t).sum() / 4))
    check(topi.nn.cross_entropy_with_logits(P, T), {P: p, T: t}, np.float32(-(p * t).sum() / 4))


# ---------------------------------------------------------------------------- refusals
def _place(*shape, dtype="float32", name="A"):
    return te.placeholder(shape, dtype, name)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda sdpa: sdpa(_place(2, 3), _place(2, 4), _place(2, 4)), "the width of query and key differ"),
        (lambda sdpa: sdpa(_place(2, 3), _place(2, 3), _place(4, 3)), "the length of key and value differ"),
        (lambda sdpa: sdpa(_place(2, 3), _place(1, 2, 3), _place(2, 3)), "have 2, 3, 2 dimensions"),
        (
            lambda sdpa: sdpa(_place(4, 2, 3), _place(3, 2, 3), _place(3, 2, 3)),
            "4 heads of the query do not make equal groups for 3",
        ),
        (
            lambda sdpa: sdpa(_place(2, 3), _place(2, 3), _place(2, 3), _place(5, 2, 2)),
            r"attn_mask \(5, 2, 2\) is larger",
        ),
        (
            lambda sdpa: sdpa(_place(2, 3), _place(2, 3), _place(2, 3), _place(2, 2, dtype="int32")),
            "attn_mask is int32",
        ),
        (lambda _: topi.nn.embedding(_place(2), _place(2, 3)), "indices is float32"),
        (lambda _: topi.nn.embedding(_place(2, dtype="int32"), _place(2)), "weight has 1 dimensions"),
        (
            lambda _: topi.nn.rotary_embedding(_place(2, 4), _place(2, 3), _place(2, 3)),
            "3 angles for the 2 pairs",
        ),
        (lambda _: topi.nn.nll_loss(_place(2, 4), _place(3, dtype="int32")), "targets have shape"),
        (
            lambda _: topi.nn.nll_loss(_place(2, 4), _place(2, dtype="int32"), None, "avg"),
            "reduction is 'avg'",
        ),
        (lambda _: topi.nn.window_mask(3, 3, (1, 2, 3)), "window has 3 numbers"),
    ],
)
def test_refusals(make, reason):
    with pytest.raises(tvm.TVMError, match=reason):
        make(topi.nn.scaled_dot_product_attention)
