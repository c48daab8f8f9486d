"""Loops that an instruction runs itself."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.script import tir as T
from tilewright.tir.analysis.commands import commands
from tilewright.tir.script.function import from_source
from tilewright.tir.transform.fold_uop_loop import fold_uop_loop


@T.prim_func(private=True)
def product(A: T.Buffer((16,), "int32"), C: T.Buffer((32,), "int32")):
    for o in T.unroll(2):
        for i, j in T.grid(2, 4):
            T.attr(0, "coproc_scope", 2)
            T.attr(0, "coproc_uop_scope", 1)
            for k in range(2):
                C[o * 16 + i * 8 + j * 2 + k] = C[o * 16 + i * 8 + j * 2 + k] + A[j * 2 + k]


def test_loops_move_into_the_command(expect, agree):
    made = fold_uop_loop(product)
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((16,), "int32"), C: T.Buffer((32,), "int32")):
            for o in T.unroll(2):
                T.attr(0, "coproc_scope", 2)
                for i, j, k in T.grid(2, 4, 2):
                    C[o * 16 + i * 8 + j * 2 + k] = C[o * 16 + i * 8 + j * 2 + k] + A[j * 2 + k]
        """,
    )
    agree(product, made, np.arange(16, dtype="int32"), np.zeros(32, "int32"))
    assert len(list(commands(made.body))) == 1


def test_a_loop_around_several_commands_stays(expect):
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        for i in range(8):
            with T.attr(0, "coproc_scope", 2):
                T.attr(0, "coproc_uop_scope", 1)
                A[i] = 1
            with T.attr(0, "coproc_scope", 2):
                T.attr(0, "coproc_uop_scope", 1)
                B[i] = 2

    expect(
        fold_uop_loop(before),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
            for i in range(8):
                with T.attr(0, "coproc_scope", 2):
                    A[i] = 1
                T.attr(0, "coproc_scope", 2)
                B[i] = 2
        """,
    )


def test_loops_around_commands_without_micro_ops_stay():
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int32")):
        for i in range(8):
            T.attr(0, "coproc_scope", 1)
            A[i] = 1

    assert fold_uop_loop(before) is before


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(1, 3), st.booleans())
def test_folded_loops_keep_the_meaning(agree, extents, lanes, alone):
    """Random nests around an instruction, with and without another command beside it."""
    names = [f"i{n}" for n in range(len(extents))]
    index = "0"
    for name, n in zip(names, extents, strict=True):
        index = f"({index}) * {n} + {name}"
    count = int(np.prod(extents))
    lines = [
        f"{'    ' * (d + 1)}for {v} in range({n}):"
        for d, (v, n) in enumerate(zip(names, extents, strict=True))
    ]
    deep = "    " * (len(names) + 1)
    body = [
        f'{deep}with T.attr(0, "coproc_scope", 2):',
        f'{deep}    T.attr(0, "coproc_uop_scope", 1)',
        f"{deep}    for k in range({lanes}):",
        f"{deep}        C[({index}) * {lanes} + k] = C[({index}) * {lanes} + k] + A[k]",
    ]
    beside = [f'{deep}with T.attr(0, "coproc_scope", 1):', f"{deep}    A[0] = A[0] + 1"]
    head = f"""
@T.prim_func(private=True)
def main(A: T.Buffer(({lanes},), "int32"), C: T.Buffer(({count * lanes},), "int32")):
"""
    func = from_source(head + "\n".join([*lines, *body, *([] if alone else beside)]) + "\n")
    made = fold_uop_loop(func)
    agree(func, made, np.arange(1, lanes + 1, dtype="int32"), np.zeros(count * lanes, "int32"))
    if alone:
        (command,) = commands(made.body)
        assert command is made.body  # all loops are in the command
