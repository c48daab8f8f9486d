"""Parameters and fixtures of tests, and `main` for files of tests that are run as scripts."""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# fixtures made by one call of `parameters` -> the values they take together
together: dict[int, tuple[tuple[Any, ...], tuple[tuple[Any, ...], ...], Sequence[str] | None]] = {}


def parameter(
    *values: Any, ids: Sequence[str] | None = None, by_dict: Mapping[str, Any] | None = None
) -> Any:
    """A fixture that takes each of `values` in turn: `size = tvm.testing.parameter(1, 16, 197)`."""
    import pytest

    if by_dict is not None:
        if values or ids is not None:
            raise TypeError("by_dict gives both the values and their ids; leave out the others")
        ids, values = list(by_dict), tuple(by_dict.values())

    @pytest.fixture(params=list(values), ids=ids)
    def one(request: Any) -> Any:
        return request.param

    return one


def parameters(*value_sets: Sequence[Any], ids: Sequence[str] | None = None) -> tuple[Any, ...]:
    """Fixtures that change together: `n, dtype = tvm.testing.parameters((4, "int8"), (8, "int32"))`."""
    import pytest

    sets = tuple(tuple(values) for values in value_sets)
    if not sets or len({len(values) for values in sets}) != 1:
        raise ValueError(
            "parameters() takes one or more tuples of the same length, one for each run of the test"
        )

    def one() -> Any:
        raise pytest.UsageError(
            "tvm.testing.parameters needs its plugin: run pytest with -p tilewright.testing.plugin, "
            'or put pytest_plugins = ["tilewright.testing.plugin"] into conftest.py'
        )

    made = tuple(pytest.fixture(_copy(one)) for _ in sets[0])
    for f in made:
        together[id(f)] = (made, sets, ids)
    return made


def _copy(function: Callable[[], Any]) -> Callable[[], Any]:
    """A new function, as pytest marks each function that it turns into a fixture."""
    return lambda: function()


def fixture(func: Any = None, *, cache_return_value: bool = False) -> Any:
    """A pytest fixture; with `cache_return_value` it is computed once for the same parameters, and tests get copies."""
    import pytest

    def decorate(function: Any) -> Any:
        return pytest.fixture(_kept(function) if cache_return_value else function)

    return decorate if func is None else decorate(func)


def _kept(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that caches its results by arguments, and returns copies of them."""
    known: list[tuple[dict[str, Any], Any]] = []

    @functools.wraps(function)
    def found(**given: Any) -> Any:
        for before, made in known:
            with contextlib.suppress(ValueError):  # arrays do not compare to a single truth value
                if before == given:
                    return copy.deepcopy(made)
        known.append((given, function(**given)))
        return copy.deepcopy(known[-1][1])

    return found


def main() -> None:
    """Run the tests of the file that calls this, and leave with pytest's exit code."""
    import pytest

    file = sys._getframe(1).f_globals.get("__file__")
    if file is None:
        raise RuntimeError("tvm.testing.main() runs the tests of a file, and it was not called from one")
    sys.exit(pytest.main(["-p", "tilewright.testing.plugin", file, *sys.argv[1:]]))
