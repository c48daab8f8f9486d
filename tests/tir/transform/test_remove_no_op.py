"""What does nothing is taken out, and nothing else."""

# ruff: noqa: F841  (scripts name what they define)
from __future__ import annotations

from flat_programs import assert_same, flat_programs
from how_many import examples
from hypothesis import given, settings

from tilewright.ir.equal import assert_structural_equal
from tilewright.script import tir as T
from tilewright.tir.transform.remove_no_op import remove_no_op


def test_what_does_nothing_goes():
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32"), n: T.int32):
        for i in range(0):
            A[i] = 1
        for i in range(n):
            T.evaluate(i + 1)
        x: T.int32 = n * 2
        t = T.allocate([16], "int32", "global")
        t_1 = T.decl_buffer((16,), "int32", data=t)
        if n < 3:
            T.evaluate(0)
        else:
            A[0] = 5
        if n < 4:
            A[1] = 1
        else:
            A[n] = A[n]
        if T.bool(False):
            A[2] = 2
        with T.attr(0, "pragma_something", 1):
            T.evaluate(0)

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "int32"), n: T.int32):
        if not n < 3:
            A[0] = 5
        if n < 4:
            A[1] = 1

    made = remove_no_op(before)
    assert_structural_equal(made, after)
    assert remove_no_op(made) is made


def test_regions_that_a_pragma_leaves_out_go():
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32"), n: T.int32):
        t = T.allocate([16], "int32", "local.acc_buffer")
        t_1 = T.decl_buffer((16,), "int32", data=t, scope="local.acc_buffer")
        for i in range(4):
            with T.attr(0, "pragma_skip_dma_copy", 1):
                for j in range(4):
                    t_1[i * 4 + j] = A[i * 4 + j]
            with T.attr(0, "pragma_skip_alu", 1):
                for j in range(4):
                    t_1[i * 4 + j] = t_1[i * 4 + j] + 1
        with T.attr(0, "pragma_debug_skip_region", 1):
            A[1] = 1
        A[0] = n

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "int32"), n: T.int32):
        A[0] = n

    assert_structural_equal(remove_no_op(before), after)


def test_definitions_go_when_their_last_use_does():
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32"), n: T.int32):
        x: T.int32 = n * 2
        y: T.int32 = x + 1
        z: T.int32 = y + 1
        A[0] = x

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "int32"), n: T.int32):
        x: T.int32 = n * 2
        A[0] = x

    assert_structural_equal(remove_no_op(before), after)


def test_effects_stay():
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32"), n: T.int32):
        x: T.int32 = T.call_extern("int32", "roll")
        for i in range(n):
            T.call_extern("int32", "step", i)
        while A[0] < 3:
            A[0] = A[0] + 1

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "int32"), n: T.int32):
        T.call_extern("int32", "roll")
        for i in range(n):
            T.call_extern("int32", "step", i)
        while A[0] < 3:
            A[0] = A[0] + 1

    assert_structural_equal(remove_no_op(before), after)


def test_an_empty_program_is_one_zero():
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32")):
        for i in range(16):
            A[i] = A[i]

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "int32")):
        T.evaluate(0)

    made = remove_no_op(before)
    assert_structural_equal(made, after)
    assert remove_no_op(made) is made


def test_a_store_elsewhere_is_not_idle():
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32"), n: T.int32):
        for i in range(8):
            A[i] = A[i + 1]

    assert remove_no_op(before) is before


def test_memory_behind_a_pointer_is_used():
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32")):
        t = T.allocate([16], "int32", "global")
        T.call_extern("int32", "fill", t)

    assert remove_no_op(before) is before


@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(flat_programs())
def test_meaning(func):
    made = remove_no_op(func)
    assert remove_no_op(made) is made
    assert_same(func, made)
