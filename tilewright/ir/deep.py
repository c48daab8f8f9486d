"""Room for deep programs: thousands of nested bindings or terms, where Python allows a thousand calls."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["deep_programs"]

# A walk takes three or four calls for each level; calls between Python functions take no C stack.
_DEPTH: Final = 20_000
_lock: Final = threading.Lock()
_holders = 0
_before = 0


@contextmanager
def deep_programs() -> Iterator[None]:
    """Let walks go deep meanwhile. The limit is the whole process's: the last to leave puts it back."""
    global _holders, _before
    with _lock:
        if _holders == 0:
            _before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_before, _DEPTH))
        _holders += 1
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            if _holders == 0:
                sys.setrecursionlimit(_before)
