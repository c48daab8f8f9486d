"""Rows that a vector holds: a row for each lane."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.tune.plan import Choice, plan_of
from tilewright.tune.space import Sketches
from tilewright.tune.workload import task_of

TARGET = tvm.target.Target("llvm -mcpu=skylake-avx512 -num-cores=4")  # vectors of 16


def softmax(rows: Any, size: int, axis: int = 1) -> list[Any]:
    x = te.placeholder((rows, size) if axis == 1 else (size, rows), name="x")
    return [x, topi.nn.softmax(x, axis=axis)]


def layer_norm(rows: int, size: int) -> list[Any]:
    x, w = te.placeholder((rows, size), name="x"), te.placeholder((size,), name="w")
    return [x, w, topi.nn.layer_norm(x, w, w, axis=[1])]


def choice(args: list[Any]) -> Choice:
    (made,) = plan_of(te.create_prim_func(args), TARGET).choices
    return made


@pytest.mark.parametrize("size", [2, 5, 10, 16])
@pytest.mark.parametrize("program", [softmax, layer_norm])
def test_short_rows_are_computed_a_row_for_each_lane(program: Any, size: int) -> None:
    made = choice(program(1000, size))
    assert made.winner.rule.name == "short rows"
    assert "row chain" in {o.rule.name for o in made.rivals}


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (softmax(1000, 17), "its rows are longer than a vector"),
        (softmax(15, 10), "it has fewer rows than a vector has lanes"),
        (softmax(1000, 10, axis=0), "it is not a chain of stages along rows"),
        (
            [x := te.placeholder((1000, 10), name="x"), topi.sum(x, axis=1)],
            "it is not a chain of stages along rows",
        ),
    ],
)
def test_it_says_why_not(args: list[Any], why: str) -> None:
    assert choice(args).refused["short rows"].why == why


@pytest.mark.parametrize("args", [softmax(50, 10), layer_norm(35, 7)])
def test_every_row_computes_what_the_program_says(args: list[Any]) -> None:
    sketches = Sketches(task_of(args, TARGET))
    space = sketches.space.first
    (stage,) = space.stages
    assert stage.rule == "short rows" and len(stage) == 6  # three widths of vectors, with and without threads
    for row in space.everything():
        assert sketches.apply(space.decisions(row)).verify()


def test_a_dynamic_number_of_rows() -> None:
    sch = tvm.auto_schedule(te.create_prim_func(softmax(te.var("n"), 10)), TARGET)
    (told,) = [r for r in sch.explanation.records if "rule" in r]
    assert told["rule"] == "short rows"
    assert sch.verify()
