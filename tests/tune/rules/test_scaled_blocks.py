"""Products with quantized weights on CPUs: the weights become floats in registers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from word_programs import blockwise, data

import tilewright as tvm
from tilewright import te, tir, topi
from tilewright.ir.expr import Var
from tilewright.tune.constants import split_constants
from tilewright.tune.explain import Explanation
from tilewright.tune.plan import Choice, Plan, plan_of
from tilewright.tune.program.stages import Stages

X86 = "llvm -mtriple=x86_64-linux-gnu -num-cores=2 -mcpu="
WEIGHTS = ("w", "s", "z")


def choice(func: Any, target: str = X86 + "znver4", constants: tuple[str, ...] = WEIGHTS) -> Choice:
    return plan_of(func, tvm.target.Target(target), constants).choices[0]


@pytest.mark.parametrize("m", [1, 4, 128])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("target", [X86 + "znver5", X86 + "haswell"])
def test_wins_where_the_weights_come_from_memory(m: int, bits: int, target: str) -> None:
    found = choice(blockwise(m, 4096, 4096, 32, bits, inlined=False), target)
    rules = {o.rule.name: o.least for o in (found.winner, *found.rivals)}
    assert "tile" in rules
    assert found.winner.rule.name == "scaled blocks"
    if m < 8:
        assert rules["tile"] > 2 * rules["scaled blocks"]


def test_the_inner_loop_shifts_masks_and_converts() -> None:
    """Three instructions for a vector of weights, and multiply-adds; nothing is stored."""
    func, target = blockwise(1, 256, 256, 32, inlined=False), tvm.target.Target(X86 + "znver4")
    made = plan_of(func, target, WEIGHTS, forced={0: "scaled blocks"}).sch.mod["main"]
    _, rest, _ = split_constants(made, frozenset(WEIGHTS))
    lines = tvm.build(rest, target=target).get_source("asm").splitlines()
    loop = [line.split()[0] for line in lines if "zmm" in line]
    converted = loop.count("vcvtdq2ps")
    assert converted >= 8
    assert loop.count("vpandd") + loop.count("vpandq") <= converted
    assert loop.count("vpsrld") <= converted
    assert not {"vpmulld", "vpgatherdd", "vpmovzxbd"} & set(loop)


@pytest.mark.parametrize(("mcpu", "dots"), [("znver5", 8), ("neoverse-n2", 8), ("haswell", 0)])
def test_data_of_8_bits_is_multiplied_by_dot_products(mcpu: str, dots: int) -> None:
    """Two for a word of eight integers of 4 bits, where a processor has them; nothing becomes a float in the loop."""
    triple = "aarch64" if mcpu.startswith("neoverse") else "x86_64"
    target = tvm.target.Target(f"llvm -mtriple={triple}-linux-gnu -num-cores=2 -mcpu={mcpu}")
    plan = plan_of(
        blockwise(1, 256, 256, 32, inlined=False, rounded=True), target, WEIGHTS, forced={0: "scaled blocks"}
    )
    text = str(plan.sch.mod["main"])
    assert ("dp4a" in text) == bool(dots)
    _, rest, _ = split_constants(plan.sch.mod["main"], frozenset(WEIGHTS))
    asm = tvm.build(rest, target=target).get_source("asm")
    assert len(re.findall(r"\b(vpdpbusd|usdot)\b", asm)) >= dots


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize(
    ("m", "n", "k", "block", "bits", "zeros"),
    [(1, 40, 64, 32, 4, True), (5, 17, 64, 16, 4, False), (3, 33, 64, 64, 8, True), (2, 16, 64, 16, 2, True)],
)
@pytest.mark.slow
def test_every_row_computes_what_the_program_says(
    m: int, n: int, k: int, block: int, bits: int, zeros: bool, rounded: bool
) -> None:
    func = blockwise(m, n, k, block, bits, zeros, inlined=False, rounded=rounded)
    want = data(func)
    tir.interpret(func, *want)
    names = tuple(b.name for b in func.buffer_map.values() if b.name in WEIGHTS)
    offer = plan_of(func, tvm.target.Target("llvm"), names, forced={0: "scaled blocks"}).choices[0].winner
    count = len(offer.table)
    for row in [*range(0, count, max(1, count // 2)), count - 1]:
        made = scheduled(func, names, [{"rule": "scaled blocks", **offer.table.values(row)}])
        got = [tvm.nd.array(x) for x in data(func)]
        tvm.build(made, target="llvm")(*got)
        np.testing.assert_allclose(got[-1].numpy(), want[-1], rtol=1e-4, atol=1e-4 * np.abs(want[-1]).max())


def scheduled(func: Any, constants: tuple[str, ...], decisions: list[dict[str, Any]]) -> tvm.IRModule:
    """The function by given decisions."""
    target = tvm.target.Target("llvm")
    sch = tir.Schedule(tvm.IRModule({"main": func}))
    sch.work_on("main")
    sch.explanation = Explanation(str(target))
    stages = Stages(sch, func, target, sch.explanation, frozenset(constants))
    Plan(stages, decisions=[{**d, "stage": "C"} for d in decisions]).run()
    return sch.mod


@pytest.mark.slow
def test_rows_of_a_dynamic_number() -> None:
    rows = Var("rows", "int32")
    long = choice(blockwise(rows, 4096, 4096, 32, inlined=False))
    assert long.winner.rule.name == "scaled blocks"  # there may be one row only
    func = blockwise(rows, 40, 64, 16, inlined=False)
    made = plan_of(func, tvm.target.Target("llvm"), WEIGHTS, forced={0: "scaled blocks"})
    built = tvm.build(made.sch.mod, target="llvm")
    for m in (1, 3, 8, 21):
        known = data(blockwise(m, 40, 64, 16, inlined=False), seed=m)
        got = [tvm.nd.array(x) for x in known]
        tir.interpret(blockwise(m, 40, 64, 16), *known)
        built(*got)
        np.testing.assert_allclose(got[-1].numpy(), known[-1], rtol=1e-4, atol=1e-4 * np.abs(known[-1]).max())


def test_an_epilogue_takes_the_results_from_registers() -> None:
    x, w = te.placeholder((2, 64), name="x"), te.placeholder((32, 32), "uint8", name="w")
    s, z, b = (te.placeholder(shape, name=n) for n, shape in (("s", (32, 2)), ("z", ()), ("b", (32,))))
    out = topi.nn.relu(topi.nn.blockwise_dense(x, w, s, z) + b)
    func = te.create_prim_func([x, w, s, z, b, out])
    plan = plan_of(func, tvm.target.Target("llvm"), WEIGHTS, forced={0: "scaled blocks"})
    (record, *_) = [r for r in plan.program.notes.records if "fused_after" in r]
    assert record["fused_after"] is not None
    want = data(func)
    got = [tvm.nd.array(v) for v in want]
    tir.interpret(func, *want)
    tvm.build(plan.sch.mod, target="llvm")(*got)
    np.testing.assert_allclose(got[-1].numpy(), want[-1], rtol=1e-4, atol=1e-3)


def test_refusals() -> None:
    plain = te.create_prim_func(
        [x := te.placeholder((4, 64), name="x"), w := te.placeholder((8, 64), name="w"), topi.nn.dense(x, w)]
    )
    assert choice(plain, constants=()).refused["scaled blocks"].why == (
        "its factors have no scale for each block of steps"
    )
    short = choice(blockwise(2, 16, 48, 12, inlined=False))
    assert short.refused["scaled blocks"].why == "blocks of 12 steps are no whole words"
