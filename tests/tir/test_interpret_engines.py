"""Engines of an accelerator in the interpreter: races, deadlocks, tokens that are left over."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.script import tir as T
from tilewright.tir.interpret import InterpreterError, interpret


@T.prim_func(private=True)
def raced(A: T.Buffer((1,), "int32"), B: T.Buffer((1,), "int32")):
    T.func_attr({"coproc_engines": [1, 2]})
    with T.attr(0, "coproc_scope", 1):
        A[0] = 1
    with T.attr(0, "coproc_scope", 2):
        B[0] = A[0]


@T.prim_func(private=True)
def stuck(A: T.Buffer((1,), "int32"), B: T.Buffer((1,), "int32")):
    T.func_attr({"coproc_engines": [1, 2]})
    T.coproc_dep_pop(2, 1)
    T.coproc_dep_push(1, 2)
    T.coproc_dep_pop(1, 2)
    T.coproc_dep_push(2, 1)


@T.prim_func(private=True)
def left_over(A: T.Buffer((1,), "int32"), B: T.Buffer((1,), "int32")):
    T.func_attr({"coproc_engines": [1, 2]})
    T.coproc_dep_push(1, 2)


@T.prim_func(private=True)
def ordered(A: T.Buffer((1,), "int32"), B: T.Buffer((1,), "int32")):
    T.func_attr({"coproc_engines": [1, 2]})
    T.coproc_dep_pop(2, 1)
    with T.attr(0, "coproc_scope", 1):
        B[0] = A[0] + 1
    with T.attr(0, "coproc_scope", 2):
        A[0] = 5
    T.coproc_dep_push(2, 1)


def fault(func) -> str:
    with pytest.raises(InterpreterError) as caught:
        interpret(func, np.zeros(1, "int32"), np.zeros(1, "int32"), detect_races=True)
    return str(caught.value)


def test_faults(expect):
    expect(
        fault(raced),
        """
        race: two engines access A[0] with no token between
          engine 1 writes it in: A[0] = 1
          engine 2 reads it in: B[0] = A[0]
          function: main
        """,
    )
    expect(
        fault(stuck),
        """
        deadlock: no engine can continue
          engine 1 waits for a token of engine 2 at: T.coproc_dep_pop(2, 1)
          engine 2 waits for a token of engine 1 at: T.coproc_dep_pop(1, 2)
          function: main
        """,
    )
    expect(
        fault(left_over),
        """
        tokens are left over: 1 from engine 1 to engine 2 that nobody pops
          the first one is pushed at: T.coproc_dep_push(1, 2)
          function: main
        """,
    )


def test_tokens_order_engines_against_the_order_of_the_text():
    got = np.zeros(1, "int32")
    interpret(ordered, np.zeros(1, "int32"), got, detect_races=True)
    assert got[0] == 6
