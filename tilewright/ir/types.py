"""Types of variables, functions and data; `tensor_type.py` has that of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from .dtype import DataType


class TypeKind(IntEnum):
    """The kind of thing that a type variable stands for."""

    Type = 0
    ShapeVar = 1
    BaseType = 2
    Shape = 3
    Constraint = 4
    AdtHandle = 5
    TypeData = 6


class Type:
    """The base of types. Types are compared by what they say."""

    __slots__ = ()

    def same_as(self, other: object) -> bool:
        return self is other


@dataclass(frozen=True, slots=True)
class PrimType(Type):
    """A scalar or vector."""

    dtype: DataType

    def __init__(self, dtype: str) -> None:
        object.__setattr__(self, "dtype", DataType(dtype))

    def __str__(self) -> str:
        return str(self.dtype)


@dataclass(frozen=True, slots=True)
class PointerType(Type):
    """A pointer to values of `element_type` in the memory named `storage_scope`."""

    element_type: Type
    storage_scope: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.element_type, Type) or not isinstance(self.storage_scope, str):
            raise TypeError(
                "a pointer is to a type, in memory that is named by a string, "
                f"not PointerType({self.element_type!r:.80}, {self.storage_scope!r:.80})"
            )

    def __str__(self) -> str:
        return f"Pointer({self.element_type}, {self.storage_scope!r})"


@dataclass(frozen=True, slots=True)
class TupleType(Type):
    """Several values; the empty one is the type of a function that returns nothing."""

    fields: tuple[Type, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.fields))}{',' if len(self.fields) == 1 else ''})"


@dataclass(frozen=True, slots=True, eq=False)
class FuncType(Type):
    """A function from `arg_types` to `ret_type`. Equal up to the names of `type_params`."""

    arg_types: tuple[Type, ...]
    ret_type: Type
    type_params: tuple[Type, ...] = ()
    type_constraints: tuple[Type, ...] = ()

    def __post_init__(self) -> None:
        for name in ("arg_types", "type_params", "type_constraints"):
            object.__setattr__(self, name, tuple(getattr(self, name) or ()))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, FuncType) or len(self.type_params) != len(other.type_params):
            return False
        if any(a.kind != b.kind for a, b in zip(self.type_params, other.type_params, strict=True)):  # type: ignore[attr-defined]
            return False
        mine = (self.arg_types, self.ret_type, self.type_constraints)
        if not self.type_params or self.type_params == other.type_params:
            return mine == (other.arg_types, other.ret_type, other.type_constraints)
        named = dict(zip(other.type_params, self.type_params, strict=True))
        theirs: Any = substituted(FuncType(other.arg_types, other.ret_type), named)
        return mine == (theirs.arg_types, theirs.ret_type, other.type_constraints)

    def __hash__(self) -> int:
        generic = bool(self.type_params)
        return hash((len(self.arg_types), len(self.type_params), generic or self.arg_types))

    def __str__(self) -> str:
        params = f"<{', '.join(map(str, self.type_params))}>" if self.type_params else ""
        return f"fn {params}({', '.join(map(str, self.arg_types))}) -> {self.ret_type}"


class _Named(Type):
    """A type that has a name; compared by identity."""

    __slots__ = ("kind", "name_hint")

    def __init__(self, name_hint: str, kind: TypeKind) -> None:
        self.name_hint, self.kind = name_hint, TypeKind(kind)

    @property
    def name(self) -> str:
        return self.name_hint

    def __call__(self, *args: Type) -> TypeCall:
        return TypeCall(self, args)

    def __repr__(self) -> str:
        return self.name_hint


class TypeVar(_Named):
    """A type parameter of a function or of a data type."""

    __slots__ = ()

    def __init__(self, name_hint: str, kind: TypeKind = TypeKind.Type) -> None:
        super().__init__(name_hint, kind)


class GlobalTypeVar(_Named):
    """The name of a data type that a module defines."""

    __slots__ = ()

    def __init__(self, name_hint: str, kind: TypeKind = TypeKind.AdtHandle) -> None:
        super().__init__(name_hint, kind)


class IncompleteType(Type):
    """A type that is not inferred yet."""

    __slots__ = ("kind",)

    def __init__(self, kind: TypeKind = TypeKind.Type) -> None:
        self.kind = TypeKind(kind)

    def __repr__(self) -> str:
        return "?"


@dataclass(frozen=True, slots=True)
class TypeCall(Type):
    """A data type with the types of its parameters: `List[Tensor[(2,), float32]]`."""

    func: Type
    args: tuple[Type, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "args", tuple(self.args))

    def __str__(self) -> str:
        return f"{self.func}[{', '.join(map(str, self.args))}]" if self.args else f"{self.func}[]"


class TypeConstraint(Type):
    """A condition on types."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TypeRelation(TypeConstraint):
    """The relation of a function between types: the last of `args` follow from the first `num_inputs`.

    Types of operators are inferred from their declarations; a relation is a description that programs pass around.
    """

    func: Any
    args: tuple[Type, ...]
    num_inputs: int
    attrs: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "args", tuple(self.args))


def ShapeVar(name: str) -> TypeVar:
    """A type variable that stands for a shape."""
    return TypeVar(name, TypeKind.ShapeVar)


@dataclass(frozen=True, slots=True)
class RefType(Type):
    """A cell that holds a value and can be written."""

    value: Type

    def __str__(self) -> str:
        return f"ref({self.value})"


def type_parts(kind: Type) -> Sequence[Type]:
    """The types that a type is made of."""
    if isinstance(kind, TupleType):
        return kind.fields
    if isinstance(kind, FuncType):
        return (*kind.arg_types, kind.ret_type)
    if isinstance(kind, TypeCall):
        return (kind.func, *kind.args)
    return (kind.value,) if isinstance(kind, RefType) else ()


def with_parts(kind: Any, parts: Sequence[Type]) -> Any:
    """The type made of other parts; itself where they are the same."""
    if all(a is b for a, b in zip(type_parts(kind), parts, strict=True)):
        return kind
    if isinstance(kind, TupleType):
        return TupleType(tuple(parts))
    if isinstance(kind, FuncType):
        return FuncType(tuple(parts[:-1]), parts[-1], kind.type_params, kind.type_constraints)
    if isinstance(kind, TypeCall):
        return TypeCall(parts[0], tuple(parts[1:]))
    return RefType(parts[0])


def map_type(kind: Any, change: Callable[[Any], Any]) -> Any:
    """A type with `change` applied to its leaves: those that are made of no other types."""
    parts = type_parts(kind)
    return with_parts(kind, [map_type(p, change) for p in parts]) if parts else change(kind)


def substituted(kind: Any, named: dict[Any, Any]) -> Any:
    """A type with others in place of type variables."""
    return map_type(kind, lambda leaf: named.get(leaf, leaf) if isinstance(leaf, TypeVar) else leaf)
