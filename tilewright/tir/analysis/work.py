"""The arithmetic and the memory traffic of a program before it is scheduled, in its symbolic sizes.

for i, j, k in grid(n, 64, 32):                    flops  2 * n * 64 * 32
    C[i, j] += A[i, k] * B[k, j]           ->      bytes  4 * (n * 32 + 32 * 64 + n * 64)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...ir.buffer import Buffer
from ...ir.expr import BufferLoad, IntImm, Min, PrimExpr, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import pre_order, vars_used
from ...ir.stmt import BlockRealize, BufferStore, For, SeqStmt, Stmt
from .measure import _Flops

_LIKELY = 64.0  # the value of a symbolic size when two counts are compared


class Work(NamedTuple):
    """The operations of a program on values, and the bytes of its parameters that it accesses."""

    flops: PrimExpr
    nbytes: PrimExpr


@dataclass(frozen=True, slots=True)
class _Count:
    """A sum of products: a number times some sizes."""

    terms: tuple[tuple[float, tuple[PrimExpr, ...]], ...] = ()

    @staticmethod
    def of(value: Any) -> _Count:
        if isinstance(value, _Count):
            return value
        return _Count(((float(value), ()),) if value else ())

    def __add__(self, other: Any) -> _Count:
        found: dict[tuple[PrimExpr, ...], float] = {}
        for factor, sizes in (*self.terms, *_Count.of(other).terms):
            found[sizes] = found.get(sizes, 0.0) + factor
        return _Count(tuple((factor, sizes) for sizes, factor in found.items()))

    __radd__ = __add__

    def __mul__(self, other: Any) -> _Count:
        return _Count(tuple((a * b, (*x, *y)) for a, x in self.terms for b, y in _Count.of(other).terms))

    __rmul__ = __mul__

    def __gt__(self, other: Any) -> bool:
        return self.likely > _Count.of(other).likely

    def __lt__(self, other: Any) -> bool:
        return self.likely < _Count.of(other).likely

    @property
    def likely(self) -> float:
        return sum(factor * _LIKELY ** len(sizes) for factor, sizes in self.terms)

    def expr(self) -> PrimExpr:
        total: Any = None
        for factor, sizes in self.terms:
            term: Any = const(round(factor), "int64")
            for size in sizes:
                term = term * size.astype("int64")
            total = term if total is None else total + term
        return const(0, "int64") if total is None else total


def _size(extent: Any) -> _Count:
    known = const_value(extent)
    return _Count.of(known) if known is not None else _Count(((1.0, (extent,)),))


class _SymbolicFlops(_Flops):
    def loop_count(self, n: For) -> Any:
        return float(n.extent.value) if isinstance(n.extent, IntImm) else _size(n.extent)


def work_of(func: PrimFunc) -> Work | None:
    """The work of a function in its symbolic sizes.

    A parameter is accessed once in each of its elements, or in as many as there are iterations that read it, if these
    are fewer: a gather reads the rows that it returns, and not the table. None if the number of iterations depends on
    more than sizes.
    """
    stated = func.attrs.get("estimated_flops")
    flops = _Count.of(_SymbolicFlops().stmt(func.body) if stated is None else const_value(stated) or 0)
    total: Any = const(0, "int64")
    points = _points(func)
    for buffer in func.buffer_map.values():
        accessed = points.get(buffer)
        if accessed is None:
            continue
        whole = _Count.of(1)
        for extent in buffer.shape:
            whole = whole * _size(extent)
        total = total + _smaller(whole, accessed) * buffer.dtype.nbytes
    made = Work(flops.expr(), total)
    sizes = {v for b in func.buffer_map.values() for d in b.shape for v in vars_used(d)} | set(func.params)
    return made if all(v in sizes for each in made for v in vars_used(each)) else None


def _smaller(a: _Count, b: _Count) -> Any:
    """The smaller of two counts: as an expression if it depends on the sizes."""
    if a.terms == b.terms:
        return a.expr()
    if not any(sizes for _, sizes in (*a.terms, *b.terms)):
        return (b if a > b else a).expr()
    return Min(a.expr(), b.expr())


def _points(func: PrimFunc) -> Mapping[Buffer, _Count]:
    """The number of iterations that access each buffer."""
    found: dict[Buffer, _Count] = {}
    for count, statement in _leaves(func.body, _Count.of(1)):
        accessed = {n.buffer for n in pre_order(statement) if isinstance(n, (BufferLoad, BufferStore))}
        for buffer in accessed:
            found[buffer] = found.get(buffer, _Count()) + count
    return found


def _leaves(n: Stmt, count: _Count) -> Iterator[tuple[_Count, Stmt]]:
    """The statements inside of loops and blocks, with the number of their iterations."""
    stack: list[tuple[Stmt, _Count]] = [(n, count)]
    while stack:
        at, times = stack.pop()
        if isinstance(at, SeqStmt):
            stack.extend((s, times) for s in at.seq)
        elif isinstance(at, For):
            stack.append((at.body, times * _size(at.extent)))
        elif isinstance(at, BlockRealize):
            stack.append((at.block.body, times))
        else:
            yield times, at
