"""Sequences and optionals that the importer can follow: lists of tensors whose length is known at import."""

from __future__ import annotations

from typing import Any

import numpy as np

from .build import R, rank
from .context import Node, Value, converter, rows


def _items(n: Node, index: int = 0) -> list[Value]:
    found = n.value(index).items
    if found is None:
        raise n.refuse(f"input {index} is a tensor, where a sequence is needed")
    return found


rows(
    {
        "SequenceConstruct": lambda n: Value(items=[v for v in n.inputs if v is not None]),
        "SequenceEmpty": lambda n: Value(items=[]),
        "SequenceLength": lambda n: Value(known=np.asarray(len(_items(n)), np.int64)),
    },
)


def _place(n: Node, index: int, count: int) -> int:
    at = n.ints(index)[0]
    if not -count <= at <= count:
        raise n.refuse(f"position {at} in a sequence of {count}")
    return at + count if at < 0 else at


@converter("SequenceAt")
def sequence_at(n: Node) -> Any:
    items = _items(n)
    return items[_place(n, 1, len(items))]


@converter("SequenceInsert")
def sequence_insert(n: Node) -> Any:
    items = list(_items(n))
    items.insert(_place(n, 2, len(items)) if n.has(2) else len(items), n.value(1))
    return Value(items=items)


@converter("SequenceErase")
def sequence_erase(n: Node) -> Any:
    items = list(_items(n))
    items.pop(_place(n, 1, len(items)) if n.has(1) else -1)
    return Value(items=items)


@converter("SplitToSequence")
def split_to_sequence(n: Node) -> Any:
    axis = n.axis(0)
    x = n[0]
    total = n.static(0)[axis]
    keep = True
    if n.has(1):
        given = n.need(1)
        if given.ndim:
            sizes = [int(v) for v in given]
        else:
            each = int(given)
            sizes = [min(each, total - i) for i in range(0, total, each)]
    else:
        sizes, keep = [1] * total, n.flag("keepdims", 1)
    edges = np.cumsum([0, *sizes]).tolist()
    parts = [R.strided_slice(x, [a], [b], axes=[axis]) for a, b in zip(edges, edges[1:], strict=False)]
    return Value(items=[Value(p if keep else R.squeeze(p, [axis])) for p in parts])


@converter("ConcatFromSequence")
def concat_from_sequence(n: Node) -> Any:
    items = [v.expr for v in _items(n)]
    axis = int(n.attr("axis", 0))
    if n.attr("new_axis", 0):
        return R.stack(items, axis % (rank(items[0]) + 1))
    return R.concatenate(items, axis % rank(items[0]))


@converter("SequenceMap")
def sequence_map(n: Node) -> Any:
    body = n.attr("body")
    count = len(_items(n))
    rows = []
    for i in range(count):
        inputs = [v.items[i] if v is not None and v.items is not None else v for v in n.inputs]
        rows.append(n.importer.subgraph(n, body, inputs))
    return [Value(items=[r[k] for r in rows if r[k] is not None]) for k in range(len(body.output))]  # type: ignore[misc]


# ---------------------------------------------------------------------------- optionals
rows(
    {
        "Optional": lambda n: [n.value(0) if n.has(0) else None],
        "OptionalHasElement": lambda n: Value(known=np.asarray(n.has(0))),
        "OptionalGetElement": lambda n: n.value(0),
    },
)
