"""Fetching one turn ahead."""

# ruff: noqa: B007  (scripts name what they define)
from __future__ import annotations

import numpy as np
import pytest

from tilewright.ir.equal import assert_structural_equal
from tilewright.ir.functor import pre_order, rewrite
from tilewright.ir.stmt import AttrStmt
from tilewright.script import tir as T
from tilewright.tir.analysis import undefined_vars, verify_ssa
from tilewright.tir.interpret import interpret
from tilewright.tir.transform.inject_double_buffer import inject_double_buffer


def _plain(func):
    """The function without its marks: what it means."""
    return rewrite(func, {AttrStmt: lambda n: n.body})


def test_the_next_turn_is_fetched_before_this_one_is_used():
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for k in range(4):
            s = T.allocate([16], "float32", "global")
            s_1 = T.decl_buffer((16,), data=s)
            with T.attr(s, "double_buffer_scope", 1):
                for i in range(16):
                    s_1[i] = A[k * 16 + i]
            for i in range(16):
                B[k * 16 + i] = s_1[15 - i]

    @T.prim_func(private=True)
    def after(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        s = T.allocate([32], "float32", "global")
        s_1 = T.Buffer((32,), data=s)
        for i in range(16):
            s_1[i] = A[i]
        for k in range(4):
            s_2 = T.decl_buffer((32,), data=s)
            if k + 1 < 4:
                with T.attr(s, "double_buffer_write", 1):
                    for i in range(16):
                        s_2[i + (k + 1) % 2 * 16] = A[(k + 1) * 16 + i]
            for i in range(16):
                B[k * 16 + i] = s_2[15 - i + k % 2 * 16]

    made = inject_double_buffer(before)
    assert verify_ssa(made) and not undefined_vars(made)
    text, want = str(made), str(after)
    assert text.count("double_buffer_write") == 1 == want.count("double_buffer_write")
    assert "s_1[i + (k + 1) % 2 * 16] = A[(k + 1) * 16 + i]" in text
    assert "B[k * 16 + i] = s_1[15 - i + k % 2 * 16]" in text
    assert inject_double_buffer(made) is made


@pytest.mark.parametrize("turns", [0, 1, 2, 5])
@pytest.mark.parametrize("inside", [True, False])
def test_meaning(turns, inside):
    @T.prim_func(private=True)
    def within(A: T.Buffer((96,), "float32"), B: T.Buffer((96,), "float32"), n: T.int32):
        for k in range(1, 1 + n):
            s = T.allocate([16], "float32", "global")
            s_1 = T.decl_buffer((16,), data=s)
            with T.attr(s, "double_buffer_scope", 1):
                for i in range(16):
                    s_1[i] = A[k * 16 + i]
            for i in range(16):
                B[k * 16 + i] = B[k * 16 + i] + s_1[15 - i]

    @T.prim_func(private=True)
    def around(A: T.Buffer((96,), "float32"), B: T.Buffer((96,), "float32"), n: T.int32):
        s = T.allocate([16], "float32", "global")
        s_1 = T.decl_buffer((16,), data=s)
        for j in range(2):
            for k in range(n):
                with T.attr(s, "double_buffer_scope", 1):
                    for i in range(16):
                        s_1[i] = A[k * 16 + i]
                for i in range(16):
                    B[k * 16 + i] = B[k * 16 + i] + s_1[15 - i]

    func = within if inside else around
    made = inject_double_buffer(func)
    assert "double_buffer_write" in str(made)
    a = np.arange(96, dtype="float32")
    want, got = np.zeros(96, "float32"), np.zeros(96, "float32")
    interpret(_plain(func), a, want, turns)
    interpret(made, a, got, turns)
    assert np.array_equal(want, got)


def test_what_cannot_be_fetched_ahead_keeps_one_half():
    @T.prim_func(private=True)
    def fed_back(A: T.Buffer((64,), "float32")):
        s = T.allocate([16], "float32", "global")
        s_1 = T.decl_buffer((16,), data=s)
        for k in range(3):
            with T.attr(s, "double_buffer_scope", 1):
                for i in range(16):
                    s_1[i] = A[k * 16 + i]
            for i in range(16):
                A[k * 16 + 16 + i] = s_1[15 - i]

    @T.prim_func(private=True)
    def used_later(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        s = T.allocate([16], "float32", "global")
        s_1 = T.decl_buffer((16,), data=s)
        for k in range(3):
            with T.attr(s, "double_buffer_scope", 1):
                s_1[0] = A[k]
            B[k] = s_1[0]
        B[9] = s_1[0]

    @T.prim_func(private=True)
    def changed(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for k in range(3):
            s = T.allocate([16], "float32", "global")
            s_1 = T.decl_buffer((16,), data=s)
            with T.attr(s, "double_buffer_scope", 1):
                s_1[0] = A[k]
            s_1[0] = s_1[0] * T.float32(2)
            B[k] = s_1[0]

    for func in (fed_back, used_later, changed):
        made = inject_double_buffer(func)
        assert_structural_equal(made, _plain(func))
        assert not any(isinstance(m, AttrStmt) for m in pre_order(made.body))


def test_nothing_to_do_gives_the_same_function():
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "float32")):
        for k in range(3):
            A[k] = T.float32(0)

    assert inject_double_buffer(before) is before
