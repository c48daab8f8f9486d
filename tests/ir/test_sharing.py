"""Expressions that use their parts many times: looking at them is quick, writing them out is refused."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir import structural_equal, structural_hash
from tilewright.ir.expr import Add, Var, const
from tilewright.ir.functor import (
    buffers_accessed,
    distinct,
    ir_transform,
    post_order_visit,
    pre_order_visit,
    rewrite,
    substitute,
    undefined_vars,
    uses_var,
    vars_used,
)
from tilewright.ir.sharing import SharedExpressionError, written_out
from tilewright.ir.stmt import Evaluate

v = Var("v", "int32")


def doubled(times: int, start: Any = v) -> Any:
    e = start
    for _ in range(times):
        e = Add(e, e)
    return e


def test_walks_visit_each_node_once() -> None:
    e, w = doubled(60), Var("w", "int32")
    assert written_out(e) == (2**61 - 1, 61)
    assert vars_used(e) == {v} and undefined_vars(e) == [v] and undefined_vars(e, [v]) == []
    assert uses_var(e, v) and not uses_var(e, w) and buffers_accessed(e) == {}
    seen: list[Any] = []
    post_order_visit(e, seen.append)
    assert len(seen) == 61 and seen[0] is v and seen[-1] is e
    seen.clear()
    pre_order_visit(e, seen.append)
    assert len(seen) == 61 and seen[0] is e
    assert {id(n) for n in distinct(e)} == {id(n) for n in seen}


def test_rewrites_keep_what_is_shared() -> None:
    e, w = doubled(60), Var("w", "int32")
    made = substitute(e, {v: w})
    assert written_out(made) == written_out(e) and vars_used(made) == {w}
    assert substitute(e, {w: v}) is e
    assert rewrite(e, {Var: lambda n: w}).a.a.b is not None
    assert written_out(rewrite(e, {Var: lambda n: w})) == written_out(e)
    assert written_out(ir_transform(Evaluate(e), None, lambda n: w if n is v else None))[1] == 62


def test_equality_and_hash() -> None:
    e, w = doubled(60), Var("w", "int32")
    other = doubled(60, w)
    assert structural_equal(e, doubled(60)) and not structural_equal(e, other)
    assert structural_equal(e, other, map_free_vars=True)
    assert structural_hash(e, True) == structural_hash(other, True)
    assert not structural_equal(e, doubled(59), True)
    assert tvm.ir.load_json(tvm.ir.save_json(e)).dtype == "int32"


def test_sharing_changes_no_hash() -> None:
    """A tree and the same expression with shared parts are equal, and so are their hashes."""
    A = tir.decl_buffer((4,), "int32", "A")

    def load() -> Any:
        return tir.BufferLoad(A, [v])

    shared = load()
    for free in (False, True):
        assert structural_equal(Add(shared, shared), Add(load(), load()), free)
        assert structural_hash(Add(shared, shared), free) == structural_hash(Add(load(), load()), free)


def test_undefined_variables_at_two_places() -> None:
    """One expression inside and outside of a binding: bound at the first place, free at the second."""
    e = v + 1
    bound = tir.Let(v, const(1), e)
    assert undefined_vars(bound) == []
    assert undefined_vars(Add(bound, e)) == [v]
    assert undefined_vars(Add(e, bound)) == [v]


def test_writing_out_is_refused() -> None:
    e = doubled(60)
    assert str(e) == (
        "<an expression of 61 nodes shares subexpressions so often that it has 2.3e+18 nodes when expanded>"
    )
    func = tir.PrimFunc([v], Evaluate(e))
    for step in (
        func.script,
        lambda: tvm.lower(func),
        lambda: tvm.build(func),
        lambda: tir.interpret(func, 1),
    ):
        with pytest.raises(
            SharedExpressionError, match=r"62 nodes shares subexpressions .*2\.3e\+18.*LetStmt"
        ):
            step()


def test_a_tensor_expression_is_refused_where_it_was_written() -> None:
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: doubled(60, A[i]), name="B")
    with pytest.raises(
        tvm.ir.TensorExpressionError, match=r"te\.compute `B`: an expression of 62 nodes"
    ) as caught:
        te.create_prim_func([A, B])
    assert "test_sharing.py" in str(caught.value) and "te.compute of its own" in str(caught.value)


def test_some_sharing_and_large_trees_are_fine() -> None:
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: doubled(6, A[i]), name="B")
    assert "A" in te.create_prim_func([A, B]).script()
    e: Any = v
    for i in range(300):
        e = Add(e, const(i))
    assert str(e).endswith("+ 298 + 299")
