"""Schedule and build in one step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..compiler.build import build
from ..target import Target
from .auto import auto_schedule
from .constants import bind_constants

__all__ = ["compile"]


def compile(
    func_or_tensors: Any, target: Any = None, constants: Mapping[str, Any] | None = None, trials: int = 0
) -> Any:
    """Schedule a program automatically and compile it.

    `constants` gives the values of parameters by name: they are packed once, here, and the compiled function
    does not take them.
    """
    chosen = Target.current(allow_none=True) if target is None else Target(target)
    chosen = Target("llvm") if chosen is None else chosen
    sch = auto_schedule(func_or_tensors, chosen, trials, tuple(constants or ()))
    if not constants:
        return build(sch.mod, target=chosen)
    return bind_constants(sch.mod, constants, lambda mod: build(mod, target=chosen))
