"""Bindings, assumptions, bounds, residues and proofs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilewright.arith import Analyzer, ConstIntBound, ModularSet
from tilewright.ir import decl_buffer, ops
from tilewright.ir.equal import structural_equal
from tilewright.ir.expr import Cast, Let, Max, Min, Range, Select, SizeVar, Var

x, y, z, i, j = (Var(name) for name in "xyzij")
n = SizeVar("n")


def test_bounds() -> None:
    ana = Analyzer()
    ana.bind(x, Range(-3, 5))
    ana.bind(y, Range(2, 10))
    for e, want in [
        (x + y, (-1, 13)),
        (x - y * 2, (-21, 0)),
        (x * y, (-27, 36)),
        (x // 2, (-2, 2)),
        (x % 4, (0, 3)),
        (y % 16, (2, 9)),
        (y // x, (-9, 9)),
        (Min(x, y), (-3, 4)),
        (Max(x, y), (2, 9)),
        (Select(z < 0, x, y), (-3, 9)),
        (Cast("int64", y), (2, 9)),
        (ops.bitwise_and(z, 15), (0, 15)),
        (ops.shift_right(y, 1), (1, 4)),
        (ops.shift_left(3, y), (12, 3 << 9)),
        (ops.shift_left(1 << 25, y), (-(1 << 31), (1 << 31) - 1)),
        (Cast("int32", ops.ceil(ops.log2(Cast("float64", y)))), (1, 4)),
        (ops.bitwise_xor(y, 3), (0, 15)),
        (ops.bitwise_xor(z, 3), (-(2**31), 2**31 - 1)),
        (x * x, (0, 16)),
        (x < y, (0, 1)),
    ]:
        assert ana.const_int_bound(e) == want, e
    assert ana.const_int_bound(n).min_value == 0
    assert ana.const_int_bound(z) == (-(2**31), 2**31 - 1)
    wide = Var("w", "int64")
    assert ana.const_int_bound(wide) == (ConstIntBound.NEG_INF, ConstIntBound.POS_INF)
    assert ana.const_int_bound(wide * 2 + 1) == (ConstIntBound.NEG_INF, ConstIntBound.POS_INF)
    byte = Var("b", "uint8")
    assert ana.const_int_bound(byte + byte) == (0, 255)  # it wraps
    assert ana.const_int_bound(Cast("int32", byte) * 2) == (0, 510)


def test_residues() -> None:
    ana = Analyzer()
    ana.update(x, ModularSet(4, 1))
    for e, want in [
        (x * 2, (8, 2)),
        (x + 3, (4, 0)),
        (y * 6 + 3, (6, 3)),
        ((x + 3) // 4, (1, 0)),
        ((x + 3) // 2, (2, 0)),
        (x % 4, (0, 1)),
        (x % 8, (4, 1)),
        (Select(y < 0, x * 3, x + 6), (4, 3)),
        (x * y, (1, 0)),
        (ops.bitwise_and(x * 4, 31), (16, 4)),  # x & 31 is x % 32
        (ops.bitwise_and(y * 6, 4), (1, 0)),
        (Let(z, x * 4, z + 3), (16, 7)),
    ]:
        assert ana.modular_set(e) == want, e


def test_bounds_that_are_set_replace_those_of_the_type() -> None:
    ana = Analyzer()
    ana.update(x, ConstIntBound(0, ConstIntBound.POS_INF))
    assert ana.const_int_bound(x * 2) == (0, ConstIntBound.POS_INF)
    with ana.constraint_scope(x < 5):
        assert ana.const_int_bound(x) == (0, 4)
    with ana.constraint_scope(y > 5):
        assert ana.const_int_bound(y) == (6, 2**31 - 1)


def test_a_name_stays_where_a_condition_leaves_it_one_value() -> None:
    ana = Analyzer()
    with ana.constraint_scope(x == 5):
        assert ana.simplify(x) is x
        assert str(ana.simplify(x + 1)) == "6"
        assert ana.can_prove(x * x == 25)


def test_bind_to_a_value_replaces() -> None:
    ana = Analyzer()
    ana.bind(x, y + 2)
    assert str(ana.simplify(x * 2)) == "y * 2 + 4"
    ana.bind(i, Range(5, 6))
    assert str(ana.simplify(i + y)) == "y + 5"


def test_binding_anew_forgets() -> None:
    ana = Analyzer()
    ana.bind(i, Range(0, n))
    assert ana.can_prove(i < n)
    ana.bind(i, Range(0, 100))
    assert not ana.can_prove(i < n)
    assert ana.const_int_bound(i) == (0, 99)


def test_scopes() -> None:
    ana = Analyzer()
    with ana.scope():
        ana.bind_loop(i, 0, 8)
        assert ana.can_prove(i < 8)
        with ana.scope():
            ana.bind_loop(j, i, 4)
            assert ana.can_prove(j < 11)
            assert ana.can_prove(j >= i)
            assert ana.can_prove_less(j, i + 4)
        assert not ana.can_prove(j >= 0)
        assert ana.can_prove(i < 8)
    assert not ana.can_prove(i < 8)


def test_scope_is_undone_by_exceptions() -> None:
    ana = Analyzer()
    with pytest.raises(KeyError), ana.constraint_scope(x < 3):
        raise KeyError
    assert not ana.can_prove(x < 3)


def test_copies_part_ways() -> None:
    ana = Analyzer()
    ana.bind(i, Range(0, 8))
    other = ana.copy()
    other.bind(j, Range(0, 4))
    assert other.can_prove(i * 4 + j < 32)
    assert not ana.can_prove(j < 4)


def test_constraints() -> None:
    ana = Analyzer()
    with ana.constraint_scope(ops.all(x >= 0, x < 8)):
        assert ana.const_int_bound(x) == (0, 7)
        assert str(ana.simplify((y * 8 + x) // 8)) == "y"
    with ana.constraint_scope(x % 4 == 0):
        assert ana.modular_set(x) == (4, 0)
        assert str(ana.simplify(x // 4 * 4)) == "x"
        assert str(ana.simplify((x + 3) // 4)) == "x // 4"
        assert ana.can_prove((x + 2) % 4 == 2)
    with ana.constraint_scope(x == 3):
        assert str(ana.simplify(x + y)) == "y + 3"
    with ana.constraint_scope(x + y < n):
        assert ana.can_prove(x + y + 1 <= n)
        assert ana.can_prove(x * 2 + y * 2 < n * 2)
        assert not ana.can_prove(x < n)
    ana.bind(i, Range(0, 8))
    ana.bind(j, Range(0, 4))
    with ana.constraint_scope(i * 4 + j < 30):
        assert ana.can_prove(i * 4 + j <= 29)
        assert ana.can_prove_equal(Min(i * 4 + j, 29), i * 4 + j)
    with ana.constraint_scope(x // 4 == 2):
        assert ana.const_int_bound(x) == (8, 11)
    with ana.constraint_scope(ops.logical_not(x < y)):
        assert ana.can_prove(x >= y)
    assert not ana.can_prove(x >= y)


def test_constraints_on_memory_are_not_kept() -> None:
    """Memory may change between the condition and what stands under it."""
    a = decl_buffer((4,), "int32", "A")
    ana = Analyzer()
    with ana.constraint_scope(ops.all(a[0] < 3, x < 3)):
        assert not ana.can_prove(a[0] < 3)
        assert ana.can_prove(x < 3)
    assert str(ana.simplify(Select(a[0] < 3, Min(a[0], 5), 0))) == "T.Select(A[0] < 3, A[0], 0)"


def test_both_sides_of_a_select_are_read() -> None:
    """An index stays legal without the condition; `if_then_else` computes one side alone."""
    a, ana = decl_buffer((4,), "int32", "A"), Analyzer()
    held = a[Min(Max(x, 0), 3)]
    assert "T.max" in str(ana.simplify(Select(x < 0, 0, held)))
    assert "T.max" not in str(ana.simplify(ops.if_then_else(x < 0, 0, held)))
    checked = ops.checked(x, ops.greater_equal(x, 0), "index", "{}", 3)
    assert "T.checked" in str(ana.simplify(Select(x >= 0, checked, 0)))
    assert "True" not in str(ana.simplify(Select(x >= 0, checked, 0)))


def test_a_checked_index_needs_no_clamp() -> None:
    """Also where the size is known at run time only."""
    ana, index, n = Analyzer(), Var("index", "int64"), Var("n", "int32")
    last = ops.sub(n, 1)
    checked = ops.checked(index, ops.less(index, ops.cast("int64", n)), "index", "{} of {}", index, last)
    clamped = ops.max_of(ops.min_of(checked, ops.cast("int64", last)), 0)
    assert str(ana.simplify(clamped)) == str(checked)
    other = ops.min_of(checked, ops.cast("int64", ops.sub(n, 2)))
    assert "T.min" in str(ana.simplify(other))


def test_proofs() -> None:
    ana = Analyzer()
    ana.bind(i, Range(0, n))
    m = SizeVar("m")
    ana.bind(j, Range(0, m))
    assert ana.can_prove(i * m + j < n * m)
    assert ana.can_prove_equal((x + y) * (x + y), x * x + x * y * 2 + y * y)
    assert ana.can_prove_greater_equal(n * m, 0)
    assert ana.can_prove_less(n // 4 * 4, n + 1)
    assert ana.can_prove(Min(x, y) <= Max(x, y))
    assert ana.can_prove(ops.floormod(n, 4) <= n)
    assert not ana.can_prove(x < y)
    assert not ana.can_prove(ops.equal(x, y))
    assert ana.can_prove(True)
    assert ana.equivalent(x - y, -(y - x))


def test_quotients_and_remainders_by_a_size() -> None:
    """What divides is not 0, so that a size that divides is at least 1."""
    ana = Analyzer()
    ana.bind(i, Range(0, n * 32))
    assert ana.can_prove(i % n < n) and ana.can_prove(i // n < 32) and ana.can_prove(i // n >= 0)
    assert ana.can_prove((i + n) // n < 33) and ana.can_prove((i + n) // n >= 1)
    assert not ana.can_prove(i // n < 31) and not ana.can_prove((i - n) // n >= 0)
    assert not ana.can_prove(i // x < 32) and not ana.can_prove(i % x < x)  # x may be negative


def test_a_tiled_convolution_index() -> None:
    names = ["b", "ho", "hi", "wo", "wi", "rw", "co", "ci", "f"]
    extents = [4, 8, 7, 7, 8, 3, 4, 16, 8 * 7 * 4]
    v = {name: Var(name) for name in names}
    ana = Analyzer()
    for name, extent in zip(names, extents, strict=True):
        ana.bind(v[name], Range(0, extent))
    f = v["f"]
    row, column, channel = f // 28 * 7 + v["hi"], f % 28 // 4 * 8 + v["wi"], f % 4 * 16 + v["ci"]
    e = ((v["b"] * 56 + row) * 58 + column + v["rw"]) * 64 + channel
    flat = (e // 64) % 58 * 64 + e % 64 + e // 3712 * 3712
    assert ana.can_prove_equal(ana.simplify(flat), e)


def test_digits_of_a_fused_loop_that_was_split_join() -> None:
    """A loop over 2 x 56 x 56 in steps of 64: neither 56 nor 3136 is a multiple of the step."""
    k, lane = Var("k"), Var("lane")
    ana = Analyzer()
    ana.bind(k, Range(0, 98))
    ana.bind(lane, Range(0, 64))
    x = k * 64 + lane
    whole = x // 3136 * 3136 + x // 56 % 56 * 56 + x % 56
    assert structural_equal(ana.simplify(whole), x)
    part = x // 56 % 56 * 56 + (k * 8 + lane) % 56
    assert structural_equal(ana.simplify(part), k % 49 * 64 + lane)


@pytest.mark.parametrize(
    ("least", "most"),
    [
        # tiles of 32 over every second of n elements: rounding both up leaves no element out
        (lambda n: (n + 1) // 2, lambda n: (n + 63) // 64 * 32),
        (lambda n: (n + 2) // 3, lambda n: ((n + 2) // 3 + 6) // 7 * 7),
        (lambda n: n // 2, lambda n: (n + 15) // 16 * 8),
        (lambda n: n // 32 * 16, lambda n: n // 2),
    ],
)
def test_whole_numbers_above_minus_one_are_not_negative(
    least: Callable[[Any], Any], most: Callable[[Any], Any]
) -> None:
    n, ana = Var("n", "int32"), Analyzer()
    assert ana.can_prove(least(n) <= most(n))
    assert all(least(k) <= most(k) for k in range(-100, 300))
    assert not ana.can_prove(least(n) < most(n))


def test_remainders_rounded_towards_zero_say_what_floored_ones_do() -> None:
    x = Var("x", "int32")
    ana = Analyzer()
    with ana.constraint_scope(ops.truncmod(x, 3).equal(2)), ana.constraint_scope(ops.truncmod(x, 5).equal(3)):
        assert ana.modular_set(x) == (15, 8)
        assert ana.can_prove(x > 0)
    with ana.constraint_scope(ops.truncmod(x, 4).equal(-1)):
        assert ana.modular_set(x) == (4, 3)
        assert ana.can_prove(x < 0)
    with ana.constraint_scope(ops.truncmod(x, 4).equal(0)):
        assert ana.modular_set(x) == (4, 0)
        assert not ana.can_prove(x >= 0)
    assert ana.modular_set(x) == (1, 0)


def test_what_is_equal_to_a_nonzero_sum_is_not_zero() -> None:
    ana = Analyzer()
    with ana.constraint_scope(ops.logical_and(x.equal(y), ops.not_equal(y, z))):
        assert ana.can_prove(ops.not_equal(x, z))
        assert not ana.can_prove(x < z)
    assert not ana.can_prove(ops.not_equal(x, z))
