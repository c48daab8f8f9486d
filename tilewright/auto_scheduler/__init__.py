"""The automatic scheduler. It is not there yet: its names can be imported, and say so when they are used."""

from .._later import announce

__getattr__ = announce(
    __name__,
    "the automatic scheduler is not there yet; schedule by hand with te.create_schedule or tir.Schedule",
    [
        "_ffi_api",
        "compute_dag",
        "cost_model",
        "feature",
        "loop_state",
        "measure",
        "measure_record",
        "relay_integration",
        "search_policy",
        "search_task",
        "task_scheduler",
        "testing",
        "utils",
        "workload_registry",
    ],
)
