"""The rule `mma`: products on the tensor cores of any architecture."""

from __future__ import annotations

import numpy as np
from gpu_rule_checks import SlowRuleTests, asked, forced
from gpu_rule_programs import A100, H200, OPENCL, T4, product

from tilewright import te, tir, topi


class TestMma(SlowRuleTests):
    rule = "mma"
    program = product(64, 64, 64, "float16"), A100
    wins = [
        (product(512, 512, 512, "float16"), A100),
        (product(512, 512, 512, "float16"), T4),
        (product(512, 512, 512, "int8"), H200),
    ]
    loses = [(product(512, 512, 512, "float16"), H200, "wgmma")]
    refuses = [
        (product(512, 512, 512, "float16"), OPENCL, "the target has no mma.f16"),
        (product(512, 512, 512), A100, "the target does not let float32 be rounded: cuda -tf32=1 does"),
        (product(512, 512, 512), T4, "sm_75 has no `mma` for float32"),
        (product(1, 512, 512, "float16"), A100, "it is the product of a matrix with a few vectors"),
    ]
    computes = [(product(20, 24, 40, "float16"), A100)]  # padded


def test_the_number_of_rows_may_be_dynamic() -> None:
    a = te.placeholder((te.size_var("n"), 64), name="A", dtype="float16")
    b = te.placeholder((64, 64), name="B", dtype="float16")
    c = topi.cast(topi.nn.relu(topi.nn.dense(a, b, out_dtype="float32")), "float16")
    plan = forced("mma", [a, b, c], A100)
    for n in (5, 40):
        rng = np.random.default_rng(n)
        x, y = (rng.standard_normal(shape).astype("float16") for shape in ((n, 64), (64, 64)))
        found = np.zeros((n, 64), "float16")
        tir.interpret(plan.sch.mod["main"], x, y, found)
        wanted = np.maximum(x.astype("float32") @ y.astype("float32").T, 0)
        np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-2)
    assert asked([a, b, c], A100).best == "mma"
