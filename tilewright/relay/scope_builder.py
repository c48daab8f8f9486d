"""A builder of lets and branches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..ir.errors import TVMError
from .expr import Expr, If, Let, Var, as_expr, type_so_far


class ScopeBuilder:
    """A block under construction.

    sb = relay.ScopeBuilder()
    with sb.if_scope(cond):                     if (cond) {
        one = sb.let("one", relay.const(1))       let %one = 1;
        sb.ret(one)                        ->     %one
    with sb.else_scope():                       } else {
        sb.ret(x)                                 %x
    f = relay.Function([x, cond], sb.get())     }
    """

    def __init__(self) -> None:
        self._lets: list[list[tuple[Var, Expr]]] = [[]]
        self._value: list[Any] = [None]
        self._branch: list[tuple[Expr, Expr] | None] = [None]

    def let(self, var: Any, value: Any) -> Var:
        """Bind a value to a name in the rest of the block."""
        if isinstance(var, (tuple, list)):  # a name and a type
            var = Var(str(var[0]), var[1])
        made = var if isinstance(var, Var) else Var(str(var))
        self._lets[-1].append((made, as_expr(value)))
        return made

    def ret(self, value: Any) -> None:
        """The value of the block."""
        if self._value[-1] is not None:
            raise TVMError("ScopeBuilder.ret: this block has a value already")
        self._value[-1] = as_expr(value)

    @contextmanager
    def if_scope(self, cond: Any) -> Iterator[None]:
        """The scope of the true branch; `else_scope` must follow."""
        self._open()
        yield
        self._branch[-1] = (as_expr(cond), self._close())

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """The scope of the false branch of the preceding `if_scope`."""
        if self._branch[-1] is None:
            raise TVMError("ScopeBuilder.else_scope: there is no if_scope before it")
        self._open()
        yield
        other = self._close()
        found = self._branch[-1]
        assert found is not None
        self._branch[-1] = None
        self.ret(If(found[0], found[1], other))

    def get(self) -> Expr:
        """The expression of the whole block."""
        if self._branch[-1] is not None:
            raise TVMError("ScopeBuilder.get: an if_scope has no else_scope")
        if self._value[-1] is None:
            raise TVMError("ScopeBuilder.get: the block has no value; call ret")
        made: Expr = self._value[-1]
        for var, value in reversed(self._lets[-1]):
            made = Let(var, value, made)
        return made

    def type_of(self, expr: Any) -> Any:
        """The type of an expression, where it is known or can be inferred."""
        return type_so_far(expr)

    def _open(self) -> None:
        self._lets.append([])
        self._value.append(None)
        self._branch.append(None)

    def _close(self) -> Expr:
        made = self.get()
        self._lets.pop()
        self._value.pop()
        self._branch.pop()
        return made
