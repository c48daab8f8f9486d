"""Attributes moved outwards and joined; parallel loops made serial."""

from __future__ import annotations

from tilewright.ir.equal import assert_structural_equal
from tilewright.script import tir as T
from tilewright.tir.transform.convert_for_loops_to_serial import convert_for_loops_to_serial
from tilewright.tir.transform.lift_attr_scope import lift_attr_scope


def test_the_same_attribute_is_said_once():
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32"), n: T.int32):
        for i in range(4):
            with T.attr(0, "scope", 1):
                A[i] = 1
            with T.attr(0, "scope", 1):
                A[i + 4] = 2

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "int32"), n: T.int32):
        with T.attr(0, "scope", 1):
            for i in range(4):
                A[i] = 1
                A[i + 4] = 2

    made = lift_attr_scope(before, "scope")
    assert_structural_equal(made, after)
    assert lift_attr_scope(made, "scope") is made
    assert lift_attr_scope(before, "other") is before


def test_different_or_dependent_attributes_stay():
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32"), n: T.int32):
        for i in range(4):
            with T.attr(0, "scope", 1):
                A[i] = 1
            with T.attr(0, "scope", 2):
                A[i + 4] = 2
        for i in range(4):
            with T.attr(0, "scope", i):
                A[i] = 1
        if n < 3:
            with T.attr(0, "scope", 1):
                A[0] = 1
        else:
            A[1] = 1

    assert lift_attr_scope(before, "scope") is before


def test_branches_that_agree():
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32"), n: T.int32):
        if n < 3:
            with T.attr(0, "scope", 1):
                A[0] = 1
        else:
            with T.attr(0, "scope", 1):
                A[1] = 1

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "int32"), n: T.int32):
        with T.attr(0, "scope", 1):
            if n < 3:
                A[0] = 1
            else:
                A[1] = 1

    assert_structural_equal(lift_attr_scope(before, "scope"), after)


def test_parallel_loops_become_serial():
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32")):
        for i in T.parallel(4):
            for j in T.vectorized(4):
                A[i * 4 + j] = 1

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "int32")):
        for i in range(4):
            for j in T.vectorized(4):
                A[i * 4 + j] = 1

    made = convert_for_loops_to_serial(before)
    assert_structural_equal(made, after)
    assert convert_for_loops_to_serial(made) is made
