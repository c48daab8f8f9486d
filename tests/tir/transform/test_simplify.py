"""Programs brought to their normal form, knowing loops and conditions around."""

from __future__ import annotations

import numpy as np
from flat_programs import assert_same, flat_programs
from how_many import examples
from hypothesis import given, settings

import tilewright as tvm
from tilewright import tir
from tilewright.script import tir as T
from tilewright.tir.transform.simplify import simplify

Simplify = tir.transform.Simplify()


def simple(func):
    return Simplify(tvm.IRModule({"main": func}))["main"]


def test_indices_and_conditions(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "int32")):
        for i, j in T.grid(8, 4):
            if i < 10:
                A[i * 4 // 2 + (i * 8 + j) % 8] = (i * 4 + j) // 4
            if j >= 4:
                A[0] = 1
            else:
                A[i + 8 * 0] = 2

    made = simple(before)
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((64,), "int32")):
            for i, j in T.grid(8, 4):
                A[i * 2 + j] = i
                A[i] = 2
        """,
    )
    agree(before, made, np.zeros(64, "int32"))


def test_loops_that_run_once_or_never(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int32"), n: T.int32):
        for i in range(1):
            for j in range(n, n + 1):
                A[i + j] = 3
        for i in range(0):
            A[i] = 4
        for i in T.parallel(1):
            A[i] = 5
        for i in T.serial(1, annotations={"note": 1}):
            A[i + 1] = 6

    made = simple(before)
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((8,), "int32"), n: T.int32):
            A[n] = 3
            for i in T.parallel(1):
                A[0] = 5
            for i in T.serial(1, annotations={"note": 1}):
                A[1] = 6
        """,
    )
    agree(before, made, np.zeros(8, "int32"), 2)


def test_nested_conditions(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32"), n: T.int32):
        for i in range(16):
            if i < n:
                if i < n + 1:
                    A[i] = 1
                if n <= i:
                    A[i] = 2
            else:
                if i < n:
                    A[i] = 3
                else:
                    A[i] = T.if_then_else(n <= i, 4, 5)

    made = simple(before)
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((16,), "int32"), n: T.int32):
            for i in range(16):
                if i < n:
                    A[i] = 1
                else:
                    A[i] = 4
        """,
    )
    for n in (0, 7, 20):
        agree(before, made, np.zeros(16, "int32"), n)


def test_bindings_of_names_and_constants_are_used(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int32"), n: T.int32):
        x: T.int32 = n
        y: T.int32 = 2 + 1
        z: T.int32 = A[0]
        A[0] = 9
        A[1] = x + y + z

    made = simple(before)
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((8,), "int32"), n: T.int32):
            z: T.int32 = A[0]
            A[0] = 9
            A[1] = n + z + 3
        """,
    )
    agree(before, made, np.arange(8, dtype="int32") + 4, 2)


def test_a_binding_of_a_scalar_buffer_is_kept(agree):
    """A load without indices has no parts, and is not a constant for that."""

    @T.prim_func(private=True)
    def before(S: T.Buffer((), "int32"), A: T.Buffer((2,), "int32")):
        x: T.int32 = S[()]
        S[()] = 9
        A[0] = x

    made = simple(before)
    assert made is before
    agree(before, made, np.array(3, "int32"), np.zeros(2, "int32"))


def test_conditions_on_memory_are_asked_again(agree):
    @T.prim_func(private=True)
    def before(B: T.Buffer((1,), "int32"), C: T.Buffer((1,), "int32")):
        if B[0] < 5:
            B[0] = 7
            if B[0] < 5:
                C[0] = 1
            else:
                C[0] = 2

    agree(before, simple(before), np.zeros(1, "int32"), np.zeros(1, "int32"))


def test_assertions_and_while(expect):
    @T.prim_func(private=True)
    def before(A: T.Buffer((4,), "int32")):
        for i in range(4):
            assert i < 4, "never"
            assert A[i] < 4, "maybe"
            while A[i] < 3 + 1:
                A[i] = A[i] + 1 * 1

    expect(
        simple(before),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((4,), "int32")):
            for i in range(4):
                assert A[i] < 4, "maybe"
                while A[i] < 4:
                    A[i] = A[i] + 1
        """,
    )


def test_thread_extents_are_known(expect):
    @T.prim_func(private=True)
    def before(A: T.Buffer((32,), "int32")):
        t = T.launch_thread("threadIdx.x", 32)
        if t < 32:
            A[t // 32 + t % 32] = 1

    expect(
        simple(before),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((32,), "int32")):
            t = T.launch_thread("threadIdx.x", 32)
            A[t] = 1
        """,
    )


