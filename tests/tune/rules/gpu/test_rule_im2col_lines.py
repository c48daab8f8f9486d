"""The rule `im2col lines wgmma`: convolutions with few channels, whose lines are a row of the window."""

from __future__ import annotations

from gpu_rule_checks import SlowRuleTests
from gpu_rule_programs import A100, H200, conv


class TestIm2colLinesWgmma(SlowRuleTests):
    rule = "im2col lines wgmma"
    program = conv((1, 6, 6, 8), 64, 3, "float16"), H200
    wins = [(conv((1, 14, 14, 8), 64, 3, "float16"), H200)]
    refuses = [
        (conv((1, 14, 14, 8), 64, 3, "float16"), A100, "the target has no tma, wgmma"),
        (conv((1, 14, 14, 64), 64, 3, "float16", 1), H200, "64 channels are enough for a line"),
        (conv((1, 14, 14, 3), 64, 3, "float16", 1), H200, "TMA copies whole pieces of 16 bytes"),
    ]
