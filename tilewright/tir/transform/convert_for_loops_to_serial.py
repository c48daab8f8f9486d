"""Serial loops for targets without threads."""

from __future__ import annotations

from ...ir.function import PrimFunc
from ...ir.functor import rewrite
from ...ir.stmt import For, ForKind


def convert_for_loops_to_serial(func: PrimFunc) -> PrimFunc:
    """Make parallel loops serial, for targets that have one thread.

        for i in parallel(n):           for i in range(n):
            S(i)               ->           S(i)

    Needs: nothing. Gives: no loop of kind PARALLEL.
    """
    return rewrite(func, {For: _serial})


def _serial(n: For) -> For | None:
    return n.replace(kind=ForKind.SERIAL) if n.kind is ForKind.PARALLEL else None
