"""Loops that run backwards every second time: what they compute, in which order, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tvm
from tilewright.ir.equal import assert_structural_equal
from tilewright.ir.errors import LoweringError
from tilewright.script import tir as T
from tilewright.tir.transform.run_back_and_forth import run_back_and_forth

BACK = {"tilewright.back_and_forth": 1}


def test_the_inner_loop_turns():
    @T.prim_func(private=True)
    def before(A: T.Buffer((32,), "int32")):
        for i in range(4):
            for j in T.serial(8, annotations={"tilewright.back_and_forth": 1}):
                A[i * 8 + j] = j

    @T.prim_func(private=True)
    def after(A: T.Buffer((32,), "int32")):
        for i in range(4):
            for j in range(8):
                A[i * 8 + (j + i % 2 * (7 - j * 2))] = j + i % 2 * (7 - j * 2)

    assert_structural_equal(run_back_and_forth(before), after)


def test_nothing_marked_is_the_same_function():
    @T.prim_func(private=True)
    def plain(A: T.Buffer((8,), "int32")):
        for i in range(8):
            A[i] = i

    assert run_back_and_forth(plain) is plain


@settings(max_examples=examples(15), derandomize=True, deadline=None)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 3), st.integers(0, 3))
def test_each_turn_begins_where_the_last_one_ended(high: int, wide: int, i0: int, j0: int):
    @T.prim_func(private=True)
    def before(A: T.Buffer((128,), "int32"), count: T.Buffer((1,), "int32")):
        for i in T.serial(i0, i0 + high):
            for j in T.serial(j0, j0 + wide, annotations=BACK):
                A[count[0]] = i * 16 + j
                count[0] = count[0] + 1

    order, count = np.full(128, -1, "int32"), np.zeros(1, "int32")
    tvm.tir.interpret(run_back_and_forth(before), order, count)
    walked = [divmod(int(x), 16) for x in order[: high * wide]]
    assert sorted(walked) == [(i, j) for i in range(i0, i0 + high) for j in range(j0, j0 + wide)]
    assert all(abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1 for a, b in zip(walked, walked[1:], strict=False))


def test_a_loop_alone_is_refused():
    @T.prim_func(private=True)
    def alone(A: T.Buffer((8,), "int32")):
        for j in T.serial(8, annotations={"tilewright.back_and_forth": 1}):
            A[j] = j

    with pytest.raises(LoweringError) as error:
        run_back_and_forth(alone)
    assert str(error.value) == (
        "loop `j` cannot run back and forth: it has no loop around it; mark a serial or unrolled loop inside "
        "another one, or remove 'tilewright.back_and_forth' from it"
    )


def test_a_vector_is_refused():
    @T.prim_func(private=True)
    def vector(A: T.Buffer((8,), "int32")):
        for i in range(2):
            for j in T.vectorized(4, annotations={"tilewright.back_and_forth": 1}):
                A[i * 4 + j] = j

    with pytest.raises(
        LoweringError, match="loop `j` cannot run back and forth: it is vectorized; mark a serial"
    ):
        run_back_and_forth(vector)
