"""Supplies of names that are different from one another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .module import GlobalVar, IRModule


class NameSupply:
    """Names that were taken, all with one prefix."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self._taken: set[str] = set()

    def _full(self, name: str, add_prefix: bool) -> str:
        return f"{self.prefix}_{name}" if self.prefix and add_prefix else name

    def reserve_name(self, name: str, add_prefix: bool = True) -> str:
        """Take a name as it is."""
        full = self._full(name, add_prefix)
        self._taken.add(full)
        return full

    def contains_name(self, name: str, add_prefix: bool = True) -> bool:
        return self._full(name, add_prefix) in self._taken

    def fresh_name(self, name: str, add_prefix: bool = True) -> str:
        """Take a name that is not taken yet, with a number where it must be."""
        made = full = self._full(name, add_prefix)
        number = 0
        while made in self._taken:
            number += 1
            made = f"{full}_{number}"
        self._taken.add(made)
        return made


class GlobalVarSupply:
    """Names of functions; `source` is a supply of names, or modules whose names are taken."""

    def __init__(self, source: Any = None) -> None:
        self.names = source if isinstance(source, NameSupply) else NameSupply()
        self._known: dict[str, GlobalVar] = {}
        modules: Iterable[IRModule] = [source] if isinstance(source, IRModule) else source or ()
        if not isinstance(source, NameSupply):
            for mod in modules:
                for gv in mod.get_global_vars():
                    self.reserve_global(gv)

    def reserve_global(self, global_var: GlobalVar, allow_conflict: bool = False) -> None:
        """Take the name of a function."""
        if global_var.name_hint in self._known and not allow_conflict:
            raise ValueError(f"the name {global_var.name_hint!r} is taken")
        self._known[global_var.name_hint] = global_var
        self.names.reserve_name(global_var.name_hint, add_prefix=False)

    def fresh_global(self, name: str, add_prefix: bool = True) -> GlobalVar:
        """A function with a name that is not taken yet."""
        made = GlobalVar(self.names.fresh_name(name, add_prefix))
        self._known[made.name_hint] = made
        return made

    def unique_global_for(self, name: str, add_prefix: bool = True) -> GlobalVar:
        """The function of a name, the same at each call."""
        full = self.names.reserve_name(name, add_prefix)
        return self._known.setdefault(full, GlobalVar(full))
