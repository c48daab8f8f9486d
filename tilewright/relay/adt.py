"""Algebraic data types: constructors, patterns and `match`.

type List[A] { Cons(A, List[A]), Nil }

match (%xs) {                       Match(xs, [
  Cons(%x, %rest) => %x,       =      Clause(PatternConstructor(cons, [PatternVar(x), PatternVar(rest)]), x),
  Nil => 0f                           Clause(PatternConstructor(nil), zero)])
}
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..absent import attributes
from ..ir.node import Node, node
from ..ir.span import Span
from .expr import Call, Expr, Var, as_expr, set_checked_type
from .ty import FuncType, GlobalTypeVar, Type, TypeCall, TypeKind, TypeVar

_MOST = 1 << 24  # constructors of one type; a tag is the type's number and that of the constructor


@node
class Constructor(Expr):
    """A function that makes a value of a data type. The tag tells its values from those of other constructors."""

    name_hint: str
    inputs: tuple[Type, ...]
    belong_to: GlobalTypeVar
    tag: int  # the same number in every process; -1 before the type is defined
    _derived = ("tag",)

    def __init__(
        self, name_hint: str, inputs: Iterable[Type], belong_to: GlobalTypeVar, span: Span | None = None
    ) -> None:
        self.name_hint, self.inputs, self.belong_to = name_hint, tuple(inputs), belong_to
        self.span, self._checked_type, self.tag = span, None, -1

    @property
    def name(self) -> str:
        return self.name_hint

    def __call__(self, *args: Any) -> Call:
        return Call(self, [as_expr(a) for a in args])


class TypeData(Type):
    """The definition of a data type: its name, its parameters, and its constructors."""

    __slots__ = ("constructors", "header", "type_vars")

    def __init__(
        self, header: GlobalTypeVar, type_vars: Iterable[TypeVar], constructors: Iterable[Constructor]
    ) -> None:
        self.header, self.type_vars = header, tuple(type_vars)
        self.constructors = tuple(constructors)
        number = (zlib.crc32(header.name_hint.encode()) % 0x7F + 1) * _MOST  # 0 is the tag of tuples
        for i, c in enumerate(self.constructors):
            object.__setattr__(c, "tag", number + i)
            set_checked_type(c, FuncType(c.inputs, TypeCall(header, self.type_vars), self.type_vars))

    @property
    def kind(self) -> TypeKind:
        return TypeKind.TypeData

    def same_definition(self, other: TypeData, comparer: Any) -> bool:
        """Whether another definition has the same name, parameters and constructors."""
        if self.header.name_hint != other.header.name_hint or len(self.type_vars) != len(other.type_vars):
            return False
        for a, b in zip(self.type_vars, other.type_vars, strict=True):
            comparer.bind(a, b)
        return len(self.constructors) == len(other.constructors) and all(
            x.name_hint == y.name_hint
            and len(x.inputs) == len(y.inputs)
            and all(map(comparer.same_type, x.inputs, y.inputs))
            for x, y in zip(self.constructors, other.constructors, strict=True)
        )

    def __repr__(self) -> str:
        return f"type {self.header.name_hint}"


# ---------------------------------------------------------------------------- patterns
class Pattern(Node):
    """The form of a value, on the left of a clause."""

    __slots__ = ()


@node
class PatternWildcard(Pattern):
    """Any value."""


@node
class PatternVar(Pattern):
    """Any value, under a name."""

    var: Var


@node
class PatternConstructor(Pattern):
    """A value of a constructor, and patterns of its fields."""

    constructor: Constructor
    patterns: tuple[Pattern, ...] = ()

    def __init__(
        self, constructor: Constructor, patterns: Iterable[Pattern] | None = None, span: Span | None = None
    ) -> None:
        self.constructor, self.patterns, self.span = constructor, tuple(patterns or ()), span


@node
class PatternTuple(Pattern):
    """A tuple, and patterns of its fields."""

    patterns: tuple[Pattern, ...] = ()

    def __init__(self, patterns: Iterable[Pattern] | None = None, span: Span | None = None) -> None:
        self.patterns, self.span = tuple(patterns or ()), span


def pattern_vars(pattern: Any) -> Iterator[Var]:
    """The variables that a pattern binds, from left to right."""
    if isinstance(pattern, PatternVar):
        yield pattern.var
    for inner in getattr(pattern, "patterns", ()):
        yield from pattern_vars(inner)


def map_pattern(pattern: Any, var: Callable[[Any], Any], constructor: Callable[[Any], Any]) -> Any:
    """A pattern with functions applied to its variables and constructors."""
    if isinstance(pattern, PatternVar):
        return pattern.updated(var=var(pattern.var))
    if isinstance(pattern, PatternConstructor):
        inner = tuple(map_pattern(p, var, constructor) for p in pattern.patterns)
        return pattern.updated(constructor=constructor(pattern.constructor), patterns=inner)
    if isinstance(pattern, PatternTuple):
        return pattern.updated(patterns=tuple(map_pattern(p, var, constructor) for p in pattern.patterns))
    return pattern


@node
class Clause(Node):
    """A pattern and the value of the `match` where it holds."""

    lhs: Pattern
    rhs: Expr

    def __init__(self, lhs: Pattern, rhs: Any, span: Span | None = None) -> None:
        if not isinstance(lhs, Pattern):
            raise TypeError(f"the left side of a clause is a pattern, not {type(lhs).__name__}")
        self.lhs, self.rhs, self.span = lhs, as_expr(rhs), span


@node
class Match(Expr):
    """The value of the first clause whose pattern the data has. `complete`: one must hold for every value."""

    data: Expr
    clauses: tuple[Clause, ...]
    complete: bool

    def __init__(
        self, data: Any, clauses: Iterable[Clause], complete: bool = True, span: Span | None = None
    ) -> None:
        self.data, self.clauses, self.complete = as_expr(data), tuple(clauses), bool(complete)
        self.span, self._checked_type = span, None

    def children(self) -> list[Any]:
        out: list[Any] = [self.data]
        for clause in self.clauses:
            out += pattern_vars(clause.lhs)
            out.append(clause.rhs)
        return out

    def map_children(self, f: Callable[[Any], Any]) -> Match:
        data = f(self.data)
        return self.over(data, [(map_pattern(c.lhs, f, lambda x: x), f(c.rhs)) for c in self.clauses])

    def over(self, data: Any, rows: Iterable[tuple[Any, Any]]) -> Match:
        """The match of other data with other clauses; itself where all are the same."""
        clauses = tuple(c.updated(lhs=lhs, rhs=rhs) for c, (lhs, rhs) in zip(self.clauses, rows, strict=True))
        return self.updated(data=data, clauses=clauses)


__getattr__ = attributes(__name__)
