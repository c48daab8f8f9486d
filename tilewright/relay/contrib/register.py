"""Tables of patterns for code generators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, overload

from ...ir.errors import TVMError, near_matches

_Table = TypeVar("_Table")
_tables: Final[dict[str, Any]] = {}


@overload
def register_pattern_table(compiler: str, table: None = ...) -> Callable[[_Table], _Table]: ...
@overload
def register_pattern_table(compiler: str, table: _Table) -> _Table: ...
def register_pattern_table(compiler: str, table: Any = None) -> Any:
    """Set the patterns of a code generator, rows of `MergeComposite`, or as a decorator a function that returns them.

    @register_pattern_table("mine")
    def table():
        return [("mine.dense_relu", is_op("nn.relu")(is_op("nn.dense")(wildcard(), wildcard())))]
    """

    def register(given: Any) -> Any:
        _tables[str(compiler)] = given
        return given

    return register if table is None else register(table)


def get_pattern_table(compiler: str) -> Any:
    """The patterns of a code generator."""
    if compiler not in _tables:
        raise TVMError(
            f"no table of patterns is registered for the code generator {compiler!r}"
            f"{near_matches(compiler, _tables)}; register one with register_pattern_table"
        )
    found = _tables[compiler]
    return found() if callable(found) else found
