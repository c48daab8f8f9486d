"""A cost model from a database: what was measured of some programs tells something about others."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from .cost_models import TreeModel
from .errors import TuneError
from .machines import fingerprint
from .records import Database
from .space import Sketches

__all__ = ["samples_of", "train_model"]

_FEWEST = 8  # measurements of a task that say something about it


def samples_of(database: Database) -> list[tuple[Any, Any]]:
    """Features and seconds of what was measured on this machine, one pair of arrays for each task.

    Records whose decisions the sketches of today do not know are left out.
    """
    out = []
    here = fingerprint()
    for line in database.tasks():
        if line["machine"] != here:
            continue
        task = database.task(line["workload"], line["target"])
        space = Sketches(task).space
        rows, seconds = [], []
        for record in database.records(task, machine=here):
            found = space.rows(record.decisions) if record.origin == "trial" and record.ok else None
            if found is not None:
                rows.append(found)
                seconds.append(record.time)
        if len(rows) >= _FEWEST and space.stages:
            out.append((space.features(np.stack(rows)), np.array(seconds)))
    return out


def train_model(database: Database, path: str | os.PathLike[str], rounds: int = 300) -> TreeModel:
    """Grow trees over all tasks of a database, and write them to a file that `cost_model(path)` begins with.

    How far the analytical model is off for a task as a whole says nothing about its candidates; it is taken out.
    """
    samples = samples_of(database)
    if not samples:
        raise TuneError(
            f"{database.path}: no task has {_FEWEST} measurements of this machine, so there is nothing to learn from"
        )
    model = TreeModel(rounds=rounds)
    level = [seconds / np.exp(np.median(np.log(seconds) - x[:, 0])) for x, seconds in samples]
    model.update(np.concatenate([x for x, _ in samples]), np.concatenate(level))
    model.save(os.fspath(path))
    return model
