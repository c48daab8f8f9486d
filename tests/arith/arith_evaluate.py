"""A tiny evaluator of expressions over Python integers: what the arithmetic is checked against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Broadcast,
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
    Ramp,
    Select,
    Sub,
    Var,
)


def trunc_div(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


OPS: dict[type, Any] = {
    Add: lambda a, b: a + b,
    Sub: lambda a, b: a - b,
    Mul: lambda a, b: a * b,
    FloorDiv: lambda a, b: a // b,
    FloorMod: lambda a, b: a % b,
    Div: trunc_div,
    Mod: lambda a, b: a - trunc_div(a, b) * b,
    Min: min,
    Max: max,
    EQ: lambda a, b: int(a == b),
    NE: lambda a, b: int(a != b),
    LT: lambda a, b: int(a < b),
    LE: lambda a, b: int(a <= b),
    GT: lambda a, b: int(a > b),
    GE: lambda a, b: int(a >= b),
}


def evaluate(e: Any, env: Mapping[Var, int]) -> Any:
    """The value of a scalar, or the list of the lanes of a vector."""
    cls = e.__class__
    if isinstance(e, Var):
        return env[e]
    if cls is IntImm:
        return e.value
    if cls is Ramp:
        base, stride = evaluate(e.base, env), evaluate(e.stride, env)
        return [base + stride * n for n in range(e.lanes)]
    if cls is Broadcast:
        return [evaluate(e.value, env)] * e.lanes
    if cls is And:
        return evaluate(e.b, env) if evaluate(e.a, env) else 0
    if cls is Or:
        return 1 if evaluate(e.a, env) else evaluate(e.b, env)
    if cls is Not:
        return 1 - evaluate(e.a, env)
    if cls is Select:
        return evaluate(e.true_value if evaluate(e.condition, env) else e.false_value, env)
    if cls is Call and e.op.name == "tir.if_then_else":
        return evaluate(e.args[1] if evaluate(e.args[0], env) else e.args[2], env)
    if cls is Call and e.op.name == "tir.likely":
        return evaluate(e.args[0], env)
    if cls is Let:
        return evaluate(e.body, {**env, e.var: evaluate(e.value, env)})
    if cls is Cast:
        return evaluate(e.value, env)
    a, b = evaluate(e.a, env), evaluate(e.b, env)
    if isinstance(a, list):
        return [OPS[cls](x, y) for x, y in zip(a, b, strict=True)]
    return OPS[cls](a, b)
