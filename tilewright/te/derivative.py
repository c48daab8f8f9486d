"""Derivatives of scalar expressions, in reverse mode: from one result to all the leaves that it is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..ir import ops
from ..ir.dtype import DataType
from ..ir.expr import (
    Add,
    Call,
    Cast,
    Div,
    FloatImm,
    Max,
    Min,
    Mul,
    PrimExpr,
    ProducerLoad,
    Select,
    Sub,
    Var,
    const,
)
from .errors import refuse

# A part of an adjoint: it counts where all of its conditions hold, and may be computed only there.
Term = tuple[tuple[PrimExpr, ...], PrimExpr]


class _Operand(NamedTuple):
    """An operand of a node: how the node's adjoint becomes its own, and where it takes part."""

    value: PrimExpr
    pull: Callable[[PrimExpr], PrimExpr]
    where: PrimExpr | None = None


# The derivative of each function by its argument `x`; `y` is the function's value.
_SLOPES: dict[str, Callable[[PrimExpr, PrimExpr], Any]] = {
    "acos": lambda x, y: -1.0 / ops.sqrt(1.0 - x * x),
    "acosh": lambda x, y: 1.0 / ops.sqrt(x * x - 1.0),
    "asin": lambda x, y: 1.0 / ops.sqrt(1.0 - x * x),
    "asinh": lambda x, y: 1.0 / ops.sqrt(x * x + 1.0),
    "atan": lambda x, y: 1.0 / (1.0 + x * x),
    "atanh": lambda x, y: 1.0 / (1.0 - x * x),
    "cos": lambda x, y: -ops.sin(x),
    "cosh": lambda x, y: ops.sinh(x),
    "erf": lambda x, y: 2.0 / math.sqrt(math.pi) * ops.exp(-x * x),
    "exp": lambda x, y: y,
    "exp10": lambda x, y: y * math.log(10.0),
    "exp2": lambda x, y: y * math.log(2.0),
    "fabs": lambda x, y: ops.select(x >= 0.0, const(1, x.dtype), const(-1, x.dtype)),
    "log": lambda x, y: 1.0 / x,
    "log10": lambda x, y: 1.0 / (x * math.log(10.0)),
    "log1p": lambda x, y: 1.0 / (x + 1.0),
    "log2": lambda x, y: 1.0 / (x * math.log(2.0)),
    "rsqrt": lambda x, y: -0.5 * y / x,
    "sigmoid": lambda x, y: y * (1.0 - y),
    "sin": lambda x, y: ops.cos(x),
    "sinh": lambda x, y: ops.cosh(x),
    "sqrt": lambda x, y: 0.5 / y,
    "tan": lambda x, y: 1.0 + y * y,
    "tanh": lambda x, y: 1.0 - y * y,
}
_STEPS = frozenset({"ceil", "floor", "nearbyint", "round", "trunc"})  # constant between their jumps


def continuous(dtype: DataType) -> bool:
    """Whether values of a type have derivatives; integers and conditions have none."""
    return dtype.is_float


def partials(
    e: PrimExpr, seed: PrimExpr, is_leaf: Callable[[PrimExpr], bool]
) -> Iterator[tuple[PrimExpr, list[Term]]]:
    """The leaves of `e`, each with `seed` times the derivative of `e` by it, as a sum of terms.

    e = x * exp(y)      ->      x: seed * exp(y),   y: seed * x * exp(y)

    A part that is used often gets its adjoint once.
    """
    terms: dict[int, list[Term]] = {id(e): [((), seed)]}
    for n, operands in reversed(_order(e, is_leaf)):
        mine = terms.pop(id(n))
        if is_leaf(n):
            yield n, mine
        for o in operands:
            found = terms.setdefault(id(o.value), [])
            for where, value in mine:
                _add(found, where if o.where is None else (*where, o.where), o.pull(value))


def total(terms: list[Term]) -> PrimExpr:
    """The sum of terms, each zero where its conditions do not hold."""
    out: PrimExpr | None = None
    for where, value in terms:
        made = value
        for condition in reversed(where):
            made = ops.if_then_else(condition, made, const(0, value.dtype))
        out = made if out is None else out + made
    assert out is not None
    return out


