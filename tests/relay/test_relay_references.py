"""References: types, text, the order of writes, and what passes may not do with them."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay


def test_types_and_text() -> None:
    x, y = relay.var("x", "float32"), relay.var("y", "float32")
    cell = relay.RefCreate(x)
    assert relay.infer_type(cell).checked_type == relay.RefType(relay.scalar_type("float32"))
    assert relay.infer_type(relay.RefRead(cell)).checked_type == relay.scalar_type("float32")
    assert relay.infer_type(relay.RefWrite(cell, y)).checked_type == relay.TupleType([])
    with pytest.raises(relay.RelayTypeError, match=r"int32.* is written into ref"):
        relay.infer_type(relay.RefWrite(cell, relay.const(1)))
    f = relay.Function([x, y], relay.RefWrite(cell, y))
    tvm.ir.assert_structural_equal(relay.parse_expr(f.astext()), f)


@pytest.mark.parametrize("kind", ["vm", "debug"])
def test_writes_are_done_in_order(kind: str) -> None:
    sb = relay.ScopeBuilder()
    x = relay.var("x", shape=(2,))
    cell = sb.let("cell", relay.RefCreate(x))
    before = sb.let("before", relay.RefRead(cell))
    sb.let("done", relay.RefWrite(cell, before + before))
    sb.let("again", relay.RefWrite(cell, relay.RefRead(cell) * x))
    sb.ret(relay.Tuple([before, relay.RefRead(cell)]))
    f = relay.Function([x], sb.get())
    data = np.array([2, 3], "float32")
    first, last = relay.create_executor(kind).evaluate(f)(data)
    np.testing.assert_array_equal(first.numpy(), data)
    np.testing.assert_array_equal(last.numpy(), 2 * data * data)


def test_a_closure_that_counts() -> None:
    """The calls have no result that is used, and must be made all the same."""
    sb = relay.ScopeBuilder()
    cell = sb.let("cell", relay.RefCreate(relay.const(0)))
    count = sb.let("count", relay.Function([], relay.RefWrite(cell, relay.RefRead(cell) + relay.const(1))))
    for i in range(3):
        sb.let(f"call{i}", relay.Call(count, []))
    sb.ret(relay.RefRead(cell))
    assert relay.create_executor("vm").evaluate(sb.get()).numpy() == 3


def test_a_write_is_not_dead_code() -> None:
    x = relay.var("x", "float32")
    cell, unused = relay.var("cell"), relay.var("unused")
    body = relay.Let(
        cell, relay.RefCreate(x), relay.Let(unused, relay.RefWrite(cell, x + x), relay.RefRead(cell))
    )
    mod = relay.transform.DeadCodeElimination()(tvm.IRModule.from_expr(relay.Function([x], body)))
    assert "ref_write" in mod.astext()


def test_a_loop() -> None:
    i, y = relay.var("i", "int32"), relay.var("y", shape=(2,))
    loop = relay.while_loop(
        lambda i, y: i < relay.const(4), [i, y], lambda i, y: [i + relay.const(1), y * relay.const(2.0)]
    )
    f = relay.Function([y], relay.TupleGetItem(loop(relay.const(0), y), 1))
    made = relay.create_executor("vm").evaluate(f)(np.array([1, 3], "float32"))
    np.testing.assert_array_equal(made.numpy(), [16, 48])
