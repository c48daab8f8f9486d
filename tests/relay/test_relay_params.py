"""Parameters of models: on disk, by name, packed when the model is compiled."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.testing import create_workload, mlp


def test_parameters_as_bytes() -> None:
    params = {"w": np.arange(6, dtype="float32").reshape(2, 3), "n": np.array([1, 2], "int64")}
    data = relay.save_param_dict(params)
    back = relay.load_param_dict(data)
    assert set(back) == {"w", "n"}
    for name, value in params.items():
        np.testing.assert_array_equal(back[name].numpy(), value)
    safetensors = pytest.importorskip("safetensors.numpy")
    np.testing.assert_array_equal(safetensors.load(bytes(data))["w"], params["w"])
    with pytest.raises(tvm.TVMError, match="truncated"):
        relay.load_param_dict(bytes(data)[:-3])


def test_a_model_takes_its_parameters_from_bytes() -> None:
    mod, params = mlp.get_workload(1, image_shape=(1, 4, 4))
    lib = relay.build(mod, "llvm", params=params)
    m = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    x = np.ones((1, 1, 4, 4), "float32")
    m.run(data=x)
    want = m.get_output(0).numpy()
    zeros = {n: np.zeros_like(a.numpy()) for n, a in lib.get_params().items()}
    m.set_input(**zeros)
    m.run()
    assert not np.array_equal(m.get_output(0).numpy(), want)
    m.load_params(relay.save_param_dict(lib.get_params()))
    m.run()
    np.testing.assert_array_equal(m.get_output(0).numpy(), want)


def test_parameters_that_a_model_does_not_have_are_left_out_with_a_warning() -> None:
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([x, y], x + y)), "llvm")
    m = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    one = np.ones(2, "float32")
    with pytest.warns(
        UserWarning, match=r"load_params: the model has no '1', 'z'; its inputs are x: float32"
    ):
        m.load_params(relay.save_param_dict({"x": one, "z": one, "1": one, "y": 2 * one}))
    m.run()
    np.testing.assert_array_equal(m.get_output(0).numpy(), 3 * one)


def test_weights_are_packed_once() -> None:
    """The kernel of a product takes its weight in the order in which it reads it."""
    x = relay.var("x", shape=(8, 64))
    w = np.random.default_rng(0).normal(size=(48, 64)).astype("float32")
    func = relay.Function([x], relay.nn.dense(x, relay.const(w)))
    lib = relay.build(tvm.IRModule.from_expr(func), "llvm")
    (packed,) = lib.get_params().values()
    assert sorted(packed.numpy().ravel())[-5:] == sorted(w.ravel())[-5:]
    v = np.random.default_rng(1).normal(size=(8, 64)).astype("float32")
    m = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    m.run(x=v)
    np.testing.assert_allclose(m.get_output(0).numpy(), v @ w.T, rtol=1e-4, atol=1e-4)


def test_an_array_used_twice_is_held_once() -> None:
    x = relay.var("x", shape=(2, 1000))
    c = relay.const(np.ones((2, 1000), "float32"))
    body = relay.Tuple([relay.nn.softmax(x + c), relay.nn.softmax(x * c)])
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([x], body)), "llvm")
    assert len(lib.get_params()) == 1


@pytest.mark.slow
def test_a_parameter_of_the_wrong_shape_is_named() -> None:
    mod, params = mlp.get_workload(1, image_shape=(1, 4, 4))
    lib = relay.build(mod, "llvm", params=params)
    m = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    with pytest.raises(ValueError, match="input 'p0' must have shape"):
        m.set_input("p0", np.zeros((1, 1), "float32"))


def test_workloads_are_the_same_for_the_same_seed() -> None:
    _, a = mlp.get_workload(1)
    _, b = mlp.get_workload(1)
    _, c = mlp.get_workload(1, seed=1)
    np.testing.assert_array_equal(a["fc1_weight"].numpy(), b["fc1_weight"].numpy())
    assert not np.array_equal(a["fc1_weight"].numpy(), c["fc1_weight"].numpy())
    x, w = relay.var("data", shape=(1, 4)), relay.var("w_weight", shape=(2, 4))
    mod, params = create_workload(relay.Function([x, w], relay.nn.dense(x, w)))
    assert set(params) == {"w_weight"} and mod["main"].ret_type == relay.TensorType((1, 2))
