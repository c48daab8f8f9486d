"""The rule `im2col dp4a`: int8 convolutions as products, by `dp4a`."""

from __future__ import annotations

from gpu_rule_checks import SlowRuleTests
from gpu_rule_programs import A100, T4, conv, product


class TestIm2colDp4a(SlowRuleTests):
    rule = "im2col dp4a"
    program = conv((1, 6, 6, 16), 32, 3, "int8", 1), A100
    wins = [(conv((1, 14, 14, 64), 64, 3, "int8", 1), T4)]
    loses = [(conv((1, 14, 14, 64), 64, 3, "int8", 1), A100, "im2col mma")]
    refuses = [
        (conv((1, 14, 14, 64), 64, 3, "float16", 1), A100, "it does not multiply float16"),
        (product(64, 64, 64, "int8"), A100, "it is a product of matrices"),
    ]
