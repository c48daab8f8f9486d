"""A simulated cache: what a program reads and writes, in order, and how much of it a cache would miss.

    lowered program ──trace──▶ addresses, in the order of the loops ──Cache.feed──▶ lines that were not there

Nothing here knows what the program computes: the addresses come from its loops and indices, as they are lowered. The
simulation is a loop program itself, compiled like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import tir
from tilewright.script import tir as T

Env = dict[Any, Any]


# -- the addresses of a program ------------------------------------------------------------------
def _value(e: Any, env: Env) -> Any:
    """An index under values of the loops: all turns of the loops at once, as an array."""
    if isinstance(e, tir.IntImm):
        return np.int64(e.value)
    if isinstance(e, tir.Var):
        return env[e]
    a, b = _value(e.a, env), _value(e.b, env)
    if isinstance(e, tir.Add):
        return a + b
    if isinstance(e, tir.Sub):
        return a - b
    if isinstance(e, tir.Mul):
        return a * b
    if isinstance(e, tir.FloorDiv):
        return a // b
    if isinstance(e, tir.FloorMod):
        return a % b
    raise TypeError(f"an index with {type(e).__name__} is not traced: {e}")


class Tracer:
    """The bytes that a lowered program touches. Each buffer begins at an address of its own, on a page of its own."""

    def __init__(self, func: Any) -> None:
        self.body = func.body
        self.start: dict[str, int] = {}
        self._next = 0

    def _base(self, buffer: Any) -> int:
        name = buffer.data.name
        if name not in self.start:
            elements = int(np.prod([int(s) for s in buffer.shape]))
            self.start[name] = self._next
            self._next += -(-elements * (tvm.DataType(buffer.dtype).bits // 8) // 4096) * 4096
        return self.start[name]

    def _access(self, node: Any, env: Env, points: int) -> np.ndarray[Any, Any]:
        (index,) = node.indices
        at = self._base(node.buffer) + _value(index, env) * (tvm.DataType(node.buffer.dtype).bits // 8)
        return np.broadcast_to(at, (points,))

    def _turns(self, stmt: Any, env: Env, points: int) -> np.ndarray[Any, Any]:
        """The accesses of a statement: a row for each turn of the loops around it, in order."""
        if isinstance(stmt, tir.For):
            extent = int(stmt.extent)
            inner = {v: np.repeat(x, extent) if np.ndim(x) else x for v, x in env.items()}
            inner[stmt.loop_var] = np.tile(np.arange(extent, dtype=np.int64), points)
            return self._turns(stmt.body, inner, points * extent).reshape(points, -1)
        if isinstance(stmt, tir.SeqStmt):
            return np.concatenate([self._turns(s, env, points) for s in stmt.seq], axis=1)
        if isinstance(stmt, tir.LetStmt):
            return self._turns(stmt.body, {**env, stmt.var: _value(stmt.value, env)}, points)
        if isinstance(stmt, tir.BufferStore):
            loads: list[Any] = []
            tir.stmt_functor.post_order_visit(
                stmt.value, lambda n: loads.append(n) if isinstance(n, tir.BufferLoad) else None
            )
            return np.stack([self._access(n, env, points) for n in (*loads, stmt)], axis=1)
        if hasattr(stmt, "body"):
            return self._turns(stmt.body, env, points)
        raise TypeError(f"a program with {type(stmt).__name__} is not traced")

    def pieces(self, largest: int = 1 << 15) -> Iterator[np.ndarray[Any, Any]]:
        """The addresses, in pieces of some hundred thousand turns: outer loops are walked one turn at a time."""
        yield from self._walk(self.body, {}, largest)

    def _walk(self, stmt: Any, env: Env, largest: int) -> Iterator[np.ndarray[Any, Any]]:
        if _size(stmt) <= largest:
            yield self._turns(stmt, env, 1).reshape(-1)
        elif isinstance(stmt, tir.For):
            for turn in range(int(stmt.extent)):
                yield from self._walk(stmt.body, {**env, stmt.loop_var: np.int64(turn)}, largest)
        elif isinstance(stmt, tir.SeqStmt):
            for part in stmt.seq:
                yield from self._walk(part, env, largest)
        elif isinstance(stmt, tir.LetStmt):
            yield from self._walk(stmt.body, {**env, stmt.var: _value(stmt.value, env)}, largest)
        else:
            yield from self._walk(stmt.body, env, largest)


def _size(stmt: Any) -> int:
    """How many stores a statement runs."""
    if isinstance(stmt, tir.For):
        return int(stmt.extent) * _size(stmt.body)
    if isinstance(stmt, tir.SeqStmt):
        return sum(_size(s) for s in stmt.seq)
    return _size(stmt.body) if hasattr(stmt, "body") else 1


# -- the cache -----------------------------------------------------------------------------------
@T.prim_func
def lru(a: T.handle, t: T.handle, m: T.handle, c: T.handle):  # type: ignore[no-untyped-def]
    """Each set holds the lines that were used last, the newest first."""
    n, sets, ways = T.int32(), T.int32(), T.int32()
    line = T.match_buffer(a, (n,), "int32")
    held = T.match_buffer(t, (sets, ways), "int32")
    missed = T.match_buffer(m, (n,), "int32")
    misses = T.match_buffer(c, (1,), "int32")
    pushed = T.alloc_buffer((1,), "int32", scope="local")
    found = T.alloc_buffer((1,), "int32", scope="local")
    for i in range(n):
        if held[line[i] % sets, 0] != line[i]:
            pushed[0] = line[i]
            found[0] = 0
            for way in range(ways):
                if found[0] == 0:
                    old: T.int32 = held[line[i] % sets, way]
                    held[line[i] % sets, way] = pushed[0]
                    pushed[0] = old
                    if old == line[i]:
                        found[0] = 1
            if found[0] == 0:
                missed[misses[0]] = line[i]
                misses[0] = misses[0] + 1


@cache
def _simulate() -> Any:
    return tvm.build(lru, target="llvm")


@dataclass
class Cache:
    """A cache of some bytes, in sets of some ways. It holds what was used last, and guesses nothing ahead."""

    name: str
    bytes: int
    ways: int
    line: int
    misses: int = 0
    lines: Any = field(default=None, repr=False)

    @property
    def sets(self) -> int:
        return max(1, self.bytes // self.line // self.ways)

    def feed(self, lines: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The lines that were not there, which the next cache is asked for."""
        if self.lines is None:
            self.lines = np.full((self.sets, self.ways), -1, "int32")
        missed, found = np.empty_like(lines), np.zeros(1, "int32")
        _simulate()(lines, self.lines, missed, found)
        self.misses += int(found[0])
        return missed[: int(found[0])]


