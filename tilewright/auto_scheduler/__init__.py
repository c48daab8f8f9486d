"""The automatic scheduler: tasks, tuning, records, and their use in `tvm.build` and `relay.build`.

    task = SearchTask(func=matmul, args=(512, 512, 512), target="llvm")
    task.tune(TuningOptions(num_measure_trials=64, measure_callbacks=[RecordToFile("matmul.json")]))
    sch, args = task.apply_best("matmul.json")

It is a facade: search, measurement and records are in `tilewright.tune`.
"""

from ..tune.measure.error_numbers import MeasureErrorNo
from . import (
    _ffi_api,
    compute_dag,
    cost_model,
    dispatcher,
    feature,
    loop_state,
    measure,
    measure_record,
    relay_integration,
    search_policy,
    search_task,
    task_scheduler,
    utils,
    workload_registry,
)
from .compute_dag import ComputeDAG, LayoutRewriteOption, get_shape_from_rewritten_layout
from .cost_model import PythonBasedModel, RandomModel, XGBModel
from .dispatcher import ApplyHistoryBest, ApplyHistoryBestOrSample, DispatchContext
from .measure import (
    LocalBuilder,
    LocalRPCMeasureContext,
    LocalRunner,
    MeasureInput,
    MeasureResult,
    PythonBasedMeasureCallback,
    RPCRunner,
    recover_measure_input,
    register_task_input_buffer,
    register_task_input_check_func,
)
from .measure_record import RecordReader, RecordToFile, load_best_record, load_records, save_records
from .relay_integration import extract_tasks, is_auto_scheduler_enabled
from .search_policy import EmptyPolicy, PreloadCustomSketchRule, PreloadMeasuredStates, SketchPolicy
from .search_task import HardwareParams, SearchTask, TuningOptions, auto_schedule, create_task
from .task_scheduler import LogEstimatedLatency, PrintTableInfo, TaskScheduler, TaskSchedulerCallback
from .workload_registry import make_workload_key, register_workload, register_workload_tensors

__all__ = [
    "ApplyHistoryBest",
    "ApplyHistoryBestOrSample",
    "ComputeDAG",
    "DispatchContext",
    "EmptyPolicy",
    "HardwareParams",
    "LayoutRewriteOption",
    "LocalBuilder",
    "LocalRPCMeasureContext",
    "LocalRunner",
    "LogEstimatedLatency",
    "MeasureErrorNo",
    "MeasureInput",
    "MeasureResult",
    "PreloadCustomSketchRule",
    "PreloadMeasuredStates",
    "PrintTableInfo",
    "PythonBasedMeasureCallback",
    "PythonBasedModel",
    "RPCRunner",
    "RandomModel",
    "RecordReader",
    "RecordToFile",
    "SearchTask",
    "SketchPolicy",
    "TaskScheduler",
    "TaskSchedulerCallback",
    "TuningOptions",
    "XGBModel",
    "_ffi_api",
    "auto_schedule",
    "compute_dag",
    "cost_model",
    "create_task",
    "dispatcher",
    "extract_tasks",
    "feature",
    "get_shape_from_rewritten_layout",
    "is_auto_scheduler_enabled",
    "load_best_record",
    "load_records",
    "loop_state",
    "make_workload_key",
    "measure",
    "measure_record",
    "recover_measure_input",
    "register_task_input_buffer",
    "register_task_input_check_func",
    "register_workload",
    "register_workload_tensors",
    "relay_integration",
    "save_records",
    "search_policy",
    "search_task",
    "task_scheduler",
    "utils",
    "workload_registry",
]
