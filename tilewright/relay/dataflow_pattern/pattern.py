"""Patterns of graph expressions, with wildcards.

conv = is_op("nn.conv2d")(wildcard(), is_constant())
pattern = is_op("nn.relu")(is_op("add")(conv, wildcard()))
pattern.match(expr)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.dtype import DataType
from ..expr import Expr

__all__ = [
    "AltPattern",
    "AttrPattern",
    "CallPattern",
    "ConstantPattern",
    "DFPattern",
    "DataTypePattern",
    "DominatorPattern",
    "ExprPattern",
    "FunctionPattern",
    "IfPattern",
    "LetPattern",
    "OpPattern",
    "ShapePattern",
    "TupleGetItemPattern",
    "TuplePattern",
    "TypePattern",
    "VarPattern",
    "WildcardPattern",
    "dominates",
    "has_attr",
    "has_dtype",
    "has_shape",
    "has_type",
    "is_constant",
    "is_expr",
    "is_function",
    "is_if",
    "is_let",
    "is_op",
    "is_tuple",
    "is_tuple_get_item",
    "is_var",
    "wildcard",
]


class DFPattern:
    """A pattern. One that occurs twice in a larger pattern matches the same expression in both."""

    def __call__(self, *args: Any) -> CallPattern:
        listed: Any = args
        if len(args) == 1 and args[0] is None:
            listed = None
        elif len(args) == 1 and isinstance(args[0], (list, tuple)):
            listed = args[0]
        return CallPattern(self, listed)

    def __or__(self, other: DFPattern) -> AltPattern:
        return AltPattern(self, other)

    def __add__(self, other: Any) -> CallPattern:
        return is_op("add")(self, _as_pattern(other))

    def __sub__(self, other: Any) -> CallPattern:
        return is_op("subtract")(self, _as_pattern(other))

    def __mul__(self, other: Any) -> CallPattern:
        return is_op("multiply")(self, _as_pattern(other))

    def __truediv__(self, other: Any) -> CallPattern:
        return is_op("divide")(self, _as_pattern(other))

    def has_attr(self, attrs: Mapping[str, Any]) -> AttrPattern:
        """This, with attributes of these values: of the call, its operator, or the function."""
        return AttrPattern(self, attrs)

    def has_type(self, ttype: Any) -> TypePattern:
        """This, of that type."""
        return TypePattern(self, ttype)

    def has_dtype(self, dtype: str) -> DataTypePattern:
        """This, with elements of that type."""
        return DataTypePattern(self, dtype)

    def has_shape(self, shape: Sequence[Any]) -> ShapePattern:
        """This, of that shape."""
        return ShapePattern(self, shape)

    def optional(self, option_constructor: Callable[[DFPattern], DFPattern]) -> DFPattern:
        """This, or what the function makes of it."""
        return self | option_constructor(self)

    def dominates(self, parent: DFPattern, path: DFPattern | None = None) -> DominatorPattern:
        """This, dominated by `parent` through paths on which every node matches `path`."""
        return DominatorPattern(parent, path if path is not None else wildcard(), self)

    def match(self, expr: Expr) -> bool:
        """Whether an expression matches."""
        from .matcher import match

        return match(self, expr)

    def rewrite(self, callback: Any, expr: Expr) -> Expr:
        from .rewriter import rewrite

        return rewrite(callback, expr)

    def partition(
        self,
        expr: Expr,
        attrs: Mapping[str, Any] | None = None,
        check: Callable[[Any], bool] = lambda e: True,
    ) -> Expr:
        """The expression with a function for each matched subgraph."""
        from .partitioner import partition

        return partition(self, expr, attrs, check)

    def children(self) -> list[DFPattern]:
        """The patterns that this one is made of."""
        held = [p for v in vars(self).values() for p in (v if isinstance(v, tuple) else (v,))]
        return [p for p in held if isinstance(p, DFPattern)]


class OpPattern(DFPattern):
    """The operator of a name."""

    def __init__(self, op_name: str) -> None:
        from ..op.registry import get

        self.op = get(op_name)
        self.name = op_name


class WildcardPattern(DFPattern):
    """Any expression."""


class VarPattern(DFPattern):
    """A variable, of a name if one is given."""

    def __init__(self, name: str = "") -> None:
        self.name = name


class ConstantPattern(DFPattern):
    """A constant."""


class ExprPattern(DFPattern):
    """One expression, as it is."""

    def __init__(self, expr: Any) -> None:
        self.expr = expr


class CallPattern(DFPattern):
    """A call; `args` None is any number of arguments."""

    def __init__(self, op: DFPattern, args: Sequence[Any] | None) -> None:
        self.op = op
        self.args = None if args is None else tuple(_as_pattern(a) for a in args)


class FunctionPattern(DFPattern):
    """A function; `params` None is any number of parameters."""

    def __init__(self, params: Sequence[Any] | None, body: Any) -> None:
        self.params = None if params is None else tuple(_as_pattern(p) for p in params)
        self.body = _as_pattern(body)


class TuplePattern(DFPattern):
    """A tuple; `fields` None is any number of them."""

    def __init__(self, fields: Sequence[Any] | None) -> None:
        self.fields = None if fields is None else tuple(_as_pattern(f) for f in fields)


class TupleGetItemPattern(DFPattern):
    """A part of a tuple; `index` None is any."""

    def __init__(self, tuple_value: Any, index: int | None = None) -> None:
        self.tuple_value = self.tuple = _as_pattern(tuple_value)
        self.index = None if index is None or index < 0 else index


class IfPattern(DFPattern):
    """A choice."""

    def __init__(self, cond: Any, true_branch: Any, false_branch: Any) -> None:
        self.cond, self.true_branch = _as_pattern(cond), _as_pattern(true_branch)
        self.false_branch = _as_pattern(false_branch)


class LetPattern(DFPattern):
    """A let."""

    def __init__(self, var: Any, value: Any, body: Any) -> None:
        self.var, self.value, self.body = _as_pattern(var), _as_pattern(value), _as_pattern(body)


class AltPattern(DFPattern):
    """One of two, the left one first."""

    def __init__(self, left: Any, right: Any) -> None:
        self.left, self.right = _as_pattern(left), _as_pattern(right)


class _Narrowed(DFPattern):
    def __init__(self, pattern: Any) -> None:
        self.pattern = _as_pattern(pattern)


class AttrPattern(_Narrowed):
    """A pattern with attributes of some values."""

    def __init__(self, pattern: Any, attrs: Mapping[str, Any]) -> None:
        super().__init__(pattern)
        self.attrs = dict(attrs)


class TypePattern(_Narrowed):
    """A pattern of a type."""

    def __init__(self, pattern: Any, ttype: Any) -> None:
        super().__init__(pattern)
        self.type = ttype


class DataTypePattern(_Narrowed):
    """A pattern with elements of a type."""

    def __init__(self, pattern: Any, dtype: str) -> None:
        super().__init__(pattern)
        self.dtype = DataType(str(dtype))


class ShapePattern(_Narrowed):
    """A pattern of a shape."""

    def __init__(self, pattern: Any, shape: Sequence[Any]) -> None:
        super().__init__(pattern)
        self.shape = tuple(shape)


class DominatorPattern(DFPattern):
    """`child`, dominated by `parent` through nodes that match `path`."""

    def __init__(self, parent: Any, path: Any, child: Any) -> None:
        self.parent, self.path, self.child = _as_pattern(parent), _as_pattern(path), _as_pattern(child)


def _as_pattern(value: Any) -> Any:
    if isinstance(value, DFPattern):
        return value
    if isinstance(value, (list, tuple)):
        return TuplePattern(value)
    if isinstance(value, Expr):
        return ExprPattern(value)
    raise TypeError(f"{value!r} ({type(value).__name__}) is not a pattern; wildcard() matches anything")


# ---------------------------------------------------------------------------- constructors
wildcard, is_constant, is_op = WildcardPattern, ConstantPattern, OpPattern
is_var, is_expr = VarPattern, ExprPattern
is_tuple, is_tuple_get_item = TuplePattern, TupleGetItemPattern
is_if, is_let, is_function = IfPattern, LetPattern, FunctionPattern
dominates = DominatorPattern


def has_type(ttype: Any, pattern: DFPattern | None = None) -> TypePattern:
    """Anything of that type."""
    return TypePattern(pattern or wildcard(), ttype)


def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DataTypePattern:
    """Anything with elements of that type."""
    return DataTypePattern(pattern or wildcard(), dtype)


def has_shape(shape: Sequence[Any], pattern: DFPattern | None = None) -> ShapePattern:
    """Anything of that shape."""
    return ShapePattern(pattern or wildcard(), shape)


def has_attr(attrs: Mapping[str, Any], pattern: DFPattern | None = None) -> AttrPattern:
    """Anything with attributes of these values."""
    return AttrPattern(pattern or wildcard(), attrs)
