"""ChangeBatch: the same model for another size of its batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.errors import TVMError
from ..binding import bind
from ..expr import Function, Var
from ..ty import TensorType
from .rewriting import type_of, typed_pass


def change_batch(func: Function, data: Mapping[Any, int], batch_size: int = 16) -> Function:
    """Give parameters another size along one of their axes; `data` maps parameters (or their names) to these axes.

    fn (%x: Tensor[(1, 3)])     ->     fn (%x: Tensor[(16, 3)])
    """
    axes = {v if isinstance(v, str) else v.name_hint: axis for v, axis in data.items()}
    unknown = sorted(axes.keys() - {p.name_hint for p in func.params})
    if unknown:
        names = ", ".join(p.name_hint for p in func.params)
        raise TVMError(f"ChangeBatch: the function has no parameter {unknown[0]!r}; it has {names}")
    table = {p: _resized(p, axes[p.name_hint], batch_size) for p in func.params if p.name_hint in axes}
    return Function([table.get(p, p) for p in func.params], bind(func.body, table), attrs=func.attrs)


def _resized(param: Var, axis: int, size: int) -> Var:
    kind = type_of(param)
    if not isinstance(kind, TensorType) or not -len(kind.shape) <= axis < len(kind.shape):
        raise TVMError(f"ChangeBatch: parameter {param.name_hint!r} is {kind} and has no axis {axis}")
    shape = list(kind.shape)
    shape[axis] = size
    return Var(param.name_hint, TensorType(shape, kind.dtype))


ChangeBatch = typed_pass(change_batch, name="ChangeBatch", opt_level=0)
