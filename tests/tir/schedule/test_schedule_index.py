"""Where everything is: what a step changes is noted as if all of the program were looked at again."""

from __future__ import annotations

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


@pytest.mark.slow
def test_the_work_for_many_outputs_grows_as_they_do(walks: list[int]) -> None:
    visits = []
    for parts in (70, 130):
        x = te.placeholder((2 * parts, 8), name="x")
        del walks[:]
        tvm.auto_schedule(te.create_prim_func([x, *topi.split(x, parts)]), "llvm")
        visits.append(sum(walks))
    assert visits[1] < 2.5 * visits[0]
