"""Loops cut where conditions become certain: full tiles carry no predicate."""

from __future__ import annotations

import numpy as np
import pytest
from flat_programs import assert_same, flat_programs
from how_many import examples
from hypothesis import given, settings

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.expr import IntImm
from tilewright.ir.functor import pre_order
from tilewright.ir.stmt import For, ForKind, IfThenElse
from tilewright.script import tir as T
from tilewright.tir.analysis import verify_ssa
from tilewright.tir.transform.loop_partition import loop_partition

Partition = tir.transform.LoopPartition()
Simplify = tir.transform.Simplify()


def cut(func):
    made = Partition(tvm.IRModule({"main": func}))["main"]
    assert verify_ssa(made)
    return made


def simple(func):
    """Partitioned, and simplified as it is in the pipeline."""
    return Simplify(tvm.IRModule({"main": cut(func)}))["main"]


def conditions(func):
    return sum(isinstance(m, IfThenElse) for m in pre_order(func.body))


def data(*sizes):
    rng = np.random.default_rng(8)
    return [rng.integers(-9, 9, s).astype("int32") for s in sizes]


# ---------------------------------------------------------------------------- tiles
def test_one_dimension(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((30,), "int32")):
        for io in range(8):
            for ii in range(4):
                if T.likely(io * 4 + ii < 30):
                    A[io * 4 + ii] = io

    made = simple(before)
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((30,), "int32")):
            for io, ii in T.grid(7, 4):
                A[io * 4 + ii] = io
            for ii in range(2):
                A[ii + 28] = 7
        """,
    )
    agree(before, cut(before), *data(30))
    agree(before, made, *data(30))


def test_two_dimensions(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((10, 7), "int32")):
        for io, jo, ii, ji in T.grid(3, 2, 4, 4):
            if T.likely(io * 4 + ii < 10 and jo * 4 + ji < 7):
                A[io * 4 + ii, jo * 4 + ji] = io * 100 + jo

    made = simple(before)
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((10, 7), "int32")):
            for io in range(2):
                for ii, ji in T.grid(4, 4):
                    A[io * 4 + ii, ji] = io * 100
                for ii, ji in T.grid(4, 3):
                    A[io * 4 + ii, ji + 4] = io * 100 + 1
            for ii, ji in T.grid(2, 4):
                A[ii + 8, ji] = 200
            for ii, ji in T.grid(2, 3):
                A[ii + 8, ji + 4] = 201
        """,
    )
    assert conditions(made) == 0
    agree(before, made, *data((10, 7)))


def test_three_dimensions(agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((5, 6, 7), "int32")):
        for io, jo, ko, ii, ji, ki in T.grid(2, 2, 2, 4, 4, 4):
            if T.likely(io * 4 + ii < 5):
                if T.likely(jo * 4 + ji < 6):
                    if T.likely(ko * 4 + ki < 7):
                        A[io * 4 + ii, jo * 4 + ji, ko * 4 + ki] = io + jo * 10 + ko * 100 + ii

    made = simple(before)
    assert conditions(made) == 0
    agree(before, made, *data((5, 6, 7)))


