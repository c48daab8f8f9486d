"""Graphs of operations: their order, and which of them run inside a scan."""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.expr import ProducerLoad
from .broadcast import same_size
from .errors import refuse
from .tensor import ComputeOp, Operation, ScanOp, Tensor, unique_nodes


def post_order(roots: Iterable[Operation]) -> list[Operation]:
    """Every operation that `roots` need and `roots` themselves, each after those it reads."""
    order: list[Operation] = []
    seen: set[Operation] = set()
    for root in roots:
        stack: list[tuple[Operation, bool]] = [(root, False)]
        while stack:
            op, done = stack.pop()
            if done:
                order.append(op)
            elif op not in seen:
                seen.add(op)
                stack.append((op, True))
                stack.extend((t.op, False) for t in reversed(op.input_tensors))
    return order


class OpGraph:
    """Operations in order, with those that depend on a scan's state given to that scan.

    A scan's body runs step by step inside the loop over time; everything else runs once.
    """

    def __init__(self, roots: Iterable[Operation]) -> None:
        self.order = post_order(roots)
        self.states: dict[Operation, Tensor] = {}  # a state placeholder, and the scan's output it stands for
        for op in self.order:
            if isinstance(op, ScanOp):
                for i, state in enumerate(op.state_placeholder):
                    self.states[state.op] = op.output(i)
        self.body_of: dict[Operation, ScanOp] = {}
        if self.states:
            self._find_bodies()

    def body(self, scan: ScanOp) -> list[ComputeOp]:
        """The operations of a scan's step, in order."""
        return [op for op in self.order if self.body_of.get(op) is scan and isinstance(op, ComputeOp)]

    def _find_bodies(self) -> None:
        inside = {op: set(post_order(t.op for t in op.update)) for op in self.order if isinstance(op, ScanOp)}
        for op in self.order:
            if op in self.states:
                continue
            needs = {self._scan_behind(t.op) for t in op.input_tensors} - {None}
            if isinstance(op, ScanOp):
                needs.discard(op)
            if not needs:
                continue
            if isinstance(op, ScanOp) or len(needs) > 1:
                raise refuse(
                    "a scan inside the step of another scan is not supported", what=op.what, span=op.span
                )
            scan = needs.pop()
            assert scan is not None
            if not isinstance(op, ComputeOp):
                raise refuse(
                    f"the step of {scan.what} may contain only te.compute", what=op.what, span=op.span
                )
            if op in inside[scan]:
                self.body_of[op] = scan
        for op in self.order:
            for t in op.input_tensors:
                self._check_reader(op, t)

    def _scan_behind(self, op: Operation) -> ScanOp | None:
        """The scan whose state `op` depends on."""
        if op in self.states:
            scan = self.states[op].op
            assert isinstance(scan, ScanOp)
            return scan
        return self.body_of.get(op)

    def _check_reader(self, reader: Operation, t: Tensor) -> None:
        scan = self._scan_behind(t.op)
        if scan is None or reader is scan:
            return
        if self.body_of.get(reader) is not scan:
            raise refuse(
                f"it reads `{t.name}`, which exists only inside the steps of {scan.what}",
                "read the result of the scan",
                what=reader.what,
                span=reader.span,
            )
        assert isinstance(reader, ComputeOp)
        step = scan.update[0].shape[0]
        if not reader.axis or not same_size(reader.axis[0].dom.extent, step):
            raise refuse(
                f"it is part of the step of {scan.what}, so its first dimension must be time, of size {step}",
                what=reader.what,
                span=reader.span,
            )
        now = reader.axis[0].var
        for n in unique_nodes(reader.body):
            if not isinstance(n, ProducerLoad) or n.producer != t:
                continue
            at_now = n.indices[0] is now
            if t.op in self.states and at_now:
                raise refuse(
                    f"it reads the state `{t.name}` at the step that is being computed: `{n}`",
                    "read an earlier step, as in state[t - 1, i]",
                    what=reader.what,
                    span=reader.span,
                )
            if t.op not in self.states and not at_now:
                raise refuse(
                    f"it reads `{t.name}` at another step than its own: `{n}`",
                    f"index it with `{now.name}`; only the state keeps earlier steps",
                    what=reader.what,
                    span=reader.span,
                )
