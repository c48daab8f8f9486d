"""The rule `SIMT`: float32 products in register tiles, whose operands threads copy asynchronously."""

from __future__ import annotations

import numpy as np
from gpu_rule_checks import SlowRuleTests, asked, forced
from gpu_rule_programs import A100, H200, T4, product

import tilewright as tvm
from tilewright import te, tir, topi


class TestSIMT(SlowRuleTests):
    rule = "SIMT"
    program = product(64, 64, 32), A100
    wins = [(product(512, 512, 512), A100), (product(500, 500, 501), H200), (product(8, 29, 1800), H200)]
    loses = [(product(512, 512, 512), H200, "SIMT with TMA")]
    refuses = [
        (product(512, 512, 512), T4, "the target has no cp.async"),
        (product(8, 29, 255), A100, "there are too few results for tiles in registers"),
        (product(32, 8, 32), A100, "there are too few results for tiles in registers"),
        (product(512, 512, 512, "int8"), A100, "it does not multiply int8"),
    ]


def rows_of_any_number(wide: int, deep: int) -> list[te.Tensor]:
    a = te.placeholder((te.size_var("n"), deep), name="A")
    b = te.placeholder((wide, deep), name="B")
    return [a, b, topi.nn.relu(topi.nn.dense(a, b))]


def test_the_number_of_rows_may_be_dynamic() -> None:
    plan = forced("SIMT", rows_of_any_number(64, 16), A100)
    for n in (5, 33):
        rng = np.random.default_rng(n)
        a, b = rng.standard_normal((n, 16), "float32"), rng.standard_normal((64, 16), "float32")
        found = np.zeros((n, 64), "float32")
        tir.interpret(plan.sch.mod["main"], a, b, found)
        np.testing.assert_allclose(found, np.maximum(a @ b.T, 0), rtol=1e-4, atol=1e-4)
    assert asked(rows_of_any_number(512, 512), A100).best == "SIMT"


def test_copies_of_dynamic_rows_have_addresses_of_64_bits() -> None:
    plan = forced("SIMT", rows_of_any_number(64, 16), A100)
    source = tvm.build(plan.sch.mod, target=A100).imported_modules[0].get_source()
    copies = [line for line in source.splitlines() if "tw_copy_or_zero<" in line and ", A + " in line]
    assert copies and not any("(int)" in line for line in copies)
