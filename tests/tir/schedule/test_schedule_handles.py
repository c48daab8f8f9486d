"""Finding blocks and loops, handles that went stale, traces, copies, functions of a module."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from schedule_programs import arrays, chain, copy2d, matmul

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.equal import assert_structural_equal
from tilewright.ir.errors import ScheduleError, UnsupportedError
from tilewright.ir.stmt import Block, For
from tilewright.script import ir as I
from tilewright.script import tir as T


@T.prim_func
def nested(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4, 4), "int32")):
    for i in range(4):
        with T.block("outer"):
            vi = T.axis.spatial(4, i)
            T.reads(A[vi, 0:4])
            T.writes(B[vi, 0:4])
            for j in range(4):
                with T.block("inner"):
                    vj = T.axis.spatial(4, j)
                    B[vi, vj] = A[vi, vj]
            for k in range(4):
                with T.block("again"):
                    vk = T.axis.spatial(4, k)
                    B[vi, vk] = B[vi, vk] + 1


def names(handles):
    return [h.name for h in handles]


# ---------------------------------------------------------------------------- getting around
def test_loops_of_a_block_reach_up_to_the_block_around_it():
    sch = tir.Schedule(nested)
    assert names(sch.get_loops(sch.get_block("outer"))) == ["i"]
    assert names(sch.get_loops("inner")) == ["j"]
    assert names(sch.get_loops("root")) == []


def test_child_blocks():
    sch = tir.Schedule(nested)
    (i,) = sch.get_loops("outer")
    assert names(sch.get_child_blocks(sch.get_block("root"))) == ["outer"]
    assert names(sch.get_child_blocks(i)) == ["outer"]
    assert names(sch.get_child_blocks(sch.get_block("outer"))) == ["inner", "again"]
    assert names(sch.get_child_blocks(sch.get_block("inner"))) == []


def test_producers_and_consumers():
    sch = tir.Schedule(chain)
    assert names(sch.get_producers("D")) == ["B", "C"]
    assert names(sch.get_producers("C")) == ["B"]
    assert names(sch.get_producers("B")) == []
    assert names(sch.get_consumers("B")) == ["C", "D"]
    assert names(sch.get_consumers("C")) == ["D"]
    assert names(sch.get_consumers(sch.get_block("D"))) == []
    inner = tir.Schedule(nested)
    assert names(inner.get_consumers("inner")) == ["again"]


def test_get_gives_the_statement():
    sch = tir.Schedule(copy2d)
    block = sch.get_block("B")
    i, _j = sch.get_loops(block)
    assert isinstance(sch.get(i), For) and sch.get(i).loop_var is i.var
    assert isinstance(sch.get(block), Block) and sch.get(block).name_hint == "B"
    assert sch.get(sch.get(i).extent) is sch.get(i).extent
    assert sch.get_sref(i).stmt is sch.get(i)
    assert isinstance(sch.get_sref(block), tir.schedule.StmtSRef)


def test_a_decomposed_reduction_is_found_by_both_names():
    sch = tir.Schedule(matmul)
    sch.decompose_reduction("C", sch.get_loops("C")[2])
    assert sch.get(sch.get_block("C_update")) is sch.get(sch.get_block("C"))
    with pytest.raises(tir.ScheduleError, match="no block named 'B_update'"):
        sch.get_block("B_update")


def test_handles_print_their_names():
    sch = tir.Schedule(copy2d)
    assert repr(sch.get_block("B")) == "BlockRV(B)"
    assert repr(sch.get_loops("B")) == "[LoopRV(i), LoopRV(j)]"


def test_an_unknown_block(expect, refused):
    sch = tir.Schedule(chain)
    text = refused(sch, lambda: sch.get_block("E"))
    expect(
        "\n".join(line for line in text.splitlines() if not line.startswith("  |")),
        """
        get_block('E'): there is no block named 'E'
          at test_schedule_handles.py:LINE


          hint: the blocks are: B, C, D
        """,
    )


def test_blocks_of_the_same_name(expect, refused):
    @T.prim_func
    def twins(A: T.Buffer((4,), "int32")):
        for i in range(4):
            with T.block("A"):
                vi = T.axis.spatial(4, i)
                A[vi] = vi
        for i in range(4):
            with T.block("A"):
                vi = T.axis.spatial(4, i)
                A[vi] = A[vi] + 1

    sch = tir.Schedule(twins)
    expect(
        refused(sch, lambda: sch.get_block("A")),
        """
        get_block('A'): 2 blocks are named 'A'
          at test_schedule_handles.py:LINE

          | …
          |         with T.block("A"):    # <-- here
          | …

          hint: give them names of their own
        """,
    )
    first, second = sch.get_child_blocks(sch.get_block("root"))
    (i,) = sch.get_loops(second)
    sch.parallel(i)
    assert "T.parallel" in sch.mod.script()
    assert int(sch.get(sch.get_loops(first)[0]).kind) == 0


def test_what_is_no_handle():
    sch = tir.Schedule(copy2d)
    with pytest.raises(TypeError) as caught:
        sch.get_loops(3)
    assert str(caught.value) == "a block is given by its name or by what get_block returned, not by 3"
    with pytest.raises(TypeError) as caught:
        sch.vectorize(sch.get_block("B"))
    assert str(caught.value) == "a loop is given by what get_loops or split returned, not by BlockRV(B)"


def test_what_is_no_program():
    with pytest.raises(TypeError) as caught:
        tir.Schedule("x")
    assert str(caught.value) == "a schedule is made from a PrimFunc or an IRModule, not str"
    with pytest.raises(ValueError) as caught:
        tir.Schedule(tvm.IRModule({}))
    assert str(caught.value) == "the module has no PrimFunc to schedule"


# ---------------------------------------------------------------------------- stale handles
def test_a_stale_loop_names_the_step_that_took_it(expect, refused):
    sch = tir.Schedule(copy2d)
    i, j = sch.get_loops("B")
    sch.split(j, [None, 4])
    expect(
        refused(sch, lambda: sch.vectorize(j)),
        """
        vectorize(j): loop `j` no longer exists: it was removed by split(j, …)
          at test_schedule_handles.py:LINE

          | …
        """,
    )
    sch = tir.Schedule(copy2d)
    i, j = sch.get_loops("B")
    sch.fuse(i, j)
    expect(
        refused(sch, lambda: sch.parallel(i)),
        """
        parallel(i): loop `i` no longer exists: it was removed by fuse(i, j)
          at test_schedule_handles.py:LINE

          | …
        """,
    )


def test_a_handle_of_another_schedule(expect, refused):
    sch, other = tir.Schedule(copy2d), tir.Schedule(matmul)
    (_i, _j, k) = other.get_loops("C")
    expect(
        refused(sch, lambda: sch.unroll(k)),
        """
        unroll(k): loop `k` no longer exists: it is not in this program
          at test_schedule_handles.py:LINE

          | …
        """,
    )
    block = other.get_block("C")
    expect(
        refused(sch, lambda: sch.get_loops(block)),
        """
        get_loops(C): block C no longer exists: it is not in this program
          at test_schedule_handles.py:LINE

          | …
        """,
    )


def test_handles_outlive_steps_on_other_loops():
    sch = tir.Schedule(matmul)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    sch.split(i, [None, 2])
    sch.reorder(k, j)
    sch.vectorize(j)
    assert names(sch.get_loops(block)) == ["i_0", "i_1", "k", "j"]


def test_errors_name_the_file_and_line_of_the_call(expect):
    sch = tir.Schedule(copy2d)
    _i, j = sch.get_loops("B")
    line = inspect.currentframe().f_lineno + 2
    with pytest.raises(ScheduleError) as caught:
        sch.split(j, [0, None])
    expect(
        str(caught.value).replace(f".py:{line}\n", ".py:LINE\n"),
        """
        split(j, factors=[0, None]): a factor is 0; factors are at least 1
          at test_schedule_handles.py:LINE

          | def copy2d(A: T.Buffer((8, 12), "float32"), B: T.Buffer((8, 12), "float32")):
          |     # with T.block("root"):
          |     for i, j in T.grid(8, 12):    # <-- here
          |         with T.block("B"):
          |             vi, vj = T.axis.remap("SS", [i, j])
          |             T.reads(A[vi, vj])
          |             T.writes(B[vi, vj])
          |             B[vi, vj] = A[vi, vj] + T.float32(1)
        """,
    )


# ---------------------------------------------------------------------------- traces
def scheduled(func=matmul):
    sch = tir.Schedule(func)
    i, j, k = sch.get_loops("C")
    io, ii = sch.split(i, [None, 4])
    jo, ji = sch.split(j, factors=[3, None])
    sch.reorder(io, jo, k, ii, ji)
    fused = sch.fuse(io, jo)
    sch.parallel(fused)
    sch.vectorize(ji)
    sch.unroll(ii)
    unit = sch.add_unit_loop(k)
    sch.annotate(unit, "note", "a 'quoted' text")
    sch.annotate(sch.get_block("C"), "number", 4)
    sch.unannotate(sch.get_block("C"), "number")
    return sch


def test_trace_text(expect):
    expect(
        str(scheduled().trace),
        """
        def apply_trace(sch: tir.Schedule) -> None:
          b0 = sch.get_block(name='C')
          l0, l1, l2 = sch.get_loops(block=b0)
          l3, l4 = sch.split(loop=l0, factors=[None, 4])
          l5, l6 = sch.split(loop=l1, factors=[3, None])
          sch.reorder(l3, l5, l2, l4, l6)
          l7 = sch.fuse(l3, l5)
          sch.parallel(loop=l7)
          sch.vectorize(loop=l6)
          sch.unroll(loop=l4)
          l8 = sch.add_unit_loop(block_or_loop=l2)
          sch.annotate(block_or_loop=l8, ann_key='note', ann_val="a 'quoted' text")
          b1 = sch.get_block(name='C')
          sch.annotate(block_or_loop=b1, ann_key='number', ann_val=4)
          b2 = sch.get_block(name='C')
          sch.unannotate(block_or_loop=b2, ann_key='number')
        """,
    )
    expect(
        str(tir.Schedule(copy2d).trace),
        """
        def apply_trace(sch: tir.Schedule) -> None:
          pass
        """,
    )


def test_trace_runs_as_python():
    sch = scheduled()
    again = tir.Schedule(matmul)
    exec("\n".join(sch.trace.as_python()), {"sch": again})
    assert_structural_equal(again.mod, sch.mod)
    assert again.trace.as_python() == sch.trace.as_python()
    scope = {"tir": tir}
    exec(str(sch.trace), scope)
    third = tir.Schedule(matmul)
    scope["apply_trace"](third)
    assert_structural_equal(third.mod, sch.mod)


def test_trace_of_every_way_to_get_around_runs_as_python():
    sch = tir.Schedule(nested)
    outer = sch.get_block("outer")
    first, second = sch.get_child_blocks(outer)
    sch.get_producers(second)
    sch.get_consumers(first)
    sch.get_loops("root")
    (j,) = sch.get_loops(first)
    (only,) = sch.split(j, [None])
    sch.fuse(only)
    sch.vectorize(only)
    sch.bind(sch.get_loops(outer)[0], te.thread_axis("threadIdx.x"))
    again = tir.Schedule(nested)
    exec("\n".join(sch.trace.as_python()), {"sch": again})
    assert_structural_equal(again.mod, sch.mod)


def test_trace_of_a_te_schedule_runs_as_python():
    A = te.placeholder((10, 12), name="A")
    B = te.compute((10, 12), lambda i, j: A[i, j] + 1, name="B")
    s = te.create_schedule(B.op)
    xo, yo, _xi, yi = s[B].tile(*B.op.axis, 4, 5)
    s[B].parallel(s[B].fuse(xo, yo))
    s[B].vectorize(yi)
    made = s.to_prim_func([A, B])
    again = tir.Schedule(te.create_schedule(B.op).to_prim_func([A, B]))
    exec("\n".join(s.trace.as_python()), {"sch": again})
    assert_structural_equal(again.mod["main"], made)
    assert "xi" not in str(s.trace) and "i_outer" in again.mod.script()


def test_refused_steps_leave_no_trace(expect, refused):
    sch = tir.Schedule(copy2d)
    i, j = sch.get_loops("B")
    steps = len(sch.trace)
    wrong = (lambda: sch.split(j, [0]), lambda: sch.tile(i, j, 2, 0), lambda: sch.fuse(j, i))
    expect(
        "\n\n".join(refused(sch, step) for step in wrong),
        """
        split(j, factors=[0]): a factor is 0; factors are at least 1
          at test_schedule_handles.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …

        split(j, factors=[None, 0]): a factor is 0; factors are at least 1
          at test_schedule_handles.py:LINE

          | …
          |     for i_0, i_1, j in T.grid(4, 2, 12):    # <-- here
          | …

        fuse(j, i): loop `i` is not directly inside `j`
          at test_schedule_handles.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …

          hint: reorder them to be adjacent, outermost first, with nothing else between
        """,
    )
    assert len(sch.trace) == steps == 2


def test_trace_shows_itself(capsys):
    scheduled().trace.show()
    assert capsys.readouterr().out.startswith("# from tilewright import tir\ndef apply_trace")


# ---------------------------------------------------------------------------- copies, functions
def test_copies_go_their_own_way(expect, refused):
    sch = tir.Schedule(copy2d)
    _i, j = sch.get_loops("B")
    _j_0, j_1 = sch.split(j, [None, 4])
    other = sch.copy()
    other.vectorize(j_1)
    assert "vectorized" not in sch.mod.script() and "vectorized" in other.mod.script()
    assert len(other.trace) == len(sch.trace) + 1
    expect(
        refused(other, lambda: other.unroll(j)),
        """
        unroll(j): loop `j` no longer exists: it was removed by split(j, …)
          at test_schedule_handles.py:LINE

          | …
        """,
    )


@I.ir_module
class Two:
    @T.prim_func
    def main(A: T.Buffer((8,), "int32")):
        for i in range(8):
            with T.block("A"):
                vi = T.axis.spatial(8, i)
                A[vi] = vi

    @T.prim_func
    def other(B: T.Buffer((9,), "int32")):
        for j in range(9):
            with T.block("B"):
                vj = T.axis.spatial(9, j)
                B[vj] = vj


def test_functions_of_a_module(expect, refused):
    sch = tir.Schedule(Two)
    assert sch.func_working_on.name_hint == "main"
    assert names(sch.get_loops(sch.get_block("A", func_name="main"))) == ["i"]
    expect(
        refused(sch, lambda: sch.get_block("B", func_name="other")),
        """
        get_block('B', func_name='other'): the schedule works on main, not on other
          at test_schedule_handles.py:LINE

          | …

          hint: call work_on('other') first
        """,
    )
    sch.work_on("other")
    sch.parallel(sch.get_loops("B")[0])
    assert sch.mod["main"] is Two["main"]
    again = tir.Schedule(Two)
    exec("\n".join(sch.trace.as_python()), {"sch": again})
    assert_structural_equal(again.mod, sch.mod)
    with pytest.raises(ValueError) as caught:
        sch.work_on("third")
    assert str(caught.value) == "the module has no function 'third'; it has: main, other"
    assert sch.copy().func_working_on.name_hint == "other"


def test_a_module_without_main_is_worked_on_from_its_first_function():
    sch = tir.Schedule(tvm.IRModule({"f": copy2d}))
    assert sch.func_working_on.name_hint == "f"
    assert names(sch.get_loops("B")) == ["i", "j"]


# ---------------------------------------------------------------------------- the rest
def test_steps_that_are_absent():
    sch = tir.Schedule(copy2d)
    with pytest.raises(
        UnsupportedError, match=r"tir\.Schedule\.read_at is not part of .*; use cache_read or cache_write"
    ):
        sch.read_at()
    with pytest.raises(AttributeError) as caught:
        sch.splitt()
    assert str(caught.value) == "Schedule has no attribute 'splitt'"


def test_a_schedule_prints_its_program(capsys):
    sch = tir.Schedule(copy2d)
    assert repr(sch) == sch.mod.script()
    sch.show()
    assert "def main(A: T.Buffer((8, 12)" in capsys.readouterr().out


def test_schedules_do_not_touch_their_origin(agree):
    before = matmul.script()
    sch = scheduled()
    assert matmul.script() == before
    agree(matmul, sch.mod["main"], *arrays(matmul))
    a, b, c = arrays(matmul)
    tvm.build(sch, target="llvm")(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-6)
