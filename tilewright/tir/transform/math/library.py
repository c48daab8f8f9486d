"""float64: the C library's functions, one lane after the other."""

from __future__ import annotations

from ....ir.expr import PrimExpr, Select
from ....ir.ops import call_pure_extern
from .builder import Builder

__all__ = ["call_library"]


def call_library(b: Builder, name: str, *args: PrimExpr) -> PrimExpr:
    """The float64 operator `name` in terms of what every C library has."""
    x = args[0]
    if name == "exp10":
        return call_pure_extern(x.dtype, "pow", b.const(10.0, x), x)
    if name == "rsqrt":
        return b.const(1.0, x) / b.sqrt(x)
    if name == "sigmoid":
        x = b.let(x, "x")
        e = b.let(call_pure_extern(x.dtype, "exp", b.const(0.0, x) - b.fabs(x)), "e")
        return Select(x < 0.0, e, b.const(1.0, x)) / (e + 1.0)
    if name == "ldexp":
        return call_pure_extern(x.dtype, "ldexp", x, b.to(b.i32, args[1]))
    return call_pure_extern(x.dtype, name, *args)
