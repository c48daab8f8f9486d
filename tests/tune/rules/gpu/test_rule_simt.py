"""The rule `SIMT`: float32 products in register tiles, whose operands threads copy asynchronously."""

from __future__ import annotations

from gpu_rule_checks import SlowRuleTests
from gpu_rule_programs import A100, H200, T4, product


class TestSIMT(SlowRuleTests):
    rule = "SIMT"
    program = product(64, 64, 32), A100
    wins = [(product(512, 512, 512), A100), (product(500, 500, 501), H200), (product(8, 29, 1800), H200)]
    loses = [(product(512, 512, 512), H200, "SIMT with TMA")]
    refuses = [
        (product(512, 512, 512), T4, "the target has no cp.async"),
        (product(8, 29, 255), A100, "there are too few results for tiles in registers"),
        (product(32, 8, 32), A100, "there are too few results for tiles in registers"),
        (product(512, 512, 512, "int8"), A100, "it does not multiply int8"),
    ]
