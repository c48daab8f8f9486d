"""Sets of integers, and the regions that accesses cover."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tvm
from tilewright.arith import (
    Analyzer,
    IntervalSet,
    IntSet,
    estimate_region_lower_bound,
    estimate_region_strict_bound,
    estimate_region_upper_bound,
    eval_set,
    int_set,
    region_union,
    relax_region,
)
from tilewright.ir.expr import Broadcast, Min, Ramp, Range, Select, SizeVar, Var, const

x, y, i, j, io, ii = (Var(name) for name in ("x", "y", "i", "j", "io", "ii"))
n, m = SizeVar("n"), SizeVar("m")


def text(s: Any) -> str:
    return f"[{s.min_value}, {s.max_value}]"


@pytest.mark.parametrize(
    ("e", "doms", "want"),
    [
        (i * 4 + j, {j: Range(0, 4)}, "[i * 4, i * 4 + 3]"),
        (i * 4 + j, {j: Range(0, 4), i: Range(0, n)}, "[0, n * 4 - 1]"),
        (x - i, {i: Range(0, 8)}, "[x - 7, x]"),
        (i * n + j, {i: Range(0, m), j: Range(0, n)}, "[0, m * n - 1]"),
        ((i * 4 + j) // 4, {j: Range(0, 4)}, "[i, i]"),
        ((x * 8 + j) % 8, {j: Range(0, 8)}, "[0, 7]"),
        (i // 4, {i: Range(x, x + 8)}, "[x // 4, (x + 3) // 4 + 1]"),
        (Min(i * 4 + j, n), {j: Range(0, 4)}, "[T.min(i * 4, n), T.min(i * 4 + 3, n)]"),
        (Select(x < 3, i, j + 10), {i: Range(0, 8), j: Range(0, 4)}, "[0, 13]"),
        (i - j, {i: Range(0, 8), j: Range(i, i + 2)}, "[-1, 0]"),
        (Ramp(i * 8, 1, 8), {i: Range(0, 4)}, "[0, 31]"),
        (i * j, {i: Range(0, 4), j: Range(0, 5)}, "[0, 12]"),
        (x, {i: Range(0, 4)}, "[x, x]"),
        (i, {i: IntSet.everything()}, "[neg_inf, pos_inf]"),
        (i + 1, {i: IntervalSet(0, int_set.pos_inf())}, "[1, pos_inf]"),
    ],
    ids=str,
)
def test_eval_set(e: Any, doms: Any, want: str) -> None:
    assert text(eval_set(e, doms)) == want
    assert text(Analyzer().int_set(e, doms)) == want


def test_sets() -> None:
    assert IntSet.everything().is_everything() and not IntSet.everything().is_nothing()
    assert IntSet.nothing().is_nothing() and IntervalSet(3, 2).is_nothing()
    assert text(IntSet.single_point(x)) == "[x, x]" and IntSet.single_point(x).is_single_point()
    assert text(IntSet.vector(Ramp(x, 2, 4))) == "[x, x + 6]"
    assert text(IntSet.vector(Broadcast(x, 4))) == "[x, x]"
    assert str(IntervalSet(x, x + 3).as_range()) == "Range(x, x + 4)"
    assert IntSet.everything().as_range() is None


def test_union_and_intersection() -> None:
    a, b = IntervalSet(0, 7), IntervalSet(4, 11)
    assert text(int_set.union([a, b])) == "[0, 11]"
    assert text(int_set.intersect([a, b])) == "[4, 7]"
    assert int_set.intersect([a, IntervalSet(9, 10)]).is_nothing()
    assert text(int_set.union([IntSet.nothing(), a])) == "[0, 7]"
    assert int_set.union([a, IntSet.everything()]).is_everything()
    assert text(int_set.intersect([a, IntSet.everything()])) == "[0, 7]"
    assert text(int_set.union([IntSet.single_point(x), IntSet.single_point(x + 2)])) == "[x, x + 2]"
    assert text(int_set.intersect([IntervalSet(0, x), IntervalSet(y, 9)])) == "[T.max(0, y), T.min(x, 9)]"


def test_union_from_below() -> None:
    touching = [IntervalSet(0, 3), IntervalSet(4, 7), IntervalSet(x, x)]
    assert text(int_set.union_lower_bound(touching)) == "[0, 7]"
    assert text(int_set.union_lower_bound([IntervalSet(0, 3), IntervalSet(6, 7)])) == "[0, 3]"
    assert int_set.union_lower_bound([]).is_nothing()


def at(e: Any, extent: Any = 1) -> Range:
    return Range.from_min_extent(e, extent)


TILE = {io: Range(0, 8), ii: Range(0, 4)}


@pytest.mark.parametrize(
    ("region", "doms", "predicate", "strict", "upper"),
    [
        ([at(i * 2)], {i: Range(0, 8)}, True, None, ["[0, 14]"]),
        ([at(i * 2, 2)], {i: Range(0, 8)}, True, ["[0, 15]"], ["[0, 15]"]),
        ([at(io * 4 + ii)], TILE, True, ["[0, 31]"], ["[0, 31]"]),
        ([at(io * 4 + ii)], TILE, io * 4 + ii < 30, ["[0, 29]"], ["[0, 29]"]),
        ([at(io * 4 + ii + 1, 3)], TILE, io * 4 + ii < 30, ["[1, 32]"], ["[1, 32]"]),
        ([at(io * 4 + ii)], {ii: Range(0, 4)}, True, ["[io * 4, io * 4 + 3]"], ["[io * 4, io * 4 + 3]"]),
        ([at(i + j)], {i: Range(0, 8), j: Range(0, 3)}, True, None, ["[0, 9]"]),
        ([at(i), at(i)], {i: Range(0, 8)}, True, None, ["[0, 7]", "[0, 7]"]),
        ([at(i // 4), at(i % 4)], {i: Range(0, 32)}, True, ["[0, 7]", "[0, 3]"], ["[0, 7]", "[0, 3]"]),
        ([at(i)], {i: Range(0, 8)}, i < n, None, ["[0, T.min(7, n - 1)]"]),
        ([at(x, 4)], {i: Range(0, 8)}, True, ["[x, x + 3]"], ["[x, x + 3]"]),
        ([at(i)], {i: Range(0, 8)}, i >= 2, ["[2, 7]"], ["[2, 7]"]),
    ],
    ids=str,
)
def test_regions(region: Any, doms: Any, predicate: Any, strict: Any, upper: Any) -> None:
    found = estimate_region_upper_bound(region, doms, predicate)
    assert [text(s) for s in found] == upper
    exact = estimate_region_strict_bound(region, doms, predicate)
    if strict is not None:
        assert exact is not None
        assert [text(s) for s in exact] == strict
        assert [text(s) for s in estimate_region_lower_bound(region, doms, predicate) or []] == strict
    elif predicate is True:
        assert exact is None


def test_regions_hold_exactly_what_is_touched() -> None:
    """The boxes against every point, for constant loops."""
    for factor, limit, stride, width in [(4, 30, 1, 1), (3, 8, 2, 2), (5, 11, 3, 1), (4, 32, 2, 3)]:
        outer = -(-limit // factor)
        e = (io * factor + ii) * stride + 2
        doms = {io: Range(0, outer), ii: Range(0, factor)}
        (upper,) = estimate_region_upper_bound([at(e, width)], doms, io * factor + ii < limit)
        touched = {v * stride + 2 + w for v in range(limit) for w in range(width)}
        assert text(upper) == f"[{min(touched)}, {max(touched)}]"
        exact = estimate_region_strict_bound([at(e, width)], doms, io * factor + ii < limit)
        dense = touched == set(range(min(touched), max(touched) + 1))
        assert (exact is not None) == dense


def test_region_with_what_the_caller_knows() -> None:
    ana = Analyzer()
    ana.bind(io, Range(0, 8))
    (made,) = relax_region([at(Min(io * 4 + ii, 40))], {ii: Range(0, 4)}, True, ana)
    assert text(made) == "[io * 4, io * 4 + 3]"
    assert ana.can_prove(io < 8) and not ana.can_prove(ii < 4)


def test_a_tile_that_does_not_divide() -> None:
    (made,) = estimate_region_upper_bound([at(io * 4 + ii)], {ii: Range(0, 4)}, io * 4 + ii < n)
    tile = made.as_range()
    assert (str(tile.min), str(tile.extent)) == ("io * 4", "T.min(4, n - io * 4)")
    outer = Range.from_min_extent(0, (n + 3) // 4)
    whole = estimate_region_strict_bound([at(io * 4 + ii)], {io: outer, ii: Range(0, 4)}, io * 4 + ii < n)
    assert [text(s) for s in whole] == ["[0, n - 1]"]


FETCH = io * 64 + i * 4 + j  # what 16 x 4 threads fetch, several times
THREADS = {io: Range(0, 3), i: Range(0, 16), j: Range(0, 4)}


@pytest.mark.parametrize(
    ("e", "predicate", "want"),
    [
        (FETCH // 9, FETCH < 72, "[0, 7]"),
        (FETCH // 8, FETCH < 72, "[0, 8]"),  # which is io * 8 + i // 2
        (FETCH % 80 // 9, FETCH < 72, "[0, 7]"),
        (io * 16 + i, FETCH < 72, "[0, 17]"),  # a part of what is cut off
        (io * 128 + i * 8 + j, FETCH < 72, "[0, 142]"),  # twice as far, and some more
        (x + FETCH + ii * 2, FETCH < 72, "[x, x + 79]"),
        ((i * 2 + j) * 2 + io, tvm.tir.all(i * 2 + j < 14, io < 2), "[0, 27]"),
        (i * 2 + j, i * 2 + j >= 5, "[5, 33]"),
        (j, i * 4 + j < n, "[0, 3]"),  # what is no smaller for certain is left alone
    ],
    ids=str,
)
def test_a_part_of_a_form_is_cut_off(e: Any, predicate: Any, want: str) -> None:
    (made,) = relax_region([at(e)], {**THREADS, ii: Range(0, 5)}, predicate)
    assert text(made) == want


def test_region_union() -> None:
    made = region_union([[at(x, 4), at(0, 8)], [at(x + 2, 4), at(3, 2)]])
    assert [str(r) for r in made] == ["Range(x, x + 6)", "Range(0, 8)"]
    assert str(made[0].extent) == str(const(6))
