"""Rules for accelerators: which stages they take, that every row computes the same, and that costs are cycles."""

from __future__ import annotations

from typing import Any

import chip_programs as programs
import how_many
import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.ir.errors import ScheduleError
from tilewright.target import Target
from tilewright.tune.cost.accelerator import bound_of, evaluate
from tilewright.tune.cost.table import Table
from tilewright.vta.chip import chip
from tilewright.vta.config import Config

LAYERS = {
    "matmul": programs.matmul(4, 4, 4),
    "3x3": programs.conv(14, 4, 4, 3, 1),
    "3x3 stride 2": programs.conv(14, 4, 8, 3, 2),
    "1x1 stride 2": programs.conv(28, 4, 8, 1, 2),
    "1x1 stride 2 of many channels": programs.conv(14, 16, 32, 1, 2),
    "residual": programs.residual(28),
}


def refusal(args: list[Any], rule: str) -> str:
    """The reason that a program's refusal has for a rule."""
    with pytest.raises(ScheduleError) as refused:
        programs.planned(args)
    lines = dict(line.strip().split(": ", 1) for line in str(refused.value).splitlines()[1:])
    return lines[rule]


# ---------------------------------------------------------------------------- refusals
def product(shapes: tuple[int, ...], types: tuple[str, str], swapped: bool = False) -> list[Any]:
    m, n, k = shapes
    a = te.placeholder((2, m, k), types[0], "a")
    w = te.placeholder((2, k, n) if swapped else (2, n, k), types[0], "w")
    ki = te.reduce_axis((0, k), "ki")

    def body(i: Any, b: Any, c: Any) -> Any:
        right = w[i, ki, c] if swapped else w[i, c, ki]
        return te.sum(a[i, b, ki].astype(types[1]) * right.astype(types[1]), axis=[ki])

    return [a, w, te.compute((2, m, n), body, "product")]


def test_the_matrix_unit_has_one_size() -> None:
    why = refusal(product((1, 8, 16), ("int8", "int32")), "matrix")
    assert why == "its innermost axes are 1 x 8 x 16, and the unit multiplies 1 x 16 x 16"


def test_operands_are_packed_in_elements() -> None:
    why = refusal(product((1, 16, 16), ("int8", "int32"), swapped=True), "matrix")
    assert why == "its operands are not packed in elements of the matrix unit"


def test_the_matrix_unit_has_its_types() -> None:
    why = refusal(product((1, 16, 16), ("int16", "int32")), "matrix")
    assert why == "it multiplies int16 by int16 into int32, and the unit int8 by int8 into int32"


def test_the_vector_unit_has_its_type() -> None:
    a = te.placeholder((4, 16), "float32", "a")
    why = refusal([a, te.compute((4, 16), lambda *i: a(*i) + a(*i), "twice")], "vector")
    assert why == "twice computes float32, and the vector unit int32"


def test_lanes_are_those_of_an_element() -> None:
    a = te.placeholder((4, 12), "int32", "a")
    why = refusal([a, te.compute((4, 12), lambda *i: a(*i) + a(*i), "twice")], "vector")
    assert why == "its last axes do not have the 16 lanes of an element of local.acc_buffer"


def test_dynamic_sizes() -> None:
    args = programs.matmul(te.var("m"), 2, 2)
    assert refusal(args, "matrix") == "it has no axes of constant size for a product of matrices"


# ---------------------------------------------------------------------------- who wins
def test_products_are_the_matrix_units() -> None:
    choice = programs.planned(programs.matmul())
    assert choice.choices[0].winner.rule.name == "matrix"


@pytest.mark.slow
def test_a_product_of_single_elements() -> None:
    check_rows(product((1, 16, 16), ("int8", "int32")), lambda stage: range(len(stage)))


def test_a_sum_over_lanes_is_none_of_the_vector_unit() -> None:
    args = product((1, 16, 16), ("int8", "int32"))
    (choice,) = programs.planned(args).choices
    assert choice.winner.rule.name == "matrix" and not choice.rivals
    assert choice.refused["vector"].why == "product does not read a lane by lane"


def test_sums_without_products_are_the_vector_units() -> None:
    (choice,) = programs.planned(programs.residual()).choices
    assert choice.winner.rule.name == "vector"
    assert choice.refused["matrix"].why == "it is not a contraction"


# ---------------------------------------------------------------------------- every row computes the same
def check_rows(args: list[Any], rows: Any) -> None:
    made, arrays = programs.sketches(args), programs.arrays_of(args)
    (stage,) = made.space.stages
    right = programs.reference(args, arrays)
    assert len(np.unique(right)) > 4
    for row in rows(stage):
        decision = stage.decision(int(row))
        got, counted = programs.simulated(made.apply([decision]).mod, arrays)
        np.testing.assert_array_equal(got, right, err_msg=str(decision))
        assert counted.cycles > 0


@pytest.mark.slow
def test_every_row_of_a_small_product_is_right() -> None:
    check_rows(programs.matmul(2, 2, 2), lambda stage: range(0, len(stage), how_many.share))


@pytest.mark.parametrize(
    "args",
    [programs.conv(4, 2, 2, 3, 1), programs.conv(8, 2, 4, 1, 2), programs.residual(4)],
    ids=["3x3", "1x1 stride 2", "residual"],
)
@pytest.mark.slow
def test_rows_are_right(args: list[Any]) -> None:
    check_rows(
        args, lambda stage: np.random.default_rng(0).choice(len(stage), how_many.examples(24), replace=False)
    )


# ---------------------------------------------------------------------------- costs
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.slow
def test_the_predicted_cycles_of_the_choice(name: str) -> None:
    args = LAYERS[name]
    plan = programs.planned(args)
    _, counted = programs.simulated(plan.sch.mod, programs.arrays_of(args))
    assert plan.choices[0].row.figures["cycles"] == pytest.approx(counted.cycles, rel=0.02)


