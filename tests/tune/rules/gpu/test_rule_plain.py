"""The rule `plain`: a thread for each result."""

from __future__ import annotations

from gpu_rule_checks import RuleTests
from gpu_rule_programs import A100, cumsum, product, softmax, total


class TestPlain(RuleTests):
    rule = "plain"
    program = product(8, 8, 8), A100
    wins = [(total(8, 1000, axis=0), A100)]
    loses = [(total(4096, 1000), A100, "rows"), (product(64, 64, 64), A100, "SIMT")]
    refuses = [
        (softmax(64, 64), A100, "it is a chain of stages"),
        (total(64), A100, "no loop can be shared by threads"),
        (cumsum(64, 64), A100, "no loop can be shared by threads"),
    ]
    computes = [(product(3, 5, 7), A100)]
