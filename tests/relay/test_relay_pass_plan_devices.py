"""PlanDevices: parts of a model for a GPU on its host, and devices that are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.ir.errors import BuildError
from tilewright.target import Target


def placed(device: Any) -> tvm.IRModule:
    x = relay.var("x", shape=(4,), dtype="float32")
    return tvm.IRModule.from_expr(relay.Function([x], relay.annotation.on_device(relay.exp(x), device) + x))


def two_devices() -> tvm.IRModule:
    """A product on the device, a concatenation and exp on the host, the rest on the device."""
    x = relay.var("x", shape=(4, 8))
    product = relay.nn.dense(x, relay.const(np.eye(8, dtype="float32")))
    there = relay.annotation.on_device(product, "opencl")
    body = relay.exp(relay.concatenate([there, relay.negative(there)], axis=1))
    return tvm.IRModule.from_expr(
        relay.Function([x], relay.tanh(relay.annotation.on_device(body, "cpu")) + relay.const(1.0))
    )


def test_calls_for_the_host_are_functions() -> None:
    with Target("opencl"):
        made = relay.transform.PlanDevices()(placed("cpu"))
    assert str(made["main"].body).splitlines() == [
        "free_var %x: Tensor[(4), float32];",
        "%0 = fn (%p0: Tensor[(4), float32], Primitive=1, OnHost=1) -> Tensor[(4), float32] {",
        "  exp(%p0) /* ty=Tensor[(4), float32] */",
        "} /* ty=fn (Tensor[(4), float32]) -> Tensor[(4), float32] */;",
        "%1 = %0(%x) /* ty=Tensor[(4), float32] */;",
        '%2 = on_device(%1, device="cpu") /* ty=Tensor[(4), float32] */;',
        "add(%2, %x) /* ty=Tensor[(4), float32] */",
    ]


@pytest.mark.needs("opencl")
@pytest.mark.slow
def test_a_model_runs_on_a_device_and_its_host() -> None:
    mod, x = two_devices(), np.random.default_rng(0).random((4, 8), "float32")
    lib = relay.build(mod, {"cpu": "llvm", "opencl": "opencl"})
    steps = [line for line in lib.explain().splitlines() if not line.startswith(" ")]
    host = "the host, between copies: it is placed on the CPU"
    assert [s for s in steps if "dense" in s or "tanh" in s] == [
        "fused_nn_dense: opencl",
        "fused_tanh_add: opencl",
    ]
    assert [s.partition(": ")[2] for s in steps if "dense" not in s and "tanh" not in s] == [host] * 3
    executor = graph_executor.GraphModule(lib["default"](tvm.opencl(0)))
    executor.set_input("x", x)
    executor.run()
    want = np.tanh(np.exp(np.concatenate([x, -x], 1))) + 1
    np.testing.assert_allclose(executor.get_output(0).numpy(), want, rtol=1e-5)


def copied(there: Any, here: Any) -> tvm.IRModule:
    x = relay.var("x", shape=(4,))
    body = relay.tanh(relay.device_copy(relay.exp(x), there, here))
    return tvm.IRModule.from_expr(relay.Function([x], body))


def test_copies_between_devices() -> None:
    x = np.arange(4, dtype="float32")
    run = relay.create_executor("graph", copied("cpu", tvm.cpu(0)), target="llvm").evaluate()
    np.testing.assert_allclose(run(x).numpy(), np.tanh(np.exp(x)), rtol=1e-6)
    with pytest.raises(BuildError, match="the model is compiled for llvm, and a model runs on one"):
        relay.build(copied("cpu", "cuda"), "llvm")
    with Target("opencl"):
        placed = relay.transform.PlanDevices()(copied("cpu", "opencl"))
    assert str(placed).count("OnHost=1") == 1


@pytest.mark.needs("opencl")
def test_a_copy_from_the_host() -> None:
    x = np.arange(4, dtype="float32")
    lib = relay.build(copied("cpu", "opencl"), {"cpu": "llvm", "opencl": "opencl"})
    executor = graph_executor.GraphModule(lib["default"](tvm.opencl(0)))
    executor.run(x=x)
    np.testing.assert_allclose(executor.get_output(0).numpy(), np.tanh(np.exp(x)), rtol=1e-5)


@pytest.mark.parametrize("device", ["cpu", tvm.cpu(0), "llvm"])
def test_the_device_of_the_target_stays(device: Any) -> None:
    x = np.arange(4, dtype="float32")
    found = relay.create_executor("graph", placed(device), target="llvm").evaluate()(x).numpy()
    np.testing.assert_allclose(found, np.exp(x) + x, rtol=1e-6)


@pytest.mark.parametrize("build", [relay.build, relay.vm.compile])
def test_another_device_is_refused(build: Any) -> None:
    with pytest.raises(BuildError, match=r"on_device\(…, 'cuda\(0\)'\): the model is compiled for llvm"):
        build(placed(tvm.cuda(0)), "llvm")


def test_nothing_to_place_is_the_same_function() -> None:
    mod = relay.transform.InferType()(placed("cpu"))
    assert relay.transform.PlanDevices()(mod)["main"] is mod["main"]
