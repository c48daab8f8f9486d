"""Arithmetic on a memory of the chip, as commands of its vector unit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_chip import ACC, TINY

from tilewright.ir import ops
from tilewright.ir.buffer import decl_buffer
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import BufferLoad, Var, const
from tilewright.ir.function import PrimFunc
from tilewright.ir.stmt import Allocate, AttrStmt, BufferStore, DeclBuffer, Evaluate, For, ForKind, Stmt, seq
from tilewright.script import tir as T
from tilewright.tir.analysis.commands import commands
from tilewright.tir.interpret import interpret
from tilewright.tir.transform.vector_commands import vector_commands

THREE = replace(
    TINY,
    vector_units=(
        replace(
            TINY.vector_units[0],
            addresses=3,
            operations={n: n for n in ("add", "sub", "mul", "min", "max", "shift_right")},
        ),
    ),
)


def refusal(func: PrimFunc) -> str:
    with pytest.raises(LoweringError) as caught:
        vector_commands(func, TINY)
    return str(caught.value)


def test_operations_one_after_the_other(expect):
    @T.prim_func(private=True)
    def before():
        a = T.allocate([32], "int32", "local.tiny_acc")
        A = T.decl_buffer((32,), "int32", data=a, scope="local.tiny_acc")
        c = T.allocate([32], "int32", "local.tiny_acc")
        C = T.decl_buffer((32,), "int32", data=c, scope="local.tiny_acc")
        T.attr(0, "pragma_alu", 1)
        for i, j in T.grid(8, 4):
            C[i * 4 + j] = T.min(T.shift_right(A[i * 4 + j], 4), 127)

    expect(
        vector_commands(before, TINY),
        """
        @T.prim_func(private=True)
        def main():
            A = T.decl_buffer((32,), "int32", scope="local.tiny_acc")
            C = T.decl_buffer((32,), "int32", scope="local.tiny_acc")
            with T.attr(0, "coproc_scope", 2):
                for i in range(8):
                    T.attr(0, "instruction", T.call_extern("int32", "alu", "shr", T.tvm_access_ptr(T.type_annotation("int32"), C.data, i * 4, 4, 2), T.tvm_access_ptr(T.type_annotation("int32"), A.data, i * 4, 4, 1), 4))
                    for lane in range(4):
                        C[i * 4 + lane] = T.shift_right(A[i * 4 + lane], 4)
            T.attr(0, "coproc_scope", 2)
            for i in range(8):
                T.attr(0, "instruction", T.call_extern("int32", "alu", "min", T.tvm_access_ptr(T.type_annotation("int32"), C.data, i * 4, 4, 2), T.tvm_access_ptr(T.type_annotation("int32"), C.data, i * 4, 4, 1), 127))
                for lane in range(4):
                    C[i * 4 + lane] = T.min(C[i * 4 + lane], 127)
        """,
    )


def test_two_vectors_with_two_and_three_addresses(expect):
    @T.prim_func(private=True)
    def before():
        a = T.allocate([32], "int32", "local.tiny_acc")
        A = T.decl_buffer((32,), "int32", data=a, scope="local.tiny_acc")
        b = T.allocate([4], "int32", "local.tiny_acc")
        B = T.decl_buffer((4,), "int32", data=b, scope="local.tiny_acc")
        c = T.allocate([32], "int32", "local.tiny_acc")
        C = T.decl_buffer((32,), "int32", data=c, scope="local.tiny_acc")
        T.attr(0, "pragma_alu", 1)
        for i in range(32):
            C[i] = A[i] + B[i % 4 * 0 + i - i // 4 * 4]

    @T.prim_func(private=True)
    def rows():
        a = T.allocate([32], "int32", "local.tiny_acc")
        A = T.decl_buffer((32,), "int32", data=a, scope="local.tiny_acc")
        b = T.allocate([4], "int32", "local.tiny_acc")
        B = T.decl_buffer((4,), "int32", data=b, scope="local.tiny_acc")
        c = T.allocate([32], "int32", "local.tiny_acc")
        C = T.decl_buffer((32,), "int32", data=c, scope="local.tiny_acc")
        T.attr(0, "pragma_alu", 1)
        for i, j in T.grid(8, 4):
            C[i * 4 + j] = A[i * 4 + j] + B[j]

    expect(
        refusal(before),
        """
        vector unit of tiny: the index `i - i // 4 * 4` of B is not linear in the loops

          | C = T.Buffer((32,), "int32", scope="local.tiny_acc")
          | A = T.Buffer((32,), "int32", scope="local.tiny_acc")
          | B = T.Buffer((4,), "int32", scope="local.tiny_acc")
          | for i in range(32):
          |     C[i] = A[i] + B[i - i // 4 * 4]

          hint: split so that it is
        """,
    )
    expect(
        vector_commands(rows, TINY),
        """
        @T.prim_func(private=True)
        def main():
            A = T.decl_buffer((32,), "int32", scope="local.tiny_acc")
            B = T.decl_buffer((4,), "int32", scope="local.tiny_acc")
            C = T.decl_buffer((32,), "int32", scope="local.tiny_acc")
            with T.attr(0, "coproc_scope", 2):
                for i in range(8):
                    T.attr(0, "instruction", T.call_extern("int32", "alu", "add", T.tvm_access_ptr(T.type_annotation("int32"), C.data, i * 4, 4, 2), T.tvm_access_ptr(T.type_annotation("int32"), A.data, i * 4, 4, 1), 0))
                    for lane in range(4):
                        C[i * 4 + lane] = A[i * 4 + lane]
            T.attr(0, "coproc_scope", 2)
            for i in range(8):
                T.attr(0, "instruction", T.call_extern("int32", "alu", "add", T.tvm_access_ptr(T.type_annotation("int32"), C.data, i * 4, 4, 2), T.tvm_access_ptr(T.type_annotation("int32"), C.data, i * 4, 4, 1), T.tvm_access_ptr(T.type_annotation("int32"), B.data, 0, 4, 1)))
                for lane in range(4):
                    C[i * 4 + lane] = C[i * 4 + lane] + B[lane]
        """,
    )
    expect(
        vector_commands(rows, THREE),
        """
        @T.prim_func(private=True)
        def main():
            A = T.decl_buffer((32,), "int32", scope="local.tiny_acc")
            B = T.decl_buffer((4,), "int32", scope="local.tiny_acc")
            C = T.decl_buffer((32,), "int32", scope="local.tiny_acc")
            T.attr(0, "coproc_scope", 2)
            for i in range(8):
                T.attr(0, "instruction", T.call_extern("int32", "alu", "add", T.tvm_access_ptr(T.type_annotation("int32"), C.data, i * 4, 4, 2), T.tvm_access_ptr(T.type_annotation("int32"), A.data, i * 4, 4, 1), T.tvm_access_ptr(T.type_annotation("int32"), B.data, 0, 4, 1)))
                for lane in range(4):
                    C[i * 4 + lane] = A[i * 4 + lane] + B[lane]
        """,
    )


def test_a_reduction_stays_in_the_loops_of_the_host(expect):
    @T.prim_func(private=True)
    def before():
        a = T.allocate([32], "int32", "local.tiny_acc")
        A = T.decl_buffer((32,), "int32", data=a, scope="local.tiny_acc")
        c = T.allocate([8], "int32", "local.tiny_acc")
        C = T.decl_buffer((8,), "int32", data=c, scope="local.tiny_acc")
        T.attr(0, "pragma_alu", 1)
        for i in range(2):
            for j in range(4):
                C[i * 4 + j] = -3
            for k, j in T.grid(4, 4):
                C[i * 4 + j] = T.max(C[i * 4 + j], A[i * 16 + k * 4 + j])

    expect(
        vector_commands(before, TINY),
        """
        @T.prim_func(private=True)
        def main():
            A = T.decl_buffer((32,), "int32", scope="local.tiny_acc")
            C = T.decl_buffer((8,), "int32", scope="local.tiny_acc")
            for i in range(2):
                with T.attr(0, "coproc_scope", 2):
                    T.attr(0, "instruction", T.call_extern("int32", "alu", "mul", T.tvm_access_ptr(T.type_annotation("int32"), C.data, i * 4, 4, 2), T.tvm_access_ptr(T.type_annotation("int32"), C.data, i * 4, 4, 1), 0))
                    for lane in range(4):
                        C[i * 4 + lane] = 0
                with T.attr(0, "coproc_scope", 2):
                    T.attr(0, "instruction", T.call_extern("int32", "alu", "add", T.tvm_access_ptr(T.type_annotation("int32"), C.data, i * 4, 4, 2), T.tvm_access_ptr(T.type_annotation("int32"), C.data, i * 4, 4, 1), -3))
                    for lane in range(4):
                        C[i * 4 + lane] = C[i * 4 + lane] + -3
                T.attr(0, "coproc_scope", 2)
                for k in range(4):
                    T.attr(0, "instruction", T.call_extern("int32", "alu", "max", T.tvm_access_ptr(T.type_annotation("int32"), C.data, i * 4, 4, 2), T.tvm_access_ptr(T.type_annotation("int32"), C.data, i * 4, 4, 1), T.tvm_access_ptr(T.type_annotation("int32"), A.data, i * 16 + k * 4, 4, 1)))
                    for lane in range(4):
                        C[i * 4 + lane] = T.max(C[i * 4 + lane], A[i * 16 + k * 4 + lane])
        """,
    )


def test_conditions(expect):
    @T.prim_func(private=True)
    def before():
        c = T.allocate([40], "int32", "local.tiny_acc")
        C = T.decl_buffer((40,), "int32", data=c, scope="local.tiny_acc")
        for o in range(3):
            T.attr(0, "pragma_alu", 1)
            for i, j in T.grid(4, 4):
                if T.likely(o * 4 + i < 10 and o < 2):
                    C[o * 16 + i * 4 + j] = 5

    expect(
        vector_commands(before, TINY),
        """
        @T.prim_func(private=True)
        def main():
            C = T.decl_buffer((40,), "int32", scope="local.tiny_acc")
            for o in range(3):
                if o < 2:
                    with T.attr(0, "coproc_scope", 2):
                        for i in range(T.min(4, 10 - o * 4)):
                            T.attr(0, "instruction", T.call_extern("int32", "alu", "mul", T.tvm_access_ptr(T.type_annotation("int32"), C.data, o * 16 + i * 4, 4, 2), T.tvm_access_ptr(T.type_annotation("int32"), C.data, o * 16 + i * 4, 4, 1), 0))
                            for lane in range(4):
                                C[o * 16 + i * 4 + lane] = 0
                    T.attr(0, "coproc_scope", 2)
                    for i in range(T.min(4, 10 - o * 4)):
                        T.attr(0, "instruction", T.call_extern("int32", "alu", "add", T.tvm_access_ptr(T.type_annotation("int32"), C.data, o * 16 + i * 4, 4, 2), T.tvm_access_ptr(T.type_annotation("int32"), C.data, o * 16 + i * 4, 4, 1), 5))
                        for lane in range(4):
                            C[o * 16 + i * 4 + lane] = C[o * 16 + i * 4 + lane] + 5
        """,
    )


def program(make: Any, scope: str = ACC, dtype: str = "int32", size: int = 32) -> PrimFunc:
    """A marked nest of 8 x 4 whose value `make(load, i, j)` gives."""
    names = {n: decl_buffer((size,), dtype, n, scope=scope) for n in "ABC"}
    i, j = Var("i"), Var("j")
    store = make(names, i, j)
    body: Stmt = For(i, 0, 8, ForKind.SERIAL, For(j, 0, 4, ForKind.SERIAL, store))
    body = AttrStmt(const(0), "pragma_alu", const(1), body)
    for b in reversed(names.values()):
        body = Allocate(b.data, b.dtype, b.shape, const(True, "bool"), DeclBuffer(b, body))
    return PrimFunc([], body)


def stored(value: Any) -> Any:
    def make(names: dict[str, Any], i: Var, j: Var) -> Stmt:
        at = (i * 4 + j,)
        return BufferStore(names["C"], value(lambda n: BufferLoad(names[n], at)), at)

    return make


def test_refusals(expect):
    expect(
        refusal(program(lambda b, i, j: Evaluate(const(1)))),
        """
        vector unit of tiny: it is not a nest of loops around one store

          | for i, j in T.grid(8, 4):
          |     T.evaluate(1)

          hint: mark a stage that computes one value for each element
        """,
    )
    expect(
        refusal(program(lambda b, i, j: seq(*[stored(lambda x: const(1))(b, i, j)] * 2))),
        """
        vector unit of tiny: its innermost elements do not fill vectors of 4 lanes

          | i = T.int32()
          | j = T.int32()
          | C = T.Buffer((32,), "int32", scope="local.tiny_acc")
          | C[i * 4 + j] = 1

          hint: the last dimensions of C must be the 4 lanes of an element
        """,
    )
    expect(
        refusal(program(stored(lambda x: x("A")), scope="local.tiny_inp", dtype="int8")),
        """
        vector unit of tiny: tiny has no vector unit for C, which is in local.tiny_inp

          | C = T.Buffer((32,), "int8", scope="local.tiny_inp")
          | A = T.Buffer((32,), "int8", scope="local.tiny_inp")
          | for i, j in T.grid(8, 4):
          |     C[i * 4 + j] = A[i * 4 + j]

          hint: its vector units work on: local.tiny_acc; set the scope of the stage
        """,
    )
    expect(
        refusal(program(stored(lambda x: x("A")), dtype="int16")),
        """
        vector unit of tiny: C has type int16

          | C = T.Buffer((32,), "int16", scope="local.tiny_acc")
          | A = T.Buffer((32,), "int16", scope="local.tiny_acc")
          | for i, j in T.grid(8, 4):
          |     C[i * 4 + j] = A[i * 4 + j]

          hint: the vector unit computes with int32
        """,
    )
    expect(
        refusal(program(stored(lambda x: ops.truncdiv(x("A"), const(3))))),
        """
        vector unit of tiny: it has no instruction for `T.Div(A[i * 4 + j], 3)`

          | C = T.Buffer((32,), "int32", scope="local.tiny_acc")
          | A = T.Buffer((32,), "int32", scope="local.tiny_acc")
          | for i, j in T.grid(8, 4):
          |     C[i * 4 + j] = T.Div(A[i * 4 + j], 3)

          hint: the unit computes: add, max, min, mul, shift_right; leave this stage to the host
        """,
    )
    expect(
        refusal(program(stored(lambda x: x("A") * 40000))),
        """
        vector unit of tiny: the constant 40000 does not fit an immediate operand of 16 bits

          | C = T.Buffer((32,), "int32", scope="local.tiny_acc")
          | A = T.Buffer((32,), "int32", scope="local.tiny_acc")
          | for i, j in T.grid(8, 4):
          |     C[i * 4 + j] = A[i * 4 + j] * 40000

          hint: keep it in a buffer, or use a smaller one
        """,
    )
    expect(
        refusal(program(stored(lambda x: ops.shift_left(x("A"), x("B"))))),
        """
        vector unit of tiny: it has no instruction for shift_left

          | C = T.Buffer((32,), "int32", scope="local.tiny_acc")
          | A = T.Buffer((32,), "int32", scope="local.tiny_acc")
          | B = T.Buffer((32,), "int32", scope="local.tiny_acc")
          | for i, j in T.grid(8, 4):
          |     C[i * 4 + j] = T.shift_left(A[i * 4 + j], B[i * 4 + j])

          hint: the unit computes: add, max, min, mul, shift_right
        """,
    )
    expect(
        refusal(program(stored(lambda x: (x("A") + 1) * (x("B") + 1)))),
        """
        vector unit of tiny: `(A[i * 4 + j] + 1) * (B[i * 4 + j] + 1)` needs a second vector for `B[i * 4 + j] + 1`

          | C = T.Buffer((32,), "int32", scope="local.tiny_acc")
          | A = T.Buffer((32,), "int32", scope="local.tiny_acc")
          | B = T.Buffer((32,), "int32", scope="local.tiny_acc")
          | for i, j in T.grid(8, 4):
          |     C[i * 4 + j] = (A[i * 4 + j] + 1) * (B[i * 4 + j] + 1)

          hint: compute a part of it in a stage of its own
        """,
    )
    expect(
        refusal(program(stored(lambda x: (x("A") + 1) - x("C")))),
        """
        vector unit of tiny: `A[i * 4 + j] + 1 - C[i * 4 + j]` overwrites an operand that it still needs

          | C = T.Buffer((32,), "int32", scope="local.tiny_acc")
          | A = T.Buffer((32,), "int32", scope="local.tiny_acc")
          | for i, j in T.grid(8, 4):
          |     C[i * 4 + j] = A[i * 4 + j] + 1 - C[i * 4 + j]

          hint: compute a part of it in a stage of its own
        """,
    )

    def transposed(b: Any, i: Var, j: Var) -> Stmt:
        return BufferStore(b["C"], BufferLoad(b["A"], (j * 8 + i,)), (i * 4 + j,))

    def crooked(b: Any, i: Var, j: Var) -> Stmt:
        return BufferStore(b["C"], BufferLoad(b["A"], (ops.floormod(i * i, 8) * 4 + j,)), (i * 4 + j,))

    def prefix(b: Any, i: Var, j: Var) -> Stmt:
        return BufferStore(b["C"], BufferLoad(b["C"], (i * 4 + j,)) + 1, (i * 4 + j + 4,))

    def narrow(b: Any, i: Var, j: Var) -> Stmt:
        return BufferStore(b["C"], const(1), (i * 4 + j * 8,))

    def accumulated(b: Any, i: Var, j: Var) -> Stmt:
        c = BufferLoad(b["C"], (j,))
        return BufferStore(b["C"], (c + 1) * BufferLoad(b["A"], (i * 4 + j,)), (j,))

    expect(
        refusal(program(transposed)),
        """
        vector unit of tiny: the lanes of A and C are in different order

          | C = T.Buffer((32,), "int32", scope="local.tiny_acc")
          | A = T.Buffer((32,), "int32", scope="local.tiny_acc")
          | for i, j in T.grid(8, 4):
          |     C[i * 4 + j] = A[j * 8 + i]

          hint: operands must have the layout of the result
        """,
    )
    expect(
        refusal(program(crooked)),
        """
        vector unit of tiny: the index `i * i % 8 * 4 + j` of A is not linear in the loops

          | C = T.Buffer((32,), "int32", scope="local.tiny_acc")
          | A = T.Buffer((32,), "int32", scope="local.tiny_acc")
          | for i, j in T.grid(8, 4):
          |     C[i * 4 + j] = A[i * i % 8 * 4 + j]

          hint: split so that it is
        """,
    )
    expect(
        refusal(program(prefix, size=36)),
        """
        vector unit of tiny: it reads `C[i * 4 + j]`, another element of its result

          | C = T.Buffer((36,), "int32", scope="local.tiny_acc")
          | for i, j in T.grid(8, 4):
          |     C[i * 4 + j + 4] = C[i * 4 + j] + 1

          hint: write to a buffer of its own
        """,
    )
    expect(
        refusal(program(narrow)),
        """
        vector unit of tiny: its innermost elements do not fill vectors of 4 lanes

          | C = T.Buffer((32,), "int32", scope="local.tiny_acc")
          | for i, j in T.grid(8, 4):
          |     C[i * 4 + j * 8] = 1

          hint: the last dimensions of C must be the 4 lanes of an element
        """,
    )
    expect(
        refusal(program(accumulated)),
        """
        vector unit of tiny: `(C[j] + 1) * A[i * 4 + j]` is accumulated over loops, and takes more than one operation

          | C = T.Buffer((32,), "int32", scope="local.tiny_acc")
          | A = T.Buffer((32,), "int32", scope="local.tiny_acc")
          | for i, j in T.grid(8, 4):
          |     C[j] = (C[j] + 1) * A[i * 4 + j]

          hint: compute the operand in a stage of its own
        """,
    )


def test_an_operand_in_another_memory(expect):
    @T.prim_func(private=True)
    def before(A: T.Buffer((32,), "int32")):
        c = T.allocate([32], "int32", "local.tiny_acc")
        C = T.decl_buffer((32,), "int32", data=c, scope="local.tiny_acc")
        T.attr(0, "pragma_alu", 1)
        for i in range(32):
            C[i] = A[i] + 1

    expect(
        refusal(before),
        """
        vector unit of tiny: A is in DRAM, not in local.tiny_acc

          | C = T.Buffer((32,), "int32", scope="local.tiny_acc")
          | A = T.Buffer((32,), "int32")
          | for i in range(32):
          |     C[i] = A[i] + 1

          hint: copy it to a buffer in local.tiny_acc first
        """,
    )


def test_nothing_to_do():
    func = program(stored(lambda x: x("A") + 1))
    made = vector_commands(func, TINY)
    assert vector_commands(made, TINY) is made


# ---------------------------------------------------------------------------- meaning
def values(operands: int = 2) -> Any:
    """Expressions that a vector unit may have to compute."""
    leaf = st.sampled_from([lambda x: x("A"), lambda x: x("B"), lambda x: x("C")])
    number = st.integers(-50, 50).map(lambda n: lambda x: const(n))

    def grown(inner: Any) -> Any:
        make = st.sampled_from([ops.add, ops.sub, ops.mul, ops.min_of, ops.max_of])
        both = st.tuples(make, inner, st.one_of(leaf, number)).map(lambda p: lambda x: p[0](p[1](x), p[2](x)))
        shifted = st.tuples(st.sampled_from([ops.shift_right, ops.shift_left]), inner, st.integers(0, 4)).map(
            lambda p: lambda x: p[0](p[1](x), const(p[2]))
        )
        return st.one_of(both, shifted)

    return st.recursive(st.one_of(leaf, number), grown, max_leaves=operands + 2)


def runnable(func: PrimFunc) -> PrimFunc:
    """The program with its memories as arguments, so that their contents can be compared."""
    buffers, body = [], func.body
    while isinstance(body, (Allocate, DeclBuffer)):
        if isinstance(body, DeclBuffer):
            buffers.append(body.buffer)
        body = body.body
    handles = [Var(b.name.lower(), "handle") for b in buffers]
    return PrimFunc(handles, body, buffer_map=dict(zip(handles, buffers, strict=True)))


@settings(max_examples=examples(200), deadline=None)
@given(values(), st.booleans())
def test_commands_mean_the_expression(value, three):
    func = program(stored(value))
    try:
        made = vector_commands(func, THREE if three else TINY)
    except LoweringError as error:
        assert "in a stage of its own" in str(error)
        return
    rng = np.random.default_rng(0)
    before = [rng.integers(-9, 9, 32).astype("int32") for _ in range(3)]
    want, got = ([np.copy(a) for a in before] for _ in range(2))
    interpret(runnable(func), *want)
    interpret(runnable(made), *got)
    np.testing.assert_array_equal(got[2], want[2], err_msg=f"{func.script()}\n{made.script()}")
    assert len(list(commands(made.body))) <= 8
