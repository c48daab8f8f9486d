"""Room for functions that call each other deeply, where Python allows a thousand calls."""

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
    """Let calls nest `depth` deep meanwhile; between Python functions they take no C stack.

    The limit is the whole process's: the largest that anybody needs, and what it was before when the last one leaves.
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
