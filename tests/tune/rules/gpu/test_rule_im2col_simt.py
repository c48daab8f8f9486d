"""The rule `im2col SIMT`: float32 convolutions as products in register tiles."""

from __future__ import annotations

from gpu_rule_checks import SlowRuleTests
from gpu_rule_programs import A100, H200, T4, conv, product


class TestIm2colSIMT(SlowRuleTests):
    rule = "im2col SIMT"
    program = conv((1, 8, 8, 8), 64, 3, pad=1), A100
    wins = [(conv((1, 64, 28, 28), 64, 3, pad=1), A100), (conv((1, 64, 28, 28), 64, 3, pad=1), H200)]
    loses = [(conv((1, 32, 16, 16), 64, 1), H200, "im2col SIMT with TMA")]
    refuses = [
        (conv((1, 64, 28, 28), 64, 3, pad=1), T4, "the target has no cp.async"),
        (conv((1, 14, 14, 64), 64, 3, "float16", 1), A100, "it is not a contraction of float32 operands"),
        (product(64, 64, 64), A100, "it is a product of matrices"),
    ]
