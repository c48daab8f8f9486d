"""The share of long tables that `make test` takes: some of each table, the same by the same seed, all in time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sampling


class Case:
    def __init__(self, nodeid: str, *marks: pytest.Mark) -> None:
        self.nodeid, self.path, self.marks = nodeid, Path(nodeid.partition("::")[0]), marks

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((mark for mark in self.marks if mark.name == name), None)

    def __repr__(self) -> str:
        return self.nodeid


def table(name: str, count: int, *marks: pytest.MarkDecorator) -> list[Any]:
    return [Case(f"{name}[{i}]", *(m.mark for m in marks)) for i in range(count)]


LONG = table("tests/topi/test_a.py::test_long", 40)
MIDDLE = table("tests/relay/test_b.py::test_middle", 6)
MODELS = table("tests/relay/test_b.py::test_models", 9, pytest.mark.sample(1))
ASKED = table("tests/arith/test_c.py::test_of_seconds", 9, pytest.mark.sample(1))  # in any room
WHOLE = [
    *table("tests/topi/test_a.py::test_short", sampling.SHORT),
    *table("tests/arith/test_c.py::test_of_milliseconds", 40),
    *table("tests/topi/test_a.py::test_heavy", 40, pytest.mark.heavy),
    Case("tests/topi/test_a.py::test_alone"),
]


def test_long_tables_alone_are_shortened() -> None:
    every = [*LONG, *MIDDLE, *MODELS, *ASKED, *WHOLE]
    taken: Any = sampling.sampled(every, seed=7)
    assert [c for c in taken if c in WHOLE] == WHOLE
    assert len([c for c in taken if c in LONG]) == len(LONG) // sampling.SHARE
    assert len([c for c in taken if c in MIDDLE]) == sampling.LEAST
    assert len([c for c in taken if c in MODELS]) == len([c for c in taken if c in ASKED]) == 1
    assert taken == [c for c in every if c in taken]  # in their order


def test_a_seed_says_which_and_all_come_in_time() -> None:
    every: list[Any] = [*LONG, *MIDDLE, *MODELS]
    shares: list[Any] = [sampling.sampled(every, seed) for seed in range(60)]
    assert shares[5] == sampling.sampled(every, 5)
    assert {c for share in shares for c in share} == set(every)
    twins: list[Any] = sampling.sampled(LONG + table("tests/topi/test_a.py::test_twin", 40), 3)
    first, second = ([str(c)[len(name) :] for c in twins if str(c).startswith(name)]
                     for name in ("tests/topi/test_a.py::test_long", "tests/topi/test_a.py::test_twin"))  # fmt: skip
    assert first != second


def test_one_case_leads_each_table() -> None:
    left: list[Any] = []
    config: Any = SimpleNamespace(
        stash=pytest.Stash(),
        option=SimpleNamespace(sample_seed=7),
        hook=SimpleNamespace(pytest_deselected=lambda items: left.extend(items)),
    )
    every: list[Any] = [*LONG, *MIDDLE, *MODELS, *WHOLE]
    for case in every:
        case.config = config
    assert all(map(sampling.leads, every))  # of a whole run each does
    taken = [*every]
    sampling.take(config, taken)
    assert taken == sampling.sampled(every, 7) and sorted(map(str, [*taken, *left])) == sorted(
        map(str, every)
    )
    first = {str(case).partition("[")[0]: case for case in reversed(taken)}
    assert [case for case in taken if sampling.leads(case)] == [*reversed(first.values())]


def collected(*options: str) -> list[str]:
    """What pytest would run of a file with long tables, and the last line that speaks of the seed."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [*command, "tests/runtime/test_json_reader.py", *options],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return [line for line in ran.stdout.splitlines() if "::" in line or "--sample-seed" in line]


@pytest.mark.slow
def test_the_seed_is_printed_and_can_be_given() -> None:
    *some, told = collected("--sample")
    seed = told.partition("--sample-seed ")[2].split()[0]
    assert collected("--sample-seed", seed) == [*some, told]
    assert len(collected()) > len(some)