def caches() -> list[Cache]:
    """The data caches that one core of this machine sees, without the last."""
    known = tvm.target.Target("llvm").cpu.cache_sizes
    ways = {1: 8, 2: 8}
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            kind, level, told = (
                (folder / f).read_text().strip() for f in ("type", "level", "ways_of_associativity")
            )
        except OSError:
            continue
        if kind != "Instruction" and int(level) in ways and int(told) > 0:
            ways[int(level)] = int(told)
    sizes = {1: known.l1d or 32 << 10, 2: known.l2}  # 32 KiB, where the system does not say
    return [Cache(f"L{level}", bytes, ways[level], known.line) for level, bytes in sizes.items() if bytes]


def count_misses(func: Any, most: int) -> dict[str, float]:
    """The part of a program's accesses that each cache of this machine would miss.

    At most `most` accesses are simulated; the first tenth of them only warms the caches up.
    """
    levels, seen, counted = caches(), 0, 0
    for piece in Tracer(func).pieces():
        warm = seen < most // 10
        lines = (piece // levels[0].line).astype("int32")
        for level in levels:
            already = level.misses
            lines = level.feed(lines)
            if warm:
                level.misses = already
        seen += len(piece)
        counted += 0 if warm else len(piece)
        if seen >= most:
            break
    return {level.name: level.misses / max(1, counted) for level in levels}


def touched(func: Any, buffer: str, uses: int, line: int, row: int) -> np.ndarray[Any, Any]:
    """How often the first uses of a square matrix touch each of its lines: rows of the matrix, lines of a row."""
    tracer = Tracer(func)
    addresses = np.concatenate([*tracer.pieces()])
    start = tracer.start[buffer]
    end = min((s for s in tracer.start.values() if s > start), default=1 << 60)
    mine = (addresses[(addresses >= start) & (addresses < end)] - start)[:uses]
    grid = np.zeros((row, row * 4 // line), int)
    np.add.at(grid, (mine // (row * 4), mine % (row * 4) // line), 1)
    return grid
