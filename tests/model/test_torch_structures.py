"""Objects with tensors in them, as the KV caches of transformers are, taken and returned by compiled modules."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright

torch = pytest.importorskip("torch")


class Layer:
    def __init__(self, keys: Any) -> None:
        self.keys, self.kind, self.lazy = keys, torch.float32, False


class Cache:
    def __init__(self, layers: list[Layer]) -> None:
        self.layers, self.layer_class = layers, Layer


class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Its result has the keys of the past and one more for each of two layers."""

    def forward(self, x: Any, past: Cache | None = None) -> Any:
        old = past.layers if past is not None else [Layer(x[:0]), Layer(x[:0])]
        made = [Layer(torch.cat([layer.keys, x * (i + 1)])) for i, layer in enumerate(old)]
        return {"sum": sum(layer.keys.sum() for layer in made), "past": Cache(made)}


@pytest.mark.slow
def test_an_object_with_tensors_is_returned_and_taken_back() -> None:
    x, net = torch.arange(6.0).reshape(2, 3), Net()
    first = tilewright.compile(net, x)
    assert [t.name for t in first.outputs] == ["sum", "past.layers.0.keys", "past.layers.1.keys"]
    made = first(x)
    past = made["past"]
    assert isinstance(past, Cache) and past.layer_class is Layer and past.layers[0].kind is torch.float32
    assert torch.equal(past.layers[1].keys, 2 * x) and made["sum"] == 3 * x.sum()
    second = tilewright.compile(net, {"x": x, "past": past})
    again = second(x, past=past)
    wanted = net(x, past)
    assert torch.equal(again["sum"], wanted["sum"])
    assert torch.equal(again["past"].layers[0].keys, wanted["past"].layers[0].keys)


@pytest.mark.slow
def test_a_module_that_is_compiled_at_its_first_call_takes_one() -> None:
    x, lazy = torch.ones(2, 3), tilewright.compile(Net())
    past = lazy(x)["past"]
    for _ in range(2):
        assert lazy(x, past)["past"].layers[0].keys.shape == (4, 3)
    assert len(lazy.versions) == 2
