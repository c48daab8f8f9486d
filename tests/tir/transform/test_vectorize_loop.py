"""Vectorised loops as vectors, or as loops where vectors cannot say it."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.errors import LoweringError
from tilewright.ir.functor import pre_order
from tilewright.ir.stmt import For, ForKind
from tilewright.script import tir as T

Vectorize = tir.transform.VectorizeLoop()


def data(*sizes, dtype="int32"):
    rng = np.random.default_rng(7)
    return [rng.integers(-9, 9, s).astype(dtype) for s in sizes]


def vectorized(func):
    made = Vectorize(tvm.IRModule({"main": func}))["main"]
    loops = [m for m in pre_order(made.body) if isinstance(m, For)]
    assert all(m.kind is not ForKind.VECTORIZED for m in loops)
    return made, len(loops)


@pytest.fixture
def check(agree):
    """The program vectorised: interpreted before and after, compiled before and after, and compared."""

    def run(func, *arrays, loops=0, compiled=True):
        made, count = vectorized(func)
        assert count == loops, made.script()
        agree(func, made, *arrays)
        if compiled:
            want, got = ([np.copy(a) for a in arrays] for _ in range(2))
            tir.interpret(func, *want)
            tvm.build(func.with_attr("global_symbol", "main"), target="llvm")(*got)
            for x, y in zip(want, got, strict=True):
                np.testing.assert_allclose(y, x, rtol=1e-6)
        return made

    return run


def test_contiguous(expect, check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((32,), "int32"), B: T.Buffer((32,), "int32")):
        for j in range(4):
            for i in T.vectorized(8):
                A[j * 8 + i] = B[j * 8 + i] * 2 + i

    expect(
        check(before, *data(32, 32), loops=1),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((32,), "int32"), B: T.Buffer((32,), "int32")):
            for j in range(4):
                A[j * 8:j * 8 + 8] = B[j * 8:j * 8 + 8] * T.Broadcast(2, 8) + T.Ramp(0, 1, 8)
        """,
    )


def test_strided_reversed_and_gathered(expect, check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((32,), "int32"), B: T.Buffer((64,), "int32"), X: T.Buffer((4,), "int32")):
        for i in T.vectorized(4):
            A[i] = B[i * 3 + 2]
        for i in T.vectorized(4):
            A[i * 2 + 4] = B[20 - i]
        for i in T.vectorized(4):
            A[12 + i] = B[X[i]]
        for i in T.vectorized(4):
            A[X[i] % 16 + 16] = i

    a, b, _ = data(32, 64, 4)
    expect(
        check(before, a, b, np.array([3, 9, 9, 60], "int32")),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((32,), "int32"), B: T.Buffer((64,), "int32"), X: T.Buffer((4,), "int32")):
            A[0:4] = B[2:14:3]
            A[4:12:2] = B[T.Ramp(20, -1, 4)]
            A[12:16] = B[X[0:4]]
            A[X[0:4] % T.Broadcast(16, 4) + T.Broadcast(16, 4)] = T.Ramp(0, 1, 4)
        """,
    )


def test_division_and_remainder_of_lanes(expect, check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):
        for i in T.vectorized(8):
            A[i] = B[i // 4] + B[i % 4 + 8]
        for i in T.vectorized(8):
            A[i + 8] = B[(i + 3) // 2]

    expect(
        check(before, *data(16, 16)),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):
            A[0:8] = B[T.Ramp(0, 1, 8) // T.Broadcast(4, 8)] + B[T.Ramp(0, 1, 8) % T.Broadcast(4, 8) + T.Broadcast(8, 8)]
            A[8:16] = B[T.Ramp(3, 1, 8) // T.Broadcast(2, 8)]
        """,
    )


def test_reductions_inside(expect, check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((4,), "int32"), B: T.Buffer((32,), "int32")):
        for i in T.vectorized(4):
            A[i] = 0
            for k in range(8):
                A[i] = A[i] + B[k * 4 + i]

    expect(
        check(before, *data(4, 32), loops=1),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((4,), "int32"), B: T.Buffer((32,), "int32")):
            A[0:4] = T.Broadcast(0, 4)
            for k in range(8):
                A[0:4] = A[0:4] + B[k * 4:k * 4 + 4]
        """,
    )


def test_reductions_over_lanes_stay_loops(expect, check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((2,), "int32"), B: T.Buffer((8,), "int32")):
        A[0] = 0
        for i in T.vectorized(8):
            A[0] = A[0] + B[i]

    expect(
        check(before, *data(2, 8), loops=1),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((2,), "int32"), B: T.Buffer((8,), "int32")):
            A[0] = 0
            for i in range(8):
                A[0] = A[0] + B[i]
        """,
    )


