"""Pieces of shared rows that change places: the rewrite, the banks, that nothing changes in the result, refusals."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import needs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "gpu"))

from gpu_programs import from_script, random
from tensor_core_programs import by_hand
from warp_memory_programs import by_warp_memory

import tilewright as tvm
from tilewright import te, tir
from tilewright.compiler.lower import lower_kernels, phases
from tilewright.ir.errors import LoweringError
from tilewright.ir.functor import pre_order
from tilewright.ir.stmt import BufferStore
from tilewright.ir.transform import run_passes
from tilewright.runtime.cuda_driver import compile_cubin
from tilewright.tir.script import from_source


def until(mod: tvm.IRModule, name: str = "InjectPermutedLayout", without: str = "") -> tvm.IRModule:
    """A module lowered by the passes before the one of that name, and that one."""
    with tvm.target.Target("cuda -arch=sm_80"):
        passes = [p for phase in phases() for p in phase if p.info.name != f"tir.{without}"]
    at = next(i for i, p in enumerate(passes) if p.info.name == f"tir.{name}")
    return run_passes(passes[: at + 1], mod)


def turned(
    rows: int, wide: int, kind: str = "float16", lanes: int = 0, scope: str = "shared"
) -> tir.Schedule:
    """B[j, i] = A[i, j] through a tile of shared memory, whose columns are read: by 8 x 16 threads."""
    A = te.placeholder((rows, wide), kind, name="A")
    B = te.compute((wide, rows), lambda j, i: A[i, j], name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    b = sch.get_block("B")
    copy = sch.cache_read(b, 0, scope)
    block, rest = sch.split(sch.get_loops(b)[0], [1, None])
    sch.bind(block, "blockIdx.x")
    sch.compute_at(copy, block)
    lanes = lanes or 16 // np.dtype(kind).itemsize
    for loops, last in (((rest, sch.get_loops(b)[2]), 1), (sch.get_loops(copy)[1:], lanes)):
        _, y, x, lane = sch.split(sch.fuse(*loops), [None, 8, 16, last])
        sch.bind(y, "threadIdx.y")
        sch.bind(x, "threadIdx.x")
        if last > 1:
            sch.vectorize(lane)
    sch.annotate(copy, "permuted_layout", 1)
    return sch


def program(
    wide: int = 32,
    shape: str = "",
    scope: str = "shared",
    more: str = "",
    at: str = "v, w",
    kind: str = "float16",
) -> tir.PrimFunc:
    """A copy through memory of a kernel, one element after the other."""
    return from_script(f"""
@T.prim_func
def main(A: T.Buffer((16, {wide}), "{kind}"), B: T.Buffer((16, {wide}), "{kind}")):
    for b in T.thread_binding(1, thread="blockIdx.x"):
        with T.block("root"):
            S = T.alloc_buffer({shape or (16, wide)}, "{kind}", scope="{scope}")
            for i, j in T.grid(16, {wide}):
                with T.block("copy"):
                    v, w = T.axis.remap("SS", [i, j])
                    T.block_attr({{"permuted_layout": 1{more}}})
                    S[{at}] = A[v, w]
            for i, j in T.grid(16, {wide}):
                with T.block("B"):
                    v, w = T.axis.remap("SS", [i, j])
                    B[v, w] = S[{at}]
