"""Primitives that choose at random, and can be told later to choose otherwise: tile sizes, values, places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...ir.dtype import DataType
from ...ir.expr import FloatImm, IntImm, PrimExpr, Var, const_value
from ...ir.stmt import For
from .blocks import consumers_of, is_output
from .primitive import BlockRV, Elsewhere, ExprRV, LoopRV, Refusal, primitive, refuse

if TYPE_CHECKING:
    from .schedule import Schedule

ROOT, INLINE = -1, -2


def _whole(sch: Schedule, loop: LoopRV) -> tuple[For, int]:
    """The loop and its extent, which must be known."""
    n = sch.loop(loop)
    extent = const_value(n.extent)
    if extent is None:
        refuse(
            f"loop `{n.loop_var.name}` has the extent `{n.extent}`, which is not known, so its tiles cannot be drawn",
            at=n,
            hint="split by factors of your own, with one of them None",
        )
    if extent == 0:
        refuse(
            f"loop `{n.loop_var.name}` has no iterations, so there are no tiles to draw",
            at=n,
            hint="leave it as it is: it never runs",
        )
    return n, int(extent)


def _count(n: For, parts: int) -> None:
    if parts < 1:
        refuse(f"n={parts}: a loop has at least one tile", at=n)


def _results(sizes: Sequence[int]) -> list[ExprRV]:
    """Numbers with an identity of their own, by which the trace knows what a later step used."""
    return [IntImm("int32", s) for s in sizes]


def _given(n: For, decision: Sequence[Any], parts: int, extent: int) -> list[int]:
    """Tiles told from outside, made to fit: what does not divide the rest takes all of it, the others 1.

    A decision made for one program may be tried on another whose loops have other extents.
    """
    sizes = [int(d) for d in decision]
    if len(sizes) != parts:
        refuse(f"decision={sizes}, which has {len(sizes)} tiles and not {parts}", at=n)
    if any(s < 1 for s in sizes):
        refuse(f"decision={sizes}: tiles are at least 1", at=n)
    rest = extent
    for i in range(parts - 1, 0, -1):
        if rest % sizes[i]:
            return [1] * i + [rest] + sizes[i + 1 :]
        rest //= sizes[i]
    return [rest, *sizes[1:]]


# ---------------------------------------------------------------------------- factorisations
def divisors(n: int) -> list[int]:
    """The divisors of a number, least first."""
    low = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return low + [n // d for d in reversed(low) if d * d != n]


def _ways(n: int, parts: int) -> int:
    """In how many ways a number is a product of so many numbers, in order."""
    if parts == 0:
        return 1 if n == 1 else 0
    ways, p = 1, 2
    while n > 1:
        if p * p > n:
            p = n
        times = 0
        while n % p == 0:
            n, times = n // p, times + 1
        ways *= math.comb(times + parts - 1, parts - 1)
        p += 1
    return ways


def _drawn(rng: Any, n: int, parts: int, last: Sequence[int] | None = None) -> list[int]:
    """A product of so many numbers, each with the same chance; the last one is one of `last`."""
    out: list[int] = []
    while parts:
        allowed = [d for d in divisors(n) if last is None or d in last]
        (chosen,) = rng.choices(allowed, [_ways(n // d, parts - 1) for d in allowed])
        out.insert(0, chosen)
        n, parts, last = n // chosen, parts - 1, None
    return out


@primitive
def sample_perfect_tile(
    sch: Schedule,
    loop: LoopRV,
    n: int,
    max_innermost_factor: int = 16,
    decision: Sequence[int] | None = None,
) -> list[ExprRV]:
    """Sample `n` tile sizes whose product is the extent of a loop, all with the same probability.

    for i in range(12):        ->        [1, 12] or [2, 6] or [3, 4] or [4, 3] or [6, 2] or [12, 1]

    `max_innermost_factor` limits the last size; -1 for no limit. `decision` gives the sizes instead of sampling.
    """
    at, extent = _whole(sch, loop)
    _count(at, n)
    if decision is not None:
        sizes = _given(at, decision, n, extent)
    elif n == 1:
        sizes = [extent]
    else:
        last = [d for d in divisors(extent) if max_innermost_factor < 0 or d <= max_innermost_factor]
        if not last:
            refuse(f"max_innermost_factor={max_innermost_factor}: no tile is that small", at=at)
        sizes = _drawn(sch.rng, extent, n, last)
    sch.decision = sizes
    return _results(sizes)


@primitive
def sample_partitioned_tile(
    sch: Schedule,
    loop: LoopRV,
    n: int,
    partition_pos: int = 0,
    innerpart_factor: int = 1,
    decision: Sequence[int] | None = None,
) -> list[ExprRV]:
    """Sample tile sizes such that the product from `partition_pos` on is a multiple of `innerpart_factor`.

    for i in range(24):        ->        n=3, partition_pos=1, innerpart_factor=4: [6, 2, 2] or [2, 1, 12] …

    If the extent has no such factor, any tile sizes may be sampled.
    """
    at, extent = _whole(sch, loop)
    _count(at, n)
    if not 0 <= partition_pos <= n:
        refuse(f"partition_pos={partition_pos}: it is from 0 to {n}", at=at)
    if innerpart_factor < 1:
        refuse(f"innerpart_factor={innerpart_factor}: it is at least 1", at=at)
    if decision is not None:
        sizes = _given(at, decision, n, extent)
    elif partition_pos in (0, n) or extent % innerpart_factor:
        sizes = _drawn(sch.rng, extent, n)
    else:
        outer, inner = partition_pos, n - partition_pos
        extra = divisors(extent // innerpart_factor)
        weights = [
            _ways(extent // innerpart_factor // d, outer) * _ways(d * innerpart_factor, inner) for d in extra
        ]
        (chosen,) = sch.rng.choices(extra, weights)
        whole = chosen * innerpart_factor
        sizes = _drawn(sch.rng, extent // whole, outer) + _drawn(sch.rng, whole, inner)
    sch.decision = sizes
    return _results(sizes)


# ---------------------------------------------------------------------------- values and places
@primitive
def sample_categorical(
    sch: Schedule, candidates: Sequence[int | float], probs: Sequence[float], decision: int | None = None
) -> ExprRV:
    """Sample one of `candidates` with the probabilities `probs`. The decision is its position.

    [0, 16, 64] with [0.2, 0.3, 0.5]        ->        64 in half of the cases
    """
    values = [const_value(c) if isinstance(c, PrimExpr) else c for c in candidates]
    chances = [float(p.value if isinstance(p, (FloatImm, IntImm)) else p) for p in probs]
    if not values or len(values) != len(chances):
        refuse(f"there are {len(values)} candidates and {len(chances)} chances")
    if any(not c >= 0 for c in chances) or not 0 < sum(chances) < math.inf:
        refuse(f"the chances are {chances}; they are not negative, and one of them is more than 0")
    if decision is None:
        (decision,) = sch.rng.choices(range(len(values)), chances)
    decision = int(decision)
    if not 0 <= decision < len(values):
        refuse(f"decision={decision}, and there are candidates 0 to {len(values) - 1}")
    sch.decision = decision
    chosen = values[decision]
    return (
        FloatImm(DataType("float32"), chosen)
        if isinstance(chosen, float)
        else IntImm("int32", int(chosen or 0))
    )


@primitive
def sample_compute_location(sch: Schedule, block: BlockRV | str, decision: int | None = None) -> LoopRV:
    """Sample a place to compute a block at: a loop of its consumers, its present place (-1), or inlined (-2).

    The decision is -2, -1, or the position of the loop among the loops around all consumers. `compute_at`
    accepts the result in each of these cases.
    """
    me = sch.realize(block)
    legal = _places(sch, block)
    if decision is None:
        decision = sch.rng.choice(sorted(legal))
    decision = int(decision)
    if decision not in legal:
        known = ", ".join(map(str, sorted(legal)))
        refuse(f"decision={decision}, and block {me.block.name_hint} may be computed at: {known}", at=me)
    sch.decision = decision
    return legal[decision]


def _places(sch: Schedule, block: BlockRV | str) -> dict[int, LoopRV]:
    """The places where a block may be computed, found by trying."""
    from . import compute_at, inline

    me = sch.realize(block)
    found: dict[int, LoopRV] = {ROOT: Elsewhere(Var("root", "int32"), ROOT)}
    readers = consumers_of(sch, me)
    if is_output(sch, me) or not readers:
        return found
    if _works(sch, lambda: inline.compute_inline(sch, block)):
        found[INLINE] = Elsewhere(Var("inlined", "int32"), INLINE)
    nests = [sch.state.index.loops_of(r) for r in readers]
    common = [x for x in nests[0] if all(x in nest for nest in nests[1:])]
    for i, x in enumerate(common):
        loop = LoopRV(x.loop_var)
        if _works(sch, lambda loop=loop: compute_at.compute_at(sch, block, loop)):  # type: ignore[misc]
            found[i] = loop
    return found


def _works(sch: Schedule, step: Any) -> bool:
    """Whether a step is legal; it is undone in any case."""
    with sch.tried():
        try:
            step()
        except Refusal:
            return False
    return True
