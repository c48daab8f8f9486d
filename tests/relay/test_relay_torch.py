"""`from_pytorch` and `from_exported_program`: ways in, names, parameters, sizes left open, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch_cases  # noqa: E402
from torch import nn  # noqa: E402

from tilewright import relay  # noqa: E402
from tilewright.ir.errors import FrontendError  # noqa: E402


class Net(nn.Module):
    """A small model with what importers trip over: shapes in Python, writing in place, a dictionary of results."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3)
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Linear(3 * 4, 5)
        self.register_buffer("shift", torch.arange(5.0))

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norm(self.conv(x)))
        y = y.view(y.size(0), -1)
        y = self.head(y) + self.shift
        y[:, 0] += 1
        return y


@pytest.fixture
def net() -> Any:
    torch.manual_seed(0)
    return Net().eval()


X = torch.linspace(-1, 1, 2 * 2 * 4 * 4).view(2, 2, 4, 4)
NAMES = ["conv.bias", "conv.weight", "head.bias", "head.weight", "norm.bias", "norm.running_mean", "norm.running_var",
         "norm.weight", "shift"]  # fmt: skip


def _check(model: Any, mod: Any, params: Any, *inputs: Any) -> None:
    with torch.no_grad():
        want = torch_cases.tensors(model(*inputs))
    got = torch_cases.run_compiled(mod, params, inputs)
    assert not any(torch_cases.difference(a, b) for a, b in zip(want, got, strict=True))


@pytest.mark.slow
def test_a_traced_module_keeps_names_and_answers(net: Any) -> None:
    traced = torch.jit.trace(net, X)
    mod, params = relay.frontend.from_pytorch(traced, [("image", (2, 2, 4, 4))])
    assert sorted(params) == NAMES
    first = mod["main"].params[0]
    assert (first.name_hint, first.checked_type) == ("image", relay.TensorType((2, 2, 4, 4), "float32"))
    assert str(mod["main"].checked_type.ret_type) == "Tensor[(2, 5), float32]"
    _check(net, mod, params, X)


@pytest.mark.slow
def test_an_exported_program_is_the_same_graph(net: Any) -> None:
    program = torch.export.export(net, (X,))
    mod, params = relay.frontend.from_exported_program(program)
    again, same = relay.frontend.from_pytorch(program, [("x", (2, 2, 4, 4))])
    assert sorted(params) == sorted(same) == NAMES
    assert mod["main"].params[0].name_hint == "x" == again["main"].params[0].name_hint
    traced, _ = relay.frontend.from_pytorch(torch.jit.trace(net, X), [("x", (2, 2, 4, 4))])
    large = [[name for name in _operators(m) if name.startswith("nn.")] for m in (mod, again, traced)]
    assert _operators(mod) == _operators(again)
    assert large == [["nn.batch_norm", "nn.bias_add", "nn.conv2d", "nn.dense", "nn.relu"]] * 3


def _operators(mod: Any) -> list[str]:
    found: list[str] = []

    def take(e: Any) -> None:
        if isinstance(e, relay.Call):
            found.append(e.op.name)

    relay.analysis.post_order_visit(mod["main"], take)
    return sorted(found)


@pytest.mark.slow
def test_friendly_names_have_no_points(net: Any) -> None:
    _, params = relay.frontend.from_pytorch(
        torch.jit.trace(net, X), [("x", (2, 2, 4, 4))], use_parser_friendly_name=True
    )
    assert sorted(params) == [n.replace(".", "_") for n in NAMES]


@pytest.mark.slow
def test_a_parameter_used_twice_is_one() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.eye(3))

        def forward(self, x: Any) -> Any:
            return torch.relu(x @ self.weight) @ self.weight

    mod, params = relay.frontend.from_pytorch(torch.jit.trace(Tied(), torch.ones(2, 3)), [("x", (2, 3))])
    assert list(params) == ["weight"] and len(mod["main"].params) == 2


@pytest.mark.slow
def test_element_types_of_inputs() -> None:
    model = nn.Embedding(7, 3)
    mod, _ = relay.frontend.from_pytorch(model, [("ids", ((2, 4), "int64"))])
    assert str(mod["main"].params[0].checked_type) == "Tensor[(2, 4), int64]"
    mod, _ = relay.frontend.from_pytorch(nn.ReLU(), [("x", (2,))], default_dtype="float64")
    assert str(mod["main"].checked_type.ret_type) == "Tensor[(2,), float64]"


