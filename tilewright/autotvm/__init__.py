"""Tuning by templates: a function schedules a program and declares knobs, whose values measurement decides.

The engine is `tilewright.tune`: building and running in processes, checks of every result, cost models.
See docs/tuning.md.
"""

from . import database, env, feature, graph_tuner, measure, record, task, tophub, tuner, utils
from .env import GLOBAL_SCOPE
from .graph_tuner import apply_graph_best
from .measure import (
    LocalBuilder,
    LocalRunner,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    RPCRunner,
    measure_option,
)
from .task import (
    ApplyConfig,
    ApplyFixedConfig,
    ApplyGraphBest,
    ApplyHistoryBest,
    ConfigEntity,
    ConfigSpace,
    DispatchContext,
    FallbackContext,
    apply_history_best,
    create,
    get_config,
    register_topi_compute,
    register_topi_schedule,
    template,
)
from .tuner import callback

__all__ = [
    "GLOBAL_SCOPE",
    "ApplyConfig",
    "ApplyFixedConfig",
    "ApplyGraphBest",
    "ApplyHistoryBest",
    "ConfigEntity",
    "ConfigSpace",
    "DispatchContext",
    "FallbackContext",
    "LocalBuilder",
    "LocalRunner",
    "MeasureErrorNo",
    "MeasureInput",
    "MeasureResult",
    "RPCRunner",
    "apply_graph_best",
    "apply_history_best",
    "callback",
    "create",
    "database",
    "env",
    "feature",
    "get_config",
    "graph_tuner",
    "measure",
    "measure_option",
    "record",
    "register_topi_compute",
    "register_topi_schedule",
    "task",
    "template",
    "tophub",
    "tuner",
    "utils",
]
