"""Marked copies as the statement of an intrinsic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir.buffer import Buffer, decl_buffer
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import BufferLoad, Var, const
from tilewright.ir.function import PrimFunc
from tilewright.ir.ops import add, call_extern, if_then_else, less, logical_and, mul, sub
from tilewright.ir.stmt import AttrStmt, BufferStore, Evaluate, For, ForKind, IfThenElse, Stmt
from tilewright.script import tir as T
from tilewright.tir.interpret import interpret
from tilewright.tir.transform.inject_copy_intrin import inject_copy_intrin


def named(src: Buffer, dst: Buffer, before: list[Any], after: list[Any], pad: Any) -> Stmt:
    """A call that shows what the intrinsic is given."""
    return Evaluate(
        call_extern(
            "int32",
            "copy",
            *("from", src.data, src.elem_offset, *src.shape, "at", *src.strides),
            *("to", dst.data, dst.elem_offset, *dst.shape, "at", *dst.strides),
            *("padding", *before, *after, const(0) if pad is None else pad),
        )
    )


def as_loops(src: Buffer, dst: Buffer, before: list[Any], after: list[Any], pad: Any) -> Stmt:
    """The copy that the intrinsic is asked for, written out."""
    loops = [Var(f"d{n}") for n in range(len(dst.shape))]
    to, source, inside = dst.elem_offset, src.elem_offset, const(True, "bool")
    for n, v in enumerate(loops):
        at = sub(v, before[n])
        to, source = add(to, mul(v, dst.strides[n])), add(source, mul(at, src.strides[n]))
        inside = logical_and(inside, logical_and(at >= 0, less(at, src.shape[n])))
    source_buffer = decl_buffer((400,), src.dtype, src.name, data=src.data)
    target = decl_buffer((400,), dst.dtype, dst.name, data=dst.data)
    value: Any = BufferLoad(source_buffer, (source,))
    if pad is not None:
        value = if_then_else(inside, value, pad)
    made: Stmt = BufferStore(target, value, (to,))
    for v, extent in reversed(list(zip(loops, dst.shape, strict=True))):
        made = For(v, 0, extent, ForKind.SERIAL, made)
    return made


def refusal(func: PrimFunc) -> str:
    with pytest.raises(LoweringError) as caught:
        inject_copy_intrin(func, "dma_copy", named)
    return str(caught.value)


def test_a_padded_tile(expect):
    @T.prim_func(private=True)
    def before(A: T.Buffer((512,), "int32"), B: T.Buffer((144,), "int32")):
        T.attr(0, "pragma_dma_copy", 1)
        for i, j in T.grid(9, 16):
            B[i * 16 + j] = T.if_then_else(i >= 1, A[i * 64 + j - 64], 0)

    expect(
        inject_copy_intrin(before, "dma_copy", named),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((512,), "int32"), B: T.Buffer((144,), "int32")):
            T.call_extern("int32", "copy", "from", A.data, 0, 8, 16, "at", 64, 1, "to", B.data, 0, 9, 16, "at", 16, 1, "padding", 1, 0, 0, 0, 0)
        """,
    )


def test_a_loop_around_the_mark_belongs_to_the_copy(expect):
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "int32"), B: T.Buffer((64,), "int32")):
        for i in range(8):
            T.attr(0, "pragma_dma_copy", 1)
            for j in range(8):
                B[i * 8 + j] = A[i * 8 + j]

    expect(
        inject_copy_intrin(before, "pragma_dma_copy", named),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((64,), "int32"), B: T.Buffer((64,), "int32")):
            T.call_extern("int32", "copy", "from", A.data, 0, 8, 8, "at", 8, 1, "to", B.data, 0, 8, 8, "at", 8, 1, "padding", 0, 0, 0, 0, 0)
        """,
    )


def test_a_condition_around_the_store_makes_the_region_smaller(expect):
    @T.prim_func(private=True)
    def before(A: T.Buffer((60,), "int32"), B: T.Buffer((64,), "int32")):
        for o in range(4):
            T.attr(0, "pragma_dma_copy", 1)
            for i in range(16):
                if T.likely(o * 16 + i < 60):
                    B[o % 2 * 16 + i] = A[o * 16 + i]

    expect(
        inject_copy_intrin(before, "dma_copy", named),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((60,), "int32"), B: T.Buffer((64,), "int32")):
            for o in range(4):
                T.call_extern("int32", "copy", "from", A.data, o * 16, T.min(16, 60 - o * 16), "at", 1, "to", B.data, o % 2 * 16, T.min(16, 60 - o * 16), "at", 1, "padding", 0, 0, 0)
        """,
    )


