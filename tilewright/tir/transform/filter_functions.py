"""Some functions of a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.function import PrimFunc
from ...ir.module import IRModule


def filter_functions(mod: IRModule, keep: Callable[[PrimFunc], Any]) -> IRModule:
    """Keep the loop programs for which `keep(func)` holds.

    f, g      ->      f          # keep(g) is False
    """
    kept = {v: f for v, f in mod.functions.items() if not isinstance(f, PrimFunc) or keep(f)}
    return mod if len(kept) == len(mod.functions) else IRModule(kept, mod.type_definitions, mod.attrs)
