"""Reductions with several results along rows: partial results for each lane of a vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.tune.plan import Choice, plan_of
from tilewright.tune.space import Sketches
from tilewright.tune.workload import task_of

TARGET = tvm.target.Target("llvm -mcpu=skylake-avx512 -num-cores=4")  # vectors of 16


def argmax(*shape: Any, axis: int = 1, dtype: str = "float32", **how: bool) -> list[Any]:
    x = te.placeholder(shape, dtype, name="x")
    return [x, topi.argmax(x, axis=axis, **how)]


def choice(args: list[Any]) -> Choice:
    return plan_of(te.create_prim_func(args), TARGET).choices[0]


@pytest.mark.parametrize(
    ("shape", "axis"), [((64, 1000), 1), ((1, 50257), 1), ((8, 4, 300), 2), ((70, 100), 1)]
)
def test_long_rows_are_reduced_in_lanes(shape: tuple[int, ...], axis: int) -> None:
    made = choice(argmax(*shape, axis=axis))
    assert made.winner.rule.name == "several in lanes"
    assert [o.rule.name for o in made.rivals] == ["several results"]


def test_short_rows_are_not() -> None:
    assert choice(argmax(1000, 17)).winner.rule.name == "several results"


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (argmax(1000, 16), "its rows are not longer than a vector"),
        (argmax(100, 1000, axis=0), "neighbours in memory belong to different results"),
        ([x := te.placeholder((100, 100), name="x"), topi.max(x, axis=1)], "it has one result"),
    ],
)
def test_it_says_why_not(args: list[Any], why: str) -> None:
    assert choice(args).refused["several in lanes"].why == why


@pytest.mark.slow
def test_every_row_computes_what_the_program_says() -> None:
    sketches = Sketches(task_of(argmax(5, 100), TARGET))
    space = sketches.space.first
    assert space.stages[0].rule == "several in lanes" and len(space.stages[0]) == 6
    for row in space.everything():
        assert sketches.apply(space.decisions(row)).verify()


@pytest.mark.slow
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int64"])
def test_ties_and_nans(dtype: str, last: bool) -> None:
    """The first (or the last) of equal elements is found, whatever lane it is in, and NaN is larger than any number."""
    args = argmax(6, 133, dtype=dtype, select_last_index=last)
    sch = tvm.auto_schedule(te.create_prim_func(args), "llvm")
    data = np.random.default_rng(0).integers(-3, 4, (6, 133)).astype(dtype)
    data[2] = 0
    if np.issubdtype(data.dtype, np.floating):
        data[3, 7] = data[3, 90] = np.nan
        data[4] = -np.inf
    wanted = 132 - np.argmax(data[:, ::-1], axis=1) if last else np.argmax(data, axis=1)
    out = tvm.nd.array(np.zeros(6, "int32"))
    tvm.build(sch.mod, target="llvm")(tvm.nd.array(data), out)
    np.testing.assert_array_equal(out.numpy(), wanted)
