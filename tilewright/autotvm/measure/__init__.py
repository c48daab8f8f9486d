"""Measurement of configurations: inputs, results, builders and runners."""

from ...tune.measure.error_numbers import MeasureErrorNo
from . import measure, measure_methods
from .measure import (
    Builder,
    BuildResult,
    MeasureInput,
    MeasureResult,
    Runner,
    create_measure_batch,
    measure_option,
)
from .measure_methods import LocalBuilder, LocalRunner, RPCRunner, check_remote, request_remote

__all__ = [
    "BuildResult",
    "Builder",
    "LocalBuilder",
    "LocalRunner",
    "MeasureErrorNo",
    "MeasureInput",
    "MeasureResult",
    "RPCRunner",
    "Runner",
    "check_remote",
    "create_measure_batch",
    "measure",
    "measure_methods",
    "measure_option",
    "request_remote",
]
