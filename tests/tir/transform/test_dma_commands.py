"""Copies between DRAM and the memories of a chip, as DMA commands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_chip import ACC, LANES, STREAMING, TINY

from tilewright.ir.buffer import decl_buffer
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import BufferLoad, Var, const
from tilewright.ir.function import PrimFunc
from tilewright.ir.ops import if_then_else, logical_and
from tilewright.ir.stmt import Allocate, AttrStmt, BufferStore, DeclBuffer, For, ForKind, Stmt, seq
from tilewright.script import tir as T
from tilewright.tir.analysis.commands import commands, instruction_of
from tilewright.tir.interpret import interpret
from tilewright.tir.transform.dma_commands import dma_commands


def refusal(func: PrimFunc, chip: Any = TINY) -> str:
    with pytest.raises(LoweringError) as caught:
        dma_commands(func, chip)
    return str(caught.value)


def test_rows_at_a_stride(expect):
    @T.prim_func(private=True)
    def before(A: T.Buffer((512,), "int8")):
        s = T.allocate([96], "int8", "local.tiny_inp")
        S = T.decl_buffer((96,), "int8", data=s, scope="local.tiny_inp")
        for o in range(2):
            T.attr(0, "pragma_dma_copy", 1)
            for i, j, k in T.grid(3, 4, 8):
                S[i * 32 + j * 8 + k] = A[o * 8 + i * 128 + j * 16 + k]

    expect(
        dma_commands(before, TINY),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((512,), "int8")):
            S = T.decl_buffer((96,), "int8", scope="local.tiny_inp")
            for o, dma_0 in T.grid(2, 3):
                T.attr(0, "coproc_scope", 1)
                T.attr(0, "instruction", T.call_extern("int32", "load", "inp", "int8", T.tvm_access_ptr(T.type_annotation("int8"), S.data, dma_0 * 32, 32, 2), T.tvm_access_ptr(T.type_annotation("int8"), A.data, o * 8 + dma_0 * 128, 64, 1), 4, 2, 4, 0, 0, 0, 0))
                for y, x, lane in T.grid(4, 2, 4):
                    S[dma_0 * 32 + y * 8 + x * 4 + lane] = A[o * 8 + dma_0 * 128 + y * 16 + x * 4 + lane]
        """,
    )


def test_padding_around_one_element(expect):
    """The index of a single column is constant: whatever its stride is, it is a column of the transfer."""

    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int8")):
        s = T.allocate([48], "int8", "local.tiny_inp")
        S = T.decl_buffer((48,), "int8", data=s, scope="local.tiny_inp")
        with T.attr(0, "pragma_dma_copy", 1):
            for y, x, k in T.grid(4, 3, 4):
                S[y * 12 + x * 4 + k] = T.if_then_else(
                    y >= 1 and y < 3 and x >= 1 and x < 2, A[y * 4 + k - 4], T.int8(0)
                )

    expect(
        dma_commands(before, TINY),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((8,), "int8")):
            S = T.decl_buffer((48,), "int8", scope="local.tiny_inp")
            T.attr(0, "coproc_scope", 1)
            T.attr(0, "instruction", T.call_extern("int32", "load", "inp", "int8", T.tvm_access_ptr(T.type_annotation("int8"), S.data, 0, 48, 2), T.tvm_access_ptr(T.type_annotation("int8"), A.data, 0, 8, 1), 2, 1, 1, 1, 1, 1, 1))
            for y, x, lane in T.grid(4, 3, 4):
                S[y * 12 + x * 4 + lane] = T.if_then_else(0 <= y - 1 and y - 1 < 2 and 0 <= x - 1 and x - 1 < 1, A[y * 4 + x * 4 + lane - 8], T.int8(0))
        """,
    )


def test_padding_and_narrowing(expect):
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int8"), C: T.Buffer((16,), "int8")):
        s = T.allocate([64], "int8", "local.tiny_inp")
        S = T.decl_buffer((64,), "int8", data=s, scope="local.tiny_inp")
        c = T.allocate([16], "int32", "local.tiny_acc")
        acc = T.decl_buffer((16,), "int32", data=c, scope="local.tiny_acc")
        with T.attr(0, "pragma_dma_copy", 1):
            for y, x, k in T.grid(4, 4, 4):
                S[y * 16 + x * 4 + k] = T.if_then_else(
                    y >= 1 and y < 3 and x >= 1 and x < 3, A[y * 8 + x * 4 + k - 12], T.int8(0)
                )
        with T.attr(0, "pragma_dma_copy", 1):
            for i in range(16):
                C[i] = T.Cast("int8", acc[i])

    expect(
        dma_commands(before, TINY),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((16,), "int8"), C: T.Buffer((16,), "int8")):
            S = T.decl_buffer((64,), "int8", scope="local.tiny_inp")
            acc = T.decl_buffer((16,), "int32", scope="local.tiny_acc")
            with T.attr(0, "coproc_scope", 1):
                T.attr(0, "instruction", T.call_extern("int32", "load", "inp", "int8", T.tvm_access_ptr(T.type_annotation("int8"), S.data, 0, 64, 2), T.tvm_access_ptr(T.type_annotation("int8"), A.data, 0, 16, 1), 2, 2, 2, 1, 1, 1, 1))
                for y, x, lane in T.grid(4, 4, 4):
                    S[y * 16 + x * 4 + lane] = T.if_then_else(0 <= y - 1 and y - 1 < 2 and 0 <= x - 1 and x - 1 < 2, A[y * 8 + x * 4 + lane - 12], T.int8(0))
            T.attr(0, "coproc_scope", 3)
            T.attr(0, "instruction", T.call_extern("int32", "store", "acc", "int8", T.tvm_access_ptr(T.type_annotation("int32"), acc.data, 0, 16, 1), T.tvm_access_ptr(T.type_annotation("int8"), C.data, 0, 16, 2), 1, 4, 4, 0, 0, 0, 0))
            for x, lane in T.grid(4, 4):
                C[x * 4 + lane] = T.Cast("int8", acc[x * 4 + lane])
        """,
    )


