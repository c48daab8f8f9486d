"""The rule `gathered mma`: convolutions of any layout, with any number of channels, by tensor cores."""

from __future__ import annotations

from gpu_rule_checks import SlowRuleTests
from gpu_rule_programs import A100, H200, T4, channels_first, conv, product


class TestGatheredMma(SlowRuleTests):
    rule = "gathered mma"
    program = channels_first((1, 5, 6, 7), 17, 3, "float16", 1), A100
    wins = [
        (channels_first((1, 41, 54, 54), 61, 3, "bfloat16", 1), H200),
        (channels_first((1, 245, 8, 8), 350, 3, "float16", 1), H200),
        (channels_first((8, 250, 10, 10), 8, 1, "float16"), A100),
    ]
    loses = [(conv((1, 14, 14, 64), 64, 3, "float16", 1), H200, "im2col wgmma")]
    refuses = [
        (channels_first((1, 41, 54, 54), 61, 3, "float16", 1), T4, "the target has no cp.async"),
        (product(64, 64, 64, "float16"), A100, "it is a product of matrices"),
    ]
