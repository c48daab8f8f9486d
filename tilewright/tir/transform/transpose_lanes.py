"""Transposing a tile in registers."""

from __future__ import annotations

from dataclasses import dataclass

from ...arith import Analyzer
from ...ir.expr import LT, Broadcast, BufferLoad, Call, PrimExpr, Ramp, Shuffle, Var, const, const_value
from ...ir.functor import substitute, uses_var
from ...ir.op import Op
from ...ir.ops import add, call, conjuncts, less, logical_and, min_of, sub
from ...ir.stmt import BufferStore, Evaluate, For, ForKind, IfThenElse, LetStmt, Stmt, seq

__all__ = ["AHEAD", "KEY", "transposed"]

# The annotation of a loop around a vectorised one that copies a tile across.
KEY = "transpose_lanes"
# One more: so many tiles further along the lines that are read, the second cache is asked to fetch.
AHEAD = "transpose_ahead"
_READ, _SECOND_CACHE, _DATA = 0, 2, 1
_LIKELY = Op.get("tir.likely")


def transposed(loop: For) -> Stmt | None:
    """A tile whose rows lie in line in one buffer and whose columns do in the other, copied by vectors.

        for i in range(4):                       four loads of B[j * s, …]
            for j in vectorized(4):       ->     two rounds of shuffles that interleave vectors
                A[i * t + j] = B[j * s + i]      four stores of A[i * t, …]

    None if the loops do something else.
    """
    guards: list[PrimExpr] = []
    inner = _opened(loop.body, guards)
    if not (isinstance(inner, For) and inner.kind is ForKind.VECTORIZED):
        return None
    rows, columns = const_value(loop.extent), const_value(inner.extent)
    if rows is None or columns is None or not 2 <= max(rows, columns) <= 16:
        return None
    body = _opened(inner.body, guards)
    if not (isinstance(body, BufferStore) and isinstance(body.value, BufferLoad)):
        return None
    load = body.value
    if len(body.indices) != 1 or len(load.indices) != 1 or body.predicate is not None:
        return None
    if load.buffer.data is body.buffer.data:
        return None  # later rows may read what earlier ones stored
    i, j = loop.loop_var, inner.loop_var
    to, source = body.indices[0], load.indices[0]
    if _step(to, j) != 1 or _step(source, i) != 1 or _step(source, j) is None or _step(to, i) is None:
        return None
    down, across = _Side(i, loop.min, int(rows)), _Side(j, inner.min, int(columns))
    if not all(_limits(g, down, across) for g in guards):
        return None
    return seq(
        *_asked(down, across, load, int(loop.annotations.get(AHEAD, 0))), _emit(down, across, body, load)
    )


@dataclass(slots=True)
class _Side:
    """One of the two loops: how many of its values there are, and `room` for how many if that is not known."""

    var: Var
    begin: PrimExpr
    count: int
    room: PrimExpr | None = None

    def at(self, k: int) -> PrimExpr:
        return add(self.begin, const(k, self.var.dtype))

    def limit(self, room: PrimExpr) -> None:
        known = const_value(room)
        if known is not None:
            self.count = max(0, min(self.count, int(known)))
        else:
            self.room = room if self.room is None else min_of(self.room, room)

    def there(self, k: int, lanes: int) -> PrimExpr | None:
        """Whether value k is there, for all lanes."""
        return None if self.room is None else _all_lanes(less(const(k, self.room.dtype), self.room), lanes)

    def mask(self) -> PrimExpr | None:
        """Which values are there."""
        if self.room is None:
            return None
        if self.count == 1:
            return self.there(0, 1)
        kind = self.room.dtype
        return less(Ramp(const(0, kind), const(1, kind), self.count), Broadcast(self.room, self.count))


def _opened(s: Stmt, guards: list[PrimExpr]) -> Stmt:
    """What is inside of conditions, which go to `guards`."""
    while isinstance(s, IfThenElse) and s.else_case is None:
        guards += conjuncts(s.condition)
        s = s.then_case
    return s


