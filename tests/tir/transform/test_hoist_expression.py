"""Conditions and bindings that a loop does not change."""

from __future__ import annotations

from flat_programs import assert_same, flat_programs
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir import ops
from tilewright.ir.equal import assert_structural_equal
from tilewright.ir.expr import Var
from tilewright.ir.functor import substitute
from tilewright.ir.stmt import For, ForKind, IfThenElse, LetStmt
from tilewright.script import tir as T
from tilewright.tir.analysis import undefined_vars, verify_ssa
from tilewright.tir.transform.hoist_expression import hoist_expression
from tilewright.tir.transform.hoist_if_then_else import hoist_if_then_else


def test_a_condition_rises_as_far_as_it_can():
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "int32"), n: T.int32):
        for i in range(4):
            for j in range(4):
                for k in range(4):
                    if i < n:
                        if j < 2:
                            A[i * 16 + j * 4 + k] = 1

    @T.prim_func(private=True)
    def after(A: T.Buffer((64,), "int32"), n: T.int32):
        for i in range(4):
            if i < n:
                for j in range(4):
                    if j < 2:
                        for k in range(4):
                            A[i * 16 + j * 4 + k] = 1

    made = hoist_if_then_else(before)
    assert_structural_equal(made, after)
    assert hoist_if_then_else(made) is made


def test_both_branches_get_the_loop():
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "int32"), n: T.int32):
        for i in range(4):
            if n < 2:
                A[i] = 1
            else:
                A[i] = 2

    @T.prim_func(private=True)
    def after(A: T.Buffer((64,), "int32"), n: T.int32):
        if n < 2:
            for i in range(4):
                A[i] = 1
        else:
            for i in range(4):
                A[i] = 2

    made = hoist_if_then_else(before)
    assert_structural_equal(made, after)
    assert verify_ssa(made)


def test_bindings_rise_and_conditions_after_them():
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "int32"), n: T.int32):
        for i in range(4):
            x: T.int32 = n * 2
            if x < 8:
                A[i] = x

    @T.prim_func(private=True)
    def after(A: T.Buffer((64,), "int32"), n: T.int32):
        x: T.int32 = n * 2
        if x < 8:
            for i in range(4):
                A[i] = x

    assert_structural_equal(hoist_expression(before), after)
    assert hoist_if_then_else(before) is before  # the condition depends on the binding


def test_what_stays():
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "int32"), n: T.int32):
        for i in range(4):
            if i < n:  # changes
                A[i] = 1
        for i in range(4):
            if A[0] < 3:  # memory that the loop writes
                A[i] = 1
        for i in range(n):
            if 8 // n < 3:  # would trap where the loop does not run
                A[i] = 1
        for i in range(4):
            A[i] = 0
            if n < 3:  # not all of the body
                A[i] = 1
        for i in range(4):
            x: T.int32 = T.call_extern("int32", "f")
            if n < 3:
                A[i] = x

    assert hoist_expression(before) is before


def test_conditions_on_threads_rise_when_asked():
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "int32")):
        tx = T.launch_thread("threadIdx.x", 8)
        for i in range(4):
            if tx < 3:
                A[tx * 4 + i] = 1

    @T.prim_func(private=True)
    def after(A: T.Buffer((64,), "int32")):
        tx = T.launch_thread("threadIdx.x", 8)
        if tx < 3:
            for i in range(4):
                A[tx * 4 + i] = 1

    assert hoist_if_then_else(before) is before
    assert hoist_if_then_else(before, "basic", block_scope=True) is before
    assert_structural_equal(hoist_if_then_else(before, block_scope=True), after)


@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(flat_programs(), flat_programs(), st.integers(0, 3), st.booleans())
def test_meaning(first, second, limit, bind):
    """Loops around a condition on n, with random programs in its branches."""
    n = first.params[2]
    other = dict(zip(second.params, first.params, strict=True))
    other |= {a.data: b.data for a, b in zip(second.buffer_params(), first.buffer_params(), strict=True)}
    body = IfThenElse(ops.less(n, limit), first.body, substitute(second.body, other))
    for extent in (2, 3):
        if bind:
            body = LetStmt(Var("y"), ops.add(n, extent), body)
        body = For(Var("o"), 0, extent, ForKind.SERIAL, body)
    func = first.replace(body=body)
    made = hoist_expression(func)
    assert made is not func
    assert verify_ssa(made) and not undefined_vars(made)
    assert_same(func, made)
