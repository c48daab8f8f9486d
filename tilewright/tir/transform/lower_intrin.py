"""Expansion of operators that backends lack into those that every backend has."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir import ops
from ...ir.dtype import DataType
from ...ir.errors import LoweringError
from ...ir.expr import (
    LT,
    Add,
    Broadcast,
    Call,
    Div,
    FloorDiv,
    FloorMod,
    Let,
    Mod,
    PrimExpr,
    Ramp,
    Select,
    Var,
    const,
    const_value,
    convert,
)
from ...ir.function import PrimFunc
from ...ir.functor import contains, statements
from ...ir.op import LOWERING, Op
from ...ir.stmt import LetStmt, Stmt
from ...ir.words import DotProduct
from ..analysis.analyzed import AnalyzedMutator
from . import words
from .divisors import Divisors, Named, by_zero_or_minus_one, safe_divisor, safe_quotient
from .float8 import compute_float8
from .math import expand_call
from .round_once import round_once
from .simplify import simplify


def lower_intrin(
    func: PrimFunc,
    *,
    fast_math: bool = False,
    has_fma: bool = True,
    avx512: bool = False,
    dots: Sequence[DotProduct] = (),
    library: bool = False,
    simplified: bool = False,
    keep_trivial_loops: bool = False,
    rules: Sequence[str] = ("default",),
) -> PrimFunc:
    """Replace mathematical functions, floor division and fixed-point products by plain operations.

        A[i] = tanh(B[i])       ->    A[i] = let t = exp-1 of 2·|B[i]| in copysign(t / (t + 2), B[i])
        A[i // 4]               ->    A[i >> 2]
        A[i % 4]                ->    A[i & 3]
        A[i // 3]               ->    A[truncdiv(i, 3)]                  where i >= 0 is known
        A[i % 3]                ->    A[let r = truncmod(i, 3) in select(r < 0, r + 3, r)]   elsewhere
        A[i] // B[i]            ->    0 where B[i] is 0: see `divisors.py`

    `fast_math` allows shorter expansions that neglect NaN, infinity and subnormal numbers; `has_fma` says that the
    target multiplies and adds with one rounding, `avx512` that it has the instructions of that name, `dots` are its
    instructions for products of words, `library` that its own functions (exp, tanh, …) are to be called. With
    `simplified`, statements that were expanded are brought to normal form again. `rules` are the targets whose rules of
    `register_intrin_lowering` act, first the most special one.
    Needs: no blocks. Gives: no FloorDiv or FloorMod of integers, and only operators that backends have.
    """
    held = round_once(func)
    held = held if library else compute_float8(held)
    made = _LowerIntrin(held, fast_math, has_fma, avx512, library, rules, dots).run(held)
    if not simplified or made is func:
        return made
    return simplify(made, done=set(statements(func.body)), keep_trivial_loops=keep_trivial_loops)


_EXPANDED = frozenset((Call, FloorDiv, FloorMod, Div, Mod))


class _LowerIntrin(AnalyzedMutator):
    def __init__(
        self,
        func: PrimFunc,
        fast_math: bool,
        has_fma: bool,
        avx512: bool,
        library: bool = False,
        rules: Sequence[str] = (),
        dots: Sequence[DotProduct] = (),
    ) -> None:
        super().__init__()
        self.rules = [f"{key}{LOWERING}" for key in rules]
        self.divisors = Divisors(func, self.ana)
        self.library = library
        self.fast_math, self.has_fma, self.avx512, self.dots = fast_math, has_fma, avx512, dots

    def visit_leaf(self, n: Stmt) -> Stmt:
        # Most statements have nothing to expand; checking this costs a third of a rewrite.
        return n.map_children(self.visit) if contains(n, _EXPANDED) else n

    visit_BufferStore = visit_Evaluate = visit_leaf

    def visit_LetStmt(self, n: LetStmt) -> Stmt:
        self.divisors.values[n.var] = n.value
        return n.map_children(self.visit)

    # -- calls -----------------------------------------------------------------------------
    def visit_Call(self, n: Call) -> PrimExpr:
        made: Call = n.map_children(self.visit)
        if not isinstance(made.op, Op):
            return made
        own = self._by_own_rule(made)
        if own is not made:
            return own
        rule = _RULES.get(made.op.short_name)
        if rule is not None:
            return rule(made)
        if made.op.short_name == "pack_word":
            return words.packed(made, None if self.library else self.ana)
        if made.op.short_name == "dp2a" or (made.op.short_name == "dp4a" and not self.library):
            return words.dot(made, self.dots)
        if self.library:
            return made
        if made.op.short_name == "fast_exp2":
            made = made.replace(op=Op.get("tir.exp2"))
        expanded = expand_call(made, fast_math=self.fast_math, has_fma=self.has_fma, avx512=self.avx512)
        return made if expanded is None else expanded

    def _by_own_rule(self, n: Call) -> PrimExpr:
        """What a rule of the program's makes of a call; the call itself if there is none, or it does not apply."""
        assert isinstance(n.op, Op)
        for key in self.rules:
            rule = n.op.attrs.get(key)
            made = None if rule is None else rule(n)
            if made is None or made is n:
                continue
            found = convert(made)
            if found.dtype is not n.dtype:
                raise LoweringError(
                    f"the rule {key} of {n.op.name} gives `{found}` of type {found.dtype} for `{n}` of type {n.dtype}"
                )
            # What it is made of is lowered in turn, but not by the same rule again.
            again = isinstance(found, Call) and found.op is n.op
            return found if again else self.visit(found)  # type: ignore[no-any-return]
        return n

    def visit_Add(self, n: Add) -> PrimExpr:
        return n.map_children(self.visit) if (made := words.accumulated(n)) is n else self.visit(made)

    # -- division --------------------------------------------------------------------------
    def visit_FloorDiv(self, n: FloorDiv) -> PrimExpr:
        return self._division(n, quotient=True)

    def visit_FloorMod(self, n: FloorMod) -> PrimExpr:
        return self._division(n, quotient=False)

    def _division(self, n: FloorDiv | FloorMod, *, quotient: bool) -> PrimExpr:
        # Bounds are known for the original operands, not for the lowered ones.
        divisor = const_value(n.b)
        plain = n.dtype.is_uint or (
            (divisor > 0 if divisor is not None else self._not_negative(n.b)) and self._not_negative(n.a)
        )
        sure = divisor is not None or self.divisors.is_positive(n.b)
        a, b = self.visit(n.a), self.visit(n.b)
        if isinstance(divisor, int):
            if divisor in (0, -1):
                return by_zero_or_minus_one(a, divisor, quotient)
            if divisor > 0 and divisor & (divisor - 1) == 0:
                return _by_power_of_two(a, divisor, quotient)
        if plain:
            return _cut(a, b, sure, quotient)
        return _floored(a, b, divisor, sure, quotient)

    # Integer division, rounded towards zero.
    def visit_Div(self, n: Div) -> PrimExpr:
        return self._cut_division(n, quotient=True)

    def visit_Mod(self, n: Mod) -> PrimExpr:
        return self._cut_division(n, quotient=False)

    def _cut_division(self, n: Div | Mod, *, quotient: bool) -> PrimExpr:
        divisor = const_value(n.b)
        if n.dtype.is_float or (divisor is not None and divisor not in (0, -1)):
            return n.map_children(self.visit)
        if divisor is not None:
            return by_zero_or_minus_one(self.visit(n.a), int(divisor), quotient)
        if self.divisors.is_positive(n.b):
            return n.map_children(self.visit)
        return _cut(self.visit(n.a), self.visit(n.b), False, quotient)

    def _not_negative(self, e: PrimExpr) -> bool:
        return e.dtype.is_int and self.ana.const_int_bound(e).min_value >= 0


def _by_power_of_two(a: PrimExpr, divisor: int, quotient: bool) -> PrimExpr:
    """An arithmetic shift, which rounds down, or a mask; correct for negative numbers too."""
    if quotient:
        return ops.shift_right(a, const(divisor.bit_length() - 1, a.dtype))
    return ops.bitwise_and(a, const(divisor - 1, a.dtype))


def _cut(a: PrimExpr, b: PrimExpr, sure: bool, quotient: bool) -> PrimExpr:
    """Division rounded towards zero; unless `sure`, the divisor may be 0 or -1."""
    if sure:
        return Div(a, b) if quotient else Mod(a, b)
    with_names = Named()
    a, b = with_names.let(a, "a"), with_names.let(b, "b")
    safe = with_names.let(safe_divisor(b), "safe")
    return with_names.around(safe_quotient(a, b, safe) if quotient else Mod(a, safe))


def _floored(a: PrimExpr, b: PrimExpr, divisor: int | float | None, sure: bool, quotient: bool) -> PrimExpr:
    """Floor division by truncating division, corrected where the remainder has the wrong sign."""
    with_names = Named()
    let = with_names.let
    a, b = let(a, "a"), let(b, "b")
    safe = b if sure else let(safe_divisor(b), "safe")
    rest = let(Mod(a, safe), "rest")
    zero = const(0, a.dtype)
    if divisor is not None and divisor > 0:
        wrong = rest < zero
    else:
        wrong = ops.logical_and(rest.__ne__(zero), ops.bitwise_xor(rest, b) < zero)
    if quotient:
        cut = Div(a, b) if sure else safe_quotient(a, b, safe)
        out: PrimExpr = cut + Select(wrong, const(-1, a.dtype), zero)
    else:
        out = Select(wrong, rest + b, rest)
    return with_names.around(out)


# ---------------------------------------------------------------------------- other operators
def _isnan(n: Call) -> PrimExpr:
    return ops.isnan(n.args[0])


def _isinf(n: Call) -> PrimExpr:
    return ops.isinf(n.args[0])


def _isfinite(n: Call) -> PrimExpr:
    return ops.isfinite(n.args[0])


def _abs(n: Call) -> PrimExpr:
    x = n.args[0]
    if not x.dtype.is_int:
        return ops.abs(x)
    var = Var("x", x.dtype)
    return Let(var, x, ops.abs(var))


def _shifted_product(x: PrimExpr, y: PrimExpr, shift: PrimExpr, out: DataType) -> PrimExpr:
    """`x * y / 2^shift` rounded to nearest, halves up, in 64 bits; negative shifts multiply."""
    amount = const_value(shift)
    if isinstance(amount, int):
        if amount <= 0:
            return ops.cast(out, ops.shift_left(x * y, const(-amount, x.dtype)))
        return ops.cast(
            out, ops.shift_right(x * y + const(1 << (amount - 1), x.dtype), const(amount, x.dtype))
        )
    right = ops.max_of(shift, const(0, shift.dtype))
    left = ops.max_of(const(0, shift.dtype) - shift, const(0, shift.dtype))
    one = const(1, x.dtype)
    half = ops.shift_right(ops.shift_left(one, right), one)  # 0 where there is no shift
    return ops.cast(out, ops.shift_right(ops.shift_left(x * y, left) + half, right))


def _q_multiply_shift(n: Call) -> PrimExpr:
    """The product of x and the Q-format number y with q fractional bits, shifted right by s."""
    x, y, q, s = n.args
    wide = DataType("int64").with_lanes(n.dtype.lanes)
    return _shifted_product(ops.cast(wide, x), ops.cast(wide, y), _wide_sum(q, s, wide), n.dtype)


def _q_multiply_shift_per_axis(n: Call) -> PrimExpr:
    """The same with x shifted left first; both shifts are data, one for each channel."""
    x, y, left, right, q = n.args[:5]
    wide = DataType("int64").with_lanes(n.dtype.lanes)
    shifted = ops.shift_left(ops.cast(wide, x), ops.cast(wide, left))
    return _shifted_product(shifted, ops.cast(wide, y), _wide_sum(q, right, wide), n.dtype)


def _wide_sum(a: PrimExpr, b: PrimExpr, wide: DataType) -> PrimExpr:
    x, y = const_value(a), const_value(b)
    if isinstance(x, int) and isinstance(y, int):
        return const(x + y, wide)
    return ops.cast(wide, a) + ops.cast(wide, b)


def _active_lanes(n: Call) -> PrimExpr:
    """The comparison of each lane; a scalable vector keeps the call, which is one instruction."""
    base, limit = n.args
    if n.dtype.is_scalable:
        return n
    lanes = n.dtype.lanes
    return LT(Ramp(base, const(1, base.dtype), lanes), Broadcast(limit, lanes))


_RULES: dict[str, Callable[[Call], PrimExpr]] = {
    "isnan": _isnan,
    "isinf": _isinf,
    "isfinite": _isfinite,
    "abs": _abs,
    "get_active_lane_mask": _active_lanes,
    "q_multiply_shift": _q_multiply_shift,
    "q_multiply_shift_per_axis": _q_multiply_shift_per_axis,
}
