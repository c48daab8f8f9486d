"""Natural numbers of the library's type `nat`, from and to Python's."""

from __future__ import annotations

from typing import Any

from ..backend.interpreter import ConstructorValue


def count(prelude: Any, n: Any) -> int:
    """The number that a value is."""
    _, zero, _ = prelude.mod.get_type("nat")
    out = 0
    while n.tag != zero.tag:
        (n,) = n.fields
        out += 1
    return out


def make_nat_value(prelude: Any, n: int) -> ConstructorValue:
    """The value of a number."""
    _, zero, succ = prelude.mod.get_type("nat")
    made = ConstructorValue(zero.tag, [], zero)
    for _ in range(n):
        made = ConstructorValue(succ.tag, [made], succ)
    return made


def make_nat_expr(prelude: Any, n: int) -> Any:
    """The expression of a number."""
    _, zero, succ = prelude.mod.get_type("nat")
    made = zero()
    for _ in range(n):
        made = succ(made)
    return made
