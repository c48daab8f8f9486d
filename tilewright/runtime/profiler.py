"""Profiles of compiled models, whatever runs them: `profile_model(executor, {"data": image})`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .arguments import in_order
from .executor import Executor
from .graph_module import GraphModule
from .profiler_vm import VirtualMachineProfiler
from .profiling import Profile
from .vm import Executable, VirtualMachine

ROUNDS = 5


def profile_model(
    executor: Any,
    inputs: Mapping[str, Any] | None = None,
    repeat: int = ROUNDS,
    number: int = 1,
    func_name: str = "main",
) -> Profile:
    """The time and the work of each kernel in a run of a model, the median of `repeat` rounds.

    `executor` is a GraphModule, the executor inside of it, a VirtualMachine or its executable; `inputs` are by name,
    and those that were set before if there are none. Kernels that run for less than the clock resolves are measured
    with a larger `number` of calls in a row, on the graph executor.
    """
    given = dict(inputs or {})
    inner = executor.module if isinstance(executor, GraphModule) else executor
    if isinstance(inner, Executor):
        for name, value in given.items():
            inner.set_input(name, value)
        return inner.profile(repeat, number)
    if isinstance(inner, (VirtualMachine, Executable)):
        machine = VirtualMachineProfiler.like(inner)
        values = in_order(func_name, machine.exe.get_function_params(func_name), (), given) if given else ()
        return machine.profile(*values, func_name=func_name, number=max(1, repeat) * max(1, number))
    if getattr(inner, "is_remote", False):
        raise TypeError("profile_model: the model is on a remote machine; call profile_model on that machine")
    raise TypeError(
        f"profile_model takes a GraphModule, an executor, or a VirtualMachine, not {type(executor).__name__}"
    )
