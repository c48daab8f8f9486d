"""The tests that every rule for GPUs has, in a class that the file of each rule derives from.

class TestColumns(RuleTests):
    rule = "columns"
    program = rows(f, 64, 32), A100                      a small program, which the interpreter runs
    wins = [(rows(f, 4096, 1000), A100)]                 where its best row is the cheapest of all
    loses = [(rows(f, 4096, 1000), A100, "rows")]        where the best row of another rule is
    refuses = [(rows(f, 8, 1000), A100, "a reason")]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from how_many import examples

import tilewright as tvm
from tilewright import te, tir
from tilewright.target import Target
from tilewright.tune.cost.gpu import seconds
from tilewright.tune.explain import Explanation
from tilewright.tune.plan import Plan, plan_of
from tilewright.tune.program.stages import Stage, Stages
from tilewright.tune.rules import Match, Refusal, rules_of
from tilewright.tune.rules.gpu import EARLY, GPU
from tilewright.tune.space import Sketches
from tilewright.tune.workload import task_of

Program = tuple[list[Any], str]  # tensors, and a target


@dataclass
class Asked:
    """The answers of all rules about the first stage of a program: predicted times in microseconds, or reasons."""

    times: dict[str, float]
    why: dict[str, str]

    @property
    def best(self) -> str:
        return min(self.times, key=self.times.__getitem__)


def asked(args: list[Any], target: str) -> Asked:
    """Ask all rules about the first stage that would be scheduled, and the early ones about the last product. Nothing
    is scheduled."""
    program = stages_of(args, target)
    plan, times, why = Plan(program), {}, {}

    def ask(stage: Stage, early: bool) -> None:
        offers, refused = plan.offers(stage, 0, early)
        times.update({o.rule.name: o.least * 1e6 for o in offers})
        why.update({name: no.why for name, no in refused.items()})

    def ask_early() -> None:
        products = [f for f in program.stages() if f.kind == "reduction"]
        for f in products[-1:]:
            ask(Stage(program, f, (f,)), True)

    assert program.begin(ask_early)
    ask(program.next_stages(program.stages())[0], False)
    return Asked(times, why)


def stages_of(args: list[Any], target: str) -> Stages:
    """The stages of a program, none of them scheduled."""
    func = te.create_prim_func(args)
    return Stages(tir.Schedule(func), func, Target(target), Explanation(""), frozenset())


def forced(rule: str, args: list[Any], target: str) -> Plan:
    """The plan of a program whose first stage one rule schedules."""
    plan = plan_of(te.create_prim_func(args), Target(target), forced={0: rule})
    assert [c.winner.rule.name for c in plan.choices[:1]] == [rule]
    return plan


def decisions_of(plan: Plan) -> list[dict[str, Any]]:
    return [{"stage": c.stage.name, "rule": c.winner.rule.name, **c.row.values} for c in plan.choices]


def check_rows(rule: str, args: list[Any], target: str, count: int = 1) -> None:
    """Check that some rows of a rule compute the program's result, thread by thread."""
    plan, sketches = forced(rule, args, target), Sketches(task_of(args, target))
    first, *others = decisions_of(plan)
    table = plan.choices[0].winner.table.whole()
    for row in np.random.default_rng(len(rule)).choice(len(table), min(len(table), count), replace=False):
        decided = {**first, **table.values(int(row))}
        assert sketches.apply([decided, *others]).verify(), decided


def check_on_opencl(rule: str, args: list[Any], *arrays: Any) -> None:
    """Check that an OpenCL device computes with a rule's kernels what the interpreter computes from `arrays`."""
    want = [*arrays, np.zeros([int(n) for n in args[-1].shape], args[-1].dtype)]
    got = [tvm.nd.array(a, tvm.opencl(0)) for a in want]
    tvm.build(forced(rule, args, "opencl").sch.mod, target="opencl")(*got)
    tir.interpret(te.create_prim_func(args), *want)
    np.testing.assert_allclose(got[-1].numpy(), want[-1], 1e-4, 1e-4)


