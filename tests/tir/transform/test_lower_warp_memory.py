"""Memory of a warp: each thread has its part in registers, and sees those of others by shuffles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.errors import LoweringError
from tilewright.tir.transform.lower_warp_memory import lower_warp_memory

CUDA = "cuda -arch=sm_80"


def flat(body: str, size: int = 64, threads: int = 32) -> Any:
    """A kernel of one warp with memory `W` of so many elements."""
    text = f"""
from tilewright.script import tir as T

@T.prim_func
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    T.func_attr({{"tir.noalias": True}})
    tx = T.launch_thread("threadIdx.x", {threads})
    W = T.allocate([{size}], "float32", "warp")
    W_1 = T.Buffer(({size},), data=W, scope="warp")
"""
    return tvm.script.from_source(text + "\n".join(f"    {line}" for line in body.splitlines()) + "\n")


def ran(func: Any) -> Any:
    a = np.arange(64, dtype="float32")
    b = np.full(64, -1, "float32")
    tir.interpret(func, a, b)
    return b


def test_own_elements_are_registers() -> None:
    made = lower_warp_memory(
        flat(
            "for i in range(2):\n    W_1[tx * 2 + i] = A[tx * 2 + i] + 1.0\n"
            "for j in range(2):\n    B[tx * 2 + j] = W_1[tx * 2 + 1 - j]"
        )
    )
    text = str(made)
    assert 'scope="warp"' not in text and "shuffle" not in text
    assert "[i] = " in text and "[1 - j]" in text
    np.testing.assert_array_equal(ran(made), (np.arange(64) + 1).reshape(32, 2)[:, ::-1].ravel())
    assert lower_warp_memory(made) is made


def test_others_are_asked() -> None:
    made = lower_warp_memory(
        flat(
            "W_1[tx * 2] = A[tx]\nW_1[tx * 2 + 1] = A[tx + 32]\nB[tx] = W_1[(tx + 5) % 32 * 2 + 1]\nB[tx + 32] = A[0]"
        )
    )
    assert "T.tvm_warp_shuffle" in str(made)
    want = np.concatenate([(np.arange(32) + 5) % 32 + 32, np.zeros(32)])
    np.testing.assert_array_equal(ran(made), want)


def test_two_warps_have_memory_each() -> None:
    made = lower_warp_memory(flat("W_1[tx % 32] = A[tx]\nB[tx] = W_1[(tx + 1) % 32]", 32, 64))
    lanes = np.arange(64)
    np.testing.assert_array_equal(ran(made), lanes // 32 * 32 + (lanes + 1) % 32)


@pytest.mark.parametrize(
    ("body", "size", "told"),
    [
        ("W_1[tx] = A[tx]\nB[tx] = W_1[tx * 2]", 64, "strides of 1, 2 elements"),
        ("W_1[0] = A[tx]", 64, "strides of nothing elements"),
        ("W_1[31 - tx] = A[tx]", 32, "a thread can only write its own elements"),
        (
            "W_1[tx * 2] = A[tx]\nB[tx] = W_1[(tx + 1) % 32 * 2 + tx // 16]",
            64,
            "which register it is must not depend",
        ),
        ("W_1[tx * 3] = A[tx]", 64, "cannot be distributed over 32 threads, 3 to each"),
    ],
)
def test_refusals(body: str, size: int, told: str) -> None:
    with pytest.raises(LoweringError, match=told):
        lower_warp_memory(flat(body, size))


def test_a_schedule_with_memory_of_warps() -> None:
    A = te.placeholder((4, 32), name="A")
    B = te.compute((4, 32), lambda i, j: A[i, (j + 3) % 32] * 2.0, name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    copy = sch.cache_read("B", 0, "warp")
    i, j = sch.get_loops("B")
    sch.compute_at(copy, i)
    sch.bind(sch.get_loops(copy)[-1], "threadIdx.x")
    sch.bind(j, "threadIdx.x")
    sch.bind(i, "blockIdx.x")
    with tvm.target.Target(CUDA):
        func = tvm.lower(sch.mod)["main"]
    assert "tvm_warp_shuffle" in str(func) and "tvm_storage_sync" not in str(func)
    a = np.random.default_rng(0).random((4, 32), "float32")
    b = np.zeros((4, 32), "float32")
    tir.interpret(func, a, b)
    np.testing.assert_allclose(b, np.roll(a, -3, 1) * 2)
    assert "__shfl_sync" in tvm.build(sch.mod, target=CUDA).imported_modules[0].get_source()


def test_the_pass_under_its_classic_name() -> None:
    func = flat("W_1[tx] = A[tx]\nB[tx] = W_1[tx]", 32)
    mod = tir.transform.LowerWarpMemory()(tvm.IRModule({"main": func}))
    assert 'scope="warp"' not in mod.script()
