"""Steps that draw: tile sizes, values, places. Seeded, recorded, and done again with other choices."""

from __future__ import annotations

from collections import Counter

import pytest
from schedule_programs import arrays, chain, copy2d, matmul, symbolic

from tilewright import te, tir
from tilewright.ir.equal import assert_structural_equal
from tilewright.ir.errors import ScheduleError
from tilewright.tir.schedule import LoopRV, Trace
from tilewright.tir.schedule.testing import verify_trace_roundtrip


def loops_of(func, block, seed=0):
    sch = tir.Schedule(func, seed=seed)
    return sch, sch.get_loops(sch.get_block(block))


def numbers(values):
    return [int(v) for v in values]


def one_loop(n):
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1, name="B")
    return te.create_prim_func([A, B])


# ---------------------------------------------------------------------------- perfect tiles
def test_tiles_divide_the_loop():
    sch, (i, j) = loops_of(copy2d, "B")
    for _ in range(20):
        a, b, c = numbers(sch.sample_perfect_tile(j, 3, max_innermost_factor=4))
        assert a * b * c == 12
        assert c <= 4


def test_all_tilings_come_with_the_same_chance():
    sch, (i, j) = loops_of(copy2d, "B", seed=7)
    found = Counter(tuple(numbers(sch.sample_perfect_tile(j, 2, -1))) for _ in range(1200))
    assert set(found) == {(1, 12), (2, 6), (3, 4), (4, 3), (6, 2), (12, 1)}
    assert all(140 < n < 260 for n in found.values()), found


def test_three_tiles_come_with_the_same_chance():
    sch, (i,) = loops_of(one_loop(8), "B", seed=7)
    found = Counter(tuple(numbers(sch.sample_perfect_tile(i, 3, 2))) for _ in range(700))
    assert set(found) == {(8, 1, 1), (4, 2, 1), (2, 4, 1), (1, 8, 1), (4, 1, 2), (2, 2, 2), (1, 4, 2)}
    assert all(60 < n < 145 for n in found.values()), found


def test_a_prime_extent_and_a_large_one():
    sch, (i,) = loops_of(one_loop(13), "B")
    assert {tuple(numbers(sch.sample_perfect_tile(i, 2))) for _ in range(30)} == {(1, 13), (13, 1)}
    sch, (i,) = loops_of(one_loop(2**10 * 3**4 * 5), "B")
    a, b, c, d, e = numbers(sch.sample_perfect_tile(i, 5))
    assert a * b * c * d * e == 2**10 * 3**4 * 5


def test_one_tile_is_the_loop():
    sch, (i, j) = loops_of(copy2d, "B")
    assert numbers(sch.sample_perfect_tile(j, 1, 4)) == [12]


def test_what_was_drawn_splits_the_loop(agree):
    sch, (i, j, k) = loops_of(matmul, "C")
    sch.split(i, sch.sample_perfect_tile(i, 2))
    outer, inner = sch.split(j, sch.sample_perfect_tile(j, 2, decision=[3, 2]))
    assert int(sch.get(inner).extent) == 2
    agree(matmul, sch.mod["main"], *arrays(matmul))
    verify_trace_roundtrip(sch, matmul)


def test_symbolic_extents_are_refused(expect, refused):
    sch, (i, j) = loops_of(symbolic, "B")
    expect(
        refused(sch, lambda: sch.sample_perfect_tile(i, 2)),
        """
        sample_perfect_tile(i, n=2): loop `i` has the extent `n`, which is not known, so its tiles cannot be drawn
          at test_sampling.py:LINE

          | …
          |     for i, j in T.grid(n, 8):    # <-- here
          | …

          hint: split by factors of your own, with one of them None
        """,
    )


