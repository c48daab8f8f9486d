"""Expressions as text with as few parentheses as the language needs.

A printer is a subclass of `ExprText` with a table of infix operators. The tables of Python and of the
C family are here; a dialect changes an entry or a method. Each method returns the text together with
how tightly it binds, and whoever puts it into a larger text adds parentheses if that is too loose.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from .expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Div,
    FloorDiv,
    FloorMod,
    Mod,
    Mul,
    Or,
    PrimExpr,
    Sub,
)
from .node import methods_of_nodes

UNARY: Final = 20
ATOM: Final = 30


class Piece(NamedTuple):
    """A text and how tightly it binds."""

    text: str
    level: int = ATOM


class Infix(NamedTuple):
    """An operator between two operands: `left` and `right` are the least levels they need."""

    symbol: str
    level: int
    left: int
    right: int


def _left(symbol: str, level: int) -> Infix:
    return Infix(symbol, level, level, level + 1)


def _alone(symbol: str, level: int) -> Infix:
    return Infix(symbol, level, level + 1, level + 1)


# In Python comparisons chain, so one inside another always stands in parentheses.
PYTHON_INFIX: Final[dict[type, Infix]] = {
    Or: _left("or", 1),
    And: _left("and", 2),
    EQ: _alone("==", 4),
    NE: _alone("!=", 4),
    LT: _alone("<", 4),
    LE: _alone("<=", 4),
    GT: _alone(">", 4),
    GE: _alone(">=", 4),
    Add: _left("+", 9),
    Sub: _left("-", 9),
    Mul: _left("*", 10),
    Div: _left("/", 10),
    FloorDiv: _left("//", 10),
    FloorMod: _left("%", 10),
}
PYTHON_NOT: Final = 3

C_INFIX: Final[dict[type, Infix]] = {
    Or: _left("||", 1),
    And: _left("&&", 2),
    EQ: _alone("==", 6),
    NE: _alone("!=", 6),
    LT: _alone("<", 7),
    LE: _alone("<=", 7),
    GT: _alone(">", 7),
    GE: _alone(">=", 7),
    Add: _left("+", 9),
    Sub: _left("-", 9),
    Mul: _left("*", 10),
    Div: _left("/", 10),
    Mod: _left("%", 10),
}


class ExprText:
    """Prints expressions through a table from node types to methods `text_Add(self, e) -> Piece`."""

    infix: ClassVar[Mapping[type, Infix]] = {}
    _table: ClassVar[dict[str, Callable[[Any, Any], Piece]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._table = methods_of_nodes(cls, "text_")

    def piece(self, e: Any) -> Piece:
        """The text of `e` and its level."""
        handler = self._table.get(e.__class__.__name__)
        if handler is not None:
            return handler(self, e)
        infix = self.infix.get(e.__class__)
        if infix is not None:
            return self.infix_piece(infix, e.a, e.b)
        return self.otherwise(e)

    def infix_piece(self, infix: Infix, a: PrimExpr, b: PrimExpr) -> Piece:
        """`a symbol b`."""
        return Piece(f"{self.at(infix.left, a)} {infix.symbol} {self.at(infix.right, b)}", infix.level)

    def at(self, level: int, e: Any) -> str:
        """The text of `e`, in parentheses if it binds less tightly than `level`."""
        text, own = self.piece(e)
        return text if own >= level else f"({text})"

    def expr(self, e: Any) -> str:
        """The text of `e` in a context of lowest precedence: an argument, the right side of an assignment."""
        return self.piece(e).text

    def listed(self, items: Any) -> str:
        """Expressions with commas between them."""
        return ", ".join([self.piece(e).text for e in items])

    def otherwise(self, e: Any) -> Piece:
        raise TypeError(f"no text form for {type(e).__name__}")


def float_text(value: float) -> str:
    """The shortest text that reads back as exactly this number; infinity and NaN in quotes."""
    if math.isnan(value):
        return '"nan"'
    if math.isinf(value):
        return '"inf"' if value > 0 else '"-inf"'
    if value.is_integer() and abs(value) < 1e15 and (value or math.copysign(1.0, value) > 0):
        return str(int(value))
    return repr(value)


def quoted(text: str) -> str:
    """A string literal."""
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate: not encodable in a text file
        return repr(text)
    return json.dumps(text, ensure_ascii=False)
