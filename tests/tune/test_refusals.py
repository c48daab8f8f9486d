"""A refusal is a value where a scheduler has another way to go on: `Schedule.attempt` is the only place that catches."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tilewright
from tilewright import te
from tilewright.ir.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir.schedule import Schedule
from tilewright.tune.plan import plan_of

TUNE = Path(tilewright.__file__).parent / "tune"
# A build worker turns whatever happens to a candidate into the status of a record.
BORDERS = {"measure/building.py"}


@pytest.mark.slow
def test_no_scheduler_catches_refusals() -> None:
    found = set()
    for path in sorted(TUNE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler) and "ScheduleError" in ast.unparse(node.type or node):
                found.add(path.relative_to(TUNE).as_posix())
    assert found == BORDERS


@pytest.mark.parametrize("family", ["cpu", "gpu", "accelerator"])
def test_no_rule_raises_an_exception_to_refuse(family: str) -> None:
    """A rule says no by a Refusal: from `match`, or from `apply` where only the steps show it."""
    files = sorted((TUNE / "rules" / family).glob("*.py"))
    assert files
    for path in files:
        raised = [ast.unparse(n) for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Raise)]
        assert set(raised) <= {"raise NotImplementedError"}, path.name


def chain() -> Schedule:
    x = te.placeholder((8, 8), name="x")
    y = te.compute((8, 8), lambda i, j: x[i, j] * 2.0, name="y")
    k = te.reduce_axis((0, 8), name="k")
    return Schedule(te.create_prim_func([x, te.compute((8,), lambda i: te.sum(y[i, k], axis=k), name="z")]))


def test_an_attempt_gives_the_result_of_its_steps() -> None:
    sch = chain()
    loops = sch.attempt(lambda: sch.split(sch.get_loops(sch.get_block("y"))[0], [2, 4]))
    assert isinstance(loops, list) and len(loops) == 2 and "T.serial(4)" not in str(sch.mod)
    assert sch.attempt(lambda: sch.compute_inline(sch.get_block("y"))) is None


def test_an_attempt_that_is_refused_changes_nothing() -> None:
    sch = chain()
    sch.split(sch.get_loops(sch.get_block("z"))[0], [2, 4])
    before, steps, y = str(sch.mod), len(sch.trace), sch.get_block("y")

    def steps_of() -> None:
        sch.compute_inline(y)
        sch.compute_inline(sch.get_block("z"))  # a reduction

    refused = sch.attempt(steps_of)
    assert isinstance(refused, ScheduleError) and "is a reduction" in str(refused)
    assert str(sch.mod) == before and len(sch.trace) == steps + 1
    sch.compute_inline(y)  # the handle is as good as before
    inside = sch.attempt(lambda: sch.attempt(lambda: sch.compute_inline(y)))
    assert isinstance(inside, ScheduleError) and "compute_inline(y)" in str(inside)


def test_a_program_without_a_root_block_is_left_as_it_is() -> None:
    func = tilewright.script.from_source(
        "from tilewright.script import tir as T\n"
        "@T.prim_func\n"
        "def main(A: T.Buffer((8,), 'float32')):\n"
        "    for i in range(8):\n"
        "        A[i] = 1.0\n"
    )
    plan = plan_of(func, Target("llvm -mcpu=znver4"))
    assert not plan.choices and "its loops are in no block named root" in str(plan.program.notes)
