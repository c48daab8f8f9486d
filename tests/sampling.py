"""A share of long tables of cases, for `make test`: another share in each run, by a seed that the run prints.

`pytest --sample` takes a share, `pytest --sample-seed 123` the share that a run with this seed took; without them, and in
`make test-all`, all cases run. Every table keeps some cases in every run, and a short one all of them. All cases are
known to pass: the seed decides which are looked at again, and no run makes cases that nobody has seen. A table whose
cases take seconds each, such as one of models, says `@pytest.mark.sample(1)`: one case is enough for a run.

The first case of each table that a sampled run takes leads it (`leads`). Checks that need not be made in every case, such
as plain loops beside scheduled ones and LLVM's optimizations, are made in that one.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from typing import Any

import pytest

SEEDS = 100_000
# Rooms whose cases compile a program or a model each, or walk a large one. In the others a case takes milliseconds,
# unless its table says `sample(count)`.
ROOMS = frozenset({
    "accelerator", "analysis", "auto_scheduler", "autotvm", "backends", "codegen", "compiler", "ir", "model", "package",
    "relay", "rules", "runtime", "schedule", "seeds", "te", "tir", "topi", "transform", "tune", "tvmc", "vta",
})  # fmt: skip
SHORT = 3  # cases of a table of which all are taken, unless it says `sample(fewer)`
LEAST = 1  # cases of a longer table that are taken at least
SHARE = 10  # one of so many cases of a longer table is taken

_LEADERS = pytest.StashKey[frozenset[str]]()  # of the tables of a sampled run


def add_options(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sample", action="store_true", help="a share of the long tables, by a seed that is printed"
    )
    parser.addoption(
        "--sample-seed",
        type=int,
        metavar="SEED",
        help="the share of the tables that a run with this seed took",
    )


def configure(config: pytest.Config) -> None:
    """Choose a seed, once for all workers."""
    given = getattr(config, "workerinput", {}).get("sample_seed")
    if given is not None:
        config.option.sample_seed = given
    elif config.option.sample and config.option.sample_seed is None:
        config.option.sample_seed = random.SystemRandom().randrange(SEEDS)


def tell_worker(node: Any) -> None:
    node.workerinput["sample_seed"] = node.config.option.sample_seed


def sampled(items: Sequence[pytest.Item], seed: int) -> list[pytest.Item]:
    """The items without those of long tables that are not in the share of this seed."""
    tables: dict[str, list[pytest.Item]] = {}
    for item in items:
        name, _, case = item.nodeid.partition("[")
        takes_long = item.path.parent.name in ROOMS or item.get_closest_marker("sample") is not None
        if case and takes_long and item.get_closest_marker("heavy") is None:
            tables.setdefault(name, []).append(item)
    left: set[pytest.Item] = set()
    for name, cases in tables.items():
        asked = cases[0].get_closest_marker("sample")
        least = SHORT if len(cases) <= SHORT else LEAST
        taken = asked.args[0] if asked else max(least, -(-len(cases) // SHARE))
        # by its name too: else all tables of one length would take the same places
        order = random.Random(zlib.crc32(f"{seed} {name}".encode()))
        left.update(order.sample(cases, max(0, len(cases) - taken)))
    return [item for item in items if item not in left]


def take(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the share of the seed, and note which case leads each table."""
    taken = sampled(items, config.option.sample_seed)
    held = set(taken)
    config.hook.pytest_deselected(items=[item for item in items if item not in held])
    items[:] = taken
    first: dict[str, str] = {}
    for item in taken:
        first.setdefault(item.nodeid.partition("[")[0], item.nodeid)
    config.stash[_LEADERS] = frozenset(first.values())


def leads(item: pytest.Item) -> bool:
    """Whether a test is the first case of its table in a sampled run; true of a test alone, and in a whole run."""
    leaders = item.config.stash.get(_LEADERS, None)
    return leaders is None or item.nodeid in leaders


def told(config: pytest.Config) -> str:
    return (
        f"a share of the long tables was taken: --sample-seed {config.option.sample_seed} takes the same again, "
        "make test-all takes all"
    )
