"""Random schedules of random programs: each step refuses or is done, and the result means the same.

`TILEWRIGHT_EXAMPLES=5000 pytest tests/tir/schedule/test_random_schedules.py` runs more of them.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from random_schedules import Recipe, arrays_of, recipe_of, recipes, scheduled

import tilewright as tvm
from tilewright import tir
from tilewright.ir.equal import structural_equal
from tilewright.tir.schedule import Schedule
from tilewright.tir.transform.plan_allocations import plan_buffer_allocation

EXAMPLES = int(os.environ.get("TILEWRIGHT_EXAMPLES", "60"))
COMMON: dict[str, Any] = {
    "deadline": None,
    "derandomize": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
}


def run(func: Any, arrays: list[np.ndarray], **options: Any) -> list[np.ndarray]:
    made = [a.copy() for a in arrays]
    if isinstance(func, tir.PrimFunc):
        tir.interpret(func, *made, **options)
    else:
        func(*made)
    return made


def check(recipe: Recipe, compiled: bool = True) -> Schedule:
    """Hold a schedule to its origin: as it is, lowered, as machine code; and replayed from its trace."""
    sch, told = scheduled(recipe)
    origin, now = sch.origin["main"], sch.mod["main"]
    arrays = arrays_of(origin)
    want = run(origin, arrays)
    ways = {"in block form": (plan_buffer_allocation(now), {"check_regions": True})}
    if compiled:
        ways["lowered"] = (tvm.lower(sch.mod)["main"], {})
        ways["compiled"] = (tvm.build(sch.mod, target="llvm"), {})
    for how, (program, options) in ways.items():
        for a, b in zip(want, run(program, arrays, **options), strict=True):
            if not np.array_equal(a, b):  # the message takes longer than the comparison
                np.testing.assert_array_equal(a, b, err_msg=f"{how}\n{recipe}\n{told}\n{sch.trace}\n{now}")
    assert sch.verify()
    again = Schedule(sch.origin)
    sch.trace.apply_to_schedule(again)
    assert structural_equal(again.mod, sch.mod)
    return sch


@settings(max_examples=EXAMPLES, **COMMON)
@given(recipes())
def test_schedules_for_processors(recipe: Recipe) -> None:
    check(recipe)


@settings(max_examples=EXAMPLES // 2, **COMMON)
@given(recipes(gpu=True))
def test_schedules_for_gpus(recipe: Recipe) -> None:
    check(recipe, compiled=False)


@pytest.mark.parametrize("seed", range(25))
def test_schedules_by_number(seed: int) -> None:
    check(recipe_of(seed))
    check(recipe_of(seed, gpu=True), compiled=False)


def test_most_primitives_are_taken_and_refused() -> None:
    """The recipes are worth something only if many steps are done; and the refusals are part of the test."""
    done: dict[str, int] = {}
    refused = 0
    for seed in range(40):
        for gpu in (False, True):
            _, told = scheduled(recipe_of(seed, gpu))
            for line in told:
                word, _, end = line.partition(": ")
                done[word] = done.get(word, 0) + (end == "done")
                refused += end != "done"
    seldom = {"cache_inplace", "merge", "rolling_buffer"}  # they need programs of a certain form
    assert all(n for word, n in done.items() if word not in seldom), done
    assert sum(done.values()) > 600
    assert refused > 100
