"""Rules that compete: each is asked, none changes anything by being asked, the cheapest row wins, and it is told why."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir, topi
from tilewright.tune.cost.cpu import best_row, evaluate, seconds
from tilewright.tune.cost.table import Table
from tilewright.tune.explain import Explanation
from tilewright.tune.plan import plan_of
from tilewright.tune.program.stages import Stages
from tilewright.tune.rules import CPU, Refusal

TARGET = tvm.target.Target("llvm -mcpu=skylake-avx512 -num-cores=4")


def _programs() -> dict[str, list[Any]]:
    x, y = te.placeholder((96, 128), name="x"), te.placeholder((128, 64), name="y")
    data, kernel = te.placeholder((1, 32, 14, 14), name="data"), te.placeholder((32, 32, 3, 3), name="kernel")
    n = te.var("n")
    open_ = te.placeholder((n, 40), name="open")
    return {
        "product": [x, y, topi.nn.relu(topi.matmul(x, y))],
        "convolution": [data, kernel, topi.nn.relu(topi.nn.conv2d(data, kernel, 1, 1, 1))],
        "softmax": [x, topi.nn.softmax(x)],
        "columns": [x, topi.nn.softmax(x, axis=0)],
        "sum": [x, topi.sum(x)],
        "transpose": [x, topi.transpose(x)],
        "largest": [x, topi.argmax(x, axis=1)],
        "dynamic": [open_, topi.nn.softmax(open_)],
    }


PROGRAMS = _programs()


def function(name: str) -> Any:
    return te.create_prim_func(PROGRAMS[name])


@pytest.mark.parametrize("name", PROGRAMS)
def test_to_ask_a_rule_changes_nothing(name: str) -> None:
    func = function(name)
    sch = tir.Schedule(func)
    program = Stages(sch, func, TARGET, Explanation(""), frozenset(("kernel",) if "conv" in name else ()))
    assert program.begin()
    before, done = sch.mod, set(program.done)
    for stage in program.next_stages(program.stages()):
        answers = [rule.match(stage, TARGET) for rule in CPU]
        for rule, match in zip(CPU, answers, strict=True):
            if isinstance(match, Refusal):
                assert match.why and not match.why.endswith(".")
                continue
            table = rule.table(match, TARGET.cpu)
            assert len(table) and (seconds(table, TARGET.cpu) > 0).all()
            one = rule.table(match, TARGET.cpu, table.values(len(table) - 1))
            assert one.points.tolist() == table.points[-1:].tolist()
        assert not all(isinstance(match, Refusal) for match in answers)
    assert sch.mod is before and program.done == done


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_cheapest_row_of_all_rules_is_applied(name: str) -> None:
    plan = plan_of(function(name), TARGET, ("kernel",) if name == "convolution" else ())
    assert plan.choices
    for choice in plan.choices:
        assert all(choice.winner.least <= rival.least for rival in choice.rivals)
        asked = {choice.winner.rule.name, *choice.refused, *(o.rule.name for o in choice.rivals)}
        assert asked == {rule.name for rule in CPU}


def test_it_is_told_who_lost_and_why() -> None:
    sch = tvm.auto_schedule(function("softmax"), TARGET)
    (told,) = [r for r in sch.explanation.records if "rule" in r]
    assert told["rule"] == "row chain" and set(told["row"]) == {"bits", "threads"}
    assert told["rival"]["rule"] == "apart" and told["rival"]["times"] > 1
    assert told["rival"]["why"] == "more for other stages"
    assert "rival          apart, " in str(sch.explanation)
    assert json.loads(sch.explanation.to_json())["stages"][-1]["rival"] == told["rival"]


def test_two_rules_have_no_name_in_common() -> None:
    assert len({rule.name for rule in CPU}) == len(CPU)


# ---------------------------------------------------------------------------- the cost function
def row(**counts: float) -> Table:
    return Table(("threads",), np.zeros((1, 1), np.int64), {k: np.array([v]) for k, v in counts.items()})


def cycles(**counts: float) -> float:
    return float(evaluate(row(tiles=1, steps=100, **counts), TARGET.cpu)["cycles"][0])


def test_more_of_anything_takes_longer() -> None:
    cpu = TARGET.cpu
    less = {"multiply_adds": 8.0, "near_bytes": 64.0, "near_set": 1024.0, "chained": 1.0}
    for name in ("multiply_adds", "vector_loads", "operations", "stalls", "finish", "near_bytes", "serial"):
        assert cycles(**less) < cycles(**{**less, name: less.get(name, 0) + 1e4}), name
    assert cycles(**less) < cycles(**less, registers=cpu.vector_registers + 1)
    assert cycles(**less, left_operations=10.0) - cycles(**less) == pytest.approx(10.0)
    assert cycles(**less, prior=2.0) == pytest.approx(2 * cycles(**less))


def test_what_is_left_to_others_counts_only_where_rules_are_compared() -> None:
    table = Table(
        ("threads",),
        np.zeros((1, 1), np.int64),
        {"tiles": np.ones(1), "finish": np.full(1, 50.0), "left_operations": np.full(1, 30.0)},
        left=("left_operations",),
    )
    assert evaluate(table, TARGET.cpu)["cycles"][0] == 80
    assert evaluate(table.alone(), TARGET.cpu)["cycles"][0] == 50


def test_threads_must_save_more_than_their_margin() -> None:
    launch = TARGET.cpu.launch_us * 1e3 * TARGET.cpu.clock
    threads = np.array([[0], [1]])
    table = Table(("threads",), threads, {"threads": threads[:, 0], "margin": np.full(2, 2.0)})
    assert best_row(table, TARGET.cpu, {"cycles": np.array([3.0, 1.5]) * launch}) == 0
    assert best_row(table, TARGET.cpu, {"cycles": np.array([4.0, 1.5]) * launch}) == 1