def test_tiles_of_a_symbolic_size(expect, agree):
    @T.prim_func(private=True)
    def before(a: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n,), "int32")
        for io in range((n + 3) // 4):
            for ii in range(4):
                if T.likely(io * 4 + ii < n):
                    A[io * 4 + ii] = io

    made = simple(before)
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(a: T.handle):
            n = T.int32()
            A = T.match_buffer(a, (n,), "int32")
            for io, ii in T.grid(n // 4, 4):
                A[io * 4 + ii] = io
            for io in T.serial(n // 4, n // 4 + (n % 4 + 3) // 4):
                for ii in range(n - io * 4):
                    A[io * 4 + ii] = io
        """,
    )
    for n in (0, 1, 3, 4, 5, 8, 11):
        agree(before, made, *data(n))


def test_symbolic_tiles_of_two_dimensions(agree):
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m), "int32", name="A")
    B = te.compute((n, m), lambda i, j: A[i, j] * 2 + i, name="B")
    s = te.create_schedule(B.op)
    s[B].tile(*B.op.axis, 4, 5)
    func = s.to_prim_func([A, B])
    made = tvm.lower(s, [A, B])["main"]
    for shape in ((0, 3), (1, 1), (4, 5), (9, 11), (8, 10)):
        agree(func, made, *data(shape, shape))


def test_tiles_of_tiles(agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((50,), "int32")):
        for a, b, c in T.grid(4, 4, 4):
            if T.likely(b * 4 + c < 14):
                if T.likely(a * 14 + (b * 4 + c) < 50):
                    A[a * 14 + (b * 4 + c)] = a

    made = simple(before)
    agree(before, made, *data(50))


# ---------------------------------------------------------------------------- padding
def test_padding(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((10,), "int32"), B: T.Buffer((12,), "int32")):
        for i in range(12):
            B[i] = T.if_then_else(i >= 1 and i < 11, A[i - 1], 0)

    made = simple(before)
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((10,), "int32"), B: T.Buffer((12,), "int32")):
            B[0] = 0
            for i in T.serial(1, 11):
                B[i] = A[i - 1]
            B[11] = 0
        """,
    )
    agree(before, made, *data(10, 12))


def test_a_padded_window(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((10,), "int32"), B: T.Buffer((10,), "int32")):
        for i in range(10):
            B[i] = 0
            for k in range(3):
                B[i] = B[i] + T.if_then_else(i + k >= 1 and i + k < 11, A[i + k - 1], 0)

    made = simple(before)
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((10,), "int32"), B: T.Buffer((10,), "int32")):
            B[0] = 0
            for k in T.serial(1, 3):
                B[0] = B[0] + A[k - 1]
            for i in T.serial(1, 9):
                B[i] = 0
                for k in range(3):
                    B[i] = B[i] + A[i + k - 1]
            B[9] = 0
            for k in range(2):
                B[9] = B[9] + A[k + 8]
        """,
    )
    agree(before, made, *data(10, 10))


def test_padding_of_two_dimensions(agree):
    A = te.placeholder((6, 5), "int32", name="A")
    P = te.compute(
        (8, 7),
        lambda i, j: te.if_then_else(
            te.all(i >= 1, i < 7, j >= 1, j < 6), A[i - 1, j - 1], tir.const(0, "int32")
        ),
        name="P",
    )
    s = te.create_schedule(P.op)
    func = s.to_prim_func([A, P])
    made = tvm.lower(s, [A, P])["main"]
    agree(func, made, *data((6, 5), (8, 7)))
    assert "if_then_else" not in made.script()


# ---------------------------------------------------------------------------- kinds of loops
def test_parallel_loops_stay_whole_and_branch(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((30,), "int32")):
        for io in T.parallel(8):
            for ii in range(4):
                if T.likely(io * 4 + ii < 30):
                    A[io * 4 + ii] = io

    made = simple(before)
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((30,), "int32")):
            for io in T.parallel(8):
                if io < 7:
                    for ii in range(4):
                        A[io * 4 + ii] = io
                else:
                    for ii in range(2):
                        A[ii + 28] = 7
        """,
    )
    agree(before, made, *data(30))


