"""Barriers: none missing, none too many, none where threads part."""

# ruff: noqa: B007, F841  (scripts name what they define)
from __future__ import annotations

import numpy as np
import pytest
from flat_programs import allocated
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir import ops
from tilewright.ir.buffer import decl_buffer
from tilewright.ir.equal import assert_structural_equal
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import Call, IterVar, StringImm, Var
from tilewright.ir.function import PrimFunc
from tilewright.ir.functor import pre_order
from tilewright.ir.stmt import AttrStmt, BufferStore, Evaluate, For, ForKind, IfThenElse, SeqStmt, seq
from tilewright.script import tir as T
from tilewright.tir.interpret import InterpreterError, interpret
from tilewright.tir.transform.inject_double_buffer import inject_double_buffer
from tilewright.tir.transform.thread_sync import thread_sync


def _barriers(func):
    return sum(isinstance(m, Call) and m.op.name == "tir.tvm_storage_sync" for m in pre_order(func.body))


def test_a_tile_that_is_used_turn_after_turn():
    @T.prim_func(private=True)
    def before(A: T.Buffer((128,), "float32"), B: T.Buffer((32,), "float32")):
        tx = T.launch_thread("threadIdx.x", 32)
        s = T.allocate([32], "float32", "shared")
        s_1 = T.decl_buffer((32,), data=s, scope="shared")
        for k in range(4):
            s_1[tx] = A[k * 32 + tx]
            B[tx] = B[tx] + s_1[31 - tx]

    @T.prim_func(private=True)
    def after(A: T.Buffer((128,), "float32"), B: T.Buffer((32,), "float32")):
        tx = T.launch_thread("threadIdx.x", 32)
        s = T.allocate([32], "float32", "shared")
        s_1 = T.decl_buffer((32,), data=s, scope="shared")
        for k in range(4):
            T.tvm_storage_sync("shared")
            s_1[tx] = A[k * 32 + tx]
            T.tvm_storage_sync("shared")
            B[tx] = B[tx] + s_1[31 - tx]

    made = thread_sync(before)
    assert_structural_equal(made, after)
    assert thread_sync(made) is made
    assert thread_sync(before, "local") is before


def test_a_barrier_goes_in_front_of_the_outermost_statement():
    @T.prim_func(private=True)
    def before(A: T.Buffer((128,), "float32"), B: T.Buffer((32,), "float32")):
        tx = T.launch_thread("threadIdx.x", 32)
        s = T.allocate([128], "float32", "shared")
        s_1 = T.decl_buffer((128,), data=s, scope="shared")
        for k in range(4):
            s_1[k * 32 + tx] = A[k * 32 + tx]
        for k in range(128):
            B[tx] = B[tx] + s_1[k]

    @T.prim_func(private=True)
    def after(A: T.Buffer((128,), "float32"), B: T.Buffer((32,), "float32")):
        tx = T.launch_thread("threadIdx.x", 32)
        s = T.allocate([128], "float32", "shared")
        s_1 = T.decl_buffer((128,), data=s, scope="shared")
        for k in range(4):
            s_1[k * 32 + tx] = A[k * 32 + tx]
        T.tvm_storage_sync("shared")
        for k in range(128):
            B[tx] = B[tx] + s_1[k]

    assert_structural_equal(thread_sync(before), after)


