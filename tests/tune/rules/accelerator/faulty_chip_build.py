"""Build functions that spoil programs for the chip: named to workers as `faulty_chip_build:silent`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tilewright.compiler.build import build
from tilewright.runtime.accelerator_module import AcceleratorModule
from tilewright.target import Target


def _spoiled(run: Callable[..., float]) -> Callable[..., Any]:
    def built(mod: Any, target: Any) -> Any:
        made = build(mod, target=target)
        if not Target(target).is_accelerator:  # the reference
            return made
        return AcceleratorModule(made.name, made.functions, run, made.device)

    return built


def _silence(name: str, arrays: list[Any]) -> float:
    return 1e-6


def _end(name: str, arrays: list[Any]) -> float:
    os.abort()


def _stay(name: str, arrays: list[Any]) -> float:
    while True:
        pass


def _fail(name: str, arrays: list[Any]) -> float:
    raise ValueError("this chip is broken")


silent, ending, staying, failing = (_spoiled(f) for f in (_silence, _end, _stay, _fail))
unsendable = _spoiled(lambda name, arrays: 1e-6)


def unlike(mod: Any, target: Any) -> Any:
    """A result that is not a module of an accelerator."""
    return object() if Target(target).is_accelerator else build(mod, target=target)