def test_vectorised_parts(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((30,), "int32")):
        for io in range(4):
            for ii in T.vectorized(8):
                if T.likely(io * 8 + ii < 30):
                    A[io * 8 + ii] = io

    made = simple(before)
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((30,), "int32")):
            for io in range(3):
                for ii in T.vectorized(8):
                    A[io * 8 + ii] = io
            for ii in T.vectorized(8):
                if T.likely(ii < 6):
                    A[ii + 24] = 3
        """,
    )
    agree(before, made, *data(30))


def test_unrolled_loops_are_not_partitioned_at_dynamic_sizes(agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32"), n: T.int32):
        for i in T.unroll(8):
            if i < n:
                A[i] = i

    made = cut(before)
    assert [m.kind for m in pre_order(made.body) if isinstance(m, For)] == [ForKind.UNROLLED]
    for n in (-1, 0, 3, 8, 12):
        agree(before, made, *data(16), n)


def test_unrolled_parts_that_depend_on_loops_become_serial(agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32")):
        for j in range(12):
            for i in T.unroll(8):
                if i < j:
                    A[i] = j

    made = cut(before)
    inner = [m for m in pre_order(made.body) if isinstance(m, For) and m.loop_var.name.startswith("i")]
    assert {m.kind for m in inner if not isinstance(m.extent, IntImm)} == {ForKind.SERIAL}
    agree(before, made, *data(16))


def test_a_partial_tile_has_a_version_for_each_number_of_vectors(agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((200,), "int32"), n: T.int32):
        for t in range((n + 63) // 64):
            for v in T.unroll(4):
                for lane in T.vectorized(16):
                    if t * 64 + v * 16 + lane < n:
                        A[t * 64 + v * 16 + lane] = t

    made = simple(before)
    counts = [
        m.extent.value for m in pre_order(made.body) if isinstance(m, For) and m.kind is ForKind.UNROLLED
    ]
    # a tile of one vector has no loop, and full tiles have four vectors as well
    assert sorted(counts) == [2, 4, 4]
    for n in (0, 1, 16, 17, 33, 63, 64, 65, 150, 192, 199):
        agree(before, made, *data(200), n)


def test_loops_that_start_elsewhere(agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((40,), "int32"), m: T.int32):
        for i in range(5, 25):
            if i < 20:
                A[i] = 1
            if i >= 10:
                A[i + 10] = 2
        for i in range(m, m + 10):
            if i < 15:
                A[i] = 3

    made = simple(before)
    for m in (0, 4, 8, 20):
        agree(before, made, *data(40), m)


# ---------------------------------------------------------------------------- conditions
@pytest.mark.parametrize("bound", [-5, 0, 3, 8, 20])
@pytest.mark.parametrize(
    "form", ["less", "less_equal", "greater", "greater_equal", "swapped", "scaled", "minus"]
)
def test_forms_of_conditions(form, bound, agree):
    A = tir.decl_buffer((8,), "int32", "A")
    i = tir.Var("i", "int32")
    c = tir.const(bound)
    condition = {
        "less": i < c,
        "less_equal": i <= c,
        "greater": i > c,
        "greater_equal": i >= c,
        "swapped": c > i,
        "scaled": i * 3 + 1 < c,
        "minus": c - i * 2 >= -3,
    }[form]
    store = tir.IfThenElse(condition, tir.BufferStore(A, i, [i]), tir.BufferStore(A, i * -10, [i]))
    func = tir.PrimFunc([A], tir.For(i, 0, 8, tir.ForKind.SERIAL, store))
    agree(func, loop_partition(func), *data(8))
    made = Simplify(tvm.IRModule({"main": loop_partition(func)}))["main"]
    assert conditions(made) == 0
    agree(func, made, *data(8))


def test_two_conditions_one_after_the_other(agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):
        for i in range(16):
            if i < 10:
                A[i] = 1
            if i < 13:
                B[i] = 2
            else:
                B[i] = 3

    agree(before, simple(before), *data(16, 16))


def test_conditions_that_never_hold_together(agree):
    # two tiles over eight rows: one has the padding above it, the other one is not full; the tile's length decides
    @T.prim_func(private=True)
    def before(A: T.Buffer((8, 4), "int32"), B: T.Buffer((8, 4), "int32")):
        for io in range(2):
            for r in range(7):
                if io * 5 + r >= 1:
                    if io * 5 + r < 9:
                        A[io * 5 + r - 1, 0] = A[io * 5 + r - 1, 0] + 1
            for ii in range(5):
                if T.likely(io * 5 + ii < 8):
                    for k in range(100):
                        B[io * 5 + ii, k % 4] = B[io * 5 + ii, k % 4] + A[io * 5 + ii, k % 4] * k

    made = simple(before)
    assert {int(n.extent) for n in pre_order(made.body) if isinstance(n, For)} >= {5, 3, 100}
    assert all(isinstance(n.extent, tir.IntImm) for n in pre_order(made.body) if isinstance(n, For))
    agree(before, made, *data((8, 4), (8, 4)))


def test_conditions_that_exclude_each_other(agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32")):
        for i in range(16):
            if i < 4:
                A[i] = 1
            if i >= 12:
                A[i] = 2
            if i < 3 and i >= 5:
                A[i] = 3

    agree(before, simple(before), *data(16))


def test_equations_and_memory_are_left_alone():
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):
        for i in range(16):
            if i == 3:
                A[i] = 1
            if i % 4 < 2:
                A[i] = 2
            if A[i] < 7:
                A[i] = 4
            if i < A[0]:
                A[i] = 5

    mod = tvm.IRModule({"main": before})
    assert Partition(mod) is mod


def test_a_bound_in_memory_that_the_loop_changes(agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32"), B: T.Buffer((1,), "int32")):
        for i in range(16):
            if i < B[0]:
                A[i] = 1
                B[0] = B[0] - 1

    agree(before, cut(before), np.zeros(16, "int32"), np.array([9], "int32"))


def test_bounds_that_are_bound_inside_the_loop(agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32"), n: T.int32):
        for i in range(16):
            x: T.int32 = i // 2 + n
            if i < x:
                A[i] = 1
        y: T.int32 = n + 3
        for i in range(16):
            if i < y:
                A[i] = A[i] + 2

    made = cut(before)
    for n in (0, 4, 20):
        agree(before, made, *data(16), n)


def test_inner_loops_that_depend_on_the_outer_one(agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((16, 16), "int32")):
        for i in range(16):
            for j in range(i + 1):
                if i + j < 12:
                    A[i, j] = 1
                if j >= i - 2:
                    A[i, j] = 2

    agree(before, simple(before), *data((16, 16)))


def test_divisions_are_not_made_before_their_guard(agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32"), n: T.int32):
        for i in range(16):
            if n > 0:
                if i < 16 // n:
                    A[i] = 1

    made = cut(before)
    for n in (0, 3):
        agree(before, made, *data(16), n)


def test_threads_inside(agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((30,), "int32")):
        for i in range(2):
            t = T.launch_thread("threadIdx.x", 16)
            if i * 16 + t < 30:
                A[i * 16 + t] = i

    made = cut(before)
    agree(before, made, *data(30))


def test_definitions_are_renewed_in_each_part(agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):
        for i in range(16):
            t = T.decl_buffer((2,), "int32")
            x: T.int32 = B[i] + 1
            t[0] = x
            if i < 10:
                A[i] = t[0]

    made = cut(before)
    agree(before, made, *data(16, 16))


@pytest.mark.slow
def test_growth_is_bounded():
    """Ten nested loops with a condition each: cut everywhere they would be 3**10 times as long."""
    A = tir.decl_buffer((4,) * 10, "int32", "A")
    variables = [tir.Var(f"i{n}", "int32") for n in range(10)]
    bound = tir.Var("n", "int32")
    stmt = tir.BufferStore(A, tir.const(1), variables)
    for v in variables:
        stmt = tir.IfThenElse(tir.all(v >= bound, v < bound + 2), stmt)
    for v in variables:
        stmt = tir.For(v, 0, 4, tir.ForKind.SERIAL, stmt)
    made = loop_partition(tir.PrimFunc([A, bound], stmt))
    assert sum(1 for _ in pre_order(made.body)) < 200_000


@pytest.mark.slow
def test_a_condition_that_cannot_be_cut_off_does_not_loop_forever():
    n, m, k = (te.var(x) for x in "nmk")
    A = te.placeholder((n, m, k), "int32", name="A")
    B = te.compute((n, m, k), lambda *i: A(*i) + 1, name="B")
    s = te.create_schedule(B.op)
    fused = s[B].fuse(*B.op.axis)
    a, _b = s[B].split(fused, factor=8)
    a, c = s[B].split(a, nparts=3)
    s[B].split(c, factor=5)
    made = tvm.lower(s, [A, B])["main"]
    assert sum(1 for _ in pre_order(made.body)) < 20_000


def test_nothing_to_do_is_the_same_object():
    @T.prim_func
    def plain(A: T.Buffer((16,), "int32"), n: T.int32):
        for i in range(16):
            if n < 3:
                A[i] = i

    mod = tvm.IRModule({"main": plain})
    assert Partition(mod) is mod


@settings(max_examples=examples(80), deadline=None, derandomize=True)
@given(flat_programs(unrolled=True))
def test_meaning(func):
    assert_same(func, loop_partition(func))


@settings(max_examples=examples(20), deadline=None, derandomize=True)
@given(flat_programs(parallel=True))
def test_meaning_of_parallel_loops(func):
    assert_same(func, loop_partition(func))


def test_a_bound_below_the_loop_makes_no_empty_head(expect):
    """`n` may be negative, and still nothing comes before the first iteration."""

    @T.prim_func
    def f(a: T.handle, n: T.int32):
        A = T.match_buffer(a, (64,), "float32")
        for i in range(n):
            if i >= 0 and i < n - 2:
                A[i] = T.float32(1)

    expect(
        loop_partition(f),
        """
        @T.prim_func
        def f(A: T.Buffer((64,), "float32"), n: T.int32):
            for i in range(T.max(n - 2, 0)):
                A[i] = T.float32(1)
        """,
    )


def test_the_last_rows_are_one_condition(expect, agree):
    """At most one tile is partial: no loop is left of it, and its first row needs no condition."""

    @T.prim_func
    def f(a: T.handle, b: T.handle):
        n = T.int32(is_size_var=True)
        A = T.match_buffer(a, (n,), "int32")
        B = T.match_buffer(b, (n,), "int32")
        for i in range((n + 1) // 2):
            for j in T.unroll(2):
                if i * 2 + j < n:
                    B[i * 2 + j] = A[i * 2 + j]

    made = loop_partition(f)
    expect(
        made,
        """
        @T.prim_func
        def f(a: T.handle, b: T.handle):
            n = T.int32(is_size_var=True)
            A = T.match_buffer(a, (n,), "int32")
            B = T.match_buffer(b, (n,), "int32")
            for i in range(n // 2):
                for j in T.unroll(2):
                    B[i * 2 + j] = A[i * 2 + j]
            if n % 2 > 0:
                if n - n // 2 * 2 <= 1:
                    for j in T.unroll(1):
                        B[n // 2 * 2 + j] = A[n // 2 * 2 + j]
                else:
                    for j in T.unroll(1):
                        B[n // 2 * 2 + j] = A[n // 2 * 2 + j]
        """,
    )
    for n in (1, 2, 5):
        agree(f, made, *data((n,)), *data((n,)))


# ---------------------------------------------------------------------------- dynamic sizes
def test_a_loop_ends_where_nothing_is_left_to_do(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((200,), "int32"), n: T.int32):
        for i, j in T.grid(2, 64):
            for k in T.serial(1, 3):
                if i * 64 + j < n:
                    A[i * 64 + j] = A[i * 64 + j] + k

    made = simple(before)
    assert conditions(made) == 0
    for n in (-3, 0, 1, 64, 65, 128, 150):
        agree(before, made, *data(200), n)


@pytest.mark.parametrize(("cpu", "versions"), [("x86-64-v3", 2), ("x86-64-v4", 1)])
def test_copies_are_masked_where_masks_are_free(cpu, versions, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((200,), "int32"), B: T.Buffer((200,), "int32"), n: T.int32):
        for i in range((n + 7) // 8):
            for lane in T.vectorized(8):
                if i * 8 + lane < n:
                    B[i * 8 + lane] = A[i * 8 + lane]

    with tvm.target.Target(f"llvm -mcpu={cpu}"):
        made = simple(before)
    assert sum(isinstance(m, For) and m.kind is ForKind.VECTORIZED for m in pre_order(made.body)) == versions
    for n in (1, 7, 8, 9, 15, 16, 17, 100):
        agree(before, made, *data(200, 200), n)


def test_whole_tiles_of_which_a_part_is_stored_have_no_narrow_versions(agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((203,), "int32"), B: T.Buffer((200,), "int32"), n: T.int32):
        s = T.allocate([4], "int32", "local")
        s_1 = T.decl_buffer((4,), "int32", data=s)
        for i in range((n + 3) // 4):
            for r in T.unroll(4):
                s_1[r] = 0
            for k in range(30):
                for r in T.unroll(4):
                    s_1[r] = s_1[r] + A[i * 4 + r] * k
            for r in T.unroll(4):
                if i * 4 + r < n:
                    B[i * 4 + r] = s_1[r]

    made = simple(before)
    assert sum(isinstance(m, For) and m.loop_var.name == "k" for m in pre_order(made.body)) == 2
    for n in (1, 3, 4, 5, 8, 11):
        agree(before, made, *data(203, 200), n)
