"""Templates, their tasks and spaces of configurations, and the contexts that choose a configuration."""

from ...tune.arguments import deserialize_args, serialize_args
from . import args, dispatcher, relay_integration, space, task, topi_integration
from .args import args_to_workload
from .dispatcher import (
    ApplyConfig,
    ApplyFixedConfig,
    ApplyGraphBest,
    ApplyHistoryBest,
    DispatchContext,
    FallbackContext,
    apply_history_best,
    clear_fallback_cache,
)
from .flop import compute_flop
from .relay_integration import extract_from_multiple_program, extract_from_program
from .space import ConfigEntity, ConfigSpace, FallbackConfigEntity, InstantiationError
from .task import Task, TaskTemplate, create, get_config, template
from .topi_integration import TaskExtractEnv, get_workload, register_topi_compute, register_topi_schedule

__all__ = [
    "ApplyConfig",
    "ApplyFixedConfig",
    "ApplyGraphBest",
    "ApplyHistoryBest",
    "ConfigEntity",
    "ConfigSpace",
    "DispatchContext",
    "FallbackConfigEntity",
    "FallbackContext",
    "InstantiationError",
    "Task",
    "TaskExtractEnv",
    "TaskTemplate",
    "apply_history_best",
    "args",
    "args_to_workload",
    "clear_fallback_cache",
    "compute_flop",
    "create",
    "deserialize_args",
    "dispatcher",
    "extract_from_multiple_program",
    "extract_from_program",
    "get_config",
    "get_workload",
    "register_topi_compute",
    "register_topi_schedule",
    "relay_integration",
    "serialize_args",
    "space",
    "task",
    "template",
    "topi_integration",
]
