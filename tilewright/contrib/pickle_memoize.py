"""Results of slow references, computed once in a process. The name is the classic's; nothing is pickled or written."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])
_results: dict[tuple[str, str, tuple[Any, ...]], Any] = {}


def memoize(key: str, save_at_exit: bool = False) -> Callable[[_Function], _Function]:
    """A decorator that caches the results of a function by its arguments, under a key of the program.

        @memoize("tests.conv2d")
        def get_ref_data(): …

    `save_at_exit` asked the classic to write the results to disk; they last as long as the process.
    """

    def remember(function: _Function) -> _Function:
        @functools.wraps(function)
        def found(*args: Any) -> Any:
            try:
                # Captured variables of the function are part of the key.
                caught = tuple(cell.cell_contents for cell in function.__closure__ or ())
                place = (key, function.__qualname__, (caught, args))
                known = place in _results
            except (TypeError, ValueError):  # something that cannot be compared, or is not there yet
                return function(*args)
            if not known:
                _results[place] = function(*args)
            return _results[place]

        return found  # type: ignore[return-value]

    return remember
