"""Python's operators on expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .expr import PrimExpr

# The functions behind the operators; they need the nodes, which need the operators.
_ops: Any = None


def bind(module: Any) -> None:
    """Give the module that holds the functions."""
    global _ops
    _ops = module


class ExprOp:
    """Python's operators on expressions. `==` builds an expression; `bool(a == b)` asks for identity."""

    __slots__ = ()

    def __add__(self, other: Any) -> PrimExpr:
        return _ops.binary(_ops.add, self, other)  # type: ignore[no-any-return]

    def __radd__(self, other: Any) -> PrimExpr:
        return _ops.binary(_ops.add, other, self)  # type: ignore[no-any-return]

    def __sub__(self, other: Any) -> PrimExpr:
        return _ops.binary(_ops.sub, self, other)  # type: ignore[no-any-return]

    def __rsub__(self, other: Any) -> PrimExpr:
        return _ops.binary(_ops.sub, other, self)  # type: ignore[no-any-return]

    def __mul__(self, other: Any) -> PrimExpr:
        return _ops.binary(_ops.mul, self, other)  # type: ignore[no-any-return]

    def __rmul__(self, other: Any) -> PrimExpr:
        return _ops.binary(_ops.mul, other, self)  # type: ignore[no-any-return]

    def __truediv__(self, other: Any) -> PrimExpr:
        return _ops.binary(_ops.true_divide, self, other)  # type: ignore[no-any-return]

    def __rtruediv__(self, other: Any) -> PrimExpr:
        return _ops.binary(_ops.true_divide, other, self)  # type: ignore[no-any-return]

    def __floordiv__(self, other: Any) -> PrimExpr:
        return _ops.binary(_ops.floordiv, self, other)  # type: ignore[no-any-return]

    def __rfloordiv__(self, other: Any) -> PrimExpr:
        return _ops.binary(_ops.floordiv, other, self)  # type: ignore[no-any-return]

    def __mod__(self, other: Any) -> PrimExpr:
        return _ops.binary(_ops.floormod, self, other)  # type: ignore[no-any-return]

    def __rmod__(self, other: Any) -> PrimExpr:
        return _ops.binary(_ops.floormod, other, self)  # type: ignore[no-any-return]

    def __neg__(self) -> PrimExpr:
        return _ops.neg(self)  # type: ignore[no-any-return]

    def __pos__(self) -> PrimExpr:
        return _ops.convert(self)  # type: ignore[no-any-return]

    def __abs__(self) -> PrimExpr:
        return _ops.abs(self)  # type: ignore[no-any-return]

    def __pow__(self, other: Any) -> PrimExpr:
        return _ops.power(self, other)  # type: ignore[no-any-return]

    def __rpow__(self, other: Any) -> PrimExpr:
        return _ops.power(other, self)  # type: ignore[no-any-return]

    def __lshift__(self, other: Any) -> PrimExpr:
        return _ops.shift_left(self, other)  # type: ignore[no-any-return]

    def __rlshift__(self, other: Any) -> PrimExpr:
        return _ops.shift_left(other, self)  # type: ignore[no-any-return]

    def __rshift__(self, other: Any) -> PrimExpr:
        return _ops.shift_right(self, other)  # type: ignore[no-any-return]

    def __rrshift__(self, other: Any) -> PrimExpr:
        return _ops.shift_right(other, self)  # type: ignore[no-any-return]

    def __and__(self, other: Any) -> PrimExpr:
        return _ops.bitwise_and(self, other)  # type: ignore[no-any-return]

    def __rand__(self, other: Any) -> PrimExpr:
        return _ops.bitwise_and(other, self)  # type: ignore[no-any-return]

    def __or__(self, other: Any) -> PrimExpr:
        return _ops.bitwise_or(self, other)  # type: ignore[no-any-return]

    def __ror__(self, other: Any) -> PrimExpr:
        return _ops.bitwise_or(other, self)  # type: ignore[no-any-return]

    def __xor__(self, other: Any) -> PrimExpr:
        return _ops.bitwise_xor(self, other)  # type: ignore[no-any-return]

    def __rxor__(self, other: Any) -> PrimExpr:
        return _ops.bitwise_xor(other, self)  # type: ignore[no-any-return]

    def __invert__(self) -> PrimExpr:
        return _ops.bitwise_not(self)  # type: ignore[no-any-return]

    def __lt__(self, other: Any) -> PrimExpr:
        return _ops.binary(_ops.less, self, other)  # type: ignore[no-any-return]

    def __le__(self, other: Any) -> PrimExpr:
        return _ops.binary(_ops.less_equal, self, other)  # type: ignore[no-any-return]

    def __gt__(self, other: Any) -> PrimExpr:
        return _ops.binary(_ops.greater, self, other)  # type: ignore[no-any-return]

    def __ge__(self, other: Any) -> PrimExpr:
        return _ops.binary(_ops.greater_equal, self, other)  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> Any:
        return _ops.equal_or_not(self, other, True)

    def __ne__(self, other: object) -> Any:
        return _ops.equal_or_not(self, other, False)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise ValueError(
            f"`{self}` is an expression: it has no truth value while the program is being written. "
            "Use tir.all / tir.any / tir.Not and tir.if_then_else instead of and / or / not and if."
        )

    def equal(self, other: Any, span: Any = None) -> PrimExpr:
        """The expression `self == other`."""
        return _ops.equal(self, other)  # type: ignore[no-any-return]

    def astype(self, dtype: str, span: Any = None) -> PrimExpr:
        """This value converted to another type."""
        return _ops.cast(dtype, self)  # type: ignore[no-any-return]
