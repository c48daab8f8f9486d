"""Workloads: the keys of templates with their arguments, and of programs of the graph compiler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...tune.arguments import serialize_args

_SKETCH = "SKETCH"


def args_to_workload(args: Sequence[Any], task_name: str | None = None) -> tuple[Any, ...]:
    """The key of a template and its arguments."""
    plain = serialize_args(args)
    return plain if task_name is None else (task_name, *plain)


def sketch_args(key: str) -> tuple[Any, ...]:
    """The arguments of a task for a program of the graph compiler: the key of the program."""
    return ((_SKETCH, key),)


def sketch_key(workload: Sequence[Any] | None) -> str | None:
    """The key of the program in a workload; None for the workload of a template."""
    if workload is None or len(workload) != 2:
        return None
    last = workload[1]
    if isinstance(last, tuple) and len(last) == 2 and last[0] == _SKETCH:
        return str(last[1])
    return None
