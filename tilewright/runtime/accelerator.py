"""Commands for the engines of an accelerator: plain data that a code generator produces and a driver encodes.

program ──code generator──▶ Commands ──driver of the chip──▶ instructions ──▶ simulator or board
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Address(NamedTuple):
    """A position in the memory of an argument of the function, in bytes from its start."""

    argument: int
    offset: int

    def __str__(self) -> str:
        return f"argument {self.argument} + {self.offset}"


class Command(NamedTuple):
    """An instruction for an engine before it is encoded.

    The engine waits for one token from each engine of `pops` before it starts, and sends one to each engine of
    `pushes` when it is done.
    """

    engine: int
    name: str
    fields: Mapping[str, Any]  # integers, an Address, text, loops
    pops: tuple[int, ...] = ()
    pushes: tuple[int, ...] = ()

    def __str__(self) -> str:
        words = [f"{key}={value}" for key, value in self.fields.items()]
        words += [f"pops={self.pops}"] if self.pops else []
        words += [f"pushes={self.pushes}"] if self.pushes else []
        return f"engine {self.engine}: {' '.join([self.name, *words])}"


class Argument(NamedTuple):
    """An array that a function takes, and whether it reads or writes it: in, out or inout."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    direction: str
