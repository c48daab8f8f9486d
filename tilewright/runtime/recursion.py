"""Deep recursion, beyond Python's limit of a thousand calls."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ..forks import new_in_child

_lock: Final = new_in_child(threading.Lock())
_held: Final[list[int]] = []
_before = 0


@contextmanager
def deep_calls(depth: int) -> Iterator[None]:
    """Raise the recursion limit to `depth` meanwhile; calls between Python functions use no C stack.

    The limit is that of the whole process: the largest in use, and the original one when the last user leaves.
    """
    global _before
    with _lock:
        if not _held:
            _before = sys.getrecursionlimit()
        _held.append(depth)
        sys.setrecursionlimit(max(_before, *_held))
    try:
        yield
    finally:
        with _lock:
            _held.remove(depth)
            sys.setrecursionlimit(max([_before, *_held]))
