"""Facts about programs that are not scheduled yet: those that a match counts with are those that `apply` will find."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tilewright import te, tir, topi
from tilewright.target import Target
from tilewright.tune.plan import plan_of
from tilewright.tune.program.facts import Facts, divided, facts_of, with_fused_axes, with_split_axes
from tilewright.tune.rules.gpu.rows import joined_axes


def block_of(args: list[Any], name: str) -> tuple[tir.Schedule, Facts]:
    sch = tir.Schedule(te.create_prim_func(args))
    return sch, facts_of(sch, sch.get_block(name))


def shape_of(f: Facts) -> list[Any]:
    """The extents and kinds of the axes, and the strides of each access along them."""
    axes = [(a.extent, a.known, a.reduce) for a in f.axes]
    return [axes, *([r.buffer.name, [r.stride(a) for a in f.axes]] for r in f.accesses)]


@pytest.mark.parametrize("count", [2, 3])
def test_fused_axes(count: int) -> None:
    x = te.placeholder((2, 3, 4, 5), name="x")
    y = te.compute((2, 3, 4, 5), lambda n, c, h, w: x[n, c, h, w] + x[n, c, h, 0], name="y")
    sch, f = block_of([x, y], "y")
    ahead = with_fused_axes(f, count)
    sch.transform_block_layout(f.rv, joined_axes([a.extent for a in f.axes[-count:]]))
    assert shape_of(ahead) == shape_of(facts_of(sch, f.rv))
    assert ahead.axes[-1].extent == math.prod(a.extent for a in f.axes[-count:])


def test_fused_axes_of_a_reduction() -> None:
    x = te.placeholder((6, 7, 9), name="x")
    sch, f = block_of([x, topi.sum(x, axis=(1, 2))], "T_sum")
    ahead = with_fused_axes(f, 2)
    sch.transform_block_layout(f.rv, joined_axes([7, 9]))
    assert shape_of(ahead) == shape_of(facts_of(sch, f.rv))


def test_split_axes() -> None:
    x, m = te.placeholder((2, 12, 5), name="x"), te.placeholder((2, 3), name="m")
    y = te.compute((2, 12, 5), lambda n, c, h: x[n, c, h] - m[n, c // 4], name="y")
    sch, f = block_of([x, m, y], "y")
    ahead = with_split_axes(f, [1, 4, 1])
    sch.transform_block_layout(f.rv, divided([1, 4, 1]))
    assert shape_of(ahead) == shape_of(facts_of(sch, f.rv))
    assert [str(i) for i in ahead.reads[1].indices][1].endswith("_0")  # m[n, c // 4] is m[n, group]


def norm(shape: tuple[int, ...], axes: list[int]) -> list[Any]:
    x = te.placeholder(shape, name="x")
    g = te.placeholder([shape[a] for a in axes], name="g")
    return [x, g, topi.nn.layer_norm(x, g, g, axis=axes)]


def groups() -> list[Any]:
    x, g = te.placeholder((2, 32, 6, 6), name="x"), te.placeholder((32,), name="g")
    return [x, g, topi.nn.group_norm(x, g, g, 4, 1, [2, 3])]


def over(f: Any, *shape: Any) -> list[Any]:
    x = te.placeholder(shape, name="x")
    return [x, f(x)]


PROGRAMS = {
    "softmax": over(topi.nn.softmax, 4096, 1000),
    "odd softmax": over(topi.nn.softmax, 77, 333),
    "softmax of columns": over(lambda x: topi.nn.softmax(x, axis=0), 500, 96),
    "long softmax": over(topi.nn.softmax, 8, 60000),
    "layer norm": norm((128, 768), [1]),
    "layer norm of two axes": norm((16, 24, 32), [1, 2]),
    "group norm": groups(),
    "sum": over(lambda x: topi.sum(x, axis=1), 100, 1000),
    "sum of two axes": over(lambda x: topi.sum(x, axis=(1, 2)), 30, 14, 14),
    "sum in parts": over(topi.sum, 1024, 1024),
    "sum of outer and inner axes": over(lambda x: topi.sum(x, axis=(0, 2)), 8, 16, 28),
    "dynamic rows": over(lambda x: topi.sum(x, axis=1), te.var("n"), 64),
    "argmax": over(lambda x: topi.argmax(x, axis=1), 64, 1000),
}


@pytest.mark.parametrize("target", ["cuda -arch=sm_80", "cuda -arch=sm_90a"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_thread_blocks_that_are_counted_are_those_of_the_kernel(name: str, target: str) -> None:
    plan = plan_of(te.create_prim_func(PROGRAMS[name]), Target(target))
    choice, told = plan.choices[0], plan.sch.explanation.records
    assert choice.winner.rule.name in ("rows", "row chain")
    (kernel,) = [r for r in told if r.get("stage") == choice.stage.name and "blocks" in r]
    assert choice.winner.table.count("blocks")[0] == kernel["blocks"]
