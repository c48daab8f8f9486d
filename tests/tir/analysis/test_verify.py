"""Checks of whole programs: definitions, memory, limits, sizes, bounds, effects."""

from __future__ import annotations

import pytest

from tilewright.ir import IRModule
from tilewright.ir.buffer import decl_buffer
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import IterVar, Var
from tilewright.ir.function import PrimFunc
from tilewright.ir.op import CallEffectKind
from tilewright.ir.ops import exp, floordiv
from tilewright.ir.stmt import Block, BlockRealize, BufferStore, For, ForKind, seq
from tilewright.script import tir as T
from tilewright.tir import analysis
from tilewright.tir.analysis import effects

A = decl_buffer((16,), "int32", "A")
i, n = Var("i"), Var("n")


def _loop(body, v=i):
    return For(v, 0, 4, ForKind.SERIAL, body)


# ---------------------------------------------------------------------------- definitions
def test_ssa():
    store = BufferStore(A, i, [i])
    assert analysis.verify_ssa(PrimFunc([A], _loop(store)))
    assert not analysis.verify_ssa(PrimFunc([A], seq(_loop(store), _loop(store))))
    assert not analysis.verify_ssa(PrimFunc([A], _loop(_loop(store))))


def test_well_formed_programs_and_others():
    assert analysis.verify_well_formed(PrimFunc([A], _loop(BufferStore(A, i, [i]))))
    free = PrimFunc([A], BufferStore(A, n, [0]))
    assert not analysis.verify_well_formed(free, assert_mode=False)
    with pytest.raises(ValueError, match="variable n is used and nothing defines it"):
        analysis.verify_well_formed(IRModule({"main": free}))
    vi = Var("vi")
    block = Block([IterVar((0, 4), vi, 0)], [], [], "b", BufferStore(A, i, [vi]))
    leaky = PrimFunc([A], _loop(BlockRealize([i], True, block)))
    with pytest.raises(ValueError, match="block b uses the loop variable i of a loop around it"):
        analysis.verify_well_formed(leaky)
    tidy = PrimFunc([A], _loop(BlockRealize([i], True, block.replace(body=BufferStore(A, vi, [vi])))))
    assert analysis.verify_well_formed(tidy)


def test_undefined_variables():
    assert analysis.undefined_vars(i + n) == [i, n]
    assert analysis.undefined_vars(i + n, [i]) == [n]


def test_equal_expressions():
    assert analysis.expr_deep_equal(i + n * 2, i + n * 2)
    assert not analysis.expr_deep_equal(i + n * 2, n + n * 2)


# ---------------------------------------------------------------------------- devices
@T.prim_func
def kernel(A: T.Buffer((64,), "float32")):
    bx = T.launch_thread("blockIdx.x", 2)
    tx = T.launch_thread("threadIdx.x", 16)
    ty = T.launch_thread("threadIdx.y", 2)
    s = T.allocate([64], "float32", "shared")
    s_1 = T.decl_buffer((64,), data=s, scope="shared")
    r = T.allocate([8], "float32", "local")
    r_1 = T.decl_buffer((8,), data=r, scope="local")
    s_1[tx * 4 : tx * 4 + 4] = T.Broadcast(T.float32(0), 4)
    r_1[0] = s_1[tx]
    A[bx * 32 + tx * 2 + ty] = r_1[0]


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("max_threads_per_block", 32),
        ("max_thread_x", 16),
        ("max_thread_y", 2),
        ("max_shared_memory_per_block", 256),
        ("max_local_memory_per_block", 32),
        ("max_vector_bytes", 16),
        ("max_kernels", 1),
    ],
)
def test_limits_of_a_gpu(name, needs):
    assert analysis.verify_gpu_code(kernel, {name: needs})
    assert not analysis.verify_gpu_code(kernel, {name: needs - 1})


def test_host_code_keeps_off_device_memory():
    @T.prim_func
    def host(A: T.Buffer((64,), "float32")):
        for i in range(64):
            A[i] = T.float32(0)

    assert analysis.verify_memory(host)
    assert analysis.verify_memory(host.with_attr("target", "llvm"))
    assert not analysis.verify_memory(host.with_attr("target", "cuda"))
    assert analysis.verify_memory(kernel.with_attr("target", "cuda -arch=sm_90"))


