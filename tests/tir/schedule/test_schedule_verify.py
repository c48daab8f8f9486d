"""`sch.verify()`: the schedule against its origin; and verifying each step."""

from __future__ import annotations

import re

import numpy as np
import pytest
from schedule_programs import chain, copy2d, matmul, symbolic

from tilewright import te, tir
from tilewright.ir.errors import ScheduleError
from tilewright.ir.functor import Mutator
from tilewright.ir.stmt import BufferStore
from tilewright.script import ir as I
from tilewright.script import tir as T
from tilewright.tir.schedule.primitive import primitive


class _Wrong(Mutator):
    """Adds one to what some block stores."""

    def __init__(self, name):
        self.name = name

    def visit_BufferStore(self, n):
        return BufferStore(n.buffer, n.value + 1, n.indices) if n.buffer.name == self.name else n


@primitive
def spoil(sch, name):
    """A step that changes the result."""
    func = sch.state.func
    sch.state.replace(func.body, _Wrong(name).visit(func.body))


def test_a_good_schedule():
    sch = tir.Schedule(matmul)
    i, j, k = sch.get_loops("C")
    sch.reorder(k, i, j)
    sch.split(j, [None, 4])
    report = sch.verify()
    assert report
    assert report.how == "interpreter"
    assert report.functions == ("main",)
    assert report.elements == 7 * 5 + 5 * 6 + 7 * 6
    assert str(report) == "main: 107 elements agree with the origin (run by interpreter, seed 0)"


def test_nothing_was_done():
    report = tir.Schedule(matmul).verify()
    assert report
    assert report.functions == ()
    assert str(report) == "nothing: 0 elements agree with the origin (run by interpreter, seed 0)"


def test_the_first_different_element_is_named():
    sch = tir.Schedule(copy2d)
    spoil(sch, "B")
    with pytest.raises(ScheduleError) as caught:
        sch.verify()
    text = re.sub(r"is \S+ and should be \S+;", "is X and should be Y;", str(caught.value))
    assert text == (
        "the schedule of main does not compute what its origin does: B[0, 0] is X and should be Y; "
        "96 of 96 elements differ (run by interpreter)"
    )


def test_each_step_is_verified(expect):
    sch = tir.Schedule(chain, verify="each")
    sch.compute_inline("B")
    before, steps = sch.mod, len(sch.trace)
    with pytest.raises(ScheduleError) as caught:
        spoil(sch, "C")
    text = re.sub(r"is \S+ and should be \S+;", "is X and should be Y;", str(caught.value))
    expect(
        re.sub(r"\.py:\d+", ".py:LINE", text),
        """
        step 2 changed the result: sch.spoil(name='C')
          at test_schedule_verify.py:LINE

        the schedule of main does not compute what its origin does: D[0] is X and should be Y; 10 of 10 elements differ (run by interpreter)
        """,
    )
    assert sch.mod is before
    assert len(sch.trace) == steps
    i = sch.get_loops("D")[0]
    sch.parallel(i)
    assert sch.copy().verify_each


def test_verify_is_each_or_nothing():
    with pytest.raises(ValueError) as caught:
        tir.Schedule(chain, verify="all")
    assert str(caught.value) == "verify='all': it is 'each', to verify after every step, or nothing"


def test_a_program_that_cannot_be_run(expect):
    sch = tir.Schedule(chain)

    @primitive
    def swap(sch):
        body = sch.state.func.body
        first, second, third = body.block.body.seq
        sch.state.replace(body.block.body, body.block.body.replace(seq=(second, first, third)))

    swap(sch)
    with pytest.raises(ScheduleError) as caught:
        sch.verify()
    expect(
        str(caught.value),
        """
        the scheduled main cannot be run: unwritten memory: read of B[0], which nothing wrote before
          statement: C[vi] = B[vi] * T.float32(2)
          written at: schedule_programs.py:53
          where: i = 0, vi = 0
          function: chain
        """,
    )


def test_own_arrays():
    sch = tir.Schedule(copy2d)
    i, j = sch.get_loops("B")
    sch.fuse(i, j)
    given = [np.ones((8, 12), "float32"), np.zeros((8, 12), "float32")]
    report = sch.verify(arrays=given)
    assert report.seed is None
    assert not given[1].any()


def test_symbolic_sizes_are_small():
    sch = tir.Schedule(symbolic)
    i, j = sch.get_loops("B")
    sch.split(i, [None, 4])
    assert sch.verify().elements == 2 * 5 * 8


def test_indices_stay_in_bounds():
    A = te.placeholder((3, 4), name="A")
    X = te.placeholder((6,), "int32", name="X")
    B = te.compute((6, 4), lambda i, j: A[X[i], j], name="B")
    sch = tir.Schedule(te.create_prim_func([A, X, B]))
    i, j = sch.get_loops("B")
    sch.reorder(j, i)
    for seed in range(5):
        assert sch.verify(seed=seed)


def test_large_programs_are_compiled(expect):
    A = te.placeholder((96, 96), name="A")
    k = te.reduce_axis((0, 96), "k")
    C = te.compute((96, 96), lambda i, j: te.sum(A[i, k] * A[k, j], axis=k), name="C")
    sch = tir.Schedule(te.create_prim_func([A, C]))
    i, j, k = sch.get_loops("C")
    sch.bind(i, "blockIdx.x")
    sch.reorder(k, j)
    sch.vectorize(j)
    report = sch.verify()
    assert report.how == "machine code"
    spoil(sch, "C")
    with pytest.raises(ScheduleError) as caught:
        sch.verify()
    expect(
        re.sub(r"is \S+ and should be \S+;", "is X and should be Y;", str(caught.value)),
        """
        the schedule of main does not compute what its origin does: C[0, 0] is X and should be Y; 9216 of 9216 elements differ (run by machine code)
        """,
    )


def test_memory_inside_a_parallel_loop_is_its_own():
    sch = tir.Schedule(chain)
    (i,) = sch.get_loops("D")
    sch.compute_at("C", i)
    sch.compute_at("B", i)
    sch.parallel(i)
    assert sch.verify()


def test_other_parameters_cannot_be_compared():
    sch = tir.Schedule(copy2d)
    sch.transform_layout("B", ("write", 0), lambda i, j: (j, i))
    with pytest.raises(ScheduleError) as caught:
        sch.verify()
    assert str(caught.value) == (
        "parameter B was (8, 12) of float32 and is (12, 8) of float32 now: "
        "programs that take other arguments cannot be compared"
    )
    each = tir.Schedule(copy2d, verify="each")
    each.transform_layout("B", ("write", 0), lambda i, j: (j, i))


def test_all_functions_of_a_module():
    @I.ir_module
    class Module:
        @T.prim_func
        def first(A: T.Buffer((4,), "int32")):
            for i in range(4):
                with T.block("A"):
                    vi = T.axis.spatial(4, i)
                    A[vi] = vi

        @T.prim_func
        def second(A: T.Buffer((4,), "bool")):
            for i in range(4):
                with T.block("B"):
                    vi = T.axis.spatial(4, i)
                    A[vi] = vi < 2

    sch = tir.Schedule(Module)
    for name, block in (("first", "A"), ("second", "B")):
        sch.work_on(name)
        sch.split(sch.get_loops(block)[0], [2, 2])
    assert sch.verify().functions == ("first", "second")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "uint8", "bool"])
def test_types(dtype):
    A = te.placeholder((6, 6), dtype, name="A")
    B = te.compute((6, 6), lambda i, j: A[j, i], name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    sch.fuse(*sch.get_loops("B"))
    assert sch.verify()
