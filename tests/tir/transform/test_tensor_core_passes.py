"""The passes for tensor cores, each alone: what it makes of a small program, and that others stay as they are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "gpu"))

from tensor_core_programs import by_warpgroups

import tilewright as tvm
from tilewright import te, tir
from tilewright.driver.lower import phases
from tilewright.ir.errors import LoweringError
from tilewright.ir.transform import run_passes
from tilewright.script import tir as T

PASSES = ("LowerBulkCopies", "LowerFragments", "SpecializeWarps", "InjectPTXAsyncCopy")


@pytest.mark.parametrize("name", PASSES)
def test_others_stay_as_they_are(name: str) -> None:
    A = te.placeholder((8,), name="A")
    mod = tvm.lower(te.create_prim_func([A, te.compute((8,), lambda i: A[i] + 1.0)]))
    assert getattr(tir.transform, name)()(mod)["main"] is mod["main"]


def until(mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """A module lowered by the passes before the one of that name, and that one."""
    with tvm.target.Target("cuda -arch=sm_90a"):
        passes = [p for phase in phases() for p in phase]
    at = next(i for i, p in enumerate(passes) if p.info.name == f"tir.{name}")
    return run_passes(passes[: at + 1], mod)


def test_a_tile_becomes_one_copy_or_several() -> None:
    text = until(by_warpgroups(64, 128, 128, 64, 128, 2).mod, "LowerBulkCopies").script()
    calls = [line.strip() for line in text.splitlines() if "ptx_cp_async_bulk_tensor" in line]
    assert len(calls) == 3  # 64 x 64 of A, and B in two pieces
    assert 'T.tensor_map(A.data, "float16", 2, 128, 64, 256, 64, 64' in calls[0]
    assert 'T.tensor_map(B.data, "float16", 2, 128, 128, 256, 64, 64' in calls[1]
    assert "4096, 4096, 2)" in calls[2] and "k_0 * 64" in calls[2]


def test_fragments_are_registers_of_each_thread() -> None:
    text = until(by_warpgroups(64, 64, 128, 64, 64, 2).mod, "LowerFragments").script()
    assert 'C = T.decl_buffer((32,), scope="local")' in text
    assert "C[ax1_0 * 4 + ax0_1 * 2 + ax1_2]" in text


def test_a_ring_of_copies_has_two_barriers_for_each() -> None:
    text = until(by_warpgroups(128, 64, 256, 128, 64, 3).mod, "SpecializeWarps").script()
    assert 'T.launch_thread("threadIdx.y", 3)' in text
    assert 'barriers = T.allocate([6], "uint64", "shared.async")' in text
    assert 'T.allocate([24576], "float16", "shared.async")' in text and text.count("ptx_init_barrier") == 6
    fetch, multiply = text.split("_1 == 2:")[1].split("else:")
    assert fetch.count("ptx_wait_barrier") == fetch.count("ptx_arrive_barrier_expect_tx") == 1
    assert "ptx_wgmma" not in fetch and "ptx_cp_async_bulk_tensor" not in multiply
    assert multiply.count("ptx_arrive_barrier(") == 2  # in the loop for the one before, after it for the last


@T.prim_func
def copies(A: T.Buffer((256,), "float16"), B: T.Buffer((256,), "float16")) -> None:
    tx = T.launch_thread("threadIdx.x", 16)
    S = T.allocate([256], "float16", "shared")
    S_1 = T.Buffer((256,), "float16", data=S, scope="shared")
    with T.attr(0, "async_scope", 1):
        S_1[tx * 8 : tx * 8 + 8] = A[tx * 8 : tx * 8 + 8]
        S_1[tx * 8 + 128 : tx * 8 + 136] = T.if_then_else(
            tx < 9, A[tx * 8 + 128 : tx * 8 + 136], T.Broadcast(T.float16(0), 8)
        )
        S_1[tx] = A[tx]  # two bytes are too few
    B[tx] = S_1[255 - tx]


def test_copies_of_four_to_sixteen_bytes_are_asynchronous() -> None:
    text = tir.transform.InjectPTXAsyncCopy()(tvm.IRModule({"main": copies}))["main"].script()
    assert 'T.ptx_cp_async("float16", S, tx * 8, A.data, tx * 8, 16)' in text
    assert 'T.ptx_cp_async("float16", S, tx * 8 + 128, A.data, tx * 8 + 128, 16, tx < 9)' in text
    assert "S_1[tx] = A[tx]" in text and "async_scope" not in text


def test_a_copy_that_a_condition_turns_off_leaves_zeros() -> None:
    import numpy as np

    made = tir.transform.InjectPTXAsyncCopy()(tvm.IRModule({"main": copies}))["main"]
    a = np.arange(1, 257).astype("float16")
    for func in (copies, made):
        b = np.zeros(256, "float16")
        tir.interpret(tir.transform.ThreadSync("shared")(tvm.IRModule({"main": func}))["main"], a, b)
        assert not b[:16].any()


def test_tiles_that_bulk_copies_do_not_have() -> None:
    A = te.placeholder((64, 96), "float16", name="A")
    B = te.compute((64, 96), lambda i, j: A[i, j], name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    sch.annotate(sch.blockize(sch.get_loops("B")[0]), "tilewright.bulk_copy", 1)
    with pytest.raises(LoweringError, match="a tile of 64 x 96 is none of n x 64 and 64 x n"):
        tvm.lower(sch.mod)
    turned = te.compute((64, 64), lambda i, j: te.placeholder((64, 64), "float16", name="C")[j, i], name="D")
    sch = tir.Schedule(te.create_prim_func([turned.op.input_tensors[0], turned]))
    sch.annotate(sch.blockize(sch.get_loops("D")[0]), "tilewright.bulk_copy", 1)
    with pytest.raises(LoweringError, match="the loops go through the tile as they go through the tensor"):
        tvm.lower(sch.mod)


@pytest.mark.parametrize(
    ("edge", "told"), [(50, ""), (49, "the condition `i < 49` says more than where the tensor")]
)
def test_only_the_end_of_the_tensor_may_be_asked_for(edge: int, told: str) -> None:
    A = te.placeholder((50, 64), "float16", name="A")
    B = te.compute(
        (64, 64), lambda i, j: tir.if_then_else(i < edge, A[i, j], tir.const(0, "float16")), name="B"
    )
    sch = tir.Schedule(te.create_prim_func([A, B]))
    sch.annotate(sch.blockize(sch.get_loops("B")[0]), "tilewright.bulk_copy", 1)
    with pytest.raises(
        LoweringError, match=told or "stands in no loop"
    ):  # it is one; nobody waits for it here
        tvm.lower(sch.mod)
