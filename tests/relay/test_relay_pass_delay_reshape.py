"""DelayReshape: what goes into the kernel of a product, and what does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from relay_eval import check, count

import tilewright as tvm
from tilewright import relay

T = relay.transform
nn = relay.nn


def rand(*shape: int) -> Any:
    return relay.const(np.random.default_rng(1).standard_normal(shape).astype("float32"))


def product() -> Any:
    return nn.matmul(relay.var("x", shape=(6, 8)), rand(8, 16))


def function(body: Any) -> Any:
    return relay.Function(relay.analysis.free_vars(body), body)


def delayed(body: Any, expected: Any = None, target: str = "opencl") -> Any:
    with tvm.target.Target(target):
        return check(function(body), T.DelayReshape(), None if expected is None else function(expected))


def test_written_out() -> None:
    before = nn.relu(relay.add(rand(16), relay.reshape(product(), (2, 3, 16))))
    after = relay.reshape(nn.relu(relay.add(product(), rand(16))), (2, 3, 16))
    delayed(before, after)


@pytest.mark.slow
def test_operands_beside_it_take_its_shape() -> None:
    three = relay.reshape(product(), (2, 3, 16))
    y = relay.multiply(relay.add(three, rand(1, 1, 16)), rand(1))
    y = relay.add(relay.var("r", shape=(2, 3, 16)), y)
    found = delayed(relay.multiply(y, relay.tanh(y)))
    assert found.body.op.name == "reshape" and count(found, "reshape") >= 2
    assert found.body.args[0].checked_type.shape == (6, 16)


def test_a_shape_that_comes_back_is_none_at_all() -> None:
    three = relay.reshape(product(), (2, 3, 16))
    found = delayed(nn.matmul(relay.reshape(nn.relu(three), (6, 16)), rand(16, 4)))
    assert count(found, "reshape") == 0


@pytest.mark.parametrize(
    "body",
    [
        lambda: nn.relu(relay.reshape(product(), (12, 8))),  # rows are others
        lambda: relay.add(relay.reshape(product(), (2, 3, 16)), rand(3, 1)),
        lambda: relay.add(relay.reshape(product(), (2, 3, 16)), rand(4, 1, 1, 16)),
        lambda: nn.relu(relay.reshape(relay.transpose(product(), (1, 0)), (2, 8, 6))),
        lambda: nn.relu(relay.reshape(relay.var("x", shape=(6, 16)), (2, 3, 16))),
    ],
)
def test_what_stays(body: Any) -> None:
    func = T.InferType()(tvm.IRModule.from_expr(function(body())))["main"]
    assert tvm.ir.structural_equal(delayed(body()), func)


def test_processors_are_left_alone() -> None:
    before = nn.relu(relay.reshape(product(), (2, 3, 16)))
    assert delayed(before, target="llvm").body.op.name == "nn.relu"


def test_the_product_has_it_all() -> None:
    body = nn.relu(relay.add(relay.reshape(product(), (2, 3, 16)), rand(16)))
    lib = relay.build(tvm.IRModule.from_expr(function(body)), "opencl")
    assert [s.name for s in lib.model.steps] == ["fused_nn_matmul_add_nn_relu"]
