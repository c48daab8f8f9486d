"""`T`: what a loop program is written with.

Names that are not here (operators such as `T.exp`, data types such as `T.float32x4`) are made from the
registry of operators and the grammar of data types when they are first asked for.
"""

from __future__ import annotations

from typing import Any

from ..tir.script.function import macro, prim_func
from ..tir.script.namespace import *  # noqa: F403
from ..tir.script.namespace import PUBLIC, all_names, lookup

__all__ = [*PUBLIC, "macro", "prim_func"]


def __getattr__(name: str) -> Any:
    return lookup(name)


def __dir__() -> list[str]:
    return all_names()