""")


# ---------------------------------------------------------------------------- the rewrite
def test_pieces_of_each_row_change_places(expect: Any) -> None:
    text = until(turned(16, 64).mod)["main"].script()
    assert "permuted_layout" not in text
    expect(
        "\n".join(x.strip() for x in text.splitlines() if "A_shared[" in x and " = " in x),
        """
        A_shared[ax0_ax1_fused_1 * 2 + ax0_ax1_fused_2 // 8, T.bitwise_xor(ax0_ax1_fused_2 % 8, ax0_ax1_fused_1 % 4 * 2 + ax0_ax1_fused_2 // 8) * 8 + ax0_ax1_fused_3] = A[ax0_ax1_fused_1 * 2 + ax0_ax1_fused_2 // 8, (ax0_ax1_fused_0 * 1024 + ax0_ax1_fused_1 * 128 + ax0_ax1_fused_2 * 8 + ax0_ax1_fused_3) % 64]
        B[j_1_i_fused_0 * 8 + ax0_ax1_fused_1, ax0_ax1_fused_2] = A_shared[ax0_ax1_fused_2, T.bitwise_xor(j_1_i_fused_0, ax0_ax1_fused_2 % 8) * 8 + ax0_ax1_fused_1]
        """,
    )


@pytest.mark.parametrize("wide", [16, 24, 32, 48, 64, 96, 128, 192, 256])
def test_a_column_of_pieces_is_in_all_banks(wide: int) -> None:
    """Eight rows from a multiple of eight on have the same piece in eight different places; no two share one."""
    func = until(tvm.IRModule({"main": program(wide=wide)}))["main"]
    store = next(m for m in pre_order(func.body) if isinstance(m, BufferStore) and m.buffer.name == "S")
    row, place = (compile(str(i), "index", "eval") for i in store.indices)
    names, places = {"T": tir}, set()
    for first in (0, 8):
        for column in range(0, wide, 8):
            at = [{"i": first + r, "j": column} for r in range(8)]
            assert [eval(row, {}, t) for t in at] == [t["i"] for t in at]
            pieces = [(t["i"] * wide + int(eval(place, names, t))) // 8 for t in at]
            assert len({n % 8 for n in pieces}) == 8
            places.update(pieces)
    assert len(places) == 2 * wide


@pytest.mark.parametrize("wide", [32, 64, 96])
def test_neighbours_of_four_rows_are_in_all_banks(wide: int) -> None:
    """Of 32 bits: one piece of eight rows, and eight neighbours in each of four rows, as products of tf32 read them."""
    func = until(tvm.IRModule({"main": program(wide=wide, kind="float32")}))["main"]
    store = next(m for m in pre_order(func.body) if isinstance(m, BufferStore) and m.buffer.name == "S")
    place = compile(str(store.indices[1]), "index", "eval")

    def bank(row: int, column: int) -> int:
        return (row * wide + int(eval(place, {"T": tir}, {"i": row, "j": column}))) % 32

    for first in (0, 4, 8, 12):
        for column in range(0, wide, 8):
            read = {bank(first + r, column + c) for r in range(4) for c in range(8)}
            assert len(read) == 32
    for first in (0, 8):
        for column in range(0, wide, 4):
            assert len({bank(first + r, column + c) for r in range(8) for c in range(4)}) == 32


def test_nothing_asked_nothing_done() -> None:
    A = te.placeholder((8,), name="A")
    mod = tvm.lower(te.create_prim_func([A, te.compute((8,), lambda i: A[i] + 1.0)]))
    assert tir.transform.InjectPermutedLayout()(mod) is mod


def test_rows_that_are_in_different_banks_stay() -> None:
    marked, plain = turned(16, 24), turned(16, 24)
    plain.unannotate(plain.get_block("A_shared"), "permuted_layout")
    tvm.ir.assert_structural_equal(tvm.lower(marked.mod), tvm.lower(plain.mod))


# ---------------------------------------------------------------------------- meaning
@pytest.mark.parametrize(
    "rows, wide, kind, lanes",
    [
        (16, 64, "float16", 8),
        (24, 32, "float16", 4),
        (9, 48, "float32", 4),
        (7, 128, "int8", 16),
        (33, 16, "float32", 1),
        (5, 40, "float16", 2),
        (12, 192, "int8", 8),
    ],
)
def test_the_result_stays(rows: int, wide: int, kind: str, lanes: int) -> None:
    check(rows, wide, kind, lanes)


@pytest.mark.slow
@settings(max_examples=6, deadline=None, derandomize=True)
@given(st.integers(1, 40), st.integers(1, 18), st.sampled_from(["int8", "float16", "float32"]), st.booleans())
def test_the_result_stays_in_any_shape(rows: int, pieces: int, kind: str, vectors: bool) -> None:
    each = 16 // np.dtype(kind).itemsize
    check(rows, pieces * each, kind, each if vectors else 1)


def check(rows: int, wide: int, kind: str, lanes: int) -> None:
    sch = turned(rows, wide, kind, lanes)
    x = random(rows, wide, dtype=kind)
    got = np.zeros((wide, rows), kind)
    tir.interpret(lower_kernels(sch.mod)["main"], x, got)  # with all threads; finds races too
    np.testing.assert_array_equal(got, x.T)
    dev = tvm.opencl(0)
    if dev.exist:
        out = tvm.nd.array(np.zeros((wide, rows), kind), dev)
        tvm.build(sch.mod, target="opencl")(tvm.nd.array(x, dev), out)
        np.testing.assert_array_equal(out.numpy(), x.T)


def test_barriers_are_those_of_rows_in_order() -> None:
    """Which threads meet at an element does not depend on where it lies."""
    marked, plain = turned(32, 64), turned(32, 64)
    plain.unannotate(plain.get_block("A_shared"), "permuted_layout")
    texts = [tvm.build(s.mod, target="opencl").imported_modules[0].get_source() for s in (marked, plain)]
    assert [t.count("barrier(") for t in texts] == [1, 1]


@pytest.mark.parametrize("facts", [{}, {"trans_a": True}, {"trans_b": True, "depth": 64}])
def test_tiles_of_tensor_cores_find_their_lines(facts: dict[str, Any]) -> None:
    sch = by_hand(64, 64, 64, permuted=True, **facts)
    ways = {k: v for k, v in facts.items() if k.startswith("trans")}
    mod = until(sch.mod, without="UnifyThreadBinding")  # as it is, instructions are done once by all threads
    assert "T.bitwise_xor" in mod["main"].script()
    a, b = random(64, 64, dtype="float16"), random(64, 64, dtype="float16", seed=1)
    got = np.zeros((64, 64), "float32")
    tir.interpret(mod["main"], a, b, got)
    left, right = (x.astype("float64") for x in (a, b))
    want = (left.T if ways.get("trans_a") else left) @ (right.T if ways.get("trans_b") else right)
    np.testing.assert_allclose(got, want, 1e-4, 1e-4)


@pytest.mark.slow
def test_threads_of_ldmatrix_find_their_lines(expect: Any) -> None:
    text = tvm.build(by_warp_memory(64, 64, 64, permuted=True).mod, target="cuda -arch=sm_80")
    source = text.imported_modules[0].get_source()
    expect(
        "\n".join(x.strip() for x in source.splitlines() if "  tw_ldmatrix_4" in x),
        """
        tw_ldmatrix_4(A_shared_warp + ax0_0 * 8, A_shared + (i0_1 * 1024 + ax0_0 * 512 + cse_var_2 * 32 + ((k_1 * 2 + cse_var_1) ^ ((tx >> 1) & 3)) * 8));
        tw_ldmatrix_4_trans(B_shared_warp + ax1_0 * 8, B_shared + (k_1 * 1024 + cse_var_2 * 64 + ((i1_1 * 4 + ax1_0 * 2 + cse_var_1) ^ cse_var_3) * 8));
        """,
    )
    if needs.found("nvrtc"):
        assert compile_cubin(source, {"arch": "sm_80"})


# ---------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    "facts, reason",
    [
        (
            {"scope": "local"},
            "block copy is marked permuted_layout, and neither writes nor reads shared memory: mark the block that "
            "copies a tile there",
        ),
        (
            {"wide": 20},
            "block copy is marked permuted_layout, and S has rows of 20 elements of 2 bytes: they must be whole pieces "
            "of 16 bytes",
        ),
        (
            {"shape": "(512,)", "at": "v * 32 + w"},
            "block copy is marked permuted_layout, and S has one dimension: give it two or more",
        ),
        (
            {"more": ', "buffer_dim_align": [[0, 0, 32, 8]]'},
            "block copy is marked permuted_layout, and S has padded strides (storage_align): use either padding "
            "or a swizzle against bank conflicts",
        ),
    ],
)
def test_what_cannot_be_permuted(facts: dict[str, Any], reason: str) -> None:
    mod = tvm.IRModule({"main": program(**facts)})
    with pytest.raises(LoweringError) as error:
        until(mod)
    assert str(error.value).splitlines()[0] == reason


def test_a_tile_must_begin_where_all_lines_lie_alike() -> None:
    sch = by_hand(64, 64, 64, permuted=True)
    mod = until(sch.mod, "LowerMatchBuffer")
    moved = from_source(mod["main"].script().replace("A_shared.data, ", "A_shared.data, 128 + "))
    with pytest.raises(LoweringError, match="tiles that are loaded begin at rows that are multiples of 8"):
        tir.transform.InjectPermutedLayout()(tvm.IRModule({"main": moved}))
