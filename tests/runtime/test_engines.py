"""Engines in cycles: small programs whose times are computed by hand, stalls by cause, deadlocks."""

from __future__ import annotations

import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.runtime.engines import DeadlockError, EngineModel, Span, Work, simulate

NAMES = {1: "load", 2: "compute", 3: "store"}
MODEL = EngineModel(NAMES, latency=10, bytes_per_cycle=8, row_cycles=1)


def spans(works: list[Work], model: EngineModel = MODEL) -> list[tuple[int, int, int]]:
    return [
        (s.instruction, s.start, s.end)
        for s in sorted(simulate(works, model).timeline, key=lambda s: s.instruction)
    ]


def test_an_instruction_arrives_after_one_cycle_and_takes_its_time() -> None:
    assert spans([Work(2, "gemm", cycles=5), Work(2, "gemm", cycles=7)]) == [(0, 1, 6), (1, 6, 13)]


def test_engines_run_side_by_side_and_wait_for_tokens() -> None:
    trace = simulate(
        [Work(1, "a", cycles=20, pushes=(2,)), Work(2, "b", cycles=5, pops=(1,)), Work(2, "c", cycles=3)],
        MODEL,
    )
    assert trace.timeline == [Span(1, 0, "a", 1, 21), Span(2, 1, "b", 21, 26), Span(2, 2, "c", 26, 29)]
    assert trace.cycles == 29
    assert trace.busy == {1: 20, 2: 8, 3: 0}
    assert trace.stalls == {
        1: {"empty queue": 9},
        2: {"empty queue": 2, "token from load": 19},
        3: {"empty queue": 29},
    }
    assert trace.utilisation(2) == 8 / 29
    assert trace.tokens_left == {}


def test_a_transfer_pays_latency_rows_and_bytes() -> None:
    trace = simulate([Work(1, "load", read=60, rows=3)], MODEL)
    assert trace.timeline == [Span(1, 0, "load", 1, 1 + 10 + 3 + 8)]
    assert (trace.bytes_read, trace.bytes_written, trace.port_cycles) == (60, 0, 11)


def test_latency_overlaps_with_the_data_of_others_and_data_does_not() -> None:
    # load: request at 1, data 11..32. store: request at 2, could have data at 12, gets the port at 32.
    trace = simulate([Work(1, "load", read=160, rows=1), Work(3, "store", written=80, rows=1)], MODEL)
    assert trace.timeline == [Span(1, 0, "load", 1, 32), Span(3, 1, "store", 2, 43)]
    assert trace.stalls[3] == {"empty queue": 2, "DRAM port": 20}
    assert trace.busy == {1: 31, 2: 0, 3: 21}
    assert (trace.bytes_read, trace.bytes_written) == (160, 80)


def test_two_requests_in_one_cycle_are_served_by_number() -> None:
    works = [
        Work(2, "gate", cycles=10, pushes=(1, 3)),
        Work(3, "store", written=8, rows=1, pops=(2,)),
        Work(1, "load", read=8, rows=1, pops=(2,)),
    ]
    assert spans(works) == [(0, 1, 11), (1, 11, 25), (2, 11, 23)]


def test_a_full_command_queue_stalls_the_fetch_unit() -> None:
    works = [*[Work(1, "a", cycles=10)] * 3, Work(2, "b", cycles=1)]
    assert spans(works)[3] == (3, 4, 5)
    # A queue of one place: 1 takes it when 0 starts in cycle 1, 2 when 1 starts in cycle 11, and 3 is fetched after it.
    assert spans(works, MODEL._replace(command_queue_depth=1))[3] == (3, 12, 13)


def test_a_full_token_queue_stalls_the_sender() -> None:
    works = [
        *[Work(1, "a", cycles=1, pushes=(2,))] * 3,
        Work(2, "b", cycles=50),
        *[Work(2, "c", cycles=1, pops=(1,))] * 3,
    ]
    trace = simulate(works, MODEL._replace(token_queue_depth=2))
    assert trace.stalls[1]["token queue to compute"] == 54 - 4
    assert trace.cycles == 57


def test_executes_run_in_the_order_of_starts() -> None:
    seen: list[str] = []

    def note(name: str, engine: int, **more: object) -> Work:
        return Work(engine, name, cycles=9, execute=lambda: seen.append(name), **more)  # type: ignore[arg-type]

    simulate([note("a", 1, pushes=(2,)), note("b", 2, pops=(1,)), note("c", 1), note("d", 3)], MODEL)
    assert seen == ["a", "d", "c", "b"]


def test_tokens_that_nobody_takes_are_reported() -> None:
    assert simulate([Work(1, "a", cycles=1, pushes=(2, 2))], MODEL).tokens_left == {(1, 2): 2}


def refusal(works: list[Work], model: EngineModel = MODEL) -> str:
    with pytest.raises(DeadlockError) as caught:
        simulate(works, model)
    return str(caught.value)


HINT = (
    "each token that an instruction waits for must be sent by an instruction that can run before it; look for a push that "
    "is missing, or for two engines that wait for each other"
)


