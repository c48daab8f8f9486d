"""Rules for GPUs together: each has its file of tests, the cheapest row wins, a refusal gives way to the next one."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from gpu_rule_checks import RuleTests
from gpu_rule_programs import A100, H200, T4, depthwise, product, softmax, total

import tilewright as tvm
from tilewright import te
from tilewright.ir.errors import ScheduleError
from tilewright.target import Target
from tilewright.tune.cost.gpu import evaluate
from tilewright.tune.plan import plan_of
from tilewright.tune.rules import Refusal, rules_of
from tilewright.tune.rules.gpu import EARLY, GPU
from tilewright.tune.rules.gpu.simt import Threads

ALL = (*EARLY, *GPU)


def test_every_rule_has_a_file_of_tests() -> None:
    names = [rule.name for rule in ALL]
    modules = [importlib.import_module(p.stem) for p in sorted(Path(__file__).parent.glob("test_rule_*.py"))]
    tested = [
        c.rule
        for m in modules
        for c in vars(m).values()
        if isinstance(c, type) and issubclass(c, RuleTests) and c.__module__ == m.__name__
    ]
    assert len(set(names)) == len(names) and sorted(tested) == sorted(names)


@pytest.mark.parametrize(
    ("args", "target"),
    [
        (product(64, 64, 64, "float16"), H200),
        (product(64, 64, 32), A100),
        (softmax(16, 64), A100),
        (total(64, 32, axis=0), A100),
        (depthwise(), A100),
    ],
)
def test_the_cheapest_row_of_all_rules_is_applied(args: list[Any], target: str) -> None:
    for choice in plan_of(te.create_prim_func(args), Target(target)).choices:
        assert all(choice.winner.least <= rival.least for rival in choice.rivals)
        rules = {choice.winner.rule.name, *choice.refused, *(o.rule.name for o in choice.rivals)}
        assert rules == {rule.name for rule in GPU}


def test_a_target_gets_the_rules_whose_needs_it_has() -> None:
    names = {target: {r.name for r in rules_of(Target(target))} for target in (H200, A100, T4, "opencl")}
    assert names[H200] == {r.name for r in ALL}
    assert names[H200] - names[A100] == {
        "wgmma", "SIMT with TMA", "im2col wgmma", "im2col lines wgmma", "im2col SIMT with TMA",
        "attention",
    }  # fmt: skip
    assert names[A100] - names[T4] == {"SIMT", "im2col SIMT", "gathered mma"}
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


def test_the_steps_of_a_rule_that_refuses_while_it_is_applied_are_undone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: Threads) -> Refusal:
        self.sch.cache_read(self.block, 0, "local")
        return Refusal("not today either")

    monkeypatch.setattr(Threads, "apply", refuse)
    sch = tvm.auto_schedule(product(64, 64, 64), A100)
    (told,) = sch.explanation.records
    assert told["rule"] == "shared tile" and told["refused"]["SIMT"] == "not today either"
    assert "a_local" not in str(sch.mod)
