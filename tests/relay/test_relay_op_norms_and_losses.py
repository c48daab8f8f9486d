"""Norms, losses, blocks of pixels, upsampling and packed products: types, values, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import relay, te
from tilewright.relay.testing import run_infer_type

nn = relay.nn


def var(name: str, *shape: Any, dtype: str = "float32") -> Any:
    return relay.var(name, shape=shape, dtype=dtype)


def shape_of(expr: Any) -> Any:
    return run_infer_type(expr).checked_type.shape


def _normal(x: Any, axes: Any) -> Any:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


def test_norms(run_graph: Any, rng: Any) -> None:
    x = rng.standard_normal((2, 4, 3, 3)).astype("float32")
    g, b, w = (rng.standard_normal(n).astype("float32") for n in (4, 4, 3))
    v, vg, vb, vw = var("x", 2, 4, 3, 3), var("g", 4), var("b", 4), var("w", 3)
    scale, shift = g.reshape(4, 1, 1), b.reshape(4, 1, 1)
    grouped = _normal(x.reshape(2, 2, 2, 3, 3), (2, 3, 4)).reshape(x.shape)
    padded = np.pad(x * x, ((0, 0), (1, 1), (0, 0), (0, 0)))
    near = padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]
    pairs = [
        (nn.instance_norm(v, vg, vb), _normal(x, (2, 3)) * scale + shift),
        (nn.instance_norm(v, vg, vb, center=False), _normal(x, (2, 3)) * scale),
        (nn.group_norm(v, vg, vb, 2), grouped * scale + shift),
        (nn.rms_norm(v, vw), x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w),
        (nn.l2_normalize(v, 1e-6, axis=[1]), x / np.sqrt((x * x).sum(1, keepdims=True))),
        (nn.lrn(v, 3, alpha=0.5), x / (2 + 0.5 / 3 * near) ** 0.75),
    ]
    got = run_graph(relay.Tuple([e for e, _ in pairs]), x=x, g=g, b=b, w=w)
    for (call, want), y in zip(pairs, got, strict=True):
        np.testing.assert_allclose(y, want, rtol=1e-3, atol=1e-4, err_msg=call.op.name)


def test_losses(run_graph: Any, rng: Any) -> None:
    p = rng.uniform(0.1, 1, (3, 4)).astype("float32")
    t = rng.uniform(0, 1, (3, 4)).astype("float32")
    w = rng.uniform(1, 2, 4).astype("float32")
    ids = np.array([1, 0, 3], "int32")
    vp, vt, vw, vi = var("p", 3, 4), var("t", 3, 4), var("w", 4), var("i", 3, dtype="int32")
    each = -p[np.arange(3), ids] * w[ids]
    pairs = [
        (nn.cross_entropy(vp, vt), -(np.log(p) * t).sum() / 3),
        (nn.cross_entropy_with_logits(vp, vt), -(p * t).sum() / 3),
        (nn.nll_loss(vp, vi, vw, "none"), each),
        (nn.nll_loss(vp, vi, vw), each.sum() / w[ids].sum()),
    ]
    got = run_graph(relay.Tuple([e for e, _ in pairs]), p=p, t=t, w=w, i=ids)
    for (_, want), y in zip(pairs, got, strict=True):
        np.testing.assert_allclose(y, want, rtol=1e-4)


def test_moved_pixels(run_graph: Any, rng: Any) -> None:
    x = rng.standard_normal((2, 4, 2, 6)).astype("float32")
    v = var("x", 2, 4, 2, 6)
    blocks = x.reshape(2, 2, 2, 1, 2, 6)
    crd = blocks.transpose(0, 3, 4, 1, 5, 2).reshape(2, 1, 4, 12)
    batches = np.concatenate([np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0)))[:, i::2] for i in range(2)], 0)
    spread = np.zeros((2, 7, 2, 16), "float32")
    spread[:, ::2, :, ::3] = x
    pairs = [
        (nn.depth_to_space(v, 2), crd),
        (nn.space_to_depth(nn.depth_to_space(v, 2), 2), x),
        (nn.depth_to_space(v, 2, mode="CRD"), crd),
        (nn.depth_to_space(v, 2, mode="CDR"), crd),
        (nn.space_to_batch_nd(v, [2, 1], [[0, 0], [1, 1]]), batches),
        (
            nn.batch_to_space_nd(nn.space_to_batch_nd(v, [2, 1], [[0, 0], [1, 1]]), [2, 1], [[0, 0], [1, 1]]),
            x,
        ),
        (
            nn.mirror_pad(v, ((0, 0), (1, 1), (0, 0), (2, 0))),
            np.pad(x, ((0, 0), (1, 1), (0, 0), (2, 0)), "symmetric"),
        ),
        (
            nn.mirror_pad(v, ((0, 0), (1, 1), (0, 0), (2, 0)), "REFLECT"),
            np.pad(x, ((0, 0), (1, 1), (0, 0), (2, 0)), "reflect"),
        ),
        (nn.dilate(v, (1, 2, 1, 3)), spread),
        (nn.upsampling(v, 2, 3), x.repeat(2, 2).repeat(3, 3)),
        (nn.upsampling3d(relay.expand_dims(v, 0), 1, 2, 2), x[None].repeat(2, 3).repeat(2, 4)),
        (
            nn.fifo_buffer(relay.strided_slice(v, [0, 0, 0, 0], [1, 4, 2, 6]), v, 0),
            np.concatenate([x[1:], x[:1]]),
        ),
    ]
    got = run_graph(relay.Tuple([e for e, _ in pairs]), x=x)
    for (call, want), y in zip(pairs, got, strict=True):
        np.testing.assert_allclose(y, want, rtol=1e-5, err_msg=call.op.name)


def test_packed_and_sparse_products(run_graph: Any, rng: Any) -> None:
    x, w = (rng.standard_normal(s).astype("float32") for s in ((3, 8), (8, 8)))
    v, k = var("x", 3, 8), var("w", 8, 8)
    rows = nn.contrib_dense_pack(v, relay.layout_transform(k, "NC", "NC4n"), "NC4n")
    both = nn.contrib_dense_pack(v, relay.layout_transform(k, "NC", "NC4n2c"), "NC4n2c")
    for got in run_graph(relay.Tuple([rows, both]), x=x, w=w):
        np.testing.assert_allclose(got, x @ w.T, rtol=1e-4, atol=1e-5)

    matrix = np.array([[0, 2, 0], [0, 0, 0], [1, 0, 3], [0, 4, 0]], "float32")
    csr = (
        relay.const(np.array([2, 1, 3, 4], "float32")),
        relay.const(np.array([1, 0, 2, 1], "int32")),
        relay.const(np.array([0, 1, 1, 3, 4], "int32")),
    )
    d = rng.standard_normal((2, 3)).astype("float32")
    made = [nn.sparse_dense(var("d", 2, 3), csr), nn.sparse_dense(var("e", 2, 3), csr, sparse_lhs=True)]
    right, left = run_graph(relay.Tuple(made), d=d, e=d)
    np.testing.assert_allclose(right, d @ matrix.T, rtol=1e-5)
    np.testing.assert_allclose(left, matrix @ d.T, rtol=1e-5)


def test_symbolic_and_unknown_sizes() -> None:
    n = te.size_var("n")
    assert shape_of(nn.group_norm(var("x", n, 4, relay.Any()), var("g", 4), var("b", 4), 2)) == (
        n,
        4,
        relay.Any(),
    )
    assert str(shape_of(nn.upsampling(var("x", 1, 4, n, 5), 2, 2))[2]) == "n * 2"
    assert shape_of(nn.upsampling(var("x", 1, 4, n, 5), 1.5, 1.5))[2:] == (relay.Any(), 8)
    assert shape_of(nn.depth_to_space(var("x", n, 4, relay.Any(), 5), 2)) == (n, 1, relay.Any(), 10)
    assert shape_of(nn.nll_loss(var("p", n, 4), var("t", n, dtype="int64"), var("w", 4), "none"))[0] is n


REFUSALS: list[tuple[Callable[[Any], Any], str]] = [
    (
        lambda x: nn.group_norm(x, var("g", 4), var("b", 4), 3),
        "num_groups: the number of channels is 4 and must be",
    ),
    (
        lambda x: nn.instance_norm(x, var("g", 5), var("b", 4)),
        "gamma: has 5 elements and dimension 1 of data 4",
    ),
    (lambda x: nn.instance_norm(x, var("g", 2), var("b", 2), axis=0), "axis: is 0, which is the batch"),
    (lambda x: nn.depth_to_space(x, 3), "data: the number of channels is 4 and must be a multiple of 9"),
    (
        lambda x: nn.space_to_batch_nd(x, [3], [[0, 0]]),
        "data: dimension 1 with its padding is 4 and must be a multiple",
    ),
    (lambda x: nn.mirror_pad(x, ((0, 0), (5, 0), (0, 0), (0, 0))), "pad_width: (5, 0) for dimension 1 of 4"),
    (lambda x: nn.upsampling(x, -1, 1), "scale: -1.0 must be positive"),
    (lambda x: nn.cross_entropy(var("p", 2, 3), var("t", 3, 2)), "targets: are Tensor[(3, 2), float32]"),
    (
        lambda x: nn.nll_loss(var("p", 2, 3), var("t", 2), var("w", 3)),
        "targets: are float32 and must be integers",
    ),
]


@pytest.mark.parametrize(("build", "reason"), REFUSALS)
def test_refusals(build: Any, reason: str) -> None:
    with pytest.raises(relay.RelayTypeError) as caught:
        run_infer_type(build(var("x", 2, 4, 2, 6)))
    assert reason in str(caught.value)
