"""Questions about types and patterns: the kind of a type, and the values that a `match` has no clause for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.errors import TVMError
from ...ir.module import IRModule
from ..adt import Match, Pattern, PatternConstructor, PatternTuple, PatternWildcard, TypeData
from ..ty import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TupleType,
    Type,
    TypeCall,
    TypeKind,
    TypeRelation,
    TypeVar,
)

__all__ = ["check_kind", "unmatched_cases"]


def check_kind(t: Any, mod: IRModule | None = None) -> TypeKind:
    """The kind of a type, whose parts must be of kinds that fit it: a tuple of shapes is refused."""
    if isinstance(t, (TypeVar, GlobalTypeVar, IncompleteType)):
        return t.kind
    if isinstance(t, TypeData):
        for part in (x for c in t.constructors for x in c.inputs):
            _need(part, TypeKind.Type, t, mod)
        return TypeKind.TypeData
    if isinstance(t, TypeRelation):
        for part in t.args:
            _need(part, TypeKind.Type, t, mod)
        return TypeKind.Constraint
    if isinstance(t, TypeCall):
        return _check_call(t, mod)
    if isinstance(t, FuncType):
        for part in t.type_constraints:
            _need(part, TypeKind.Constraint, t, mod)
        parts: Sequence[Type] = (*t.arg_types, t.ret_type)
    else:
        parts = t.fields if isinstance(t, TupleType) else (t.value,) if isinstance(t, RefType) else ()
    for part in parts:
        _need(part, TypeKind.Type, t, mod)
    return TypeKind.Type


def _need(part: Any, kind: TypeKind, whole: Any, mod: IRModule | None) -> None:
    found = check_kind(part, mod)
    if found != kind:
        raise TVMError(f"{part} is a {found.name}, and a {kind.name} is needed in {whole}")


def _check_call(t: TypeCall, mod: IRModule | None) -> TypeKind:
    _need(t.func, TypeKind.AdtHandle, t, mod)
    for part in t.args:
        _need(part, TypeKind.Type, t, mod)
    data = (mod.type_definitions if mod is not None else {}).get(t.func)
    if data is None:
        raise TVMError(f"the module does not define {t.func}, which {t} applies")
    if len(data.type_vars) != len(t.args):
        raise TVMError(f"{t.func} has {len(data.type_vars)} parameters, and {t} gives it {len(t.args)}")
    return TypeKind.Type


def unmatched_cases(match: Match, mod: IRModule | None = None) -> list[Pattern]:
    """Patterns of the values that no clause of a `match` takes; none where it is complete."""
    definitions = {} if mod is None else mod.type_definitions
    left: list[Any] = [PatternWildcard()]
    for clause in match.clauses:
        left = [rest for p in left for rest in _without(p, clause.lhs, definitions)]
    return left


def _without(value: Any, taken: Any, definitions: Any) -> list[Any]:
    """The values of one pattern that another does not take, as patterns that do not overlap."""
    if not isinstance(taken, (PatternConstructor, PatternTuple)):
        return []
    if isinstance(taken, PatternTuple):
        parts = value.patterns if isinstance(value, PatternTuple) else _any(len(taken.patterns))
        return [PatternTuple(rest) for rest in _fields_without(parts, taken.patterns, definitions)]
    if isinstance(value, PatternConstructor):
        if value.constructor is not taken.constructor:
            return [value]
        rows = _fields_without(value.patterns, taken.patterns, definitions)
        return [PatternConstructor(value.constructor, row) for row in rows]
    data = definitions.get(taken.constructor.belong_to)
    if data is None:
        raise TVMError(
            f"unmatched_cases: the module does not define {taken.constructor.belong_to}, the type of "
            f"{taken.constructor.name_hint}; give the module that does"
        )
    each = [PatternConstructor(c, _any(len(c.inputs))) for c in data.constructors]
    return [rest for p in each for rest in _without(p, taken, definitions)]


def _any(count: int) -> list[Any]:
    return [PatternWildcard() for _ in range(count)]


def _fields_without(values: Sequence[Any], taken: Sequence[Any], definitions: Any) -> list[list[Any]]:
    """Rows of fields that are not all taken: the first field that is not, after those that are."""
    out = []
    for i, (value, other) in enumerate(zip(values, taken, strict=True)):
        for rest in _without(value, other, definitions):
            same = [_both(v, t) for v, t in zip(values[:i], taken[:i], strict=True)]
            out.append([*same, rest, *values[i + 1 :]])
    return out


def _both(value: Any, taken: Any) -> Any:
    """The values that both patterns take."""
    if not isinstance(taken, (PatternConstructor, PatternTuple)):
        return value
    if not isinstance(value, (PatternConstructor, PatternTuple)):
        return taken
    inner = [_both(v, t) for v, t in zip(value.patterns, taken.patterns, strict=True)]
    return value.updated(patterns=tuple(inner))
