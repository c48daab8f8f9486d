"""The classic module of `lower` and `build`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.module import IRModule
from ..runtime.module import Module as OperatorModule
from .build import build
from .lower import as_module, lower

__all__ = ["OperatorModule", "build", "lower", "schedule_to_module"]


def schedule_to_module(
    sch: Any,
    args: Sequence[Any] | None = None,
    name: str = "main",
    binds: Mapping[Any, Any] | None = None,
) -> IRModule:
    """A schedule as a module in block form, before lowering."""
    return as_module(sch, args, name, binds)
