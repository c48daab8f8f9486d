"""If and Loop: folded or unrolled if their control flow is known at import, else kept in the program."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ....ir.errors import FrontendError
from ...expr import If, Tuple, TupleGetItem
from .build import R, cast, constant, rank, scalar, typed
from .context import Misfit, NeedsValue, Node, Refusal, Value, converter
from .loop import MOST, MOST_WRITTEN, Step, given, nodes_of, run_time_loop
from .survey import MOST_NODES


@converter("If")
def if_node(n: Node) -> Any:
    branches = [n.attr("then_branch"), n.attr("else_branch")]
    if any(b is None for b in branches):
        raise n.refuse("a branch is missing")
    known = n.known(0)
    if known is not None:
        chosen = branches[0 if bool(known.reshape(-1)[0]) else 1]
        return n.importer.subgraph(n, chosen, [])
    both = _both(n, branches)
    if any(v is None or v.items is not None for side in both for v in side):
        error = NeedsValue("its branches return sequences: the condition must be known at import")
        error.tensor = n.proto.input[0]
        raise error
    if any(
        a is not None and b is not None and len(a.shape) != len(b.shape) for a, b in zip(*both, strict=True)
    ):
        return _squeezed(n, branches, both)
    condition = n[0] if not rank(n[0]) else R.reshape(n[0], ())
    sides = [[v.expr for v in side if v is not None] for side in both]
    if len(sides[0]) == 1:
        return If(condition, sides[0][0], sides[1][0])
    whole = typed(If(condition, Tuple(sides[0]), Tuple(sides[1])))
    return [TupleGetItem(whole, i) for i in range(len(sides[0]))]


def _both(n: Node, branches: list[Any]) -> list[list[Value | None]]:
    """The results of the two branches; NaN for a branch that is invalid for these sizes.

    A model for two sample rates has a network for each, and the sizes given at import fit one of them.
    """
    made: list[list[Value | None]] = []
    failed: list[Misfit] = []
    for branch in branches:
        try:
            made.append(n.importer.subgraph(n, branch, []))
        except Misfit as error:
            if not n.importer.fixed:
                raise
            failed.append(error)
            made.append([])
    if not failed:
        return made
    other = made[0] or made[1]
    if len(failed) > 1 or not all(v is not None and v.items is None for v in other):
        raise failed[0]
    if any(not v.dtype.startswith("float") for v in other if v is not None):
        raise failed[0]
    warnings.warn(
        f"{n.importer.where()}: If {n.name!r}: one branch is invalid and returns NaN: {failed[0]}",
        stacklevel=2,
    )
    nothing: list[Value | None] = [
        Value(R.full_like(v.expr, scalar(float("nan"), v.expr))) for v in other if v is not None
    ]
    return [side or nothing for side in made]


def _squeezed(n: Node, branches: list[Any], both: list[Any]) -> Any:
    """`If(size == 1, Squeeze, Identity)`, as exporters write a squeeze of a size they do not know: it is 1, then.

    Otherwise the rank would depend on data, and the following nodes expect one of the two.
    """
    if not branches[0].node or branches[0].node[-1].op_type != "Squeeze":
        raise n.refuse(
            "its branches give tensors of different rank, and which one is not known at import; give shape="
        )
    warnings.warn(
        f"{n.importer.where()}: If {n.name!r} squeezes a size that is not known at import: it is taken to be 1",
        stacklevel=2,
    )
    return both[0]


@converter("Loop")
def loop(n: Node) -> Any:
    """Unrolled where it is known how often it runs, and that is not too often."""
    count = n.known(0)
    most = MOST + 1 if count is None else int(count.reshape(-1)[0])
    going = n.known(1) if n.has(1) else np.asarray(True)
    if (n.has(0) and count is None) or going is None or (n.has(0) and most > MOST):
        return _looped(n)
    made = _unrolled(n, most, bool(going.reshape(-1)[0]), MOST_WRITTEN)
    if made is not None:
        return made
    try:
        return _looped(n)
    except (FrontendError, Refusal):  # a state without a type, sizes that depend on the turn
        made = _unrolled(n, most, bool(going.reshape(-1)[0]), MOST_NODES)
        if made is None:
            raise
        return made


def _unrolled(n: Node, most: int, going: bool, nodes: int) -> Any:
    """The unrolled iterations of a loop.

    None if the condition depends on data, or if there are too many iterations, or too many nodes that are not
    constants.
    """
    body = n.attr("body")
    each = nodes_of(body)
    carried: list[Value | None] = list(n.inputs[2:])
    states = len(carried)
    scans: list[list[Any]] = [[] for _ in range(len(body.output) - 1 - states)]
    at = 0
    while going and at < most:
        if at >= MOST or (at * each > nodes and not all(map(_is_known, carried))):
            return None
        inputs = [Value(known=np.asarray(at, np.int64)), Value(known=np.asarray(going)), *carried]
        found = n.importer.subgraph(n, body, inputs)
        condition = found[0]
        if condition is None or condition.known is None or condition.symbolic:
            return None
        going = bool(condition.known.reshape(-1)[0])
        carried = list(found[1 : 1 + states])
        for row, value in zip(scans, found[1 + states :], strict=True):
            row.append(value)
        at += 1
    out: list[Any] = list(carried)
    for i, row in enumerate(scans):
        if not row:
            out.append(_nothing(n, body.output[1 + states + i]))
        else:
            out.append(Value(R.stack([v.expr for v in row], 0)))
    return out


def _looped(n: Node) -> Any:
    """A loop of the program."""
    body = n.attr("body")
    states = len(n) - 2

    def turn(number: Value, carried: list[Value]) -> Step:
        # where a turn is taken, the condition was true
        found = n.importer.subgraph(n, body, [number, Value(known=np.asarray(True)), *carried])
        return Step(
            found[0], [given(n, v) for v in found[1 : 1 + states]], [given(n, v) for v in found[1 + states :]]
        )

    count = cast(_single(n[0]), "int64") if n.has(0) else None
    going = _single(n[1]) if n.has(1) else constant(np.asarray(True))
    return run_time_loop(n, n.inputs[2:], going, count, turn)


def _is_known(value: Value | None) -> bool:
    return value is None or (value.known is not None and not value.symbolic)


def _single(e: Any) -> Any:
    return e if not rank(e) else R.reshape(e, ())


def _nothing(n: Node, info: Any) -> Value:
    """The collected rows of a loop without iterations."""
    from .load import storage_dtype

    tensor = info.type.tensor_type
    sizes = [0, *(int(d.dim_value) for d in tensor.shape.dim)]
    return Value(known=np.zeros(sizes, storage_dtype(tensor.elem_type)))
