"""Whether the elements that a block writes tell its points apart."""

from __future__ import annotations

from ...arith import IterMapLevel, detect_iter_map
from ...ir.buffer import BufferRegion
from ...ir.expr import Add, IntImm, IterVar, Mul, PrimExpr, Var, const, const_value
from ...ir.functor import vars_used
from ...ir.ops import is_one
from ...ir.stmt import Block

__all__ = ["untold"]


def untold(block: Block, region: BufferRegion) -> IterVar | None:
    """A spatial iterator of a block of which the elements in a region do not say the value; None if there is none.

    `B[vi, vj]` tells of both, `B[vi + vj]` and `B[X[vi]]` of neither.
    """
    spatial = [iv for iv in block.iter_vars if iv.iter_type == IterVar.DataPar and not is_one(iv.dom.extent)]
    mins = [r.min for r in region.region]
    left = [iv for iv in spatial if not any(_is_shifted(e, iv.var) for e in mins)]
    if not left:
        return None
    doms = {iv.var: iv.dom for iv in block.iter_vars}
    ends: list[PrimExpr] = []
    for (
        r
    ) in region.region:  # a range of several elements stands for the first of them, if it is one of its own
        if not vars_used(r.min) & doms.keys():
            continue
        size, step = const_value(r.extent), _step(r.min)
        if size is None or (size != 1 and step % int(size)):
            return left[0]
        ends.append(r.min)
    used = {v: dom for v, dom in doms.items() if any(v in vars_used(e) for e in ends)}
    missing = next((iv for iv in left if iv.var not in used), None)
    if missing is not None:
        return missing
    found = detect_iter_map(ends, used, const(True, "bool"), IterMapLevel.Bijective)
    return left[0] if found.errors else None


def _is_shifted(e: PrimExpr, v: Var) -> bool:
    """Whether an index is an iterator, or one plus a number."""
    return e is v or (
        isinstance(e, Add)
        and ((e.a is v and isinstance(e.b, IntImm)) or (e.b is v and isinstance(e.a, IntImm)))
    )


def _step(e: PrimExpr) -> int:
    """What an index is a multiple of, as `v*16` is of 16."""
    return e.b.value if isinstance(e, Mul) and isinstance(e.b, IntImm) else 1
