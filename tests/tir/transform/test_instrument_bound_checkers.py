"""Checks of indices that run with the program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir, topi
from tilewright.script import tir as T
from tilewright.tir.transform.instrument_bound_checkers import instrument_bound_checkers

CHECKED = {"tir.instrument_bound_checkers": True}


@T.prim_func
def picked(A: T.Buffer((16,), "float32"), ids: T.Buffer((8,), "int32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        B[i] = A[ids[i]]


@T.prim_func
def picked_in_parallel(
    A: T.Buffer((16,), "float32"), ids: T.Buffer((8,), "int32"), B: T.Buffer((8,), "float32")
):
    for i in T.parallel(8):
        B[i] = A[ids[i]]


@T.prim_func
def picked_as_vectors(
    A: T.Buffer((16,), "float32"), ids: T.Buffer((8,), "int32"), B: T.Buffer((8,), "float32")
):
    for i in T.vectorized(8):
        B[i] = A[ids[i]]


@T.prim_func
def followed(A: T.Buffer((16,), "int32"), B: T.Buffer((1,), "int32")):
    B[0] = 0
    while A[B[0]] > 0:
        B[0] = A[B[0]]


@T.prim_func
def guarded(A: T.Buffer((16,), "float32"), ids: T.Buffer((8,), "int32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        if ids[i] < 16 and A[ids[i]] > T.float32(0):
            B[i] = T.if_then_else(ids[i] > 0, A[ids[i] - 1], T.Select(ids[i] == 0, A[ids[i]], A[ids[i] + 1]))


def test_checks_stand_before_what_they_are_for(expect: Any) -> None:
    expect(
        instrument_bound_checkers(picked),
        """
        @T.prim_func
        def picked(A: T.Buffer((16,), "float32"), ids: T.Buffer((8,), "int32"), B: T.Buffer((8,), "float32")):
            for i in range(8):
                assert i >= 0 and i < 8, "ids[i]: the index of dimension 0 is out of bounds, it must be from 0 to below 8"
                assert ids[i] >= 0 and ids[i] < 16, "A[ids[i]]: the index of dimension 0 is out of bounds, it must be from 0 to below 16"
                assert i >= 0 and i < 8, "B[i]: the index of dimension 0 is out of bounds, it must be from 0 to below 8"
                B[i] = A[ids[i]]
        """,
    )


def test_what_is_read_under_a_condition_is_checked_under_it(expect: Any) -> None:
    expect(
        instrument_bound_checkers(guarded),
        """
        @T.prim_func
        def guarded(A: T.Buffer((16,), "float32"), ids: T.Buffer((8,), "int32"), B: T.Buffer((8,), "float32")):
            for i in range(8):
                assert i >= 0 and i < 8, "ids[i]: the index of dimension 0 is out of bounds, it must be from 0 to below 8"
                assert T.if_then_else(ids[i] < 16, i >= 0 and i < 8, T.bool(True)), "ids[i]: the index of dimension 0 is out of bounds, it must be from 0 to below 8"
                assert T.if_then_else(ids[i] < 16, ids[i] >= 0 and ids[i] < 16, T.bool(True)), "A[ids[i]]: the index of dimension 0 is out of bounds, it must be from 0 to below 16"
                if ids[i] < 16 and A[ids[i]] > T.float32(0):
                    assert i >= 0 and i < 8, "ids[i]: the index of dimension 0 is out of bounds, it must be from 0 to below 8"
                    assert T.if_then_else(ids[i] > 0, i >= 0 and i < 8, T.bool(True)), "ids[i]: the index of dimension 0 is out of bounds, it must be from 0 to below 8"
                    assert T.if_then_else(ids[i] > 0, ids[i] - 1 >= 0 and ids[i] - 1 < 16, T.bool(True)), "A[ids[i] - 1]: the index of dimension 0 is out of bounds, it must be from 0 to below 16"
                    assert T.if_then_else(not ids[i] > 0, i >= 0 and i < 8, T.bool(True)), "ids[i]: the index of dimension 0 is out of bounds, it must be from 0 to below 8"
                    assert T.if_then_else(not ids[i] > 0, T.if_then_else(ids[i] == 0, i >= 0 and i < 8, T.bool(True)), T.bool(True)), "ids[i]: the index of dimension 0 is out of bounds, it must be from 0 to below 8"
                    assert T.if_then_else(not ids[i] > 0, T.if_then_else(ids[i] == 0, ids[i] >= 0 and ids[i] < 16, T.bool(True)), T.bool(True)), "A[ids[i]]: the index of dimension 0 is out of bounds, it must be from 0 to below 16"
                    assert T.if_then_else(not ids[i] > 0, T.if_then_else(not ids[i] == 0, i >= 0 and i < 8, T.bool(True)), T.bool(True)), "ids[i]: the index of dimension 0 is out of bounds, it must be from 0 to below 8"
                    assert T.if_then_else(not ids[i] > 0, T.if_then_else(not ids[i] == 0, ids[i] + 1 >= 0 and ids[i] + 1 < 16, T.bool(True)), T.bool(True)), "A[ids[i] + 1]: the index of dimension 0 is out of bounds, it must be from 0 to below 16"
                    assert i >= 0 and i < 8, "B[i]: the index of dimension 0 is out of bounds, it must be from 0 to below 8"
                    B[i] = T.if_then_else(ids[i] > 0, A[ids[i] - 1], T.Select(ids[i] == 0, A[ids[i]], A[ids[i] + 1]))
        """,
    )


@pytest.mark.parametrize(
    "func", [picked, picked_in_parallel, picked_as_vectors], ids=lambda f: f.attrs["global_symbol"]
)
def test_an_index_outside_is_an_error(func: Any) -> None:
    with tvm.transform.PassContext(config=CHECKED):
        library = tvm.build(func)
    a, b = np.arange(16, dtype="float32"), np.zeros(8, "float32")
    good = np.array([3, 15, 0, 1, 2, 3, 4, 5], "int32")
    library(a, good, b)
    np.testing.assert_array_equal(b, a[good])
    for outside in (16, -1, 2**30):
        bad = good.copy()
        bad[6] = outside
        with pytest.raises(
            tvm.TVMError,
            match=r"A\[ids\[i\]\]: the index of dimension 0 is out of bounds, it must be from 0 to below 16",
        ):
            library(a, bad, b)
    library(a, good, b)


def test_a_condition_of_a_loop_is_checked_in_every_turn() -> None:
    with tvm.transform.PassContext(config=CHECKED):
        library = tvm.build(followed)
    a, b = np.zeros(16, "int32"), np.zeros(1, "int32")
    a[[0, 5]] = 5, 7
    library(a, b)
    assert b[0] == 7
    a[7] = 99
    with pytest.raises(tvm.TVMError, match=r"A\[B\[0\]\]: the index of dimension 0 is out of bounds"):
        library(a, b)


def test_what_stays_inside_is_as_it_was() -> None:
    x = te.placeholder((1, 3, 9, 9), name="x")
    w = te.placeholder((4, 3, 3, 3), name="w")
    y = topi.nn.relu(topi.nn.conv2d(x, w, 2, 1, 1))
    func = te.create_prim_func([x, w, y])
    sch = tvm.auto_schedule(func, "llvm")
    rng = np.random.default_rng(0)
    given = [rng.standard_normal([int(n) for n in t.shape]).astype("float32") for t in (x, w, y)]
    got = [g.copy() for g in given]
    tvm.build(func)(*given)
    with tvm.transform.PassContext(config=CHECKED):
        tvm.build(sch.mod)(*got)
    np.testing.assert_allclose(got[2], given[2], rtol=1e-5, atol=1e-5)


def test_a_program_that_touches_no_memory_is_the_same() -> None:
    @T.prim_func
    def nothing(n: T.int32):
        T.evaluate(n)

    assert instrument_bound_checkers(nothing) is nothing
    assert isinstance(tir.transform.InstrumentBoundCheckers(), tvm.transform.Pass)
