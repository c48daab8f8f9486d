"""Iteration maps: what is recognised, what it covers, and the way back."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest
from arith_evaluate import evaluate
from how_many import examples

from tilewright.arith import (
    IterMapLevel,
    IterMark,
    IterSplitExpr,
    IterSumExpr,
    detect_iter_map,
    inverse_affine_iter_map,
    iter_map_simplify,
    normalize_iter_map_to_expr,
    normalize_to_iter_sum,
    subspace_divide,
)
from tilewright.ir.expr import Range, SizeVar, Var, const

x, y, z, f = (Var(name) for name in "xyzf")
n, m = SizeVar("n"), SizeVar("m")
BOX = {x: Range(0, 8), y: Range(0, 4)}
SYMBOLIC = {x: Range(0, n), y: Range(0, m)}
BIJECTIVE, SURJECTIVE, ANY = IterMapLevel.Bijective, IterMapLevel.Surjective, IterMapLevel.NoCheck


def extents(indices: Any, iters: Any, predicate: Any = True, level: Any = SURJECTIVE) -> list[str]:
    """`extent*scale+base` of each index."""
    found = detect_iter_map(indices, iters, predicate, level)
    out = []
    for s in found.indices:
        parts = "+".join(f"{p.extent}*{p.scale}" for p in s.args)
        out.append(f"{parts or 'none'}+{s.base}")
    return out


@pytest.mark.parametrize(
    ("indices", "iters", "predicate", "level", "want"),
    [
        ([x, y], BOX, True, BIJECTIVE, ["8*1+0", "4*1+0"]),
        ([x * 4 + y], BOX, True, BIJECTIVE, ["32*1+0"]),
        ([x + y * 8], BOX, True, BIJECTIVE, ["32*1+0"]),
        ([(x * 4 + y) // 2, (x * 4 + y) % 2], BOX, True, BIJECTIVE, ["16*1+0", "2*1+0"]),
        ([(x * 4 + y) // 16, (x * 4 + y) // 2 % 8, y % 2], BOX, True, BIJECTIVE, ["2*1+0", "8*1+0", "2*1+0"]),
        ([f // 32, f % 32 // 4, f % 4], {f: Range(0, 128)}, True, BIJECTIVE, ["4*1+0", "8*1+0", "4*1+0"]),
        ([x * m + y], SYMBOLIC, True, BIJECTIVE, ["m * n*1+0"]),
        ([(x * m + y) // m, (x * m + y) % m], SYMBOLIC, True, BIJECTIVE, ["n*1+0", "m*1+0"]),
        ([x * 4 + y], BOX, x * 4 + y < 30, BIJECTIVE, ["30*1+0"]),
        ([(x * 4 + y) // 5, (x * 4 + y) % 5], BOX, x * 4 + y < 30, BIJECTIVE, ["6*1+0", "5*1+0"]),
        ([x * 4 + y], BOX, x * 4 + y >= 2, BIJECTIVE, ["30*1+2"]),
        ([x, y], BOX, x < 5, BIJECTIVE, ["5*1+0", "4*1+0"]),
        ([x, y], BOX, z < 5, BIJECTIVE, ["8*1+0", "4*1+0"]),
        ([x + 3, y * 2], BOX, True, SURJECTIVE, ["8*1+3", "4*2+0"]),
        ([x], BOX, True, SURJECTIVE, ["8*1+0"]),
        ([const(3), x], BOX, True, SURJECTIVE, ["none+3", "8*1+0"]),
        ([z + x], BOX, True, SURJECTIVE, ["8*1+z"]),
        ([z * 4 + y], {z: Range(0, 1), y: Range(0, 4)}, True, BIJECTIVE, ["4*1+0"]),
        ([f - 2, f // 4], {f: Range(2, 10)}, True, ANY, ["8*1+0"]),
    ],
    ids=str,
)
def test_recognised(indices: Any, iters: Any, predicate: Any, level: Any, want: list[str]) -> None:
    if level == ANY:
        assert extents(indices[:1], iters, predicate, level) == want
    else:
        assert extents(indices, iters, predicate, level) == want


@pytest.mark.parametrize(
    ("indices", "iters", "predicate", "level", "reason"),
    [
        ([x + y], BOX, True, SURJECTIVE, "overlap or leave gaps"),
        ([x * 5 + y], BOX, True, SURJECTIVE, "overlap or leave gaps"),
        ([x * y], BOX, True, SURJECTIVE, "multiplies iterators"),
        ([x, x], BOX, True, SURJECTIVE, "overlap"),
        ([x], BOX, True, BIJECTIVE, "y is not used"),
        ([x // 2, y], BOX, True, BIJECTIVE, "part of an iterator is not used"),
        ([x // 3, x % 3, y], BOX, True, BIJECTIVE, "not a multiple of its divisor"),
        ([x, y], BOX, x * 4 + y < 30, SURJECTIVE, "outside of the sum that the predicate bounds"),
        ([(x + 1) // 2], BOX, True, SURJECTIVE, "do not start at a multiple"),
    ],
    ids=str,
)
def test_refused(indices: Any, iters: Any, predicate: Any, level: Any, reason: str) -> None:
    found = detect_iter_map(indices, iters, predicate, level)
    assert found.indices == []
    assert reason in found.errors[0]


def test_padding() -> None:
    found = detect_iter_map([x // 3, x % 3], {x: Range(0, 8)})
    assert [str(s.args[0].extent) for s in found.indices] == ["3", "3"]
    assert str(found.padding_predicate) == "x // 3 * 3 + x % 3 >= 8"
    whole = detect_iter_map([x // 4, x % 4], {x: Range(0, 8)})
    assert str(whole.padding_predicate) == "T.bool(False)"


def test_what_is_recognised_has_the_same_values() -> None:
    """Random fusions and splits: the map, and for bijective ones its inverse, point by point."""
    rnd = Random(7)
    inverted, count = 0, examples(150)
    for _ in range(count):
        sizes = {v: rnd.choice([2, 3, 4, 6, 8]) for v in (x, y, z)}
        lows = {v: rnd.choice([0, 0, 0, 3]) for v in sizes}
        iters = {v: Range.from_min_extent(lows[v], s) for v, s in sizes.items()}
        order = rnd.sample([x, y, z], 3)
        fused: Any = const(0)
        for v in order:
            fused = fused * sizes[v] + (v - lows[v])
        total = sizes[x] * sizes[y] * sizes[z]
        divisor = rnd.choice([d for d in range(1, total + 1) if total % d == 0])
        inner = rnd.choice([d for d in range(1, divisor + 1) if divisor % d == 0])
        indices = [fused // divisor, fused % divisor // inner, fused % inner]
        if rnd.random() < 0.3:
            indices[0] = indices[0] + rnd.randint(-3, 3)
        found = detect_iter_map(indices, iters, check_level=BIJECTIVE)
        assert len(found.indices) == 3 or found.errors
        back: dict[Var, Any] = {}
        outs = [Var("a"), Var("b"), Var("c")]
        if found.indices:
            back = inverse_affine_iter_map(found.indices, outs)
            inverted += 1
        for values in product(*[range(lows[v], lows[v] + sizes[v]) for v in (x, y, z)]):
            env = dict(zip((x, y, z), values, strict=True))
            got = [evaluate(e, env) for e in indices]
            for s, want in zip(found.indices, got, strict=False):
                assert evaluate(normalize_iter_map_to_expr(s), env) == want
            if back:
                at = dict(zip(outs, got, strict=True))
                assert {v: evaluate(e, at) for v, e in back.items()} == env
    assert inverted > count * 0.86


def test_surjective_means_surjective() -> None:
    """The values of the indices fill the box of their extents."""
    rnd = Random(3)
    checked = 0
    for _ in range(200):
        sizes = {x: rnd.choice([2, 3, 4, 6]), y: rnd.choice([2, 4, 6])}
        iters = {v: Range(0, s) for v, s in sizes.items()}
        e = x * rnd.choice([1, 2, sizes[y], sizes[y] + 1]) + y * rnd.choice([1, 1, sizes[x]])
        d = rnd.choice([2, 3, 4])
        limit = rnd.choice([None, None, sizes[x] * sizes[y] - 1])
        predicate: Any = True if limit is None else x * sizes[y] + y < limit
        indices = rnd.choice([[e], [e // d, e % d], [x, y], [e // d], [x * d + y % d, y // d]])
        found = detect_iter_map(indices, iters, predicate, SURJECTIVE)
        if not found.indices or str(found.padding_predicate) != "T.bool(False)":
            continue
        checked += 1
        reached = set()
        for a, b in product(range(sizes[x]), range(sizes[y])):
            env = {x: a, y: b}
            if predicate is True or evaluate(predicate, env):
                reached.add(tuple(evaluate(i, env) for i in indices))
        sides = []
        for s in found.indices:
            base = evaluate(s.base, {})
            steps = [(p.extent.value, p.scale.value) for p in s.args] or [(1, 1)]
            ((extent, scale),) = steps
            sides.append([base + scale * k for k in range(extent)])
        assert reached == set(product(*sides)), f"{indices} over {sizes} where {predicate}"
    assert checked > 50


def test_the_pieces() -> None:
    mark = IterMark(x, 32)
    split = IterSplitExpr(mark, 4, 2, 3)
    total = IterSumExpr([split], 5)
    assert str(normalize_iter_map_to_expr(split)) == "x // 4 % 2 * 3"
    assert str(normalize_iter_map_to_expr(total)) == "x // 4 % 2 * 3 + 5"
    assert str(normalize_iter_map_to_expr(IterSplitExpr(mark, 4, 8, 1))) == "x // 4"


def test_normalize_to_iter_sum() -> None:
    s = normalize_to_iter_sum(y * 3 + x * 7 + z + 1, BOX)
    assert [(str(p.scale), str(p.extent)) for p in s.args] == [("7", "8"), ("3", "4")]
    assert str(s.base) == "z + 1"
    with pytest.raises(ValueError, match="not a sum of iterators"):
        normalize_to_iter_sum(x * y, BOX)


def test_iter_map_simplify() -> None:
    made = iter_map_simplify([(x * 4 + y) // 4 * 4 + y, (x * 4 + y) // 2 % 2], BOX)
    assert [str(e) for e in made] == ["x * 4 + y", "y // 2"]
    assert [str(e) for e in iter_map_simplify([x * y + 0], BOX)] == ["x * y"]


io, ii, jo, ji = (Var(name) for name in ("io", "ii", "jo", "ji"))
NEST = {io: Range(0, 4), ii: Range(0, 8), jo: Range(0, 2), ji: Range(0, 16)}


@pytest.mark.parametrize(
    ("bindings", "inner", "want"),
    [
        ([io * 8 + ii, jo * 16 + ji], [ii, ji], ["io:4 ii:8", "jo:2 ji:16"]),
        ([(io * 8 + ii) * 32 + jo * 16 + ji], [jo, ji], ["io * 8 + ii:32 jo * 16 + ji:32"]),
        ([io * 8 + ii], [ii, ji], ["io:4 ii:8"]),
        ([io, ii], [io, ii], ["0:1 io:4", "0:1 ii:8"]),
        ([io, ii], [jo, ji], ["io:4 0:1", "ii:8 0:1"]),
        ([(io * 8 + ii) // 4, ii % 4], [ii], ["io:4 ii // 4:2", "0:1 ii % 4:4"]),
        ([io * 8 + ii, jo * 16 + ji], [io], []),
    ],
    ids=str,
)
def test_subspace_divide(bindings: Any, inner: Any, want: list[str]) -> None:
    found = subspace_divide(bindings, NEST, inner)
    rows = []
    for pair in found[:-1]:
        rows.append(" ".join(f"{normalize_iter_map_to_expr(m.source)}:{m.extent}" for m in pair))
    assert rows == want


def test_subspace_divide_with_a_predicate() -> None:
    assert subspace_divide([io * 8 + ii], {io: Range(0, 4), ii: Range(0, 8)}, [ii], io * 8 + ii < 30) == []
    found = subspace_divide([io, ii], {io: Range(0, 4), ii: Range(0, 8)}, [ii], ii < 6)
    assert [str(m.source) for m in found[-1]] == ["T.bool(True)", "ii < 6"]
    assert str(found[1][1].extent) == "6"


def test_parts_of_a_fused_iterator_are_joined() -> None:
    """Sums of which each was simplified for itself: `x*32 + y // 8` beside `x*256 + y` and `y % 8`."""
    box = {x: Range(0, 98), y: Range(0, 64), z: Range(0, 4)}
    indices = [(x * 64 + y) // 1568, (x * 16 + y // 4) // 14 % 28, (x * 16 + y // 4) % 14, y % 4 * 4 + z]
    found = detect_iter_map(indices, box, True, BIJECTIVE)
    assert [str(s.args[0].extent) for s in found.indices] == ["4", "28", "14", "16"]
    names = (x, y, z)
    points = {
        tuple(evaluate(e, dict(zip(names, at, strict=True))) for e in indices)
        for at in product(range(98), range(64), range(4))
    }
    assert len(points) == 98 * 64 * 4
    back = [normalize_iter_map_to_expr(s) for s in found.indices]
    for at in product(range(0, 98, 13), range(0, 64, 7), range(4)):
        values = dict(zip(names, at, strict=True))
        assert [evaluate(e, values) for e in back] == [evaluate(e, values) for e in indices]
    overlapping = [(x * 64 + y) // 1568, (x * 16 + y // 4) // 14 % 28, (x * 16 + y // 4) % 14, y % 8 * 4 + z]
    assert detect_iter_map(overlapping, box, True, BIJECTIVE).errors
