"""The rule `dp4a`: int8 products by the instruction that multiplies four pairs."""

from __future__ import annotations

from gpu_rule_checks import SlowRuleTests
from gpu_rule_programs import A100, OPENCL, T4, product


class TestDp4a(SlowRuleTests):
    rule = "dp4a"
    program = product(32, 32, 64, "int8"), A100
    wins = [(product(64, 64, 64, "int8", True), A100)]  # tensor cores would need a transposed operand too
    loses = [(product(512, 512, 512, "int8"), A100, "mma"), (product(512, 512, 512, "int8"), T4, "mma")]
    refuses = [
        (product(512, 512, 512, "int8"), OPENCL, "the target has no dp4a"),
        (product(512, 512, 512), A100, "it does not multiply float32"),
        (product(64, 64, 3, "int8", True), A100, "an operand has too few rows or columns to be transposed"),
    ]
