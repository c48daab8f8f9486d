"""Loop unswitching: loop-invariant conditions move out of loops."""

from __future__ import annotations

from ...ir.function import PrimFunc
from .hoist_expression import hoist_expression


def hoist_if_then_else(func: PrimFunc, variant: str | None = None, *, block_scope: bool = False) -> PrimFunc:
    """Evaluate a loop-invariant condition once, outside of the loop.

        for i in range(n):                     if m < 8:
            if m < 8:                ->            for i in range(n):
                S(i)                                   S(i)

    Bindings stay where they are: `hoist_expression` moves these too. The variant "basic" never moves
    conditions on hardware threads, whatever `block_scope` says.

    Needs: `verify_ssa`. Gives: `verify_ssa`.
    """
    return hoist_expression(
        func, conditionals=True, lets=False, block_scope=block_scope and variant != "basic"
    )
