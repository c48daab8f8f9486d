"""What operators say of themselves: passes read it, and know few operators by name."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import tilewright
from tilewright import relay
from tilewright.relay.op.registry import OpPattern, get, list_names
from tilewright.relay.op.traits import FOLLOW, FULL, SMALL, Traits, is_regular, traits_of

ROOM = Path(tilewright.__file__).parent / "relay"
# Names of operators in passes and in the backend: options of a pass that are names, as those of ConvertLayout; and words
# that are names by chance.
MOST = 12


def literals() -> list[str]:
    """Where a string in a pass is the name of an operator."""
    names, found = set(list_names()), []
    for folder in ("transform", "backend"):
        for file in sorted((ROOM / folder).glob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names:
                    found.append(f"{folder}/{file.name}:{node.lineno} {node.value!r}")
    return found


@pytest.mark.slow
def test_passes_know_few_operators_by_name() -> None:
    found = literals()
    assert len(found) <= MOST, (
        "a pass asks `traits_of(call)`, or `is_call(call, R.reshape)` where it is about one operator:\n"
        + "\n".join(found)
    )


@pytest.mark.parametrize("name", list_names())
def test_traits_agree_with_each_other(name: str) -> None:
    op = get(name)
    t: Traits = op.traits
    assert t.precision in ("", SMALL, FOLLOW, FULL)
    assert t.scale in ("", "linear", "positive")
    assert t.layout in ("", "axis", "attribute", "reduction", "conversion", "pair")
    if t.layout == "attribute":
        assert "layout" in op.spec
    if t.layout in ("axis", "reduction", "conversion"):
        assert "axis" in op.spec
    if t.fast:
        assert get(t.fast).spec.keys() == op.spec.keys()
    if t.quantised not in ("", "same", "centred"):
        assert get(t.quantised).inputs is not None
    if t.view:
        assert op.pattern in (OpPattern.INJECTIVE, OpPattern.BROADCAST)
    if t.idempotent or t.involution:
        assert is_regular(op) and op.inputs == ("data",)
    if t.neutral is not None or t.commutes:
        assert op.inputs == ("lhs", "rhs")
    if t.sizes:
        assert t.sizes in op.inputs and t.sizes in get(name.removeprefix("dyn.")).spec


def test_a_new_operator_takes_part_by_what_it_says(run_graph: Any) -> None:
    def rel(types: list[Any], attrs: Any) -> Any:
        return relay.TensorType((types[0].shape[0] * types[0].shape[1],), types[0].dtype)

    @relay.op.registry.operator(
        "test.line",
        rel=rel,
        compute=lambda attrs, ins, out: [tilewright.topi.reshape(ins[0], out.shape)],
        pattern=OpPattern.INJECTIVE,
        traits=Traits(view=True),
    )
    def line(data: relay.op.registry.Tensor) -> relay.Call:
        """A matrix as a line."""

    x = relay.var("x", shape=(2, 3))
    assert traits_of(line(x)).view and not traits_of(x).view
    back = relay.Function([x], relay.reshape(line(x), (2, 3)))
    mod = relay.transform.SimplifyExpr()(tilewright.IRModule.from_expr(back))
    assert mod["main"].body is mod["main"].params[0]
