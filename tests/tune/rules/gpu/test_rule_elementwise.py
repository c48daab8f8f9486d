"""The rule `elementwise`: threads over all elements, in vectors."""

from __future__ import annotations

from gpu_rule_checks import RuleTests
from gpu_rule_programs import A100, OPENCL, softmax, tanh, total, transposed


class TestElementwise(RuleTests):
    rule = "elementwise"
    program = tanh(16, 64), A100
    wins = [(tanh(1024, 1024), A100), (tanh(1024, 1024), OPENCL), (tanh(4, 4), A100)]
    loses = [(transposed(1024, 1024), A100, "transpose")]
    refuses = [
        (total(64, 64), A100, "its elements are not computed one by one"),
        (softmax(64, 64), A100, "its elements are not computed one by one"),
    ]
    computes = [(tanh(7, 33), A100)]
