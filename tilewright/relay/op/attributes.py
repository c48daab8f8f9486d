"""The attributes of operators: kinds, which normalize values, and the values of a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from ...ir.dtype import DataType
from ...ir.equal import structural_equal
from ...ir.errors import near_matches
from ...ir.expr import FloatImm, IntImm, PrimExpr
from ..expr import Constant, Expr
from .arguments import each, sides

REQUIRED: Final = object()


class Attr:
    """A kind of attribute: the normalization of its values, the default, and whether that is printed."""

    __slots__ = ("convert", "default", "kind", "printed")

    def __init__(
        self, kind: str, convert: Callable[[Any], Any], default: Any = REQUIRED, printed: bool = False
    ) -> None:
        self.kind, self.convert, self.default, self.printed = kind, convert, default, printed


def printed(kind: Attr) -> Attr:
    """An attribute that the text of a graph shows even where it has its default value."""
    return Attr(kind.kind, kind.convert, kind.default, True)


def known(value: Any, one: bool = False) -> Any:
    """A constant of the graph as numbers; computed values are refused."""
    if not isinstance(value, Expr):
        return value
    if isinstance(value, Constant):
        return value.numpy().item() if one and value.numpy().size == 1 else value.numpy().tolist()
    raise TypeError("it is computed by the program, and must be a constant here")


def _to_int(value: Any) -> Any:
    value = known(value, one=True)
    if isinstance(value, IntImm):
        return int(value.value)
    if isinstance(value, PrimExpr):
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        if isinstance(value, float) and value.is_integer():
            return int(value)
        raise TypeError(f"{value!r} is not an integer")
    return value.__index__()


def _to_ints(value: Any) -> Any:
    value = known(value)
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_to_ints(v) if isinstance(v, (tuple, list)) else _to_int(v) for v in value)
    return (_to_int(value),)


def _to_float(value: Any) -> float:
    value = known(value, one=True)
    return float(value.value if isinstance(value, (FloatImm, IntImm)) else value)


def _to_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return str(value)


def _to_dtype(value: Any) -> DataType | None:
    if value == "":
        return None
    return value if isinstance(value, DataType) else DataType(str(value))


def _to_anything(value: Any) -> Any:
    value = known(value)
    if isinstance(value, IntImm):
        return int(value.value)
    if isinstance(value, (list, tuple)):
        return tuple(_to_anything(v) for v in value)
    return value.item() if hasattr(value, "item") and not hasattr(value, "asnumpy") else value


def integer(default: Any = REQUIRED) -> Attr:
    """One integer."""
    return Attr("integer", _to_int, default)


def ints(default: Any = REQUIRED) -> Attr:
    """Several integers, possibly nested; a single one becomes a tuple of one."""
    return Attr("integers", _to_ints, default)


def window(count: int, default: Any = REQUIRED) -> Attr:
    """An integer for each of `count` spatial dimensions; a single one is for all."""
    return Attr("integers", lambda value: each(_to_ints(value), count), default)


def padding(count: int, default: Any = REQUIRED) -> Attr:
    """Padding as all begins, then all ends; fewer integers are for both sides, or for all."""
    return Attr("integers", lambda value: sides(_to_ints(value), count), default)


def number(default: Any = REQUIRED) -> Attr:
    """A float."""
    return Attr("number", _to_float, default)


def text(default: Any = REQUIRED) -> Attr:
    """A string."""
    return Attr("text", _to_text, default)


def flag(default: Any = REQUIRED) -> Attr:
    """True or False."""
    return Attr("flag", bool, default)


def dtype(default: Any = REQUIRED) -> Attr:
    """A type of elements; "" is None."""
    return Attr("dtype", _to_dtype, _to_dtype(default) if isinstance(default, str) else default)


def anything(default: Any = REQUIRED) -> Attr:
    """Numbers, text, tuples of them, or an object of the operator's own."""
    return Attr("value", _to_anything, default)


def sizes(default: Any = REQUIRED) -> Attr:
    """A shape: sizes of any kind; one alone becomes a tuple of one."""

    def convert(value: Any) -> Any:
        made = _to_anything(tuple(value) if isinstance(value, Sequence) else value)
        return made if isinstance(made, tuple) else (made,)

    return Attr("shape", convert, default)


class Attrs:
    """The attributes of a call: `attrs.strides`, `attrs["strides"]`, `attrs.keys()`. Equal where their values are."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_values", dict(values))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(
                f"there is no attribute {name!r}{near_matches(name, self._values)}"
            ) from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"attributes are not changed: use attrs.replace({name}=…)")

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            raise KeyError(f"there is no attribute {name!r}{near_matches(name, self._values)}")
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def keys(self) -> list[str]:
        return list(self._values)

    def values(self) -> list[Any]:
        return list(self._values.values())

    def items(self) -> list[tuple[str, Any]]:
        return list(self._values.items())

    def get(self, name: str, default: Any = None) -> Any:
        return self._values.get(name, default)

    def get_int(self, name: str) -> int:
        return int(self[name])

    def get_str(self, name: str) -> str:
        return str(self[name])

    def get_int_tuple(self, name: str) -> tuple[int, ...]:
        return tuple(int(v) for v in self[name])

    def replace(self, **changes: Any) -> Attrs:
        """A copy with some attributes changed; a call checks them again."""
        return Attrs({**self._values, **changes})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Attrs) or self._values.keys() != other._values.keys():
            return False
        return all(_same_value(v, other._values[k]) for k, v in self._values.items())

    def __hash__(self) -> int:
        return hash(tuple(sorted((k, str(v)) for k, v in self._values.items())))

    def __repr__(self) -> str:
        return f"Attrs({', '.join(f'{k}={v!r}' for k, v in self._values.items())})"


def _same_value(a: Any, b: Any) -> bool:
    """Whether two values of attributes are the same; of expressions `==` would build another."""
    if isinstance(a, PrimExpr) or isinstance(b, PrimExpr):
        return isinstance(a, PrimExpr) and isinstance(b, PrimExpr) and structural_equal(a, b)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same_value, a, b))
    return bool(a == b)