def test_arguments_that_make_no_tiles(expect, refused):
    sch, (i, j) = loops_of(copy2d, "B")
    expect(
        refused(sch, lambda: sch.sample_perfect_tile(j, 0)),
        """
        sample_perfect_tile(j, n=0): n=0: a loop has at least one tile
          at test_sampling.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …
        """,
    )
    expect(
        refused(sch, lambda: sch.sample_perfect_tile(j, 2, 0)),
        """
        sample_perfect_tile(j, n=2, max_innermost_factor=0): max_innermost_factor=0: no tile is that small
          at test_sampling.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …
        """,
    )
    expect(
        refused(sch, lambda: sch.sample_perfect_tile(j, 2, decision=[12])),
        """
        sample_perfect_tile(j, n=2, decision=[12]): decision=[12], which has 1 tiles and not 2
          at test_sampling.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …
        """,
    )
    expect(
        refused(sch, lambda: sch.sample_perfect_tile(j, 2, decision=[-3, -4])),
        """
        sample_perfect_tile(j, n=2, decision=[-3, -4]): decision=[-3, -4]: tiles are at least 1
          at test_sampling.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …
        """,
    )


def test_a_decision_for_another_extent_is_made_to_fit():
    sch, (i, j) = loops_of(copy2d, "B")
    assert numbers(sch.sample_perfect_tile(j, 3, decision=[1, 1, 4])) == [3, 1, 4]
    assert numbers(sch.sample_perfect_tile(j, 3, decision=[1, 5, 4])) == [1, 3, 4]
    assert numbers(sch.sample_perfect_tile(j, 3, decision=[1, 1, 7])) == [1, 1, 12]


# ---------------------------------------------------------------------------- partitioned tiles
def test_the_inner_tiles_hold_a_multiple():
    sch, (i,) = loops_of(one_loop(24), "B", seed=3)
    seen = set()
    for _ in range(60):
        a, b, c = numbers(sch.sample_partitioned_tile(i, 3, partition_pos=1, innerpart_factor=4))
        assert a * b * c == 24
        assert (b * c) % 4 == 0
        seen.add((a, b, c))
    assert len(seen) > 8


def test_where_the_factor_does_not_divide_any_tiles_come():
    sch, (i,) = loops_of(one_loop(9), "B")
    for _ in range(10):
        a, b = numbers(sch.sample_partitioned_tile(i, 2, partition_pos=1, innerpart_factor=4))
        assert a * b == 9
    assert numbers(sch.sample_partitioned_tile(i, 2, 1, 4, decision=[3, 3])) == [3, 3]


def test_partition_arguments(expect, refused):
    sch, (i,) = loops_of(one_loop(24), "B")
    expect(
        refused(sch, lambda: sch.sample_partitioned_tile(i, 2, 3)),
        """
        sample_partitioned_tile(i, n=2, partition_pos=3): partition_pos=3: it is from 0 to 2
          at test_sampling.py:LINE

          | …
          |     for i in range(24):    # <-- here
          | …
        """,
    )
    expect(
        refused(sch, lambda: sch.sample_partitioned_tile(i, 2, 1, 0)),
        """
        sample_partitioned_tile(i, n=2, partition_pos=1, innerpart_factor=0): innerpart_factor=0: it is at least 1
          at test_sampling.py:LINE

          | …
          |     for i in range(24):    # <-- here
          | …
        """,
    )


# ---------------------------------------------------------------------------- values
def test_values_come_with_their_chances():
    sch = tir.Schedule(copy2d, seed=1)
    found = Counter(int(sch.sample_categorical([0, 16, 64], [0.2, 0.3, 0.5])) for _ in range(1000))
    assert 140 < found[0] < 260
    assert 240 < found[16] < 360
    assert 430 < found[64] < 570


def test_the_decision_is_a_position():
    sch = tir.Schedule(copy2d, seed=1)
    assert int(sch.sample_categorical([5, 5, 7], [1, 0, 0], decision=2)) == 7
    assert sch.trace.decisions == {0: 2}
    assert float(sch.sample_categorical([0.5], [1]).value) == 0.5