def test_only_padding(expect):
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int8")):
        s = T.allocate([8], "int8", "local.tiny_inp")
        S = T.decl_buffer((8,), "int8", data=s, scope="local.tiny_inp")
        for y in range(4):
            T.attr(0, "pragma_dma_copy", 1)
            for x, k in T.grid(2, 4):
                S[y % 1 + x * 4 + k] = T.if_then_else(y >= 2, A[y * 8 + x * 4 + k - 16], T.int8(0))

    expect(
        dma_commands(before, TINY),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((16,), "int8")):
            S = T.decl_buffer((8,), "int8", scope="local.tiny_inp")
            for y in range(4):
                if y >= 2:
                    T.attr(0, "coproc_scope", 1)
                    T.attr(0, "instruction", T.call_extern("int32", "load", "inp", "int8", T.tvm_access_ptr(T.type_annotation("int8"), S.data, 0, 8, 2), T.tvm_access_ptr(T.type_annotation("int8"), A.data, y * 8 - 16, 8, 1), 1, 2, 2, 0, 0, 0, 0))
                    for x, lane in T.grid(2, 4):
                        S[x * 4 + lane] = A[y * 8 + x * 4 + lane - 16]
                else:
                    T.attr(0, "coproc_scope", 1)
                    T.attr(0, "instruction", T.call_extern("int32", "load", "inp", "int8", T.tvm_access_ptr(T.type_annotation("int8"), S.data, 0, 8, 2), T.tvm_access_ptr(T.type_annotation("int8"), A.data, 0, 8, 1), 1, 0, 2, 0, 0, 2, 0))
                    for x, lane in T.grid(2, 4):
                        S[x * 4 + lane] = T.if_then_else(0 <= x - 2, A[x * 4 + lane - 8], T.int8(0))
        """,
    )


def test_refusals(expect):
    @T.prim_func(private=True)
    def no_way(A: T.Buffer((16,), "int8")):
        s = T.allocate([16], "int8", "local.tiny_inp")
        S = T.decl_buffer((16,), "int8", data=s, scope="local.tiny_inp")
        T.attr(0, "pragma_dma_copy", 1)
        for i in range(16):
            A[i] = S[i]

    @T.prim_func(private=True)
    def wrong_type(A: T.Buffer((16,), "int32")):
        s = T.allocate([16], "int32", "local.tiny_inp")
        S = T.decl_buffer((16,), "int32", data=s, scope="local.tiny_inp")
        T.attr(0, "pragma_dma_copy", 1)
        for i in range(16):
            S[i] = A[i]

    @T.prim_func(private=True)
    def converted(A: T.Buffer((16,), "int16")):
        s = T.allocate([16], "int8", "local.tiny_inp")
        S = T.decl_buffer((16,), "int8", data=s, scope="local.tiny_inp")
        T.attr(0, "pragma_dma_copy", 1)
        for i in range(16):
            S[i] = T.Cast("int8", A[i])

    @T.prim_func(private=True)
    def ones(A: T.Buffer((16,), "int8")):
        s = T.allocate([16], "int8", "local.tiny_inp")
        S = T.decl_buffer((16,), "int8", data=s, scope="local.tiny_inp")
        T.attr(0, "pragma_dma_copy", 1)
        for i, k in T.grid(4, 4):
            S[i * 4 + k] = T.if_then_else(i < 3, A[i * 4 + k], T.int8(1))

    @T.prim_func(private=True)
    def transposed(A: T.Buffer((16,), "int8")):
        s = T.allocate([16], "int8", "local.tiny_inp")
        S = T.decl_buffer((16,), "int8", data=s, scope="local.tiny_inp")
        T.attr(0, "pragma_dma_copy", 1)
        for i, k in T.grid(4, 4):
            S[i * 4 + k] = A[k * 4 + i]

    @T.prim_func(private=True)
    def narrow(A: T.Buffer((12,), "int8")):
        s = T.allocate([12], "int8", "local.tiny_inp")
        S = T.decl_buffer((12,), "int8", data=s, scope="local.tiny_inp")
        T.attr(0, "pragma_dma_copy", 1)
        for i, k in T.grid(2, 6):
            S[i * 6 + k] = A[i * 6 + k]

    @T.prim_func(private=True)
    def unpacked(A: T.Buffer((64,), "int8")):
        s = T.allocate([16], "int8", "local.tiny_inp")
        S = T.decl_buffer((16,), "int8", data=s, scope="local.tiny_inp")
        T.attr(0, "pragma_dma_copy", 1)
        for i, k in T.grid(4, 4):
            S[i * 4 + k] = A[i * 6 + k]

    @T.prim_func(private=True)
    def shifted(A: T.Buffer((64,), "int8")):
        s = T.allocate([16], "int8", "local.tiny_inp")
        S = T.decl_buffer((16,), "int8", data=s, scope="local.tiny_inp")
        T.attr(0, "pragma_dma_copy", 1)
        for i in range(16):
            S[i] = A[i + 2]

    @T.prim_func(private=True)
    def unable(A: T.Buffer((64,), "int8")):
        s = T.allocate([64], "int8", "local.tiny_wgt")
        S = T.decl_buffer((64,), "int8", data=s, scope="local.tiny_wgt")
        T.attr(0, "pragma_dma_copy", 1)
        for i, k in T.grid(4, 16):
            S[i * 16 + k] = T.if_then_else(i < 3, A[i * 16 + k], T.int8(0))

    @T.prim_func(private=True)
    def deep(A: T.Buffer((64,), "int8")):
        s = T.allocate([64], "int8", "local.tiny_inp")
        S = T.decl_buffer((64,), "int8", data=s, scope="local.tiny_inp")
        T.attr(0, "pragma_dma_copy", 1)
        for h, i, j, k in T.grid(2, 2, 4, 4):
            S[h * 32 + i * 16 + j * 4 + k] = T.if_then_else(
                h < 1 and i < 1 and j < 3, A[h * 32 + i * 16 + j * 4 + k], T.int8(0)
            )

    expect(
        refusal(no_way),
        """
        copy of S to A: tiny has no transfer from local.tiny_inp to DRAM
          hint: it has transfers from DRAM to local.tiny_inp, DRAM to local.tiny_wgt, DRAM to local.tiny_acc, local.tiny_acc to DRAM; set the scopes of the two buffers accordingly
        """,
    )
    expect(
        refusal(wrong_type),
        """
        copy of A to S: S has type int32, but the elements of local.tiny_inp are int8
          hint: compute it as int8
        """,
    )
    expect(
        refusal(converted),
        """
        copy of A to S: the instruction load cannot convert int16 to int8
          hint: the array in DRAM must be int8
        """,
    )
    expect(
        refusal(ones),
        """
        copy of A to S: its padding is T.int8(1)
          hint: transfers pad with zeros
        """,
    )
    expect(
        refusal(transposed),
        """
        copy of A to S: it does not copy whole elements of local.tiny_inp, which are 4 x int8 and contiguous on both sides
          hint: pack the array so that its last dimensions are the 4 lanes of an element
        """,
    )
    expect(
        refusal(narrow),
        """
        copy of A to S: 6 contiguous scalars do not fill elements of 4
          hint: make the tile a multiple of 4 wide
        """,
    )
    expect(
        refusal(unpacked),
        """
        copy of A to S: the stride 6 of A is not a multiple of the 4 lanes of an element
          hint: pack the array in elements of 4
        """,
    )
    expect(
        refusal(shifted),
        """
        copy of A to S: it starts at element `2` of A, which is not at a multiple of 4 lanes
          hint: tile A so that tiles start at whole elements of 4
        """,
    )
    expect(
        refusal(unable),
        """
        copy of A to S: the instruction load does not pad
          hint: pad in a stage of its own
        """,
    )
    expect(
        refusal(deep),
        """
        copy of A to S: more than two of its dimensions are padded, or their elements are not next to each other
          hint: a transfer pads rows and columns of elements; copy the other dimensions one by one
        """,
    )


def test_rows_of_a_chip_without_strides():
    @T.prim_func(private=True)
    def rows(A: T.Buffer((64,), "int8")):
        s = T.allocate([32], "int8", "local.tiny_inp")
        S = T.decl_buffer((32,), "int8", data=s, scope="local.tiny_inp")
        T.attr(0, "pragma_dma_copy", 1)
        for i, k in T.grid(4, 8):
            S[i * 8 + k] = A[i * 16 + k]

    plain = tuple(replace(t, strided=False) for t in TINY.transfers)
    made = dma_commands(rows, replace(TINY, transfers=plain))
    (one,) = commands(made.body)
    _, _, _, _, down, across, *_ = instruction_of(one.body).operands
    assert (int(down), int(across)) == (1, 2)  # in a loop of the host
    (one,) = commands(dma_commands(rows, TINY).body)
    _, _, _, _, down, across, stride, *_ = instruction_of(one.body).operands
    assert (int(down), int(across), int(stride)) == (4, 2, 4)


def test_nothing_to_do():
    @T.prim_func(private=True)
    def plain(A: T.Buffer((16,), "int8"), B: T.Buffer((16,), "int8")):
        for i in range(16):
            B[i] = A[i]

    assert dma_commands(plain, TINY) is plain


@st.composite
def copies(draw: Any) -> PrimFunc:
    """Copies into the chip and out again: strides, padding and tiles at the end that are not full."""
    dims = draw(st.integers(1, 3))
    sizes = [draw(st.integers(1, 3)) for _ in range(dims)]
    gaps = [draw(st.integers(0, 2)) for _ in range(dims)]
    order = draw(st.permutations(range(dims)))
    padded = draw(st.sets(st.sampled_from(range(dims)), max_size=2)) if order == sorted(order) else set()
    padded = {d for d in padded if d >= dims - 2}
    elements = int(np.prod(sizes))
    a, c = decl_buffer((4000,), "int32", "A"), decl_buffer((elements * LANES,), "int32", "C")
    s = decl_buffer((elements * LANES,), "int32", "S", scope=ACC)
    loops = [Var(f"i{n}") for n in range(dims)]
    lane = Var("lane")
    dram: Any = const(100)
    chip: Any = const(0)
    bounds: list[Any] = []
    stride = 1
    for d in order[::-1]:
        stride *= 1 if d == order[-1] and draw(st.booleans()) else 1 + gaps[d]
        dram = dram + (loops[d] - (d in padded)) * (stride * LANES)
        stride *= sizes[d]
    for n, v in enumerate(loops):
        chip = chip + v * (int(np.prod(sizes[n + 1 :])) * LANES)
        if n in padded:
            bounds += [v >= 1] if draw(st.booleans()) else [v >= 1, v < draw(st.integers(1, 4))]
    value: Any = BufferLoad(a, (dram + lane,))
    if bounds:
        test = bounds[0]
        for b in bounds[1:]:
            test = logical_and(test, b)
        value = if_then_else(test, value, const(0))

    def nest(store: Stmt) -> Stmt:
        for v, extent in reversed([*zip(loops, sizes, strict=True), (lane, LANES)]):
            store = For(v, 0, extent, ForKind.SERIAL, store)
        return AttrStmt(const(0), "pragma_dma_copy", const(1), store)

    body = seq(
        nest(BufferStore(s, value, (chip + lane,))),
        nest(BufferStore(c, BufferLoad(s, (chip + lane,)), (chip + lane,))),
    )
    body = Allocate(s.data, s.dtype, s.shape, const(True, "bool"), DeclBuffer(s, body))
    p, q = Var("a", "handle"), Var("c", "handle")
    return PrimFunc([p, q], body, buffer_map={p: a, q: c})


@settings(max_examples=examples(150), deadline=None)
@given(copies())
def test_commands_mean_the_copies(func):
    try:
        made = dma_commands(func, STREAMING)
    except LoweringError as error:  # padding of rows whose elements are apart
        assert "their elements are not next to each other" in str(error)
        return
    array = np.arange(4000, dtype="int32")
    size = int(func.buffer_map[func.params[1]].shape[0])
    want, got = np.zeros(size, "int32"), np.zeros(size, "int32")
    interpret(func, array, want)
    interpret(made, array, got)
    np.testing.assert_array_equal(got, want, err_msg=f"{func.script()}\n{made.script()}")
    assert all(instruction_of(c.body) is not None for c in commands(made.body))
