"""Loop nests as instructions: all iterations once, in order where it matters, with the fewest micro-ops."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.vta.kernels import Limits, Loop, Piece, alu_reorders, pieces

LIMITS = Limits(extent=16383, micro_ops=8192)


def walk(loops: tuple[Loop, ...], memories: int) -> list[tuple[int, ...]]:
    """The indices of the iterations of a nest, in order."""
    return [
        tuple(sum(k * loop.steps[m] for k, loop in zip(where, loops)) for m in range(memories))
        for where in product(*(range(loop.extent) for loop in loops))
    ]


def run(found: tuple[Piece, ...]) -> list[tuple[int, ...]]:
    """The indices that instructions come to, in order."""
    return [
        tuple(u + o * outer.steps[m] + i * inner.steps[m] for m, u in enumerate(micro_op))
        for outer, inner, micro_ops in found
        for o in range(outer.extent)
        for i in range(inner.extent)
        for micro_op in micro_ops
    ]


nests = st.lists(st.builds(Loop, st.integers(0, 5), st.tuples(*[st.integers(-3, 8)] * 2)), max_size=5).map(
    tuple
)


@pytest.mark.slow
@settings(max_examples=examples(150), derandomize=True, deadline=None)
@given(nests, st.sampled_from([LIMITS, Limits(3, 4), Limits(2, 1)]))
def test_all_iterations_run_once(loops: tuple[Loop, ...], limits: Limits) -> None:
    found = pieces(loops, limits, True, 2)
    assert Counter(run(found)) == Counter(walk(loops, 2))
    check(found, limits)


@pytest.mark.slow
@settings(max_examples=examples(150), derandomize=True, deadline=None)
@given(nests, st.sampled_from([LIMITS, Limits(3, 4), Limits(2, 1)]))
def test_the_order_is_kept_where_it_matters(loops: tuple[Loop, ...], limits: Limits) -> None:
    found = pieces(loops, limits, False, 2)
    assert run(found) == walk(loops, 2)
    check(found, limits)


def check(found: tuple[Piece, ...], limits: Limits) -> None:
    for outer, inner, micro_ops in found:
        assert 1 <= len(micro_ops) <= limits.micro_ops
        for loop in (outer, inner):
            assert 1 <= loop.extent <= limits.extent and min(loop.steps) >= 0


@pytest.mark.parametrize(
    ("loops", "expected"),
    [
        # a convolution: the two longest loops are the instruction's, 4 * 3 * 3 micro-ops are left
        (((4, 196, 0), (14, 14, 16), (14, 1, 1), (3, 0, 16), (3, 0, 1)), (14, 14, 36)),
        # loops that walk like one are one, also if others are between them
        (((4, 14, 0), (3, 0, 1), (14, 1, 0)), (56, 3, 1)),
        # a loop of one iteration is none; a loop with a negative stride is reversed
        (((1, 7, 7), (5, -2, -1), (4, 0, 9)), (5, 4, 1)),
        # steps of both signs do not fit an instruction
        (((9, 1, -1), (3, 0, 9)), (1, 3, 9)),
        ((), (1, 1, 1)),
    ],
)
def test_the_fewest_micro_ops_are_left(
    loops: tuple[tuple[int, int, int], ...], expected: tuple[int, int, int]
) -> None:
    ((outer, inner, micro_ops),) = pieces(tuple(Loop(e, (a, b)) for e, a, b in loops), LIMITS, True, 2)
    assert sorted((outer.extent, inner.extent)) == sorted(expected[:2])
    assert len(micro_ops) == expected[2]


@pytest.mark.parametrize(
    ("op", "immediate", "dst", "src", "loops", "expected"),
    [
        ("add", True, 0, 0, ((4, 1, 1), (3, 4, 4)), True),  # in place
        ("add", True, 0, 0, ((4, 1, 2),), False),  # an iteration reads what another one wrote
        ("max", False, 0, 8, ((4, 0, 1), (2, 1, 4)), True),  # pooling: the order of a maximum does not matter
        ("shr", False, 0, 8, ((4, 0, 1),), False),  # shifts to the right and left do not commute
        ("shr", False, 0, 8, ((4, 1, 1),), True),
        ("min", True, 0, 8, ((4, 0, 1),), False),  # the last iteration wins
        ("min", True, 0, 8, ((4, 2, 1), (2, 1, 0)), True),
        ("add", False, 3, 0, ((4, 1, 1),), False),  # the areas overlap
    ],
)
def test_when_the_order_matters(
    op: str, immediate: bool, dst: int, src: int, loops: tuple[tuple[int, int, int], ...], expected: bool
) -> None:
    assert alu_reorders(op, immediate, dst, src, [Loop(e, (a, b)) for e, a, b in loops]) == expected
