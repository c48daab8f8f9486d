"""Transposing a tile in registers."""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...ir.expr import LT, BufferLoad, Call, PrimExpr, Ramp, Shuffle, Var, const, const_value
from ...ir.functor import substitute, uses_var
from ...ir.op import Op
from ...ir.ops import add, less, sub
from ...ir.stmt import BufferStore, For, ForKind, IfThenElse, LetStmt, Stmt, seq

__all__ = ["KEY", "transposed"]

# The annotation of a loop around a vectorised one that copies a tile across.
KEY = "transpose_lanes"
_LIKELY = Op.get("tir.likely")


def transposed(loop: For) -> Stmt | None:
    """A tile whose rows lie in line in one buffer and whose columns do in the other, copied by vectors.

        for i in range(4):                       four loads of B[j * s, …]
            for j in vectorized(4):       ->     two rounds of shuffles that interleave vectors
                A[i * t + j] = B[j * s + i]      four stores of A[i * t, …]

    None if the loops do something else.
    """
    inner, rows = loop.body, const_value(loop.extent)
    if not (isinstance(inner, For) and inner.kind is ForKind.VECTORIZED) or rows is None:
        return None
    count = const_value(inner.extent)
    if count is None or not 2 <= max(rows, count) <= 16:
        return None
    body, room = _unguarded(inner)
    if (
        not (isinstance(body, BufferStore) and isinstance(body.value, BufferLoad))
        or body.predicate is not None
    ):
        return None
    load = body.value
    if len(body.indices) != 1 or len(load.indices) != 1 or room is None:
        return None
    i, j = loop.loop_var, inner.loop_var
    to, source = body.indices[0], load.indices[0]
    if _step(to, j) != 1 or _step(source, i) != 1 or _step(source, j) is None or _step(to, i) is None:
        return None
    size = 2
    while size < max(rows, count):
        size *= 2
    return _emit(loop, inner, body, load, size, int(rows), int(count), room)


def _unguarded(inner: For) -> tuple[Stmt, PrimExpr | None]:
    """The body without a condition `j < room`, and the number of columns that there are."""
    if not isinstance(inner.body, IfThenElse):
        return inner.body, inner.extent
    condition = inner.body.condition
    if isinstance(condition, Call) and condition.op is _LIKELY:
        condition = condition.args[0]
    if inner.body.else_case is not None or not isinstance(condition, LT):
        return inner.body.then_case, None
    room = Analyzer().simplify(add(sub(condition.b, condition.a), inner.loop_var))
    if uses_var(room, lambda v: v is inner.loop_var):
        return inner.body.then_case, None
    return inner.body.then_case, room


def _step(e: PrimExpr, v: Var) -> int | None:
    """How far an index moves with a loop; None if that is not the same everywhere."""
    ana = Analyzer()
    step = ana.simplify(sub(substitute(e, {v: add(v, const(1, v.dtype))}), e))
    known = const_value(step)
    if known is not None:
        return int(known)
    return None if uses_var(step, lambda w: w is v) else 0


def _emit(
    loop: For,
    inner: For,
    body: BufferStore,
    load: BufferLoad,
    size: int,
    rows: int,
    count: int,
    room: PrimExpr,
) -> Stmt:
    i, j = loop.loop_var, inner.loop_var

    def at(e: PrimExpr, row: int, column: int) -> PrimExpr:
        here = {i: add(loop.min, const(row, i.dtype)), j: add(inner.min, const(column, j.dtype))}
        return Analyzer().simplify(substitute(e, here))

    steps: list[tuple[Var, PrimExpr]] = []
    known = const_value(room)
    columns = count if known is None else max(0, min(count, int(known)))
    full = known is not None

    def named(value: PrimExpr) -> PrimExpr:
        var = Var("tile", value.dtype)
        steps.append((var, value))
        return var

    def loaded(column: int) -> PrimExpr:
        start = at(load.indices[0], 0, min(column, columns - 1))
        if rows == 1:
            return named(load.replace(indices=(start,)))
        predicate = None
        if not full:
            # columns beyond the end are not read
            there = less(const(column, room.dtype), room)
            predicate = _all_lanes(there, rows)
        ramp = Ramp(start if full else at(load.indices[0], 0, column), const(1, start.dtype), rows)
        return named(BufferLoad(load.buffer, (ramp,), predicate))

    if columns == 0:
        return seq()
    vectors = [loaded(c) for c in range(columns)]
    while len(vectors) < size:
        vectors.append(vectors[-1])
    vectors = [named(_widened(v, size)) if v.dtype.lanes != size else v for v in vectors]
    turn = size
    while turn > 1:
        made: list[PrimExpr] = []
        for a, b in zip(vectors[: size // 2], vectors[size // 2 :]):
            for half in (0, size // 2):
                picks = [k for n in range(half, half + size // 2) for k in (n, size + n)]
                made.append(named(Shuffle((a, b), tuple([const(p, "int32") for p in picks]))))
        vectors, turn = made, turn // 2
    stores: list[Stmt] = []
    for r in range(rows):
        start = at(body.indices[0], r, 0)
        value = vectors[r]
        if columns != size:
            value = Shuffle((value,), tuple([const(p, "int32") for p in range(columns)]))
        predicate = None
        if not full:
            lanes = Ramp(const(0, room.dtype), const(1, room.dtype), columns)
            predicate = less(lanes, _all_lanes(room, columns))
        index = start if columns == 1 else Ramp(start, const(1, start.dtype), columns)
        stores.append(BufferStore(body.buffer, value, (index,), predicate, span=body.span))
    out: Stmt = seq(*stores)
    for var, value in reversed(steps):
        out = LetStmt(var, value, out)
    return out


def _widened(v: PrimExpr, size: int) -> PrimExpr:
    """The vector with more lanes; what is in them does not matter."""
    lanes = v.dtype.lanes
    if lanes == 1:
        return Shuffle((v,) * 1, (const(0, "int32"),) * size) if size > 1 else v
    picks = [min(n, lanes - 1) for n in range(size)]
    return Shuffle((v,), tuple([const(p, "int32") for p in picks]))


def _all_lanes(e: Any, lanes: int) -> PrimExpr:
    from ...ir.expr import Broadcast

    return Broadcast(e, lanes) if lanes > 1 else e
