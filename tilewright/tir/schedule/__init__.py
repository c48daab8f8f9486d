"""Schedules over loop programs: one file for each family of primitives."""

from ...ir.errors import ScheduleError
from .index_map import IndexMap
from .primitive import BlockRV, LoopRV
from .schedule import Schedule, StmtSRef
from .state import ScheduleDebugMask, ScheduleState
from .trace import Instruction, Trace

__all__ = [
    "BlockRV",
    "IndexMap",
    "Instruction",
    "LoopRV",
    "Schedule",
    "ScheduleDebugMask",
    "ScheduleError",
    "ScheduleState",
    "StmtSRef",
    "Trace",
]
