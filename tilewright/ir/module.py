"""Modules: functions by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..homes import home_of
from .function import BaseFunc
from .node import BaseExpr
from .types import GlobalTypeVar, PrimType


class GraphNode(BaseExpr):
    """The interface of graph expressions for modules: calls and text."""

    __slots__ = ()

    def call_of(self, op: GlobalVar, args: Any) -> Any:
        """The call of a global function with arguments of this kind."""
        raise NotImplementedError

    def as_function(self) -> Any:
        """The function that has this expression as its body."""
        raise NotImplementedError

    def astext(self) -> str:
        """The text form, arrays included."""
        raise NotImplementedError


class GlobalVar:
    """The name of a function of a module, and the type of what it returns where that is known."""

    __slots__ = ("__weakref__", "checked_type", "name_hint")

    def __init__(self, name_hint: str, type_annot: Any = None) -> None:
        self.name_hint, self.checked_type = name_hint, type_annot

    @property
    def name(self) -> str:
        return self.name_hint

    def same_as(self, other: object) -> bool:
        return self is other

    def __call__(self, *args: Any) -> Any:
        for a in args:
            if isinstance(a, GraphNode):
                return a.call_of(self, args)
        from .expr import Call

        kind = self.checked_type
        return Call(kind.dtype if isinstance(kind, PrimType) else "void", self, args)

    def astext(self, show_meta_data: bool = True, annotate: Any = None) -> str:
        return repr(self)

    def __repr__(self) -> str:
        return f"@{self.name_hint}"


class _Functions(dict[GlobalVar, Any]):
    """The functions of a module; `items()` is a list, of which programs take an element by its number."""

    def items(self) -> list[tuple[GlobalVar, Any]]:  # type: ignore[override]
        return list(super().items())


class IRModule:
    """Functions by global name. Keys may be given as GlobalVar or as text."""

    def __init__(
        self,
        functions: Mapping[Any, Any] | None = None,
        type_definitions: Mapping[Any, Any] | None = None,
        attrs: Mapping[str, Any] | None = None,
        global_infos: Any = None,
    ) -> None:
        self.functions: dict[GlobalVar, Any] = _Functions()
        self.type_definitions: dict[Any, Any] = dict(type_definitions or {})
        self.attrs: dict[str, Any] = dict(attrs or {})
        seen: set[str] = set()  # a linear search for each name would be quadratic
        for name, func in (functions or {}).items():
            label = name if isinstance(name, str) else name.name_hint
            if label in seen or isinstance(name, str) or not isinstance(func, BaseFunc):
                self[name] = func
            else:
                self.functions[name] = func
            seen.add(label)

    # -- access ------------------------------------------------------------------------------
    def get_global_var(self, name: str) -> GlobalVar:
        """The GlobalVar of that name."""
        for gv in self.functions:
            if gv.name_hint == name:
                return gv
        known = ", ".join(gv.name_hint for gv in self.functions) or "none"
        raise ValueError(f"the module has no function {name!r}; it has: {known}")

    def get_global_vars(self) -> list[GlobalVar]:
        return list(self.functions)

    def get_global_type_var(self, name: str) -> GlobalTypeVar:
        """The name of a data type, as the module has it."""
        for t in self.type_definitions:
            if t.name_hint == name:
                return t  # type: ignore[no-any-return]
        known = ", ".join(t.name_hint for t in self.type_definitions) or "none"
        raise ValueError(f"the module has no data type {name!r}; it has: {known}")

    def get_global_type_vars(self) -> list[GlobalTypeVar]:
        return list(self.type_definitions)

    def get_type(self, name: str) -> tuple[Any, ...]:
        """A data type and its constructors."""
        found = self.get_global_type_var(name)
        return found, *self.type_definitions[found].constructors

    def get_constructor(self, tag: int) -> Any:
        """The constructor of a tag."""
        for data in self.type_definitions.values():
            for c in data.constructors:
                if c.tag == tag:
                    return c
        raise ValueError(f"no data type of the module has a constructor with tag {tag}")

    def import_from_std(self, file_to_import: str) -> None:
        """Add the functions and types of a file of the library: "prelude.rly", "core.rly", "nat.rly"."""
        home_of("graph_library").import_from_std(self, file_to_import)

    def import_(self, file_to_import: str) -> None:
        """Add the functions and types of a text file."""
        home_of("graph_library").import_file(self, file_to_import)

    def __getitem__(self, name: GlobalVar | GlobalTypeVar | str) -> Any:
        if isinstance(name, GlobalTypeVar):
            return self.type_definitions[name]
        if isinstance(name, str):
            return self.functions[self.get_global_var(name)]
        found = self.functions.get(name)
        if found is None:
            self.get_global_var(name.name_hint)  # raises with the known names
            raise ValueError(f"{name} is not the GlobalVar that this module has under that name")
        return found

    def __setitem__(self, name: GlobalVar | GlobalTypeVar | str, func: Any) -> None:
        if isinstance(name, GlobalTypeVar):
            known = [t for t in self.type_definitions if t.name_hint == name.name_hint and t is not name]
            if known:
                raise ValueError(f"the module has another data type {name.name_hint!r}; names are unique")
            self.type_definitions[name] = func
            return
        if isinstance(func, GraphNode) and not isinstance(func, BaseFunc):
            func = func.as_function()
        if not isinstance(func, BaseFunc):
            raise TypeError(f"a module holds functions, not {type(func).__name__}: {name}")
        if isinstance(name, str):
            found = [gv for gv in self.functions if gv.name_hint == name]
            name = found[0] if found else GlobalVar(name)
        elif name not in self.functions and name.name_hint in self:
            raise ValueError(f"the module has another function {name.name_hint!r}; names are unique")
        self.functions[name] = func

    def __contains__(self, name: GlobalVar | GlobalTypeVar | str) -> bool:
        if isinstance(name, GlobalTypeVar):
            return name in self.type_definitions
        if isinstance(name, GlobalVar):
            return name in self.functions
        return any(gv.name_hint == name for gv in self.functions)

    def __iter__(self) -> Iterator[GlobalVar]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    def functions_items(self) -> list[tuple[GlobalVar, Any]]:
        return list(self.functions.items())

    # -- change ------------------------------------------------------------------------------
    def map_functions(self, f: Any) -> IRModule:
        """A module with `f` applied to each function; this one if `f` changed none."""
        new = {gv: f(func) for gv, func in self.functions.items()}
        if all(new[gv] is func for gv, func in self.functions.items()):
            return self
        return IRModule(new, self.type_definitions, self.attrs)

    def update(self, other: IRModule | Mapping[Any, Any]) -> IRModule:
        """Add the functions of another module."""
        items = other.functions if isinstance(other, IRModule) else other
        for t, data in other.type_definitions.items() if isinstance(other, IRModule) else ():
            self[t] = data
        for gv, func in items.items():
            taken = isinstance(gv, GlobalVar) and any(g.name_hint == gv.name_hint for g in self.functions)
            self[gv.name_hint if taken else gv] = func
        return self

    def update_func(self, var: GlobalVar, func: Any) -> None:
        self[var] = func

    def remove(self, var: GlobalVar | str) -> None:
        del self.functions[var if isinstance(var, GlobalVar) else self.get_global_var(var)]

    def clone(self) -> IRModule:
        return IRModule(self.functions, self.type_definitions, self.attrs)

    def with_attr(self, key: str, value: Any) -> IRModule:
        return IRModule(self.functions, self.type_definitions, {**self.attrs, key: value})

    def with_attrs(self, more: Mapping[str, Any]) -> IRModule:
        return IRModule(self.functions, self.type_definitions, {**self.attrs, **more})

    def get_attr(self, key: str) -> Any:
        return self.attrs.get(key)

    @staticmethod
    def from_expr(expr: Any, functions: Any = None, type_defs: Any = None) -> IRModule:
        """A module around one function, named by its `global_symbol` or "main"."""
        mod = IRModule(functions, type_defs)
        if isinstance(expr, GraphNode) and not isinstance(expr, BaseFunc):
            expr = expr.as_function()
        name = expr.attrs.get("global_symbol", "main") if isinstance(expr, BaseFunc) else "main"
        mod[str(getattr(name, "value", name))] = expr
        return mod

    # -- text --------------------------------------------------------------------------------
    def script(self, **options: Any) -> str:
        """The module as a script that parses back; one with functions over tensors, in their text form."""
        if self._holds_graphs():
            return str(home_of("graph_text").module_text(self))
        from .printer import script

        return script(self, **options)

    def show(self, *args: Any, **options: Any) -> None:
        """Print the script, coloured on a terminal."""
        from .printer import show

        show(self, *args, **options)

    def astext(self, show_meta_data: bool = True, annotate: Any = None, **options: Any) -> str:
        """The text form; `show_meta_data` adds the arrays, so that it can be parsed back."""
        if self._holds_graphs():
            return str(home_of("graph_text").module_text(self, show_meta_data, annotate))
        return self.script(**options)

    def _holds_graphs(self) -> bool:
        graphs = any(isinstance(f, GraphNode) for f in self.functions.values())
        return graphs or bool(self.type_definitions)

    def same_as(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return self.script()

    __str__ = __repr__
