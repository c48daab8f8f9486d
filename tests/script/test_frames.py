"""Programs built by frames are those that a script describes."""

from __future__ import annotations

import pytest

from tilewright import tir
from tilewright.ir import IRModule, assert_structural_equal
from tilewright.ir.errors import ScriptError
from tilewright.script import ir as SI
from tilewright.script import tir as S
from tilewright.script.ir_builder import IRBuilder
from tilewright.script.ir_builder import ir as I
from tilewright.script.ir_builder import tir as T


def test_function_with_a_reduction() -> None:
    with IRBuilder() as ib, T.prim_func():
        T.func_name("matmul")
        T.func_attr({"tir.noalias": True})
        A = T.arg("A", T.Buffer((8, 4), "float32"))
        B = T.arg("B", T.Buffer((4, 8), "float32"))
        c = T.arg("c", T.handle())
        C = IRBuilder.name("C", T.match_buffer(c, (8, 8)))
        with T.grid(8, 8, 4) as (i, j, k), T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                T.buffer_store(C, 0.0, [vi, vj])
            T.buffer_store(C, C[vi, vj] + A[vi, vk] * B[vk, vj], [vi, vj])

    @S.prim_func
    def matmul(A: S.Buffer((8, 4), "float32"), B: S.Buffer((4, 8), "float32"), c: S.handle):
        S.func_attr({"tir.noalias": True})
        C = S.match_buffer(c, (8, 8))
        for i, j, k in S.grid(8, 8, 4):
            with S.block("C"):
                vi, vj, vk = S.axis.remap("SSR", [i, j, k])
                with S.init():
                    C[vi, vj] = S.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    assert_structural_equal(ib.get(), matmul)


def test_control_and_definitions() -> None:
    with IRBuilder() as ib, T.prim_func():
        T.func_name("f")
        A = T.arg("A", T.Buffer((16,), "int32"))
        n = T.arg("n", T.int32())
        with T.allocate([16], "int32", "local") as data, T.decl_buffer((16,), "int32", data=data) as B:
            with T.parallel(16) as i, T.If(i < n):
                with T.Then():
                    T.buffer_store(B, i, [i])
                with T.Else():
                    T.evaluate(0)
            with T.LetStmt(n + 1) as m, T.Assert(m > 0, "m is positive"):
                T.buffer_store(A, m, [0])
            with T.While(A[0] < 8):
                T.buffer_store(A, A[0] + 1, [0])

    @S.prim_func
    def f(A: S.Buffer((16,), "int32"), n: S.int32):
        with S.allocate([16], "int32", "local") as data:
            B = S.decl_buffer((16,), "int32", data=data, scope="local")
            for i in S.parallel(16):
                if i < n:
                    B[i] = i
                else:
                    S.evaluate(0)
            with S.LetStmt(n + 1) as m, S.Assert(m > 0, "m is positive"):
                A[0] = m
            while A[0] < 8:
                A[0] = A[0] + 1

    assert_structural_equal(ib.get(), f)


def test_module_with_a_launch() -> None:
    with IRBuilder() as ib, I.ir_module():
        I.module_attrs({"system": 1})
        with T.prim_func():
            T.func_name("main")
            A = T.arg("A", T.Buffer((128,), "float32"))
            with T.launch_thread("threadIdx.x", 128) as tx:
                T.buffer_store(A, 1.0, [tx])

    @SI.ir_module
    class Module:
        SI.module_attrs({"system": 1})

        @S.prim_func
        def main(A: S.Buffer((128,), "float32")):
            tx = S.launch_thread("threadIdx.x", 128)
            A[tx] = S.float32(1)

    assert isinstance(ib.get(), IRModule)
    assert_structural_equal(ib.get(), Module)


def test_statements_alone() -> None:
    with IRBuilder() as ib:
        T.evaluate(1)
        T.evaluate(2)
    assert_structural_equal(ib.get(), tir.SeqStmt([tir.Evaluate(1), tir.Evaluate(2)]))


def test_refusals() -> None:
    with pytest.raises(ValueError, match="no IRBuilder is open here"):
        T.evaluate(0)
    with pytest.raises(ScriptError, match="outside of any block"), IRBuilder():
        T.where(T.int32() > 0)
    with pytest.raises(ValueError, match="still open"), IRBuilder() as ib:
        ib.get()
    with pytest.raises(ValueError, match=r"T\.If has no"), IRBuilder(), T.If(T.int32() > 0):
        T.evaluate(0)
    with pytest.raises(ValueError, match="has no name"), IRBuilder(), I.ir_module(), T.prim_func():
        T.evaluate(0)