def test_conditions_of_the_loops_around_stay_outside(expect):
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "int32"), B: T.Buffer((8,), "int32")):
        for o in range(9):
            T.attr(0, "pragma_dma_copy", 1)
            for i in range(8):
                if o % 2 == 0:
                    B[o % 2 * 0 + i] = T.if_then_else(o >= 1, A[o * 8 + i - 8], 0)

    expect(
        inject_copy_intrin(before, "dma_copy", named),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((64,), "int32"), B: T.Buffer((8,), "int32")):
            for o in range(9):
                if o % 2 == 0:
                    if o >= 1:
                        T.call_extern("int32", "copy", "from", A.data, o * 8 - 8, 8, "at", 1, "to", B.data, 0, 8, "at", 1, "padding", 0, 0, 0)
                    else:
                        T.call_extern("int32", "copy", "from", A.data, 0, 0, "at", 1, "to", B.data, 0, 8, "at", 1, "padding", 8, 0, 0)
        """,
    )


def test_copies_under_one_mark(expect):
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
        with T.attr(0, "pragma_dma_copy", 1):
            for i in range(8):
                B[i] = A[i]
            for i in range(8):
                C[i] = T.Select(i < 4, A[i], 7)

    expect(
        inject_copy_intrin(before, "dma_copy", named),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
            T.call_extern("int32", "copy", "from", A.data, 0, 8, "at", 1, "to", B.data, 0, 8, "at", 1, "padding", 0, 0, 0)
            T.call_extern("int32", "copy", "from", A.data, 0, 4, "at", 1, "to", C.data, 0, 8, "at", 1, "padding", 0, 4, 7)
        """,
    )


