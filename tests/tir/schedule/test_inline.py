"""Blocks dissolved in their consumers: compute_inline, and both directions at random."""

from __future__ import annotations

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_programs import chain
from stage_programs import (
    backwards,
    batched,
    blur,
    conv2d,
    fork,
    front,
    levels,
    matmul_relu,
    overwritten,
    padded,
    same,
    same_again,
    stencil,
    symbolic_stencil,
)

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.errors import ScheduleError
from tilewright.script import tir as T


# ---------------------------------------------------------------------------- compute_inline: expect
def test_into_a_stencil(expect):
    sch = tir.Schedule(stencil)
    sch.compute_inline("B")
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def stencil(A: T.Buffer((10,), "float32"), C: T.Buffer((10,), "float32")):
            # with T.block("root"):
            for i in range(10):
                with T.block("C"):
                    vi = T.axis.spatial(10, i)
                    T.reads(A[vi - 1:vi + 2])
                    T.writes(C[vi])
                    C[vi] = T.if_then_else(vi >= 1, A[vi - 1] * T.float32(2), T.float32(0)) + A[vi] * T.float32(2) + T.if_then_else(vi < 9, A[vi + 1] * T.float32(2), T.float32(0))
        """,
    )
    same(stencil, sch)


def test_into_several_consumers(expect):
    sch = tir.Schedule(fork)
    sch.compute_inline("B")
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def fork(A: T.Buffer((12,), "float32"), C: T.Buffer((12,), "float32"), D: T.Buffer((12,), "float32")):
            # with T.block("root"):
            for i in range(12):
                with T.block("C"):
                    vi = T.axis.spatial(12, i)
                    T.reads(A[vi])
                    T.writes(C[vi])
                    C[vi] = A[vi] * T.float32(2) + T.float32(1)
                with T.block("D"):
                    vi = T.axis.spatial(12, i)
                    T.reads(A[vi + 2])
                    T.writes(D[vi])
                    D[vi] = T.if_then_else(vi < 10, A[vi + 2] * T.float32(2), T.float32(0))
        """,
    )
    same(fork, sch)


def test_padding_into_the_body_of_a_reduction(expect):
    sch = tir.Schedule(conv2d)
    sch.compute_inline("P")
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def conv2d(X: T.Buffer((2, 5, 6), "float32"), W: T.Buffer((3, 2, 3, 3), "float32"), Y: T.Buffer((3, 5, 6), "float32")):
            # with T.block("root"):
            S = T.alloc_buffer((3, 5, 6))
            for o, y, x, c, ky, kx in T.grid(3, 5, 6, 2, 3, 3):
                with T.block("S"):
                    vo, vy, vx, vc, vky, vkx = T.axis.remap("SSSRRR", [o, y, x, c, ky, kx])
                    T.reads(X[vc, vy + vky - 1, vx + vkx - 1], W[vo, vc, vky, vkx])
                    T.writes(S[vo, vy, vx])
                    with T.init():
                        S[vo, vy, vx] = T.float32(0)
                    S[vo, vy, vx] = S[vo, vy, vx] + T.if_then_else(vy + vky >= 1 and vy + vky < 6 and vx + vkx >= 1 and vx + vkx < 7, X[vc, vy + vky - 1, vx + vkx - 1], T.float32(0)) * W[vo, vc, vky, vkx]
            for o, y, x in T.grid(3, 5, 6):
                with T.block("Y"):
                    vo, vy, vx = T.axis.remap("SSS", [o, y, x])
                    T.reads(S[vo, vy, vx])
                    T.writes(Y[vo, vy, vx])
                    Y[vo, vy, vx] = T.max(S[vo, vy, vx], T.float32(0))
        """,
    )
    same(conv2d, sch)


def test_into_an_init(expect):
    @T.prim_func
    def biased(A: T.Buffer((4, 3), "float32"), Z: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
        B = T.alloc_buffer((4,))
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = Z[vi] * T.float32(2)
        for i, k in T.grid(4, 3):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = B[vi]
                C[vi] = C[vi] + A[vi, vk]

    sch = tir.Schedule(biased)
    sch.compute_inline("B")
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def biased(A: T.Buffer((4, 3), "float32"), Z: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
            # with T.block("root"):
            for i, k in T.grid(4, 3):
                with T.block("C"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    T.reads(Z[vi], A[vi, vk])
                    T.writes(C[vi])
                    with T.init():
                        C[vi] = Z[vi] * T.float32(2)
                    C[vi] = C[vi] + A[vi, vk]
        """,
    )
    same(biased, sch)
    same_again(biased, sch)


