"""PyTorch models that are compiled, as PyTorch modules."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")


@pytest.mark.slow
def test_a_model_and_a_function() -> None:
    from tilewright.contrib.torch import optimize_torch

    net = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).eval()
    x = torch.randn(3, 6)
    fast = optimize_torch(net, x)
    assert isinstance(fast, torch.nn.Module)
    first = fast(x)
    second = fast(x + 1)
    torch.testing.assert_close(first, net(x), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(second, net(x + 1), rtol=1e-5, atol=1e-5)

    def both(a: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return a[i], a.sum(0)

    i = torch.tensor([2, 0])
    rows, total = optimize_torch(both, (x, i))(x, i)
    torch.testing.assert_close(rows, x[i])
    torch.testing.assert_close(total, x.sum(0), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_tuning_first(tmp_path: object) -> None:
    from tilewright.contrib.torch import optimize_torch

    net, x = torch.nn.Linear(8, 8).eval(), torch.randn(4, 8)
    fast = optimize_torch(net, x, max_trials_global=2, num_trials_per_iter=2, work_dir=str(tmp_path))
    torch.testing.assert_close(fast(x), net(x), rtol=1e-5, atol=1e-5)
    with pytest.raises(TypeError, match="speed"):
        optimize_torch(net, x, speed=3)
