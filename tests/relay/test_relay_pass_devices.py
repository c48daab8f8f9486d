"""CheckDevices: a model whose values are placed on another device than the target's is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import BuildError


def placed(device: Any) -> tvm.IRModule:
    x = relay.var("x", shape=(4,), dtype="float32")
    return tvm.IRModule.from_expr(relay.Function([x], relay.annotation.on_device(relay.exp(x), device) + x))


@pytest.mark.parametrize("device", ["cpu", tvm.cpu(0), "llvm"])
def test_the_device_of_the_target_stays(device: Any) -> None:
    x = np.arange(4, dtype="float32")
    found = relay.create_executor("graph", placed(device), target="llvm").evaluate()(x).numpy()
    np.testing.assert_allclose(found, np.exp(x) + x, rtol=1e-6)


@pytest.mark.parametrize("build", [relay.build, relay.vm.compile])
def test_another_device_is_refused(build: Any) -> None:
    with pytest.raises(BuildError, match=r"on_device\(…, 'cuda\(0\)'\): the model is compiled for llvm"):
        build(placed(tvm.cuda(0)), "llvm")


def test_nothing_to_check_is_the_same_module() -> None:
    mod = relay.transform.InferType()(placed(None))
    assert relay.transform.CheckDevices()(mod) is mod
