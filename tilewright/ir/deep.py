"""Room for deep programs: thousands of nested bindings or terms, where Python allows a thousand calls."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from ..runtime.recursion import deep_calls
from .errors import NestingError

_F = TypeVar("_F", bound=Callable[..., Any])

# A walk takes up to ten calls for each level.
_LEVELS: Final = 20_000
_DEPTH: Final = 10 * _LEVELS


@contextmanager
def deep_programs() -> Iterator[None]:
    """Let walks go deep meanwhile."""
    try:
        with deep_calls(_DEPTH):
            yield
    except NestingError:
        raise
    except RecursionError:
        raise NestingError(
            f"the program nests too deeply: about {_LEVELS:,} levels of an expression or of statements can be walked; "
            "split long expressions into several stages or statements, or balance them"
        ) from None


def deeply(function: _F) -> _F:
    """Run a function once more with room for deep programs where Python's usual room does not do.

    It is for functions that are called often, and whose work can be begun anew: shallow programs pay nothing.
    """

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except RecursionError:
            if sys.getrecursionlimit() >= _DEPTH:  # who gave the room knows what it was for
                raise
        with deep_programs():
            return function(*args, **kwargs)

    return run  # type: ignore[return-value]
