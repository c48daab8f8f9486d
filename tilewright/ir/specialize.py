"""Fixing parameters of a function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .buffer import Buffer
from .equal import structural_equal
from .expr import PrimExpr, Var, convert
from .function import PrimFunc
from .functor import Substitution
from .ops import cast


def specialize(func: PrimFunc, param_map: Mapping[Var, Any]) -> PrimFunc:
    """The function with values for scalars, or shapes for buffers; scalar parameters are removed."""
    table: dict[Var, PrimExpr] = {}
    for param, value in param_map.items():
        if param not in func.params:
            raise ValueError(f"specialize: {param} is not a parameter of the function")
        if param in func.buffer_map:
            if not isinstance(value, Buffer):
                raise TypeError(f"specialize: {param} is a buffer, so a buffer must be given, not {value!r}")
            _match_buffer(func.buffer_map[param], value, table)
        else:
            table[param] = _of_type(param, value)
    walk = Substitution(table)
    buffers = {p: walk.visit_buffer(b) for p, b in func.buffer_map.items()}
    params = tuple(p for p in func.params if p not in table)
    return func.replace(params=params, buffer_map=buffers, body=walk.visit(func.body))


def _of_type(var: Var, value: Any) -> PrimExpr:
    """The value in the type of the variable that it replaces."""
    return cast(var.dtype, convert(value))


def _match_buffer(have: Buffer, want: Buffer, table: dict[Var, PrimExpr]) -> None:
    if have.dtype is not want.dtype or len(have.shape) != len(want.shape):
        raise ValueError(f"specialize: {want} does not fit {have}")
    pairs = [*zip(have.shape, want.shape, strict=True), (have.elem_offset, want.elem_offset)]
    if len(have.strides) == len(want.strides):
        pairs += zip(have.strides, want.strides, strict=True)
    for old, new in pairs:
        if isinstance(old, Var) and table.get(old) is None:
            table[old] = _of_type(old, new)
            continue
        held = table[old] if isinstance(old, Var) else old
        if not structural_equal(held, cast(held.dtype, new)):
            raise ValueError(f"specialize: `{old}` of {have.name} cannot become `{new}`")