@pytest.mark.parametrize(
    ("name", "least"), [("3x3", 0.95), ("1x1 stride 2", 0.92), ("1x1 stride 2 of many channels", 0.92)]
)
def test_the_compute_engine_is_busy(name: str, least: float) -> None:
    args = LAYERS[name]
    _, counted = programs.simulated(programs.planned(args).sch.mod, programs.arrays_of(args))
    assert counted.busy["compute"] / counted.cycles > least


@pytest.mark.slow
def test_the_choice_is_hardly_beaten_by_others() -> None:
    args = LAYERS["1x1 stride 2"]
    made, arrays = programs.sketches(args), programs.arrays_of(args)
    (stage,) = made.space.stages
    _, mine = programs.simulated(made.apply().mod, arrays)
    others = np.argsort(stage.seconds, kind="stable")[1:13]
    cycles = [programs.simulated(made.apply([stage.decision(int(r))]).mod, arrays)[1].cycles for r in others]
    assert mine.cycles <= 1.02 * min(cycles)


def seconds(**counts: float) -> float:
    table = Table((), np.zeros((1, 0)), {k: np.array([v]) for k, v in counts.items()})
    return float(evaluate(table, chip(Config()))["seconds"][0])


def test_the_longest_engine_counts() -> None:
    cycle = 1 / chip(Config()).clock
    assert seconds(compute=100, exposed=20, load=60, store=50, first=7, last=5) == pytest.approx(132 * cycle)
    # the last store is not hidden, and takes nothing from others
    assert seconds(compute=100, load=90, store=50, first=7, last=5) == pytest.approx(140 * cycle)
    assert seconds(compute=100, loading=200, storing=50, last=5, rest=3) == pytest.approx(208 * cycle)
    assert seconds(compute=100, left=1.0) == pytest.approx(1 + 100 * cycle)


def test_the_cause_that_takes_longest() -> None:
    assert bound_of({"cycles": 9.0, "for arithmetic": 1.0, "for the DRAM port": 2.0}) == "the DRAM port"


def test_a_slower_port_is_another_choice() -> None:
    func = te.create_prim_func(LAYERS["1x1 stride 2 of many channels"])
    fast, slow = (
        tvm.auto_schedule(func, f"ext_dev -machine=DRAM_BYTES_PER_CYCLE:{n}").explanation.records[0]
        for n in (64, 1)
    )
    assert fast["bound"] == "arithmetic" and slow["bound"] in ("the DRAM port", "DMA engines")
    assert sum(slow["loaded_bytes"].values()) < sum(fast["loaded_bytes"].values())


# ---------------------------------------------------------------------------- damaged decisions
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"tile0": 3}, "matrix has no such row for product: .*'tile0': 3"),
        ({"tile0": 0}, "matrix has no such row for product: .*'tile0': 0"),
        ({"threads": 3}, "matrix has no such row for product: .*'threads': 3"),
        ({"axis": 7}, "matrix has no such row for product: .*'axis': 7"),
        ({"versions": 9}, "matrix has no such row for product: .*'versions': 9"),
        ({"tile0": 2, "threads": 2, "axis": 0}, "matrix has no such row for product: .*'tile0': 2"),
        ({"rule": "vectors"}, "names the rule 'vectors'; there are matrix, vector"),
    ],
)
def test_damaged_decisions(change: dict[str, Any], why: str) -> None:
    made = programs.sketches(programs.matmul())
    (decision,) = made.space.decisions(made.space.default)
    with pytest.raises(ScheduleError, match=why):
        made.apply([{**decision, **change}])


@pytest.mark.parametrize("change", [{"tile0": 3}, {"threads": 3}, {"axis": 9}, {"versions": 3}])
def test_damaged_decisions_for_the_vector_unit(change: dict[str, Any]) -> None:
    x = te.placeholder((2, 4, 1, 16), "int32", name="x")
    made = programs.sketches([x, te.compute((2, 4, 1, 16), lambda *i: x(*i) + 1, name="y")])
    (decision,) = made.space.decisions(made.space.default)
    with pytest.raises(ScheduleError, match="vector has no such row for y: "):
        made.apply([{**decision, **change}])


def test_a_decision_without_a_column() -> None:
    made = programs.sketches(programs.matmul())
    (decision,) = made.space.decisions(made.space.default)
    del decision["resident"]
    with pytest.raises(ScheduleError, match="damaged: 'resident'"):
        made.apply([decision])


# ---------------------------------------------------------------------------- explain()
def test_the_explanation_of_a_product() -> None:
    notes = programs.planned(programs.conv(28, 4, 8, 1, 2)).sch.explanation
    record = notes.records[0]
    assert record["work"] == {"products": 4 * 8 * 14 * 14, "vectors": 3 * 8 * 14 * 14}
    assert record["stored_bytes"] == 8 * 14 * 14 * 16
    assert record["loaded_bytes"]["wgt"] % (4 * 8 * 256) == 0
    for used, there in record["held_bytes"].values():
        assert 0 < used <= there
    assert 0.9 < record["busy"] <= 1
    text = str(notes)
    assert "  memories       inp " in text and " of 32.0 KiB, wgt " in text
    assert f"  predicted      {record['cycles']:,} cycles, " in text
    assert f"; bound by {record['bound']}" in text


def test_the_configuration_of_a_target() -> None:
    assert Target("ext_dev -machine=LOG_BLOCK:5").accelerator.matrix_units[0].shape == (1, 32, 32)
    with pytest.raises(tvm.TVMError, match="-machine has keys of a configuration with whole numbers"):
        _ = Target("ext_dev -machine=LOG_BLOCK:large").accelerator
