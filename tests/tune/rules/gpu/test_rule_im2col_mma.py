"""The rule `im2col mma`: convolutions as products, by the tensor cores of any architecture."""

from __future__ import annotations

from gpu_rule_checks import SlowRuleTests
from gpu_rule_programs import A100, H200, T4, conv, product


class TestIm2colMma(SlowRuleTests):
    rule = "im2col mma"
    program = conv((1, 6, 6, 16), 32, 3, "float16", 1), A100
    wins = [
        (conv((1, 14, 14, 64), 64, 3, "float16", 1), A100),
        (conv((1, 14, 14, 3), 64, 3, "float16", 1), H200),
        (conv((1, 14, 14, 64), 64, 3, "int8", 1), A100),
    ]
    loses = [
        (conv((1, 14, 14, 64), 64, 3, "float16", 1), H200, "im2col wgmma"),
        (conv((1, 14, 14, 64), 64, 3, "int8", 1), T4, "im2col dp4a"),
    ]
    refuses = [
        (conv((1, 8, 8, 8), 64, 3), A100, "it is not a convolution whose channels are the last dimension"),
        (product(64, 64, 64, "float16"), A100, "it is a product of matrices"),
    ]
