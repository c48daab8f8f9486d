"""Small helpers that classic programs import with MetaSchedule."""

from __future__ import annotations

import os
from typing import Any, TypeVar

import numpy as np

from ..ir.equal import structural_hash
from ..ir.module import IRModule
from ..target.host import host_cores
from .builder import PyBuilder
from .cost_model import PyCostModel
from .database import PyDatabase
from .measure_callback import PyMeasureCallback
from .postproc import PyPostproc
from .runner import PyRunner
from .schedule_rule import PyMutator, PyScheduleRule
from .search_strategy import PySearchStrategy
from .space_generator import PySpaceGenerator
from .task_scheduler import PyTaskScheduler

_C = TypeVar("_C", bound=type)
_BASES = (
    PyBuilder, PyCostModel, PyDatabase, PyMeasureCallback, PyMutator, PyPostproc, PyRunner, PyScheduleRule,
    PySearchStrategy, PySpaceGenerator, PyTaskScheduler,
)  # fmt: skip


def derived_object(cls: _C) -> _C:
    """A decorator of classes derived from PyRunner and its like. They are taken as they are; `_cls` is the class."""
    if not issubclass(cls, _BASES):
        names = ", ".join(base.__name__ for base in _BASES)
        raise TypeError(f"derived_object: {cls.__name__} is derived from none of {names}")
    made: Any = cls
    made._cls = cls
    return cls


def cpu_count(logical: bool = True) -> int:
    """The cores of this machine; with `logical=False` those that this process may use."""
    return (os.cpu_count() or 1) if logical else host_cores()


def fork_seed(seed: int | None, n: int) -> list[int]:
    """Seeds for n tasks, of one seed."""
    return [int(s) for s in np.random.default_rng(seed).integers(1, 1 << 30, size=n)]


def shash2hex(mod: IRModule) -> str:
    """The structural hash of a module in hexadecimal digits."""
    return f"{structural_hash(mod) & (1 << 64) - 1:x}"
