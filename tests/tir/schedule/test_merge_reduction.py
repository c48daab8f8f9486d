"""The start of a reduction made its init again: merge_reduction."""

from __future__ import annotations

from typing import Any

import pytest
from schedule_checks import keeps_meaning
from schedule_programs import matmul

from tilewright import te, tir
from tilewright.ir.equal import assert_structural_equal
from tilewright.script import tir as T


def decomposed(at: int = 0, func: Any = matmul) -> tuple[Any, Any]:
    sch = tir.Schedule(func)
    return sch, sch.decompose_reduction("C", sch.get_loops("C")[at])


def said(refused: Any, sch: Any, init: str) -> str:
    start, update = sch.get_block(init), sch.get_block("C")
    text: str = refused(sch, lambda: sch.merge_reduction(start, update))
    return text


# ---------------------------------------------------------------------------- expect
def test_the_start_becomes_the_init(expect: Any) -> None:
    sch, init = decomposed(2)
    sch.merge_reduction(init, "C")
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def matmul(A: T.Buffer((7, 5), "float32"), B: T.Buffer((5, 6), "float32"), C: T.Buffer((7, 6), "float32")):
            # with T.block("root"):
            for i, j, k in T.grid(7, 6, 5):
                with T.block("C"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    T.reads(A[vi, vk], B[vk, vj])
                    T.writes(C[vi, vj])
                    with T.init():
                        C[vi, vj] = T.float32(0)
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        """,
    )


# ---------------------------------------------------------------------------- meaning
@pytest.mark.parametrize("at", range(3))
def test_it_undoes_decompose_reduction(at: int) -> None:
    sch, init = decomposed(at)
    sch.merge_reduction(init, "C")
    assert_structural_equal(sch.mod, sch.origin)


def test_of_tiles() -> None:
    sch = tir.Schedule(matmul)
    i, j, k = sch.get_loops("C")
    (k_0, k_1), (j_0, j_1) = sch.split(k, [None, 2]), sch.split(j, [None, 4])
    sch.reorder(i, j_0, k_0, j_1, k_1)
    before = sch.mod
    init = sch.decompose_reduction("C", k_0)
    sch.merge_reduction(init, "C")
    assert_structural_equal(sch.mod, before)
    keeps_meaning(matmul, sch)


def test_of_a_start_that_was_scheduled() -> None:
    sch, init = decomposed()
    i, j = sch.get_loops(init)
    sch.split(j, [None, 4])
    sch.parallel(i)
    sch.merge_reduction(init, "C")
    assert_structural_equal(sch.mod, sch.origin)


def test_of_the_largest_and_where_it_is() -> None:
    def larger(x: Any, y: Any) -> tuple[Any, Any]:
        return tuple(tir.Select(x[1] >= y[1], a, b) for a, b in zip(x, y, strict=True))  # type: ignore[return-value]

    argmax = te.comm_reducer(larger, lambda i, v: (tir.const(-1, i), te.min_value(v)), name="argmax")
    A = te.placeholder((4, 6), name="A")
    k = te.reduce_axis((0, 6), "k")
    at, most = te.compute((4,), lambda i: argmax((k.var, A[i, k]), axis=k), name="C")
    func = te.create_prim_func([A, at, most])
    sch = tir.Schedule(func)
    init = sch.decompose_reduction("C", sch.get_loops("C")[0])
    sch.merge_reduction(init, "C")
    assert_structural_equal(sch.mod, sch.origin)


def test_of_a_start_read_from_memory() -> None:
    @T.prim_func
    def rows(A: T.Buffer((5, 10), "float32"), S: T.Buffer((5,), "float32"), C: T.Buffer((5,), "float32")):
        for i in range(5):
            with T.block("C_init"):
                vi = T.axis.spatial(5, i)
                C[vi] = S[vi] * T.float32(3)
        for i, k in T.grid(5, 10):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                C[vi] = C[vi] + A[vi, vk]

    sch = tir.Schedule(rows)
    sch.merge_reduction("C_init", "C")
    keeps_meaning(rows, sch)
    sch.rfactor(sch.split(sch.get_loops("C")[1], [None, 5])[0])
    assert sch.verify()


# ---------------------------------------------------------------------------- refuse
def test_refuse_other_blocks(expect: Any, refused: Any) -> None:
    sch, init = decomposed()
    c = sch.get_block("C")
    expect(
        refused(sch, lambda: sch.merge_reduction(c, init)),
        """
        merge_reduction(C, update_block=C_init): block C_init has no reduction iterator
          at test_merge_reduction.py:LINE

          | …
          |         with T.block("C_init"):    # <-- here
          | …

          hint: pass the init block first
        """,
    )
    expect(
        refused(sch, lambda: sch.merge_reduction(c, c)),
        """
        merge_reduction(C, update_block=C): block C cannot be its own init
          at test_merge_reduction.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: pass the init block first
        """,
    )
    sch.merge_reduction(init, c)
    expect(
        refused(sch, lambda: sch.get_loops(init)),
        """
        get_loops(C_init): block C_init no longer exists: it was removed by merge_reduction(C_init, C)
          at test_merge_reduction.py:LINE

          | …
        """,
    )
    expect(
        refused(sch, lambda: sch.merge_reduction(c, c)),
        """
        merge_reduction(C, update_block=C): block C has an init already
          at test_merge_reduction.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: only a reduction without an init can get one
        """,
    )


def test_refuse_a_start_inside_of_the_reduction(expect: Any, refused: Any) -> None:
    @T.prim_func
    def last(A: T.Buffer((5, 10), "float32"), C: T.Buffer((5,), "float32")):
        for k in range(10):
            for i in range(5):
                with T.block("C_init"):
                    vi = T.axis.spatial(5, i)
                    C[vi] = T.float32(0)
            for i in range(5):
                with T.block("C"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    C[vi] = C[vi] + A[vi, vk]

    sch = tir.Schedule(last)
    expect(
        said(refused, sch, "C_init"),
        """
        merge_reduction(C_init, update_block=C): loop `k` carries the reduction of block C and repeats its init in each iteration
          at test_merge_reduction.py:LINE

          | …
          |     for k in range(10):    # <-- here
          | …

          hint: block C_init must be outside `k`
        """,
    )


def test_refuse_a_start_of_more_or_fewer_elements(expect: Any, refused: Any) -> None:
    @T.prim_func
    def more(A: T.Buffer((5, 10), "float32"), C: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("C_init"):
                vi = T.axis.spatial(8, i)
                C[vi] = T.float32(0)
        for i, k in T.grid(5, 10):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                C[vi] = C[vi] + A[vi, vk]

    @T.prim_func
    def fewer(A: T.Buffer((5, 10), "float32"), C: T.Buffer((5,), "float32")):
        for i in range(3):
            with T.block("C_init"):
                vi = T.axis.spatial(5, i)
                C[vi] = T.float32(0)
        for i, k in T.grid(5, 10):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                C[vi] = C[vi] + A[vi, vk]

    sch = tir.Schedule(more)
    expect(
        said(refused, sch, "C_init"),
        """
        merge_reduction(C_init, update_block=C): it cannot be proved that block C_init initializes exactly the elements that block C reduces into, each once
          at test_merge_reduction.py:LINE

          | …
          |         with T.block("C_init"):    # <-- here
          | …

          hint: merge the blocks before their loops are split, fused or cut
        """,
    )
    sch = tir.Schedule(fewer)
    expect(
        said(refused, sch, "C_init"),
        """
        merge_reduction(C_init, update_block=C): it cannot be proved that block C_init initializes exactly the elements that block C reduces into, each once
          at test_merge_reduction.py:LINE

          | …
          |         with T.block("C_init"):    # <-- here
          | …

          hint: merge the blocks before their loops are split, fused or cut
        """,
    )


def test_refuse_a_reduction_that_is_done_twice(expect: Any, refused: Any) -> None:
    @T.prim_func
    def again(A: T.Buffer((5, 10), "float32"), C: T.Buffer((5,), "float32")):
        for i in range(5):
            with T.block("C_init"):
                vi = T.axis.spatial(5, i)
                C[vi] = T.float32(0)
        for _t, i, k in T.grid(2, 5, 10):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                C[vi] = C[vi] + A[vi, vk]

    sch = tir.Schedule(again)
    expect(
        said(refused, sch, "C_init"),
        """
        merge_reduction(C_init, update_block=C): it cannot be proved that block C_init initializes exactly the elements that block C reduces into, each once
          at test_merge_reduction.py:LINE

          | …
          |         with T.block("C_init"):    # <-- here
          | …

          hint: merge the blocks before their loops are split, fused or cut
        """,
    )


def test_refuse_who_sees_the_start(expect: Any, refused: Any) -> None:
    @T.prim_func
    def seen(A: T.Buffer((5, 10), "float32"), C: T.Buffer((5,), "float32"), D: T.Buffer((5,), "float32")):
        for i in range(5):
            with T.block("C_init"):
                vi = T.axis.spatial(5, i)
                C[vi] = T.float32(0)
        for i in range(5):
            with T.block("D"):
                vi = T.axis.spatial(5, i)
                D[vi] = C[vi]
        for i, k in T.grid(5, 10):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                C[vi] = C[vi] + A[vi, vk]

    @T.prim_func
    def written(A: T.Buffer((5, 10), "float32"), C: T.Buffer((5,), "float32")):
        for i in range(5):
            with T.block("C_init"):
                vi = T.axis.spatial(5, i)
                C[vi] = T.float32(0)
        for i, k in T.grid(5, 10):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                C[vi] = C[vi] + A[vi, vk]
        for i in range(5):
            with T.block("E"):
                vi = T.axis.spatial(5, i)
                C[vi] = C[vi] * T.float32(2)

    sch = tir.Schedule(seen)
    expect(
        said(refused, sch, "C_init"),
        """
        merge_reduction(C_init, update_block=C): block D also uses C, between the start of the reduction and its end
          at test_merge_reduction.py:LINE

          | …
          |         with T.block("D"):    # <-- here
          | …

          hint: move block D away first
        """,
    )
    sch = tir.Schedule(written)
    expect(
        said(refused, sch, "C_init"),
        """
        merge_reduction(C_init, update_block=C): block E also writes C
          at test_merge_reduction.py:LINE

          | …
          |         with T.block("E"):    # <-- here
          | …

          hint: move block E away first
        """,
    )


def test_refuse_what_is_no_start(expect: Any, refused: Any) -> None:
    @T.prim_func
    def apart(A: T.Buffer((5, 5), "float32"), C: T.Buffer((5, 5), "float32"), D: T.Buffer((5,), "float32")):
        for i, j in T.grid(5, 5):
            with T.block("across"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vj, vi] = T.Cast("float32", vi)
        for i in range(5):
            with T.block("D"):
                vi = T.axis.spatial(5, i)
                D[vi] = T.float32(0)
        for i in range(5):
            with T.block("diagonal"):
                vi = T.axis.spatial(5, i)
                C[vi, vi] = T.float32(0)
        for i, j, k in T.grid(5, 5, 5):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + A[vi, vk]

    sch = tir.Schedule(apart)
    expect(
        said(refused, sch, "D"),
        """
        merge_reduction(D, update_block=C): block D writes D, which block C does not reduce into
          at test_merge_reduction.py:LINE

          | …
          |         with T.block("D"):    # <-- here
          | …
        """,
    )
    expect(
        said(refused, sch, "diagonal"),
        """
        merge_reduction(diagonal, update_block=C): block diagonal writes C at `vi` and block C at `vj`, so initial values cannot be matched with results
          at test_merge_reduction.py:LINE

          | …
          |         with T.block("diagonal"):    # <-- here
          | …
        """,
    )
    expect(
        said(refused, sch, "across"),
        """
        merge_reduction(across, update_block=C): block diagonal also uses C, between the start of the reduction and its end
          at test_merge_reduction.py:LINE

          | …
          |         with T.block("diagonal"):    # <-- here
          | …

          hint: move block diagonal away first
        """,
    )
