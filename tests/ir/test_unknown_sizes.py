"""`tir.Any`: an unknown size of a graph, and an expression."""

from __future__ import annotations

import tilewright as tvm
from tilewright import relay, tir


def test_a_size_of_a_graph_is_one() -> None:
    kind = relay.TensorType((tir.Any(), 3))
    assert isinstance(kind.shape[0], tir.Any) and not isinstance(kind.shape[1], tir.Any)
    assert kind == relay.TensorType((relay.Any(), 3))
    assert not isinstance(tir.Var("n", "int32"), tir.Any)


def test_it_has_arithmetic_and_no_two_are_equal() -> None:
    one, ana = tir.Any(), tvm.arith.Analyzer()
    assert isinstance(one, tir.Any) and one.dtype == "int32"
    assert ana.can_prove_equal(one + 1 - one, 1)
    assert not ana.can_prove_equal(one, tir.Any())
