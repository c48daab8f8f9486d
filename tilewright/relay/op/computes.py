"""What operators compute with: modules that are imported at their first use, as building a graph does not need them."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["R", "arith", "in_layout", "te", "topi"]


class _Lazy(ModuleType):
    """A module that is imported at the first use of an attribute."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self.__name__), name)
        setattr(self, name, found)
        return found


if TYPE_CHECKING:
    from ... import arith, te, topi
else:
    arith, te, topi = (_Lazy(f"{__name__.partition('.')[0]}.{name}") for name in ("arith", "te", "topi"))

R: Any = _Lazy(__name__.rpartition(".")[0])  # all operators, for the gradient of one in terms of others


def in_layout(made: Any, layout: str, out_layout: str) -> list[Any]:
    """A result in the layout that is asked for, if it is another one than that of the data."""
    if out_layout and out_layout != layout:
        made = topi.layout_transform(made, layout, out_layout)
    return [made]
