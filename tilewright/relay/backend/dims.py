"""Symbolic sizes as data: `["+", ["*", "n", 2], 1]`, as the runtime evaluates them."""

from __future__ import annotations

from typing import Any

from ...ir.errors import TVMError
from ...ir.expr import Add, Cast, FloorDiv, FloorMod, IntImm, Max, Min, Mul, Sub, Var

_OPS = {Add: "+", Sub: "-", Mul: "*", FloorDiv: "//", FloorMod: "%", Min: "min", Max: "max"}


def dim_of(size: Any) -> Any:
    """A size as data: an integer, the name of a variable, or an expression as a list."""
    if isinstance(size, int):
        return int(size)
    if isinstance(size, IntImm):
        return int(size.value)
    if isinstance(size, Var):
        return size.name
    if isinstance(size, Cast):
        return dim_of(size.value)
    op = _OPS.get(size.__class__)
    if op is None:
        raise TVMError(f"a tensor has the size `{size}`, which the virtual machine cannot compute")
    return [op, dim_of(size.a), dim_of(size.b)]
