"""Versions of a program with dynamic sizes for input sizes that recur, as the virtual machine sees them.

The compiler makes them (relay/backend/recurring.py); a program that was loaded has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from .executor import ModelModule
from .ndarray import NDArray

Shapes = tuple[tuple[int, ...], ...]

RECURS: Final = 3  # calls with the same sizes before a version for them is compiled


class Version:
    """A program compiled for one set of input sizes."""

    def __init__(self, module: ModelModule, shaped: Callable[[Sequence[NDArray]], Any]) -> None:
        self.module, self.shaped = module, shaped


class Versions(Protocol):
    """The versions of a program, by the shapes of the arguments of `main`."""

    def found(self, shapes: Shapes) -> Version | None:
        """The version for a call with these shapes, if there is one."""

    def ran(self, shapes: Shapes, result: Any) -> None:
        """Take note of a call without a version, after its result."""

    def wait(self) -> None:
        """Return when no version is being compiled."""
