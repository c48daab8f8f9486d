"""The rule `rows`: a thread block for each contiguous row, or for several short ones."""

from __future__ import annotations

from gpu_rule_checks import RuleTests
from gpu_rule_programs import A100, OPENCL, pooled, product, softmax, total

from tilewright import te


class TestRows(RuleTests):
    rule = "rows"
    program = total(16, 64), A100
    wins = [
        (total(4096, 1000), A100),
        (total(4096, 1000), OPENCL),
        (total(1 << 24), A100),  # in equal parts, and a second kernel
        (product(1, 512, 512), A100),
    ]
    loses = [(total(16777213), A100, "row parts")]
    refuses = [
        (total(64, 64, axis=0), A100, "it does not reduce along contiguous memory"),
        (product(64, 64, 64), A100, "its operands are reused for several results"),
        (pooled(1, 64, 56, 56), A100, "its operands are reused for several results"),
        (softmax(64, 64), A100, "it is not a single reduction"),
    ]
    computes = [(total(3, 71), A100), (total(2, 3, 50, axis=(1, 2)), A100), (total(te.var("n"), 64), A100)]
