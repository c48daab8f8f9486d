"""The rule `columns`: reductions along a dimension that is not contiguous."""

from __future__ import annotations

from gpu_rule_checks import RuleTests
from gpu_rule_programs import A100, H200, product, total

from tilewright import te


class TestColumns(RuleTests):
    rule = "columns"
    program = total(64, 32, axis=0), A100
    wins = [(total(4096, 1000, axis=0), A100), (total(4096, 1000, axis=0), H200)]
    refuses = [
        (total(8, 1000, axis=0), A100, "its columns are short: one thread reduces each"),
        (total(64, 64), A100, "it reduces along contiguous memory"),
        (total(te.var("n"), 64, axis=0), A100, "a size is not known"),
        (product(64, 64, 64), A100, "its operands are reused for several results"),
    ]
    computes = [(total(70, 33, axis=0), A100), (total(3, 40, 8, axis=1), A100)]
