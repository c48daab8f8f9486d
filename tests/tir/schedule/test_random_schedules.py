"""Random schedules of random programs: each step refuses or is done, and the result means the same.

`TILEWRIGHT_EXAMPLES=5000 pytest tests/tir/schedule/test_random_schedules.py` runs more of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from how_many import examples
from hypothesis import HealthCheck, given, settings
from random_schedules import Recipe, arrays_of, recipe_of, recipes, scheduled

import tilewright as tvm
from tilewright import tir
from tilewright.ir.equal import structural_equal
from tilewright.tir.schedule import Schedule
from tilewright.tir.transform.plan_allocations import plan_buffer_allocation

EXAMPLES = examples(60)
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


@pytest.mark.slow
@settings(max_examples=EXAMPLES, **COMMON)
@given(recipes())
def test_schedules_for_processors(recipe: Recipe) -> None:
    check(recipe)


@settings(max_examples=max(1, EXAMPLES // 2), **COMMON)
@given(recipes(gpu=True))
def test_schedules_for_gpus(recipe: Recipe) -> None:
    check(recipe, compiled=False)


@pytest.mark.parametrize("seed", range(25))
def test_schedules_by_number(seed: int) -> None:
    check(recipe_of(seed))
    check(recipe_of(seed, gpu=True), compiled=False)


@pytest.mark.slow
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


# What random schedules once broke, made small.
BROKEN = {
    "a copy of a part is moved to a loop that runs too far": Recipe(
        stages=(
            ("pad", (723, 250, 580, 1248, 35)),
            ("matmul", (288, 0, 582, 0, 102)),
            ("stride", (106, 3235, 150, 598, 171)),
            ("matmul", (228, 11, 3630, 289, 397)),
        ),
        steps=(
            ("cache_read", (2845, 135, 72, 43, 978)),
            ("cache_read", (228, 11, 3630, 289, 397)),
            ("cache_write", (1258, 439, 1995, 560, 1230)),
            ("split", (844, 2074, 1824, 110, 183)),
            ("fuse", (2969, 65, 89, 2588, 200)),
            ("compute_at", (2059, 127, 364, 1613, 2615)),
        ),
        dtype="float32",
    ),
    "a tile of a parallel loop under others that cut it off": Recipe(
        stages=(("reshape", (1052, 191, 433, 959, 2627)), ("guard", (275, 361, 3582, 530, 1229))),
        steps=(
            ("split", (195, 142, 173, 4018, 1099)),
            ("split", (264, 2671, 68, 280, 71)),
            ("split", (7, 858, 174, 2842, 1280)),
            ("cache_read", (340, 1422, 386, 197, 658)),
            ("compute_at", (715, 813, 874, 259, 275)),
            ("parallel", (580, 117, 840, 477, 200)),
            ("cache_read", (173, 1004, 799, 145, 664)),
        ),
        dtype="float32",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_was_broken_once(name: str) -> None:
    check(BROKEN[name])
