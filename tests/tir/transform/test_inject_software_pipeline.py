"""Software pipelines and doubled buffers: the overlap, its refusals, and that nothing changes in the result."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.errors import LoweringError
from tilewright.tir.script import from_source


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


def test_a_guarded_pipeline_has_its_body_once() -> None:
    sch = program(6, [0, 1])
    sch.annotate(sch.get_loops("C")[0], "software_pipeline_guarded", 1)
    with tvm.target.Target("cuda"):  # which does not cut loops where conditions become certain
        text = tvm.lower(sch.mod)["main"].script()
    assert text[text.index("    B_1 = ") :] == (
        """    B_1 = T.decl_buffer((16,))
    for ax1 in range(8):
        B_1[ax1] = A_1[ax1] * T.float32(2)
    for i in range(6):
        if i < 5:
            for ax1 in range(8):
                B_1[(i + 1) % 2 * 8 + ax1] = A_1[i * 8 + ax1 + 8] * T.float32(2)
        for j in range(8):
            C_1[i * 8 + j] = B_1[i % 2 * 8 + j] + T.float32(1)"""
    )


@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.parametrize("stages", [[0, 0], [0, 1], [0, 2], [0, 5]])
@pytest.mark.parametrize("order", [None, [0, 1], [1, 0]])
@pytest.mark.parametrize("guarded", [False, True])
def test_the_result_stays(n: int, stages: list[int], order: list[int] | None, guarded: bool) -> None:
    if stages[0] == stages[1] and order == [1, 0]:
        pytest.skip("refused: see the test of dependences")
    sch = program(n, stages, order)
    if guarded:
        sch.annotate(sch.get_loops("C")[0], "software_pipeline_guarded", 1)
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


def test_the_statements_may_stand_in_a_block_with_a_name() -> None:
    """As scripts have it: the block around them holds their memory."""
    func = from_source(
        textwrap.dedent("""
        @T.prim_func
        def main(A: T.Buffer((6, 8), "float32"), C: T.Buffer((6, 8), "float32")):
            for i in T.serial(6, annotations={"software_pipeline_stage": [0, 1], "software_pipeline_order": [0, 1]}):
                with T.block("whole"):
                    T.reads(A[i, 0:8])
                    T.writes(C[i, 0:8])
                    B = T.alloc_buffer((8,))
                    with T.block("fetch"):
                        T.reads(A[i, 0:8])
                        T.writes(B[0:8])
                        for ax1 in range(8):
                            B[ax1] = A[i, ax1] * T.float32(2)
                    with T.block("use"):
                        T.reads(B[0:8])
                        T.writes(C[i, 0:8])
                        for j in range(8):
                            C[i, j] = B[j] + T.float32(1)
        """)
    )
    text, want = (tvm.lower(f)["main"].script() for f in (func, program(6, [0, 1]).mod))
    want = want.replace("B_1", "B")  # memory of one dimension is flat already
    assert text[text.index("    B = ") :] == want[want.index("    B = ") :]


def test_a_doubled_buffer_is_a_pipeline_of_two() -> None:
    plain = program(6, [0, 1])
    doubled = program(6)
    doubled.annotate(doubled.get_block("B"), "double_buffer_scope", 0)
    tvm.ir.assert_structural_equal(tvm.lower(plain.mod), tvm.lower(doubled.mod))


def test_without_annotations_nothing_is_touched() -> None:
    mod = tvm.lower(program(6).mod)
    assert tir.transform.InjectSoftwarePipeline()(mod) is mod


def test_what_is_filled_after_its_last_use_has_one_version() -> None:
    """The next iteration's values take the place of those that this turn has just used."""
    text = tvm.lower(program(6, [0, 1], [1, 0]).mod)["main"].script()
    assert text[text.index("    B_1 = ") :] == (
        """    B_1 = T.decl_buffer((8,))
    for ax1 in range(8):
        B_1[ax1] = A_1[ax1] * T.float32(2)
    for i in range(5):
        for j in range(8):
            C_1[i * 8 + j] = B_1[j] + T.float32(1)
        for ax1 in range(8):
            B_1[ax1] = A_1[i * 8 + ax1 + 8] * T.float32(2)
    for j in range(8):
        C_1[j + 40] = B_1[j] + T.float32(1)"""
    )


_FRAGMENTS = """
@T.prim_func
def main(A: T.Buffer((64, 16), "float16"), C: T.Buffer((256,), "float32")):
    tx = T.launch_thread("threadIdx.x", 32)
    c = T.allocate([8], "float32", "local")
    for k in range(6):
        S = T.allocate([256], "float16", "shared")
        S_1 = T.Buffer((256,), "float16", data=S, scope="shared")
        for i in range(8):
            S_1[tx * 8 + i] = A[k, i]
        for j in T.{kind}(2):
            a = T.allocate([4], "uint32", "local")
            T.evaluate(T.Call("handle", "tir.tvm_load_matrix_sync", [
                a, 16, 16, 16, 0, T.tvm_access_ptr(T.type_annotation("float16"), S, j * 8, 8, 1), 16, "row_major"]))
            T.evaluate(T.Call("handle", "tir.tvm_mma_sync", [c, 0, a, 0, a, 0, c, 0]))
"""


