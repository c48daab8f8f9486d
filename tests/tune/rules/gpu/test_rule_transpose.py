"""The rule `transpose`: transposes, tile by tile through shared memory."""

from __future__ import annotations

from gpu_rule_checks import RuleTests
from gpu_rule_programs import A100, OPENCL, tanh, total, transposed


class TestTranspose(RuleTests):
    rule = "transpose"
    program = transposed(64, 64), A100
    wins = [(transposed(1024, 1024), A100), (transposed(1024, 1024), OPENCL)]
    refuses = [
        (tanh(64, 64), A100, "not exactly one of its reads is contiguous along another axis than the result"),
        (
            transposed(64, 3),
            A100,
            "not exactly one of its reads is contiguous along another axis than the result",
        ),
        (total(64, 64), A100, "its elements are not computed one by one"),
    ]
    computes = [(transposed(33, 70), A100)]