def _limits(guard: PrimExpr, down: _Side, across: _Side) -> bool:
    """Take a condition in as a limit of one of the sides."""
    if isinstance(guard, Call) and guard.op is _LIKELY:
        guard = guard.args[0]
    if not isinstance(guard, LT):
        return False
    both = (down.var, across.var)
    for side in (across, down):
        room = Analyzer().simplify(sub(add(sub(guard.b, guard.a), side.var), side.begin))
        if not uses_var(room, lambda v: v in both):
            side.limit(room)
            return True
    return False


def _step(e: PrimExpr, v: Var) -> int | None:
    """How far an index moves with a loop; None if that is not the same everywhere."""
    ana = Analyzer()
    step = ana.simplify(sub(substitute(e, {v: add(v, const(1, v.dtype))}), e))
    known = const_value(step)
    if known is not None:
        return int(known)
    return None if uses_var(step, lambda w: w is v) else 0


def _emit(down: _Side, across: _Side, body: BufferStore, load: BufferLoad) -> Stmt:
    rows, columns = down.count, across.count
    if rows == 0 or columns == 0:
        return seq()
    size = 2
    while size < max(rows, columns):
        size *= 2
    steps: list[tuple[Var, PrimExpr]] = []

    def named(value: PrimExpr) -> PrimExpr:
        var = Var("tile", value.dtype)
        steps.append((var, value))
        return var

    def line(e: PrimExpr, row: int, column: int, lanes: int) -> PrimExpr:
        start = Analyzer().simplify(substitute(e, {down.var: down.at(row), across.var: across.at(column)}))
        return start if lanes == 1 else Ramp(start, const(1, start.dtype), lanes)

    vectors = [
        named(
            BufferLoad(
                load.buffer, (line(load.indices[0], 0, c, rows),), _both(across.there(c, rows), down.mask())
            )
        )
        for c in range(columns)
    ]
    vectors += [vectors[-1]] * (size - columns)
    vectors = [named(_widened(v, size)) if v.dtype.lanes != size else v for v in vectors]
    for _ in range(size.bit_length() - 1):
        made: list[PrimExpr] = []
        for a, b in zip(vectors[: size // 2], vectors[size // 2 :], strict=True):
            for half in (0, size // 2):
                picks = [k for n in range(half, half + size // 2) for k in (n, size + n)]
                made.append(named(Shuffle((a, b), tuple([const(p, "int32") for p in picks]))))
        vectors = made
    stores: list[Stmt] = []
    for r in range(rows):
        value = vectors[r]
        if columns != size:
            value = Shuffle((value,), tuple([const(p, "int32") for p in range(columns)]))
        index = line(body.indices[0], r, 0, columns)
        predicate = _both(across.mask(), down.there(r, columns))
        stores.append(BufferStore(body.buffer, value, (index,), predicate, span=body.span))
    out: Stmt = seq(*stores)
    for var, value in reversed(steps):
        out = LetStmt(var, value, out)
    return out


def _asked(down: _Side, across: _Side, load: BufferLoad, ahead: int) -> list[Stmt]:
    """Hints for a tile that comes later; what lies beyond the end is asked for too, which does nothing."""
    out: list[Stmt] = []
    for c in range(across.count if ahead else 0):
        here = {down.var: down.at(ahead * down.count), across.var: across.at(c)}
        place = BufferLoad(load.buffer, (Analyzer().simplify(substitute(load.indices[0], here)),))
        address = call("handle", "tir.address_of", place)
        out.append(Evaluate(call("void", "tir.prefetch", address, _READ, _SECOND_CACHE, _DATA)))
    return out


def _both(a: PrimExpr | None, b: PrimExpr | None) -> PrimExpr | None:
    return logical_and(a, b) if a is not None and b is not None else b if a is None else a


def _widened(v: PrimExpr, size: int) -> PrimExpr:
    """The vector with more lanes; what is in them does not matter."""
    last = v.dtype.lanes - 1
    return Shuffle((v,), tuple([const(min(n, last), "int32") for n in range(size)]))


def _all_lanes(e: PrimExpr, lanes: int) -> PrimExpr:
    return Broadcast(e, lanes) if lanes > 1 else e
