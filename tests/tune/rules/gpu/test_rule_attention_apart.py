"""The rule `attention apart`: attention in three kernels."""

from __future__ import annotations

from gpu_rule_checks import SlowRuleTests
from gpu_rule_programs import A100, H200, attention, total


class TestAttentionApart(SlowRuleTests):
    rule = "attention apart"
    program = attention(), H200
    loses = [(attention(1024, 64, 8), H200, "attention")]
    refuses = [
        (attention(), A100, "the target has no tma, wgmma"),
        (total(64, 64), H200, "it is not a product"),
    ]
