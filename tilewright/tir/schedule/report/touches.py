"""Which elements of which buffers a program touches, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ....ir.buffer import Buffer, BufferRegion
from ....ir.expr import BufferLoad, Call, Let, PrimExpr, Select, Var
from ....ir.function import PrimFunc
from ....ir.functor import pre_order
from ....ir.op import Op
from ....ir.stmt import Block, BlockRealize, BufferStore, Evaluate, For, IfThenElse, LetStmt, Stmt
from .ranges import Env, Value, exact, may_hold, negated, value_of
from .timeline import Timed, timeline

Array = np.ndarray[Any, Any]
SIZE = 32  # what a symbolic size is drawn as
_POINTS = 1_500_000  # accesses computed for one run


@dataclass(slots=True)
class Touches:
    """Accesses of one kind: at step `tick`, `worker` touches the box from `lo` to `hi` (both included).

    `what` is a buffer that is read or written, or a block whose iterators are at that point.
    """

    what: Buffer | Block
    mode: str  # read, write, visit
    tick: Array
    worker: Array
    lo: Array  # one row for each dimension
    hi: Array


@dataclass(slots=True)
class Run:
    """A run of a program: `ticks` steps of it, of `total`, and all that they touch."""

    root: Timed
    ticks: int
    total: int
    touches: list[Touches]
    shapes: dict[Buffer, tuple[int, ...]]


def sizes_of(func: PrimFunc) -> dict[Var, Value]:
    """A value for each symbolic size: what it would be at run time is not known."""
    out: dict[Var, Value] = {p: exact(SIZE) for p in func.params if p.dtype.is_int}
    for b in func.buffer_map.values():
        for e in (*b.shape, *b.strides):
            for v in pre_order(e):
                if isinstance(v, Var):
                    out[v] = exact(SIZE)
        if isinstance(b.elem_offset, Var):
            out[b.elem_offset] = exact(0)
    return out


def touches_of(stmt: Stmt, env: Env, limit: int, depths: Mapping[Stmt, int] | None = None) -> Run:
    """The first `limit` steps of a statement; of one in `depths`, loops so deep inside are one step."""
    root = timeline(stmt, env, depths)
    limit = max(16, min(limit, _POINTS // root.lanes()))
    ticks = min(root.duration, limit)
    walk = _Walk(ticks, root.axes())
    walk.go(root, _At(env=env))
    merged = [_joined(group) for group in walk.found.values()]
    return Run(root, ticks, root.duration, [t for t in merged if t.tick.size], walk.shapes)


def _joined(group: list[Touches]) -> Touches:
    """Accesses of the same kind as one, in the order of the steps."""
    first = group[0]
    tick = np.concatenate([t.tick for t in group])
    order = np.argsort(tick, kind="stable")
    lo, hi = (np.concatenate([getattr(t, k) for t in group], axis=1)[:, order] for k in ("lo", "hi"))
    worker = np.concatenate([t.worker for t in group])
    return Touches(first.what, first.mode, tick[order], worker[order], lo, hi)


@dataclass(frozen=True, slots=True)
class _At:
    """Where the walk is: values of variables, whether and when it gets here, and who does."""

    env: Env
    tick: Any = 0
    mask: Any = True
    worker: Any = 0
    workers: int = 1
    axis: int = 0
    block: Block | None = None
    views: dict[Buffer, BufferRegion] = field(default_factory=dict)

    def only(self, condition: Any) -> _At:
        return replace(self, mask=np.logical_and(self.mask, condition))


class _Walk:
    """Goes through a timeline. Each loop is an axis of the arrays, so that all iterations are one sum."""

    def __init__(self, ticks: int, axes: int) -> None:
        self.ticks, self.axes = ticks, axes
        self.found: dict[tuple[Any, str], list[Touches]] = {}
        self.shapes: dict[Buffer, tuple[int, ...]] = {}

    def along(self, axis: int, n: int) -> Array:
        """0, 1, … along an axis."""
        return np.arange(n).reshape((1,) * axis + (n,) + (1,) * (self.axes - axis - 1))

    # -- statements --------------------------------------------------------------------------------
    def go(self, t: Timed, at: _At) -> None:
        s = t.stmt
        if isinstance(s, For):
            self.loop(t, s, at)
        elif isinstance(s, BlockRealize):
            self.block(t, s, at)
        elif isinstance(s, IfThenElse):
            condition = value_of(s.condition, at.env)
            self.reads(s.condition, at)
            for part, holds in zip(t.parts, (condition, negated(condition))):
                self.go(part, at.only(may_hold(holds)))
        elif t.role == "leaf":
            self.leaf(s, at)
        else:
            if isinstance(s, LetStmt):
                self.reads(s.value, at)
                bound = value_of(s.value, at.env)
                at = at if bound is None else replace(at, env={**at.env, s.var: bound})
            offset = 0
            for part in t.parts:
                self.go(part, replace(at, tick=at.tick + offset))
                offset += part.duration if t.role == "seq" else 0

    def loop(self, t: Timed, s: For, at: _At) -> None:
        low = value_of(s.min, at.env) or exact(0)
        size = value_of(s.extent, at.env)
        if t.role == "inner":
            env = {**at.env, s.loop_var: (low[0], low[1] + max(t.extent - 1, 0))}
            self.go(t.parts[0], replace(at, env=env))
            return
        body = t.parts[0]
        # A loop goes no further than the steps that are drawn.
        count = t.extent if t.role in ("lanes", "unrolled") else t.count
        if t.role in ("serial", "parallel") and body.duration:
            count = min(count, -(-self.ticks // body.duration))
        index = self.along(at.axis, count)
        at = replace(at, axis=at.axis + 1)
        if t.role in ("serial", "parallel"):
            at = replace(at, tick=at.tick + index * body.duration)
        if t.role == "parallel":
            worker = self.along(at.axis, t.workers)
            index = worker * t.count + index
            workers = at.workers * t.workers
            at = replace(at, axis=at.axis + 1, worker=at.worker * t.workers + worker, workers=workers)
            at = at.only(index < t.extent)
        if size is not None and np.ndim(size[1]):
            at = at.only(index < size[1])
        value = exact(low[0] + index) if low[0] is low[1] else (low[0] + index, low[1] + index)
        self.go(body, replace(at, env={**at.env, s.loop_var: value}))

    def block(self, t: Timed, s: BlockRealize, at: _At) -> None:
        block, env = s.block, dict(at.env)
        for iv, e in s.bindings:
            value = value_of(e, at.env)
            if value is None:
                low, size = value_of(iv.dom.min, at.env), value_of(iv.dom.extent, at.env)
                value = (low[0], low[1] + size[1] - 1) if low is not None and size is not None else exact(0)
            env[iv.var] = value
        self.reads(s.predicate, at)
        at = at.only(may_hold(value_of(s.predicate, at.env)))
        views = {**at.views, **{m.buffer: m.source for m in block.match_buffers}}
        at = replace(at, env=env, block=block, views=views)
        if block.iter_vars and not any(isinstance(n, BlockRealize) for n in pre_order(block.body)):
            self.note(block, "visit", [env[iv.var] for iv in block.iter_vars], at)
        if block.init is not None:
            self.go(t.parts[0], at.only(self.at_start(block, env)))
        self.go(t.parts[-1], at)

    def at_start(self, block: Block, env: Env) -> Any:
        """Where all reduction iterators are at their first value."""
        holds: Any = True
        for iv in block.iter_vars:
            if iv.is_reduction:
                low = value_of(iv.dom.min, env) or exact(0)
                holds = np.logical_and(holds, env[iv.var][0] <= low[1])
        return holds

    def leaf(self, s: Stmt, at: _At) -> None:
        if isinstance(s, BufferStore):
            self.reads(s.value, at)
            for e in s.indices:
                self.reads(e, at)
            self.access(s.buffer, "write", s.indices, at)
        elif isinstance(s, Evaluate) and at.block is not None:
            # What an intrinsic does to memory is known from the block around it.
            for mode, regions in (("read", at.block.reads), ("write", at.block.writes)):
                for r in regions:
                    self.region(r, mode, at)
        elif isinstance(s, Evaluate):
            self.reads(s.value, at)

    # -- accesses ----------------------------------------------------------------------------------
    def reads(self, e: PrimExpr, at: _At) -> None:
        """The loads of an expression; of a choice, those of the side that is taken."""
        for load, here in _loads(e, at):
            self.access(load.buffer, "read", load.indices, here)

    def access(self, b: Buffer, mode: str, indices: tuple[PrimExpr, ...], at: _At) -> None:
        self.box(b, mode, [value_of(i, at.env) for i in indices], at)

    def region(self, r: BufferRegion, mode: str, at: _At) -> None:
        self.box(r.buffer, mode, [_reach(x, at.env) for x in r.region], at)

    def box(self, b: Buffer, mode: str, values: list[Value | None], at: _At) -> None:
        view = at.views.get(b)
        if view is not None:
            skip = len(view.region) - len(values)
            shifted: list[Value | None] = [_reach(r, at.env) for r in view.region[:skip]]
            for r, v in zip(view.region[skip:], values):
                low = value_of(r.min, at.env)
                shifted.append(None if v is None or low is None else (low[0] + v[0], low[1] + v[1]))
            self.box(view.buffer, mode, shifted, at)
            return
        shape = self.shape(b, at.env)
        # An index that was itself read from memory may be anything.
        self.note(b, mode, [(0, n - 1) if v is None else v for v, n in zip(values, shape)], at)

    def shape(self, b: Buffer, env: Env) -> tuple[int, ...]:
        if b not in self.shapes:
            dims = [value_of(d, env) for d in b.shape]
            self.shapes[b] = tuple(SIZE if d is None else max(1, int(np.max(d[1]))) for d in dims)
        return self.shapes[b]

    def note(self, what: Buffer | Block, mode: str, values: list[Value], at: _At) -> None:
        parts = [at.tick, at.worker, at.mask, *(v[0] for v in values), *(v[1] for v in values)]
        flat = [x.ravel() for x in np.broadcast_arrays(*parts)]
        keep = np.flatnonzero(np.logical_and(flat[2], flat[0] < self.ticks))
        tick, worker, *box = (x[keep] for i, x in enumerate(flat) if i != 2)
        n = len(values)
        lo, hi = (np.array(x, dtype=np.int64).reshape(n, keep.size) for x in (box[:n], box[n:]))
        self.found.setdefault((what, mode), []).append(Touches(what, mode, tick, worker, lo, hi))


def _reach(r: Any, env: Env) -> Value | None:
    low, size = value_of(r.min, env), value_of(r.extent, env)
    return None if low is None or size is None else (low[0], low[1] + size[1] - 1)


def _loads(e: PrimExpr, at: _At) -> Iterator[tuple[BufferLoad, _At]]:
    stack: list[tuple[PrimExpr, _At]] = [(e, at)]
    while stack:
        n, here = stack.pop()
        if isinstance(n, BufferLoad):
            yield n, here
            stack.extend((i, here) for i in n.indices)
            continue
        choice = _choice(n)
        if choice is not None:
            condition, then, other = choice
            holds = value_of(condition, here.env)
            stack += [(condition, here), (then, here.only(may_hold(holds)))]
            stack.append((other, here.only(may_hold(negated(holds)))))
        elif isinstance(n, Let):
            bound = value_of(n.value, here.env)
            stack.append((n.value, here))
            inner = here if bound is None else replace(here, env={**here.env, n.var: bound})
            stack.append((n.body, inner))
        else:
            stack.extend((c, here) for c in n.children() if isinstance(c, PrimExpr))


def _choice(n: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr] | None:
    if isinstance(n, Select):
        return n.condition, n.true_value, n.false_value
    if isinstance(n, Call) and isinstance(n.op, Op) and n.op.short_name == "if_then_else":
        return n.args[0], n.args[1], n.args[2]
    return None
