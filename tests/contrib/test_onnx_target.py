"""contrib.target.onnx: graphs as models of ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib.target.onnx import to_onnx

onnx = pytest.importorskip("onnx")


def net() -> tuple[Any, Any]:
    x, w = relay.var("x", shape=(2, 4)), relay.var("w", shape=(3, 4))
    params = {"w": np.arange(12, dtype="float32").reshape(3, 4)}
    return tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.softmax(relay.nn.dense(x, w)))), params


def test_there_and_back(tmp_path):
    mod, params = net()
    path = tmp_path / "net.onnx"
    model = to_onnx(mod, params, "net", path=path)
    onnx.checker.check_model(model)
    again, weights = relay.frontend.from_onnx(onnx.load(str(path)))
    data = np.random.default_rng(0).standard_normal((2, 4)).astype("float32")
    wanted = relay.create_executor("graph", mod).evaluate()(data, params["w"])
    got = relay.create_executor("graph", again, params=weights).evaluate()(data)
    np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-5)


def test_what_onnx_lacks_is_refused():
    x = relay.var("x", shape=(2,))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.op.annotation.stop_fusion(x)))
    with pytest.raises(tvm.ir.BuildError, match=r"no operator of ONNX for annotation\.stop_fusion here"):
        to_onnx(mod, None, "net")
    with pytest.raises(tvm.TVMError, match="for version 17 of the operator set, not for 11"):
        to_onnx(net()[0], None, "net", opset_version=11)


def _bn(x: Any) -> Any:
    c = [relay.const(np.linspace(0.5, 1.5, 4).astype("float32") + i) for i in range(4)]
    return relay.nn.batch_norm(x, *c)[0]


IMAGE = (1, 4, 6, 6)
OPERATORS: dict[str, Any] = {
    "batch_norm": (_bn, IMAGE),
    "dropout": (lambda x: relay.nn.dropout(x) + relay.const(1.0), IMAGE),
    "pad": (lambda x: relay.nn.pad(x, ((0, 0), (0, 1), (2, 0), (1, 1)), 3.0), IMAGE),
    "pad reflect": (lambda x: relay.nn.pad(x, ((0, 0), (0, 0), (2, 1), (1, 2)), pad_mode="reflect"), IMAGE),
    "lrn": (lambda x: relay.nn.lrn(x, size=3, axis=1), IMAGE),
    "conv2d_transpose": (
        lambda x: relay.nn.conv2d_transpose(
            x, relay.const(np.linspace(-1, 1, 72).reshape(4, 2, 3, 3)), strides=(2, 2), padding=(1, 1),
            output_padding=(1, 1),
        ),
        IMAGE,
    ),
    "compare": (lambda x: relay.where(relay.not_equal(x > relay.const(0.0), x < relay.const(0.5)), x, -x), (3, 4)),
    "likes": (lambda x: relay.zeros_like(x) + relay.ones_like(x) * x, (3, 4)),
    "take": (lambda x: relay.take(x, relay.const([2, 0]), axis=0), (3, 4)),
    "split": (lambda x: relay.split(x, [1, 3], axis=1)[1] * relay.const(2.0), (3, 4)),
    "slice": (lambda x: relay.strided_slice(x, [0, -3], [2, 100], [1, 2]), (3, 4)),
    "slice back": (lambda x: relay.strided_slice(x, [3], [-10], [-1], axes=[1]), (3, 4)),
    "slice size": (lambda x: relay.strided_slice(x, [1, 0], [2, -1], slice_mode="size"), (3, 4)),
    "argmax": (lambda x: relay.argmax(x, axis=1), (3, 4)),
    "mean of others": (lambda x: relay.mean(x, axis=[0], exclude=True), (3, 4)),
    "round": (lambda x: relay.round(x * relay.const(3.0)), (3, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_there_and_back(name: str) -> None:
    build, shape = OPERATORS[name]
    x = relay.var("x", shape=shape)
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], build(x))))
    model = to_onnx(mod, None, "net")
    onnx.checker.check_model(model, full_check=True)
    data = np.random.default_rng(0).standard_normal(shape).astype("float32")
    from onnx.reference import ReferenceEvaluator

    (got,) = ReferenceEvaluator(model).run(None, {model.graph.input[0].name: data})
    wanted = relay.create_executor("graph", mod).evaluate()(data).numpy()
    assert got.dtype == wanted.dtype
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_a_layout_that_onnx_lacks_is_refused() -> None:
    x = relay.var("x", shape=(1, 6, 6, 4))
    w = relay.const(np.ones((3, 3, 4, 2)))
    y = relay.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWIO", kernel_size=(3, 3), channels=2)
    with pytest.raises(tvm.ir.BuildError, match=r"nn.conv2d has data_layout='NHWC', and ONNX has 'NCHW'"):
        to_onnx(tvm.IRModule.from_expr(relay.Function([x], y)), None, "net")
