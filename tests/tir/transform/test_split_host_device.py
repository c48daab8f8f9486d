"""Kernels cut out of the functions that launch them."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.compiler.lower import lower_kernels
from tilewright.ir.errors import LoweringError
from tilewright.tir.transform.split_host_device import KernelLimits, split_host_device


def two_stages(n: Any = None) -> tvm.IRModule:
    n = te.var("n") if n is None else n
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2.0, name="B")
    C = te.compute((n,), lambda i: B[n - 1 - i] + 1.0, name="C")
    s = te.create_schedule(C.op)
    for stage in (B, C):
        bx, tx = s[stage].split(stage.op.axis[0], factor=32)
        s[stage].bind(bx, te.thread_axis("blockIdx.x"))
        s[stage].bind(tx, te.thread_axis("threadIdx.x"))
    return lower_kernels(tvm.IRModule({"main": s.to_prim_func([A, C])}))


def test_two_kernels_and_what_lies_between(expect) -> None:
    expect(
        split_host_device(two_stages()),
        """
        @I.ir_module
        class Module:
            @T.prim_func
            def main(var_A: T.handle, var_C: T.handle):
                T.func_attr({"tir.noalias": T.bool(True)})
                n = T.int32()
                A = T.match_buffer(var_A, (n,))
                C = T.match_buffer(var_C, (n,))
                B = T.allocate([n], "float32", "global")
                cse_var_1: T.int32 = (n + 31) // 32
                T.Call("int32", Module.main_kernel, [B, A.data, n, cse_var_1, 32])
                T.Call("int32", Module.main_kernel_1, [C.data, B, n, cse_var_1, 32])

            @T.prim_func
            def main_kernel(B: T.handle("float32", "global"), A: T.handle("float32", "global"), n: T.int32):
                T.func_attr({"calling_conv": 2, "tir.is_global_func": T.bool(True), "tir.kernel_launch_params": ["blockIdx.x", "threadIdx.x"], "tir.noalias": T.bool(True), "tilewright.threads_per_block": 32})
                B_1 = T.Buffer((n,), data=B)
                A_1 = T.Buffer((n,), data=A)
                i_outer = T.launch_thread("blockIdx.x", (n + 31) // 32)
                i_inner = T.launch_thread("threadIdx.x", 32)
                if T.likely(i_outer * 32 + i_inner < n):
                    B_1[i_outer * 32 + i_inner] = A_1[i_outer * 32 + i_inner] * T.float32(2)

            @T.prim_func
            def main_kernel_1(C: T.handle("float32", "global"), B: T.handle("float32", "global"), n: T.int32):
                T.func_attr({"calling_conv": 2, "tir.is_global_func": T.bool(True), "tir.kernel_launch_params": ["blockIdx.x", "threadIdx.x"], "tir.noalias": T.bool(True), "tilewright.threads_per_block": 32})
                C_1 = T.Buffer((n,), data=C)
                B_1 = T.Buffer((n,), data=B)
                i_outer = T.launch_thread("blockIdx.x", (n + 31) // 32)
                i_inner = T.launch_thread("threadIdx.x", 32)
                if T.likely(i_outer * 32 + i_inner < n):
                    C_1[i_outer * 32 + i_inner] = B_1[n - i_outer * 32 - i_inner - 1] + T.float32(1)
        """,
    )


def test_the_pass_of_that_name() -> None:
    mod = two_stages()
    made = tir.transform.SplitHostDevice()(mod)
    assert [gv.name_hint for gv in made.functions] == ["main", "main_kernel", "main_kernel_1"]
    assert tir.transform.SplitHostDevice()(made) is made


def test_a_function_without_threads_stays() -> None:
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
    mod = tvm.lower(te.create_schedule(B.op), [A, B])
    assert split_host_device(mod) is mod
    with pytest.raises(LoweringError, match="B is written outside of every kernel"):
        split_host_device(mod, KernelLimits())


def kernel(body: str, limits: KernelLimits | None = None) -> tvm.IRModule:
    text = "\n".join(
        [
            "from tilewright.script import tir as T",
            "@T.prim_func",
            'def main(A: T.Buffer((1024,), "float32"), N: T.Buffer((1,), "float32"), n: T.int32):',
            *(f"    {line}" for line in body.strip().splitlines()),
        ]
    )
    return split_host_device(tvm.IRModule({"main": tvm.script.from_source(text)}), limits)


def test_what_reads_memory_goes_into_the_kernel(expect) -> None:
    """A condition and a binding that the host cannot evaluate."""
    expect(
        kernel(
            """
x: T.float32 = N[0]
if x > T.float32(0):
    tx = T.launch_thread("threadIdx.x", 32)
    A[tx + 1] = x
"""
        ),
        """
        @I.ir_module
        class Module:
            @T.prim_func
            def main(A: T.Buffer((1024,), "float32"), N: T.Buffer((1,), "float32"), n: T.int32):
                T.Call("int32", Module.main_kernel, [N.data, A.data, 32])

            @T.prim_func
            def main_kernel(N: T.handle("float32", "global"), A: T.handle("float32", "global")):
                T.func_attr({"calling_conv": 2, "tir.is_global_func": T.bool(True), "tir.kernel_launch_params": ["threadIdx.x"], "tir.noalias": T.bool(False), "tilewright.threads_per_block": 32})
                N_1 = T.Buffer((1,), data=N)
                A_1 = T.Buffer((1024,), data=A)
                x: T.float32 = N_1[0]
                if x > T.float32(0):
                    tx = T.launch_thread("threadIdx.x", 32)
                    A_1[tx + 1] = x
        """,
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            'bx = T.launch_thread("blockIdx.y", 70000)\nA[bx % 8] = T.float32(0)',
            "main_kernel: blockIdx.y has 70000 blocks, and the target allows 65535; split the loop that is bound to "
            "it, or bind a part of it to another axis",
        ),
        (
            'tx = T.launch_thread("threadIdx.x", 64)\nty = T.launch_thread("threadIdx.y", 32)\nA[tx + ty] = T.float32(0)',
            "main_kernel: a block has 2048 threads, 64 (threadIdx.x) * 32 (threadIdx.y), and the target allows 1024; "
            "split the loops that are bound to threadIdx by smaller factors",
        ),
        (
            'tx = T.launch_thread("threadIdx.x", 64)\nS = T.decl_buffer((2048,), scope="shared")\nS[tx] = A[tx]\nA[tx] = S[tx]',
            "main_kernel: a block uses 8192 bytes of shared memory, and the target allows 4096; make the tiles that "
            "are cached in it smaller",
        ),
        (
            "A[0] = T.float32(1)",
            "main: A is written outside of every kernel, where the host runs; bind a loop around it to a thread axis",
        ),
        (
            'for i in range(T.Cast("int32", A[0])):\n    tx = T.launch_thread("threadIdx.x", 32)\n    A[tx] = T.float32(0)',
            "main: a loop depends on device memory outside of every kernel, where the host runs; bind a loop "
            "around it",
        ),
        (
            'x: T.float32 = A[0]\ntx = T.launch_thread("threadIdx.x", 32)\nA[tx] = x',
            "main: `A[0]` is read before kernels that write A, where the host runs and cannot access device "
            "memory; read it in the kernel that needs it",
        ),
    ],
)
def test_refusals(body: str, reason: str) -> None:
    limits = KernelLimits(threads=1024, shared=4096, dynamic_shared=4096, axes={"blockIdx.y": 65535})
    with pytest.raises(LoweringError) as caught:
        kernel(body, limits)
    assert str(caught.value) == reason


def test_an_extent_that_memory_says_is_refused() -> None:
    with pytest.raises(LoweringError, match=r"threadIdx.x has .* threads, a value in device memory"):
        kernel('tx = T.launch_thread("threadIdx.x", T.Cast("int32", A[0]))\nA[tx] = T.float32(0)')


def test_dynamic_shared_memory_is_laid_out(expect) -> None:
    expect(
        kernel(
            """
tx = T.launch_thread("threadIdx.x", 32)
S = T.decl_buffer((40,), scope="shared.dyn")
R = T.decl_buffer((32,), "int8", scope="shared.dyn")
S[tx] = A[tx]
R[tx] = T.int8(1)
A[tx] = S[tx]
"""
        )["main"],
        """
        @T.prim_func
        def main(A: T.Buffer((1024,), "float32"), N: T.Buffer((1,), "float32"), n: T.int32):
            T.Call("int32", I.GlobalVar("main_kernel"), [A.data, 32, 384])
        """,
    )
