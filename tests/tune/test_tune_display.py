"""What a search shows: a line for each batch, or a table."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest
from tune_fakes import Fake

from tilewright import te, topi
from tilewright.tune.search.allocate import tune_tasks
from tilewright.tune.search.display import Display, line_of
from tilewright.tune.search.search import Progress, SearchOptions, tune_task
from tilewright.tune.workload import Task, task_of


@pytest.fixture(scope="module")
def task() -> Task:
    A, B = te.placeholder((32, 32), name="A"), te.placeholder((32, 32), name="B")
    return task_of([A, B, topi.matmul(A, B)], "llvm -mcpu=skylake-avx512 -num-cores=4")


def test_a_line(task: Task) -> None:
    peak = task.target.cpu.peak_gflops(0)
    p = Progress(
        task, 48, 64, 1e-3, 1.5e-3, int(peak * 1e6 / 2), {"ok": 45, "wrong": 1, "crash": 2}, 6.0, 48, 0.01
    )
    assert line_of(p) == (
        f"main  48/64  best 1.00 ms, {peak / 2:.1f} GFLOP/s, 50% of peak, 1.50 times as fast as untuned  "
        "8.0 trials/s, 2 s left  crash 2, wrong 1"
    )
    nothing = replace(p, best=math.inf, zero=math.inf, measured=0, statuses={})
    assert line_of(nothing) == "main  48/64  nothing measured yet"


def test_lines_and_tables(task: Task) -> None:
    options = SearchOptions(model="analytical", batch=4)
    text = io.StringIO()
    with Display(text) as display:
        tune_task(task, trials=8, measure=Fake(lambda inp: 1e-4), options=options, callback=display)
    assert [line.split("  ")[1] for line in text.getvalue().splitlines()] == ["4/8", "8/8"]
    text = io.StringIO()
    with Display(text, live=True) as display:
        tune_tasks([task], 8, measure=Fake(lambda inp: 1e-4), options=options, callback=display)
    assert "100%" in text.getvalue() and "8/8" in text.getvalue()
