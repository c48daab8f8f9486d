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
