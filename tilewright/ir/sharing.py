"""Expressions that use a part more than once.

Nodes may be shared, so an expression can be far larger written out than in memory:

    x = A[i]                          60 nodes in memory,
    for _ in range(60): x = x + x     2**60 written out

Walks that only look visit each node once. Lowering, printing and running write the expression out; they ask
`check_written_out` first, which refuses what would never end.
"""

from __future__ import annotations

import math
from typing import Any, Final

from .errors import TVMError
from .function import PrimFunc

_MOST: Final = 50_000
_FACTOR: Final = 8


class SharedExpressionError(TVMError, ValueError):
    """An expression that is small in memory and too large to be written out."""


def written_out(root: Any) -> tuple[int, int]:
    """How many nodes a program has when each use of a part counts, and how many when each part counts once."""
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
    """Why a program is too large to be written out; nothing where it is not."""
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
    return f"an expression of {distinct} nodes uses its parts so often that it has {shown} nodes written out"


def check_written_out(root: Any, what: str) -> None:
    """Refuse a program that is too large because parts of it are used again and again."""
    reason = too_shared(root)
    if reason:
        raise SharedExpressionError(
            f"{what}: {reason}; give the part that is used often a name of its own: a stage of its own "
            "(te.compute), or a T.let / LetStmt in a loop program"
        )
