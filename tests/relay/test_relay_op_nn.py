"""Neural-network operators: types, values where they are quick to say, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te
from tilewright.relay.build_module import optimize
from tilewright.relay.op import OpPattern, get
from tilewright.relay.testing import run_infer_type, te_outputs


def shape_of(expr: Any) -> Any:
    return run_infer_type(expr).checked_type.shape


def test_convolutions_in_many_layouts() -> None:
    def conv(data: Any, weight: Any, **attrs: Any) -> Any:
        call = relay.nn.conv2d(relay.var("x", shape=data), relay.var("w", shape=weight), **attrs)
        te_outputs(call)
        return shape_of(call)

    assert conv((1, 8, 9, 9), (16, 8, 3, 3), strides=2, padding=1) == (1, 16, 5, 5)
    assert conv((1, 8, 9, 9), (16, 2, 3, 3), groups=4, dilation=2) == (1, 16, 5, 5)
    assert conv((1, 8, 9, 9), (8, 1, 3, 3), groups=8, padding=(0, 1, 2, 3)) == (1, 8, 9, 11)
    assert conv((1, 9, 9, 8), (3, 3, 8, 16), data_layout="NHWC", kernel_layout="HWIO") == (1, 7, 7, 16)
    packed = conv((1, 2, 9, 9, 4), (4, 2, 3, 3, 4, 4), data_layout="NCHW4c", kernel_layout="OIHW4i4o")
    assert packed == (1, 4, 7, 7, 4)
    n = te.size_var("n")
    assert conv((n, 8, 9, 9), (16, 8, 3, 3), channels=16, kernel_size=(3, 3))[0] is n
    assert get("nn.conv2d").pattern == OpPattern.OUT_ELEMWISE_FUSABLE


def test_a_small_network(run_graph: Any, rng: Any) -> None:
    x = rng.standard_normal((2, 3, 4, 4)).astype("float32")
    w = rng.standard_normal((5, 48)).astype("float32")
    b = rng.standard_normal(5).astype("float32")
    v, k, c = relay.var("x", shape=x.shape), relay.var("w", shape=w.shape), relay.var("b", shape=b.shape)
    flat = relay.nn.batch_flatten(relay.nn.relu(v))
    out = relay.nn.softmax(relay.nn.bias_add(relay.nn.dense(flat, k), c))
    z = np.maximum(x, 0).reshape(2, -1) @ w.T + b
    want = np.exp(z - z.max(1, keepdims=True))
    np.testing.assert_allclose(run_graph(out, x=x, w=w, b=b), want / want.sum(1, keepdims=True), rtol=1e-4)


def test_pooling_and_padding(run_graph: Any, rng: Any) -> None:
    x = rng.standard_normal((1, 2, 4, 4)).astype("float32")
    v = relay.var("x", shape=x.shape)
    blocks = x.reshape(1, 2, 2, 2, 2, 2)
    pairs = [
        (relay.nn.max_pool2d(v, 2, 2), blocks.max((3, 5))),
        (relay.nn.avg_pool2d(v, 2, 2), blocks.mean((3, 5))),
        (relay.nn.global_avg_pool2d(v), x.mean((2, 3), keepdims=True)),
        (relay.nn.global_max_pool2d(v), x.max((2, 3), keepdims=True)),
        (
            relay.nn.pad(v, ((0, 0), (0, 0), (1, 0), (0, 2)), 7),
            np.pad(x, ((0, 0), (0, 0), (1, 0), (0, 2)), constant_values=7),
        ),
        (
            relay.nn.pad(v, ((0, 0), (0, 0), (1, 1), (2, 2)), 0, "reflect"),
            np.pad(x, ((0, 0), (0, 0), (1, 1), (2, 2)), "reflect"),
        ),
        (
            relay.nn.pad(v, ((0, 0), (0, 0), (1, 1), (2, 2)), 0, "edge"),
            np.pad(x, ((0, 0), (0, 0), (1, 1), (2, 2)), "edge"),
        ),
        (relay.nn.leaky_relu(v, 0.1), np.where(x > 0, x, 0.1 * x)),
        (relay.nn.log_softmax(v, 1), x - np.log(np.exp(x).sum(1, keepdims=True))),
        (
            relay.nn.prelu(v, relay.const([0.5, 0.25])),
            np.where(x > 0, x, x * np.array([0.5, 0.25]).reshape(1, 2, 1, 1)),
        ),
        (relay.nn.dropout(v), x),
    ]
    got = run_graph(relay.Tuple([e for e, _ in pairs]), x=x)
    for (_, want), y in zip(pairs, got, strict=True):
        np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("ceil_mode", "want"), [(False, (1, 2, 3, 3)), (True, (1, 2, 4, 4))])
def test_pool_sizes(ceil_mode: bool, want: Any) -> None:
    call = relay.nn.max_pool2d(relay.var("x", shape=(1, 2, 8, 8)), 3, 2, ceil_mode=ceil_mode)
    assert shape_of(call) == want
    te_outputs(call)


def test_normalisation(run_graph: Any, rng: Any) -> None:
    x = rng.standard_normal((2, 3, 4)).astype("float32")
    v = relay.var("x", shape=x.shape)
    c = [relay.const(rng.uniform(0.5, 1, 3).astype("float32")) for _ in range(4)]
    g, b, m, s = (k.numpy().reshape(1, 3, 1) for k in c)
    norm = relay.nn.batch_norm(v, *c)
    assert len(norm) == 3 and shape_of(norm[1]) == (3,)
    np.testing.assert_allclose(
        run_graph(norm[0], x=x), (x - m) / np.sqrt(s + 1e-5) * g + b, rtol=1e-4, atol=1e-5
    )
    one, zero = relay.const(np.ones(4, "float32")), relay.const(np.zeros(4, "float32"))
    want = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(run_graph(relay.nn.layer_norm(v, one, zero), x=x), want, rtol=1e-4, atol=1e-5)


def test_products(run_graph: Any, rng: Any) -> None:
    a, b = rng.standard_normal((2, 3, 4)).astype("float32"), rng.standard_normal((2, 5, 4)).astype("float32")
    x, y = relay.var("x", shape=a.shape), relay.var("y", shape=b.shape)
    np.testing.assert_allclose(
        run_graph(relay.nn.batch_matmul(x, y), x=a, y=b), a @ b.transpose(0, 2, 1), rtol=1e-4, atol=1e-5
    )
    p, q = relay.var("p", shape=(3, 4)), relay.var("q", shape=(3, 5))
    assert shape_of(relay.nn.matmul(p, q, transpose_a=True)) == (4, 5)
    te_outputs(relay.nn.matmul(p, q, transpose_a=True))
    assert shape_of(
        relay.nn.dense(relay.var("d", shape=(relay.Any(), 7, 4)), relay.var("w", shape=(6, 4)))
    ) == (
        relay.Any(),
        7,
        6,
    )


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (
            lambda x: relay.nn.conv2d(x, relay.var("w", shape=(4, 2, 3, 3))),
            "weight: is Tensor[(4, 2, 3, 3), float32] in OIHW: 2 input channels",
        ),
        (
            lambda x: relay.nn.conv2d(x, relay.var("w", shape=(4, 3, 9, 9))),
            "a window of 9 does not fit into 8",
        ),
        (lambda x: relay.nn.conv2d(x, relay.var("w", shape=(4, 3, 3, 3)), strides=0), "strides: has 0"),
        (lambda x: relay.nn.conv2d(x, relay.var("w", shape=(4, 3, 3, 3)), channels=5), "channels: is 5"),
        (lambda x: relay.nn.conv2d(x, relay.var("w", shape=(4, 3, 3))), "weight: has 3 dimensions"),
        (lambda x: relay.nn.bias_add(x, relay.var("b", shape=(4,))), "bias: has 4 elements"),
        (lambda x: relay.nn.pad(x, ((1, 1),)), "pad_width: has 1 entries"),
        (lambda x: relay.nn.softmax(x, axis=4), "axis: is 4"),
    ],
)
def test_refusals(build: Any, reason: str) -> None:
    with pytest.raises(relay.RelayTypeError) as caught:
        run_infer_type(build(relay.var("x", shape=(1, 3, 8, 8))))
    assert reason in str(caught.value)


def test_blockwise_dense(run_graph: Any, rng: Any) -> None:
    data, packed = (
        rng.standard_normal((2, 32)).astype("float32"),
        rng.integers(0, 256, (3, 16)).astype("uint8"),
    )
    scales = rng.uniform(0.1, 1, (3, 2)).astype("float32")
    q = np.stack([packed & 15, packed >> 4], -1).reshape(3, 2, 16)
    wanted = data @ ((q - 8.0) * scales[:, :, None]).reshape(3, 32).T
    x = relay.var("x", shape=(2, 32))
    weights = [relay.const(v) for v in (packed, scales, np.float32(8))]
    made = relay.nn.blockwise_dense(x, *weights)
    np.testing.assert_allclose(run_graph(made, x=data), wanted, rtol=1e-4, atol=1e-4)
    for target, name in (("llvm", "nn.blockwise_dense"), ("cuda -arch=sm_80", "nn.dense")):
        mod, _ = optimize(tvm.IRModule.from_expr(made), target)
        calls = [e for e in relay.analysis.post_order(mod["main"]) if isinstance(e, relay.Call)]
        assert [c.op.name for c in calls] == [name]  # on a GPU, its weights are floats
    with pytest.raises(relay.RelayTypeError, match="has 32 numbers in a row, in 3 blocks"):
        run_infer_type(relay.nn.blockwise_dense(x, weights[0], relay.const(np.ones((3, 3), "f")), weights[2]))
    with pytest.raises(relay.RelayTypeError, match="weights have 2, 4 or 8 bits"):
        run_infer_type(relay.nn.blockwise_dense(x, *weights, bits=3))


def test_data_is_rounded_where_bytes_are_multiplied() -> None:
    weights = [relay.const(v) for v in (np.zeros((3, 16), "uint8"), np.ones((3, 2), "f"), np.float32(8))]
    made = relay.nn.blockwise_dense(relay.var("x", shape=(2, 32)), *weights, data_bits=8)
    x86 = "llvm -mtriple=x86_64-linux-gnu -mcpu="
    for target, bits in ((x86 + "znver5", 8), (x86 + "haswell", 0)):
        mod, _ = optimize(tvm.IRModule.from_expr(made), target)
        (call,) = [e for e in relay.analysis.post_order(mod["main"]) if isinstance(e, relay.Call)]
        assert call.attrs.data_bits == bits
    with pytest.raises(relay.RelayTypeError, match="is 4; it must be 8, or 0"):
        run_infer_type(relay.nn.blockwise_dense(relay.var("x", shape=(2, 32)), *weights, data_bits=4))


def test_grouped_matmul(run_graph: Any, rng: Any) -> None:
    data, weights = (rng.standard_normal(s).astype("float32") for s in ((5, 4), (3, 4, 6)))
    x, w = relay.var("x", shape=data.shape), relay.var("w", shape=weights.shape)
    ends = relay.var("ends", shape=(3,), dtype="int32")
    made = run_graph(
        relay.nn.grouped_matmul(x, w, ends), x=data, w=weights, ends=np.array([1, 1, 4], "int32")
    )
    want = np.concatenate([data[:1] @ weights[0], data[1:4] @ weights[2], np.zeros((1, 6), "float32")])
    np.testing.assert_allclose(made, want, rtol=1e-4, atol=1e-5)
    with pytest.raises(relay.RelayTypeError, match="weight has 3 groups"):
        run_infer_type(relay.nn.grouped_matmul(x, w, relay.var("ends", shape=(2,), dtype="int32")))
    with pytest.raises(relay.RelayTypeError, match="offsets: must hold integers"):
        run_infer_type(relay.nn.grouped_matmul(x, w, relay.var("ends", shape=(3,))))


def test_cache_update(run_graph: Any, rng: Any) -> None:
    held, new = (rng.standard_normal(s).astype("float32") for s in ((5, 2, 3), (2, 2, 3)))
    cache, rows = relay.var("cache", shape=held.shape), relay.var("rows", shape=new.shape)
    made = run_graph(relay.nn.cache_update(cache, rows), cache=held, rows=new)
    np.testing.assert_array_equal(made, np.concatenate([held[:3], new]))
    with pytest.raises(relay.RelayTypeError, match="rows: has 5 rows and the cache 2"):
        run_infer_type(relay.nn.cache_update(rows, cache))
    with pytest.raises(relay.RelayTypeError, match="the rows of the cache are"):
        run_infer_type(relay.nn.cache_update(cache, relay.var("rows", shape=(1, 2, 4))))
    at = relay.var("at", shape=(2,), dtype="int64")
    made = run_graph(relay.nn.cache_update(cache, rows, at), cache=held, rows=new, at=np.array([4, 1]))
    wanted = held.copy()
    wanted[[4, 1]] = new
    np.testing.assert_array_equal(made, wanted)
    with pytest.raises(
        relay.RelayTypeError, match=r"positions: .* it has an int32 or int64 for each of 2 rows"
    ):
        run_infer_type(relay.nn.cache_update(cache, rows, relay.var("at", shape=(3,), dtype="int64")))
    with pytest.raises(relay.RelayTypeError, match=r"positions: .* it has an int32 or int64"):
        run_infer_type(relay.nn.cache_update(cache, rows, relay.var("at", shape=(2,))))


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_embedding(run_graph: Any, rng: Any, interleaved: bool) -> None:
    x = rng.standard_normal((2, 3, 4, 10)).astype("float32")
    cos, sin = (f(rng.standard_normal((2, 1, 4, 3))).astype("float32") for f in (np.cos, np.sin))
    v, c, s = (relay.var(n, shape=t.shape) for n, t in (("x", x), ("c", cos), ("s", sin)))
    pairs = (np.s_[..., 0:6:2], np.s_[..., 1:6:2]) if interleaved else (np.s_[..., :3], np.s_[..., 3:6])
    want = x.copy()
    want[pairs[0]], want[pairs[1]] = (
        x[pairs[0]] * cos - x[pairs[1]] * sin,
        x[pairs[0]] * sin + x[pairs[1]] * cos,
    )
    made = relay.nn.rotary_embedding(v, c, s, interleaved)
    np.testing.assert_allclose(run_graph(made, x=x, c=cos, s=sin), want, rtol=1e-5, atol=1e-6)


def test_rotary_embedding_refuses_angles_that_do_not_fit() -> None:
    x, wide = relay.var("x", shape=(2, 4, 6)), relay.var("c", shape=(4, 4))
    with pytest.raises(relay.RelayTypeError, match=r"cos: has 4 angles for a last dimension of 6"):
        run_infer_type(relay.nn.rotary_embedding(x, wide, wide))
    other = relay.var("c", shape=(5, 3))
    with pytest.raises(relay.RelayTypeError, match="do not broadcast"):
        run_infer_type(relay.nn.rotary_embedding(x, other, other))


@pytest.mark.parametrize("turned", [False, True])
def test_a_product_of_many_matrices(turned: bool, run_graph: Any, rng: np.random.Generator) -> None:
    a, b = rng.random((2, 3, 4, 5), "float32"), rng.random((4 if turned else 5, 6), "float32")
    x, y = relay.var("x", shape=a.shape), relay.var("y", shape=b.shape)
    got = run_graph(relay.nn.matmul(x, y, transpose_a=turned), x=a, y=b)
    np.testing.assert_allclose(got, (a.swapaxes(2, 3) if turned else a) @ b, rtol=1e-5)
    unknown = relay.var("w", relay.IncompleteType())
    made = run_infer_type(relay.nn.matmul(x, unknown, units=7, transpose_a=turned))
    assert made.checked_type == relay.TensorType((2, 3, 5 if turned else 4, 7))
    with pytest.raises(tvm.TVMError, match="tensor_a: must have 2 dimensions or more"):
        run_infer_type(relay.nn.matmul(relay.var("v", shape=(5,)), y))
