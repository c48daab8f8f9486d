"""`Prelude`: the library of functions over lists, options and trees, under the names that programs use.

p = relay.prelude.Prelude(mod)
list_of, cons, nil = p.mod.get_type("List")
doubled = p.map(double, cons(relay.const(1), nil()))
"""

from __future__ import annotations

from typing import Any

from ..absent import attributes
from ..ir.module import GlobalVar, IRModule

_FUNCTIONS = (
    "id compose flip hd tl nth update map foldl foldr foldr1 concat filter zip rev map_accuml map_accumr unfoldl "
    "unfoldr sum length tmap size iterate"
)


class Prelude:
    """The functions of the library in a module, each an attribute of that name."""

    def __init__(self, mod: IRModule | None = None) -> None:
        self.mod = IRModule() if mod is None else mod
        self.load_prelude()

    def load_prelude(self) -> None:
        """Add the library to the module."""
        self.mod.import_from_std("prelude.rly")
        for name in _FUNCTIONS.split():
            setattr(self, name, self.mod.get_global_var(name))

    def __getattr__(self, name: str) -> GlobalVar:
        raise AttributeError(f"the prelude has no function {name!r}; it has: {_FUNCTIONS}")

    def get_name(self, canonical: str, dtype: str) -> str:
        """The name of the version of a function for one type of elements."""
        return f"tensor_{dtype}_t" if canonical == "tensor_t" else f"{canonical}_{dtype}"

    def get_global_var(self, canonical: str, dtype: str) -> GlobalVar:
        return self.mod.get_global_var(self.get_name(canonical, dtype))

    def get_type(self, canonical: str, dtype: str) -> Any:
        return self.mod.get_global_type_var(self.get_name(canonical, dtype))

    def get_ctor(self, ty_name: str, canonical: str, dtype: str) -> Any:
        """A constructor of a data type."""
        wanted = self.get_name(canonical, dtype)
        for c in self.mod.get_type(ty_name)[1:]:
            if c.name_hint == wanted:
                return c
        raise ValueError(f"the data type {ty_name} has no constructor {wanted!r}")


__getattr__ = attributes(__name__)
