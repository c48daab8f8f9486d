"""Tokens between engines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_chip import STREAMING, TINY, lowered, matmul, outcome

from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import Var
from tilewright.ir.function import PrimFunc
from tilewright.script import tir as T
from tilewright.tir.analysis.commands import engine_of_site, sites, token_of
from tilewright.tir.analysis.elements import evaluated
from tilewright.tir.analysis.iterations import condition_for
from tilewright.tir.transform.coproc_sync import coproc_sync


@T.prim_func(private=True)
def summed(X: T.Buffer((8,), "int32"), C: T.Buffer((1,), "int32")):
    a = T.allocate([1], "int32", "local.tiny_acc")
    A = T.decl_buffer((1,), "int32", data=a, scope="local.tiny_acc")
    for k in range(8):
        with T.attr(0, "coproc_scope", 1):
            A[0] = X[k]
        with T.attr(0, "coproc_scope", 2):
            C[0] = C[0] + A[0]


def test_engines_take_turns(expect):
    made = coproc_sync(summed, TINY)
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(X: T.Buffer((8,), "int32"), C: T.Buffer((1,), "int32")):
            T.func_attr({"coproc_engines": [1, 2, 3]})
            A = T.decl_buffer((1,), "int32", scope="local.tiny_acc")
            for k in range(8):
                if k != 0:
                    T.coproc_dep_pop(2, 1)
                with T.attr(0, "coproc_scope", 1):
                    A[0] = X[k]
                T.coproc_dep_push(1, 2)
                T.coproc_dep_pop(1, 2)
                with T.attr(0, "coproc_scope", 2):
                    C[0] = C[0] + A[0]
                if k != 7:
                    T.coproc_dep_push(2, 1)
        """,
    )
    got = outcome(made, [np.arange(8, dtype="int32"), np.zeros(1, "int32")])
    np.testing.assert_array_equal(got, [28])


@T.prim_func(private=True)
def through_dram(X: T.Buffer((4,), "int32"), Y: T.Buffer((4,), "int32")):
    a = T.allocate([4], "int32", "local.tiny_acc")
    A = T.decl_buffer((4,), "int32", data=a, scope="local.tiny_acc")
    with T.attr(0, "coproc_scope", 3):
        for i in range(4):
            Y[i] = X[i]
    with T.attr(0, "coproc_scope", 1):
        for i in range(4):
            A[i] = Y[i]


def test_an_engine_between_two_passes_a_token_on(expect):
    expect(
        coproc_sync(through_dram, STREAMING),
        """
        @T.prim_func(private=True)
        def main(X: T.Buffer((4,), "int32"), Y: T.Buffer((4,), "int32")):
            T.func_attr({"coproc_engines": [1, 2, 3]})
            A = T.decl_buffer((4,), "int32", scope="local.tiny_acc")
            with T.attr(0, "coproc_scope", 3):
                for i in range(4):
                    Y[i] = X[i]
            T.coproc_dep_push(3, 2)
            T.coproc_dep_pop(3, 2)
            T.coproc_dep_push(2, 1)
            T.coproc_dep_pop(2, 1)
            T.attr(0, "coproc_scope", 1)
            for i in range(4):
                A[i] = Y[i]
        """,
    )


def refusal(func: PrimFunc, chip=TINY) -> str:
    with pytest.raises(LoweringError) as caught:
        coproc_sync(func, chip)
    return str(caught.value)


