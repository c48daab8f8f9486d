"""The rule `SIMT with TMA`: float32 products whose operands TMA copies."""

from __future__ import annotations

from gpu_rule_checks import SlowRuleTests
from gpu_rule_programs import A100, H200, product


class TestSIMTWithTMA(SlowRuleTests):
    rule = "SIMT with TMA"
    program = product(64, 64, 32), H200
    wins = [(product(512, 512, 512), H200), (product(2048, 2048, 2048), H200)]
    refuses = [
        (product(512, 512, 512), A100, "the target has no setmaxnreg, tma"),
        (product(500, 500, 501), H200, "TMA cannot copy its operands"),
        (product(512, 32, 512), H200, "most of a tile would be padding"),
        (product(512, 512, 512, "float16"), H200, "it does not multiply float16"),
    ]