def test_into_blocks_inside_a_block(expect):
    @T.prim_func
    def inner(A: T.Buffer((4, 4), "float32"), D: T.Buffer((4, 4), "float32")):
        B = T.alloc_buffer((4, 4))
        for i, j in T.grid(4, 4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vj, vi]
        for i in range(4):
            with T.block("D"):
                vi = T.axis.spatial(4, i)
                T.reads(B[vi, 0:4])
                T.writes(D[vi, 0:4])
                for j in range(4):
                    with T.block("inner"):
                        vj = T.axis.spatial(4, j)
                        D[vi, vj] = B[vi, vj]

    sch = tir.Schedule(inner)
    sch.compute_inline("B")
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def inner(A: T.Buffer((4, 4), "float32"), D: T.Buffer((4, 4), "float32")):
            # with T.block("root"):
            for i in range(4):
                with T.block("D"):
                    vi = T.axis.spatial(4, i)
                    T.reads(A[0:4, vi])
                    T.writes(D[vi, 0:4])
                    for j in range(4):
                        with T.block("inner"):
                            vj = T.axis.spatial(4, j)
                            T.reads(A[vj, vi])
                            T.writes(D[vi, vj])
                            D[vi, vj] = A[vj, vi]
        """,
    )
    same(inner, sch)


def test_a_transposed_and_a_constant_block():
    @T.prim_func
    def mixed(A: T.Buffer((3, 4), "float32"), D: T.Buffer((4, 3), "float32")):
        B = T.alloc_buffer((4, 3))
        C = T.alloc_buffer((4, 3))
        for i, j in T.grid(3, 4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vj, vi] = A[vi, vj]
        for i, j in T.grid(4, 3):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.float32(3)
        for i, j in T.grid(4, 3):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = B[vi, vj] + C[vi, vj]

    sch = tir.Schedule(mixed)
    sch.compute_inline("B")
    sch.compute_inline("C")
    assert "alloc_buffer" not in sch.mod.script()
    assert "D[vi, vj] = A[vj, vi] + T.float32(3)" in sch.mod.script()
    same(mixed, sch)
    same_again(mixed, sch)


# ---------------------------------------------------------------------------- compute_inline: meaning
@pytest.mark.parametrize(
    ("func", "block"),
    [(stencil, "B"), (blur, "B"), (conv2d, "P"), (fork, "B"), (levels, "B"), (padded, "B"), (backwards, "B")],
)
@pytest.mark.parametrize("split", [False, True])
def test_meaning_and_trace(func, block, split):
    sch = tir.Schedule(func)
    if split:  # the loops of an inlined block do not matter, nor the conditions that a split gave it
        sch.split(sch.get_loops(block)[0], [None, 3])
    sch.compute_inline(block)
    same(func, sch, build=not split)
    same_again(func, sch)


def test_a_chain_in_either_order():
    for order in ("BC", "CB"):
        sch = tir.Schedule(chain)
        for name in order:
            sch.compute_inline(name)
        assert [b.name for b in sch.get_child_blocks(sch.get_block("root"))] == ["D"]
        same(chain, sch)


def test_symbolic_shapes():
    sch = tir.Schedule(symbolic_stencil)
    sch.compute_inline("B")
    for n in (1, 2, 7):
        same(symbolic_stencil, sch, n=n, build=n == 7)


def test_a_handle_of_an_inlined_block_says_what_became_of_it(expect, refused):
    sch = tir.Schedule(stencil)
    block = sch.get_block("B")
    sch.compute_inline(block)
    expect(
        refused(sch, lambda: sch.get_loops(block)),
        """
        get_loops(B): block B no longer exists: it was removed by compute_inline(B)
          at test_inline.py:LINE

          | …
        """,
    )


# ---------------------------------------------------------------------------- compute_inline: refuse
def test_refuse_a_reduction(expect, refused):
    sch = tir.Schedule(matmul_relu)
    block = sch.get_block("C")
    expect(
        refused(sch, lambda: sch.compute_inline(block)),
        """
        compute_inline(C): block C is a reduction, which takes many steps for one element
          at test_inline.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: use compute_at to compute it close to its consumer
        """,
    )


def test_refuse_an_output(expect, refused):
    sch = tir.Schedule(backwards)
    block = sch.get_block("C")
    expect(
        refused(sch, lambda: sch.compute_inline(block)),
        """
        compute_inline(C): block C writes an output of its scope, which must be stored
          at test_inline.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: use reverse_compute_inline to take it into its producer
        """,
    )


def test_refuse_inputs_that_change_in_between(expect, refused):
    sch = tir.Schedule(overwritten)
    block = sch.get_block("B")
    expect(
        refused(sch, lambda: sch.compute_inline(block)),
        """
        compute_inline(B): block A writes A after block B has read it, and its readers would read the new values
          at test_inline.py:LINE

          | …
          |         with T.block("A"):    # <-- here
          | …

          hint: choose a loop before that block, or cache_read A for this block first
        """,
    )


def said(sch, refused, step, block):
    handle = sch.get_block(block)
    return refused(sch, lambda: getattr(sch, step)(handle))


def test_refuse_two_blocks_that_fill_one_buffer(expect, refused):
    @T.prim_func
    def halves(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi]
        for i in range(4):
            with T.block("B2"):
                vi = T.axis.spatial(4, i)
                B[vi + 4] = A[vi]
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = B[vi]

    expect(
        said(tir.Schedule(halves), refused, "compute_inline", "B"),
        """
        compute_inline(B): block B2 also writes B, so block B alone does not define it and is no complete block
          at test_inline.py:LINE

          | …
          |         with T.block("B2"):    # <-- here
          | …

          hint: apply this step before decompose_reduction or loop_partition splits the block
        """,
    )


def test_refuse_more_than_a_store(expect, refused):
    @T.prim_func
    def pair(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        B2 = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi]
                B2[vi] = A[vi] + T.float32(1)
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = B[vi] * B2[vi]

    expect(
        said(tir.Schedule(pair), refused, "compute_inline", "B"),
        """
        compute_inline(B): block B does more than store one value, so it cannot be inlined
          at test_inline.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: use compute_at to compute it close to its consumer
        """,
    )


def test_refuse_a_place_that_cannot_be_traced_back(expect, refused):
    @T.prim_func
    def spread(A: T.Buffer((4,), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi * 2] = A[vi]
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = T.if_then_else(vi % 2 == 0, B[vi], T.float32(0))

    expect(
        said(tir.Schedule(spread), refused, "compute_inline", "B"),
        """
        compute_inline(B): it writes B at `vi * 2`, which is not one iterator of block B: an element cannot be traced back to the point that makes it
          at test_inline.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: use compute_at to compute it close to its consumer
        """,
    )


def test_refuse_an_iterator_that_is_no_index(expect, refused):
    @T.prim_func
    def last(A: T.Buffer((4, 3), "float32"), C: T.Buffer((4,), "float32")):
        B = T.alloc_buffer((4,))
        for i, j in T.grid(4, 3):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi] = A[vi, vj]
        for i in range(4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                C[vi] = B[vi]

    expect(
        said(tir.Schedule(last), refused, "compute_inline", "B"),
        """
        compute_inline(B): iterator `vj` of block B does not say which element is written
          at test_inline.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: use compute_at to compute it close to its consumer
        """,
    )


def test_refuse_a_block_that_reads_what_it_writes(expect, refused):
    @T.prim_func
    def onto(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
        B = T.alloc_buffer((4,))
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = B[vi] + A[vi]
        for i in range(4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                C[vi] = B[vi]

    expect(
        said(tir.Schedule(onto), refused, "compute_inline", "B"),
        """
        compute_inline(B): block B reads what it writes
          at test_inline.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: use compute_at to compute it close to its consumer
        """,
    )


def test_a_block_that_nothing_reads_is_removed():
    @T.prim_func
    def unread(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
        B = T.alloc_buffer((4,))
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi]
        for i in range(4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                C[vi] = A[vi]

    sch = tir.Schedule(unread)
    sch.compute_inline("B")
    assert [b.name for b in sch.get_child_blocks(sch.get_block("root"))] == ["C"]
    assert not sch.get(sch.get_block("root")).alloc_buffers
    assert sch.verify()


def test_refuse_a_reader_that_takes_the_address(expect, refused):
    @T.prim_func
    def address(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
        B = T.alloc_buffer((4,))
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi]
        for i in range(4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                T.reads(B[vi])
                T.writes(C[vi])
                T.evaluate(T.call_extern("int32", "copy", T.address_of(C[vi]), T.address_of(B[vi])))

    expect(
        said(tir.Schedule(address), refused, "compute_inline", "B"),
        """
        compute_inline(B): block C uses B through a pointer, so there must be memory for it
          at test_inline.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: take this step before tensorize, or before the call that takes the pointer is made
        """,
    )


# ---------------------------------------------------------------------------- both, at random
@settings(max_examples=examples(30), deadline=None, derandomize=True)
@given(st.data())
def test_random_inlining_means_the_same_or_is_refused(data):
    func = data.draw(st.sampled_from([stencil, blur, conv2d, fork, levels, chain, batched, front, padded]))
    sch = tir.Schedule(func)
    for _ in range(data.draw(st.integers(1, 4))):
        names = [b.name for b in sch.get_child_blocks(sch.get_block("root"))]
        block = data.draw(st.sampled_from(names))
        step = data.draw(
            st.sampled_from(["split", "compute_inline", "compute_inline", "reverse_compute_inline"])
        )
        before = sch.mod
        try:
            if step == "split":
                sch.split(
                    data.draw(st.sampled_from(sch.get_loops(block))), [None, data.draw(st.integers(2, 5))]
                )
            else:
                getattr(sch, step)(block)
        except ScheduleError:
            assert sch.mod is before
    same(func, sch, build=False)
    same_again(func, sch)


def test_a_reader_that_comes_first(expect, refused):
    @T.prim_func(private=True)
    def before(A: T.Buffer((4,), "float32"), D: T.Buffer((4,), "float32")):
        C = T.alloc_buffer((4,))
        for t in range(2):
            for i in range(4):
                with T.block("D"):
                    vi = T.axis.spatial(4, i)
                    D[vi] = T.if_then_else(t > 0, C[vi], T.float32(0))
            for i in range(4):
                with T.block("C"):
                    vi = T.axis.spatial(4, i)
                    C[vi] = A[vi] + T.Cast("float32", t)

    sch = tir.Schedule(before)
    late = sch.get_block("C")
    expect(
        refused(sch, lambda: sch.compute_inline(late)),
        """
        compute_inline(C): block D reads what was there before block C writes
          at test_inline.py:LINE

          | …
          |             with T.block("D"):    # <-- here
          | …

          hint: cache_read for block D first, so that it reads a copy
        """,
    )


def test_an_index_wider_than_the_iterator():
    a, i = te.placeholder((50,), name="a"), te.placeholder((4,), "int64", name="i")
    b = te.compute((100,), lambda k: te.if_then_else(k < 50, a[k], a[k - 50]), name="b")
    c = te.compute((4,), lambda k: b[i[k]], name="c")
    sch = tir.Schedule(te.create_prim_func([a, i, c]))
    sch.compute_inline(sch.get_block("b"))
    x, at, out = np.arange(50, dtype="float32"), np.array([0, 49, 50, 99]), np.empty(4, "float32")
    tvm.build(sch.mod, target="llvm")(x, at, out)
    np.testing.assert_array_equal(out, [0, 49, 0, 49])


# ---------------------------------------------------------------------------- loads outside of blocks
@T.prim_func(private=True)
def outside(
    A: T.Buffer((4,), "int32"),
    C: T.Buffer((4,), "int32"),
    D: T.Buffer((4, 8), "int32"),
    E: T.Buffer((4,), "int32"),
):
    B = T.alloc_buffer((4,), "int32")
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi] * 2
    for i in range(4):
        if B[i] > 2:
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                C[vi] = A[vi] + B[vi]
    for i in range(4):
        for j in range(B[i]):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = 7
    for i in range(4):
        with T.block("E"):
            vi = T.axis.spatial(4, i)
            T.where(B[i] < 5)
            E[vi] = A[vi] + B[vi]


def test_conditions_bounds_and_predicates_are_rewritten(expect):
    sch = tir.Schedule(outside)
    sch.compute_inline("B")
    expect(
        sch.mod["main"],
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32"), D: T.Buffer((4, 8), "int32"), E: T.Buffer((4,), "int32")):
            # with T.block("root"):
            for i in range(4):
                if A[i] * 2 > 2:
                    with T.block("C"):
                        vi = T.axis.spatial(4, i)
                        T.reads(A[vi])
                        T.writes(C[vi])
                        C[vi] = A[vi] + A[vi] * 2
            for i in range(4):
                for j in range(A[i] * 2):
                    with T.block("D"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        T.reads()
                        T.writes(D[vi, vj])
                        D[vi, vj] = 7
            for i in range(4):
                with T.block("E"):
                    vi = T.axis.spatial(4, i)
                    T.where(A[i] * 2 < 5)
                    T.reads(A[vi])
                    T.writes(E[vi])
                    E[vi] = A[vi] + A[vi] * 2
        """,
    )
    zeros = [np.zeros(shape, "int32") for shape in (4, (4, 8), 4)]
    sch.verify(arrays=[np.arange(4, dtype="int32"), *zeros])


