"""The network of `examples/train.py`: its gradients are PyTorch's, and its loss falls."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tilewright import relay


@pytest.fixture(scope="module")
def example() -> ModuleType:
    path = Path(__file__).parents[2] / "examples" / "train.py"
    spec = importlib.util.spec_from_file_location("example_train", path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.slow
def test_gradients_are_those_of_pytorch(example: ModuleType) -> None:
    torch = pytest.importorskip("torch")
    F = torch.nn.functional
    rng = np.random.default_rng(5)
    image, label = example.images(4, rng)
    weights = example.initial_weights(rng)
    both = relay.transform.gradient(example.loss_function(4))
    loss, grads = relay.create_executor("graph").evaluate(both)(image, label, *weights)

    x, *w = (torch.tensor(v, requires_grad=True) for v in (image, *weights))
    y = F.max_pool2d(F.relu(F.conv2d(x, w[0], w[1], padding=1)), 2)
    y = F.relu(F.conv2d(y, w[2], w[3], padding=1)).mean(dim=(2, 3))
    wanted = F.nll_loss(F.log_softmax(F.linear(y, w[4], w[5]), dim=1), torch.tensor(label).long())
    wanted.backward()
    np.testing.assert_allclose(loss.numpy(), wanted.item(), rtol=1e-5)
    found = [grads[0], *[grads[i] for i in range(2, 2 + len(weights))]]
    for ours, theirs in zip(found, [x, *w], strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_the_loss_falls(example: ModuleType) -> None:
    _, losses = example.train(100, 0.1, lambda text: None)
    assert np.mean(losses[-10:]) < 0.2 * np.mean(losses[:10])
