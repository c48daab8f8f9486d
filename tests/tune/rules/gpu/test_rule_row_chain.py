"""The rule `row chain`: a chain of stages in one kernel, with each row in registers."""

from __future__ import annotations

from gpu_rule_checks import RuleTests
from gpu_rule_programs import A100, H200, OPENCL, softmax, total

from tilewright import te


class TestRowChain(RuleTests):
    rule = "row chain"
    program = softmax(16, 64), A100
    wins = [(softmax(4096, 1000), A100), (softmax(4096, 1000), H200), (softmax(4096, 1000), OPENCL)]
    loses = [(softmax(4096, 100, axis=0), A100, "apart")]
    refuses = [
        (softmax(1, 1 << 20), A100, "so few long rows leave SMs idle"),
        (softmax(1, 1 << 20), H200, "a row of 1048576 elements is more than 8 blocks can keep"),
        (softmax(te.var("n"), 64), A100, "a row whose length is not known cannot be kept in registers"),
        (total(64, 64), A100, "it is not a chain of stages"),
    ]
    computes = [(softmax(3, 71), A100), (softmax(8, 33, axis=0), A100)]
