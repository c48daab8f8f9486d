"""Domains rounded up to whole tiles: round_up."""

from __future__ import annotations

import pytest
from schedule_checks import keeps_meaning

from tilewright import tir
from tilewright.script import tir as T


@T.prim_func
def window(a: T.handle, w: T.Buffer((3,), "float32"), b: T.handle):
    n = T.int32(is_size_var=True)
    A = T.match_buffer(a, (2, n))
    B = T.match_buffer(b, (2, n))
    P = T.alloc_buffer((2, n + 2))
    C = T.alloc_buffer((2, n))
    for c, i in T.grid(2, n + 2):
        with T.block("P"):
            vc, vi = T.axis.remap("SS", [c, i])
            P[vc, vi] = T.if_then_else(vi >= 1 and vi < n + 1, A[vc, vi - 1], T.float32(0))
    for c, i, k in T.grid(2, n, 3):
        with T.block("C"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                C[vc, vi] = T.float32(0)
            C[vc, vi] = C[vc, vi] + P[vc, vi + vk] * w[vk]
    for c, i in T.grid(2, n):
        with T.block("B"):
            vc, vi = T.axis.remap("SS", [c, i])
            B[vc, vi] = T.max(C[vc, vi], T.float32(0))


@T.prim_func
def plain(a: T.handle, b: T.handle):
    n = T.int32(is_size_var=True)
    A = T.match_buffer(a, (n,))
    B = T.match_buffer(b, (n,))
    C = T.alloc_buffer((n,))
    for i in range(n):
        with T.block("C"):
            vi = T.axis.spatial(n, i)
            C[vi] = A[vi] * T.float32(2)
    for i in range(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            B[vi] = C[vi]


@T.prim_func
def steps(A: T.Buffer((12,), "int32"), B: T.Buffer((5,), "int32")):
    P = T.alloc_buffer((11,), "int32")
    C = T.alloc_buffer((5,), "int32")
    for i in range(11):
        with T.block("P"):
            vi = T.axis.spatial(11, i)
            P[vi] = T.if_then_else(vi < 10, A[vi + 1], 7)
    for i in range(5):
        with T.block("C"):
            vi = T.axis.spatial(5, i)
            C[vi] = P[vi * 2] + P[vi * 2 + 2]
    for i in range(5):
        with T.block("B"):
            vi = T.axis.spatial(5, i)
            B[vi] = C[vi]


@T.prim_func
def divides(A: T.Buffer((5,), "int32"), B: T.Buffer((5,), "int32")):
    P = T.alloc_buffer((5,), "int32")
    C = T.alloc_buffer((5,), "int32")
    for i in range(5):
        with T.block("P"):
            vi = T.axis.spatial(5, i)
            P[vi] = T.if_then_else(vi < 5, A[vi], 0)
    for i in range(5):
        with T.block("C"):
            vi = T.axis.spatial(5, i)
            C[vi] = 8 // P[vi]
    for i in range(5):
        with T.block("B"):
            vi = T.axis.spatial(5, i)
            B[vi] = C[vi]


def test_a_window_and_its_padding(expect):
    sch = tir.Schedule(window)
    sch.round_up("C", [1, 4, 1])
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def window(a: T.handle, w: T.Buffer((3,), "float32"), b: T.handle):
            n = T.int32(is_size_var=True)
            A = T.match_buffer(a, (2, n))
            B = T.match_buffer(b, (2, n))
            # with T.block("root"):
            P = T.alloc_buffer((2, (n + 3) // 4 * 4 + 2))
            C = T.alloc_buffer((2, (n + 3) // 4 * 4))
            for c, i in T.grid(2, (n + 3) // 4 * 4 + 2):
                with T.block("P"):
                    vc, vi = T.axis.remap("SS", [c, i])
                    T.reads(A[vc, vi - 1])
                    T.writes(P[vc, vi])
                    P[vc, vi] = T.if_then_else(vi >= 1 and vi < n + 1, A[vc, vi - 1], T.float32(0))
            for c, i, k in T.grid(2, (n + 3) // 4 * 4, 3):
                with T.block("C"):
                    vc, vi, vk = T.axis.remap("SSR", [c, i, k])
                    T.reads(P[vc, vi + vk], w[vk])
                    T.writes(C[vc, vi])
                    with T.init():
                        C[vc, vi] = T.float32(0)
                    C[vc, vi] = C[vc, vi] + P[vc, vi + vk] * w[vk]
            for c, i in T.grid(2, n):
                with T.block("B"):
                    vc, vi = T.axis.remap("SS", [c, i])
                    T.reads(C[vc, vi])
                    T.writes(B[vc, vi])
                    B[vc, vi] = T.max(C[vc, vi], T.float32(0))
        """,
    )
    keeps_meaning(window, sch)


def test_of_a_rounded_domain_tiles_have_no_predicate():
    sch = tir.Schedule(window)
    sch.round_up("C", [1, 4, 1])
    c, i, _ = sch.get_loops("C")
    _, inner = sch.split(i, [None, 4])
    sch.unroll(inner)
    assert "T.where" not in str(sch.mod["main"].script())
    sch.compute_at("P", c)
    keeps_meaning(window, sch)


def test_an_index_in_steps():
    sch = tir.Schedule(steps)
    sch.round_up("C", [4])
    shapes = {b.name: str(b.shape[0]) for b in sch.mod["main"].body.block.alloc_buffers}
    assert shapes == {"P": "17", "C": "8"}
    keeps_meaning(steps, sch)


def test_what_is_whole_already_stays():
    sch = tir.Schedule(steps)
    before = sch.mod["main"]
    sch.round_up("C", [5])
    assert sch.mod["main"] is before


REFUSED = {
    "count": (steps, "C", [1, 1], "factors=[1, 1]: block C has 1 iterators"),
    "zero": (steps, "C", [0], "factors=[0]: they must be at least 1"),
    "parameter": (plain, "B", [4], "B is a parameter of the function, which has no further elements"),
    "bounds": (plain, "C", [4], "block C would read A out of bounds"),
    "reduction": (window, "C", [1, 1, 2], "iterator `vk` does not say which element of C is written"),
    "division": (divides, "C", [4], "block C divides by elements, which further ones may not be fit for"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name, refused):
    program, block, factors, text = REFUSED[name]
    sch = tir.Schedule(program)
    chosen = sch.get_block(block)
    assert text in refused(sch, lambda: sch.round_up(chosen, factors))
