"""Inputs and results of measurements, and the interfaces of builders and runners."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...ir.errors import TVMError
from ...tune.measure.error_numbers import MeasureErrorNo


class MeasureInput(NamedTuple):
    """A configuration of a task, for a target."""

    target: Any
    task: Any
    config: Any


class MeasureResult(NamedTuple):
    """The result of a measurement: the times of samples in seconds, or the error.

    `costs` are the faster half of the samples: the slower half was disturbed by other work of the machine. `all_cost`
    is the time that building and measuring took.
    """

    costs: Sequence[Any]
    error_no: int
    all_cost: float
    timestamp: float

    def __repr__(self) -> str:
        error = MeasureErrorNo(self.error_no).name if self.error_no else 0
        return (
            f"MeasureResult(costs={tuple(self.costs)}, error_no={error}, all_cost={self.all_cost}, "
            f"timestamp={self.timestamp})"
        )


class BuildResult(NamedTuple):
    """The result of a builder: `candidate` is the input of the engine. A builder of a user gives `filename`, a library,
    instead."""

    filename: str | None
    arg_info: Any
    error: BaseException | None
    time_cost: float
    candidate: Any = None


class Builder:
    """Builds programs from configurations."""

    def __init__(self, timeout: float = 10, n_parallel: int | None = None) -> None:
        self.timeout = timeout
        self.n_parallel = n_parallel
        self.task: Any = None
        self.build_kwargs: Mapping[str, Any] = {}

    def set_task(self, task: Any, build_kwargs: Mapping[str, Any] | None = None) -> None:
        """Set the task whose configurations are built."""
        self.task, self.build_kwargs = task, dict(build_kwargs or {})

    def build(self, measure_inputs: Sequence[MeasureInput]) -> list[Any]:
        """A BuildResult for each input, or a MeasureResult for a failed build."""
        raise NotImplementedError


class Runner:
    """Runs the results of a builder."""

    def __init__(self, timeout: float = 5, n_parallel: int | None = None) -> None:
        self.timeout = timeout
        self.n_parallel = n_parallel
        self.task: Any = None

    def set_task(self, task: Any) -> None:
        """Set the task whose configurations are run."""
        self.task = task

    def get_build_kwargs(self) -> dict[str, Any]:
        """Options for the builder that depend on the device."""
        return {}

    def run(self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[Any]) -> list[Any]:
        """A MeasureResult for each input."""
        raise NotImplementedError


def measure_option(builder: Any, runner: Any) -> dict[str, Any]:
    """The options of a measurement: a builder and a runner, or "local" for the default ones."""
    from .measure_methods import LocalBuilder, LocalRunner  # which derive from the classes above

    if isinstance(builder, str):
        if builder != "local":
            raise ValueError(f"there is no builder {builder!r}; use 'local' or autotvm.LocalBuilder(…)")
        builder = LocalBuilder()
    if isinstance(runner, str):
        if runner != "local":
            raise ValueError(f"there is no runner {runner!r}; use 'local' or autotvm.LocalRunner(…)")
        runner = LocalRunner()
    return {"builder": builder, "runner": runner}


def create_measure_batch(task: Any, option: Mapping[str, Any]) -> Callable[..., list[MeasureResult]]:
    """A function that measures a list of inputs; its attribute `n_parallel` is a good size of a batch."""
    builder, runner = option["builder"], option["runner"]
    if not callable(getattr(builder, "build", None)) or not callable(getattr(runner, "run", None)):
        raise TVMError(
            "measure_option takes a builder and a runner: "
            "autotvm.measure_option(builder=autotvm.LocalBuilder(), runner=autotvm.LocalRunner())"
        )
    attach = getattr(runner, "attach", None)
    if attach is not None:
        attach(builder)
    runner.set_task(task)
    builder.set_task(task, runner.get_build_kwargs())

    def measure_batch(measure_inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        built = builder.build(measure_inputs)
        return list(runner.run(measure_inputs, built))

    measure_batch.n_parallel = builder.n_parallel  # type: ignore[attr-defined]
    measure_batch.builder, measure_batch.runner = builder, runner  # type: ignore[attr-defined]
    return measure_batch
