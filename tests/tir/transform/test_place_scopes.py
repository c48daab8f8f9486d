"""Addresses in the memories of a chip."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_chip import ACC, COMPUTE, TINY

from tilewright.ir.buffer import Buffer, decl_buffer
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import BufferLoad, Var, const
from tilewright.ir.function import PrimFunc
from tilewright.ir.functor import pre_order
from tilewright.ir.stmt import Allocate, AttrStmt, BufferStore, DeclBuffer, For, ForKind, Stmt, seq
from tilewright.script import tir as T
from tilewright.tir.interpret import interpret
from tilewright.tir.transform.place_scopes import place_scopes


def refusal(func: PrimFunc) -> str:
    with pytest.raises(LoweringError) as caught:
        place_scopes(func, TINY)
    return str(caught.value)


def test_a_result_takes_the_place_of_its_operand(expect):
    @T.prim_func(private=True)
    def before(X: T.Buffer((16,), "int32"), Y: T.Buffer((16,), "int32")):
        a = T.allocate([16], "int32", "local.tiny_acc")
        A = T.decl_buffer((16,), "int32", data=a, scope="local.tiny_acc")
        b = T.allocate([16], "int32", "local.tiny_acc")
        B = T.decl_buffer((16,), "int32", data=b, scope="local.tiny_acc")
        c = T.allocate([16], "int32", "local.tiny_acc")
        C = T.decl_buffer((16,), "int32", data=c, scope="local.tiny_acc")
        with T.attr(0, "coproc_scope", 2):
            for i in range(16):
                A[i] = X[i]
        with T.attr(0, "coproc_scope", 2):
            for i in range(16):
                B[i] = A[i]
        with T.attr(0, "coproc_scope", 2):
            for i in range(16):
                C[i] = B[i] * 2
        with T.attr(0, "coproc_scope", 3):
            for i in range(16):
                Y[i] = C[i]

    expect(
        place_scopes(before, TINY),
        """
        @T.prim_func(private=True)
        def main(X: T.Buffer((16,), "int32"), Y: T.Buffer((16,), "int32")):
            acc = T.decl_buffer((16,), "int32", scope="local.tiny_acc")
            with T.attr(0, "coproc_scope", 2):
                for i in range(16):
                    acc[i] = X[i]
            with T.attr(0, "coproc_scope", 2):
                for i in range(16):
                    acc[i] = acc[i] * 2
            T.attr(0, "coproc_scope", 3)
            for i in range(16):
                Y[i] = acc[i]
        """,
    )


def test_operands_that_live_on_keep_their_place(expect):
    @T.prim_func(private=True)
    def before(X: T.Buffer((16,), "int32"), Y: T.Buffer((16,), "int32")):
        a = T.allocate([16], "int32", "local.tiny_acc")
        A = T.decl_buffer((16,), "int32", data=a, scope="local.tiny_acc")
        with T.attr(0, "coproc_scope", 2):
            for i in range(16):
                A[i] = X[i]
        for k in range(2):
            b = T.allocate([16], "int32", "local.tiny_acc")
            B = T.decl_buffer((16,), "int32", data=b, scope="local.tiny_acc")
            with T.attr(0, "coproc_scope", 2):
                for i in range(16):
                    B[i] = A[15 - i]
            with T.attr(0, "coproc_scope", 3):
                T.attr(
                    0,
                    "instruction",
                    T.call_extern(
                        "int32",
                        "store",
                        T.tvm_access_ptr(T.type_annotation("int32"), b, k * 4, 16, 1),
                    ),
                )
                for i in range(16):
                    Y[i] = B[i] + k

    expect(
        place_scopes(before, TINY),
        """
        @T.prim_func(private=True)
        def main(X: T.Buffer((16,), "int32"), Y: T.Buffer((16,), "int32")):
            acc = T.decl_buffer((32,), "int32", scope="local.tiny_acc")
            with T.attr(0, "coproc_scope", 2):
                for i in range(16):
                    acc[i] = X[i]
            for k in range(2):
                with T.attr(0, "coproc_scope", 2):
                    for i in range(16):
                        acc[i + 16] = acc[15 - i]
                T.attr(0, "coproc_scope", 3)
                T.attr(0, "instruction", T.call_extern("int32", "store", T.tvm_access_ptr(T.type_annotation("int32"), acc.data, k * 4 + 16, 16, 1)))
                for i in range(16):
                    Y[i] = acc[i + 16] + k
        """,
    )


def test_two_results_of_one_command_do_not_share_the_place_of_an_operand():
    @T.prim_func(private=True)
    def before(X: T.Buffer((4,), "int32"), Y: T.Buffer((8,), "int32")):
        a = T.allocate([4], "int32", "local.tiny_acc")
        A = T.decl_buffer((4,), "int32", data=a, scope="local.tiny_acc")
        b = T.allocate([4], "int32", "local.tiny_acc")
        B = T.decl_buffer((4,), "int32", data=b, scope="local.tiny_acc")
        c = T.allocate([4], "int32", "local.tiny_acc")
        C = T.decl_buffer((4,), "int32", data=c, scope="local.tiny_acc")
        with T.attr(0, "coproc_scope", 2):
            for i in range(4):
                A[i] = X[i]
        with T.attr(0, "coproc_scope", 2):
            for i in range(4):
                B[i] = A[i] + 1
                C[i] = A[i] * 2
        with T.attr(0, "coproc_scope", 3):
            for i in range(4):
                Y[i] = B[i]
                Y[i + 4] = C[i]

    got = np.zeros(8, "int32")
    interpret(place_scopes(before, TINY), np.arange(4, dtype="int32"), got)
    np.testing.assert_array_equal(got, [1, 2, 3, 4, 0, 2, 4, 6])


def test_buffers_that_do_not_fit(expect):
    @T.prim_func(private=True)
    def large():
        a = T.allocate([200], "int32", "local.tiny_acc")
        A = T.decl_buffer((200,), "int32", data=a, scope="local.tiny_acc")
        b = T.allocate([98], "int32", "local.tiny_acc")
        B = T.decl_buffer((98,), "int32", data=b, scope="local.tiny_acc")
        with T.attr(0, "coproc_scope", 2):
            for i in range(98):
                A[i] = 1
                B[i] = 1
        with T.attr(0, "coproc_scope", 2):
            for i in range(98):
                A[i] = B[i]

    @T.prim_func(private=True)
    def unknown(n: T.int32):
        a = T.allocate([n], "int32", "local.tiny_acc")
        A = T.decl_buffer((n,), "int32", data=a, scope="local.tiny_acc")
        T.attr(0, "coproc_scope", 2)
        for i in range(n):
            A[i] = 1

    expect(
        refusal(large),
        """
        memory local.tiny_acc of tiny has 1024 bytes, and the buffers that are live at once need 1200:

          | a        800 bytes  200 int32
          | b        400 bytes  98 int32

          hint: use smaller tiles, fewer virtual threads, or compute a stage in the tile of its consumer
        """,
    )
    expect(
        refusal(unknown),
        """
        a in local.tiny_acc: its size is not a constant
          hint: memories of the chip hold tiles of constant size; split the loops
        """,
    )


def test_nothing_to_do():
    @T.prim_func(private=True)
    def plain(A: T.Buffer((16,), "int32")):
        for i in range(16):
            A[i] = 1

    assert place_scopes(plain, TINY) is plain


# ---------------------------------------------------------------------------- meaning
class _Maker:
    """Draws loops around commands on buffers that are allocated where they are first used."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.x, self.y = decl_buffer((16,), "int32", "X"), decl_buffer((64,), "int32", "Y")
        self.count = self.stored = 0

    def command(self, make: Any, width: int) -> Stmt:
        i = Var("i")
        body = For(i, 0, width, ForKind.SERIAL, make(i))
        return AttrStmt(const(0), "coproc_scope", const(COMPUTE), body)

    def statements(self, known: list[Buffer], depth: int, left: int) -> Stmt:
        """Statements with a new buffer around some of the rest."""
        if left == 0:
            return self.store(known)
        kind = self.draw(st.sampled_from(["new", "new", "new", "update", "store", "loop"]))
        if kind == "loop" and depth < 2:
            inner = self.statements(known, depth + 1, self.draw(st.integers(0, 3)))
            loop = For(Var(f"k{depth}"), 0, 2, ForKind.SERIAL, inner)
            return seq(loop, self.statements(known, depth, left - 1))
        if kind == "update" and known:
            b = self.draw(st.sampled_from(known))
            one = self.command(lambda i: BufferStore(b, self.value(known, i) + 1, (i,)), 4)
            return seq(one, self.statements(known, depth, left - 1))
        if kind == "store":
            return seq(self.store(known), self.statements(known, depth, left - 1))
        size = self.draw(st.sampled_from([4, 4, 8]))
        self.count += 1
        b = decl_buffer((size,), "int32", f"B{self.count}", scope=ACC)
        # every element is written at once, so that none is read before
        fill = self.command(lambda i: BufferStore(b, self.value(known, i), (i,)), size)
        body = seq(fill, self.statements([*known, b], depth, left - 1))
        return Allocate(b.data, b.dtype, b.shape, const(True, "bool"), DeclBuffer(b, body))

    def value(self, known: list[Buffer], i: Var) -> Any:
        made: Any = BufferLoad(self.x, (i,)) if not known or self.draw(st.booleans()) else const(1)
        for b in self.draw(st.lists(st.sampled_from(known), max_size=2)) if known else []:
            mirrored = self.draw(st.integers(0, 3)) == 0
            narrow = int(b.shape[0]) < 8
            at = i % 4 if narrow else i
            made = made + BufferLoad(b, (3 - i % 4 if mirrored else at,))
        return made

    def store(self, known: list[Buffer]) -> Stmt:
        self.stored += 1
        base = self.stored * 4 % 60
        return self.command(lambda i: BufferStore(self.y, self.value(known, i), (i + base,)), 4)


@st.composite
def programs(draw: Any) -> PrimFunc:
    maker = _Maker(draw)
    body = maker.statements([], 0, draw(st.integers(1, 8)))
    p, q = Var("x", "handle"), Var("y", "handle")
    return PrimFunc([p, q], body, buffer_map={p: maker.x, q: maker.y})


@settings(max_examples=examples(200), deadline=None)
@given(programs())
def test_addresses_keep_the_meaning(func):
    made = place_scopes(func, TINY)
    array = np.arange(16, dtype="int32") * 7
    want, got = np.zeros(64, "int32"), np.zeros(64, "int32")
    interpret(func, array, want)
    interpret(made, array, got)
    np.testing.assert_array_equal(got, want, err_msg=f"{func.script()}\n{made.script()}")
    held = [n for n in pre_order(made.body) if isinstance(n, Allocate)]
    assert len(held) <= 1
