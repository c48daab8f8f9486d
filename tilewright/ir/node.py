"""The `@node` decorator: slotted, immutable classes that know their children.

A node class lists its fields as annotations. The decorator reads them once and generates, in one
`exec`, an `__init__` that converts Python numbers, `children()` and `map_children(f)`. Reflection at
visit time would cost four times as much. A class may add statements to the end of its `__init__` as
source text in `_tail`, and name slots that those fill in `_derived`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from operator import is_
from typing import Any, ClassVar, TypeVar, dataclass_transform

from .span import Span

_CHECK = os.environ.get("TILEWRIGHT_CHECK", "0") == "1"
_T = TypeVar("_T")
_converters: dict[str, Any] = {}


def register_converter(name: str, value: Any) -> None:
    """Register a name for generated constructors: types to test for, functions that convert."""
    _converters[name] = value


def methods_of_nodes(cls: type, prefix: str) -> dict[str, Callable[..., Any]]:
    """The methods of a class whose names begin with `prefix`, by the rest of their names: the classes of nodes."""
    return {name.removeprefix(prefix): getattr(cls, name) for name in dir(cls) if name.startswith(prefix)}


class Node:
    """The base of everything in a program.

    Nodes are compared by identity, never changed after construction, and form no cycles.
    `span` is where the user wrote it, or None; it takes no part in equality or hashing.
    """

    __slots__ = ("__weakref__", "span")
    _fields: ClassVar[tuple[str, ...]] = ()
    _kinds: ClassVar[tuple[str, ...]] = ()
    _written: ClassVar[tuple[str, ...]] = ()  # the annotations of the fields, as source text
    span: Span | None

    def children(self) -> list[Any]:
        """The expressions and statements directly below this node, in order of evaluation."""
        return []

    def map_children(self: _T, f: Callable[[Any], Any]) -> _T:
        """This node with `f` applied to each child; itself if `f` changed none of them."""
        return self

    def replace(self: _T, **changes: Any) -> _T:
        """A copy with some fields changed."""
        cls: Any = self.__class__
        values = [changes.pop(name) if name in changes else getattr(self, name) for name in cls._fields]
        if changes:
            raise TypeError(f"{cls.__name__} has no field {next(iter(changes))!r}")
        made = cls(*values)
        made.span = self.span  # type: ignore[attr-defined]
        return made  # type: ignore[no-any-return]

    def updated(self: _T, **values: Any) -> _T:
        """A copy with these values of fields; the node itself if it has them already."""
        for name, value in values.items():
            own = getattr(self, name)
            if value is not own and not (
                value.__class__ is own.__class__ is tuple
                and len(value) == len(own)
                and all(map(is_, value, own))
            ):
                return self.replace(**values)  # type: ignore[attr-defined, no-any-return]
        return self

    def same_as(self, other: object) -> bool:
        """Whether `other` is this very node."""
        return self is other

    def script(self, **options: Any) -> str:
        """This part of a program in the script form, after a declaration of each variable that it does not define."""
        from .printer import script

        return script(self, **{"declare_free": True, **options})

    def show(self, *args: Any, **options: Any) -> None:
        """Print the script, coloured on a terminal."""
        from .printer import show

        show(self, *args, **options)

    def __copy__(self: _T) -> _T:
        return self

    def __deepcopy__(self: _T, memo: Any) -> _T:
        return self


class BaseExpr(Node):
    """The base of expressions, of programs and of graphs."""

    __slots__ = ()


_ASSIGNED = re.compile(r"^(    )self\.(\w+) = (.*[^(\[{,\\])$")  # a statement that ends on its line


_put = object.__setattr__


def _frozen(self: Any, name: str, value: Any) -> None:
    try:
        sealed = self._sealed
    except AttributeError:  # created without `__init__`, as by unpickling
        sealed = False
    if sealed and name != "span":
        raise AttributeError(f"{self.__class__.__name__} is immutable: use replace({name}=…)")
    _put(self, name, value)


def _sealing(init: Callable[..., None]) -> Callable[..., None]:
    """An `__init__` after which the node can no longer be changed."""

    def sealed(self: Any, *args: Any, **kwargs: Any) -> None:
        _put(self, "_sealed", False)
        init(self, *args, **kwargs)
        _put(self, "_sealed", True)

    sealed.__wrapped__ = init  # type: ignore[attr-defined]
    return sealed


def _kind(annotation: str) -> str:
    """The kind of a field from its annotation as written."""
    text = annotation.replace(" ", "")
    return {
        "PrimExpr": "expr",
        "PrimExpr|None": "expr?",
        "tuple[PrimExpr,...]": "exprs",
        "Stmt": "stmt",
        "Stmt|None": "stmt?",
        "tuple[Stmt,...]": "stmts",
        "Range": "node",
        "CommReducer": "node",
        "Block": "node",
        "BufferRegion": "node",
        "tuple[Range,...]": "nodes",
        "tuple[BufferRegion,...]": "nodes",
        "tuple[IterVar,...]": "nodes",
        "tuple[MatchBufferRegion,...]": "nodes",
        "Expr": "node",  # of graphs
        "tuple[Expr,...]": "nodes",
        "DataType": "dtype",
        "Def[Var]": "def",
        "tuple[Def[Var],...]": "defs",
    }.get(text, "attr")


def field_kinds(cls: type) -> tuple[tuple[str, str], ...]:
    """The fields of a node class with their kinds, for generic walks such as structural equality."""
    return tuple(zip(cls._fields, cls._kinds, strict=True))  # type: ignore[attr-defined]


def _init_source(names: list[str], kinds: list[str], defaults: dict[str, Any], tail: str) -> str:
    params = ", ".join(f"{n}=_d_{n}" if n in defaults else n for n in names)
    lines = [f"def __init__(self{', ' if names else ''}{params}, span=None):"]
    for n, k in zip(names, kinds, strict=True):
        if k in ("expr", "stmt"):
            value = f"{n} if isinstance({n}, _{k}) else _to_{k}({n})"
        elif k in ("expr?", "stmt?"):
            k = k[:-1]
            value = f"{n} if {n} is None or isinstance({n}, _{k}) else _to_{k}({n})"
        elif k in ("exprs", "stmts"):
            value = f"_to_{k}({n})"
        elif k in ("nodes", "defs"):
            value = f"{n} if {n}.__class__ is tuple else tuple({n})"
        elif k == "dtype":
            value = f"{n} if {n}.__class__ is _dtype else _dtype({n})"
        else:
            value = n
        lines.append(f"    self.{n} = {value}")
    lines.append("    self.span = span")
    lines += [f"    {line}" for line in tail.splitlines()]
    if _CHECK:  # write the slots directly, before the node is frozen
        lines = [_ASSIGNED.sub(r"\1_put_\2(self, \3)", line) for line in lines]
        lines.append("    _put__sealed(self, True)")
    return "\n".join(lines)


def _children_source(names: list[str], kinds: list[str]) -> str:
    lines, simple = ["def children(self):"], True
    parts: list[str] = []
    for n, k in zip(names, kinds, strict=True):
        if k in ("expr", "stmt", "node"):
            parts.append(f"self.{n}")
        elif k in ("exprs", "stmts", "nodes"):
            parts.append(f"*self.{n}")
        elif k in ("expr?", "stmt?"):
            simple = False
    if simple:
        lines.append(f"    return [{', '.join(parts)}]")
        return "\n".join(lines)
    lines.append("    out = []")
    for n, k in zip(names, kinds, strict=True):
        if k in ("expr", "stmt", "node"):
            lines.append(f"    out.append(self.{n})")
        elif k in ("exprs", "stmts", "nodes"):
            lines.append(f"    out.extend(self.{n})")
        elif k in ("expr?", "stmt?"):
            lines.append(f"    if self.{n} is not None: out.append(self.{n})")
    lines.append("    return out")
    return "\n".join(lines)


def _map_source(names: list[str], kinds: list[str]) -> str:
    lines, tests = ["def map_children(self, f):"], []
    for n, k in zip(names, kinds, strict=True):
        if k in ("expr", "stmt", "node"):
            lines.append(f"    {n} = f(self.{n})")
        elif k in ("expr?", "stmt?"):
            lines.append(f"    {n} = None if self.{n} is None else f(self.{n})")
        elif k in ("exprs", "stmts", "nodes"):
            lines += [
                f"    {n} = self.{n}",
                f"    new = [f(x) for x in {n}]",
                f"    for x, y in zip({n}, new):",
                f"        if x is not y: {n} = tuple(new); break",
            ]
        else:
            lines.append(f"    {n} = self.{n}")
            continue
        tests.append(f"{n} is self.{n}")
    if not tests:
        return "def map_children(self, f):\n    return self"
    lines.append(f"    if {' and '.join(tests)}: return self")
    lines.append(f"    return self.__class__({', '.join(names)}, span=self.span)")
    return "\n".join(lines)


@dataclass_transform(eq_default=False)
def node(cls: type[_T]) -> type[_T]:
    """Make a node class from the annotated fields of `cls` (and of its bases)."""
    base: Any = cls  # attributes inherited from its own bases
    own: dict[str, str] = {
        n: a
        for n, a in cls.__annotations__.items()
        if not str(a).startswith("ClassVar") and not n.startswith("_") and n not in ("span",)
    }
    derived = tuple(cls.__dict__.get("_derived", ()))
    fields = {n: a for n, a in own.items() if n not in derived}
    defaults = {n: cls.__dict__[n] for n in fields if n in cls.__dict__}
    body = {
        n: v
        for n, v in cls.__dict__.items()
        if n not in fields and n not in ("__dict__", "__weakref__", "__annotations__")
    }
    names = list(base._fields) + list(fields)
    kinds = list(base._kinds) + [_kind(str(a)) for a in fields.values()]
    defaults = {**getattr(base, "_defaults", {}), **defaults}
    taken = {slot for c in cls.__mro__[1:] for slot in getattr(c, "__slots__", ())}
    slots = [n for n in (*fields, *derived) if n not in taken]
    if _CHECK and "_sealed" not in taken:
        slots.append("_sealed")
    body["__slots__"] = tuple(slots)
    body["_fields"], body["_kinds"], body["_defaults"] = tuple(names), tuple(kinds), defaults
    body["_written"] = (*base._written, *map(str, fields.values()))
    body["__match_args__"] = tuple(names)
    if _CHECK:
        body["__setattr__"] = _frozen
    tail = str(getattr(cls, "_tail", ""))
    scope: dict[str, Any] = {f"_d_{n}": v for n, v in defaults.items()}
    scope.update(_converters)
    source = [_children_source(names, kinds), _map_source(names, kinds)]
    if "__init__" not in body:
        source.append(_init_source(names, kinds, defaults, tail))
    exec("\n".join(source), scope)
    for name in ("__init__", "children", "map_children"):
        if name in scope and name not in body:
            body[name] = scope[name]
    if _CHECK and "__init__" not in scope:
        body["__init__"] = _sealing(body["__init__"])
    metaclass: Any = type(cls)
    made: Any = metaclass(cls.__name__, cls.__bases__, body)
    made.__qualname__, made.__module__ = cls.__qualname__, cls.__module__
    if _CHECK and "__init__" in scope:
        for name in made.__init__.__code__.co_names:
            if name.startswith("_put_"):
                scope[name] = getattr(made, name.removeprefix("_put_")).__set__
    # `super()` and `__class__` inside methods refer to the class that was decorated.
    for value in body.values():
        closure = getattr(value, "__closure__", None)
        for cell in closure or ():
            if cell.cell_contents is cls:
                cell.cell_contents = made
    sys.intern(cls.__name__)
    return made  # type: ignore[no-any-return]
