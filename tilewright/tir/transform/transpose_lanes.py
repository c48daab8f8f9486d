"""Transposing a tile in registers."""

from __future__ import annotations

from dataclasses import dataclass

from ...arith import Analyzer
from ...ir.expr import LT, Broadcast, BufferLoad, Call, PrimExpr, Ramp, Shuffle, Var, const, const_value
from ...ir.functor import substitute, uses_var
from ...ir.op import Op
from ...ir.ops import add, conjuncts, less, logical_and, min_of, sub
from ...ir.stmt import BufferStore, For, ForKind, IfThenElse, LetStmt, Stmt, seq
from .inject_prefetch import asked_for

# The annotation of a loop around a vectorized one that transposes a tile.
KEY = "transpose_lanes"
# A second annotation: the distance in tiles of a prefetch into the L2 cache along the rows that are read.
AHEAD = "transpose_ahead"
_LIKELY = Op.get("tir.likely")


def transposed(loop: For) -> Stmt | None:
    """A copy by vectors of a tile whose rows are contiguous in one buffer and whose columns are in the other.

        for i in range(4):                       four loads of B[j * s, …]
            for j in vectorized(4):       ->     two rounds of shuffles that interleave vectors
                A[i * t + j] = B[j * s + i]      four stores of A[i * t, …]

    None if the loops are not such a copy.
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
        return None  # later rows may read elements that earlier ones stored
    i, j = loop.loop_var, inner.loop_var
    to, source = body.indices[0], load.indices[0]
    if _step(to, j) != 1 or _step(source, i) != 1 or _step(source, j) is None or _step(to, i) is None:
        return None
    down, across = _Side(i, loop.min, int(rows)), _Side(j, inner.min, int(columns))
    if not all(_limits(g, down, across) for g in guards):
        return None
    return seq(
        *_prefetches(down, across, load, int(loop.annotations.get(AHEAD, 0))), _emit(down, across, body, load)
    )


@dataclass(slots=True)
class _Side:
    """One of the two loops: its trip count, and the bound `room` if that is not constant."""

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
        """Whether iteration k exists, for all lanes."""
        return None if self.room is None else _all_lanes(less(const(k, self.room.dtype), self.room), lanes)

    def mask(self, lanes: int) -> PrimExpr | None:
        """The mask of the iterations that exist."""
        if self.room is None:
            return None
        if lanes == 1:
            return self.there(0, 1)
        kind = self.room.dtype
        there = self.room if lanes == self.count else min_of(self.room, const(self.count, kind))
        return less(Ramp(const(0, kind), const(1, kind), lanes), Broadcast(there, lanes))


def _opened(s: Stmt, guards: list[PrimExpr]) -> Stmt:
    """The statement inside conditions, which are appended to `guards`."""
    while isinstance(s, IfThenElse) and s.else_case is None:
        guards += conjuncts(s.condition)
        s = s.then_case
    return s


def _limits(guard: PrimExpr, down: _Side, across: _Side) -> bool:
    """Record a condition as a limit of one of the sides."""
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
    """The stride of an index in a loop; None if it is not constant."""
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
    many = _power(columns)  # vectors, of as many lanes at least
    size = max(many, _power(rows))
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
                load.buffer,
                (line(load.indices[0], 0, c, rows),),
                _both(across.there(c, rows), down.mask(rows)),
            )
        )
        for c in range(columns)
    ]
    vectors += [vectors[-1]] * (many - columns)
    vectors = [named(_widened(v, size)) if v.dtype.lanes != size else v for v in vectors]
    # Each round interleaves the first half of all elements with the second: column · size + row becomes
    # row · many + column after as many rounds as a column's number has bits.
    for _ in range(many.bit_length() - 1):
        made: list[PrimExpr] = []
        for a, b in zip(vectors[: many // 2], vectors[many // 2 :], strict=True):
            for half in (0, size // 2):
                picks = [k for n in range(half, half + size // 2) for k in (n, size + n)]
                made.append(named(Shuffle((a, b), tuple([const(p, "int32") for p in picks]))))
        vectors = made
    stores: list[Stmt] = []
    for r in range(rows):
        which, first = divmod(r * many, size)
        for begin, lanes in _pieces(columns) if across.room is None else [(0, many)]:
            value = vectors[which]
            if lanes != size:
                value = Shuffle((value,), tuple([const(first + begin + n, "int32") for n in range(lanes)]))
            index = line(body.indices[0], r, begin, lanes)
            predicate = _both(across.mask(lanes), down.there(r, lanes))
            store: Stmt = BufferStore(
                body.buffer, value, (index,), predicate if lanes > 1 else None, span=body.span
            )
            if lanes == 1 and predicate is not None:  # predicates are for vectors
                store = IfThenElse(predicate, store)
            stores.append(store)
    out: Stmt = seq(*stores)
    for var, value in reversed(steps):
        out = LetStmt(var, value, out)
    return out


def _power(count: int) -> int:
    """The least power of two that is not smaller."""
    return 1 << (count - 1).bit_length()


def _pieces(lanes: int) -> list[tuple[int, int]]:
    """The offsets and lanes of the parts of a vector, which are powers of two. LLVM takes long for stores of odd
    lengths, and splits them into such parts in the end."""
    out, begin = [], 0
    while begin < lanes:
        part = 1 << ((lanes - begin).bit_length() - 1)
        out.append((begin, part))
        begin += part
    return out


def _prefetches(down: _Side, across: _Side, load: BufferLoad, ahead: int) -> list[Stmt]:
    """Prefetches of a later tile; a prefetch beyond the end has no effect."""
    out: list[Stmt] = []
    for c in range(across.count if ahead else 0):
        here = {down.var: down.at(ahead * down.count), across.var: across.at(c)}
        out.append(asked_for(load.buffer, Analyzer().simplify(substitute(load.indices[0], here))))
    return out


def _both(a: PrimExpr | None, b: PrimExpr | None) -> PrimExpr | None:
    return logical_and(a, b) if a is not None and b is not None else b if a is None else a


def _widened(v: PrimExpr, size: int) -> PrimExpr:
    """The vector with more lanes, whose contents are undefined."""
    last = v.dtype.lanes - 1
    return Shuffle((v,), tuple([const(min(n, last), "int32") for n in range(size)]))


def _all_lanes(e: PrimExpr, lanes: int) -> PrimExpr:
    return Broadcast(e, lanes) if lanes > 1 else e
