"""A cost model trained on a database: measurements of some programs help to predict others."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import TuneError
from ..measure.machines import fingerprint
from ..records.database import Database
from ..rules.features import layout
from ..space import Sketches
from ..workload import Task
from .cost_models import TreeModel

Array = Any
_FEWEST = 8  # the fewest measurements of a task that are used
_CLOSE = 3.0  # a candidate that takes twice as long as the best has 1 / 2³ of its weight
# Several trees in each round, and more randomness than online, so that the model generalizes to other programs.
_SETTINGS = {
    "num_parallel_tree": 6, "eta": 0.3, "min_child_weight": 3, "subsample": 0.6, "colsample_bynode": 0.3,
}  # fmt: skip


@dataclass(frozen=True)
class Samples:
    """The measurements of a task: features and seconds, a row for each candidate."""

    task: Task
    features: Array
    seconds: Array


def samples_of(database: Database, wanted: Callable[[Task], bool] = lambda task: True) -> list[Samples]:
    """The measurements on this machine, of each wanted task that has enough of them.

    Failures are left out, and records whose decisions the present sketches do not know.
    """
    out = []
    here = fingerprint()
    for line in database.tasks():
        if line["machine"] != here:
            continue
        task = database.task(line["workload"], line["target"])
        if not wanted(task):
            continue
        space = Sketches(task).space
        rows, seconds = [], []
        for record in database.records(line["workload"], line["target"], here):
            found = space.rows(record.decisions) if record.origin == "trial" and record.ok else None
            if found is not None:
                rows.append(found)
                seconds.append(record.score)
        if len(rows) >= _FEWEST and space.stages:
            out.append(Samples(task, space.features(np.stack(rows)), np.array(seconds)))
    return out


def train_trees(samples: Sequence[Samples], rounds: int = 30, trust: float = 1.0, seed: int = 0) -> TreeModel:
    """Trees over all samples; `trust` is the fraction of the errors that is learned.

    The mean error of the analytical model for a task says nothing about its candidates, and is subtracted. To rank the
    good candidates matters more than to know how bad the others are: those weigh less.
    """
    model = TreeModel(seed, rounds=rounds, settings=_SETTINGS)
    weights = [(s.seconds.min() / s.seconds) ** _CLOSE for s in samples]
    level = []
    for s, weight in zip(samples, weights, strict=True):
        off = np.log(s.seconds) - s.features[:, 0]
        level.append(np.exp(s.features[:, 0] + trust * (off - np.average(off, weights=weight))))
    features = np.concatenate([s.features for s in samples])
    model.update(features, np.concatenate(level), np.concatenate(weights))
    return model


def train_model(database: Database, path: str | os.PathLike[str], rounds: int = 60) -> TreeModel:
    """Train trees on all tasks of a database, and write them to a file for `cost_model(path)`."""
    samples = samples_of(database)
    if not samples:
        raise TuneError(
            f"{database.path}: no task has {_FEWEST} measurements of this machine, so there is nothing to learn from"
        )
    model = train_trees(samples, rounds)
    model.save(os.fspath(path))
    return model


def describe_model(path: Path, samples: Sequence[Samples], machine: str) -> None:
    """Enter a model into the index beside it, with the targets that it was trained on and thus serves."""
    index = path.parent / "index.json"
    known = json.loads(index.read_text()) if index.exists() else {}
    near = sorted({(s.task.target.cpu.arch, s.task.target.cpu.preferred_vector_bits) for s in samples})
    known[path.name] = {
        "near": [list(n) for n in near],
        "layout": layout(),
        "programs": len(samples),
        "records": sum(len(s.seconds) for s in samples),
        "measured on": machine,
    }
    index.write_text(json.dumps(known, indent=1) + "\n")
