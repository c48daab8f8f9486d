"""Tasks of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.module import IRModule
from ..target import Target


@dataclass(eq=False)
class ExtractedTask:
    """A kernel of a model: its program, its target, and how often the model calls it.

    `mod` and the module in `dispatched` are the same: an operator has one program.
    """

    task_name: str
    mod: IRModule
    target: Target
    dispatched: Sequence[IRModule]
    weight: int
    constants: tuple[str, ...] = ()
