"""The options of Simplify: known contents of buffers, and normal forms of conditions."""

from __future__ import annotations

import numpy as np
import pytest
from flat_programs import assert_same, flat_programs
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tvm
from tilewright import tir
from tilewright.script import tir as T
from tilewright.tir.transform.simplify import simplify

KNOWNS = {
    "propagate_knowns_to_prove_conditional": True,
    "propagate_knowns_to_simplify_expressions": True,
}
BOOLEAN = {"convert_boolean_to_and_of_ors": True, "apply_constraints_to_boolean_branches": True}


def simple(func, *fields):
    with tvm.transform.PassContext(config={"tir.Simplify": dict.fromkeys(fields, True)}):
        return tir.transform.Simplify()(tvm.IRModule({"main": func}))["main"]


def proved(func):
    return simple(func, "propagate_knowns_to_prove_conditional")


def test_a_store_proves_a_condition(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((4,), "int32"), n: T.int32):
        A[0] = n
        A[0] = A[0] + 1
        A[1] = A[0]
        if A[0] > n:
            A[2] = A[0]
        if A[1] == n + 1:
            A[3] = 1

    made = proved(before)
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((4,), "int32"), n: T.int32):
            A[0] = n
            A[0] = A[0] + 1
            A[1] = A[0]
            A[2] = A[0]
            A[3] = 1
        """,
    )
    agree(before, made, np.zeros(4, "int32"), 5)
    assert tvm.ir.structural_equal(simple(before), before)


def test_a_loop_of_stores_proves_a_condition_of_a_later_loop(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((8, 4), "int32"), B: T.Buffer((8, 4), "int32")):
        for i, j in T.grid(8, 4):
            if j < 3:
                A[i, j] = i
        for i, j in T.grid(8, 4):
            if j < 2:
                if A[i, j] < 8:
                    A[i, j] = A[i, j] + B[i, j]
            if A[i, j] < 8:
                B[i, j] = 1

    made = proved(before)
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((8, 4), "int32"), B: T.Buffer((8, 4), "int32")):
            for i, j in T.grid(8, 4):
                if j < 3:
                    A[i, j] = i
            for i, j in T.grid(8, 4):
                if j < 2:
                    A[i, j] = A[i, j] + B[i, j]
                if A[i, j] < 8:
                    B[i, j] = 1
        """,
    )
    agree(before, made, np.full((8, 4), 9, "int32"), np.full((8, 4), 3, "int32"))


def test_known_values_replace_loads(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
        A[T.ramp(0, 1, 4)] = T.ramp(5, 2, 4)
        B[0] = A[1] + A[3]
        A[1] = 0
        B[1] = A[1] + A[2] + B[2]

    made = simple(before, "propagate_knowns_to_simplify_expressions")
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
            A[0:4] = T.Ramp(5, 2, 4)
            B[0] = 18
            A[1] = 0
            B[1] = B[2] + 9
        """,
    )
    agree(before, made, np.zeros(4, "int32"), np.ones(4, "int32"))


def test_assumptions_and_assertions_prove_conditions(expect):
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32"), n: T.int32):
        for i in range(16):
            T.evaluate(T.assume(i < 3 or A[i] == 0))
        assert n < 4
        assert B[0] == n
        if B[0] < 4:
            A[0] = 1
        for i in range(5, 10):
            if A[i] == 0:
                B[i] = 1

    expect(
        proved(before),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32"), n: T.int32):
            for i in range(16):
                T.assume(i < 3 or A[i] == 0)
            assert n < 4, ""
            assert B[0] == n, ""
            A[0] = 1
            for i in T.serial(5, 10):
                B[i] = 1
        """,
    )


def test_what_may_have_changed_is_not_known():
    @T.prim_func(private=True)
    def overwritten(A: T.Buffer((8,), "int32"), n: T.int32):
        A[0] = 0
        A[n] = 1
        if A[0] == 0:
            A[1] = 7

    @T.prim_func(private=True)
    def other_iterations(A: T.Buffer((9,), "int32")):
        for i in range(9):
            A[i] = 0
        for i in range(8):
            if A[i] == 0:
                A[i + 1] = 1

    @T.prim_func(private=True)
    def later_iterations(A: T.Buffer((9,), "int32"), B: T.Buffer((9,), "int32")):
        for i in range(8):
            A[i] = 0
            A[i + 1] = 1
        for i in range(8):
            if A[i + 1] == 1:
                B[i] = 1

    @T.prim_func(private=True)
    def calls(A: T.Buffer((8,), "int32")):
        A[0] = 0
        T.evaluate(T.call_extern("int32", "change", A.data))
        if A[0] == 0:
            A[1] = 7

    @T.prim_func(private=True)
    def floats(A: T.Buffer((8,), "float32"), x: T.float32):
        A[0] = x
        if A[0] == x:  # a NaN is not
            A[1] = T.float32(7)

    @T.prim_func(private=True)
    def loops(A: T.Buffer((8,), "int32"), n: T.int32):
        A[0] = 0
        for _ in range(n):
            if A[0] == 0:
                A[0] = 1
        while A[0] == 0:
            A[0] = A[0] + 1

    for func in (overwritten, other_iterations, later_iterations, calls, floats, loops):
        made = simple(func, *KNOWNS)
        assert tvm.ir.structural_equal(made.body, func.body), str(made)


