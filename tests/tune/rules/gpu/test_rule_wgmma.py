"""The rule `wgmma`: 16-bit products by Hopper's warpgroups."""

from __future__ import annotations

from gpu_rule_checks import SlowRuleTests
from gpu_rule_programs import A100, H200, product, softmax


class TestWgmma(SlowRuleTests):
    rule = "wgmma"
    program = product(64, 64, 64, "float16"), H200
    wins = [(product(512, 512, 512, "float16"), H200), (product(128, 2048, 512, "float16"), H200)]
    loses = [(product(8, 512, 512, "float16"), H200, "mma")]
    refuses = [
        (product(512, 512, 512, "float16"), A100, "the target has no tma, wgmma"),
        (product(512, 512, 512), H200, "the target has no `wgmma` for float32"),
        (product(512, 512, 512, "int8"), H200, "`wgmma` multiplies floats here, no integers"),
        (product(512, 512, 511, "float16"), H200, "TMA cannot copy its operands"),
        (product(1, 512, 512, "float16"), H200, "it is the product of a matrix with a few vectors"),
        (softmax(64, 64), H200, "no element is reused for several results"),
    ]
