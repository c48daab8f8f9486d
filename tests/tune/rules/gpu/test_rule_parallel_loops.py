"""The rule `parallel loops`: loops that are parallel already."""

from __future__ import annotations

from gpu_rule_checks import RuleTests
from gpu_rule_programs import A100, OPENCL, cumsum, tanh


class TestParallelLoops(RuleTests):
    rule = "parallel loops"
    program = cumsum(1024, 3), A100
    wins = [(cumsum(4096, 64), A100), (cumsum(4096, 64), OPENCL)]
    refuses = [
        (cumsum(64, 64), A100, "it has no parallel loops of its own"),
        (tanh(64, 64), A100, "it has no parallel loops of its own"),
    ]
