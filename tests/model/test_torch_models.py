"""Modules of PyTorch: `tilewright.compile(module)` and `torch.compile(module, backend="tilewright")`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright.runtime.errors import ArgumentTypeError, ArgumentValueError

torch = pytest.importorskip("torch")
dynamo = pytest.importorskip("tilewright.model.dynamo")
backend = dynamo.backend

pytestmark = pytest.mark.slow


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8)
        self.drop, self.last = torch.nn.Dropout(), torch.nn.Linear(8, 5)

    def forward(self, x: Any, scale: float = 1.0) -> dict[str, Any]:
        h = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        return {"scores": self.last(self.drop(h)) * scale, "features": h.view(x.shape[0], 8)}


@pytest.fixture(scope="module")
def net() -> Any:
    torch.manual_seed(0)
    return Net().eval()


def close(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def images(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


# ---------------------------------------------------------------------------- tilewright.compile
def test_a_module_and_an_example(net: Any, tmp_path: Path) -> None:
    x = images(2, 3, 8, 8)
    with torch.no_grad():
        made = tilewright.compile(net, x)
        assert made.name == "Net" and [t.name for t in made.outputs] == ["scores", "features"]
        close(made(x), net(x))  # a dictionary of tensors, as the module returns
        close(made(x.transpose(2, 3)), net(x.transpose(2, 3)))
        close(made(x=x), net(x))
        made.save(tmp_path / "net.tar")
        again = tilewright.load(tmp_path / "net.tar")
        close(again(x)["scores"], net(x)["scores"])
        assert isinstance(again(x.numpy())["scores"], np.ndarray)


def test_a_module_keeps_its_mode(net: Any) -> None:
    net.train()
    try:
        made = tilewright.compile(net, images(1, 3, 8, 8))
        assert net.training and net.drop.training
    finally:
        net.eval()
    with torch.no_grad():
        close(made(images(1, 3, 8, 8)), net(images(1, 3, 8, 8)))


def test_without_an_example_the_first_call_compiles(net: Any) -> None:
    made = tilewright.compile(net)
    with pytest.raises(ArgumentValueError, match="Net has not been called yet"):
        made.explain()
    with torch.no_grad():
        for batch in (1, 2, 1):
            x = images(batch, 3, 8, 8)
            close(made(x, scale=2.0), net(x, scale=2.0))
    assert len(made.versions) == 2 and made.inputs[0].shape[0] == 2


def test_arrays_of_numpy_are_examples_and_arguments(net: Any) -> None:
    x = images(2, 3, 8, 8)
    wanted = net(x)["scores"].detach().numpy()
    lazy = tilewright.compile(net)
    for made in (tilewright.compile(net, x.numpy()), lazy):
        found = made(x.numpy())["scores"]
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    lazy(x)
    assert len(lazy.versions) == 1


def test_a_constant_that_is_expanded_to_a_dynamic_size() -> None:
    """Its rows are counted in a call, so they are not packed before."""

    class Positions(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kinds", torch.arange(16)[None] % 2)
            self.register_buffer("places", torch.arange(16)[None])
            self.table = torch.nn.Embedding(2, 4)

        def forward(self, x: Any) -> Any:
            kinds = torch.gather(self.kinds, 1, self.places[:, : x.shape[1]])
            return self.table(kinds) + x[..., None]

    own = Positions().eval()
    made = tilewright.compile(own, images(1, 5), dynamic=True)
    for n in (2, 9):
        close(made(images(1, n)), own(images(1, n)).detach())


@pytest.mark.parametrize("dynamic", [True, {"x": {0: "batch", 2: "rows"}}], ids=["all", "named"])
def test_dynamic_sizes(net: Any, dynamic: Any) -> None:
    made = tilewright.compile(net, images(2 if dynamic is True else 1, 3, 8, 8), dynamic=dynamic)
    if dynamic is not True:
        assert made.inputs[0].shape == ("batch", 3, "rows", 8)
    with torch.no_grad():
        for batch, rows in ((3, 9), (5, 16)):
            x = images(batch, 3, rows, 8)
            close(made(x), net(x))


def test_an_exported_program_and_its_file(net: Any, tmp_path: Path) -> None:
    x = images(2, 3, 8, 8)
    program = torch.export.export(net, (x,))
    torch.export.save(program, tmp_path / "net.pt2")
    with torch.no_grad():
        close(tilewright.compile(program)(x), net(x))
        close(tilewright.compile(tmp_path / "net.pt2")(x), net(x))
    with pytest.raises(ArgumentValueError, match="has its shapes; give neither example nor dynamic"):
        tilewright.compile(program, x)


def test_arguments_that_differ_from_the_example(net: Any) -> None:
    x = images(2, 3, 8, 8)
    made = tilewright.compile(net, {"x": x, "scale": 2.0})
    with torch.no_grad():
        close(made(x, 2.0), net(x, 2.0))
    with pytest.raises(ArgumentValueError, match=r"compiled for the argument 2\.0, and 3\.0 was given"):
        made(x, 3.0)
    with pytest.raises(ArgumentTypeError, match=r"takes the arguments of its example \(x, scale\)"):
        made(x)
    with pytest.raises(ArgumentTypeError, match="3 in order were given"):
        made(x, 2.0, x)
    with pytest.raises(ArgumentValueError, match="dynamic: there is no input 'y'; there are x"):
        tilewright.compile(net, x, dynamic={"y": {0: "batch"}})


def test_a_module_that_changes_its_buffers_says_so() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: Any) -> Any:
            self.count.add_(1)
            return x + self.count

    class InPlace(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.add_(1)

    with pytest.warns(RuntimeWarning, match=r"the model changes its inputs when it runs \(x\)"):
        tilewright.compile(InPlace(), torch.zeros(3))
    with pytest.warns(RuntimeWarning, match=r"the model changes its buffers when it runs \(count\)"):
        made = tilewright.compile(Counter(), torch.zeros(3))
    close(made(torch.zeros(3)), torch.ones(3))


# ---------------------------------------------------------------------------- torch.compile
@pytest.fixture
def fresh() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_the_backend_is_found_by_its_name(fresh: None, net: Any) -> None:
    assert "tilewright" in torch._dynamo.list_backends()
    x = images(2, 3, 8, 8)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        close(torch.compile(net, backend="tilewright")(x), net(x))


def test_weights_that_change_are_seen(fresh: None) -> None:
    torch.manual_seed(0)
    own = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).eval()
    made, x = torch.compile(own, backend=backend), images(3, 6)
    with torch.no_grad():
        close(made(x), own(x))
        own[0].weight.mul_(2)
        close(made(x), own(x))
        own.load_state_dict({k: v + 1 for k, v in own.state_dict().items()})
        close(made(x), own(x))
        own[0].weight.data = images(4, 6)  # another memory, and the same version
        close(made(x), own(x))


def test_one_graph_for_all_sizes(fresh: None, net: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    count = []
    inner = dynamo._Graph.compiled
    monkeypatch.setattr(dynamo._Graph, "compiled", lambda self, args: count.append(1) or inner(self, args))
    made = torch.compile(net, backend=backend, dynamic=True)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for batch in (2, 4, 6):
            x = images(batch, 3, 11, 6 + batch)
            close(made(x), net(x))
    assert len(count) == 1


def test_graph_breaks_and_autocast(fresh: None) -> None:
    def function(x: Any) -> Any:
        y = torch.sin(x) @ x
        torch._dynamo.graph_break()
        return torch.relu(y) + 1

    made, x = torch.compile(function, backend=backend), images(4, 4)
    close(made(x), function(x))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, wanted = made(x), function(x)
    assert found.dtype == wanted.dtype
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


def test_gradients_are_left_to_torch(fresh: None) -> None:
    own = torch.nn.Linear(3, 2)
    made, x = torch.compile(own, backend=backend), images(4, 3)
    with pytest.warns(RuntimeWarning, match="runs in PyTorch: it is called where gradients are recorded"):
        made(x).sum().backward()
    assert own.weight.grad is not None


class Counting(torch.nn.Module):
    """A norm in training mode, a counter, and an argument that is written to."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Any, total: Any) -> Any:
        self.steps += 1
        total.add_(x)
        return self.norm(x) * self.steps