def check_nvrtc(rule: str, args: list[Any], arch: str) -> None:
    """Check that NVRTC compiles a rule's kernels."""
    from tilewright.runtime.cuda_driver import compile_cubin

    mod = tvm.build(forced(rule, args, f"cuda -arch={arch}").sch.mod, target=f"cuda -arch={arch}")
    assert len(compile_cubin(mod.imported_modules[0].get_source(), {"arch": arch})) > 1000


class RuleTests:
    """The tests of a rule, whose file gives the programs."""

    rule: ClassVar[str]
    program: ClassVar[Program]
    wins: ClassVar[list[Program]] = []
    loses: ClassVar[list[tuple[list[Any], str, str]]] = []
    refuses: ClassVar[list[tuple[list[Any], str, str]]] = []
    computes: ClassVar[list[Program]] = []  # further programs that the interpreter runs
    rows = 3  # of the table that it runs

    def test_to_ask_it_changes_nothing(self) -> None:
        args, target = self.program
        program, rule = stages_of(args, target), next(r for r in (*EARLY, *GPU) if r.name == self.rule)

        def ask(stage: Stage) -> Match | Refusal:
            before, done = program.sch.mod, set(program.done)
            match = rule.match(stage, program.target)
            if isinstance(match, Match):
                table = rule.table(match, program.target.gpu)
                assert len(table) and (seconds(table, program.target.gpu) > 0).all()
                one = rule.table(match, program.target.gpu, table.values(len(table) - 1))
                assert one.points.tolist() == table.points[-1:].tolist()
                whole = table.whole()
                assert all((whole.points == row).all(axis=1).sum() == 1 for row in table.points)
            assert program.sch.mod is before and program.done == done
            return match

        answers: list[Match | Refusal] = []

        def ask_early() -> None:
            reductions = [f for f in program.stages() if f.kind == "reduction"]
            answers.extend(ask(Stage(program, f, (f,))) for f in reductions if rule in EARLY)

        assert program.begin(ask_early)
        if rule not in EARLY:
            answers.extend(map(ask, program.next_stages(program.stages())))
        assert any(isinstance(answer, Match) for answer in answers)

    def test_it_can_be_forced_and_replayed(self) -> None:
        plan = forced(self.rule, *self.program)
        again = Sketches(task_of(*self.program)).apply(decisions_of(plan))
        assert str(again.mod) == str(plan.sch.mod)

    def test_its_rows_compute_the_result(self) -> None:
        """Some rows, more of them in long runs."""
        check_rows(self.rule, *self.program, examples(self.rows))

    @pytest.mark.slow
    def test_it_computes_the_result_of_further_programs(self) -> None:
        for args, target in self.computes:
            check_rows(self.rule, args, target)

    def test_it_wins(self) -> None:
        for args, target in self.wins:
            rules = asked(args, target)
            assert rules.best == self.rule, (args, target, rules)

    def test_it_loses(self) -> None:
        for args, target, winner in self.loses:
            rules = asked(args, target)
            assert rules.best == winner and self.rule in rules.times, (args, target, rules)

    def test_it_says_why_not(self) -> None:
        assert self.refuses
        for args, target, why in self.refuses:
            assert asked(args, target).why.get(self.rule) == why, (args, target)
            assert not why.endswith(".")

    def test_targets_without_what_it_needs_do_not_get_it(self) -> None:
        rule = next(r for r in (*EARLY, *GPU) if r.name == self.rule)
        assert rule in rules_of(Target(self.program[1]))
        for target in map(Target, ("cuda -arch=sm_75", "opencl")):
            lacking = {x for x in rule.needs if x != "shared_memory" and not target.has(x)}
            assert (rule in rules_of(target)) == (not lacking)


class SlowRuleTests(RuleTests):
    """The tests of a rule whose kernels have long traces and hundreds of threads: the interpreter takes seconds."""

    rows = 1

    @pytest.mark.slow
    def test_it_can_be_forced_and_replayed(self) -> None:
        super().test_it_can_be_forced_and_replayed()

    @pytest.mark.slow
    def test_its_rows_compute_the_result(self) -> None:
        super().test_its_rows_compute_the_result()
