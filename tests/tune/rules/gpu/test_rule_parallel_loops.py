"""The rule `parallel loops`: loops that are parallel already."""

from __future__ import annotations

from gpu_rule_checks import RuleTests
from gpu_rule_programs import A100, OPENCL, cumsum, cumulated, tanh


class TestParallelLoops(RuleTests):
    rule = "parallel loops"
    program = cumulated(1024, 3), A100
    wins = [(cumulated(4096, 64), A100), (cumulated(4096, 64), OPENCL), (cumulated(64, 64), A100)]
    loses = [(cumsum(4096, 64), A100, "scan")]
    refuses = [
        (cumulated(4, 64), A100, "it has no parallel loops of its own"),
        (tanh(64, 64), A100, "it has no parallel loops of its own"),
    ]
