"""The rule `single thread`: one thread for all results, where no loop can be shared."""

from __future__ import annotations

from gpu_rule_checks import RuleTests
from gpu_rule_programs import A100, cumsum, cumulated, softmax, tanh


class TestSingleThread(RuleTests):
    rule = "single thread"
    program = tanh(4, 4), A100
    wins = [(cumulated(4, 4), A100)]
    loses = [(tanh(4, 4), A100, "elementwise"), (cumsum(4, 4), A100, "scan")]
    refuses = [
        (softmax(64, 64), A100, "it is a chain of stages"),
        (cumulated(64, 64), A100, "its parallel loops become threads"),
    ]
