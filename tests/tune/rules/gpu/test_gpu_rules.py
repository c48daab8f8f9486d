"""Rules for GPUs: each is asked, none changes anything by being asked, each can be forced, the cheapest row wins."""

from __future__ import annotations

import pytest
from gpu_rule_programs import A100, EARLY, H200, PROGRAMS, T4, forced, product

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.errors import ScheduleError
from tilewright.target import Target
from tilewright.tune.cost.gpu import evaluate, seconds
from tilewright.tune.explain import Explanation
from tilewright.tune.plan import plan_of
from tilewright.tune.program.stages import Stages
from tilewright.tune.rules import Refusal, rules_of
from tilewright.tune.rules.gpu import EARLY as EARLY_RULES
from tilewright.tune.rules.gpu import GPU
from tilewright.tune.rules.gpu.simt import Threads
from tilewright.tune.space import Sketches
from tilewright.tune.workload import task_of

ALL = (*EARLY_RULES, *GPU)


def test_every_rule_has_a_program() -> None:
    """But that for loops which are parallel already: its blocks are not made by `te`."""
    names = [rule.name for rule in ALL]
    assert len(set(names)) == len(names)
    assert set(names) - set(PROGRAMS) == {"parallel loops"} and set(PROGRAMS) <= set(names)


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in EARLY])
def test_to_ask_a_rule_changes_nothing(name: str) -> None:
    args, text = PROGRAMS[name]
    func, target = te.create_prim_func(args), Target(text)
    sch = tir.Schedule(func)
    program = Stages(sch, func, target, Explanation(""), frozenset())
    assert program.begin()
    before, done = sch.mod, set(program.done)
    for stage in program.next_stages(program.stages()):
        matched = []
        for rule in GPU:
            match = rule.match(stage, target)
            if isinstance(match, Refusal):
                assert match.why and not match.why.endswith("."), rule.name
                continue
            matched.append(rule.name)
            table = rule.table(match, target.gpu)
            assert len(table) and (seconds(table, target.gpu) > 0).all()
            one = rule.table(match, target.gpu, table.values(len(table) - 1))
            assert one.points.tolist() == table.points[-1:].tolist()
            whole = table.whole()
            assert all((whole.points == row).all(axis=1).sum() == 1 for row in table.points), rule.name
        assert name in matched
    assert sch.mod is before and program.done == done


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_rule_can_be_forced_and_replayed(name: str) -> None:
    plan = forced(name)
    assert plan.choices[0].winner.rule.name == name
    decisions = [{"stage": c.stage.name, "rule": c.winner.rule.name, **c.row.values} for c in plan.choices]
    args, target = PROGRAMS[name]
    again = Sketches(task_of(args, target)).apply(decisions)
    assert str(again.mod) == str(plan.sch.mod)


@pytest.mark.parametrize("name", ["wgmma", "SIMT", "row chain", "elementwise", "columns", "windows"])
def test_the_cheapest_row_of_all_rules_is_applied(name: str) -> None:
    args, target = PROGRAMS[name]
    for choice in plan_of(te.create_prim_func(args), Target(target)).choices:
        assert all(choice.winner.least <= rival.least for rival in choice.rivals)
        asked = {choice.winner.rule.name, *choice.refused, *(o.rule.name for o in choice.rivals)}
        assert asked == {rule.name for rule in GPU}


def test_a_target_gets_the_rules_whose_needs_it_has() -> None:
    names = {target: {r.name for r in rules_of(Target(target))} for target in (H200, A100, T4, "opencl")}
    assert names[H200] == {r.name for r in ALL}
    assert names[H200] - names[A100] == {
        "wgmma", "SIMT with TMA", "im2col wgmma", "im2col lines wgmma", "im2col SIMT with TMA", *EARLY,
    }  # fmt: skip
    assert names[A100] - names[T4] == {"SIMT", "im2col SIMT"}
    assert names[T4] - names["opencl"] == {"mma", "dp4a", "im2col mma", "im2col dp4a"}


def test_rules_can_do_without_shared_memory() -> None:
    func = te.create_prim_func(product(64, 64, 64))
    plan = plan_of(func, Target(A100), lacking=("shared_memory",))
    (choice,) = plan.choices
    assert choice.winner.rule.name == "plain" and "shared" not in str(plan.sch.mod)
    assert choice.refused["SIMT"].why == "the target has no shared_memory"


def test_a_margin_counts_where_rules_are_compared_and_not_in_the_time() -> None:
    """64 x 64 x 64: the tile in shared memory is predicted to be faster, and competes with a margin."""
    sch = tvm.auto_schedule(product(64, 64, 64), A100)
    (told,) = sch.explanation.records
    assert told["rule"] == "SIMT" and told["rival"]["rule"] == "shared tile"
    assert told["rival"]["predicted_us"] < told["predicted_us"] and told["rival"]["times"] < 1
    assert told["rival"]["why"].startswith("but estimates of its kind are not comparable yet")
    other = plan_of(te.create_prim_func(product(64, 64, 64)), Target(A100), forced={0: "shared tile"})
    (choice,) = other.choices
    assert choice.row.seconds > choice.row.predicted == choice.row.own
    assert choice.row.own == pytest.approx(told["rival"]["predicted_us"] * 1e-6, rel=0.01)
    assert evaluate(choice.winner.table, Target(A100).gpu)["seconds"][0] == choice.row.seconds


def test_a_stage_that_a_primitive_refuses_gets_the_next_best_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Threads) -> None:
        raise ScheduleError("not today")

    monkeypatch.setattr(Threads, "apply", refuse)
    sch = tvm.auto_schedule(product(64, 64, 64), A100)
    (told,) = sch.explanation.records
    assert told["rule"] == "shared tile" and told["instead"] == "not today"
    assert told["refused"]["SIMT"] == "not today"
