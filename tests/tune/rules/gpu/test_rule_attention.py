"""The rule `attention`: the scores, their softmax and the product with the values in one kernel."""

from __future__ import annotations

from gpu_rule_checks import SlowRuleTests
from gpu_rule_programs import A100, H200, attention, total


class TestAttention(SlowRuleTests):
    rule = "attention"
    program = attention(), H200
    wins = [(attention(1024, 64, 8), H200)]
    refuses = [
        (attention(), A100, "the target has no tma, wgmma"),
        (total(64, 64), H200, "it is not a product"),
    ]
