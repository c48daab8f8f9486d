"""Elements one by one on a GPU: a thread for each vector of elements that lie in line.

out[i, j] = if_then_else(j < 1000, a[i, j], b[i, j - 1000])      vectors of 4 along j: 1000 is a multiple of 4, so
                                                                 that all lanes of one decide alike
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..arith import Analyzer
from ..ir.expr import GE, GT, LE, LT, Call, PrimExpr, Var, const, const_value
from ..ir.functor import pre_order, substitute, vars_used
from ..ir.op import Op
from ..ir.ops import conjuncts, sub
from ..tir.schedule.primitive import LoopRV
from .elementwise import extent_of, joined
from .facts import Axis, Facts

if TYPE_CHECKING:
    from .gpu import GpuFunction

__all__ = ["by_elements"]

_SMALL = 128  # threads of a block that works element by element
_MANY = 2048  # blocks, of which some are always there to follow others
_ROWS_OF_BLOCKS = 65535  # that a grid may have
_WIDE = 16  # bytes that a thread may take at once
_NEAR = 4  # elements between neighbours that are read
_EACH = 32  # bytes that a thread should have in all
_OFTEN = 8  # copies of its code, at most


def by_elements(g: GpuFunction, f: Facts) -> dict[str, object]:
    """Threads over all elements of a stage."""
    sch, wide = g.sch, _width(g, f)
    threads, several = min(g.most, _SMALL), 1
    # Some bytes each: blocks that have less are begun and ended as fast as memory gives it to them, or not even that.
    most = min(_OFTEN, _EACH * 8 // (wide * f.bits))
    while several < most and f.points >= 2 * several * threads * wide * _MANY:
        several *= 2
    loops = sch.get_loops(f.rv)
    # Loops that are fused must be counted in 32 bits.
    outer: list[LoopRV] = []
    while len(loops) > 1 and math.prod(extent_of(sch, x) or 1 for x in loops) >= 1 << 31:
        outer.append(loops.pop(0))
    tags = ("blockIdx.x", "blockIdx.y")
    if outer:
        count = math.prod(extent_of(sch, x) or 1 for x in outer)
        tags = tags if count > _ROWS_OF_BLOCKS else tags[::-1]
        sch.bind(g.fused(outer, f.rv), tags[0])
    g.spread(g.fused(loops, f.rv), threads, wide, tags[1] if outer else tags[0], several)
    return {"threads": threads, "elements at a time": wide}


def _width(g: GpuFunction, f: Facts) -> int:
    """How many neighbours a thread takes at once: they lie in line where they are written, and not far from each other
    where they are read, and what is asked before they are is answered alike for all."""
    if not f.axes or f.write is None:
        return 1
    last = f.axes[-1]
    if not last.known or f.write.stride(last) != 1 or any(abs(r.stride(last) or 0) > _NEAR for r in f.reads):
        return 1
    size = last.extent if f.guarded else math.prod(a.extent for a in f.spatial[-joined(f) :])
    wide = g.widest or _WIDE * 8 // max(8, f.bits)
    while wide > 1 and (size % wide or not _alike(f, last, wide)):
        wide //= 2
    return wide


def _alike(f: Facts, axis: Axis, wide: int) -> bool:
    """Whether `wide` neighbours along an axis take the same branches, wherever they start at a multiple of that."""
    asked = [m.args[0] for m in pre_order(f.block.body) if _is_choice(m)]
    return all(
        axis.var not in vars_used(c) or _turns_at(c, axis.var, wide) for e in asked for c in conjuncts(e)
    )


def _is_choice(m: object) -> bool:
    return isinstance(m, Call) and isinstance(m.op, Op) and m.op.short_name == "if_then_else"


def _turns_at(c: PrimExpr, var: Var, wide: int) -> bool:
    """Whether a comparison compares a variable with a number, and changes at a multiple of `wide`."""
    if not isinstance(c, (LT, LE, GT, GE)):
        return False
    ana, room = Analyzer(), sub(c.b, c.a)
    at = [const_value(ana.simplify(substitute(room, {var: const(n, var.dtype)}))) for n in (0, 1)]
    if at[0] is None or at[1] is None or abs(at[1] - at[0]) != 1 or vars_used(room) != {var}:
        return False
    # Where `room` is 0 the answer is already the next one, or only after it.
    rises, zero = at[1] > at[0], -at[0] if at[1] > at[0] else at[0]
    return (zero + (1 if rises == isinstance(c, (LT, GE)) else 0)) % wide == 0
