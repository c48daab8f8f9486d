"""Unrolling: marked loops, pragmas, limits, copies with definitions of their own."""

from __future__ import annotations

import pytest
from flat_programs import assert_same, flat_programs
from how_many import examples
from hypothesis import given, settings

from tilewright.ir.equal import assert_structural_equal
from tilewright.ir.functor import pre_order
from tilewright.ir.stmt import For, ForKind
from tilewright.script import tir as T
from tilewright.tir.analysis import verify_ssa
from tilewright.tir.transform.unroll_loop import unroll_loop


def _loops(func):
    return [m for m in pre_order(func.body) if isinstance(m, For)]


def test_a_marked_loop_becomes_copies():
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32")):
        for i in range(4):
            for j in T.unroll(3):
                A[i * 4 + j] = j * 2

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "int32")):
        for i in range(4):
            A[i * 4] = 0
            A[i * 4 + 1] = 2
            A[i * 4 + 2] = 4

    assert_structural_equal(unroll_loop(before), after)


def test_definitions_are_renewed_in_each_copy():
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32")):
        for i in T.unroll(2):
            t = T.allocate([4], "int32", "global")
            t_1 = T.decl_buffer((4,), "int32", data=t)
            for j in range(4):
                x: T.int32 = i + j
                t_1[j] = x
            A[i] = t_1[i]

    made = unroll_loop(before)
    assert verify_ssa(made)
    assert [loop.kind for loop in _loops(made)] == [ForKind.SERIAL, ForKind.SERIAL]


def test_a_loop_that_starts_elsewhere_counts_from_there():
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32"), n: T.int32):
        for i in T.unroll(n, n + 2):
            A[i] = i

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "int32"), n: T.int32):
        A[n] = n
        A[n + 1] = n + 1

    extent_known = before.replace(body=before.body.replace(extent=2))
    assert_structural_equal(unroll_loop(extent_known), after)


def test_unknown_extent_leaves_a_serial_loop():
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32"), n: T.int32):
        for i in T.unroll(n):
            A[i] = i

    assert [loop.kind for loop in _loops(unroll_loop(before))] == [ForKind.SERIAL]


def test_left_to_the_backend():
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32")):
        for i in range(4):
            A[i] = i

    made = unroll_loop(before, auto_max_step=16, explicit_unroll=False)
    assert [loop.kind for loop in _loops(made)] == [ForKind.UNROLLED]
    assert unroll_loop(made, explicit_unroll=False) is made
    assert not _loops(unroll_loop(made))


@pytest.mark.parametrize(("step", "left"), [(7, 2), (8, 1), (31, 1), (32, 0)])
def test_automatic_unrolling_keeps_to_the_number_of_steps(step, left):
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "int32")):
        for i in range(4):
            for j in range(4):
                A[i * 4 + j] = 0
                A[i * 4 + j + 16] = 1

    assert len(_loops(unroll_loop(before, auto_max_step=step))) == left


def test_automatic_unrolling_by_extent_and_depth():
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "int32")):
        for i in range(2):
            for j in range(2):
                for k in range(3):
                    A[i * 4 + j * 2 + k] = 0

    assert len(_loops(unroll_loop(before, auto_max_extent=2))) == 3  # the innermost stays, so all do
    assert not _loops(unroll_loop(before, auto_max_extent=3))
    assert len(_loops(unroll_loop(before, auto_max_extent=3, auto_max_depth=0))) == 2


def test_pragmas_set_the_limit_for_what_is_under_them():
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "int32")):
        for i in range(4):
            A[i] = 0
        with T.attr(0, "pragma_auto_unroll_max_step", 8):
            for i in range(4):
                A[i] = 1
        with T.attr(0, "pragma_auto_unroll_max_step", 8), T.attr(0, "pragma_unroll_explicit", 0):
            for i in range(4):
                A[i] = 2

    made = unroll_loop(before)
    assert [loop.kind for loop in _loops(made)] == [ForKind.SERIAL, ForKind.UNROLLED]


def test_loops_over_local_memory():
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "int32")):
        t = T.allocate([4], "int32", "local")
        t_1 = T.decl_buffer((4,), "int32", data=t, scope="local")
        for i in range(4):
            t_1[i] = i
        for i in range(4):
            A[i] = t_1[0]

    assert len(_loops(unroll_loop(before, unroll_local_access=True))) == 1


def test_nothing_to_do_gives_the_same_function():
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "int32")):
        for i in T.parallel(4):
            for j in range(16):
                if i < j:
                    A[i * 16 + j] = 1

    assert unroll_loop(before) is before


def test_a_pragma_takes_a_constant():
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "int32"), n: T.int32):
        with T.attr(0, "pragma_auto_unroll_max_step", n):
            for i in range(4):
                A[i] = 1

    with pytest.raises(ValueError, match="an unroll pragma takes a constant, not `n`"):
        unroll_loop(before)


@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(flat_programs(unrolled=True))
def test_meaning(func):
    made = unroll_loop(func, auto_max_step=12)
    assert verify_ssa(made)
    assert_same(func, made)
