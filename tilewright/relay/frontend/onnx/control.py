"""If, Loop and Scan: folded or unrolled where the importer knows how they go, else left to the program."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ...expr import If, Tuple, TupleGetItem
from .build import R, rank, scalar, static_shape, typed
from .context import Misfit, NeedsValue, Node, Value, converter

_MOST = 4096


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
        error = NeedsValue("its branches give sequences: the condition must be known at import")
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
    """The results of the two branches; not a number where a branch cannot be for these sizes.

    A model for two rates of sound has a network for each, and sizes that are fixed at import fit one of them.
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
        f"{n.importer.where()}: If {n.name!r}: one branch cannot be and gives not a number: {failed[0]}",
        stacklevel=2,
    )
    nothing: list[Value | None] = [
        Value(R.full_like(v.expr, scalar(float("nan"), v.expr))) for v in other if v is not None
    ]
    return [side or nothing for side in made]


def _squeezed(n: Node, branches: list[Any], both: list[Any]) -> Any:
    """`If(size == 1, Squeeze, Identity)`, as exporters write a squeeze of a size they do not know: it is 1, then.

    The number of dimensions would depend on data otherwise, and what follows is written for one of the two.
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


def _stacked(parts: list[Any], axis: int = 0) -> Any:
    return R.stack(parts, axis)


@converter("Loop")
def loop(n: Node) -> Any:
    body = n.attr("body")
    count = None if not n.has(0) else n.need(0)
    most = _MOST if count is None else int(count.reshape(-1)[0])
    going = True if not n.has(1) else bool(n.need(1).reshape(-1)[0])
    carried: list[Value | None] = list(n.inputs[2:])
    states = len(carried)
    scans: list[list[Any]] = [[] for _ in range(len(body.output) - 1 - states)]
    at = 0
    while going and at < most:
        if at >= _MOST:
            raise n.refuse(f"the loop runs more than {_MOST} times: it cannot be unrolled")
        inputs = [Value(known=np.asarray(at, np.int64)), Value(known=np.asarray(going)), *carried]
        found = n.importer.subgraph(n, body, inputs)
        condition = found[0]
        if condition is None or condition.known is None:
            error = NeedsValue("whether the loop goes on depends on data: it cannot be unrolled")
            error.tensor = body.output[0].name
            raise error
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
            out.append(Value(_stacked([v.expr for v in row])))
    return out


def _nothing(n: Node, info: Any) -> Value:
    """What a loop that never runs has collected."""
    from .load import storage_dtype

    tensor = info.type.tensor_type
    sizes = [0, *(int(d.dim_value) for d in tensor.shape.dim)]
    return Value(known=np.zeros(sizes, storage_dtype(tensor.elem_type)))


@converter("Scan", since=9)
def scan(n: Node) -> Any:
    body, count = n.attr("body"), int(n.attr("num_scan_inputs", 0))
    states = len(n) - count
    inputs = [n[i] for i in range(states, len(n))]
    axes = [a % rank(x) for a, x in zip(n.attr("scan_input_axes", [0] * count), inputs, strict=True)]
    back = n.attr("scan_input_directions", [0] * count)
    length = static_shape(inputs[0])[axes[0]]
    if length > _MOST:
        raise n.refuse(f"a scan over {length} rows cannot be unrolled")
    outs = len(body.output) - states
    carried = list(n.inputs[:states])
    rows: list[list[Any]] = [[] for _ in range(outs)]
    for t in range(length):
        parts = []
        for x, axis, reverse in zip(inputs, axes, back, strict=True):
            at = length - 1 - t if reverse else t
            parts.append(Value(R.squeeze(R.strided_slice(x, [at], [at + 1], axes=[axis]), [axis])))
        found = n.importer.subgraph(n, body, [*carried, *parts])
        carried = list(found[:states])
        for row, value in zip(rows, found[states:], strict=True):
            row.append(value.expr if value is not None else None)
    out_axes = n.attr("scan_output_axes", [0] * outs)
    turned = n.attr("scan_output_directions", [0] * outs)
    made: list[Any] = list(carried)
    for row, axis, reverse in zip(rows, out_axes, turned, strict=True):
        turned_row = row[::-1] if reverse else row
        made.append(_stacked(turned_row, axis % (rank(turned_row[0]) + 1)))
    return made


@converter("Scan")
def scan_batched(n: Node) -> Any:
    """Opset 8: a batch in front, and lengths of the sequences, which must be left out."""
    if n.has(0):
        raise n.refuse("of opset 8 with sequence lengths is not supported")
    body, count = n.attr("body"), int(n.attr("num_scan_inputs", 0))
    states = len(n) - 1 - count
    batch = n.static(1)[0]
    results: list[list[Any]] = []
    for b in range(batch):
        own = [
            Value(R.squeeze(R.strided_slice(n[1 + i], [b], [b + 1], axes=[0]), [0]))
            for i in range(len(n) - 1)
        ]
        carried, inputs = own[:states], [v.expr for v in own[states:]]
        rows: list[list[Any]] = [[] for _ in range(len(body.output) - states)]
        for t in range(static_shape(inputs[0])[0]):
            parts = [Value(R.squeeze(R.strided_slice(x, [t], [t + 1], axes=[0]), [0])) for x in inputs]
            found = n.importer.subgraph(n, body, [*carried, *parts])
            carried = [v for v in found[:states] if v is not None]
            for row, value in zip(rows, found[states:], strict=True):
                row.append(value.expr if value is not None else None)
        results.append([*(v.expr for v in carried), *(_stacked(row) for row in rows)])
    return [_stacked([r[i] for r in results]) for i in range(len(body.output))]