def test_values_that_cannot_be_drawn(expect, refused):
    sch = tir.Schedule(copy2d)
    first = lambda *args, **more: refused(sch, lambda: sch.sample_categorical(*args, **more))
    expect(
        first([1, 2], [1]),
        """
        sample_categorical([1, 2], probs=[1]): there are 2 candidates and 1 chances
          at test_sampling.py:LINE

          | …
        """,
    )
    expect(
        first([1, 2], [1, -1]),
        """
        sample_categorical([1, 2], probs=[1, -1]): the chances are [1.0, -1.0]; they are not negative, and one of them is more than 0
          at test_sampling.py:LINE

          | …
        """,
    )
    expect(
        first([1, 2], [1, 1], decision=2),
        """
        sample_categorical([1, 2], probs=[1, 1], decision=2): decision=2, and there are candidates 0 to 1
          at test_sampling.py:LINE

          | …
        """,
    )


# ---------------------------------------------------------------------------- places
def test_places_of_a_block(agree):
    seen = set()
    for seed in range(30):
        sch = tir.Schedule(chain, seed=seed)
        place = sch.sample_compute_location("C")
        assert isinstance(place, LoopRV)
        sch.compute_at("C", place)
        agree(chain, sch.mod["main"], *arrays(chain))
        verify_trace_roundtrip(sch, chain)
        (decision,) = sch.trace.decisions.values()
        seen.add(decision)
    assert seen == {-2, -1, 0}


def test_an_output_stays_where_it_is(expect, refused):
    sch = tir.Schedule(chain, seed=1)
    place = sch.sample_compute_location("D")
    assert int(place) == -1
    before = sch.mod
    sch.compute_at("D", place)
    assert sch.mod is before
    block = sch.get_block("D")
    expect(
        refused(sch, lambda: sch.sample_compute_location(block, decision=0)),
        """
        sample_compute_location(D, decision=0): decision=0, and block D may be computed at: -1
          at test_sampling.py:LINE

          | …
          |         with T.block("D"):    # <-- here
          | …
        """,
    )


def test_trying_places_leaves_no_trace():
    sch = tir.Schedule(chain, seed=1)
    before = sch.mod
    sch.sample_compute_location("B")
    assert sch.mod is before
    assert [i.kind for i in sch.trace.insts] == ["get_block", "sample_compute_location"]


# ---------------------------------------------------------------------------- seeds
def test_the_same_seed_draws_the_same():
    def draw(seed):
        sch, (i,) = loops_of(one_loop(720), "B", seed)
        return [numbers(sch.sample_perfect_tile(i, 4)) for _ in range(5)]

    assert draw(3) == draw(3)
    assert draw(3) != draw(4)


def test_seeding_starts_anew():
    sch, (i,) = loops_of(one_loop(720), "B", 3)
    first = numbers(sch.sample_perfect_tile(i, 4))
    sch.sample_perfect_tile(i, 4)
    sch.seed(3)
    assert numbers(sch.sample_perfect_tile(i, 4)) == first


def test_forked_seeds_and_copies_go_their_own_way():
    sch, (i,) = loops_of(one_loop(720), "B", 3)
    assert sch.fork_seed() != sch.fork_seed()
    sch.seed(3)
    a, b = sch.copy(), sch.copy()
    draws = [tuple(numbers(s.sample_perfect_tile(i, 4))) for s in (a, b, sch)]
    assert len(set(draws)) > 1
    sch.seed(3)
    c = sch.copy()
    assert tuple(numbers(c.sample_perfect_tile(i, 4))) == draws[0]


# ---------------------------------------------------------------------------- traces with decisions
def drawn_schedule(seed=5):
    sch, (i, j) = loops_of(copy2d, "B", seed)
    tiles = sch.sample_perfect_tile(j, 2)
    outer, inner = sch.split(j, tiles)
    sch.vectorize(inner)
    sch.annotate(outer, "pragma_auto_unroll_max_step", sch.sample_categorical([0, 16], [0.5, 0.5]))
    return sch


