"""What integer expressions come to for many iterations at once: a least and a greatest value for each.

The values of a loop that is walked are known exactly; those of a loop that is drawn as one step are a
range. Both are a pair, of numbers or NumPy arrays; where the value is exact, the pair holds one object twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Call,
    Cast,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PrimExpr,
    Select,
    Sub,
    Var,
)
from ....ir.op import Op

Value = tuple[Any, Any]
Env = Mapping[Var, Value]


def exact(value: Any) -> Value:
    """The pair of a known value."""
    return value, value


def value_of(e: PrimExpr, env: Env) -> Value | None:
    """The least and greatest value of `e`; None if it depends on memory or on what is not integer."""
    kind = e.__class__
    if kind is IntImm:
        return exact(e.value)  # type: ignore[attr-defined]
    if isinstance(e, Var):
        return env.get(e)
    if kind is Cast:
        return value_of(e.value, env) if e.dtype.is_int or e.dtype.is_uint else None  # type: ignore[attr-defined]
    if kind is And or kind is Or:
        return _logical(kind, value_of(e.a, env), value_of(e.b, env))  # type: ignore[attr-defined]
    if kind is Not:
        return negated(value_of(e.a, env))  # type: ignore[attr-defined]
    if kind is Select:
        return _chosen(e.condition, e.true_value, e.false_value, env)  # type: ignore[attr-defined]
    if kind is Let:
        bound = value_of(e.value, env)  # type: ignore[attr-defined]
        return None if bound is None else value_of(e.body, {**env, e.var: bound})  # type: ignore[attr-defined]
    if kind is Call:
        return _call(e, env)  # type: ignore[arg-type]
    rule = _BINARY.get(kind)
    if rule is None:
        return None
    a, b = value_of(e.a, env), value_of(e.b, env)  # type: ignore[attr-defined]
    return None if a is None or b is None else rule(a, b)


def may_hold(condition: Value | None) -> Any:
    """Where a condition holds or may hold: what is not known may."""
    return True if condition is None else condition[1]


def negated(condition: Value | None) -> Value | None:
    """The opposite of a condition."""
    return None if condition is None else (np.logical_not(condition[1]), np.logical_not(condition[0]))


# -- arithmetic ------------------------------------------------------------------------------------
def _is_exact(*values: Value) -> bool:
    return all(lo is hi for lo, hi in values)


def _spread(f: Callable[[Any, Any], Any], a: Value, b: Value) -> Value:
    """A function that goes one way in each argument takes its extremes at the corners."""
    if _is_exact(a, b):
        return exact(f(a[0], b[0]))
    corners = [f(x, y) for x in a for y in b]
    lo, hi = corners[0], corners[0]
    for c in corners[1:]:
        lo, hi = np.minimum(lo, c), np.maximum(hi, c)
    return lo, hi


def _sub(a: Value, b: Value) -> Value:
    return exact(a[0] - b[0]) if _is_exact(a, b) else (a[0] - b[1], a[1] - b[0])


def _add(a: Value, b: Value) -> Value:
    return exact(a[0] + b[0]) if _is_exact(a, b) else (a[0] + b[0], a[1] + b[1])


def _mul(a: Value, b: Value) -> Value:
    return _spread(lambda x, y: x * y, a, b)


def _floordiv(a: Value, b: Value) -> Value | None:
    return _spread(lambda x, y: x // y, a, b) if np.min(b[0]) > 0 else None


def _floormod(a: Value, b: Value) -> Value | None:
    if np.min(b[0]) <= 0:
        return None
    if _is_exact(a, b):
        return exact(a[0] % b[0])
    same = np.logical_and(a[0] // b[0] == a[1] // b[1], b[0] == b[1])
    return np.where(same, a[0] % b[0], 0), np.where(same, a[1] % b[1], b[1] - 1)


def _of_naturals(rule: Callable[[Value, Value], Value | None]) -> Callable[[Value, Value], Value | None]:
    """Division towards zero is division downwards where nothing is negative."""
    return lambda a, b: rule(a, b) if np.min(a[0]) >= 0 else None


def _min(a: Value, b: Value) -> Value:
    lo = np.minimum(a[0], b[0])
    return exact(lo) if _is_exact(a, b) else (lo, np.minimum(a[1], b[1]))


def _max(a: Value, b: Value) -> Value:
    lo = np.maximum(a[0], b[0])
    return exact(lo) if _is_exact(a, b) else (lo, np.maximum(a[1], b[1]))


def _less(a: Value, b: Value) -> Value:
    return exact(a[0] < b[0]) if _is_exact(a, b) else (a[1] < b[0], a[0] < b[1])


def _less_equal(a: Value, b: Value) -> Value:
    return exact(a[0] <= b[0]) if _is_exact(a, b) else (a[1] <= b[0], a[0] <= b[1])


def _equal(a: Value, b: Value) -> Value:
    if _is_exact(a, b):
        return exact(a[0] == b[0])
    surely = np.logical_and(np.equal(a[0], b[1]), np.equal(a[1], b[0]))
    return surely, np.logical_and(np.less_equal(a[0], b[1]), np.less_equal(b[0], a[1]))


_BINARY: dict[type, Callable[[Value, Value], Value | None]] = {
    Add: _add,
    Sub: _sub,
    Mul: _mul,
    FloorDiv: _floordiv,
    FloorMod: _floormod,
    Div: _of_naturals(_floordiv),
    Mod: _of_naturals(_floormod),
    Min: _min,
    Max: _max,
    LT: _less,
    LE: _less_equal,
    GT: lambda a, b: _less(b, a),
    GE: lambda a, b: _less_equal(b, a),
    EQ: _equal,
    NE: lambda a, b: negated(_equal(a, b)),
}


# -- conditions ------------------------------------------------------------------------------------
def _logical(kind: type, a: Value | None, b: Value | None) -> Value | None:
    if a is None and b is None:
        return None
    a, b = a or (False, True), b or (False, True)
    join = np.logical_and if kind is And else np.logical_or
    return exact(join(a[0], b[0])) if _is_exact(a, b) else (join(a[0], b[0]), join(a[1], b[1]))


def _chosen(condition: PrimExpr, then: PrimExpr, other: PrimExpr, env: Env) -> Value | None:
    c, t, f = value_of(condition, env), value_of(then, env), value_of(other, env)
    if t is None or f is None:
        return None
    if c is None:
        return np.minimum(t[0], f[0]), np.maximum(t[1], f[1])
    if _is_exact(c, t, f):
        return exact(np.where(c[0], t[0], f[0]))
    lo = np.where(c[0], t[0], np.where(c[1], np.minimum(t[0], f[0]), f[0]))
    return lo, np.where(c[0], t[1], np.where(c[1], np.maximum(t[1], f[1]), f[1]))


def _call(e: Call, env: Env) -> Value | None:
    name = e.op.short_name if isinstance(e.op, Op) else ""
    if name == "if_then_else":
        return _chosen(e.args[0], e.args[1], e.args[2], env)
    if name == "likely":
        return value_of(e.args[0], env)
    if name in ("shift_left", "shift_right", "bitwise_and"):
        a, b = value_of(e.args[0], env), value_of(e.args[1], env)
        if a is None or b is None or not _is_exact(b):
            return None
        if name == "shift_left":
            return _mul(a, exact(1 << b[0]))
        if name == "shift_right":
            return _floordiv(a, exact(1 << b[0]))
        return exact(a[0] & b[0]) if _is_exact(a) else None
    return None
