"""Selections that must not evaluate both sides."""

from __future__ import annotations

from flat_programs import assert_same, flat_programs
from how_many import examples
from hypothesis import given, settings

from tilewright.ir.equal import assert_structural_equal
from tilewright.script import tir as T
from tilewright.tir.transform.rewrite_unsafe_select import rewrite_unsafe_select


def test_loads_that_may_lie_outside():
    @T.prim_func(private=True)
    def before(A: T.Buffer((4,), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        for i in range(8):
            C[i] = T.Select(i < 4, A[i], T.float32(0))
            C[i] = T.Select(i < 4, B[i], T.float32(0))

    @T.prim_func(private=True)
    def after(A: T.Buffer((4,), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        for i in range(8):
            C[i] = T.if_then_else(i < 4, A[i], T.float32(0))
            C[i] = T.Select(i < 4, B[i], T.float32(0))

    made = rewrite_unsafe_select(before)
    assert_structural_equal(made, after)
    assert rewrite_unsafe_select(made) is made


def test_divisions_and_calls():
    @T.prim_func(private=True)
    def before(C: T.Buffer((8,), "int32"), n: T.int32):
        for i in range(8):
            C[i] = T.Select(n == 0, 0, i // n)
            C[i] = T.Select(i < 4, i // 3, i // (i + 1))
            C[i] = T.Select(i < 4, 0, T.call_extern("int32", "f", i))

    @T.prim_func(private=True)
    def after(C: T.Buffer((8,), "int32"), n: T.int32):
        for i in range(8):
            C[i] = T.if_then_else(n == 0, 0, i // n)
            C[i] = T.Select(i < 4, i // 3, i // (i + 1))
            C[i] = T.if_then_else(i < 4, 0, T.call_extern("int32", "f", i))

    assert_structural_equal(rewrite_unsafe_select(before), after)


def test_arithmetic_stays():
    @T.prim_func(private=True)
    def before(C: T.Buffer((8,), "float32"), x: T.float32):
        for i in range(8):
            C[i] = T.Select(i < 4, T.exp(x), x * x)

    assert rewrite_unsafe_select(before) is before


@settings(max_examples=examples(30), deadline=None, derandomize=True)
@given(flat_programs())
def test_meaning(func):
    assert_same(func, rewrite_unsafe_select(func))