def test_a_deadlock_says_who_waits_for_whom() -> None:
    works = [
        Work(1, "load.inp", cycles=5),
        Work(1, "load.wgt", pops=(2,), pushes=(2,)),
        Work(2, "gemm", pops=(1,), pushes=(1,)),
    ]
    assert refusal(works) == (
        "deadlock in cycle 6: no engine can continue\n"
        "  load: instruction 1 (load.wgt) waits for a token from compute since cycle 6\n"
        "  compute: instruction 2 (gemm) waits for a token from load since cycle 3\n"
        "  store: idle since cycle 0, its queue is empty\n"
        f"  {HINT}"
    )


def test_a_deadlock_by_full_queues() -> None:
    works = [
        Work(1, "a", pops=(2,)),
        Work(1, "b"),
        Work(2, "c", pushes=(1,)),
    ]
    assert refusal(works, MODEL._replace(command_queue_depth=1)) == (
        "deadlock in cycle 1: no engine can continue\n"
        "  load: instruction 0 (a) waits for a token from compute since cycle 1\n"
        "  compute: idle since cycle 0, its queue is empty\n"
        "  store: idle since cycle 0, its queue is empty\n"
        "  fetch: instruction 1 (b) waits for a place in the full command queue of load (depth 1)\n"
        f"  {HINT}"
    )
    assert refusal(
        [Work(1, "a", cycles=2, pushes=(2,)), Work(1, "b", cycles=2, pushes=(2,))],
        MODEL._replace(token_queue_depth=1),
    ) == (
        "deadlock in cycle 5: no engine can continue\n"
        "  load: instruction 1 (b) has been done since cycle 5, and its token does not fit the full token queue to compute (depth 1)\n"
        "  compute: idle since cycle 0, its queue is empty\n"
        "  store: idle since cycle 0, its queue is empty\n"
        f"  {HINT}"
    )


def test_an_engine_that_the_chip_does_not_have() -> None:
    with pytest.raises(ValueError) as caught:
        simulate([Work(2, "a", pops=(4,))], MODEL)
    assert str(caught.value) == (
        "instruction 0 (a) names engine 4; the chip has the engines 1 load, 2 compute, 3 store"
    )


@st.composite
def programs(draw: st.DrawFn) -> list[Work]:
    """Programs that can run in program order: a token is popped after it was pushed."""
    works: list[Work] = []
    sent: dict[tuple[int, int], int] = {}
    for number in range(draw(st.integers(1, 30))):
        engine = draw(st.integers(1, 3))
        pops = tuple(e for e in NAMES if sent.get((e, engine), 0) and draw(st.booleans()))
        for e in pops:
            sent[e, engine] -= 1
        pushes = tuple(e for e in NAMES if e != engine and draw(st.booleans()))
        for e in pushes:
            sent[engine, e] = sent.get((engine, e), 0) + 1
        rows = draw(st.integers(0, 2))
        works.append(
            Work(
                engine,
                f"w{number}",
                draw(st.integers(0, 9)),
                read=rows * draw(st.integers(0, 40)),
                rows=rows,
                pops=pops,
                pushes=pushes,
            )
        )
    return works


@pytest.mark.slow
@settings(max_examples=examples(60), derandomize=True, deadline=None)
@given(programs(), st.integers(1, 4))
def test_runs_are_deterministic_complete_and_fully_accounted(works: list[Work], depth: int) -> None:
    model = MODEL._replace(command_queue_depth=depth)
    trace = simulate(works, model)
    assert simulate(works, model) == trace
    assert sorted(s.instruction for s in trace.timeline) == list(range(len(works)))
    for engine in NAMES:
        own = [s for s in trace.timeline if s.engine == engine]
        assert [s.instruction for s in own] == [n for n, w in enumerate(works) if w.engine == engine]
        assert all(a.end <= b.start for a, b in zip(own, own[1:]))
        assert trace.busy[engine] + sum(trace.stalls[engine].values()) == trace.cycles
    # a token is never taken before it was sent
    ends = {s.instruction: s.end for s in trace.timeline}
    starts = {s.instruction: s.start for s in trace.timeline}
    for source in NAMES:
        for target in NAMES:
            sent = sorted(
                ends[n] for n, w in enumerate(works) if w.engine == source for e in w.pushes if e == target
            )
            taken = sorted(
                starts[n] for n, w in enumerate(works) if w.engine == target for e in w.pops if e == source
            )
            assert all(a <= b for a, b in zip(sent, taken))


@pytest.mark.slow
@settings(max_examples=examples(60), derandomize=True, deadline=None)
@given(programs())
def test_more_places_in_the_queues_never_change_the_work(works: list[Work]) -> None:
    small, large = (simulate(works, MODEL._replace(command_queue_depth=d)) for d in (1, 100))
    assert small.bytes_read == large.bytes_read and small.port_cycles == large.port_cycles
    assert small.tokens_left == large.tokens_left
