"""Every compute of an operator is looked at while the tests of graphs run: where it reads or writes at a place that is
data, the place must be held inside, and the operator must say so (`places=` of its registration)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir.expr import BufferLoad, ProducerLoad, Range, const_value
from tilewright.ir.functor import pre_order
from tilewright.ir.op import graph_operators
from tilewright.ir.stmt import BufferStore, LetStmt
from tilewright.te.tensor import ComputeOp, ExternOp

# Operators whose places are data of their own making, or are guarded by a condition, and so are never an error.
OF_ITS_OWN = {
    "argsort": "places that it sorts itself",
    "argwhere": "counts what it has found",
    "dyn.nn.pad": "a condition asks whether the place is inside",
    "dyn.strided_slice": "places are moved inside, as Python's slices are",
    "dyn.topk": "places that it sorts itself",
    "image.grid_sample": "the padding mode says what is beyond the edge",
    "nn.deformable_conv2d": "beyond the edge are zeros, by a condition",
    "searchsorted": "halves the places between the ends",
    "sort": "places that it sorts itself",
    "strided_set": "places are moved inside, as Python's slices are",
    "topk": "places that it sorts itself",
    "unique": "places that it sorts itself",
    "vision.all_class_non_max_suppression": "places that it sorts itself",
    "vision.get_valid_counts": "counts what it has found",
    "vision.multibox_transform_loc": "counts what it has found",
    "vision.proposal": "places that it sorts itself",
    "vision.non_max_suppression": "places that it sorts itself; how many are valid is held inside",
    "dyn.sparse_to_dense": "what lies outside of a shape that is computed is dropped",
}
seen: dict[str, set[str]] = {}


def _reads(e: Any) -> bool:
    return any(isinstance(m, (BufferLoad, ProducerLoad)) for m in pre_order(e))


def _unproved(op: ComputeOp) -> Iterator[str]:
    """The data places of a compute that are not surely inside."""
    ana = Analyzer()
    for iv in (*op.axis, *op.reduce_axis):
        ana.bind(iv.var, Range.from_min_extent(iv.dom.min, iv.dom.extent))
    for body in op.body:
        for m in pre_order(body):
            if not isinstance(m, ProducerLoad):
                continue
            for index, size in zip(m.indices, m.producer.shape, strict=True):
                high = const_value(size)
                if not _reads(index) or high is None:
                    continue
                bound = ana.const_int_bound(index)
                if bound.min_value < 0 or bound.max_value >= high:
                    yield f"{m.producer.name}[… {index} …] is not surely within 0 … {size}"
                else:
                    yield ""


def _of_extern(op: ExternOp) -> Iterator[str]:
    """The data places of a kernel written as loops: that they are guarded, the interpreter sees."""
    held: set[Any] = set()
    for m in pre_order(op.body):
        if isinstance(m, LetStmt) and (_reads(m.value) or held & set(pre_order(m.value))):
            held.add(m.var)
    for m in pre_order(op.body):
        if isinstance(m, (BufferLoad, BufferStore)):
            for index in m.indices:
                if _reads(index) or held & set(pre_order(index)):
                    yield ""


def look(name: str, results: Any, inputs: Any) -> None:
    """Refuse a compute that reads at data places which nobody has declared or held inside."""
    given = {t.op for t in inputs}
    stack, done = [t.op for t in results], set()
    found: list[str] = []
    while stack:
        op = stack.pop()
        if op in done or op in given:
            continue
        done.add(op)
        if isinstance(op, ComputeOp):
            found += _unproved(op)
        elif isinstance(op, ExternOp):
            found += _of_extern(op)
        stack += [t.op for t in op.input_tensors]
    if not found or name in OF_ITS_OWN:
        return
    seen.setdefault(name, set()).update(found)
    declared = getattr(graph_operators[name], "places", None) is not None
    assert declared, (
        f"{name} reads or writes at places that are data: say so with places=, as registry.Place tells"
    )
    wrong = [text for text in found if text]
    assert not wrong, f"{name}: {wrong[0]}; topi.utils.clamped holds it inside"


@contextmanager
def watched() -> Iterator[None]:
    """All operators that are computed meanwhile are looked at."""
    kept = {}

    def around(name: str, compute: Any) -> Any:
        @functools.wraps(compute)
        def work(attrs: Any, ins: Any, out: Any) -> Any:
            results = compute(attrs, ins, out)
            look(name, results, ins)
            return results

        return work

    for name, op in graph_operators.items():
        compute = getattr(op, "compute", None)
        if compute is not None:
            kept[name] = compute
            op.compute = around(name, compute)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for name, compute in kept.items():
            graph_operators[name].compute = compute  # type: ignore[attr-defined]
