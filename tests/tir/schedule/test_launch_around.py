"""Threads that live around the steps of a scan."""

from __future__ import annotations

import pytest
from schedule_checks import replays
from schedule_programs import copy2d

from tilewright import tir
from tilewright.script import tir as T


@T.prim_func
def running(X: T.Buffer((5, 8), "float32"), S: T.Buffer((5, 8), "float32")):
    for i in range(8):
        with T.block("first"):
            vi = T.axis.spatial(8, i)
            S[0, vi] = X[0, vi]
    for t in range(1, 5):
        for i in range(8):
            with T.block("step"):
                vt = T.axis.scan((1, 5), t)
                vi = T.axis.spatial(8, i)
                S[vt, vi] = S[vt - 1, vi] + X[vt, vi]


def bound(factor: int = 8) -> tuple[tir.Schedule, tir.schedule.LoopRV]:
    sch = tir.Schedule(running)
    sch.bind(sch.get_loops("first")[0], "threadIdx.x")
    t, i = sch.get_loops("step")
    sch.bind(sch.split(i, [None, factor])[1] if factor < 8 else i, "threadIdx.x")
    return sch, t


def test_one_launch_for_all_steps(expect):
    sch, t = bound()
    assert sch.launch_around(t, "threadIdx.x").name == "threadIdx_x"
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def running(X: T.Buffer((5, 8), "float32"), S: T.Buffer((5, 8), "float32")):
            # with T.block("root"):
            for i in T.thread_binding(8, thread="threadIdx.x"):
                with T.block("first"):
                    vi = T.axis.spatial(8, i)
                    T.reads(X[0, vi])
                    T.writes(S[0, vi])
                    S[0, vi] = X[0, vi]
            for threadIdx_x in T.thread_binding(8, thread="threadIdx.x"):
                for t in T.serial(1, 5):
                    for i in T.thread_binding(8, thread="threadIdx.x"):
                        with T.block("step"):
                            vt = T.axis.scan((1, 5), t)
                            vi = T.axis.spatial(8, i)
                            T.reads(S[vt - 1, vi], X[vt, vi])
                            T.writes(S[vt, vi])
                            S[vt, vi] = S[vt - 1, vi] + X[vt, vi]
        """,
    )


@pytest.mark.parametrize("factor", [8, 4, 3])
def test_the_steps_mean_the_same(factor):
    sch, t = bound(factor)
    sch.launch_around(t, "threadIdx.x", factor)
    assert sch.verify().kernels == "agree"
    replays(running, sch)


def test_refuse_another_number_of_threads(expect, refused):
    sch, t = bound()
    expect(
        refused(sch, lambda: sch.launch_around(t, "threadIdx.x", 4), whole=True),
        """
        launch_around(t, thread_axis='threadIdx.x', extent=4): loop `i` has 8 iterations for the 4 threads of threadIdx.x
          at test_launch_around.py:LINE

          | def running(X: T.Buffer((5, 8), "float32"), S: T.Buffer((5, 8), "float32")):
          |     # with T.block("root"):
          |     for i in T.thread_binding(8, thread="threadIdx.x"):
          |         with T.block("first"):
          |             vi = T.axis.spatial(8, i)
          |             T.reads(X[0, vi])
          |             T.writes(S[0, vi])
          |             S[0, vi] = X[0, vi]
          |     for t in T.serial(1, 5):
          |         for i in T.thread_binding(8, thread="threadIdx.x"):    # <-- here
          |             with T.block("step"):
          |                 vt = T.axis.scan((1, 5), t)
          |                 vi = T.axis.spatial(8, i)
          |                 T.reads(S[vt - 1, vi], X[vt, vi])
          |                 T.writes(S[vt, vi])
          |                 S[vt, vi] = S[vt - 1, vi] + X[vt, vi]

          hint: launch 8 threads around, or split it by 4
        """,
    )


def test_refuse_an_axis_without_a_number(expect, refused):
    sch, t = bound()
    expect(
        refused(sch, lambda: sch.launch_around(t, "threadIdx.y")),
        """
        launch_around(t, thread_axis='threadIdx.y'): no loop inside is bound to threadIdx.y, so the number of threads is not known
          at test_launch_around.py:LINE

          | …
          |     for t in T.serial(1, 5):    # <-- here
          | …

          hint: say it with extent=
        """,
    )


def test_refuse_an_axis_that_there_is_not(expect, refused):
    sch, t = bound()
    expect(
        refused(sch, lambda: sch.launch_around(t, "threadIdx.w")),
        """
        launch_around(t, thread_axis='threadIdx.w'): there is no thread axis 'threadIdx.w'
          at test_launch_around.py:LINE

          | …
          |     for t in T.serial(1, 5):    # <-- here
          | …

          hint: use blockIdx.x/y/z, threadIdx.x/y/z, clusterCtaIdx.x, or vthread, vthread.x/y/z
        """,
    )


def test_refuse_threads_that_are_there(expect, refused):
    sch, t = bound()
    sch.launch_around(t, "threadIdx.x")
    expect(
        refused(sch, lambda: sch.launch_around(t, "threadIdx.x")),
        """
        launch_around(t, thread_axis='threadIdx.x'): loop `threadIdx_x` around it is bound to threadIdx.x already
          at test_launch_around.py:LINE

          | …
          |     for threadIdx_x in T.thread_binding(8, thread="threadIdx.x"):    # <-- here
          | …

          hint: its threads are there already: nothing is to be launched
        """,
    )


def test_refuse_what_is_no_scan(expect, refused):
    sch = tir.Schedule(copy2d)
    _, j = sch.get_loops("B")
    unit = sch.add_unit_loop(j)
    expect(
        refused(sch, lambda: sch.launch_around(unit, "threadIdx.x", 1)),
        """
        launch_around(u, thread_axis='threadIdx.x', extent=1): block B writes elements of B in more than one step of loop `u`
          at test_launch_around.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: threads can live around the steps of a scan, each of which writes elements of its own
        """,
    )
