"""MetaSchedule has no place of its own: its names can be imported, and a call says what does its job here."""

from ._later import announce

__getattr__ = announce(
    __name__,
    "there is one search, and it is not to be had under this name yet; tune a program with auto_scheduler.SearchTask, "
    "a model with auto_scheduler.extract_tasks or tvmc.tune, and tilewright.auto_schedule needs no trials at all",
    [
        "builder",
        "cost_model",
        "database",
        "relay_integration",
        "runner",
        "schedule_rule",
        "search_strategy",
        "space_generator",
        "testing",
        "tir_integration",
        "tune_context",
    ],
)
