"""The rule `apart`: the stages of a chain, a kernel for each."""

from __future__ import annotations

from gpu_rule_checks import RuleTests
from gpu_rule_programs import A100, H200, softmax, total


class TestApart(RuleTests):
    rule = "apart"
    program = softmax(16, 64), A100
    wins = [(softmax(1, 1 << 20), A100), (softmax(1, 1 << 20), H200), (softmax(4096, 100, axis=0), A100)]
    loses = [(softmax(4096, 1000), A100, "row chain")]
    refuses = [(total(64, 64), A100, "it is not a chain of stages")]
    computes = [(softmax(3, 71), A100)]
