"""The commands of a program, each time that they are issued."""

from __future__ import annotations

import pytest

from tilewright.script import tir as T
from tilewright.tir.analysis.commands import Unknown, engine_of_site, sites, token_of


@T.prim_func(private=True)
def nested(A: T.Buffer((16,), "int32")):
    for i in range(3):
        for j in range(i + 1):
            if j < 1:
                T.attr(0, "coproc_scope", 1)
                A[i] = j
            else:
                T.attr(0, "coproc_scope", 2)
                A[j] = i
        T.coproc_dep_push(1, 2)
        T.coproc_dep_pop(1, 2)


def test_sites_in_program_order():
    first, second, push, pop = sites(nested.body)
    assert [engine_of_site(s) for s in (first, second, push, pop)] == [1, 2, 1, 2]
    i, j = (x.loop_var for x in first.loops)
    assert first.values[i].tolist() == [0, 1, 2]
    assert second.values[i].tolist() == [1, 2, 2]  # an extent that depends on the loop outside
    assert second.values[j].tolist() == [1, 1, 2]
    assert first.order.tolist() == [0, 3, 7]
    assert second.order.tolist() == [4, 8, 9]
    assert push.order.tolist() == [1, 5, 10]
    assert pop.order.tolist() == [2, 6, 11]
    assert token_of(push.statement) == (True, 1, 2)


def test_a_bound_that_is_not_known():
    @T.prim_func(private=True)
    def unknown(A: T.Buffer((16,), "int32"), n: T.int32):
        for i in range(n):
            T.attr(0, "coproc_scope", 1)
            A[i] = 1

    with pytest.raises(Unknown) as caught:
        sites(unknown.body)
    assert caught.value.args[0] == "the bounds of loop `i` are not known before the program runs"