def test_refusals(expect):
    @T.prim_func(private=True)
    def host(A: T.Buffer((8,), "int32")):
        with T.attr(0, "coproc_scope", 1):
            A[0] = 1
        A[1] = 2

    @T.prim_func(private=True)
    def unknown_loop(A: T.Buffer((8,), "int32"), n: T.int32):
        for i in range(n):
            T.attr(0, "coproc_scope", 1)
            A[i] = 1

    @T.prim_func(private=True)
    def unknown_condition(A: T.Buffer((8,), "int32"), n: T.int32):
        if n > 2:
            T.attr(0, "coproc_scope", 1)
            A[0] = 1

    @T.prim_func(private=True)
    def unknown_index(A: T.Buffer((8,), "int32"), n: T.int32):
        T.attr(0, "coproc_scope", 1)
        A[n] = 1

    expect(
        refusal(through_dram, replace(TINY, tokens=frozenset({(1, 2), (2, 1)}))),
        """
        tiny: a command of engine load depends on one of engine store, and no token of store can reach load, not even over other engines
          hint: add a token channel to the chip, or keep both commands on one engine
        """,
    )
    expect(
        refusal(host),
        """
        tiny: the commands of the engines must be known before the program runs: a statement is not a command of an engine
          | A[1] = 2
          hint: mark the stage for an engine, or let the host compute it
        """,
    )
    expect(
        refusal(unknown_loop),
        """
        tiny: the commands of the engines must be known before the program runs: the bounds of loop `i` are not known before the program runs
          | A[i] = 1
          hint: mark the stage for an engine, or let the host compute it
        """,
    )
    expect(
        refusal(unknown_condition),
        """
        tiny: the commands of the engines must be known before the program runs: `n > 2` is not known before the program runs
          | A[0] = 1
          hint: mark the stage for an engine, or let the host compute it
        """,
    )
    expect(
        refusal(unknown_index),
        """
        tiny: the commands of the engines must be known before the program runs: the index `n` of A is not known
          | A[n] = 1
          hint: mark the stage for an engine, or let the host compute it
        """,
    )


def test_accesses_under_conditions_are_exact():
    """Padding is not read: the second command does not depend on the first."""

    @T.prim_func(private=True)
    def padded(Y: T.Buffer((8,), "int32"), Z: T.Buffer((8,), "int32")):
        with T.attr(0, "coproc_scope", 1):
            Y[0] = 1
        with T.attr(0, "coproc_scope", 2):
            for i in range(8):
                Z[i] = T.if_then_else(i >= 1, Y[i], 0)

    made = coproc_sync(padded, TINY)
    assert not [s for s in sites(made.body) if token_of(s.statement) is not None]


def test_nothing_to_do():
    @T.prim_func(private=True)
    def plain(A: T.Buffer((8,), "int32")):
        T.evaluate(0)

    assert coproc_sync(plain, TINY) is plain


def starts(double: bool) -> list[int]:
    """For each load of a product, the number of products that are done before it starts, by its tokens."""
    program, args = matmul(m=1, n=1, k=6, double=double)
    found = sorted(
        ((int(n), s) for s in sites(lowered(program, args).body) for n in s.order), key=lambda x: x[0]
    )
    clocks: dict[int, dict[int, int]] = {1: {}, 2: {}, 3: {}}
    queues: dict[tuple[int, int], list[dict[int, int]]] = {}
    out = []
    for _, s in found:
        engine, token = engine_of_site(s), token_of(s.statement)
        clock = clocks[engine]
        if token is None:
            if engine == 1:
                out.append(clock.get(2, 0))
            clock[engine] = clock.get(engine, 0) + 1
        elif token.pushes:
            queues.setdefault((token.source, token.target), []).append(dict(clock))
        else:
            for e, n in queues[token.source, token.target].pop(0).items():
                clock[e] = max(n, clock.get(e, 0))
    return out[::2]  # of two loads, the first waits


def test_double_buffers_let_loads_run_ahead():
    # The reset comes first. One buffer: load k waits for product k - 1; two: for product k - 2.
    assert starts(double=False) == [0, 2, 3, 4, 5, 6]
    assert starts(double=True) == [0, 0, 2, 3, 4, 5]


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_conditions_hold_in_exactly_the_iterations(data):
    extents = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    grid = np.stack([g.ravel() for g in np.meshgrid(*map(np.arange, extents), indexing="ij")])
    count = grid.shape[1]
    when = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    if not when.any():
        return
    variables = [Var(f"i{n}") for n in range(len(extents))]
    values = dict(zip(variables, grid, strict=True))
    made = condition_for(variables, values, when)
    got = np.ones(count, bool) if made is None else np.broadcast_to(evaluated(made, values), (count,))
    np.testing.assert_array_equal(got, when)
