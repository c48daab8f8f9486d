"""Recursion over deep programs: thousands of nested bindings or terms, beyond Python's limit of a thousand calls."""

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
    """Raise the recursion limit for walks meanwhile."""
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
    """Retry a function with a higher recursion limit if Python's default is too low.

    For functions that are called often and can be restarted: shallow programs pay nothing.
    """

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except RecursionError:
            if sys.getrecursionlimit() >= _DEPTH:  # the limit is raised already
                raise
        with deep_programs():
            return function(*args, **kwargs)

    return run  # type: ignore[return-value]
