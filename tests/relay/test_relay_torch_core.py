"""The core ATen set: each of its operators imported, compiled with its family, and held against eager."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import core_aten  # noqa: E402
import torch_cases  # noqa: E402

from tilewright import relay  # noqa: E402
from tilewright.ir.errors import FrontendError  # noqa: E402

# Complex numbers are no element type here.
REFUSED = {"_fft_r2c.default", "_fft_c2r.default"}
COMPARED = [f for f in core_aten.FAMILIES if f not in ("frequencies", "of_dynamic_size", "random")]


def imported(rows: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """The graph, its parameters, the inputs and eager's results."""
    model, inputs = core_aten.Calls(rows).eval(), core_aten.inputs_of(rows)
    with torch.no_grad():
        want = model(*(t.clone() for t in inputs))
    program = torch.export.export(model, tuple(t.clone() for t in inputs), strict=False)
    return *relay.frontend.from_exported_program(program), inputs, want


def test_the_table_has_every_operator_of_the_set() -> None:
    """An operator that a new torch adds to the set gets a case, and is imported or refused by name."""
    here = {name for family in core_aten.FAMILIES for name in core_aten.cases(family)}
    wanted = {str(op).removeprefix("aten.") for op in core_aten.overloads()}
    assert wanted - here - core_aten.WITHOUT_TENSORS == set()


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize("family", COMPARED)
def test_a_family_agrees_with_eager(family: str) -> None:
    rows = core_aten.cases(family)
    mod, params, inputs, want = imported(rows)
    got = iter(torch_cases.run_compiled(mod, params, inputs))
    found = [
        f"{name}: {torch_cases.difference(t, next(got))}"
        for name, value in zip(rows, want, strict=True)
        for t in torch_cases.tensors(value)
    ]
    assert next(got, None) is None and not [text for text in found if not text.endswith(": ")]


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_complex_numbers_are_refused_by_name(name: str) -> None:
    rows = {name: core_aten.cases("frequencies")[name]}
    with pytest.raises(FrontendError, match=rf"aten.{name}|complex64"):
        imported(rows)


def run(rows: dict[str, Any]) -> tuple[Any, Any]:
    """The first result, and eager's."""
    mod, params, inputs, want = imported(rows)
    machine = relay.create_executor("vm", mod, target="llvm", params=params).evaluate()
    return machine(*(t.numpy() for t in inputs)).numpy(), want[0].numpy()


@pytest.mark.slow
def test_nonzero_gives_as_many_rows_as_there_are() -> None:
    found, want = run(core_aten.cases("of_dynamic_size"))
    assert found.dtype == want.dtype and (found == want).all()


def drawn(name: str, args: Any) -> Any:
    np.random.seed(3)
    return run({name: args})[0]


@pytest.mark.slow
def test_random_numbers_are_spread_as_they_should_be() -> None:
    cases = core_aten.cases("random")
    uniform, normal = (drawn(n, cases[n]) for n in ("rand.default", "randn.default"))
    assert uniform.dtype == normal.dtype == "float32" and uniform.shape == normal.shape == (2, 300)
    assert 0 <= uniform.min() < 0.1 and 0.9 < uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.06
    assert abs(normal.mean()) < 0.15 and abs(normal.std() - 1) < 0.15
    order = drawn("randperm.default", cases["randperm.default"])
    assert sorted(order) == list(range(50)) and list(order) != sorted(order)
    dice = drawn("randint.low", (2, 5, [300]))
    assert dice.dtype == "int64" and sorted(set(dice.tolist())) == [2, 3, 4]
    assert (drawn("rand.default", ([4],)) == drawn("rand.default", ([4],))).all()


@pytest.mark.slow
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_bags_whose_offsets_are_inputs(mode: int) -> None:
    """An empty bag is 0."""
    weight, index = torch.randn(7, 3), torch.tensor([1, 5, 0, 6, 6])
    for last in (False, True):
        offsets = torch.tensor([0, 2, 2] + [5] * last)
        args = (weight, index, offsets, False, mode, False, None, last)
        found, want = run({"_embedding_bag.default": args})
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_slice_is_written_from_a_place_that_is_a_size() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: Any, past: Any, row: Any) -> Any:
            start = past.shape[0]
            return torch.slice_scatter(x, row, 0, start, start + 1)

    n = torch.export.Dim("n", min=2, max=6)
    x, row = torch.randn(8, 3), torch.randn(1, 3)
    program = torch.export.export(
        Net(), (x, torch.zeros(4, 3), row), dynamic_shapes=(None, {0: n}, None), strict=False
    )
    mod, params = relay.frontend.from_exported_program(program)
    machine = relay.create_executor("vm", mod, target="llvm", params=params).evaluate()
    for count in (2, 5):
        want = x.clone()
        want[count] = row[0]
        found = machine(x.numpy(), np.zeros((count, 3), "float32"), row.numpy()).numpy()
        np.testing.assert_array_equal(found, want.numpy())
