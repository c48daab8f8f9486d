"""When each statement of a program runs, counted in steps: what happens at once is one step.

for i in T.parallel(4):          # 4 workers, all at once
    for j in range(8):           # 8 steps
        for k in T.vectorized(4):    # one step together
            C[i, j * 4 + k] = …      # the program takes 8 steps
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ....ir.stmt import (
    BlockRealize,
    BufferStore,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
)
from .ranges import Env, exact, value_of

WORKERS = 8  # a parallel loop is drawn with at most so many workers


@dataclass(slots=True)
class Timed:
    """A statement and the steps that it takes.

    `role` is `leaf` for what touches memory, `seq` for one after the other, `together` for at the same
    time, `scope` for what only wraps its part, or for loops: `serial`, `parallel` (each of `workers` runs
    `count` of the iterations), `lanes` (vectors and threads), `unrolled`, `inner` (drawn as one step).
    """

    stmt: Stmt
    role: str
    duration: int = 1
    parts: list[Timed] = field(default_factory=list)
    extent: int = 1
    count: int = 1
    workers: int = 1

    def lanes(self) -> int:
        """The most that happens in a step."""
        own = self.extent if self.role in ("lanes", "unrolled") else self.workers
        return own * max((p.lanes() for p in self.parts), default=1)

    def axes(self) -> int:
        """The loops around the innermost statement."""
        own = 2 if self.role == "parallel" else 1 if self.role in ("serial", "lanes", "unrolled") else 0
        return own + max((p.axes() for p in self.parts), default=0)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the walk is: what is known of variables, and what loops there is still room for."""

    env: Env
    depth: int  # how many loops further down are walked
    workers: int = WORKERS
    inside: bool = False  # of a loop that is drawn as one step
    depths: Mapping[Stmt, int] = field(default_factory=dict)  # how many, from a statement on


def timeline(stmt: Stmt, env: Env, depths: Mapping[Stmt, int] | None = None) -> Timed:
    """The statement with its steps; of a statement in `depths`, loops so deep inside are one step."""
    return _timed(stmt, _Place(env, 1 << 30, depths=depths or {}))


def depth_of(t: Timed) -> int:
    """How many loops of several steps stand inside one another."""
    own = t.role in ("serial", "parallel") and t.extent > 1
    return own + max((depth_of(p) for p in t.parts), default=0)


def _timed(s: Stmt, at: _Place) -> Timed:
    if s in at.depths:
        at = replace(at, depth=at.depths[s])
    if isinstance(s, For):
        return _loop(s, at)
    if isinstance(s, SeqStmt):
        parts = [_timed(x, at) for x in s.seq]
        if at.inside:
            return Timed(s, "together", 1, parts)
        return Timed(s, "seq", sum(p.duration for p in parts), parts)
    if isinstance(s, BlockRealize):
        return _block(s, at)
    if isinstance(s, IfThenElse):
        cases = [_timed(x, at) for x in (s.then_case, s.else_case) if x is not None]
        return Timed(s, "together", max(p.duration for p in cases), cases)
    if isinstance(s, LetStmt):
        bound = value_of(s.value, at.env)
        inner = _timed(s.body, at if bound is None else replace(at, env={**at.env, s.var: bound}))
        return Timed(s, "scope", inner.duration, [inner])
    body = getattr(s, "body", None)
    if isinstance(body, Stmt) and not isinstance(s, While):
        inner = _timed(body, at)
        return Timed(s, "scope", inner.duration, [inner])
    return Timed(s, "leaf")


def _block(s: BlockRealize, at: _Place) -> Timed:
    env = dict(at.env)
    for iv, value in s.bindings:
        bound = value_of(value, at.env)
        if bound is not None:
            env[iv.var] = bound
    at = replace(at, env=env)
    # The start of a reduction is drawn with the first thing that it adds up.
    parts = [_timed(x, at) for x in (s.block.init, s.block.body) if x is not None]
    return Timed(s, "scope", max(p.duration for p in parts), parts)


def _loop(s: For, at: _Place) -> Timed:
    low, size = value_of(s.min, at.env), value_of(s.extent, at.env)
    extent = 1 if size is None else max(0, int(np.max(size[1])))
    low = exact(0) if low is None else low
    env = {**at.env, s.loop_var: (np.min(low[0]), np.max(low[1]) + max(extent - 1, 0))}
    inner = replace(at, env=env)
    if extent <= 1 or at.inside:
        body = _timed(s.body, inner)
        return Timed(s, "inner" if at.inside else "serial", body.duration * extent, [body], extent, extent)
    tag = s.thread_binding.thread_tag if s.thread_binding is not None else ""
    if s.kind is ForKind.VECTORIZED or tag.startswith(("threadIdx", "vthread")):
        body = _timed(s.body, inner)
        return Timed(s, "lanes", body.duration, [body], extent)
    if s.kind is ForKind.UNROLLED and _one_step(s.body):
        body = _timed(s.body, inner)
        return Timed(s, "unrolled", body.duration, [body], extent)
    if at.depth == 0:
        return Timed(s, "inner", 1, [_timed(s.body, replace(inner, inside=True))], extent)
    inner = replace(inner, depth=at.depth - 1)
    if (s.kind is ForKind.PARALLEL or tag.startswith("blockIdx")) and at.workers > 1:
        workers = min(extent, at.workers)
        count = -(-extent // workers)
        workers = -(-extent // count)
        body = _timed(s.body, replace(inner, workers=at.workers // workers))
        return Timed(s, "parallel", body.duration * count, [body], extent, count, workers)
    body = _timed(s.body, inner)
    return Timed(s, "serial", body.duration * extent, [body], extent, extent)


def _one_step(s: Stmt) -> bool:
    """Whether a loop body is one statement, or vectors of it."""
    while not isinstance(s, BufferStore):
        if isinstance(s, BlockRealize):
            s = s.block.body
        elif isinstance(s, For) and s.kind in (ForKind.VECTORIZED, ForKind.UNROLLED):
            s = s.body
        else:
            return False
    return True
