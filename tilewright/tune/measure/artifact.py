"""The messages from a process that builds candidates to one that runs them."""

from __future__ import annotations

from dataclasses import dataclass

from ...codegen.llvm.linked import Unit
from .chip_code import ChipUnit
from .device_code import DeviceUnit


@dataclass(frozen=True, slots=True)
class Array:
    """An argument of a function: name, shape and type."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Artifact:
    """A built candidate: its code, with the names of its arguments in order.

    `parts` are loop nests that `main` calls. `before` runs once and is not timed: it computes the arguments of `main`
    that depend on constants only.
    """

    main: Unit | DeviceUnit | ChipUnit
    arguments: tuple[str, ...]
    before: Unit | None = None
    before_arguments: tuple[Array, ...] = ()
    parts: tuple[Unit, ...] = ()


def told(error: BaseException) -> str:
    """An error in a few lines."""
    return f"{type(error).__name__}: {error}"[:2000]
