"""Every row of every rule for GPUs computes what the program says: some rows, drawn anew in each long run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_rule_programs import PROGRAMS, forced
from how_many import examples

from tilewright.tune.space import Sketches
from tilewright.tune.workload import task_of

# The interpreter takes seconds for a kernel of hundreds of threads.
_LONG = (
    "wgmma", "mma", "SIMT with TMA", "SIMT", "dp4a", "im2col wgmma", "im2col lines wgmma", "im2col mma", "im2col dp4a",
    "im2col SIMT with TMA", "im2col SIMT", "attention", "attention apart",
)  # fmt: skip


def _params() -> list[Any]:
    return [pytest.param(n, marks=pytest.mark.slow) if n in _LONG else n for n in PROGRAMS]


@pytest.mark.parametrize("name", _params())
def test_rows_mean_the_same(name: str) -> None:
    plan = forced(name)
    sketches = Sketches(task_of(*PROGRAMS[name]))
    decisions = [{"stage": c.stage.name, "rule": c.winner.rule.name, **c.row.values} for c in plan.choices]
    table = plan.choices[0].winner.table.whole()
    count = min(len(table), examples(1 if name in _LONG else 3))
    for row in np.random.default_rng(len(name)).choice(len(table), count, replace=False):
        first = {**decisions[0], **table.values(int(row))}
        assert sketches.apply([first, *decisions[1:]]).verify(), first
