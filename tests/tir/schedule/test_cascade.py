"""Reductions in blocks that are combined as they end: cascade_reduction."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir


def product(m: int = 7, n: int = 6, k: int = 20, dtype: str = "float32") -> tir.PrimFunc:
    A, B = te.placeholder((m, k), dtype, name="A"), te.placeholder((k, n), dtype, name="B")
    r = te.reduce_axis((0, k), name="k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    return te.create_prim_func([A, B, C])


def same(func: tir.PrimFunc, sch: tir.Schedule) -> None:
    """The schedule gives what the function gives, interpreted and compiled; whole numbers, so exactly."""
    rng = np.random.default_rng(0)
    given = [rng.integers(-4, 5, [int(d) for d in b.shape]).astype(b.dtype) for b in func.buffer_map.values()]
    want, got = [[x.copy() for x in given] for _ in range(2)]
    tir.interpret(func, *want)
    tir.interpret(sch.mod["main"], *got)
    ran = [tvm.nd.array(x) for x in given]
    tvm.build(sch.mod, target="llvm")(*ran)
    for w, g, r in zip(want, got, ran, strict=True):
        np.testing.assert_array_equal(g, w)
        np.testing.assert_array_equal(r.numpy(), w)


def test_blocks_of_a_sum(expect) -> None:
    func = product(k=10)
    sch = tir.Schedule(func)
    i, j, k = sch.get_loops("C")
    ko, ki = sch.split(k, [None, 4])
    sch.reorder(i, ko, ki, j)
    sch.vectorize(j)
    part = sch.cascade_reduction(ko)
    assert part.name == "C_part" and sch.get_loops(part)[-1].name == "j"
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def main(A: T.Buffer((7, 10), "float32"), B: T.Buffer((10, 6), "float32"), C: T.Buffer((7, 6), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            C_part = T.alloc_buffer((3, 7, 6))
            for i, k_0 in T.grid(7, 3):
                for k_1 in range(4):
                    for j in T.vectorized(6):
                        with T.block("C_part"):
                            v_i, v_j, vk_0, vk_1 = T.axis.remap("SSSR", [i, j, k_0, k_1])
                            T.where(k_0 * 4 + k_1 < 10)
                            T.reads(A[v_i, vk_0 * 4 + vk_1], B[vk_0 * 4 + vk_1, v_j])
                            T.writes(C_part[vk_0, v_i, v_j])
                            with T.init():
                                C_part[vk_0, v_i, v_j] = T.float32(0)
                            C_part[vk_0, v_i, v_j] = C_part[vk_0, v_i, v_j] + A[v_i, vk_0 * 4 + vk_1] * B[vk_0 * 4 + vk_1, v_j]
                for j in T.vectorized(6):
                    with T.block("C"):
                        v_i, v_j, vk_0 = T.axis.remap("SSR", [i, j, k_0])
                        T.reads(C_part[vk_0, v_i, v_j])
                        T.writes(C[v_i, v_j])
                        with T.init():
                            C[v_i, v_j] = T.float32(0)
                        C[v_i, v_j] = C[v_i, v_j] + C_part[vk_0, v_i, v_j]
        """,
    )
    same(func, sch)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("factors", [[None, 5, 2], [None, 3, 4], [None, 1, 7]])
def test_levels_after_all_other_steps(factors, dtype) -> None:
    func = product(dtype=dtype)
    sch = tir.Schedule(func)
    i, j, k = sch.get_loops("C")
    io, ii = sch.split(i, [None, 3])
    far, near, last = sch.split(k, factors)
    sch.reorder(io, far, near, last, ii, j)
    sch.unroll(ii)
    sch.vectorize(j)
    sch.parallel(io)
    sch.cascade_reduction(far)  # from the outside in: the next one is of the sums within this one
    sch.cascade_reduction(near)
    same(func, sch)
    lowered = str(tvm.lower(sch.mod))
    assert "(18,)" in lowered or "[18]" in lowered  # a place is as large as what one iteration writes


def test_within_another_reduction_loop_and_of_a_maximum() -> None:
    A = te.placeholder((5, 4, 6), name="A")
    r, s = te.reduce_axis((0, 4), name="r"), te.reduce_axis((0, 6), name="s")
    C = te.compute((5,), lambda i: te.max(A[i, r, s], axis=[r, s]), name="C")
    func = te.create_prim_func([A, C])
    sch = tir.Schedule(func)
    sch.cascade_reduction(sch.get_loops("C")[1])
    same(func, sch)


def test_the_trace_has_it() -> None:
    func = product()
    sch = tir.Schedule(func)
    ko, _ = sch.split(sch.get_loops("C")[2], [None, 4])
    sch.cascade_reduction(ko)
    again = tir.Schedule(func)
    sch.trace.apply_to_schedule(again, remove_postproc=False)
    tvm.ir.assert_structural_equal(again.mod, sch.mod)


def test_a_loop_that_carries_nothing(refused) -> None:
    sch = tir.Schedule(product())
    i, j, _ = sch.get_loops("C")
    assert "loop `j` does not carry the reduction of block C" in refused(
        sch, lambda: sch.cascade_reduction(j)
    )


def test_a_loop_that_is_marked(refused) -> None:
    sch = tir.Schedule(product())
    k = sch.get_loops("C")[2]
    sch.unroll(k)
    text = refused(sch, lambda: sch.cascade_reduction(k))
    assert "loop `k` is marked unrolled, and its iterations must run in sequence" in text
    assert "hint: split the loop, and cascade the outer part" in text


def test_a_reduction_without_its_init(refused) -> None:
    sch = tir.Schedule(product())
    k = sch.get_loops("C")[2]
    sch.decompose_reduction("C", k)
    inner = sch.get_loops("C")[2]
    text = refused(sch, lambda: sch.cascade_reduction(inner))
    assert "block C has no init: apply cascade_reduction before decompose_reduction" in text


def test_a_loop_that_drives_both(refused) -> None:
    sch = tir.Schedule(product())
    _, j, k = sch.get_loops("C")
    both = sch.fuse(j, k)
    text = refused(sch, lambda: sch.cascade_reduction(both))
    assert "loop `j_k_fused` drives both spatial and reduction iterators" in text
