"""Where everything is: what a step changes is noted as if all of the program were looked at again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.ir.stmt import SeqStmt
from tilewright.tir.schedule import Schedule, state


def check(sch: Schedule) -> None:
    noted, fresh = sch.state.index, state.Index(sch.state.func)
    assert noted is not fresh
    for name in ("parents", "loops", "blocks", "order", "count"):
        assert getattr(noted, name) == getattr(fresh, name), name
    for b in {x.buffer for r in fresh.order for x in (*r.block.reads, *r.block.writes)}:
        assert noted.readers([b]) == fresh.readers([b])
        assert noted.writers([b]) == fresh.writers([b])
    for name in {r.block.name_hint for r in fresh.order}:
        assert noted.named(name) == fresh.named(name)
    for told, own in zip(noted.tables or (), fresh.tables or (), strict=True):
        assert told.keys() == own.keys()


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many statements were looked at, each time that some were."""
    seen: list[int] = []
    work = state.Index._add

    def counted(self: Any, *args: Any) -> Any:
        found = work(self, *args)
        seen.append(found[0])
        return found

    monkeypatch.setattr(state.Index, "_add", counted)
    return seen


def chain(extra: int = 0) -> Schedule:
    x = te.placeholder((16, 32), name="x")
    a = te.compute((16, 32), lambda i, j: x[i, j] + 1, name="a")
    k = te.reduce_axis((0, 32), "k")
    b = te.compute((16,), lambda i: te.sum(a[i, k], axis=k), name="b")
    c = te.compute((16, 32), lambda i, j: a[i, j] / b[i], name="c")
    more = [te.compute((16, 2), lambda i, j: x[i, j] * 2, name=f"m{n}") for n in range(extra)]
    return Schedule(te.create_prim_func([x, c, *more]))


def test_a_step_changes_what_it_touches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_MANY", 0)
    sch = chain(3)
    check(sch)
    for step in (
        lambda: sch.split(sch.get_loops("c")[1], [None, 8]),
        lambda: sch.reorder(*reversed(sch.get_loops("c")[1:])),
        lambda: sch.rfactor(sch.get_loops("b")[-1], 0),
        lambda: sch.compute_at(sch.get_block("b"), sch.get_loops("c")[0]),
        lambda: sch.cache_read(sch.get_block("a"), 0, "local"),
        lambda: sch.compute_inline(sch.get_block("a")),
        lambda: sch.fuse(*sch.get_loops("m1")),
        lambda: sch.vectorize(sch.get_loops("m2")[1]),
    ):
        step()
        check(sch)


def test_a_sequence_that_goes_into_a_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_MANY", 0)
    sch = chain(1)
    body = sch.realize(sch.get_block("root")).block.body
    assert isinstance(body, SeqStmt)
    sch.state.replace(body.seq[1], SeqStmt([body.seq[1], tvm.tir.Evaluate(0)]))
    check(sch)


def test_a_statement_at_two_places_is_looked_for_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_MANY", 0)
    sch = chain(1)
    body = sch.realize(sch.get_block("root")).block.body
    assert isinstance(body, SeqStmt)
    same = tvm.tir.Evaluate(0)
    sch.state.replace(body, SeqStmt([same, *body.seq, same]))
    check(sch)
    sch.vectorize(sch.get_loops("m0")[1])
    check(sch)


def test_a_step_in_a_program_of_many_blocks_looks_at_few_of_them(walks: list[int]) -> None:
    sch = chain(100)
    sch.get_loops("m7")
    del walks[:]
    sch.vectorize(sch.get_loops("m7")[1])
    assert sum(walks) < 10
    check(sch)


def test_a_refused_step_leaves_the_index_of_the_program_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_MANY", 0)
    sch = chain(3)
    check(sch)
    with pytest.raises(ZeroDivisionError), sch.all_or_nothing():
        sch.split(sch.get_loops("c")[1], [None, 8])
        sch.compute_inline(sch.get_block("a"))
        check(sch)
        raise ZeroDivisionError
    check(sch)
    work = state.Index._add

    def broken(self: Any, *args: Any) -> Any:
        monkeypatch.setattr(state.Index, "_add", work)
        raise ZeroDivisionError

    loop = sch.get_loops("c")[1]
    monkeypatch.setattr(state.Index, "_add", broken)
    with pytest.raises(ZeroDivisionError):
        sch.split(loop, [None, 8])
    check(sch)


def test_the_order_of_the_blocks_may_be_held_while_they_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_MANY", 0)
    sch = chain(3)
    names = [r.block.name_hint for r in sch.state.index.order]
    seen = []
    for r in sch.state.index.order:
        seen.append(r.block.name_hint)
        if r.block.name_hint.startswith(("a", "m")):
            sch.cache_read(r.block.name_hint, 0, "local")
    assert seen == names


def calls(work: Callable[[], Any]) -> int:
    """How many functions are called, of Python's own as well."""
    count, before = 0, sys.getprofile()

    def note(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def stages(n: int) -> tuple[Any, Any]:
    x = y = te.placeholder((64,), name="x")
    for i in range(n):
        y = te.compute((64,), lambda j, y=y: y[j] + 1.0, name=f"T{i}")
    return x, y


def inlined(n: int) -> None:
    x, y = stages(n)
    s = te.create_schedule(y.op)
    for stage in s.stages[1:-1]:
        stage.compute_inline()
    s.to_prim_func([x, y])


def plain(n: int) -> None:
    x, y = stages(n)
    te.create_schedule(y.op).to_prim_func([x, y])


def scheduled(n: int) -> None:
    tvm.auto_schedule(te.create_prim_func(list(stages(n))), "llvm")


@pytest.mark.slow
@pytest.mark.parametrize("make", [plain, inlined, scheduled])
def test_the_work_for_a_chain_grows_as_it_does(make: Callable[[int], None]) -> None:
    make(2)
    few, many = calls(lambda: make(100)), calls(lambda: make(400))
    assert many < 4 * 1.1 * few


@pytest.mark.slow
def test_the_work_for_many_outputs_grows_as_they_do(walks: list[int]) -> None:
    visits = []
    for parts in (70, 130):
        x = te.placeholder((2 * parts, 8), name="x")
        del walks[:]
        tvm.auto_schedule(te.create_prim_func([x, *topi.split(x, parts)]), "llvm")
        visits.append(sum(walks))
    assert visits[1] < 2.5 * visits[0]
