"""The space of a program: its default is the zero-trial schedule, every row is a schedule that computes the same."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir, topi
from tilewright.ir.equal import structural_equal
from tilewright.ir.errors import ScheduleError
from tilewright.tune.measure.checking import make_inputs, tolerance_of
from tilewright.tune.measure.compare import compare
from tilewright.tune.search.cost_models import AnalyticalModel
from tilewright.tune.search.evolution import evolve
from tilewright.tune.space import Sketches, Structures
from tilewright.tune.workload import stable_key, task_of

TARGET = "llvm -mcpu=skylake-avx512 -num-cores=4"


def matmul(n: int = 64, dtype: str = "float32") -> list[Any]:
    A, B = te.placeholder((n, n), dtype, name="A"), te.placeholder((n, n), dtype, name="B")
    return [A, B, topi.matmul(A, B)]


def conv() -> list[Any]:
    x, w = te.placeholder((1, 8, 14, 14), name="x"), te.placeholder((32, 8, 3, 3), name="w")
    return [x, w, topi.nn.relu(topi.nn.conv2d(x, w, 1, 1, 1))]


def softmax() -> list[Any]:
    x = te.placeholder((64, 512), name="x")
    return [x, topi.nn.softmax(x)]


def two_products() -> list[Any]:
    A, B, C = (te.placeholder((32, 32), name=n) for n in "ABC")
    return [A, B, C, topi.matmul(topi.matmul(A, B), C)]


PROGRAMS = {"matmul": matmul, "conv": conv, "softmax": softmax, "two products": two_products}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_default_is_the_zero_trial_schedule(name: str) -> None:
    task = task_of(PROGRAMS[name](), TARGET)
    sketches = Sketches(task)
    decided = sketches.apply(sketches.space.decisions(sketches.space.default))
    zero = tvm.auto_schedule(task.mod, task.target)
    assert structural_equal(decided.mod, zero.mod)
    assert structural_equal(sketches.apply(None).mod, zero.mod)


def odd_conv(size: int, kernel: int, into: int, out: int, **how: int) -> list[Any]:
    x, w = (
        te.placeholder((1, into, size, size), name="x"),
        te.placeholder((out, into, kernel, kernel), name="w"),
    )
    return [x, w, topi.nn.conv2d(x, w, how.get("stride", 1), kernel // 2, how.get("dilation", 1))]


ODD = {
    "5x5": (lambda: odd_conv(7, 5, 3, 5), 3),
    "fewer products": (lambda: odd_conv(5, 3, 8, 9), 4),
    "strided": (lambda: odd_conv(9, 3, 5, 9, stride=2), 3),
    "dilated": (lambda: odd_conv(9, 3, 4, 6, dilation=2), 3),
    "product": (lambda: matmul(13), 4),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ODD)
def test_candidates_stay_in_bounds_read_what_was_written_and_do_not_race(name: str) -> None:
    """The code that would run, by the interpreter, which looks at every access; sizes that no tile divides."""
    make, count = ODD[name]
    small = "llvm -mcpu=haswell -num-cores=4"  # vectors of 8
    task = task_of(make(), small, constants=("w",) if name != "product" else ())
    sketches, (want, *others) = Sketches(task), (make_inputs(task) for _ in range(count))
    assert isinstance(sketches.space, Structures) == (name == "fewer products")
    tir.interpret(task.func, *want)
    rows = sketches.space.sample(np.random.default_rng(3), count - 1)
    for candidate, got in zip([*sketches.space.beginnings[1:], *rows], others, strict=False):
        got[-1][...] = np.nan
        with task.target:
            code = tvm.lower(sketches.apply(sketches.space.decisions(candidate)).mod)
        tir.interpret(code, *got, outputs=[task.buffers[-1][1].name])
        assert compare(got[-1], want[-1], tolerance_of(task.func)) == ""


@pytest.mark.parametrize("name", PROGRAMS)
def test_decisions_and_rows_are_the_same_thing(name: str) -> None:
    space = Sketches(task_of(PROGRAMS[name](), TARGET)).space
    for rows in space.sample(np.random.default_rng(1), 20):
        found = space.rows(space.decisions(rows))
        assert found is not None and (found == rows).all()


def test_decisions_of_another_program_are_none_of_this_space() -> None:
    space, other = (Sketches(task_of(f(), TARGET)).space for f in (matmul, softmax))
    assert space.rows(other.decisions(other.default)) is None
    with pytest.raises(tvm.TVMError, match="the decision is for T_softmax_norm, and the stage is T_matmul"):
        Sketches(task_of(matmul(), TARGET)).apply(other.decisions(other.default))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["matmul", "conv", "two products"])
def test_candidates_compute_what_the_program_computes(name: str) -> None:
    task = task_of(PROGRAMS[name](), TARGET)
    sketches = Sketches(task)
    rng = np.random.default_rng(7)
    for rows in sketches.space.sample(rng, 2):
        sch = sketches.apply(sketches.space.decisions(rows))
        assert sch.verify()


def test_mutations_and_crossings_stay_inside_and_change_something() -> None:
    space = Sketches(task_of(conv(), TARGET)).space
    rng = np.random.default_rng(0)
    some = space.sample(rng, 500)
    for made in (space.mutate(rng, some), space.cross(rng, some, space.sample(rng, 500))):
        assert made.shape == some.shape
        assert all(
            made[:, s].min() >= 0 and made[:, s].max() < len(space.stages[s]) for s in range(made.shape[1])
        )
        assert (made != some).any(axis=1).mean() > 0.1


def test_evolution_finds_what_is_best_in_a_large_space() -> None:
    space = Sketches(task_of(two_products(), TARGET)).space
    assert space.size > 10**6
    rng = np.random.default_rng(0)
    found = evolve(space, AnalyticalModel(), rng, space.default[None], 256, 6)
    least = sum(float(s.seconds.min()) for s in space.stages)
    assert space.seconds(found[:1])[0] <= 1.02 * least
    best = found[0].tobytes()
    again = evolve(space, AnalyticalModel(), np.random.default_rng(0), space.default[None], 256, 6, {best})
    assert best not in {row.tobytes() for row in again}


def test_features_have_the_same_columns_for_every_program() -> None:
    spaces = [Sketches(task_of(f(), TARGET)).space for f in PROGRAMS.values()]
    shapes = {s.features(s.default[None]).shape for s in spaces}
    assert len(shapes) == 1
    for s in spaces:
        x = s.features(s.sample(np.random.default_rng(0), 50))
        assert np.isfinite(x).all()


def test_keys_do_not_depend_on_names() -> None:
    first = task_of(matmul(), TARGET).workload
    A, B = te.placeholder((64, 64), name="left"), te.placeholder((64, 64), name="right")
    assert task_of([A, B, topi.matmul(A, B)], TARGET).workload == first
    assert task_of(matmul(65), TARGET).workload != first
    assert task_of(matmul(dtype="float64"), TARGET).workload != first
    assert task_of(matmul(), TARGET, constants=("B",)).workload != first
    func = task_of(matmul(), TARGET).func
    parsed = tvm.script.from_source(func.script())
    assert stable_key(func.without_attr("global_symbol")) == stable_key(parsed.without_attr("global_symbol"))


@pytest.mark.slow
def test_keys_are_the_same_in_every_process() -> None:
    program = (
        "from tilewright import te, topi; from tilewright.tune.workload import task_of; "
        "A, B = te.placeholder((64, 64)), te.placeholder((64, 64)); "
        f"print(task_of([A, B, topi.matmul(A, B)], {TARGET!r}).workload)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    out = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == task_of(matmul(), TARGET).workload


def test_a_task_is_one_function() -> None:
    func = te.create_prim_func(matmul())
    with pytest.raises(tvm.TVMError, match="a task is one function, and this module has 2"):
        task_of(tvm.IRModule({"a": func, "b": func}), TARGET)
    with pytest.raises(tvm.TVMError, match="'Q' is not a parameter; there are A, B, "):
        task_of(func, TARGET, constants=("Q",))


# -- several structures ----------------------------------------------------------------------------
def filtered() -> list[Any]:
    x, w = te.placeholder((1, 32, 12, 12), name="x"), te.placeholder((32, 32, 3, 3), name="w")
    return [x, w, topi.nn.relu(topi.nn.conv2d(x, w, 1, 1, 1))]


@pytest.mark.slow
def test_rules_that_could_be_as_fast_are_searched_too() -> None:
    task = task_of(filtered(), TARGET, constants=("w",))
    sketches = Sketches(task)
    space = sketches.space
    assert isinstance(space, Structures)
    assert {names[0] for names in space.names} == {"tile", "winograd 2"}
    assert structural_equal(sketches.apply(space.decisions(space.default)).mod, sketches.apply().mod)
    rng = np.random.default_rng(0)
    some = space.sample(rng, 12)
    assert set(some[:, 0]) == {0, 1}
    for rows in some:
        assert (space.rows(space.decisions(rows)) == rows).all()
    changed = space.mutate(rng, some)
    assert (changed[:, 0] == some[:, 0]).all() and (changed != some).any()
    crossed = space.cross(rng, some, some[::-1])
    assert (space.seconds(crossed) > 0).all() and (space.effort(crossed) > 0).all()
    assert space.features(crossed).shape == (
        12,
        space.spaces[0].features(space.spaces[0].default[None]).shape[1],
    )
    assert len(space.everything()) == space.size


@pytest.mark.slow
def test_decisions_are_a_rule_and_a_row_for_each_stage() -> None:
    task = task_of(filtered(), TARGET, constants=("w",))
    sketches = Sketches(task)
    space = sketches.space
    for number, names in enumerate(space.names):
        decisions = space.decisions(space.beginnings[number])
        assert decisions is not None and tuple(d["rule"] for d in decisions) == names
        made = sketches.apply(decisions)
        assert ("_product" in made.mod.script()) == (names[0] == "winograd 2")
        # candidates that begin alike share their first steps
        assert structural_equal(made.mod, sketches.apply(decisions).mod)
        assert structural_equal(made.mod, Sketches(task).apply(decisions).mod)
    first = space.decisions(space.default)
    assert first is not None
    for wrong, said in [
        ([{**first[0], "rule": "winograd 3"}], "names the rule 'winograd 3'; there are tile, winograd 2"),
        (
            [{**first[0], "rule": "winograd 4"}],
            "winograd 4 cannot schedule conv2d_nchw as decided: the option",
        ),
        ([{**first[0], "rule": "rows", "bits": 3, "threads": 0}], "rows has no such row for conv2d_nchw"),
        ([{"stage": "conv2d_nchw", "rule": "tile"}], "the decision for conv2d_nchw is damaged"),
        ([{**first[0], "vectors": 0}], "tile has no such row for conv2d_nchw"),
        ([], "there is no decision for the stage conv2d_nchw"),
        ([*first, first[-1]], f"there are {len(first) + 1} decisions for the {len(first)} stages"),
    ]:
        assert space.rows(wrong) is None
        with pytest.raises(ScheduleError, match=said):
            sketches.apply(wrong)


@pytest.mark.parametrize("name", ["softmax", "transpose", "elementwise", "sums"])
def test_every_stage_is_tuned(name: str) -> None:
    """Stages without register tiles have rows too: the width of vectors, and threads."""
    x = te.placeholder((64, 512), name="x")
    made = {
        "softmax": topi.nn.softmax,
        "transpose": topi.transpose,
        "elementwise": topi.exp,
        "sums": topi.sum,
    }
    sketches = Sketches(task_of([x, made[name](x)], TARGET))
    space = sketches.space
    assert space.stages and space.size > 1
    programs = {sketches.apply(space.decisions(rows)).mod.script() for rows in space.everything()[:12]}
    assert len(programs) > 1
