"""How buffers lie in memory: transform_layout, set_axis_separator, unsafe_set_dtype."""

from __future__ import annotations

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_checks import keeps_meaning, replays
from schedule_programs import arrays, chain, matmul, symbolic

import tilewright as tvm
from tilewright import tir
from tilewright.script import tir as T
from tilewright.tir import IndexMap


@T.prim_func
def pair(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
    B = T.alloc_buffer((16, 8))
    for i, j in T.grid(16, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(16, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + T.float32(1)


def on(func, block):
    sch = tir.Schedule(func)
    return sch, sch.get_block(block)


# ---------------------------------------------------------------------------- transform_layout
def test_transform_layout(expect):
    sch, b = on(pair, "B")
    sch.transform_layout(b, ("write", 0), lambda i, j: (i // 4, j, i % 4))
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def pair(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
            # with T.block("root"):
            B = T.alloc_buffer((4, 8, 4))
            for i, j in T.grid(16, 8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(A[vi, vj])
                    T.writes(B[vi // 4, vj, vi % 4])
                    B[vi // 4, vj, vi % 4] = A[vi, vj] * T.float32(2)
            for i, j in T.grid(16, 8):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(B[vi // 4, vj, vi % 4])
                    T.writes(C[vi, vj])
                    C[vi, vj] = B[vi // 4, vj, vi % 4] + T.float32(1)
        """,
    )
    keeps_meaning(pair, sch)


@pytest.mark.parametrize("buffer", [("write", 0), ["write", 0], "B", 0])
def test_ways_to_name_the_buffer(buffer):
    sch, b = on(pair, "B")
    sch.transform_layout(b, buffer, lambda i, j: (j, i))
    keeps_meaning(pair, sch)
    other, c = on(pair, "C")
    other.transform_layout(c, ("read", 0), lambda i, j: (j, i))
    assert str(other.mod) == str(sch.mod)


def test_a_buffer_itself_names_it():
    sch, b = on(pair, "B")
    sch.transform_layout(b, sch.get(b).writes[0].buffer, lambda *i: i[::-1])
    assert "buffer=['write', 0], index_map=lambda i_0, i_1: (i_1, i_0)" in str(sch.trace)
    keeps_meaning(pair, sch)


def test_indices_are_simplified_with_the_iterators(expect):
    sch, b = on(pair, "B")
    sch.transform_layout(b, "B", lambda i, j: (i * 8 + j,))
    sch.transform_layout(b, "B", lambda k: (k // 8, k % 8))
    expect(
        sch.mod["main"].body.block.body.seq[0],
        """
        A = T.Buffer((16, 8))
        B = T.Buffer((16, 8))
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, vj])
                T.writes(B[vi, vj])
                B[vi, vj] = A[vi, vj] * T.float32(2)
        """,
    )
    keeps_meaning(pair, sch)


def test_regions_that_are_no_points(expect):
    @T.prim_func
    def rows(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8, 8))
        for i, j in T.grid(8, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = T.float32(0)
                for k in range(8):
                    C[vi] = C[vi] + B[vi, k]

    sch, b = on(rows, "B")
    sch.transform_layout(b, "B", lambda i, j: (j // 4, i, j % 4))
    expect(
        sch.mod["main"].body.block.body.seq[1],
        """
        C = T.Buffer((8,))
        B = T.Buffer((2, 8, 4))
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                T.reads(C[vi], B[0:2, vi, 0:4])
                T.writes(C[vi])
                C[vi] = T.float32(0)
                for k in range(8):
                    C[vi] = C[vi] + B[k // 4, vi, k % 4]
        """,
    )
    keeps_meaning(rows, sch)


def test_a_parameter_changes_what_the_function_takes(expect):
    sch, c = on(matmul, "C")
    sch.transform_layout(c, "B", lambda k, j: (j // 2, k, j % 2))
    sch.transform_layout(c, ("write", 0), lambda i, j: (j, i))
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def matmul(A: T.Buffer((7, 5), "float32"), B: T.Buffer((3, 5, 2), "float32"), C: T.Buffer((6, 7), "float32")):
            # with T.block("root"):
            for i, j, k in T.grid(7, 6, 5):
                with T.block("C"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    T.reads(A[vi, vk], B[vj // 2, vk, vj % 2])
                    T.writes(C[vj, vi])
                    with T.init():
                        C[vj, vi] = T.float32(0)
                    C[vj, vi] = C[vj, vi] + A[vi, vk] * B[vj // 2, vk, vj % 2]
        """,
    )
    a, b, _c_out = arrays(matmul)
    packed = IndexMap.from_func(lambda k, j: (j // 2, k, j % 2)).map_ndarray(b)
    got = np.zeros((6, 7), "float32")
    tir.interpret(sch.mod["main"], a, packed, got)
    np.testing.assert_array_equal(got.T, a @ b)
    compiled = tvm.nd.array(np.zeros((6, 7), "float32"))
    tvm.build(sch.mod, target="llvm")(tvm.nd.array(a), tvm.nd.array(packed), compiled)
    np.testing.assert_allclose(compiled.numpy().T, a @ b, rtol=1e-6)
    replays(matmul, sch)


def test_padding_is_written_after_the_last_writer(expect):
    sch, b = on(chain, "B")
    sch.transform_layout(b, "B", lambda i: (i // 4, i % 4), pad_value=7)
    expect(
        sch.mod["main"].body.block.body.seq[1],
        """
        B = T.Buffer((3, 4))
        for ax0, ax1 in T.grid(3, 4):
            with T.block("B_pad"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                T.reads()
                T.writes(B[v0, v1])
                if v0 * 4 + v1 >= 10:
                    B[v0, v1] = T.float32(7)
        """,
    )
    keeps_meaning(chain, sch)


def test_the_padding_of_a_buffer_that_is_private_to_an_iteration(expect):
    sch, b = on(pair, "B")
    i, _j = sch.get_loops(sch.get_block("C"))
    sch.compute_at(b, i)
    sch.transform_layout(b, "B", lambda i, j: (j // 3, i, j % 3), pad_value=0)
    sch.parallel(i)
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def pair(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
            # with T.block("root"):
            B = T.alloc_buffer((3, 16, 3))
            for i in T.parallel(16):
                for ax1 in range(8):
                    with T.block("B"):
                        vi, vj = T.axis.remap("SS", [i, ax1])
                        T.reads(A[vi, vj])
                        T.writes(B[vj // 3, vi, vj % 3])
                        B[vj // 3, vi, vj % 3] = A[vi, vj] * T.float32(2)
                for ax0, ax1, ax2 in T.grid(3, 16, 3):
                    with T.block("B_pad"):
                        v0, v1, v2 = T.axis.remap("SSS", [ax0, ax1, ax2])
                        T.reads()
                        T.writes(B[v0, v1, v2])
                        if v0 * 3 + v2 >= 8:
                            B[v0, v1, v2] = T.float32(0)
                for j in range(8):
                    with T.block("C"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        T.reads(B[vj // 3, vi, vj % 3])
                        T.writes(C[vi, vj])
                        C[vi, vj] = B[vj // 3, vi, vj % 3] + T.float32(1)
        """,
    )
    keeps_meaning(pair, sch, planned=True)


def test_padding_by_a_function_of_the_new_indices():
    sch, b = on(chain, "B")
    sch.transform_layout(b, "B", lambda i: (i // 4, i % 4), pad_value=lambda o, k: o * 4 + k)
    assert 'B[v0, v1] = T.Cast("float32", v0 * 4 + v1)' in str(sch.mod)
    keeps_meaning(chain, sch)


def test_the_padding_of_an_output_is_written():
    @T.prim_func
    def ones(A: T.Buffer((6,), "float32")):
        for i in range(6):
            with T.block("A"):
                vi = T.axis.spatial(6, i)
                A[vi] = T.float32(1)

    sch, a = on(ones, "A")
    sch.transform_layout(a, "A", lambda i: (i // 4, i % 4), pad_value=-1.5)
    got = np.zeros((2, 4), "float32")
    tir.interpret(sch.mod["main"], got)
    np.testing.assert_array_equal(got, [[1, 1, 1, 1], [1, 1, -1.5, -1.5]])
    replays(ones, sch)


def test_the_padding_of_an_input_is_up_to_the_caller():
    sch, c = on(matmul, "C")
    sch.transform_layout(c, "A", lambda i, k: (i // 4, k, i % 4), pad_value=0)
    a, b, _want = arrays(matmul)
    got = np.zeros((7, 6), "float32")
    packed = IndexMap.from_func(lambda i, k: (i // 4, k, i % 4)).map_ndarray(a)
    tir.interpret(sch.mod["main"], packed, b, got)
    np.testing.assert_array_equal(got, a @ b)


def test_axis_separators_are_a_step_of_their_own():
    sch, b = on(pair, "B")
    sch.transform_layout(b, "B", lambda i, j: (i // 4, IndexMap.AXIS_SEPARATOR, j, i % 4))
    assert sch.trace.as_python()[1:] == [
        "sch.transform_layout(block=b0, buffer='B', index_map=lambda i, j: (i // 4, j, i % 4))",
        "sch.set_axis_separator(block=b0, buffer='B', axis_separators=[1])",
    ]
    assert "B = T.alloc_buffer((4, 8, 4), axis_separators=[1])" in str(sch.mod)
    keeps_meaning(pair, sch)


def test_a_map_that_must_be_taken_on_trust(expect, refused):
    def swizzle(i, j):
        return (i, (j + i) % 8)

    sch, b = on(pair, "B")
    expect(
        refused(sch, lambda: sch.transform_layout(b, "B", swizzle)),
        """
        transform_layout(B, buffer='B', index_map=lambda i, j: (i, (j + i) % 8)): lambda i, j: (i, (j + i) % 8) cannot be inverted: iterators overlap or leave gaps: their scales do not follow from their extents, so B cannot be laid out by it
          at test_layout.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: use a map that gives each element a place of its own, such as (i // 4, i % 4)
        """,
    )
    sch.transform_layout(b, "B", swizzle, assume_injective_transform=True)
    keeps_meaning(pair, sch)


def test_after_other_steps():
    sch, b = on(pair, "B")
    i, _j = sch.get_loops(b)
    sch.split(i, [None, 3])
    c = sch.get_block("C")
    sch.compute_at(b, sch.get_loops(c)[0])
    sch.transform_layout(b, "B", lambda i, j: (j // 2, i, j % 2))
    keeps_meaning(pair, sch)


def test_padding_must_be_asked_for(expect, refused):
    sch, b = on(chain, "B")
    expect(
        refused(sch, lambda: sch.transform_layout(b, "B", lambda i: (i // 4, i % 4))),
        """
        transform_layout(B, buffer='B', index_map=lambda i: (i // 4, i % 4)): B of shape (10) becomes (3, 4), and nothing is said about what the new elements hold (those where `axis0 * 4 + axis1 >= 10`)
          at test_layout.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: give pad_value, or choose factors that divide the shape
        """,
    )


def test_elements_must_not_share_a_place(expect, refused):
    sch, b = on(chain, "B")
    expect(
        refused(sch, lambda: sch.transform_layout(b, "B", lambda i: (i // 4,))),
        """
        transform_layout(B, buffer='B', index_map=lambda i: (i // 4,)): lambda i: (i // 4,) maps several values of `i` to the same index, so B cannot be laid out by it
          at test_layout.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: use a map that gives each element a place of its own, such as (i // 4, i % 4)
        """,
    )


def test_the_number_of_indices(expect, refused):
    sch, b = on(chain, "B")
    expect(
        refused(sch, lambda: sch.transform_layout(b, "B", lambda i, j: (i, j))),
        """
        transform_layout(B, buffer='B', index_map=lambda i, j: (i, j)): the map takes 2 indices, and B has 1 dimensions
          at test_layout.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )


def test_the_buffer_must_be_used_by_the_block(expect, refused):
    sch, b = on(chain, "B")
    expect(
        refused(sch, lambda: sch.transform_layout(b, "D", lambda *i: i)),
        """
        transform_layout(B, buffer='D', index_map=lambda i_0: (i_0,)): block B uses no buffer named 'D'; it uses B, A
          at test_layout.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )
    expect(
        refused(sch, lambda: sch.transform_layout(b, ("write", 3), lambda i: (i,))),
        """
        transform_layout(B, buffer=['write', 3], index_map=lambda i: (i,)): the buffer is given as ('write', 3), and block B has 1 reads and 1 writes
          at test_layout.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: give ("read", index), ("write", index) or the name of the buffer
        """,
    )
    expect(
        refused(sch, lambda: sch.transform_layout(b, ("wrote", 0), lambda i: (i,))),
        """
        transform_layout(B, buffer=['wrote', 0], index_map=lambda i: (i,)): the buffer is given as ('wrote', 0), and block B has 1 reads and 1 writes
          at test_layout.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: give ("read", index), ("write", index) or the name of the buffer
        """,
    )


def test_a_size_that_is_read_off_the_shape(expect, refused):
    @T.prim_func
    def zeros(a: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n, 8))
        for i, j in T.grid(n, 8):
            with T.block("A"):
                vi, vj = T.axis.remap("SS", [i, j])
                A[vi, vj] = T.float32(0)

    sch, b = on(zeros, "A")

    def step():
        sch.transform_layout(b, "A", lambda i, j: (i // 4, j, i % 4), pad_value=0)

    expect(
        refused(sch, step),
        """
        transform_layout(A, buffer='A', index_map=lambda i, j: (i // 4, j, i % 4), pad_value=0): the function learns `n` from the shape of its parameter A, which would not show it any more
          at test_layout.py:LINE

          | …
          |         with T.block("A"):    # <-- here
          | …

          hint: cache_read or cache_write the parameter, and transform the copy
        """,
    )
    sch.transform_layout(b, "A", lambda i, j: (j, i))
    assert "A = T.match_buffer(a, (8, n))" in str(sch.mod)


def test_a_size_that_another_parameter_shows_too():
    sch, b = on(symbolic, "B")
    sch.transform_layout(b, "A", lambda i, j: (i // 4, j, i % 4), pad_value=0)
    assert "A = T.match_buffer(a, ((n + 3) // 4, 8, 4))" in str(sch.mod)
    a = arrays(symbolic, 5)[0]
    packed = IndexMap.from_func(lambda i, j: (i // 4, j, i % 4)).map_ndarray(a)
    got = np.zeros((5, 8), "float32")
    tir.interpret(sch.mod["main"], packed, got)
    np.testing.assert_array_equal(got, a * 2)


def test_strides_are_not_lost(expect, refused):
    sch, b = on(pair, "B")
    sch.storage_align(b, 0, 0, 8, 1)
    expect(
        refused(sch, lambda: sch.transform_layout(b, "B", lambda i, j: (j, i))),
        """
        transform_layout(B, buffer='B', index_map=lambda i, j: (j, i)): the strides of B were set by storage_align for the old layout
          at test_layout.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: transform_layout first, then storage_align
        """,
    )


def test_what_does_not_go_through_indices(expect, refused):
    @T.prim_func
    def through(A: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi]
        for i in range(2):
            with T.block("M"):
                vi = T.axis.spatial(2, i)
                T.reads(B[vi * 4 : vi * 4 + 4])
                T.writes(A[vi])
                S = T.match_buffer(B[vi * 4 : vi * 4 + 4], (4,), offset_factor=1)
                A[vi] = S[0]

    sch, b = on(through, "B")
    expect(
        refused(sch, lambda: sch.transform_layout(b, "B", lambda i: (i // 4, i % 4))),
        """
        transform_layout(B, buffer='B', index_map=lambda i: (i // 4, i % 4)): a region of B is seen as S by match_buffer
          at test_layout.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )

    @T.prim_func
    def pointer(A: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi]
        with T.block("E"):
            T.reads(B[0:8])
            T.writes()
            T.evaluate(T.call_extern("int32", "f", B.data))

    sch, b = on(pointer, "B")
    expect(
        refused(sch, lambda: sch.transform_layout(b, "B", lambda i: (i // 4, i % 4))),
        """
        transform_layout(B, buffer='B', index_map=lambda i: (i // 4, i % 4)): a pointer to B is passed on, so it is not known which elements are used
          at test_layout.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )


@settings(max_examples=examples(25), derandomize=True, deadline=None)
@given(st.permutations(range(4)), st.sampled_from([2, 3, 4, 5]), st.sampled_from([2, 4, 5]))
def test_random_layouts_mean_the_same(order, f, g):
    sch, b = on(pair, "B")

    def layout(i, j):
        parts = [i // f, i % f, j // g, j % g]
        return [parts[k] for k in order]

    sch.transform_layout(b, "B", layout, pad_value=0)
    want, got = arrays(pair), arrays(pair)
    tir.interpret(pair, *want)
    tir.interpret(sch.mod["main"], *got)
    np.testing.assert_array_equal(want[1], got[1])
    replays(pair, sch)


# ---------------------------------------------------------------------------- set_axis_separator
def test_set_axis_separator(expect):
    sch, b = on(pair, "B")
    sch.set_axis_separator(b, ("write", 0), [1])
    assert "B = T.alloc_buffer((16, 8), axis_separators=[1])" in str(sch.mod)
    keeps_meaning(pair, sch)
    before = sch.mod
    sch.set_axis_separator(b, ("write", 0), [1])
    assert sch.mod is before
    sch.set_axis_separator(b, ("write", 0), None)
    assert "axis_separators" not in str(sch.mod)


def test_set_axis_separator_of_a_parameter():
    sch, b = on(pair, "B")
    sch.set_axis_separator(b, "A", [1])
    assert sch.mod["main"].buffer_params()[0].axis_separators == (1,)
    keeps_meaning(pair, sch)


@pytest.mark.parametrize("cuts", [[0], [2], [1, 1], [-1]])
def test_separators_out_of_place(cuts, expect, refused):
    sch, b = on(pair, "B")
    text = refused(sch, lambda: sch.set_axis_separator(b, "B", cuts))
    expect(
        text.replace(str(cuts), "CUTS"),
        """
        set_axis_separator(B, buffer='B', axis_separators=CUTS): axis_separators=CUTS: they must rise, and lie between the 2 dimensions of B
          at test_layout.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )


# ---------------------------------------------------------------------------- unsafe_set_dtype
def test_unsafe_set_dtype(expect):
    sch, b = on(chain, "B")
    sch.unsafe_set_dtype(b, 0, "float64")
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def chain(A: T.Buffer((10,), "float32"), D: T.Buffer((10,), "float32")):
            # with T.block("root"):
            B = T.alloc_buffer((10,), "float64")
            C = T.alloc_buffer((10,))
            for i in range(10):
                with T.block("B"):
                    vi = T.axis.spatial(10, i)
                    T.reads(A[vi])
                    T.writes(B[vi])
                    B[vi] = T.Cast("float64", A[vi] + T.float32(1))
            for i in range(10):
                with T.block("C"):
                    vi = T.axis.spatial(10, i)
                    T.reads(B[vi])
                    T.writes(C[vi])
                    C[vi] = T.Cast("float32", B[vi]) * T.float32(2)
            for i in range(10):
                with T.block("D"):
                    vi = T.axis.spatial(10, i)
                    T.reads(C[vi], B[vi])
                    T.writes(D[vi])
                    D[vi] = C[vi] + T.Cast("float32", B[vi])
        """,
    )
    keeps_meaning(chain, sch)


def test_unsafe_set_dtype_may_round():
    sch, b = on(chain, "B")
    sch.unsafe_set_dtype(b, 0, "float16")
    want, got = arrays(chain), arrays(chain)
    want[0] += np.float32(1e-4)
    got[0] += np.float32(1e-4)
    tir.interpret(chain, *want)
    tir.interpret(sch.mod["main"], *got)
    np.testing.assert_allclose(want[1], got[1], atol=1e-2)
    assert (want[1] != got[1]).any()
    replays(chain, sch)


def test_unsafe_set_dtype_of_an_accumulator():
    sch, c = on(matmul, "C")
    sch.cache_write(c, 0, "local")
    sch.unsafe_set_dtype(c, 0, "float64")
    assert "C_local[vi, vj] = T.float64(0)" in str(sch.mod)
    keeps_meaning(matmul, sch)


def test_the_same_type_changes_nothing():
    sch, b = on(chain, "B")
    before = sch.mod
    sch.unsafe_set_dtype(b, 0, "float32")
    assert sch.mod is before


def test_the_type_of_a_parameter_is_the_callers(expect, refused):
    sch, d = on(chain, "D")
    expect(
        refused(sch, lambda: sch.unsafe_set_dtype(d, 0, "float16")),
        """
        unsafe_set_dtype(D, buffer_index=0, dtype='float16'): D is a parameter of the function: who calls it decides of which type it is
          at test_layout.py:LINE

          | …
          |         with T.block("D"):    # <-- here
          | …

          hint: cache_write it, and change the type of the copy
        """,
    )
    b = sch.get_block("B")
    expect(
        refused(sch, lambda: sch.unsafe_set_dtype(b, 0, "float33")),
        """
        unsafe_set_dtype(B, buffer_index=0, dtype='float33'): there is no type 'float33'
          at test_layout.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )
    expect(
        refused(sch, lambda: sch.unsafe_set_dtype(b, 1, "float16")),
        """
        unsafe_set_dtype(B, buffer_index=1, dtype='float16'): the buffer is given as ('write', 1), and block B has 1 reads and 1 writes
          at test_layout.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: give ("read", index), ("write", index) or the name of the buffer
        """,
    )
