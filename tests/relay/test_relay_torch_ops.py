"""Layers and functions of torch in breadth: each family imported, compiled as one model, and held against eager."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch_cases  # noqa: E402

from tilewright import relay  # noqa: E402

FAST = {"creation"}


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "family",
    [pytest.param(f, marks=() if f in FAST else pytest.mark.slow) for f in torch_cases.FAMILIES],
)
def test_family_agrees_with_eager(family: str) -> None:
    rows = torch_cases.cases(family)
    model = torch_cases.Many(rows).eval()
    inputs = tuple(t.clone() for _, _, given in rows for t in given)
    with torch.no_grad():
        want = model(*inputs)
    mod, params = relay.frontend.from_pytorch(model, torch_cases.describe(inputs))
    got = iter(torch_cases.run_compiled(mod, params, inputs))
    wrong = []
    for (name, _, _), value in zip(rows, want, strict=True):
        found = [torch_cases.difference(t, next(got)) for t in torch_cases.tensors(value)]
        wrong += [f"{name}: {text}" for text in found if text]
    assert not wrong and next(got, None) is None, wrong


# Each of these leaves torch.export another graph than its module did: through a trace.
@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize("family", ["shape", "norm", "recurrent"])
def test_traced_family_agrees_with_eager(family: str) -> None:
    rows = torch_cases.cases(family)
    model = torch_cases.Many(rows).eval()
    inputs = tuple(t for _, _, given in rows for t in given)
    with torch.no_grad():
        flat = torch_cases.tensors(model(*inputs))
        traced = torch.jit.trace(_Flat(model), inputs, check_trace=False)
    mod, params = relay.frontend.from_pytorch(traced, torch_cases.describe(inputs))
    got = torch_cases.run_compiled(mod, params, inputs)
    wrong = [torch_cases.difference(a, b) for a, b in zip(flat, got, strict=True)]
    assert not any(wrong), wrong


class _Flat(torch.nn.Module):
    """A model with its results laid out flat, as tracing wants them."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch_cases.tensors(self.inner(*inputs)))
