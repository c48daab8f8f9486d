"""Shared subexpressions.

Nodes may be shared, so an expression can be far larger written out than in memory:

    x = A[i]                          60 nodes in memory,
    for _ in range(60): x = x + x     2**60 written out

Read-only walks visit each node once. Lowering, printing and running expand the expression; they call
`check_written_out` first, which refuses exponential expansions.
"""

from __future__ import annotations

import math
from typing import Any, Final

from .errors import TVMError
from .function import PrimFunc

_MOST: Final = 50_000
_FACTOR: Final = 8


class SharedExpressionError(TVMError, ValueError):
    """An expression that is small in memory and too large when expanded."""


def written_out(root: Any) -> tuple[int, int]:
    """The numbers of nodes of a program, expanded and distinct."""
    sizes: dict[int, int] = {}
    start = root.body if isinstance(root, PrimFunc) else root
    stack = [start]
    while stack:
        n = stack[-1]
        if id(n) in sizes:
            stack.pop()
            continue
        below = n.children()
        missing = [c for c in below if id(c) not in sizes]
        if missing:
            stack += missing
        else:
            sizes[id(n)] = 1 + sum([sizes[id(c)] for c in below])
            stack.pop()
    return sizes[id(start)], len(sizes)


def too_shared(root: Any) -> str:
    """The reason why a program is too large to be expanded; empty if it is not."""
    stack, few = [root.body if isinstance(root, PrimFunc) else root], 5000
    while stack and few:  # ordinary programs end here
        few -= 1
        stack.extend(stack.pop().children())
    if not stack:
        return ""
    whole, distinct = written_out(root)
    if whole <= _MOST or whole <= _FACTOR * distinct:
        return ""
    shown = (
        f"{whole}"
        if whole < 10**9
        else f"{float(whole):.1e}"
        if whole < 10**300
        else f"10^{math.log10(whole):.0f}"
    )
    return f"an expression of {distinct} nodes shares subexpressions so often that it has {shown} nodes when expanded"


def check_written_out(root: Any, what: str) -> None:
    """Refuse a program that is too large when its shared subexpressions are expanded."""
    reason = too_shared(root)
    if reason:
        raise SharedExpressionError(
            f"{what}: {reason}; bind the shared part to a name: a stage of its own "
            "(te.compute), or a T.let / LetStmt in a loop program"
        )