def fragments(kind: str, stages: list[int], order: list[int]) -> tvm.IRModule:
    """Fragments that are loaded one product ahead, in a loop whose copies are two iterations ahead."""
    notes = {
        "k": {"software_pipeline_stage": stages, "software_pipeline_order": order},
        "j": {"software_pipeline_stage": [0, 1], "software_pipeline_order": [0, 1]},
    }

    def annotated(n: tvm.ir.Node) -> tvm.ir.Node:
        n = n.map_children(annotated)
        return (
            n.replace(annotations=notes[n.loop_var.name])
            if getattr(n, "loop_var", None) is not None and n.loop_var.name in notes
            else n
        )

    func = from_source(_FRAGMENTS.format(kind=kind))
    return tvm.IRModule({"main": func.replace(body=annotated(func.body))})


def test_registers_that_instructions_name_have_versions_of_other_names() -> None:
    """a, loaded before the last product of the iteration before, and a_1, for the second product."""
    mod = fragments("unroll", [0, 1, 2, 2, 2], [0, 3, 1, 2, 4])
    text = tir.transform.InjectSoftwarePipeline()(mod)["main"].script()
    body = text[text.index("for k in range(4):") :]
    body = body[: body.index("T.tvm_mma_sync", body.index("T.tvm_mma_sync") + 1)]
    calls = [line.strip() for line in body.splitlines() if "sync(" in line]
    assert [c.split("(")[0] + "(" + c.split("(")[1].split(",")[0] for c in calls] == [
        "T.tvm_load_matrix_sync(a_1",
        "T.tvm_mma_sync(c",
        "T.tvm_load_matrix_sync(a",
    ]
    assert "c, 0, a, 0, a, 0, c, 0" in calls[1]
    assert (
        'T.allocate([768], "float16", "shared")' in text
        and text.count('T.allocate([4], "uint32", "local")') == 2
    )


def test_registers_that_instructions_name_need_turns_that_are_written_out() -> None:
    with pytest.raises(LoweringError) as error:
        tir.transform.InjectSoftwarePipeline()(fragments("serial", [0, 2], [0, 1]))
    assert str(error.value).splitlines()[0] == (
        "the pipeline of loop `j` needs 2 versions of a, registers that instructions name: unroll the loop, or order the "
        "statement that fills them after those that use them"
    )
    with pytest.raises(
        LoweringError, match="of loop `k` needs 2 versions of a, registers that instructions name"
    ):
        tir.transform.InjectSoftwarePipeline()(fragments("unroll", [0, 1, 2, 2, 2], [0, 1, 2, 3, 4]))


def by_registers(n: int, stages: list[int], order: list[int]) -> tir.Schedule:
    """Rows come to shared memory through registers, and threads add elements that others have brought."""
    A = te.placeholder((2, n, 64), name="A")
    B = te.compute((2, n, 64), lambda b, i, j: A[b, i, j] * 2.0, name="B")
    C = te.compute((2, n, 64), lambda b, i, j: B[b, i, 63 - j] + 1.0, name="C")
    sch = tir.Schedule(te.create_prim_func([A, C]))
    b, i, j = sch.get_loops("C")
    sch.bind(b, "blockIdx.x")
    sch.set_scope("B", 0, "shared")
    sch.compute_at("B", i)
    own, thread = sch.split(j, [None, 32])
    sch.unroll(own)
    sch.bind(thread, "threadIdx.x")
    several, thread = sch.split(sch.get_loops("B")[-1], [None, 32])
    sch.unroll(several)
    sch.bind(thread, "threadIdx.x")
    for key, value in (("stage", stages), ("order", order), ("by_registers", [0]), ("async_stages", [0])):
        sch.annotate(i, f"software_pipeline_{key}", value)
    return sch


@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.parametrize("last", [2, 3])
def test_what_passes_registers_is_stored_one_iteration_later(n: int, last: int) -> None:
    sch = by_registers(n, [0, 1, last], [1, 0, 2])
    with tvm.target.Target("cuda -arch=sm_80"):
        func = tir.transform.ThreadSync("shared")(tvm.lower(sch.mod))["main"]
    assert "registers" in func.script()
    x, got = np.random.default_rng(0).random((2, n, 64), dtype=np.float32), np.zeros((2, n, 64), np.float32)
    tir.interpret(func, x, got)
    np.testing.assert_array_equal(got, x[:, :, ::-1] * 2 + 1)


def test_statements_that_cannot_pass_registers_are_refused() -> None:
    sch = by_registers(4, [0, 1, 2], [1, 0, 2])
    loop = sch.get_loops("C")[1]
    sch.unannotate(loop, "software_pipeline_by_registers")
    sch.annotate(loop, "software_pipeline_by_registers", [0, 1])
    with (
        tvm.target.Target("cuda -arch=sm_80"),
        pytest.raises(LoweringError, match="has 4 statements, stages"),
    ):
        tvm.lower(sch.mod)