def test_blocks_are_entered(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int32")):
        for i in range(8):
            with T.block("A"):
                vi = T.axis.spatial(8, i * 2 // 2)
                T.where(i < 9)
                A[vi] = T.if_then_else(vi < 8, 1, 2)

    made = simple(before)
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((8,), "int32")):
            # with T.block("root"):
            for i in range(8):
                with T.block("A"):
                    vi = T.axis.spatial(8, i)
                    T.reads()
                    T.writes(A[vi])
                    A[vi] = 1
        """,
    )
    agree(before, made, np.zeros(8, "int32"))


def test_deep_nests_of_unit_loops_take_linear_time():
    body = tir.BufferStore(tir.decl_buffer((4,), "int32", "A"), tir.const(1), [0])
    buffer = body.buffer
    variables = [tir.Var(f"u{i}", "int32") for i in range(40)]
    index = tir.const(0)
    for v in variables:
        index = index + v
    stmt = tir.BufferStore(buffer, tir.const(1), [index])
    for v in variables:
        stmt = tir.For(v, 0, 1, tir.ForKind.SERIAL, stmt)
    made = simplify(tir.PrimFunc([buffer], stmt))
    assert isinstance(made.body, tir.BufferStore)


def test_nothing_to_do_is_the_same_object():
    @T.prim_func
    def plain(A: T.Buffer((8,), "int32"), n: T.int32):
        for i in range(8):
            if i < n:
                A[i] = i * 2 + 1
            while A[i] > 3:
                A[i] = A[i] // 2

    mod = tvm.IRModule({"main": plain})
    assert Simplify(mod) is mod


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(flat_programs(unrolled=True))
def test_meaning(func):
    made = simplify(func)
    assert_same(func, made)


def test_sizes_of_buffers_are_not_negative(expect):
    @T.prim_func(private=True)
    def before(a: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n * 32 - 1,), "float32")
        A[T.min(T.int64(1), n)] = T.float32(0)

    expect(
        simple(before),
        """
        @T.prim_func(private=True)
        def main(a: T.handle):
            n = T.int64()
            A = T.match_buffer(a, (n * T.int64(32) - T.int64(1),))
            A[T.int64(1)] = T.float32(0)
        """,
    )


def test_a_store_of_an_element_to_its_own_place_goes(expect):
    @T.prim_func
    def f(A: T.Buffer((8,), "float32"), n: T.int32):
        for i in range(8):
            A[i] = A[i + n - n]
        A[0] = A[1]

    expect(
        simplify(f),
        """
        @T.prim_func
        def f(A: T.Buffer((8,), "float32"), n: T.int32):
            for i in range(8):
                T.evaluate(0)
            A[0] = A[1]
        """,
    )


def test_variables_that_stand_for_conditions_prove_others(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((4,), "bool"), B: T.Buffer((4,), "bool")):
        for i in range(4):
            low: T.bool = i < 3
            if low or i >= 3:
                A[i] = low
            if i < 3:
                if low:
                    B[i] = low

    made = simple(before)
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((4,), "bool"), B: T.Buffer((4,), "bool")):
            for i in range(4):
                low: T.bool = i < 3
                A[i] = low
                if i < 3:
                    B[i] = low
        """,
    )
    agree(before, made, np.zeros(4, "bool"), np.zeros(4, "bool"))


def test_a_condition_of_several_parts_is_known_where_it_fails(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((2, 8), "int32"), B: T.Buffer((2, 8), "int32")):
        for i, j in T.grid(2, 8):
            B[i, j] = T.if_then_else(
                i == 1 and j >= 6, 0, T.max(0, T.if_then_else(i == 1 and j >= 6, 5, A[i, j]))
            )

    made = simple(before)
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((2, 8), "int32"), B: T.Buffer((2, 8), "int32")):
            for i, j in T.grid(2, 8):
                B[i, j] = T.if_then_else(i == 1 and j >= 6, 0, T.max(0, A[i, j]))
        """,
    )
    agree(before, made, np.arange(-8, 8, dtype="int32").reshape(2, 8), np.zeros((2, 8), "int32"))