def test_a_condition_that_would_see_new_values(expect, refused):
    @T.prim_func(private=True)
    def stale(A: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32")):
        B = T.alloc_buffer((4,), "int32")
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] * 2
        for i in range(4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                C[vi] = B[vi]
        for i in range(4):
            with T.block("A"):
                vi = T.axis.spatial(4, i)
                A[vi] = 0
        for i in range(4):
            if B[i] > 2:
                with T.block("D"):
                    vi = T.axis.spatial(4, i)
                    C[vi] = C[vi] + 100

    expect(
        said(tir.Schedule(stale), refused, "compute_inline", "B"),
        """
        compute_inline(B): block A writes A after block B has read it, and what reads it outside of blocks would read the new values
          at test_inline.py:LINE

          | …
          |         with T.block("A"):    # <-- here
          | …

          hint: choose a loop before that block, or cache_read A for this block first
        """,
    )


def test_a_condition_before_the_block(expect, refused):
    @T.prim_func(private=True)
    def early(A: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32"), D: T.Buffer((4,), "int32")):
        B = T.alloc_buffer((4,), "int32")
        for t in range(2):
            for i in range(4):
                if t > 0 and B[i] > 2:
                    with T.block("D"):
                        vi = T.axis.spatial(4, i)
                        D[vi] = 100
            for i in range(4):
                with T.block("B"):
                    vi = T.axis.spatial(4, i)
                    B[vi] = A[vi] * (2 - t)
            for i in range(4):
                with T.block("C"):
                    vi = T.axis.spatial(4, i)
                    C[vi] = B[vi]

    expect(
        said(tir.Schedule(early), refused, "compute_inline", "B"),
        """
        compute_inline(B): B is read outside of blocks, by a bound of a loop, a condition or a binding, which may come before block B writes it
          at test_inline.py:LINE

          | …
          |     for t in range(2):    # <-- here
          | …

          hint: use compute_at to compute it close to its consumer
        """,
    )


def test_into_a_producer_that_a_condition_reads(expect, refused):
    @T.prim_func(private=True)
    def also(A: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32"), D: T.Buffer((4,), "int32")):
        B = T.alloc_buffer((4,), "int32")
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] * 2
        for i in range(4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                C[vi] = B[vi] + 1
        for i in range(4):
            if B[i] > 2:
                with T.block("D"):
                    vi = T.axis.spatial(4, i)
                    D[vi] = 1

    expect(
        said(tir.Schedule(also), refused, "reverse_compute_inline", "C"),
        """
        reverse_compute_inline(C): B is read outside of blocks too, by a bound of a loop, a condition or a binding
          at test_inline.py:LINE

          | …
          |     for i in range(4):    # <-- here
          | …

          hint: use reverse_compute_at to compute it close to its producer, or compute_inline on the producer
        """,
    )


def test_reads_through_a_pointer_stay_declared():
    @T.prim_func
    def looked_up(table: T.Buffer((16,), "int8"), A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
        B = T.alloc_buffer((4,))
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] * 2.0
        for i in range(4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                T.reads(table[0:16], B[vi])
                T.writes(C[vi])
                T.evaluate(T.tvm_access_ptr(T.type_annotation("int8"), table.data, 0, 16, 1))
                C[vi] = B[vi] + 1.0

    sch = tir.Schedule(looked_up)
    sch.compute_inline("B")
    block = sch.get(sch.get_block("C"))
    assert [r.buffer.name for r in block.reads] == ["table", "A"]
    assert [w.buffer.name for w in block.writes] == ["C"]
