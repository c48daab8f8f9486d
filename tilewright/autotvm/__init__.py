"""Tuning by templates. It is not there yet: its names can be imported, and say so when they are used."""

from .._later import announce

__getattr__ = announce(
    __name__,
    "the tuner is not there yet; schedule by hand with te.create_schedule or tir.Schedule",
    [
        "callback",
        "database",
        "env",
        "feature",
        "graph_tuner",
        "measure",
        "measure.measure_methods",
        "record",
        "task",
        "task.space",
        "task.task",
        "tophub",
        "tuner",
        "utils",
    ],
)
