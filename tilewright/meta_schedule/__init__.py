"""MetaSchedule: the search of `tune/` under the names of TVM's third tuner.

database = ms.tune_tir(mod, "llvm -num-cores=4", work_dir="logs", max_trials_global=64)
sch = ms.tir_integration.compile_tir(database, mod, "llvm -num-cores=4")

There is one search and one form of records for all three tuners: what is tuned here is found by `relay.build` in
`with database:`, and by `auto_scheduler` too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..absent import attributes
from ..homes import lazily

if TYPE_CHECKING:
    from .builder import Builder
    from .cost_model import CostModel
    from .database import Database
    from .extracted_task import ExtractedTask
    from .measure_callback import MeasureCallback
    from .postproc import Postproc
    from .profiler import Profiler
    from .relay_integration import is_meta_schedule_enabled
    from .runner import Runner
    from .schedule_rule import Mutator, ScheduleRule
    from .search_strategy import MeasureCandidate, SearchStrategy
    from .space_generator import SpaceGenerator
    from .task_scheduler import TaskScheduler
    from .tir_integration import tune_tir
    from .tune import tune_tasks
    from .tune_context import TuneContext
    from .utils import derived_object

__all__ = [
    "Builder", "CostModel", "Database", "ExtractedTask", "MeasureCallback", "MeasureCandidate", "Mutator", "Postproc",
    "Profiler", "Runner", "ScheduleRule", "SearchStrategy", "SpaceGenerator", "TaskScheduler", "TuneContext",
    "derived_object", "is_meta_schedule_enabled", "tune_tasks", "tune_tir",
]  # fmt: skip

__getattr__ = lazily(
    __name__,
    {
        "builder": "Builder",
        "cost_model": "CostModel",
        "database": "Database",
        "extracted_task": "ExtractedTask",
        "measure_callback": "MeasureCallback",
        "postproc": "Postproc",
        "profiler": "Profiler",
        "relay_integration": "is_meta_schedule_enabled",
        "runner": "Runner",
        "schedule_rule": "Mutator ScheduleRule",
        "search_strategy": "MeasureCandidate SearchStrategy",
        "space_generator": "SpaceGenerator",
        "task_scheduler": "TaskScheduler",
        "tir_integration": "tune_tir",
        "tune": "tune_tasks",
        "tune_context": "TuneContext",
        "utils": "derived_object",
    },
    "arg_info builder cost_model database extracted_task measure_callback mutator=schedule_rule postproc profiler "
    "relay_integration runner schedule_rule search_strategy space_generator task_scheduler tir_integration "
    "testing tune tune_context utils",
    attributes(__name__),
)