@pytest.mark.slow
def test_a_trace_says_what_its_inputs_hold() -> None:
    example = torch.tensor([1, 2]), torch.tensor([True, False]), torch.rand(2)
    traced = torch.jit.trace(lambda i, b, f: torch.where(b, i, i + 1) + f, example)
    mod, _ = relay.frontend.from_pytorch(traced, [("i", (2,)), ("b", (2,)), ("f", ((2,), "float64"))])
    kinds = [str(p.checked_type.dtype) for p in mod["main"].params]
    assert kinds == ["int64", "bool", "float64"], "a type that is given stays"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Output nr 1:torch.jit.TracerWarning")
def test_a_trace_of_training_is_imported_for_inference() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Dropout(0.5)).train()
    x = torch.rand(2, 2, 5, 5)
    traced = torch.jit.trace(model, x)
    with pytest.warns(UserWarning, match=r"traced in training mode and is imported for inference"):
        mod, params = relay.frontend.from_pytorch(traced, [("x", x.shape)])
    assert "1.running_mean" in params and "1.num_batches_tracked" not in params
    run = relay.create_executor("graph", mod=mod, params=params).evaluate()
    np.testing.assert_allclose(run(x.numpy()).numpy(), model.eval()(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_what_is_known_is_computed_at_import() -> None:
    def mask(x: Any) -> Any:
        return x.masked_fill(torch.ones(x.size(0), x.size(1)).triu(1).bool(), 0.0)

    mod, _ = relay.frontend.from_pytorch(torch.jit.trace(mask, torch.ones(3, 3)), [("x", (3, 3))])
    assert _operators(mod) == ["where"]


@pytest.mark.slow
def test_scripted_loops_are_run_at_import() -> None:
    @torch.jit.script
    def powers(x, count: int = 3):  # type: ignore[no-untyped-def]
        for _ in range(count):
            x = x * x
        return x

    mod, _ = relay.frontend.from_pytorch(powers, [("x", (2,))])
    assert _operators(mod) == ["multiply"] * 3


@pytest.mark.slow
def test_a_branch_on_values_is_an_if() -> None:
    class Branch(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v * 2, (x,))

    mod, _ = relay.frontend.from_exported_program(torch.export.export(Branch(), (torch.ones(2),)))
    assert "if" in mod.astext()


@pytest.mark.slow
def test_sizes_left_open_are_symbols() -> None:
    class Mean(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.relu(x).reshape(x.size(0), -1)[:, 1:]

    many = torch.export.Dim("many", min=2)
    program = torch.export.export(Mean(), (torch.ones(4, 2, 3),), dynamic_shapes=({0: many},))
    mod, _ = relay.frontend.from_exported_program(program)
    size = mod["main"].params[0].checked_type.shape[0]
    assert not isinstance(size, int)
    assert mod["main"].checked_type.ret_type.shape[0] is size
    traced = torch.jit.trace(lambda x: x.reshape(x.size(0), 6), torch.ones(4, 2, 3))
    mod, _ = relay.frontend.from_pytorch(traced, [("x", (relay.Any(), 2, 3))])
    size = mod["main"].params[0].checked_type.shape[0]
    assert not isinstance(size, int) and mod["main"].checked_type.ret_type.shape[0] is size


@pytest.mark.slow
def test_rotary_embedding_of_torchs_onnx_operators() -> None:
    class Rotary(nn.Module):
        def forward(self, x: Any, cos: Any, sin: Any, at: Any) -> Any:
            turn = torch.onnx.ops.rotary_embedding
            flat = turn(x.transpose(1, 2).flatten(2), cos, sin, at, num_heads=3)
            return turn(x, cos, sin, at, interleaved=True), flat

    angles = torch.rand(9, 4)
    inputs = (torch.rand(2, 3, 5, 8), angles.cos(), angles.sin(), torch.randint(0, 9, (2, 5)))
    mod, params = relay.frontend.from_pytorch(torch.export.export(Rotary(), inputs))
    assert _operators(mod).count("nn.rotary_embedding") == 2
    _check(Rotary(), mod, params, *inputs)


@pytest.mark.slow
def test_a_long_sequence_is_one_operator() -> None:
    model, x = nn.LSTM(3, 4, num_layers=2, bidirectional=True), torch.rand(150, 2, 3)
    mod, params = relay.frontend.from_pytorch(torch.export.export(model, (x,)))
    assert _operators(mod).count("nn.lstm") == 4 and _operators(mod).count("tanh") == 0
    _check(model, mod, params, x)


@pytest.mark.slow
def test_a_converter_of_the_users() -> None:
    seen: list[Any] = []

    def digamma(inputs: list[Any], types: list[str]) -> Any:
        seen.append(types)
        return relay.nn.relu(inputs[0])

    mod, _ = relay.frontend.from_pytorch(
        lambda x: torch.digamma(x), [("x", (2,))], custom_convert_map={"aten::digamma": digamma}
    )
    assert seen == [["float32"]] and _operators(mod) == ["nn.relu"]


# ---------------------------------------------------------------------------- refusals
class Odd(nn.Module):
    """Two operators that there is no converter for, one of them in a layer."""

    class Inner(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.digamma(x) + torch.digamma(x + 1)

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.ReLU(), Odd.Inner())

    def forward(self, x: Any) -> Any:
        return torch.igamma(self.block(x), x)


@pytest.mark.slow
def test_all_unsupported_operators_are_named_at_once() -> None:
    with pytest.raises(FrontendError) as caught:
        relay.frontend.from_exported_program(torch.export.export(Odd(), (torch.ones(2),)))
    assert str(caught.value) == (
        "operators of the model without a converter: 2\n"
        "  aten.digamma.default ×2, first in block.1 (Inner)\n"
        "  aten.igamma.default ×1, first in the model (Odd)\n"
        "Give one for each in custom_convert_map, or write the model without them"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "infos", "reason"),
    [
        (lambda x: x[x > 0], [("x", (3,))], "torch.where"),
        (nn.Linear(3, 2), [("x", (2, 4))], "torch.export cannot run it on x: (2, 4): RuntimeError"),
        (nn.ReLU(), [("x", (2,)), ("y", (2,))], "torch.export cannot run it on x: (2,), y: (2,)"),
        (nn.ReLU(), ["x"], 'described by ("name", shape)'),
        (nn.ReLU(), [("x", ((2,), "complex64"))], "complex64"),
        (nn.ReLU(), [("x", (-2,))], "input 'x'"),
        (nn.ReLU(), [("x", ((2,), "float99"))], "input 'x'"),
        (3, [], "not int"),
        (nn.Dropout().train(), [("x", (2,))], "eval()"),
        (lambda x: torch.digamma(x), [("x", (2,))], "aten.digamma.default ×1"),
        (lambda x: None, [("x", (2,))], "returns no tensor"),
        (lambda x: x + torch.ones(3, 2), [("x", (relay.Any(), 2))], "torch.export cannot run it"),
    ],
)
def test_refusals_name_the_reason(model: Any, infos: Any, reason: str) -> None:
    with pytest.raises(FrontendError) as caught:
        relay.frontend.from_pytorch(model, infos)
    assert reason in str(caught.value)


@pytest.mark.slow
def test_an_exported_program_that_contradicts_its_description(net: Any) -> None:
    program = torch.export.export(net, (X,))
    with pytest.raises(FrontendError, match=r"input 'x' is described as \(1, 2, 4, 4\)"):
        relay.frontend.from_pytorch(program, [("x", (1, 2, 4, 4))])
    with pytest.raises(FrontendError, match="takes 1 inputs and 2 are described"):
        relay.frontend.from_pytorch(program, [("x", (2, 2, 4, 4)), ("y", (1,))])
    with pytest.raises(FrontendError, match=r"what torch\.export\.export returns, not Net"):
        relay.frontend.from_exported_program(net)


@pytest.mark.slow
def test_constants_of_every_element_type() -> None:
    kinds = [
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.float64,
    ]
    values = [torch.tensor([0, 1, 2]).to(k) for k in [*kinds, torch.bfloat16]]
    mod, _ = relay.frontend.from_pytorch(lambda x: (x, *values), [("x", (2,))])
    made = mod["main"].body.fields[1:]
    assert [str(c.checked_type.dtype) for c in made] == [str(v.dtype).removeprefix("torch.") for v in values]
    assert all(np.array_equal(c.numpy().astype("float64"), v.double().numpy()) for c, v in zip(made, values))