# ---------------------------------------------------------------------------- sizes
def test_bytes_allocated_at_once():
    @T.prim_func
    def func(A: T.Buffer((64,), "float32")):
        a = T.allocate([10], "float32", "global")
        a_1 = T.decl_buffer((10,), data=a)
        a_1[0] = T.float32(0)
        with T.allocate([20], "int8", "global") as b:
            b_1 = T.decl_buffer((20,), "int8", data=b)
            b_1[0] = T.int8(0)
        with T.allocate([30], "int8", "local") as c:
            c_1 = T.decl_buffer((30,), "int8", data=c, scope="local")
            c_1[0] = T.int8(0)

    assert analysis.calculate_allocated_bytes(func) == {"main": {"global": 60, "local": 30}}
    assert analysis.calculate_allocated_bytes(IRModule({"f": func}))["f"]["global"] == 60
    assert analysis.calculate_workspace_bytes(func, 16) == 48 + 32
    assert analysis.calculate_constant_bytes(func, 16) == 0


def test_operations():
    @T.prim_func
    def matmul(X: T.Buffer((32, 16)), Y: T.Buffer((16, 8)), Z: T.Buffer((32, 8))):
        for i, j, k in T.grid(32, 8, 16):
            with T.block("Z"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    Z[vi, vj] = T.float32(0)
                Z[vi, vj] = Z[vi, vj] + X[vi, vk] * Y[vk, vj]

    assert analysis.estimate_tir_flops(matmul) == 2 * 32 * 8 * 16
    assert analysis.estimate_tir_flops(IRModule({"main": matmul})) == 2 * 32 * 8 * 16
    assert analysis.estimate_tir_flops(matmul.with_attr("estimated_flops", 7)) == 7


# ---------------------------------------------------------------------------- effects and bounds
def test_effects_of_expressions():
    assert analysis.side_effect(i + 1) == CallEffectKind.Pure
    assert analysis.side_effect(A[i] + 1) == CallEffectKind.ReadState
    call = T.call_extern("int32", "f", i)
    assert analysis.side_effect(i + call) == CallEffectKind.Opaque
    assert effects.has_effect(call) and not effects.has_effect(A[i])
    assert effects.can_trap(A[i]) and effects.can_trap(floordiv(i, n)) and effects.can_trap(call)
    assert not effects.can_trap(floordiv(i, 3) + i * n)
    assert not effects.can_trap(exp(i.astype("float32")))
    assert effects.reads_memory(A[i]) and not effects.reads_memory(i + n)


def test_pure_functions():
    @T.prim_func
    def writes(A: T.Buffer((4,), "int32")):
        A[0] = 1

    @T.prim_func
    def reads(A: T.Buffer((4,), "int32")):
        t = T.allocate([4], "int32", "global")
        t_1 = T.decl_buffer((4,), "int32", data=t)
        t_1[0] = A[0]

    assert analysis.is_pure_function(reads) and analysis.assert_pure_function(reads)
    assert not analysis.is_pure_function(writes)
    with pytest.raises(ValueError, match="writes is not pure: it writes to A"):
        analysis.assert_pure_function(writes)


def test_accesses_that_certainly_leave_the_buffer():
    @T.prim_func
    def good(A: T.Buffer((8,), "int32"), n: T.int32):
        for i in range(8):
            if i + n < 8:
                A[i + n] = 0

    @T.prim_func
    def bad(A: T.Buffer((8,), "int32")):
        for i in range(4):
            A[i + 8] = A[i - 4]

    assert analysis.check_bounds(good) is good
    mod = IRModule({"good": good})
    assert analysis.OOBChecker()(mod) is mod
    with pytest.raises(LoweringError, match="bad reads or writes out of bounds") as error:
        analysis.OOBChecker()(IRModule({"bad": bad}))
    assert "A: index `i + 8` of dimension 0 is not in 0 … 8" in str(error.value)
    assert "A: index `i - 4` of dimension 0 is not in 0 … 8" in str(error.value)


def test_a_returned_value_is_no_effect():
    @T.prim_func
    def product(n: T.int32, m: T.int32) -> T.int32:
        T.ret(n * m)

    @T.prim_func
    def asked(n: T.int32) -> T.int32:
        T.ret(T.call_extern("int32", "rand"))

    assert analysis.is_pure_function(product)
    with pytest.raises(AssertionError, match="asked is not pure: it calls"):
        analysis.assert_pure_function(asked)
