"""The rule `shared tile`: reductions whose operands are reused, in tiles of shared memory."""

from __future__ import annotations

from gpu_rule_checks import RuleTests
from gpu_rule_programs import A100, OPENCL, T4, depthwise, product, softmax


class TestSharedTile(RuleTests):
    rule = "shared tile"
    program = product(32, 32, 32), OPENCL
    rows = 1
    wins = [(product(512, 512, 512), OPENCL), (product(512, 512, 512), T4), (product(32, 8, 32), A100)]
    loses = [(product(512, 512, 512), A100, "SIMT"), (depthwise(), A100, "windows")]
    refuses = [
        (softmax(64, 64), A100, "no element is reused for several results"),
        (product(1, 512, 512), A100, "it is the product of a matrix with a few vectors"),
    ]
