"""The operators of com.microsoft that exporters write, beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
import onnx
from onnx import helper
from onnx_beside import MS, by_onnxruntime, check, one_node

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import onnx_backend
from tilewright.ir.errors import FrontendError

RNG = np.random.default_rng(3)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def bytes_of(*shape: int, kind: str = "uint8") -> Any:
    low, high = (0, 255) if kind == "uint8" else (-127, 127)
    return RNG.integers(low, high, shape).astype(kind)


def number(value: float, kind: str = "float32") -> Any:
    return np.asarray(value, kind)


# ---------------------------------------------------------------------------- products
@pytest.mark.parametrize(
    ("a", "b", "attrs"),
    [
        ((2, 3, 4), (2, 5, 4), {"transB": 1, "alpha": 0.5}),
        ((2, 4, 3), (4, 5), {"transA": 1}),
        ((3, 2, 4), (2, 4, 5), {"transBatchA": 1}),
        ((2, 3, 4), (5, 2, 4), {"transBatchB": 1, "transB": 1}),
    ],
)
def test_fused_matmul(a: Any, b: Any, attrs: Any) -> None:
    check("FusedMatMul", MS, {"a": floats(*a), "b": floats(*b)}, attrs)


@pytest.mark.parametrize("activation", ["Relu", "Tanh", "LeakyRelu"])
def test_fused_gemm_and_conv(activation: str) -> None:
    alpha = {"activation_alpha": 0.2} if activation == "LeakyRelu" else {}
    check(
        "FusedGemm",
        MS,
        {"a": floats(3, 4), "b": floats(5, 4), "c": floats(5)},
        {"transB": 1, "alpha": 0.5, "activation": activation, **alpha},
    )
    more = {"activation_params": [0.2]} if activation == "LeakyRelu" else {}
    check(
        "FusedConv",
        MS,
        {"x": floats(1, 2, 6, 5), "w": floats(3, 2, 3, 3), "b": floats(3)},
        {"activation": activation, "pads": [1, 1, 1, 1], **more},
    )


@pytest.mark.parametrize("activation", ["Elu", "HardSigmoid", "Softplus", "Softsign", "ThresholdedRelu"])
def test_the_other_activations_of_a_fused_product(activation: str) -> None:
    fields = {"Elu": ["alpha"], "ThresholdedRelu": ["alpha"], "HardSigmoid": ["alpha", "beta"]}.get(
        activation, []
    )
    attrs = {f"activation_{f}": 0.3 + i / 4 for i, f in enumerate(fields)}
    check(
        "FusedGemm", MS, {"a": floats(3, 4), "b": floats(4, 5)}, {"activation": activation, **attrs}, tol=1e-4
    )
    if activation == "HardSigmoid":
        more = {"activation": activation, "activation_params": [0.3, 0.4]}
        check("FusedConv", MS, {"x": floats(1, 2, 5, 5), "w": floats(3, 2, 2, 2)}, more, tol=1e-4)


def test_operators_that_are_those_of_the_standard() -> None:
    check("GatherND", MS, {"x": floats(3, 4, 5), "i": np.array([[0, 1], [2, 3]], np.int64)})
    check("Range", MS, {"a": number(1), "b": number(7), "d": number(2)}, constants=("a", "b", "d"))


def test_nhwc_conv_is_a_convolution() -> None:
    import torch

    x, w, b = floats(1, 6, 5, 2), floats(3, 3, 3, 2), floats(3)
    model = one_node("NhwcConv", MS, {"x": x, "w": w, "b": b}, {"pads": [1, 0, 1, 0], "strides": [2, 1]})
    (found,) = onnx_backend.run_model(model, [x, w, b])
    nchw = [torch.tensor(v.transpose(0, 3, 1, 2)) for v in (x, w)]
    wanted = torch.nn.functional.conv2d(*nchw, torch.tensor(b), stride=(2, 1), padding=(1, 0))
    np.testing.assert_allclose(found, wanted.permute(0, 2, 3, 1).numpy(), rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------------------- weights of few bits
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("deep", "block"), [(64, 32), (40, 16)])
@pytest.mark.parametrize("zeros", ["none", "packed", "floats"])
def test_matmul_of_few_bits(bits: int, deep: int, block: int, zeros: str) -> None:
    if bits == 8 and zeros == "floats":
        pytest.skip("onnxruntime has no float zero points for 8 bits")
    rows, count = 6, -(-deep // block)
    inputs = {
        "a": floats(2, 3, deep),
        "b": bytes_of(rows, count, block * bits // 8),
        "s": RNG.uniform(0.01, 0.1, (rows, count)).astype(np.float32),
        "z": None,
    }
    if zeros == "packed":
        inputs["z"] = bytes_of(rows, -(-count * bits // 8))
    if zeros == "floats":
        inputs["z"] = RNG.uniform(5, 9, (rows, count)).astype(np.float32)
    attrs = {"K": deep, "N": rows, "bits": bits, "block_size": block}
    check("MatMulNBits", MS, inputs, attrs, constants=("b", "s", "z"), tol=1e-3)


def test_matmul_of_few_bits_with_bias_and_two_bits_refused() -> None:
    inputs = {
        "a": floats(3, 32),
        "b": bytes_of(4, 1, 16),
        "s": floats(4, 1),
        "z": None,
        "g": None,
        "bias": floats(4),
    }
    attrs = {"K": 32, "N": 4, "bits": 4, "block_size": 32}
    check("MatMulNBits", MS, inputs, attrs, constants=("b", "s", "bias"), tol=1e-3)
    model = one_node("MatMulNBits", MS, inputs, attrs | {"bits": 3})
    with pytest.raises(FrontendError, match="weights of 3 bits are not supported; 2, 4 and 8 are"):
        relay.frontend.from_onnx(model)


@pytest.mark.parametrize(("level", "bits"), [(None, 0), (0, 0), (1, 0), (3, 0), (4, 8), (5, None)])
def test_level_of_accuracy(level: int | None, bits: int | None) -> None:
    """Level 4 allows data of 8 bits; a level that does not exist is refused."""
    inputs = {"a": floats(3, 64), "b": bytes_of(5, 2, 16), "s": RNG.uniform(0.01, 0.1, (5, 2)).astype("f")}
    attrs = {"K": 64, "N": 5, "bits": 4, "block_size": 32}
    attrs |= {} if level is None else {"accuracy_level": level}
    model = one_node("MatMulNBits", MS, inputs, attrs)
    if bits is None:
        with pytest.raises(FrontendError, match="accuracy_level=5 is not supported; 0 to 4 are"):
            relay.frontend.from_onnx(model)
        return
    mod, _ = relay.frontend.from_onnx(model)
    calls = [e for e in relay.analysis.post_order(mod["main"]) if isinstance(e, relay.Call)]
    (product,) = [c for c in calls if c.op.name == "nn.blockwise_dense"]
    assert product.attrs.data_bits == bits
    q = np.stack([inputs["b"] & 15, inputs["b"] >> 4], -1).reshape(5, 2, 32)
    wanted = inputs["a"] @ ((q - 8.0) * inputs["s"][:, :, None]).reshape(5, 64).T
    found = tvm.compile(model)(*inputs.values())
    np.testing.assert_allclose(found, wanted, atol=(0.02 if bits else 1e-5) * np.abs(wanted).max())


@pytest.mark.parametrize("zeros", [False, True])
def test_gather_block_quantized(zeros: bool) -> None:
    inputs = {
        "data": bytes_of(7, 32),
        "i": np.array([[0, 6, 2], [1, 1, 5]], np.int64),
        "s": RNG.uniform(0.01, 0.1, (7, 4)).astype(np.float32),
        "z": bytes_of(7, 2) if zeros else None,
    }
    check(
        "GatherBlockQuantized",
        MS,
        inputs,
        {"block_size": 16, "bits": 4, "quantize_axis": 1},
        constants=("data", "s", "z"),
    )


# ---------------------------------------------------------------------------- integers
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_qlinear_of_two(kind: str) -> None:
    pair = {
        "a": bytes_of(2, 3, 4, kind=kind), "as": number(0.02), "az": number(7, kind),
        "b": bytes_of(3, 4, kind=kind), "bs": number(0.03), "bz": number(3, kind),
        "ys": number(0.05), "yz": number(5, kind),
    }  # fmt: skip
    check("QLinearAdd", MS, pair, step=1)
    check("QLinearMul", MS, pair | {"ys": number(0.01)}, step=1)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("QLinearSigmoid", {}),
        ("QLinearLeakyRelu", {"alpha": 0.2}),
        ("QLinearSoftmax", {"axis": -1, "opset": 13}),
        ("QLinearGlobalAveragePool", {}),
        ("QLinearAveragePool", {"kernel_shape": [2, 2], "pads": [1, 0, 1, 0]}),
        ("QLinearAveragePool", {"kernel_shape": [2, 3], "channels_last": 1, "strides": [1, 2]}),
    ],
)
def test_qlinear_of_one(op: str, attrs: dict[str, Any], kind: str) -> None:
    inputs = {
        "x": bytes_of(2, 4, 5, 3, kind=kind), "xs": number(0.02), "xz": number(7, kind), "ys": number(1 / 128),
        "yz": number(2, kind),
    }  # fmt: skip
    constants = (
        ("xs", "xz", "ys", "yz") if op in ("QLinearSoftmax", "QLinearSigmoid", "QLinearLeakyRelu") else ()
    )
    check(op, MS, inputs, attrs, constants=constants, step=1)


def test_qlinear_concat_and_where() -> None:
    two = {"xs": number(0.02), "xz": number(7, "uint8")}
    check(
        "QLinearConcat",
        MS,
        {
            "ys": number(0.03), "yz": number(4, "uint8"), "x": bytes_of(2, 3), **two,
            "z": bytes_of(2, 5), "zs": number(0.05), "zz": number(9, "uint8"),
        },
        {"axis": 1},
        step=1,
    )  # fmt: skip
    check(
        "QLinearWhere",
        MS,
        {
            "c": RNG.integers(0, 2, (2, 3)).astype(bool), "x": bytes_of(2, 3), **two, "z": bytes_of(2, 3),
            "zs": number(0.05), "zz": number(9, "uint8"), "ys": number(0.03), "yz": number(4, "uint8"),
        },
        step=1,
        constants=("xs", "xz", "zs", "zz", "ys", "yz"),
    )  # fmt: skip


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("real", [False, True])
def test_qgemm(each: bool, real: bool) -> None:
    many = 5
    inputs = {
        "a": bytes_of(3, 4), "as": number(0.02), "az": number(7, "uint8"),
        "b": bytes_of(many, 4, kind="int8"),
        "bs": RNG.uniform(0.01, 0.02, many).astype(np.float32) if each else number(0.03),
        "bz": np.zeros(many, np.int8) if each else number(0, "int8"),
        "c": RNG.integers(-500, 500, many).astype(np.int32),
        "ys": None if real else number(0.05), "yz": None if real else number(5, "uint8"),
    }  # fmt: skip
    check("QGemm", MS, inputs, {"transB": 1, "alpha": 0.5}, step=1)


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.slow
def test_products_of_integers_to_floats(each: bool) -> None:
    scale = RNG.uniform(0.01, 0.02, 5).astype(np.float32) if each else number(0.03)
    b = bytes_of(4, 5, kind="int8")
    check(
        "MatMulIntegerToFloat",
        MS,
        {
            "a": bytes_of(2, 3, 4), "b": b, "as": number(0.02), "bs": scale, "az": number(9, "uint8"), "bz": None,
            "bias": floats(5),
        },
        constants=("b",),
    )  # fmt: skip
    check(
        "DynamicQuantizeMatMul",
        MS,
        {"a": floats(2, 3, 4), "b": b, "bs": scale, "bz": None, "bias": floats(5)},
        constants=("b",),
        tol=1e-4,
    )


# ---------------------------------------------------------------------------- activations and norms
def test_activations() -> None:
    for op, attrs in (("Gelu", {}), ("QuickGelu", {"alpha": 1.5}), ("FastGelu", {})):
        check(op, MS, {"x": floats(3, 8)}, attrs)
    for op in ("BiasGelu", "FastGelu"):
        check(op, MS, {"x": floats(3, 8), "b": floats(8)})


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.slow
def test_skipped_norms(bias: bool) -> None:
    x = {"x": floats(2, 3, 8), "s": floats(2, 3, 8), "g": floats(8)}
    extra = {"bias": floats(8) if bias else None}
    outs = ("y", "", "", "sum")
    check("SkipLayerNormalization", MS, {**x, "beta": floats(8), **extra}, {"epsilon": 1e-5}, outs, tol=1e-4)
    check("SkipSimplifiedLayerNormalization", MS, {**x, **extra}, {"epsilon": 1e-5}, outs, tol=1e-4)
    check("SkipLayerNormalization", MS, {**x, "s": floats(3, 8), "beta": None}, {}, tol=1e-4)


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("positions", [False, True])
def test_embed_layer_norm(segments: bool, positions: bool) -> None:
    ids = RNG.integers(0, 9, (2, 4)).astype(np.int32)
    inputs = {
        "ids": ids,
        "seg": RNG.integers(0, 2, (2, 4)).astype(np.int32) if segments else None,
        "words": floats(9, 8),
        "places": floats(6, 8),
        "kinds": floats(2, 8) if segments else None,
        "g": floats(8),
        "b": floats(8),
        "mask": np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32),
        "at": np.array([[1, 2, 3, 4], [0, 1, 2, 3]], np.int32) if positions else None,
    }
    check("EmbedLayerNormalization", MS, inputs, {"epsilon": 1e-5}, ("y", "m", "sum"), tol=1e-4)


# ---------------------------------------------------------------------------- attention
@pytest.mark.parametrize("mask", ["none", "lengths", "ends", "keys", "rows"])
@pytest.mark.parametrize("past", [0, 3])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.slow
def test_attention(mask: str, past: int, causal: int) -> None:
    batch, rows, hidden, heads = 2, 4, 8, 2
    keys = past + rows
    masks = {
        "none": None,
        "lengths": np.array([keys, keys - 1], np.int32),
        "ends": np.array([keys, keys - 1, 1, 0], np.int32),
        "keys": (np.arange(keys) < [[keys], [keys - 2]]).astype(np.int32),
        "rows": RNG.integers(0, 2, (batch, rows, keys)).astype(np.int32),
    }
    masks["rows"][:, :, 0] = 1
    x = {"x": floats(batch, rows, 6), "w": floats(6, 3 * hidden), "b": floats(3 * hidden), "m": masks[mask]}
    held = floats(2, batch, heads, past, hidden // heads) if past else None
    outs = ("y", "present") if past else ("y",)
    attrs = {"num_heads": heads, "unidirectional": causal}
    check("Attention", MS, {**x, "past": held}, attrs, outs, tol=1e-4)


@pytest.mark.slow
def test_attention_with_other_widths_and_bias() -> None:
    x = {"x": floats(2, 3, 6), "w": floats(6, 8 + 8 + 12), "b": floats(28), "m": None, "p": None}
    attrs = {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 12], "scale": 0.3}
    check("Attention", MS, {**x, "bias": floats(1, 2, 3, 3)}, attrs, tol=1e-4)


@pytest.mark.parametrize("past", [0, 2])
@pytest.mark.parametrize("each", [False, True])
@pytest.mark.slow
def test_quantized_attention(past: int, each: bool) -> None:
    hidden, heads = 8, 2
    inputs = {
        "x": bytes_of(2, 3, 6), "w": bytes_of(6, 3 * hidden, kind="int8"), "b": floats(3 * hidden), "xs": number(0.02),
        "ws": RNG.uniform(0.01, 0.02, 3 * hidden).astype(np.float32) if each else number(0.01),
        "m": None if past else np.array([3, 2], np.int32), "xz": number(120, "uint8"),
        "wz": np.zeros(3 * hidden, np.int8) if each else number(0, "int8"),
        "p": floats(2, 2, heads, past, hidden // heads) if past else None,
    }  # fmt: skip
    outs = ("y", "present") if past else ("y",)
    check(
        "QAttention", MS, inputs, {"num_heads": heads, "unidirectional": 1}, outs, ("w", "ws", "wz"), tol=1e-4
    )


@pytest.mark.parametrize("form", ["plain", "bias", "past", "cross", "masked"])
def test_multi_head_attention(form: str) -> None:
    batch, rows, heads, width = 2, 3, 2, 4
    keys = 5 if form in ("cross", "masked") else rows
    inputs: dict[str, Any] = {
        "q": floats(batch, rows, heads * width),
        "k": floats(batch, keys, heads * width),
        "v": floats(batch, keys, heads * width),
    }
    inputs |= dict.fromkeys(["bias", "mask", "extra", "pk", "pv"])
    outs: tuple[str, ...] = ("y",)
    attrs = {"num_heads": heads}
    if form == "bias":
        inputs["bias"], attrs["unidirectional"] = floats(3 * heads * width), 1
    if form == "masked":
        inputs["mask"] = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]], np.int32)
        inputs["extra"] = floats(1, heads, rows, keys)
    if form == "past":
        inputs["pk"], inputs["pv"] = floats(batch, heads, 2, width), floats(batch, heads, 2, width)
        outs = ("y", "present_k", "present_v")
    check("MultiHeadAttention", MS, inputs, attrs, outs, tol=1e-4)


def test_multi_head_attention_of_packed_tensors() -> None:
    """The same as from separate tensors; onnxruntime has packed ones on GPUs only."""
    q, k, v = (floats(2, 3, 2, 4) for _ in range(3))
    flat = {name: e.reshape(2, 3, 8) for name, e in (("q", q), ("k", k), ("v", v))}
    wanted = check("MultiHeadAttention", MS, flat, {"num_heads": 2}, tol=1e-4)[0]
    every = {"q": np.stack([q, k, v], 3), "k": None, "v": None}
    both = {"q": flat["q"], "k": np.stack([k, v], 3), "v": None}
    for inputs in (every, both):
        model = one_node("MultiHeadAttention", MS, inputs, {"num_heads": 2})
        (found,) = onnx_backend.run_model(model, {k: v for k, v in inputs.items() if v is not None})
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("given", ["offset", "each", "heads"])
def test_rotary_embedding(interleaved: int, given: str) -> None:
    x = floats(2, 3, 8) if given != "heads" else floats(2, 2, 3, 4)
    at = np.array([2], np.int64) if given == "offset" else np.array([[0, 1, 2], [3, 4, 5]], np.int64)
    angle = RNG.uniform(0, 3, (9, 2))
    tables = {"c": np.cos(angle).astype(np.float32), "s": np.sin(angle).astype(np.float32)}
    check("RotaryEmbedding", MS, {"x": x, "p": at, **tables}, {"interleaved": interleaved})


@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize("case", ["prompt", "decode", "shared", "packed", "uneven", "window"])
@pytest.mark.slow
def test_group_query_attention(case: str, rotary: int) -> None:
    batch, heads, kv, width = (1 if case in ("decode", "packed") else 2), 4, 2, 16
    rows = 5 if case in ("prompt", "packed", "window") else 1
    past = {"decode": 6, "shared": 4, "uneven": 6}.get(case, 0)
    room = 10 if case == "shared" else past
    total = past + rows
    lengths = np.full(batch, total - 1, np.int32)
    if case == "uneven":
        lengths[1] -= 2
    inputs: dict[str, Any] = {
        "q": floats(batch, rows, heads * width),
        "k": floats(batch, rows, kv * width),
        "v": floats(batch, rows, kv * width),
        "pk": floats(batch, kv, room, width) if past else None,
        "pv": floats(batch, kv, room, width) if past else None,
        "n": lengths,
        "t": np.array(total, np.int32),
    }
    if case == "packed":
        inputs["q"], inputs["k"], inputs["v"] = floats(batch, rows, (heads + 2 * kv) * width), None, None
    if rotary:
        angle = RNG.uniform(0, 3, (16, width // 2))
        inputs |= {"c": np.cos(angle).astype(np.float32), "s": np.sin(angle).astype(np.float32)}
    attrs = {"num_heads": heads, "kv_num_heads": kv, "do_rotary": rotary}
    if case == "window":
        attrs |= {"local_window_size": 3, "softcap": 5.0}
    model = one_node("GroupQueryAttention", MS, inputs, attrs, ("y", "nk", "nv"))
    feeds = {k: v for k, v in inputs.items() if v is not None}
    wanted = by_onnxruntime(model, feeds)
    found = list(onnx_backend.run_model(model, feeds))
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4, atol=1e-4)
    for f, w in zip(found[1:], wanted[1:], strict=True):
        assert f.shape == w.shape
        for b in range(batch):  # rows behind the last key are unspecified
            np.testing.assert_allclose(
                f[b, :, : lengths[b] + 1], w[b, :, : lengths[b] + 1], rtol=1e-4, atol=1e-4
            )


@pytest.mark.slow
def test_group_query_attention_over_any_past() -> None:
    """One compiled program for all lengths: the cache grows step by step."""
    heads, kv, width = 2, 1, 16
    shapes: dict[str, Any] = {
        "q": [1, 1, heads * width], "k": [1, 1, kv * width], "v": [1, 1, kv * width], "pk": [1, kv, "past", width],
        "pv": [1, kv, "past", width], "n": [1], "all": [1, "total"], "c": [16, width // 2], "s": [16, width // 2],
    }  # fmt: skip
    ints = {"n": onnx.TensorProto.INT32}
    nodes = [
        helper.make_node("Shape", ["all"], ["t64"], start=1, end=2),
        helper.make_node("Cast", ["t64"], ["t1"], to=onnx.TensorProto.INT32),
        helper.make_node("Squeeze", ["t1"], ["t"]),
        helper.make_node(
            "GroupQueryAttention", ["q", "k", "v", "pk", "pv", "n", "t", "c", "s"], ["y", "nk", "nv"], domain=MS,
            num_heads=heads, kv_num_heads=kv, do_rotary=1,
        ),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(k, ints.get(k, onnx.TensorProto.FLOAT), v) for k, v in shapes.items()],
        [helper.make_empty_tensor_value_info(o) for o in ("y", "nk", "nv")],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    mod, _ = relay.frontend.from_onnx(model)
    names = [p.name_hint for p in mod["main"].params]
    run = relay.create_executor("vm", mod, tvm.cpu(), "llvm").evaluate()
    angle = RNG.uniform(0, 3, (16, width // 2))
    fixed = {"c": np.cos(angle).astype(np.float32), "s": np.sin(angle).astype(np.float32)}
    for past in (0, 1, 5):
        feeds = {
            k: floats(*[past if d == "past" else past + 1 if d == "total" else d for d in v])
            for k, v in shapes.items()
        }
        feeds |= {**fixed, "n": np.array([past], np.int32)}
        wanted = by_onnxruntime(model, feeds)
        found = run(*(feeds[n] for n in names))
        for i in range(3):
            np.testing.assert_allclose(found[i].numpy(), wanted[i], rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------------------- other settings
@pytest.mark.parametrize("turn_a", [0, 1])
@pytest.mark.parametrize("turn_b", [0, 1])
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_qgemm_of_transposed_operands_with_zero_points(turn_a: int, turn_b: int, kind: str) -> None:
    each = bool(turn_a)
    inputs = {
        "a": bytes_of(*((4, 3) if turn_a else (3, 4))), "as": number(0.02), "az": number(120, "uint8"),
        "b": bytes_of(*((5, 4) if turn_b else (4, 5)), kind=kind),
        "bs": RNG.uniform(0.001, 0.02, 5).astype(np.float32) if each else number(0.03),
        "bz": bytes_of(5, kind=kind) if each else number(9, kind),
        "c": RNG.integers(-300, 300, (3, 5)).astype(np.int32), "ys": number(0.3), "yz": number(5, "uint8"),
    }  # fmt: skip
    check("QGemm", MS, inputs, {"transA": turn_a, "transB": turn_b, "alpha": 0.5}, step=1)


@pytest.mark.parametrize(
    ("a", "b", "attrs"),
    [
        ((3, 2, 4), (4, 2, 5), {"transBatchA": 1, "transBatchB": 1}),
        ((4, 2, 3), (2, 4, 5), {"transBatchA": 1, "transA": 1}),
        ((4,), (2, 4, 5), {}),
        ((2, 3, 4), (4,), {"alpha": 2.0}),
    ],
)
def test_fused_matmul_of_vectors_and_turned_batches(a: Any, b: Any, attrs: Any) -> None:
    check("FusedMatMul", MS, {"a": floats(*a), "b": floats(*b)}, attrs)


@pytest.mark.parametrize("axis", [1, -1])
def test_simplified_norm_over_several_dimensions(axis: int) -> None:
    inputs = {"x": floats(2, 3, 8), "g": floats(*((3, 8) if axis == 1 else (8,)))}
    check("SimplifiedLayerNormalization", "", inputs, {"axis": axis, "epsilon": 1e-5}, ("y", "inv"), tol=1e-4)


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_qlinear_softmax_before_opset_13(axis: int) -> None:
    """Then it is over all dimensions from the axis on."""
    inputs = {
        "x": bytes_of(2, 4, 5, 3), "xs": number(0.02), "xz": number(7, "uint8"), "ys": number(0.01),
        "yz": number(2, "uint8"),
    }  # fmt: skip
    attrs = {"axis": axis, "opset": 12}
    check("QLinearSoftmax", MS, inputs, attrs, constants=("xs", "xz", "ys", "yz"), step=1)


@pytest.mark.slow
def test_attention_over_the_keys_of_an_encoder() -> None:
    """Keys and values that are over heads already have their bias; the queries get theirs."""
    inputs = {"q": floats(2, 3, 16), "k": floats(2, 2, 5, 8), "v": floats(2, 2, 5, 8), "bias": floats(48)}
    check("MultiHeadAttention", MS, inputs, {"num_heads": 2}, tol=1e-4)


@pytest.mark.parametrize(
    ("attrs", "more"),
    [
        ({"smooth_softmax": 1}, {}),
        ({"scale": 0.1}, {}),
        ({}, {"at": None, "bias": (1, 4, 5, 5)}),
        ({}, {"at": None, "bias": None, "sink": (4,)}),
    ],
)
@pytest.mark.slow
def test_group_query_attention_with_bias_and_sinks(attrs: Any, more: Any) -> None:
    rows, heads, kv, width = 5, 4, 2, 16
    inputs: dict[str, Any] = {
        "q": floats(1, rows, heads * width), "k": floats(1, rows, kv * width), "v": floats(1, rows, kv * width),
        "pk": None, "pv": None, "n": np.array([rows - 1], np.int32), "t": np.array(rows, np.int32), "c": None, "s": None,
    }  # fmt: skip
    inputs |= {name: None if shape is None else floats(*shape) for name, shape in more.items()}
    given = {"num_heads": heads, "kv_num_heads": kv} | attrs
    check("GroupQueryAttention", MS, inputs, given, ("y", "nk", "nv"), tol=1e-4)


# ---------------------------------------------------------------------------- operators of the standard
@pytest.mark.parametrize("kind", ["uint8", "int8", "uint16"])
def test_quantize_and_back(kind: str) -> None:
    pair = {"s": number(0.05), "z": number(3, kind)}
    check("QuantizeLinear", MS, {"x": floats(2, 3), **pair}, step=1)
    held = np.arange(6).reshape(2, 3).astype(kind)
    check("DequantizeLinear", MS, {"x": held, **pair})
    if kind == "int8":
        each = {"s": RNG.uniform(0.1, 1, 2).astype(np.float32), "z": bytes_of(2, kind=kind)}
        check("DequantizeLinear", MS, {"x": held, **each}, {"axis": 0})


@pytest.mark.slow
def test_operators_of_the_standard_in_this_domain() -> None:
    check("Trilu", MS, {"x": floats(3, 4)}, {"upper": 0})
    check("GridSample", MS, {"x": floats(1, 2, 4, 5), "g": floats(1, 3, 3, 2) * 0.4})
    check("ExpandDims", MS, {"x": floats(3, 4), "at": np.array(1, np.int32)}, constants=("at",))
    check("Pad", MS, {"x": floats(2, 3), "pads": np.array([0, 1, 1, 0])}, constants=("pads",))
    check("NhwcMaxPool", MS, {"x": bytes_of(1, 5, 5, 2)}, {"kernel_shape": [2, 2], "strides": [2, 1]})
    pair = {"a": bytes_of(3, 4).astype(np.int16), "b": bytes_of(4, 5).astype(np.int16)}
    check("MatMulInteger16", MS, pair)
    for metric in ("euclidean", "sqeuclidean"):
        check("CDist", MS, {"a": floats(3, 4), "b": floats(5, 4)}, {"metric": metric}, tol=1e-4)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.slow
def test_qlinear_conv_with_channels_last(last: int) -> None:
    inputs = {
        "x": bytes_of(*((1, 5, 6, 2) if last else (1, 2, 5, 6))), "xs": number(0.1), "xz": number(3, "uint8"),
        "w": bytes_of(3, 2, 3, 3, kind="int8"), "ws": number(0.02), "wz": number(0, "int8"), "ys": number(0.5),
        "yz": number(2, "uint8"),
    }  # fmt: skip
    attrs = {"channels_last": last, "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    check("QLinearConv", MS, inputs, attrs, constants=("w", "ws", "wz"), step=1)