def _add(terms: list[Term], where: tuple[PrimExpr, ...], value: PrimExpr) -> None:
    for i, (other, sum_) in enumerate(terms):
        if len(other) == len(where) and all(a is b for a, b in zip(other, where, strict=True)):
            terms[i] = (where, sum_ + value)
            return
    terms.append((where, value))


def _order(e: PrimExpr, is_leaf: Callable[[PrimExpr], bool]) -> list[tuple[PrimExpr, list[_Operand]]]:
    """The nodes between `e` and the leaves, operands first, each with its operands that depend on a leaf."""
    order: list[tuple[PrimExpr, list[_Operand]]] = []
    depends: dict[int, bool] = {}
    stack: list[tuple[PrimExpr, list[_Operand] | None]] = [(e, None)]
    while stack:
        n, operands = stack.pop()
        if operands is not None:
            operands = [o for o in operands if depends[id(o.value)]]
            depends[id(n)] = is_leaf(n) or bool(operands)
            if depends[id(n)]:
                order.append((n, operands))
        elif id(n) not in depends:
            depends[id(n)] = False
            operands = [] if is_leaf(n) else [o for o in _operands(n) if continuous(o.value.dtype)]
            stack.append((n, operands))
            stack.extend((o.value, None) for o in operands)
    return order


def _same(g: PrimExpr) -> PrimExpr:
    return g


def _operands(n: PrimExpr) -> list[_Operand]:
    """What a node's value depends on, with the rule of each."""
    if isinstance(n, (Var, FloatImm, ProducerLoad)):
        return []
    if isinstance(n, Cast):
        return [_Operand(n.value, lambda g: ops.cast(n.value.dtype, g))]
    if isinstance(n, Select):
        return _branches(n.condition, n.true_value, n.false_value)
    if isinstance(n, Call):
        return _call(n)
    if isinstance(n, (Add, Sub, Mul, Div, Min, Max)):
        return _binary(n)
    raise refuse(f"the derivative of `{n}` ({n.__class__.__name__}) is not known", what="te.gradient")


def _branches(condition: PrimExpr, yes: PrimExpr, no: PrimExpr) -> list[_Operand]:
    return [_Operand(yes, _same, condition), _Operand(no, _same, ops.logical_not(condition))]


def _binary(n: Any) -> list[_Operand]:
    a, b = n.a, n.b
    if isinstance(n, Add):
        return [_Operand(a, _same), _Operand(b, _same)]
    if isinstance(n, Sub):
        return [_Operand(a, _same), _Operand(b, ops.neg)]
    if isinstance(n, Mul):
        return [_Operand(a, lambda g: g * b), _Operand(b, lambda g: g * a)]
    if isinstance(n, Div):
        return [_Operand(a, lambda g: g / b), _Operand(b, lambda g: ops.neg(g * a / (b * b)))]
    first = a <= b if isinstance(n, Min) else a >= b  # of equal values the first counts
    zero = const(0, n.dtype)
    return [
        _Operand(a, lambda g: ops.select(first, g, zero)),
        _Operand(b, lambda g: ops.select(first, zero, g)),
    ]


def _call(n: Call) -> list[_Operand]:
    name = str(getattr(n.op, "name", n.op)).removeprefix("tir.")
    if name in _STEPS:
        return []
    if name == "if_then_else":
        return _branches(*n.args)
    if name == "pow":
        x, y = n.args
        return [
            _Operand(x, lambda g: g * y * ops.power(x, y - 1.0)),
            _Operand(y, lambda g: g * n * ops.log(x)),
        ]
    slope = _SLOPES.get(name)
    if slope is None:
        known = ", ".join(sorted({*_SLOPES, *_STEPS, "if_then_else", "pow"}))
        raise refuse(f"the derivative of `{name}` is not known", f"known are {known}", what="te.gradient")
    x = n.args[0]
    return [_Operand(x, lambda g: g * slope(x, n))]