def test_the_trace_names_what_was_drawn(expect):
    expect(
        str(drawn_schedule().trace.with_decision(2, [6, 2]).with_decision(5, 0)),
        """
        def apply_trace(sch: tir.Schedule) -> None:
          b0 = sch.get_block(name='B')
          l0, l1 = sch.get_loops(block=b0)
          v0, v1 = sch.sample_perfect_tile(loop=l1, n=2, decision=[6, 2])
          l2, l3 = sch.split(loop=l1, factors=[v0, v1])
          sch.vectorize(loop=l3)
          v2 = sch.sample_categorical(candidates=[0, 16], probs=[0.5, 0.5], decision=0)
          sch.annotate(block_or_loop=l2, ann_key='pragma_auto_unroll_max_step', ann_val=v2)
        """,
    )


def test_a_trace_is_done_again_with_other_decisions():
    sch = drawn_schedule()
    verify_trace_roundtrip(sch, copy2d)
    other = tir.Schedule(copy2d)
    sch.trace.with_decision(2, [3, 4]).with_decision(5, 1).apply_to_schedule(other)
    loops = [other.get(x) for x in other.get_loops("B")]
    assert [int(x.extent) for x in loops] == [8, 3, 4]
    assert loops[1].annotations["pragma_auto_unroll_max_step"].value == 16


def test_a_trace_is_done_on_another_program_of_the_same_structure():
    sch = drawn_schedule()
    A = te.placeholder((4, 30), name="A")
    B = te.compute((4, 30), lambda i, j: A[i, j] * 2, name="B")
    other = tir.Schedule(te.create_prim_func([A, B]))
    sch.trace.with_decision(2, [2, 6]).apply_to_schedule(other)
    assert [int(other.get(x).extent) for x in other.get_loops("B")] == [4, 5, 6]
    assert other.trace.decisions[2] == [5, 6]


def test_a_provider_decides():
    sch = drawn_schedule()
    other = tir.Schedule(copy2d)

    def decide(inst, args, kwargs, decision):
        return [2, 6] if inst.kind == "sample_perfect_tile" else decision

    sch.trace.apply_to_schedule(other, decision_provider=decide)
    assert other.trace.decisions[2] == [2, 6]


def test_json_holds_decisions():
    sch = drawn_schedule()
    data = sch.trace.as_json()
    assert data["steps"][2]["decision"] == numbers(sch.trace.insts[2].outputs)
    data["steps"][2]["decision"] = [12, 1]
    other = tir.Schedule(copy2d)
    Trace.apply_json_to_schedule(data, other, trusted=True)
    assert [int(other.get(x).extent) for x in other.get_loops("B")] == [8, 12, 1]


def test_only_sampling_steps_have_decisions():
    with pytest.raises(ScheduleError) as caught:
        drawn_schedule().trace.with_decision(0, [1])
    assert str(caught.value) == "step 0 is not a sampling step, so it has no decision to change"


def test_the_same_decisions_give_the_same_program():
    sch = drawn_schedule()
    again = tir.Schedule(copy2d, seed=99)
    sch.trace.apply_to_schedule(again)
    assert_structural_equal(sch.mod, again.mod)


def test_decisions_by_the_step_that_made_them():
    sch = tir.Schedule(copy2d, seed=1)
    sch.sample_categorical([5, 6, 7], [0.2, 0.3, 0.5])
    step, other = sch.trace.insts[-1], tir.Schedule(copy2d).trace
    assert sch.trace.decisions[step] == sch.trace.decisions[0] == step.decision
    sch.parallel(sch.get_loops("B")[0])
    with pytest.raises(KeyError):
        sch.trace.decisions[sch.trace.insts[-1]]
    assert not other.decisions
