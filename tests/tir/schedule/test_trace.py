"""Traces: as text, as data, done again; and what is said of traces that cannot be."""

from __future__ import annotations

import json

import pytest
from schedule_programs import chain, copy2d, matmul

from tilewright import te, tir
from tilewright.ir.equal import assert_structural_equal
from tilewright.ir.errors import ScheduleError
from tilewright.tir.schedule import Trace
from tilewright.tir.schedule.testing import (
    assert_structural_equal_ignore_global_symbol,
    verify_trace_roundtrip,
)


def tiled():
    sch = tir.Schedule(matmul)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    io, ii = sch.split(i, [None, 4])
    jo, ji = sch.split(j, factors=[2, None], names=["jo", "ji"])
    sch.reorder(io, jo, k, ii, ji)
    sch.vectorize(ji)
    sch.bind(io, te.thread_axis("blockIdx.x"))
    copy = sch.cache_read(block, 0, "shared")
    sch.compute_at(copy, jo, preserve_unit_loops=True)
    sch.annotate(jo, "note", "x")
    return sch


def test_text(expect):
    expect(
        str(tiled().trace),
        """
        def apply_trace(sch: tir.Schedule) -> None:
          b0 = sch.get_block(name='C')
          l0, l1, l2 = sch.get_loops(block=b0)
          l3, l4 = sch.split(loop=l0, factors=[None, 4])
          l5, l6 = sch.split(loop=l1, factors=[2, None], names=['jo', 'ji'])
          sch.reorder(l3, l5, l2, l4, l6)
          sch.vectorize(loop=l6)
          sch.bind(loop=l3, thread_axis='blockIdx.x')
          b1 = sch.cache_read(block=b0, read_buffer_index=0, storage_scope='shared')
          sch.compute_at(block=b1, loop=l5, preserve_unit_loops=True)
          sch.annotate(block_or_loop=l5, ann_key='note', ann_val='x')
        """,
    )


def test_roundtrips():
    sch = tiled()
    verify_trace_roundtrip(sch, matmul)
    verify_trace_roundtrip(sch, matmul, text_format="json")
    with pytest.raises(ValueError) as caught:
        verify_trace_roundtrip(sch, matmul, text_format="xml")
    assert str(caught.value) == "a trace has the text forms python and json, not 'xml'"


def test_a_different_program_is_noticed(expect):
    with pytest.raises(ValueError) as caught:
        assert_structural_equal_ignore_global_symbol(copy2d, chain)
    expect(
        str(caught.value),
        """
        StructuralEqual check failed, caused by lhs at <root>.buffer_map['A_handle'].shape[0].value:
        # from tilewright.script import tir as T

        @T.prim_func(name="")
        def func(A: T.Buffer((8, 12), "float32"), B: T.Buffer((8, 12), "float32")):
                              ^
            # with T.block("root"):
            for i, j in T.grid(8, 12):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(A[vi, vj])
                    T.writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj] + T.float32(1)
        and rhs at <root>.buffer_map['A_handle'].shape[0].value:
        # from tilewright.script import tir as T

        @T.prim_func(name="")
        def func(A: T.Buffer((10,), "float32"), D: T.Buffer((10,), "float32")):
                              ^^
            # with T.block("root"):
            B = T.alloc_buffer((10,))
            C = T.alloc_buffer((10,))
            for i in range(10):
                with T.block("B"):
                    vi = T.axis.spatial(10, i)
                    T.reads(A[vi])
                    T.writes(B[vi])
                    B[vi] = A[vi] + T.float32(1)
            for i in range(10):
                with T.block("C"):
                    vi = T.axis.spatial(10, i)
                    T.reads(B[vi])
                    T.writes(C[vi])
                    C[vi] = B[vi] * T.float32(2)
            for i in range(10):
                with T.block("D"):
                    vi = T.axis.spatial(10, i)
                    T.reads(C[vi], B[vi])
                    T.writes(D[vi])
                    D[vi] = C[vi] + B[vi]
        """,
    )
    assert_structural_equal_ignore_global_symbol(
        copy2d.with_attr("global_symbol", "a"), copy2d.with_attr("global_symbol", "b")
    )