def test_an_assertion_does_not_prove_itself():
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int32")):
        assert A[0] == 5
        A[1] = A[0]

    made = simple(before, *KNOWNS)
    assert isinstance(made.body, tir.AssertStmt) and isinstance(made.body.condition, tir.EQ)


@pytest.mark.parametrize("apart", [True, False])
def test_buffers_that_may_overlap_are_not_followed(apart):
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        A[0] = 0
        B[0] = 1
        if A[0] == 0:
            A[1] = 7

    made = proved(before.with_attr("tir.noalias", apart))
    assert isinstance(made.body[-1], tir.BufferStore if apart else tir.IfThenElse)


def test_conditions_as_conjunctions_of_disjunctions(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((4,), "bool"), i: T.int32, j: T.int32):
        A[0] = A[0] or (A[1] and A[2])
        A[1] = (i == 0 or j == 20) and (i == 0 or j != 30)
        A[2] = i == 20 or j == 0 or i != 30
        A[3] = (i < 4 and A[i]) or j == 0

    made = simple(before, "convert_boolean_to_and_of_ors")
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((4,), "bool"), i: T.int32, j: T.int32):
            A[0] = (A[0] or A[1]) and (A[0] or A[2])
            A[1] = i == 0 or j == 20
            A[2] = j == 0 or i != 30
            A[3] = i < 4 and A[i] or j == 0
        """,
    )
    for i in (0, 1, 20, 30):
        for j in (0, 20, 30):
            agree(before, made, np.array([False, True, i > 1, True]), i, j)


def test_operands_that_later_ones_imply_go(expect):
    @T.prim_func(private=True)
    def before(A: T.Buffer((4,), "bool"), i: T.int32):
        A[0] = i != 30 and i == 20
        A[1] = i == 20 or i != 30

    expect(
        simple(before, "apply_constraints_to_boolean_branches"),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((4,), "bool"), i: T.int32):
            A[0] = i == 20
            A[1] = i != 30
        """,
    )


# -- meaning -----------------------------------------------------------------------------------
_CONDITIONS = ["{0}", "{0} and {1}", "{0} or {1}", "{0} or ({1} and {0})", "({0} or {1}) and ({1} or {2})"]


@st.composite
def _lines(draw, depth=3, loops=()):
    """Statements over a few elements with few values, so that much is known about them."""

    here = [*loops, *loops, "0", "n", *[f"{v} + 1" for v in loops[-1:]]]

    def element():
        return f"{draw(st.sampled_from('AAB'))}[{draw(st.sampled_from(here))}]"

    def value():
        return draw(st.sampled_from(["0", "0", "1", "1", element(), *loops]))

    def test():
        return f"{element()} {draw(st.sampled_from(['==', '==', '<', '!=']))} {draw(st.sampled_from('01n'))}"

    out = []
    for _ in range(draw(st.integers(1, 3) if loops else st.integers(2, 5))):
        kind = draw(st.sampled_from("ssil" if depth else "s"))
        if kind == "s":
            out.append(f"{element()} = {value()}")
        elif kind == "i":
            condition = draw(st.sampled_from(_CONDITIONS)).format(test(), test(), test())
            out += [f"if {condition}:", *_indented(draw(_lines(depth - 1, loops)))]
            if draw(st.booleans()):
                out += ["else:", *_indented(draw(_lines(depth - 1, loops)))]
        else:
            v = f"i{len(loops)}"
            out += [f"for {v} in range(4):", *_indented(draw(_lines(depth - 1, (*loops, v))))]
    return out


def _indented(lines):
    return ["    " + line for line in lines]


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(_lines())
@pytest.mark.slow
def test_meaning_of_programs_with_much_known(lines):
    head = "@T.prim_func\ndef f(A: T.Buffer((5,), 'int32'), B: T.Buffer((5,), 'int32'), n: T.int32):\n"
    func = tvm.script.from_source(head + "\n".join(_indented(lines)))
    made = simplify(func, **KNOWNS, **BOOLEAN)
    for n in range(3):
        results = []
        for f in (func, made):
            a, b = np.array([0, 1, 2, 0, 1], "int32"), np.array([1, 0, 2, 2, 0], "int32")
            tir.interpret(f, a, b, n)
            results.append((a, b))
        np.testing.assert_array_equal(*map(np.stack, results), err_msg=f"{func}\n{made}")


@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(flat_programs(unrolled=True))
def test_meaning(func):
    assert_same(func, simplify(func, **KNOWNS, **BOOLEAN))
