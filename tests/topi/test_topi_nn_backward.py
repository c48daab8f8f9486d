"""Gradients of convolutions by their kernels and of pooling by its data, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import tilewright as tvm
from tilewright import te, topi
from tilewright.ir.errors import TensorExpressionError

RNG = np.random.default_rng(4)


def run(build: Any, *arrays: Any) -> Any:
    places = [te.placeholder(a.shape, str(a.dtype)) for a in arrays]
    out = build(*places)
    built = tvm.build(te.create_prim_func([*places, out]), target="llvm -opt-level=0")
    made = tvm.nd.empty(tuple(int(d) for d in out.shape), str(out.dtype))
    built(*map(tvm.nd.array, arrays), made)
    return made.numpy()


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.slow
def test_conv_backward_weight(groups: int) -> None:
    x = RNG.standard_normal((2, 4, 6, 5)).astype("float32")
    w = torch.zeros((4, 4 // groups, 3, 2), requires_grad=True)
    y = F.conv2d(torch.tensor(x), w, stride=(2, 1), padding=1, dilation=(1, 2), groups=groups)
    grad = RNG.standard_normal(y.shape).astype("float32")
    y.backward(torch.tensor(grad))
    assert w.grad is not None
    found = run(
        lambda g, d: topi.nn.conv_backward_weight(g, d, (3, 2), (2, 1), (1, 1), (1, 2), groups), grad, x
    )
    np.testing.assert_allclose(found, w.grad.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pool_grad(kind: str) -> None:
    x = torch.tensor(RNG.integers(0, 3, (1, 2, 7, 6)).astype("float32"), requires_grad=True)  # many are equal
    if kind == "max":
        y = F.max_pool2d(x, (3, 2), (2, 1), (1, 0), ceil_mode=True)
    else:
        y = F.avg_pool2d(x, (3, 2), (2, 1), (1, 0), ceil_mode=True)
    grad = RNG.standard_normal(y.shape).astype("float32")
    y.backward(torch.tensor(grad))
    assert x.grad is not None
    found = run(
        lambda g, d: topi.nn.pool_grad(g, d, (3, 2), (2, 1), (1, 0, 1, 0), kind, ceil_mode=True),
        grad,
        x.detach().numpy(),
    )
    np.testing.assert_allclose(found, x.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_refusals() -> None:
    g, x = te.placeholder((1, 3, 2, 2)), te.placeholder((1, 4, 3, 3))
    with pytest.raises(TensorExpressionError, match="2 groups do not divide 4 input and 3 output channels"):
        topi.nn.conv_backward_weight(g, x, 2, groups=2)
    with pytest.raises(TensorExpressionError, match="grad has 4 dimensions and data 3"):
        topi.nn.conv_backward_weight(g, te.placeholder((1, 4, 3)), 2)
