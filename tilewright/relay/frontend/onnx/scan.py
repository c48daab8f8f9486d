"""Scan: unrolled if the length is known, else a loop of the program."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from ....ir.errors import FrontendError
from ...op.shapes import same_size
from .build import R, constant, rank, shape_of, static_shape
from .context import Node, Refusal, Value, converter
from .loop import MOST, MOST_WRITTEN, Step, given, nodes_of, outside, run_time_loop


@converter("Scan", since=9)
def scan(n: Node) -> Any:
    body, count = n.attr("body"), int(n.attr("num_scan_inputs", 0))
    states = len(n) - count
    if not 0 < count <= len(n):
        raise n.refuse(f"it has {len(n)} inputs, and num_scan_inputs is {count}")
    inputs = [n[i] for i in range(states, len(n))]
    axes = [n.front(a, rank(x)) for a, x in zip(n.attr("scan_input_axes", [0] * count), inputs, strict=True)]
    back = n.attr("scan_input_directions", [0] * count)
    outs = len(body.output) - states
    out_axes = n.attr("scan_output_axes", [0] * outs)
    turned = n.attr("scan_output_directions", [0] * outs)
    length = _check_lengths(n, inputs, axes)
    made: list[Any] | None = None
    if not isinstance(length, int) or length > MOST or not length:
        made = _scanned(n, axes, back)
    elif length * nodes_of(body) > MOST_WRITTEN:
        with suppress(FrontendError, Refusal):  # else it is unrolled
            made = _scanned(n, axes, back)
    if made is not None:
        return [*made[:states], *map(_laid, made[states:], out_axes, turned)]
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
    made = list(carried)
    for row, axis, reverse in zip(rows, out_axes, turned, strict=True):
        turned_row = row[::-1] if reverse else row
        made.append(R.stack(turned_row, axis % (rank(turned_row[0]) + 1)))
    return made


def _scanned(n: Node, axes: list[int], back: list[int]) -> list[Value]:
    """A scan over a dynamic length, or over a long one."""
    body, states = n.attr("body"), len(n) - len(axes)
    names = n.proto.input[states:]
    sizes = [R.take(R.shape_of(n[states + k], "int64"), constant(np.int64(a)), 0) for k, a in enumerate(axes)]

    def turn(number: Value, carried: list[Value]) -> Step:
        parts = []
        for name, axis, reverse in zip(names, axes, back, strict=True):
            rows = outside(n, name)  # a variable that is set before the loop
            at = number.expr
            if reverse:
                size = R.take(R.shape_of(rows, "int64"), constant(np.int64(axis)), 0)
                at = R.subtract(R.subtract(size, constant(np.int64(1))), at)
            parts.append(Value(R.take(rows, at, axis)))
        found = [given(n, v) for v in n.importer.subgraph(n, body, [*carried, *parts])]
        return Step(None, found[:states], found[states:])

    return run_time_loop(n, n.inputs[:states], constant(np.asarray(True)), sizes[0], turn)


def _laid(rows: Value, axis: int, reverse: int) -> Any:
    """Collected rows in the form of the output: reversed, and along an axis."""
    made = R.reverse(rows.expr, 0) if reverse else rows.expr
    ndim = rank(made)
    at = axis % ndim
    order = [*range(1, ndim)]
    order.insert(at, 0)
    return R.transpose(made, order) if at else made


def _check_lengths(n: Node, inputs: list[Any], axes: list[int]) -> Any:
    """The length that all inputs share."""
    found = [shape_of(x)[a] for x, a in zip(inputs, axes, strict=True)]
    for other in found[1:]:
        if same_size(found[0], other) is False:
            raise n.refuse(f"its inputs have {found[0]} and {other} rows")
    return next((d for d in found if isinstance(d, int)), found[0])


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
        results.append([*(v.expr for v in carried), *(R.stack(row, 0) for row in rows)])
    return [R.stack([r[i] for r in results], 0) for i in range(len(body.output))]
