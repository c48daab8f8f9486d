"""Strides asked for by storage_align."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.functor import pre_order
from tilewright.ir.stmt import Allocate, DeclBuffer
from tilewright.script import tir as T


def program() -> tuple[te.Schedule, list[te.Tensor], te.Tensor]:
    A = te.placeholder((4, 8, 16), name="A")
    B = te.compute((4, 8, 16), lambda i, j, k: A[i, j, k] * 2.0, name="B")
    C = te.compute((4, 8, 16), lambda i, j, k: B[i, j, k] + 1.0, name="C")
    return te.create_schedule(C.op), [A, C], B


@pytest.mark.parametrize(
    "axis, factor, offset, strides",
    [(1, 16, 1, (136, 17)), (1, 32, 0, (256, 32)), (0, 100, 4, (204, 16))],
)
def test_rows_lie_as_far_apart_as_asked(
    axis: int, factor: int, offset: int, strides: tuple[int, int]
) -> None:
    s, args, B = program()
    s[B].storage_align(B.op.axis[axis], factor, offset)
    text = tvm.lower(s, args).script()
    assert f"B_1[i * {strides[0]} + j * {strides[1]} + k]" in text
    x = np.random.default_rng(0).random((4, 8, 16), dtype=np.float32)
    got = np.zeros_like(x)
    tvm.build(s, args)(x, got)
    np.testing.assert_array_equal(got, x * 2 + 1)
    got[:] = 0
    tir.interpret(tvm.lower(s, args)["main"], x, got)
    np.testing.assert_array_equal(got, x * 2 + 1)


def test_nothing_asked_nothing_done() -> None:
    s, args, _ = program()
    func = s.to_prim_func(args)
    mod = tvm.IRModule({"main": func})
    assert tir.transform.AlignStorage()(mod) is mod


@pytest.mark.parametrize("scope", ["global", "local"])
@pytest.mark.parametrize(("axis", "factor"), [(0, 64), (0, 100), (1, 8)])
def test_as_much_is_allocated_as_is_declared(scope, axis, factor):
    """Also where strides are not multiples of each other, as 64 and 7."""

    @T.prim_func
    def func(A: T.Buffer((3, 9, 7), "int32"), C: T.Buffer((3, 9, 7), "int32")):
        B = T.alloc_buffer((3, 9, 7), "int32")
        for i, j, k in T.grid(3, 9, 7):
            with T.block("B"):
                vi, vj, vk = T.axis.remap("SSS", [i, j, k])
                B[vi, vj, vk] = A[vi, vj, vk]
        for i, j, k in T.grid(3, 9, 7):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSS", [i, j, k])
                C[vi, vj, vk] = B[vi, 8 - vj, vk]

    sch = tir.Schedule(func)
    sch.storage_align("B", 0, axis, factor, 0)
    sch.set_scope("B", 0, scope)
    made = tvm.lower(sch.mod)["main"]
    allocated = {m.buffer_var: m.extents for m in pre_order(made.body) if isinstance(m, Allocate)}
    declared = [m.buffer for m in pre_order(made.body) if isinstance(m, DeclBuffer)]
    ((extent,),) = allocated.values()
    (buffer,) = (b for b in declared if b.data in allocated)
    assert int(buffer.shape[0]) <= int(extent)
