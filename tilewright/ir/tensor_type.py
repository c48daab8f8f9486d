"""The type of tensors, with known, symbolic and unknown sizes.

    TensorType((n, 3, Any()), "float32")      prints as Tensor[(n, 3, ?), float32]

A size is an integer (a `Size`), a `tir` expression over variables, or `Any()`: not known before the program runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any as Anything

from ..homes import home_of
from .dtype import DataType
from .equal import structural_equal
from .expr import IntImm, PrimExpr, SizeVar
from .types import FuncType, RefType, TupleType, Type, TypeCall


class Size(int):
    """A known size: an integer that also has the fields of an IntImm, which programs read as `shape[0].value`."""

    __slots__ = ()
    dtype = DataType("int32")

    @property
    def value(self) -> int:
        return int(self)

    def same_as(self, other: object) -> bool:
        return isinstance(other, Size) and self == other


class Any:
    """A size that is not known before the program runs. All instances are equal."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Any)

    def __hash__(self) -> int:
        return hash(Any)

    def same_as(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return "T.Any()"

    def __str__(self) -> str:
        return "?"


class _Unknown(type):
    """A class whose instances are unknown sizes: those of expressions, and `Any()` in the shape of a graph."""

    def __instancecheck__(cls, given: object) -> bool:
        return given.__class__ is Any or (isinstance(given, SizeVar) and given.name == "?")


class UnknownSize(metaclass=_Unknown):
    """`tir.Any`: an unknown size as an expression, of which no two are known to be equal. In a shape it is `Any()`."""

    def __new__(cls) -> Anything:
        return SizeVar("?", "int32")


def _size(value: Anything) -> Anything:
    """A size in canonical form: Size, expression or Any."""
    if value.__class__ is int:
        return Size(value)
    if value.__class__ is Size or isinstance(value, Any):
        return value
    if isinstance(value, IntImm):
        return Size(value.value)
    if isinstance(value, UnknownSize):
        return Any()
    if isinstance(value, PrimExpr):
        return value
    if hasattr(value, "__index__") and not isinstance(value, bool):
        return Size(value.__index__())
    as_expr = getattr(value, "asobject", None)  # an iteration variable and its like
    if as_expr is not None:
        return _size(as_expr())
    raise TypeError(f"a size is an integer, an expression or relay.Any(), not {value!r}")


def _same_size(a: Anything, b: Anything) -> bool:
    """Whether two sizes are the same number for all values of their variables: t + t is t*2."""
    if isinstance(a, PrimExpr) and isinstance(b, PrimExpr):
        if a is b or structural_equal(a, b):
            return True
        return bool(home_of("arithmetic").Analyzer().can_prove_equal(a, b))
    if isinstance(a, PrimExpr) or isinstance(b, PrimExpr):
        return False
    return bool(a == b)


MOST_DIMENSIONS = 32  # the limit of NumPy: other tensors can be neither constants nor arguments


class TensorType(Type):
    """A tensor: its sizes and the type of its elements. Equal where both are."""

    __slots__ = ("_hash", "dtype", "shape")
    shape: tuple[Anything, ...]
    dtype: DataType

    def __init__(self, shape: Iterable[Anything] = (), dtype: str = "float32") -> None:
        if not isinstance(shape, Iterable):
            shape = (shape,)
        self.shape = tuple([d if d.__class__ is Size else _size(d) for d in shape])
        self.dtype = dtype if isinstance(dtype, DataType) else DataType(str(dtype))
        if len(self.shape) > MOST_DIMENSIONS:
            raise ValueError(f"a tensor has {len(self.shape)} dimensions, and {MOST_DIMENSIONS} are the most")
        for d in self.shape:
            if d.__class__ is Size and d < 0:
                raise ValueError(f"a tensor of shape {self.shape} has a size below 0; unknown is relay.Any()")
        known = tuple(d if isinstance(d, int) else "?" if isinstance(d, Any) else "n" for d in self.shape)
        self._hash = hash((known, str(self.dtype)))

    @property
    def concrete_shape(self) -> tuple[int, ...]:
        """The sizes, which must all be known now."""
        if all(d.__class__ is Size for d in self.shape):
            return self.shape
        raise TypeError(f"{self} has sizes that are not known now")

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, TensorType)
            and self.dtype == other.dtype
            and len(self.shape) == len(other.shape)
            and all(map(_same_size, self.shape, other.shape))
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        inner = ", ".join(map(str, self.shape)) + ("," if len(self.shape) == 1 else "")
        return f"Tensor[({inner}), {self.dtype}]"


def scalar_type(dtype: str) -> TensorType:
    """A tensor without dimensions."""
    return TensorType((), dtype)


def tensor_fields(kind: Type) -> list[TensorType]:
    """The tensors in a type from left to right: itself, or those of a tuple, however deep."""
    if isinstance(kind, TensorType):
        return [kind]
    if isinstance(kind, TupleType):
        return [t for field in kind.fields for t in tensor_fields(field)]
    raise TypeError(f"{kind} is neither a tensor nor a tuple of tensors")


def is_dynamic(kind: Type) -> bool:
    """Whether some size in the type is not known now."""
    if isinstance(kind, TensorType):
        return any(not isinstance(d, int) for d in kind.shape)
    if isinstance(kind, TupleType):
        return any(map(is_dynamic, kind.fields))
    if isinstance(kind, FuncType):
        return any(map(is_dynamic, kind.arg_types)) or is_dynamic(kind.ret_type)
    if isinstance(kind, TypeCall):
        return any(map(is_dynamic, kind.args))
    return isinstance(kind, RefType) and is_dynamic(kind.value)
