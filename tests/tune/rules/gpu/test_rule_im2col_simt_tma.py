"""The rule `im2col SIMT with TMA`: float32 convolutions with windows of one pixel, whose operands TMA copies."""

from __future__ import annotations

from gpu_rule_checks import SlowRuleTests
from gpu_rule_programs import A100, H200, conv, product


class TestIm2colSIMTWithTMA(SlowRuleTests):
    rule = "im2col SIMT with TMA"
    program = conv((1, 32, 8, 8), 64, 1), H200
    wins = [(conv((1, 32, 16, 16), 64, 1), H200)]
    refuses = [
        (conv((1, 32, 16, 16), 64, 1), A100, "the target has no setmaxnreg, tma"),
        (conv((1, 64, 28, 28), 64, 3, pad=1), H200, "its windows have several pixels"),
        (product(64, 64, 64), H200, "it is a product of matrices"),
    ]