def test_json_goes_through_text():
    sch = tiled()
    text = json.dumps(sch.trace.as_json())
    other = tir.Schedule(matmul)
    Trace.apply_json_to_schedule(text, other, trusted=True)
    assert_structural_equal(other.mod, sch.mod)
    assert json.dumps(other.trace.as_json()) == text


def test_a_replayed_trace_is_the_same_trace():
    sch = tiled()
    other = tir.Schedule(matmul)
    sch.trace.apply_to_schedule(other)
    assert str(other.trace) == str(sch.trace)


def test_a_refused_step_is_not_in_the_trace(refused):
    sch = tir.Schedule(matmul)
    i, j, k = sch.get_loops("C")
    refused(sch, lambda: sch.parallel(k))
    assert [x.kind for x in sch.trace.insts] == ["get_block", "get_loops"]


def test_steps_know_their_line_and_program():
    sch = tiled()
    assert all(str(x.span).startswith("test_trace.py:") for x in sch.trace.insts)
    assert sch.trace.insts[-1].after is sch.mod
    assert sch.trace.insts[0].after is sch.origin


def test_another_structure_is_noticed(expect, refused):
    sch = tir.Schedule(matmul)
    sch.get_loops("C")
    other = tir.Schedule(copy2d)
    expect(
        refused(other, lambda: sch.trace.apply_to_schedule(other)),
        """
        get_block('C'): there is no block named 'C'
          at test_trace.py:LINE

          | …

          hint: the blocks are: B
        """,
    )
    sch = tir.Schedule(copy2d)
    sch.get_loops("B")
    with pytest.raises(ScheduleError) as caught:
        sch.trace.apply_to_schedule(tir.Schedule(chain))
    assert str(caught.value) == (
        "step 1 (get_loops) gave 1 results here and 2 when it was recorded: the program has another structure"
    )


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({}, "this is not a trace: the format must be 'tilewright-trace-1'"),
        ([1], "this is not a trace: the format must be 'tilewright-trace-1'"),
        (
            {"format": "tilewright-trace-1", "steps": [{"step": "mod"}]},
            "step 0 of the trace is 'mod', which is not a primitive",
        ),
        (
            {"format": "tilewright-trace-1", "steps": [3]},
            "step 0 of the trace is None, which is not a primitive",
        ),
        (
            {
                "format": "tilewright-trace-1",
                "steps": [{"step": "parallel", "kwargs": {"loop": {"ref": "l7"}}}],
            },
            "the trace uses 'l7', which none of its steps gave",
        ),
        (
            {"format": "tilewright-trace-1", "steps": [{"step": "get_block", "kwargs": {"name": {"x": 1}}}]},
            "the trace holds {'x': 1}, which is nothing known",
        ),
        (
            {
                "format": "tilewright-trace-1",
                "steps": [{"step": "get_block", "kwargs": {"name": "B"}, "outputs": ["a", "b"]}],
            },
            "step 0 (get_block) gave 1 results, and the trace has 2",
        ),
    ],
)
def test_damaged_data(data, text):
    with pytest.raises(ScheduleError) as caught:
        Trace.apply_json_to_schedule(data, tir.Schedule(copy2d), trusted=True)
    assert str(caught.value) == text


def test_expressions_of_a_program_are_not_written():
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1, name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    (i,) = sch.get_loops("B")
    sch.split(i, [n, None])
    with pytest.raises(ScheduleError) as caught:
        sch.trace.as_json()
    assert str(caught.value) == "`n` cannot be written to a file: it is an expression of this program"


def test_an_empty_trace():
    assert str(tir.Schedule(copy2d).trace).endswith("def apply_trace(sch: tir.Schedule) -> None:\n  pass")
    assert len(Trace()) == 0