def test_what_a_graph_changes_is_written_back(fresh: None) -> None:
    own, wanted = Counting(), Counting()
    made, totals = torch.compile(own, backend=backend), (torch.zeros(4, 3), torch.zeros(4, 3))
    compiled = []
    inner = dynamo._Graph.compiled
    with torch.no_grad(), warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("error", RuntimeWarning)
        patch.setattr(dynamo._Graph, "compiled", lambda self, args: compiled.append(1) or inner(self, args))
        for i in range(3):
            x = images(4, 3) + i
            close(made(x, totals[0]), wanted(x, totals[1]))
            close(totals[0], totals[1])
    assert own.steps == 3 and len(compiled) == 1
    close(own.norm.running_var, wanted.norm.running_var)


def test_a_view_of_an_argument_stays_one(fresh: None) -> None:
    def function(x: Any) -> Any:
        part = x[1:].t()
        torch._dynamo.graph_break()
        part.mul_(2)
        return x + 1

    given = images(3, 2), images(3, 2)
    close(torch.compile(function, backend=backend)(given[0]), function(given[1]))
    close(given[0], given[1])


def test_random_numbers_are_left_to_torch(fresh: None) -> None:
    made = torch.compile(lambda x: torch.nn.functional.dropout(x, training=True), backend=backend)
    with pytest.warns(
        RuntimeWarning, match=r"runs in PyTorch: .*aten\.dropout\.default draws random numbers"
    ):
        assert not torch.equal(made(torch.ones(64)), made(torch.ones(64)))


@pytest.mark.parametrize("first", [False, True])
def test_the_fused_layer_of_a_transformer(fresh: None, first: bool) -> None:
    """In inference, torch.nn calls one operator for a whole layer."""
    layer = torch.nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, norm_first=first).eval()
    own = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    made, x, hidden = (
        torch.compile(own, backend=backend),
        images(2, 4, 8),
        torch.arange(4) > torch.tensor([[3], [1]]),
    )
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*runs in PyTorch.*")
        close(made(x, src_key_padding_mask=hidden), own(x, src_key_padding_mask=hidden))
        if first:
            close(torch.compile(attention, backend=backend)(x, x, x), attention(x, x, x))


def test_unknown_options_are_refused() -> None:
    # Not by way of torch.compile: torch 2.13 leaves its frame evaluator installed where a backend raises.
    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    with pytest.raises(ValueError, match="there is no option 'speed'; known are target, dtype"):
        backend(graph, [images(2)], options={"speed": 1})
    with pytest.warns(RuntimeWarning, match=r"mode='max-autotune'.*tilewright has one mode"):
        backend(graph, [images(2)], mode="max-autotune")
