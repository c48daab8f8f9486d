"""Building blocks of the expansions: shared values, fused multiply-adds, polynomials, bit casts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....ir import ops
from ....ir.dtype import DataType
from ....ir.expr import Broadcast, Call, Cast, FloatImm, IntImm, Let, PrimExpr, Select, StringImm, Var, const
from ....ir.op import Op

Expansion = Callable[..., PrimExpr]

EXPANSIONS: dict[str, Expansion] = {}
"""The expansion of an operator by its short name: `EXPANSIONS["exp"](x)`."""

MAX_ULP: dict[str, float] = {}
"""The greatest error of each float32 expansion, in units in the last place, over all arguments."""

_FLOAT32, _FLOAT64 = DataType("float32"), DataType("float64")
_INT32, _INT64 = DataType("int32"), DataType("int64")
_LEAVES = (Var, IntImm, FloatImm)
ROUND32 = 12582912.0  # 1.5 · 2^23: added to a float32 it leaves the nearest integer in the low bits
ROUND64 = 6755399441055744.0  # 1.5 · 2^52


class Builder:
    """Straight-line code under construction: values bound so far, and the instruction set.

    `let` gives a value a name, so that an expression used twice is computed once; `close` wraps the
    result into the bindings, the first outermost.
    """

    def __init__(self, lanes: int, *, fast: bool = False, fma: bool = True, avx512: bool = False) -> None:
        self.fast, self.has_fma, self.has_avx512 = fast, fma, avx512
        self.f32, self.f64 = _FLOAT32.with_lanes(lanes), _FLOAT64.with_lanes(lanes)
        self.i32, self.i64 = _INT32.with_lanes(lanes), _INT64.with_lanes(lanes)
        self._bound: list[tuple[Var, PrimExpr]] = []

    def let(self, value: PrimExpr, name: str = "t") -> PrimExpr:
        """Bind `value` to a name; leaves are not bound."""
        leaf = value.value if isinstance(value, Broadcast) else value
        if isinstance(leaf, _LEAVES):
            return value
        var = Var(name, value.dtype)
        self._bound.append((var, value))
        return var

    def close(self, result: PrimExpr) -> PrimExpr:
        """`result` inside all bindings."""
        for var, value in reversed(self._bound):
            result = Let(var, value, result)
        return result

    # -- arithmetic ------------------------------------------------------------------------
    def fma(self, a: Any, b: Any, c: Any) -> PrimExpr:
        """`a * b + c` with one rounding where the target has it, with two elsewhere."""
        kind = next(v.dtype for v in (a, b, c) if isinstance(v, PrimExpr))
        a, b, c = (v if isinstance(v, PrimExpr) else const(v, kind) for v in (a, b, c))
        return _call("fma", kind, a, b, c) if self.has_fma else a * b + c

    def horner(self, x: PrimExpr, coefficients: Sequence[float]) -> PrimExpr:
        """The polynomial with the lowest coefficient first: fewest operations."""
        out: Any = coefficients[-1]
        for c in reversed(coefficients[:-1]):
            out = self.fma(out, x, c)
        return out if isinstance(out, PrimExpr) else const(out, x.dtype)

    def halves(self, x: PrimExpr, x2: PrimExpr, coefficients: Sequence[float]) -> PrimExpr:
        """The same polynomial as two chains in x², for one product more and half the latency."""
        even, odd = coefficients[0::2], coefficients[1::2]
        return self.fma(self.horner(x2, odd), x, self.horner(x2, even))

    def sqrt(self, x: PrimExpr) -> PrimExpr:
        return _call("sqrt", x.dtype, x)

    def floor(self, x: PrimExpr) -> PrimExpr:
        return _call("floor", x.dtype, x)

    def trunc(self, x: PrimExpr) -> PrimExpr:
        return _call("trunc", x.dtype, x)

    def fabs(self, x: PrimExpr) -> PrimExpr:
        return _call("fabs", x.dtype, x)

    def copysign(self, x: PrimExpr, sign: PrimExpr) -> PrimExpr:
        return _call("copysign", x.dtype, x, sign)

    def clamp(self, x: PrimExpr, low: float, high: float) -> PrimExpr:
        """`x` held between two bounds; NaN passes. (`Min` and `Max` cost more: they order NaN.)"""
        low_, high_ = const(low, x.dtype), const(high, x.dtype)
        x = self.let(Select(low_ > x, low_, x))
        return self.let(Select(high_ < x, high_, x))

    def at_most(self, x: PrimExpr, high: float) -> PrimExpr:
        """The lesser of `x` and a bound; NaN passes."""
        bound = const(high, x.dtype)
        x = self.let(x)
        return Select(bound < x, bound, x)

    def scales(self, x: PrimExpr) -> bool:
        """Whether there is an instruction for `x * 2^n`."""
        return self.has_avx512 and x.dtype is self.f32 and x.dtype.lanes == 16

    def scale(self, x: PrimExpr, n: PrimExpr) -> PrimExpr:
        """`x * 2^n` for whole numbers n, rounded once."""
        name = StringImm("llvm.x86.avx512.mask.scalef.ps.512")
        rest = (const(0, x.dtype), const(-1, "int16"), const(4, "int32"))
        return _call("call_llvm_pure_intrin", x.dtype, name, x, n, *rest)

    # -- bits and types --------------------------------------------------------------------
    def bits(self, x: PrimExpr) -> PrimExpr:
        """The bits of a float as an integer of the same size."""
        return _call("reinterpret", self.i32 if x.dtype is self.f32 else self.i64, x)

    def float_of(self, i: PrimExpr) -> PrimExpr:
        """The float that has these bits."""
        return _call("reinterpret", self.f32 if i.dtype is self.i32 else self.f64, i)

    def to(self, kind: DataType, x: PrimExpr) -> PrimExpr:
        """`x` converted to another type of as many lanes."""
        return x if x.dtype is kind else Cast(kind, x)

    def const(self, value: float, like: PrimExpr) -> PrimExpr:
        """A constant of the type of `like`."""
        return const(value, like.dtype)

    def round_scaled(self, x: PrimExpr, scale: float) -> tuple[PrimExpr, PrimExpr]:
        """The integer nearest to `x * scale`, as a float, and a word with that integer in its low bits.

        Adding 1.5 · 2^23 (2^52) pushes the fraction out of the word. A compiler that may reassociate
        would cancel the sum against the difference, unless a fused product hides it. A target that has
        fused products also has an instruction that rounds.
        """
        magic = ROUND32 if x.dtype is self.f32 else ROUND64
        fused = self.has_fma and scale != 1.0
        if not fused and (self.has_fma or self.fast):
            n = self.let(_call("nearbyint", x.dtype, x if scale == 1.0 else x * scale), "n")
            return n, self.let(self.bits(n + magic), "word")
        t = self.let(x + magic if scale == 1.0 else self.fma(x, scale, magic), "shifted")
        return self.let(t - magic, "n"), self.let(self.bits(t), "word")


def _expand_double(b: Builder, name: str, *args: PrimExpr) -> PrimExpr:
    from .double import expand_double  # it is written with the Builder

    return expand_double(b, name, *args)


def _call(name: str, dtype: DataType, *args: PrimExpr) -> PrimExpr:
    return Call(dtype, Op.get(f"tir.{name}"), args)


def expansion(name: str, *, ulp: float) -> Callable[[Callable[..., PrimExpr]], Expansion]:
    """Make a float32 body known as the expansion of an operator.

    The body takes a Builder and its arguments as float32, bound to names. The decorated function takes any float type:
    float16 and bfloat16 go through float32, float64 has expansions of its own.
    """

    def register(body: Callable[..., PrimExpr]) -> Expansion:
        def expand(
            *args: PrimExpr, fast_math: bool = False, has_fma: bool = True, avx512: bool = False
        ) -> PrimExpr:
            kind = args[0].dtype
            b = Builder(kind.lanes, fast=fast_math, fma=has_fma, avx512=avx512)
            if kind.bits == 64:
                return b.close(_expand_double(b, name, *args))
            named = [b.let(b.to(b.f32, a) if a.dtype.is_float else a, "x") for a in args]
            return ops.cast(kind, b.close(body(b, *named)))

        expand.__name__ = body.__name__
        expand.__doc__ = f"{body.__doc__}\n\n    Error in float32: at most {ulp:g} ulp."
        EXPANSIONS[name], MAX_ULP[name] = expand, ulp
        return expand

    return register
