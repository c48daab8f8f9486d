"""Software pipelines and doubled buffers: the overlap, its refusals, and that nothing changes in the result."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.errors import LoweringError


def program(n: int = 6, stages: list[int] | None = None, order: list[int] | None = None) -> tir.Schedule:
    A = te.placeholder((n, 8), name="A")
    B = te.compute((n, 8), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((n, 8), lambda i, j: B[i, j] + 1.0, name="C")
    sch = tir.Schedule(te.create_prim_func([A, C]))
    i, _ = sch.get_loops("C")
    sch.compute_at("B", i)
    if stages is not None:
        sch.annotate(i, "software_pipeline_stage", stages)
    if order is not None:
        sch.annotate(i, "software_pipeline_order", order)
    return sch


def test_the_next_iteration_is_loaded_while_this_one_is_used() -> None:
    text = tvm.lower(program(6, [0, 1]).mod)["main"].script()
    assert text[text.index("    B_1 = ") :] == (
        """    B_1 = T.decl_buffer((16,))
    for ax1 in range(8):
        B_1[ax1] = A_1[ax1] * T.float32(2)
    for i in range(5):
        for ax1 in range(8):
            B_1[(i + 1) % 2 * 8 + ax1] = A_1[i * 8 + ax1 + 8] * T.float32(2)
        for j in range(8):
            C_1[i * 8 + j] = B_1[i % 2 * 8 + j] + T.float32(1)
    for j in range(8):
        C_1[j + 40] = B_1[j + 8] + T.float32(1)"""
    )


@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.parametrize("stages", [[0, 0], [0, 1], [0, 2], [0, 5]])
@pytest.mark.parametrize("order", [None, [0, 1], [1, 0]])
def test_the_result_stays(n: int, stages: list[int], order: list[int] | None) -> None:
    if stages[0] == stages[1] and order == [1, 0]:
        pytest.skip("refused: see the test of dependences")
    sch = program(n, stages, order)
    x = np.random.default_rng(0).random((n, 8), dtype=np.float32)
    for run in (lambda *a: tir.interpret(tvm.lower(sch.mod)["main"], *a), tvm.build(sch.mod)):
        got = np.zeros((n, 8), np.float32)
        run(x, got)
        np.testing.assert_array_equal(got, x * 2 + 1)


def test_a_statement_cannot_run_before_what_it_depends_on() -> None:
    with pytest.raises(LoweringError, match="runs a statement before the one that it depends on through B"):
        tvm.lower(program(6, [1, 0]).mod)
    with pytest.raises(LoweringError, match="before the one that it depends on through B"):
        tvm.lower(program(6, [0, 0], [1, 0]).mod)


def test_there_is_a_stage_for_each_statement() -> None:
    with pytest.raises(LoweringError, match=r"has 2 statements, stages \[0, 0, 1\] and order \[0, 1\]"):
        tvm.lower(program(6, [0, 0, 1]).mod)


def test_a_doubled_buffer_is_a_pipeline_of_two() -> None:
    plain = program(6, [0, 1])
    doubled = program(6)
    doubled.annotate(doubled.get_block("B"), "double_buffer_scope", 0)
    tvm.ir.assert_structural_equal(tvm.lower(plain.mod), tvm.lower(doubled.mod))


def test_without_annotations_nothing_is_touched() -> None:
    mod = tvm.lower(program(6).mod)
    assert tir.transform.InjectSoftwarePipeline()(mod) is mod
