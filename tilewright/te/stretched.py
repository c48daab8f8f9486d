"""Arguments whose symbolic dimensions may be 1 when the program runs, and then stand for any size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..arith import Analyzer
from ..ir.buffer import Buffer, decl_buffer
from ..ir.expr import Call, PrimExpr, ProducerLoad, Select, Var
from ..ir.ops import op_named
from .tensor import ComputeOp, Operation, PlaceholderOp, Tensor


def stretched_arguments(
    args: Sequence[Any], operations: Iterable[Operation], binds: Mapping[Any, Any] | None
) -> dict[Any, Any]:
    """The buffers of arguments: those given, and one that broadcasts for each placeholder that needs it.

        A = te.placeholder((m,)); C = te.compute((n,), lambda i: A[i])      # m is n, or it is 1

    A dimension needs it if it is a variable and an axis runs over it that is not known to be as short. Where all
    such axes are known to end with the dimension the buffer is contiguous, as ever.
    """
    found = dict(binds or {})
    inputs = {a for a in args if isinstance(a, Tensor) and isinstance(a.op, PlaceholderOp) and a not in found}
    symbolic = {a for a in inputs if any(isinstance(d, Var) for d in a.shape)}
    for op in operations if symbolic else ():
        if not isinstance(op, ComputeOp):
            continue
        extents = {iv.var: iv.dom.extent for iv in (*op.axis, *op.reduce_axis)}
        for load in _certain_loads(op.body):
            tensor = load.producer
            if tensor in symbolic and tensor not in found and _runs_over(load, extents):
                found[tensor] = _broadcasting(tensor)
    return found


def _broadcasting(tensor: Tensor) -> Buffer:
    return decl_buffer(tensor.shape, tensor.dtype, tensor.name, buffer_type="auto_broadcast")


def _runs_over(load: ProducerLoad, extents: Mapping[Var, PrimExpr]) -> bool:
    """Whether an axis that indexes a symbolic dimension may run over its end."""
    for index, dim in zip(load.indices, load.producer.shape, strict=True):
        extent = extents.get(index) if isinstance(index, Var) else None
        if extent is None or not isinstance(dim, Var) or extent is dim:
            continue
        if not Analyzer().can_prove(extent <= dim):
            return True
    return False


def _certain_loads(values: Iterable[PrimExpr]) -> Iterator[ProducerLoad]:
    """The loads that every point makes: a condition may keep the others inside of their dimensions."""
    choice = op_named("tir.if_then_else")
    seen: set[int] = set()
    stack = list(values)
    while stack:
        n = stack.pop()
        if id(n) in seen:
            continue
        seen.add(id(n))
        if isinstance(n, ProducerLoad):
            yield n
        if isinstance(n, Select):
            stack.append(n.condition)
        elif isinstance(n, Call) and n.op is choice:
            stack.append(n.args[0])
        else:
            stack.extend(n.children())
