"""Index arithmetic in fewer bits."""

from __future__ import annotations

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir import ops
from tilewright.ir.buffer import decl_buffer
from tilewright.ir.equal import assert_structural_equal
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import IterVar, PrimExpr, Range, Select, Var, const
from tilewright.ir.function import PrimFunc
from tilewright.ir.functor import pre_order
from tilewright.ir.stmt import AttrStmt, BufferStore, For, ForKind, IfThenElse, LetStmt, SeqStmt
from tilewright.script import tir as T
from tilewright.tir.interpret import interpret
from tilewright.tir.transform.narrow_data_type import force_narrow_index_to_int32, narrow_data_type


def _types(func):
    return {m.dtype for m in pre_order(func.body) if isinstance(m, PrimExpr)}


def test_loops_and_indices_that_fit():
    @T.prim_func(private=True)
    def before(A: T.Buffer((512,), "float32")):
        for i in range(T.int64(16)):
            x: T.int64 = i * T.int64(4)
            for j in range(T.int64(4)):
                if x + j < T.int64(60):
                    A[x + T.min(j, T.int64(3)) // T.int64(2)] = T.float32(1)

    @T.prim_func(private=True)
    def after(A: T.Buffer((512,), "float32")):
        for i in range(16):
            x: T.int32 = i * 4
            for j in range(4):
                if x + j < 60:
                    A[x + T.min(j, 3) // 2] = T.float32(1)

    made = narrow_data_type(before)
    assert_structural_equal(made, after)
    assert narrow_data_type(made) is made
    assert narrow_data_type(before, target_bits=64) is before


def test_what_does_not_fit_is_widened_where_it_starts():
    @T.prim_func(private=True)
    def before(A: T.Buffer((T.int64(1) << T.int64(40),), "float32")):
        for i in range(T.int64(65536)):
            for j in range(T.int64(65536)):
                A[i * T.int64(65536) + j] = T.float32(1)

    made = narrow_data_type(before)
    assert made.body.loop_var.dtype == "int32"
    store = made.body.body.body
    assert store.indices[0].dtype == "int64"
    assert {"int32", "int64"} <= _types(made)


def test_values_keep_their_type():
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int64"), B: T.Buffer((16,), "float32")):
        for i in range(T.int64(16)):
            A[i] = i + T.int64(1)
            B[i] = T.Cast("float32", i)

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "int64"), B: T.Buffer((16,), "float32")):
        for i in range(16):
            A[i] = T.Cast("int64", i + 1)
            B[i] = T.Cast("float32", i)

    assert_structural_equal(narrow_data_type(before), after)


def test_threads_and_vectors():
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", T.int64(4))
        for i in range(T.int64(4)):
            A[T.Ramp(tx * T.int64(16) + i * T.int64(4), T.int64(1), 4)] = T.Broadcast(T.float32(0), 4)

    made = narrow_data_type(before)
    assert not any(t.element == "int64" for t in _types(made))
    out = np.ones(64, "float32")
    interpret(made, out)
    assert not out.any()


def test_unknown_sizes_stay_wide():
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), n: T.int64):
        for i in range(n):
            A[i] = T.float32(0)

    assert narrow_data_type(before) is before


def test_forced():
    @T.prim_func(private=True)
    def before(a: T.handle, n: T.int64):
        A = T.match_buffer(a, (n,), "float32")
        for i in range(n):
            A[i] = T.float32(2)

    made = force_narrow_index_to_int32(before)
    assert made.params[1].dtype == "int32"
    assert made.buffer_params()[0].shape[0].dtype == "int32"
    assert not any(t == "int64" for t in _types(made))
    out = np.zeros(5, "float32")
    interpret(made, out, 5)
    assert out.sum() == 10
    assert force_narrow_index_to_int32(made) is made


def test_forced_refuses_values_of_64_bits():
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int64")):
        A[0] = T.int64(0)

    with pytest.raises(LoweringError, match="buffer A holds int64 values"):
        force_narrow_index_to_int32(before)


@st.composite
def wide_programs(draw):
    """Nested int64 loops over indices that may pass 2**31 on the way."""
    A = decl_buffer((64,), "int64", "A")
    pick = lambda items: draw(st.sampled_from(list(items)))
    loops = [Var(n, "int64") for n in "ij"]
    scalars = list(loops)

    def expr(depth):
        if depth == 0:
            return pick([*scalars, const(pick((1, 3, 7, 1 << 20, (1 << 31) - 2)), "int64")])
        a, b = expr(depth - 1), expr(depth - 1)
        kind = pick(("add", "sub", "mul", "div", "mod", "max", "select", "cast"))
        if kind == "div":
            return ops.floordiv(a, const(pick((2, 5)), "int64"))
        if kind == "mod":
            return ops.floormod(a, const(pick((3, 64)), "int64"))
        if kind == "select":
            return Select(ops.less(a, b), a, b)
        if kind == "cast":
            return ops.floormod(a, const(100, "int64")).astype("int32").astype("int64")
        return {"add": ops.add, "sub": ops.sub, "mul": ops.mul, "max": ops.max_of}[kind](a, b)

    x = Var("x", "int64")
    value = expr(2)
    scalars.append(x)
    where = ops.floormod(expr(2), const(64, "int64"))
    body = IfThenElse(ops.less(expr(1), expr(1)), BufferStore(A, A[where] + expr(1), [where]))
    body = LetStmt(x, value, body)
    for v in loops:
        body = For(v, const(pick((0, 2)), "int64"), const(pick((2, 3)), "int64"), ForKind.SERIAL, body)
    return PrimFunc([A], body)


@settings(max_examples=examples(80), deadline=None, derandomize=True)
@given(wide_programs())
def test_meaning(func):
    want, got = np.arange(64, dtype="int64"), np.arange(64, dtype="int64")
    interpret(func, want)
    interpret(narrow_data_type(func), got)
    assert np.array_equal(want, got)


def test_loops_beside_each_other_may_have_one_variable():
    """The second does not fit, so the variable is the wide one there."""
    i, handle = Var("i", "int64"), Var("b", "handle")
    B = decl_buffer((const(2**40, "int64"),), "int8", name="B")
    small = For(
        i, const(0, "int64"), const(8, "int64"), ForKind.SERIAL, BufferStore(B, const(1, "int8"), [i])
    )
    large = small.replace(extent=const(2**40, "int64"))
    func = PrimFunc([handle], SeqStmt([small, large, small]), buffer_map={handle: B})
    made = narrow_data_type(func).body.seq
    assert [str(loop.loop_var.dtype) for loop in made] == ["int32", "int64", "int32"]
    assert all(loop.body.indices[0] is loop.loop_var for loop in made)


def test_two_kernels_may_have_one_axis():
    v, handle = Var("threadIdx.x", "int64"), Var("b", "handle")
    B = decl_buffer((const(8, "int64"),), "int8", name="B")
    axis = IterVar(Range(const(0, "int64"), const(8, "int64")), v, IterVar.ThreadIndex, "threadIdx.x")
    kernel = AttrStmt(axis, "thread_extent", const(8, "int64"), BufferStore(B, const(1, "int8"), [v]))
    func = PrimFunc(
        [handle], SeqStmt([kernel, kernel.replace(value=const(4, "int64"))]), buffer_map={handle: B}
    )
    made = narrow_data_type(func).body.seq
    assert all(k.body.indices[0] is k.node.var and str(k.node.var.dtype) == "int32" for k in made)