def test_lanes_that_update_one_element_in_turn_stay_a_loop(check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((4,), "int32"), B: T.Buffer((8,), "int32")):
        for i in T.vectorized(8):
            A[i // 2] = A[i // 2] + B[i]

    check(before, *data(4, 8), loops=1)


def test_the_last_lane_wins(check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((4,), "int32"), B: T.Buffer((8,), "int32")):
        for i in T.vectorized(8):
            A[i // 2] = B[i]
        for i in T.vectorized(8):
            A[3] = B[7 - i]

    check(before, *data(4, 8), loops=1)


def test_what_does_not_vary_is_done_once_only_if_once_is_enough(expect, check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((4,), "int32"), B: T.Buffer((8,), "int32")):
        for i in T.vectorized(4):
            A[0] = B[5]
            A[1] = A[1] + 1
            B[i] = 3

    expect(
        check(before, *data(4, 8), loops=1),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((4,), "int32"), B: T.Buffer((8,), "int32")):
            for i in range(4):
                A[0] = B[5]
                A[1] = A[1] + 1
                B[i] = 3
        """,
    )


def test_calls_with_effects_are_made_for_each_lane(expect):
    @T.prim_func(private=True)
    def before(A: T.Buffer((4,), "int32")):
        for i in T.vectorized(4):
            T.evaluate(T.call_extern("int32", "tick"))
            T.evaluate(T.call_extern("int32", "tock", i))
            A[i] = 1

    made, loops = vectorized(before)
    assert loops == 2
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((4,), "int32")):
            for i in range(4):
                T.call_extern("int32", "tick")
            for i in range(4):
                T.call_extern("int32", "tock", i)
            A[0:4] = T.Broadcast(1, 4)
        """,
    )


def test_a_place_that_lanes_share_in_turn(check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        t = T.decl_buffer((1,), "int32")
        for i in T.vectorized(8):
            t[0] = B[i] * 2
            A[i] = t[0] + 1

    check(before, *data(8, 8), loops=1)


def test_memory_of_each_lane_stays_a_loop(check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        for i in T.vectorized(8):
            t = T.decl_buffer((2,), "int32")
            t[0] = B[i] * 2
            t[1] = t[0] + 1
            A[i] = t[1]

    check(before, *data(8, 8), loops=1)


def test_bindings(expect, check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32"), n: T.int32):
        for i in T.vectorized(8):
            x: T.int32 = n * 2
            y: T.int32 = B[i] + x
            A[i] = y * y

    made, loops = vectorized(before)
    assert loops == 0
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32"), n: T.int32):
            x: T.int32 = n * 2
            y: T.int32x8 = B[0:8] + T.Broadcast(x, 8)
            A[0:8] = y * y
        """,
    )
    a, b = data(8, 8)
    want, got = np.copy(a), np.copy(a)
    tir.interpret(before, want, b, 3)
    tir.interpret(made, got, b, 3)
    np.testing.assert_array_equal(want, got)


def test_bindings_in_expressions(check):
    x = tir.Var("x", "int32")
    i = tir.Var("i", "int32")
    A, B = (tir.decl_buffer((8,), "int32", name) for name in "AB")
    value = tir.Let(x, B[i] + 1, x * x)
    loop = tir.For(i, 0, 8, tir.ForKind.VECTORIZED, tir.BufferStore(A, value, [i]))
    check(tir.PrimFunc([A, B], loop), *data(8, 8))


def test_conditions_that_differ_between_lanes_stay_loops(expect, check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        for i in T.vectorized(8):
            B[i] = B[i] + 1
            if i < 5:
                A[i] = B[i]
            else:
                A[i] = 0 - B[i]
            B[i] = B[i] * 2

    expect(
        check(before, *data(8, 8), loops=1),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
            B[0:8] = B[0:8] + T.Broadcast(1, 8)
            for i in range(8):
                if i < 5:
                    A[i] = B[i]
                else:
                    A[i] = 0 - B[i]
            B[0:8] = B[0:8] * T.Broadcast(2, 8)
        """,
    )


def test_conditions_that_do_not_differ(expect, check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((32,), "int32"), B: T.Buffer((32,), "int32")):
        for j in range(4):
            for i in T.vectorized(8):
                if j < 3:
                    A[j * 8 + i] = B[j * 8 + i]
                else:
                    A[j * 8 + i] = i

    expect(
        check(before, *data(32, 32), loops=1),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((32,), "int32"), B: T.Buffer((32,), "int32")):
            for j in range(4):
                if j < 3:
                    A[j * 8:j * 8 + 8] = B[j * 8:j * 8 + 8]
                else:
                    A[j * 8:j * 8 + 8] = T.Ramp(0, 1, 8)
        """,
    )


def test_select_and_if_then_else(expect, check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        for i in T.vectorized(8):
            A[i] = T.Select(B[i] > 0, B[i], 0 - B[i])
        for i in T.vectorized(8):
            A[i] = A[i] + T.if_then_else(i < 4, i * 2, 7)
        for i in T.vectorized(8):
            B[i] = T.if_then_else(A[0] > 3, A[i], 5)

    expect(
        check(before, *data(8, 8)),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
            A[0:8] = T.Select(B[0:8] > T.Broadcast(0, 8), B[0:8], T.Broadcast(0, 8) - B[0:8])
            A[0:8] = A[0:8] + T.Select(T.Ramp(0, 1, 8) < T.Broadcast(4, 8), T.Ramp(0, 2, 8), T.Broadcast(7, 8))
            B[0:8] = T.if_then_else(A[0] > 3, A[0:8], T.Broadcast(5, 8))
        """,
    )


def test_guarded_loads_are_masked(check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int32"), B: T.Buffer((6,), "int32")):
        for i in T.vectorized(8):
            A[i] = T.if_then_else(i < 6, B[i], 0)

    check(before, *data(8, 6), loops=0)


def test_conditions_that_lanes_decide_alike_are_asked_once(expect, check):
    """An end at a multiple of the lanes, one beyond it, and one between."""

    @T.prim_func(private=True)
    def before(A: T.Buffer((32,), "int32"), B: T.Buffer((24,), "int32")):
        for j in range(4):
            for i in T.vectorized(8):
                A[j * 8 + i] = T.if_then_else(j * 8 + i < 24, B[j * 8 + i], 0)
        for j in range(4):
            for i in T.vectorized(8):
                A[j * 8 + i] = T.if_then_else(7 < j * 8 + i and j * 8 + i <= 23, B[j * 8 + i], 0)  # noqa: SIM300
        for j in range(4):
            for i in T.vectorized(8):
                A[j * 8 + i] = T.if_then_else(8 * j >= 8 - i, A[j * 8 + i] + 1, 0)
        for j in range(4):
            for i in T.vectorized(8):
                A[j * 8 + i] = T.if_then_else(j * 8 + i < 23, A[j * 8 + i], 0)

    expect(
        check(before, *data(32, 24), loops=4),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((32,), "int32"), B: T.Buffer((24,), "int32")):
            for j in range(4):
                A[j * 8:j * 8 + 8] = T.if_then_else(j < 3, B[j * 8:j * 8 + 8], T.Broadcast(0, 8))
            for j in range(4):
                A[j * 8:j * 8 + 8] = T.if_then_else(0 < j and j <= 2, B[j * 8:j * 8 + 8], T.Broadcast(0, 8))
            for j in range(4):
                A[j * 8:j * 8 + 8] = T.if_then_else(j >= 1, A[j * 8:j * 8 + 8] + T.Broadcast(1, 8), T.Broadcast(0, 8))
            for j in range(4):
                A[j * 8:j * 8 + 8] = T.Select(T.Ramp(j * 8, 1, 8) < T.Broadcast(23, 8), A.vload([T.Ramp(j * 8, 1, 8)], predicate=T.Ramp(j * 8, 1, 8) < T.Broadcast(23, 8)), T.Broadcast(0, 8))
        """,
    )


def test_the_last_vector_of_a_tile_is_masked(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((30,), "int32"), B: T.Buffer((4,), "int32")):
        for io in range(4):
            for ii in T.vectorized(8):
                if io * 8 + ii < 30:
                    A[io * 8 + ii] = A[io * 8 + ii] + B[io]

    made = tir.transform.VectorizeLoop()(tvm.IRModule({"main": before}))["main"]
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((30,), "int32"), B: T.Buffer((4,), "int32")):
            for io in range(4):
                if io < 4:
                    A.vstore([T.Ramp(io * 8, 1, 8)], A.vload([T.Ramp(io * 8, 1, 8)], predicate=T.Ramp(io * 8, 1, 8) < T.Broadcast(30, 8)) + T.Broadcast(B[io], 8), predicate=T.Ramp(io * 8, 1, 8) < T.Broadcast(30, 8))
        """,
    )
    agree(before, made, *data(30, 4))


def test_a_range_of_lanes_and_what_all_lanes_do_stay_loops(check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int32"), B: T.Buffer((6,), "int32")):
        for i in T.vectorized(8):
            if i >= 2 and i < 6:
                A[i] = B[i - 2]
        for i in T.vectorized(8):
            if i < 6:
                A[0] = B[0] + 1

    check(before, *data(8, 6), loops=2)


def test_conditions_that_guard_their_second_half_stay_loops(check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int32"), B: T.Buffer((6,), "int32")):
        for i in T.vectorized(8):
            A[i] = T.if_then_else(i < 6 and B[i] > 0, 1, 2)
        for i in T.vectorized(8):
            A[i] = T.if_then_else(i >= 6 or B[i] > 0, A[i], 3)

    check(before, *data(8, 6), loops=2)


def test_guarded_divisions_stay_loops(check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        for i in T.vectorized(8):
            A[i] = T.if_then_else(i > 0, 100 // i, 0)

    check(before, *data(8, 8), loops=1)


def test_conditions_of_values(check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        for i in T.vectorized(8):
            A[i] = T.if_then_else((i < 6 and i > 1) or not (i < 7), 1, 2)

    check(before, *data(8, 8))


def test_calls_and_casts(expect, check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "int32"), C: T.Buffer((8,), "float64")):
        for i in T.vectorized(8):
            A[i] = T.exp(T.Cast("float32", B[i]) * T.float32(0.1)) + T.sqrt(T.float32(2))
        for i in T.vectorized(8):
            C[i] = T.Cast("float64", A[i]) + T.max(C[i], T.float64(1))
        for i in T.vectorized(8):
            B[i] = T.Cast("int32", C[i]) + T.shift_left(i, 2)

    a, c = (x.astype(t) for x, t in zip(data(8, 8), ("float32", "float64"), strict=True))
    made, loops = vectorized(before)
    assert loops == 0
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "int32"), C: T.Buffer((8,), "float64")):
            A[0:8] = T.exp(T.Cast("float32x8", B[0:8]) * T.Broadcast(T.float32(0.1), 8)) + T.Broadcast(T.sqrt(T.float32(2)), 8)
            C[0:8] = T.Cast("float64x8", A[0:8]) + T.max(C[0:8], T.Broadcast(T.float64(1), 8))
            B[0:8] = T.Cast("int32x8", C[0:8]) + T.shift_left(T.Ramp(0, 1, 8), T.Broadcast(2, 8))
        """,
    )
    check(before, a, data(8)[0], c)


def test_intrinsics_of_llvm_that_work_on_each_lane(expect, check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((9,), "float32"), B: T.Buffer((9,), "float32"), C: T.Buffer((8,), "int32")):
        for i in T.vectorized(8):
            A[i] = T.call_llvm_pure_intrin("float32", "llvm.sqrt", T.uint32(1), B[i])
        for i in T.vectorized(8):
            B[i] = T.call_llvm_pure_intrin("float32", "llvm.fma.f32", A[i], T.float32(2), B[i])
        for i in T.vectorized(8):
            C[i] = T.call_llvm_pure_intrin("int32", "llvm.ctlz.i32", T.uint32(1), C[i], T.bool(False))
        A[8] = T.call_llvm_pure_intrin("float32", "llvm.sqrt", T.uint32(1), B[8])

    made, loops = vectorized(before)
    assert loops == 0
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((9,), "float32"), B: T.Buffer((9,), "float32"), C: T.Buffer((8,), "int32")):
            A[0:8] = T.call_llvm_pure_intrin("float32x8", "llvm.sqrt", T.uint32(1), B[0:8])
            B[0:8] = T.call_llvm_pure_intrin("float32x8", "llvm.fma", A[0:8], T.Broadcast(T.float32(2), 8), B[0:8])
            C[0:8] = T.call_llvm_pure_intrin("int32x8", "llvm.ctlz", T.uint32(1), C[0:8], T.bool(False))
            A[8] = T.call_llvm_pure_intrin("float32", "llvm.sqrt", T.uint32(1), B[8])
        """,
    )
    check(before, *(np.abs(x).astype("float32") for x in data(9, 9)), data(8)[0])


def test_calls_that_are_not_for_vectors_stay_loops(expect):
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in T.vectorized(8):
            A[i] = T.call_extern("float32", "mine", B[i])

    made, loops = vectorized(before)
    assert loops == 1
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            for i in range(8):
                A[i] = T.call_extern("float32", "mine", B[i])
        """,
    )


def test_assertions(check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        for i in T.vectorized(8):
            assert B[i] < 100, "too large"
            A[i] = B[i]
        for i in T.vectorized(8):
            assert B[0] < 100, "too large"
            A[i] = A[i] + B[i]

    check(before, *data(8, 8), loops=1)


def test_while_inside(check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        for i in T.vectorized(8):
            while A[i] < B[i]:
                A[i] = A[i] + 1

    check(before, *data(8, 8), loops=1)


def test_inner_loops_whose_extent_varies(check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        for i in T.vectorized(8):
            for k in range(i):
                A[i] = A[i] + B[k]

    check(before, *data(8, 8), loops=2)


def test_vectorised_inside_vectorised(expect, check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((32,), "int32"), B: T.Buffer((32,), "int32")):
        for i in T.vectorized(4):
            for j in T.vectorized(8):
                A[i * 8 + j] = B[i * 8 + j] + i

    expect(
        check(before, *data(32, 32), loops=1),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((32,), "int32"), B: T.Buffer((32,), "int32")):
            for i in range(4):
                A[i * 8:i * 8 + 8] = B[i * 8:i * 8 + 8] + T.Broadcast(i, 8)
        """,
    )


def test_starts_elsewhere(expect, check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((32,), "int32"), B: T.Buffer((32,), "int32")):
        for j in range(3):
            for i in T.vectorized(j * 4, j * 4 + 4):
                A[i] = B[i + 1]

    expect(
        check(before, *data(32, 32), loops=1),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((32,), "int32"), B: T.Buffer((32,), "int32")):
            for j in range(3):
                A[j * 4:j * 4 + 4] = B[j * 4 + 1:j * 4 + 5]
        """,
    )


@pytest.mark.parametrize("lanes", [0, 1, 2, 3, 5, 16])
def test_numbers_of_lanes(lanes, check):
    i = tir.Var("i", "int32")
    A, B = (tir.decl_buffer((16,), "int32", name) for name in "AB")
    loop = tir.For(i, 0, lanes, tir.ForKind.VECTORIZED, tir.BufferStore(A, B[15 - i] * 3, [i]))
    check(tir.PrimFunc([A, B], loop), *data(16, 16))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "float16", "float32", "float64"])
def test_types(dtype, check):
    i = tir.Var("i", "int32")
    A, B = (tir.decl_buffer((8,), dtype, name) for name in "AB")
    value = tir.max(A[i] + B[i], B[i] * tir.const(2, dtype))
    loop = tir.For(i, 0, 8, tir.ForKind.VECTORIZED, tir.BufferStore(A, value, [i]))
    arrays = [np.abs(x) for x in data(8, 8, dtype=dtype)]
    check(tir.PrimFunc([A, B], loop), *arrays)


def test_int64_loops(check):
    n = te.const(10, "int64")
    A = te.placeholder((n,), "int32", name="A")
    B = te.compute((n,), lambda i: A[i] * 2 + i.astype("int32"), name="B")
    s = te.create_schedule(B.op)
    _xo, xi = s[B].split(B.op.axis[0], factor=4)
    s[B].vectorize(xi)
    a, b = data(10, 10)
    tvm.build(s, [A, B], target="llvm")(a, b)
    np.testing.assert_array_equal(b, a * 2 + np.arange(10))


def test_buffers_of_several_dimensions_stay_loops(check):
    @T.prim_func(private=True)
    def before(A: T.Buffer((4, 8), "int32"), B: T.Buffer((4, 8), "int32")):
        for i in T.vectorized(4):
            A[i, 3] = B[3 - i, 2] + 1

    check(before, *data((4, 8), (4, 8)), loops=1, compiled=False)


def test_an_extent_that_is_not_constant_is_refused():
    @T.prim_func
    def before(a: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n,), "int32")
        for i in T.vectorized(n):
            A[i] = 1

    with pytest.raises(LoweringError) as caught:
        Vectorize(tvm.IRModule({"main": before}))
    assert str(caught.value) == (
        "vectorised loop `i` has the extent `n`, which is not constant: "
        "split it by a constant factor and vectorise the inner part"
    )


def test_switched_off(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int32"), n: T.int32):
        for i in T.vectorized(n):
            A[i] = i

    made = tir.transform.VectorizeLoop(enable=False)(tvm.IRModule({"main": before}))["main"]
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((8,), "int32"), n: T.int32):
            for i in range(n):
                A[i] = i
        """,
    )
    agree(before, made, *data(8), 8)


def test_nothing_to_do_is_the_same_object():
    @T.prim_func
    def plain(A: T.Buffer((8,), "int32")):
        for i in T.parallel(8):
            A[i] = i

    mod = tvm.IRModule({"main": plain})
    assert Vectorize(mod) is mod


@pytest.mark.parametrize("wanted", range(1, 9))
def test_lanes_that_are_known_to_do_nothing_are_left_out(wanted, check):
    size = 40 + wanted

    @T.prim_func(private=True)
    def before(A: T.Buffer((size,), "int32"), B: T.Buffer((size,), "int32")):
        for j in T.serial(5, 6):
            for i in T.vectorized(8):
                if T.likely(j * 8 + i < size):
                    A[j * 8 + i] = B[j * 8 + i] * 2

    made = check(before, *data(size, size), loops=1)
    assert ("predicate" in made.script()) == (wanted not in (1, 2, 4, 8))


def test_conditions_on_loads_that_nothing_guards() -> None:
    """The right side of `or` reads only what is read anyway: it needs no guard, and lanes have no branch."""
    n = 8
    a = te.placeholder((4, n), name="a")
    k = te.reduce_axis((0, 4), name="k")
    largest = te.comm_reducer(
        lambda x, y: (
            tir.Select(tir.Or(x[1] > y[1], tir.And(x[1] == y[1], x[0] < y[0])), x[0], y[0]),
            tir.Select(tir.Or(x[1] > y[1], tir.And(x[1] == y[1], x[0] < y[0])), x[1], y[1]),
        ),
        lambda i, v: (tir.const(-1, i), te.min_value(v)),
        name="largest",
    )
    at, _ = te.compute((n,), lambda j: largest((k, a[k, j]), axis=k), name="at")
    sch = tir.Schedule(te.create_prim_func([a, at]))
    j, step = sch.get_loops(sch.get_block("at"))
    sch.reorder(step, j)
    sch.vectorize(j)
    text = str(tvm.lower(sch.mod))
    assert "in range(8)" not in text and "a_1[k * 8:k * 8 + 8]" in text
    assert sch.verify()


def test_conditions_that_guard_a_load_keep_their_loop() -> None:
    a, b = te.placeholder((8,), name="a"), te.placeholder((4,), name="b")
    c = te.compute((8,), lambda i: tir.Select(tir.And(i < 4, b[i] > 0.0), a[i], 0.0), name="c")
    sch = tir.Schedule(te.create_prim_func([a, b, c]))
    sch.vectorize(sch.get_loops(sch.get_block("c"))[0])
    assert "in range(8)" in str(tvm.lower(sch.mod))


def test_a_sum_of_words_that_has_one_column_left_is_a_vector_from_its_start() -> None:
    """A start of one lane would leave the others what they were in the iteration before: a register for each."""

    @T.prim_func
    def func(A: T.Buffer((9,), "uint32"), B: T.Buffer((9,), "int32"), C: T.Buffer((1,), "int32")):
        data = T.allocate([16], "int32", "local")
        acc = T.Buffer((16,), "int32", data=data, scope="local")
        for j in T.vectorized(16):
            if j < 1:
                acc[j] = 0
        for k in range(9):
            for j in T.vectorized(16):
                if j < 1:
                    acc[j] = acc[j] + T.dp4a("int32", A[k + j], B[k], 0)
        for j in T.vectorized(16):
            if j < 1:
                C[j] = acc[j]

    made, _ = vectorized(func)
    stores = [m for m in pre_order(made.body) if isinstance(m, tir.BufferStore)]
    assert [m.value.dtype.lanes for m in stores] == [4, 4, 1]
    assert [m.predicate is not None for m in stores] == [True, True, False]
