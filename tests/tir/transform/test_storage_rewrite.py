"""Allocations that share memory: when they may, and when they must not."""

# ruff: noqa: B007  (scripts name what they define)
from __future__ import annotations

from flat_programs import assert_same, flat_programs
from how_many import examples
from hypothesis import given, settings

from tilewright.ir.equal import assert_structural_equal
from tilewright.ir.functor import pre_order
from tilewright.ir.stmt import Allocate
from tilewright.script import tir as T
from tilewright.tir.analysis import undefined_vars, verify_ssa
from tilewright.tir.transform.storage_rewrite import storage_rewrite


def _allocations(func):
    return [m for m in pre_order(func.body) if isinstance(m, Allocate)]


def _sizes(func):
    return sorted(int(m.extents[0]) for m in _allocations(func))


def test_allocations_leave_loops_and_share():
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for i in range(4):
            with T.allocate([16], "float32", "global") as t:
                t_1 = T.decl_buffer((16,), data=t)
                for j in range(16):
                    t_1[j] = A[i * 16 + j]
                B[i] = t_1[i]
            u = T.allocate([32], "float32", "global")
            u_1 = T.decl_buffer((32,), data=u)
            for j in range(32):
                u_1[j] = A[j]
            B[i + 8] = u_1[i]

    @T.prim_func(private=True)
    def after(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        t = T.allocate([32], "float32", "global")
        for i in range(4):
            with T.decl_buffer((16,), data=t) as t_1:
                for j in range(16):
                    t_1[j] = A[i * 16 + j]
                B[i] = t_1[i]
            u_1 = T.decl_buffer((32,), data=t)
            for j in range(32):
                u_1[j] = A[j]
            B[i + 8] = u_1[i]

    made = storage_rewrite(before)
    assert_structural_equal(made, after)
    assert storage_rewrite(made) is made


def test_memory_in_use_at_the_same_time_is_kept_apart():
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        t = T.allocate([16], "float32", "global")
        t_1 = T.decl_buffer((16,), data=t)
        u = T.allocate([16], "float32", "global")
        u_1 = T.decl_buffer((16,), data=u)
        for j in range(16):
            t_1[j] = A[j]
        for j in range(16):
            u_1[j] = t_1[j]
        for j in range(16):
            B[j] = u_1[j]

    assert storage_rewrite(before) is before


def test_what_is_live_across_a_loop_is_in_use_in_all_of_it():
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        t = T.allocate([16], "float32", "global")
        t_1 = T.decl_buffer((16,), data=t)
        t_1[0] = T.float32(0)
        for k in range(4):
            t_1[0] = t_1[0] + A[k]
            u = T.allocate([16], "float32", "global")
            u_1 = T.decl_buffer((16,), data=u)
            u_1[0] = A[k]
            B[k] = u_1[0]

    made = storage_rewrite(before)
    assert _sizes(made) == [16, 16]
    assert storage_rewrite(made) is made


def test_a_chain_of_buffers_needs_two():
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        a = T.allocate([64], "float32", "global")
        a_1 = T.decl_buffer((64,), data=a)
        b = T.allocate([48], "float32", "global")
        b_1 = T.decl_buffer((48,), data=b)
        c = T.allocate([32], "float32", "global")
        c_1 = T.decl_buffer((32,), data=c)
        d = T.allocate([16], "float32", "global")
        d_1 = T.decl_buffer((16,), data=d)
        for i in range(64):
            a_1[i] = A[i]
        for i in range(48):
            b_1[i] = a_1[i]
        for i in range(32):
            c_1[i] = b_1[i]
        for i in range(16):
            d_1[i] = c_1[i]
        for i in range(16):
            B[i] = d_1[i]

    assert _sizes(storage_rewrite(before)) == [48, 64]


def test_types_of_one_width_share_through_views():
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        with T.allocate([16], "float32", "global") as t:
            t_1 = T.decl_buffer((16,), data=t)
            t_1[0] = A[0]
            B[0] = t_1[0]
        with T.allocate([16], "int32", "global") as u:
            u_1 = T.decl_buffer((16,), "int32", data=u)
            u_1[0] = 3
            B[1] = T.Cast("float32", u_1[0])
        with T.allocate([16], "float64", "global") as v:
            v_1 = T.decl_buffer((16,), "float64", data=v)
            v_1[0] = T.float64(3)
            B[1] = T.Cast("float32", v_1[0])

    assert len(_allocations(storage_rewrite(before))) == 2
    assert len(_allocations(storage_rewrite(before, share_dtypes=False))) == 3


def test_each_iteration_of_a_parallel_loop_has_its_own():
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for p in T.parallel(4):
            for k in range(4):
                t = T.allocate([16], "float32", "global")
                t_1 = T.decl_buffer((16,), data=t)
                t_1[k] = A[k]
                B[p * 4 + k] = t_1[k]

    @T.prim_func(private=True)
    def after(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for p in T.parallel(4):
            t = T.allocate([16], "float32", "global")
            for k in range(4):
                t_1 = T.decl_buffer((16,), data=t)
                t_1[k] = A[k]
                B[p * 4 + k] = t_1[k]

    assert_structural_equal(storage_rewrite(before), after)


def test_kernels_have_theirs():
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        bx = T.launch_thread("blockIdx.x", 2)
        tx = T.launch_thread("threadIdx.x", 4)
        for k in range(4):
            s = T.allocate([16], "float32", "shared")
            s_1 = T.decl_buffer((16,), data=s, scope="shared")
            r = T.allocate([16], "float32", "local")
            r_1 = T.decl_buffer((16,), data=r, scope="local")
            s_1[tx] = A[tx]
            r_1[0] = s_1[tx]
            B[bx * 4 + tx] = r_1[0]

    @T.prim_func(private=True)
    def after(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        bx = T.launch_thread("blockIdx.x", 2)
        tx = T.launch_thread("threadIdx.x", 4)
        s = T.allocate([16], "float32", "shared")
        r = T.allocate([16], "float32", "local")
        for k in range(4):
            s_1 = T.decl_buffer((16,), data=s, scope="shared")
            r_1 = T.decl_buffer((16,), data=r, scope="local")
            s_1[tx] = A[tx]
            r_1[0] = s_1[tx]
            B[bx * 4 + tx] = r_1[0]

    assert_structural_equal(storage_rewrite(before), after)


def test_sizes_that_depend_on_the_loop_stay():
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), n: T.int32):
        for k in range(4):
            t = T.allocate([k + 1], "float32", "global")
            t_1 = T.decl_buffer((k + 1,), data=t)
            t_1[k] = A[k]
            u = T.allocate([n * 2], "float32", "global")
            u_1 = T.decl_buffer((n * 2,), data=u)
            u_1[0] = t_1[k]
            B[k] = u_1[0]

    made = storage_rewrite(before)
    assert isinstance(made.body, Allocate)  # n * 2 is known at the top
    assert len(_allocations(made)) == 2
    assert not undefined_vars(made)


def test_pointers_that_are_kept_do_not_share():
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        t = T.allocate([16], "float32", "global")
        t_1 = T.decl_buffer((16,), data=t)
        p: T.handle = T.address_of(t_1[0])
        u = T.allocate([16], "float32", "global")
        u_1 = T.decl_buffer((16,), data=u)
        u_1[0] = A[0]
        B[0] = u_1[0]
        T.call_extern("int32", "look", p)

    assert len(_allocations(storage_rewrite(before))) == 2


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(flat_programs())
def test_meaning(func):
    made = storage_rewrite(func)
    assert verify_ssa(made) and not undefined_vars(made)
    assert storage_rewrite(made) is made
    assert_same(func, made)


@settings(max_examples=examples(30), deadline=None, derandomize=True)
@given(flat_programs(parallel=True))
def test_meaning_in_parallel_loops(func):
    assert_same(func, storage_rewrite(func))


def test_views_stand_below_the_allocation_that_they_look_at() -> None:
    import tilewright as tvm
    from tilewright import te
    from tilewright.script import from_source

    A = te.placeholder((8, 16), name="A")
    k, k2 = te.reduce_axis((0, 16), "k"), te.reduce_axis((0, 16), "k2")
    M = te.compute((8,), lambda i: te.max(A[i, k], axis=k), name="M")
    E = te.compute((8, 16), lambda i, j: te.exp(A[i, j] - M[i]), name="E")
    S = te.compute((8,), lambda i: te.sum(E[i, k2], axis=k2), name="S")
    O = te.compute((8, 16), lambda i, j: E[i, j] / S[i], name="O")
    mod = tvm.lower(te.create_schedule(O.op), [A, O])
    assert "S = T.decl_buffer((8,), data=M.data)" in mod.script()  # M's memory is used again
    tvm.ir.assert_structural_equal(from_source(mod.script()), mod)
