"""Types of variables and functions (not of tensors, which the graph IR adds)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from .dtype import DataType


class TypeKind(IntEnum):
    """What a type variable stands for."""

    Type = 0
    ShapeVar = 1
    BaseType = 2
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


@dataclass(frozen=True, slots=True)
class FuncType(Type):
    """A function from `arg_types` to `ret_type`."""

    arg_types: tuple[Type, ...]
    ret_type: Type
    type_params: tuple[Type, ...] = ()
    type_constraints: tuple[Type, ...] = ()

    def __post_init__(self) -> None:
        for name in ("arg_types", "type_params", "type_constraints"):
            object.__setattr__(self, name, tuple(getattr(self, name) or ()))

    def __str__(self) -> str:
        params = f"<{', '.join(map(str, self.type_params))}>" if self.type_params else ""
        return f"fn {params}({', '.join(map(str, self.arg_types))}) -> {self.ret_type}"