def test_threads_that_keep_to_their_own_need_none():
    @T.prim_func(private=True)
    def before(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32")):
        bx = T.launch_thread("blockIdx.x", 2)
        tx = T.launch_thread("threadIdx.x", 8)
        ty = T.launch_thread("threadIdx.y", 4)
        s = T.allocate([256], "float32", "shared")
        s_1 = T.decl_buffer((256,), data=s, scope="shared")
        for k in range(4):
            for j in range(4):
                s_1[ty * 32 + tx * 4 + j] = A[ty * 32 + tx * 4 + j]
            for j in range(2):
                B[ty * 32 + tx * 4 + j] = s_1[ty * 32 + tx * 4 + 3 - j]
            s_1[ty * 32 + tx * 4 : ty * 32 + tx * 4 + 4] = T.Broadcast(T.float32(0), 4)
            s_1[128 + bx + tx * 4 + ty] = T.float32(1)

    assert thread_sync(before) is before


def test_regions_apart_need_none():
    @T.prim_func(private=True)
    def before(B: T.Buffer((128,), "float32")):
        tx = T.launch_thread("threadIdx.x", 8)
        s = T.allocate([64], "float32", "shared")
        s_1 = T.decl_buffer((64,), data=s, scope="shared")
        s_1[tx] = T.float32(0)
        B[tx] = s_1[8 + tx // 2]

    assert thread_sync(before) is before


def test_threads_that_stay_out_are_not_counted():
    """Three of four threads fill a row of three turn after turn: their elements keep apart."""

    @T.prim_func(private=True)
    def func(A: T.Buffer((12,), "int32")):
        tx = T.launch_thread("threadIdx.x", 4)
        s = T.allocate([12], "int32", "shared")
        s_1 = T.decl_buffer((12,), "int32", data=s, scope="shared")
        for k in range(4):
            if tx < 3:
                s_1[k * 3 + tx] = A[k * 3 + tx]

    assert thread_sync(func) is func


def test_whole_steps_apart_need_none():
    """A thread reads what it wrote itself in another turn, wherever that is."""

    @T.prim_func(private=True)
    def func(A: T.Buffer((12,), "int32")):
        tx = T.launch_thread("threadIdx.x", 4)
        s = T.allocate([12], "int32", "shared")
        s_1 = T.decl_buffer((12,), "int32", data=s, scope="shared")
        for k in range(3):
            s_1[k * 4 + tx] = A[k * 4 + tx]
        for k in range(3):
            A[k * 4 + tx] = s_1[(k + 2) % 3 * 4 + tx]

    assert thread_sync(func) is func


def test_one_barrier_serves_all_shared_memory():
    @T.prim_func(private=True)
    def func(A: T.Buffer((32,), "int32"), B: T.Buffer((32,), "int32")):
        tx = T.launch_thread("threadIdx.x", 32)
        s = T.allocate([32], "int32", "shared")
        d = T.allocate([32], "int32", "shared.dyn")
        s_1 = T.decl_buffer((32,), "int32", data=s, scope="shared")
        d_1 = T.decl_buffer((32,), "int32", data=d, scope="shared.dyn")
        for k in range(4):
            s_1[tx] = A[tx] + k
            d_1[tx] = A[31 - tx]
            B[tx] = s_1[31 - tx] + d_1[(tx + 1) % 32]

    assert _barriers(thread_sync(func, "shared", "shared.dyn")) == 2
    assert _barriers(thread_sync(thread_sync(func, "shared"), "shared.dyn")) == 2
    assert _barriers(thread_sync(func, "shared")) == 2


def test_one_thread_needs_none():
    @T.prim_func(private=True)
    def before(B: T.Buffer((128,), "float32")):
        tx = T.launch_thread("threadIdx.x", 1)
        s = T.allocate([64], "float32", "shared")
        s_1 = T.decl_buffer((64,), data=s, scope="shared")
        s_1[0] = T.float32(0)
        B[0] = s_1[0]

    assert thread_sync(before) is before


def test_one_writer_and_many_readers():
    @T.prim_func(private=True)
    def before(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32")):
        tx = T.launch_thread("threadIdx.x", 8)
        s = T.allocate([64], "float32", "shared")
        s_1 = T.decl_buffer((64,), data=s, scope="shared")
        if tx == 0:
            s_1[0] = A[0]
        B[tx] = s_1[0]

    made = thread_sync(before)
    assert _barriers(made) == 1
    out = np.zeros(128, "float32")
    interpret(made, np.ones(128, "float32"), out)
    assert out[:8].sum() == 8


def test_uniform_conditions_may_hold_barriers():
    @T.prim_func(private=True)
    def before(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 8)
        s = T.allocate([64], "float32", "shared")
        s_1 = T.decl_buffer((64,), data=s, scope="shared")
        if n < 3:
            s_1[tx] = A[tx]
            B[tx] = s_1[7 - tx]

    @T.prim_func(private=True)
    def after(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 8)
        s = T.allocate([64], "float32", "shared")
        s_1 = T.decl_buffer((64,), data=s, scope="shared")
        if n < 3:
            s_1[tx] = A[tx]
            T.tvm_storage_sync("shared")
            B[tx] = s_1[7 - tx]

    assert_structural_equal(thread_sync(before), after)


def test_divergent_conditions_may_not():
    @T.prim_func(private=True)
    def before(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32")):
        tx = T.launch_thread("threadIdx.x", 8)
        s = T.allocate([64], "float32", "shared")
        s_1 = T.decl_buffer((64,), data=s, scope="shared")
        if tx < 4:
            s_1[tx] = A[tx]
            B[tx] = s_1[3 - tx]

    with pytest.raises(LoweringError, match="shared memory is shared between threads inside `tx < 4`"):
        thread_sync(before)


def test_two_halves_need_one_barrier_a_turn():
    @T.prim_func(private=True)
    def before(A: T.Buffer((128,), "float32"), B: T.Buffer((32,), "float32")):
        tx = T.launch_thread("threadIdx.x", 32)
        s = T.allocate([32], "float32", "shared")
        s_1 = T.decl_buffer((32,), data=s, scope="shared")
        for k in range(4):
            with T.attr(s, "double_buffer_scope", 1):
                s_1[tx] = A[k * 32 + tx]
            B[tx] = B[tx] + s_1[31 - tx]

    made = thread_sync(inject_double_buffer(before))
    assert _barriers(made) == 1
    a, want = np.arange(128, dtype="float32"), np.zeros(32, "float32")
    got = want.copy()
    interpret(thread_sync(before), a, want)
    interpret(made, a, got)
    assert np.array_equal(want, got)


# ---------------------------------------------------------------------------- random kernels
THREADS = 4


@st.composite
def kernels(draw):
    """Threads that write and read two pieces of shared memory; each statement by itself has no race."""
    A = decl_buffer((64,), "int32", "A")
    B = decl_buffer((64,), "int32", "B")
    pieces = [decl_buffer((8,), "int32", name, scope="shared") for name in "st"]
    tx = IterVar((0, THREADS), "tx", 1, "threadIdx.x")
    t, n = tx.var, Var("n")
    pick = lambda items: draw(st.sampled_from(list(items)))

    def where(loops, one_each):
        """An index; with `one_each`, different for every thread."""
        base = pick(
            [t, 3 - t, (t + pick((1, 2))) % 4, t * 2] + ([] if one_each else [t // 2, t * 0, t % 2 + 1])
        )
        loop = pick([0, *loops])
        shift = pick([0, 0, 1, 4, loop % 2, loop % 2 * 4])
        return ops.floormod(base + shift, 8)

    def statement(depth, loops):
        kind = pick(["write", "write", "read", "read", "copy"] + ["for", "if", "part"] * (depth > 0))
        p, q = pick(pieces), pick(pieces)
        if kind == "write":
            return BufferStore(p, A[t] + pick((0, 1, *loops)), [where(loops, True)])
        if kind == "read":
            return BufferStore(B, B[t] * 3 % 101 + p[where(loops, False)], [t])
        if kind == "copy":
            mine = where(loops, True)
            if p is q:
                return BufferStore(p, p[mine] + 1, [mine])
            return BufferStore(p, q[where(loops, False)], [mine])
        if kind == "for":
            v = Var("k")
            return For(v, 0, pick((1, 2, 3)), ForKind.SERIAL, block(depth - 1, [*loops, v]))
        if kind == "if":
            return IfThenElse(ops.less(pick([n, *loops]), 2), block(depth - 1, loops))
        return IfThenElse(ops.less(t, pick((1, 3))), statement(0, loops))  # one exchange at most

    def block(depth, loops):
        return seq(*[statement(depth, loops) for _ in range(pick((1, 2, 3)))])

    f = Var("f")
    fill = [For(f, 0, 8, ForKind.SERIAL, IfThenElse(ops.equal(t, 0), BufferStore(p, f, [f]))) for p in pieces]
    body = seq(*fill, _barrier(), block(2, []))
    for p in pieces:
        body = allocated(p, body)
    return PrimFunc([A, B, n], AttrStmt(tx, "thread_extent", THREADS, body))


def _barrier():
    return Evaluate(Call("int32", "tir.tvm_storage_sync", (StringImm("shared"),)))


def _everywhere(func):
    """A barrier after each statement that all threads reach: what the kernel means."""

    def put(n):
        if isinstance(n, IfThenElse) and any(
            isinstance(m, Var) and m.name == "tx" for m in pre_order(n.condition)
        ):
            return n
        if isinstance(n, SeqStmt):
            return SeqStmt(tuple(x for s in n.seq for x in (put(s), _barrier())))
        if isinstance(n, For):
            return n.replace(body=seq(put(n.body), _barrier()))
        return n.map_children(lambda c: put(c) if hasattr(c, "script") else c)

    return func.replace(body=put(func.body))


def _run(func, n):
    a, b = np.arange(64, dtype="int32") * 3, np.zeros(64, "int32")
    interpret(func, a, b, n)
    return b


@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(kernels())
def test_no_races_remain(func):
    made = thread_sync(func)
    for n in (0, 3):
        assert np.array_equal(_run(_everywhere(func), n), _run(made, n)), made


@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(kernels())
def test_no_barrier_means_no_race(func):
    """Where the pass adds nothing, the interpreter finds nothing either."""
    made = thread_sync(func)
    if made is func:
        for n in (0, 3):
            _run(func, n)
    else:
        assert _barriers(made) > _barriers(func)


def test_the_interpreter_would_notice():
    @T.prim_func(private=True)
    def racy(A: T.Buffer((64,), "int32"), B: T.Buffer((64,), "int32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 4)
        s = T.allocate([8], "int32", "shared")
        s_1 = T.decl_buffer((8,), "int32", data=s, scope="shared")
        s_1[tx] = A[tx]
        B[tx] = s_1[3 - tx]

    with pytest.raises(InterpreterError):
        _run(racy, 0)
    assert np.array_equal(_run(thread_sync(racy), 0)[:4], [9, 6, 3, 0])
