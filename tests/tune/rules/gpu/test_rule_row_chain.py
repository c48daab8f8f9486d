"""The rule `row chain`: a chain of stages in one kernel, with each row in registers."""

from __future__ import annotations

import numpy as np
from gpu_rule_checks import RuleTests, asked, forced
from gpu_rule_programs import A100, H200, OPENCL, softmax, total

from tilewright import te, tir


class TestRowChain(RuleTests):
    rule = "row chain"
    program = softmax(16, 64), A100
    wins = [(softmax(4096, 1000), A100), (softmax(4096, 1000), H200), (softmax(4096, 1000), OPENCL)]
    loses = [(softmax(4096, 100, axis=0), A100, "apart")]
    refuses = [
        (softmax(1, 1 << 20), A100, "so few long rows leave SMs idle"),
        (softmax(1, 1 << 20), H200, "a row of 1048576 elements is more than 8 blocks can keep"),
        (softmax(64, te.var("n")), A100, "a row whose length is not known cannot be kept in registers"),
        (total(64, 64), A100, "it is not a chain of stages"),
    ]
    computes = [(softmax(3, 71), A100), (softmax(8, 33, axis=0), A100)]


def test_the_number_of_rows_may_be_dynamic() -> None:
    args = softmax(te.size_var("n"), 24)
    assert asked(args, A100).best == "row chain"
    plan = forced("row chain", args, A100)
    for n in (1, 19):
        x = np.random.default_rng(n).standard_normal((n, 24), "float32")
        found = np.zeros_like(x)
        tir.interpret(plan.sch.mod["main"], x, found)
        e = np.exp(x - x.max(1, keepdims=True))
        np.testing.assert_allclose(found, e / e.sum(1, keepdims=True), rtol=1e-4)
