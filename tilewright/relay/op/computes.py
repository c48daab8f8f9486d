"""What operators compute with, imported when the first of them is computed: a graph is built without it."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["arith", "te", "topi"]


class _Lazy(ModuleType):
    """A module that is imported when something of it is first used."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self.__name__), name)
        setattr(self, name, found)
        return found


if TYPE_CHECKING:
    from ... import arith, te, topi
else:
    arith, te, topi = (_Lazy(f"{__name__.partition('.')[0]}.{name}") for name in ("arith", "te", "topi"))
