"""Loops and reductions that do not go together: what merge and merge_reduction refuse."""

from __future__ import annotations

from tilewright import tir
from tilewright.script import tir as T


def said(refused, sch, step, *names, more=()):
    """What is said to a step on blocks, given by name, before other arguments."""
    blocks = [sch.get_block(x) for x in names]
    return refused(sch, lambda: getattr(sch, step)(*blocks, *more))


# ---------------------------------------------------------------------------- merge
@T.prim_func
def odd(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), n: T.int32):
    if n > 1:
        for i in range(4):
            with T.block("a"):
                vi = T.axis.spatial(4, i)
                A[vi] = T.float32(1)
    else:
        for j in range(4):
            with T.block("b"):
                vj = T.axis.spatial(4, j)
                A[vj] = T.float32(2)
    for k in range(4):
        with T.block("c"):
            vk = T.axis.spatial(4, k)
            for m in range(1):
                with T.block("d"):
                    vm = T.axis.spatial(1, m)
                    B[vk + vm] = T.float32(3)
    for p in T.serial(1, 5):
        with T.block("e"):
            vp = T.axis.spatial((1, 5), p)
            B[vp] = T.float32(4)
    for q in T.parallel(2):
        for r in range(2):
            with T.block("f"):
                vr = T.axis.spatial(4, q * 2 + r)
                B[vr + 4] = T.float32(5)
    for s in range(2):
        for t in range(2):
            with T.block("g"):
                vt = T.axis.spatial(4, s * 2 + t)
                B[vt] = T.float32(6)
    for u in range(4):
        A[u] = T.float32(7)
    for v in range(4):
        with T.block("h"):
            vv = T.axis.spatial(4, v)
            B[vv] = A[vv]


def merged(refused, *names):
    """What is said to a merge of the innermost loops around blocks of `odd`; `u` is a loop around none."""
    sch = tir.Schedule(odd)
    bare = tir.schedule.LoopRV(next(v for v in sch.state.index.loops if v.name == "u"))
    loops = [bare if n == "u" else sch.get_loops(n)[-1] for n in names]
    return refused(sch, lambda: sch.merge(*loops))


def test_merge_of_loops_in_different_places(expect, refused):
    expect(
        merged(refused, "a", "b"),
        """
        merge(i, j): the loops do not follow each other
          at test_merge_refusals.py:LINE

          | …
          |         for j in range(4):    # <-- here
          | …

          hint: merge consecutive loops
        """,
    )
    expect(
        merged(refused, "a", "c"),
        """
        merge(i, k): there is more than loops around loop `i`
          at test_merge_refusals.py:LINE

          | …
          |         for i in range(4):    # <-- here
          | …
        """,
    )
    expect(
        merged(refused, "c", "d"),
        """
        merge(k, m): the loops are not in the same block
          at test_merge_refusals.py:LINE

          | …
          |             for m in range(1):    # <-- here
          | …

          hint: merge loops of one block
        """,
    )


def test_merge_of_loops_that_are_not_plain(expect, refused):
    expect(
        merged(refused, "c", "e"),
        """
        merge(k, p): loop `p` does not start at 0
          at test_merge_refusals.py:LINE

          | …
          |     for p in T.serial(1, 5):    # <-- here
          | …
        """,
    )
    expect(
        merged(refused, "f", "g"),
        """
        merge(r, t): loop `q` is marked or annotated, which would be lost
          at test_merge_refusals.py:LINE

          | …
          |     for q in T.parallel(2):    # <-- here
          | …

          hint: merge first, then mark or annotate
        """,
    )
    expect(
        merged(refused, "u", "h"),
        """
        merge(u, v): A is used outside of blocks, so it is not known what depends on what
          at test_merge_refusals.py:LINE

          | …

          hint: put the statement into a block
        """,
    )


# ---------------------------------------------------------------------------- merge_reduction
@T.prim_func
def other(A: T.Buffer((4, 6), "float32"), C: T.Buffer((4,), "float32"), D: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("two"):
            vi = T.axis.spatial(4, i)
            if vi < 9:
                C[vi] = T.float32(0)
    for i, j in T.grid(4, 2):
        with T.block("more"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi] = T.Cast("float32", vj)
    for i in range(4):
        with T.block("half"):
            vi = T.axis.spatial(4, i)
            C[vi] = T.float32(0)
    for i, k in T.grid(4, 6):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            C[vi] = C[vi] + A[vi, vk]
            D[vi] = D[vi] * A[vi, vk]
    for i, k in T.grid(4, 6):
        with T.block("E"):
            vi, vk = T.axis.remap("SR", [i, k])
            C[vi] = C[vi] + A[vi, vk]
    for i in range(4):
        with T.block("late"):
            vi = T.axis.spatial(4, i)
            C[vi] = T.float32(0)
    for i in range(4):
        with T.block("outer"):
            vo = T.axis.spatial(4, i)
            with T.block("inside"):
                C[vo] = T.float32(0)


def test_merge_reduction_of_what_does_not_belong_together(expect, refused):
    sch = tir.Schedule(other)
    expect(
        said(refused, sch, "merge_reduction", "two", "C"),
        """
        merge_reduction(two, update_block=C): block two does more than store values
          at test_merge_refusals.py:LINE

          | …
          |         with T.block("two"):    # <-- here
          | …

          hint: it must store the initial values of block C
        """,
    )
    expect(
        said(refused, sch, "merge_reduction", "half", "C"),
        """
        merge_reduction(half, update_block=C): block half does not initialize every buffer that block C writes
          at test_merge_refusals.py:LINE

          | …
          |         with T.block("half"):    # <-- here
          | …
        """,
    )
    expect(
        said(refused, sch, "merge_reduction", "more", "E"),
        """
        merge_reduction(more, update_block=E): block more has iterators that do not select the element that is written
          at test_merge_refusals.py:LINE

          | …
          |         with T.block("more"):    # <-- here
          | …
        """,
    )


def test_merge_reduction_of_blocks_in_odd_places(expect, refused):
    sch = tir.Schedule(other)
    expect(
        said(refused, sch, "merge_reduction", "late", "E"),
        """
        merge_reduction(late, update_block=E): block late comes after block E
          at test_merge_refusals.py:LINE

          | …
          |         with T.block("late"):    # <-- here
          | …
        """,
    )
    expect(
        said(refused, sch, "merge_reduction", "inside", "E"),
        """
        merge_reduction(inside, update_block=E): blocks inside and E are in different scopes
          at test_merge_refusals.py:LINE

          | …
          |             with T.block("inside"):    # <-- here
          | …

          hint: both must be in the same block
        """,
    )