def test_refusals(expect):
    @T.prim_func(private=True)
    def several(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        T.attr(0, "pragma_dma_copy", 1)
        for i in range(4):
            B[i] = A[i]
            B[i + 4] = A[i]

    @T.prim_func(private=True)
    def computed(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        T.attr(0, "pragma_dma_copy", 1)
        for i in range(8):
            B[i] = A[i] + 1

    @T.prim_func(private=True)
    def padded(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        T.attr(0, "pragma_dma_copy", 1)
        for i in range(8):
            B[i] = T.if_then_else(i < 4, A[i], A[0])

    @T.prim_func(private=True)
    def crooked(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        T.attr(0, "pragma_dma_copy", 1)
        for i in range(8):
            B[i] = A[i * i % 8]

    @T.prim_func(private=True)
    def striped(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        T.attr(0, "pragma_dma_copy", 1)
        for i in range(8):
            B[i] = T.if_then_else(i % 2 == 0, A[i], 0)

    expect(
        refusal(several),
        """
        dma_copy: the marked nest is not a copy that a transfer can make: it is not a nest of loops around one store

          | B = T.Buffer((8,), "int32")
          | A = T.Buffer((8,), "int32")
          | for i in range(4):
          |     B[i] = A[i]
          |     B[i + 4] = A[i]

          hint: mark a stage that only copies
        """,
    )
    expect(
        refusal(computed),
        """
        dma_copy: the marked nest is not a copy that a transfer can make: it stores `A[i] + 1`, not an element of a buffer

          | B = T.Buffer((8,), "int32")
          | A = T.Buffer((8,), "int32")
          | for i in range(8):
          |     B[i] = A[i] + 1

          hint: mark a stage that only copies
        """,
    )
    expect(
        refusal(padded),
        """
        dma_copy: the marked nest is not a copy that a transfer can make: its padding is `A[0]`, not a constant

          | B = T.Buffer((8,), "int32")
          | A = T.Buffer((8,), "int32")
          | for i in range(8):
          |     B[i] = T.if_then_else(i < 4, A[i], A[0])

          hint: pad with a number
        """,
    )
    expect(
        refusal(crooked),
        """
        dma_copy: the marked nest is not a copy that a transfer can make: `A[i * i % 8]` is not at constant strides along its loops

          | B = T.Buffer((8,), "int32")
          | A = T.Buffer((8,), "int32")
          | for i in range(8):
          |     B[i] = A[i * i % 8]

          hint: a transfer takes rows and columns at strides; copy such elements by another stage
        """,
    )
    expect(
        refusal(striped),
        """
        dma_copy: the marked nest is not a copy that a transfer can make: its condition `i % 2 == 0` is not a bound of one of its loops

          | B = T.Buffer((8,), "int32")
          | A = T.Buffer((8,), "int32")
          | for i in range(8):
          |     B[i] = T.if_then_else(i % 2 == 0, A[i], 0)

          hint: split so that tiles are boxes
        """,
    )


def test_nothing_to_do():
    @T.prim_func(private=True)
    def plain(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        T.attr(0, "pragma_other", 1)
        for i in range(8):
            B[i] = A[i]

    assert inject_copy_intrin(plain, "dma_copy", named) is plain


@st.composite
def copies(draw: Any) -> PrimFunc:
    """Random copies: a loop around, dimensions with strides, shifts, bounds and padding."""
    dims = draw(st.integers(0, 3))
    a, b = decl_buffer((400,), "int32", "A"), decl_buffer((400,), "int32", "B")
    o = Var("o")
    outer = draw(st.integers(1, 3))
    sizes = [draw(st.integers(1, 4)) for _ in range(dims)]
    loops = [Var(f"i{n}") for n in range(dims)]
    shift = [draw(st.integers(0, 2)) for _ in range(dims)]
    width = [n + s for n, s in zip(sizes, shift, strict=True)]
    source: Any = o * draw(st.integers(0, 5)) + 100
    to: Any = o * int(np.prod(sizes))
    bounds: list[Any] = []
    tests: list[Any] = []
    for n, v in enumerate(loops):
        source = source + (v - shift[n]) * int(np.prod(width[n + 1 :]))
        to = to + v * int(np.prod(sizes[n + 1 :]))
        if draw(st.booleans()):
            bounds.append(v + o * draw(st.integers(0, 1)) >= shift[n])
        if draw(st.booleans()):
            bounds.append(v < draw(st.integers(1, 5)) - o * draw(st.integers(0, 1)))
        if draw(st.booleans()):
            tests.append(v < draw(st.integers(1, 5)))
    if draw(st.booleans()):
        bounds.append(o >= 1)
    if draw(st.booleans()):
        tests.append(o < 2)
    value: Any = BufferLoad(a, (source,))
    if bounds:
        value = if_then_else(_all(bounds), value, const(draw(st.integers(0, 3))))
    made: Stmt = BufferStore(b, value, (to,))
    if tests:
        made = IfThenElse(_all(tests), made)
    for v, extent in reversed(list(zip(loops, sizes, strict=True))):
        made = For(v, 0, extent, ForKind.SERIAL, made)
    made = For(o, 0, outer, ForKind.SERIAL, AttrStmt(const(0), "pragma_dma_copy", const(1), made))
    p, q = Var("a", "handle"), Var("b", "handle")
    return PrimFunc([p, q], made, buffer_map={p: a, q: b})


def _all(tests: list[Any]) -> Any:
    made = tests[0]
    for t in tests[1:]:
        made = logical_and(made, t)
    return made


@settings(max_examples=examples(150), deadline=None)
@given(copies())
def test_the_region_and_its_padding_mean_the_copy(func):
    made = inject_copy_intrin(func, "dma_copy", as_loops)
    array = np.arange(400, dtype="int32")
    want, got = np.full(400, -1, "int32"), np.full(400, -1, "int32")
    interpret(func, array, want)
    interpret(made, array, got)
    np.testing.assert_array_equal(got, want, err_msg=f"{func.script()}\n{made.script()}")
