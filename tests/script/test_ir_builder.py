"""Programs built by calls."""

from __future__ import annotations

import textwrap

import pytest

from tilewright.ir import PrimFunc, assert_structural_equal, decl_buffer, ops
from tilewright.ir.expr import IterVar, Range, Var
from tilewright.ir.stmt import Evaluate, For, ForKind
from tilewright.script import from_source
from tilewright.tir import ir_builder


def dedent(text: str) -> str:
    return textwrap.dedent(text).strip("\n")


def test_loops_conditions_and_memory() -> None:
    ib = ir_builder.create()
    n = Var("n")
    a = decl_buffer((n,), name="A")
    A = ib.buffer_ptr(a)
    B = ib.allocate("float32", (n,), name="B", scope="shared")
    with ib.for_range(0, n) as i:
        with ib.if_scope(ib.likely(i < 10)):
            A[i] = A[i] + 1.0
        with ib.else_scope():
            B[i] = A[i]
        with ib.for_range(1, 5, name="k", kind="unroll") as k:
            x = ib.let("x", A[k] * 2.0)
            A[k] = x
        ib.emit(ops.call_extern("int32", "done", B.asobject().data))
    with ib.while_loop(A[0] < 3.0):
        A[0] = A[0] + 1
    stmt = ib.get()
    func = PrimFunc([a], stmt, attrs={"global_symbol": "f"})
    assert func.script() == dedent(
        """
        # from tilewright.script import tir as T

        @T.prim_func
        def f(var_A: T.handle):
            n = T.int32()
            A = T.match_buffer(var_A, (n,))
            B = T.allocate([n], "float32", "shared")
            B_1 = T.Buffer((n,), data=B)
            for i in range(n):
                if T.likely(i < 10):
                    A[i] = A[i] + T.float32(1)
                else:
                    B_1[i] = A[i]
                for k in T.unroll(1, 5):
                    x: T.float32 = A[k] * T.float32(2)
                    A[k] = x
                T.call_extern("int32", "done", B)
            while A[0] < T.float32(3):
                A[0] = A[0] + T.float32(1)
        """
    )
    assert_structural_equal(func, from_source(func.script()))


def test_attributes_and_threads() -> None:
    ib = ir_builder.create()
    tx = IterVar(Range(0, 8), "tx", IterVar.ThreadIndex, "threadIdx.x")
    ib.scope_attr(tx, "thread_extent", 8)
    with ib.new_scope():
        ib.scope_attr("text", "pragma", "on")
        p = ib.pointer("int32", name="p")
        p[0] = 3
    ib.emit(Evaluate(tx.var))
    assert str(ib.get()) == dedent(
        """
        p = T.Buffer((1,), "int32")
        tx = T.launch_thread("threadIdx.x", 8)
        with T.attr(T.StringImm("text"), "pragma", "on"):
            p[0] = 3
        T.evaluate(tx)
        """
    )


def test_vector_content_and_views() -> None:
    ib = ir_builder.create()
    data = decl_buffer((16,), "float32", "A")
    vectors = ir_builder.BufferVar(ib, data, "float32x4")
    matrix = ib.buffer_ptr(data, shape=(4, 4))
    with ib.for_range(0, 4, dtype="int64") as i:
        vectors[i] = vectors[i] + 1.0
        matrix[i, 0] = 0
        vectors[i] = 2
    body = ib.get()
    assert isinstance(body, For) and body.loop_var.dtype == "int64"
    text = str(body)
    assert "A[i * T.int64(4):i * T.int64(4) + T.int64(4)]" in text
    assert "[i, 0] = T.float32(0)" in text
    assert vectors.dtype == "float32x4"


def test_names_of_loops() -> None:
    ib = ir_builder.create()
    with ib.for_range(0, 2) as a, ib.for_range(0, 2) as b, ib.for_range(0, 2) as c, ib.for_range(0, 2) as d:
        ib.emit(a + b + c + d)
    assert [v.name for v in (a, b, c, d)] == ["i", "j", "k", "i_0"]
    loop = ib.get()
    assert isinstance(loop, For) and loop.kind is ForKind.SERIAL


def test_refusals() -> None:
    ib = ir_builder.create()
    A = ib.buffer_ptr(decl_buffer((4, 4), "int32", "A"))
    with pytest.raises(RuntimeError, match="else_scope can only follow an if_scope"):
        ib.else_scope()
    with pytest.raises(ValueError, match="buffer A has 2 dimensions and was indexed with 1"):
        A[0]
    with pytest.raises(ValueError, match=r"a value of type float32 is stored into A, which holds int32"):
        A[0, 0] = Var("x", "float32")
    with pytest.raises(ValueError, match="unknown kind of loop 'fast'"):
        ib.for_range(0, 3, kind="fast")
    with pytest.raises(TypeError, match="emit takes a statement"):
        ib.emit("text")
    ib.for_range(0, 3)
    with pytest.raises(RuntimeError, match="still open"):
        ib.get()


def test_nothing_is_a_statement_too() -> None:
    assert isinstance(ir_builder.create().get(), Evaluate)
