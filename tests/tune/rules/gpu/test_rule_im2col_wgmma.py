"""The rule `im2col wgmma`: 16-bit convolutions as products, by warpgroups."""

from __future__ import annotations

from gpu_rule_checks import SlowRuleTests
from gpu_rule_programs import A100, H200, conv, product


class TestIm2colWgmma(SlowRuleTests):
    rule = "im2col wgmma"
    program = conv((1, 6, 6, 64), 64, 3, "float16", 1), H200
    wins = [(conv((1, 14, 14, 64), 64, 3, "float16", 1), H200)]
    refuses = [
        (conv((1, 14, 14, 64), 64, 3, "float16", 1), A100, "the target has no tma, wgmma"),
        (conv((1, 14, 14, 8), 64, 3, "float16"), H200, "lines of 8 channels would be mostly padding"),
        (conv((1, 14, 14, 3), 64, 3, "float16", 1), H200, "TMA copies whole pieces of 16 bytes"),
        (conv((1, 14, 14, 64), 64, 3, "int8", 1), H200, "it does not multiply int8"),
        (product(64, 64, 64, "float16"), H200, "it is a product of matrices"),
    ]
